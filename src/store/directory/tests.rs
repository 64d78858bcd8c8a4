//! The directory against crashes, strangers and a second process.

use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::segment::file_name;
use super::*;

/// A folder of its own, removed at the end.
pub(in crate::store) struct Scratch(PathBuf);

impl Scratch {
    pub(in crate::store) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gapless-store-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("made");
        Self(path)
    }

    pub(in crate::store) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn meta(epoch: u32) -> Meta {
    Meta { generation: 1, shards: 2, epoch, runs: 1, key: [7; 32] }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .expect("read")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_directory_is_closed_to_others_and_keeps_its_meta() {
    let scratch = Scratch::new();
    let root = scratch.join("data");
    let mut directory = Directory::open(&root).expect("made");
    assert_eq!(directory.meta(), None);
    directory.replace_meta(meta(5)).expect("written");
    directory.make_generation(1, 2).expect("made");
    directory.make_generation(1, 2).expect("there already");
    for folder in [root.clone(), directory.layout().generation(1), directory.layout().shard(1, 1)] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
    for file in ["lock", "meta"] {
        assert_eq!(mode(&root.join(file)), 0o600, "{file}");
    }
    drop(directory);
    let directory = Directory::open(&root).expect("opened");
    assert_eq!(directory.meta(), Some(&meta(5)));
    assert_eq!(names(&root), ["g1", "lock", "meta"]);
}

/// Whoever made it for us may have left it open; the ids inside are secrets.
#[test]
fn a_directory_that_others_may_read_is_closed() {
    let scratch = Scratch::new();
    let root = scratch.join("data");
    fs::create_dir(&root).expect("made");
    fs::set_permissions(&root, Permissions::from_mode(0o755)).expect("opened to others");
    Directory::open(&root).expect("opened");
    assert_eq!(mode(&root), 0o700);
}

#[test]
fn a_crash_while_meta_is_replaced_leaves_the_old_one_in_force() {
    let scratch = Scratch::new();
    let root = scratch.join("data");
    Directory::open(&root).expect("made").replace_meta(meta(5)).expect("written");
    let whole = meta(6).encode();
    // Crash points: the new file is made, half written, written whole; then it is renamed.
    for written in [0, 20, META_BYTES] {
        fs::write(root.join("meta.tmp"), &whole[..written]).expect("written");
        let directory = Directory::open(&root).expect("opened");
        assert_eq!(directory.meta(), Some(&meta(5)), "{written} bytes");
        assert_eq!(names(&root), ["lock", "meta"]);
    }
    fs::write(root.join("meta.tmp"), whole).expect("written");
    fs::rename(root.join("meta.tmp"), root.join("meta")).expect("renamed");
    assert_eq!(Directory::open(&root).expect("opened").meta(), Some(&meta(6)));
}

#[test]
fn a_meta_that_cannot_be_written_leaves_the_old_one_in_force() {
    let scratch = Scratch::new();
    let root = scratch.join("data");
    let mut directory = Directory::open(&root).expect("made");
    directory.replace_meta(meta(5)).expect("written");
    fs::create_dir(root.join("meta.tmp")).expect("in the way");
    directory.replace_meta(meta(6)).expect_err("there is a folder in its place");
    assert_eq!(directory.meta(), Some(&meta(5)));
    assert_eq!(directory.layout().read_meta(), Ok(Some(meta(5))));
}

#[test]
fn a_meta_that_is_damaged_newer_or_missing_is_never_taken_for_a_fresh_start() {
    let scratch = Scratch::new();
    let root = scratch.join("data");
    let mut directory = Directory::open(&root).expect("made");
    directory.replace_meta(meta(5)).expect("written");
    directory.make_generation(1, 1).expect("made");
    drop(directory);
    let whole = meta(5).encode();
    let mut newer = whole;
    newer[8] = 9;
    for (bytes, word) in [
        (&whole[..META_BYTES - 1], "damaged"),
        (&newer[..], "format 9"),
        (b"{}", "not written by gapless"),
        (b"", "not written by gapless"),
    ] {
        fs::write(root.join("meta"), bytes).expect("written");
        let refused = Directory::open(&root).expect_err(word);
        assert!(refused.contains(word), "{refused}");
    }
    fs::remove_file(root.join("meta")).expect("removed");
    let refused = Directory::open(&root).expect_err("no meta");
    assert!(refused.contains("missing"), "{refused}");
}

#[test]
fn somebody_elses_directory_is_refused_and_left_as_it_was() {
    let scratch = Scratch::new();
    let root = scratch.join("data");
    fs::create_dir(&root).expect("made");
    fs::write(root.join("thesis.txt"), "dear").expect("written");
    let refused = Directory::open(&root).expect_err("foreign");
    assert!(refused.contains("\"thesis.txt\""), "{refused}");
    assert_eq!(names(&root), ["thesis.txt"]);
    for name in ["g", "g01", "g-1", "g4294967296", "meta.old"] {
        fs::rename(root.join(names(&root).remove(0)), root.join(name)).expect("renamed");
        assert!(Directory::open(&root).is_err(), "{name}");
    }
    // The root of a file system of its own.
    fs::remove_file(root.join("meta.old")).expect("removed");
    fs::create_dir(root.join("lost+found")).expect("made");
    Directory::open(&root).expect("ours to use");
    // A file, and a folder whose parent is missing.
    fs::write(scratch.join("file"), "").expect("written");
    assert!(Directory::open(&scratch.join("file")).is_err());
    let refused = Directory::open(&scratch.join("no/data")).expect_err("no parent");
    assert!(refused.contains("cannot be made"), "{refused}");
}

#[test]
fn a_link_in_the_place_of_a_file_is_not_followed() {
    let scratch = Scratch::new();
    let (root, victim) = (scratch.join("data"), scratch.join("victim"));
    fs::write(&victim, "precious").expect("written");
    for name in ["lock", "meta"] {
        fs::create_dir(&root).expect("made");
        symlink(&victim, root.join(name)).expect("linked");
        Directory::open(&root).expect_err(name);
        fs::remove_dir_all(&root).expect("removed");
    }
    fs::create_dir(&root).expect("made");
    let mut directory = Directory::open(&root).expect("opened");
    symlink(&victim, root.join("meta.tmp")).expect("linked");
    directory.replace_meta(meta(1)).expect_err("a link");
    assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
}

/// A process that holds the lock until its stdin is closed.
fn holder(root: &Path) -> Child {
    let script = "flock -n 9 || exit 1; echo $$ > \"$0/lock\"; echo held; read wait";
    let mut child = Command::new("bash")
        .args(["-c", &format!("exec 9<>\"$0/lock\"; {script}")])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut told = [0; 5];
    child.stdout.as_mut().expect("piped").read_exact(&mut told).expect("it holds the lock");
    child
}

#[test]
fn a_second_process_is_told_who_uses_the_directory() {
    let scratch = Scratch::new();
    let root = scratch.join("data");
    Directory::open(&root).expect("made").replace_meta(meta(1)).expect("written");
    let mut other = holder(&root);
    let refused = Directory::open(&root).expect_err("in use");
    assert!(refused.contains(&format!("process {}", other.id())), "{refused}");
    assert_eq!(Layout::new(&root).read_meta(), Ok(Some(meta(1))), "looking needs no lock");
    // However it ends, the kernel gives the lock up.
    other.kill().expect("killed");
    other.wait().expect("gone");
    let directory = Directory::open(&root).expect("free again");
    assert_eq!(directory.layout().holder(), Some(std::process::id()));
    let refused = Directory::open(&root).expect_err("in use by ourselves");
    assert!(refused.contains(&std::process::id().to_string()), "{refused}");
}

#[test]
fn segments_are_listed_by_number_and_strangers_are_told() {
    let scratch = Scratch::new();
    let mut directory = Directory::open(&scratch.join("data")).expect("made");
    directory.replace_meta(meta(1)).expect("written");
    directory.make_generation(1, 2).expect("made");
    let (layout, folder) = (directory.layout(), directory.layout().shard(1, 0));
    for number in [10, 9, u32::MAX] {
        fs::write(folder.join(file_name(number)), vec![0; 3]).expect("written");
    }
    fs::write(folder.join(spare_name(0)), "").expect("written");
    let listed = layout.segments(1, 0).expect("listed");
    let numbers: Vec<_> = listed.iter().map(|segment| (segment.number, segment.bytes)).collect();
    assert_eq!(numbers, [(9, 3), (10, 3), (u32::MAX, 3)]);
    assert_eq!(layout.segments(1, 1).expect("listed"), []);
    assert!(layout.segments(1, 2).is_err(), "no such shard");
    for name in ["11.wal", "0000000011.wal.gz", "99999999999.wal", "core"] {
        fs::write(folder.join(name), "").expect("written");
        let error = layout.segments(1, 0).expect_err(name);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(name), "{error}");
        fs::remove_file(folder.join(name)).expect("removed");
    }
    fs::create_dir(folder.join(file_name(11))).expect("made");
    layout.segments(1, 0).expect_err("a folder is no segment");
}

