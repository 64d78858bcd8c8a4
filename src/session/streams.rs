//! The streams of one session, their tokens, their retention and their tombstones.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::time::{Duration, Instant};

use crate::http::sse;
use crate::limits::{
    EVENT_OVERHEAD_BYTES, FINISHED_STREAMS_MAX, Limits, REATTACH_BURST, REATTACH_DELAY,
    TOMBSTONES_MAX,
};
use crate::mcp::event_id::Token;
use crate::stream::receipt::{Outcome, Ticket};
use crate::stream::{Generation, Retention, Stream};

use super::Done;
use super::effect::Effect;
use super::table::IdHasher;

/// The number of the standalone (GET) stream.
pub const STANDALONE: u32 = 0;

/// A stream and what its session knows of it.
pub struct Entry {
    /// The heart.
    pub stream: Stream,
    /// The token of its event ids.
    pub token: Token,
    /// What stands before the token in the ids; nothing but in HTTP+SSE sessions.
    pub scope: Box<[u8]>,
    /// The raw ids of the requests that it answers; none for the standalone stream.
    pub ids: Box<[Box<str>]>,
    /// The current connection should end in the planned way, once it has sent what is logged.
    pub planned_close: bool,
    /// Since when its reader is too far behind for a producer that can wait.
    pub(super) full_since: Cell<Option<Instant>>,
    reattached: u32,
    reattached_at: Option<Instant>,
}

impl Entry {
    /// Bytes charged for the stream beside its log.
    fn overhead(&self) -> u64 {
        size_of::<Self>() as u64 + ids_bytes(&self.ids)
    }

    /// Appends the id of event `number`, as the client sees it.
    pub fn push_id(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.scope);
        self.token.push_id(number, out);
    }
}

/// What is kept of a stream whose events are gone, so that a cursor can be answered in-band.
pub(super) struct Tombstone {
    pub(super) number: u32,
    pub(super) tail: u64,
    pub(super) ids: Box<[Box<str>]>,
}

impl Tombstone {
    /// Bytes charged for it.
    fn bytes(&self) -> u64 {
        size_of::<Self>() as u64 + ids_bytes(&self.ids)
    }
}

fn ids_bytes(ids: &[Box<str>]) -> u64 {
    ids.iter().map(|id| (size_of::<Box<str>>() + id.len()) as u64).sum()
}

