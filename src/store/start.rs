//! From a data directory to what the shards go on with. All of it blocks: for the start only.
//!
//! The order matters: what the last process left is read; its torn ends are sealed and everything
//! is synced, so that no later start takes them for damage; the new epoch is durable before
//! anything is written under it; only then are there journals.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracing::{info, warn};

use super::directory::{Directory, Layout, at, boot_id, sync_folder};
use super::epoch;
use super::files::Files;
use super::journal::Level;
use super::meta::Meta;
use super::record::Kind;
use super::recovery::{self, Recovered, RecoveredSession, Repair, Scanner};
use super::rehome;
use super::scan::{ForeignFormat, scan};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, Segments, file_name};
use super::threads;
use super::wal::Home;
use crate::config::DataConfig;
use crate::stream::log::Place;
use crate::sys::random::Random;

/// What one shard goes on with.
pub struct ShardLog {
    /// Where its segments are.
    pub home: Home,
    /// What is promised.
    pub level: Level,
    /// The number of its first new segment.
    pub first_segment: u32,
    /// The number of its next session.
    pub next_slot: u32,
    /// The segments of earlier processes.
    pub segments: Segments,
    /// The sessions that outlived their process.
    pub sessions: Vec<RecoveredSession>,
}

/// A data directory that is ready to be served from.
pub struct Opened {
    /// Holds the lock.
    pub directory: Directory,
    /// What is in force now.
    pub meta: Meta,
    /// Each shard's part, by its index.
    pub shards: Vec<ShardLog>,
}

/// Opens a data directory for `shards` shards, whose segments get `segment_bytes` bytes.
///
/// # Errors
/// One sentence for the operator.
pub fn open(config: &DataConfig, segment_bytes: u64, shards: u16) -> Result<Opened, String> {
    let started = Instant::now();
    let shown = config.dir.display();
    let told = |error: io::Error| format!("{shown}: {error}");
    let segment_bytes = u32::try_from(segment_bytes).map_err(|_| "segments above 4 GiB")?;
    let mut directory = Directory::open(&config.dir)?;
    let boot_id = boot_id().map_err(told)?;
    let mut meta = in_force(&mut directory, shards).map_err(told)?;
    directory.remove_stale().map_err(told)?;
    let mut recovered = recover(directory.layout(), &meta, boot_id)?;
    log_recovered(&recovered, started);
    for (shard, one) in (0..).zip(&recovered) {
        settle(&directory.layout().shard(meta.generation, shard), one).map_err(told)?;
    }
    let endings = recovered.iter().filter_map(|one| one.ending);
    let epoch = epoch::next(meta.epoch, endings, &boot_id);
    if epoch != meta.epoch {
        warn!(epoch, "the log may have lost its end: cursors of before are told so");
    }
    meta.epoch = epoch;
    meta.begin_run()?;
    let level = config.durability;
    if meta.shards != shards {
        let next = Meta { generation: meta.generation + 1, shards, ..meta.clone() };
        let header = segment_header(&next, level, boot_id);
        rehome::rehome(&directory, &recovered, &next, header, segment_bytes)?;
        let before = content(&recovered);
        drop(recovered);
        meta = next;
        recovered = recover(directory.layout(), &meta, boot_id)?;
        if content(&recovered) != before {
            return Err(format!("{shown}: what was moved to {shards} shards does not read back"));
        }
        info!(shards, sessions = before.0, events = before.1, "the sessions were moved");
        // What was moved ended as planned, in a run of its own: one that ends later is another.
        meta.begin_run()?;
    }
    directory.replace_meta(meta.clone()).map_err(told)?;
    directory.remove_stale().map_err(told)?;
    let files = Files::start().map_err(told)?;
    let header = segment_header(&meta, level, boot_id);
    let logs = (0..).zip(recovered).map(|(shard, one)| {
        let header = SegmentHeader { shard, ..header };
        shard_log(directory.layout(), header, segment_bytes, one, &files)
    });
    let shards = logs.collect::<io::Result<Vec<_>>>().map_err(told)?;
    Ok(Opened { directory, meta, shards })
}

/// What holds for a process whose logs end with it.
///
/// # Errors
/// The system gives no random numbers.
pub fn meta_in_memory() -> io::Result<Meta> {
    first_meta(0)
}

fn first_meta(shards: u16) -> io::Result<Meta> {
    let mut key = [0; 32];
    Random::new()?.fill(&mut key);
    Ok(Meta { generation: 1, shards, epoch: 1, runs: 0, key })
}

/// What is in force; a directory that is new is made ready. Its `meta` comes first, since folders
/// without one are refused; until it has been served from, folders may be missing.
fn in_force(directory: &mut Directory, shards: u16) -> io::Result<Meta> {
    let meta = match directory.meta() {
        Some(meta) => meta.clone(),
        None => {
            directory.replace_meta(first_meta(shards)?)?;
            return in_force(directory, shards);
        }
    };
    if meta.runs == 0 {
        directory.make_generation(meta.generation, meta.shards)?;
    }
    Ok(meta)
}

