//! What a connection receives is exactly what follows its cursor, whatever happens meanwhile; the
//! stream says of itself what the simulator's oracle says of it; a push is told once, the truth.

use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};
use gapless::limits::{RING_BYTES_MAX, WRITE_BYTES_MAX};
use gapless::stream::receipt::{Stage, Ticket};
use gapless::stream::{ConnOut, Generation, Retention, Start, Stream, Takeover, Transmit};

use crate::check::{same, violated};
use crate::coverage::Coverage;
use crate::oracle::{Event, Oracle};
use crate::receipts;

/// Bytes of index that the stream charges for each event.
const INDEX_BYTES: u64 = 4;
/// Bytes appended in one run, so that a run stays short.
const LOGGED_BYTES_MAX: usize = 5 << 20;

/// What happens to a stream.
#[derive(Arbitrary, Debug)]
enum Op {
    Append {
        size: Size,
        times: u8,
    },
    /// More than a connection may have unconfirmed. Seldom, since it takes its time.
    AppendAboveRing {
        really: u8,
    },
    Finish,
    /// A request's take-over begins: after this event, or without a cursor.
    Begin {
        after: Option<Place>,
    },
    /// The last step of one of the take-overs that are under way.
    Attach {
        which: u8,
    },
    /// A connection asks for at most `max` bytes, behind `framing` bytes of its own.
    Transmit {
        conn: u8,
        framing: u8,
        max: u16,
    },
    /// As much as a whole write takes.
    TransmitWrite {
        conn: u8,
    },
    /// A write completes, with at most so many bytes.
    Complete {
        conn: u8,
        length: u16,
    },
    CompleteAll {
        conn: u8,
    },
    /// A connection's counts move to another shard.
    HandOff {
        conn: u8,
    },
    Acked {
        conn: u8,
        raw: Raw,
    },
    Closed {
        conn: u8,
        raw: Raw,
    },
    Relieve {
        bytes: Option<u16>,
        events: Option<u8>,
        age: Option<u8>,
    },
    Comment {
        size: u8,
        max: u8,
    },
    PollComments {
        conn: u8,
    },
    Tell {
        number: Place,
        stage: u8,
        within: u8,
    },
    /// Milliseconds pass.
    Wait {
        time: u8,
        tell: bool,
    },
}

/// Bytes of an event; every event has some, since its framing does.
#[derive(Arbitrary, Debug)]
enum Size {
    Small(u8),
    Large(u16),
}

/// The number of an event, from one end of the log or from nowhere.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Place {
    AboveFloor(u8),
    BelowTail(u8),
    BelowSent(u8),
    Wild(u64),
}

/// What the kernel says was acknowledged.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Raw {
    BelowWritten(u16),
    AboveWritten(u32),
    Wild(u64),
}

/// The input is [`Op`]s as `arbitrary` reads them, one after the other to its end: a list of its
/// own would end wherever a byte is even.
pub fn holds(input: &[u8]) {
    let (mut input, mut world) = (Unstructured::new(input), World::new());
    while !input.is_empty() {
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        world.step(op);
        world.check();
    }
    world.settle();
}

/// One connection, as its writer and its kernel count.
struct Conn {
    generation: Generation,
    out: ConnOut,
    written: u64,
    acked: u64,
    in_flight: u64,
    /// The place in everything logged of the next byte that the peer must get.
    next: usize,
    /// Bytes of the log handed over: offset on the connection, place in the log, length.
    runs: Vec<(u64, usize, usize)>,
    start: usize,
}

impl Conn {
    fn offset(&self) -> u64 {
        self.written + self.in_flight
    }

    fn complete(&mut self, length: u64) {
        let length = length.min(self.in_flight);
        self.out.handle_written(length);
        self.written += length;
        self.in_flight -= length;
        same("count", "the bytes written", self.out.written(), self.written);
    }

    /// The kernel says `raw`; what may be believed of it.
    fn read_acked(&mut self, raw: Raw) -> u64 {
        let raw = match raw {
            Raw::BelowWritten(less) => self.written.wrapping_sub(u64::from(less)),
            Raw::AboveWritten(more) => self.written.wrapping_add(u64::from(more)),
            Raw::Wild(raw) => raw,
        };
        let ahead = raw.saturating_sub(self.written);
        if ahead <= 2 * WRITE_BYTES_MAX as u64 {
            self.acked = self.acked.max(raw.min(self.written));
        }
        same("count", "the bytes acknowledged", self.out.handle_acked(raw), self.acked);
        self.acked
    }

