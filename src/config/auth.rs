//! What requests have to bring: the settings under "Authentication".

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::check::Check;
use crate::auth::jwt::Rules;

/// What requests have to bring. It counts for the whole process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthConfig {
    /// The file of API keys (`auth::keys`).
    pub api_keys: Option<PathBuf>,
    /// Tokens of an issuer.
    pub tokens: Option<TokenConfig>,
    /// What is told of who gives tokens.
    pub metadata: Option<MetadataConfig>,
}

/// Which tokens are good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenConfig {
    /// Where the issuer's keys are.
    pub source: JwksSource,
    /// What a token has to say.
    pub rules: Rules,
}

/// Where an issuer's keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwksSource {
    /// A file.
    File(PathBuf),
    /// A URL: https, or http on this machine.
    Url(String),
}

/// What is told of who gives tokens (RFC 9728).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataConfig {
    /// The public URL before every path.
    pub base: String,
    /// The issuers.
    pub issuers: Vec<String>,
}

impl AuthConfig {
    /// Whether nobody is asked who is calling.
    pub fn is_open(&self) -> bool {
        self.api_keys.is_none() && self.tokens.is_none()
    }
}

/// Reads the words.
pub(super) fn check(check: &mut Check<'_>) -> AuthConfig {
    AuthConfig {
        api_keys: check.one("api-keys", None, "a file's path", |typed| file(typed).map(Some)),
        tokens: tokens(check),
        metadata: metadata(check),
    }
}

/// The options that mean nothing without the keys of an issuer.
const TOKEN_OPTIONS: [&str; 4] = ["jwt-issuer", "jwt-audience", "jwt-scopes", "jwt-leeway"];
const SOURCE_ALLOWED: &str =
    "a file's path, or a URL: https://, or http:// and an address of this machine";
const TEXT_ALLOWED: &str = "visible ASCII characters without quotes";
const ISSUER_ALLOWED: &str = "an https:// URL, or http:// and an address of this machine";
const LEEWAY_ALLOWED: &str = "a time from 0s to 10m";
const LEEWAY_MAX: Duration = Duration::from_secs(600);

fn tokens(check: &mut Check<'_>) -> Option<TokenConfig> {
    if check.words.one("jwt-jwks").is_none() {
        check.needless(&TOKEN_OPTIONS, "the keys of an issuer: --jwt-jwks FILE|URL");
        return None;
    }
    let source = check.one("jwt-jwks", None, SOURCE_ALLOWED, |typed| source(typed).map(Some));
    let issuer = check.one("jwt-issuer", None, TEXT_ALLOWED, |typed| plain(typed).map(Some));
    let audiences = check.all("jwt-audience", TEXT_ALLOWED, plain);
    let scopes = check.all("jwt-scopes", TEXT_ALLOWED, plain);
    let leeway = check.one("jwt-leeway", Duration::from_secs(30), LEEWAY_ALLOWED, |typed| {
        humantime::parse_duration(typed).ok().filter(|leeway| *leeway <= LEEWAY_MAX)
    });
    // A token that was meant for somebody else must not be good here (RFC 8725, section 3.9).
    for option in ["jwt-issuer", "jwt-audience"] {
        if check.words.one(option).is_none() {
            check.wrong.push(format!("--jwt-jwks needs --{option}: a token is for somebody"));
        }
    }
    Some(TokenConfig {
        source: source?,
        rules: Rules { issuer: issuer?, audiences, scopes, leeway },
    })
}

fn metadata(check: &mut Check<'_>) -> Option<MetadataConfig> {
    let issuers =
        check.all("oauth-issuer", ISSUER_ALLOWED, |typed| is_url(typed).then(|| typed.to_owned()));
    if issuers.is_empty() {
        return None;
    }
    let base = check.words.one("public-base").and_then(|given| given.value.to_str());
    match base.map(str::to_owned) {
        Some(base) => Some(MetadataConfig { base, issuers }),
        None => {
            let needed = "--oauth-issuer needs --public-base: clients are told the URL of the \
                          resource, and compare it";
            check.wrong.push(needed.to_owned());
            None
        }
    }
}

fn file(typed: &str) -> Option<PathBuf> {
    (!typed.is_empty() && !typed.contains('\0')).then(|| PathBuf::from(typed))
}

fn source(typed: &str) -> Option<JwksSource> {
    if typed.contains("://") {
        return is_url(typed).then(|| JwksSource::Url(typed.to_owned()));
    }
    file(typed).map(JwksSource::File)
}

/// Part of an answer's field: nothing that would end the quotes there.
fn plain(typed: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    (!typed.is_empty() && typed.bytes().all(plain)).then(|| typed.to_owned())
}

/// Where no TLS protects what comes, it must not leave the machine.
fn is_url(typed: &str) -> bool {
    let Some(typed) = plain(typed) else { return false };
    let (is_secure, rest) = match (typed.strip_prefix("https://"), typed.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return false,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || authority.contains('@') {
        return false;
    }
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_local =
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_secure || is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_tls_come_from_this_machine_alone() {
        for good in [
            "https://id.example/jwks.json",
            "http://127.0.0.1:9/keys",
            "http://localhost/keys",
            "http://[::1]:8080/",
        ] {
            assert_eq!(source(good), Some(JwksSource::Url(good.to_owned())), "{good}");
        }
        for bad in [
            "http://id.example/jwks.json",
            "http://127.0.0.1@evil.example/",
            "http://127.0.0.1.evil.example/",
            "http://localhost.evil.example/",
            "ftp://127.0.0.1/",
            "https://",
            "",
        ] {
            assert_eq!(source(bad), None, "{bad}");
        }
        assert_eq!(source("keys.json"), Some(JwksSource::File("keys.json".into())));
    }
}
