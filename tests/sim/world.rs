//! One simulated world: streams with their oracles, connections, clients, and what may happen.

use std::time::Duration;

use gapless::limits::WRITE_BYTES_MAX;
use gapless::stream::{Generation, Retention, Stream};

use crate::client::Client;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::coverage::Coverage;
use crate::journal::Journal;
use crate::off_core::OffCore;
use crate::oracle::Oracle;
use crate::receipts;
use crate::rng::{Concern, Rng};
use crate::trace::Trace;

/// A stream, its oracle, and what the shell keeps about it.
pub struct Logical {
    pub stream: Stream,
    pub oracle: Oracle,
    pub off_core: OffCore,
    pub session: usize,
    /// The connection whose socket is open, current or fenced.
    pub holder: Option<usize>,
    /// Take-overs under way.
    pub taking: u32,
}

impl Logical {
    pub fn new(session: usize) -> Self {
        let (stream, oracle) = (Stream::default(), Oracle::new());
        Self { stream, oracle, off_core: OffCore::new(), session, holder: None, taking: 0 }
    }

    /// All that can be seen of the stream from outside.
    pub fn observe(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let stream = &self.stream;
        let log = (stream.floor(), stream.tail(), stream.bytes(), stream.is_finished());
        let durable = (stream.committed(), stream.is_open(), stream.broken(), stream.disk_bytes());
        let sending = (stream.sent(), stream.sent_max(), stream.unsent_bytes());
        let delivered = (stream.confirmed(), stream.named());
        (log, durable, sending, delivered, stream.generation(), stream.holder(), stream.attached())
    }

    /// Compares everything after a step.
    fn check(&mut self, coverage: &mut Coverage) {
        self.oracle.compare(&self.stream);
        while let Some((ticket, outcome)) = self.stream.poll_told() {
            coverage.mark(receipts::name(outcome));
            receipts::handle_told(&mut self.oracle, ticket, outcome);
        }
        receipts::check_due(&self.oracle);
    }
}

/// A report that is under way from a connection's task to its stream.
pub struct Report {
    pub late: Late,
    pub stream: usize,
    pub generation: Generation,
    pub acked: u64,
    pub truth: u64,
}

/// What a report says.
#[derive(Clone, Copy)]
pub enum Late {
    Acked,
    Closed,
}

/// The dimensions of one world.
pub struct Shape {
    pub keep: Retention,
    /// Bytes of the largest event.
    pub event_bytes: u64,
    /// Events of the largest burst.
    pub burst: u64,
    /// Bytes the network moves in one step at the most.
    pub reach: u64,
    /// Whether readings of acknowledgements are sometimes garbage.
    pub lies: bool,
    /// Bytes of the smallest and of the largest send buffer and receive window.
    buffers: (u64, u64),
}

impl Shape {
    /// Most worlds are small and tight; a few have events and bursts that fill the send ring.
    pub fn draw(rng: &mut Rng) -> Self {
        if rng.once_in(64) {
            return Self::large(rng);
        }
        let age = rng.once_in(3).then(|| Duration::from_millis(rng.between(200, 20_000)));
        let keep = Retention {
            bytes: if rng.once_in(2) { rng.between(1_000, 8_000) } else { 1 << 30 },
            events: if rng.once_in(2) { rng.between(3, 60) } else { 1 << 30 },
            age,
        };
        Self {
            keep,
            event_bytes: rng.skewed(600),
            burst: rng.skewed(30),
            reach: rng.between(20, 2_000),
            lies: true,
            buffers: (20, rng.between(30, 4_000)),
        }
    }

    fn large(rng: &mut Rng) -> Self {
        Self {
            keep: Retention { bytes: 16 << 20, events: 1 << 30, age: None },
            event_bytes: rng.between(200 << 10, 6 << 20),
            burst: 4,
            reach: 4 << 20,
            lies: true,
            buffers: (1 << 16, rng.between(1 << 20, 8 << 20)),
        }
    }

    /// A world of small events in which nothing is tight.
    pub fn plain(keep: Retention) -> Self {
        let buffers = (1 << 20, 1 << 20);
        Self { keep, event_bytes: 1, burst: 1, reach: 1 << 20, lies: false, buffers }
    }

    /// Chunks of one batch, and bytes of each at the most.
    pub fn batch(&self, rng: &mut Rng) -> (u64, u64) {
        let chunks = rng.between(1, 3);
        (chunks, rng.reach((WRITE_BYTES_MAX as u64 / chunks).min(self.reach)))
    }

    /// Send buffer and receive window of a new connection.
    pub fn buffers(&self, rng: &mut Rng) -> (u64, u64) {
        let (least, most) = self.buffers;
        (rng.reach(most).max(least), rng.reach(most).max(least))
    }
}

/// One stream of random numbers for each concern.
pub struct Rngs {
    pub schedule: Rng,
    pub network: Rng,
    pub clients: Rng,
    pub producers: Rng,
    pub retention: Rng,
}

pub struct World {
    pub clock: Clock,
    pub rngs: Rngs,
    pub shape: Shape,
    pub streams: Vec<Logical>,
    pub conns: Vec<Connection>,
    pub clients: Vec<Client>,
    pub reports: Vec<Report>,
    pub coverage: Coverage,
    pub trace: Trace,
    pub tickets: u64,
    pub journal: Journal,
}

impl World {
    /// The world of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, Concern::Shape);
        let shape = Shape::draw(&mut rng);
        let mut world = Self::empty(seed, shape);
        world.journal = Journal::draw(seed);
        for session in 0..rng.between(1, 2) as usize {
            let first = world.streams.len();
            for _ in 0..rng.between(1, 2) {
                world.add_stream(session);
            }
            for _ in 0..rng.between(1, 2) {
                let stream = rng.between(first as u64, world.streams.len() as u64 - 1) as usize;
                world.clients.push(Client::new(session, stream));
            }
        }
        world
    }

    /// A world with nobody in it.
    pub fn empty(seed: u64, shape: Shape) -> Self {
        let rngs = Rngs {
            schedule: Rng::new(seed, Concern::Schedule),
            network: Rng::new(seed, Concern::Network),
            clients: Rng::new(seed, Concern::Clients),
            producers: Rng::new(seed, Concern::Producers),
            retention: Rng::new(seed, Concern::Retention),
        };
        Self {
            clock: Clock::new(),
            rngs,
            shape,
            streams: Vec::new(),
            conns: Vec::new(),
            clients: Vec::new(),
            reports: Vec::new(),
            coverage: Coverage::default(),
            trace: Trace::default(),
            tickets: 0,
            journal: Journal::none(seed),
        }
    }

    /// Checks every stream against its oracle.
    pub fn check(&mut self) {
        self.streams.iter_mut().for_each(|logical| logical.check(&mut self.coverage));
    }
}
