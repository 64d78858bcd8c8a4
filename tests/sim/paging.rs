//! The steps of the durable log: writes are committed, chunks go and come back, segments leave.

use gapless::stream::log::Load;

use crate::check::{same, violated};
use crate::journal::Reading;
use crate::oracle::INDEX_BYTES;
use crate::world::{Logical, World};

/// The most that the place of one event costs.
const RUN_BYTES: u64 = 16;

impl World {
    /// A new stream of `session`; its birth is logged like everything else.
    pub fn add_stream(&mut self, session: usize) -> usize {
        let mut logical = Logical::new(session);
        if self.journal.on {
            logical.stream.handle_opened(self.journal.seq);
            logical.oracle.handle_opened(self.journal.seq);
        }
        self.streams.push(logical);
        self.streams.len() - 1
    }

    /// The newest event of stream `s` is logged, in the turn in which it is appended.
    pub fn log(&mut self, s: usize) {
        if !self.journal.on {
            return;
        }
        let logical = &mut self.streams[s];
        let number = logical.stream.tail();
        let Some(bytes) = logical.stream.event(number) else {
            violated("page", "a new event is not in memory")
        };
        let (place, seq) = self.journal.append(s, number, bytes);
        logical.stream.handle_logged(place, seq);
        logical.oracle.handle_logged(number, place, seq);
    }

    /// Writes are committed, and every stream is told.
    pub fn commit(&mut self, all: bool) {
        let seq = self.journal.commit(all);
        for logical in &mut self.streams {
            logical.stream.handle_committed(seq);
            logical.oracle.handle_committed(seq);
        }
    }

    /// Memory is short.
    pub fn spill(&mut self, s: usize) {
        let logical = &mut self.streams[s];
        let before = logical.stream.bytes();
        let most = self.journal.rng.between(0, before);
        logical.stream.spill(most);
        if logical.stream.bytes() < before {
            self.coverage.mark("chunk paged out");
        }
        self.check_paged(s);
    }

    /// What is not certainly on disk is in memory, and what is charged is what is there.
    fn check_paged(&self, s: usize) {
        let Logical { oracle, stream, .. } = &self.streams[s];
        let mut here = 0;
        for number in oracle.floor..=oracle.tail() {
            match stream.event(number) {
                Some(bytes) => here += bytes.len() as u64,
                None if oracle.is_placed(number) => (),
                None => violated("spill", format!("event {number} is only in memory, and gone")),
            }
        }
        let kept = oracle.tail() + 1 - oracle.floor;
        let index = stream.bytes().checked_sub(here + kept * INDEX_BYTES);
        if index.is_none_or(|runs| runs > (kept + 1) * RUN_BYTES) {
            let bytes = stream.bytes();
            violated("charge", format!("{bytes} bytes for {here} of {kept} events"));
        }
    }

    /// A writer asks for a chunk.
    pub fn ask(&mut self, s: usize, conn: usize, load: Load) {
        self.journal.check_load(s, &load);
        let oracle = &self.streams[s].oracle;
        let count: u64 = load.extents.iter().map(|extent| extent.count).sum();
        if !(load.first..load.first + count).contains(&(oracle.sent + 1)) {
            violated("page", format!("{load:?} is read, event {} is next", oracle.sent + 1));
        }
        let twice = self.journal.readings.iter().filter(|reading| reading.conn == conn).count();
        if twice < 2 {
            self.journal.readings.push(Reading { stream: s, conn, load });
        }
    }

    /// A chunk has been read, maybe long after anybody wanted it; some answers come twice.
    pub fn answer_read(&mut self, r: usize) {
        let Reading { stream: s, conn, load } = self.journal.readings.swap_remove(r);
        let logical = &mut self.streams[s];
        if load.first < logical.oracle.floor {
            self.coverage.mark("pair: retention during a read");
        }
        match self.journal.read(&load) {
            Some(bytes) => {
                let taken = logical.stream.handle_loaded(&load, bytes);
                self.coverage.mark(if taken { "chunk read" } else { "chunk read too late" });
            }
            None => {
                let believed = logical.oracle.handle_load_failed(&load, &logical.stream);
                self.coverage.mark(if believed { "read failed" } else { "read failed too late" });
                logical.stream.handle_load_failed(&load);
            }
        }
        if self.journal.rng.once_in(4) {
            self.journal.readings.push(Reading { stream: s, conn, load });
        }
        self.check_paged(s);
    }

    /// The oldest segment goes: what it has is written once more, or no longer kept.
    pub fn retire(&mut self) {
        let Some(segment) = self.journal.oldest() else { return };
        for s in 0..self.streams.len() {
            let logical = &mut self.streams[s];
            let leaving = logical.stream.events_in(segment);
            let expected = logical.oracle.leaving(segment, &logical.stream);
            same("page", "what leaves a segment", &leaving, &expected);
            self.raise_floor(s, leaving.floor);
            for number in leaving.events {
                let logical = &mut self.streams[s];
                let Some(bytes) = logical.stream.event(number) else {
                    violated("page", format!("event {number} is to be copied, not in memory"))
                };
                let (place, seq) = self.journal.append(s, number, bytes);
                logical.stream.replace_place(number, place, seq);
                logical.oracle.handle_logged(number, place, seq);
                self.coverage.mark("event copied");
            }
            self.check_paged(s);
        }
        self.journal.leave(segment);
        self.coverage.mark("segment retired");
    }

    fn raise_floor(&mut self, s: usize, floor: u64) {
        let logical = &mut self.streams[s];
        let cut = logical.stream.raise_floor(floor);
        logical.oracle.handle_raised(floor, cut);
        if let (Some(c), Some(_)) = (logical.holder, cut) {
            self.fence(c);
        }
    }

    /// Whatever waits for the durable log has it, and what cannot be read is given up.
    pub fn settle_journal(&mut self) {
        if !self.journal.on {
            return;
        }
        self.commit(true);
        for r in (0..self.journal.readings.len()).rev() {
            self.answer_read(r);
        }
        for s in 0..self.streams.len() {
            let broken = self.streams[s].stream.broken();
            if broken > 0 {
                self.raise_floor(s, broken + 1);
            }
        }
    }
}
