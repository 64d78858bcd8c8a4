//! What of a durable stream has been committed: the rest must not be sent.
//!
//! Invariants:
//! * What waits is in the order of its writes and of its events, with one entry for each write.
//! * `committed` never falls, and is below every event that waits.

use std::collections::VecDeque;

/// The number of one write of the durable log; writes are committed in its order.
pub type Seq = u64;

pub(super) struct Commits {
    /// The write that the stream's birth belongs to, until it is committed.
    birth: Option<Seq>,
    /// The newest event that may be sent.
    committed: u64,
    /// For each write, the newest event that it commits.
    waiting: VecDeque<(Seq, u64)>,
    /// The write of the last copy to another place, and the newest event copied, until committed.
    copied: Option<(Seq, u64)>,
}

impl Commits {
    /// Of a stream whose birth belongs to write `birth`; none where that was committed long ago,
    /// with everything up to event `committed`.
    pub(super) fn new(birth: Option<Seq>, committed: u64) -> Self {
        Self { birth, committed, waiting: VecDeque::new(), copied: None }
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    pub(super) fn is_open(&self) -> bool {
        self.birth.is_none()
    }

    /// Whether nothing waits for a write.
    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Everything up to event `number` is committed with write `seq`.
    pub(super) fn handle_logged(&mut self, seq: Seq, number: u64) {
        if let Some((last, newest)) = self.waiting.back_mut() {
            assert!(*last <= seq, "writes are numbered in their order");
            if *last == seq {
                *newest = number;
                return;
            }
        }
        self.waiting.push_back((seq, number));
    }

    /// Event `number` lies at another place once write `seq` is committed.
    pub(super) fn handle_copied(&mut self, seq: Seq, number: u64) {
        let newest = self.copied.map_or(number, |(_, newest)| newest.max(number));
        self.copied = Some((seq, newest));
    }

    /// Every write up to `seq` is committed.
    pub(super) fn handle_committed(&mut self, seq: Seq) {
        self.birth = self.birth.filter(|&birth| birth > seq);
        self.copied = self.copied.filter(|&(copied, _)| copied > seq);
        while let Some((_, number)) = self.waiting.pop_front_if(|(write, _)| *write <= seq) {
            self.committed = number;
        }
    }

    /// Whether the events `first..=last` are where they are said to be.
    pub(super) fn covers(&self, first: u64, last: u64) -> bool {
        last <= self.committed && self.copied.is_none_or(|(_, newest)| first > newest)
    }
}
