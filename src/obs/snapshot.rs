//! Where everything stands at one moment: what SIGUSR1 writes to the log and the admin listener
//! shows.
//!
//! Invariant: sessions are named by their short ids; nothing in here opens a stream.

use serde::Serialize;

/// One shard.
#[derive(Clone, Debug, Serialize)]
pub struct ShardSnapshot {
    /// Its index.
    pub shard: u16,
    /// Sessions that it owns.
    pub sessions: usize,
    /// Connections that it serves.
    pub connections: usize,
    /// It takes no new connections any more.
    pub draining: bool,
    /// Bytes that it may hold.
    pub budget_bytes: u64,
    /// Bytes that its sessions hold.
    pub session_bytes: u64,
    /// Bytes of bodies, half-sent answers and lines that wait for a child.
    pub transit_bytes: u64,
    /// Its durable log, where there is one.
    pub log: Option<LogSnapshot>,
}

/// One shard's durable log.
#[derive(Clone, Debug, Serialize)]
pub struct LogSnapshot {
    /// Bytes of its segments.
    pub disk_bytes: u64,
    /// Bytes that wait to be written.
    pub pending_bytes: u64,
    /// Writes wait for room on the disk.
    pub disk_full: bool,
    /// Why it takes nothing any more, if that is so.
    pub fault: Option<String>,
}

/// One session.
#[derive(Clone, Debug, Serialize)]
pub struct SessionSnapshot {
    /// Its short id.
    pub session: String,
    /// The shard that owns it.
    pub shard: u16,
    /// The server behind it.
    pub server: String,
    /// The protocol revision; empty before it is agreed on.
    pub revision: String,
    /// Calls that are open.
    pub calls: usize,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Bytes that its child has not read.
    pub queued_bytes: u64,
    /// Its streams, by number.
    pub streams: Vec<StreamSnapshot>,
}

/// One stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamSnapshot {
    /// Its number; 0 is the standalone one.
    pub stream: u32,
    /// A connection reads it.
    pub attached: bool,
    /// Nothing follows.
    pub finished: bool,
    /// Number of the oldest event kept.
    pub floor: u64,
    /// Number of the newest event.
    pub tail: u64,
    /// The newest event handed to the connection.
    pub sent: u64,
    /// The newest event that the peer's TCP has acknowledged.
    pub confirmed: u64,
    /// The highest cursor that was presented.
    pub named: u64,
    /// The newest event that may be sent.
    pub committed: u64,
    /// Bytes charged in memory.
    pub log_bytes: u64,
    /// Bytes in the durable log.
    pub disk_bytes: u64,
    /// Bytes sent and not acknowledged.
    pub unconfirmed_bytes: u64,
    /// Events that wait to be sent.
    pub lag_events: u64,
    /// Their bytes.
    pub lag_bytes: u64,
    /// Since when the oldest of them waits, seconds.
    pub lag_s: f32,
}