    /// How far in the log the peer's TCP has come after `acked` bytes.
    fn arrived(&self, acked: u64) -> usize {
        let reached = self.runs.iter().rev().find(|run| run.0 < acked);
        reached.map_or(self.start, |&(offset, from, length)| {
            from + usize::try_from(acked - offset).unwrap_or(length).min(length)
        })
    }
}

struct World {
    now: Instant,
    stream: Stream,
    oracle: Oracle,
    /// Every byte ever logged, and where each event ends in them.
    logged: Vec<u8>,
    ends: Vec<usize>,
    conns: Vec<Conn>,
    takeovers: Vec<(Takeover, Start, Generation)>,
    comments: Vec<u8>,
    tickets: Ticket,
    coverage: Coverage,
}

/// Steps of the tasks that serve a stream.
impl World {
    fn new() -> Self {
        Self {
            now: Instant::now(),
            stream: Stream::default(),
            oracle: Oracle::new(),
            logged: Vec::new(),
            ends: Vec::new(),
            conns: Vec::new(),
            takeovers: Vec::new(),
            comments: Vec::new(),
            tickets: 0,
            coverage: Coverage::default(),
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Append { size: Size::Small(size), times } => {
                (0..=times % 8).for_each(|_| self.append(usize::from(size)));
            }
            Op::Append { size: Size::Large(size), .. } => self.append(usize::from(size / 8)),
            Op::AppendAboveRing { really: 0xff } => self.append(RING_BYTES_MAX as usize),
            Op::Finish => {
                self.stream.finish();
                self.oracle.finished = true;
            }
            Op::Begin { after } => {
                let start = after.map_or(Start::Fresh, |after| Start::After(self.place(after)));
                self.begin(start);
            }
            Op::Attach { which } if !self.takeovers.is_empty() => {
                self.attach(usize::from(which) % self.takeovers.len());
            }
            Op::Relieve { bytes, events, age } => self.relieve(&Retention {
                bytes: bytes.map_or(u64::MAX, u64::from),
                events: events.map_or(u64::MAX, u64::from),
                age: age.map(|age| Duration::from_millis(age.into())),
            }),
            Op::Comment { size, max } => self.comment(size.into(), max.into()),
            Op::Tell { number, stage, within } => self.tell(number, stage, within),
            Op::Wait { time, tell } => {
                self.now += Duration::from_millis(time.into());
                if tell {
                    self.stream.handle_timeout(self.now);
                    self.oracle.waits.handle_timeout(self.now);
                }
            }
            op => self.step_of_connection(op),
        }
    }

    fn step_of_connection(&mut self, op: Op) {
        let (Op::Transmit { conn: age, .. }
        | Op::TransmitWrite { conn: age }
        | Op::Complete { conn: age, .. }
        | Op::CompleteAll { conn: age }
        | Op::HandOff { conn: age }
        | Op::Acked { conn: age, .. }
        | Op::Closed { conn: age, .. }
        | Op::PollComments { conn: age }) = op
        else {
            return;
        };
        let Some(conn) = self.conn(age) else { return };
        match op {
            Op::Transmit { framing, max, .. } => {
                self.transmit(conn, framing.into(), max.into());
            }
            Op::TransmitWrite { .. } => {
                self.transmit(conn, 7, WRITE_BYTES_MAX);
            }
            Op::Complete { length, .. } => self.conns[conn].complete(length.into()),
            Op::CompleteAll { .. } => self.conns[conn].complete(u64::MAX),
            Op::HandOff { .. } => {
                let out = &mut self.conns[conn].out;
                *out = ConnOut::carried(out.written(), out.acked());
            }
            Op::Acked { raw, .. } => self.acked(conn, raw),
            Op::Closed { raw, .. } => self.close(conn, raw),
            _ => self.poll_comments(conn),
        }
    }

    /// A connection by its age: 0 is the newest.
    fn conn(&self, age: u8) -> Option<usize> {
        let last = self.conns.len().checked_sub(1)?;
        Some(last - usize::from(age) % self.conns.len())
    }

    fn place(&self, place: Place) -> u64 {
        match place {
            Place::AboveFloor(more) => self.oracle.floor - 1 + u64::from(more),
            Place::BelowTail(less) => self.oracle.tail().saturating_sub(less.into()),
            Place::BelowSent(less) => self.oracle.sent_max.saturating_sub(less.into()),
            Place::Wild(number) => number,
        }
    }

