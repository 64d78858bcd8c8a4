//! One shard's log on its disk: does what the journal asks for, in the ring and on the thread for
//! files, and reads what was paged out.
//!
//! The order of everything is the journal's ([`super::journal`]); there is none here.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Instant, SystemTime};

use monoio::fs::File;
use tracing::{error, warn};

use super::files::{Files, NewSegment};
use super::journal::{Action, Journal, Next, Seq};
use super::record::{self, Bad};
use super::recovery::RecoveredSession;
use super::segment::{SegmentHeader, file_name};
use super::start::ShardLog;
use crate::limits::OPEN_SEGMENTS_MAX;
use crate::mcp::event_id::Token;
use crate::shard::signal::Signal;
use crate::shard::{Shard, task};
use crate::stream::log::{Extent, Load};

/// Where one shard's log is, and what stands in the header of each segment.
pub struct Home {
    /// The folder of its segments.
    pub folder: Arc<Path>,
    /// The thread for files.
    pub files: Files,
    /// The header; number and time are each segment's own.
    pub header: SegmentHeader,
    /// Bytes that a segment takes.
    pub segment_bytes: u32,
    /// Epochs of the segments of earlier processes.
    pub epochs: HashMap<u32, u32>,
}

/// One shard's log on its disk.
pub struct Wal {
    journal: Rc<RefCell<Journal>>,
    home: Home,
    /// Segments that are open: all that are written or not wholly synced, and some others.
    open: RefCell<HashMap<u32, Rc<File>>>,
    /// Every segment below this one has been written and synced.
    synced_below: Cell<u32>,
    /// Raised when the journal may have something to do.
    work: Signal,
    /// Raised when the journal may have come further, and when it will not any more.
    progress: Signal,
}

impl Wal {
    /// A shard's log, and the sessions that it is told to go on with.
    pub fn open(log: ShardLog) -> (Rc<Self>, Vec<RecoveredSession>) {
        let ShardLog { home, level, first_segment, next_slot, segments, sessions } = log;
        let journal = Journal::new(level, first_segment, home.segment_bytes, next_slot, segments);
        let wal = Self {
            journal: Rc::new(RefCell::new(journal)),
            home,
            open: RefCell::default(),
            synced_below: Cell::new(first_segment),
            work: Signal::default(),
            progress: Signal::default(),
        };
        (Rc::new(wal), sessions)
    }

    /// What is appended to.
    pub fn journal(&self) -> &Rc<RefCell<Journal>> {
        &self.journal
    }

    /// Something may have been appended.
    pub fn wake(&self) {
        self.work.raise();
    }

    /// Waits until write `seq` is committed; false where it never will be.
    pub async fn committed(&self, seq: Seq) -> bool {
        self.wake();
        self.until(|journal| journal.committed() >= seq || journal.is_poisoned()).await;
        self.journal.borrow().committed() >= seq
    }

    /// Closes the log in the planned way; returns once that is on the disk, or cannot be.
    pub async fn close(&self) {
        self.journal.borrow_mut().close();
        self.wake();
        self.until(|journal| journal.is_closed() || journal.is_poisoned()).await;
    }

    /// Waits until the journal is `done`. Whoever waits looks at the journal itself: the signal
    /// only wakes, since another one who waits may have taken it down.
    async fn until(&self, done: impl Fn(&Journal) -> bool) {
        std::future::poll_fn(|context| {
            if done(&self.journal.borrow()) {
                return Poll::Ready(());
            }
            self.progress.take();
            self.progress.poll(context)
        })
        .await;
    }

    /// The bytes of a chunk that was paged out: `slot` and `stream` are whose it is, and `token` is
    /// what the ids of its events have to begin with.
    ///
    /// # Errors
    /// The system's, or `InvalidData` where the disk has something else.
    pub async fn read(
        &self,
        slot: u32,
        stream: u32,
        token: &Token,
        load: &Load,
    ) -> io::Result<Vec<u8>> {
        let mut events = Vec::with_capacity(load.bytes as usize);
        for extent in &load.extents {
            let segment = extent.place.segment;
            let pin = Pin::new(self, segment)?;
            self.wake();
            self.until(|journal| journal.is_written(extent) || journal.is_poisoned()).await;
            let records = self.read_extent(extent).await?;
            drop(pin);
            let start = events.len();
            let (first, count) = (extent.first, extent.count);
            record::events(&records, segment, slot, stream, first, count, &mut events)
                .map_err(damaged)?;
            if self.home.epochs.get(&segment).is_some_and(|&epoch| epoch != self.home.header.epoch)
            {
                rename(&records, segment, token, &mut events[start..]).map_err(damaged)?;
            }
        }
        Ok(events)
    }

