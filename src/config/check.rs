//! Stage 2: what the words mean. Every error is one line: where it stands, the value, what may
//! stand there. A default takes the place of a wrong value until all have been looked at.

use super::auth;
use super::limits::BOUNDS;
use super::values::*;
use super::words::{Given, Words};
use super::{Config, DataConfig, Level, LogConfig, LogFormat, SHARDS_MAX};
use crate::limits::Limits;

/// The options that mean nothing without a data directory.
const DATA_OPTIONS: [&str; 5] =
    ["durability", "data-bytes", "data-age", "segment-bytes", "stream-disk-bytes"];

pub(super) struct Check<'a> {
    pub(super) words: &'a Words,
    pub(super) wrong: Vec<String>,
}

/// Turns words into a [`Config`].
///
/// # Errors
/// Every line that is wrong: of the files, of the process's options in the order of the help, of
/// each server's; then the relations that do not hold.
pub(super) fn check(words: &Words) -> Result<Config, Vec<String>> {
    let mut check = Check { words, wrong: words.wrong.clone() };
    let mut config = Config {
        listen: check.one("listen", LISTEN_DEFAULT, LISTEN_ALLOWED, listen),
        shards: check.one(
            "shards",
            None,
            &format!("auto, or a number from 1 to {SHARDS_MAX}"),
            shards,
        ),
        origins: check.all("allow-origin", ORIGIN_ALLOWED, origin),
        hosts: check.all("allow-host", "a host name or address, with or without a port", host),
        auth: auth::check(&mut check),
        log: LogConfig {
            filter: check.one("log-level", "info".to_owned(), LEVEL_ALLOWED, log_filter),
            format: check.one("log-format", LogFormat::Text, "text or json", log_format),
        },
        limits: check.limits(),
        servers: Vec::new(),
        admin: check.admin(),
        data: None,
    };
    config.servers = check.servers();
    keep_first(&mut check.wrong);
    config.data = check.data(&config);
    if check.wrong.is_empty() { Ok(config) } else { Err(check.wrong) }
}

impl Check<'_> {
    fn reject(&mut self, given: &Given, allowed: &str) {
        // Debug, so that a value with line breaks or control bytes stays one printable line.
        self.wrong.push(format!("{given} {:?} is not {allowed}", given.value));
    }

    pub(super) fn one<T>(
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

    pub(super) fn all<T>(
        &mut self,
        option: &str,
        allowed: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        let mut values = Vec::new();
        for given in self.words.all(option) {
            match given.value.to_str().and_then(&read) {
                Some(value) => values.push(value),
                None => self.reject(given, allowed),
            }
        }
        values
    }

    pub(super) fn limits(&mut self) -> Limits {
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
            let shards = config.shards.unwrap_or(1);
            let of_servers =
                config.servers.iter().flat_map(|server| server.limits.check_data(shards));
            self.wrong.extend(of_servers);
            keep_first(&mut self.wrong);
        }
        Some(DataConfig { dir: dir?, durability })
    }

    /// A variable of the environment may serve several runs; what is typed is meant for this one.
    pub(super) fn needless(&mut self, options: &[&str], needed: &str) {
        for option in options {
            if let Some(given) = self.words.one(option).filter(|given| given.is_typed()) {
                self.wrong.push(format!("{given} {:?} needs {needed}", given.value));
            }
        }
    }
}