    /// The place in everything logged behind event `number`.
    fn end_of(&self, number: u64) -> usize {
        match number.checked_sub(1) {
            Some(index) => self.ends[index as usize],
            None => 0,
        }
    }

    fn append(&mut self, size: usize) {
        if self.oracle.finished || self.logged.len() + size > LOGGED_BYTES_MAX {
            return;
        }
        let from = self.logged.len();
        let number = self.oracle.tail() + 1;
        // Every event differs from its neighbours, wherever it is cut.
        self.logged.extend_from_slice(&number.to_le_bytes()[..1 + usize::from(size >= 7) * 7]);
        self.logged.resize(from + size + 1, number as u8);
        let event = &self.logged[from..];
        let given = self.stream.append(self.now, event.len(), |_, out| out.extend(event));
        same("log", "the event's number", given, number);
        self.ends.push(self.logged.len());
        let size = event.len() as u64;
        self.oracle.events.push(Event::new(String::new(), size, self.now));
    }

    fn begin(&mut self, start: Start) {
        let expected = self.oracle.admission(start);
        match Takeover::begin(&mut self.stream, start) {
            Ok(takeover) => {
                same("class", "an admitted resume", Ok(()), expected);
                same("fence", "what must be closed", takeover.must_close(), self.oracle.holder);
                self.oracle.generation += 1;
                self.takeovers.push((takeover, start, self.oracle.generation));
            }
            // That it has changed nothing is compared after every step.
            Err(class) => same("class", "a refused resume", Err(class), expected),
        }
    }

    fn attach(&mut self, which: usize) {
        let (takeover, start, generation) = self.takeovers.remove(which);
        if takeover.must_close().is_some() && takeover.must_close() == self.oracle.holder {
            let old =
                self.conns.iter().position(|conn| Some(conn.generation) == self.oracle.holder);
            self.close(old.expect("a holder is a connection"), Raw::BelowWritten(0));
            self.check();
        }
        let expected = self.oracle.outcome(start, generation);
        let outcome = takeover.finish(&mut self.stream);
        same("class", "a take-over's outcome", outcome, expected);
        let Ok(at) = outcome else { return };
        self.oracle.handle_attached(start, &at);
        self.comments.clear();
        // Earlier responses were written on the connection, and are acknowledged.
        let written = u64::from(generation % 5) * 100;
        let next = self.end_of(at.after);
        self.conns.push(Conn {
            generation,
            out: ConnOut::carried(written, written),
            written,
            acked: written,
            in_flight: 0,
            next,
            runs: Vec::new(),
            start: next,
        });
    }

    fn transmit(&mut self, conn: usize, framing: u64, max: usize) -> Transmit {
        let conn = &mut self.conns[conn];
        let (offset, mut out) = (conn.offset() + framing, Vec::new());
        let answer = self.stream.poll_transmit(conn.generation, offset, max, &mut out);
        let left = &self.logged[conn.next..];
        let unconfirmed = (conn.next - conn.arrived(conn.acked)) as u64;
        let expected = if self.oracle.attached() != Some(conn.generation) {
            Transmit::Stale
        } else if left.is_empty() {
            if self.oracle.finished { Transmit::Finished } else { Transmit::Idle }
        } else if unconfirmed >= RING_BYTES_MAX {
            Transmit::RingFull
        } else {
            Transmit::Data(left.len().min(max))
        };
        same("transmit", "the answer", &answer, &expected);
        let length = if let Transmit::Data(length) = answer { length } else { 0 };
        if out != left[..length] {
            violated("suffix", format!("not what follows byte {} of the log", conn.next));
        }
        if length > 0 {
            let (from, to) = (conn.next, conn.next + length);
            conn.in_flight += framing + length as u64;
            conn.next = to;
            conn.runs.push((offset, from, length));
            let first = self.ends.partition_point(|&end| end <= from);
            for (index, &end) in self.ends.iter().enumerate().skip(first) {
                if end > to {
                    break;
                }
                self.oracle.handle_handed(index as u64 + 1, offset + (end - from) as u64);
            }
        }
        answer
    }

    fn acked(&mut self, conn: usize, raw: Raw) {
        let generation = self.conns[conn].generation;
        let acked = self.conns[conn].read_acked(raw);
        self.stream.handle_acked(generation, acked);
        self.oracle.handle_acked(generation, acked, &mut self.coverage);
    }

