//! 18 bytes as 24 characters of base64url (RFC 4648 section 5): the spelling of session ids and
//! stream tokens. 144 bits are 24 characters exactly: no padding, and one spelling only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Bytes of an opaque id.
pub const BYTES: usize = 18;
/// Characters that spell them.
pub const CHARS: usize = 24;

/// The spelling of `bytes`.
pub fn encode(bytes: &[u8; BYTES]) -> [u8; CHARS] {
    let mut text = [0; CHARS];
    let written = URL_SAFE_NO_PAD.encode_slice(bytes, &mut text);
    debug_assert_eq!(written, Ok(CHARS));
    text
}

/// The bytes that `text` spells; none where it is no 24 characters of base64url.
pub fn decode(text: &[u8]) -> Option<[u8; BYTES]> {
    if text.len() != CHARS {
        return None;
    }
    let mut bytes = [0; BYTES];
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
    (length == BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spells_and_reads_the_same_bytes() {
        let bytes: [u8; BYTES] = std::array::from_fn(|index| (index * 37) as u8 ^ 0xC3);
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        assert_eq!(&encode(&[0xFF; BYTES]), &[b'_'; CHARS]);
    }

    #[test]
    fn refuses_other_lengths_and_alphabets() {
        assert_eq!(decode(&[b'A'; 24]), Some([0; BYTES]));
        for text in [&b"A"[..], &[b'A'; 23], &[b'A'; 25], b"AAAAAAAAAAAAAAAAAAAAAA==", b""] {
            assert_eq!(decode(text), None);
        }
        for other in [b'+', b'/', b'=', b' ', b'.', 0, 0xFF] {
            let mut text = [b'A'; CHARS];
            text[11] = other;
            assert_eq!(decode(&text), None);
        }
    }
}
