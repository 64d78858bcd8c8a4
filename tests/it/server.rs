//! The real binary as a process of its own, on a port that the system chooses.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gapless::sys::pidfd;
use serde_json::Value;

/// How long anything may take before a test gives it up; far above what a slow machine needs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The real binary.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_gapless");

/// Hands the socket that is stdin over to the binary, as sd_listen_fds(3) has it.
pub const HAND_OVER: &str = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";

/// A running server; dropping it kills it.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    process: Child,
    pidfd: OwnedFd,
    lines: Arc<Mutex<Vec<Value>>>,
    reader: Option<JoinHandle<()>>,
}

/// What is left of a server that has ended.
pub struct Stopped {
    /// Its exit code; none where a signal killed it.
    pub code: Option<i32>,
    /// Everything it logged, one object a line.
    pub logs: Vec<Value>,
    /// The counters of its last line, by name.
    pub totals: HashMap<String, u64>,
}

impl Stopped {
    /// One counter; 0 where the line does not name it.
    pub fn total(&self, name: &str) -> u64 {
        self.totals.get(name).copied().unwrap_or_default()
    }
}

impl Server {
    /// The built-in demo server on 2 shards, with these flags besides.
    pub fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, &[])
    }

    /// A child for each session: `sh -c script`.
    pub fn shell(flags: &[&str], script: &str) -> Self {
        Self::start_with(flags, &["sh", "-c", script])
    }

    /// A child for each session: this program's own demo server over stdio.
    pub fn stdio(flags: &[&str]) -> Self {
        Self::start_with(flags, &[PROGRAM, "stdio"])
    }

    /// A child for each session by this command, which is the demo server where it is empty.
    pub fn start_with(flags: &[&str], command: &[&str]) -> Self {
        let mut program = Command::new(PROGRAM);
        program.stdin(Stdio::null());
        Self::launch(program, flags, command)
    }

    /// As [`Server::start_with`], in a process that may have so many descriptors.
    pub fn with_descriptors(most: u32, flags: &[&str], command: &[&str]) -> Self {
        let mut program = Command::new("sh");
        program.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\""), PROGRAM]);
        program.stdin(Stdio::null());
        Self::launch(program, flags, command)
    }

    /// As [`Server::start_with`], on a socket that this process keeps open as systemd would.
    pub fn on_socket(listener: &TcpListener, flags: &[&str], command: &[&str]) -> Self {
        let copy = listener.try_clone().expect("a copy");
        let mut program = Command::new("sh");
        program.args(["-c", HAND_OVER, PROGRAM]).stdin(OwnedFd::from(copy));
        Self::launch(program, flags, command)
    }

    /// As [`Server::start_with`], with a prepared start of the binary.
    pub fn launch(mut program: Command, flags: &[&str], command: &[&str]) -> Self {
        program.args(["serve", "--log-format", "json"]);
        if !flags.contains(&"--listen") {
            program.args(["--listen", "127.0.0.1:0"]);
        }
        if !flags.contains(&"--shards") {
            program.args(["--shards", "2"]);
        }
        program.args(flags);
        if !command.is_empty() {
            program.arg("--").args(command);
        }
        program.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = program.spawn().expect("the binary starts");
        let pidfd = pidfd::pidfd_open(process.id()).expect("a descriptor of the process");
        let stderr = BufReader::new(process.stderr.take().expect("stderr is piped"));
        let lines: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                kept.lock().unwrap().push(value);
            }
        });
        let mut first = String::new();
        let stdout = process.stdout.as_mut().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut first).expect("stdout can be read");
        let address = address(&first).unwrap_or_else(|| {
            panic!("no address in {first:?}; stderr: {:?}", lines.lock().unwrap())
        });
        Self { address, process, pidfd, lines, reader: Some(reader) }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What has been logged so far.
    pub fn logs(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits for a log line that `wanted` accepts.
    pub fn wait_for_log(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        eventually(what, || {
            found = self.logs().into_iter().find(&wanted);
            found.is_some()
        });
        found.expect("it was just found")
    }

    /// Process ids of the children that live.
    pub fn children(&self) -> Vec<u32> {
        let pid = self.pid();
        let mut children = Vec::new();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        children
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    /// Its resident memory, bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: Option<u64> =
            line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|n| n.parse().ok());
        1024 * kib.unwrap_or_else(|| panic!("no resident memory in {status}"))
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: i32) {
        pidfd::send_signal(self.pidfd.as_fd(), signal).expect("the signal can be sent");
    }

    /// SIGKILL, then waits until the system has it.
    pub fn kill(self) -> Stopped {
        self.signal(libc::SIGKILL);
        self.wait()
    }

    /// SIGTERM, then waits for the end.
    pub fn stop(self) -> Stopped {
        self.signal(libc::SIGTERM);
        self.wait()
    }

    /// Waits for the end, whoever caused it.
    pub fn wait(mut self) -> Stopped {
        let process = &mut self.process;
        let mut status = None;
        eventually("the server ends", || {
            status = process.try_wait().expect("it can be waited for");
            status.is_some()
        });
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log reader ends with the process");
        }
        let logs = self.logs();
        let totals = logs.iter().rev().find_map(totals).unwrap_or_default();
        Stopped { code: status.and_then(|status| status.code()), logs, totals }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail where it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            for line in self.logs() {
                eprintln!("server: {line}");
            }
        }
    }
}

/// Asks until it holds; panics when patience ends.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}: it did not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process of this id exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// The address in `gapless serves http://ADDRESS/mcp (...)`.
fn address(line: &str) -> Option<SocketAddr> {
    let (_, behind) = line.split_once("http://")?;
    behind.split('/').next()?.parse().ok()
}

/// The counters of a `totals name=value ...` line.
fn totals(line: &Value) -> Option<HashMap<String, u64>> {
    let words = line["message"].as_str()?.strip_prefix("totals ")?.split(' ');
    let pairs = words.filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}
