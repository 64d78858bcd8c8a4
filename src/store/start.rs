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
use std::thread;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::directory::{Directory, Layout, boot_id, sync_folder};
use super::epoch;
use super::files::Files;
use super::journal::Level;
use super::meta::Meta;
use super::record::Kind;
use super::recovery::{self, Recovered, RecoveredSession, Repair, Scanner};
use super::rehome;
use super::scan::{ForeignFormat, scan};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, Segments, file_name};
use super::wal::Home;
use crate::config::DataConfig;
use crate::sys::random::Random;

/// How often a recovery that takes long says how far it is.
const PROGRESS_TIME: Duration = Duration::from_secs(2);

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
    let mut directory = Directory::open(&config.dir)?;
    let boot_id = boot_id().map_err(told)?;
    let mut meta = match directory.meta() {
        Some(meta) => meta.clone(),
        None => {
            let meta = first_meta(shards).map_err(told)?;
            directory.make_generation(meta.generation, meta.shards).map_err(told)?;
            meta
        }
    };
    if directory.meta().is_some() {
        directory.remove_stale().map_err(told)?;
    }
    let mut recovered = recover(directory.layout(), &meta, boot_id)?;
    for (shard, one) in (0..).zip(&recovered) {
        settle(directory.layout(), &meta, shard, one).map_err(told)?;
    }
    let endings = recovered.iter().filter_map(|one| one.ending);
    let epoch = epoch::next(meta.epoch, endings, &boot_id);
    if epoch != meta.epoch {
        warn!(epoch, "the log may have lost its end: cursors of before are told so");
    }
    meta.epoch = epoch;
    meta.runs = meta.runs.checked_add(1).ok_or("the directory was opened too often")?;
    if meta.shards != shards {
        recovered = rehome::rehome(&directory, &meta, &recovered, shards, segment_bytes, boot_id)
            .map_err(told)?;
        meta.generation += 1;
        meta.shards = shards;
    }
    directory.replace_meta(meta.clone()).map_err(told)?;
    directory.remove_stale().map_err(told)?;
    let files = Files::start().map_err(told)?;
    let level = config.durability;
    log_recovered(&recovered, started);
    let logs = (0..).zip(recovered).map(|(shard, one)| {
        let layout = directory.layout();
        shard_log(layout, &meta, shard, one, (level, boot_id, segment_bytes), &files)
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

/// Reads every shard's log, one thread each.
fn recover(layout: &Layout, meta: &Meta, boot_id: [u8; 16]) -> Result<Vec<Recovered>, String> {
    let read = AtomicU64::new(0);
    let mut total = 0;
    for shard in 0..meta.shards {
        let segments = layout.segments(meta.generation, shard);
        total += segments.map_err(|e| e.to_string())?.iter().map(|one| one.bytes).sum::<u64>();
    }
    thread::scope(|scope| {
        let read = &read;
        let recover = move |shard| recover_shard(layout, meta.generation, shard, boot_id, read);
        let threads: Vec<_> =
            (0..meta.shards).map(|shard| scope.spawn(move || recover(shard))).collect();
        let mut told = Instant::now();
        while threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(1));
            if told.elapsed() >= PROGRESS_TIME {
                told = Instant::now();
                let percent = read.load(Ordering::Relaxed) * 100 / total.max(1);
                info!(percent, total_bytes = total, "reading the log");
            }
        }
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|one| one.unwrap_or_else(|_| Err("reading the log panicked".into()))).collect()
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

/// What the last process left is made whole.
fn settle(layout: &Layout, meta: &Meta, shard: u16, recovered: &Recovered) -> io::Result<()> {
    let folder = layout.shard(meta.generation, shard);
    let path = |segment| folder.join(file_name(segment));
    let open = |segment| OpenOptions::new().write(true).open(path(segment));
    for repair in recovered.repairs() {
        match repair {
            Repair::Remove(segment) => {
                match std::fs::remove_file(path(segment)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                sync_folder(&folder)?;
            }
            Repair::Sync(segment) => open(segment)?.sync_all()?,
            Repair::Seal(torn) => {
                let (file, seal) = (open(torn.segment)?, recovery::seal(torn));
                file.write_all_at(&seal, u64::from(torn.offset))?;
                file.set_len(u64::from(torn.offset) + seal.len() as u64)?;
                file.sync_all()?;
            }
        }
    }
    sync_folder(&folder)
}

/// A shard's part. `level`, boot and segment size are those of the process that begins.
fn shard_log(
    layout: &Layout,
    meta: &Meta,
    shard: u16,
    recovered: Recovered,
    (level, boot_id, segment_bytes): (Level, [u8; 16], u64),
    files: &Files,
) -> io::Result<ShardLog> {
    let folder: Arc<Path> = layout.shard(meta.generation, shard).into();
    let (epoch, generation) = (meta.epoch, meta.generation);
    let mut epochs = HashMap::new();
    for segment in layout.segments(generation, shard)? {
        let mut head = [0; SEGMENT_HEADER_BYTES];
        File::open(&segment.path)?.read_exact_at(&mut head, 0)?;
        if let Ok(header) = SegmentHeader::decode(&head, segment.number) {
            epochs.insert(segment.number, header.epoch);
        }
    }
    let header = SegmentHeader {
        shard,
        number: 0,
        epoch,
        generation,
        level,
        boot_id,
        created: 0,
        run: meta.runs,
    };
    let segment_bytes =
        u32::try_from(segment_bytes).map_err(|_| io::Error::other("segments above 4 GiB"))?;
    Ok(ShardLog {
        home: Home { folder, files: files.clone(), header, segment_bytes, epochs },
        level,
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
