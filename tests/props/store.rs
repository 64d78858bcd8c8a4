//! The durable log's codec and its recovery: what is written comes back, and a crash at any byte
//! leaves a prefix.

use std::collections::BTreeMap;

use gapless::mcp::session_id::SessionId;
use gapless::store::body::{SessionBody, StreamBody, StreamId, Transport};
use gapless::store::journal::{Action, Journal, Level};
use gapless::store::record::{self, Header, Kind};
use gapless::store::recovery::{Recovered, Scanner, Stop, Sure};
use gapless::store::segment::{SegmentHeader, Segments};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const BOOT: [u8; 16] = [3; 16];
const SEGMENT_BYTES: u32 = 4096;

fn header() -> impl Strategy<Value = Header> {
    let fields = (select(Kind::ALL.to_vec()), any::<u8>(), any::<u16>(), any::<u32>());
    (fields, any::<u32>(), any::<u64>()).prop_map(
        |((kind, flags, answers, slot), stream, number)| Header {
            kind,
            flags,
            answers,
            slot,
            stream,
            number,
        },
    )
}

fn session_body() -> impl Strategy<Value = SessionBody> {
    let raw = || vec(any::<u8>(), 0..40);
    let names = (".{0,12}", ".{0,12}", raw(), raw());
    (any::<(u16, [u8; 16], u64, bool, u32)>(), names).prop_map(
        |(
            (shard, random, principal, sse, next_stream),
            (revision, endpoint, initialize, result),
        )| {
            let transport = if sse { Transport::HttpSse } else { Transport::StreamableHttp };
            let id = SessionId::from_random(shard, random);
            SessionBody {
                id,
                server: "default".into(),
                principal,
                transport,
                next_stream,
                revision,
                endpoint,
                initialize,
                result,
            }
        },
    )
}

/// The files of a log, as a disk that loses nothing has them.
type Files = BTreeMap<u32, Vec<u8>>;

