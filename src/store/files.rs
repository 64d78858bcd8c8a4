//! The thread that does what would block a shard: making segments, removing them, and making names
//! durable.
//!
//! Reserving 64 MiB takes up to a fraction of a millisecond when all is well and far longer on a
//! busy disk, and neither it nor a rename can be asked of io_uring here. One thread serves all
//! shards; each has few of these jobs under way, so its queue needs no bound.
//!
//! Invariants: a file has a segment's name only when its header is durable and its space is
//! reserved; a file that could not be finished is removed again. The file of a removed segment is
//! kept as a spare, [`SPARES_MAX`] a folder: taking one saves the reservation, and writing over
//! bytes that have been written before is cheaper for the disk. What is in it is stale: records are
//! summed with the number of their segment.
//!
//! Errors keep the system's kind: `StorageFull` pauses producers, others end the log.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use futures_channel::oneshot;

use super::directory::{FILE_MODE, at, spare_name, sync_folder};
use super::segment::{SEGMENT_HEADER_BYTES, file_name};
use crate::sys::file;

/// Files of removed segments that one shard keeps for the next ones.
pub const SPARES_MAX: usize = 1;
/// Bytes written at once where space cannot be reserved.
const ZEROES_BYTES: usize = 1024 * 1024;

/// A segment that is to be made.
#[derive(Clone, Debug)]
pub struct NewSegment {
    /// The folder of its shard.
    pub folder: Arc<Path>,
    /// Its number, which is its name.
    pub number: u32,
    /// Bytes to reserve.
    pub bytes: u64,
    /// What it begins with.
    pub header: [u8; SEGMENT_HEADER_BYTES],
}

enum Job {
    Create(NewSegment, oneshot::Sender<io::Result<File>>),
    SyncFolder(Arc<Path>, oneshot::Sender<io::Result<()>>),
    Remove(Arc<Path>, u32, oneshot::Sender<io::Result<()>>),
}

/// The handle of the thread, for all shards. The thread ends when the last one is gone.
#[derive(Clone, Debug)]
pub struct Files {
    jobs: Sender<Job>,
}

impl Files {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system allows no further thread.
    pub fn start() -> io::Result<Self> {
        let (jobs, queue) = channel();
        let worker = Worker { spares: HashMap::new(), spares_named: 0 };
        std::thread::Builder::new().name("files".to_owned()).spawn(move || worker.run(queue))?;
        Ok(Self { jobs })
    }

    /// Makes a segment and opens it for reading and writing. Its header is durable; its name is
    /// after a [`Files::sync_folder`] that was asked for later.
    ///
    /// # Errors
    /// The system's, with the path: `StorageFull` where there is no room, `AlreadyExists` where
    /// the number has been used.
    pub async fn create(&self, segment: NewSegment) -> io::Result<File> {
        self.ask(|reply| Job::Create(segment, reply)).await
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// The system's, with the path.
    pub async fn sync_folder(&self, folder: Arc<Path>) -> io::Result<()> {
        self.ask(|reply| Job::SyncFolder(folder, reply)).await
    }

    /// Removes a segment, or keeps its file as a spare: nobody may read from it any more.
    ///
    /// # Errors
    /// The system's, with the path.
    pub async fn remove(&self, folder: Arc<Path>, number: u32) -> io::Result<()> {
        self.ask(|reply| Job::Remove(folder, number, reply)).await
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<io::Result<T>>) -> Job,
    ) -> io::Result<T> {
        let (reply, answer) = oneshot::channel();
        // An error means that the thread is gone, and so is `reply`: the next line tells.
        drop(self.jobs.send(job(reply)));
        answer.await.unwrap_or_else(|_| Err(io::Error::other("the thread for files is gone")))
    }
}

/// A file that may become a segment.
struct Spare {
    path: PathBuf,
    bytes: u64,
}

struct Worker {
    /// By folder.
    spares: HashMap<Arc<Path>, Vec<Spare>>,
    /// How many names have been given to spares.
    spares_named: u64,
}

impl Worker {
    fn run(mut self, queue: Receiver<Job>) {
        // Whoever asked may have gone: then nobody needs the answer.
        for job in queue {
            match job {
                Job::Create(segment, reply) => drop(reply.send(self.create(&segment))),
                Job::SyncFolder(folder, reply) => drop(reply.send(sync_folder(&folder))),
                Job::Remove(folder, number, reply) => {
                    drop(reply.send(self.remove(&folder, number)));
                }
            }
        }
    }

