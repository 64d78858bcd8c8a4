//! The shell of a process: its sessions, and its log's actions, which are done late, in parts, in
//! any order, or not at all.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use gapless::mcp::event_id::Token;
use gapless::session::{Effect, Ended, ExchangeKey, Session, Settings};
use gapless::store::journal::{Action, Journal, Level, Next, Seq};
use gapless::store::record;
use gapless::store::segment::SegmentHeader;
use gapless::stream::log::Load;

use crate::disk::{Flush, Name};
use crate::upstream::Fake;
use crate::world::World;

/// What stands for a session's end among the streams that wait for a write.
const END: u32 = u32::MAX;

/// A session that is served, by the number of its client.
pub struct Live {
    pub session: Session,
    pub fake: Fake,
    /// Replies that their connections wait for.
    pub waiting: Vec<ExchangeKey>,
    pub slot: u32,
}

/// An action of the log that is under way.
pub enum Flight {
    Create(u32),
    Names { upto: u64 },
    Write { seq: Seq, segment: u32, offset: u32, bytes: Vec<u8> },
    Sync { action: Action, upto: Seq, flush: Flush },
    Remove(u32),
}

pub struct Process {
    pub journal: Rc<RefCell<Journal>>,
    pub settings: Rc<Settings>,
    pub lives: BTreeMap<u32, Live>,
    pub by_slot: HashMap<u32, u32>,
    pub flights: Vec<Flight>,
    pub header: SegmentHeader,
    /// Epochs of the segments of earlier processes.
    pub epochs: HashMap<u32, u32>,
    pub level: Level,
    pub first_segment: u32,
    /// A planned end is under way.
    pub closing: bool,
    pub removing: bool,
    /// The first segment was made, so that the next start hears of this process.
    pub is_there: bool,
    /// Something was written, or, at `power`, synced.
    pub vouched: bool,
    spares: Vec<Name>,
    spares_named: u64,
}

impl Process {
    pub fn new(
        journal: Rc<RefCell<Journal>>,
        settings: Rc<Settings>,
        header: SegmentHeader,
        epochs: HashMap<u32, u32>,
        first_segment: u32,
    ) -> Self {
        Self {
            journal,
            settings,
            lives: BTreeMap::new(),
            by_slot: HashMap::new(),
            flights: Vec::new(),
            level: header.level,
            header,
            epochs,
            first_segment,
            closing: false,
            removing: false,
            is_there: false,
            vouched: false,
            spares: Vec::new(),
            spares_named: 0,
        }
    }

    pub fn adopt(&mut self, client: u32, session: Session, fake: Fake) {
        let slot = session.slot().expect("the session is journaled");
        self.by_slot.insert(slot, client);
        self.lives.insert(client, Live { session, fake, waiting: Vec::new(), slot });
    }
}

impl World {
    pub fn live(&mut self, client: u32) -> Option<&mut Live> {
        self.process.as_mut()?.lives.get_mut(&client)
    }

    /// What is done after every step: the sessions' effects, the log's actions, its reports.
    pub fn settle(&mut self) {
        let Some(process) = &self.process else { return };
        let clients: Vec<u32> = process.lives.keys().copied().collect();
        for client in clients {
            self.settle_session(client);
        }
        self.poll_journal();
        self.take_committed();
        self.check_bytes();
    }

    pub fn settle_session(&mut self, client: u32) {
        self.note_appended(client);
        let now = self.now;
        while let Some(effect) = self.live(client).and_then(|live| live.session.poll_effect()) {
            let Some(live) = self.live(client) else { return };
            match effect {
                Effect::Close(stream, generation) => {
                    self.mark("reader cut");
                    self.close(client, stream, Some(generation));
                }
                Effect::Relieve(stream) => {
                    live.session.relieve(now, stream, &mut live.fake);
                    self.note_appended(client);
                }
                Effect::Remember => live.session.remember(&live.fake),
                Effect::Ended(why) => {
                    let slot = live.slot;
                    self.drop_readers(client);
                    let Some(process) = &mut self.process else { return };
                    process.lives.remove(&client);
                    if why != Ended::Drained {
                        process.journal.borrow_mut().touch(slot, END);
                        self.oracle.ending.insert(slot, client);
                        // The slot stays known for the wake of its end.
                    }
                    return;
                }
                Effect::Wake(_) | Effect::Ready(_) => {}
            }
        }
    }

