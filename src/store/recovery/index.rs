//! What the records say: which sessions there are, and where their events lie.
//!
//! Invariants:
//! * An event is known by its number: the copy that was written last holds.
//! * What takes something back holds for good: the end of a session, a floor, an answer.
//! * Memory is bounded by the records that were read, whatever numbers they name: nothing is made
//!   for a number between two others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::stream::log::Place;

use super::super::body::{SessionBody, StreamBody, StreamId};
use super::super::record::{BURIED, FINISHED, HEADER_BYTES, Header, Kind};
use super::{RecoveredSession, RecoveredStream, Run};

/// No event has this number or a higher one.
const NUMBER_MAX: u64 = 1 << 62;
/// The stream that does not end with the answers that were sent on it.
const STANDALONE: u32 = 0;

/// Events with consecutive numbers.
#[derive(Debug, Default)]
struct Numbers {
    events: VecDeque<(Place, u32)>,
}

/// Events by their number, in as many ranges as there are.
#[derive(Debug, Default)]
struct Events {
    ranges: BTreeMap<u64, Numbers>,
}

impl Events {
    fn insert(&mut self, number: u64, place: Place, length: u32) {
        if let Some((&first, range)) = self.ranges.range_mut(..=number).next_back() {
            let index = (number - first) as usize;
            if index < range.events.len() {
                range.events[index] = (place, length);
                return;
            }
            if index == range.events.len() {
                range.events.push_back((place, length));
                return;
            }
        }
        self.ranges.insert(number, Numbers { events: VecDeque::from([(place, length)]) });
    }

    fn remove_below(&mut self, floor: u64) {
        while let Some(entry) = self.ranges.first_entry().filter(|entry| *entry.key() < floor) {
            let (first, mut range) = entry.remove_entry();
            let gone = floor - first;
            if gone < range.events.len() as u64 {
                range.events.drain(..gone as usize);
                self.ranges.insert(floor, range);
            }
        }
    }

    /// The events `floor..=tail` in runs of records that lie one behind the other; none where one
    /// is missing.
    fn into_runs(self, floor: u64, tail: u64) -> Option<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut next, mut behind) = (floor, None);
        for (first, range) in self.ranges {
            if first != next {
                return None;
            }
            next += range.events.len() as u64;
            for (number, (place, length)) in (first..).zip(range.events) {
                match runs.last_mut() {
                    Some(run) if behind == Some(place) => run.lengths.push(length),
                    _ => runs.push(Run { first: number, place, lengths: vec![length] }),
                }
                let offset = place.offset.checked_add(HEADER_BYTES as u32);
                let end = offset.and_then(|offset| offset.checked_add(length));
                behind = end.map(|offset| Place { offset, ..place });
            }
        }
        (next == tail + 1).then_some(runs)
    }
}

/// One stream, as far as it has been read.
#[derive(Debug, Default)]
struct StreamState {
    /// Its own record; without one its requests are unknown.
    ids: Option<Vec<StreamId>>,
    answered: BTreeSet<u16>,
    finished: bool,
    buried: bool,
    floor: u64,
    tail: u64,
    broken: bool,
    events: Events,
}

impl StreamState {
    fn apply(&mut self, header: &Header, place: Place, length: u32, body: &[u8]) {
        if header.number >= NUMBER_MAX || header.number == 0 && header.kind != Kind::Finish {
            self.broken = true;
            return;
        }
        match header.kind {
            Kind::Stream => self.apply_stream(header, body),
            Kind::Event => {
                self.tail = self.tail.max(header.number);
                if header.answers > 0 {
                    self.answered.insert(header.answers);
                }
                if header.number >= self.floor && !self.buried && !self.broken {
                    self.events.insert(header.number, place, length);
                }
            }
            Kind::Finish => {
                self.finished = true;
                self.tail = self.tail.max(header.number);
            }
            Kind::Floor => {
                self.buried |= header.flags & BURIED != 0;
                self.raise_floor(header.number);
            }
            _ => {}
        }
    }

    fn apply_stream(&mut self, header: &Header, body: &[u8]) {
        let Some(body) = StreamBody::decode(body).ok().filter(|body| body.tail < NUMBER_MAX) else {
            self.broken = true;
            return;
        };
        for (answers, id) in (1..).zip(&body.ids) {
            if id.answered {
                self.answered.insert(answers);
            }
        }
        self.ids = Some(body.ids);
        self.finished |= header.flags & FINISHED != 0;
        self.buried |= header.flags & BURIED != 0;
        self.tail = self.tail.max(body.tail);
        self.raise_floor(header.number);
    }

    fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        self.events.remove_below(self.floor);
    }

    fn into_recovered(mut self, number: u32) -> RecoveredStream {
        let floor = self.floor.max(1);
        let tail = self.tail.max(floor - 1);
        let floor = if self.buried { tail + 1 } else { floor };
        self.events.remove_below(floor);
        let ids = self.ids.take();
        let known = ids.as_ref().map_or(0, Vec::len);
        let is_answered = |index: usize| self.answered.contains(&(index as u16 + 1));
        let answered: Vec<bool> = (0..known).map(is_answered).collect();
        let answers_nothing = self.answered.last().is_some_and(|&last| usize::from(last) > known);
        let runs = std::mem::take(&mut self.events).into_runs(floor, tail);
        let broken = self.broken || ids.is_none() || answers_nothing || runs.is_none();
        let all_answered = known > 0 && answered.iter().all(|&answered| answered);
        RecoveredStream {
            number,
            ids: ids.unwrap_or_default().into_iter().map(|id| id.raw).collect(),
            answered,
            finished: self.finished || number != STANDALONE && all_answered,
            buried: self.buried,
            floor,
            tail,
            broken,
            runs: runs.filter(|_| !broken).unwrap_or_default(),
        }
    }
}

/// One session, as far as it has been read.
#[derive(Debug, Default)]
struct SessionState {
    body: Option<SessionBody>,
    setups: BTreeMap<u64, Vec<u8>>,
    streams: BTreeMap<u32, StreamState>,
    broken: bool,
}

/// All of a shard's sessions, as far as they have been read.
#[derive(Debug, Default)]
pub(super) struct Index {
    sessions: BTreeMap<u32, SessionState>,
    ended: BTreeSet<u32>,
    highest: Option<u32>,
    /// Sessions that appear are broken: what was read of them may begin in the middle.
    newcomers_broken: bool,
}

impl Index {
    fn session(&mut self, slot: u32) -> Option<&mut SessionState> {
        self.highest = self.highest.max(Some(slot));
        if self.ended.contains(&slot) {
            return None;
        }
        let broken = self.newcomers_broken;
        let new = || SessionState { broken, ..SessionState::default() };
        Some(self.sessions.entry(slot).or_insert_with(new))
    }

    /// A record that holds, and is not of the log itself.
    pub(super) fn apply(&mut self, header: &Header, place: Place, length: u32, body: &[u8]) {
        let Some(session) = self.session(header.slot) else { return };
        match header.kind {
            Kind::Session => match SessionBody::decode(body) {
                Ok(body) => session.body = Some(body),
                Err(_) => session.broken = true,
            },
            Kind::Setup => {
                session.setups.insert(header.number, body.to_vec());
            }
            Kind::End => {
                self.sessions.remove(&header.slot);
                self.ended.insert(header.slot);
            }
            _ => {
                let stream = session.streams.entry(header.stream).or_default();
                stream.apply(header, place, length, body);
            }
        }
    }

    /// A record is damaged, but for its header.
    pub(super) fn damage(&mut self, header: &Header) {
        let Some(session) = self.session(header.slot) else { return };
        match header.kind {
            Kind::Session | Kind::Setup => session.broken = true,
            Kind::End => {
                self.sessions.remove(&header.slot);
                self.ended.insert(header.slot);
            }
            _ => {
                let stream = session.streams.entry(header.stream).or_default();
                stream.broken = true;
                // A client may hold the number: no other event may get it.
                if header.kind == Kind::Event && header.number < NUMBER_MAX {
                    stream.tail = stream.tail.max(header.number);
                }
            }
        }
    }

    /// Records of unknown sessions are damaged: every session that is known, and every one that
    /// appears before [`Self::trust_newcomers`], is broken.
    pub(super) fn damage_all(&mut self) {
        self.sessions.values_mut().for_each(|session| session.broken = true);
        self.newcomers_broken = true;
    }

    /// What follows does not follow damage directly.
    pub(super) fn trust_newcomers(&mut self) {
        self.newcomers_broken = false;
    }

    /// The number of the next session.
    pub(super) fn next_slot(&self) -> u32 {
        self.highest.map_or(0, |highest| highest.saturating_add(1))
    }

    /// The sessions that live, the slots of those that have ended, and the slots of those of which
    /// nothing says whose they were.
    pub(super) fn finish(self) -> (Vec<RecoveredSession>, Vec<u32>, Vec<u32>) {
        let (mut sessions, mut lost) = (Vec::new(), Vec::new());
        for (slot, state) in self.sessions {
            let Some(body) = state.body else {
                lost.push(slot);
                continue;
            };
            let streams = state.streams.into_iter().map(|(number, mut stream)| {
                stream.broken |= state.broken;
                stream.into_recovered(number)
            });
            sessions.push(RecoveredSession {
                slot,
                body,
                setups: state.setups.into_values().collect(),
                broken: state.broken,
                streams: streams.collect(),
            });
        }
        (sessions, self.ended.into_iter().collect(), lost)
    }
}
