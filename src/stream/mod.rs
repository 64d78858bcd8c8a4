//! The heart: one logical SSE stream as an ordered log, and connections as cursors that read it.
//!
//! A [`Stream`] is sans-IO: it holds no socket, clock or thread. The order of calls:
//!
//! 1. [`Stream::append`] logs an event, whether or not anybody is connected; then
//!    [`Stream::over_budget`] and, after reading acknowledgements, [`Stream::relieve`].
//! 2. A connection attaches through a [`Takeover`]: admission and fence, then, once the fenced
//!    connection is gone ([`Stream::handle_closed`]), classification and attachment in one step.
//! 3. The connection's writer asks [`Stream::poll_transmit`] for bytes until it says idle, and
//!    reports acknowledgements with [`Stream::handle_acked`].
//! 4. However a connection ends, its task calls [`Stream::handle_closed`] once, last.
//!
//! A stream may have a durable log behind it: [`durable`] says what is called then.
//!
//! Invariants, asserted in release builds by `check`:
//! * `1 <= floor <= committed + 1 <= tail + 1` and `sent_max <= committed`: what a restart could
//!   lose is neither handed out nor dropped. In memory alone everything is committed.
//! * Attached: `floor <= confirmed + 1` and `confirmed <= sent <= tail`.
//! * The ring is the range of the log from `confirmed + 1` on; an event's bytes never change.
//! * Whatever carries another generation than the current one changes nothing.
//! * No step moves `floor` past an attached connection's position without fencing it first.

pub mod ack;
pub mod durable;
pub mod log;
pub mod out;
pub mod outbound;
pub mod receipt;
pub mod resume;
pub mod ring;
pub mod takeover;

use std::time::{Duration, Instant};

use crate::limits::RING_BYTES_MAX;

use self::ack::AckMap;
use self::log::{Load, Log};
use self::receipt::{Outcome, Receipts, Stage, Ticket};
use self::resume::Class;
use self::ring::Ring;

pub use self::log::{Leaving, Place, Restored, RestoredRun, Seq};
pub use self::out::ConnOut;
pub use self::takeover::{Attached, Start, Takeover};

/// The generation of a connection: it grows by one with every fence.
pub type Generation = u32;

/// How much a stream may keep.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Bytes of events and index.
    pub bytes: u64,
    /// Events.
    pub events: u64,
    /// Age of an event that nobody is about to read; none for a stream whose end starts the clock.
    pub age: Option<Duration>,
}

/// What a writer should do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// So many bytes were appended to the buffer: write them.
    Data(usize),
    /// Nothing to send now.
    Idle,
    /// Too much is unconfirmed: read the acknowledgements, then ask again.
    RingFull,
    /// The last event of a finished stream has been handed over.
    Finished,
    /// Another connection has taken over: this one is done.
    Stale,
    /// What comes next has to be read first; then ask again.
    Load(Box<Load>),
    /// What comes next can never be read: the connection has to end with an error.
    Broken,
}

/// One logical stream. See the module's documentation for the order of calls.
pub struct Stream {
    log: Log,
    named: u64,
    sent_max: u64,
    finished: bool,
    generation: Generation,
    /// The connection that holds the socket; it is current only while it equals `generation`.
    holder: Option<Generation>,
    /// Of the current connection: the log position of its next byte.
    cursor: u64,
    /// Of the current connection: the log position up to which its peer's TCP has acknowledged.
    arrived: u64,
    /// Of the current connection: the newest event handed over whole.
    sent: u64,
    ring: Ring,
    acks: AckMap,
    comments: Vec<u8>,
    receipts: Option<Box<Receipts>>,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            log: Log::default(),
            named: 0,
            sent_max: 0,
            finished: false,
            generation: 0,
            holder: None,
            cursor: 0,
            arrived: 0,
            sent: 0,
            ring: Ring::empty_at(1),
            acks: AckMap::default(),
            comments: Vec::new(),
            receipts: None,
        }
    }
}

/// Getters.
impl Stream {
    /// Number of the oldest event kept.
    pub fn floor(&self) -> u64 {
        self.log.floor()
    }

