//! Deadlines that move: one entry in the shard's wheel each, moved only when it fires.
//!
//! A busy connection sets its deadline with every request; that must cost a store, not a change
//! of the wheel. So the wheel holds an instant that is never later than the deadline, and when it
//! fires early the entry is put in again.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use monoio::time::Sleep;

/// A rare pause of a connection's task. Boxed: the runtime's own is 640 bytes, which every
/// connection would carry for its life.
pub fn pause(time: Duration) -> Pin<Box<Sleep>> {
    Box::pin(monoio::time::sleep(time))
}

/// An instant in 8 bytes: nanoseconds since [`START`], which suffice for centuries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(NonZeroU64);

/// An instant that is not after any deadline of this process.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Moment {
    fn of(instant: Instant) -> Self {
        let nanos = instant.saturating_duration_since(*START).as_nanos();
        Self(NonZeroU64::new(nanos as u64).unwrap_or(NonZeroU64::MIN))
    }

    fn instant(self) -> Instant {
        *START + Duration::from_nanos(self.0.get())
    }
}

/// One moving deadline. Every session and every connection has one.
#[derive(Default)]
pub struct Timer {
    deadline: Cell<Option<Moment>>,
    armed: Cell<Option<Moment>>,
}

/// What a deadline in the wheel belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A connection.
    Connection(u64),
    /// A session: something of it times out.
    Session(u64),
    /// A session: its built-in server has something to do.
    Run(u64),
    /// A session: acknowledgements are waited for.
    Sweep(u64),
    /// No session has ended for a while: their memory can go back to the system.
    GiveBack,
    /// A segment of the log may have to go.
    Retire,
}

/// Bits of the keys of connections and sessions.
pub const KEY_BITS: u32 = 61;

/// An [`Owner`] in 8 bytes: every session and every connection has one in the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerKey(u64);

impl From<Owner> for TimerKey {
    fn from(owner: Owner) -> Self {
        let (kind, key) = match owner {
            Owner::Connection(key) => (0, key),
            Owner::Session(key) => (1, key),
            Owner::Run(key) => (2, key),
            Owner::Sweep(key) => (3, key),
            Owner::GiveBack => (4, 0),
            Owner::Retire => (5, 0),
        };
        assert!(key >> KEY_BITS == 0, "a key has {KEY_BITS} bits");
        Self(kind << KEY_BITS | key)
    }
}

impl TimerKey {
    /// What it stands for.
    pub fn owner(self) -> Owner {
        let key = self.0 & ((1 << KEY_BITS) - 1);
        match self.0 >> KEY_BITS {
            0 => Owner::Connection(key),
            1 => Owner::Session(key),
            2 => Owner::Run(key),
            3 => Owner::Sweep(key),
            4 => Owner::GiveBack,
            _ => Owner::Retire,
        }
    }
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
        let moment = Moment::of(deadline);
        self.deadline.set(Some(moment));
        if self.armed.get().is_some_and(|armed| armed <= moment) {
            return None;
        }
        self.armed.set(Some(moment));
        Some(deadline)
    }

    /// There is no deadline any more.
    pub fn clear(&self) {
        self.deadline.set(None);
    }

    /// An entry of this timer has fired.
    pub fn fire(&self, now: Instant) -> Fired {
        let now = Moment::of(now);
        if self.armed.get().is_some_and(|armed| armed > now) {
            return Fired::Stale;
        }
        self.armed.set(None);
        match self.deadline.get() {
            None => Fired::Stale,
            Some(deadline) if deadline > now => {
                self.armed.set(Some(deadline));
                Fired::Again(deadline.instant())
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
    fn what_a_deadline_belongs_to_is_read_back() {
        let key = (1 << KEY_BITS) - 1;
        let owners = [
            Owner::Connection(key),
            Owner::Session(0),
            Owner::Run(key),
            Owner::Sweep(7),
            Owner::GiveBack,
            Owner::Retire,
        ];
        for owner in owners {
            assert_eq!(TimerKey::from(owner).owner(), owner);
        }
    }

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
