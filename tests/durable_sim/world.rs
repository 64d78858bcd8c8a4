//! One machine: its disk, the process that runs on it, and its clients elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use gapless::limits::Limits;
use gapless::store::journal::Level;

use crate::client::Client;
use crate::disk::Disk;
use crate::oracle::{Oracle, Reached};
use crate::process::Process;
use crate::rng::{Concern, Rng};

/// Steps kept for a failure.
const TRACE_STEPS: usize = 60;

/// What is in force for the whole directory.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    pub epoch: u32,
    pub runs: u32,
}

/// How likely the disk does what nobody wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hostility {
    pub short_writes: bool,
    pub fills_up: bool,
    pub fails: bool,
    pub rots: bool,
}

pub struct World {
    pub rng: Rng,
    pub disk_rng: Rng,
    pub now: Instant,
    /// Unix time, seconds.
    pub unix: u64,
    pub limits: Limits,
    pub level: Level,
    pub hostility: Hostility,
    pub disk: Disk,
    pub disk_full: bool,
    pub meta: Meta,
    pub boot: u8,
    pub process: Option<Process>,
    pub clients: BTreeMap<u32, Client>,
    pub oracle: Oracle,
    pub reached: Reached,
    pub trace: VecDeque<String>,
    pub aloud: bool,
    /// The faults have stopped: everything has to come to its end.
    pub settling: bool,
    serial: u64,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, Concern::Schedule);
        let levels = [Level::Process, Level::Power, Level::Process, Level::Power, Level::None];
        let segment_bytes = rng.between(2048, 5000);
        let stream_bytes = rng.between(6, 24) << 10;
        let limits = Limits {
            segment_bytes,
            data_bytes: segment_bytes * rng.between(4, 12),
            // Whether memory can hold more than the log decides what is written again.
            memory_bytes: if seed % 4 == 3 { u64::MAX } else { 0 },
            data_age: Duration::from_secs(rng.between(200, 4000)),
            stream_bytes,
            session_bytes: rng.between(2 * stream_bytes, 4 * stream_bytes),
            stream_disk_bytes: rng.between(stream_bytes, 4 * stream_bytes),
            stream_events: rng.between(30, 400),
            calls_per_session: 12,
            retention: Duration::from_secs(rng.between(20, 200)),
            ..Limits::default()
        };
        let hostility = Hostility {
            short_writes: rng.once_in(2),
            fills_up: rng.once_in(4),
            fails: rng.once_in(6),
            rots: rng.once_in(8),
        };
        let mut world = Self {
            level: *rng.pick(&levels).expect("five"),
            rng,
            disk_rng: Rng::new(seed, Concern::Journal),
            now: Instant::now(),
            unix: 1_700_000_000,
            limits,
            hostility,
            disk: Disk::default(),
            disk_full: false,
            meta: Meta { epoch: 1, runs: 0 },
            boot: 1,
            process: None,
            clients: BTreeMap::new(),
            oracle: Oracle::default(),
            reached: Reached::default(),
            trace: VecDeque::new(),
            aloud: false,
            settling: false,
            serial: 0,
        };
        world.start();
        world
    }

    /// A number that nothing else has.
    pub fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub fn note(&mut self, step: impl Into<String>) {
        let step = step.into();
        if self.aloud {
            eprintln!("{step}");
        }
        if self.trace.len() == TRACE_STEPS {
            self.trace.pop_front();
        }
        self.trace.push_back(step);
    }

    pub fn boot_id(&self) -> [u8; 16] {
        [self.boot; 16]
    }

    pub fn mark(&mut self, what: &'static str) {
        self.reached.mark(what);
    }
}
