//! Records out of a segment's bytes, which come in parts.
//!
//! Invariants:
//! * What is held is at most one body that the caller reads, and no more than has come.
//! * A bad place is reported once; behind it every byte may begin the next record, until one does.

use crc32fast::Hasher;

use super::super::record::{self, Framed, HEADER_BYTES, Header, Kind};
use super::super::segment::SEGMENT_HEADER_BYTES;

/// What was found.
#[derive(Debug)]
pub(super) enum Found<'b> {
    /// A record, both of whose checksums hold. The body of an event is not kept.
    Record { offset: u32, header: Header, length: u32, body: &'b [u8] },
    /// A header that holds, before a body that does not.
    BadBody { offset: u32, header: Header },
    /// No header, where one must be.
    BadHeader { offset: u32 },
}

enum State {
    /// At the place of a header, after `head`; `lost` behind a bad place.
    Head { lost: bool },
    /// In a body.
    Body { framed: Framed, left: u32, hasher: Hasher, body: Vec<u8> },
    /// The segment says that it ends here.
    Sealed,
}

/// The reader of one segment's records.
pub(super) struct Frames {
    segment: u32,
    /// Where the record that is being read begins.
    offset: u32,
    head: [u8; HEADER_BYTES],
    held: usize,
    state: State,
}

impl Frames {
    pub(super) fn new(segment: u32) -> Self {
        Self {
            segment,
            offset: SEGMENT_HEADER_BYTES as u32,
            head: [0; HEADER_BYTES],
            held: 0,
            state: State::Head { lost: false },
        }
    }

    /// Takes the next bytes of the segment.
    pub(super) fn feed(&mut self, bytes: &[u8], found: &mut impl FnMut(Found<'_>)) {
        let mut at = 0;
        while at < bytes.len() {
            at = match self.state {
                State::Sealed => return,
                State::Head { lost } => self.feed_head(bytes, at, lost, found),
                State::Body { .. } => at + self.feed_body(&bytes[at..], found),
            };
        }
    }

    /// The segment has no further bytes. One that is not sealed ends in a bad place.
    pub(super) fn finish(self, found: &mut impl FnMut(Found<'_>)) {
        let offset = self.offset;
        match self.state {
            State::Head { lost: false } => found(Found::BadHeader { offset }),
            State::Body { framed, .. } => {
                found(Found::BadBody { offset, header: framed.header });
            }
            State::Head { lost: true } | State::Sealed => {}
        }
    }

    /// Takes what the header needs of `bytes` from `at` on; gives where to go on.
    fn feed_head(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        lost: bool,
        found: &mut impl FnMut(Found<'_>),
    ) -> usize {
        // Behind a bad place most bytes begin nothing: they are passed without being held.
        if lost && self.held == 0 && bytes.len() - at >= HEADER_BYTES {
            let passed = bytes_before_header(&bytes[at..], self.segment);
            self.offset = self.offset.saturating_add(passed as u32);
            at += passed;
        }
        let taken = (bytes.len() - at).min(HEADER_BYTES - self.held);
        self.head[self.held..self.held + taken].copy_from_slice(&bytes[at..at + taken]);
        self.held += taken;
        at += taken;
        if self.held < HEADER_BYTES {
            return at;
        }
        match record::read_header(&self.head, self.segment) {
            Ok(framed) => {
                self.held = 0;
                self.begin_body(framed, found);
            }
            Err(_) => {
                if !lost {
                    found(Found::BadHeader { offset: self.offset });
                }
                self.state = State::Head { lost: true };
                self.offset = self.offset.saturating_add(1);
                self.head.copy_within(1.., 0);
                self.held -= 1;
                if at >= self.held {
                    // What is held is all of `bytes`: no need to hold it.
                    at -= self.held;
                    self.held = 0;
                }
            }
        }
        at
    }

    fn begin_body(&mut self, framed: Framed, found: &mut impl FnMut(Found<'_>)) {
        let hasher = record::body_hasher(self.segment);
        self.state = State::Body { framed, left: framed.length, hasher, body: Vec::new() };
        if framed.length == 0 {
            self.feed_body(&[], found);
        }
    }

    /// Takes what the body needs; gives how many bytes that was.
    fn feed_body(&mut self, bytes: &[u8], found: &mut impl FnMut(Found<'_>)) -> usize {
        let State::Body { framed, left, hasher, body } = &mut self.state else { return 0 };
        let taken = &bytes[..bytes.len().min(*left as usize)];
        *left -= taken.len() as u32;
        hasher.update(taken);
        let header = framed.header;
        if matches!(header.kind, Kind::Session | Kind::Setup | Kind::Stream) {
            body.extend_from_slice(taken);
        }
        if *left > 0 {
            return taken.len();
        }
        let (offset, length) = (self.offset, framed.length);
        let holds = hasher.clone().finalize() == framed.checksum;
        let is_end = holds && matches!(header.kind, Kind::Seal | Kind::Clean);
        found(match holds {
            true => Found::Record { offset, header, length, body },
            false => Found::BadBody { offset, header },
        });
        self.offset = offset.saturating_add(HEADER_BYTES as u32).saturating_add(length);
        self.state = if is_end { State::Sealed } else { State::Head { lost: false } };
        taken.len()
    }
}

/// How many of `bytes` are before the first header, or else before the first place from which
/// there are too few of them to tell.
fn bytes_before_header(bytes: &[u8], segment: u32) -> usize {
    record::find_header(bytes, segment).unwrap_or(bytes.len() - (HEADER_BYTES - 1))
}
