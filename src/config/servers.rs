//! What the words for one server mean, and that several do not get into each other's way.

use std::collections::HashMap;

use super::check::Check;
use super::values::*;
use super::words::ServerWords;
use super::{
    Answers, DEFAULT_SERVER, HttpSsePaths, OnChildExit, Overflow, ServerConfig, UpstreamConfig,
};

/// The options that mean nothing without a child process.
const CHILD_OPTIONS: [&str; 5] = ["on-child-exit", "env", "cwd", "stdin-bytes", "child-grace"];

/// The paths of a server unless it has others.
struct Defaults {
    path: String,
    stream: String,
    messages: String,
}

impl Defaults {
    /// Those of the one server of the short form.
    fn of_one() -> Self {
        Self { path: "/mcp".into(), stream: "/sse".into(), messages: "/messages".into() }
    }

    /// Those of one of several.
    fn of(name: &str) -> Self {
        Self {
            path: format!("/{name}/mcp"),
            stream: format!("/{name}/sse"),
            messages: format!("/{name}/messages"),
        }
    }
}

impl Check<'_> {
    /// The servers, in the order of their names.
    pub(super) fn servers(&mut self) -> Vec<ServerConfig> {
        if self.words.servers.is_empty() {
            return vec![self.server(DEFAULT_SERVER, &Defaults::of_one())];
        }
        if self.words.command.is_some() {
            let told = "a COMMAND for all and [server.NAME] exclude each other: which is served?";
            self.wrong.push(told.to_owned());
        }
        let mut servers: Vec<ServerConfig> = Vec::new();
        for own in &self.words.servers {
            let words = self.words.of(own);
            let mut check = Check { words: &words, wrong: Vec::new() };
            let server = check.server(&own.name, &Defaults::of(&own.name));
            check.has_something_behind(own);
            self.wrong.extend(check.wrong);
            servers.push(server);
        }
        self.names_and_paths_differ(&servers);
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        servers
    }

    fn server(&mut self, name: &str, defaults: &Defaults) -> ServerConfig {
        let mcp = self.one("path", defaults.path.clone(), PATH_ALLOWED, path);
        ServerConfig {
            name: name.to_owned(),
            http_sse: self.http_sse(&mcp, defaults),
            path: mcp,
            answers: self.one("answers", Answers::Auto, "auto, sse or json", answers),
            overflow: self.one("overflow", Overflow::Auto, "auto, pause or cut", overflow),
            on_child_exit: self.one(
                "on-child-exit",
                OnChildExit::Respawn,
                "respawn or end-session",
                on_child_exit,
            ),
            limits: self.limits(),
            upstream: self.upstream(),
        }
    }

    fn has_something_behind(&mut self, own: &ServerWords) {
        let ServerWords { name, place, .. } = own;
        match (&own.command, own.builtin) {
            (None, false) => self.wrong.push(format!(
                "{place}: [server.{name}] has no command; builtin = true serves the demo"
            )),
            (Some(_), true) => {
                self.wrong.push(format!("{place}: [server.{name}] has a command and is builtin"));
            }
            _ => {}
        }
    }

    fn names_and_paths_differ(&mut self, servers: &[ServerConfig]) {
        let mut taken: HashMap<&str, &str> = HashMap::new();
        for (server, own) in servers.iter().zip(&self.words.servers) {
            let same_name = servers.iter().filter(|other| other.name == server.name).count();
            if same_name > 1 {
                let ServerWords { name, place, .. } = own;
                self.wrong.push(format!("{place}: there are {same_name} servers called {name}"));
                continue;
            }
            let http_sse =
                server.http_sse.iter().flat_map(|paths| [&paths.stream, &paths.messages]);
            for path in std::iter::once(&server.path).chain(http_sse) {
                match taken.insert(path, &server.name) {
                    Some(other) if other != server.name => self.wrong.push(format!(
                        "{}: [server.{}]: {path} is a path of server {other}",
                        own.place, server.name
                    )),
                    _ => {}
                }
            }
        }
    }

    fn http_sse(&mut self, mcp: &str, defaults: &Defaults) -> Option<HttpSsePaths> {
        let allowed = format!("off, or {PATH_ALLOWED}");
        let stream = self.one("sse-path", Some(defaults.stream.clone()), &allowed, |typed| {
            if typed == "off" { Some(None) } else { path(typed).map(Some) }
        });
        let messages = self.one("messages-path", defaults.messages.clone(), PATH_ALLOWED, path);
        let public_base = self.one("public-base", None, BASE_ALLOWED, |typed| {
            public_base(typed).then(|| Some(typed.to_owned()))
        });
        let stream = stream?;
        if stream == messages || stream == mcp || messages == mcp {
            let paths = format!("{mcp:?}, {stream:?} and {messages:?}");
            self.wrong
                .push(format!("--path, --sse-path and --messages-path must differ, not {paths}"));
        }
        Some(HttpSsePaths { stream, messages, public_base })
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
                let found = command.first().map_or("nothing", |_| "an empty word");
                self.wrong.push(format!("-- is followed by {found}, not by COMMAND ARGS..."));
                UpstreamConfig::Builtin
            }
        }
    }
}