    async fn read_extent(&self, extent: &Extent) -> io::Result<Vec<u8>> {
        let file = self.file(extent.place.segment).await?;
        let mut buffer = vec![0; extent.bytes as usize];
        let result;
        (result, buffer) = file.read_exact_at(buffer, u64::from(extent.place.offset)).await;
        result.map(|()| buffer)
    }

    async fn file(&self, segment: u32) -> io::Result<Rc<File>> {
        if let Some(file) = self.open.borrow().get(&segment) {
            return Ok(Rc::clone(file));
        }
        let file = Rc::new(File::open(self.home.folder.join(file_name(segment))).await?);
        self.keep_open(segment, Rc::clone(&file));
        Ok(file)
    }

    fn keep_open(&self, segment: u32, file: Rc<File>) {
        let mut open = self.open.borrow_mut();
        open.insert(segment, file);
        if open.len() > OPEN_SEGMENTS_MAX {
            let is_done = |other: &u32| *other != segment && *other < self.synced_below.get();
            let oldest = open.keys().copied().filter(is_done).min();
            // Who reads from it right now holds it, too.
            oldest.and_then(|oldest| open.remove(&oldest));
        }
    }
}

/// A segment that stays while it is read, also where the reader is dropped in the middle.
struct Pin<'a> {
    wal: &'a Wal,
    segment: u32,
}

impl<'a> Pin<'a> {
    fn new(wal: &'a Wal, segment: u32) -> io::Result<Self> {
        let is_there = wal.journal.borrow_mut().pin(segment);
        let gone = || io::Error::new(ErrorKind::NotFound, "the segment is gone");
        is_there.then(|| Self { wal, segment }).ok_or_else(gone)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.wal.journal.borrow_mut().unpin(self.segment);
        self.wal.wake();
    }
}

/// Does what the journal asks for, until the process ends.
pub async fn drive(shard: Rc<Shard>, wal: Rc<Wal>) {
    loop {
        let action = wal.journal.borrow_mut().poll_action();
        match action {
            // In turn: one write is under way at a time. And one for each turn of the loop: what
            // others log in this turn goes into the next one as well.
            Some(action @ Action::Write { .. }) => {
                wal.perform(&shard, action).await;
                shard.yielder.yield_now().await;
            }
            Some(action) => {
                let (shard, wal) = (Rc::clone(&shard), Rc::clone(&wal));
                let aside = async move { wal.perform(&shard, action).await };
                // What it was to report never comes: the log would stand still for ever.
                task::spawn("segment", aside, || std::process::abort());
            }
            None => wal.wait().await,
        }
    }
}

impl Wal {
    async fn wait(&self) {
        let until = self.journal.borrow().timeout();
        match until {
            None => self.work.raised().await,
            Some(at) => {
                let sleep = pin!(monoio::time::sleep_until(at.into()));
                self.work.or(sleep).await;
                self.journal.borrow_mut().handle_timeout(Instant::now());
            }
        }
        self.work.take();
    }