    fn create(&mut self, segment: &NewSegment) -> io::Result<File> {
        let path = segment.folder.join(file_name(segment.number));
        if at(&path, fs::exists(&path))? {
            return at(&path, Err(io::ErrorKind::AlreadyExists.into()));
        }
        let unfinished = match self.take_spare(segment) {
            Some(spare) => spare.path,
            None => self.new_name(&segment.folder),
        };
        let made = prepare(&unfinished, segment)
            .and_then(|file| fs::rename(&unfinished, &path).map(|()| file));
        if made.is_err() {
            // Half a segment would take the room that the next try needs.
            let _ = fs::remove_file(&unfinished);
        }
        at(&path, made)
    }

    fn remove(&mut self, folder: &Arc<Path>, number: u32) -> io::Result<()> {
        let path = folder.join(file_name(number));
        if self.spares.get(folder).is_some_and(|kept| kept.len() >= SPARES_MAX) {
            return at(&path, fs::remove_file(&path));
        }
        let bytes = at(&path, fs::metadata(&path))?.len();
        let spare = self.new_name(folder);
        at(&path, fs::rename(&path, &spare))?;
        self.spares.entry(Arc::clone(folder)).or_default().push(Spare { path: spare, bytes });
        Ok(())
    }

    /// A spare of just this length; one of another length is of no use any more.
    fn take_spare(&mut self, segment: &NewSegment) -> Option<Spare> {
        let kept = self.spares.get_mut(&segment.folder)?;
        while let Some(spare) = kept.pop() {
            if spare.bytes == segment.bytes {
                return Some(spare);
            }
            if let Err(error) = fs::remove_file(&spare.path) {
                tracing::warn!(path = %spare.path.display(), %error, "a file could not be removed");
            }
        }
        None
    }

    fn new_name(&mut self, folder: &Path) -> PathBuf {
        self.spares_named += 1;
        folder.join(spare_name(self.spares_named))
    }
}

/// Reserves the space, writes the header and makes both durable.
fn prepare(path: &Path, segment: &NewSegment) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let made = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    match file::reserve(&made, segment.bytes) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            write_zeroes(&made, segment.bytes)?;
        }
        reserved => reserved?,
    }
    made.write_all_at(&segment.header, 0)?;
    // The length too: it was set above, and fdatasync(2) writes what reading back needs.
    made.sync_data()?;
    Ok(made)
}

