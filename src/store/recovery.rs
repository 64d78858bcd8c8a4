//! What a shard's log says after a restart: which sessions live, where their events lie, and where
//! the log ends.
//!
//! A [`Scanner`] reads the segments once, in the order of their numbers. Where the records stop
//! being readable is either the *torn end* of what the last process wrote, or *damage*. It is
//! damage exactly where something says that the place had been written completely:
//!
//! * a mark behind it, which names what was synced when the mark was written; or
//! * on the boot on which it was written, any record behind it: one write is under way at a time;
//! * of a whole segment or its header, any record in it or in a later one: both are durable before
//!   the first record is written.
//!
//! Whatever says so comes later than the place itself. So the scanner does not apply what follows a
//! doubtful place; where it turns out to be damage, it asks to be run [again](Stop::Again).
//!
//! Before the log is written again, the steps of [`Recovered::repairs`] are done in their order.

mod frames;
mod index;
#[cfg(test)]
mod tests;

use crate::stream::log::Place;

use super::body::SessionBody;
use super::epoch::Ending;
use super::record::{self, HEADER_BYTES, Header, Kind};
use super::segment::{
    BadSegment, Kept, SEGMENT_HEADER_BYTES, SegmentHeader, Segments, Slots, position,
};

use self::frames::{Found, Frames};
use self::index::Index;

/// Events of one stream with consecutive numbers, whose records lie one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of the first.
    pub first: u64,
    /// Where its header is.
    pub place: Place,
    /// Bytes of each body.
    pub lengths: Vec<u32>,
}

/// A stream of a session that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredStream {
    /// Its number in its session.
    pub number: u32,
    /// The requests that are answered on it, raw.
    pub ids: Vec<Vec<u8>>,
    /// Which of them have their answer in the log.
    pub answered: Vec<bool>,
    /// Nothing follows `tail`.
    pub finished: bool,
    /// Its events are gone, it is there to answer for its ids.
    pub buried: bool,
    /// Number of the oldest event that is kept; `tail + 1` for none.
    pub floor: u64,
    /// Number of the newest event.
    pub tail: u64,
    /// Something of it is damaged or missing: it must be refused, and has no runs.
    pub broken: bool,
    /// Where `floor..=tail` lie, ascending and without a gap.
    pub runs: Vec<Run>,
}

/// A session that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredSession {
    /// Its number in this shard's log.
    pub slot: u32,
    /// What it is.
    pub body: SessionBody,
    /// The messages that set a new child up, in their order.
    pub setups: Vec<Vec<u8>>,
    /// Something of the session itself is damaged: so are all its streams.
    pub broken: bool,
    /// Its streams, ascending.
    pub streams: Vec<RecoveredStream>,
}

/// What was read, for `gapless log check`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments.
    pub segments: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Records, by the code of their kind; entry 0 is unused.
    pub records: [u64; Kind::ALL.len() + 1],
    /// Segments without a readable header, and missing ones.
    pub bad_segments: u64,
    /// Places where records of unknown streams are damaged.
    pub bad_headers: u64,
    /// Records with a damaged body.
    pub bad_bodies: u64,
    /// Records behind the torn end.
    pub discarded: u64,
}

/// All that a shard's log says.
#[derive(Debug)]
pub struct Recovered {
    /// The sessions that live, by their slots.
    pub sessions: Vec<RecoveredSession>,
    /// The slots of sessions that have ended.
    pub ended: Vec<u32>,
    /// The slots of sessions of which nothing says whose they were; only damage leaves such.
    pub lost: Vec<u32>,
    /// How the last process ended; none where there is no segment.
    pub ending: Option<Ending>,
    /// Where the log ends without a seal.
    pub torn: Option<Place>,
    /// The segments behind the torn end, ascending.
    pub discard: Vec<u32>,
    /// The segment from which on something may not be on the disk.
    pub unsynced_from: u32,
    /// The segments that stay, for the [`Journal`](super::journal::Journal).
    pub segments: Segments,
    /// The number of the next segment.
    pub next_segment: u32,
    /// The number of the next session.
    pub next_slot: u32,
    /// What was read.
    pub counts: Counts,
}

/// A step of what is done before the log is written again: durable before the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The segment is removed, and that is synced.
    Remove(u32),
    /// The segment is synced.
    Sync(u32),
    /// A [`seal`] is written there, and the file is cut off behind it and synced.
    Seal(Place),
}

impl Recovered {
    /// What makes the log whole, so that the next recovery finds what this one has found. What is
    /// behind the torn end goes first: behind a seal it would be read.
    pub fn repairs(&self) -> Vec<Repair> {
        let remove = self.discard.iter().rev().map(|&segment| Repair::Remove(segment));
        let unsynced = self.segments.numbers().filter(|&number| number >= self.unsynced_from);
        let sync = unsynced.map(Repair::Sync);
        remove.chain(sync).chain(self.torn.map(Repair::Seal)).collect()
    }
}

