//! The chunked transfer coding (RFC 9112, section 7.1), both ways.
//!
//! Decoding is strict, because a proxy in front may count differently than a lenient reader: a
//! size is 1 to 16 hexadecimal digits directly followed by CRLF or `;`, every line ends with CRLF,
//! no line holds a control character, and a trailer field has a name and a colon. Encoding uses
//! chunk heads of one width, so that a writer can reserve the head, append the data, and fill the
//! head in when the length is known.

use std::fmt;

use crate::limits::{CHUNK_OVERHEAD_BYTES_MAX, WRITE_BYTES_MAX};

/// Bytes of a chunk head as [`fill_head`] writes it: five digits and CRLF.
pub const HEAD_LEN: usize = 7;
/// Bytes of data in the largest chunk that [`fill_head`] can announce.
pub const CHUNK_DATA_MAX: usize = 0xf_ffff;
/// What follows the data of each chunk.
pub const TAIL: &[u8] = b"\r\n";
/// What ends a chunked body: the last chunk and an empty trailer section.
pub const LAST: &[u8] = b"0\r\n\r\n";

const _: () = assert!(WRITE_BYTES_MAX <= CHUNK_DATA_MAX);

/// Fills in the head of a chunk whose data is `len` bytes.
///
/// # Panics
/// If `len` is 0, which would end the body, or above [`CHUNK_DATA_MAX`]: either would break the
/// framing of everything behind it.
pub fn fill_head(slot: &mut [u8; HEAD_LEN], len: usize) {
    assert!((1..=CHUNK_DATA_MAX).contains(&len), "a chunk of {len} bytes cannot be framed");
    let digit = |shift: u32| {
        let nibble = (len >> shift) as u8 & 0xf;
        if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }
    };
    *slot = [digit(16), digit(12), digit(8), digit(4), digit(0), b'\r', b'\n'];
}

/// Why a chunked body is refused. The connection must end: where the next request starts is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// The bytes are not chunked coding.
    Malformed,
    /// Chunk extensions and trailer fields exceed [`CHUNK_OVERHEAD_BYTES_MAX`].
    Overhead,
    /// The body is larger than the caller allows, found or announced.
    TooLarge,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the chunked body is malformed",
            Self::Overhead => "the chunked body has too many extensions or trailers",
            Self::TooLarge => "the body is too large",
        })
    }
}

impl std::error::Error for ChunkError {}

/// What one call of [`Decoder::decode`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that belong to the body and are dealt with. All of them, unless `done`.
    pub consumed: usize,
    /// Whether the body is complete; what follows in the input is the next request.
    pub done: bool,
}

/// What the next byte must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A digit of a chunk size, or what ends the size once there is a digit.
    Size { digits: u32 },
    /// A byte of a chunk extension, or CR.
    Extension,
    /// The LF behind a chunk size.
    SizeEnd,
    /// Data.
    Data,
    /// The CR behind the data.
    DataCr,
    /// The LF behind the data.
    DataEnd,
    /// The first byte of a trailer field, or the CR of the empty line that ends the body.
    TrailerStart,
    /// A further byte of a trailer field's name, or its colon.
    TrailerName,
    /// A byte of a trailer field's value, or its CR.
    Trailer,
    /// The LF behind a trailer field.
    TrailerEnd,
    /// The last LF.
    BodyEnd,
    /// Nothing.
    Done,
    /// Nothing: the body was refused.
    Failed(ChunkError),
}

/// An incremental decoder of one chunked body.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    /// Bytes of the current chunk that are still to come; while the size is read, the size so far.
    remaining: u64,
    /// Bytes of data decoded so far.
    body: u64,
    /// Bytes of extensions and trailers so far.
    overhead: usize,
}

impl Decoder {
    /// A decoder at the start of a body.
    pub fn new() -> Self {
        Self { state: State::Size { digits: 0 }, remaining: 0, body: 0, overhead: 0 }
    }

