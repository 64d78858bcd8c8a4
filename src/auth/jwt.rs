//! JSON Web Tokens as bearer tokens (RFC 7519, RFC 9068): signature, issuer, audience, time, scope.
//!
//! Invariants: the algorithm is one that the key is for, never what the token alone says; a token
//! without `exp` is refused; what is checked is checked against the `now` that is passed in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Validation, decode, decode_header};
use serde::Deserialize;

use super::gate::{Kind, Principal};
use super::jwks::KeySet;
use crate::limits::{PRINCIPAL_NAME_BYTES_MAX, TOKEN_SUBJECT_BYTES_MAX};

/// What a token has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `iss`, exactly.
    pub issuer: String,
    /// One of these is in `aud`.
    pub audiences: Vec<String>,
    /// All of these are in `scope` or `scp`.
    pub scopes: Vec<String>,
    /// How far clocks may be apart.
    pub leeway: Duration,
}

/// Why a token is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Its key is not known, or not yet.
    UnknownKey,
    /// For this reason.
    Because(&'static str),
    /// It is good, and does not reach as far as is asked for.
    Scope,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: OneOrMore,
    exp: f64,
    nbf: Option<f64>,
    scope: Option<OneOrMore>,
    scp: Option<OneOrMore>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let all = match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        };
        all.iter().map(String::as_str)
    }
}

impl Rules {
    /// Whose token it is, and until when.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, keys: &KeySet, token: &[u8], now: SystemTime) -> Result<Principal, Wrong> {
        let header =
            decode_header(token).map_err(|_| Wrong::Because("the bearer token is malformed"))?;
        // RFC 7515, section 4.1.11: whoever does not understand what is critical must refuse.
        if header.crit.is_some() {
            return Err(Wrong::Because("the token asks for an extension that is not known"));
        }
        let mut fitting = keys.fitting(header.kid.as_deref(), header.alg).peekable();
        if fitting.peek().is_none() {
            return Err(Wrong::UnknownKey);
        }
        let mut signature_only = Validation::new(header.alg);
        signature_only.required_spec_claims.clear();
        signature_only.validate_exp = false;
        signature_only.validate_aud = false;
        let claims = fitting
            .find_map(|key| decode::<Claims>(token, &key.key, &signature_only).ok())
            .ok_or(Wrong::Because("the token's signature or claims are not good"))?;
        self.check_claims(&claims.claims, now)
    }

    fn check_claims(&self, claims: &Claims, now: SystemTime) -> Result<Principal, Wrong> {
        let because = |reason| Err(Wrong::Because(reason));
        if claims.iss != self.issuer {
            return because("the token is of another issuer");
        }
        if !claims.aud.iter().any(|aud| self.audiences.iter().any(|ours| ours == aud)) {
            return because("the token is for another audience");
        }
        let expires = time(claims.exp)
            .and_then(|at| at.checked_add(self.leeway))
            .ok_or(Wrong::Because("the token's exp is no time"))?;
        if expires <= now {
            return because("the token has expired");
        }
        if let Some(begins) = claims.nbf {
            let latest = now.checked_add(self.leeway);
            if time(begins).is_none_or(|begins| latest.is_some_and(|latest| begins > latest)) {
                return because("the token is not valid yet");
            }
        }
        if claims.sub.is_empty() || claims.sub.len() > TOKEN_SUBJECT_BYTES_MAX {
            return because("the token's sub is empty or too long");
        }
        let granted: Vec<&str> = [&claims.scope, &claims.scp]
            .into_iter()
            .flatten()
            .flat_map(|scopes| scopes.iter().flat_map(str::split_ascii_whitespace))
            .collect();
        if !self.scopes.iter().all(|scope| granted.contains(&scope.as_str())) {
            return Err(Wrong::Scope);
        }
        let whole = format!("{}\0{}", claims.iss, claims.sub);
        let mut principal = Principal::new(Kind::Token, &whole, Some(expires));
        principal.name = printable(&claims.sub);
        Ok(principal)
    }
}

