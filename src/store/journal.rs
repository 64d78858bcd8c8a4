//! What a shard appends to, and the machine that commits it: which write, sync, creation or removal
//! comes next, and what may be sent to clients because of those that are done.
//!
//! The shell polls [`Journal::poll_action`] until it has nothing, does what it says, in any order
//! and side by side, and reports each action with its `handle_*`, or [`Journal::handle_failed`].
//!
//! Invariants:
//! * A segment is written only after it was created and a sync of the directory that began after
//!   that has returned. It is created ahead, when half of the one before is full.
//! * One write is under way at a time, of one segment: on the boot on which it was written, a log
//!   has no hole before its end.
//! * A sync covers only the writes that had completed when it was handed out.
//! * A segment is removed, oldest first, only after a sync of everything that was appended before
//!   the removal was asked for, and after the removal before it is durable: what takes something
//!   back outlives it.
//! * After a failed write or sync nothing is handed out any more: what the disk has is unknown.

mod commit;
mod retire;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Instant;

use crate::limits::{LOG_WRITE_BYTES_MAX, PENDING_BYTES_MAX};
use crate::stream::log::{Extent, Place};

use super::record::{self, HEADER_BYTES, Header, Kind};
use super::segment::{self, Kept, SEGMENT_HEADER_BYTES, Segments};

/// Number of a write, from 1. What is appended belongs to the write that is being filled.
pub type Seq = u64;

/// The write of what is appended after the log has failed or was closed: it never happens.
pub const NEVER: Seq = Seq::MAX;

/// What a log promises, and so when an event may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// At once: a restart after anything but a planned end is a new epoch.
    None = 0,
    /// When the kernel has it: it outlives the process.
    Process = 1,
    /// When the disk has it: it outlives the machine's power.
    Power = 2,
}

impl Level {
    /// The level of a code on disk.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::None, Self::Process, Self::Power].into_iter().find(|&level| level as u8 == code)
    }
}

/// What the shell does next.
#[derive(Debug)]
pub enum Action {
    /// Create this segment's file with its header and its full length, and sync the file.
    Create(u32),
    /// Sync the directory that the segments are in.
    SyncDirectory,
    /// Write `bytes` at `offset` of a segment.
    Write {
        /// Which write.
        seq: Seq,
        /// The segment.
        segment: u32,
        /// Bytes before it in the segment's file.
        offset: u32,
        /// What to write; comes back with the report.
        bytes: Vec<u8>,
    },
    /// `fdatasync` each of the segments.
    Sync {
        /// Those that have something unsynced.
        segments: RangeInclusive<u32>,
        /// Every write up to this one is covered.
        upto: Seq,
    },
    /// Remove this segment's file, or put it away under another name.
    Remove(u32),
}

/// Why a log takes nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A segment could not be created.
    Create,
    /// A write failed.
    Write,
    /// A sync of a segment or of the directory failed.
    Sync,
    /// A segment could not be removed.
    Remove,
    /// The disk was full for longer than [`DISK_FULL_TIME_MAX`].
    DiskFull,
}

/// What becomes of an action that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is handed out again after this time: see [`Journal::timeout`].
    Retry(Instant),
    /// The log has failed.
    Poisoned(Fault),
}

/// Records of one segment that go to the disk in one write.
#[derive(Debug)]
struct Batch {
    seq: Seq,
    segment: u32,
    offset: u32,
    bytes: Vec<u8>,
}

impl Batch {
    fn end(&self) -> u32 {
        let length = u32::try_from(self.bytes.len()).expect("a batch fits into its segment");
        self.offset + length
    }
}

/// A write that is under way.
#[derive(Clone, Copy, Debug)]
struct Writing {
    seq: Seq,
    segment: u32,
    offset: u32,
}

/// A sync that is under way: what it covers.
#[derive(Clone, Copy, Debug)]
struct Syncing {
    upto: Seq,
    end: u64,
}

/// The segments' directory: changes are counted, and how many of them are durable.
#[derive(Debug, Default)]
struct Directory {
    changes: u64,
    durable: u64,
    /// What the sync under way will make durable: changes, and the newest segment.
    syncing: Option<(u64, u32)>,
}