    /// Decodes the next `input`, appending data to `out`. `max_body` bounds the data of the whole
    /// body in bytes; it is checked as soon as a chunk announces itself, before its data arrives.
    ///
    /// # Errors
    /// A [`ChunkError`]; every later call repeats it.
    pub fn decode(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        max_body: usize,
    ) -> Result<Progress, ChunkError> {
        let mut rest = input;
        loop {
            match self.state {
                State::Done => break,
                State::Failed(error) => return Err(error),
                State::Data => {
                    if rest.is_empty() {
                        break;
                    }
                    let wanted = usize::try_from(self.remaining).unwrap_or(usize::MAX);
                    let (data, behind) = rest.split_at(wanted.min(rest.len()));
                    out.extend_from_slice(data);
                    rest = behind;
                    self.body += data.len() as u64;
                    self.remaining -= data.len() as u64;
                    if self.remaining == 0 {
                        self.state = State::DataCr;
                    }
                }
                _ => {
                    let Some((&byte, behind)) = rest.split_first() else { break };
                    rest = behind;
                    self.state = self.step(byte, max_body).unwrap_or_else(State::Failed);
                }
            }
        }
        Ok(Progress { consumed: input.len() - rest.len(), done: self.state == State::Done })
    }

    /// The state behind a byte that is not data.
    fn step(&mut self, byte: u8, max_body: usize) -> Result<State, ChunkError> {
        Ok(match (self.state, byte) {
            (State::Size { digits: 1.. }, b'\r') => State::SizeEnd,
            (State::Size { digits: 1.. }, b';') => {
                self.count_overhead()?;
                State::Extension
            }
            // 16 digits fill the 64 bits; a 17th is refused even if it is a zero.
            (State::Size { digits: digits @ 0..16 }, _) => {
                let digit = char::from(byte).to_digit(16).ok_or(ChunkError::Malformed)?;
                self.remaining = self.remaining << 4 | u64::from(digit);
                State::Size { digits: digits + 1 }
            }
            (State::Extension, b'\r') => State::SizeEnd,
            (State::SizeEnd, b'\n') if self.remaining == 0 => State::TrailerStart,
            (State::SizeEnd, b'\n') => {
                if self.remaining > (max_body as u64).saturating_sub(self.body) {
                    return Err(ChunkError::TooLarge);
                }
                State::Data
            }
            (State::DataCr, b'\r') => State::DataEnd,
            (State::DataEnd, b'\n') => State::Size { digits: 0 },
            (State::TrailerStart, b'\r') => State::BodyEnd,
            (State::Trailer, b'\r') => State::TrailerEnd,
            (State::TrailerEnd, b'\n') => State::TrailerStart,
            (State::BodyEnd, b'\n') => State::Done,
            (State::Extension, _) if is_text(byte) => {
                self.count_overhead()?;
                State::Extension
            }
            (State::TrailerName, b':') => {
                self.count_overhead()?;
                State::Trailer
            }
            (State::TrailerStart | State::TrailerName, _) if is_token(byte) => {
                self.count_overhead()?;
                State::TrailerName
            }
            (State::Trailer, _) if is_text(byte) => {
                self.count_overhead()?;
                State::Trailer
            }
            _ => return Err(ChunkError::Malformed),
        })
    }

