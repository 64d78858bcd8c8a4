//! Receipts: a producer may ask to be told how far one event has come, and is told exactly once.

use std::collections::VecDeque;
use std::time::Instant;

/// The producer's own key for one wait.
pub type Ticket = u64;

/// How far an event has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// In the log, and committed where that is durable.
    Logged,
    /// Handed to a connection.
    Sent,
    /// Acknowledged by the peer's TCP (a proxy counts as the peer).
    Confirmed,
    /// Covered by a cursor that the client presented.
    Named,
}

/// What a wait came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The event has come as far as was asked.
    Reached(Stage),
    /// The connection that carried it ended before it was confirmed.
    Detached,
    /// Retention dropped it first.
    Trimmed,
    /// The stream or its session ended first.
    Closed,
    /// The deadline passed first.
    TimedOut,
}

struct Wait {
    ticket: Ticket,
    number: u64,
    stage: Stage,
    deadline: Instant,
}

/// The open waits of one stream.
#[derive(Default)]
pub struct Receipts {
    waits: Vec<Wait>,
    told: VecDeque<(Ticket, Outcome)>,
}

impl Receipts {
    pub(super) fn add(&mut self, ticket: Ticket, number: u64, stage: Stage, deadline: Instant) {
        self.waits.push(Wait { ticket, number, stage, deadline });
    }

    pub(super) fn handle_progress(
        &mut self,
        committed: u64,
        sent: u64,
        confirmed: u64,
        named: u64,
    ) {
        self.settle(|wait| {
            let reached = match wait.stage {
                Stage::Logged => wait.number <= committed,
                Stage::Sent => wait.number <= sent,
                Stage::Confirmed => wait.number <= confirmed.max(named),
                Stage::Named => wait.number <= named,
            };
            reached.then_some(Outcome::Reached(wait.stage))
        });
    }

    /// The connection is gone: what it carried unconfirmed will not be confirmed by it.
    pub(super) fn handle_detached(&mut self, sent: u64) {
        self.settle(|wait| {
            let carried = wait.stage == Stage::Confirmed && wait.number <= sent;
            carried.then_some(Outcome::Detached)
        });
    }

    pub(super) fn handle_trimmed(&mut self, floor: u64) {
        self.settle(|wait| (wait.number < floor).then_some(Outcome::Trimmed));
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.settle(|wait| (wait.deadline <= now).then_some(Outcome::TimedOut));
    }

    pub(super) fn handle_closed(&mut self) {
        self.settle(|_| Some(Outcome::Closed));
    }

    /// Whether nobody waits and everybody was told.
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.told.is_empty()
    }

    pub(super) fn poll_told(&mut self) -> Option<(Ticket, Outcome)> {
        self.told.pop_front()
    }

    fn settle(&mut self, outcome: impl Fn(&Wait) -> Option<Outcome>) {
        let told = &mut self.told;
        self.waits.retain(|wait| match outcome(wait) {
            Some(outcome) => {
                told.push_back((wait.ticket, outcome));
                false
            }
            None => true,
        });
    }
}
