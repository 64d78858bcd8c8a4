//! A disk that keeps what was synced, and of the rest whatever it likes.
//!
//! A process that dies leaves all writes that had completed. With the power goes everything that no
//! sync covers, but for any of its sectors, in any order, one of them torn at any byte; and of the
//! directory any changes that no sync covers, those of one file in their order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gapless::store::recovery::{Recovered, Scanner, Stop, Sure};

use crate::rng::Rng;

/// Bytes that the disk writes at once; small, so that short records are torn apart, too.
const SECTOR_BYTES: usize = 64;

/// The name of a file in the shard's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Segment(u32),
    /// Not, or no longer, a segment.
    Spare(u64),
}

#[derive(Clone, Default)]
struct File {
    /// What a reader sees.
    bytes: Vec<u8>,
    /// What outlives the power.
    durable: Vec<u8>,
    /// Sectors in which they may differ.
    dirty: BTreeSet<usize>,
}

/// A change of the directory: a file gets another name, its first, or none.
#[derive(Clone, Copy)]
struct Change {
    file: usize,
    from: Option<Name>,
    to: Option<Name>,
}

/// What a sync that begins now will have made durable when it returns.
#[derive(Clone, Debug, Default)]
pub struct Flush {
    sectors: Vec<(usize, usize, Vec<u8>)>,
}

#[derive(Clone, Default)]
pub struct Disk {
    files: Vec<File>,
    names: BTreeMap<Name, usize>,
    durable_names: BTreeMap<Name, usize>,
    changes: VecDeque<Change>,
    changes_durable: u64,
}

impl Disk {
    /// Bytes that all segments and spares take.
    pub fn bytes(&self) -> u64 {
        self.names.values().map(|&file| self.files[file].bytes.len() as u64).sum()
    }

    pub fn names(&self) -> Vec<Name> {
        self.names.keys().copied().collect()
    }

    pub fn has(&self, name: Name) -> bool {
        self.names.contains_key(&name)
    }

    fn change(&mut self, file: usize, from: Option<Name>, to: Option<Name>) {
        if let Some(from) = from {
            self.names.remove(&from);
        }
        if let Some(to) = to {
            self.names.insert(to, file);
        }
        self.changes.push_back(Change { file, from, to });
    }

    pub fn make(&mut self, name: Name) {
        self.files.push(File::default());
        self.change(self.files.len() - 1, None, Some(name));
    }

    pub fn rename(&mut self, from: Name, to: Name) {
        self.change(self.names[&from], Some(from), Some(to));
    }

    pub fn unlink(&mut self, name: Name) {
        if let Some(&file) = self.names.get(&name) {
            self.change(file, Some(name), None);
        }
    }

    /// The length of a file; zeros where it grows.
    pub fn set_length(&mut self, name: Name, bytes: usize) {
        let file = &mut self.files[self.names[&name]];
        let (short, long) = (bytes.min(file.bytes.len()), bytes.max(file.bytes.len()));
        file.bytes.resize(bytes, 0);
        file.dirty.extend(short / SECTOR_BYTES..=long / SECTOR_BYTES);
    }

