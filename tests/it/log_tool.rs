//! `gapless log` as an operator runs it: what it prints where, and its exit code.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use gapless::store::directory::Directory;
use gapless::store::meta::Meta;

use crate::server::PROGRAM;

/// A data directory that has been used, removed at the end.
struct Used(PathBuf);

impl Used {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gapless-{name}-{}", std::process::id()));
        let mut directory = Directory::open(&path).expect("made");
        let meta = Meta { generation: 1, shards: 2, epoch: 4, runs: 1, key: [0; 32] };
        directory.replace_meta(meta).expect("written");
        directory.make_generation(1, 2).expect("made");
        Self(path)
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Exit code, stdout and stderr.
fn run(action: &str, directory: &Used) -> (Option<i32>, String, String) {
    let mut program = Command::new(PROGRAM);
    program.args(["log", action]).arg(&directory.0).stdin(Stdio::null());
    let output = program.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_sound_directory_is_0_and_a_damaged_one_1() {
    let used = Used::new("tool-exit");
    let (code, told, errors) = run("check", &used);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(told.contains("2 shards, epoch 4") && told.ends_with("sound\n"), "{told}");
    let (code, told, _) = run("new-epoch", &used);
    assert_eq!(code, Some(0));
    assert!(told.starts_with("epoch 4 -> 5"), "{told}");

    std::fs::write(used.0.join("g1/shard-1/core"), "dumped").expect("written");
    let (code, _, errors) = run("check", &used);
    assert_eq!(code, Some(1));
    assert!(errors.contains("core was not put there by gapless"), "{errors}");
    std::fs::write(used.0.join("meta"), "{}").expect("written");
    let (code, told, errors) = run("dump", &used);
    assert_eq!((code, told.as_str()), (Some(1), ""));
    assert!(errors.contains("was not written by gapless"), "{errors}");
}

#[test]
fn a_directory_in_use_can_be_dumped_and_not_changed() {
    let used = Used::new("tool-lock");
    let _held = Directory::open(&used.0).expect("locked");
    let user = format!("in use by process {}", std::process::id());
    for action in ["check", "new-epoch"] {
        let (code, told, errors) = run(action, &used);
        assert_eq!((code, told.as_str()), (Some(1), ""), "{action}");
        assert!(errors.contains(&user), "{action}: {errors}");
    }
    let (code, told, _) = run("dump", &used);
    assert_eq!(code, Some(0));
    assert!(told.starts_with("# ") && told.contains(&user), "{told}");
}