/// Sessions and events that can be served, and streams that cannot.
fn content(recovered: &[Recovered]) -> (usize, usize, usize) {
    let sessions = || recovered.iter().flat_map(|one| &one.sessions);
    let streams = || sessions().flat_map(|session| &session.streams);
    let events = streams().flat_map(|stream| &stream.runs).map(|run| run.lengths.len()).sum();
    let broken = streams().filter(|stream| stream.broken && !stream.buried).count();
    (sessions().count(), events, broken)
}

/// Reads every shard's log, one thread each.
fn recover(layout: &Layout, meta: &Meta, boot_id: [u8; 16]) -> Result<Vec<Recovered>, String> {
    let mut total = 0;
    for shard in 0..meta.shards {
        let segments = layout.segments(meta.generation, shard);
        total += segments.map_err(|e| e.to_string())?.iter().map(|one| one.bytes).sum::<u64>();
    }
    threads::for_each_shard(meta.shards, total, "reading the log", |shard, read| {
        recover_shard(layout, meta.generation, shard, boot_id, read)
    })
}

/// Reads one shard's log.
fn recover_shard(
    layout: &Layout,
    generation: u32,
    shard: u16,
    boot_id: [u8; 16],
    read: &AtomicU64,
) -> Result<Recovered, String> {
    let folder = layout.shard(generation, shard);
    let told = |error: io::Error| format!("{}: {error}", folder.display());
    let segments = layout.segments(generation, shard).map_err(told)?;
    let scanner = |sure| Scanner::new(shard, generation, boot_id, sure);
    let count = |bytes| {
        read.fetch_add(bytes, Ordering::Relaxed);
    };
    scan(&segments, scanner, count).map_err(told)?.map_err(|foreign| {
        let ForeignFormat { segment, version } = foreign;
        let folder = folder.display();
        format!("{folder}: segment {segment} has format {version}, which this gapless cannot read")
    })
}

/// What the last process left is made whole, in the order that `recovery` names.
fn settle(folder: &Path, recovered: &Recovered) -> io::Result<()> {
    // The names, too: a process that was killed may not have come to that.
    sync_folder(folder)?;
    for repair in recovered.repairs() {
        match repair {
            Repair::Remove(segment) => {
                let path = folder.join(file_name(segment));
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return at(&path, Err(error));
                    }
                    _ => sync_folder(folder)?,
                }
            }
            Repair::Sync(segment) => {
                let path = folder.join(file_name(segment));
                at(&path, File::open(&path).and_then(|file| file.sync_all()))?;
            }
            Repair::Seal(torn) => {
                let path = folder.join(file_name(torn.segment));
                at(&path, seal(&path, torn))?;
            }
        }
    }
    Ok(())
}

/// Seals the torn end of a segment; what is behind it goes.
fn seal(path: &Path, torn: Place) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let seal = recovery::seal(torn);
    file.write_all_at(&seal, u64::from(torn.offset))?;
    file.set_len(u64::from(torn.offset) + seal.len() as u64)?;
    file.sync_all()
}

/// What the segments of the process that begins start with, but for shard, number and time.
fn segment_header(meta: &Meta, level: Level, boot_id: [u8; 16]) -> SegmentHeader {
    SegmentHeader {
        shard: 0,
        number: 0,
        epoch: meta.epoch,
        generation: meta.generation,
        level,
        boot_id,
        created: 0,
        run: meta.runs,
    }
}

/// The part of the shard that `header` names.
fn shard_log(
    layout: &Layout,
    header: SegmentHeader,
    segment_bytes: u32,
    recovered: Recovered,
    files: &Files,
) -> io::Result<ShardLog> {
    let folder: Arc<Path> = layout.shard(header.generation, header.shard).into();
    let mut epochs = HashMap::new();
    for segment in recovered.segments.numbers() {
        let path = folder.join(file_name(segment));
        let mut head = [0; SEGMENT_HEADER_BYTES];
        let read = at(&path, File::open(&path).and_then(|file| file.read_at(&mut head, 0)))?;
        // One that does not hold has a damaged segment: its events are of an unknown epoch.
        let epoch = SegmentHeader::decode(&head[..read], segment).map_or(0, |header| header.epoch);
        epochs.insert(segment, epoch);
    }
    Ok(ShardLog {
        home: Home { folder, files: files.clone(), header, segment_bytes, epochs },
        level: header.level,
        first_segment: recovered.next_segment,
        next_slot: recovered.next_slot,
        segments: recovered.segments,
        sessions: recovered.sessions,
    })
}

fn log_recovered(recovered: &[Recovered], started: Instant) {
    let sum = |of: fn(&Recovered) -> u64| recovered.iter().map(of).sum::<u64>();
    let bytes = sum(|one| one.counts.bytes);
    if bytes == 0 {
        return;
    }
    info!(
        sessions = sum(|one| one.sessions.len() as u64),
        events = sum(|one| one.counts.records[Kind::Event as usize]),
        bytes,
        discarded = sum(|one| one.counts.discarded),
        seconds = started.elapsed().as_secs_f32(),
        "the log was read"
    );
    let bad = sum(|one| one.counts.bad_segments + one.counts.bad_headers + one.counts.bad_bodies);
    if bad > 0 {
        warn!(bad, "the log is damaged: the streams that are touched are refused");
    }
}

#[cfg(test)]
mod tests;
