//! Every bound, named with its unit.
//!
//! The constants are fixed by the design; [`Limits`] holds those that an operator may set.
//! Relations between bounds that the promises rest on are asserted here, at compile time for the
//! constants and in [`Limits::check`] for what comes from outside.

use std::time::Duration;

/// Bytes of a request head (request line and fields), RFC 9112 section 3. More is 431.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Header fields in one request head. More is 431.
pub const HEAD_FIELDS_MAX: usize = 64;
/// Bytes of the name of an API key.
pub const PRINCIPAL_NAME_BYTES_MAX: usize = 64;
/// Bytes of the subject of a token; more is 401.
pub const TOKEN_SUBJECT_BYTES_MAX: usize = 512;
/// Tokens that a shard remembers to have found good, at about 250 bytes each.
pub const CHECKED_TOKENS_MAX: usize = 4096;
/// Keys of one JWKS.
pub const JWKS_KEYS_MAX: usize = 64;
/// Bytes of one JWKS.
pub const JWKS_BYTES_MAX: u64 = 256 * 1024;
/// How long fetching a JWKS may take.
pub const JWKS_TIME_MAX: Duration = Duration::from_secs(5);
/// How often a JWKS is fetched.
pub const JWKS_INTERVAL: Duration = Duration::from_secs(300);
/// How long after a JWKS was fetched a token of an unknown key has it fetched again, at the least.
pub const JWKS_REST: Duration = Duration::from_secs(5);
/// Bytes of chunk extensions and trailer fields in one chunked body. More is 400.
pub const CHUNK_OVERHEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a rejected body that are read and thrown away to keep the connection usable.
pub const DRAIN_BYTES_MAX: usize = 256 * 1024;
/// Nesting depth of JSON from either side.
pub const JSON_DEPTH_MAX: usize = 128;
/// Messages in one batch array (2025-03-26).
pub const BATCH_MESSAGES_MAX: usize = 100;
/// Bytes of a JSON-RPC id, raw text.
pub const RPC_ID_BYTES_MAX: usize = 1024;
/// Bytes of an event id (`wire.md`: visible ASCII, at most 64).
pub const EVENT_ID_BYTES_MAX: usize = 64;
/// Bytes handed to a socket in one write of a stream, and to a stream in one fairness slice.
pub const WRITE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one comment, and of all that wait for one connection before another is dropped: what
/// is written at once has to fit into one chunk.
pub const COMMENT_BYTES_MAX: usize = WRITE_BYTES_MAX / 4;
/// Bytes of a stream sent but not yet confirmed before its connection waits for acknowledgements.
pub const RING_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Time one task may work before it yields through the ring (`engineering.md` 2).
pub const SLICE_TIME_MAX: Duration = Duration::from_micros(200);
/// `TCP_NOTSENT_LOWAT`, bytes: a stalled reader shows in the ring, not in the kernel.
pub const NOTSENT_LOWAT_BYTES: u32 = 128 * 1024;
/// Connections waiting to be accepted on one shard's listener.
pub const LISTEN_BACKLOG: i32 = 4096;
/// Bytes of one read from a socket, at the most, before the buffer has to grow for a body.
pub const READ_BYTES_MAX: usize = 16 * 1024;
/// How long a connection parks a read buffer after a request because the next one may follow.
pub const HOT_TIME: Duration = Duration::from_secs(1);
/// How long a refused request's sender may go on before its connection is closed.
pub const LINGER_TIME: Duration = Duration::from_secs(1);
/// Slots of a stream's producer ring, operations.
pub const PRODUCER_RING_SLOTS: usize = 256;
/// Handles on one shard's streams that off-core producers hold at one time.
pub const PRODUCERS_MAX: usize = 16 * 1024;
/// Commands that wait in one shard's mailbox.
pub const MAILBOX_COMMANDS_MAX: usize = PRODUCERS_MAX + 64 + ADMIN_CONNECTIONS_MAX;
/// Requests of one session's upstream that its client has not answered.
pub const ASKED_MAX: usize = 4096;
/// The most that the bounds of one message and one body may be set to, bytes.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Tombstones kept in one session: streams whose events are gone but whose ids can be answered.
pub const TOMBSTONES_MAX: usize = 256;
/// Finished streams kept in one session.
pub const FINISHED_STREAMS_MAX: usize = 4096;
/// What a line costs beside its bytes while it waits for a child: its vector and its places in the
/// queues.
pub const LINE_OVERHEAD_BYTES: usize = 64;
/// Bytes of child stderr kept for the log line of an exit.
pub const STDERR_TAIL_BYTES: usize = 4 * 1024;
/// The most shards that may be asked for: more than any machine this is meant for has CPUs.
pub const SHARDS_MAX: usize = 64;
/// Connections of the admin listener.
pub const ADMIN_CONNECTIONS_MAX: usize = 32;
/// How long the admin listener waits for a peer to send or to take something.
pub const ADMIN_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of one request body of the admin listener.
pub const ADMIN_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Servers of one process.
pub const SERVERS_MAX: usize = 256;
/// Characters of a server's name.
pub const SERVER_NAME_CHARS_MAX: usize = 32;
/// Segments that each shard's part of the durable log must have room for: the one that is written,
/// the next one, a spare, and one whose records are being copied out.
pub const SEGMENTS_MIN: u64 = 4;
/// Bytes that a record adds to a message at the most, besides its SSE framing and replaced ids.
pub const RECORD_OVERHEAD_BYTES: u64 = 4 * 1024;
/// The largest segment, bytes: offsets in it are 32 bits wide.
pub const SEGMENT_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Bytes of one segment unless told otherwise.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of the durable log unless told otherwise.
const DATA_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// How often an unhealthy re-attach of one stream is allowed before its answer is delayed.
pub const REATTACH_BURST: u32 = 20;
/// How long the answer to a too eager re-attach is delayed.
pub const REATTACH_DELAY: Duration = Duration::from_millis(500);
/// Bytes of a shard's durable log that wait to be written before its producers have to.
pub const PENDING_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Files of segments that a shard keeps open, beside those that are not wholly synced: a log of
/// many small segments must not take the descriptors that connections need.
pub const OPEN_SEGMENTS_MAX: usize = 16;
/// Bytes written to a shard's durable log after which they are synced, whatever the level: the
/// kernel is not left with more dirty pages than a small container may have.
pub const WRITE_BACK_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes of one write to a shard's durable log, unless one record alone is larger: the first of a
/// flood's events are committed while the others are still being logged.
pub const LOG_WRITE_BYTES_MAX: usize = 1024 * 1024;
/// How long a full disk makes producers wait before the durable log counts as failed.
pub const DISK_FULL_TIME_MAX: Duration = Duration::from_secs(60);
/// How often a write is tried again on a full disk.
pub const DISK_FULL_RETRY_TIME: Duration = Duration::from_millis(500);

