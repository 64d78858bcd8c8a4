//! `Origin` and `Host`: the protection against DNS rebinding (MCP 2025-11-25, Transports,
//! Security Warning 1).
//!
//! * What is present is compared whole: scheme, host and port (RFC 6454 section 5). No prefix, no
//!   suffix, no pattern; what does not parse as a bare origin is refused.
//! * A page served from a rebound name sends no `Origin` with a same-origin GET. So a listener on
//!   loopback also demands a `Host` that names this machine.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::borrow::Cow;

/// Which origins and hosts are served; built once from the configuration.
#[derive(Clone, Debug)]
pub struct OriginPolicy {
    /// Every listener is on a loopback address, so every legitimate peer is on this machine.
    loopback: bool,
    origins: Vec<Origin<'static>>,
    hosts: Vec<Authority<'static>>,
}

impl OriginPolicy {
    /// The policy for listeners at `listen` with further allowed `origins` (`scheme://host[:port]`)
    /// and `hosts` (`host[:port]`; without a port, any). The error names each entry that is
    /// neither.
    ///
    /// Loopback rules hold where all of `listen` is loopback: a wildcard or public address is
    /// meant to be reached under other names.
    pub fn new(
        listen: &[SocketAddr],
        origins: &[String],
        hosts: &[String],
    ) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        let mut policy = Self {
            loopback: !listen.is_empty() && listen.iter().all(|at| at.ip().is_loopback()),
            origins: Vec::new(),
            hosts: Vec::new(),
        };
        for text in origins {
            match Origin::parse(text) {
                Some(origin) => policy.origins.push(origin.into_owned()),
                None => wrong.push(format!("not an origin (scheme://host[:port]): {text:?}")),
            }
        }
        for text in hosts {
            match Authority::parse(text) {
                Some(host) => policy.hosts.push(host.into_owned()),
                None => wrong.push(format!("not a host (host[:port]): {text:?}")),
            }
        }
        if wrong.is_empty() { Ok(policy) } else { Err(wrong) }
    }

    /// Whether a request with these `Origin` lines is served. Without one it is: only browsers
    /// send it. With several it is not: no browser does that.
    pub fn allows_origin<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>) -> bool {
        let Some(value) = values.next() else { return true };
        if values.next().is_some() {
            return false;
        }
        let Some(origin) = std::str::from_utf8(value).ok().and_then(Origin::parse) else {
            return false;
        };
        let local = self.loopback
            && matches!(&*origin.scheme, "http" | "https")
            && matches!(&*origin.authority.host, "localhost" | "127.0.0.1" | "[::1]");
        local || self.origins.contains(&origin)
    }

    /// Whether a request with this `Host` is served. It counts on a loopback listener, where it
    /// must be `localhost`, in 127.0.0.0/8, `[::1]` or allowed, and wherever hosts are listed.
    /// Where it counts, an absent one is refused.
    pub fn allows_host(&self, value: Option<&[u8]>) -> bool {
        if !self.loopback && self.hosts.is_empty() {
            return true;
        }
        let text = value.and_then(|value| std::str::from_utf8(value).ok());
        let Some(host) = text.and_then(Authority::parse) else { return false };
        (self.loopback && host.is_loopback())
            || self.hosts.iter().any(|allowed| {
                allowed.host == host.host && (allowed.port.is_none() || allowed.port == host.port)
            })
    }
}

/// An origin in comparable form: scheme and host in lower case, the port never left to a default
/// that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin<'a> {
    scheme: Cow<'a, str>,
    authority: Authority<'a>,
}

impl<'a> Origin<'a> {
    /// `scheme://host[:port]` and nothing more, as a browser serializes it (RFC 6454 section 6.2);
    /// `null` is none.
    fn parse(text: &'a str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let starts = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if !starts || !scheme.chars().all(is_scheme) {
            return None;
        }
        let scheme = lower_case(scheme);
        let mut authority = Authority::parse(authority)?;
        authority.port = authority.port.or(match &*scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        });
        Some(Self { scheme, authority })
    }

    fn into_owned(self) -> Origin<'static> {
        Origin {
            scheme: Cow::Owned(self.scheme.into_owned()),
            authority: self.authority.into_owned(),
        }
    }
}

/// A host, in lower case, IPv6 in brackets and in its one canonical form, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority<'a> {
    host: Cow<'a, str>,
    port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// `host[:port]` without user information (RFC 9110 section 7.2). Names are held to letters,
    /// digits, `-`, `_` and `.`: what DNS and browsers send, and none of `@`, `/`, `%`, `*`.
    fn parse(text: &'a str) -> Option<Self> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(inner) => {
                let (address, rest) = inner.split_once(']')?;
                let address: Ipv6Addr = address.parse().ok()?;
                (Cow::Owned(format!("[{address}]")), rest)
            }
            None => {
                let (name, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                if name.is_empty() || !name.chars().all(is_name) {
                    return None;
                }
                (lower_case(name), rest)
            }
        };
        let port = match rest.strip_prefix(':') {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            None if rest.is_empty() => None,
            _ => return None,
        };
        Some(Self { host, port })
    }

    fn is_loopback(&self) -> bool {
        matches!(&*self.host, "localhost" | "[::1]")
            || self.host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
    }

    fn into_owned(self) -> Authority<'static> {
        Authority { host: Cow::Owned(self.host.into_owned()), port: self.port }
    }
}

fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(listen: &str, origins: &[&str], hosts: &[&str]) -> OriginPolicy {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        OriginPolicy::new(&[listen.parse().unwrap()], &owned(origins), &owned(hosts)).unwrap()
    }

    fn origin(policy: &OriginPolicy, value: &str) -> bool {
        policy.allows_origin(std::iter::once(value.as_bytes()))
    }

    fn host(policy: &OriginPolicy, value: &str) -> bool {
        policy.allows_host(Some(value.as_bytes()))
    }

    #[test]
    fn a_loopback_listener_serves_pages_of_this_machine_only() {
        for listen in ["127.0.0.1:8080", "[::1]:8080", "127.0.0.5:80"] {
            let policy = policy(listen, &[], &[]);
            for good in [
                "HTTP://LOCALHOST:8080",
                "http://127.0.0.1:8080",
                "http://localhost",
                "https://localhost:5173",
                "http://[::1]:3000",
                "http://[0:0:0:0:0:0:0:1]",
            ] {
                assert!(origin(&policy, good), "{good}");
            }
            for bad in [
                "http://evil.example",
                "null",
                "",
                "http://localhost.evil.example",
                "http://localhost@evil.example",
                "http://evil.example@localhost",
                "http://localhost:80@evil.example",
                "http://localhost/",
                "http://localhost/evil",
                "http://localhost:8080:9",
                "http://localhost:",
                "http://localhost:+80",
                "http://localhost:99999",
                "http://localhost ",
                "http://localhost, http://localhost",
                "http://127.0.0.1.evil.example",
                "http://127.1",
                "http://xlocalhost",
                "http://localhost.",
                "http://[::2]",
                "http://[::1",
                "http://[::1]x",
                "ftp://localhost",
                "file://",
                "localhost",
                "http:localhost",
                "http://",
            ] {
                assert!(!origin(&policy, bad), "{bad}");
            }
        }
    }

    #[test]
    fn an_absent_origin_is_served_and_two_are_not() {
        let policy = policy("127.0.0.1:80", &[], &[]);
        assert!(policy.allows_origin(std::iter::empty()));
        assert!(!policy.allows_origin([&b"http://localhost"[..]; 2].into_iter()));
        assert!(!policy.allows_origin(std::iter::once(&b"http://\xff"[..])));
    }

    #[test]
    fn a_listed_origin_is_compared_whole() {
        let policy = policy(
            "0.0.0.0:80",
            &["https://App.example", "vscode-webview://x1", "http://b:8"],
            &[],
        );
        for good in
            ["https://app.example", "https://app.example:443", "vscode-webview://x1", "http://B:8"]
        {
            assert!(origin(&policy, good), "{good}");
        }
        for bad in [
            "http://app.example",
            "https://app.example:444",
            "https://app.example.evil",
            "https://sub.app.example",
            "https://app.exampl",
            "http://b",
            "http://localhost",
            "vscode-webview://x12",
        ] {
            assert!(!origin(&policy, bad), "{bad}");
        }
    }

    #[test]
    fn a_foreign_host_is_refused_on_loopback() {
        let policy = policy("127.0.0.1:8080", &[], &["gateway.internal", "exact.internal:8080"]);
        for good in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:1",
            "127.8.9.1",
            "[::1]:8080",
            "gateway.internal",
            "GATEWAY.internal:99",
            "exact.internal:8080",
        ] {
            assert!(host(&policy, good), "{good}");
        }
        for bad in [
            "evil.example:8080",
            "localhost.evil.example",
            "localhost@evil.example",
            "127.0.0.1.evil.example",
            "128.0.0.1",
            "[::2]",
            "exact.internal",
            "exact.internal:80",
            "",
            ":80",
            "localhost:x",
        ] {
            assert!(!host(&policy, bad), "{bad}");
        }
        assert!(!policy.allows_host(None));
    }

    #[test]
    fn a_public_listener_checks_hosts_only_where_some_are_listed() {
        assert!(host(&policy("0.0.0.0:80", &[], &[]), "any.example"));
        assert!(policy("[::]:80", &[], &[]).allows_host(None));
        let listed = policy("0.0.0.0:80", &[], &["mcp.example"]);
        assert!(host(&listed, "mcp.example:8443"));
        assert!(!host(&listed, "any.example") && !host(&listed, "localhost"));
    }

    #[test]
    fn loopback_rules_need_every_listener_on_loopback() {
        let listen = ["127.0.0.1:80".parse().unwrap(), "192.0.2.1:80".parse().unwrap()];
        let mixed = OriginPolicy::new(&listen, &[], &[]).unwrap();
        assert!(!origin(&mixed, "http://localhost"));
        assert!(host(&mixed, "any.example"));
    }

    #[test]
    fn wrong_entries_are_all_named() {
        let list = |text: &str| vec![text.to_owned()];
        let wrong = OriginPolicy::new(&[], &list("example.com"), &list("http://x")).unwrap_err();
        assert_eq!(wrong.len(), 2);
        assert!(wrong[0].contains("example.com") && wrong[1].contains("http://x"));
        assert!(OriginPolicy::new(&[], &list("http://*.example"), &[]).is_err());
    }
}
