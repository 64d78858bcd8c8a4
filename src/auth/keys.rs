//! API keys. What is kept of a key is its BLAKE3 hash: a file that is read by others gives no key
//! away, because a key has 256 random bits and cannot be guessed.
//!
//! Invariant: whether a hash is known is found by its first eight bytes, and decided by a
//! comparison of all 32 that takes the same time wherever they differ.

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blake3::Hash;

use super::gate::{Kind, Principal};
use crate::limits::PRINCIPAL_NAME_BYTES_MAX;

/// What a key begins with, so that people and scanners of leaked secrets know it.
pub const PREFIX: &str = "gl_";

/// One line of the file of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    /// Whose key it is. A name may stand in several lines: its keys are being replaced.
    pub name: String,
    /// The hash of the key.
    pub hash: Hash,
}

impl KeyLine {
    /// The line for a new key, and the key: made of 32 bytes that must be random.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub fn issue(name: &str, random: &[u8; 32]) -> Result<(Self, String), String> {
        let name = checked_name(name)?.to_owned();
        let key = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
        Ok((Self { name, hash: blake3::hash(key.as_bytes()) }, key))
    }

    fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(hash), None) = (words.next(), words.next(), words.next()) else {
            return Err("not a name and a hash".to_owned());
        };
        let name = checked_name(name)?.to_owned();
        // Not the value: somebody may have put the key itself there.
        let hash = Hash::from_hex(hash).map_err(|_| "the hash is not 64 hex digits".to_owned())?;
        Ok(Self { name, hash })
    }
}

impl std::fmt::Display for KeyLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.hash.to_hex())
    }
}

fn checked_name(name: &str) -> Result<&str, String> {
    let plain = name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.starts_with('#');
    if plain && (1..=PRINCIPAL_NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(name);
    }
    let most = PRINCIPAL_NAME_BYTES_MAX;
    Err(format!("a name is 1 to {most} visible ASCII characters and does not start with #"))
}

/// Reads a file of keys: lines of a name and a hash; empty ones and those that start with `#` say
/// nothing.
///
/// # Errors
/// Every line that is wrong, with its number.
pub fn parse(text: &str) -> Result<Vec<KeyLine>, Vec<String>> {
    let (mut lines, mut wrong) = (Vec::<KeyLine>::new(), Vec::new());
    for (at, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match KeyLine::parse(line) {
            Ok(new) if lines.iter().any(|line| line.hash == new.hash) => {
                wrong.push(format!("line {}: this key stands in an earlier line", at + 1));
            }
            Ok(new) => lines.push(new),
            Err(why) => wrong.push(format!("line {}: {why}", at + 1)),
        }
    }
    if wrong.is_empty() { Ok(lines) } else { Err(wrong) }
}

/// The keys that are known, for look-up.
#[derive(Debug, Default)]
pub struct Keys(Vec<(Hash, Rc<Principal>)>);

impl Keys {
    /// From the lines of a file.
    pub fn new(lines: &[KeyLine]) -> Self {
        let entry =
            |line: &KeyLine| (line.hash, Rc::new(Principal::new(Kind::ApiKey, &line.name, None)));
        let mut keys: Vec<_> = lines.iter().map(entry).collect();
        keys.sort_unstable_by_key(|(hash, _)| start(hash));
        Self(keys)
    }

    /// Whose key has this hash.
    pub fn find(&self, hash: &Hash) -> Option<&Rc<Principal>> {
        let wanted = start(hash);
        let first = self.0.partition_point(|(known, _)| start(known) < wanted);
        let alike = self.0[first..].iter().take_while(|(known, _)| start(known) == wanted);
        alike.filter(|(known, _)| known == hash).map(|(_, principal)| principal).next()
    }
}

fn start(hash: &Hash) -> u64 {
    let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    u64::from_be_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issued_key_is_known_by_its_line_alone() {
        let (line, key) = KeyLine::issue("alice", &[7; 32]).unwrap();
        assert!(key.starts_with("gl_") && key.len() == 3 + 43, "{key}");
        let text = format!("# keys\n\n  {line}  \n");
        assert!(!text.contains(&key));
        let lines = parse(&text).unwrap();
        assert_eq!(lines, [line]);
        let keys = Keys::new(&lines);
        let hash = |key: &str| blake3::hash(key.as_bytes());
        assert_eq!(&*keys.find(&hash(&key)).unwrap().name, "alice");
        for wrong in [&key[..45], &format!("{key}x"), &key.to_uppercase(), ""] {
            assert!(keys.find(&hash(wrong)).is_none(), "{wrong}");
        }
    }

    #[test]
    fn many_keys_are_told_apart() {
        let issue = |n: u8| KeyLine::issue(&format!("n{}", n % 100), &[n; 32]).unwrap();
        let (lines, secrets): (Vec<_>, Vec<_>) = (0..200).map(issue).unzip();
        let keys = Keys::new(&lines);
        for (n, key) in secrets.iter().enumerate() {
            let found = keys.find(&blake3::hash(key.as_bytes())).unwrap();
            assert_eq!(&*found.name, format!("n{}", n % 100));
        }
    }

    /// A key whose hash begins like a known one's is another key.
    #[test]
    fn all_bytes_of_a_hash_count() {
        let (line, _) = KeyLine::issue("a", &[1; 32]).unwrap();
        let mut bytes = *line.hash.as_bytes();
        bytes[31] ^= 1;
        let mut twin = line.clone();
        twin.hash = Hash::from_bytes(bytes);
        assert!(Keys::new(std::slice::from_ref(&line)).find(&twin.hash).is_none());
        twin.name = "b".into();
        let both = Keys::new(&[twin.clone(), line.clone()]);
        assert_eq!(&*both.find(&line.hash).unwrap().name, "a");
        assert_eq!(&*both.find(&twin.hash).unwrap().name, "b");
    }

    #[test]
    fn every_wrong_line_is_named_and_no_secret_is_repeated() {
        let (line, key) = KeyLine::issue("a", &[1; 32]).unwrap();
        let long = "n".repeat(65);
        let hash = line.hash.to_hex();
        let text = format!("{line}\nb {key}\n\nlonely\n{long} {hash}\nc {hash}\nd {hash} x\n");
        let wrong = parse(&text).unwrap_err();
        let numbers: Vec<_> = wrong.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(numbers, ["line 2", "line 4", "line 5", "line 6", "line 7"]);
        assert!(!wrong.join("\n").contains(&key));
        assert!(KeyLine::issue("two words", &[0; 32]).is_err());
        assert!(KeyLine::issue("", &[0; 32]).is_err());
        assert!(KeyLine::issue("#x", &[0; 32]).is_err());
    }
}
