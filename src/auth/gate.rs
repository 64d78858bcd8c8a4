//! Who is asking: the one place that a request's credentials are checked.
//!
//! A request names a bearer token (RFC 6750, section 2.1). Only its BLAKE3 hash is looked up or
//! kept. Where nothing is configured everybody is nobody, and nothing is looked at.
//!
//! Invariants:
//! * A [`Refusal`] says nothing of what was sent: no part of a token reaches an answer or a log.
//! * A principal's id depends on its kind and name alone: it is the same after a restart and with
//!   another key of the same name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use blake3::Hash;

use super::jwks::Published;
use super::jwt::{Rules, Wrong};
use super::keys::{KeyLine, Keys};
use crate::limits::CHECKED_TOKENS_MAX;

/// What a principal was told apart by. Names of different kinds never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The name of an API key.
    ApiKey,
    /// Issuer and subject of a token.
    Token,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "api-key",
            Self::Token => "token",
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
    /// They are good, and not for what is asked for.
    Scope,
    /// They may be good: their issuer is being asked. To be checked again.
    Later,
}

impl Refusal {
    /// The sentence in the answer and in the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Missing => "this server asks for a bearer token",
            Self::Invalid(reason) => reason,
            Self::Scope => "the token lacks a scope that this server asks for",
            Self::Later => "the token's key is not known here yet",
        }
    }
}

/// What requests have to bring. One for each shard.
#[derive(Default)]
pub struct Gate {
    /// None: API keys are not asked for.
    keys: Option<Keys>,
    /// None: tokens of an issuer are not asked for.
    tokens: Option<Tokens>,
    /// Where a client learns who gives tokens (RFC 9728, section 5.1).
    metadata: Vec<Box<str>>,
}

impl Gate {
    /// A gate that lets in whoever has one of `keys` or a token that `tokens` finds good; without
    /// either, everybody. Challenges name the URL of the server's
    /// `metadata`, where there is one.
    pub fn new(keys: Option<&[KeyLine]>, tokens: Option<Tokens>, metadata: Vec<Box<str>>) -> Self {
        Self { keys: keys.map(Keys::new), tokens, metadata }
    }

    /// Who asks, by the `Authorization` lines of a request. `now` is asked only where credentials
    /// may have ended.
    ///
    /// # Errors
    /// [`Refusal`]: what the request is to be answered with.
    pub fn check<'a>(
        &self,
        authorization: impl Iterator<Item = &'a [u8]>,
        now: impl FnOnce() -> SystemTime,
    ) -> Result<Who, Refusal> {
        if self.keys.is_none() && self.tokens.is_none() {
            return Ok(None);
        }
        let token = bearer(authorization)?;
        let hash = blake3::hash(token);
        if let Some(known) = self.keys.as_ref().and_then(|keys| keys.find(&hash)) {
            return Ok(Some(Rc::clone(known)));
        }
        match &self.tokens {
            // Only a token has dots.
            Some(tokens) if token.contains(&b'.') => tokens.check(token, &hash, now()).map(Some),
            _ => Err(Refusal::Invalid("the bearer token is not known here")),
        }
    }

    /// The keys that a request waits for when it is told [`Refusal::Later`].
    pub fn published(&self) -> Option<&Published> {
        self.tokens.as_ref().map(|tokens| &*tokens.published)
    }

    /// The value of `WWW-Authenticate` (RFC 6750, section 3) for a server, by its place in the
    /// configuration.
    pub fn challenge(&self, server: u16, refusal: Refusal) -> String {
        let mut value = "Bearer realm=\"mcp\"".to_owned();
        let mut add = |name: &str, text: &str| {
            value.extend([", ", name, "=\"", text, "\""]);
        };
        match refusal {
            // Without credentials there is no error to tell of (section 3.1).
            Refusal::Missing => {}
            Refusal::Invalid(_) | Refusal::Later => {
                add("error", "invalid_token");
                add("error_description", refusal.reason());
            }
            Refusal::Scope => add("error", "insufficient_scope"),
        }
        if let Some(tokens) = &self.tokens
            && !tokens.rules.scopes.is_empty()
        {
            add("scope", &tokens.rules.scopes.join(" "));
        }
        if let Some(url) = self.metadata.get(usize::from(server)) {
            add("resource_metadata", url);
        }
        value
    }
}

/// Tokens of an issuer, and which of them have been found good.
pub struct Tokens {
    rules: Arc<Rules>,
    published: Arc<Published>,
    checked: RefCell<Checked>,
}

/// By the hash of the token; only of the keys of this generation.
#[derive(Default)]
struct Checked {
    generation: u64,
    good: HashMap<Hash, Rc<Principal>>,
}

impl Tokens {
    /// Tokens by these rules, signed with these keys.
    pub fn new(rules: Arc<Rules>, published: Arc<Published>) -> Self {
        Self { rules, published, checked: RefCell::default() }
    }

    fn check(&self, token: &[u8], hash: &Hash, now: SystemTime) -> Result<Rc<Principal>, Refusal> {
        let mut checked = self.checked.borrow_mut();
        let generation = self.published.generation();
        if checked.generation != generation {
            // A key that is not published any more takes its tokens with it.
            *checked = Checked { generation, good: HashMap::new() };
        }
        let is_good = |known: &Principal| known.expires.is_none_or(|end| now < end);
        if let Some(known) = checked.good.get(hash) {
            return match is_good(known) {
                true => Ok(Rc::clone(known)),
                false => Err(Refusal::Invalid("the token has expired")),
            };
        }
        match self.rules.check(&self.published.current(), token, now) {
            Ok(principal) => {
                let principal = Rc::new(principal);
                if checked.good.len() >= CHECKED_TOKENS_MAX {
                    checked.good.retain(|_, known| is_good(known));
                }
                if checked.good.len() >= CHECKED_TOKENS_MAX {
                    checked.good.clear();
                }
                checked.good.insert(*hash, Rc::clone(&principal));
                Ok(principal)
            }
            Err(Wrong::Because(reason)) => Err(Refusal::Invalid(reason)),
            Err(Wrong::Scope) => Err(Refusal::Scope),
            Err(Wrong::UnknownKey) if self.published.look() => Err(Refusal::Later),
            Err(Wrong::UnknownKey) => Err(Refusal::Invalid("the token's key is not known here")),
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
        let gate = Gate::new(None, None, Vec::new());
        for lines in [&[][..], &["Bearer x"], &["Bearer x", "Basic y"], &[""]] {
            assert_eq!(check(&gate, lines), Ok(None));
        }
    }

    /// An empty file of keys is no open door.
    #[test]
    fn without_a_key_nobody_gets_in() {
        let gate = Gate::new(Some(&[]), None, Vec::new());
        assert_eq!(check(&gate, &[]), Err(Refusal::Missing));
        assert!(matches!(check(&gate, &["Bearer gl_x"]), Err(Refusal::Invalid(_))));
    }

    #[test]
    fn a_known_key_is_its_principal_in_every_spelling_of_the_scheme() {
        let (line, key) = KeyLine::issue("alice", &[1; 32]).unwrap();
        let (second, other) = KeyLine::issue("alice", &[2; 32]).unwrap();
        let gate = Gate::new(Some(&[line, second]), None, Vec::new());
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
            assert_eq!(gate.challenge(0, refusal).contains("invalid_token"), !missing);
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
