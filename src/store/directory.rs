//! The data directory: whose it is, what is in it, and the one file that holds for all of it.
//!
//! Invariants: [`Directory`] exists only while this process holds the lock, which the kernel gives
//! up with the process however it ends; `meta` is replaced by a whole new file that is durable
//! before it takes the name, so a crash leaves the old one or the new one; nothing that this
//! program did not put there is ever removed.
//!
//! All of it blocks: for the start and the end of the process and for tools, never on a shard.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::meta::{META_BYTES, Meta};
use super::segment::parse_file_name;

const LOCK: &str = "lock";
const META: &str = "meta";
const META_NEW: &str = "meta.tmp";
/// What a file system has in its root.
const NOT_OURS_BUT_FINE: &str = "lost+found";
const DIRECTORY_MODE: u32 = 0o700;
/// The mode of every file.
pub(super) const FILE_MODE: u32 = 0o600;
const SPARE: &str = "spare-";

/// Where things are in a data directory. Holds no lock: another process may be using it.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

/// The file of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// Its number, from its name.
    pub number: u32,
    /// Its length, which is more than what has been written to the newest one.
    pub bytes: u64,
    /// Where it is.
    pub path: PathBuf,
}

impl Layout {
    /// The layout under this directory; touches nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of one generation.
    pub fn generation(&self, generation: u32) -> PathBuf {
        self.root.join(format!("g{generation}"))
    }

    /// The folder of one shard's segments.
    pub fn shard(&self, generation: u32, shard: u16) -> PathBuf {
        self.generation(generation).join(format!("shard-{shard}"))
    }

    /// What `meta` says; none in a directory that has not been used.
    ///
    /// # Errors
    /// One sentence for the operator: it cannot be read, or is not what it should be.
    pub fn read_meta(&self) -> Result<Option<Meta>, String> {
        let path = self.root.join(META);
        let mut bytes = Vec::with_capacity(META_BYTES + 1);
        let read = not_followed(OpenOptions::new().read(true))
            .open(&path)
            .and_then(|file| file.take(META_BYTES as u64 + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
        Meta::decode(&bytes).map(Some).map_err(|bad| format!("{} {bad}", path.display()))
    }

    /// The process that holds the lock, as it wrote itself down.
    pub fn holder(&self) -> Option<u32> {
        fs::read_to_string(self.root.join(LOCK)).ok()?.trim().parse().ok()
    }

    /// Keeps every process from writing while the answer lives; changes nothing, so that it works
    /// on a medium that cannot be written. None where the directory was copied without its lock.
    ///
    /// # Errors
    /// `WouldBlock` with a sentence: another process writes. Otherwise the system's.
    pub fn hold_shared(&self) -> io::Result<Option<File>> {
        let path = self.root.join(LOCK);
        let file = match not_followed(OpenOptions::new().read(true)).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => at(&path, opened)?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => {
                let sentence = format!("{} is in use by {}", self.root.display(), self.user());
                Err(io::Error::new(io::ErrorKind::WouldBlock, sentence))
            }
            Err(TryLockError::Error(error)) => at(&path, Err(error)),
        }
    }

    /// Who uses the directory, in words. A tool that only reads does not write itself down.
    fn user(&self) -> String {
        let alive = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
        self.holder()
            .filter(alive)
            .map_or("another process".to_owned(), |pid| format!("process {pid}"))
    }

    /// One shard's segments, the oldest first. Files that are about to become one are left out.
    ///
    /// # Errors
    /// The system's, with the path; `InvalidData` for a file that is not ours.
    pub fn segments(&self, generation: u32, shard: u16) -> io::Result<Vec<SegmentFile>> {
        let folder = self.shard(generation, shard);
        let mut segments = Vec::new();
        for entry in at(&folder, fs::read_dir(&folder))? {
            let entry = at(&folder, entry)?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_str().unwrap_or_default();
            if name.starts_with(SPARE) {
                continue;
            }
            let Some(number) = parse_file_name(name) else {
                return Err(foreign(&path));
            };
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => {
                    segments.push(SegmentFile { number, bytes: metadata.len(), path });
                }
                Ok(_) => return Err(foreign(&path)),
                // Whoever holds the lock has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return at(&path, Err(error)),
            }
        }
        segments.sort_unstable_by_key(|segment| segment.number);
        Ok(segments)
    }

