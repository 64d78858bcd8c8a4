//! The records of one segment's file with their places, whatever state the file is in.
//!
//! What is held of the file is the record that is looked at, and [`READ_BYTES`] more.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::store::record::{self, Bad, HEADER_BYTES, Header, Kind};
use crate::store::segment::{BadSegment, SEGMENT_HEADER_BYTES, SegmentHeader};

/// Bytes of one read.
const READ_BYTES: usize = 256 * 1024;

/// What stands at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'b> {
    /// A record.
    Record(Header, &'b [u8]),
    /// A record whose header holds and whose body, of so many bytes, does not.
    BadBody(Header, u64),
    /// So many bytes that are no record, before one.
    Unreadable(u64),
    /// Nothing but bytes that are no record up to the end of the file: so many, and whether they
    /// were ever written.
    Rest { bytes: u64, written: bool },
}

/// Walks one segment.
pub(super) struct Walk {
    file: File,
    segment: u32,
    /// Bytes of the file.
    length: u64,
    /// The place of the next record.
    at: u64,
    /// The file's bytes from `from` on.
    window: Vec<u8>,
    from: u64,
    ended: bool,
}

impl Walk {
    /// Opens a segment and reads its header.
    pub(super) fn open(
        path: &Path,
        segment: u32,
    ) -> io::Result<(Self, Result<SegmentHeader, BadSegment>)> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut walk =
            Self { file, segment, length, at: 0, window: Vec::new(), from: 0, ended: false };
        walk.fill(SEGMENT_HEADER_BYTES)?;
        let header = SegmentHeader::decode(walk.rest(), segment);
        walk.at = SEGMENT_HEADER_BYTES as u64;
        walk.ended = length < walk.at;
        Ok((walk, header))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The next thing and its place; none after a seal, a planned end or the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, Found<'_>)>> {
        if self.ended || self.at >= self.length {
            return Ok(None);
        }
        let at = self.at;
        self.fill(HEADER_BYTES)?;
        let Some(length) = self.record_bytes() else {
            return self.skip().map(|found| Some((at, found)));
        };
        self.fill(length)?;
        self.at += length as u64;
        let bytes = &self.window[(at - self.from) as usize..];
        match record::read(bytes, self.segment) {
            Ok((header, body, _)) => {
                self.ended = matches!(header.kind, Kind::Seal | Kind::Clean);
                Ok(Some((at, Found::Record(header, body))))
            }
            Err(Bad::Body(header)) => {
                Ok(Some((at, Found::BadBody(header, (length - HEADER_BYTES) as u64))))
            }
            Err(bad) => Err(io::Error::other(format!("a record changed while read: {bad:?}"))),
        }
    }

    /// Bytes of the record at the place, if there is a header whose body the file can hold.
    fn record_bytes(&self) -> Option<usize> {
        let head = self.rest().first_chunk::<HEADER_BYTES>()?;
        let framed = record::read_header(head, self.segment).ok()?;
        let length = HEADER_BYTES + framed.length as usize;
        (length as u64 <= self.length - self.at).then_some(length)
    }

    /// Passes what is no record.
    fn skip(&mut self) -> io::Result<Found<'static>> {
        let (start, mut written) = (self.at, false);
        loop {
            self.fill(READ_BYTES)?;
            let rest = self.rest();
            let last = self.at + rest.len() as u64 == self.length;
            // The place itself has been looked at.
            let first = usize::from(self.at == start);
            let next = record::find_header(&rest[first.min(rest.len())..], self.segment);
            let passed = match next {
                Some(next) => next + first,
                None if last => rest.len(),
                None => rest.len() - (HEADER_BYTES - 1),
            };
            written |= !record::is_zero(&rest[..passed]);
            self.at += passed as u64;
            let bytes = self.at - start;
            if next.is_some() {
                return Ok(Found::Unreadable(bytes));
            }
            if last {
                return Ok(Found::Rest { bytes, written });
            }
        }
    }

    /// What has been read from the place on.
    fn rest(&self) -> &[u8] {
        &self.window[(self.at - self.from) as usize..]
    }

    /// Has at least `bytes` from the place on, or all there are.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        let there = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        if self.rest().len() >= bytes.min(there) {
            return Ok(());
        }
        self.window.drain(..(self.at - self.from) as usize);
        self.from = self.at;
        let held = self.window.len();
        self.window.resize(bytes.max(READ_BYTES).min(there).max(held), 0);
        self.file.read_exact_at(&mut self.window[held..], self.from + held as u64)
    }
}