/// The streams of one session.
pub(super) struct Streams {
    map: HashMap<u32, Box<Entry>, BuildHasherDefault<IdHasher>>,
    /// Finished streams in the order of their ends.
    finished: VecDeque<(Instant, u32)>,
    tombstones: VecDeque<Tombstone>,
    /// What waited for a receipt of a stream that is gone.
    told: VecDeque<(Ticket, Outcome)>,
    bytes: u64,
    next: u32,
    done: Done,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self {
            map: HashMap::default(),
            finished: VecDeque::new(),
            tombstones: VecDeque::new(),
            told: VecDeque::new(),
            bytes: 0,
            next: STANDALONE,
            done: Done::default(),
        }
    }

    pub(super) fn add(&mut self, token: Token, scope: Box<[u8]>, ids: Box<[Box<str>]>) -> u32 {
        let number = self.next;
        self.next += 1;
        self.done.streams_started += 1;
        let stream = Stream::default();
        let entry = Entry {
            stream,
            token,
            scope,
            ids,
            planned_close: false,
            full_since: Cell::new(None),
            reattached: 0,
            reattached_at: None,
        };
        self.bytes += entry.overhead();
        self.map.insert(number, Box::new(entry));
        number
    }

    /// The number that the next stream will have.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn get(&self, number: u32) -> Option<&Entry> {
        self.map.get(&number).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        self.map.get_mut(&number).map(Box::as_mut)
    }

    /// Whether a reply's stream, if it has one yet, holds an event.
    pub(super) fn holds_any(&self, number: Option<u32>) -> bool {
        number.and_then(|number| self.get(number)).is_some_and(|entry| entry.stream.tail() > 0)
    }

    pub(super) fn tombstone(&self, number: u32) -> Option<&Tombstone> {
        self.tombstones.iter().find(|tombstone| tombstone.number == number)
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.map.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// What was done since this was asked last.
    pub(super) fn take_done(&mut self) -> Done {
        std::mem::take(&mut self.done)
    }

    /// The next push whose stream is gone.
    pub(super) fn poll_told(&mut self) -> Option<(Ticket, Outcome)> {
        self.told.pop_front()
    }

    /// Forgets a stream that nobody has heard of: its reply became JSON.
    pub(super) fn remove_unused(&mut self, number: u32) {
        if let Some(entry) = self.map.remove(&number) {
            self.bytes -= entry.overhead() + entry.stream.bytes();
        }
    }

    /// Bytes charged for all logs.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn any_attached(&self) -> bool {
        self.map.values().any(|entry| entry.stream.attached().is_some())
    }

    /// Logs one message, whose JSON text `payload` writes; returns its number.
    pub(super) fn append(
        &mut self,
        now: Instant,
        number: u32,
        hint: usize,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> u64 {
        let entry = self.map.get_mut(&number).expect("a message goes to a stream that is there");
        let before = entry.stream.bytes();
        let (scope, token) = (&entry.scope, entry.token.as_bytes());
        let hint = hint + EVENT_OVERHEAD_BYTES as usize;
        let event = entry.stream.append(now, hint, |event, out| {
            sse::event_with(out, [scope, token], event, payload);
        });
        let added = entry.stream.bytes() - before;
        self.bytes += added;
        self.done.events += 1;
        self.done.event_bytes += added;
        event
    }

    pub(super) fn finish(&mut self, now: Instant, number: u32) {
        if let Some(entry) = self.map.get_mut(&number) {
            entry.stream.finish();
            self.finished.push_back((now, number));
            self.done.streams_finished += 1;
        }
    }

    /// Whether a stream or the session holds more than it may.
    pub(super) fn over_budget(&self, number: u32, limits: &Limits) -> bool {
        self.bytes > limits.session_bytes
            || self.finished.len() > FINISHED_STREAMS_MAX
            || self.get(number).is_some_and(|e| e.stream.over_budget(&keep(number, limits)))
    }

    /// Brings the stream and then the session back into their budgets.
    pub(super) fn relieve(
        &mut self,
        now: Instant,
        number: u32,
        limits: &Limits,
        effects: &mut VecDeque<Effect>,
    ) {
        self.relieve_stream(now, number, &keep(number, limits), effects);
        self.shrink(now, limits.session_bytes, effects);
    }

    /// Brings the session down to `most` bytes, in the order of relief: finished streams, oldest
    /// first; what is confirmed; then the stream that holds most.
    pub(super) fn shrink(&mut self, now: Instant, most: u64, effects: &mut VecDeque<Effect>) {
        self.bury(|streams, _| {
            streams.bytes > most || streams.finished.len() > FINISHED_STREAMS_MAX
        });
        while self.bytes > most && self.drop_tombstone() {}
        if self.bytes <= most {
            return;
        }
        for number in self.numbers() {
            self.relieve_confirmed(now, number, effects);
        }
        while self.bytes > most {
            let over = self.bytes - most;
            let largest = self.map.iter().max_by_key(|(_, entry)| entry.stream.bytes());
            let Some((&number, entry)) = largest else { break };
            if entry.stream.bytes() == 0 {
                // What is left is the open calls' own, which have their own bound.
                break;
            }
            let bytes = entry.stream.bytes().saturating_sub(over);
            let keep = Retention { bytes, events: u64::MAX, age: None };
            self.relieve_stream(now, number, &keep, effects);
        }
    }

    fn drop_tombstone(&mut self) -> bool {
        let dropped = self.tombstones.pop_front();
        self.bytes -= dropped.as_ref().map_or(0, Tombstone::bytes);
        dropped.is_some()
    }

    /// Drops what is older than the retention.
    pub(super) fn expire(&mut self, now: Instant, limits: &Limits, effects: &mut VecDeque<Effect>) {
        self.relieve_stream(now, STANDALONE, &keep(STANDALONE, limits), effects);
        self.bury(|_, finished| now.duration_since(finished) >= limits.retention);
    }

    /// When [`Streams::expire`] has something to do.
    pub(super) fn expires(&self, retention: Duration) -> Option<Instant> {
        // One that is being read stays; its end looks again.
        let free = |number| self.get(number).is_some_and(|entry| entry.stream.holder().is_none());
        let finished = self.finished.iter().find(|&&(_, number)| free(number)).map(|(at, _)| *at);
        let standalone = self.get(STANDALONE).and_then(|entry| {
            let held = entry.stream.attached().is_some();
            entry.stream.oldest().filter(|_| !held)
        });
        [finished, standalone].into_iter().flatten().min().map(|at| at + retention)
    }

    /// How long the answer to one more attachment of this stream has to wait, so that a client
    /// in a tight loop is slowed down and not refused.
    pub(super) fn reattach_delay(&mut self, now: Instant, number: u32) -> Option<Duration> {
        let entry = self.map.get_mut(&number)?;
        let since = entry.reattached_at.map_or(Duration::MAX, |at| now.duration_since(at));
        let forgiven = since.as_millis() / REATTACH_DELAY.as_millis();
        let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
        entry.reattached = entry.reattached.saturating_sub(forgiven) + 1;
        entry.reattached_at = Some(now);
        (entry.reattached > REATTACH_BURST).then_some(REATTACH_DELAY)
    }

    /// Finished streams, oldest first, become tombstones while `due` says so; one that is being
    /// read is passed over.
    fn bury(&mut self, due: impl Fn(&Self, Instant) -> bool) {
        let mut held = Vec::new();
        while let Some(&(at, number)) = self.finished.front() {
            if !due(self, at) {
                break;
            }
            self.finished.pop_front();
            let Some(mut entry) = self.map.remove(&number) else { continue };
            if entry.stream.holder().is_some() {
                self.map.insert(number, entry);
                held.push((at, number));
                continue;
            }
            self.bytes -= entry.stream.bytes() + entry.overhead();
            if self.tombstones.len() == TOMBSTONES_MAX {
                self.drop_tombstone();
            }
            entry.stream.handle_trimmed_whole();
            while let Some(told) = entry.stream.poll_told() {
                self.told.push_back(told);
            }
            let tail = entry.stream.tail();
            let tombstone = Tombstone { number, tail, ids: entry.ids };
            self.bytes += tombstone.bytes();
            self.tombstones.push_back(tombstone);
        }
        for entry in held.into_iter().rev() {
            self.finished.push_front(entry);
        }
    }

    fn relieve_confirmed(&mut self, now: Instant, number: u32, effects: &mut VecDeque<Effect>) {
        let Some(entry) = self.map.get(&number) else { return };
        let unconfirmed = entry.stream.tail() - entry.stream.confirmed();
        let keep = Retention { bytes: u64::MAX, events: unconfirmed, age: None };
        self.relieve_stream(now, number, &keep, effects);
    }

    fn relieve_stream(
        &mut self,
        now: Instant,
        number: u32,
        keep: &Retention,
        effects: &mut VecDeque<Effect>,
    ) {
        let Some(entry) = self.map.get_mut(&number) else { return };
        let before = entry.stream.bytes();
        let cut: Option<Generation> = entry.stream.relieve(now, keep);
        self.bytes -= before - entry.stream.bytes();
        if let Some(generation) = cut {
            effects.push_back(Effect::Close(number, generation));
        }
    }
}

/// What one stream may keep: a request's stream ages from its end, the standalone one by event.
fn keep(number: u32, limits: &Limits) -> Retention {
    Retention {
        bytes: limits.stream_bytes,
        events: limits.stream_events,
        age: (number == STANDALONE).then_some(limits.retention),
    }
}