/// What a session or shard that is over its budget of `bytes` is brought down to. Relief looks at
/// everything in its scope; this makes it rare.
pub const fn relieved(bytes: u64) -> u64 {
    bytes / 8 * 7
}

/// What an operator may set; [`Default`] is what the help text shows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of the whole process.
    pub connections: usize,
    /// Sessions of the whole process.
    pub sessions: usize,
    /// Requests of one session that may be in flight.
    pub calls_per_session: usize,
    /// Bytes of one request body.
    pub body_bytes: usize,
    /// Bytes of one message from an upstream (a line of a child).
    pub event_bytes: usize,
    /// Bytes of one stream's log.
    pub stream_bytes: u64,
    /// Events of one stream's log.
    pub stream_events: u64,
    /// Bytes of everything in the process that grows: logs and what else sessions hold, bodies
    /// being received, answers half sent, lines that children have not read. Each shard has its
    /// part.
    pub memory_bytes: u64,
    /// Bytes that one session holds: its logs, its streams, its calls and their kept answers.
    pub session_bytes: u64,
    /// Bytes that wait for a child to read its stdin.
    pub stdin_bytes: usize,
    /// How long a finished stream's events are kept, and an unread standalone event.
    pub retention: Duration,
    /// How long a session without request, stream or open call is kept.
    pub idle_timeout: Duration,
    /// How long a client may take for a request head or between two reads of a body.
    pub head_timeout: Duration,
    /// How long a keep-alive connection may be silent between requests.
    pub keep_alive_timeout: Duration,
    /// Silence after which a comment is sent on an open stream.
    pub sse_keep_alive: Duration,
    /// How long a peer may leave bytes unacknowledged, or take none, before its connection is
    /// gone: `TCP_USER_TIMEOUT` (tcp(7)).
    pub peer_timeout: Duration,
    /// How long the upstream may take for `initialize`.
    pub init_timeout: Duration,
    /// How long the upstream may take for a request without progress.
    pub request_timeout: Duration,
    /// How long the upstream may take for a request in all.
    pub request_timeout_max: Duration,
    /// How long a producer may wait for a slow reader before that reader is cut.
    pub pause_timeout: Duration,
    /// How long the client may take to answer a request of the upstream.
    pub server_request_timeout: Duration,
    /// How long open calls are served after SIGTERM.
    pub drain_timeout: Duration,
    /// How long a child may take to exit at each step: after EOF, and after SIGTERM.
    pub child_grace: Duration,
    /// Bytes of the durable log of the whole process; each shard has its part.
    pub data_bytes: u64,
    /// How long an event is kept in the durable log.
    pub data_age: Duration,
    /// Bytes of one segment of the durable log.
    pub segment_bytes: u64,
    /// Bytes of one stream that are kept in the durable log.
    pub stream_disk_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            sessions: 10_000,
            calls_per_session: 1_000,
            body_bytes: 8 * 1024 * 1024,
            event_bytes: 8 * 1024 * 1024,
            stream_bytes: 16 * 1024 * 1024,
            stream_events: 1_000_000,
            memory_bytes: 1024 * 1024 * 1024,
            session_bytes: 64 * 1024 * 1024,
            stdin_bytes: 16 * 1024 * 1024,
            retention: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(1800),
            head_timeout: Duration::from_secs(15),
            keep_alive_timeout: Duration::from_secs(75),
            sse_keep_alive: Duration::from_secs(15),
            peer_timeout: Duration::from_secs(120),
            init_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(300),
            request_timeout_max: Duration::from_secs(3600),
            pause_timeout: Duration::from_secs(60),
            server_request_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(10),
            child_grace: Duration::from_secs(2),
            data_bytes: DATA_BYTES,
            data_age: Duration::from_secs(24 * 3600),
            segment_bytes: SEGMENT_BYTES,
            stream_disk_bytes: 256 * 1024 * 1024,
        }
    }
}

