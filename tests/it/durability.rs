//! `docs/durability.md` with the real binary: it is killed or stopped, started again on the same
//! port and directory, and what its clients hold must still be right.

mod children;
mod directory;
mod disk;
mod levels;
mod restart;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::client::{Connection, End, NEWEST, Session};
use crate::numbered::{primed, sequence};
use crate::server::{PROGRAM, Server, eventually};

/// Small enough that a test makes several segments.
const SMALL: [&str; 12] = [
    "--segment-bytes",
    "1MiB",
    "--data-bytes",
    "256MiB",
    "--stream-disk-bytes",
    "64MiB",
    "--stream-bytes",
    "1MiB",
    "--event-bytes",
    "64KiB",
    "--body-bytes",
    "64KiB",
];

/// A data directory and how it is served; removed at the end.
struct Home {
    dir: PathBuf,
    flags: Vec<String>,
    command: Vec<String>,
    address: Option<SocketAddr>,
}

impl Home {
    /// A directory that is not there yet, for the built-in server.
    fn new(flags: &[&str]) -> Self {
        Self::at(std::env::temp_dir().join(format!("gapless-durable-{}", unique())), flags)
    }

    fn at(dir: PathBuf, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Self { dir, flags, command: Vec::new(), address: None }
    }

    /// With a child for each session.
    fn behind(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Starts the server, on the port of the last one.
    fn serve(&mut self) -> Server {
        let address = self.address.map_or_else(own_address, |known| known.to_string());
        let dir = self.dir.to_str().expect("a path of ours");
        let mut flags = vec!["--listen", &address, "--data-dir", dir];
        for pair in SMALL.chunks(2).filter(|pair| !self.flags.iter().any(|flag| flag == pair[0])) {
            flags.extend(pair);
        }
        flags.extend(self.flags.iter().map(String::as_str));
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let server = Server::start_with(&flags, &command);
        self.address = Some(server.address);
        server
    }

    /// `gapless log check`: its exit code and what it says.
    fn check(&self) -> (Option<i32>, String) {
        let output = log_tool("check", &self.dir);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The segments of all shards.
    fn segments(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.dir, &mut |path, _| {
            if path.extension().is_some_and(|kind| kind == "wal") {
                found.push(path.to_owned());
            }
        });
        found.sort();
        found
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Two numbers that no other test has at the time.
fn unique() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A loopback address of this process alone: nobody else gets its port between two servers.
fn own_address() -> String {
    let [_, first, second, third] = std::process::id().to_be_bytes();
    format!("127.{}.{second}.{}:0", 16 + first, third.max(1))
}

fn log_tool(action: &str, dir: &Path) -> Output {
    let mut program = Command::new(PROGRAM);
    program.args(["log", action]).arg(dir).stdin(Stdio::null());
    program.output().expect("it runs")
}

/// Every file and folder from `path` down, with its metadata.
fn walk(path: &Path, seen: &mut dyn FnMut(&Path, &std::fs::Metadata)) {
    // A segment may be renamed while a server runs.
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return };
    seen(path, &metadata);
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            walk(&entry.path(), seen);
        }
    }
}

/// What a resume after this cursor gets of a call that a restart has ended: numbered messages up
/// to the last one that was logged, then the error, then the end. The number of the error.
fn ended_by_restart(session: &Session, cursor: &str, call: u64) -> u64 {
    let mut connection = session.resume(cursor);
    assert_eq!(primed(&mut connection), cursor);
    let (_, number) = cursor.rsplit_once('.').expect("a cursor has a number");
    let mut due = number.parse::<u64>().expect("a number") + 1;
    loop {
        let event = connection.message().expect("the call's end");
        assert_eq!(event.number(), due, "no gap and no duplicate");
        let message = event.json();
        if message.get("method").is_some() {
            assert_eq!(sequence(&event), Some(due));
            due += 1;
            continue;
        }
        assert_eq!((&message["id"], &message["error"]["code"]), (&json!(call), &json!(-31006)));
        assert_eq!(message["error"]["data"]["reason"], "restarted");
        assert_eq!(connection.event(), None);
        assert_eq!(connection.end(), Some(End::Whole));
        return due;
    }
}

/// Reads `count` events of the call's stream; its last cursor.
fn read_some(stream: &mut Connection, count: u64) -> String {
    primed(stream);
    crate::numbered::expect(stream, 1, count)
}

/// A small call works.
fn echoes(session: &Session, id: &str) {
    let answer = session.call(&format!("\"{id}\""), "echo", &json!({"text": id})).result();
    assert_eq!((&answer["id"], answer["result"].is_object()), (&json!(id), true), "{answer}");
}

fn text(line: &Value) -> &str {
    line["message"].as_str().unwrap_or_default()
}

/// The session without a server behind it: what a client has kept.
fn session(server: &Server) -> Session {
    Session::start(server, NEWEST)
}

/// Waits until the call's stream has had time to be logged beyond what was read.
fn let_it_run(server: &Server, bytes: u64, home: &Home) {
    let before = used(home);
    let pid = server.pid();
    eventually("the log grows", || used(home) >= before + bytes || !crate::server::is_alive(pid));
}

/// Bytes of the segments that are not zero: how far the log is filled.
fn used(home: &Home) -> u64 {
    let filled = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at as u64 + 1)
    };
    home.segments().iter().map(filled).sum()
}
