//! What the operator wants: flags, environment and files, to [`Config`], with all errors at once.
//!
//! Two stages, both pure: `flags` and `file` say *what was given* (words, and whether a flag, the
//! environment or a file brought them), `check` and `servers` say *what it means*. A value that is
//! wrong never stops the second stage: its default stands in while the rest is looked at, so that
//! one run of the program names everything that has to be mended.
//!
//! Invariant: a [`Config`] that exists has passed every check, [`Limits::check`] included.

mod admin;
mod auth;
mod check;
mod file;
mod flags;
mod http_sse;
mod limits;
mod manual;
mod mcp_config;
mod reference;
mod servers;
mod show;
mod values;
mod words;

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::limits::Limits;
pub use crate::limits::SHARDS_MAX;

pub use self::admin::AdminConfig;
pub use self::auth::{AuthConfig, JwksSource, MetadataConfig, TokenConfig};
pub use self::http_sse::HttpSsePaths;
pub use self::manual::Manual;
pub use self::reference::reference;
use self::words::Words;
pub use crate::session::{Answers, DEFAULT_SERVER, Overflow};
pub use crate::store::journal::Level;
pub use crate::upstream::piped::OnChildExit;

/// What the program was asked to do.
#[derive(Debug)]
pub enum Command {
    /// `gapless serve`: put a server on the network.
    Serve(Box<Config>),
    /// `gapless check`: this is what would be served.
    Check(Box<Config>),
    /// `gapless config`: print this.
    Show(String),
    /// `gapless stdio`: the built-in server over stdin and stdout.
    Stdio,
    /// `gapless key`: make an API key of this name.
    Key(String),
    /// `gapless log`: look into a data directory.
    Log(LogCommand),
    /// `gapless man`, `gapless completions`: what is made of the options.
    Manual(Manual),
}

/// What to do with a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCommand {
    /// The directory.
    pub dir: PathBuf,
    /// What to do with it.
    pub action: LogAction,
}

/// What can be done with a data directory (`store::tool`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// Read everything and say what is there.
    Check,
    /// Print the records.
    Dump {
        /// Only of this session: its id, or what logs call it.
        session: Option<String>,
        /// Only of streams of this number.
        stream: Option<u32>,
        /// With their bodies.
        bodies: bool,
        /// With the ids of sessions and cursors.
        secrets: bool,
    },
    /// Make every cursor of before stale.
    NewEpoch,
}

/// Everything `gapless serve` needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// How many shards; `None` is one for each CPU this process may use.
    pub shards: Option<usize>,
    /// Origins that may call besides this machine's own: what `auth::origin` takes.
    pub origins: Vec<String>,
    /// Values of `Host` that are served besides this machine's own: what `auth::origin` takes.
    pub hosts: Vec<String>,
    /// What requests have to bring.
    pub auth: AuthConfig,
    /// What is logged, and in which form.
    pub log: LogConfig,
    /// Every settable bound of the process; those of a session are its server's.
    pub limits: Limits,
    /// What is served, each at paths of its own; never empty, sorted by name.
    pub servers: Vec<ServerConfig>,
    /// The admin listener, where there is one.
    pub admin: Option<AdminConfig>,
    /// Where the log outlives the process; none keeps everything in memory.
    pub data: Option<DataConfig>,
}

/// One MCP server, and how it is put on the network.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// What it is called in logs, and in the durable log.
    pub name: String,
    /// The path of the MCP endpoint; starts with `/`, no query, no slash at its end.
    pub path: String,
    /// The paths of the HTTP+SSE transport; none where it is off.
    pub http_sse: Option<HttpSsePaths>,
    /// How a POST is answered.
    pub answers: Answers,
    /// What happens when a reader is slower than its producer.
    pub overflow: Overflow,
    /// What happens to a session whose child process is gone.
    pub on_child_exit: OnChildExit,
    /// The bounds of its sessions.
    pub limits: Limits,
    /// Who produces the messages.
    pub upstream: UpstreamConfig,
}

/// Where the durable log is, and what it promises. Its bounds are in [`Limits`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataConfig {
    /// The data directory.
    pub dir: PathBuf,
    /// What an event that a client has seen survives.
    pub durability: Level,
}

/// Who produces the messages of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamConfig {
    /// The demo server inside this program.
    Builtin,
    /// A child process that speaks MCP over stdin and stdout.
    Stdio {
        /// The program and its arguments, word for word as they were typed; never empty.
        command: Vec<OsString>,
        /// What the child's environment has besides the usual ([`EnvRule`]).
        env: Vec<EnvRule>,
        /// Where the child starts; none is where this process runs.
        cwd: Option<PathBuf>,
    },
}

