//! What must be true of one stream in front of a durable log.

use gapless::stream::log::Load;
use gapless::stream::{Generation, Leaving, Place, Seq, Stream};

use crate::check::violated;
use crate::oracle::Oracle;

/// What the oracle knows of the durable log of one stream; nothing where there is none.
#[derive(Default)]
pub struct Durable {
    /// The write that the stream's birth belongs to.
    birth: Option<Seq>,
    /// Writes that are committed.
    writes: Seq,
    /// The newest event that is.
    committed: u64,
    /// First and last events of the chunks that cannot be read.
    broken: Vec<(u64, u64)>,
}

impl Durable {
    pub fn is_open(&self) -> bool {
        self.birth.is_none_or(|birth| birth <= self.writes)
    }
}

impl Oracle {
    pub fn committed(&self) -> u64 {
        self.durable.birth.map_or(self.tail(), |_| self.durable.committed)
    }

    /// The newest event that can never be read.
    pub fn broken(&self) -> u64 {
        self.durable.broken.iter().map(|&(_, last)| last).max().unwrap_or_default()
    }

    /// Whether nothing will follow, and a restart would know.
    pub fn is_over(&self) -> bool {
        let known = self.finish.is_none_or(|finish| finish <= self.durable.writes);
        self.finished && known && self.committed() == self.tail()
    }

    /// Whether event `number` is certainly where it is said to be.
    pub fn is_placed(&self, number: u64) -> bool {
        let place = self.event(number).and_then(|event| event.place);
        place.is_some_and(|(_, seq)| seq <= self.durable.writes)
    }

    /// Nothing that is not committed may be known to a client.
    pub fn check_committed(&self, number: u64) {
        if number > self.committed() {
            let committed = self.committed();
            violated("committed", format!("{number} is handed out, {committed} is committed"));
        }
    }

    /// The same, of the event that has been handed over in part.
    pub fn check_handed(&self, in_mid_event: bool) {
        if in_mid_event {
            self.check_committed(self.sent + 1);
        }
    }

    /// The reader was told that what comes next cannot be read.
    pub fn check_broken(&self) {
        let next = self.sent + 1;
        if !self.durable.broken.iter().any(|&(first, last)| first <= next && next <= last) {
            violated("broken", format!("event {next} can be read"));
        }
    }

    pub fn handle_opened(&mut self, seq: Seq) {
        self.durable.birth = Some(seq);
    }

    /// Event `number` lies at `place` once write `seq` is committed.
    pub fn handle_logged(&mut self, number: u64, place: Place, seq: Seq) {
        if let Some(event) = self.event_mut(number) {
            event.place = Some((place, seq));
        }
    }

    pub fn handle_committed(&mut self, seq: Seq) {
        self.durable.writes = seq;
        while self.is_placed(self.durable.committed + 1) {
            self.durable.committed += 1;
        }
    }

    /// The floor rises to `floor`.
    pub fn rise(&mut self, floor: u64) {
        self.floor = floor;
        self.durable.broken.retain(|&(_, last)| last >= floor);
    }

    /// The stream was asked to drop what is below `floor`.
    pub fn handle_raised(&mut self, floor: u64, cut: Option<Generation>) {
        self.handle_cut(floor, cut);
        self.rise(floor.max(self.floor));
    }

    /// A read has failed; says whether that means anything.
    pub fn handle_load_failed(&mut self, load: &Load, stream: &Stream) -> bool {
        let same_place = load.extents.iter().all(|extent| {
            let place = self.event(extent.first).and_then(|event| event.place);
            place.is_some_and(|(place, _)| place == extent.place)
        });
        let paged_out = stream.event(load.first).is_none();
        let believed = self.floor <= load.first && paged_out && same_place;
        if believed {
            let count: u64 = load.extents.iter().map(|extent| extent.count).sum();
            self.durable.broken.push((load.first, load.first + count - 1));
        }
        believed
    }

    /// What a segment still has of this stream: the floor passes what is not in memory.
    pub fn leaving(&self, segment: u32, stream: &Stream) -> Leaving {
        let in_segment = |number: &u64| {
            let place = self.event(*number).and_then(|event| event.place);
            place.is_some_and(|(place, _)| place.segment == segment)
        };
        let numbers: Vec<u64> = (self.floor..=self.tail()).filter(in_segment).collect();
        let elsewhere = numbers.iter().rfind(|&&number| stream.event(number).is_none());
        let floor = elsewhere.map_or(self.floor, |number| number + 1);
        let events = numbers.into_iter().filter(|&number| number >= floor).collect();
        Leaving { floor, events }
    }
}