/// What was written completely, whatever it looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sure {
    /// Everything before this position.
    pub before: u64,
    /// The headers of the segments up to this one.
    pub segment: u32,
}

impl Sure {
    fn covers(&self, place: Place) -> bool {
        let is_before = position(place.segment, place.offset) < self.before;
        is_before || place.offset == 0 && place.segment <= self.segment
    }
}

/// Why there is no [`Recovered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A place that looked like the torn end is damage: scan everything again with a scanner that
    /// knows what is sure.
    Again {
        /// For [`Scanner::new`].
        sure: Sure,
    },
    /// A segment has another format.
    Version {
        /// The segment.
        segment: u32,
        /// Its format.
        version: u16,
    },
}

/// Why there is always a number for the next segment.
const SEGMENTS: &str = "2^32 segments of one shard";

/// A segment that is being read, or was.
struct Seen {
    number: u32,
    bytes: u64,
    header: Option<SegmentHeader>,
    slots: Slots,
}

/// Reads a shard's log: [`Scanner::begin`] and [`Scanner::feed`] for each segment, then
/// [`Scanner::finish`].
pub struct Scanner {
    shard: u16,
    generation: u32,
    boot_id: [u8; 16],
    sure: Sure,
    /// What the marks say was synced.
    synced: u64,
    /// Where the log ends, unless something turns out to be sure behind it.
    doubtful: Option<Place>,
    index: Index,
    seen: Vec<Seen>,
    head: Vec<u8>,
    frames: Option<Frames>,
    /// A planned end was the last that happened, in this segment.
    clean: Option<u32>,
    version: Option<(u32, u16)>,
    counts: Counts,
}

impl Scanner {
    /// A scanner of the log of `shard` in a directory's `generation`, on the boot `boot_id`;
    /// `sure` is nothing, or what [`Stop::Again`] says.
    pub fn new(shard: u16, generation: u32, boot_id: [u8; 16], sure: Sure) -> Self {
        Self {
            shard,
            generation,
            boot_id,
            sure,
            synced: 0,
            doubtful: None,
            index: Index::default(),
            seen: Vec::new(),
            head: Vec::new(),
            frames: None,
            clean: None,
            version: None,
            counts: Counts::default(),
        }
    }

    /// The next segment, which has a higher number than the one before.
    pub fn begin(&mut self, number: u32) {
        self.end_segment();
        if let Some(last) = self.seen.last().map(|seen| seen.number) {
            assert!(number > last, "segments come in their order");
            if number - last > 1 {
                self.bad_segment(last + 1, true);
            }
        }
        self.head.clear();
        self.counts.segments += 1;
        self.seen.push(Seen { number, bytes: 0, header: None, slots: Slots::default() });
    }