/// Reserves space where the file system cannot do it otherwise.
fn write_zeroes(file: &File, bytes: u64) -> io::Result<()> {
    let zeroes = vec![0; ZEROES_BYTES];
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(ZEROES_BYTES as u64);
        file.write_all_at(&zeroes[..step as usize], done)?;
        done += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::time::{Duration, Instant};

    use futures_util::FutureExt;

    use super::super::directory::tests::Scratch;
    use super::*;

    const BYTES: u64 = 256 * 1024;

    /// Waits for the thread's answer, as a shard would without blocking.
    fn answer<T>(asked: impl Future<Output = T>) -> T {
        let mut asked = std::pin::pin!(asked);
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(answer) = (&mut asked).now_or_never() {
                return answer;
            }
            assert!(Instant::now() < end, "no answer");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn folder(scratch: &Scratch) -> Arc<Path> {
        let path = scratch.join("shard-0");
        fs::create_dir(&path).expect("made");
        path.into()
    }

    fn segment(folder: &Arc<Path>, number: u32) -> NewSegment {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        header[..11].copy_from_slice(format!("header of {number}").as_bytes());
        NewSegment { folder: Arc::clone(folder), number, bytes: BYTES, header }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("read");
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_segment_has_its_header_its_space_and_a_mode_for_us_alone() {
        let scratch = Scratch::new();
        let (files, folder) = (Files::start().expect("started"), folder(&scratch));
        let made = answer(files.create(segment(&folder, 1))).expect("made");
        answer(files.sync_folder(Arc::clone(&folder))).expect("durable");
        let metadata = made.metadata().expect("known");
        assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (BYTES, 0o600));
        assert!(metadata.blocks() * 512 >= BYTES, "its space is reserved");
        let mut header = [0; 11];
        made.read_exact_at(&mut header, 0).expect("read through the same handle");
        assert_eq!(&header, b"header of 1");
        assert_eq!(names(&folder), ["0000000001.wal"]);
    }

    #[test]
    fn a_number_is_never_used_twice() {
        let scratch = Scratch::new();
        let (files, folder) = (Files::start().expect("started"), folder(&scratch));
        answer(files.create(segment(&folder, 1))).expect("made");
        let error = answer(files.create(segment(&folder, 1))).expect_err("there already");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(&folder), ["0000000001.wal"]);
    }

    #[test]
    fn the_file_of_a_removed_segment_becomes_a_later_one_up_to_a_bound() {
        let scratch = Scratch::new();
        let (files, folder) = (Files::start().expect("started"), folder(&scratch));
        let inode = |file: &File| file.metadata().expect("known").ino();
        let made: Vec<_> = (1..=3)
            .map(|number| answer(files.create(segment(&folder, number))).expect("made"))
            .collect();
        made[0].write_all_at(b"stale", 100_000).expect("written");
        for number in 1..=3 {
            answer(files.remove(Arc::clone(&folder), number)).expect("removed");
        }
        assert_eq!(names(&folder).len(), SPARES_MAX);
        let next = answer(files.create(segment(&folder, 4))).expect("made");
        assert_eq!(inode(&next), inode(&made[0]), "the spare is used");
        let mut bytes = [0; 11];
        next.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(&bytes, b"header of 4");
        assert_eq!(names(&folder), ["0000000004.wal"]);
        let error = answer(files.remove(Arc::clone(&folder), 3)).expect_err("gone");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_spare_of_another_length_is_not_used() {
        let scratch = Scratch::new();
        let (files, folder) = (Files::start().expect("started"), folder(&scratch));
        let made = answer(files.create(segment(&folder, 1))).expect("made");
        made.set_len(BYTES / 2).expect("cut");
        answer(files.remove(Arc::clone(&folder), 1)).expect("kept");
        let next = answer(files.create(segment(&folder, 2))).expect("made");
        assert_eq!(next.metadata().expect("known").len(), BYTES);
        assert_eq!(names(&folder), ["0000000002.wal"]);
    }

    /// Errors keep their kind, and half a segment takes no room.
    #[test]
    fn a_segment_that_cannot_be_made_leaves_nothing_behind() {
        let scratch = Scratch::new();
        let (files, folder) = (Files::start().expect("started"), folder(&scratch));
        let mut huge = segment(&folder, 1);
        huge.bytes = 1 << 62;
        let error = answer(files.create(huge)).expect_err("larger than the disk");
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::FileTooLarge];
        assert!(full.contains(&error.kind()), "{error}");
        assert!(error.to_string().contains("0000000001.wal"), "{error}");
        assert!(names(&folder).is_empty());
        answer(files.create(segment(&folder, 1))).expect("made now");

        let nowhere: Arc<Path> = scratch.join("nowhere").into();
        let error = answer(files.create(segment(&nowhere, 1))).expect_err("no folder");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error = answer(files.sync_folder(nowhere)).expect_err("no folder");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn space_is_reserved_with_zeroes_where_it_cannot_be_otherwise() {
        let scratch = Scratch::new();
        let path = scratch.join("zeroes");
        let file = File::create(&path).expect("made");
        let bytes = 2 * ZEROES_BYTES as u64 + 77;
        write_zeroes(&file, bytes).expect("written");
        let metadata = file.metadata().expect("known");
        assert_eq!(metadata.len(), bytes);
        assert!(metadata.blocks() * 512 >= bytes);
    }

    #[test]
    fn the_thread_outlives_an_asker_that_went_away() {
        let scratch = Scratch::new();
        let (files, folder) = (Files::start().expect("started"), folder(&scratch));
        let mut gone = Box::pin(files.create(segment(&folder, 1)));
        assert!((&mut gone).now_or_never().is_none_or(|made| made.is_ok()));
        drop(gone);
        answer(files.sync_folder(Arc::clone(&folder))).expect("after it");
        assert_eq!(names(&folder), ["0000000001.wal"]);
    }
}
