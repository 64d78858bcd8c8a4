//! The streams of one session, their tokens, their retention and their tombstones.

mod durable;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::http::sse;
use crate::limits::{
    COMMENT_BYTES_MAX, EVENT_OVERHEAD_BYTES, FINISHED_STREAMS_MAX, Limits, REATTACH_BURST,
    REATTACH_DELAY, TOMBSTONES_MAX, relieved,
};
use crate::mcp::event_id::Token;
use crate::stream::receipt::{Outcome, Ticket};
use crate::stream::takeover::Lost;
use crate::stream::{Attached, Generation, Retention, Stream, Takeover};

use super::Done;
use super::book::Book;
use super::calls::ids_bytes;
use super::effect::Effect;
use super::table::Table;

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

// Every session has one for its standalone stream, every answer that is kept another.
const _: () = assert!(size_of::<Entry>() <= 304);

impl Entry {
    fn new(token: Token, scope: Box<[u8]>, ids: Box<[Box<str>]>, stream: Stream) -> Self {
        Self {
            stream,
            token,
            scope,
            ids,
            planned_close: false,
            full_since: Cell::new(None),
            reattached: 0,
            reattached_at: None,
        }
    }

    /// Bytes charged for the stream: its log, comments that wait, and what is known of it.
    fn bytes(&self) -> u64 {
        let known = size_of::<Self>() as u64 + ids_bytes(&self.ids);
        known + self.stream.bytes() + self.stream.comment_bytes()
    }

    /// The place of a request among those that it answers, counted from 1; 0 where it is none.
    fn place_of(&self, id: &str) -> u16 {
        self.ids.iter().position(|known| **known == *id).map_or(0, |at| at as u16 + 1)
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

/// What there is of streams that are over.
#[derive(Default)]
struct Past {
    /// Finished streams in the order of their ends.
    finished: VecDeque<(Instant, u32)>,
    tombstones: VecDeque<Tombstone>,
    /// What waited for a receipt of a stream that is gone.
    told: VecDeque<(Ticket, Outcome)>,
}

impl Past {
    fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.tombstones.is_empty() && self.told.is_empty()
    }

    fn rest(&mut self) {
        self.finished.shrink_to_fit();
        self.tombstones.shrink_to_fit();
        self.told.shrink_to_fit();
    }
}

/// The streams of one session.
pub(super) struct Streams {
    map: Table<u32, Box<Entry>>,
    /// Made when a stream ends, and gone while none has and the session rests.
    past: Option<Box<Past>>,
    bytes: u64,
    next: u32,
    done: Done,
    /// Where what a restart has to know is logged; none where nothing outlives the process.
    pub(super) book: Option<Box<Book>>,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self {
            map: Table::default(),
            past: None,
            bytes: 0,
            next: STANDALONE,
            done: Done::default(),
            book: None,
        }
    }

    pub(super) fn add(&mut self, token: Token, scope: Box<[u8]>, ids: Box<[Box<str>]>) -> u32 {
        let number = self.next;
        self.next += 1;
        self.done.streams_started += 1;
        let mut stream = Stream::default();
        if let Some(book) = &self.book {
            book.open(number, &ids, &mut stream);
        }
        self.insert(number, Entry::new(token, scope, ids, stream));
        number
    }

    fn insert(&mut self, number: u32, entry: Entry) {
        self.bytes += entry.bytes();
        self.map.insert(number, Box::new(entry));
    }

