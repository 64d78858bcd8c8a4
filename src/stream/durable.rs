//! A stream in front of a durable log: what is sent only once it is committed, and what is read
//! back before it can be sent.
//!
//! The order of calls beside those of [`Stream`] itself:
//!
//! 1. [`Stream::handle_opened`] before the first event. A stream that is never told so keeps
//!    everything in memory, and everything in it counts as committed.
//! 2. After each [`Stream::append`], in the same turn: [`Stream::handle_logged`]; after a
//!    [`Stream::finish`] with a record of its own, [`Stream::handle_finish_logged`].
//! 3. [`Stream::handle_committed`] whenever writes have been committed.
//! 4. [`Transmit::Load`](super::Transmit::Load) asks for a chunk: [`Stream::handle_loaded`] or
//!    [`Stream::handle_load_failed`], and the writer asks again.
//! 5. Before a segment is removed: [`Stream::events_in`], [`Stream::replace_place`] for what is
//!    written once more, [`Stream::raise_floor`] for what is not.

use super::log::{Leaving, Load, Log, Place, Restored, Seq};
use super::ring::Ring;
use super::{Generation, Stream};

/// Getters.
impl Stream {
    /// The newest event that may be sent.
    pub fn committed(&self) -> u64 {
        self.log.committed()
    }

    /// Whether an event is logged that may not be sent yet.
    pub fn is_behind(&self) -> bool {
        self.committed() < self.tail()
    }

    /// Whether the stream's birth is committed: before that nobody may hear of it.
    pub fn is_open(&self) -> bool {
        self.log.is_open()
    }

    /// The newest event that can never be read again, 0 where there is none: a cursor before it is
    /// refused.
    pub fn broken(&self) -> u64 {
        self.log.broken()
    }

    /// Bytes of the kept events in the durable log; 0 for a stream that is in memory alone.
    pub fn disk_bytes(&self) -> u64 {
        if self.log.is_durable() { self.log.whole_bytes() } else { 0 }
    }

    /// The bytes of event `number`, if it is kept and in memory.
    pub fn event(&self, number: u64) -> Option<&[u8]> {
        self.log.event(number)
    }

    /// What lies in `segment`, which shall be removed.
    pub fn events_in(&self, segment: u32) -> Leaving {
        self.log.events_in(segment)
    }

    /// Whether nothing will follow, and that is committed.
    pub(super) fn is_over(&self) -> bool {
        self.finished && self.log.is_settled()
    }
}

/// Commands.
impl Stream {
    /// The stream as a recovery has found it: everything may have been sent, nobody has named
    /// anything yet, and a listener without a cursor begins at the oldest event.
    pub fn restore(restored: &Restored) -> Self {
        let log = Log::restore(restored);
        Self {
            sent_max: log.tail(),
            finished: restored.finished,
            ring: Ring::empty_at(restored.floor.clamp(1, log.tail() + 1)),
            log,
            ..Self::default()
        }
    }

    /// Pages events out, oldest first, until at most `most` bytes are charged in memory, as far as
    /// they are committed and the connection is not about to read them.
    pub fn spill(&mut self, most: u64) {
        let wanted = self.wanted();
        self.log.spill(most, wanted);
    }

    /// Event `number`, which lay in a segment that shall be removed, is written once more: at
    /// `place`, in write `seq`.
    pub fn replace_place(&mut self, number: u64, place: Place, seq: Seq) {
        self.log.replace_place(number, place, seq);
    }

    /// Drops every event below `floor`, but nothing that is not committed. A connection that
    /// needs one of them is fenced first: then its generation is returned, and its socket has to
    /// be closed.
    pub fn raise_floor(&mut self, floor: u64) -> Option<Generation> {
        let floor = floor.min(self.committed() + 1);
        let cut = self.cut_for(floor);
        self.trim(floor);
        cut
    }

    /// The position of the byte that the connection reads next.
    fn wanted(&self) -> Option<u64> {
        self.attached().map(|_| self.cursor)
    }
}

/// What the durable log did.
impl Stream {
    /// From now on every event is logged durably; the stream's birth is in write `seq`.
    pub fn handle_opened(&mut self, seq: Seq) {
        self.log.handle_opened(seq);
    }

    /// The event that was just appended lies at `place`, in write `seq`.
    pub fn handle_logged(&mut self, place: Place, seq: Seq) {
        self.log.handle_logged(place, seq);
    }

    /// That the stream is finished has a record of its own, in write `seq`.
    pub fn handle_finish_logged(&mut self, seq: Seq) {
        self.log.handle_finish_logged(seq);
    }

    /// Everything in writes up to `seq` is committed: it may be sent.
    pub fn handle_committed(&mut self, seq: Seq) {
        self.log.handle_committed(seq);
        self.update_receipts();
    }

    /// The events of `load` have been read and checked: `bytes` are theirs, without the headers.
    /// What nobody waits for any more is thrown away; says whether they were taken.
    pub fn handle_loaded(&mut self, load: &Load, bytes: Vec<u8>) -> bool {
        let wanted = self.wanted();
        self.log.handle_loaded(load, bytes, wanted)
    }

    /// The events of `load` cannot be read: they are never sent, nor is anything behind them to
    /// who has not had them.
    pub fn handle_load_failed(&mut self, load: &Load) {
        self.log.handle_load_failed(load);
    }
}
