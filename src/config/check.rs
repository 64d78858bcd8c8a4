//! Stage 2: what the words mean. Every error is one line: where it stands, the value, what may
//! stand there. A default takes the place of a wrong value until all have been looked at.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

use super::flags::{Given, Words};
use super::limits::BOUNDS;
use super::{
    Answers, Config, DataConfig, EnvRule, HttpSsePaths, Level, LogConfig, LogFormat, OnChildExit,
    Overflow, SHARDS_MAX, UpstreamConfig,
};
use crate::auth::origin::OriginPolicy;
use crate::limits::Limits;

/// The options that mean nothing without a child process.
const CHILD_OPTIONS: [&str; 5] = ["on-child-exit", "env", "cwd", "stdin-bytes", "child-grace"];

/// The options that mean nothing without a data directory.
const DATA_OPTIONS: [&str; 5] =
    ["durability", "data-bytes", "data-age", "segment-bytes", "stream-disk-bytes"];

struct Check<'a> {
    words: &'a Words,
    wrong: Vec<String>,
}

/// Turns words into a [`Config`].
///
/// # Errors
/// Every line that is wrong, in the order of the help; then the relations that do not hold.
pub(super) fn check(words: &Words) -> Result<Config, Vec<String>> {
    let mut check = Check { words, wrong: Vec::new() };
    let mut config = Config {
        listen: check.one("listen", LISTEN_DEFAULT, LISTEN_ALLOWED, listen),
        path: check.one("path", "/mcp".to_owned(), PATH_ALLOWED, path),
        http_sse: check.http_sse(),
        shards: check.one(
            "shards",
            None,
            &format!("auto, or a number from 1 to {SHARDS_MAX}"),
            shards,
        ),
        answers: check.one("answers", Answers::Auto, "auto, sse or json", answers),
        overflow: check.one("overflow", Overflow::Auto, "auto, pause or cut", overflow),
        origins: check.all("allow-origin", ORIGIN_ALLOWED, origin),
        hosts: check.all("allow-host", "a host name or address, with or without a port", host),
        on_child_exit: check.one(
            "on-child-exit",
            OnChildExit::Respawn,
            "respawn or end-session",
            on_child_exit,
        ),
        log: LogConfig {
            filter: check.one("log-level", "info".to_owned(), LEVEL_ALLOWED, log_filter),
            format: check.one("log-format", LogFormat::Text, "text or json", log_format),
        },
        limits: check.limits(),
        upstream: check.upstream(),
        data: None,
    };
    config.data = check.data(&config);
    if check.wrong.is_empty() { Ok(config) } else { Err(check.wrong) }
}