    /// Number of the newest event, 0 before the first.
    pub fn tail(&self) -> u64 {
        self.log.tail()
    }

    /// The highest cursor ever presented.
    pub fn named(&self) -> u64 {
        self.named
    }

    /// The highest number ever handed to a connection: that of an event or of a priming event.
    pub fn sent_max(&self) -> u64 {
        self.sent_max
    }

    /// The newest event whose delivery on the current (or last) connection TCP has confirmed.
    pub fn confirmed(&self) -> u64 {
        self.ring.head() - 1
    }

    /// The newest event handed whole to the current (or last) connection.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes charged in memory for the log.
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Whether it holds no more memory than it is charged for, but for the room for its next
    /// events and what is not worth giving back.
    pub fn is_tight(&self) -> bool {
        self.log.is_tight(self.finished)
    }

    /// Bytes of comments that wait for the connection.
    pub fn comment_bytes(&self) -> u64 {
        self.comments.len() as u64
    }

    /// How many of the newest events fit into so many bytes of log.
    pub fn events_within(&self, bytes: u64) -> u64 {
        self.log.tail() + 1 - self.log.floor_for(bytes, u64::MAX)
    }

    /// Bytes logged and not yet handed to the attached connection.
    pub fn unsent_bytes(&self) -> u64 {
        self.log.end() - self.cursor.min(self.log.end())
    }

    /// Bytes handed to the attached connection whose delivery is not confirmed.
    pub fn unconfirmed_bytes(&self) -> u64 {
        self.attached().map_or(0, |_| self.cursor - self.arrived)
    }

    /// Since when, at the latest, something may be sent that the connection has not been handed;
    /// none where it has everything.
    pub fn unsent_since(&self) -> Option<Instant> {
        let position = self.cursor.max(self.log.start_of(self.log.floor()));
        let is_due = position < self.log.committed_end();
        self.log.appended_at(position).filter(|_| is_due)
    }

    /// Whether the last event has been logged.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The current generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The connection that reads this stream now.
    pub fn attached(&self) -> Option<Generation> {
        self.holder.filter(|&holder| holder == self.generation)
    }

    /// The connection whose socket is still open, be it current or fenced.
    pub fn holder(&self) -> Option<Generation> {
        self.holder
    }

    /// When the oldest events were logged.
    pub fn oldest(&self) -> Option<Instant> {
        self.log.oldest()
    }

    /// Whether somebody waits for a receipt.
    pub fn has_receipts(&self) -> bool {
        self.receipts.as_ref().is_some_and(|receipts| !receipts.is_empty())
    }

    /// Whether more is kept than `keep` allows.
    pub fn over_budget(&self, keep: &Retention) -> bool {
        self.log.whole_bytes() > keep.bytes || self.log.len() > keep.events
    }
}

