//! What a producer that asked to be told must be told, and when.

use std::collections::BTreeMap;
use std::time::Instant;

use gapless::stream::receipt::{Outcome, Stage, Ticket};

use crate::check::violated;
use crate::oracle::Oracle;

struct Wait {
    number: u64,
    stage: Stage,
    deadline: Instant,
    /// A connection that carried the event unconfirmed has ended.
    detached: bool,
    told: bool,
}

/// Every wait of one stream, open or told.
#[derive(Default)]
pub struct Waits {
    waits: BTreeMap<Ticket, Wait>,
    timed_out: Option<Instant>,
    ended: bool,
}

impl Waits {
    pub fn add(&mut self, ticket: Ticket, number: u64, stage: Stage, deadline: Instant) {
        let wait = Wait { number, stage, deadline, detached: false, told: false };
        self.waits.insert(ticket, wait);
    }

    pub fn handle_detached(&mut self, sent: u64) {
        for wait in self.waits.values_mut().filter(|wait| !wait.told) {
            wait.detached |= wait.stage == Stage::Confirmed && wait.number <= sent;
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.timed_out = Some(now);
    }

    pub fn handle_ended(&mut self) {
        self.ended = true;
    }
}

impl Wait {
    fn reached(&self, oracle: &Oracle) -> bool {
        let event = oracle.event(self.number);
        let named = self.number <= oracle.named;
        match self.stage {
            Stage::Logged => self.number <= oracle.committed(),
            Stage::Sent => event.is_some_and(|event| event.handed),
            Stage::Confirmed => named || event.is_some_and(|event| event.arrived),
            Stage::Named => named,
        }
    }

    fn is_true(&self, outcome: Outcome, oracle: &Oracle) -> bool {
        match outcome {
            Outcome::Reached(stage) => stage == self.stage && self.reached(oracle),
            Outcome::Detached => self.detached,
            Outcome::Trimmed => self.number < oracle.floor,
            Outcome::Closed => oracle.waits.ended,
            Outcome::TimedOut => oracle.waits.timed_out.is_some_and(|at| at >= self.deadline),
        }
    }

    /// Whether the stream has no reason left to keep silent.
    fn is_due(&self, oracle: &Oracle) -> bool {
        let waits = &oracle.waits;
        // What was confirmed on an earlier connection only is not held against the stream.
        let reached = self.reached(oracle)
            && (self.stage != Stage::Confirmed || self.number < oracle.head.max(oracle.named + 1));
        reached
            || self.detached
            || self.number < oracle.floor
            || waits.ended
            || waits.timed_out.is_some_and(|at| at >= self.deadline)
    }
}

/// The name of an outcome among what was reached.
pub fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Reached(Stage::Logged) => "told: logged",
        Outcome::Reached(Stage::Sent) => "told: sent",
        Outcome::Reached(Stage::Confirmed) => "told: confirmed",
        Outcome::Reached(Stage::Named) => "told: named",
        Outcome::Detached => "told: detached",
        Outcome::Trimmed => "told: trimmed",
        Outcome::Closed => "told: closed",
        Outcome::TimedOut => "told: timed out",
    }
}

/// The stream has told `ticket` its outcome.
pub fn handle_told(oracle: &mut Oracle, ticket: Ticket, outcome: Outcome) {
    let Some(wait) = oracle.waits.waits.get(&ticket) else {
        violated("receipt", format!("ticket {ticket} was never asked for"))
    };
    if wait.told {
        violated("receipt", format!("ticket {ticket} is told twice, now {outcome:?}"));
    }
    if !wait.is_true(outcome, oracle) {
        violated("receipt", format!("{outcome:?} is not true of event {}", wait.number));
    }
    if let Some(wait) = oracle.waits.waits.get_mut(&ticket) {
        wait.told = true;
    }
}

/// Nothing that is due may be untold.
pub fn check_due(oracle: &Oracle) {
    let open = oracle.waits.waits.iter().filter(|(_, wait)| !wait.told);
    for (ticket, wait) in open {
        if wait.is_due(oracle) {
            let (stage, number) = (wait.stage, wait.number);
            violated("receipt", format!("ticket {ticket} ({stage:?} of {number}) is still untold"));
        }
    }
}