impl Check<'_> {
    fn reject(&mut self, given: &Given, allowed: &str) {
        // Debug, so that a value with line breaks or control bytes stays one printable line.
        self.wrong.push(format!("{} {:?} is not {allowed}", given.place(), given.value));
    }

    fn one<T>(
        &mut self,
        option: &str,
        default: T,
        allowed: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> T {
        let Some(given) = self.words.one(option) else { return default };
        given.value.to_str().and_then(read).unwrap_or_else(|| {
            self.reject(given, allowed);
            default
        })
    }

    fn all<T>(&mut self, option: &str, allowed: &str, read: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let mut values = Vec::new();
        for given in self.words.all(option) {
            match given.value.to_str().and_then(&read) {
                Some(value) => values.push(value),
                None => self.reject(given, allowed),
            }
        }
        values
    }

    fn http_sse(&mut self) -> Option<HttpSsePaths> {
        let allowed = format!("off, or {PATH_ALLOWED}");
        let stream = self.one("sse-path", Some("/sse".to_owned()), &allowed, |typed| {
            if typed == "off" { Some(None) } else { path(typed).map(Some) }
        });
        let messages = self.one("messages-path", "/messages".to_owned(), PATH_ALLOWED, path);
        let public_base = self.one("public-base", None, BASE_ALLOWED, |typed| {
            public_base(typed).then(|| Some(typed.to_owned()))
        });
        let stream = stream?;
        let mcp = self.words.one("path").and_then(|given| given.value.to_str()).unwrap_or("/mcp");
        if stream == messages || stream == mcp || messages == mcp {
            let paths = format!("{mcp:?}, {stream:?} and {messages:?}");
            self.wrong
                .push(format!("--path, --sse-path and --messages-path must differ, not {paths}"));
        }
        Some(HttpSsePaths { stream, messages, public_base })
    }

    fn limits(&mut self) -> Limits {
        let mut limits = Limits::default();
        let before = self.wrong.len();
        for bound in BOUNDS {
            let Some(given) = self.words.one(bound.name) else { continue };
            let read = given.value.to_str().and_then(|typed| bound.set(&mut limits, typed));
            if read.is_none() {
                self.reject(given, &bound.allowed());
            }
        }
        // A relation with a bound that could not be read would blame a default nobody typed.
        if self.wrong.len() == before {
            self.wrong.extend(limits.check());
        }
        limits
    }

    fn data(&mut self, config: &Config) -> Option<DataConfig> {
        if self.words.one("data-dir").is_none() {
            self.needless(&DATA_OPTIONS, "a data directory: --data-dir DIR");
            return None;
        }
        let dir = self.one("data-dir", None, DIRECTORY_ALLOWED, directory);
        let durability =
            self.one("durability", Level::Process, "process, power or none", durability);
        // As for the other relations. Where the machine decides how many shards there are, it is
        // looked at again when they are known.
        if self.wrong.is_empty() {
            self.wrong.extend(config.limits.check_data(config.shards.unwrap_or(1)));
        }
        Some(DataConfig { dir: dir?, durability })
    }

    fn upstream(&mut self) -> UpstreamConfig {
        match &self.words.command {
            None => {
                self.needless(&CHILD_OPTIONS, "a child process: a COMMAND after --");
                UpstreamConfig::Builtin
            }
            Some(command) if command.first().is_some_and(|program| !program.is_empty()) => {
                let env = self.all("env", "NAME or NAME=VALUE", env_rule);
                let cwd = self.one("cwd", None, DIRECTORY_ALLOWED, directory);
                UpstreamConfig::Stdio { command: command.clone(), env, cwd }
            }
            Some(command) => {
                let found = command.first().map_or("nothing", |_: &OsString| "an empty word");
                self.wrong.push(format!("-- is followed by {found}, not by COMMAND ARGS..."));
                UpstreamConfig::Builtin
            }
        }
    }

    /// A variable of the environment may serve several runs; what is typed is meant for this one.
    fn needless(&mut self, options: &[&str], needed: &str) {
        for option in options {
            if let Some(given) = self.words.one(option).filter(|given| given.is_typed()) {
                self.wrong.push(format!("{} {:?} needs {needed}", given.place(), given.value));
            }
        }
    }
}

const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8383);
const LISTEN_ALLOWED: &str = "ADDR:PORT, such as 127.0.0.1:8383, [::1]:8383 or localhost:8383";
const BASE_ALLOWED: &str = "http:// or https:// and a host, without query or fragment";
const PATH_ALLOWED: &str =
    "a path that starts with /, has no slash at its end, no query, no %, no space, no . or .. part";
const ORIGIN_ALLOWED: &str =
    "a web origin, scheme://host or scheme://host:port, such as https://app.example.org";
const DIRECTORY_ALLOWED: &str = "a directory's path";
const LEVEL_ALLOWED: &str = "error, warn, info, debug, trace or off, or a filter such as \
                             info,gapless=debug";

fn listen(typed: &str) -> Option<SocketAddr> {
    match typed.strip_prefix("localhost:") {
        // No resolver: a name must not decide at start-up which machine may call.
        Some(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?))),
        None => typed.parse().ok(),
    }
}