/// Commands.
impl Stream {
    /// Logs the next event, which `encode` writes for its number into the log.
    pub fn append(
        &mut self,
        now: Instant,
        length_hint: usize,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> u64 {
        assert!(!self.finished, "nothing follows the last event");
        self.log.append(now, length_hint, encode)
    }

    /// The last event has been logged.
    pub fn finish(&mut self) {
        self.finished = true;
        self.log.close();
    }

    /// Keeps a comment for the current connection, if there is one: comments are not logged, and
    /// more than `max` bytes of them do not wait.
    pub fn comment(&mut self, max: usize, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.attached().is_some() && self.comments.len() < max {
            encode(&mut self.comments);
        }
    }

    /// The connection is gone, and with it whatever waited for it alone.
    pub fn drop_comments(&mut self) {
        self.comments = Vec::new();
    }

    /// Asks to be told when event `number` has come as far as `stage`, at the latest by
    /// `deadline`.
    pub fn tell(&mut self, ticket: Ticket, number: u64, stage: Stage, deadline: Instant) {
        let receipts = self.receipts.get_or_insert_default();
        receipts.add(ticket, number, stage, deadline);
        // First of all what is gone: the numbers below say nothing about an event in a gap.
        receipts.handle_trimmed(self.log.floor());
        self.update_receipts();
    }

    /// Ends the current connection's claim on the stream: it may not transmit any more. Its task
    /// still reports [`Stream::handle_closed`]. Returns the generation whose socket has to go.
    pub fn fence(&mut self) -> Option<Generation> {
        self.generation += 1;
        self.holder
    }

    /// Drops what `keep` does not allow, oldest first, but nothing that is not committed. Age
    /// alone never drops what an attached connection has not had confirmed; bytes and count do,
    /// but the connection is fenced first: then its generation is returned, and its socket has to
    /// be closed.
    pub fn relieve(&mut self, now: Instant, keep: &Retention) -> Option<Generation> {
        let most = self.committed() + 1;
        let needed = self.log.floor_for(keep.bytes, keep.events).min(most);
        let cut = self.cut_for(needed);
        let mut floor = needed;
        if let Some(cutoff) = keep.age.and_then(|age| now.checked_sub(age)) {
            floor = floor.max(self.log.floor_since(cutoff)).min(most);
        }
        if self.attached().is_some() {
            floor = floor.min(self.ring.head());
        }
        self.trim(floor);
        cut
    }

    /// Fences an attached connection that a floor at `floor` would pass.
    fn cut_for(&mut self, floor: u64) -> Option<Generation> {
        let passes = self.attached().is_some() && floor > self.ring.head();
        passes.then(|| self.fence()).flatten()
    }

    fn trim(&mut self, floor: u64) {
        if floor > self.log.floor() {
            self.log.trim(floor);
            if let Some(receipts) = &mut self.receipts {
                receipts.handle_trimmed(floor);
            }
        }
        self.check();
    }

    /// The classes that only the log decides, touching nothing.
    pub(crate) fn admit(&self, number: u64) -> Result<(), Class> {
        // The number before the floor is handed out too: to whoever is told of a gap.
        if number > self.sent_max.max(self.log.floor() - 1) {
            return Err(Class::Ahead);
        }
        if number < self.broken() {
            return Err(Class::LogFailed);
        }
        if number + 1 < self.log.floor() {
            return Err(Class::Truncated);
        }
        if self.is_over() && number == self.log.tail() {
            return Err(Class::FinishedSeen);
        }
        Ok(())
    }

    /// Classifies and attaches generation `generation` after event `number`, in one step.
    fn attach(&mut self, generation: Generation, number: u64) -> Class {
        let start = number + 1;
        let class = resume::classify(start, &self.ring, self.log.tail(), self.is_over());
        if class != Class::Aligned {
            self.ring = Ring::empty_at(start);
        }
        self.acks.clear();
        self.comments.clear();
        self.holder = Some(generation);
        self.cursor = self.log.start_of(start);
        self.arrived = self.cursor;
        self.sent = number;
        // The connection's priming event hands this number out.
        self.sent_max = self.sent_max.max(number);
        self.check();
        class
    }
}

/// What the world did.
impl Stream {
    /// The peer's TCP has acknowledged `acked` bytes of the connection of `generation`, as
    /// clamped by its [`ConnOut`].
    pub fn handle_acked(&mut self, generation: Generation, acked: u64) {
        if self.attached() == Some(generation) {
            self.confirm(acked);
            self.check();
        }
    }

    /// The connection of `generation` is gone; `acked` is its last acknowledged byte count. The
    /// ring evicts what that confirms and stays for the next attachment to be compared with.
    pub fn handle_closed(&mut self, generation: Generation, acked: u64) {
        if self.holder != Some(generation) {
            return;
        }
        self.confirm(acked);
        self.holder = None;
        if let Some(receipts) = &mut self.receipts {
            receipts.handle_detached(self.sent);
        }
    }

    /// The client has named `number`: it has everything up to there.
    pub fn handle_named(&mut self, number: u64) {
        self.named = self.named.max(number);
        self.update_receipts();
    }

