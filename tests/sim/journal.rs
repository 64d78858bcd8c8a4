//! The durable log as the streams of one world see it: writes are committed late, records of all
//! streams lie between one another in short segments, and some can never be read again.

use std::collections::{BTreeMap, BTreeSet};

use gapless::stream::log::{Extent, Load, RECORD_HEADER_BYTES};
use gapless::stream::{Place, Seq};

use crate::check::violated;
use crate::rng::{Concern, Rng};

/// Bytes after which a segment is full.
const SEGMENT_BYTES: u32 = 4096;

/// One event as it was appended.
struct Record {
    stream: usize,
    number: u64,
    bytes: Vec<u8>,
    seq: Seq,
    damaged: bool,
}

/// A chunk that a connection has asked for.
pub struct Reading {
    pub stream: usize,
    pub conn: usize,
    pub load: Load,
}

pub struct Journal {
    pub rng: Rng,
    /// The world's streams are logged durably.
    pub on: bool,
    /// Some records are damaged.
    pub damages: bool,
    /// What is appended now belongs to this write.
    pub seq: Seq,
    pub committed: Seq,
    pub readings: Vec<Reading>,
    segments: BTreeMap<u32, BTreeMap<u32, Record>>,
    offset: u32,
    /// Segments that are removed once a write is committed.
    leaving: BTreeMap<u32, Seq>,
    removed: BTreeSet<u32>,
}

impl Journal {
    /// No journal: streams are in memory alone.
    pub fn none(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed, Concern::Journal),
            on: false,
            damages: false,
            seq: 1,
            committed: 0,
            readings: Vec::new(),
            segments: BTreeMap::new(),
            offset: 0,
            leaving: BTreeMap::new(),
            removed: BTreeSet::new(),
        }
    }

    /// A journal in every other world; in every sixth it loses records.
    pub fn draw(seed: u64) -> Self {
        let mut journal = Self::none(seed);
        journal.on = journal.rng.once_in(2);
        journal.damages = journal.rng.once_in(3);
        journal
    }

    fn newest(&self) -> u32 {
        self.segments.last_key_value().map_or(0, |(&segment, _)| segment)
    }

    /// Appends the record of one event; sometimes that begins a write.
    pub fn append(&mut self, stream: usize, number: u64, bytes: &[u8]) -> (Place, Seq) {
        if self.rng.once_in(3) {
            self.seq += 1;
        }
        let length = RECORD_HEADER_BYTES + bytes.len() as u32;
        let mut segment = self.newest();
        if segment == 0 || self.offset + length > SEGMENT_BYTES {
            segment += 1;
            self.offset = 64;
        }
        let place = Place { segment, offset: self.offset };
        self.offset += length;
        let damaged = self.damages && self.rng.once_in(15);
        let bytes = bytes.to_vec();
        let record = Record { stream, number, bytes, seq: self.seq, damaged };
        self.segments.entry(segment).or_default().insert(place.offset, record);
        (place, self.seq)
    }

    /// Some writes, or all, are committed; says up to which.
    pub fn commit(&mut self, all: bool) -> Seq {
        let upto = if all { self.seq } else { self.rng.between(self.committed, self.seq) };
        if upto == self.seq {
            self.seq += 1;
        }
        self.committed = upto;
        let gone = self.leaving.iter().filter(|&(_, &seq)| seq <= upto);
        for segment in gone.map(|(&segment, _)| segment).collect::<Vec<_>>() {
            self.leaving.remove(&segment);
            self.segments.remove(&segment);
            self.removed.insert(segment);
        }
        upto
    }

    /// The oldest segment that is not about to go, if everything in it is committed.
    pub fn oldest(&self) -> Option<u32> {
        let kept = |segment: &u32| !self.leaving.contains_key(segment) && *segment < self.newest();
        let oldest = self.segments.keys().copied().find(kept)?;
        let records = self.segments.get(&oldest)?;
        records.values().all(|record| record.seq <= self.committed).then_some(oldest)
    }

    /// `segment` goes when what has been appended so far is committed.
    pub fn leave(&mut self, segment: u32) {
        self.leaving.insert(segment, self.seq);
    }

    /// What is at the places of `load`, or none where something cannot be read.
    pub fn read(&self, load: &Load) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for extent in &load.extents {
            for record in self.records(extent) {
                out.extend_from_slice(&record.filter(|record| !record.damaged)?.bytes);
            }
        }
        Some(out)
    }

    /// The records of an extent, none where the first of them is not there.
    fn records(&self, extent: &Extent) -> impl Iterator<Item = Option<&Record>> {
        let segment = self.segments.get(&extent.place.segment);
        let mut offset = extent.place.offset;
        (0..extent.count).map(move |_| {
            let record = segment?.get(&offset)?;
            offset += RECORD_HEADER_BYTES + record.bytes.len() as u32;
            Some(record)
        })
    }

    /// Checks what a stream asks for: its own committed events, in order, at the right places.
    pub fn check_load(&self, stream: usize, load: &Load) {
        let mut next = load.first;
        let mut whole = 0;
        for extent in &load.extents {
            let mut bytes = 0;
            for record in self.records(extent) {
                let Some(record) = record else {
                    violated("page", format!("nothing is at {:?}", extent.place))
                };
                if (record.stream, record.number) != (stream, next) {
                    let (other, number) = (record.stream, record.number);
                    violated("page", format!("event {number} of {other} where {next} should be"));
                }
                if record.seq > self.committed {
                    violated("page", format!("event {next} is read and not committed"));
                }
                bytes += u64::from(RECORD_HEADER_BYTES) + record.bytes.len() as u64;
                whole += record.bytes.len() as u64;
                next += 1;
            }
            if bytes != extent.bytes {
                violated("page", format!("{bytes} bytes, not {}", extent.bytes));
            }
        }
        if whole != load.bytes {
            violated("page", format!("{whole} bytes of events, not {}", load.bytes));
        }
    }
}
