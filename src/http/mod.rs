//! HTTP/1.1 (RFC 9110, RFC 9112) and Server-Sent Events (WHATWG HTML, section 9.2), pure.
//!
//! Bytes in, values out, and the other way round; no socket, no clock, no task. The way of data:
//! [`request::parse`] reads a head, [`chunked::Decoder`] a chunked body, [`response::head`] writes
//! the answer's head, [`sse`] the events, [`chunked::fill_head`] the chunk around them.
//!
//! Invariants of the whole folder:
//! * No input makes it panic, and no input makes it hold more than the bounds of
//!   [`limits`](crate::limits) or an argument say.
//! * How the bytes were split into reads never changes the outcome.
//! * A request whose length two parsers could see differently is refused, never repaired
//!   (RFC 9112, section 11.2).
//! * What comes from outside cannot end a line in anything that is written here.

pub mod chunked;
pub mod request;
pub mod response;
pub mod sse;

/// A number of decimal digits alone that fits into 64 bits.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
