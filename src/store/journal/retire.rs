//! Which segments are there, and how the oldest goes.

use super::{Action, Journal};

impl Journal {
    /// The segment that has to go, at `now` (Unix time, seconds): the oldest, where all together
    /// take more than `bytes_max` bytes, or where nothing in it is younger than `age_max` seconds.
    /// What must outlive it is appended again (see [`Self::slots_in`]), then
    /// [`Self::remove`] is called.
    ///
    /// To be asked every now and then: a segment that has been filled for `age_max` is sealed.
    pub fn retire(&mut self, now: u64, bytes_max: u64, age_max: u64) -> Option<u32> {
        if self.fault.is_some() || self.closed.is_some() || self.removing.is_some() {
            return None;
        }
        let filling = self.filling.segment;
        let is_used = self.segments.get(filling).is_some_and(|kept| !kept.slots.is_empty());
        match self.filling_since.filter(|since| since.0 == filling) {
            Some((_, since)) if since.saturating_add(age_max) <= now => self.rotate(),
            None if is_used => self.filling_since = Some((filling, now)),
            _ => {}
        }
        self.segments.sealed_below(self.filling.segment, now);
        self.segments.to_retire(now, bytes_max, age_max)
    }

    /// The sessions that have a record in a segment, ascending.
    pub fn slots_in(&self, segment: u32) -> impl Iterator<Item = u32> + '_ {
        self.segments.get(segment).into_iter().flat_map(|kept| kept.slots.iter())
    }

    /// Bytes that all segments take on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.segments.bytes()
    }

    /// Removes the oldest segment as soon as everything appended so far has been synced.
    pub fn remove(&mut self, segment: u32) {
        assert!(self.removing.is_none(), "one segment is removed at a time");
        assert_ne!(segment, self.filling.segment, "the segment that is being filled stays");
        let oldest = self.segments.oldest().map(|kept| kept.number);
        assert_eq!(oldest, Some(segment), "segments go oldest first");
        let newest = self.filling.seq - u64::from(self.filling.bytes.is_empty());
        self.removing = Some((segment, newest));
        self.sync_wanted = self.sync_wanted.max(newest);
    }

    pub(super) fn poll_remove(&mut self) -> Option<Action> {
        let (segment, needed) = self.removing?;
        let is_durable = self.directory.changes == self.directory.durable;
        let is_free = !self.segments.is_pinned(segment) && !self.remove_is_out;
        if self.synced < needed || !is_durable || !is_free {
            return None;
        }
        self.remove_is_out = true;
        Some(Action::Remove(segment))
    }

    /// A segment's file is gone.
    pub fn handle_removed(&mut self, segment: u32) {
        let removing = self.removing.take().map(|removing| removing.0);
        assert_eq!(removing, Some(segment), "a segment that was not asked for");
        self.remove_is_out = false;
        self.segments.remove_oldest(segment);
        self.directory.changes += 1;
    }

    /// Somebody reads from a segment: it is not removed before [`Self::unpin`]. Tells whether it
    /// is still there.
    pub fn pin(&mut self, segment: u32) -> bool {
        let is_going = self.remove_is_out && self.removing.is_some_and(|going| going.0 == segment);
        !is_going && self.segments.pin(segment)
    }

    /// A reader of [`Self::pin`] is done.
    pub fn unpin(&mut self, segment: u32) {
        self.segments.unpin(segment);
    }
}
