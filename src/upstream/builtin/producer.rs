//! A producer: a call that sends events over time and then its result.
//!
//! Invariants: events go out in order, each at its own instant `start + n * interval` or later, so
//! a late poll does not shift the ones after it; the result follows the last event at once; an
//! event is written only when its stream has room and the poll's allowance is not used up. Nothing
//! is allocated per event but the growth of the shared buffer to the largest one.

use std::time::{Duration, Instant};

use super::content::{push_number, push_text_result};
use super::{About, Level, Sink};
use crate::mcp::jsonrpc::push_string;

/// Bytes of params that one producer sends before the next one has its turn.
const QUANTUM_BYTES: usize = 8 * 1024;

/// What a producer sends.
pub(super) enum Event {
    /// `notifications/message` with a sequence number from 1 and `size` bytes of padding.
    Padded { size: usize },
    /// `notifications/message` with these texts, at level info, if the client wants that level.
    Log { logger: &'static str, texts: &'static [&'static str] },
    /// `notifications/progress`: `first`, `first + step`, and so on.
    Progress { token: Box<str>, first: u64, step: u64, total: u64 },
    /// Nothing: the producer only takes time.
    None,
}

/// The text of a producer's result.
pub(super) enum Outcome {
    /// This text.
    Text(&'static str),
    /// How many events there were.
    Sent,
    /// How long it took, milliseconds.
    Slept(u64),
}

/// Bytes that one poll may still produce over all calls.
pub(super) struct Allowance {
    left: usize,
    used: bool,
}

impl Allowance {
    pub(super) fn new(budget: usize) -> Self {
        Self { left: budget, used: false }
    }

    /// Takes `len` bytes. The first event of a poll is always allowed: one that is larger than
    /// the whole budget would never go out otherwise.
    fn take(&mut self, len: usize) -> bool {
        if self.used && len > self.left {
            return false;
        }
        self.used = true;
        self.left = self.left.saturating_sub(len);
        true
    }
}

/// How a producer's turn ended.
pub(super) enum Turn {
    /// All is sent; the result is due.
    Finished,
    /// Nothing to do before that instant.
    Due(Instant),
    /// Its stream has no room.
    Stalled,
    /// It has more to send, but the others come first.
    Yielded,
    /// The poll's allowance is used up; the turn goes on with the next poll.
    Exhausted,
}

/// A call that sends events over time.
pub(super) struct Producer {
    event: Event,
    outcome: Outcome,
    standalone: bool,
    sent: u64,
    count: u64,
    interval: Duration,
    next: Instant,
    /// Bytes left of its turn, which may span polls whose budget is smaller than a quantum.
    quantum: usize,
}

impl Producer {
    /// `count` events, the first one at `now`, one every `interval`.
    pub(super) fn new(event: Event, count: u64, interval: Duration, now: Instant) -> Self {
        Self {
            event,
            outcome: Outcome::Sent,
            standalone: false,
            sent: 0,
            count,
            interval,
            next: now,
            quantum: QUANTUM_BYTES,
        }
    }

    /// No events; the result after `pause`.
    pub(super) fn pause(pause: Duration, now: Instant) -> Self {
        Self::new(Event::None, 0, Duration::ZERO, later(now, pause))
    }

    /// Its events belong to the standalone stream, not to the call's own.
    pub(super) fn on_standalone(mut self) -> Self {
        self.standalone = true;
        self
    }

    /// What its result says, in place of the count of events.
    pub(super) fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// When its next event (or the result) is due.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Sends what is due at `now`, at most what is left of one quantum. `buffer` is scratch space.
    pub(super) fn take_turn(
        &mut self,
        call: u64,
        now: Instant,
        level: Level,
        allowance: &mut Allowance,
        buffer: &mut Vec<u8>,
        sink: &mut impl Sink,
    ) -> Turn {
        let about = if self.standalone { About::Standalone } else { About::Call(call) };
        loop {
            if self.next > now {
                return Turn::Due(self.next);
            }
            if self.sent >= self.count {
                return Turn::Finished;
            }
            if self.quantum == 0 {
                self.quantum = QUANTUM_BYTES;
                return Turn::Yielded;
            }
            if !sink.has_room(about) {
                return Turn::Stalled;
            }
            buffer.clear();
            if let Some(method) = self.write_event(level, buffer) {
                if !allowance.take(buffer.len()) {
                    return Turn::Exhausted;
                }
                sink.notify(about, method, buffer);
                self.quantum = self.quantum.saturating_sub(buffer.len());
            }
            self.sent += 1;
            if self.sent < self.count {
                self.next = later(self.next, self.interval);
            }
        }
    }

    /// Writes the result.
    pub(super) fn write_result(&self, out: &mut Vec<u8>) {
        match self.outcome {
            Outcome::Text(text) => push_text_result(out, text),
            Outcome::Sent => push_text_result(out, &format!("{} events sent", self.sent)),
            Outcome::Slept(ms) => push_text_result(out, &format!("slept for {ms} ms")),
        }
    }

    /// Writes the params of the next event and returns its method; `None` when the client does
    /// not want it.
    fn write_event(&self, level: Level, out: &mut Vec<u8>) -> Option<&'static str> {
        match &self.event {
            Event::Padded { size } => {
                push_padded_params(out, self.sent + 1, *size);
                Some("notifications/message")
            }
            Event::Log { logger, texts } => {
                let text = usize::try_from(self.sent).ok().and_then(|sent| texts.get(sent))?;
                if level > Level::Info {
                    return None;
                }
                out.extend_from_slice(br#"{"level":"info","logger":"#);
                push_string(out, logger);
                out.extend_from_slice(br#","data":"#);
                push_string(out, text);
                out.push(b'}');
                Some("notifications/message")
            }
            Event::Progress { token, first, step, total } => {
                out.extend_from_slice(br#"{"progressToken":"#);
                out.extend_from_slice(token.as_bytes());
                out.extend_from_slice(br#","progress":"#);
                push_number(out, first + step * self.sent);
                out.extend_from_slice(br#","total":"#);
                push_number(out, *total);
                out.push(b'}');
                Some("notifications/progress")
            }
            Event::None => None,
        }
    }
}

/// Writes the params of the `stream` tool's event number `seq` (from 1) with `size` bytes of
/// padding: `{"level":"info","logger":"stream","data":{"seq":1,"pad":"xx"}}`.
///
/// Public for a producer that runs the same flood from a thread of its own.
pub fn push_padded_params(out: &mut Vec<u8>, seq: u64, size: usize) {
    out.extend_from_slice(br#"{"level":"info","logger":"stream","data":{"seq":"#);
    push_number(out, seq);
    out.extend_from_slice(br#","pad":""#);
    out.resize(out.len() + size, b'x');
    out.extend_from_slice(br#""}}"#);
}

/// `at + by`. The bounds on the arguments keep the sum far inside what an instant can hold; an
/// overflow would mean "at once", not a panic.
fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or(at)
}
