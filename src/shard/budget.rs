//! One account for everything of a shard that grows with what is sent to it.
//!
//! What sessions hold (logs, what is known of their streams, calls in flight, answers kept) can be
//! relieved; what is in transit (bodies being received, answers half sent, lines that a child has
//! not read) only goes by itself, so it is admitted: together it takes at most half of the budget.
//! What has a bound by count and a fixed size (a connection, a pooled buffer) is not on it.
//!
//! Invariant: the account is the sum of the [`Charge`]s that are alive; a charge gives back what it
//! holds when it is dropped.

use std::cell::Cell;
use std::rc::Rc;

use crate::limits::relieved;

/// What a charge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// What a session holds.
    Session,
    /// What is in transit.
    Transit,
}

/// A shard's part of the process's budget, and what is on its account, bytes.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    sessions: Cell<u64>,
    transit: Cell<u64>,
    /// Above this, relief is due: `most`, or more where the last one did not come down to it.
    relief_above: Cell<u64>,
    /// Relief is on its way.
    relieving: Cell<bool>,
}

impl Budget {
    /// An account that nothing is on, of which `most` bytes may be taken.
    pub fn new(most: u64) -> Rc<Self> {
        Rc::new(Self {
            most,
            sessions: Cell::new(0),
            transit: Cell::new(0),
            relief_above: Cell::new(most),
            relieving: Cell::new(false),
        })
    }

    /// Bytes that may be taken.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Bytes that sessions hold.
    pub fn sessions(&self) -> u64 {
        self.sessions.get()
    }

    /// Bytes in transit.
    pub fn transit(&self) -> u64 {
        self.transit.get()
    }

    /// Bytes taken.
    pub fn taken(&self) -> u64 {
        self.sessions.get() + self.transit.get()
    }

    /// Bytes that relief has to come down to.
    pub fn relief_target(&self) -> u64 {
        relieved(self.most)
    }

    /// Whether what is in transit takes all that it may.
    pub fn is_crowded(&self) -> bool {
        self.transit.get() >= self.most / 2
    }

    /// Whether so many more bytes in transit fit. The only ones always do: their own bound is that
    /// of one body or event.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.transit.get() == 0 || self.transit.get() + bytes <= self.most / 2
    }

    /// Whether relief is due and nobody has been told so.
    pub fn poll_relief(&self) -> bool {
        self.taken() > self.relief_above.get() && !self.relieving.replace(true)
    }

    /// Relief was tried. What it could not reach is not tried again with each byte that comes.
    pub fn handle_relieved(&self) {
        self.relieving.set(false);
        let above = if self.taken() > self.most { self.taken() + self.most / 8 } else { self.most };
        self.relief_above.set(above);
    }

    fn account(&self, of: Of) -> &Cell<u64> {
        match of {
            Of::Session => &self.sessions,
            Of::Transit => &self.transit,
        }
    }
}

/// Bytes on a shard's account, given back when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Rc<Budget>,
    of: Of,
    bytes: Cell<u64>,
}

impl Charge {
    /// A charge of nothing.
    pub fn new(budget: &Rc<Budget>, of: Of) -> Self {
        Self { budget: Rc::clone(budget), of, bytes: Cell::new(0) }
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// It holds so many bytes from now on, whatever the budget says.
    pub fn set(&self, bytes: u64) {
        let before = self.bytes.replace(bytes);
        if before != bytes {
            let account = self.budget.account(self.of);
            account.set(account.get() + bytes - before);
            if self.budget.taken() <= self.budget.most {
                self.budget.relief_above.set(self.budget.most);
            }
        }
    }

    /// As [`Charge::set`], for what is in transit, where there is room for it
    /// ([`Budget::has_room_for`]). Where there is none it holds what it held.
    pub fn admit(&self, bytes: u64) -> bool {
        let before = self.bytes();
        self.set(0);
        let fits = self.budget.has_room_for(bytes);
        self.set(if fits { bytes } else { before });
        fits
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_given_back() {
        let budget = Budget::new(1000);
        let (session, body) =
            (Charge::new(&budget, Of::Session), Charge::new(&budget, Of::Transit));
        session.set(300);
        session.set(200);
        assert!(body.admit(50));
        assert_eq!((budget.sessions(), budget.transit(), budget.taken()), (200, 50, 250));
        drop(session);
        assert_eq!((budget.sessions(), budget.transit()), (0, 50));
        drop(body);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn what_is_in_transit_takes_half_and_the_only_one_always_goes() {
        let budget = Budget::new(1000);
        let [large, small] = [(); 2].map(|()| Charge::new(&budget, Of::Transit));
        assert!(large.admit(400) && small.admit(100));
        assert!(!small.admit(101), "what it held stays");
        assert_eq!(budget.transit(), 500);
        assert!(budget.is_crowded());
        small.set(0);
        assert!(large.admit(5000));
        assert!(!small.admit(1));
    }

    #[test]
    fn relief_is_asked_for_once_and_not_for_every_byte_that_it_cannot_reach() {
        let budget = Budget::new(800);
        let charge = Charge::new(&budget, Of::Session);
        charge.set(801);
        assert!(budget.poll_relief() && !budget.poll_relief());
        budget.handle_relieved();
        charge.set(901);
        assert!(!budget.poll_relief(), "nothing could be done at 801");
        charge.set(902);
        assert!(budget.poll_relief());
        charge.set(700);
        budget.handle_relieved();
        charge.set(801);
        assert!(budget.poll_relief());
    }
}