/// Seconds since 1970 (RFC 7519, section 2), which may have a fraction.
fn time(seconds: f64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

/// A subject in a log line: it is the issuer's text, not ours.
fn printable(subject: &str) -> Box<str> {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    subject.chars().take(PRINCIPAL_NAME_BYTES_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::jwk::Jwk;
    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
    use serde_json::{Value, json};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// A key pair of P-256 (PKCS #8, RFC 5958, around RFC 5915).
    fn key(seed: u8) -> EncodingKey {
        let mut der = vec![0x30, 0x41, 2, 1, 0, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2];
        der.extend([1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7, 4, 0x27, 0x30, 0x25]);
        der.extend([2, 1, 1, 4, 0x20]);
        der.extend([seed; 32]);
        EncodingKey::from_ec_der(&der)
    }

    fn set(keys: &[(&str, u8)]) -> (KeySet, Value) {
        let jwks: Vec<Value> = keys
            .iter()
            .map(|(id, seed)| {
                let jwk = Jwk::from_encoding_key(&key(*seed), Algorithm::ES256).unwrap();
                let mut jwk = serde_json::to_value(jwk).unwrap();
                jwk["kid"] = json!(id);
                jwk
            })
            .collect();
        let document = json!({ "keys": jwks });
        (KeySet::parse(document.to_string().as_bytes()).unwrap(), document)
    }

    fn sign(kid: Option<&str>, seed: u8, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = kid.map(str::to_owned);
        encode(&header, claims, &key(seed)).unwrap()
    }

    fn rules() -> Rules {
        Rules {
            issuer: "https://id.example".into(),
            audiences: vec!["mcp".into(), "other".into()],
            scopes: vec!["tools".into()],
            leeway: Duration::from_secs(30),
        }
    }

    fn good() -> Value {
        json!({"iss": "https://id.example", "aud": "mcp", "sub": "alice", "exp": NOW + 60,
               "scope": "read tools"})
    }

    fn check(token: &str) -> Result<Principal, Wrong> {
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        rules().check(&set(&[("a", 1), ("b", 2)]).0, token.as_bytes(), now)
    }

    #[test]
    fn a_good_token_is_its_subject_until_it_ends() {
        let alice = check(&sign(Some("a"), 1, &good())).unwrap();
        assert_eq!(&*alice.name, "alice");
        let ends = UNIX_EPOCH + Duration::from_secs(NOW + 90);
        assert_eq!(alice.expires, Some(ends));
        // Signed by another key of the set, and without a key's id: the same person.
        for token in [sign(Some("b"), 2, &good()), sign(None, 2, &good())] {
            assert_eq!(check(&token).unwrap().id, alice.id);
        }
        assert_ne!(alice.id, Principal::new(Kind::ApiKey, "alice", None).id);
        let mut many = good();
        many["aud"] = json!(["x", "other"]);
        many["scope"] = json!(null);
        many["scp"] = json!(["tools"]);
        many["sub"] = json!("li\nne");
        assert_eq!(&*check(&sign(Some("a"), 1, &many)).unwrap().name, "li_ne");
    }

    #[test]
    fn every_wrong_claim_is_refused() {
        let long = "s".repeat(TOKEN_SUBJECT_BYTES_MAX + 1);
        for (claim, value, scope) in [
            ("iss", json!("https://evil.example"), false),
            ("iss", json!(null), false),
            ("aud", json!("x"), false),
            ("aud", json!([]), false),
            ("aud", json!(null), false),
            ("sub", json!(null), false),
            ("sub", json!(""), false),
            ("sub", json!(long), false),
            ("exp", json!(NOW - 30), false),
            ("exp", json!(null), false),
            ("exp", json!("soon"), false),
            ("exp", json!(-1), false),
            ("nbf", json!(NOW + 31), false),
            ("scope", json!("toolsx tool"), true),
            ("scope", json!(null), true),
        ] {
            let mut claims = good();
            claims[claim] = value;
            let wrong = check(&sign(Some("a"), 1, &claims)).unwrap_err();
            assert_eq!(wrong == Wrong::Scope, scope, "{claims}: {wrong:?}");
            assert_ne!(wrong, Wrong::UnknownKey, "{claims}");
        }
        for (claim, value) in [("exp", NOW - 29), ("nbf", NOW + 30)] {
            let mut claims = good();
            claims[claim] = json!(value);
            assert!(check(&sign(Some("a"), 1, &claims)).is_ok(), "{claims}: clocks differ");
        }
    }

    #[test]
    fn a_signature_counts_for_its_key_and_algorithm_alone() {
        let good = sign(Some("a"), 1, &good());
        assert_eq!(check(&sign(Some("c"), 1, &self::good())), Err(Wrong::UnknownKey));
        assert!(matches!(check(&sign(Some("b"), 1, &self::good())), Err(Wrong::Because(_))));
        let (head, rest) = good.split_once('.').unwrap();
        let (body, signature) = rest.split_once('.').unwrap();
        let other = sign(Some("a"), 1, &json!({"sub": "eve"}));
        let others = other.split('.').nth(1).unwrap();
        for forged in [
            format!("{head}.{others}.{signature}"),
            format!("{head}.{body}."),
            format!("{head}.{body}.{}", &signature[2..]),
            format!("eyJhbGciOiJub25lIn0.{body}."),
            format!("{head}.{body}"),
            "..".into(),
            String::new(),
        ] {
            assert!(check(&forged).is_err(), "{forged}");
        }
        // The public key as the secret of a symmetric algorithm.
        let (_, document) = set(&[("a", 1)]);
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("a".into());
        let x = document["keys"][0]["x"].as_str().unwrap();
        let secret = EncodingKey::from_base64_secret(x)
            .unwrap_or_else(|_| EncodingKey::from_secret(x.as_bytes()));
        let confused = encode(&header, &self::good(), &secret).unwrap();
        assert_eq!(check(&confused), Err(Wrong::UnknownKey));
    }
}