    /// Time has passed: waits that are over say so.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(receipts) = &mut self.receipts {
            receipts.handle_timeout(now);
        }
    }

    /// No more will come and nobody will read: every open wait is told.
    pub fn handle_ended(&mut self) {
        if let Some(receipts) = &mut self.receipts {
            receipts.handle_closed();
        }
    }

    /// Retention drops the whole stream.
    pub fn handle_trimmed_whole(&mut self) {
        if let Some(receipts) = &mut self.receipts {
            receipts.handle_trimmed(u64::MAX);
        }
    }

    fn confirm(&mut self, acked: u64) {
        if let Some(position) = self.acks.handle_acked(acked) {
            self.arrived = position;
            let confirmed = self.log.last_ending_at(position);
            self.ring.evict(confirmed.min(self.sent));
            self.update_receipts();
        }
    }

    fn update_receipts(&mut self) {
        let (committed, sent) = (self.committed(), self.sent_max);
        let (confirmed, named) = (self.confirmed(), self.named);
        if let Some(receipts) = &mut self.receipts {
            receipts.handle_progress(committed, sent, confirmed, named);
        }
    }
}

/// What to do next.
impl Stream {
    /// Appends at most `max` bytes of the log for the connection of `generation` to `out`, which
    /// will be written at `offset` of the connection's byte stream.
    pub fn poll_transmit(
        &mut self,
        generation: Generation,
        offset: u64,
        max: usize,
        out: &mut Vec<u8>,
    ) -> Transmit {
        if self.attached() != Some(generation) {
            return Transmit::Stale;
        }
        let end = self.log.committed_end();
        if self.cursor == end {
            return if self.is_over() { Transmit::Finished } else { Transmit::Idle };
        }
        // In bytes that arrived, not in events: one event may be larger than the bound.
        if self.unconfirmed_bytes() >= RING_BYTES_MAX {
            return Transmit::RingFull;
        }
        let from = self.cursor;
        let most = max.min((end - from) as usize);
        let mut taken = 0;
        while taken < most {
            let read = self.log.read(self.cursor, most - taken, out);
            if read == 0 {
                break;
            }
            taken += read;
            self.cursor += read as u64;
        }
        if taken == 0 && most > 0 {
            let load = self.log.poll_load(from);
            return load.map_or(Transmit::Broken, |load| Transmit::Load(Box::new(load)));
        }
        self.acks.record(offset, from, taken as u64);
        self.sent = self.log.last_ending_at(self.cursor);
        let whole = self.log.start_of(self.sent + 1) == self.cursor;
        self.ring.load(if whole { self.sent } else { self.sent + 1 });
        self.sent_max = self.sent_max.max(self.sent);
        if self.receipts.is_some() {
            self.update_receipts();
        }
        self.check();
        Transmit::Data(taken)
    }

    /// Moves the waiting comments to `out`, if the connection of `generation` is between events.
    pub fn poll_comments(&mut self, generation: Generation, out: &mut Vec<u8>) -> bool {
        if self.comments.is_empty() || self.attached() != Some(generation) {
            return false;
        }
        // Only now: retention may have passed a position that is no longer attached.
        if self.log.start_of(self.sent + 1) != self.cursor {
            return false;
        }
        out.append(&mut self.comments);
        true
    }

    /// The next push that has come as far as was asked, or never will.
    pub fn poll_told(&mut self) -> Option<(Ticket, Outcome)> {
        self.receipts.as_mut()?.poll_told()
    }

    fn check(&self) {
        let (floor, tail) = (self.log.floor(), self.log.tail());
        let committed = self.log.committed();
        assert!(committed <= tail, "what is committed is logged");
        assert!(1 <= floor && floor <= committed + 1, "the floor is inside of what is committed");
        assert!(self.sent_max <= committed, "nothing that is not committed was handed out");
        if self.attached().is_some() {
            assert!(floor <= self.ring.head(), "the floor never passes an attached position");
            let confirmed = self.confirmed();
            assert!(confirmed <= self.sent && self.sent <= tail, "confirmed <= sent <= tail");
        }
    }
}

#[cfg(test)]
mod durable_tests;
#[cfg(test)]
mod tests;
