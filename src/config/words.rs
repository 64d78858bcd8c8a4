//! What was given, as words, each with the place where it stands: the command line, the
//! environment, a file. What they mean is for `check`.
//!
//! What is typed wins over the environment, and that over a file; in a file a server's own word
//! wins over the one for all.

use std::ffi::OsString;
use std::fmt;

/// The options that each server may have for itself.
const OF_A_SERVER: [&str; 21] = [
    "path",
    "sse-path",
    "messages-path",
    "answers",
    "overflow",
    "on-child-exit",
    "env",
    "cwd",
    "calls-per-session",
    "event-bytes",
    "stream-bytes",
    "stream-events",
    "session-bytes",
    "retention",
    "idle-timeout",
    "init-timeout",
    "request-timeout",
    "request-timeout-max",
    "pause-timeout",
    "server-request-timeout",
    "child-grace",
];

/// Whether a server of several may have this option for itself; the others are the process's.
pub(super) fn is_of_a_server(option: &str) -> bool {
    OF_A_SERVER.contains(&option)
}

/// Where a word stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the command line.
    Typed,
    /// In this environment variable.
    Variable(String),
    /// In a file; the text names it, and the line where there is one.
    File(String),
}

/// One word, for one option.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) option: &'static str,
    /// The word itself.
    pub(super) value: OsString,
    pub(super) place: Place,
}

impl Given {
    /// Whether it stood on the command line.
    pub(super) fn is_typed(&self) -> bool {
        self.place == Place::Typed
    }
}

/// How a person finds the word again: `--listen`, `GAPLESS_LISTEN`, `gapless.toml:3: listen`.
impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Typed => write!(f, "--{}", self.option),
            Place::Variable(name) => f.write_str(name),
            Place::File(place) => write!(f, "{place}: {}", self.option.replace('-', "_")),
        }
    }
}

/// One server's words.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerWords {
    /// Its name; the one server of the short form has [`super::DEFAULT_SERVER`]'s.
    pub(super) name: String,
    /// Where its name stands.
    pub(super) place: String,
    pub(super) given: Vec<Given>,
    /// The demo server is meant.
    pub(super) builtin: bool,
    /// The program behind it, word for word.
    pub(super) command: Option<Vec<OsString>>,
}

/// Everything that was given.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// For the process, and for each server that has no word of its own.
    pub(super) given: Vec<Given>,
    /// What stands after `--`; `None` without `--`.
    pub(super) command: Option<Vec<OsString>>,
    /// The servers of a file; empty in the short form, where there is one.
    pub(super) servers: Vec<ServerWords>,
    /// What was wrong with a file, one line each.
    pub(super) wrong: Vec<String>,
}

impl Words {
    /// The words given for one option, in their order.
    pub(super) fn all(&self, option: &str) -> impl Iterator<Item = &Given> {
        self.given.iter().filter(move |given| given.option == option)
    }

    /// The word given for an option that is given once.
    pub(super) fn one(&self, option: &str) -> Option<&Given> {
        self.given.iter().find(|given| given.option == option)
    }

    /// Adds what a file says, where nothing that wins over it says the same.
    pub(super) fn add_file(&mut self, file: Words) {
        for given in file.given {
            let is_there = |known: &Given| {
                known.option == given.option && !matches!(known.place, Place::File(_))
            };
            if !self.given.iter().any(is_there) {
                self.given.push(given);
            }
        }
        self.command = self.command.take().or(file.command);
        self.servers.extend(file.servers);
        self.wrong.extend(file.wrong);
    }

    /// What is said to one server: its own words, and those for all that it does not say otherwise.
    pub(super) fn of(&self, server: &ServerWords) -> Words {
        let is_own = |option: &str| server.given.iter().any(|own| own.option == option);
        let for_all = self.given.iter().filter(|given| !is_own(given.option));
        Words {
            given: server.given.iter().chain(for_all).cloned().collect(),
            command: server.command.clone(),
            ..Words::default()
        }
    }
}
