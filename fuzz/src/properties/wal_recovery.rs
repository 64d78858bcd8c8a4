//! Whatever segments hold: recovery ends, says the same however the bytes come, and yields nothing
//! that is not in the bytes as a record of that very segment.

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Unstructured};
use gapless::mcp::session_id::SessionId;
use gapless::store::body::{SessionBody, StreamBody, StreamId, Transport};
use gapless::store::journal::Level;
use gapless::store::record::{self, Bad, HEADER_BYTES, Header, Kind};
use gapless::store::recovery::{Recovered, RecoveredStream, Scanner, Stop, Sure, seal};
use gapless::store::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// The boot on which the segments are read.
const BOOT: [u8; 16] = [1; 16];
/// Sessions and streams of one session in an input, so that their records meet.
const NAMES: u8 = 3;

/// What the segments hold, one thing after the other.
#[derive(Arbitrary, Debug)]
enum Op<'a> {
    Record(Made<'a>),
    /// A record of another segment, as a reused file holds them.
    Stale(Made<'a>),
    Session {
        slot: u8,
    },
    Stream {
        slot: u8,
        stream: u8,
        tail: Option<u8>,
        ids: u8,
    },
    /// The next events of a stream.
    Events {
        slot: u8,
        stream: u8,
        count: u8,
    },
    Raw(&'a [u8]),
    Zeros(u8),
    /// A mark of a place so many bytes back.
    Mark {
        back: u16,
    },
    Segment {
        skipped: u8,
        here: bool,
        level: u8,
        headless: bool,
    },
    /// Damages a byte that is already there.
    Flip {
        back: u16,
    },
    Cut {
        bytes: u8,
    },
}

/// A record with any content.
#[derive(Arbitrary, Debug)]
struct Made<'a> {
    kind: u8,
    flags: u8,
    answers: u8,
    slot: u8,
    stream: u8,
    number: Number,
    body: &'a [u8],
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Number {
    Small(u8),
    Wild(u64),
}

/// A log as it is made.
#[derive(Default)]
struct Disk {
    files: BTreeMap<u32, Vec<u8>>,
    /// The newest event of each stream.
    tails: BTreeMap<(u32, u32), u64>,
}

/// The input is [`Op`]s as `arbitrary` reads them, one after the other to its end.
pub fn holds(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let mut disk = Disk::default();
    disk.begin_segment(1, true, 1);
    while !input.is_empty() {
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        disk.apply(op);
    }
    let recovered = recover(&disk.files, 4096);
    for part in [1, 31, 33] {
        assert_eq!(said(&recover(&disk.files, part)), said(&recovered), "in parts of {part}");
    }
    assert!(recovered.counts.records.iter().sum::<u64>() <= recovered.counts.bytes / 32);
    was_written(&disk.files, &recovered);
    let mut files = disk.files;
    repair(&mut files, &recovered);
    assert_eq!(recover(&files, 4096).sessions, recovered.sessions, "after the repair");
}

impl Disk {
    fn newest(&self) -> u32 {
        *self.files.keys().next_back().expect("a segment")
    }

    fn file(&mut self) -> &mut Vec<u8> {
        self.files.values_mut().next_back().expect("a segment")
    }

    fn begin_segment(&mut self, number: u32, here: bool, level: u8) {
        let header = SegmentHeader {
            shard: 0,
            number,
            epoch: 1,
            generation: 0,
            level: Level::from_code(level % 3).expect("a level"),
            boot_id: if here { BOOT } else { [2; 16] },
            created: 0,
            run: 0,
        };
        self.files.insert(number, header.encode().to_vec());
    }

    fn push(&mut self, header: Header, body: &[u8]) {
        let segment = self.newest();
        record::push(self.file(), segment, &header, body);
    }

    fn apply(&mut self, op: Op<'_>) {
        match op {
            Op::Record(made) => self.push(header(&made), made.body),
            Op::Stale(made) => {
                let segment = self.newest() ^ 1;
                record::push(self.file(), segment, &header(&made), made.body);
            }
            Op::Session { slot } => {
                let slot = u32::from(slot % NAMES);
                let mut body = Vec::new();
                session_body(slot).encode(&mut body);
                self.push(of(Kind::Session, slot, 0, 0), &body);
            }
            Op::Stream { slot, stream, tail, ids } => {
                let id = |id| StreamId { raw: vec![b'0' + id], answered: id % 2 == 1 };
                let ids = (0..ids % 4).map(id).collect();
                let mut body = Vec::new();
                StreamBody { tail: tail.unwrap_or(0).into(), ids }.encode(&mut body);
                let floor = u64::from(tail.unwrap_or(0)) + 1;
                let (slot, stream) = (u32::from(slot % NAMES), u32::from(stream % NAMES));
                self.push(of(Kind::Stream, slot, stream, floor), &body);
            }
            Op::Events { slot, stream, count } => {
                let (slot, stream) = (u32::from(slot % NAMES), u32::from(stream % NAMES));
                for _ in 0..count % 16 {
                    let tail = self.tails.entry((slot, stream)).or_default();
                    *tail += 1;
                    let number = *tail;
                    let header = of(Kind::Event, slot, stream, number);
                    self.push(header, number.to_string().as_bytes());
                }
            }
            Op::Raw(bytes) => self.file().extend_from_slice(bytes),
            Op::Zeros(count) => self.file().extend(std::iter::repeat_n(0, count.into())),
            Op::Mark { back } => {
                let here = u64::from(self.newest()) << 32 | self.file().len() as u64;
                self.push(Header::of_log(Kind::Mark, here.saturating_sub(back.into())), b"");
            }
            Op::Segment { skipped, here, level, headless } => {
                let number = self.newest() + 1 + u32::from(skipped == 7);
                self.begin_segment(number, here, level);
                if headless {
                    self.file()[0] = 0;
                }
            }
            Op::Flip { back } => {
                let file = self.file();
                let at = file.len().saturating_sub(1 + usize::from(back));
                if let Some(byte) = file.get_mut(at) {
                    *byte ^= 4;
                }
            }
            Op::Cut { bytes } => {
                let file = self.file();
                file.truncate(file.len().saturating_sub(bytes.into()));
            }
        }
    }
}

fn of(kind: Kind, slot: u32, stream: u32, number: u64) -> Header {
    Header { kind, flags: 0, answers: 0, slot, stream, number }
}

fn header(made: &Made<'_>) -> Header {
    let number = match made.number {
        Number::Small(number) => number.into(),
        Number::Wild(number) => number,
    };
    let kind = Kind::ALL[usize::from(made.kind) % Kind::ALL.len()];
    let (slot, stream) = (u32::from(made.slot % NAMES), u32::from(made.stream % NAMES));
    let (flags, answers) = (made.flags, u16::from(made.answers % 4));
    Header { flags, answers, ..of(kind, slot, stream, number) }
}

fn session_body(slot: u32) -> SessionBody {
    SessionBody {
        id: SessionId::from_random(0, [slot as u8; 16]),
        server: "default".into(),
        principal: 0,
        transport: Transport::StreamableHttp,
        next_stream: 1,
        revision: String::new(),
        endpoint: String::new(),
        initialize: Vec::new(),
        result: Vec::new(),
    }
}

fn recover(files: &BTreeMap<u32, Vec<u8>>, part: usize) -> Recovered {
    let scan = |sure| {
        let mut scanner = Scanner::new(0, 0, BOOT, sure);
        for (&number, file) in files {
            scanner.begin(number);
            file.chunks(part).for_each(|part| scanner.feed(part));
        }
        scanner.finish()
    };
    match scan(Sure::default()) {
        Err(Stop::Again { sure }) => scan(sure).expect("what is sure is known the second time"),
        recovered => recovered.expect("segments of this format"),
    }
}

/// All that recovery says, to be compared.
fn said(recovered: &Recovered) -> impl PartialEq + std::fmt::Debug + '_ {
    let Recovered { sessions, ended, lost, ending, torn, discard, counts, .. } = recovered;
    (sessions, ended, lost, ending, torn, discard, counts)
}

/// Every record that is anywhere in the bytes, and every header of a damaged one.
fn every_record(files: &BTreeMap<u32, Vec<u8>>) -> (Vec<(Header, &[u8])>, Vec<Header>) {
    let (mut whole, mut damaged) = (Vec::new(), Vec::new());
    for (&segment, file) in files {
        for at in SEGMENT_HEADER_BYTES.min(file.len())..file.len() {
            match record::read(&file[at..], segment) {
                Ok((header, body, _)) => whole.push((header, body)),
                Err(Bad::Body(header)) => damaged.push(header),
                Err(_) => damaged.extend(header_at(&file[at..], segment)),
            }
        }
    }
    (whole, damaged)
}

/// The header of a record that is cut off in its body.
fn header_at(bytes: &[u8], segment: u32) -> Option<Header> {
    Some(record::read_header(bytes.first_chunk()?, segment).ok()?.header)
}

fn was_written(files: &BTreeMap<u32, Vec<u8>>, recovered: &Recovered) {
    let (whole, damaged) = every_record(files);
    for &slot in &recovered.ended {
        let ends = |header: &Header| header.kind == Kind::End && header.slot == slot;
        assert!(whole.iter().any(|record| ends(&record.0)) || damaged.iter().any(ends));
    }
    for session in &recovered.sessions {
        let slot = session.slot;
        assert!(!recovered.ended.contains(&slot), "an ended session rises");
        let written = |kind, stream: u32, holds: &dyn Fn(&[u8]) -> bool| {
            let is = |header: &Header| {
                header.kind == kind && (header.slot, header.stream) == (slot, stream)
            };
            whole.iter().any(|(header, body)| is(header) && holds(body))
        };
        let is_session = |header: &Header| header.kind == Kind::Session && header.slot == slot;
        let body = Ok(&session.body);
        assert!(whole.iter().any(|(header, bytes)| {
            is_session(header) && SessionBody::decode(bytes).as_ref() == body
        }));
        for stream in &session.streams {
            if !stream.ids.is_empty() {
                let ids = |bytes: &[u8]| {
                    let raw = |body: StreamBody| body.ids.into_iter().map(|id| id.raw);
                    StreamBody::decode(bytes).is_ok_and(|body| raw(body).eq(stream.ids.clone()))
                };
                assert!(written(Kind::Stream, stream.number, &ids));
            }
            events_were_written(files, slot, stream);
        }
    }
}

/// The events of a stream are in the bytes as its records, one for each number.
fn events_were_written(files: &BTreeMap<u32, Vec<u8>>, slot: u32, stream: &RecoveredStream) {
    let mut next = stream.floor;
    for run in &stream.runs {
        assert_eq!(run.first, next, "a run follows the one before");
        let bytes: usize = run.lengths.iter().map(|&length| HEADER_BYTES + length as usize).sum();
        let from = run.place.offset as usize;
        let run_bytes = &files[&run.place.segment][from..from + bytes];
        let (segment, count) = (run.place.segment, run.lengths.len() as u64);
        let mut out = Vec::new();
        record::events(run_bytes, segment, slot, stream.number, next, count, &mut out)
            .expect("records of that stream");
        next += count;
    }
    let whole = if stream.broken { stream.floor } else { stream.tail + 1 };
    assert_eq!(next, whole, "a broken stream has no runs, another has all of its events");
}

/// What the shell does before the log is written again.
fn repair(files: &mut BTreeMap<u32, Vec<u8>>, recovered: &Recovered) {
    for number in recovered.discard.iter().rev() {
        files.remove(number);
    }
    if let Some(torn) = recovered.torn {
        let file = files.get_mut(&torn.segment).expect("the torn segment");
        file.truncate(torn.offset as usize);
        file.extend_from_slice(&seal(torn));
    }
}