    /// The next bytes of the segment's file, from its first on.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        let seen = self.seen.last_mut().expect("a segment has begun");
        let number = seen.number;
        seen.bytes += bytes.len() as u64;
        self.counts.bytes += bytes.len() as u64;
        if self.head.len() < SEGMENT_HEADER_BYTES {
            let missing = SEGMENT_HEADER_BYTES - self.head.len();
            let (taken, rest) = bytes.split_at(bytes.len().min(missing));
            self.head.extend_from_slice(taken);
            if self.head.len() < SEGMENT_HEADER_BYTES {
                return;
            }
            bytes = rest;
            self.read_head(number);
            self.frames = Some(Frames::new(number));
        }
        if let Some(mut frames) = self.frames.take() {
            frames.feed(bytes, &mut |found| self.handle_found(number, found));
            self.frames = Some(frames);
        }
    }

    fn read_head(&mut self, number: u32) {
        match SegmentHeader::decode(&self.head, number) {
            Ok(header) if (header.shard, header.generation) == (self.shard, self.generation) => {
                if let Some(seen) = self.seen.last_mut() {
                    seen.header = Some(header);
                }
            }
            Err(BadSegment::Version(version)) => {
                self.version.get_or_insert((number, version));
            }
            _ => self.bad_segment(number, false),
        }
    }

    fn end_segment(&mut self) {
        let Some(number) = self.seen.last().map(|seen| seen.number) else { return };
        match self.frames.take() {
            Some(frames) => frames.finish(&mut |found| self.handle_found(number, found)),
            None => self.bad_segment(number, true),
        }
        self.index.trust_newcomers();
    }

    /// A segment is missing, or its header is; `lost` says that its records are, too.
    fn bad_segment(&mut self, segment: u32, lost: bool) {
        if self.is_damage(Place { segment, offset: 0 }) {
            self.counts.bad_segments += 1;
            if lost {
                self.index.damage_all();
            }
        }
    }

    /// Whether a bad place is damage; otherwise the log ends there, as far as is known.
    fn is_damage(&mut self, place: Place) -> bool {
        if self.doubtful.is_some() {
            return false;
        }
        let is_sure = self.sure.covers(place);
        if !is_sure {
            self.doubtful = Some(place);
        }
        is_sure
    }

    fn handle_found(&mut self, segment: u32, found: Found<'_>) {
        match found {
            Found::Record { offset, header, length, body } => {
                let place = Place { segment, offset };
                self.handle_record(place, &header, length, body);
            }
            Found::BadBody { offset, header } => {
                if self.is_damage(Place { segment, offset }) {
                    self.counts.bad_bodies += 1;
                    if !is_of_log(header.kind) {
                        self.index.damage(&header);
                    }
                }
            }
            Found::BadHeader { offset } => {
                if self.is_damage(Place { segment, offset }) {
                    self.counts.bad_headers += 1;
                    self.index.damage_all();
                }
            }
        }
    }

    fn handle_record(&mut self, place: Place, header: &Header, length: u32, body: &[u8]) {
        let here = position(place.segment, place.offset);
        if matches!(header.kind, Kind::Mark | Kind::Seal) {
            // Nothing can vouch for what was written after it.
            self.synced = self.synced.max(header.number.min(here));
            self.sure.before = self.sure.before.max(self.synced);
        }
        let seen = self.seen.last_mut().expect("a record is in a segment");
        self.sure.segment = self.sure.segment.max(place.segment);
        if self.doubtful.is_some() {
            self.counts.discarded += 1;
            if seen.header.is_some_and(|header| header.boot_id == self.boot_id) {
                self.sure.before = self.sure.before.max(here);
            }
            return;
        }
        self.counts.records[header.kind as usize] += 1;
        match header.kind {
            Kind::Clean => self.clean = Some(place.segment),
            Kind::Seal => {}
            _ => self.clean = None,
        }
        if !is_of_log(header.kind) {
            seen.slots.insert(header.slot);
            self.index.apply(header, place, length, body);
        }
    }

    /// There is no further segment.
    pub fn finish(mut self) -> Result<Recovered, Stop> {
        self.end_segment();
        if let Some((segment, version)) = self.version {
            return Err(Stop::Version { segment, version });
        }
        if self.doubtful.is_some_and(|place| self.sure.covers(place)) {
            return Err(Stop::Again { sure: self.sure });
        }
        let newest = self.seen.last().map_or(0, |seen| seen.number);
        let ending = self.ending();
        // Discarded segments are gone for good: their numbers are free, and a gap would be damage.
        let next_segment = match self.doubtful {
            Some(Place { segment, offset: 0 }) => segment.max(1),
            Some(Place { segment: last, .. }) => last.checked_add(1).expect(SEGMENTS),
            None => newest.checked_add(1).expect(SEGMENTS),
        };
        let (discard, segments) = kept(self.seen, self.doubtful);
        let next_slot = self.index.next_slot();
        let (sessions, ended, lost) = self.index.finish();
        Ok(Recovered {
            sessions,
            ended,
            lost,
            ending,
            torn: self.doubtful.filter(|place| place.offset > 0),
            discard,
            unsynced_from: (self.synced >> 32) as u32,
            segments,
            next_segment,
            next_slot,
            counts: self.counts,
        })
    }

    /// A segment without a readable header was never written to: its header is synced first.
    /// A later process that has made a segment may have sent something.
    fn ending(&self) -> Option<Ending> {
        let header = self.seen.iter().rev().find_map(|seen| seen.header)?;
        let run_of = |number| self.seen.iter().find(|seen| seen.number == number)?.header;
        let clean = self.clean.and_then(run_of).is_some_and(|clean| clean.run == header.run);
        Some(Ending { clean, level: header.level, boot_id: header.boot_id })
    }
}

/// The record that ends the torn segment. It vouches for all that is before it, so that damage
/// there stays damage when what vouched for it was discarded.
pub fn seal(torn: Place) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    let here = position(torn.segment, torn.offset);
    record::push(&mut bytes, torn.segment, &Header::of_log(Kind::Seal, here), b"");
    bytes
}

/// Whether it is of the log itself, not of a session.
fn is_of_log(kind: Kind) -> bool {
    matches!(kind, Kind::Mark | Kind::Seal | Kind::Clean)
}

/// The segments behind the torn end, and those that stay.
fn kept(seen: Vec<Seen>, torn: Option<Place>) -> (Vec<u32>, Segments) {
    let stays =
        |number: u32| torn.is_none_or(|torn| (number, 0) < (torn.segment, torn.offset.min(1)));
    // The one after the next was made when a segment had been left for good.
    let left: Vec<_> = seen.iter().map(|seen| seen.header.map(|header| header.created)).collect();
    let (mut discard, mut segments) = (Vec::new(), Segments::default());
    for (index, seen) in seen.into_iter().enumerate() {
        if !stays(seen.number) {
            discard.push(seen.number);
            continue;
        }
        let torn = torn.filter(|torn| torn.segment == seen.number);
        let bytes = torn.map_or(seen.bytes, |torn| u64::from(torn.offset) + HEADER_BYTES as u64);
        let mut kept = Kept::new(seen.number, bytes);
        kept.until = left.get(index + 2).copied().flatten();
        kept.slots = seen.slots;
        segments.push(kept);
    }
    (discard, segments)
}