    fn close(&mut self, conn: usize, raw: Raw) {
        let generation = self.conns[conn].generation;
        let acked = self.conns[conn].read_acked(raw);
        self.stream.handle_closed(generation, acked);
        self.oracle.handle_closed(generation, acked, &mut self.coverage);
    }

    fn relieve(&mut self, keep: &Retention) {
        let over = self.stream.over_budget(keep);
        same("floor", "over budget", over, self.oracle.floor_needed(keep) > self.oracle.floor);
        let cut = self.stream.relieve(self.now, keep);
        self.oracle.handle_relieved(self.now, keep, cut, self.stream.floor());
    }

    fn comment(&mut self, size: usize, max: usize) {
        if self.oracle.attached().is_some() && self.comments.len() < max {
            self.comments.resize(self.comments.len() + size, b':');
        }
        self.stream.comment(max, |out| out.resize(out.len() + size, b':'));
    }

    fn poll_comments(&mut self, conn: usize) {
        let conn = &mut self.conns[conn];
        let mut out = Vec::new();
        let polled = self.stream.poll_comments(conn.generation, &mut out);
        let current = self.oracle.attached() == Some(conn.generation);
        let between = conn.next == 0 || self.ends.binary_search(&conn.next).is_ok();
        let due = current && between && !self.comments.is_empty();
        same("comment", "whether there is one", polled, due);
        let expected = if due { std::mem::take(&mut self.comments) } else { Vec::new() };
        same("comment", "its length", out.len(), expected.len());
        conn.in_flight += out.len() as u64;
    }

    fn tell(&mut self, place: Place, stage: u8, within: u8) {
        let tail = self.oracle.tail();
        if tail == 0 {
            return;
        }
        let number = self.place(place).clamp(1, tail);
        let stages = [Stage::Logged, Stage::Sent, Stage::Confirmed, Stage::Named];
        let stage = stages[usize::from(stage) % stages.len()];
        let deadline = self.now + Duration::from_millis(u64::from(within) + 1);
        self.tickets += 1;
        self.oracle.waits.add(self.tickets, number, stage, deadline);
        self.stream.tell(self.tickets, number, stage, deadline);
    }
}

/// What must hold after every step, and in the end.
impl World {
    fn check(&mut self) {
        while let Some((ticket, outcome)) = self.stream.poll_told() {
            receipts::handle_told(&mut self.oracle, ticket, outcome);
        }
        receipts::check_due(&self.oracle);
        self.oracle.compare(&self.stream);
        let kept = self.oracle.tail() + 1 - self.oracle.floor;
        let bytes = self.logged.len() - self.end_of(self.oracle.floor - 1);
        same("log", "its bytes", self.stream.bytes(), bytes as u64 + kept * INDEX_BYTES);
        let attached = self.oracle.attached();
        if let Some(conn) = self.conns.iter().find(|conn| Some(conn.generation) == attached) {
            let unsent = (self.logged.len() - conn.next) as u64;
            same("log", "the unsent bytes", self.stream.unsent_bytes(), unsent);
        }
    }

    /// The client comes back with what it has, and must get everything else.
    fn settle(&mut self) {
        self.step(Op::Finish);
        let cursor = Start::After(self.oracle.sent);
        let start = if self.oracle.admission(cursor).is_ok() { cursor } else { Start::Fresh };
        self.begin(start);
        self.attach(self.takeovers.len() - 1);
        let conn = self.conns.len() - 1;
        let mut answer = Transmit::Idle;
        // The ring is never full here: all is acknowledged before more is asked for.
        for _ in 0..LOGGED_BYTES_MAX / WRITE_BYTES_MAX + 2 {
            answer = self.transmit(conn, 7, WRITE_BYTES_MAX);
            if answer == Transmit::Finished {
                break;
            }
            self.conns[conn].complete(u64::MAX);
            self.acked(conn, Raw::BelowWritten(0));
            self.check();
        }
        same("settled", "the last answer", answer, Transmit::Finished);
        same("settled", "the place in the log", self.conns[conn].next, self.logged.len());
        self.close(conn, Raw::BelowWritten(0));
        self.stream.handle_ended();
        self.oracle.waits.handle_ended();
        self.check();
        same("receipt", "somebody still waits", self.stream.has_receipts(), false);
    }
}
