//! The server under test: started, watched from outside, and stopped.
//!
//! Invariant: nothing is asked of the server itself; what it holds is read from `/proc`, and what
//! it says from its log.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::http::Target;
use crate::run::Upstream;

/// How long a stop may take: the drain, and the children's grace.
const STOP_TIME: Duration = Duration::from_secs(30);
/// How long sessions without a client and finished streams are kept in a run, seconds.
pub const IDLE_SECONDS: u64 = 12;

/// A server of our own.
pub struct Server {
    child: Child,
    log: Arc<Mutex<Log>>,
    reader: Option<JoinHandle<()>>,
    /// Where it listens.
    pub target: Target,
}

/// A server that has ended.
pub struct Stopped {
    /// What was wrong with its end and in its log.
    pub faults: Vec<String>,
    /// Its last counts.
    pub totals: BTreeMap<String, u64>,
}

/// What its log said.
#[derive(Default)]
struct Log {
    started: u64,
    ended: u64,
    lost: u64,
    /// Lines that tell of a fault.
    bad: Vec<String>,
    /// Its last line.
    totals: BTreeMap<String, u64>,
}

/// What a server holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Open file descriptors.
    pub fds: usize,
    /// Processes whose parent it is.
    pub children: usize,
    /// Threads, without the workers that the kernel adds to a ring and takes away as it likes.
    pub threads: usize,
    /// Resident memory that is its own, KiB.
    pub memory_kib: u64,
    /// Sessions that started and did not end.
    pub sessions: u64,
}

impl Server {
    /// Starts `program` with two shards and short timeouts.
    pub fn start(program: &str, shards: u32, upstream: Upstream) -> io::Result<Self> {
        let idle = format!("{IDLE_SECONDS}s");
        let shards = shards.to_string();
        let mut words = vec!["serve", "--listen", "127.0.0.1:0", "--shards", &shards];
        words.extend(["--retention", &idle, "--idle-timeout", &idle, "--head-timeout", "3s"]);
        words.extend(["--keep-alive-timeout", "5s", "--sse-keep-alive", "2s"]);
        Self::launch(program, &words, upstream)
    }

    /// Starts `program` on a data directory, at the address of the one before.
    pub fn durable(
        program: &str,
        shards: u32,
        upstream: Upstream,
        dir: &Path,
        address: Option<SocketAddr>,
    ) -> io::Result<Self> {
        let address = address.map_or("127.0.0.1:0".to_owned(), |known| known.to_string());
        let (shards, dir) = (shards.to_string(), dir.to_string_lossy());
        let mut words = vec!["serve", "--listen", &address, "--shards", &shards];
        words.extend(["--answers", "sse", "--data-dir", &dir, "--sse-keep-alive", "2s"]);
        words.extend(["--event-bytes", "256KiB", "--body-bytes", "256KiB"]);
        words.extend(["--stream-bytes", "512KiB", "--stream-disk-bytes", "64MiB"]);
        words.extend(["--segment-bytes", "4MiB", "--data-bytes", "512MiB"]);
        Self::launch(program, &words, upstream)
    }

    fn launch(program: &str, words: &[&str], upstream: Upstream) -> io::Result<Self> {
        let mut words = words.to_vec();
        if upstream == Upstream::Stdio {
            words.extend(["--", program, "stdio"]);
        }
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let log: Arc<Mutex<Log>> = Arc::default();
        let shared = Arc::clone(&log);
        let reader = Some(thread::spawn(move || {
            for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines()) {
                let Ok(line) = line else { return };
                shared.lock().unwrap_or_else(PoisonError::into_inner).read(line);
            }
        }));
        let target = line.split(' ').find_map(Target::parse);
        let target = target.ok_or_else(|| io::Error::other(format!("{program}: {line:?}")))?;
        Ok(Self { child, log, reader, target })
    }

    /// What it holds now.
    pub fn holdings(&self) -> io::Result<Holdings> {
        let pid = self.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Holdings {
            fds: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            children: children_of(pid)?,
            threads: threads_of(pid)?,
            memory_kib: number("RssAnon:"),
            sessions: log.started.saturating_sub(log.ended),
        })
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// SIGTERM, and what it leaves. With `idle`, no connection may be left over either.
    pub fn stop(mut self, idle: bool) -> io::Result<Stopped> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let deadline = Instant::now() + STOP_TIME;
        let mut faults = Vec::new();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => break,
                Some(status) => {
                    faults.push(format!("the server ended with {status}"));
                    break;
                }
                None if Instant::now() > deadline => {
                    faults.push(format!("the server did not end within {STOP_TIME:?}"));
                    self.child.kill()?;
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
        if self.reader.take().is_some_and(|reader| reader.join().is_err()) {
            faults.push("the log could not be read".to_owned());
        }
        let log = std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
        faults.extend(log.bad);
        let total = |name: &str| log.totals.get(name).copied();
        if total("panics") != Some(0) {
            faults.push(format!("panics: {:?}", total("panics")));
        }
        for (opened, closed) in [
            ("sessions_started", "sessions_ended"),
            ("connections_opened", "connections_closed"),
            ("children_started", "children_exited"),
        ] {
            if total(opened) != total(closed) && (idle || opened != "connections_opened") {
                faults.push(format!("{opened} {:?}, {closed} {:?}", total(opened), total(closed)));
            }
        }
        Ok(Stopped { faults, totals: log.totals })
    }
}

impl Drop for Server {
    /// A run that broke off must not leave its server behind.
    fn drop(&mut self) {
        // Where it has exited there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Log {
    fn read(&mut self, line: String) {
        if line.contains("session started") {
            self.started += 1;
        } else if line.contains("session ended") {
            self.ended += 1;
        } else if let Some((_, totals)) = line.split_once(" totals ") {
            for word in totals.split(' ') {
                if let Some((name, value)) = word.split_once('=') {
                    self.totals.insert(name.to_owned(), value.parse().unwrap_or(u64::MAX));
                }
            }
            self.lost = self.totals.get("log_lines_lost").copied().unwrap_or(0);
        } else if line.contains("panicked") || line.contains(" ERROR ") {
            self.bad.push(line);
        }
    }
}

fn threads_of(pid: u32) -> io::Result<usize> {
    let mut threads = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may be gone by now.
        let Ok(name) = fs::read_to_string(entry?.path().join("comm")) else { continue };
        threads += usize::from(!name.starts_with("iou-"));
    }
    Ok(threads)
}

fn children_of(parent: u32) -> io::Result<usize> {
    let mut children = 0;
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path().join("stat");
        // Processes come and go while we look; folders that are no process have no such file.
        let Ok(stat) = fs::read_to_string(path) else { continue };
        let of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        children += usize::from(of.and_then(|of| of.parse().ok()) == Some(parent));
    }
    Ok(children)
}