/// What is wrong for all servers is told once.
fn keep_first(lines: &mut Vec<String>) {
    let mut known = std::collections::HashSet::new();
    lines.retain(|line| known.insert(line.clone()));
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use super::super::{Answers, Command, EnvRule, OnChildExit, Usage, from_args};
    use super::super::{DEFAULT_SERVER, UpstreamConfig};
    use super::*;

    fn run(line: &str, env: &[(&str, &str)]) -> Result<Command, Usage> {
        let args = std::iter::once("gapless").chain(line.split_whitespace()).map(OsString::from);
        let env =
            |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        from_args(args, env, |_| panic!("no file is named"))
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
        assert_eq!((config.servers.len(), config.servers[0].name.as_str()), (1, DEFAULT_SERVER));
        assert_eq!((config.servers[0].path.as_str(), config.shards), ("/mcp", None));
        assert_eq!(
            (config.servers[0].answers, config.servers[0].upstream.clone()),
            (Answers::Auto, UpstreamConfig::Builtin)
        );
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
        assert_eq!((config.servers[0].path.as_str(), config.shards), ("/a/b", Some(4)));
        assert_eq!(config.servers[0].answers, Answers::Sse);
        assert_eq!(config.origins, ["https://A.example", "http://b.example:81"]);
        assert_eq!(config.hosts, ["Gate.example:443", "[::1]"]);
        assert_eq!(config.log.filter, "info,gapless=debug");
        assert_eq!(config.log.format, LogFormat::Json);
        assert_eq!(config.servers[0].on_child_exit, OnChildExit::EndSession);
        assert_eq!(config.limits.retention.as_secs(), 600);
        let command = ["child", "-v", "--shards", "x"].map(OsString::from).to_vec();
        let env = vec![
            EnvRule::Pass("TOKEN".into()),
            EnvRule::Set("MODE".into(), "a=b".into()),
            EnvRule::Set("EMPTY".into(), String::new()),
        ];
        let cwd = Some(PathBuf::from("/srv"));
        assert_eq!(config.servers[0].upstream, UpstreamConfig::Stdio { command, env, cwd });
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
        let Ok(Command::Serve(config)) = from_args(args, |_| None, |_| panic!("no file is named"))
        else {
            panic!("refused")
        };
        let mut command = ["gapless", "stdio", "--", "--help"].map(OsString::from).to_vec();
        command.push(strange);
        assert_eq!(
            config.servers[0].upstream,
            UpstreamConfig::Stdio { command, env: vec![], cwd: None }
        );
    }

    /// An empty variable in `serve -- $COMMAND` must not put the demo on the network.
    #[test]
    fn two_hyphens_without_a_command_are_refused() {
        assert_eq!(errors("serve --"), ["-- is followed by nothing, not by COMMAND ARGS..."]);
        let read = |args| from_args(args, |_| None, |_| panic!("no file is named"));
        let args = ["gapless", "serve", "--", ""].into_iter().map(OsString::from);
        assert!(matches!(read(args), Err(Usage::Values(lines)) if lines.len() == 1));
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
            "--shards",
            "--allow-origin",
            "--allow-host",
            "--log-level",
            "--log-format",
            "--body-bytes",
            "--retention",
            "--path",
            "--answers",
            "--on-child-exit",
        ];
        assert_eq!(places, expected);
        assert_eq!(lines[1], "--shards \"65\" is not auto, or a number from 1 to 64");
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
        assert_eq!((config.listen.port(), config.servers[0].path.as_str()), (1, "/typed"));
        assert_eq!(config.hosts, ["a.example", "b.example"]);
        assert_eq!(config.servers[0].answers, Answers::Auto);
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

    /// A configuration file with this text, and these words beside.
    fn with_file(text: &str, line: &str, env: &[(&str, &str)]) -> Result<Command, Usage> {
        let args = format!("gapless {line} --config /etc/g.toml");
        let args = args.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let env =
            |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        from_args(args.into_iter(), env, |path| {
            assert_eq!(path, std::path::Path::new("/etc/g.toml"));
            Ok(text.to_owned())
        })
    }

    #[test]
    fn what_is_typed_wins_over_the_environment_and_that_over_a_file() {
        let text = "path = \"/file\"\nshards = 3\nanswers = \"sse\"\nsessions = 7\n";
        let env = [("GAPLESS_PATH", "/env"), ("GAPLESS_SHARDS", "2")];
        let Ok(Command::Serve(config)) = with_file(text, "serve --path /typed", &env) else {
            panic!("refused")
        };
        assert_eq!((config.servers[0].path.as_str(), config.shards), ("/typed", Some(2)));
        assert_eq!((config.servers[0].answers, config.limits.sessions), (Answers::Sse, 7));
    }

    #[test]
    fn several_servers_have_paths_and_bounds_of_their_own() {
        let text = "request_timeout = \"1m\"\n[server.b]\nbuiltin = true\nanswers = \"json\"\n\
                    [server.a]\ncommand = [\"npx\", \"a\"]\nrequest_timeout = \"2m\"\n";
        let Ok(Command::Serve(config)) = with_file(text, "serve", &[]) else { panic!("refused") };
        let [a, b] = &config.servers[..] else { panic!("{:?}", config.servers) };
        assert_eq!((a.name.as_str(), a.path.as_str()), ("a", "/a/mcp"));
        assert_eq!(a.limits.request_timeout.as_secs(), 120);
        assert!(matches!(&a.upstream, UpstreamConfig::Stdio { command, .. } if command.len() == 2));
        assert_eq!((b.path.as_str(), b.answers), ("/b/mcp", Answers::Json));
        assert_eq!(b.http_sse.as_ref().unwrap().stream, "/b/sse");
        assert_eq!(b.limits.request_timeout.as_secs(), 60);
        assert_eq!(b.upstream, UpstreamConfig::Builtin);
    }

    #[test]
    fn errors_of_a_file_come_all_at_once_with_their_lines() {
        let text = "retention = \"5\"\nlisten = \"here\"\n[server.a]\nbuiltin = true\n\
                    path = \"/x\"\n[server.b]\ncommand = [\"b\"]\npath = \"/x\"\n\
                    answers = \"maybe\"\n[server.c]\nanswer = \"sse\"\n";
        let Err(Usage::Values(lines)) = with_file(text, "check", &[]) else { panic!("accepted") };
        let expected = [
            "/etc/g.toml:11: there is no option answer; did you mean answers?",
            "/etc/g.toml:2: listen \"here\" is not ADDR:PORT",
            "/etc/g.toml:1: retention \"5\" is not a time",
            "/etc/g.toml:9: answers \"maybe\" is not auto, sse or json",
            "/etc/g.toml:10: [server.c] has no command; builtin = true serves the demo",
            "/etc/g.toml:6: [server.b]: /x is a path of server a",
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line} instead of {expected}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_told() {
        let args = ["gapless", "serve", "--config", "x.toml"].map(OsString::from);
        let missing = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let Err(Usage::Values(lines)) = from_args(args.into_iter(), |_| None, missing) else {
            panic!("accepted")
        };
        assert_eq!(lines, ["--config x.toml: entity not found"]);
    }

    /// What is printed can be used again, and shows no secret.
    #[test]
    fn the_effective_configuration_can_be_read_back() {
        let text = "sessions = 7\n[server.a]\ncommand = [\"x\"]\nenv = [\"TOKEN=secret\"]\n\
                    retention = \"1m\"\n";
        let env = [("GAPLESS_SHARDS", "2")];
        let Ok(Command::Show(shown)) = with_file(text, "config --log-level warn", &env) else {
            panic!("refused")
        };
        assert!(!shown.contains("secret"), "{shown}");
        for line in [
            "sessions = \"7\" # /etc/g.toml:1",
            "shards = \"2\" # GAPLESS_SHARDS",
            "log_level = \"warn\" # command line",
            "[server.a] # /etc/g.toml:2",
            "retention = \"1m\" # /etc/g.toml:5",
            "env = [\"TOKEN\"] # /etc/g.toml:4, values not shown",
        ] {
            assert!(shown.lines().any(|found| found == line), "{line} is not in\n{shown}");
        }
        let Ok(Command::Serve(config)) = with_file(&shown, "serve", &[]) else { panic!("{shown}") };
        assert_eq!((config.limits.sessions, config.shards), (7, Some(2)));
        assert_eq!(config.servers[0].limits.retention.as_secs(), 60);
    }
}
