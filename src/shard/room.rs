//! The wait of a session's producers for room on their streams.

use std::cell::{Cell, RefCell};
use std::time::Instant;

/// Who waits, and until when. Everybody who waits says so anew whenever the session runs, except a
/// producer's ring, which stays where it is until it is taken.
#[derive(Default)]
pub(super) struct Room {
    by: Cell<Option<Instant>>,
    rings: RefCell<Vec<u64>>,
    counted: Cell<bool>,
    told: Cell<bool>,
}

/// What is new about a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The session's first.
    First,
    /// Another one.
    Another,
    /// It was known.
    Known,
}

impl Room {
    /// When the wait is over whatever happens; none while nobody waits.
    pub(super) fn awaited_by(&self) -> Option<Instant> {
        self.by.get()
    }

    /// Somebody waits, until `by` at the latest unless an earlier instant is known.
    pub(super) fn expect(&self, by: Instant) -> Wait {
        self.by.set(self.by.get().or(Some(by)));
        match (self.counted.replace(true), self.told.replace(true)) {
            (true, _) => Wait::Known,
            (false, true) => Wait::Another,
            (false, false) => Wait::First,
        }
    }

    /// A producer's ring waits.
    pub(super) fn add_ring(&self, producer: u64) {
        self.rings.borrow_mut().push(producer);
    }

    /// The rings that waited; they are asked again.
    pub(super) fn take_rings(&self) -> Vec<u64> {
        self.rings.take()
    }

    /// The session runs: whoever still waits will say so.
    pub(super) fn begin_run(&self) {
        if self.rings.borrow().is_empty() {
            self.by.set(None);
        }
    }

    /// The session has run: where nobody said so, the next wait is another one.
    pub(super) fn end_run(&self) {
        self.counted.set(self.by.get().is_some());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Story: a ring that waited was forgotten when its session ran for another reason, and its
    /// producer stood still for ever.
    #[test]
    fn a_ring_waits_through_the_runs_of_its_session() {
        let (room, now) = (Room::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        assert_eq!(room.expect(now), Wait::First);
        room.add_ring(7);
        room.begin_run();
        room.end_run();
        assert_eq!(room.awaited_by(), Some(now));
        assert_eq!(room.expect(later), Wait::Known);
        assert_eq!(room.take_rings(), [7]);
        room.begin_run();
        room.end_run();
        assert_eq!(room.awaited_by(), None);
        assert_eq!(room.expect(later), Wait::Another);
        assert_eq!(room.awaited_by(), Some(later));
    }
}