#[test]
fn stale_generations_and_spares_go_and_nothing_else() {
    let scratch = Scratch::new();
    let root = scratch.join("data");
    let mut directory = Directory::open(&root).expect("made");
    for generation in 0..3 {
        directory.make_generation(generation, 2).expect("made");
        let folder = directory.layout().shard(generation, 0);
        fs::write(folder.join(file_name(1)), "log").expect("written");
        fs::write(folder.join(spare_name(4)), "").expect("written");
    }
    directory.replace_meta(meta(1)).expect("written");
    directory.remove_stale().expect("removed");
    assert_eq!(names(&root), ["g1", "lock", "meta"]);
    assert_eq!(names(&directory.layout().shard(1, 0)), [file_name(1)]);

    // What is not ours stays, and is told.
    directory.make_generation(7, 1).expect("made");
    fs::write(directory.layout().shard(7, 0).join("notes"), "").expect("written");
    directory.remove_stale().expect_err("a stranger's file");
    assert_eq!(names(&directory.layout().shard(7, 0)), ["notes"]);
}

#[test]
fn the_boot_id_stays_the_same_while_the_kernel_runs() {
    let id = boot_id().expect("known");
    assert_eq!(boot_id().expect("known"), id);
    assert_ne!(id, [0; 16]);
}