    pub fn write(&mut self, name: Name, offset: usize, bytes: &[u8]) {
        let file = &mut self.files[self.names[&name]];
        let end = offset + bytes.len();
        assert!(end <= file.bytes.len(), "check `bounded`: a write behind the end of a segment");
        file.bytes[offset..end].copy_from_slice(bytes);
        file.dirty.extend(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
    }

    pub fn read(&self, name: Name, offset: usize, length: usize) -> Option<&[u8]> {
        self.files[*self.names.get(&name)?].bytes.get(offset..offset + length)
    }

    /// A sync of a file begins.
    pub fn begin_sync(&self, name: Name, flush: &mut Flush) {
        let index = self.names[&name];
        let file = &self.files[index];
        for &sector in &file.dirty {
            flush.sectors.push((index, sector, sector_of(&file.bytes, sector).to_vec()));
        }
    }

    /// It returns, having done a part of it or all.
    pub fn end_sync(&mut self, flush: Flush, part: impl Fn(usize) -> bool) {
        for (at, (index, sector, bytes)) in flush.sectors.into_iter().enumerate() {
            // What is clean by now was written back meanwhile, or is newer.
            if part(at) && self.files[index].dirty.contains(&sector) {
                self.files[index].keep(sector, &bytes);
            }
        }
    }

    /// A sync fails: what it should have covered is clean for the kernel and never written.
    pub fn fail_sync(&mut self, flush: &Flush) {
        for (index, sector, _) in &flush.sectors {
            self.files[*index].dirty.remove(sector);
        }
    }

    pub fn sync(&mut self, name: Name) {
        let mut flush = Flush::default();
        self.begin_sync(name, &mut flush);
        self.end_sync(flush, |_| true);
    }

    /// The kernel writes something back without being asked.
    pub fn write_back(&mut self, rng: &mut Rng) {
        for file in &mut self.files {
            for sector in file.dirty.clone() {
                if rng.once_in(4) {
                    let bytes = sector_of(&file.bytes, sector).to_vec();
                    file.keep(sector, &bytes);
                }
            }
        }
    }

    /// What a sync of the directory that begins now covers.
    pub fn begin_sync_names(&self) -> u64 {
        self.changes_durable + self.changes.len() as u64
    }

    pub fn end_sync_names(&mut self, upto: u64) {
        while self.changes_durable < upto {
            let change = self.changes.pop_front().expect("as many changes as were counted");
            apply(&mut self.durable_names, change);
            self.changes_durable += 1;
        }
    }

    pub fn sync_names(&mut self) {
        self.end_sync_names(self.begin_sync_names());
    }

    /// The power goes; `kept` says of each unsynced thing whether it was written all the same.
    pub fn lose_power(&mut self, mut kept: impl FnMut() -> bool, rng: &mut Rng) {
        let mut stuck = BTreeSet::new();
        for change in std::mem::take(&mut self.changes) {
            // One file's changes are written in their order.
            if !stuck.contains(&change.file) && kept() {
                apply(&mut self.durable_names, change);
            } else {
                stuck.insert(change.file);
            }
            self.changes_durable += 1;
        }
        self.names = self.durable_names.clone();
        for file in &mut self.files {
            for sector in std::mem::take(&mut file.dirty) {
                if kept() {
                    let bytes = sector_of(&file.bytes, sector);
                    let torn = if rng.once_in(4) { rng.between(0, 63) as usize } else { 64 };
                    let bytes = bytes[..torn.min(bytes.len())].to_vec();
                    file.keep(sector, &bytes);
                }
            }
            file.bytes = file.durable.clone();
        }
    }

    /// Nothing that was not synced is there.
    pub fn lose_everything(&mut self) {
        self.lose_power(|| false, &mut Rng::new(0, crate::rng::Concern::Shape));
    }

    /// A byte of a segment goes bad.
    pub fn rot(&mut self, segment: u32, at: usize) {
        if let Some(&index) = self.names.get(&Name::Segment(segment)) {
            let file = &mut self.files[index];
            let at = at % file.bytes.len().max(1);
            for bytes in [&mut file.bytes, &mut file.durable] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 0x10;
                }
            }
        }
    }

    /// Reads the log as the start does: again where that is asked for.
    pub fn scan(&self, boot: [u8; 16]) -> Recovered {
        let mut sure = Sure::default();
        loop {
            let mut scanner = Scanner::new(0, 1, boot, sure);
            for (name, &file) in &self.names {
                if let Name::Segment(number) = *name {
                    scanner.begin(number);
                    self.files[file].bytes.chunks(1000).for_each(|part| scanner.feed(part));
                }
            }
            match scanner.finish() {
                Ok(recovered) => return recovered,
                Err(Stop::Again { sure: more }) => {
                    assert_ne!(sure, more, "check `recovery`: it asks for the same again");
                    sure = more;
                }
                Err(Stop::Version { .. }) => panic!("check `recovery`: another version"),
            }
        }
    }
}

impl File {
    fn keep(&mut self, sector: usize, bytes: &[u8]) {
        let start = sector * SECTOR_BYTES;
        let whole = sector_of(&self.bytes, sector);
        if whole == bytes {
            self.dirty.remove(&sector);
        }
        if whole.len() < SECTOR_BYTES {
            // The file ends here, as far as a reader sees.
            self.durable.truncate(start + whole.len());
        }
        if bytes.is_empty() {
            return;
        }
        if self.durable.len() < start + bytes.len() {
            self.durable.resize(start + bytes.len(), 0);
        }
        self.durable[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

fn sector_of(bytes: &[u8], sector: usize) -> &[u8] {
    let start = (sector * SECTOR_BYTES).min(bytes.len());
    &bytes[start..(start + SECTOR_BYTES).min(bytes.len())]
}

fn apply(names: &mut BTreeMap<Name, usize>, change: Change) {
    if let Some(from) = change.from.filter(|from| names.get(from) == Some(&change.file)) {
        names.remove(&from);
    }
    if let Some(to) = change.to {
        names.insert(to, change.file);
    }
}
