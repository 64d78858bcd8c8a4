//! The log of one stream: encoded events back to back in chunks.
//!
//! Invariants:
//! * Numbers are dense from 1; the log holds exactly `floor..=tail`.
//! * An event lies whole in one chunk and its bytes never change.
//! * Chunks that are paged out ([`Load`]) still have their index: every question but for the bytes
//!   themselves is answered without them.
//! * A *position* counts the bytes of every event ever appended, so it stays valid whatever is
//!   trimmed: the acknowledgement map and the send cursor are positions, not numbers.

mod chunk;
mod commits;
mod disk;
mod restore;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use self::chunk::Chunk;
use self::disk::Disk;

pub use self::commits::Seq;
pub use self::disk::{Leaving, Load};
pub use self::restore::{Restored, RestoredRun};
pub use self::runs::{Extent, Place, RECORD_HEADER_BYTES};

/// Bytes of index that an event costs beside its own.
const INDEX_BYTES: u64 = 4;
/// Capacity of the first chunk, bytes. Chunks double up to [`CHUNK_BYTES_MAX`].
const CHUNK_BYTES_MIN: usize = 512;
/// Capacity of a chunk, bytes, unless one event alone is larger.
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// The ordered events of one stream.
pub struct Log {
    chunks: VecDeque<Chunk>,
    floor: u64,
    tail: u64,
    /// Position of the first byte of event `floor`.
    floor_position: u64,
    /// Position after the last byte of event `tail`.
    end: u64,
    /// Of a stream that is logged durably.
    disk: Option<Box<Disk>>,
}

impl Default for Log {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), floor: 1, tail: 0, floor_position: 0, end: 0, disk: None }
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

    /// Bytes charged in memory for what is kept: the events that are here, and the index.
    pub fn bytes(&self) -> u64 {
        self.disk.as_ref().map_or_else(|| self.whole_bytes(), |disk| self.charge(disk))
    }

    /// Bytes of all that is kept, wherever it is, and of its index.
    pub fn whole_bytes(&self) -> u64 {
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
            .is_some_and(|chunk| chunk.data.len() + length_hint.max(1) <= chunk.data.capacity());
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
        let before = self.chunks.back_mut().filter(|chunk| chunk.data.capacity() > 0);
        let (grown, events) = match before {
            Some(chunk) => {
                let capacity = chunk.data.capacity();
                // A power of two, which is a size that allocators have without a rest.
                let grown = (1 << (capacity * 2).ilog2()).min(CHUNK_BYTES_MAX);
                chunk.close();
                // As many events as the chunk before held, for its bytes.
                (grown, chunk.ends.len() * grown / capacity)
            }
            None => (CHUNK_BYTES_MIN.min(length.next_power_of_two()), 0),
        };
        self.chunks.push_back(Chunk {
            first,
            base: self.end,
            newest: now,
            data: Vec::with_capacity(grown.max(length)),
            ends: Vec::with_capacity(events),
        });
    }

    /// Nothing more is appended: gives back the room for it.
    pub fn close(&mut self) {
        self.chunks.back_mut().into_iter().for_each(Chunk::close);
    }

    /// Whether what is held is what is charged, but for what is not worth giving back. Where more
    /// may be appended the last chunk has room for it.
    pub fn is_tight(&self, closed: bool) -> bool {
        let open = usize::from(!closed && !self.chunks.is_empty());
        let mut chunks = self.chunks.iter().take(self.chunks.len() - open);
        chunks.all(|chunk| chunk.room() <= chunk.room_max())
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
        let index = self.count_while(|chunk| chunk.base <= position);
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
        let index = self.count_while(|chunk| chunk.base <= position);
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
        let position = self.start_of(floor);
        if let Some(mut disk) = self.disk.take() {
            disk.handle_trimmed(self, floor, position);
            self.disk = Some(disk);
        }
        self.floor_position = position;
        self.floor = floor;
        while self.chunks.front().is_some_and(|chunk| chunk.last() < floor) {
            self.chunks.pop_front();
        }
    }

    /// The lowest floor at which at most `bytes` of [`Log::whole_bytes`] and at most `events` are
    /// kept.
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
        let index = self.count_while(|chunk| chunk.base <= position);
        index.checked_sub(1).and_then(|index| self.chunks.get(index)).map(|chunk| chunk.newest)
    }

    /// When the newest event of the oldest chunk was appended.
    pub fn oldest(&self) -> Option<Instant> {
        self.chunks.front().map(|chunk| chunk.newest)
    }

    fn chunk_of(&self, number: u64) -> usize {
        self.count_while(|chunk| chunk.last() < number)
    }

    /// For how many chunks, from the oldest on, `is_before` holds. Nearly every question is about
    /// the newest ones, so the search begins there, in steps that double.
    fn count_while(&self, is_before: impl Fn(&Chunk) -> bool) -> usize {
        let (mut low, mut high, mut step) = (0, self.chunks.len(), 1);
        while high > 0 {
            let probe = high.saturating_sub(step);
            if is_before(&self.chunks[probe]) {
                low = probe + 1;
                break;
            }
            high = probe;
            step *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(&self.chunks[middle]) { low = middle + 1 } else { high = middle }
        }
        low
    }
}