fn run(journal: &mut Journal, files: &mut Files) {
    while let Some(action) = journal.poll_action() {
        match action {
            Action::Create(number) => {
                let header = SegmentHeader {
                    shard: 0,
                    number,
                    epoch: 1,
                    generation: 0,
                    level: Level::Process,
                    boot_id: BOOT,
                    created: 0,
                    run: 0,
                };
                let mut file = header.encode().to_vec();
                file.resize(SEGMENT_BYTES as usize, 0);
                files.insert(number, file);
                journal.handle_created(number);
            }
            Action::SyncDirectory => journal.handle_directory_synced(),
            Action::Write { seq, segment, offset, bytes } => {
                let file = files.get_mut(&segment).expect("a segment that was created");
                file[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                journal.handle_written(seq, bytes.len(), bytes);
            }
            Action::Sync { upto, .. } => journal.handle_synced(upto),
            Action::Remove(number) => {
                files.remove(&number);
                journal.handle_removed(number);
            }
        }
    }
}

fn recover(files: &Files, boot_id: [u8; 16]) -> Recovered {
    let scan = |sure| {
        let mut scanner = Scanner::new(0, 0, boot_id, sure);
        for (&number, file) in files {
            scanner.begin(number);
            scanner.feed(file);
        }
        scanner.finish()
    };
    match scan(Sure::default()) {
        Err(Stop::Again { sure }) => scan(sure).expect("a second scan"),
        recovered => recovered.expect("a scan"),
    }
}

/// Two streams of one session and their events: which stream, and the bytes.
fn events() -> impl Strategy<Value = Vec<(u32, Vec<u8>)>> {
    vec((0..2_u32, vec(any::<u8>(), 0..300)), 0..80)
}

/// Logs a session and the events; gives the place and end of each event.
fn logged(events: &[(u32, Vec<u8>)], files: &mut Files) -> Vec<u64> {
    let mut journal = Journal::new(Level::Process, 1, SEGMENT_BYTES, 0, Segments::default());
    let mut body = Vec::new();
    let id = SessionId::from_random(0, [1; 16]);
    let session = SessionBody {
        id,
        server: "default".into(),
        principal: 0,
        transport: Transport::StreamableHttp,
        next_stream: 2,
        revision: String::new(),
        endpoint: String::new(),
        initialize: Vec::new(),
        result: Vec::new(),
    };
    session.encode(&mut body);
    let of = |kind, stream, number| Header { kind, flags: 0, answers: 0, slot: 0, stream, number };
    journal.append(&of(Kind::Session, 0, 0), &body);
    body.clear();
    StreamBody::default().encode(&mut body);
    (0..2).for_each(|stream| {
        journal.append(&of(Kind::Stream, stream, 1), &body);
    });
    let (mut tails, mut ends) = ([0; 2], Vec::new());
    for (stream, bytes) in events {
        let tail = &mut tails[*stream as usize];
        *tail += 1;
        let (place, _) = journal.append(&of(Kind::Event, *stream, *tail), bytes);
        let end = place.offset as usize + record::HEADER_BYTES + bytes.len();
        ends.push(u64::from(place.segment) << 32 | end as u64);
    }
    run(&mut journal, files);
    ends
}

fn tails(recovered: &Recovered) -> [u64; 2] {
    let streams = recovered.sessions.first().map(|session| &session.streams);
    let tail = |number: u32| {
        let mut all = streams.into_iter().flatten();
        all.find(|stream| stream.number == number).map_or(0, |stream| stream.tail)
    };
    [tail(0), tail(1)]
}

proptest! {
    #[test]
    fn a_record_reads_back_and_only_in_its_segment(
        header in header(),
        body in vec(any::<u8>(), 0..200),
        segment: u32,
        other: u32,
        damage: Index,
        after in vec(any::<u8>(), 0..8),
    ) {
        let mut bytes = Vec::new();
        record::push(&mut bytes, segment, &header, &body);
        let length = bytes.len();
        bytes.extend_from_slice(&after);
        prop_assert_eq!(record::read(&bytes, segment), Ok((header, body.as_slice(), length)));
        if other != segment {
            prop_assert!(record::read(&bytes, other).is_err());
        }
        bytes[damage.index(length)] ^= 0x80;
        prop_assert!(record::read(&bytes, segment).is_err());
    }

    #[test]
    fn bodies_read_back(
        session in session_body(),
        tail: u64,
        ids in vec((vec(any::<u8>(), 0..20), any::<bool>()), 0..6),
    ) {
        let mut bytes = Vec::new();
        session.encode(&mut bytes);
        prop_assert_eq!(SessionBody::decode(&bytes), Ok(session));
        let ids = ids.into_iter().map(|(raw, answered)| StreamId { raw, answered }).collect();
        let stream = StreamBody { tail, ids };
        bytes.clear();
        stream.encode(&mut bytes);
        prop_assert_eq!(StreamBody::decode(&bytes), Ok(stream));
    }

    #[test]
    fn any_bytes_as_a_body_are_a_body_or_an_error(bytes in vec(any::<u8>(), 0..100)) {
        if let Ok(session) = SessionBody::decode(&bytes) {
            let mut again = Vec::new();
            session.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
        if let Ok(stream) = StreamBody::decode(&bytes) {
            let mut again = Vec::new();
            stream.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
    }

    #[test]
    fn a_crash_at_any_byte_leaves_exactly_the_events_that_end_before_it(
        events in events(),
        segment: Index,
        cut: Index,
        stale in any::<bool>(),
    ) {
        let mut files = Files::new();
        let ends = logged(&events, &mut files);
        let numbers: Vec<u32> = files.keys().copied().collect();
        let torn = numbers[segment.index(numbers.len())];
        let cut = 64 + cut.index(SEGMENT_BYTES as usize - 64);
        files.retain(|&number, _| number <= torn);
        let fill = if stale { 0x0A } else { 0 };
        files.get_mut(&torn).expect("the torn segment")[cut..].fill(fill);
        let recovered = recover(&files, BOOT);
        let limit = u64::from(torn) << 32 | cut as u64;
        let mut expected = [0; 2];
        for ((stream, _), _) in events.iter().zip(&ends).filter(|(_, end)| **end <= limit) {
            expected[*stream as usize] += 1;
        }
        prop_assert_eq!(tails(&recovered), expected);
        prop_assert!(recovered.sessions.iter().flat_map(|s| &s.streams).all(|s| !s.broken));
    }

    #[test]
    fn one_changed_byte_is_damage_or_a_shorter_log_and_never_another_event(
        events in events(),
        segment: Index,
        at: Index,
        same_boot: bool,
    ) {
        let mut files = Files::new();
        logged(&events, &mut files);
        let boot_id = if same_boot { BOOT } else { [4; 16] };
        let whole = recover(&files, boot_id);
        let numbers: Vec<u32> = files.keys().copied().collect();
        let file = files.get_mut(&numbers[segment.index(numbers.len())]).expect("a segment");
        file[at.index(SEGMENT_BYTES as usize)] ^= 1;
        let recovered = recover(&files, boot_id);
        let (before, after) = (tails(&whole), tails(&recovered));
        for session in &recovered.sessions {
            for stream in session.streams.iter().filter(|stream| !stream.broken) {
                let number = stream.number as usize;
                prop_assert!(after[number] <= before[number]);
                // On the same boot only what is behind the last good record is lost unnoticed.
                let is_last = recovered.counts.discarded == 0;
                prop_assert!(!same_boot || after[number] == before[number] || is_last);
                let original = whole.sessions[0].streams.iter().find(|s| s.number == stream.number);
                let lengths = |runs: &[gapless::store::recovery::Run]| -> Vec<u32> {
                    runs.iter().flat_map(|run| run.lengths.clone()).collect()
                };
                let (all, kept) = (lengths(&original.unwrap().runs), lengths(&stream.runs));
                prop_assert!(all.starts_with(&kept));
            }
        }
    }
}
