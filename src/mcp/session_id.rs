//! Session ids: `Mcp-Session-Id` (MCP 2025-11-25, Transports, Session Management).
//!
//! The id names the shard that owns the session and carries 128 random bits, which are all that
//! protects the session. So the id is never printed: [`Debug`](fmt::Debug) and logs have
//! [`SessionId::short`], from which it cannot be had back.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::opaque;

/// Characters of a session id on the wire.
pub const SESSION_ID_CHARS: usize = opaque::CHARS;

/// The name of one session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionId {
    /// The shard that owns the session for life.
    pub shard: u16,
    /// The unguessable part.
    pub random: [u8; 16],
}

impl SessionId {
    /// The id of a new session of `shard`; `random` comes from the system's random source.
    pub fn from_random(shard: u16, random: [u8; 16]) -> Self {
        Self { shard, random }
    }

    /// Reads a field value; none where it cannot be an id that was issued here.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let bytes = opaque::decode(text)?;
        let (shard, random) = bytes.split_first_chunk::<2>()?;
        Some(Self::from_random(u16::from_be_bytes(*shard), *random.first_chunk()?))
    }

    /// The field value: base64url, visible ASCII as MCP demands.
    pub fn write(&self) -> [u8; SESSION_ID_CHARS] {
        opaque::encode(&self.to_bytes())
    }

    /// The shard that owns the session where there are `shards` of them: the one that it was made
    /// on, as long as their number has not changed.
    pub fn owner(&self, shards: usize) -> u16 {
        (usize::from(self.shard) % shards) as u16
    }

    /// Half of the random bits, as a key of tables that hold few of all possible sessions.
    pub fn key(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.random;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The bytes behind the field value.
    pub(super) fn to_bytes(self) -> [u8; opaque::BYTES] {
        let mut bytes = [0; opaque::BYTES];
        let (shard, random) = bytes.split_at_mut(2);
        shard.copy_from_slice(&self.shard.to_be_bytes());
        random.copy_from_slice(&self.random);
        bytes
    }

    /// What logs call the session: the same for the same id, and nothing to resume it with.
    pub fn short(&self) -> ShortId {
        let hash = blake3::hash(&self.to_bytes());
        let mut tag = [0; 4];
        tag.copy_from_slice(&hash.as_bytes()[..4]);
        ShortId(u32::from_be_bytes(tag))
    }
}

/// The random part is as good as any hash of it. Ids that only differ in their shard collide,
/// which costs a comparison in tables that hold one shard's sessions anyway.
impl Hash for SessionId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.key());
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.short())
    }
}

/// A session's name in logs: eight hexadecimal digits of a hash of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortId(u32);

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_back_as_written() {
        let random: [u8; 16] = std::array::from_fn(|index| index as u8 * 16 + 5);
        for shard in [0, 1, 513, u16::MAX] {
            let id = SessionId::from_random(shard, random);
            assert_eq!(SessionId::parse(&id.write()), Some(id));
            assert!(id.write().iter().all(u8::is_ascii_graphic));
        }
    }

    #[test]
    fn refuses_what_was_never_issued() {
        for text in [&b""[..], b"x", &[b'A'; 25], b"AAAAAAAAAAAAAAAAAAAAAAA=", &[0xFF; 24]] {
            assert_eq!(SessionId::parse(text), None);
        }
    }

    #[test]
    fn is_not_in_its_debug_text() {
        let id = SessionId::from_random(7, [0xAB; 16]);
        let text = String::from_utf8(id.write().to_vec()).unwrap();
        let debug = format!("{id:?}");
        assert_eq!(debug, format!("SessionId({})", id.short()));
        assert!(!debug.contains(&text[..6]) && !debug.to_lowercase().contains("abab"));
        assert_ne!(id.short(), SessionId::from_random(8, [0xAB; 16]).short());
    }
}