    /// The number that the next stream will have.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn get(&self, number: u32) -> Option<&Entry> {
        self.map.get(number).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        self.map.get_mut(number).map(Box::as_mut)
    }

    /// Whether a reply's stream, if it has one yet, holds an event.
    pub(super) fn holds_any(&self, number: Option<u32>) -> bool {
        number.and_then(|number| self.get(number)).is_some_and(|entry| entry.stream.tail() > 0)
    }

    pub(super) fn tombstone(&self, number: u32) -> Option<&Tombstone> {
        self.tombstones().find(|tombstone| tombstone.number == number)
    }

    fn tombstones(&self) -> impl Iterator<Item = &Tombstone> {
        self.past.iter().flat_map(|past| &past.tombstones)
    }

    fn past(&mut self) -> &mut Past {
        self.past.get_or_insert_default()
    }

    /// Streams that are finished and kept.
    fn finished(&self) -> usize {
        self.past.as_ref().map_or(0, |past| past.finished.len())
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.map.iter().map(|(number, _)| number).collect()
    }

    /// Gives back the room of what is gone.
    pub(super) fn rest(&mut self) {
        self.map.shrink_to_fit();
        if self.past.take_if(|past| past.is_empty()).is_none() {
            self.past.iter_mut().for_each(|past| past.rest());
        }
    }

    /// What was done since this was asked last.
    pub(super) fn take_done(&mut self) -> Done {
        std::mem::take(&mut self.done)
    }

    /// The next push whose stream is gone.
    pub(super) fn poll_told(&mut self) -> Option<(Ticket, Outcome)> {
        self.past.as_mut()?.told.pop_front()
    }

    /// Forgets a stream that nobody has heard of: its reply became JSON.
    pub(super) fn remove_unused(&mut self, number: u32) {
        if let Some(entry) = self.map.remove(number) {
            if let Some(book) = &self.book {
                book.bury(number, entry.stream.tail());
            }
            self.bytes -= entry.bytes();
        }
    }

    /// Bytes charged for all streams and tombstones.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// As [`Streams::bytes`], counted anew.
    pub(super) fn recount(&self) -> u64 {
        let tight = self.map.iter().all(|(_, entry)| entry.stream.is_tight());
        assert!(tight, "what is charged is what is held");
        let streams: u64 = self.map.iter().map(|(_, entry)| entry.bytes()).sum();
        streams + self.tombstones().map(Tombstone::bytes).sum::<u64>()
    }

    /// An answer became an error because there was no room to keep it.
    pub(super) fn count_refused_answer(&mut self) {
        self.done.answers_refused += 1;
    }

    /// Keeps a comment for the stream's connection; false where the stream is gone.
    pub(super) fn comment(&mut self, number: u32, text: &[u8]) -> bool {
        let Some(entry) = self.map.get_mut(number) else { return false };
        let before = entry.stream.comment_bytes();
        entry.stream.comment(COMMENT_BYTES_MAX, |out| sse::comment(out, text));
        self.bytes += entry.stream.comment_bytes() - before;
        true
    }

    /// So many bytes of comments were handed to a connection.
    pub(super) fn handle_comments_gone(&mut self, bytes: usize) {
        self.bytes -= bytes as u64;
    }

    /// The connection of `generation` is gone; its comments go with it.
    pub(super) fn handle_closed(&mut self, number: u32, generation: Generation, acked: u64) {
        let Some(entry) = self.map.get_mut(number) else { return };
        entry.stream.handle_closed(generation, acked);
        if entry.stream.holder().is_none() {
            self.bytes -= entry.stream.comment_bytes();
            entry.stream.drop_comments();
        }
    }

    /// The last step of a take-over: classify and attach. None where the stream is gone.
    pub(super) fn attach(
        &mut self,
        number: u32,
        takeover: Takeover,
    ) -> Option<Result<Attached, Lost>> {
        let entry = self.map.get_mut(number)?;
        // Comments were the old connection's.
        let before = entry.stream.comment_bytes();
        let attached = takeover.finish(&mut entry.stream);
        self.bytes -= before - entry.stream.comment_bytes();
        entry.planned_close &= attached.is_err();
        Some(attached)
    }

    pub(super) fn any_attached(&self) -> bool {
        self.map.iter().any(|(_, entry)| entry.stream.attached().is_some())
    }

    /// Logs one message, whose JSON text `payload` writes; returns its number. It is the answer to
    /// the request of the raw id `answered`, if to any.
    pub(super) fn append(
        &mut self,
        now: Instant,
        number: u32,
        answered: Option<&str>,
        hint: usize,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> u64 {
        let entry = self.map.get_mut(number).expect("a message goes to a stream that is there");
        let before = entry.stream.bytes();
        let (scope, token) = (&entry.scope, entry.token.as_bytes());
        let hint = hint + EVENT_OVERHEAD_BYTES as usize;
        let event = entry.stream.append(now, hint, |event, out| {
            sse::event_with(out, [scope, token], event, payload);
        });
        if let Some(book) = &self.book {
            let answers = answered.map_or(0, |id| entry.place_of(id));
            book.event(number, answers, &mut entry.stream);
        }
        let added = entry.stream.bytes() - before;
        self.bytes += added;
        self.done.events += 1;
        self.done.event_bytes += added;
        event
    }

    /// The stream has had its last event; `cut_short` where a request of it gets no answer.
    pub(super) fn finish(&mut self, now: Instant, number: u32, cut_short: bool) {
        if let Some(entry) = self.map.get_mut(number) {
            entry.stream.finish();
            if let Some(book) = self.book.as_ref().filter(|_| cut_short) {
                book.finish(number, &mut entry.stream);
            }
            self.past().finished.push_back((now, number));
            self.done.streams_finished += 1;
        }
    }

    /// What one stream may keep, on the disk where there is one: a request's stream ages from its
    /// end, the standalone one by event.
    fn keep(&self, number: u32, limits: &Limits) -> Retention {
        let bytes =
            if self.book.is_some() { limits.stream_disk_bytes } else { limits.stream_bytes };
        let age = (number == STANDALONE).then_some(limits.retention);
        Retention { bytes, events: limits.stream_events, age }
    }

    /// Whether a stream or the session, which holds `held` bytes besides, has more than it may.
    pub(super) fn over_budget(&self, number: u32, held: u64, limits: &Limits) -> bool {
        self.bytes + held > limits.session_bytes
            || self.finished() > FINISHED_STREAMS_MAX
            || self.get(number).is_some_and(|entry| {
                entry.stream.bytes() > limits.stream_bytes
                    || entry.stream.over_budget(&self.keep(number, limits))
            })
    }

    /// Brings the stream back into its budget, and the session well below its own, so that its
    /// relief, which looks at every stream, is rare however fast they grow.
    pub(super) fn relieve(
        &mut self,
        now: Instant,
        number: u32,
        held: u64,
        limits: &Limits,
        effects: &mut VecDeque<Effect>,
    ) {
        if self.get(number).is_some_and(|entry| entry.stream.bytes() > limits.stream_bytes) {
            self.spill(number, relieved(limits.stream_bytes));
        }
        self.relieve_stream(now, number, &self.keep(number, limits), effects);
        self.bury(|streams, _| streams.finished() > FINISHED_STREAMS_MAX);
        if self.bytes + held > limits.session_bytes {
            self.done.reliefs += 1;
            let most = relieved(limits.session_bytes).saturating_sub(held);
            self.shrink(now, most, effects);
        }
    }

    /// Brings the streams down to `most` bytes, in the order of relief: what is on the disk as
    /// well; finished streams, oldest first, and their tombstones; what the client has named; what
    /// TCP has confirmed; then the policy, on the streams that hold most that is not confirmed.
    pub(super) fn shrink(&mut self, now: Instant, most: u64, effects: &mut VecDeque<Effect>) {
        self.spill_all(most);
        self.bury(|streams, _| streams.bytes > most);
        while self.bytes > most && self.drop_tombstone() {}
        for seen in [Stream::named, Stream::confirmed] {
            if self.bytes > most {
                self.relieve_seen(now, most, seen, effects);
            }
        }
        if self.bytes > most {
            self.relieve_unconfirmed(now, most, effects);
        }
    }

    /// Drops events up to the one that `seen` gives, of one stream after the other.
    fn relieve_seen(
        &mut self,
        now: Instant,
        most: u64,
        seen: impl Fn(&Stream) -> u64,
        effects: &mut VecDeque<Effect>,
    ) {
        for number in self.numbers() {
            let over = self.bytes.saturating_sub(most);
            let Some(stream) = self.map.get(number).map(|entry| &entry.stream) else { continue };
            if over == 0 {
                return;
            }
            let unseen = stream.tail() - seen(stream).min(stream.tail());
            let fitting = stream.events_within(stream.bytes().saturating_sub(over));
            let events = fitting.max(unseen);
            let keep = Retention { bytes: u64::MAX, events, age: None };
            self.relieve_stream(now, number, &keep, effects);
        }
    }

    /// Nothing that anybody is known to have is left: the window slides, where most waits first.
    fn relieve_unconfirmed(&mut self, now: Instant, most: u64, effects: &mut VecDeque<Effect>) {
        let streams = self.map.iter().map(|(number, e)| (e.stream.bytes(), number));
        let mut by_bytes: Vec<(u64, u32)> = streams.filter(|&(bytes, _)| bytes > 0).collect();
        by_bytes.sort_unstable_by_key(|&(bytes, number)| (Reverse(bytes), number));
        for (bytes, number) in by_bytes {
            let over = self.bytes.saturating_sub(most);
            if over == 0 {
                return;
            }
            let keep = Retention { bytes: bytes.saturating_sub(over), events: u64::MAX, age: None };
            self.relieve_stream(now, number, &keep, effects);
        }
    }

    fn drop_tombstone(&mut self) -> bool {
        let dropped = self.past.as_mut().and_then(|past| past.tombstones.pop_front());
        self.bytes -= dropped.as_ref().map_or(0, Tombstone::bytes);
        dropped.is_some()
    }

    /// Drops what is older than the retention.
    pub(super) fn expire(&mut self, now: Instant, limits: &Limits, effects: &mut VecDeque<Effect>) {
        self.relieve_stream(now, STANDALONE, &self.keep(STANDALONE, limits), effects);
        self.bury(|_, finished| now.duration_since(finished) >= limits.retention);
    }

    /// When [`Streams::expire`] has something to do.
    pub(super) fn expires(&self, retention: Duration) -> Option<Instant> {
        // One that is being read stays; its end looks again.
        let free = |number| self.get(number).is_some_and(|entry| entry.stream.holder().is_none());
        let mut finished = self.past.iter().flat_map(|past| &past.finished);
        let finished = finished.find(|&&(_, number)| free(number)).map(|(at, _)| *at);
        let standalone = self.get(STANDALONE).and_then(|entry| {
            let held = entry.stream.attached().is_some();
            entry.stream.oldest().filter(|_| !held)
        });
        [finished, standalone].into_iter().flatten().min().map(|at| at + retention)
    }

    /// How long the answer to one more attachment of this stream has to wait, so that a client
    /// in a tight loop is slowed down and not refused.
    pub(super) fn reattach_delay(&mut self, now: Instant, number: u32) -> Option<Duration> {
        let entry = self.map.get_mut(number)?;
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
        while let Some(&(at, number)) = self.past.as_ref().and_then(|past| past.finished.front()) {
            if !due(self, at) {
                break;
            }
            self.past().finished.pop_front();
            let Some(mut entry) = self.map.remove(number) else { continue };
            if entry.stream.holder().is_some() {
                self.map.insert(number, entry);
                held.push((at, number));
                continue;
            }
            self.bytes -= entry.bytes();
            if self.past().tombstones.len() == TOMBSTONES_MAX {
                self.drop_tombstone();
            }
            entry.stream.handle_trimmed_whole();
            while let Some(told) = entry.stream.poll_told() {
                self.past().told.push_back(told);
            }
            let tail = entry.stream.tail();
            if let Some(book) = &self.book {
                book.bury(number, tail);
            }
            let tombstone = Tombstone { number, tail, ids: entry.ids };
            self.bytes += tombstone.bytes();
            self.past().tombstones.push_back(tombstone);
        }
        for entry in held.into_iter().rev() {
            self.past().finished.push_front(entry);
        }
    }

    fn relieve_stream(
        &mut self,
        now: Instant,
        number: u32,
        keep: &Retention,
        effects: &mut VecDeque<Effect>,
    ) {
        let Some(entry) = self.map.get_mut(number) else { return };
        let (before, floor) = (entry.stream.bytes(), entry.stream.floor());
        let cut: Option<Generation> = entry.stream.relieve(now, keep);
        self.bytes -= before - entry.stream.bytes();
        if let Some(book) = self.book.as_ref().filter(|_| entry.stream.floor() > floor) {
            book.floor(number, entry.stream.floor());
        }
        if let Some(generation) = cut {
            effects.push_back(Effect::Close(number, generation));
        }
    }
}
