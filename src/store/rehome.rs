//! Another number of shards: every session moves to the shard that owns it now, in a new generation
//! of the directory.
//!
//! What lives is written anew: the session, its setups, each stream with its events; what has ended
//! is left behind. The ids of events of an older epoch get the epoch in force on the way. The new
//! generation is on the disk, and ends as after a planned end, before it can come into force; a
//! crash before that leaves the old one in force, and [`Directory::remove_stale`] removes this one.
//!
//! A broken stream stays broken: its record names an event that is not written, which is a hole.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::body::{StreamBody, StreamId};
use super::directory::{Directory, FILE_MODE, Layout, at, sync_folder};
use super::meta::Meta;
use super::record::{self, BURIED, FINISHED, HEADER_BYTES, Header, Kind};
use super::recovery::{Recovered, RecoveredSession, RecoveredStream, Run};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, file_name, position};
use super::threads;
use crate::mcp::event_id::Token;

/// Bytes that are read at once, unless one record has more; as many wait to be written.
const COPY_BYTES: usize = 1024 * 1024;

/// Writes all sessions of `recovered`, which are those of the generation in force, for the shards
/// and the generation that `next` names. `header` is of the new segments, but for their shards,
/// numbers and times; it has the epoch in force.
///
/// # Errors
/// One sentence. What was written is removed again, as far as that is possible.
pub fn rehome(
    directory: &Directory,
    recovered: &[Recovered],
    next: &Meta,
    header: SegmentHeader,
    segment_bytes: u32,
) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    directory.make_generation(next.generation, next.shards).map_err(told)?;
    let old = directory.meta().ok_or("no generation is in force")?;
    let job = Job { layout: directory.layout(), old, recovered, next, header, segment_bytes };
    let total = recovered.iter().map(|one| one.segments.bytes()).sum();
    let write = |shard, done: &AtomicU64| job.write_shard(shard, done).map_err(told);
    let written = threads::for_each_shard(next.shards, total, "moving the sessions", write);
    if written.is_err() {
        // The room is needed; where this fails, too, the next start does it.
        drop(directory.remove_stale());
    }
    written.map(drop)
}

/// What is to be done, for all threads.
struct Job<'a> {
    layout: &'a Layout,
    old: &'a Meta,
    recovered: &'a [Recovered],
    next: &'a Meta,
    header: SegmentHeader,
    segment_bytes: u32,
}

impl Job<'_> {
    /// Writes the sessions that a new shard owns.
    fn write_shard(&self, shard: u16, done: &AtomicU64) -> io::Result<()> {
        let folder = self.layout.shard(self.next.generation, shard);
        let header = SegmentHeader { shard, ..self.header };
        let mut writer = Writer::new(&folder, header, self.segment_bytes);
        let mut slot = 0;
        for (from, recovered) in (0..).zip(self.recovered) {
            let mut source = Source::new(self.layout.shard(self.old.generation, from));
            for session in &recovered.sessions {
                if session.body.id.owner(usize::from(self.next.shards)) == shard {
                    self.write_session(session, slot, &mut source, &mut writer, done)?;
                    slot += 1;
                }
            }
        }
        writer.finish()?;
        sync_folder(&folder)
    }

    fn write_session(
        &self,
        session: &RecoveredSession,
        slot: u32,
        source: &mut Source,
        writer: &mut Writer<'_>,
        done: &AtomicU64,
    ) -> io::Result<()> {
        let of = |kind, number| Header { slot, ..Header::of_log(kind, number) };
        let mut body = session.body.clone();
        let behind = session.streams.last().map_or(0, |stream| stream.number.saturating_add(1));
        body.next_stream = body.next_stream.max(behind);
        let mut bytes = Vec::new();
        body.encode(&mut bytes);
        writer.push(&of(Kind::Session, 0), &bytes)?;
        for (number, setup) in (1..).zip(&session.setups) {
            writer.push(&of(Kind::Setup, number), setup)?;
        }
        for stream in &session.streams {
            let header = Header { stream: stream.number, ..of(Kind::Stream, 0) };
            write_stream(header, stream, writer)?;
            let token = || Token::mint(&self.next.key, &body.id, stream.number, self.header.epoch);
            let mut copy = Copy { from: session.slot, header, token: None, source, writer };
            for run in &stream.runs {
                let epoch = copy.source.open(run.place.segment)?;
                copy.token = (epoch != self.header.epoch).then(token);
                copy.run(run, done)?;
            }
        }
        Ok(())
    }
}

/// The record of a stream; `header` has its slot and number.
fn write_stream(
    header: Header,
    stream: &RecoveredStream,
    writer: &mut Writer<'_>,
) -> io::Result<()> {
    let is_answered = stream.answered.iter().copied().chain(std::iter::repeat(false));
    let ids = stream.ids.iter().zip(is_answered);
    let ids = ids.map(|(raw, answered)| StreamId { raw: raw.clone(), answered }).collect();
    let has_hole = stream.broken && !stream.buried;
    let tail = if has_hole { stream.tail.max(stream.floor) } else { stream.tail };
    let finished = if stream.finished { FINISHED } else { 0 };
    let buried = if stream.buried { BURIED } else { 0 };
    let mut bytes = Vec::new();
    StreamBody { tail, ids }.encode(&mut bytes);
    writer.push(&Header { flags: finished | buried, number: stream.floor, ..header }, &bytes)
}

/// The copying of one stream's events.
struct Copy<'a, 'w> {
    /// The session's slot where they come from.
    from: u32,
    /// The slot and the stream where they go.
    header: Header,
    /// What their ids get, where that is not what they have.
    token: Option<Token>,
    source: &'a mut Source,
    writer: &'a mut Writer<'w>,
}