    /// The names in the directory.
    ///
    /// # Errors
    /// One sentence: it cannot be read, or holds what this program did not put there.
    fn check_names(&self) -> Result<Vec<String>, String> {
        let root = self.root.display();
        let told = |error: io::Error| format!("{root} cannot be read: {error}");
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(told)? {
            let name = entry.map_err(told)?.file_name().to_string_lossy().into_owned();
            let known = [LOCK, META, META_NEW, NOT_OURS_BUT_FINE].contains(&name.as_str());
            if !known && generation_number(&name).is_none() {
                return Err(format!(
                    "{root} holds {name:?}, which gapless did not put there: give it a directory \
                     of its own"
                ));
            }
            names.push(name);
        }
        Ok(names)
    }
}

/// A data directory that this process has locked.
#[derive(Debug)]
pub struct Directory {
    layout: Layout,
    /// Closing it gives the lock up.
    _lock: File,
    meta: Option<Meta>,
}

impl Directory {
    /// Opens a data directory, or makes it where only its parent is there, and locks it.
    ///
    /// # Errors
    /// One sentence for the operator: another process uses it, it belongs to something else, it
    /// was written by a newer program, it is damaged, or what the system said.
    pub fn open(root: &Path) -> Result<Self, String> {
        let shown = root.display();
        let told = |what: &str, error: io::Error| format!("{shown} {what}: {error}");
        match DirBuilder::new().mode(DIRECTORY_MODE).create(root) {
            Ok(()) => {
                let made = sync_parent(root);
                made.map_err(|error| told("cannot be made durable", error))?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(told("cannot be made", error)),
        }
        let layout = Layout::new(root);
        // Before anything is put into it.
        layout.check_names()?;
        let lock = lock(&layout)?;
        fs::set_permissions(root, Permissions::from_mode(DIRECTORY_MODE))
            .map_err(|error| told("cannot be closed to others", error))?;
        let names = layout.check_names()?;
        let meta = layout.read_meta()?;
        if meta.is_none() && names.iter().any(|name| generation_number(name).is_some()) {
            return Err(format!(
                "{shown} holds logs, but its file {META:?} is missing: put it back from a backup"
            ));
        }
        // What a crash in the middle of `replace_meta` has left; it never came into force.
        if names.iter().any(|name| name == META_NEW) {
            fs::remove_file(root.join(META_NEW)).map_err(|error| told(META_NEW, error))?;
        }
        Ok(Self { layout, _lock: lock, meta })
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What holds for all of it; none where it has not been used yet.
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    /// Puts `meta` in force. When this returns it is durable; after an error or a crash the old
    /// one is in force, or this one.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn replace_meta(&mut self, meta: Meta) -> io::Result<()> {
        let root = &self.layout.root;
        let (new, path) = (root.join(META_NEW), root.join(META));
        let written = (|| {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(FILE_MODE);
            let mut file = not_followed(options).open(&new)?;
            file.write_all(&meta.encode())?;
            file.sync_all()
        })();
        at(&new, written)?;
        at(&path, fs::rename(&new, &path))?;
        sync_folder(root)?;
        self.meta = Some(meta);
        Ok(())
    }

    /// Makes the folders of a generation, durably; those that are there already stay.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn make_generation(&self, generation: u32, shards: u16) -> io::Result<()> {
        let folder = self.layout.generation(generation);
        make_folder(&folder)?;
        for shard in 0..shards {
            make_folder(&self.layout.shard(generation, shard))?;
        }
        sync_folder(&folder)?;
        sync_folder(&self.layout.root)
    }

