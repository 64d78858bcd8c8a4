//! Calls to a child's stdin as fast as its answers come: what a server over stdio can do by
//! itself, with nothing in front of it.
//!
//! `pipe WINDOW SECONDS EXPECTED COMMAND...` starts COMMAND, makes its session, and keeps WINDOW
//! calls under way: as many as have been answered are written at once. The call is one line of
//! stdin with `100000000` as its id, which becomes another with every call. Each answer has to be
//! one line with EXPECTED in it. Prints one JSON object, requests and seconds, and then keeps the
//! child until its own stdin ends, so that its CPU time can be read.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use gapless_ceiling::FIRST_ID;
use memchr::{memchr_iter, memmem, memrchr};

/// Bytes of one read: what a pipe holds.
const READ_BYTES: usize = 64 * 1024;
const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"loadtest","version":"1"}}}"#
);
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

type Failure = Box<dyn Error>;

/// The calls that are written.
struct Calls {
    line: Vec<u8>,
    /// Where in the line the id stands.
    id_at: usize,
    next_id: u32,
    /// The lines of one write.
    batch: Vec<u8>,
}

impl Calls {
    fn new(line: String) -> Result<Self, Failure> {
        let line = line.into_bytes();
        let id_at = memmem::find(&line, FIRST_ID.to_string().as_bytes());
        let id_at = id_at.ok_or("the call has no id to replace")?;
        Ok(Self { line, id_at, next_id: FIRST_ID, batch: Vec::new() })
    }

    /// Writes `count` calls at once.
    fn write(&mut self, count: usize, stdin: &mut ChildStdin) -> io::Result<()> {
        self.batch.clear();
        for _ in 0..count {
            let at = self.batch.len() + self.id_at;
            self.batch.extend_from_slice(&self.line);
            let digits = self.next_id.to_string();
            self.batch[at..at + digits.len()].copy_from_slice(digits.as_bytes());
            self.next_id += 1;
        }
        stdin.write_all(&self.batch)
    }
}

/// The answers that have come.
struct Answers {
    expected: Vec<u8>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are a line's beginning.
    begun: usize,
}

impl Answers {
    /// Waits for answers: how many came.
    fn read(&mut self, stdout: &mut ChildStdout) -> Result<usize, Failure> {
        if self.begun == self.buffer.len() {
            return Err("an endless line".into());
        }
        let read = stdout.read(&mut self.buffer[self.begun..])?;
        if read == 0 {
            return Err("the child has closed its stdout".into());
        }
        let filled = self.begun + read;
        let whole = memrchr(b'\n', &self.buffer[..filled]).map_or(0, |end| end + 1);
        let lines = memchr_iter(b'\n', &self.buffer[..whole]).count();
        if memmem::find_iter(&self.buffer[..whole], &self.expected).count() != lines {
            return Err(format!("{}", String::from_utf8_lossy(&self.buffer[..whole])).into());
        }
        self.buffer.copy_within(whole..filled, 0);
        self.begun = filled - whole;
        Ok(lines)
    }
}

fn drive(
    window: usize,
    time: Duration,
    calls: &mut Calls,
    answers: &mut Answers,
    (stdin, stdout): (&mut ChildStdin, &mut ChildStdout),
) -> Result<(usize, f64), Failure> {
    let started = Instant::now();
    let (mut answered, mut under_way) = (0, 0);
    while started.elapsed() < time {
        calls.write(window - under_way, stdin)?;
        let came = answers.read(stdout)?;
        answered += came;
        under_way = window - came;
    }
    Ok((answered, started.elapsed().as_secs_f64()))
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [window, seconds, expected, program, arguments @ ..] = words.as_slice() else {
        return Err("usage: pipe WINDOW SECONDS EXPECTED COMMAND... < CALL".into());
    };
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let mut calls = Calls::new(line)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take());
    let (Some(mut stdin), Some(mut stdout)) = pipes else { return Err("no pipes".into()) };
    stdin.write_all(format!("{INITIALIZE}\n{INITIALIZED}\n").as_bytes())?;
    // Nothing else comes before the first call, so that no byte behind the line is lost.
    BufReader::new(&mut stdout).read_line(&mut String::new())?;
    let expected = expected.clone().into_bytes();
    let mut answers = Answers { expected, buffer: vec![0; READ_BYTES], begun: 0 };
    let time = Duration::from_secs(seconds.parse()?);
    let window = window.parse()?;
    let (answered, took) =
        drive(window, time, &mut calls, &mut answers, (&mut stdin, &mut stdout))?;
    println!("{{\"requests\": {answered}, \"seconds\": {took}}}");
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(stdin);
    child.wait()?;
    Ok(())
}
