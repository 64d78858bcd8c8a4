//! Event ids: `<stream token>.<number>`, the cursors of `Last-Event-ID`.
//!
//! * A token checks itself: it holds the stream's number and a keyed MAC over session, stream and
//!   epoch. So an expired stream's token is told from a forged one without a record of it, and a
//!   cursor of one session is worth nothing in another.
//! * Malformed, forged and foreign cursors get one answer, `None`; the MAC is compared in constant
//!   time, and which epoch matched shows only to who holds a genuine token.
//! * A token starts with a letter, since the stream's number leads and its top bit is clear: no
//!   tool takes an event id for an option.

use std::fmt;

use super::opaque;
use super::session_id::SessionId;
use crate::limits::EVENT_ID_BYTES_MAX;

/// The highest number of a stream in its session: its top bit is clear (see the module's top).
pub const STREAM_NUMBER_MAX: u32 = (1 << 31) - 1;

/// Bytes of the MAC that a token holds: 112 bits.
const MAC_BYTES: usize = opaque::BYTES - 4;

// `<token>.<u64>` and `<token>.end` fit.
const _: () = assert!(opaque::CHARS + 1 + 20 <= EVENT_ID_BYTES_MAX);

/// The part of an event id that names a stream of a session in one epoch of its log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; opaque::CHARS]);

impl Token {
    /// The token of `stream` in `session` while its log is in `epoch`. `key` is secret and lives
    /// as long as the cursors shall be served.
    ///
    /// # Panics
    ///
    /// Where `stream` exceeds [`STREAM_NUMBER_MAX`]: a session must not number so many.
    pub fn mint(key: &[u8; 32], session: &SessionId, stream: u32, epoch: u32) -> Self {
        assert!(stream <= STREAM_NUMBER_MAX, "a session has at most 2^31 streams");
        let mut bytes = [0; opaque::BYTES];
        let (number, code) = bytes.split_at_mut(4);
        number.copy_from_slice(&stream.to_be_bytes());
        code.copy_from_slice(&mac(key, session, stream, epoch));
        Self(opaque::encode(&bytes))
    }

    /// The token's characters.
    pub fn as_bytes(&self) -> &[u8; opaque::CHARS] {
        &self.0
    }

    /// Appends the id of the event `number`; 0 is the cursor before the first event.
    pub fn push_id(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
        out.push(b'.');
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Puts this token into the place of the one in an encoded event's `id` line: that of an older
    /// epoch, which is as long. Bytes that are no such event stay as they are.
    pub fn replace_in(&self, event: &mut [u8]) {
        let line = event.iter().position(|&byte| byte == b'\n').unwrap_or_default();
        let dot = event[..line].iter().rposition(|&byte| byte == b'.').unwrap_or_default();
        if let Some(start) = dot.checked_sub(opaque::CHARS) {
            event[start..dot].copy_from_slice(&self.0);
        }
    }

    /// Appends the id that marks the stream's end in a refusal told in-band.
    pub fn push_end_id(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
        out.extend_from_slice(b".end");
    }
}

/// Shows the characters: a token is a name inside its session and useless without the session's
/// id.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0.escape_ascii())
    }
}

/// A genuine cursor of the session that presented it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// `<token>.<number>`: everything up to `number` has been seen.
    Number {
        /// The stream in its session.
        stream: u32,
        /// The epoch in which the cursor was handed out.
        epoch: u32,
        /// The number of the last event seen, 0 before the first.
        number: u64,
    },
    /// `<token>.end`: a refusal has been seen; the stream is over for this client.
    End {
        /// The stream in its session.
        stream: u32,
        /// The epoch in which the cursor was handed out.
        epoch: u32,
    },
}

/// Reads a presented event id. It is tried under the epoch `current` and up to `older` epochs
/// before it. `None`: malformed, forged, or another session's; nobody is told which.
pub fn verify(
    raw: &[u8],
    key: &[u8; 32],
    session: &SessionId,
    current: u32,
    older: u32,
) -> Option<Cursor> {
    if raw.len() > EVENT_ID_BYTES_MAX {
        return None;
    }
    let (token, rest) = raw.split_at_checked(opaque::CHARS)?;
    let position = rest.strip_prefix(b".")?;
    let number = if position == b"end" { None } else { Some(number(position)?) };
    let bytes = opaque::decode(token)?;
    let (stream, code) = bytes.split_first_chunk::<4>()?;
    let code = code.first_chunk::<MAC_BYTES>()?;
    let stream = u32::from_be_bytes(*stream);
    if stream > STREAM_NUMBER_MAX {
        return None;
    }
    let epoch = (current.saturating_sub(older)..=current)
        .rev()
        .find(|&epoch| equal_in_constant_time(code, &mac(key, session, stream, epoch)))?;
    Some(match number {
        Some(number) => Cursor::Number { stream, epoch, number },
        None => Cursor::End { stream, epoch },
    })
}