    /// Removes what no log needs any more: generations other than the one in force, and files of
    /// an earlier process that had not become segments.
    ///
    /// # Errors
    /// The system's, with the path; `InvalidData` where a file is not ours.
    pub fn remove_stale(&self) -> io::Result<()> {
        let Some(meta) = &self.meta else { return Ok(()) };
        let root = &self.layout.root;
        for entry in at(root, fs::read_dir(root))? {
            let entry = at(root, entry)?;
            let name = entry.file_name();
            let generation = name.to_str().and_then(generation_number);
            if generation.is_some_and(|generation| generation != meta.generation) {
                remove_generation(&entry.path())?;
            }
        }
        for shard in 0..meta.shards {
            let folder = self.layout.shard(meta.generation, shard);
            remove_files(&folder, |name| name.starts_with(SPARE))?;
            sync_folder(&folder)?;
        }
        sync_folder(root)
    }
}

/// Takes the lock and writes down who has it.
fn lock(layout: &Layout) -> Result<File, String> {
    let root = layout.root.display();
    let told = |error: io::Error| format!("{root} cannot be locked: {error}");
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let mut file = not_followed(options).open(layout.root.join(LOCK)).map_err(told)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let who = layout
                .holder()
                .map_or("another process".to_owned(), |pid| format!("process {pid}"));
            return Err(format!(
                "{root} is in use by {who}: two cannot write to one log; stop that one first, or \
                 give another --data-dir"
            ));
        }
        Err(TryLockError::Error(error)) => return Err(told(error)),
    }
    file.set_permissions(Permissions::from_mode(FILE_MODE)).map_err(told)?;
    file.set_len(0).map_err(told)?;
    writeln!(file, "{}", std::process::id()).map_err(told)?;
    Ok(file)
}

/// The identity of the kernel's present run: whether writes that were not synced can still be
/// trusted depends on it.
///
/// # Errors
/// The system's; `InvalidData` where the kernel says something else than an UUID.
pub fn boot_id() -> io::Result<[u8; 16]> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = at(Path::new(path), fs::read_to_string(path))?;
    let digits: String = text.trim().split('-').collect();
    let id = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    id.map(u128::to_be_bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {text:?}")))
}

/// The name of a file that is not, or no longer, a segment.
pub(super) fn spare_name(number: u64) -> String {
    format!("{SPARE}{number}")
}

fn generation_number(name: &str) -> Option<u32> {
    let number: u32 = name.strip_prefix('g')?.parse().ok()?;
    (format!("g{number}") == name).then_some(number)
}

/// A folder of a generation that is not in force, with its shards' files and nothing else.
fn remove_generation(folder: &Path) -> io::Result<()> {
    for entry in at(folder, fs::read_dir(folder))? {
        let shard = at(folder, entry)?.path();
        let name = shard.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.strip_prefix("shard-").and_then(|k| k.parse::<u16>().ok()).is_none() {
            return Err(foreign(&shard));
        }
        remove_files(&shard, |name| name.starts_with(SPARE) || parse_file_name(name).is_some())?;
        at(&shard, fs::remove_dir(&shard))?;
    }
    at(folder, fs::remove_dir(folder))
}

fn remove_files(folder: &Path, which: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in at(folder, fs::read_dir(folder))? {
        let entry = at(folder, entry)?;
        if entry.file_name().to_str().is_some_and(&which) {
            at(&entry.path(), fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => at(path, made),
    }
}

/// Makes the names in a folder durable (fsync(2) of a directory).
///
/// # Errors
/// The system's, with the path.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    at(path, File::open(path).and_then(|folder| folder.sync_all()))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_folder(parent),
        None => sync_folder(Path::new(".")),
    }
}

/// A link in the place of one of our files would let its maker choose what we overwrite.
fn not_followed(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(libc::O_NOFOLLOW)
}

/// An error with the path it happened at, of the same kind.
pub(super) fn at<T>(path: &Path, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn foreign(path: &Path) -> io::Error {
    let sentence = format!("{} was not put there by gapless", path.display());
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}

#[cfg(test)]
pub(in crate::store) mod tests;
