//! Deadlines that move: one entry in the shard's wheel each, moved only when it fires.
//!
//! A busy connection sets its deadline with every request; that must cost a store, not a change
//! of the wheel. So the wheel holds an instant that is never later than the deadline, and when it
//! fires early the entry is put in again.

use std::cell::Cell;
use std::pin::Pin;
use std::time::{Duration, Instant};

use monoio::time::Sleep;

/// A rare pause of a connection's task. Boxed: the runtime's own is 640 bytes, which every
/// connection would carry for its life.
pub fn pause(time: Duration) -> Pin<Box<Sleep>> {
    Box::pin(monoio::time::sleep(time))
}

/// One moving deadline.
#[derive(Default)]
pub struct Timer {
    deadline: Cell<Option<Instant>>,
    armed: Cell<Option<Instant>>,
}

/// What a fired entry means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fired {
    /// The deadline has passed.
    Due,
    /// It has moved: insert this instant.
    Again(Instant),
    /// There is none, or another entry stands for it.
    Stale,
}

impl Timer {
    /// Sets the deadline; what is returned has to be inserted into the wheel.
    #[must_use]
    pub fn set(&self, deadline: Instant) -> Option<Instant> {
        self.deadline.set(Some(deadline));
        if self.armed.get().is_some_and(|armed| armed <= deadline) {
            return None;
        }
        self.armed.set(Some(deadline));
        Some(deadline)
    }

    /// There is no deadline any more.
    pub fn clear(&self) {
        self.deadline.set(None);
    }

    /// An entry of this timer has fired.
    pub fn fire(&self, now: Instant) -> Fired {
        if self.armed.get().is_some_and(|armed| armed > now) {
            return Fired::Stale;
        }
        self.armed.set(None);
        match self.deadline.get() {
            None => Fired::Stale,
            Some(deadline) if deadline > now => {
                self.armed.set(Some(deadline));
                Fired::Again(deadline)
            }
            Some(_) => {
                self.deadline.set(None);
                Fired::Due
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_moves_later_costs_no_entry() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let timer = Timer::default();
        assert_eq!(timer.set(at(10)), Some(at(10)));
        assert_eq!(timer.set(at(50)), None);
        assert_eq!(timer.fire(at(11)), Fired::Again(at(50)));
        assert_eq!(timer.set(at(20)), Some(at(20)), "an earlier one needs its own entry");
        assert_eq!(timer.fire(at(21)), Fired::Due);
        assert_eq!(timer.fire(at(51)), Fired::Stale);
        assert_eq!(timer.set(at(99)), Some(at(99)));
        timer.clear();
        assert_eq!(timer.fire(at(100)), Fired::Stale);
    }
}
