//! The durable half of a log: what may be sent, where each event lies, and which chunks are here.
//!
//! A log whose stream was never told of a durable log has none of this and costs nothing for it.
//!
//! Invariants:
//! * Only what is committed, at the place that is known, is ever paged out.
//! * `paged` counts the bytes of the kept events whose chunks are paged out.
//! * Every chunk below `resident_from` is paged out, except for those in `spared`.

use super::Log;
use super::chunk::Chunk;
use super::commits::{Commits, Seq};
use super::runs::{Extent, Place, Runs};

pub(super) struct Disk {
    pub(super) commits: Commits,
    pub(super) runs: Runs,
    pub(super) paged: u64,
    resident_from: u64,
    /// The first events of chunks that are here although older than `resident_from`.
    spared: Vec<u64>,
    /// The last events of chunks that cannot be read.
    pub(super) broken: Vec<u64>,
}

/// A chunk that has to be read before its events can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The number of its first event.
    pub first: u64,
    /// Where its events lie, in their order.
    pub extents: Vec<Extent>,
    /// Bytes of the events without their headers: what [`crate::stream::Stream::handle_loaded`]
    /// wants to have.
    pub bytes: u64,
}

/// What a segment that shall be removed still has of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The lowest floor at which nothing is needed that would have to be read from there.
    pub floor: u64,
    /// The events above it that lie there; their bytes are in memory, to be logged once more.
    pub events: Vec<u64>,
}

