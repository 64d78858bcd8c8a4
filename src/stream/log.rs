//! The log of one stream: encoded events back to back in chunks.
//!
//! Invariants:
//! * Numbers are dense from 1; the log holds exactly `floor..=tail`.
//! * An event lies whole in one chunk and its bytes never change.
//! * A *position* counts the bytes of every event ever appended, so it stays valid whatever is
//!   trimmed: the acknowledgement map and the send cursor are positions, not numbers.

use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of index that an event costs beside its own.
const INDEX_BYTES: u64 = 4;
/// Capacity of the first chunk, bytes. Chunks double up to [`CHUNK_BYTES_MAX`].
const CHUNK_BYTES_MIN: usize = 512;
/// Capacity of a chunk, bytes, unless one event alone is larger.
const CHUNK_BYTES_MAX: usize = 64 * 1024;

struct Chunk {
    first: u64,
    base: u64,
    newest: Instant,
    data: Vec<u8>,
    ends: Vec<u32>,
}

impl Chunk {
    fn last(&self) -> u64 {
        self.first + self.ends.len() as u64 - 1
    }

    /// Position after event `number` of this chunk.
    fn end_of(&self, number: u64) -> u64 {
        self.base + u64::from(self.ends[(number - self.first) as usize])
    }
}

/// The ordered events of one stream, in memory.
pub struct Log {
    chunks: VecDeque<Chunk>,
    floor: u64,
    tail: u64,
    /// Position of the first byte of event `floor`.
    floor_position: u64,
    /// Position after the last byte of event `tail`.
    end: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), floor: 1, tail: 0, floor_position: 0, end: 0 }
    }
}

impl Log {
    /// Number of the oldest event kept; `tail + 1` when none is.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Number of the newest event; 0 before the first.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Bytes charged for what is kept: the events and their index.
    pub fn bytes(&self) -> u64 {
        self.end - self.floor_position + self.len() * INDEX_BYTES
    }

    /// Events kept.
    pub fn len(&self) -> u64 {
        self.tail + 1 - self.floor
    }