impl Copy<'_, '_> {
    fn run(&mut self, run: &Run, done: &AtomicU64) -> io::Result<()> {
        let (mut number, mut offset) = (run.first, u64::from(run.place.offset));
        let mut lengths = run.lengths.as_slice();
        while !lengths.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            for &length in lengths {
                let whole = HEADER_BYTES + length as usize;
                if count > 0 && bytes + whole > COPY_BYTES {
                    break;
                }
                (count, bytes) = (count + 1, bytes + whole);
            }
            self.source.read(offset, bytes)?;
            self.records(run.place.segment, number, count)?;
            done.fetch_add(bytes as u64, Ordering::Relaxed);
            (number, offset) = (number + count as u64, offset + bytes as u64);
            lengths = &lengths[count..];
        }
        Ok(())
    }

    /// Writes the records that were read, which are `count` events from `first` on.
    fn records(&mut self, segment: u32, first: u64, count: usize) -> io::Result<()> {
        let mut at = 0;
        for number in (first..).take(count) {
            let changed = |_| {
                let sentence = format!("segment {segment} of the log changed while it was read");
                io::Error::new(ErrorKind::InvalidData, sentence)
            };
            let rest = &mut self.source.bytes[at..];
            let (header, body, whole) = record::read(rest, segment).map_err(changed)?;
            let named = (header.kind, header.slot, header.stream, header.number);
            if named != (Kind::Event, self.from, self.header.stream, number) {
                return Err(changed(record::Bad::Header));
            }
            let length = body.len();
            let body = &mut rest[whole - length..whole];
            if let Some(token) = &self.token {
                token.replace_in(body);
            }
            self.writer.push(&Header { slot: self.header.slot, ..header }, body)?;
            at += whole;
        }
        Ok(())
    }
}

/// The segments of one old shard. One is open at a time: runs are mostly in their order.
struct Source {
    folder: PathBuf,
    open: Option<(u32, File)>,
    epochs: HashMap<u32, u32>,
    bytes: Vec<u8>,
}

impl Source {
    fn new(folder: PathBuf) -> Self {
        Self { folder, open: None, epochs: HashMap::new(), bytes: Vec::new() }
    }

    /// Goes to a segment; gives the epoch of its events. One whose header is damaged has none.
    fn open(&mut self, segment: u32) -> io::Result<u32> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != segment) {
            let path = self.folder.join(file_name(segment));
            self.open = Some((segment, at(&path, File::open(&path))?));
        }
        if let Some(&epoch) = self.epochs.get(&segment) {
            return Ok(epoch);
        }
        self.read(0, SEGMENT_HEADER_BYTES)?;
        let header = SegmentHeader::decode(&self.bytes, segment);
        let epoch = header.map_or(0, |header| header.epoch);
        self.epochs.insert(segment, epoch);
        Ok(epoch)
    }

    fn read(&mut self, offset: u64, bytes: usize) -> io::Result<()> {
        let (segment, file) = self.open.as_ref().expect("a segment is open");
        self.bytes.resize(bytes, 0);
        let read = file.read_exact_at(&mut self.bytes, offset);
        at(&self.folder.join(file_name(*segment)), read)
    }
}

/// The segments of one new shard. The first is made for the first record.
struct Writer<'a> {
    folder: &'a Path,
    header: SegmentHeader,
    segment_bytes: u32,
    file: Option<File>,
    /// Bytes of the segment that were written, and those that wait.
    written: u64,
    bytes: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(folder: &'a Path, header: SegmentHeader, segment_bytes: u32) -> Self {
        let header = SegmentHeader { number: 0, ..header };
        Self { folder, header, segment_bytes, file: None, written: 0, bytes: Vec::new() }
    }

    fn here(&self) -> u64 {
        self.written + self.bytes.len() as u64
    }

    /// Appends a record. One that is larger than a segment, which were larger before, gets one of
    /// its own size.
    fn push(&mut self, header: &Header, body: &[u8]) -> io::Result<()> {
        // A seal always fits, too.
        let end = self.here() + (2 * HEADER_BYTES + body.len()) as u64;
        let is_empty = self.here() <= SEGMENT_HEADER_BYTES as u64;
        if self.file.is_none() || end > u64::from(self.segment_bytes) && !is_empty {
            self.rotate()?;
        }
        record::push(&mut self.bytes, self.header.number, header, body);
        if self.bytes.len() >= COPY_BYTES { self.flush() } else { Ok(()) }
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            let number = self.header.number;
            record::push(&mut self.bytes, number, &Header::of_log(Kind::Seal, 0), b"");
            self.sync()?;
        }
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.header.created = since_1970.unwrap_or_default().as_secs();
        self.header.number += 1;
        let path = self.folder.join(file_name(self.header.number));
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(FILE_MODE);
        self.file = Some(at(&path, options.open(&path))?);
        self.written = 0;
        self.bytes.extend_from_slice(&self.header.encode());
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        at(self.folder, file.write_all(&self.bytes))?;
        self.written += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        let Some(file) = &self.file else { return Ok(()) };
        at(self.folder, file.sync_all())
    }

    /// The planned end. What is before it is synced first: the mark says so.
    fn finish(mut self) -> io::Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        self.sync()?;
        let number = self.header.number;
        let offset = u32::try_from(self.here()).map_err(|_| ErrorKind::FileTooLarge)?;
        let mark = Header::of_log(Kind::Mark, position(number, offset));
        record::push(&mut self.bytes, number, &mark, b"");
        record::push(&mut self.bytes, number, &Header::of_log(Kind::Clean, 0), b"");
        self.sync()
    }
}

#[cfg(test)]
mod tests;
