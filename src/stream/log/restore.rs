//! The log of a stream that was found on disk: its index is built, its events stay where they are.

use std::time::Instant;

use super::chunk::Chunk;
use super::disk::Disk;
use super::runs::{Place, RECORD_HEADER_BYTES};
use super::{CHUNK_BYTES_MAX, Log};

/// Records of consecutive events back to back, as a recovery has found them.
#[derive(Clone, Debug)]
pub struct RestoredRun {
    /// The number of the first event.
    pub first: u64,
    /// Where its record is.
    pub place: Place,
    /// Bytes of each event.
    pub lengths: Vec<u32>,
}

/// A stream as a recovery has found it.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Number of the oldest event kept.
    pub floor: u64,
    /// Number of the newest event, 0 where there never was one.
    pub tail: u64,
    /// Whether the newest event is the last one.
    pub finished: bool,
    /// Whether some of its records are damaged, so that none of its events may be served.
    pub broken: bool,
    /// Where the events `floor..=tail` lie, in order.
    pub runs: Vec<RestoredRun>,
    /// The instant from which their age counts.
    pub at: Instant,
}

impl Restored {
    /// Whether the runs are exactly `floor..=tail`, each inside of a segment.
    fn is_whole(&self) -> bool {
        let mut next = self.floor;
        for run in &self.runs {
            let headers = run.lengths.len() as u64 * u64::from(RECORD_HEADER_BYTES);
            let events: u64 = run.lengths.iter().copied().map(u64::from).sum();
            let bytes = headers + events;
            if run.first != next || u64::from(run.place.offset) + bytes > u64::from(u32::MAX) {
                return false;
            }
            next += run.lengths.len() as u64;
        }
        !self.broken && self.floor > 0 && next == self.tail + 1
    }
}

/// The log as a recovery has found it: everything is committed, and nothing is in memory.
impl Log {
    /// A log of what was found; where that has a hole or damage, none of its events is there.
    pub fn restore(restored: &Restored) -> Self {
        let mut disk = Disk::new(None, restored.tail);
        let mut log = Self { floor: restored.floor, ..Self::default() };
        if restored.is_whole() {
            for run in &restored.runs {
                let mut place = run.place;
                for (number, &length) in (run.first..).zip(&run.lengths) {
                    log.push_paged(number, restored.at, length);
                    disk.runs.push(number, place, u64::from(length));
                    place = place.after(1, u64::from(length));
                }
            }
            log.chunks.iter_mut().for_each(Chunk::close);
        } else {
            // Where nothing follows, even who has seen the tail may have missed something.
            disk.broken.push(if restored.finished { u64::MAX } else { restored.tail });
            log.floor = restored.tail + 1;
        }
        log.tail = restored.tail;
        disk.paged = log.end;
        log.disk = Some(Box::new(disk));
        log
    }

    fn push_paged(&mut self, number: u64, at: Instant, length: u32) {
        let most = CHUNK_BYTES_MAX as u64;
        let fits = |chunk: &&mut Chunk| chunk.length() + u64::from(length) <= most;
        let base = self.end;
        self.end += u64::from(length);
        match self.chunks.back_mut().filter(fits) {
            Some(chunk) => chunk.ends.push((self.end - chunk.base) as u32),
            None => self.chunks.push_back(Chunk {
                first: number,
                base,
                newest: at,
                data: Vec::new(),
                ends: vec![length],
            }),
        }
    }
}