    /// Whether no event is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Position after the last byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Appends one event that `encode` writes for its number; `length_hint` is at least its bytes
    /// in all usual cases (more only costs a larger chunk).
    pub fn append(
        &mut self,
        now: Instant,
        length_hint: usize,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> u64 {
        let number = self.tail + 1;
        let fits = self
            .chunks
            .back()
            .is_some_and(|chunk| chunk.data.len() + length_hint <= chunk.data.capacity());
        if !fits {
            self.add_chunk(now, number, length_hint);
        }
        let chunk = self.chunks.back_mut().expect("a chunk was just made sure of");
        encode(number, &mut chunk.data);
        let end = u32::try_from(chunk.data.len()).expect("an event is bounded far below 4 GiB");
        chunk.ends.push(end);
        chunk.newest = now;
        self.tail = number;
        self.end = chunk.base + u64::from(end);
        number
    }

    fn add_chunk(&mut self, now: Instant, first: u64, length: usize) {
        let grown = match self.chunks.back() {
            Some(chunk) => (chunk.data.capacity() * 2).min(CHUNK_BYTES_MAX),
            None => CHUNK_BYTES_MIN.min(length.next_power_of_two()),
        };
        self.chunks.push_back(Chunk {
            first,
            base: self.end,
            newest: now,
            data: Vec::with_capacity(grown.max(length)),
            ends: Vec::new(),
        });
    }

    /// Position of the first byte of event `number`, which is in `floor..=tail + 1`.
    pub fn start_of(&self, number: u64) -> u64 {
        assert!(self.floor <= number && number <= self.tail + 1, "an event outside of the log");
        if number == self.floor {
            return self.floor_position;
        }
        let before = number - 1;
        self.chunks[self.chunk_of(before)].end_of(before)
    }

    /// The newest event that ends at or before `position`; 0 where that is below the floor, so
    /// that nothing is confirmed on the strength of what is no longer known.
    pub fn last_ending_at(&self, position: u64) -> u64 {
        if position < self.floor_position {
            return 0;
        }
        if position >= self.end {
            return self.tail;
        }
        let index = self.chunks.partition_point(|chunk| chunk.base <= position);
        let Some(chunk) = index.checked_sub(1).and_then(|index| self.chunks.get(index)) else {
            return self.floor - 1;
        };
        let inside = position - chunk.base;
        let ended = chunk.ends.partition_point(|&end| u64::from(end) <= inside) as u64;
        (chunk.first + ended - 1).max(self.floor - 1)
    }

    /// Copies at most `max` bytes from `position` on, of one chunk; returns how many.
    pub fn read(&self, position: u64, max: usize, out: &mut Vec<u8>) -> usize {
        assert!(position >= self.floor_position, "reading below the floor");
        let index = self.chunks.partition_point(|chunk| chunk.base <= position);
        let Some(chunk) = index.checked_sub(1).and_then(|index| self.chunks.get(index)) else {
            return 0;
        };
        let from = (position - chunk.base) as usize;
        let rest = chunk.data.get(from..).unwrap_or_default();
        let taken = &rest[..rest.len().min(max)];
        out.extend_from_slice(taken);
        taken.len()
    }

    /// Drops every event below `floor`, which is in `floor..=tail + 1`.
    pub fn trim(&mut self, floor: u64) {
        assert!(floor >= self.floor, "the floor never falls");
        self.floor_position = self.start_of(floor);
        self.floor = floor;
        while self.chunks.front().is_some_and(|chunk| chunk.last() < floor) {
            self.chunks.pop_front();
        }
    }

    /// The lowest floor at which at most `bytes` are charged and at most `events` are kept.
    pub fn floor_for(&self, bytes: u64, events: u64) -> u64 {
        let mut floor = self.floor.max((self.tail + 1).saturating_sub(events));
        let over = |floor: u64| {
            let kept = self.tail + 1 - floor;
            self.end - self.start_of(floor) + kept * INDEX_BYTES > bytes
        };
        if over(floor) {
            // Binary search: the charge falls with every event dropped.
            let (mut low, mut high) = (floor, self.tail + 1);
            while low < high {
                let middle = low + (high - low) / 2;
                if over(middle) { low = middle + 1 } else { high = middle }
            }
            floor = low;
        }
        floor
    }

    /// The floor at which no whole chunk is older than `cutoff`.
    pub fn floor_since(&self, cutoff: Instant) -> u64 {
        let young = self.chunks.iter().find(|chunk| chunk.newest >= cutoff);
        young.map_or(self.tail + 1, |chunk| chunk.first.max(self.floor))
    }

    /// When the newest event of the chunk that holds the byte at `position` was appended; none at
    /// the end.
    pub fn appended_at(&self, position: u64) -> Option<Instant> {
        if position >= self.end {
            return None;
        }
        let index = self.chunks.partition_point(|chunk| chunk.base <= position);
        index.checked_sub(1).and_then(|index| self.chunks.get(index)).map(|chunk| chunk.newest)
    }

    /// When the newest event of the oldest chunk was appended.
    pub fn oldest(&self) -> Option<Instant> {
        self.chunks.front().map(|chunk| chunk.newest)
    }

    fn chunk_of(&self, number: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.last() < number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(sizes: &[usize]) -> Log {
        let mut log = Log::default();
        let now = Instant::now();
        for &size in sizes {
            log.append(now, size, |number, out| {
                out.extend(std::iter::repeat_n(number as u8, size))
            });
        }
        log
    }

    #[test]
    fn numbers_are_dense_and_positions_survive_trimming() {
        let mut log = filled(&[3, 5, 7, 600, 2]);
        assert_eq!((log.floor(), log.tail(), log.end()), (1, 5, 617));
        let fourth = log.start_of(4);
        log.trim(4);
        assert_eq!(log.start_of(4), fourth);
        assert_eq!((log.floor(), log.len(), log.bytes()), (4, 2, 602 + 8));
        let mut out = Vec::new();
        assert_eq!(log.read(fourth, 4, &mut out), 4);
        assert_eq!(out, [4; 4]);
    }

    #[test]
    fn an_event_counts_only_when_its_last_byte_does() {
        let log = filled(&[10, 10, 10]);
        assert_eq!(log.last_ending_at(9), 0);
        assert_eq!(log.last_ending_at(10), 1);
        assert_eq!(log.last_ending_at(29), 2);
        assert_eq!(log.last_ending_at(30), 3);
        assert_eq!(log.last_ending_at(u64::MAX), 3);
    }

    #[test]
    fn below_the_floor_nothing_is_found() {
        let mut log = filled(&[10; 8]);
        log.trim(5);
        assert_eq!(log.last_ending_at(39), 0);
        assert_eq!(log.last_ending_at(40), 4);
        assert_eq!(log.last_ending_at(49), 4);
        assert_eq!(log.last_ending_at(50), 5);
        log.trim(9);
        assert!(log.is_empty());
        assert_eq!((log.bytes(), log.start_of(9)), (0, 80));
    }

    #[test]
    fn the_floor_for_a_budget_is_the_lowest_that_fits() {
        let log = filled(&[100; 50]);
        assert_eq!(log.floor_for(u64::MAX, u64::MAX), 1);
        assert_eq!(log.floor_for(1040, u64::MAX), 41);
        assert_eq!(log.floor_for(1039, u64::MAX), 42);
        assert_eq!(log.floor_for(u64::MAX, 3), 48);
        assert_eq!(log.floor_for(0, 3), 51);
    }
}
