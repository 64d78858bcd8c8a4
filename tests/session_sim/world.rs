//! One simulated session with its upstream, its clock and its connections.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use gapless::limits::Limits;
use gapless::mcp::session_id::SessionId;
use gapless::session::{Effect, ExchangeKey, Overflow, Session, Settings, Step};
use gapless::stream::{Attached, Generation};

use crate::oracle::{Oracle, Place};
use crate::rng::{Concern, Rng};
use crate::upstream::Fake;

/// Steps kept for a failure.
const TRACE_STEPS: usize = 40;

/// A connection that reads a stream.
pub struct Reader {
    pub generation: Generation,
    offset: u64,
    acked: u64,
    /// When the step began it had everything, acknowledged.
    caught_up: bool,
    /// What was read of an event whose end has not come.
    partial: String,
    bytes: Vec<u8>,
}

pub struct World {
    pub session: Session,
    pub upstream: Fake,
    pub now: Instant,
    pub rng: Rng,
    pub limits: Limits,
    pub oracle: Oracle,
    pub trace: VecDeque<&'static str>,
    pub readers: HashMap<u32, Reader>,
    /// The newest id that a client has of each stream.
    pub cursors: HashMap<u32, String>,
    /// Replies that nobody has asked for yet.
    pub waiting: Vec<ExchangeKey>,
    pub batches: bool,
    /// The session was told to shrink: then anybody may be cut.
    pub shrinking: bool,
    empty: u64,
    serial: u64,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, Concern::Schedule);
        let now = Instant::now();
        let stream_bytes = rng.between(16, 48) << 10;
        let limits = Limits {
            stream_bytes,
            session_bytes: rng.between(2 * stream_bytes, 4 * stream_bytes),
            stream_events: rng.between(20, 400),
            calls_per_session: 20,
            retention: Duration::from_secs(rng.between(1, 30)),
            request_timeout: Duration::from_secs(rng.between(5, 60)),
            server_request_timeout: Duration::from_secs(rng.between(1, 20)),
            ..Limits::default()
        };
        let settings = Settings::in_memory(limits.clone(), [7; 32], Overflow::Auto);
        let id = SessionId::from_random(0, [1; 16]);
        let mut session = Session::new(id, Rc::new(settings), now, 0);
        let batches = rng.once_in(2);
        session.set_initialized(if batches { "2025-03-26" } else { "2025-11-25" });
        Self {
            empty: session.bytes(),
            session,
            upstream: Fake::default(),
            now,
            rng,
            limits,
            oracle: Oracle::default(),
            trace: VecDeque::new(),
            readers: HashMap::new(),
            cursors: HashMap::new(),
            waiting: Vec::new(),
            batches,
            shrinking: false,
            serial: 0,
        }
    }

    /// A number that no message has had.
    pub fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub fn note(&mut self, step: &'static str) {
        if self.trace.len() == TRACE_STEPS {
            self.trace.pop_front();
        }
        self.trace.push_back(step);
    }

    /// Does what the session asks of its shell, then checks.
    pub fn settle(&mut self) {
        while let Some(effect) = self.session.poll_effect() {
            match effect {
                Effect::Close(stream, generation) => {
                    let reader = self.readers.get(&stream);
                    if reader.is_some_and(|reader| reader.generation == generation) {
                        let caught_up = reader.is_some_and(|reader| reader.caught_up);
                        assert!(
                            !caught_up || self.shrinking,
                            "check `caught up`: {stream} was cut"
                        );
                        self.oracle.reached.mark("cut reader");
                        self.close(stream);
                    }
                }
                Effect::Relieve(stream) => {
                    if self.session.is_over_budget() {
                        self.oracle.reached.mark("session over its budget");
                    }
                    self.session.relieve(self.now, stream, &mut self.upstream);
                }
                Effect::Wake(_) | Effect::Ready(_) | Effect::Ended(_) | Effect::Remember => {}
            }
        }
        while self.session.poll_told().is_some() {}
        for _ in std::mem::take(&mut self.upstream.came_back) {
            self.oracle.reached.mark("question came back");
        }
        let (stream, session) = (self.limits.stream_bytes, self.limits.session_bytes);
        self.oracle.check(&self.session, stream, session);
    }

    /// A step begins: whoever has everything now must not be cut for what comes in it.
    pub fn find_caught_up(&mut self) {
        for (&stream, reader) in &mut self.readers {
            let stream = self.session.stream(stream);
            reader.caught_up = stream.is_some_and(|stream| stream.confirmed() == stream.tail());
        }
    }

    /// A connection has a stream.
    pub fn attached(&mut self, stream: u32, attached: &Attached) {
        let mut bytes = Vec::new();
        self.session.prologue(stream, attached, &mut bytes);
        let reader = Reader {
            generation: attached.generation,
            offset: bytes.len() as u64,
            acked: 0,
            caught_up: false,
            partial: String::new(),
            bytes,
        };
        self.readers.insert(stream, reader);
        self.look(stream);
    }

    /// The connection of a stream is gone.
    pub fn close(&mut self, stream: u32) {
        if let Some(reader) = self.readers.remove(&stream) {
            self.session.handle_closed(self.now, stream, reader.generation, reader.acked);
        }
    }

    /// A reader takes what there is, at most `turns` writes of it; then it is over, or not.
    pub fn read(&mut self, stream: u32, turns: u64) {
        for _ in 0..turns {
            let Some(reader) = self.readers.get_mut(&stream) else { return };
            let (generation, offset) = (reader.generation, reader.offset);
            let step = self.session.transmit(stream, generation, offset, &mut reader.bytes);
            reader.offset += reader.bytes.len() as u64;
            match step {
                Step::Write => self.look(stream),
                Step::Finished | Step::Planned | Step::Stale => return self.close(stream),
                Step::Wait | Step::RingFull => return,
                Step::Load => unreachable!("these sessions are in memory"),
            }
        }
    }

    /// The peer acknowledges some or all of what it was sent.
    pub fn acknowledge(&mut self, stream: u32, all: bool) {
        let Some(reader) = self.readers.get_mut(&stream) else { return };
        let least = if all { reader.offset } else { reader.acked };
        reader.acked = self.rng.between(least, reader.offset);
        let (generation, acked) = (reader.generation, reader.acked);
        self.session.handle_acked(stream, generation, acked);
    }

    /// The client reads the bytes that were sent.
    fn look(&mut self, stream: u32) {
        let Some(reader) = self.readers.get_mut(&stream) else { return };
        reader.partial.push_str(std::str::from_utf8(&reader.bytes).expect("text"));
        reader.bytes.clear();
        while let Some((event, rest)) = reader.partial.split_once("\n\n") {
            let event = event.to_owned();
            reader.partial = rest.to_owned();
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            let Some(id) = field("id: ") else { continue };
            self.cursors.insert(stream, id.to_owned());
            let number = id.rsplit('.').next().and_then(|number| number.parse().ok());
            if let (Some(number), Some(data)) = (number, field("data: ")) {
                self.oracle.handle_seen(data, Place::Stream(stream, number));
            }
        }
    }

    /// Everything ends; what is left is a new session.
    pub fn end(&mut self) {
        for (call, id) in std::mem::take(&mut self.upstream.open) {
            self.respond(call, id, 10);
        }
        let streams: Vec<u32> = self.readers.keys().copied().collect();
        for stream in streams {
            self.read(stream, u64::MAX);
            self.acknowledge(stream, true);
            self.close(stream);
        }
        for key in std::mem::take(&mut self.waiting) {
            self.take_reply(key);
        }
        let streams: Vec<u32> = self.readers.keys().copied().collect();
        for stream in streams {
            self.read(stream, u64::MAX);
            self.close(stream);
        }
        self.settle();
        assert_eq!(self.session.open_calls(), 0, "check `one answer`: a call has none");
        self.end_tasks();
        self.now += Duration::from_secs(100);
        self.session.handle_timeout(self.now, &mut self.upstream);
        self.shrinking = true;
        self.session.shrink(self.now, 0, &mut self.upstream);
        self.settle();
        assert_eq!(self.session.bytes(), self.empty, "check `given back`");
    }
}
