//! What all clients of one run share: the target, the seed, the counts and the faults.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::http::Target;
use crate::storm::Storm;

/// Faults after which the run has shown enough.
const FAULTS_MAX: usize = 20;

/// What answers behind the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// The server's own demo tools.
    Builtin,
    /// The same tools in a child process for each session.
    Stdio,
}

/// One run.
pub struct Run {
    /// Where the requests go.
    pub target: Target,
    /// What answers there.
    pub upstream: Upstream,
    /// Every choice follows from it.
    pub seed: u64,
    /// Whether every stream is over within a second or so.
    pub smoke: bool,
    /// What is measured.
    pub stats: RefCell<Stats>,
    /// The reconnect storm.
    pub storm: Storm,
    faults: RefCell<Vec<String>>,
    tokens: RefCell<HashSet<String>>,
    deadline: Cell<Instant>,
    deaf: Cell<bool>,
}

impl Run {
    /// A run that has not begun.
    pub fn new(target: Target, upstream: Upstream, seed: u64, smoke: bool) -> Rc<Self> {
        let deadline = Cell::new(Instant::now());
        let (stats, storm, faults, tokens) = Default::default();
        Rc::new(Self {
            target,
            upstream,
            seed,
            smoke,
            stats,
            storm,
            faults,
            tokens,
            deadline,
            deaf: Cell::new(false),
        })
    }

    /// From now on nothing is a fault: the server is about to be stopped.
    pub fn ignore_faults(&self) {
        self.deaf.set(true);
    }

    /// Lets the clients go on for so long.
    pub fn extend(&self, time: Duration) {
        self.deadline.set(Instant::now() + time);
    }

    /// Whether clients begin anything new.
    pub fn goes_on(&self) -> bool {
        Instant::now() < self.deadline.get() && self.faults.borrow().len() < FAULTS_MAX
    }

    /// Notes what the server did wrong.
    pub fn fault(&self, what: String) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < FAULTS_MAX && !self.deaf.get() {
            eprintln!("FAULT (seed {}): {what}", self.seed);
            faults.push(what);
        }
    }

    /// The number of faults.
    pub fn faults(&self) -> usize {
        self.faults.borrow().len()
    }

    /// Whether no stream of this run had this token, the part of its event ids before the number.
    pub fn is_new_token(&self, token: &str) -> bool {
        self.tokens.borrow_mut().insert(token.to_owned())
    }

    /// Adds one to a count.
    pub fn count(&self, name: &'static str) {
        *self.stats.borrow_mut().counts.entry(name).or_default() += 1;
    }

    /// Counts an answer that refuses something.
    pub fn refusal(&self, class: String) {
        *self.stats.borrow_mut().refusals.entry(class).or_default() += 1;
    }

    /// Records a time.
    pub fn time(&self, what: &'static str, since: Instant) {
        let microseconds = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut stats = self.stats.borrow_mut();
        let times = stats.times.entry(what).or_insert_with(new_times);
        times.saturating_record(microseconds);
    }

    /// The choices of one client: the same for the same seed, whatever the others do.
    pub fn dice(&self, client: &str, index: u64) -> StdRng {
        // FNV-1a: stable over builds, unlike the standard library's hasher.
        let bytes = client.bytes().chain(index.to_le_bytes()).chain(self.seed.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        StdRng::seed_from_u64(hash)
    }
}

/// From a microsecond to ten minutes, in three digits.
pub fn new_times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("constant bounds")
}

/// What is measured in a run.
#[derive(Default)]
pub struct Stats {
    /// Events read and checked.
    pub events: u64,
    /// Payload bytes of event streams.
    pub bytes: u64,
    /// What clients did, by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// Refusals, by class.
    pub refusals: BTreeMap<String, u64>,
    /// Times, microseconds.
    pub times: BTreeMap<&'static str, Histogram<u64>>,
}

/// One of `choices`, which must not be empty.
pub fn pick<T: Copy>(dice: &mut StdRng, choices: &[T]) -> T {
    let index = dice.random_range(0..choices.len());
    *choices.get(index).expect("the range is the slice's")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_the_choices_of_each_client() {
        let target = Target::parse("http://127.0.0.1:1/mcp").expect("a target");
        let draw = |seed: u64, client: &str, index: u64| {
            let run = Run::new(target.clone(), Upstream::Builtin, seed, false);
            run.dice(client, index).random_range(0..u64::MAX)
        };
        assert_eq!(draw(1, "session", 2), draw(1, "session", 2));
        assert_ne!(draw(1, "session", 2), draw(2, "session", 2));
        assert_ne!(draw(1, "session", 2), draw(1, "session", 3));
        assert_ne!(draw(1, "session", 2), draw(1, "bad", 2));
    }
}
