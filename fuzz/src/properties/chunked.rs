//! A chunked body means the same however it arrives, is what a slow reader of RFC 9112, section
//! 7.1 makes of it, and decoding undoes encoding.

use gapless::http::chunked::{self, ChunkError, Decoder};

use super::{chance, for_each_split, shown};

/// More than any input of a fuzzer holds.
const AMPLE: usize = 1 << 20;

/// Data, bytes consumed, and whether the body is complete or why it is refused.
type Outcome = (Vec<u8>, usize, Result<bool, ChunkError>);

/// The input is a body as it arrives, and then a body to be sent.
pub fn holds(wire: &[u8]) {
    for max_body in [AMPLE, 8] {
        let whole = decoded(&[wire], max_body);
        assert!(whole.0.len() <= max_body, "more data than allowed");
        for_each_split(wire, |parts| {
            let split = decoded(parts, max_body);
            // A refused body's count of bytes is of no use to anybody.
            assert_eq!((&split.0, split.2), (&whole.0, whole.2), "{}", shown(wire));
            assert!(split.1 == whole.1 || split.2.is_err(), "{}", shown(wire));
        });
    }
    let (data, consumed, outcome) = decoded(&[wire], AMPLE);
    let slow = read_slowly(wire);
    match outcome {
        Ok(true) => assert_eq!(slow, Some((data, wire.len() - consumed))),
        // A size that no body here reaches is refused on its own, whatever follows.
        Ok(false) | Err(ChunkError::Malformed | ChunkError::TooLarge) => assert_eq!(slow, None),
        Err(ChunkError::Overhead) => {}
    }
    undone(wire);
}

fn decoded(parts: &[&[u8]], max_body: usize) -> Outcome {
    let (mut decoder, mut data, mut consumed) = (Decoder::new(), Vec::new(), 0);
    for part in parts {
        match decoder.decode(part, &mut data, max_body) {
            Ok(progress) => {
                consumed += progress.consumed;
                if progress.done {
                    let behind = decoder.decode(b"GET", &mut data, max_body);
                    assert_eq!(behind.map(|progress| progress.consumed), Ok(0));
                    return (data, consumed, Ok(true));
                }
                assert_eq!(progress.consumed, part.len(), "an unfinished body takes everything");
            }
            Err(error) => {
                let again = decoder.decode(b"0\r\n\r\n", &mut data, max_body);
                assert_eq!(again, Err(error), "a refusal is final");
                return (data, consumed, Err(error));
            }
        }
    }
    (data, consumed, Ok(false))
}

/// The data of a complete body and the length of what follows, read line by line.
fn read_slowly(wire: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut rest) = (Vec::new(), wire);
    loop {
        let (line, behind) = line(rest)?;
        let digits = line.split(|&byte| byte == b';').next()?;
        let hex = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
        if !hex || digits.len() > 16 {
            return None;
        }
        let size = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        rest = behind;
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        data.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
    loop {
        let (trailer, behind) = line(rest)?;
        rest = behind;
        if trailer.is_empty() {
            return Some((data, rest.len()));
        }
        // A field: a token, and a colon right behind it.
        let colon = trailer.iter().position(|&byte| byte == b':')?;
        let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        if colon == 0 || !trailer[..colon].iter().all(token) {
            return None;
        }
    }
}

/// One line up to its CRLF, without any other control character than tabs, and what follows.
fn line(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = &rest[..end];
    let clean = line.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control());
    clean.then_some((line, &rest[end + 2..]))
}

/// `body`, encoded as a writer here does and decoded again, is `body`.
fn undone(body: &[u8]) {
    let mut rng = chance(body);
    let (mut wire, mut rest) = (Vec::new(), body);
    while !rest.is_empty() {
        let (data, behind) = rest.split_at(rng.between(1, rest.len() as u64) as usize);
        let mut head = [0; chunked::HEAD_LEN];
        chunked::fill_head(&mut head, data.len());
        wire.extend([&head, data, chunked::TAIL].concat());
        rest = behind;
    }
    wire.extend_from_slice(chunked::LAST);
    let length = wire.len();
    wire.extend_from_slice(b"GET");
    let cut = rng.between(0, length as u64) as usize;
    let outcome = decoded(&[&wire[..cut], &wire[cut..]], body.len());
    assert_eq!(outcome, (body.to_vec(), length, Ok(true)));
}
