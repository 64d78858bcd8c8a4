//! What holds for a whole data directory: 64 bytes in the file `meta`.
//!
//! ```text
//!  0 magic "GPLSMETA"    8 u32 format version   12 u32 generation   16 u16 shards
//! 18 u16 zero           20 u32 epoch            24 u32 runs         28 key, 32 bytes
//! 60 u32 CRC-32 of bytes 0..60                  all little endian
//! ```
//!
//! The file is replaced whole (`directory`), so that it is always one of the two.

use std::fmt;

/// The format that is written and read.
pub const FORMAT: u32 = 1;
/// Bytes of the file.
pub const META_BYTES: usize = 64;

const MAGIC: &[u8; 8] = b"GPLSMETA";
const CRC_AT: usize = META_BYTES - 4;

/// What holds for the whole directory.
#[derive(Clone, PartialEq, Eq)]
pub struct Meta {
    /// Which folder of segments is in force; grows when the number of shards changes.
    pub generation: u32,
    /// How many shards that generation has.
    pub shards: u16,
    /// The epoch of every log in it: changed whenever a tail may have been lost.
    pub epoch: u32,
    /// How often it has been opened for serving: what is numbered from it is never used twice.
    pub runs: u32,
    /// The key that stream tokens are made with. A secret.
    pub key: [u8; 32],
}

/// Never with the key.
impl fmt::Debug for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meta")
            .field("generation", &self.generation)
            .field("shards", &self.shards)
            .field("epoch", &self.epoch)
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}

/// Why bytes are no [`Meta`]; displayed as the end of a sentence about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMeta {
    /// It does not begin as one.
    Foreign,
    /// It was written by a newer program.
    Newer(u32),
    /// It began as one, and its bytes have changed since, or some are missing.
    Damaged,
}

impl fmt::Display for BadMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadMeta::Foreign => write!(f, "was not written by gapless"),
            BadMeta::Newer(format) => {
                write!(f, "has format {format}, of a newer gapless: this one reads {FORMAT}")
            }
            BadMeta::Damaged => write!(f, "is damaged"),
        }
    }
}

impl Meta {
    /// The bytes of the file.
    pub fn encode(&self) -> [u8; META_BYTES] {
        let mut bytes = [0; META_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.shards.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.runs.to_le_bytes());
        bytes[28..60].copy_from_slice(&self.key);
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// One more process is going to write.
    ///
    /// # Errors
    /// One sentence: they cannot be counted any more.
    pub fn begin_run(&mut self) -> Result<(), String> {
        self.runs = self.runs.checked_add(1).ok_or("the directory was opened 2^32 times")?;
        Ok(())
    }

    /// Reads the bytes of the file.
    ///
    /// # Errors
    /// [`BadMeta`]; the format is looked at before the sum, which a newer one may form otherwise.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMeta> {
        if !bytes.starts_with(MAGIC) {
            return Err(BadMeta::Foreign);
        }
        let format = u32_at(bytes, 8).ok_or(BadMeta::Damaged)?;
        if format > FORMAT {
            return Err(BadMeta::Newer(format));
        }
        let bytes: &[u8; META_BYTES] = bytes.try_into().map_err(|_| BadMeta::Damaged)?;
        if u32_at(bytes, CRC_AT) != Some(crc32fast::hash(&bytes[..CRC_AT])) {
            return Err(BadMeta::Damaged);
        }
        let word = |at| u32_at(bytes, at).ok_or(BadMeta::Damaged);
        let mut key = [0; 32];
        key.copy_from_slice(&bytes[28..60]);
        Ok(Self {
            generation: word(12)?,
            shards: u16::from_le_bytes([bytes[16], bytes[17]]),
            epoch: word(20)?,
            runs: word(24)?,
            key,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta { generation: 3, shards: 2, epoch: 7, runs: 9, key: [0xA5; 32] }
    }

    #[test]
    fn what_was_written_is_read_back() {
        assert_eq!(Meta::decode(&meta().encode()), Ok(meta()));
    }

    #[test]
    fn no_changed_bit_and_no_missing_byte_passes() {
        let bytes = meta().encode();
        for bit in 0..META_BYTES * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Meta::decode(&changed).is_err(), "bit {bit}");
        }
        for length in 0..META_BYTES {
            assert!(Meta::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(Meta::decode(&[&bytes[..], &[0]].concat()), Err(BadMeta::Damaged));
    }

    #[test]
    fn a_newer_format_is_named_and_not_called_damage() {
        let mut bytes = meta().encode();
        bytes[8] = 2;
        assert_eq!(Meta::decode(&bytes), Err(BadMeta::Newer(2)));
        assert!(BadMeta::Newer(2).to_string().contains("format 2"));
        assert_eq!(Meta::decode(b"another file"), Err(BadMeta::Foreign));
    }

    #[test]
    fn the_key_is_not_shown() {
        assert!(!format!("{:?}", meta()).contains("165"));
    }
}
