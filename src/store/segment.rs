//! A segment: one file of a shard's log, its header, its name, and what is known of those that
//! are there.
//!
//! Invariant: segments go away oldest first, so that what takes something back (the end of a
//! session, a floor) outlives every older record of it.

use std::collections::{BTreeMap, VecDeque};

use crc32fast::Hasher;

use super::journal::Level;

/// Bytes of a segment's header; the first record follows.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// The format that is written, and the only one that is read.
pub const FORMAT_VERSION: u16 = 2;
/// What a segment begins with.
const MAGIC: [u8; 8] = *b"gaplswal";
/// The header's checksum covers what is before it.
const CHECKED_BYTES: usize = 60;
/// Digits of the number in a file's name.
const NAME_DIGITS: usize = 10;

/// A position in a shard's log, of which later is greater.
pub fn position(segment: u32, offset: u32) -> u64 {
    u64::from(segment) << 32 | u64::from(offset)
}

/// The name of a segment's file.
pub fn file_name(number: u32) -> String {
    format!("{number:010}.wal")
}

/// The number of the segment that a file of this name is; none for other files.
pub fn parse_file_name(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".wal")?;
    let is_number = digits.len() == NAME_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The shard whose log it is part of.
    pub shard: u16,
    /// Its number in that log.
    pub number: u32,
    /// The epoch of the process that made it.
    pub epoch: u32,
    /// The generation of the directory, which changes with the number of shards.
    pub generation: u32,
    /// What that process promised.
    pub level: Level,
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`) then.
    pub boot_id: [u8; 16],
    /// When it was made, seconds of Unix time.
    pub created: u64,
    /// The process that made it: the count of starts of the directory.
    pub run: u32,
}

/// Why bytes are no segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSegment {
    /// They end too early.
    Short,
    /// No segment, or damage.
    Header,
    /// Another format, which keeps the place of the magic, the version and the checksum.
    Version(u16),
}

impl SegmentHeader {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.shard.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24] = self.level as u8;
        bytes[32..48].copy_from_slice(&self.boot_id);
        bytes[48..56].copy_from_slice(&self.created.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.run.to_le_bytes());
        let sum = checksum(self.number, &bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the header of segment `number`.
    pub fn decode(bytes: &[u8], number: u32) -> Result<Self, BadSegment> {
        let bytes = bytes.first_chunk::<SEGMENT_HEADER_BYTES>().ok_or(BadSegment::Short)?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[..8] != MAGIC {
            return Err(BadSegment::Header);
        }
        if checksum(number, &bytes[..CHECKED_BYTES]) != word(CHECKED_BYTES) {
            return Err(BadSegment::Header);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != FORMAT_VERSION {
            return Err(BadSegment::Version(version));
        }
        let level = Level::from_code(bytes[24]).ok_or(BadSegment::Header)?;
        if word(12) != number {
            return Err(BadSegment::Header);
        }
        let mut boot_id = [0; 16];
        boot_id.copy_from_slice(&bytes[32..48]);
        Ok(Self {
            shard: u16::from_le_bytes([bytes[10], bytes[11]]),
            number,
            epoch: word(16),
            generation: word(20),
            level,
            boot_id,
            created: u64::from(word(48)) | u64::from(word(52)) << 32,
            run: word(56),
        })
    }
}

fn checksum(number: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(number);
    hasher.update(bytes);
    hasher.finalize()
}

/// Numbers of sessions, dense enough to be kept as bits.
#[derive(Debug, Default)]
pub struct Slots {
    words: BTreeMap<u32, u64>,
    last: Option<u32>,
}

impl Slots {
    /// Adds one; cheap for the one that was added last.
    pub fn insert(&mut self, slot: u32) {
        if self.last != Some(slot) {
            *self.words.entry(slot / 64).or_default() |= 1 << (slot % 64);
            self.last = Some(slot);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().flat_map(|(&word, &bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        })
    }
}

/// A segment that is there.
#[derive(Debug)]
pub struct Kept {
    /// Its number.
    pub number: u32,
    /// Bytes it takes on the disk.
    pub bytes: u64,
    /// Unix time, seconds, after which nothing was written to it; none while that is unknown.
    pub until: Option<u64>,
    /// The sessions that have a record in it.
    pub slots: Slots,
    /// How many readers need it to stay.
    pins: u32,
}

impl Kept {
    /// A segment without records.
    pub fn new(number: u32, bytes: u64) -> Self {
        Self { number, bytes, until: None, slots: Slots::default(), pins: 0 }
    }
}

/// The segments of a shard's log that are there, oldest first.
#[derive(Debug, Default)]
pub struct Segments {
    kept: VecDeque<Kept>,
}

impl Segments {
    /// Adds one, which is newer than all before it.
    pub fn push(&mut self, segment: Kept) {
        assert!(
            self.kept.back().is_none_or(|last| last.number < segment.number),
            "segments are numbered in their order"
        );
        self.kept.push_back(segment);
    }

    /// The segment of that number.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Kept> {
        let index = self.index_of(number)?;
        self.kept.get_mut(index)
    }

    /// The segment of that number.
    pub fn get(&self, number: u32) -> Option<&Kept> {
        self.kept.get(self.index_of(number)?)
    }

    /// Each record that is appended asks for the newest.
    fn index_of(&self, number: u32) -> Option<usize> {
        if self.newest() == Some(number) {
            return Some(self.kept.len() - 1);
        }
        self.kept.binary_search_by_key(&number, |kept| kept.number).ok()
    }

    /// The oldest.
    pub fn oldest(&self) -> Option<&Kept> {
        self.kept.front()
    }

    /// The number of the newest.
    pub fn newest(&self) -> Option<u32> {
        self.kept.back().map(|kept| kept.number)
    }

    /// The numbers of all, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.kept.iter().map(|kept| kept.number)
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.kept.iter().map(|kept| kept.bytes).sum()
    }

    /// Forgets the oldest, which is `number`.
    pub fn remove_oldest(&mut self, number: u32) {
        let removed = self.kept.pop_front();
        assert_eq!(removed.map(|kept| kept.number), Some(number), "segments go oldest first");
    }

    /// A reader needs the segment: it is not removed meanwhile. Tells whether it is there.
    pub fn pin(&mut self, number: u32) -> bool {
        self.get_mut(number).map(|kept| kept.pins += 1).is_some()
    }

    /// A reader of [`Self::pin`] is done.
    pub fn unpin(&mut self, number: u32) {
        let kept = self.get_mut(number).expect("a pinned segment stays");
        kept.pins = kept.pins.checked_sub(1).expect("each pin is taken off once");
    }

    /// Whether a reader needs it.
    pub fn is_pinned(&self, number: u32) -> bool {
        self.get(number).is_some_and(|kept| kept.pins > 0)
    }

    /// At `now` (Unix time, seconds) nothing more is written below segment `filling`.
    pub fn sealed_below(&mut self, filling: u32, now: u64) {
        for kept in self.kept.iter_mut().take_while(|kept| kept.number < filling) {
            kept.until.get_or_insert(now);
        }
    }

    /// The oldest, if it is sealed and has to go: because all together have more than `bytes_max`,
    /// or because nothing in it is younger than `age_max` seconds at `now`.
    pub fn to_retire(&self, now: u64, bytes_max: u64, age_max: u64) -> Option<u32> {
        let oldest = self.kept.front()?;
        let is_old = oldest.until?.saturating_add(age_max) <= now;
        (is_old || self.bytes() > bytes_max).then_some(oldest.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            shard: 0x0201,
            number: 0x0605_0403,
            epoch: 7,
            generation: 8,
            level: Level::Power,
            boot_id: std::array::from_fn(|index| index as u8),
            created: 0x0102_0304_0506_0708,
            run: 0x0A0B_0C0D,
        }
    }

    #[test]
    fn a_header_reads_back_under_its_own_number_only() {
        let bytes = header().encode();
        assert_eq!(SegmentHeader::decode(&bytes, 0x0605_0403), Ok(header()));
        assert_eq!(SegmentHeader::decode(&bytes, 1), Err(BadSegment::Header));
        assert_eq!(SegmentHeader::decode(&bytes[..63], 1), Err(BadSegment::Short));
        assert_eq!(SegmentHeader::decode(&[0; 64], 1), Err(BadSegment::Header));
    }

    #[test]
    fn every_changed_byte_of_a_header_is_seen() {
        let bytes = header().encode();
        for at in 0..bytes.len() {
            let mut changed = bytes;
            changed[at] ^= 0x20;
            assert!(SegmentHeader::decode(&changed, 0x0605_0403).is_err(), "byte {at}");
        }
    }

    #[test]
    fn another_format_is_told_from_damage() {
        let mut bytes = header().encode();
        bytes[8] = 3;
        assert_eq!(SegmentHeader::decode(&bytes, 0x0605_0403), Err(BadSegment::Header));
        let sum = checksum(0x0605_0403, &bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes, 0x0605_0403), Err(BadSegment::Version(3)));
    }

    #[test]
    fn a_name_is_ten_digits() {
        assert_eq!(file_name(42), "0000000042.wal");
        assert_eq!(parse_file_name("0000000042.wal"), Some(42));
        assert_eq!(parse_file_name(&file_name(u32::MAX)), Some(u32::MAX));
        for other in ["42.wal", "0000000042", "+000000042.wal", "9999999999.wal", "00000000042.wal"]
        {
            assert_eq!(parse_file_name(other), None, "{other}");
        }
    }

    #[test]
    fn slots_are_a_set() {
        let mut slots = Slots::default();
        for slot in [70, 70, 3, 64, 70, u32::MAX, 3] {
            slots.insert(slot);
        }
        assert_eq!(slots.iter().collect::<Vec<_>>(), [3, 64, 70, u32::MAX]);
    }

    fn three() -> Segments {
        let mut segments = Segments::default();
        (4..7).for_each(|number| segments.push(Kept::new(number, 100)));
        segments
    }

    #[test]
    fn the_oldest_goes_for_bytes_or_age_but_never_before_it_is_sealed() {
        let mut segments = three();
        assert_eq!(segments.to_retire(1000, 0, 0), None);
        segments.sealed_below(6, 1000);
        assert_eq!(segments.to_retire(1009, 300, 10), None);
        assert_eq!(segments.to_retire(1009, 299, 10), Some(4));
        assert_eq!(segments.to_retire(1010, 300, 10), Some(4));
        segments.remove_oldest(4);
        segments.remove_oldest(5);
        assert_eq!(segments.to_retire(u64::MAX, 0, 0), None);
    }

    #[test]
    fn a_pin_holds_a_segment_until_its_last_reader_is_done() {
        let mut segments = three();
        assert!(segments.pin(4) && segments.pin(4) && !segments.pin(9));
        segments.unpin(4);
        assert!(segments.is_pinned(4));
        segments.unpin(4);
        assert!(!segments.is_pinned(4));
    }
}
