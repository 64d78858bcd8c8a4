//! One record of the log: a header of 32 bytes, then the body (`docs/wal-format.md`).
//!
//! Invariant: both checksums start from the number of the segment. CRC-32 maps different starts to
//! different sums of the same bytes, so a record that an older use of the file left behind never
//! reads as one of this segment.

use crc32fast::Hasher;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;
// The index of a stream's log counts the headers between its events.
const _: () = assert!(HEADER_BYTES == crate::stream::log::RECORD_HEADER_BYTES as usize);
/// The header's own checksum covers what is before it.
const CHECKED_BYTES: usize = 28;
/// Where in a header its kind is, which is never zero.
const KIND_AT: usize = 4;

/// Of a [`Kind::Stream`]: the stream has had its last event.
pub const FINISHED: u8 = 1;
/// Of a [`Kind::Stream`] or [`Kind::Floor`]: its events are gone, its request ids stay.
pub const BURIED: u8 = 2;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A session begins, or what is known of it is written again; the newest holds.
    Session = 1,
    /// One message that sets a new child up again; `number` is its place in their order.
    Setup = 2,
    /// A stream begins, or what is known of it is written again; `number` is its floor.
    Stream = 3,
    /// One event, encoded; `number` is its own.
    Event = 4,
    /// A stream ends without a further answer; `number` is its tail.
    Finish = 5,
    /// Events below `number` are gone.
    Floor = 6,
    /// The session is over for good.
    End = 7,
    /// Everything before the position `number` (segment << 32 | offset) was on the disk when this
    /// was written.
    Mark = 8,
    /// Nothing follows in this segment. Where recovery wrote it, it is a [`Kind::Mark`], too.
    Seal = 9,
    /// The planned end of a process; it seals its segment.
    Clean = 10,
}

impl Kind {
    /// Every kind, in the order of its code.
    pub const ALL: [Self; 10] = [
        Self::Session,
        Self::Setup,
        Self::Stream,
        Self::Event,
        Self::Finish,
        Self::Floor,
        Self::End,
        Self::Mark,
        Self::Seal,
        Self::Clean,
    ];

    /// The kind of a code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// What a record says beside its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it says.
    pub kind: Kind,
    /// [`FINISHED`], [`BURIED`].
    pub flags: u8,
    /// Of an event: which of its stream's requests it answers, counted from 1; 0 for none.
    pub answers: u16,
    /// The session, by its number in this shard's log.
    pub slot: u32,
    /// The stream, by its number in its session.
    pub stream: u32,
    /// An event's number, a floor, a position: see [`Kind`].
    pub number: u64,
}

impl Header {
    /// A record of the log itself, of no session.
    pub fn of_log(kind: Kind, number: u64) -> Self {
        Self { kind, flags: 0, answers: 0, slot: 0, stream: 0, number }
    }
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// They end too early.
    Short,
    /// The header does not hold.
    Header,
    /// The header holds, the body does not.
    Body(Header),
    /// Zeros where a header would be: space that was never written.
    End,
}

/// A header that holds, with what it says of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed {
    /// The header.
    pub header: Header,
    /// Bytes of the body.
    pub length: u32,
    /// The body's checksum.
    pub checksum: u32,
}

/// The checksum of a body that comes in parts.
pub fn body_hasher(segment: u32) -> Hasher {
    Hasher::new_with_initial(segment)
}

fn checksum(segment: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(segment);
    hasher.update(bytes);
    hasher.finalize()
}

