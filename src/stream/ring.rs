//! The send ring of one stream: the events that may not have arrived.
//!
//! It is a range over the log, never a second copy. Its head is `confirmed + 1`: an event leaves
//! only when delivery is confirmed, never because a write returned.

/// The range `head..end` of event numbers that are loaded and not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    head: u64,
    end: u64,
}

impl Ring {
    /// An empty ring that begins at `head`.
    pub fn empty_at(head: u64) -> Self {
        Self { head, end: head }
    }

    /// The oldest event that is not confirmed (loaded or not).
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The number after the newest loaded event.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Loads events up to and including `last`.
    pub fn load(&mut self, last: u64) {
        self.end = self.end.max(last + 1);
    }

    /// Delivery of everything up to `confirmed` is confirmed. Never moves back.
    pub fn evict(&mut self, confirmed: u64) {
        self.head = self.head.max(confirmed + 1);
        self.end = self.end.max(self.head);
    }
}