/// One shard's log, as it is written.
#[derive(Debug)]
pub struct Journal {
    level: Level,
    segment_bytes: u32,
    next_slot: u32,
    segments: Segments,
    /// What is appended goes here.
    filling: Batch,
    /// Whole batches before it, oldest first.
    waiting: VecDeque<Batch>,
    writing: Option<Writing>,
    /// Bytes that wait or are being written.
    pending: u64,
    spare: Vec<Vec<u8>>,
    /// Where bodies are encoded.
    body: Vec<u8>,
    /// Newest segment that was asked for, that is there, and whose name is durable.
    requested: u32,
    created: u32,
    writable: u32,
    directory: Directory,
    /// Every write up to this one is complete, and where its last byte is.
    written: Seq,
    written_end: u64,
    synced: Seq,
    synced_end: u64,
    syncing: Option<Syncing>,
    unsynced_bytes: u64,
    /// Somebody waits for a sync of this write.
    sync_wanted: Seq,
    /// A mark of `synced_end` has not been written yet.
    mark_due: bool,
    /// The removal that waits, and the write whose sync it waits for.
    removing: Option<(u32, Seq)>,
    remove_is_out: bool,
    /// Streams that wait for a write.
    touched: VecDeque<(Seq, u32, u32)>,
    full_since: Option<Instant>,
    retry_at: Option<Instant>,
    fault: Option<Fault>,
    /// When the shard last asked what to retire and something was in this segment: Unix seconds.
    filling_since: Option<(u32, u64)>,
    /// The write of the planned end.
    closed: Option<Seq>,
}

/// Appending, and what may be sent.
impl Journal {
    /// A log that goes on with segment `first_segment`; `segments` are those of earlier processes,
    /// sealed and synced. The first write says so.
    pub fn new(
        level: Level,
        first_segment: u32,
        segment_bytes: u32,
        next_slot: u32,
        segments: Segments,
    ) -> Self {
        assert!(first_segment > segments.newest().unwrap_or(0), "segments are never written again");
        let before = first_segment - 1;
        let offset = SEGMENT_HEADER_BYTES as u32;
        let mut journal = Self {
            level,
            segment_bytes,
            next_slot,
            segments,
            filling: Batch { seq: 1, segment: first_segment, offset, bytes: Vec::new() },
            waiting: VecDeque::new(),
            writing: None,
            pending: 0,
            spare: Vec::new(),
            body: Vec::new(),
            requested: before,
            created: before,
            writable: before,
            directory: Directory::default(),
            written: 0,
            written_end: segment::position(first_segment, offset),
            synced: 0,
            synced_end: segment::position(first_segment, offset),
            syncing: None,
            unsynced_bytes: 0,
            sync_wanted: 0,
            mark_due: true,
            removing: None,
            remove_is_out: false,
            touched: VecDeque::new(),
            full_since: None,
            retry_at: None,
            fault: None,
            filling_since: None,
            closed: None,
        };
        journal.segments.push(Kept::new(first_segment, u64::from(segment_bytes)));
        journal.push_mark();
        journal
    }

    /// A number for a new session of this shard, which no other session ever had.
    pub fn next_slot(&mut self) -> u32 {
        let slot = self.next_slot;
        self.next_slot = slot.checked_add(1).expect("2^32 sessions of one shard");
        slot
    }

    /// Appends a record; gives the place of its header and the write that it belongs to.
    ///
    /// # Panics
    /// Where the record is larger than what a segment holds, which the bounds of an event exclude.
    pub fn append(&mut self, header: &Header, body: &[u8]) -> (Place, Seq) {
        if self.fault.is_some() || self.closed.is_some() {
            return (Place { segment: self.filling.segment, offset: 0 }, NEVER);
        }
        let length = (HEADER_BYTES + body.len()) as u64;
        if self.filling.bytes.len() as u64 + length > LOG_WRITE_BYTES_MAX as u64 {
            self.cut_batch();
        }
        if u64::from(self.filling.end()) + length > self.room() {
            self.rotate();
            let fits = u64::from(self.filling.end()) + length <= self.room();
            assert!(fits, "a record of {length} bytes does not fit into a segment");
        }
        let (segment, offset) = (self.filling.segment, self.filling.end());
        record::push(&mut self.filling.bytes, segment, header, body);
        self.pending += length;
        if let Some(kept) = self.segments.get_mut(segment) {
            kept.slots.insert(header.slot);
        }
        (Place { segment, offset }, self.filling.seq)
    }