impl Limits {
    /// Bytes of one stream that may be sent and not confirmed: with the half of the budget that a
    /// waiting producer may be ahead of its reader there is room left for a write and an event, so
    /// that a slow reader of a producer that waits never falls out of the log.
    pub fn ring_bytes(&self) -> u64 {
        RING_BYTES_MAX.min(self.stream_bytes / 4)
    }

    /// The relations between the settable bounds; one sentence for each that does not hold, with
    /// the flags that can mend it.
    pub fn check(&self) -> Vec<String> {
        let relations = self.check_sizes().into_iter().chain(self.check_times());
        relations.filter(|(holds, _)| !holds).map(|(_, sentence)| sentence).collect()
    }

    /// The relations that matter with a data directory, for this many shards; sentences as
    /// [`Limits::check`] has them.
    pub fn check_data(&self, shards: usize) -> Vec<String> {
        let message = self.event_bytes.max(self.body_bytes) as u64 + RECORD_OVERHEAD_BYTES;
        let least = SEGMENTS_MIN * self.segment_bytes * shards as u64;
        let relations = [
            (
                2 * message <= self.segment_bytes,
                format!(
                    "--segment-bytes ({}) must hold the largest message twice: two of \
                     --event-bytes ({}) and of --body-bytes ({}), with {RECORD_OVERHEAD_BYTES} \
                     bytes each around it",
                    self.segment_bytes, self.event_bytes, self.body_bytes
                ),
            ),
            (
                least <= self.data_bytes,
                format!(
                    "--data-bytes ({}) must hold {SEGMENTS_MIN} segments of --segment-bytes ({}) \
                     for each of {shards} shards, which is {least}",
                    self.data_bytes, self.segment_bytes
                ),
            ),
            (
                self.stream_bytes <= self.stream_disk_bytes,
                format!(
                    "--stream-bytes ({}) must not exceed --stream-disk-bytes ({}): what a stream \
                     keeps in memory is on disk too",
                    self.stream_bytes, self.stream_disk_bytes
                ),
            ),
            (
                self.stream_disk_bytes <= self.data_bytes / shards as u64,
                format!(
                    "--stream-disk-bytes ({}) must not exceed one shard's part of --data-bytes \
                     ({} for {shards} shards)",
                    self.stream_disk_bytes, self.data_bytes
                ),
            ),
            (
                self.retention <= self.data_age,
                format!(
                    "--retention ({:?}) must not exceed --data-age ({:?}): what can be resumed \
                     must still be on disk",
                    self.retention, self.data_age
                ),
            ),
        ];
        relations.into_iter().filter(|(holds, _)| !holds).map(|(_, sentence)| sentence).collect()
    }

