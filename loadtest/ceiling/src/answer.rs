//! Reading answers: their heads, and chunked bodies of event stream.

use std::error::Error;

use memchr::{memchr, memmem};

/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Bytes of the end of a body that are kept, to look into.
const TAIL_BYTES: usize = 512;

/// What is wrong with an answer.
pub type Failure = Box<dyn Error>;

/// Where in a chunked body the next byte belongs.
enum At {
    /// The line with the next chunk's size.
    Size,
    /// So many bytes of the chunk are still to come.
    Payload(usize),
    /// So many bytes of CR LF are still to come.
    LineEnd {
        left: usize,
        last: bool,
    },
    Done,
}

/// One chunked body of an event stream, however its bytes are split.
pub struct Body {
    at: At,
    /// The part of a size line that has come.
    line: Vec<u8>,
    /// The end of what has come so far.
    pub tail: Vec<u8>,
    /// Blocks that have ended.
    pub events: u64,
    /// Bytes of the event stream, without the framing.
    pub bytes: u64,
}

impl Default for Body {
    fn default() -> Self {
        Self { at: At::Size, line: Vec::new(), tail: Vec::new(), events: 0, bytes: 0 }
    }
}

impl Body {
    /// Takes what has come.
    pub fn feed(&mut self, mut input: &[u8]) -> Result<(), Failure> {
        while !input.is_empty() {
            let taken = match self.at {
                At::Size => self.take_size(input)?,
                At::Payload(left) => {
                    let taken = left.min(input.len());
                    self.take_payload(&input[..taken]);
                    self.at = match left - taken {
                        0 => At::LineEnd { left: 2, last: false },
                        left => At::Payload(left),
                    };
                    taken
                }
                At::LineEnd { left, last } => {
                    let taken = left.min(input.len());
                    self.at = match (left - taken, last) {
                        (0, true) => At::Done,
                        (0, false) => At::Size,
                        (left, last) => At::LineEnd { left, last },
                    };
                    taken
                }
                At::Done => return Err("bytes after the end of the body".into()),
            };
            input = &input[taken..];
        }
        Ok(())
    }

    fn take_size(&mut self, input: &[u8]) -> Result<usize, Failure> {
        let Some(end) = memchr(b'\n', input) else {
            self.line.extend_from_slice(input);
            return Ok(input.len());
        };
        self.line.extend_from_slice(&input[..end]);
        let size = usize::from_str_radix(std::str::from_utf8(&self.line)?.trim(), 16)?;
        self.line.clear();
        self.at = match size {
            0 => At::LineEnd { left: 2, last: true },
            size => At::Payload(size),
        };
        Ok(end + 1)
    }

    /// Counts the ends of blocks; a block may end across two chunks.
    fn take_payload(&mut self, payload: &[u8]) {
        self.bytes += payload.len() as u64;
        self.events += memmem::find_iter(payload, b"\n\n").count() as u64;
        if self.tail.ends_with(b"\n") && !self.tail.ends_with(b"\n\n") && payload[0] == b'\n' {
            self.events += 1;
        }
        self.tail.extend_from_slice(&payload[payload.len().saturating_sub(TAIL_BYTES)..]);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
    }

    /// Whether all of it has come.
    pub fn is_done(&self) -> bool {
        matches!(self.at, At::Done)
    }
}

/// How long an answer's body is.
pub enum Length {
    Bytes(usize),
    Chunked,
}

/// The head of the answer in `read`, if it is there whole: where its body begins, and its length.
/// Any answer but a 200 is an error.
pub fn head(read: &[u8]) -> Result<Option<(usize, Length)>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(begin) = response.parse(read)? else {
        return if read.len() > HEAD_BYTES_MAX { Err("an endless head".into()) } else { Ok(None) };
    };
    if response.code != Some(200) {
        return Err(format!("answered {}", String::from_utf8_lossy(read)).into());
    }
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = std::str::from_utf8(header.value)?.parse()?;
            return Ok(Some((begin, Length::Bytes(length))));
        }
    }
    Ok(Some((begin, Length::Chunked)))
}