    /// Appends a record whose body `encode` writes.
    pub fn append_with(
        &mut self,
        header: &Header,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> (Place, Seq) {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        encode(&mut body);
        let appended = self.append(header, &body);
        self.body = body;
        appended
    }

    /// Stream `stream` of session `slot` wants to hear when what is appended so far is committed:
    /// see [`Self::take_committed`].
    pub fn touch(&mut self, slot: u32, stream: u32) {
        let entry = (self.filling.seq, slot, stream);
        if self.touched.back() != Some(&entry) {
            self.touched.push_back(entry);
        }
    }

    /// Every write up to this one is committed: what was appended in it may be sent.
    pub fn committed(&self) -> Seq {
        match self.level {
            // The first write tells the next process that this one has sent something.
            Level::None if self.written > 0 => self.filling.seq,
            Level::None | Level::Process => self.written,
            Level::Power => self.synced,
        }
    }

    /// Whether records of events can be read. What is committed at [`Level::None`] may have to be
    /// written yet.
    pub fn is_written(&self, extent: &Extent) -> bool {
        let start = segment::position(extent.place.segment, extent.place.offset);
        start + extent.bytes <= self.written_end
    }

    /// Appends the streams that wanted to hear of writes which have been committed meanwhile, as
    /// (slot, stream).
    pub fn take_committed(&mut self, woken: &mut Vec<(u32, u32)>) {
        let committed = self.committed();
        while let Some((_, slot, stream)) = self.touched.pop_front_if(|entry| entry.0 <= committed)
        {
            woken.push((slot, stream));
        }
    }

    /// Bytes that are not written yet.
    pub fn pending_bytes(&self) -> u64 {
        self.pending
    }

    /// Whether producers have to wait.
    pub fn is_full(&self) -> bool {
        self.pending >= PENDING_BYTES_MAX
    }

    /// Whether writes wait for room on the disk.
    pub fn is_disk_full(&self) -> bool {
        self.full_since.is_some()
    }

    /// Why the log takes nothing any more, if that is so.
    pub fn poisoned(&self) -> Option<Fault> {
        self.fault
    }

    /// Whether the log takes nothing any more.
    pub fn is_poisoned(&self) -> bool {
        self.fault.is_some()
    }

    /// The planned end: nothing is appended after it. What was appended is written and synced at
    /// every level, then the log [is closed](Self::is_closed).
    pub fn close(&mut self) {
        if self.fault.is_some() || self.closed.is_some() {
            return;
        }
        self.push_mark();
        self.push_of_log(Kind::Clean, 0);
        self.closed = Some(self.filling.seq);
        self.sync_wanted = self.filling.seq;
    }

    /// Whether the planned end is on the disk.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some_and(|seq| seq <= self.synced)
    }

    /// Where a record must end in a segment: a seal, or the planned end, always fits behind it.
    fn room(&self) -> u64 {
        u64::from(self.segment_bytes) - HEADER_BYTES as u64
    }

    fn push_of_log(&mut self, kind: Kind, number: u64) {
        let header = Header::of_log(kind, number);
        record::push(&mut self.filling.bytes, self.filling.segment, &header, b"");
        self.pending += HEADER_BYTES as u64;
    }

    /// Says what is synced, where that is news and there is room.
    fn push_mark(&mut self) {
        let end = u64::from(self.filling.end()) + HEADER_BYTES as u64;
        if self.mark_due && end <= self.room() {
            self.push_of_log(Kind::Mark, self.synced_end);
            self.mark_due = false;
        }
    }

    /// Ends the segment that is being filled, and goes on in the next.
    fn rotate(&mut self) {
        self.push_of_log(Kind::Seal, 0);
        let segment = self.filling.segment.checked_add(1).expect("2^32 segments of one shard");
        self.next_batch(segment, SEGMENT_HEADER_BYTES as u32);
        self.segments.push(Kept::new(segment, u64::from(self.segment_bytes)));
    }

    /// The write that is being filled is large enough.
    fn cut_batch(&mut self) {
        if !self.filling.bytes.is_empty() {
            self.push_mark();
            self.next_batch(self.filling.segment, self.filling.end());
        }
    }

    /// Whatever is appended from now on goes into another write.
    fn next_batch(&mut self, segment: u32, offset: u32) {
        let bytes = self.spare.pop().unwrap_or_default();
        let next = Batch { seq: self.filling.seq + 1, segment, offset, bytes };
        self.waiting.push_back(std::mem::replace(&mut self.filling, next));
    }
}
