//! A disk for tests: segments in memory, written by a journal.

use std::collections::BTreeMap;

use super::body::{SessionBody, StreamBody, StreamId, Transport};
use super::journal::{Action, Journal};
use super::record::{Header, Kind};
use super::recovery::{Recovered, Repair, Scanner, Stop, Sure, seal};
use super::segment::SegmentHeader;
use crate::mcp::session_id::SessionId;
use crate::store::journal::Level;

/// Bytes of a segment in tests.
pub(super) const SEGMENT_BYTES: u32 = 1024;
/// The boot on which the tests write.
pub(super) const BOOT: [u8; 16] = [1; 16];
/// Another boot.
pub(super) const OTHER_BOOT: [u8; 16] = [2; 16];

/// The files of a shard's log, each with its full length from its creation on.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub files: BTreeMap<u32, Vec<u8>>,
    /// The process that writes.
    pub run: u32,
}

impl Disk {
    /// Does whatever the journal wants.
    pub fn run(&mut self, journal: &mut Journal, level: Level) {
        while let Some(action) = journal.poll_action() {
            self.act(journal, level, action);
        }
    }

    pub fn act(&mut self, journal: &mut Journal, level: Level, action: Action) {
        match action {
            Action::Create(number) => {
                let header = SegmentHeader {
                    shard: 0,
                    number,
                    epoch: 1,
                    generation: 0,
                    level,
                    boot_id: BOOT,
                    created: u64::from(number),
                    run: self.run,
                };
                let mut file = header.encode().to_vec();
                file.resize(SEGMENT_BYTES as usize, 0);
                self.files.insert(number, file);
                journal.handle_created(number);
            }
            Action::SyncDirectory => journal.handle_directory_synced(),
            Action::Write { seq, segment, offset, bytes } => {
                self.write(segment, offset, &bytes);
                journal.handle_written(seq, bytes.len(), bytes);
            }
            Action::Sync { upto, .. } => journal.handle_synced(upto),
            Action::Remove(number) => {
                self.files.remove(&number);
                journal.handle_removed(number);
            }
        }
    }

    pub fn write(&mut self, segment: u32, offset: u32, bytes: &[u8]) {
        let file = self.files.get_mut(&segment).expect("a segment that was created");
        file[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Scans everything, in parts of `part` bytes.
    pub fn scan(&self, boot_id: [u8; 16], sure: Sure, part: usize) -> Result<Recovered, Stop> {
        let mut scanner = Scanner::new(0, 0, boot_id, sure);
        for (&number, file) in &self.files {
            scanner.begin(number);
            file.chunks(part).for_each(|part| scanner.feed(part));
        }
        scanner.finish()
    }

    /// Scans everything, twice where that is asked for.
    pub fn recover(&self, boot_id: [u8; 16]) -> Recovered {
        match self.scan(boot_id, Sure::default(), 4096) {
            Err(Stop::Again { sure }) => self.scan(boot_id, sure, 4096).expect("a second scan"),
            recovered => recovered.expect("a scan"),
        }
    }

    /// What is done before the log is written again.
    pub fn repair(&mut self, recovered: &Recovered) {
        self.run += 1;
        for repair in recovered.repairs() {
            match repair {
                Repair::Remove(number) => drop(self.files.remove(&number)),
                Repair::Sync(_) => {}
                Repair::Seal(torn) => {
                    let file = self.files.get_mut(&torn.segment).expect("the torn segment");
                    file.truncate(torn.offset as usize);
                    file.extend_from_slice(&seal(torn));
                }
            }
        }
    }
}

/// A journal over an empty disk.
pub(super) fn journal(level: Level) -> Journal {
    Journal::new(level, 1, SEGMENT_BYTES, 0, Default::default())
}

fn header(kind: Kind, slot: u32, stream: u32, number: u64) -> Header {
    Header { kind, flags: 0, answers: 0, slot, stream, number }
}

pub(super) fn event(slot: u32, stream: u32, number: u64) -> Header {
    header(Kind::Event, slot, stream, number)
}

pub(super) fn of(kind: Kind, slot: u32, stream: u32, number: u64) -> Header {
    header(kind, slot, stream, number)
}

pub(super) fn session_body(slot: u32) -> SessionBody {
    SessionBody {
        id: SessionId::from_random(0, [slot as u8; 16]),
        server: "default".into(),
        principal: 0,
        transport: Transport::StreamableHttp,
        next_stream: 1,
        revision: "2025-11-25".to_owned(),
        endpoint: String::new(),
        initialize: b"{}".to_vec(),
        result: b"{}".to_vec(),
    }
}

/// Logs the birth of a session with one stream of that number and those request ids.
pub(super) fn begin(journal: &mut Journal, slot: u32, stream: u32, ids: &[&str]) {
    let mut body = Vec::new();
    session_body(slot).encode(&mut body);
    journal.append(&header(Kind::Session, slot, 0, 0), &body);
    body.clear();
    let id = |raw: &&str| StreamId { raw: raw.as_bytes().to_vec(), answered: false };
    StreamBody { tail: 0, ids: ids.iter().map(id).collect() }.encode(&mut body);
    journal.append(&header(Kind::Stream, slot, stream, 1), &body);
}
