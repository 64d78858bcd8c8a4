//! The order of writes, syncs and creations, and what their reports change.

use std::time::Instant;

use crate::limits::{
    DISK_FULL_RETRY_TIME, DISK_FULL_TIME_MAX, LOG_WRITE_BYTES_MAX, WRITE_BACK_BYTES,
};

use super::super::segment::position;
use super::{Action, Batch, Fault, Journal, Level, Next, Seq, Syncing, Writing};

/// Write buffers that are kept: one is filled while another is written.
const SPARE_BUFFERS: usize = 2;

impl Journal {
    /// What to do next; none while everything that can be done is under way.
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.fault.is_some() {
            return None;
        }
        self.poll_directory()
            .or_else(|| self.poll_create())
            .or_else(|| self.poll_write())
            .or_else(|| self.poll_sync())
            .or_else(|| self.poll_remove())
    }

    fn poll_directory(&mut self) -> Option<Action> {
        let directory = &mut self.directory;
        if directory.changes == directory.durable || directory.syncing.is_some() {
            return None;
        }
        directory.syncing = Some((directory.changes, self.created));
        Some(Action::SyncDirectory)
    }

    fn poll_create(&mut self) -> Option<Action> {
        let filling = &self.filling;
        let is_half_full = filling.end() >= self.segment_bytes / 2 && self.closed.is_none();
        let wanted = filling.segment.saturating_add(u32::from(is_half_full));
        let is_busy = self.requested > self.created || self.retry_at.is_some();
        if is_busy || self.requested >= wanted {
            return None;
        }
        self.requested += 1;
        Some(Action::Create(self.requested))
    }

    fn poll_write(&mut self) -> Option<Action> {
        if self.writing.is_some() || self.retry_at.is_some() {
            return None;
        }
        if self.waiting.is_empty() {
            if self.filling.bytes.is_empty() || self.filling.segment > self.writable {
                return None;
            }
            if self.closed.is_none() {
                self.push_mark();
            }
            self.next_batch(self.filling.segment, self.filling.end());
        }
        let writable = self.writable;
        let batch = self.waiting.pop_front_if(|batch| batch.segment <= writable)?;
        let Batch { seq, segment, offset, bytes } = batch;
        self.writing = Some(Writing { seq, segment, offset });
        Some(Action::Write { seq, segment, offset, bytes })
    }

    fn poll_sync(&mut self) -> Option<Action> {
        let is_wanted = self.level == Level::Power
            || self.unsynced_bytes >= WRITE_BACK_BYTES
            || (self.synced < self.sync_wanted && self.sync_wanted <= self.written);
        if self.syncing.is_some() || self.written == self.synced || !is_wanted {
            return None;
        }
        let segment_of = |position: u64| (position >> 32) as u32;
        let segments = segment_of(self.synced_end)..=segment_of(self.written_end);
        self.syncing = Some(Syncing { upto: self.written, end: self.written_end });
        self.unsynced_bytes = 0;
        Some(Action::Sync { segments, upto: self.written })
    }

    /// A segment's file is there.
    pub fn handle_created(&mut self, segment: u32) {
        assert_eq!(segment, self.requested, "a segment that was not asked for");
        self.created = segment;
        self.directory.changes += 1;
        self.full_since = None;
    }

    /// The sync of the directory has returned.
    pub fn handle_directory_synced(&mut self) {
        let (changes, created) = self.directory.syncing.take().expect("a sync was handed out");
        self.directory.durable = changes;
        self.writable = created;
    }

    /// A write has returned that wrote the first `length` of its `bytes`; what is left of them is
    /// handed out again.
    pub fn handle_written(&mut self, seq: Seq, length: usize, mut bytes: Vec<u8>) {
        let Some(write) = self.writing.take_if(|write| write.seq == seq) else {
            panic!("a write that was not handed out");
        };
        assert!(length <= bytes.len(), "more was written than was there");
        self.pending -= length as u64;
        self.unsynced_bytes += length as u64;
        let offset = write.offset + length as u32;
        if length < bytes.len() {
            bytes.drain(..length);
            self.waiting.push_front(Batch { seq, segment: write.segment, offset, bytes });
            if length == 0 || self.fault.is_some() {
                self.poison(Fault::Write);
            }
            return;
        }
        self.full_since = None;
        self.written = seq;
        self.written_end = position(write.segment, offset);
        self.recycle(bytes);
    }

    /// The sync of every write up to `upto` has returned.
    pub fn handle_synced(&mut self, upto: Seq) {
        let Some(sync) = self.syncing.take_if(|sync| sync.upto == upto) else {
            panic!("a sync that was not handed out");
        };
        self.synced = sync.upto;
        self.synced_end = sync.end;
        self.mark_due = true;
    }

    /// An action has failed, at `now`; `is_disk_full` says whether for want of room.
    pub fn handle_failed(&mut self, action: Action, is_disk_full: bool, now: Instant) -> Next {
        let fault = match action {
            Action::Create(segment) => {
                self.requested = segment - 1;
                Fault::Create
            }
            Action::Write { seq, segment, offset, bytes } => {
                self.writing = None;
                self.waiting.push_front(Batch { seq, segment, offset, bytes });
                Fault::Write
            }
            // What the disk has of it is unknown: a second sync may report success for nothing.
            Action::SyncDirectory | Action::Sync { .. } => return self.poison(Fault::Sync),
            Action::Remove(_) => return self.poison(Fault::Remove),
        };
        if !is_disk_full || self.fault.is_some() {
            return self.poison(fault);
        }
        let since = *self.full_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= DISK_FULL_TIME_MAX {
            return self.poison(Fault::DiskFull);
        }
        let again = now + DISK_FULL_RETRY_TIME;
        self.retry_at = Some(again);
        Next::Retry(again)
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub fn timeout(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Time has passed: what a full disk refused is handed out again.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.retry_at.take_if(|at| *at <= now);
    }

    /// The log has failed, for the first reason that is given: nothing is handed out any more, and
    /// nothing that is not committed will be, but for what actions under way still report.
    pub fn poison(&mut self, fault: Fault) -> Next {
        let first = *self.fault.get_or_insert(fault);
        let bytes_of = |batch: &Batch| batch.bytes.len() as u64;
        self.pending -= bytes_of(&self.filling) + self.waiting.iter().map(bytes_of).sum::<u64>();
        self.filling.bytes = Vec::new();
        self.waiting.clear();
        self.retry_at = None;
        Next::Poisoned(first)
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() <= 2 * LOG_WRITE_BYTES_MAX && self.spare.len() < SPARE_BUFFERS {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}