    fn check_sizes(&self) -> [(bool, String); 6] {
        // A message also grows by the client's own id and token, which take the places of ours.
        let overhead = EVENT_OVERHEAD_BYTES + 2 * RPC_ID_BYTES_MAX as u64;
        [
            (
                self.event_bytes.max(self.body_bytes) <= MESSAGE_BYTES_MAX,
                format!(
                    "--event-bytes ({}) and --body-bytes ({}) must not exceed {MESSAGE_BYTES_MAX}",
                    self.event_bytes, self.body_bytes
                ),
            ),
            (
                self.event_bytes as u64 + overhead <= self.stream_bytes,
                format!(
                    "--event-bytes ({}) and {overhead} bytes of framing must fit into \
                 --stream-bytes ({}): the largest event must fit into one stream's log",
                    self.event_bytes, self.stream_bytes
                ),
            ),
            (
                self.session_bytes <= self.memory_bytes,
                format!(
                    "--session-bytes ({}) must not exceed --memory-bytes ({})",
                    self.session_bytes, self.memory_bytes
                ),
            ),
            (
                self.stream_bytes <= self.session_bytes,
                format!(
                    "--stream-bytes ({}) must not exceed --session-bytes ({}): one stream's log \
                     must fit into its session's budget",
                    self.stream_bytes, self.session_bytes
                ),
            ),
            (
                self.event_bytes <= self.stdin_bytes && self.body_bytes <= self.stdin_bytes,
                format!(
                    "--event-bytes ({}) and --body-bytes ({}) must not exceed --stdin-bytes ({}): \
                 the largest message must fit into the queue before a child",
                    self.event_bytes, self.body_bytes, self.stdin_bytes
                ),
            ),
            (
                self.connections > 0 && self.sessions > 0,
                "--connections and --sessions must be above 0".to_owned(),
            ),
        ]
    }

    fn check_times(&self) -> [(bool, String); 3] {
        [
            (
                self.idle_timeout >= self.retention,
                format!(
                    "--idle-timeout ({:?}) must not be below --retention ({:?}): a session must \
                 outlive the retention of its last answer",
                    self.idle_timeout, self.retention
                ),
            ),
            (
                self.request_timeout <= self.request_timeout_max,
                format!(
                    "--request-timeout ({:?}) must not exceed --request-timeout-max ({:?})",
                    self.request_timeout, self.request_timeout_max
                ),
            ),
            (
                self.pause_timeout < self.peer_timeout,
                format!(
                    "--pause-timeout ({:?}) must be below --peer-timeout ({:?}): a reader whose \
                     window is closed that long counts as gone",
                    self.pause_timeout, self.peer_timeout
                ),
            ),
        ]
    }
}

/// Bytes that an event's SSE framing adds at the most: `id: `, the id, `\ndata: `, two line ends.
pub const EVENT_OVERHEAD_BYTES: u64 = 16 + EVENT_ID_BYTES_MAX as u64;

// What nobody has set must not be refused on a large machine.
const _: () = assert!(SEGMENTS_MIN * SEGMENT_BYTES * SHARDS_MAX as u64 <= DATA_BYTES);
const _: () = assert!(
    EVENT_OVERHEAD_BYTES + 2 * RPC_ID_BYTES_MAX as u64 + 64 <= RECORD_OVERHEAD_BYTES,
    "framing, two replaced ids, and a record's header"
);
const _: () = assert!(SEGMENT_BYTES_MAX <= u32::MAX as u64);
const _: () = assert!(HEAD_BYTES_MAX <= WRITE_BYTES_MAX);
const _: () = assert!(NOTSENT_LOWAT_BYTES as u64 <= RING_BYTES_MAX);
const _: () = assert!(PRODUCER_RING_SLOTS.is_power_of_two());
