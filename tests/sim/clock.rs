//! The virtual clock: it moves only when the simulator says so.

use std::time::{Duration, Instant};

pub struct Clock {
    base: Instant,
    elapsed: Duration,
}

impl Clock {
    pub fn new() -> Self {
        Self { base: Instant::now(), elapsed: Duration::ZERO }
    }

    pub fn now(&self) -> Instant {
        self.base + self.elapsed
    }

    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub fn advance(&mut self, by: Duration) {
        self.elapsed += by;
    }
}
