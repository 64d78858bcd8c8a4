//! What was appended, what was promised, and what must be so after a restart.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gapless::session::STANDALONE;
use gapless::store::journal::Level;
use gapless::store::record;
use gapless::store::recovery::{RecoveredSession, RecoveredStream};

use crate::disk::Name;
use crate::world::World;

/// How often something happened, to know that the runs are worth something.
#[derive(Debug, Default)]
pub struct Reached(BTreeMap<&'static str, u64>);

/// What has to happen at least once in all runs together.
const WANTED: [&str; 31] = [
    "crash of the process",
    "crash with the power",
    "crash inside of an action",
    "crash in a recovery",
    "planned end",
    "crash in a planned end",
    "torn end",
    "segments discarded",
    "damage found",
    "epoch kept",
    "epoch changed",
    "resumed after a restart",
    "resumed",
    "told: epoch_changed",
    "told: log_truncated",
    "told: log_failed",
    "told: finished",
    "told: restarted",
    "session came back",
    "session ended for good",
    "unread bytes were lost",
    "event read from the disk",
    "waited for a write before a read",
    "short write",
    "waited for room",
    "log failed",
    "segment retired",
    "segment removed",
    "file recycled",
    "reader cut",
    "gap announced",
];

impl Reached {
    pub fn mark(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    pub fn missing(&self) -> Vec<&'static str> {
        WANTED.into_iter().filter(|what| !self.0.contains_key(what)).collect()
    }
}

/// A stream when its process died.
pub struct StreamBefore {
    pub floor: u64,
    pub committed: u64,
    pub open: bool,
}

/// A process when it died.
pub struct Before {
    pub level: Level,
    pub boot: u8,
    pub epoch: u32,
    /// A planned end was on the disk; none: it may have been.
    pub clean: Option<bool>,
    pub is_there: bool,
    pub sessions: BTreeMap<u32, BTreeMap<u32, StreamBefore>>,
}

/// Events by their numbers, without the `id` line.
pub type Appended = BTreeMap<u64, Vec<u8>>;

#[derive(Default)]
pub struct Oracle {
    /// The events of each stream, without their ids: by client and stream.
    pub logs: HashMap<(u32, u32), Appended>,
    /// Whose message a serial number is.
    pub messages: HashMap<u64, u32>,
    /// Sessions whose end is logged and not committed, by slot.
    pub ending: HashMap<u32, u32>,
    /// Sessions whose end is committed.
    pub ended: BTreeSet<u32>,
    /// Sessions that a start did not find.
    pub gone: BTreeSet<u32>,
    pub before: Option<Before>,
    /// Something was damaged or could not be synced: what is told to be broken may be.
    pub damaged: bool,
}

impl Oracle {
    pub fn handle_end_committed(&mut self, slot: u32) {
        if let Some(client) = self.ending.remove(&slot) {
            self.ended.insert(client);
        }
    }
}

/// What of an encoded event does not change when its log becomes another epoch's.
pub fn without_id(event: &[u8]) -> &[u8] {
    let line = event.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    &event[line..]
}

/// The number behind `name` in a text.
pub fn number_after(text: &[u8], name: &str) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (_, after) = text.split_once(name)?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn is_answer(event: &[u8], id: &[u8]) -> bool {
    let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
    let text = String::from_utf8_lossy(event);
    let final_ = text.contains("\"result\":") || text.contains("\"error\":");
    final_ && id.is_some() && number_after(event, "\"id\":") == id
}

/// The newest number that was appended; 0 before the first.
fn newest(log: &Appended) -> u64 {
    log.last_key_value().map_or(0, |(&number, _)| number)
}

impl World {
    /// Writes down what a session has appended since.
    pub fn note_appended(&mut self, client: u32) {
        let Some(process) = &self.process else { return };
        let Some(live) = process.lives.get(&client) else { return };
        for number in live.session.stream_numbers() {
            let Some(stream) = live.session.stream(number) else { continue };
            let log = self.oracle.logs.entry((client, number)).or_default();
            // Behind damage a stream goes on with numbers far above those that may be lost.
            let least = if self.oracle.damaged { stream.floor() } else { 1 };
            for next in (newest(log) + 1).max(least)..=stream.tail() {
                let event = stream.event(next).expect("what was just appended is in memory");
                if let Some(serial) = number_after(event, "\"serial\":") {
                    let whose = self.oracle.messages.get(&serial);
                    assert_eq!(whose, Some(&client), "check `stream`: message {serial}");
                }
                log.insert(next, without_id(event).to_vec());
            }
        }
    }

    /// The process dies: what it had promised.
    pub fn note_death(&mut self) {
        let Some(process) = &self.process else { return };
        let journal = process.journal.borrow();
        let clean = if journal.is_closed() { Some(true) } else { Some(false) };
        let mut sessions = BTreeMap::new();
        for (&client, live) in &process.lives {
            let streams = live.session.stream_numbers().into_iter().filter_map(|number| {
                let stream = live.session.stream(number)?;
                let (floor, committed) = (stream.floor(), stream.committed());
                Some((number, StreamBefore { floor, committed, open: stream.is_open() }))
            });
            sessions.insert(client, streams.collect());
        }
        self.oracle.before = Some(Before {
            level: process.level,
            boot: self.boot,
            epoch: self.meta.epoch,
            clean: clean.filter(|clean| *clean || !process.closing),
            is_there: process.is_there,
            sessions,
        });
    }

    /// Whether the log of the process that died has all that it promised; none: it may or not.
    pub fn should_hold(&self, before: &Before) -> Option<bool> {
        if !before.is_there {
            return None;
        }
        let same_boot = before.boot == self.boot;
        match (before.level, before.clean) {
            (Level::Power, _) | (_, Some(true)) => Some(true),
            (Level::Process, _) if same_boot => Some(true),
            (_, None) => None,
            _ => Some(false),
        }
    }

    /// What a start has found, against what the last process promised.
    pub fn check_recovered(&mut self, sessions: &[RecoveredSession], holds: bool) {
        let before = self.oracle.before.take();
        for session in sessions {
            let client = self.client_of(session);
            assert!(
                self.oracle.damaged || !self.oracle.gone.contains(&client),
                "check `risen`: the session of client {client}"
            );
            let has_ended = self.oracle.ended.contains(&client);
            assert!(
                self.oracle.damaged || !holds || !has_ended,
                "check `risen`: client {client} had ended"
            );
            // The promise to forget it is gone with its record.
            self.oracle.ended.remove(&client);
            let found = |number| session.streams.iter().any(|stream| stream.number == number);
            self.oracle.logs.retain(|&(whose, number), _| whose != client || found(number));
            for stream in &session.streams {
                self.check_contents(client, session, stream);
            }
        }
        let Some(before) = before else { return };
        for (client, streams) in before.sessions {
            let found = sessions.iter().find(|session| self.client_of(session) == client);
            let known = self.clients.get(&client).is_some_and(|client| client.known);
            let Some(found) = found else {
                let excused = !holds || self.oracle.damaged || !known;
                assert!(excused, "check `served`: the session of client {client} is lost");
                self.oracle.gone.insert(client);
                continue;
            };
            if holds && known {
                self.check_kept(client, &streams, found);
            }
        }
        let absent: Vec<u32> = self
            .oracle
            .ended
            .iter()
            .copied()
            .filter(|&client| sessions.iter().all(|session| self.client_of(session) != client))
            .collect();
        self.oracle.gone.extend(absent);
    }

    pub fn client_of(&self, session: &RecoveredSession) -> u32 {
        let found = self.clients.iter().find(|(_, client)| client.id == session.body.id);
        *found.expect("check `invented`: a session that nobody began").0
    }

    /// What a stream has now is what was appended to it, and no more.
    fn check_contents(&mut self, client: u32, session: &RecoveredSession, found: &RecoveredStream) {
        // Of one that is buried the request ids may be gone, too.
        if found.broken && !found.buried {
            assert!(self.oracle.damaged, "check `broken`: stream {} of {client}", found.number);
            self.mark("damage found");
        }
        let log = self.oracle.logs.entry((client, found.number)).or_default();
        let (tail, known) = (found.tail, newest(log));
        let is_known = tail <= known || found.runs.is_empty() && self.oracle.damaged;
        assert!(is_known, "check `invented`: {client}/{} has {tail}", found.number);
        for run in &found.runs {
            let count = run.lengths.len() as u64;
            let bytes: usize = run.lengths.iter().map(|&length| length as usize).sum();
            let bytes = bytes + run.lengths.len() * record::HEADER_BYTES;
            let (segment, offset) = (run.place.segment, run.place.offset as usize);
            let records = self.disk.read(Name::Segment(segment), offset, bytes);
            let records = records.expect("check `payload`: a run is in its segment");
            let mut events = Vec::new();
            let (slot, stream) = (session.slot, found.number);
            record::events(records, segment, slot, stream, run.first, count, &mut events)
                .unwrap_or_else(|bad| panic!("check `payload`: {bad:?} in {run:?}"));
            let mut rest = events.as_slice();
            for (number, &length) in (run.first..).zip(&run.lengths) {
                let (event, after) = rest.split_at(length as usize);
                rest = after;
                let same = log.get(&number).is_some_and(|known| known == without_id(event));
                assert!(same, "check `payload`: event {number} of {client}/{stream}");
            }
        }
        log.split_off(&(tail + 1));
    }

    /// What was committed is there, and what was kept is kept.
    fn check_kept(
        &self,
        client: u32,
        before: &BTreeMap<u32, StreamBefore>,
        session: &RecoveredSession,
    ) {
        if self.oracle.damaged {
            return;
        }
        for (number, stream) in before.iter().filter(|(_, stream)| stream.open) {
            let found = session.streams.iter().find(|found| found.number == *number);
            let Some(found) = found.filter(|found| !found.buried) else {
                panic!("check `kept`: stream {number} of client {client} is lost");
            };
            let (tail, floor) = (found.tail, found.floor);
            assert!(
                tail >= stream.committed,
                "check `kept`: {client}/{number} ends with {tail} of {}",
                stream.committed
            );
            assert!(
                floor <= stream.floor,
                "check `kept`: {client}/{number} begins with {floor}, not {}",
                stream.floor
            );
        }
        for (number, view) in &self.clients[&client].views {
            let found = session.streams.iter().find(|found| found.number == *number);
            let excused = view.done || view.epoch != self.meta.epoch;
            if excused || !before.contains_key(number) {
                continue;
            }
            let lost = || panic!("check `held`: {client}/{number} is lost");
            let found = found.unwrap_or_else(lost);
            let (held, tail) = (view.number, found.tail);
            assert!(held <= tail, "check `held`: {client}/{number} has {held} of {tail}");
        }
    }

    /// Every call that was in flight has one answer in the log of its stream.
    pub fn check_answers(&mut self, client: u32, streams: &[(u32, Vec<Vec<u8>>, bool)]) {
        for (number, ids, must) in streams {
            let Some(log) = self.oracle.logs.get(&(client, *number)) else { continue };
            for id in ids {
                let answers = log.values().filter(|event| is_answer(event, id)).count();
                let shown = String::from_utf8_lossy(id);
                let right = answers == 1 || answers == 0 && !must;
                assert!(
                    right || *number == STANDALONE,
                    "check `one answer`: call {shown} of {client}/{number} has {answers}"
                );
            }
        }
    }

    /// Everything that was just sent would be there if the worst happened now.
    pub fn check_committed(&mut self, client: u32, number: u32) {
        if self.oracle.damaged || !self.rng.once_in(16) {
            return;
        }
        let Some(process) = &self.process else { return };
        let Some(live) = process.lives.get(&client) else { return };
        let Some(stream) = live.session.stream(number) else { return };
        let mut disk = self.disk.clone();
        let boot = match process.level {
            Level::None => return,
            Level::Process => self.boot,
            Level::Power => {
                disk.lose_everything();
                self.boot + 1
            }
        };
        let recovered = disk.scan([boot; 16]);
        let session = recovered.sessions.iter().find(|session| session.slot == live.slot);
        let found =
            session.and_then(|session| session.streams.iter().find(|found| found.number == number));
        let tail = found.filter(|found| !found.broken).map(|found| found.tail);
        let sent = stream.sent_max();
        assert!(
            tail >= Some(sent),
            "check `committed`: {client}/{number} has sent {sent}, and the disk has {tail:?}"
        );
    }
}
