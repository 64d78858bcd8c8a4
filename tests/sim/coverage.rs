//! What the runs have reached: a simulator that never gets somewhere proves nothing about it.

use std::collections::BTreeMap;

use gapless::stream::resume::Class;

/// Counts per thing reached.
#[derive(Default)]
pub struct Coverage {
    counts: BTreeMap<&'static str, u64>,
}

/// What every run of the whole suite has to reach besides the classes.
pub const REQUIRED: [&str; 56] = [
    "partial write",
    "lagging acknowledgement",
    "acknowledged ahead of the completed write",
    "garbage: written - outq below zero",
    "garbage: failed reading",
    "FIN counts one",
    "stalled at the receive window",
    "queued bytes arrive after shutdown",
    "linger-0 close drops queued bytes",
    "reset loses acknowledged bytes",
    "reset in mid-event",
    "hand-off with carried counts",
    "stream response after a hand-off",
    "second stream response on one connection",
    "late acknowledgement of an old generation",
    "late end of an old generation",
    "old writer asks again",
    "ring full",
    "comment sent",
    "producer ring full",
    "producer told that it is over",
    "reader cut",
    "gap announced",
    "trimmed by age",
    "older cursor",
    "cursor ahead",
    "cursor of another stream",
    "cursor of another session",
    "forged cursor",
    "no cursor",
    "superseded",
    "refused after the fence",
    "chunk paged out",
    "chunk read",
    "chunk read too late",
    "read failed",
    "read failed too late",
    "told that it is broken",
    "event copied",
    "segment retired",
    "told: logged",
    "told: sent",
    "told: confirmed",
    "told: named",
    "told: detached",
    "told: trimmed",
    "told: closed",
    "told: timed out",
    "pair: take-over during replay",
    "pair: retention during replay",
    "pair: retention during a read",
    "pair: take-over during a read",
    "pair: finish while detached",
    "pair: second GET during take-over",
    "pair: acknowledgement in mid-event",
    "pair: refused resume beside a healthy reader",
];

impl Coverage {
    pub fn mark(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn class(&mut self, class: Class) {
        self.mark(class.name());
    }

    pub fn has(&self, class: Class) -> bool {
        self.counts.contains_key(class.name())
    }

    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    /// What was never reached.
    pub fn missing(&self) -> Vec<&'static str> {
        let classes = Class::ALL.iter().map(|class| class.name());
        let required = classes.chain(REQUIRED);
        required.filter(|what| !self.counts.contains_key(what)).collect()
    }
}

impl std::fmt::Display for Coverage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.counts.iter().try_for_each(|(what, count)| writeln!(out, "{count:>10}  {what}"))
    }
}
