//! The end of a process, and the start of the next: both may be cut off anywhere.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gapless::session::{Overflow, Session, Settings};
use gapless::store::epoch;
use gapless::store::journal::{Journal, Level};
use gapless::store::recovery::{Recovered, Repair, seal};
use gapless::store::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::disk::Name;
use crate::process::{Flight, Process};
use crate::upstream::Fake;
use crate::world::{Meta, World};

/// The start was cut off.
struct CutOff;

impl World {
    /// The process dies, or the machine with it.
    pub fn crash(&mut self, with_power: bool) {
        self.note(format!("crash, with the power: {with_power}"));
        self.note_death();
        let closing = self.process.as_ref().is_some_and(|process| process.closing);
        self.mark(if with_power { "crash with the power" } else { "crash of the process" });
        if closing {
            self.mark("crash in a planned end");
        }
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            self.leave(client);
        }
        let flights = self.process.as_mut().map(|process| std::mem::take(&mut process.flights));
        for flight in flights.into_iter().flatten() {
            self.cut_off(flight);
        }
        if with_power {
            self.lose_power();
        }
        self.rot();
        self.process = None;
    }

    /// The client's connections break; what its kernel has, it may read.
    fn leave(&mut self, client: u32) {
        for stream in self.clients[&client].readers.keys().copied().collect::<Vec<_>>() {
            self.consume(client, stream);
        }
        let Some(client) = self.clients.get_mut(&client) else { return };
        client.readers.clear();
        client.views.values_mut().for_each(|view| view.crashed = true);
    }

    /// An action that was under way has been done, or a part of it, or nothing.
    fn cut_off(&mut self, flight: Flight) {
        self.mark("crash inside of an action");
        match flight {
            Flight::Create(segment) if !self.disk_full => {
                let steps = self.rng.between(0, 3);
                self.create(segment, steps);
            }
            Flight::Create(_) => {}
            Flight::Names { upto } => {
                if self.rng.once_in(2) {
                    self.disk.end_sync_names(upto);
                }
            }
            Flight::Write { segment, offset, bytes, .. } => {
                let length = self.rng.between(0, bytes.len() as u64) as usize;
                self.disk.write(Name::Segment(segment), offset as usize, &bytes[..length]);
            }
            Flight::Sync { flush, .. } => {
                let odd = self.rng.between(0, 1) as usize;
                self.disk.end_sync(flush, |at| at % 2 == odd);
            }
            Flight::Remove(segment) => {
                if self.rng.once_in(2) {
                    self.remove(segment);
                }
            }
        }
    }

    fn lose_power(&mut self) {
        self.boot += 1;
        let how = self.disk_rng.between(0, 2);
        let mut coins = crate::rng::Rng::new(self.disk_rng.next(), crate::rng::Concern::Network);
        let kept = || how == 1 || how == 2 && coins.once_in(2);
        self.disk.lose_power(kept, &mut self.disk_rng);
    }

    /// A byte goes bad that earlier processes wrote, and that this one vouches for.
    fn rot(&mut self) {
        let Some(process) = &self.process else { return };
        let first = process.first_segment;
        let is_due = self.hostility.rots && process.vouched && self.rng.once_in(3);
        if !is_due || self.settling || first < 2 {
            return;
        }
        let segment =
            self.rng.between(u64::from(first.saturating_sub(4).max(1)), u64::from(first) - 1);
        let at = self.rng.next() as usize;
        self.disk.rot(segment as u32, at);
        self.oracle.damaged = true;
        self.note(format!("segment {segment} goes bad at {at}"));
    }

    /// Starts a process, as often as it takes.
    pub fn start(&mut self) {
        while self.try_start().is_err() {
            self.mark("crash in a recovery");
        }
    }

    /// Whether the start is cut off here; the power may go then.
    fn may_stop(&mut self) -> Result<(), CutOff> {
        if self.settling || !self.rng.once_in(16) {
            return Ok(());
        }
        if self.rng.once_in(2) {
            self.lose_power();
        }
        self.note("the start is cut off");
        Err(CutOff)
    }

    fn try_start(&mut self) -> Result<(), CutOff> {
        self.remove_stale();
        let recovered = self.disk.scan(self.boot_id());
        self.repair(&recovered)?;
        let holds = self.choose_epoch(&recovered)?;
        self.note(format!(
            "start {} in epoch {}: torn {:?}, discarded {:?}, goes on with {}",
            self.meta.runs,
            self.meta.epoch,
            recovered.torn,
            recovered.discard,
            recovered.next_segment
        ));
        self.check_recovered(&recovered.sessions, holds);
        self.serve(recovered, holds);
        Ok(())
    }

    fn remove_stale(&mut self) {
        for name in self.disk.names() {
            if matches!(name, Name::Spare(_)) {
                self.disk.unlink(name);
            }
        }
        self.disk.sync_names();
    }

    fn repair(&mut self, recovered: &Recovered) -> Result<(), CutOff> {
        if recovered.torn.is_some() {
            self.mark("torn end");
        }
        if !recovered.discard.is_empty() {
            self.mark("segments discarded");
        }
        for step in recovered.repairs() {
            self.may_stop()?;
            match step {
                Repair::Remove(segment) => {
                    self.disk.unlink(Name::Segment(segment));
                    self.may_stop()?;
                    self.disk.sync_names();
                }
                Repair::Sync(segment) => self.disk.sync(Name::Segment(segment)),
                Repair::Seal(torn) => {
                    let (name, bytes) = (Name::Segment(torn.segment), seal(torn));
                    let offset = torn.offset as usize;
                    self.disk.write(name, offset, &bytes);
                    self.may_stop()?;
                    self.disk.set_length(name, offset + bytes.len());
                    self.may_stop()?;
                    self.disk.sync(name);
                }
            }
        }
        self.disk.sync_names();
        self.may_stop()
    }

    /// Puts the epoch in force; tells whether everything that was promised has to be there.
    fn choose_epoch(&mut self, recovered: &Recovered) -> Result<bool, CutOff> {
        let epoch = epoch::next(self.meta.epoch, recovered.ending, &self.boot_id());
        let should = self.oracle.before.as_ref().and_then(|before| self.should_hold(before));
        if let Some(should) = should.filter(|_| !self.oracle.damaged) {
            let holds = epoch == self.meta.epoch;
            assert_eq!(holds, should, "check `epoch`: it is {epoch}, of {:?}", recovered.ending);
        }
        let meta = Meta { epoch, runs: self.meta.runs + 1 };
        // It takes the place of the old one at once; only the crash may be on either side.
        self.may_stop()?;
        self.meta = meta;
        self.may_stop()?;
        let was = self.oracle.before.as_ref().map_or(epoch, |before| before.epoch);
        self.mark(if was == epoch { "epoch kept" } else { "epoch changed" });
        Ok(was == epoch)
    }

    /// Serves what was found.
    fn serve(&mut self, recovered: Recovered, holds: bool) {
        let Recovered { sessions, segments, next_segment, next_slot, .. } = recovered;
        let bytes = self.limits.segment_bytes as u32;
        if self.rng.once_in(3) {
            let levels = [Level::Process, Level::Power, Level::None];
            self.level = *self.rng.pick(&levels).expect("three");
        }
        let level = self.level;
        let mut epochs = HashMap::new();
        for number in segments.numbers() {
            let head = self.disk.read(Name::Segment(number), 0, SEGMENT_HEADER_BYTES);
            if let Some(Ok(header)) = head.map(|head| SegmentHeader::decode(head, number)) {
                epochs.insert(number, header.epoch);
            }
        }
        let journal = Journal::new(level, next_segment, bytes, next_slot, segments);
        let journal = Rc::new(RefCell::new(journal));
        let Meta { epoch, runs } = self.meta;
        let settings = Rc::new(Settings {
            epoch,
            asked_before: u64::from(runs) << 32,
            journal: Some(Rc::clone(&journal)),
            ..Settings::in_memory(self.limits.clone(), [7; 32], Overflow::Auto)
        });
        let header = SegmentHeader {
            shard: 0,
            number: 0,
            epoch,
            generation: 1,
            level,
            boot_id: self.boot_id(),
            created: 0,
            run: runs,
        };
        let shared = Rc::clone(&settings);
        self.process = Some(Process::new(journal, settings, header, epochs, next_segment));
        for found in sessions {
            let client = self.client_of(&found);
            let streams = found.streams.iter().filter(|stream| !stream.broken && !stream.buried);
            let streams: Vec<_> = streams.map(|s| (s.number, s.ids.clone(), !s.finished)).collect();
            let restored = Session::restore(found, Rc::clone(&shared), self.now);
            let Some((session, told)) = restored else {
                let known = self.clients[&client].known;
                let excused = self.oracle.damaged || !known || !holds;
                assert!(excused, "check `served`: client {client} is not served");
                continue;
            };
            self.mark("session came back");
            let fake = Fake { told, ..Fake::default() };
            if let Some(process) = &mut self.process {
                process.adopt(client, session, fake);
            }
            self.note_appended(client);
            self.check_setups(client);
            self.check_answers(client, &streams);
        }
        let Some(process) = &self.process else { return };
        for (number, client) in &mut self.clients {
            // Without its session it knows of none.
            client.known &= process.lives.contains_key(number);
        }
        self.settle();
    }

    /// What set the upstream up is told again: what was told last.
    fn check_setups(&mut self, client: u32) {
        let sent = &self.clients[&client].setups;
        let Some(process) = &mut self.process else { return };
        let Some(live) = process.lives.get_mut(&client) else { return };
        let requests = &mut live.fake.told.requests;
        for (_, params) in requests.iter() {
            assert!(sent.contains(params), "check `invented`: {params} of {client}");
        }
        // As the upstreams do: of one method only the last is told again.
        requests.drain(..requests.len().saturating_sub(1));
    }
}
