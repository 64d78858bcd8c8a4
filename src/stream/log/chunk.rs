//! A piece of the log: some events back to back, and where each of them ends.
//!
//! Invariant: a chunk is *resident*, its bytes being here, or *paged out*, its bytes being in the
//! durable log only. Paged out, it has the index but no room, so nothing is appended to it; loaded
//! again, it has not a byte of room either: what was once paged out never grows.

use std::time::Instant;

/// Room that a chunk keeps when nothing more is appended to it, bytes, or an eighth of its length:
/// less is not worth a copy.
const ROOM_BYTES_MAX: usize = 512;

pub(super) struct Chunk {
    pub(super) first: u64,
    /// Position of its first byte.
    pub(super) base: u64,
    pub(super) newest: Instant,
    pub(super) data: Vec<u8>,
    pub(super) ends: Vec<u32>,
}

impl Chunk {
    pub(super) fn last(&self) -> u64 {
        self.first + self.ends.len() as u64 - 1
    }

    /// Position after event `number` of this chunk.
    pub(super) fn end_of(&self, number: u64) -> u64 {
        self.base + u64::from(self.ends[(number - self.first) as usize])
    }

    /// Bytes of its events, wherever they are.
    pub(super) fn length(&self) -> u64 {
        self.ends.last().copied().map_or(0, u64::from)
    }

    /// Position after its last byte.
    pub(super) fn end(&self) -> u64 {
        self.base + self.length()
    }

    pub(super) fn is_resident(&self) -> bool {
        self.data.len() as u64 == self.length()
    }

    /// Whether the byte at `position` is one of its own.
    pub(super) fn holds(&self, position: u64) -> bool {
        (self.base..self.end()).contains(&position)
    }

    /// Room for more, of events and index, bytes: what it holds beyond what it is charged.
    pub(super) fn room(&self) -> usize {
        let index = (self.ends.capacity() - self.ends.len()) * size_of::<u32>();
        self.data.capacity() - self.data.len() + index
    }

    /// The most room that it has once nothing more is appended to it.
    pub(super) fn room_max(&self) -> usize {
        ROOM_BYTES_MAX.max(self.data.len() / 8)
    }

    /// Nothing more is appended: gives the room back where that is worth it.
    pub(super) fn close(&mut self) {
        if self.room() > self.room_max() {
            self.data.shrink_to_fit();
            self.ends.shrink_to_fit();
        }
    }

    /// Its bytes go; the index stays.
    pub(super) fn page_out(&mut self) {
        self.data = Vec::new();
        self.ends.shrink_to_fit();
    }

    /// Its bytes are here again.
    pub(super) fn page_in(&mut self, bytes: Vec<u8>) {
        self.data = bytes.into_boxed_slice().into_vec();
    }

    /// Forgets the events below `floor` of a chunk that is paged out.
    pub(super) fn cut_front(&mut self, floor: u64) {
        if floor > self.first {
            let gone = (floor - self.first) as usize;
            let bytes = self.ends[gone - 1];
            self.ends.drain(..gone);
            self.ends.iter_mut().for_each(|end| *end -= bytes);
            self.base += u64::from(bytes);
            self.first = floor;
            self.close();
        }
    }
}
