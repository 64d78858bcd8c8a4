//! What was typed.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use pico_args::Arguments;

use crate::http::Target;
use crate::run::Upstream;

const HELP: &str = "\
Good and bad clients against a gapless server, every event checked.

Usage: checker [OPTIONS]

  --program FILE       the gapless to start [target/release/gapless]
  --url URL            check a running server on this machine instead; no leak check
  --upstream NAME      builtin, stdio or both [both]
  --shards N           of the started server [2]
  --seconds N          of load, for each upstream [60]
  --sessions N         good clients at a time [24]
  --streams N          streams of one session at a time, at most [4]
  --bad N              bad clients at a time [12]
  --storm N            streams that are cut and resumed at once at the end; 0 for none [0]
  --crash N            instead of all that: N times kill -9 at a random moment under load, and the
                       server started again on its data directory; exit code 0: nothing was lost
  --unread MIB         instead of all that: a stream of this size that is not read, and the small
                       calls beside it, each phase --seconds long; needs --url; prints a
                       line before it reads on, and JSON at the end
  --foreign            with --unread: the server is not a gapless
  --smoke              streams that are over within a second or so
  --leak-check         compare what the server holds before and after
  --memory-slack MIB   growth of memory that is no leak [32]
  --seed N             replays the choices [random]
";

/// What was typed.
pub struct Options {
    /// The server to start.
    pub program: String,
    /// The server that runs already.
    pub target: Option<Target>,
    /// What it serves, one after the other.
    pub upstreams: Vec<Upstream>,
    /// Its threads.
    pub shards: u32,
    /// How long each is under load.
    pub time: Duration,
    /// Good clients at a time.
    pub sessions: u64,
    /// Streams of one session at a time.
    pub streams: usize,
    /// Bad clients at a time.
    pub bad: u64,
    /// Streams of the reconnect storm.
    pub storm: usize,
    /// How often the server is killed, if that is what is tested.
    pub crash: Option<u64>,
    /// MiB of the stream that is left unread, if that is what is measured.
    pub unread: Option<u64>,
    /// Whether the server that runs already is not a gapless.
    pub foreign: bool,
    /// Whether every stream is short.
    pub smoke: bool,
    /// Whether holdings are compared.
    pub leak_check: bool,
    /// Growth of memory that is allowed, MiB.
    pub memory_slack_mib: u64,
    /// Where all choices come from.
    pub seed: u64,
}

impl Options {
    /// Reads the command line; `None` if help was wanted and given.
    pub fn from_args() -> Result<Option<Self>, String> {
        let mut words = Arguments::from_env();
        if words.contains(["-h", "--help"]) {
            print!("{HELP}");
            return Ok(None);
        }
        let options = Self::read(&mut words).map_err(|error| error.to_string())?;
        let rest = words.finish();
        if rest.is_empty() { Ok(Some(options)) } else { Err(format!("unknown: {rest:?}")) }
    }

    fn read(words: &mut Arguments) -> Result<Self, pico_args::Error> {
        let target = words.opt_value_from_fn("--url", |url| {
            Target::parse(url).ok_or("http://ADDRESS:PORT/PATH on this machine")
        })?;
        let upstreams = words.opt_value_from_fn("--upstream", |name| match name {
            "builtin" => Ok(vec![Upstream::Builtin]),
            "stdio" => Ok(vec![Upstream::Stdio]),
            "both" => Ok(vec![Upstream::Builtin, Upstream::Stdio]),
            _ => Err("builtin, stdio or both"),
        })?;
        let program = words.opt_value_from_str("--program")?;
        let unread = words.opt_value_from_str("--unread")?;
        let crash = words.opt_value_from_str("--crash")?;
        let seconds = words.opt_value_from_str("--seconds")?.unwrap_or(60);
        let mut number = |name, default| {
            words.opt_value_from_str(name).map(|given: Option<u64>| given.unwrap_or(default))
        };
        Ok(Self {
            target,
            program: program.unwrap_or_else(|| "target/release/gapless".to_owned()),
            upstreams: upstreams.unwrap_or_else(|| vec![Upstream::Builtin, Upstream::Stdio]),
            shards: u32::try_from(number("--shards", 2)?).unwrap_or(u32::MAX),
            time: Duration::from_secs(seconds),
            sessions: number("--sessions", 24)?,
            streams: usize::try_from(number("--streams", 4)?.max(1)).unwrap_or(usize::MAX),
            bad: number("--bad", 12)?,
            storm: usize::try_from(number("--storm", 0)?).unwrap_or(usize::MAX),
            memory_slack_mib: number("--memory-slack", 32)?,
            seed: number("--seed", some_seed())?,
            crash,
            unread,
            foreign: words.contains("--foreign"),
            smoke: words.contains("--smoke"),
            leak_check: words.contains("--leak-check"),
        })
    }
}

/// Short enough to be typed again. The standard library's hasher gets its keys from the system.
fn some_seed() -> u64 {
    RandomState::new().hash_one(()) % 1_000_000_000
}