/// Appends a record of `segment`.
///
/// # Panics
/// Where the body has 4 GiB or more, which the bounds of a message exclude.
pub fn push(out: &mut Vec<u8>, segment: u32, header: &Header, body: &[u8]) {
    let length = u32::try_from(body.len()).expect("a body is bounded far below 4 GiB");
    let mut head = [0; HEADER_BYTES];
    head[0..4].copy_from_slice(&length.to_le_bytes());
    head[KIND_AT] = header.kind as u8;
    head[5] = header.flags;
    head[6..8].copy_from_slice(&header.answers.to_le_bytes());
    head[8..12].copy_from_slice(&header.slot.to_le_bytes());
    head[12..16].copy_from_slice(&header.stream.to_le_bytes());
    head[16..24].copy_from_slice(&header.number.to_le_bytes());
    head[24..28].copy_from_slice(&checksum(segment, body).to_le_bytes());
    let sum = checksum(segment, &head[..CHECKED_BYTES]);
    head[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
    out.reserve(HEADER_BYTES + body.len());
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
}

/// Reads a header of `segment`.
pub fn read_header(head: &[u8; HEADER_BYTES], segment: u32) -> Result<Framed, Bad> {
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    // Cheap, and nearly every place that is no header ends here: recovery looks at many.
    let Some(kind) = Kind::from_code(head[KIND_AT]) else {
        return Err(if *head == [0; HEADER_BYTES] { Bad::End } else { Bad::Header });
    };
    if checksum(segment, &head[..CHECKED_BYTES]) != word(CHECKED_BYTES) {
        return Err(Bad::Header);
    }
    let header = Header {
        kind,
        flags: head[5],
        answers: u16::from_le_bytes([head[6], head[7]]),
        slot: word(8),
        stream: word(12),
        number: u64::from(word(16)) | u64::from(word(20)) << 32,
    };
    Ok(Framed { header, length: word(0), checksum: word(24) })
}

/// Zeros to compare with: a comparison of blocks is as fast as memory, also in a debug build.
const ZEROS: [u8; 4096] = [0; 4096];

/// Whether nothing but zeros is there.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.len()).all(|block| *block == ZEROS[..block.len()])
}

/// Where in `bytes` the first header of `segment` is that holds. Bytes that are behind damage or
/// were never written are passed without being summed; zeros, of which a new segment is full, in
/// blocks.
pub fn find_header(bytes: &[u8], segment: u32) -> Option<usize> {
    let mut at = 0;
    while bytes.len() - at >= HEADER_BYTES {
        let rest = &bytes[at..];
        // No byte of a block but its last ones can be before the kind of a header.
        if rest.get(..ZEROS.len()).is_some_and(|block| *block == ZEROS) {
            at += ZEROS.len() - KIND_AT;
            continue;
        }
        let block = &rest[..rest.len().min(ZEROS.len() + HEADER_BYTES)];
        let begins = |window: &[u8]| {
            window.first_chunk().is_some_and(|head| read_header(head, segment).is_ok())
        };
        if let Some(found) = block.windows(HEADER_BYTES).position(begins) {
            return Some(at + found);
        }
        at += block.len() - (HEADER_BYTES - 1);
    }
    None
}

/// Reads the record of `segment` that `bytes` begin with: its header, its body, and the bytes of
/// both.
pub fn read(bytes: &[u8], segment: u32) -> Result<(Header, &[u8], usize), Bad> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(if bytes.iter().all(|&byte| byte == 0) { Bad::End } else { Bad::Short });
    };
    let framed = read_header(head, segment)?;
    let body = rest.get(..framed.length as usize).ok_or(Bad::Short)?;
    if checksum(segment, body) != framed.checksum {
        return Err(Bad::Body(framed.header));
    }
    Ok((framed.header, body, HEADER_BYTES + body.len()))
}