impl Disk {
    pub(super) fn new(birth: Option<Seq>, committed: u64) -> Self {
        Self {
            commits: Commits::new(birth, committed),
            runs: Runs::default(),
            paged: 0,
            resident_from: committed + 1,
            spared: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// The floor rises to `floor`, which is at `position`.
    pub(super) fn handle_trimmed(&mut self, log: &Log, floor: u64, position: u64) {
        assert!(floor <= self.commits.committed() + 1, "what is not committed is kept");
        for chunk in log.chunks.iter().take_while(|chunk| chunk.first < floor) {
            if !chunk.is_resident() {
                self.paged -= chunk.end().min(position) - chunk.base.max(log.floor_position);
            }
        }
        self.runs.trim(floor, |number| log.start_of(number));
        self.broken.retain(|&last| last >= floor);
    }

    fn page_out(&mut self, chunk: &mut Chunk, floor_position: u64) {
        if chunk.is_resident() {
            self.paged += chunk.end() - chunk.base.max(floor_position);
            chunk.page_out();
        }
    }
}

/// What the log of a durable stream is told.
impl Log {
    /// From now on every event is logged durably; the stream's birth belongs to write `seq`.
    pub fn handle_opened(&mut self, seq: Seq) {
        assert!(self.disk.is_none() && self.tail == 0, "a stream is durable from its birth on");
        self.disk = Some(Box::new(Disk::new(Some(seq), 0)));
    }

    /// The newest event lies at `place`, as soon as write `seq` is committed.
    pub fn handle_logged(&mut self, place: Place, seq: Seq) {
        let (number, length) = (self.tail, self.end - self.start_of(self.tail));
        let disk = self.disk.as_mut().expect("a stream is opened before its first event");
        disk.runs.push(number, place, length);
        disk.commits.handle_logged(seq, number);
    }

    /// That the stream is finished is part of write `seq`.
    pub fn handle_finish_logged(&mut self, seq: Seq) {
        let tail = self.tail;
        let disk = self.disk.as_mut().expect("a stream is opened before it is finished");
        disk.commits.handle_logged(seq, tail);
    }

    /// Every write up to `seq` is committed.
    pub fn handle_committed(&mut self, seq: Seq) {
        if let Some(disk) = &mut self.disk {
            disk.commits.handle_committed(seq);
        }
    }

    /// The bytes of a chunk have been read. They are taken only if its byte at `wanted` is what
    /// somebody waits for; says whether they were.
    pub fn handle_loaded(&mut self, load: &Load, bytes: Vec<u8>, wanted: Option<u64>) -> bool {
        let Some(index) = self.paged_out(load) else { return false };
        let chunk = &mut self.chunks[index];
        if !wanted.is_some_and(|position| chunk.holds(position)) {
            return false;
        }
        if bytes.len() as u64 != chunk.length() {
            self.handle_load_failed(load);
            return false;
        }
        chunk.page_in(bytes);
        let (last, bytes) = (chunk.last(), chunk.end() - chunk.base.max(self.floor_position));
        if let Some(disk) = &mut self.disk {
            disk.paged -= bytes;
            disk.spared.push(load.first);
            disk.broken.retain(|&broken| broken != last);
        }
        true
    }

    /// A chunk cannot be read. That says nothing where the same would not be asked for again: it
    /// is here already, or lies elsewhere meanwhile.
    pub fn handle_load_failed(&mut self, load: &Load) {
        let Some(index) = self.paged_out(load) else { return };
        let last = self.chunks[index].last();
        if self.floor <= load.first && self.load_of(index).extents == load.extents {
            self.disk.iter_mut().for_each(|disk| disk.broken.push(last));
        }
    }

    /// The chunk that `load` was about, if it is still paged out.
    fn paged_out(&self, load: &Load) -> Option<usize> {
        let index = self.chunk_of(load.first);
        let chunk = self.chunks.get(index)?;
        (chunk.first == load.first && !chunk.is_resident()).then_some(index)
    }

    /// The record of event `number` is written once more, at `place`, and write `seq` commits it.
    pub fn replace_place(&mut self, number: u64, place: Place, seq: Seq) {
        assert!(self.floor <= number && number <= self.tail, "only what is kept is moved");
        let Some(mut disk) = self.disk.take() else { return };
        disk.runs.replace(number, place, self.tail, |number| self.start_of(number));
        disk.commits.handle_copied(seq, number);
        self.disk = Some(disk);
    }
}

/// What may be sent, what is here, what is elsewhere.
impl Log {
    /// The newest event that may be sent.
    pub fn committed(&self) -> u64 {
        self.disk.as_ref().map_or(self.tail, |disk| disk.commits.committed())
    }

    /// Position after the last byte that may be sent.
    pub fn committed_end(&self) -> u64 {
        match &self.disk {
            Some(disk) => self.start_of(disk.commits.committed() + 1),
            None => self.end,
        }
    }

    /// Whether the stream's birth is committed.
    pub fn is_open(&self) -> bool {
        self.disk.as_ref().is_none_or(|disk| disk.commits.is_open())
    }

    /// Whether everything that was logged is committed, a finish too.
    pub fn is_settled(&self) -> bool {
        self.disk.as_ref().is_none_or(|disk| disk.commits.is_settled())
    }

    /// Whether there is a durable log.
    pub fn is_durable(&self) -> bool {
        self.disk.is_some()
    }

    /// The newest event that cannot be read; 0 where there is none.
    pub fn broken(&self) -> u64 {
        let broken = self.disk.as_ref().and_then(|disk| disk.broken.iter().max());
        broken.copied().unwrap_or_default()
    }

    /// The bytes of event `number`, if it is kept and in memory.
    pub fn event(&self, number: u64) -> Option<&[u8]> {
        if number < self.floor || number > self.tail {
            return None;
        }
        let chunk = &self.chunks[self.chunk_of(number)];
        let end = (chunk.end_of(number) - chunk.base) as usize;
        let start = match number - chunk.first {
            0 => 0,
            _ => (chunk.end_of(number - 1) - chunk.base) as usize,
        };
        chunk.data.get(start..end)
    }

    /// What has to be read before the byte at `position` can be sent; none where it never will be.
    pub fn poll_load(&mut self, position: u64) -> Option<Load> {
        let index = self.count_while(|chunk| chunk.base <= position) - 1;
        let chunk = &mut self.chunks[index];
        assert!(!chunk.is_resident(), "only what is paged out is read");
        if self.disk.as_ref().is_some_and(|disk| disk.broken.contains(&chunk.last())) {
            return None;
        }
        chunk.cut_front(self.floor);
        Some(self.load_of(index))
    }

    fn load_of(&self, index: usize) -> Load {
        let chunk = &self.chunks[index];
        let (first, last) = (chunk.first, chunk.last());
        let disk = self.disk.as_ref().expect("only a durable log pages out");
        let extents = disk.runs.extents(first, last, |number| self.start_of(number));
        Load { first, extents, bytes: chunk.length() }
    }

    /// Pages chunks out, oldest first, until at most `most` bytes are charged; not the one that
    /// holds the byte at `wanted`, which somebody is about to read.
    pub fn spill(&mut self, most: u64, wanted: Option<u64>) {
        let Some(mut disk) = self.disk.take() else { return };
        let is_wanted = |chunk: &Chunk| wanted.is_some_and(|position| chunk.holds(position));
        let floor_position = self.floor_position;
        for first in std::mem::take(&mut disk.spared) {
            let over = self.charge(&disk) > most;
            let index = self.chunk_of(first);
            let Some(chunk) = self.chunks.get_mut(index).filter(|chunk| chunk.first == first)
            else {
                continue;
            };
            if over && !is_wanted(chunk) && disk.commits.covers(first, chunk.last()) {
                disk.page_out(chunk, floor_position);
            } else {
                disk.spared.push(first);
            }
        }
        while self.charge(&disk) > most {
            let index = self.chunk_of(disk.resident_from);
            let Some(chunk) = self.chunks.get_mut(index) else { break };
            if !disk.commits.covers(chunk.first, chunk.last()) {
                break;
            }
            disk.resident_from = chunk.last() + 1;
            if is_wanted(chunk) {
                disk.spared.push(chunk.first);
            } else {
                disk.page_out(chunk, floor_position);
            }
        }
        self.disk = Some(disk);
    }

    pub(super) fn charge(&self, disk: &Disk) -> u64 {
        self.whole_bytes() - disk.paged + disk.runs.bytes()
    }

    /// What lies in `segment`.
    pub fn events_in(&self, segment: u32) -> Leaving {
        let mut leaving = Leaving { floor: self.floor, events: Vec::new() };
        let Some(disk) = &self.disk else { return leaving };
        for (first, last) in disk.runs.within(segment, self.tail) {
            for number in first..=last {
                match self.event(number) {
                    Some(_) => leaving.events.push(number),
                    None => leaving.floor = number + 1,
                }
            }
        }
        leaving.events.retain(|&number| number >= leaving.floor);
        leaving
    }
}