/// One variable of a child's environment. A child gets the variables that any program needs
/// (`PATH`, `HOME` and the like) and those named here: nothing else, for what is in this process's
/// environment may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvRule {
    /// This process's own value, if it has one.
    Pass(String),
    /// This value.
    Set(String, String),
}

/// What is logged, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or the directives of a tracing filter.
    pub filter: String,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why there is no [`Command`]: help or version were asked for, or something is wrong.
#[derive(Debug)]
pub enum Usage {
    /// clap's own answer: help, version, or words it does not know.
    Words(Box<clap::Error>),
    /// Values that mean nothing, or that do not go together; one line each.
    Values(Vec<String>),
}

impl Usage {
    /// 0 where help or version was asked for, else 2.
    pub fn exit_code(&self) -> i32 {
        match self {
            Usage::Words(error) => error.exit_code(),
            Usage::Values(_) => 2,
        }
    }

    /// Prints it: help and version to stdout, everything else to stderr.
    ///
    /// # Errors
    /// Those of writing.
    pub fn print(&self) -> io::Result<()> {
        match self {
            Usage::Words(error) => error.print(),
            Usage::Values(_) => writeln!(io::stderr().lock(), "{self}"),
        }
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Usage::Words(error) => error.fmt(f),
            Usage::Values(lines) => {
                for line in lines {
                    writeln!(f, "error: {line}")?;
                }
                write!(f, "\nSee 'gapless serve --help' for every option.")
            }
        }
    }
}

impl std::error::Error for Usage {}

impl Config {
    /// What is allowed but worth a line in the log at start, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if !self.listen.ip().is_loopback() {
            let listen = self.listen;
            sentences.push(if self.auth.is_open() {
                format!(
                    "{listen} can be reached from other machines and nobody is asked who is \
                     calling: give --api-keys or --jwt-jwks, or put it behind something that asks"
                )
            } else {
                format!(
                    "{listen} can be reached from other machines: where no TLS is in front of \
                     it, bearer tokens can be read on the way"
                )
            });
        }
        if self.data.is_some() && self.limits.data_bytes / 2 < self.limits.memory_bytes {
            sentences.push(format!(
                "--data-bytes ({}) is less than twice --memory-bytes ({}): finished calls \
                 lose their events when a segment of the log goes, instead of being written again",
                self.limits.data_bytes, self.limits.memory_bytes
            ));
        }
        sentences
    }
}

/// Reads the command line (`args`, the program's name first), the environment (`env`, which
/// answers a variable's name with its value), and the files that those name (`read` gives their
/// text).
///
/// # Errors
/// [`Usage`]: help or version, or everything that is wrong.
pub fn from_args(
    args: impl Iterator<Item = OsString>,
    env: impl Fn(&str) -> Option<OsString>,
    read: impl Fn(&Path) -> io::Result<String>,
) -> Result<Command, Usage> {
    let meaning = |words: &Words| check::check(words).map(Box::new).map_err(Usage::Values);
    match flags::parse(args, env)? {
        flags::Typed::Stdio => Ok(Command::Stdio),
        flags::Typed::Key(name) => Ok(Command::Key(name)),
        flags::Typed::Log(command) => Ok(Command::Log(command)),
        flags::Typed::Manual(manual) => Ok(Command::Manual(manual)),
        flags::Typed::Serve(words) => meaning(&with_files(words, read)).map(Command::Serve),
        flags::Typed::Check(words) => meaning(&with_files(words, read)).map(Command::Check),
        flags::Typed::Show(words) => {
            let words = with_files(words, read);
            meaning(&words).map(|_| Command::Show(show::text(&words)))
        }
    }
}

/// Adds the words of the files that were named.
fn with_files(mut words: Words, read: impl Fn(&Path) -> io::Result<String>) -> Words {
    type Reader = fn(&str, &str, &Path) -> Words;
    let readers: [(&str, Reader); 2] = [("config", file::read), ("mcp-config", mcp_config::read)];
    for (option, reader) in readers {
        let Some(given) = words.one(option) else { continue };
        let path = PathBuf::from(&given.value);
        match read(&path) {
            Ok(text) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                words.add_file(reader(&text, &path.to_string_lossy(), folder));
            }
            Err(error) => words.wrong.push(format!("{given} {}: {error}", path.display())),
        }
    }
    words
}