fn path(typed: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"?#%\"<>\\^`{|}".contains(&byte);
    let rest = typed.strip_prefix('/')?;
    let ends_well = rest.is_empty() || !rest.ends_with('/');
    // Clients resolve dot segments before they ask, so such a path could not be asked for.
    let dots = rest.split('/').any(|segment| matches!(segment, "." | ".."));
    (ends_well && !dots && typed.bytes().all(plain)).then(|| typed.to_owned())
}

fn shards(typed: &str) -> Option<Option<usize>> {
    match typed {
        "auto" => Some(None),
        _ => typed.parse().ok().filter(|n| (1..=SHARDS_MAX).contains(n)).map(Some),
    }
}

fn answers(typed: &str) -> Option<Answers> {
    match typed {
        "auto" => Some(Answers::Auto),
        "sse" => Some(Answers::Sse),
        "json" => Some(Answers::Json),
        _ => None,
    }
}

fn public_base(typed: &str) -> bool {
    let rest = typed.strip_prefix("https://").or_else(|| typed.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>".contains(&byte);
        !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(plain)
    })
}

fn overflow(typed: &str) -> Option<Overflow> {
    match typed {
        "auto" => Some(Overflow::Auto),
        "pause" => Some(Overflow::Pause),
        "cut" => Some(Overflow::Cut),
        _ => None,
    }
}

