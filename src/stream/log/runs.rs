//! Where the events of a durable stream lie.
//!
//! A *run* is a row of events whose records lie back to back in one segment: each is a header of
//! [`RECORD_HEADER_BYTES`] and the event's bytes. So a stream that is alone in the log costs one
//! run for a segment, whatever it holds.
//!
//! Invariant: the runs cover every event from the floor to the newest one logged, in order. The
//! lengths of the events are those of the log's index; they are not kept twice.

use std::collections::VecDeque;

/// Bytes of the header of each record.
pub const RECORD_HEADER_BYTES: u32 = 32;

/// Where a record is: the offset, in bytes, of its header in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The segment's number.
    pub segment: u32,
    /// Bytes from the segment's start.
    pub offset: u32,
}

impl Place {
    /// The place after `count` records whose bodies have `bytes` bytes together.
    pub(super) fn after(self, count: u64, bytes: u64) -> Self {
        let whole = count * u64::from(RECORD_HEADER_BYTES) + bytes;
        let offset = u32::try_from(u64::from(self.offset) + whole);
        Self { offset: offset.expect("a segment is bounded by 4 GiB"), ..self }
    }
}

/// Records of one stream that lie back to back in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where the first one is.
    pub place: Place,
    /// The number of the first event.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// Bytes from the header of the first to the end of the last.
    pub bytes: u64,
}

struct Run {
    first: u64,
    place: Place,
}

/// Bytes that a run costs.
pub(super) const RUN_BYTES: u64 = size_of::<Run>() as u64;

#[derive(Default)]
pub(super) struct Runs {
    runs: VecDeque<Run>,
    /// Where the next record would have to be to belong to the newest run.
    next: Option<Place>,
}

impl Runs {
    pub(super) fn bytes(&self) -> u64 {
        self.runs.len() as u64 * RUN_BYTES
    }

    /// The next event, of `length` bytes, lies at `place`.
    pub(super) fn push(&mut self, number: u64, place: Place, length: u64) {
        if self.next != Some(place) {
            self.runs.push_back(Run { first: number, place });
        }
        self.next = Some(place.after(1, length));
    }

    /// Forgets what is below `floor`; `start_of` gives positions of what has been kept so far.
    pub(super) fn trim(&mut self, floor: u64, start_of: impl Fn(u64) -> u64) {
        while self.runs.get(1).is_some_and(|run| run.first <= floor) {
            self.runs.pop_front();
        }
        if let Some(run) = self.runs.front_mut()
            && run.first < floor
        {
            let bytes = start_of(floor) - start_of(run.first);
            *run = Run { first: floor, place: run.place.after(floor - run.first, bytes) };
        }
    }

    /// Where event `number` is, which is one of those that are kept and logged.
    fn place_of(&self, number: u64, start_of: impl Fn(u64) -> u64) -> Place {
        let run = &self.runs[self.run_of(number)];
        run.place.after(number - run.first, start_of(number) - start_of(run.first))
    }

    /// The extents of the events `first..=last`.
    pub(super) fn extents(
        &self,
        first: u64,
        last: u64,
        start_of: impl Fn(u64) -> u64,
    ) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut number = first;
        let mut run = self.run_of(first);
        while number <= last {
            run += 1;
            let until = self.runs.get(run).map_or(last + 1, |next| next.first.min(last + 1));
            let count = until - number;
            let headers = count * u64::from(RECORD_HEADER_BYTES);
            let bytes = start_of(until) - start_of(number) + headers;
            let place = self.place_of(number, &start_of);
            extents.push(Extent { place, first: number, count, bytes });
            number = until;
        }
        extents
    }

    /// The first and last events of each run in `segment`; `newest` is the newest one logged.
    pub(super) fn within(&self, segment: u32, newest: u64) -> impl Iterator<Item = (u64, u64)> {
        let ends = self.runs.iter().skip(1).map(|run| run.first - 1).chain([newest]);
        let runs = self.runs.iter().zip(ends);
        runs.filter(move |(run, _)| run.place.segment == segment).map(|(run, end)| (run.first, end))
    }

    /// Event `number` now lies at `place`; `newest` is the newest event logged.
    pub(super) fn replace(
        &mut self,
        number: u64,
        place: Place,
        newest: u64,
        start_of: impl Fn(u64) -> u64,
    ) {
        let index = self.run_of(number);
        let until = self.runs.get(index + 1).map_or(newest + 1, |next| next.first);
        if number + 1 < until {
            let rest = self.place_of(number + 1, &start_of);
            self.runs.insert(index + 1, Run { first: number + 1, place: rest });
        } else if until == newest + 1 {
            self.next = Some(place.after(1, start_of(number + 1) - start_of(number)));
        }
        let before = self.runs.get(index).map_or(number, |run| run.first);
        if before < number {
            self.runs.insert(index + 1, Run { first: number, place });
        } else {
            self.runs[index].place = place;
            self.join(index, start_of);
        }
    }

    /// Makes one run of run `index` and the one before it, if they lie back to back.
    fn join(&mut self, index: usize, start_of: impl Fn(u64) -> u64) {
        let Some(before) = index.checked_sub(1).and_then(|before| self.runs.get(before)) else {
            return;
        };
        let run = &self.runs[index];
        let bytes = start_of(run.first) - start_of(before.first);
        if before.place.after(run.first - before.first, bytes) == run.place {
            self.runs.remove(index);
        }
    }

    fn run_of(&self, number: u64) -> usize {
        self.runs.partition_point(|run| run.first <= number) - 1
    }
}