    /// Takes what the journal wants to be done.
    fn poll_journal(&mut self) {
        let Some(process) = &mut self.process else { return };
        loop {
            let action = process.journal.borrow_mut().poll_action();
            let flight = match action {
                None => break,
                Some(Action::Create(segment)) => Flight::Create(segment),
                Some(Action::SyncDirectory) => Flight::Names { upto: self.disk.begin_sync_names() },
                Some(Action::Write { seq, segment, offset, bytes }) => {
                    Flight::Write { seq, segment, offset, bytes }
                }
                Some(Action::Remove(segment)) => Flight::Remove(segment),
                Some(Action::Sync { segments, upto }) => {
                    let mut flush = Flush::default();
                    for segment in segments.clone() {
                        self.disk.begin_sync(Name::Segment(segment), &mut flush);
                    }
                    Flight::Sync { action: Action::Sync { segments, upto }, upto, flush }
                }
            };
            process.flights.push(flight);
        }
    }

    /// One of the actions under way comes to its end.
    pub fn land(&mut self) {
        let Some(process) = &mut self.process else { return };
        if process.flights.is_empty() {
            return;
        }
        let index = self.rng.between(0, process.flights.len() as u64 - 1) as usize;
        let flight = process.flights.swap_remove(index);
        if self.hostility.fails && !self.settling && self.rng.once_in(300) {
            return self.fail(flight, false);
        }
        if self.disk_full && matches!(flight, Flight::Create(_) | Flight::Write { .. }) {
            return self.fail(flight, true);
        }
        let Some(process) = &mut self.process else { return };
        let journal = Rc::clone(&process.journal);
        match flight {
            Flight::Create(segment) => {
                self.create(segment, 3);
                journal.borrow_mut().handle_created(segment);
            }
            Flight::Names { upto } => {
                self.disk.end_sync_names(upto);
                process.is_there = true;
                journal.borrow_mut().handle_directory_synced();
            }
            Flight::Write { seq, segment, offset, bytes } => {
                let most = bytes.len() as u64;
                let is_short = self.hostility.short_writes && self.rng.once_in(4);
                let length = if is_short { self.rng.between(1, most) } else { most } as usize;
                self.disk.write(Name::Segment(segment), offset as usize, &bytes[..length]);
                process.vouched |= length as u64 == most && process.level != Level::Power;
                journal.borrow_mut().handle_written(seq, length, bytes);
                if (length as u64) < most {
                    self.mark("short write");
                }
            }
            Flight::Sync { upto, flush, .. } => {
                self.disk.end_sync(flush, |_| true);
                process.vouched = true;
                journal.borrow_mut().handle_synced(upto);
            }
            Flight::Remove(segment) => {
                self.remove(segment);
                journal.borrow_mut().handle_removed(segment);
                self.process.iter_mut().for_each(|process| process.removing = false);
                self.mark("segment removed");
            }
        }
    }

    fn fail(&mut self, flight: Flight, is_full: bool) {
        let action = match flight {
            Flight::Create(segment) => Action::Create(segment),
            Flight::Names { .. } => Action::SyncDirectory,
            Flight::Write { seq, segment, offset, bytes } => {
                Action::Write { seq, segment, offset, bytes }
            }
            Flight::Sync { action, flush, .. } => {
                // The next process reads it, syncs it, is told that all is well, and loses it with
                // the power: what it then finds is damage.
                self.disk.fail_sync(&flush);
                self.oracle.damaged = true;
                action
            }
            Flight::Remove(segment) => Action::Remove(segment),
        };
        self.note(format!("failed: {action:?}"));
        let Some(process) = &mut self.process else { return };
        let next = process.journal.borrow_mut().handle_failed(action, is_full, self.now);
        match next {
            Next::Retry(_) => self.mark("waited for room"),
            Next::Poisoned(_) => {
                for live in process.lives.values_mut() {
                    live.session.handle_log_failed();
                }
                self.mark("log failed");
            }
        }
    }

