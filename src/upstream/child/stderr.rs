//! What a child writes to stderr: always read, so that the child never waits for us; put into the
//! log as text, at a bounded rate; its end kept for the line that tells of the exit.

use std::time::{Duration, Instant};

use super::lines::{Lines, Piece};
use crate::limits::STDERR_TAIL_BYTES;

/// Bytes of a line that come into the log.
const LINE_BYTES_MAX: usize = 1024;
/// Lines that come into the log in one [`WINDOW`].
const LINES_PER_WINDOW: u32 = 50;
/// The span over which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// The log of one child's stderr.
#[derive(Debug)]
pub(super) struct StderrLog {
    /// The session's short id.
    name: String,
    lines: Lines,
    tail: Tail,
    rate: Rate,
}

impl StderrLog {
    pub(super) fn new(name: String) -> Self {
        Self { name, lines: Lines::new(LINE_BYTES_MAX), tail: Tail::default(), rate: Rate::new() }
    }

    /// Takes the next bytes.
    pub(super) fn feed(&mut self, chunk: &[u8], now: Instant) {
        self.tail.push(chunk);
        let (name, rate) = (&self.name, &mut self.rate);
        self.lines.feed(chunk, |piece| log(name, rate, &piece, now));
    }

    /// The child is gone; returns the last of what it wrote, as text.
    pub(super) fn finish(&mut self, now: Instant) -> String {
        let (name, rate) = (&self.name, &mut self.rate);
        self.lines.finish(|piece| log(name, rate, &piece, now));
        if let Some(suppressed) = rate.take_suppressed() {
            log_suppressed(name, suppressed);
        }
        printable(self.tail.bytes().trim_ascii())
    }
}

fn log(name: &str, rate: &mut Rate, piece: &Piece<'_>, now: Instant) {
    let (bytes, cut) = match piece {
        Piece::Line(line) => (*line, ""),
        Piece::TooLong { head, .. } => (*head, "..."),
    };
    if bytes.trim_ascii().is_empty() {
        return;
    }
    let (admitted, suppressed) = rate.admit(now);
    if let Some(suppressed) = suppressed {
        log_suppressed(name, suppressed);
    }
    if admitted {
        tracing::info!(target: "child.stderr", session = name, "{}{cut}", printable(bytes));
    }
}

fn log_suppressed(name: &str, suppressed: u64) {
    tracing::info!(target: "child.stderr", session = name, suppressed, "lines left out");
}

/// Text that can do nothing to a terminal or to the log's lines: bytes that are no UTF-8 are
/// replaced, control characters escaped, other than tab.
fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for character in String::from_utf8_lossy(bytes).chars() {
        if character.is_control() && character != '\t' {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    fn push(&mut self, chunk: &[u8]) {
        let chunk = &chunk[chunk.len().saturating_sub(STDERR_TAIL_BYTES)..];
        let over = (self.bytes.len() + chunk.len()).saturating_sub(STDERR_TAIL_BYTES);
        self.bytes.drain(..over);
        self.bytes.extend_from_slice(chunk);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// So many lines in each window, and a count of the others.
#[derive(Debug)]
struct Rate {
    window_end: Option<Instant>,
    admitted: u32,
    suppressed: u64,
}

impl Rate {
    fn new() -> Self {
        Self { window_end: None, admitted: 0, suppressed: 0 }
    }

    /// Whether a line may pass now, and how many before it may not have since the last that did.
    fn admit(&mut self, now: Instant) -> (bool, Option<u64>) {
        let mut suppressed = None;
        if self.window_end.is_none_or(|end| now >= end) {
            self.window_end = Some(now + WINDOW);
            self.admitted = 0;
            suppressed = self.take_suppressed();
        }
        let admitted = self.admitted < LINES_PER_WINDOW;
        if admitted {
            self.admitted += 1;
        } else {
            self.suppressed += 1;
        }
        (admitted, suppressed)
    }

    fn take_suppressed(&mut self) -> Option<u64> {
        let suppressed = std::mem::take(&mut self.suppressed);
        (suppressed > 0).then_some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_the_log_cannot_move_the_cursor_or_start_a_line() {
        assert_eq!(
            printable("ok\u{1b}[32m\ta\nb\r\u{9b}ü".as_bytes()),
            "ok\\u{1b}[32m\ta\\nb\\r\\u{9b}ü"
        );
        assert_eq!(printable(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn the_tail_is_the_end_of_what_came() {
        let mut tail = Tail::default();
        let mut all = Vec::new();
        for (round, size) in [1, 4000, 100, 5000, 4096, 3].into_iter().enumerate() {
            let chunk: Vec<u8> = (0..size).map(|at| (at * 7 + round) as u8).collect();
            tail.push(&chunk);
            all.extend_from_slice(&chunk);
            assert_eq!(tail.bytes(), &all[all.len().saturating_sub(STDERR_TAIL_BYTES)..]);
        }
    }

    #[test]
    fn a_window_admits_its_lines_and_the_next_tells_how_many_it_left_out() {
        let mut rate = Rate::new();
        let start = Instant::now();
        let admitted = (0..LINES_PER_WINDOW + 7).filter(|_| rate.admit(start).0).count();
        assert_eq!(admitted, LINES_PER_WINDOW as usize);
        assert_eq!(rate.admit(start + WINDOW), (true, Some(7)));
        assert_eq!(rate.admit(start + WINDOW), (true, None));
        assert_eq!(rate.take_suppressed(), None);
    }

    #[test]
    fn a_flood_without_newline_leaves_its_end() {
        let mut log = StderrLog::new("s".to_owned());
        let now = Instant::now();
        for _ in 0..100 {
            log.feed(&[b'e'; 30_000], now);
        }
        log.feed(b"the reason\n", now);
        let tail = log.finish(now);
        assert!(tail.ends_with("eethe reason"));
        assert_eq!(tail.len(), STDERR_TAIL_BYTES - 1);
    }
}