    async fn perform(&self, shard: &Rc<Shard>, action: Action) {
        let before = self.journal.borrow().committed();
        let was_full = self.journal.borrow().is_full();
        let failed = match action {
            Action::Write { seq, segment, offset, bytes } => {
                self.write(seq, segment, offset, bytes).await
            }
            Action::Sync { ref segments, upto } => match self.sync(segments.clone()).await {
                Ok(()) => {
                    self.synced_below.set(*segments.end());
                    self.journal.borrow_mut().handle_synced(upto);
                    None
                }
                Err(error) => Some((action, error)),
            },
            Action::Create(segment) => match self.create(segment).await {
                Ok(()) => {
                    self.journal.borrow_mut().handle_created(segment);
                    shard.retire_soon();
                    None
                }
                Err(error) => Some((action, error)),
            },
            Action::SyncDirectory => {
                match self.home.files.sync_folder(Arc::clone(&self.home.folder)).await {
                    Ok(()) => {
                        self.journal.borrow_mut().handle_directory_synced();
                        None
                    }
                    Err(error) => Some((action, error)),
                }
            }
            Action::Remove(segment) => match self.remove(segment).await {
                Ok(()) => {
                    self.journal.borrow_mut().handle_removed(segment);
                    shard.retire_soon();
                    None
                }
                Err(error) => Some((action, error)),
            },
        };
        if let Some((action, error)) = failed {
            self.handle_failed(shard, action, &error);
        }
        self.work.raise();
        if self.journal.borrow().committed() > before {
            shard.handle_committed(self);
        }
        // Not only what is committed is waited for: what is written, too, and the end of it all.
        self.progress.raise();
        if was_full && !self.journal.borrow().is_full() {
            shard.handle_log_room();
        }
    }

    async fn write(
        &self,
        seq: Seq,
        segment: u32,
        offset: u32,
        bytes: Vec<u8>,
    ) -> Option<(Action, io::Error)> {
        let file = match self.file(segment).await {
            Ok(file) => file,
            Err(error) => return Some((Action::Write { seq, segment, offset, bytes }, error)),
        };
        let (written, bytes) = file.write_at(bytes, u64::from(offset)).await;
        match written {
            Ok(length) => {
                self.journal.borrow_mut().handle_written(seq, length, bytes);
                None
            }
            Err(error) => Some((Action::Write { seq, segment, offset, bytes }, error)),
        }
    }

    async fn sync(&self, segments: std::ops::RangeInclusive<u32>) -> io::Result<()> {
        for segment in segments {
            self.file(segment).await?.sync_data().await?;
        }
        Ok(())
    }

    async fn create(&self, number: u32) -> io::Result<()> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let created = since_1970.unwrap_or_default().as_secs();
        let header = SegmentHeader { number, created, ..self.home.header };
        let segment = NewSegment {
            folder: Arc::clone(&self.home.folder),
            number,
            bytes: u64::from(self.home.segment_bytes),
            header: header.encode(),
        };
        let file = File::from_std(self.home.files.create(segment).await?)?;
        self.keep_open(number, Rc::new(file));
        Ok(())
    }

    async fn remove(&self, segment: u32) -> io::Result<()> {
        let open = self.open.borrow_mut().remove(&segment);
        if let Some(file) = open.and_then(|file| Rc::try_unwrap(file).ok()) {
            file.close().await?;
        }
        self.home.files.remove(Arc::clone(&self.home.folder), segment).await
    }

    fn handle_failed(&self, shard: &Rc<Shard>, action: Action, error: &io::Error) {
        let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let what = match &action {
            Action::Create(_) => "create",
            Action::SyncDirectory => "sync_directory",
            Action::Write { .. } => "write",
            Action::Sync { .. } => "sync",
            Action::Remove(_) => "remove",
        };
        let was_full = self.journal.borrow().is_disk_full();
        let next = self.journal.borrow_mut().handle_failed(action, is_full, Instant::now());
        match next {
            Next::Retry(_) if was_full => {}
            Next::Retry(_) => {
                warn!(shard = shard.index, what, %error, "the disk is full: producers wait");
            }
            Next::Poisoned(fault) => {
                error!(shard = shard.index, what, %error, ?fault, "the log has failed");
                shard.handle_log_failed();
                self.progress.raise();
            }
        }
    }
}

/// Gives the events of a log of an older epoch the ids of this one: they are as long.
fn rename(records: &[u8], segment: u32, token: &Token, events: &mut [u8]) -> Result<(), Bad> {
    let (mut records, mut events) = (records, events);
    while !records.is_empty() {
        let (_, body, whole) = record::read(records, segment)?;
        let (event, rest) = events.split_at_mut(body.len());
        token.replace_in(event);
        (records, events) = (&records[whole..], rest);
    }
    Ok(())
}

fn damaged(bad: Bad) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the log is damaged: {bad:?}"))
}

#[cfg(test)]
mod tests;
