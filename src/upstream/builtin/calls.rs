//! The open calls and their time.
//!
//! Invariants: an open producer is in exactly one of `ready`, `stalled` and `due`; an open question
//! is in `asked` exactly once; a call that ended or was cancelled is in none of them. Everything
//! is ordered, so the same inputs give the same outputs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use super::ask::Question;
use super::producer::{Allowance, Producer, Turn};
use super::{Level, Sink};

/// What an open call waits for.
enum Open {
    /// For its time, for room, for its turn.
    Producer(Producer),
    /// For the client's answer to this request.
    Asking { request: u64, question: Question },
}

/// The open calls of one session.
#[derive(Default)]
pub(super) struct Calls {
    open: BTreeMap<u64, Open>,
    /// Producers with something to send now, in the order of their turns.
    ready: VecDeque<u64>,
    /// Producers whose stream had no room when they were last asked.
    stalled: VecDeque<u64>,
    /// Producers that wait for an instant.
    due: BTreeSet<(Instant, u64)>,
    /// Requests to the client, by their id, and the calls that wait for their answers.
    asked: BTreeMap<u64, u64>,
    last_request: u64,
}

impl Calls {
    /// Opens a call that sends events over time.
    pub(super) fn start(&mut self, now: Instant, call: u64, producer: Producer) {
        self.remove(call);
        self.schedule(now, call, producer.next());
        self.open.insert(call, Open::Producer(producer));
    }

    /// Opens a call that waits for an answer of the client; returns the id of the request.
    pub(super) fn ask(&mut self, call: u64, question: Question) -> u64 {
        self.remove(call);
        self.last_request += 1;
        let request = self.last_request;
        self.asked.insert(request, call);
        self.open.insert(call, Open::Asking { request, question });
        request
    }

    /// The client answered that request: the call that waited for it, which is open no more.
    pub(super) fn take_asked(&mut self, request: u64) -> Option<(u64, Question)> {
        let call = self.asked.remove(&request)?;
        match self.open.remove(&call) {
            Some(Open::Asking { question, .. }) => Some((call, question)),
            _ => None,
        }
    }

    /// Forgets a call, whatever it waits for.
    pub(super) fn remove(&mut self, call: u64) {
        match self.open.remove(&call) {
            Some(Open::Producer(producer)) => {
                let waited = self.due.remove(&(producer.next(), call));
                if !waited {
                    self.ready.retain(|ready| *ready != call);
                    self.stalled.retain(|stalled| *stalled != call);
                }
            }
            Some(Open::Asking { request, .. }) => {
                self.asked.remove(&request);
            }
            None => {}
        }
    }

    /// Whether no call is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// When a producer wants its next turn. One without room wants none: room is made by the
    /// reader, not by time.
    pub(super) fn next_turn(&self, now: Instant) -> Option<Instant> {
        if !self.ready.is_empty() {
            return Some(now);
        }
        self.due.first().map(|(at, _)| *at)
    }

    /// Gives every producer that can go on its turns, until the allowance is used up.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        level: Level,
        mut allowance: Allowance,
        buffer: &mut Vec<u8>,
        sink: &mut impl Sink,
    ) {
        self.wake(now);
        while let Some(call) = self.ready.pop_front() {
            let Some(Open::Producer(producer)) = self.open.get_mut(&call) else { continue };
            match producer.take_turn(call, now, level, &mut allowance, buffer, sink) {
                Turn::Finished => {
                    buffer.clear();
                    producer.write_result(buffer);
                    self.open.remove(&call);
                    sink.respond(call, Ok(buffer));
                }
                Turn::Due(at) => {
                    self.due.insert((at, call));
                }
                Turn::Stalled => self.stalled.push_back(call),
                Turn::Yielded => self.ready.push_back(call),
                Turn::Exhausted => {
                    self.ready.push_front(call);
                    break;
                }
            }
        }
    }

    fn schedule(&mut self, now: Instant, call: u64, next: Instant) {
        if next <= now {
            self.ready.push_back(call);
        } else {
            self.due.insert((next, call));
        }
    }

    /// Makes ready whose time has come, and who had no room: the sink says whether it has now.
    fn wake(&mut self, now: Instant) {
        self.ready.append(&mut self.stalled);
        while let Some((at, call)) = self.due.first().copied()
            && at <= now
        {
            self.due.pop_first();
            self.ready.push_back(call);
        }
    }
}