fn env_rule(typed: &str) -> Option<EnvRule> {
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

fn directory(typed: &str) -> Option<Option<PathBuf>> {
    (!typed.is_empty() && !typed.contains('\0')).then(|| Some(PathBuf::from(typed)))
}

fn durability(typed: &str) -> Option<Level> {
    match typed {
        "process" => Some(Level::Process),
        "power" => Some(Level::Power),
        "none" => Some(Level::None),
        _ => None,
    }
}

fn on_child_exit(typed: &str) -> Option<OnChildExit> {
    match typed {
        "respawn" => Some(OnChildExit::Respawn),
        "end-session" => Some(OnChildExit::EndSession),
        _ => None,
    }
}

fn log_format(typed: &str) -> Option<LogFormat> {
    match typed {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

/// A lone word must be a level: the filter's own parser would take `inof` for a target's name,
/// and log nothing at all.
fn log_filter(typed: &str) -> Option<String> {
    let levels = ["error", "warn", "info", "debug", "trace", "off"];
    let lower = typed.to_ascii_lowercase();
    if levels.contains(&lower.as_str()) {
        return Some(lower);
    }
    let is_filter = typed.contains(['=', ',', '[']) && EnvFilter::try_new(typed).is_ok();
    is_filter.then(|| typed.to_owned())
}

/// As the policy that will compare them reads them; so for hosts.
fn origin(typed: &str) -> Option<String> {
    let text = typed.to_owned();
    OriginPolicy::new(&[], std::slice::from_ref(&text), &[]).is_ok().then_some(text)
}

fn host(typed: &str) -> Option<String> {
    let text = typed.to_owned();
    OriginPolicy::new(&[], &[], std::slice::from_ref(&text)).is_ok().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Usage, from_args};
    use super::*;

    fn run(line: &str, env: &[(&str, &str)]) -> Result<Command, Usage> {
        let args = std::iter::once("gapless").chain(line.split_whitespace()).map(OsString::from);
        from_args(args, |name| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
    }

    fn config(line: &str) -> Config {
        match run(line, &[]) {
            Ok(Command::Serve(config)) => *config,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn errors(line: &str) -> Vec<String> {
        match run(line, &[]) {
            Err(Usage::Values(lines)) => lines,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn nothing_typed_is_the_demo_server_on_loopback() {
        let config = config("serve");
        assert_eq!(config.listen.to_string(), "127.0.0.1:8383");
        assert_eq!((config.path.as_str(), config.shards), ("/mcp", None));
        assert_eq!((config.answers, config.upstream), (Answers::Auto, UpstreamConfig::Builtin));
        assert_eq!(config.log, LogConfig { filter: "info".into(), format: LogFormat::Text });
        assert!(matches!(run("stdio", &[]), Ok(Command::Stdio)));
    }

    #[test]
    fn every_choice_is_read() {
        let config = config(
            "serve --listen [::1]:9000 --path /a/b --shards 4 --answers sse \
             --allow-origin https://A.example --allow-origin http://b.example:81 \
             --allow-host Gate.example:443 --allow-host [::1] --log-level info,gapless=debug \
             --log-format json --on-child-exit end-session --retention 10m \
             --env TOKEN --env MODE=a=b --env EMPTY= --cwd /srv -- child -v --shards x",
        );
        assert_eq!(config.listen.to_string(), "[::1]:9000");
        assert_eq!((config.path.as_str(), config.shards), ("/a/b", Some(4)));
        assert_eq!(config.answers, Answers::Sse);
        assert_eq!(config.origins, ["https://A.example", "http://b.example:81"]);
        assert_eq!(config.hosts, ["Gate.example:443", "[::1]"]);
        assert_eq!(config.log.filter, "info,gapless=debug");
        assert_eq!(config.log.format, LogFormat::Json);
        assert_eq!(config.on_child_exit, OnChildExit::EndSession);
        assert_eq!(config.limits.retention.as_secs(), 600);
        let command = ["child", "-v", "--shards", "x"].map(OsString::from).to_vec();
        let env = vec![
            EnvRule::Pass("TOKEN".into()),
            EnvRule::Set("MODE".into(), "a=b".into()),
            EnvRule::Set("EMPTY".into(), String::new()),
        ];
        let cwd = Some(PathBuf::from("/srv"));
        assert_eq!(config.upstream, UpstreamConfig::Stdio { command, env, cwd });
    }

    #[test]
    fn localhost_is_a_word_for_the_loopback_address() {
        assert_eq!(config("serve --listen localhost:0").listen.to_string(), "127.0.0.1:0");
        assert!(config("serve --listen localhost:0").warnings().is_empty());
        assert_eq!(config("serve --listen 0.0.0.0:1").warnings().len(), 1);
    }

    /// The child's own words never become ours: not a `--`, not our flags, not bytes that are
    /// not UTF-8.
    #[test]
    fn what_follows_the_two_hyphens_stays_word_for_word() {
        use std::os::unix::ffi::OsStringExt;
        let strange = OsString::from_vec(vec![b'-', 0xff]);
        let words = ["gapless", "serve", "--", "gapless", "stdio", "--", "--help"];
        let args = words.into_iter().map(OsString::from).chain([strange.clone()]);
        let Ok(Command::Serve(config)) = from_args(args, |_| None) else { panic!("refused") };
        let mut command = ["gapless", "stdio", "--", "--help"].map(OsString::from).to_vec();
        command.push(strange);
        assert_eq!(config.upstream, UpstreamConfig::Stdio { command, env: vec![], cwd: None });
    }

    /// An empty variable in `serve -- $COMMAND` must not put the demo on the network.
    #[test]
    fn two_hyphens_without_a_command_are_refused() {
        assert_eq!(errors("serve --"), ["-- is followed by nothing, not by COMMAND ARGS..."]);
        let args = ["gapless", "serve", "--", ""].into_iter().map(OsString::from);
        assert!(matches!(from_args(args, |_| None), Err(Usage::Values(lines)) if lines.len() == 1));
    }

    #[test]
    fn all_errors_come_at_once_one_line_each() {
        let lines = errors(
            "serve --listen here --path mcp --shards 65 --answers maybe --allow-origin * \
             --allow-host a/b --log-level loud --log-format xml --retention 5 --body-bytes big \
             --on-child-exit dance -- child",
        );
        let places: Vec<_> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
        let expected = [
            "--listen",
            "--path",
            "--shards",
            "--answers",
            "--allow-origin",
            "--allow-host",
            "--on-child-exit",
            "--log-level",
            "--log-format",
            "--body-bytes",
            "--retention",
        ];
        assert_eq!(places, expected);
        assert_eq!(lines[2], "--shards \"65\" is not auto, or a number from 1 to 64");
        assert!(lines.iter().all(|line| !line.contains('\n')));
        assert_eq!(Usage::Values(lines).exit_code(), 2);
    }

    #[test]
    fn bad_combinations_name_both_flags() {
        let lines = errors(
            "serve --stream-bytes 1MiB --session-bytes 512KiB --retention 1h \
             --request-timeout 2h --body-bytes 32MiB --child-grace 1s",
        );
        let expected: [&[&str]; 6] = [
            &["--event-bytes", "--stream-bytes"],
            &["--stream-bytes", "--session-bytes"],
            &["--body-bytes", "--stdin-bytes"],
            &["--idle-timeout", "--retention"],
            &["--request-timeout", "--request-timeout-max"],
            &["--child-grace", "COMMAND"],
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, words) in lines.iter().zip(expected) {
            assert!(words.iter().all(|word| line.contains(word)), "{line} lacks {words:?}");
        }
    }

    #[test]
    fn a_data_directory_is_read_with_its_level_and_bounds() {
        assert_eq!(config("serve").data, None);
        let first = config("serve --data-dir /srv/log");
        let dir = PathBuf::from("/srv/log");
        let durability = Level::Process;
        assert_eq!(first.data, Some(DataConfig { dir: dir.clone(), durability }));
        let second = config(
            "serve --shards 2 --data-dir /srv/log --durability power --data-bytes 1GiB \
             --data-age 2h --segment-bytes 32MiB --stream-disk-bytes 128MiB",
        );
        assert_eq!(second.data, Some(DataConfig { dir, durability: Level::Power }));
        let limits = second.limits;
        assert_eq!((limits.data_bytes, limits.data_age.as_secs()), (1 << 30, 7200));
        assert_eq!((limits.segment_bytes, limits.stream_disk_bytes), (32 << 20, 128 << 20));
    }

    #[test]
    fn what_needs_a_data_directory_says_so() {
        let lines = errors("serve --durability power --data-bytes 1TiB --data-age 1h");
        assert_eq!(lines.len(), 3, "{lines:#?}");
        for (line, option) in lines.iter().zip(["--durability", "--data-bytes", "--data-age"]) {
            assert!(line.starts_with(option) && line.contains("--data-dir DIR"), "{line}");
        }
        let env = [("GAPLESS_DURABILITY", "power"), ("GAPLESS_DATA_DIR", "/srv/log")];
        let Ok(Command::Serve(config)) = run("serve", &env) else { panic!("refused") };
        assert_eq!(config.data.unwrap().durability, Level::Power);
        let Ok(Command::Serve(config)) = run("serve", &env[..1]) else { panic!("refused") };
        assert_eq!(config.data, None);
        let lines = errors("serve --data-dir /srv/log --durability eternal");
        assert_eq!(lines, ["--durability \"eternal\" is not process, power or none"]);
    }

    #[test]
    fn bounds_of_the_disk_that_do_not_fit_together_name_both_flags() {
        let lines = errors(
            "serve --shards 4 --data-dir /srv/log --segment-bytes 16MiB --data-bytes 32MiB \
             --stream-disk-bytes 15MiB --data-age 1m",
        );
        let expected: [&[&str]; 5] = [
            &["--segment-bytes", "--event-bytes", "--body-bytes"],
            &["--data-bytes", "--segment-bytes", "4 shards"],
            &["--stream-bytes", "--stream-disk-bytes"],
            &["--stream-disk-bytes", "--data-bytes", "4 shards"],
            &["--retention", "--data-age"],
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, words) in lines.iter().zip(expected) {
            assert!(words.iter().all(|word| line.contains(word)), "{line} lacks {words:?}");
        }
        // Without a directory none of it matters: a large message is no fault.
        config(
            "serve --event-bytes 64MiB --stdin-bytes 64MiB --stream-bytes 80MiB \
                --session-bytes 80MiB -- child",
        );
        // What nobody has set fits on the largest machine.
        config("serve --shards 64 --data-dir /srv/log");
    }

    #[test]
    fn the_environment_stands_in_for_what_is_not_typed() {
        let env = [
            ("GAPLESS_LISTEN", "127.0.0.1:1"),
            ("GAPLESS_ALLOW_HOST", "a.example, b.example"),
            ("GAPLESS_PATH", "/env"),
            ("GAPLESS_ANSWERS", ""),
            ("GAPLESS_CHILD_GRACE", "1s"),
        ];
        let Ok(Command::Serve(config)) = run("serve --path /typed", &env) else {
            panic!("refused")
        };
        assert_eq!((config.listen.port(), config.path.as_str()), (1, "/typed"));
        assert_eq!(config.hosts, ["a.example", "b.example"]);
        assert_eq!(config.answers, Answers::Auto);
        let Err(Usage::Values(lines)) = run("serve", &[("GAPLESS_SHARDS", "x")]) else {
            panic!("accepted")
        };
        assert!(lines[0].starts_with("GAPLESS_SHARDS \"x\" is not "), "{lines:?}");
    }

    #[test]
    fn help_is_no_error_and_unknown_words_are() {
        assert_eq!(run("serve --help", &[]).unwrap_err().exit_code(), 0);
        assert_eq!(run("--version", &[]).unwrap_err().exit_code(), 0);
        for line in ["", "serve --nonsense", "serve --shards 1 --shards 2", "stdio now", "dance"] {
            assert_eq!(run(line, &[]).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn the_log_s_commands_are_read() {
        use super::super::{LogAction, LogCommand};
        let log = |line: &str| match run(line, &[]) {
            Ok(Command::Log(command)) => command,
            other => panic!("{line}: {other:?}"),
        };
        let dir = PathBuf::from("/srv/log");
        let of = |action| LogCommand { dir: dir.clone(), action };
        assert_eq!(log("log check /srv/log"), of(LogAction::Check));
        assert_eq!(log("log new-epoch /srv/log"), of(LogAction::NewEpoch));
        let (session, stream, bodies, secrets) = (None, None, false, false);
        let all = LogAction::Dump { session, stream, bodies, secrets };
        assert_eq!(log("log dump /srv/log"), of(all));
        let (session, stream, bodies, secrets) = (Some("5664ea4c".into()), Some(3), true, true);
        let one = LogAction::Dump { session, stream, bodies, secrets };
        let typed = "log dump /srv/log --session 5664ea4c --stream 3 --bodies --secrets";
        assert_eq!(log(typed), of(one));
        for line in ["log", "log check", "log dump /a /b", "log dump /a --stream x", "log go /a"] {
            assert_eq!(run(line, &[]).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn paths_hosts_and_origins_are_strict() {
        for good in ["/", "/mcp", "/a/b.c/~d"] {
            assert!(path(good).is_some(), "{good}");
        }
        for bad in ["", "mcp", "/mcp/", "//", "/a?b", "/a#b", "/a b", "/é", "/%41", "/.", "/a/../b"]
        {
            assert!(path(bad).is_none(), "{bad}");
        }
        for good in ["a", "a.b:1", "127.0.0.1", "[::1]:8383", "my_host"] {
            assert!(host(good).is_some(), "{good}");
        }
        for bad in ["", ":1", "a:", "a:x", "a:65536", "a:+1", "[::1", "[x]", "[::1]1", "::1", "*"] {
            assert!(host(bad).is_none(), "{bad}");
        }
        for bad in ["null", "*", "https://", "https://a/", "://a", "1x://a", "https://u@a"] {
            assert!(origin(bad).is_none(), "{bad}");
        }
        assert!(origin("vscode-webview://abc").is_some());
    }

    #[test]
    fn a_misspelt_level_is_not_taken_for_a_target() {
        assert_eq!(log_filter("WARN").as_deref(), Some("warn"));
        assert!(log_filter("inof").is_none());
        assert!(log_filter("gapless=loud").is_none());
        assert!(log_filter("warn,gapless::net=trace").is_some());
    }
}