/// Appends the bodies of `count` events of one stream, numbered from `first`, whose records are
/// all of `run`. Whatever is not exactly that is an error, and then `out` is as it was.
pub fn events(
    mut run: &[u8],
    segment: u32,
    slot: u32,
    stream: u32,
    first: u64,
    count: u64,
    out: &mut Vec<u8>,
) -> Result<(), Bad> {
    let start = out.len();
    let mut take = || {
        for number in (first..).take(count as usize) {
            let (header, body, length) = read(run, segment)?;
            let named = (header.kind, header.slot, header.stream, header.number);
            if named != (Kind::Event, slot, stream, number) {
                return Err(Bad::Header);
            }
            out.extend_from_slice(body);
            run = &run[length..];
        }
        if run.is_empty() { Ok(()) } else { Err(Bad::Header) }
    };
    let taken = take();
    if taken.is_err() {
        out.truncate(start);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Header {
        Header { kind: Kind::Event, flags: 0, answers: 1, slot: 7, stream: 3, number }
    }

    #[test]
    fn a_record_reads_back_and_says_its_length() {
        let mut out = b"before".to_vec();
        let header = Header {
            kind: Kind::Stream,
            flags: FINISHED | BURIED,
            answers: 0xA1B2,
            slot: 0xC3D4_E5F6,
            stream: 0x0102_0304,
            number: 0x1122_3344_5566_7788,
        };
        push(&mut out, 9, &header, b"body");
        out.extend_from_slice(b"after");
        assert_eq!(read(&out[6..], 9), Ok((header, &b"body"[..], 36)));
    }

    #[test]
    fn the_layout_on_disk_is_the_documented_one() {
        let mut out = Vec::new();
        push(&mut out, 1, &event(258), b"xy");
        let fields = [2, 0, 0, 0, 4, 0, 1, 0, 7, 0, 0, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(out[..24], fields);
        assert_eq!(out[24..28], checksum(1, b"xy").to_le_bytes());
        assert_eq!(out[28..32], checksum(1, &out[..28]).to_le_bytes());
        assert_eq!(&out[32..], b"xy");
    }

    #[test]
    fn a_record_of_another_segment_is_stale_bytes() {
        for body in [&b""[..], b"x", &[0; 100]] {
            let mut out = Vec::new();
            push(&mut out, 5, &event(1), body);
            for other in [0, 4, 6, 5 << 8, u32::MAX] {
                assert_eq!(read(&out, other), Err(Bad::Header));
            }
        }
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_seen() {
        let mut out = Vec::new();
        push(&mut out, 5, &event(1), b"data: 1\n\n");
        for at in 0..out.len() {
            let mut changed = out.clone();
            changed[at] ^= 0x10;
            let bad = if at < HEADER_BYTES { Bad::Header } else { Bad::Body(event(1)) };
            assert_eq!(read(&changed, 5), Err(bad), "byte {at}");
            let cut = if at == 0 { Bad::End } else { Bad::Short };
            assert_eq!(read(&out[..at], 5), Err(cut), "cut at {at}");
        }
        assert_eq!(read(&[0; 64], 5), Err(Bad::End));
        assert_eq!(read(&[0; 3], 5), Err(Bad::End));
    }

    #[test]
    fn a_header_is_found_wherever_it_begins() {
        let mut record = Vec::new();
        push(&mut record, 9, &event(1), b"");
        for before in (0..70).chain(4000..4200).chain(8150..8220) {
            for (after, stale) in [(0, 0), (5000, 0), (0, 5), (5000, 5)] {
                let mut bytes = vec![0; before];
                // What an older use left behind looks like a header for as long as possible.
                for at in (0..before).step_by(97).take(stale) {
                    bytes[at] = 4;
                }
                bytes.extend_from_slice(&record);
                bytes.resize(bytes.len() + after, 0);
                assert_eq!(find_header(&bytes, 9), Some(before), "{before} {after} {stale}");
                assert_eq!(find_header(&bytes, 8), None);
                assert_eq!(find_header(&bytes[..before + HEADER_BYTES - 1], 9), None);
                assert!(!is_zero(&bytes) && is_zero(&bytes[before + HEADER_BYTES..]));
            }
        }
    }

    #[test]
    fn a_run_gives_its_bodies_only_where_it_is_exactly_that_run() {
        let mut run = Vec::new();
        push(&mut run, 2, &event(4), b"four");
        let one = run.len();
        push(&mut run, 2, &event(5), b"five");
        let mut out = b"x".to_vec();
        assert_eq!(events(&run, 2, 7, 3, 4, 2, &mut out), Ok(()));
        assert_eq!(out, b"xfourfive");
        for (bytes, segment, slot, stream, first, count) in [
            (&run[..], 3, 7, 3, 4, 2),
            (&run, 2, 8, 3, 4, 2),
            (&run, 2, 7, 2, 4, 2),
            (&run, 2, 7, 3, 5, 2),
            (&run, 2, 7, 3, 4, 1),
            (&run, 2, 7, 3, 4, 3),
            (&run[..one + 3], 2, 7, 3, 4, 2),
            (&run[one..], 2, 7, 3, 4, 1),
        ] {
            let mut out = b"x".to_vec();
            assert!(events(bytes, segment, slot, stream, first, count, &mut out).is_err());
            assert_eq!(out, b"x");
        }
        let mut setup = Vec::new();
        push(&mut setup, 2, &Header { kind: Kind::Setup, ..event(4) }, b"four");
        assert_eq!(events(&setup, 2, 7, 3, 4, 1, &mut out), Err(Bad::Header));
    }
}
