//! The streams of a session that outlives its process.

use std::collections::VecDeque;
use std::time::Instant;

use crate::mcp::event_id::Token;
use crate::session::effect::Effect;
use crate::stream::log::Load;
use crate::stream::{Leaving, Retention, Stream};

use super::{Entry, STANDALONE, Streams, Tombstone};

impl Streams {
    /// A segment of the journal shall go; `open` are the requests that the stream will answer. What
    /// a stream still needs of it and has in memory is written again; of one that is finished only
    /// where `keep_finished`, since bytes beat age: where memory can hold more than the journal,
    /// copies would fill the segments that shall make room.
    pub(in crate::session) fn retire(
        &mut self,
        now: Instant,
        number: u32,
        segment: u32,
        open: &[Box<str>],
        keep_finished: bool,
        effects: &mut VecDeque<Effect>,
    ) {
        let Some(entry) = self.map.get(number) else { return };
        let mut leaving = entry.stream.events_in(segment);
        let is_finished = entry.stream.is_finished() && entry.stream.holder().is_none();
        if is_finished && !keep_finished {
            let last = leaving.events.last().map_or(leaving.floor, |last| last + 1);
            leaving = Leaving { floor: last.max(leaving.floor), events: Vec::new() };
        }
        if leaving.floor > entry.stream.floor() {
            let events = entry.stream.tail() + 1 - leaving.floor;
            let keep = Retention { bytes: u64::MAX, events, age: None };
            // What is not committed stays, and is in memory.
            self.relieve_stream(now, number, &keep, effects);
        }
        let Some(book) = &self.book else { return };
        let Some(entry) = self.map.get_mut(number) else { return };
        let before = entry.stream.bytes();
        for event in leaving.events {
            book.copy(number, event, &mut entry.stream);
        }
        self.bytes = self.bytes + entry.stream.bytes() - before;
        let answered = |id: &str| !open.iter().any(|open| **open == *id);
        book.stream(number, &entry.ids, answered, &entry.stream);
    }

    /// Pages a stream out, down to `most` bytes of memory, as far as it is on the disk.
    pub(super) fn spill(&mut self, number: u32, most: u64) {
        let Some(entry) = self.map.get_mut(number) else { return };
        let before = entry.stream.bytes();
        entry.stream.spill(most);
        self.bytes -= before - entry.stream.bytes();
    }

    /// Pages streams out, one after the other, until they have `most` bytes of memory together.
    pub(super) fn spill_all(&mut self, most: u64) {
        if self.book.is_none() {
            return;
        }
        for number in self.numbers() {
            if self.bytes <= most {
                return;
            }
            self.spill(number, 0);
        }
    }

    /// Journals every tombstone again.
    pub(in crate::session) fn write_tombstones(&self) {
        let Some(book) = &self.book else { return };
        for tombstone in self.tombstones() {
            book.tombstone(tombstone.number, &tombstone.ids, tombstone.tail);
        }
    }

    /// A chunk of a stream has been read, or cannot be.
    pub(in crate::session) fn handle_loaded(
        &mut self,
        number: u32,
        load: &Load,
        read: Option<Vec<u8>>,
    ) {
        let Some(entry) = self.map.get_mut(number) else { return };
        let before = entry.stream.bytes();
        match read {
            Some(bytes) => drop(entry.stream.handle_loaded(load, bytes)),
            None => entry.stream.handle_load_failed(load),
        }
        self.bytes = self.bytes + entry.stream.bytes() - before;
    }

    /// A stream as it was before the restart.
    pub(in crate::session) fn restore(
        &mut self,
        now: Instant,
        number: u32,
        (token, scope): (Token, Box<[u8]>),
        ids: Box<[Box<str>]>,
        stream: Stream,
    ) {
        if stream.is_finished() {
            self.past().finished.push_back((now, number));
        }
        self.next = self.next.max(number + 1);
        self.insert(number, Entry::new(token, scope, ids, stream));
    }

    /// A tombstone as it was before the restart.
    pub(in crate::session) fn restore_tombstone(
        &mut self,
        number: u32,
        tail: u64,
        ids: Box<[Box<str>]>,
    ) {
        let tombstone = Tombstone { number, tail, ids };
        self.next = self.next.max(number + 1);
        self.bytes += tombstone.bytes();
        self.past().tombstones.push_back(tombstone);
    }

    /// Everything is there again; streams are numbered from `next` on, or higher.
    pub(in crate::session) fn handle_restored(&mut self, next: u32) {
        self.next = self.next.max(next).max(STANDALONE + 1);
    }
}