    fn count_overhead(&mut self) -> Result<(), ChunkError> {
        self.overhead += 1;
        if self.overhead > CHUNK_OVERHEAD_BYTES_MAX { Err(ChunkError::Overhead) } else { Ok(()) }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a byte may occur in an extension or a trailer field's value.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Whether a byte may occur in a field's name (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `input` whole and byte by byte, which must agree.
    fn decoded(input: &[u8], max_body: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let run = |step: usize| {
            let (mut decoder, mut out, mut at) = (Decoder::new(), Vec::new(), 0);
            for part in input.chunks(step) {
                let progress = decoder.decode(part, &mut out, max_body)?;
                at += progress.consumed;
                if progress.done {
                    return Ok((out, at, true));
                }
            }
            Ok((out, at, false))
        };
        let whole = run(input.len().max(1));
        assert_eq!(whole, run(1), "{:?}", input.escape_ascii().to_string());
        whole
    }

    #[test]
    fn extensions_and_trailers_are_skipped_and_the_next_request_is_left() {
        let body = b"3;a=\"b\"\r\nabc\r\n1\r\nd\r\n00;x\r\nX-T: 1\r\nY:\r\n\r\n";
        let both = [body.as_slice(), b"GET / HTTP/1.1"].concat();
        assert_eq!(decoded(&both, 4), Ok((b"abcd".to_vec(), body.len(), true)));
    }

    #[test]
    fn an_unfinished_body_is_not_done() {
        for unfinished in ["", "3", "3\r\nab", "3\r\nabc\r\n", "0\r\n", "0\r\n\r", "0\r\nA: b\r\n"]
        {
            let (_, consumed, done) = decoded(unfinished.as_bytes(), 10).unwrap();
            assert_eq!((consumed, done), (unfinished.len(), false));
        }
    }

    #[test]
    fn what_two_readers_could_count_differently_is_refused() {
        for smuggled in [
            "+3\r\n",
            "-3\r\n",
            "0x3\r\n",
            " 3\r\n",
            "3 \r\n",
            "3\t;a\r\n",
            "\r\n",
            ";a\r\n",
            "g\r\n",
            "3\nabc",
            "3;a\nabc",
            "3\r\nabc\n",
            "3\r\nabcd",
            "3\r\r\n",
            "0\r\n\n",
            "0\r\nA: b\n",
            "3;\0\r\n",
            "0\r\nA\0: b\r\n",
            "3_0\r\n",
            "00000000000000003\r\n",
            "10000000000000000\r\n",
            "0\r\n\r\r",
        ] {
            assert_eq!(
                decoded(smuggled.as_bytes(), 100),
                Err(ChunkError::Malformed),
                "{smuggled:?}"
            );
        }
    }

    /// Story: whatever stood behind the last chunk was skipped as a trailer, a request line and a
    /// folded line too.
    #[test]
    fn a_trailer_that_is_no_field_is_refused() {
        for trailer in [
            "DELETE /mcp HTTP/1.1",
            "X",
            "X ",
            "X : a",
            "X\t: a",
            " X: a",
            "\tX: a",
            "X: a\r\n b",
            ": a",
            "X(: a",
            "\u{e9}: a",
        ] {
            let body = format!("0\r\n{trailer}\r\n\r\n");
            assert_eq!(decoded(body.as_bytes(), 9), Err(ChunkError::Malformed), "{trailer:?}");
        }
    }

    #[test]
    fn a_body_above_the_limit_is_refused_before_its_data() {
        assert_eq!(decoded(b"5\r\n", 4), Err(ChunkError::TooLarge));
        assert_eq!(decoded(b"2\r\nab\r\n3\r\n", 4), Err(ChunkError::TooLarge));
        assert_eq!(decoded(b"2\r\nab\r\nffffffffffffffff\r\n", 4), Err(ChunkError::TooLarge));
        assert!(decoded(b"4\r\nabcd\r\n0\r\n\r\n", 4).unwrap().2);
    }

    #[test]
    fn extensions_and_trailers_share_one_bound() {
        let half = "x".repeat(CHUNK_OVERHEAD_BYTES_MAX / 2 - 1);
        let fits = format!("1;{half}\r\na\r\n0\r\n{half}:\r\n\r\n");
        assert!(decoded(fits.as_bytes(), 9).unwrap().2);
        let exceeds = format!("1;{half}\r\na\r\n0\r\n{half}:x\r\n\r\n");
        assert_eq!(decoded(exceeds.as_bytes(), 9), Err(ChunkError::Overhead));
    }

    #[test]
    fn a_refusal_is_final() {
        let (mut decoder, mut out) = (Decoder::new(), Vec::new());
        assert_eq!(decoder.decode(b"z", &mut out, 9), Err(ChunkError::Malformed));
        assert_eq!(decoder.decode(b"0\r\n\r\n", &mut out, 9), Err(ChunkError::Malformed));
    }

    #[test]
    fn heads_have_one_width() {
        let mut slot = [0; HEAD_LEN];
        for (len, text) in
            [(1, b"00001\r\n"), (0x1a2f, b"01a2f\r\n"), (CHUNK_DATA_MAX, b"fffff\r\n")]
        {
            fill_head(&mut slot, len);
            assert_eq!(&slot, text);
        }
    }

    #[test]
    #[should_panic(expected = "cannot be framed")]
    fn an_empty_chunk_would_end_the_body() {
        fill_head(&mut [0; HEAD_LEN], 0);
    }
}
