//! The keys of a token issuer (JSON Web Key Set, RFC 7517), and how they reach the shards.
//!
//! Invariant: only public keys of asymmetric algorithms are kept. A symmetric one would let
//! whoever can read the set make tokens.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use crate::limits::JWKS_KEYS_MAX;

/// One key that may have signed a token.
pub struct Key {
    /// Its id, if it has one.
    pub id: Option<String>,
    /// What it may be used with.
    pub algorithms: Vec<Algorithm>,
    /// The key.
    pub key: DecodingKey,
}

/// The keys of one document.
#[derive(Default)]
pub struct KeySet(pub Vec<Key>);

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a document. Keys of other kinds and for other uses are passed over (RFC 7517,
    /// section 5).
    ///
    /// # Errors
    /// It is no such document, has too many keys, or none that can be used.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        let document: Document =
            serde_json::from_slice(document).map_err(|error| format!("no JWKS: {error}"))?;
        if document.keys.len() > JWKS_KEYS_MAX {
            return Err(format!("a JWKS of more than {JWKS_KEYS_MAX} keys"));
        }
        let keys: Vec<Key> = document.keys.into_iter().filter_map(usable).collect();
        if keys.is_empty() {
            return Err("a JWKS without a key that can be used".to_owned());
        }
        Ok(Self(keys))
    }

    /// The keys that may have signed a token with this header.
    pub fn fitting(&self, id: Option<&str>, algorithm: Algorithm) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(move |key| {
            key.algorithms.contains(&algorithm) && id.is_none_or(|id| key.id.as_deref() == Some(id))
        })
    }
}

fn usable(key: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(key).ok()?;
    if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return None;
    }
    let possible = algorithms(&jwk.algorithm);
    let algorithms = match jwk.common.key_algorithm {
        None => possible,
        Some(named) => {
            let named = algorithm(named)?;
            possible.into_iter().filter(|possible| *possible == named).collect()
        }
    };
    if algorithms.is_empty() {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some(Key { id: jwk.common.key_id, algorithms, key })
}

/// What a key of this kind can be used with (RFC 7518, section 3.1; RFC 8037).
fn algorithms(kind: &AlgorithmParameters) -> Vec<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match kind {
        AlgorithmParameters::RSA(_) => vec![RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => vec![ES256],
            EllipticCurve::P384 => vec![ES384],
            _ => Vec::new(),
        },
        AlgorithmParameters::OctetKeyPair(pair) => match pair.curve {
            EllipticCurve::Ed25519 => vec![EdDSA],
            _ => Vec::new(),
        },
        AlgorithmParameters::OctetKey(_) => Vec::new(),
    }
}

fn algorithm(named: KeyAlgorithm) -> Option<Algorithm> {
    named.to_string().parse().ok()
}

/// What the fetcher is doing.
const READY: u8 = 0;
const WANTED: u8 = 1;
const RESTING: u8 = 2;

/// The newest keys, where every shard finds them. A fetcher on a thread of its own renews them.
pub struct Published {
    current: Mutex<Arc<KeySet>>,
    generation: AtomicU64,
    state: AtomicU8,
    bell: SyncSender<()>,
}

impl Published {
    /// These keys; `bell` wakes the fetcher.
    pub fn new(first: KeySet, bell: SyncSender<()>) -> Self {
        Self {
            current: Mutex::new(Arc::new(first)),
            generation: AtomicU64::new(0),
            state: AtomicU8::new(READY),
            bell,
        }
    }

    /// The newest keys. Behind a lock, and so for tokens that have not been checked before.
    pub fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes whenever the keys do.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A key was asked for that is not there. Whether it is being looked for: then the request may
    /// be checked again once that is over.
    pub fn look(&self) -> bool {
        let ready = self.state.compare_exchange(READY, WANTED, Ordering::AcqRel, Ordering::Acquire);
        match ready {
            Ok(_) => {
                // Full: it has been woken already.
                let _ = self.bell.try_send(());
                true
            }
            Err(state) => state == WANTED,
        }
    }

    /// Whether somebody waits for the fetcher.
    pub fn is_wanted(&self) -> bool {
        self.state.load(Ordering::Acquire) == WANTED
    }

    /// The fetcher has tried: with new keys where there are some, else the old ones stay. Until
    /// [`Published::handle_rested`] it is not asked again.
    pub fn handle_fetched(&self, keys: Option<KeySet>) {
        if let Some(keys) = keys {
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        self.state.store(RESTING, Ordering::Release);
    }

    /// The fetcher may be asked again.
    pub fn handle_rested(&self) {
        self.state.store(READY, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    #[test]
    fn only_public_signing_keys_are_taken() {
        let document = format!(
            r#"{{"keys":[
              {{"kty":"oct","k":"c2VjcmV0","kid":"symmetric"}},
              {{"kty":"oct","k":"c2VjcmV0","alg":"HS256","kid":"hs"}},
              {{"kty":"OKP","crv":"Ed25519","x":"{X}","use":"enc","kid":"enc"}},
              {{"kty":"OKP","crv":"Ed25519","x":"{X}","alg":"HS256","kid":"confused"}},
              {{"kty":"XYZ","kid":"unknown"}},
              {{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"r"}},
              {{"kty":"OKP","crv":"Ed25519","x":"{X}","use":"sig","kid":"e"}}]}}"#
        );
        let set = KeySet::parse(document.as_bytes()).unwrap();
        let ids: Vec<_> = set.0.iter().map(|key| key.id.as_deref().unwrap()).collect();
        assert_eq!(ids, ["r", "e"]);
        assert_eq!(set.fitting(Some("e"), Algorithm::EdDSA).count(), 1);
        assert_eq!(set.fitting(Some("e"), Algorithm::RS256).count(), 0);
        assert_eq!(set.fitting(Some("x"), Algorithm::RS256).count(), 0);
        assert_eq!(set.fitting(None, Algorithm::RS256).count(), 1);
        for wrong in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AA"}]}"#] {
            assert!(KeySet::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let many = vec![r#"{"kty":"oct","k":"AA"}"#; JWKS_KEYS_MAX + 1].join(",");
        assert!(KeySet::parse(format!(r#"{{"keys":[{many}]}}"#).as_bytes()).is_err());
    }

    /// Whoever sends tokens of unknown keys makes the fetcher work once, not once each.
    #[test]
    fn unknown_keys_ring_once_until_the_fetcher_has_rested() {
        let (bell, rung) = std::sync::mpsc::sync_channel(1);
        let published = Published::new(KeySet::default(), bell);
        assert!(published.look() && published.look() && published.is_wanted());
        assert!(rung.try_recv().is_ok() && rung.try_recv().is_err());
        published.handle_fetched(None);
        assert!(!published.look() && !published.is_wanted());
        assert_eq!(published.generation(), 0);
        published.handle_rested();
        assert!(published.look() && rung.try_recv().is_ok());
        published.handle_fetched(Some(KeySet::default()));
        assert_eq!(published.generation(), 1);
    }
}
