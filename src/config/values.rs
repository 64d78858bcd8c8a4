//! What the words of single options mean: each function reads one, and the constant beside it says
//! in an error what may stand there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

use super::{Answers, EnvRule, Level, LogFormat, OnChildExit, Overflow, SHARDS_MAX};
use crate::auth::origin::OriginPolicy;

pub(super) const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8383);
pub(super) const LISTEN_ALLOWED: &str =
    "ADDR:PORT, such as 127.0.0.1:8383, [::1]:8383 or localhost:8383";
pub(super) const BASE_ALLOWED: &str = "http:// or https:// and a host, without query or fragment";
pub(super) const PATH_ALLOWED: &str =
    "a path that starts with /, has no slash at its end, no query, no %, no space, no . or .. part";
pub(super) const ORIGIN_ALLOWED: &str =
    "a web origin, scheme://host or scheme://host:port, such as https://app.example.org";
pub(super) const DIRECTORY_ALLOWED: &str = "a directory's path";
pub(super) const LEVEL_ALLOWED: &str =
    "error, warn, info, debug, trace or off, or a filter such as info,gapless=debug";

pub(super) fn listen(typed: &str) -> Option<SocketAddr> {
    match typed.strip_prefix("localhost:") {
        // No resolver: a name must not decide at start-up which machine may call.
        Some(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?))),
        None => typed.parse().ok(),
    }
}

pub(super) fn path(typed: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"?#%\"<>\\^`{|}".contains(&byte);
    let rest = typed.strip_prefix('/')?;
    let ends_well = rest.is_empty() || !rest.ends_with('/');
    // Clients resolve dot segments before they ask, so such a path could not be asked for.
    let dots = rest.split('/').any(|segment| matches!(segment, "." | ".."));
    (ends_well && !dots && typed.bytes().all(plain)).then(|| typed.to_owned())
}

pub(super) fn shards(typed: &str) -> Option<Option<usize>> {
    match typed {
        "auto" => Some(None),
        _ => typed.parse().ok().filter(|n| (1..=SHARDS_MAX).contains(n)).map(Some),
    }
}

pub(super) fn answers(typed: &str) -> Option<Answers> {
    match typed {
        "auto" => Some(Answers::Auto),
        "sse" => Some(Answers::Sse),
        "json" => Some(Answers::Json),
        _ => None,
    }
}

pub(super) fn public_base(typed: &str) -> bool {
    let rest = typed.strip_prefix("https://").or_else(|| typed.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>".contains(&byte);
        !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(plain)
    })
}

pub(super) fn overflow(typed: &str) -> Option<Overflow> {
    match typed {
        "auto" => Some(Overflow::Auto),
        "pause" => Some(Overflow::Pause),
        "cut" => Some(Overflow::Cut),
        _ => None,
    }
}

pub(super) fn env_rule(typed: &str) -> Option<EnvRule> {
    let (name, value) = match typed.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (typed, None),
    };
    if name.is_empty() || typed.contains('\0') {
        return None;
    }
    Some(match value {
        Some(value) => EnvRule::Set(name.to_owned(), value.to_owned()),
        None => EnvRule::Pass(name.to_owned()),
    })
}

pub(super) fn directory(typed: &str) -> Option<Option<PathBuf>> {
    (!typed.is_empty() && !typed.contains('\0')).then(|| Some(PathBuf::from(typed)))
}

pub(super) fn durability(typed: &str) -> Option<Level> {
    match typed {
        "process" => Some(Level::Process),
        "power" => Some(Level::Power),
        "none" => Some(Level::None),
        _ => None,
    }
}

pub(super) fn on_child_exit(typed: &str) -> Option<OnChildExit> {
    match typed {
        "respawn" => Some(OnChildExit::Respawn),
        "end-session" => Some(OnChildExit::EndSession),
        _ => None,
    }
}

pub(super) fn log_format(typed: &str) -> Option<LogFormat> {
    match typed {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

/// A lone word must be a level: the filter's own parser would take `inof` for a target's name,
/// and log nothing at all.
pub(super) fn log_filter(typed: &str) -> Option<String> {
    let levels = ["error", "warn", "info", "debug", "trace", "off"];
    let lower = typed.to_ascii_lowercase();
    if levels.contains(&lower.as_str()) {
        return Some(lower);
    }
    let is_filter = typed.contains(['=', ',', '[']) && EnvFilter::try_new(typed).is_ok();
    is_filter.then(|| typed.to_owned())
}

/// As the policy that will compare them reads them; so for hosts.
pub(super) fn origin(typed: &str) -> Option<String> {
    let text = typed.to_owned();
    OriginPolicy::new(&[], std::slice::from_ref(&text), &[]).is_ok().then_some(text)
}

pub(super) fn host(typed: &str) -> Option<String> {
    let text = typed.to_owned();
    OriginPolicy::new(&[], &[], std::slice::from_ref(&text)).is_ok().then_some(text)
}