/// Decimal digits without sign and without leading zeros: each number has one spelling.
fn number(text: &[u8]) -> Option<u64> {
    let canonical = text == b"0" || text.first().is_some_and(|first| *first != b'0');
    if !canonical || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The MAC over session, stream and epoch. The input is of one length and starts with the name of
/// its purpose, and fits into one block of the hash.
fn mac(key: &[u8; 32], session: &SessionId, stream: u32, epoch: u32) -> [u8; MAC_BYTES] {
    const PURPOSE: &[u8; 20] = b"gapless stream token";
    let mut input = [0; PURPOSE.len() + opaque::BYTES + 8];
    let (purpose, rest) = input.split_at_mut(PURPOSE.len());
    let (id, rest) = rest.split_at_mut(opaque::BYTES);
    let (number, age) = rest.split_at_mut(4);
    purpose.copy_from_slice(PURPOSE);
    id.copy_from_slice(&session.to_bytes());
    number.copy_from_slice(&stream.to_be_bytes());
    age.copy_from_slice(&epoch.to_be_bytes());
    let hash = blake3::keyed_hash(key, &input);
    let mut code = [0; MAC_BYTES];
    code.copy_from_slice(&hash.as_bytes()[..MAC_BYTES]);
    code
}

/// One integer comparison of whole codes: its time tells nothing about where they differ.
fn equal_in_constant_time(a: &[u8; MAC_BYTES], b: &[u8; MAC_BYTES]) -> bool {
    let integer = |code: &[u8; MAC_BYTES]| {
        let mut wide = [0; 16];
        wide[..MAC_BYTES].copy_from_slice(code);
        u128::from_ne_bytes(wide)
    };
    std::hint::black_box(integer(a) ^ integer(b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8; 32] = &[7; 32];

    fn session(last: u8) -> SessionId {
        SessionId::from_random(3, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, last])
    }

    fn id(stream: u32, epoch: u32, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        Token::mint(KEY, &session(0), stream, epoch).push_id(number, &mut out);
        out
    }

    #[test]
    fn reads_what_it_minted() {
        for stream in [0, 1, 77, STREAM_NUMBER_MAX] {
            for number in [0, 1, 118, u64::MAX] {
                let raw = id(stream, 5, number);
                assert!(raw.len() <= EVENT_ID_BYTES_MAX && raw[0].is_ascii_alphanumeric());
                let cursor = verify(&raw, KEY, &session(0), 5, 0);
                assert_eq!(cursor, Some(Cursor::Number { stream, epoch: 5, number }));
            }
        }
        let mut raw = Vec::new();
        Token::mint(KEY, &session(0), 2, 5).push_end_id(&mut raw);
        let cursor = verify(&raw, KEY, &session(0), 5, 0);
        assert_eq!(cursor, Some(Cursor::End { stream: 2, epoch: 5 }));
    }

    #[test]
    fn a_cursor_is_bound_to_session_key_and_epoch() {
        let raw = id(4, 5, 9);
        assert_eq!(verify(&raw, KEY, &session(1), 5, 0), None);
        let other_shard = SessionId { shard: 4, ..session(0) };
        assert_eq!(verify(&raw, KEY, &other_shard, 5, 0), None);
        assert_eq!(verify(&raw, &[8; 32], &session(0), 5, 0), None);
        assert_eq!(verify(&raw, KEY, &session(0), 6, 0), None);
        assert_eq!(verify(&raw, KEY, &session(0), 4, 9), None);
        let older = Some(Cursor::Number { stream: 4, epoch: 5, number: 9 });
        assert_eq!(verify(&raw, KEY, &session(0), 6, 1), older);
        assert_eq!(verify(&raw, KEY, &session(0), 7, 1), None);
    }

    #[test]
    fn an_event_of_an_older_epoch_gets_the_token_of_this_one() {
        let (old, new) = (id(4, 5, 9), id(4, 6, 9));
        let event = |id: &[u8]| [b"id: scope.", id, b"\ndata: a.b\n\n"].concat();
        let mut changed = event(&old);
        Token::mint(KEY, &session(0), 4, 6).replace_in(&mut changed);
        assert_eq!(changed, event(&new));
        let mut other = b"data: 1.2\n".to_vec();
        Token::mint(KEY, &session(0), 4, 6).replace_in(&mut other);
        assert_eq!(other, b"data: 1.2\n");
    }

    #[test]
    fn the_token_of_another_stream_does_not_fit() {
        let mut raw = id(4, 5, 9);
        // The stream's number is the first 32 bits: 4 becomes 5 in the sixth character.
        raw[..6].copy_from_slice(&id(5, 5, 9)[..6]);
        assert_eq!(verify(&raw, KEY, &session(0), 5, 0), None);
    }

    #[test]
    fn a_number_has_one_spelling() {
        let token = id(1, 1, 0);
        let token = token.strip_suffix(b"0").unwrap();
        for text in [
            "",
            "00",
            "01",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "18446744073709551616",
            "END",
            "end ",
            "ends",
            "١",
        ] {
            let raw = [token, text.as_bytes()].concat();
            assert_eq!(verify(&raw, KEY, &session(0), 1, 0), None, "{text:?}");
        }
        for cut in 0..token.len() {
            assert_eq!(verify(&token[..cut], KEY, &session(0), 1, 0), None);
        }
        assert_eq!(verify(&[b'1'; EVENT_ID_BYTES_MAX + 1], KEY, &session(0), 1, 0), None);
    }
}