    /// Makes a segment, up to the step `steps` of it.
    pub fn create(&mut self, number: u32, steps: u64) {
        let Some(process) = &mut self.process else { return };
        let name = Name::Segment(number);
        assert!(!self.disk.has(name), "check `bounded`: segment {number} is made twice");
        let recycled = process.spares.pop();
        let spare = recycled.unwrap_or_else(|| {
            process.spares_named += 1;
            let spare = Name::Spare(process.spares_named);
            self.disk.make(spare);
            spare
        });
        let header = SegmentHeader { number, created: self.unix, ..process.header }.encode();
        if recycled.is_some() {
            self.reached.mark("file recycled");
        }
        if steps >= 1 {
            self.disk.set_length(spare, self.limits.segment_bytes as usize);
            self.disk.write(spare, 0, &header);
        }
        if steps >= 2 {
            self.disk.sync(spare);
        }
        if steps >= 3 {
            self.disk.rename(spare, name);
        }
    }

    pub fn remove(&mut self, number: u32) {
        let Some(process) = &mut self.process else { return };
        if !process.spares.is_empty() {
            return self.disk.unlink(Name::Segment(number));
        }
        process.spares_named += 1;
        let spare = Name::Spare(process.spares_named);
        self.disk.rename(Name::Segment(number), spare);
        process.spares.push(spare);
    }

    /// What has been committed goes to its streams.
    fn take_committed(&mut self) {
        let Some(process) = &mut self.process else { return };
        let mut woken = Vec::new();
        process.journal.borrow_mut().take_committed(&mut woken);
        for (slot, stream) in woken {
            if stream == END {
                self.oracle.handle_end_committed(slot);
                continue;
            }
            let client = process.by_slot.get(&slot);
            if let Some(live) = client.and_then(|client| process.lives.get_mut(client)) {
                live.session.handle_committed(stream);
            }
        }
    }

    /// Makes the oldest segment go, if it has to.
    pub fn retire(&mut self) {
        let (bytes, age) = (self.limits.data_bytes, self.limits.data_age.as_secs());
        let (unix, now) = (self.unix, self.now);
        let Some(process) = &mut self.process else { return };
        if process.removing || process.closing {
            return;
        }
        let Some(segment) = process.journal.borrow_mut().retire(unix, bytes, age) else { return };
        let slots: Vec<u32> = process.journal.borrow().slots_in(segment).collect();
        let clients: Vec<u32> =
            slots.iter().filter_map(|slot| process.by_slot.get(slot).copied()).collect();
        for client in clients {
            if let Some(live) = self.live(client) {
                live.session.handle_retired(now, segment, &mut live.fake);
                self.settle_session(client);
            }
        }
        let Some(process) = &mut self.process else { return };
        if !process.journal.borrow().is_poisoned() {
            process.journal.borrow_mut().remove(segment);
            process.removing = true;
            self.mark("segment retired");
        }
    }

    /// Whether a chunk can be read; else who wants it has to wait.
    pub fn is_written(&self, load: &Load) -> bool {
        let Some(process) = &self.process else { return false };
        let journal = process.journal.borrow();
        journal.is_poisoned() || load.extents.iter().all(|extent| journal.is_written(extent))
    }

    /// The bytes of a chunk, as the shell reads them; none where the disk has something else.
    pub fn load(&self, slot: u32, stream: u32, token: &Token, load: &Load) -> Option<Vec<u8>> {
        let process = self.process.as_ref()?;
        let mut events = Vec::new();
        for extent in &load.extents {
            let segment = extent.place.segment;
            let name = Name::Segment(segment);
            let records =
                self.disk.read(name, extent.place.offset as usize, extent.bytes as usize)?;
            let start = events.len();
            let (first, count) = (extent.first, extent.count);
            record::events(records, segment, slot, stream, first, count, &mut events).ok()?;
            if process.epochs.get(&segment).is_some_and(|&epoch| epoch != process.header.epoch) {
                let (mut records, mut events) = (records, &mut events[start..]);
                while !records.is_empty() {
                    let (_, body, whole) = record::read(records, segment).ok()?;
                    let (event, rest) = events.split_at_mut(body.len());
                    token.replace_in(event);
                    (records, events) = (&records[whole..], rest);
                }
            }
        }
        Some(events)
    }

    fn check_bytes(&self) {
        let Some(process) = &self.process else { return };
        for live in process.lives.values() {
            let session = &live.session;
            assert_eq!(session.bytes(), session.recount(), "check `account`: bytes and recount");
        }
    }
}
