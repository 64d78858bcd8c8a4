//! Who is asking: the one place that a request's credentials are checked.
//!
//! A request names a bearer token (RFC 6750, section 2.1). Only its BLAKE3 hash is looked up or
//! kept. Where nothing is configured everybody is nobody, and nothing is looked at.
//!
//! Invariants:
//! * A [`Refusal`] says nothing of what was sent: no part of a token reaches an answer or a log.
//! * A principal's id depends on its kind and name alone: it is the same after a restart and with
//!   another key of the same name.

use std::rc::Rc;
use std::time::SystemTime;

use super::keys::{KeyLine, Keys};

/// What a principal was told apart by. Names of different kinds never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The name of an API key.
    ApiKey,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "api-key",
        }
    }
}

/// Somebody whose credentials were good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// A stable hash of kind and name, never 0.
    pub id: u64,
    /// The name, for the log.
    pub name: Box<str>,
    /// When the credentials end, if they do.
    pub expires: Option<SystemTime>,
}

impl Principal {
    /// Somebody of this name.
    pub fn new(kind: Kind, name: &str, expires: Option<SystemTime>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("gapless 2026 principal id");
        hasher.update(kind.name().as_bytes()).update(&[0]).update(name.as_bytes());
        let hash = hasher.finalize();
        let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        // 0 is nobody's.
        Self { id: u64::from_le_bytes(*first).max(1), name: name.into(), expires }
    }
}

/// Whoever asks; none where nobody has to say who he is.
pub type Who = Option<Rc<Principal>>;

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It brought no credentials that could be checked.
    Missing,
    /// It brought some that are not good, for this reason.
    Invalid(&'static str),
}

impl Refusal {
    /// The sentence in the answer and in the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Missing => "this server asks for a bearer token",
            Self::Invalid(reason) => reason,
        }
    }
}

/// What requests have to bring. One for each shard.
#[derive(Debug, Default)]
pub struct Gate {
    /// None: API keys are not asked for.
    keys: Option<Keys>,
}

impl Gate {
    /// A gate that lets in whoever has one of `keys`; without any such list, everybody.
    pub fn new(keys: Option<&[KeyLine]>) -> Self {
        Self { keys: keys.map(Keys::new) }
    }

    /// Who asks, by the `Authorization` lines of a request. `now` is asked only where credentials
    /// may have ended.
    ///
    /// # Errors
    /// [`Refusal`]: what the request is to be answered with.
    pub fn check<'a>(
        &self,
        authorization: impl Iterator<Item = &'a [u8]>,
        _now: impl FnOnce() -> SystemTime,
    ) -> Result<Who, Refusal> {
        let Some(keys) = &self.keys else { return Ok(None) };
        let token = bearer(authorization)?;
        let hash = blake3::hash(token);
        let known = keys.find(&hash).cloned();
        known.map(Some).ok_or(Refusal::Invalid("the bearer token is not known here"))
    }

    /// The value of `WWW-Authenticate` (RFC 6750, section 3).
    pub fn challenge(&self, refusal: Refusal) -> String {
        match refusal {
            // Without credentials there is no error to tell of (section 3.1).
            Refusal::Missing => "Bearer realm=\"mcp\"".to_owned(),
            Refusal::Invalid(reason) => format!(
                "Bearer realm=\"mcp\", error=\"invalid_token\", error_description=\"{reason}\""
            ),
        }
    }
}

/// The token of the one `Authorization` line. Another scheme counts as none: its client has to
/// learn which one is asked for.
fn bearer<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Result<&'a [u8], Refusal> {
    let Some(line) = lines.next() else { return Err(Refusal::Missing) };
    if lines.next().is_some() {
        return Err(Refusal::Invalid("the request has two Authorization fields"));
    }
    let (scheme, token) = match line.iter().position(|&byte| byte == b' ') {
        Some(at) => (&line[..at], line[at..].trim_ascii()),
        None => (line, &[][..]),
    };
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Err(Refusal::Missing);
    }
    // RFC 6750, section 2.1: b64token.
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if token.is_empty() || !token.iter().all(plain) {
        return Err(Refusal::Invalid("the bearer token is malformed"));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(gate: &Gate, lines: &[&str]) -> Result<Who, Refusal> {
        gate.check(lines.iter().map(|line| line.as_bytes()), || SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn an_open_gate_looks_at_nothing() {
        let gate = Gate::new(None);
        for lines in [&[][..], &["Bearer x"], &["Bearer x", "Basic y"], &[""]] {
            assert_eq!(check(&gate, lines), Ok(None));
        }
    }

    /// An empty file of keys is no open door.
    #[test]
    fn without_a_key_nobody_gets_in() {
        let gate = Gate::new(Some(&[]));
        assert_eq!(check(&gate, &[]), Err(Refusal::Missing));
        assert!(matches!(check(&gate, &["Bearer gl_x"]), Err(Refusal::Invalid(_))));
    }

    #[test]
    fn a_known_key_is_its_principal_in_every_spelling_of_the_scheme() {
        let (line, key) = KeyLine::issue("alice", &[1; 32]).unwrap();
        let (second, other) = KeyLine::issue("alice", &[2; 32]).unwrap();
        let gate = Gate::new(Some(&[line, second]));
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let who = check(&gate, &[&format!("{scheme} {key}")]).unwrap().unwrap();
            assert_eq!((&*who.name, who.expires), ("alice", None));
            assert_eq!(who.id, Principal::new(Kind::ApiKey, "alice", None).id);
        }
        let who = check(&gate, &[&format!("Bearer   {other}")]).unwrap().unwrap();
        assert_eq!(&*who.name, "alice");
        let line = format!("Bearer {key}");
        for (lines, missing) in [
            (vec![], true),
            (vec!["Basic YTpi"], true),
            (vec![key.as_str()], true),
            (vec![""], true),
            (vec!["Bearer"], false),
            (vec!["Bearer "], false),
            (vec!["Bearer a b"], false),
            (vec!["Bearer gl_\"quoted\""], false),
            (vec![line.as_str(), line.as_str()], false),
        ] {
            let refusal = check(&gate, &lines).unwrap_err();
            assert_eq!(refusal == Refusal::Missing, missing, "{lines:?}");
            assert_eq!(gate.challenge(refusal).contains("invalid_token"), !missing);
        }
    }

    #[test]
    fn ids_are_stable_and_differ() {
        let id = |name: &str| Principal::new(Kind::ApiKey, name, None).id;
        // In data directories: it must never change.
        assert_eq!(id("alice"), ALICE);
        assert_ne!(id("alice"), id("bob"));
        assert_ne!(id(""), 0);
    }
    const ALICE: u64 = 5_008_341_061_531_801_641;
}
