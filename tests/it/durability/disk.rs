//! The disk: streams larger than memory, segments that go, no room, and damage.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::client::{End, NEWEST, Session};
use crate::numbered::{self, expect, expect_result, flood, primed, priming_id, sibling};
use crate::server::{PROGRAM, Server, eventually};

use super::{Home, echoes, session, text};

const MIB: u64 = 1024 * 1024;

/// A child cannot be made to wait for one reader; without a disk its reader would be cut.
#[test]
fn a_reader_that_is_far_behind_is_served_from_the_disk() {
    let mut home = Home::new(&["--shards", "1"]).behind(&[PROGRAM, "stdio"]);
    let server = home.serve();
    let session = Session::start(&server, NEWEST);
    let mut stalled = session.listen();
    priming_id(&mut stalled);
    // With two calls open, what is related to none goes to the standalone stream.
    let mut sleep = session.call("\"s\"", "sleep", &json!({"ms": 3_600_000}));
    primed(&mut sleep);
    let before = server.resident();
    let answer = session.call("2", "standalone", &flood(6000, 4096, 0)).result();
    assert!(answer["result"].is_object(), "{answer}");
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 16 * MIB, "24 MiB unread, 1 MiB of it may be in memory: {grown} bytes more");
    let last = expect(&mut stalled, 1, 6000);
    assert_eq!(last, sibling(&last, 6000));
    let mut again = session.resume(&sibling(&last, 10));
    primed(&mut again);
    expect(&mut again, 11, 6000);
    let stopped = server.kill();
    assert!(!stopped.logs.iter().any(|line| text(line).starts_with("cut a reader")));
    let _server = home.serve();
    let mut again = session.resume(&sibling(&last, 3000));
    primed(&mut again);
    expect(&mut again, 3001, 6000);
}

#[test]
fn old_segments_go_and_what_must_outlive_them_is_copied() {
    let flags = "--shards 1 --data-bytes 24MiB --stream-disk-bytes 4MiB --stream-bytes 256KiB";
    let flags: Vec<&str> = flags.split(' ').collect();
    let mut home = Home::new(&flags);
    let server = home.serve();
    let idle = session(&server);
    let priming = priming_id(&mut idle.listen());
    numbered::push(&idle, 2, 100);
    let busy = session(&server);
    for _ in 0..30 {
        let mut call = busy.call("1", "stream", &flood(500, 4096, 0));
        assert!(call.result()["result"].is_object());
    }
    // One that is written and one that is made ahead come on top.
    eventually("old segments are gone", || home.segments().len() <= 26);
    assert!(!home.segments().iter().any(|path| path.ends_with("0000000001.wal")));
    server.kill();
    let _server = home.serve();
    echoes(&idle, "idle");
    let mut get = idle.resume(&priming);
    assert_eq!(primed(&mut get), priming);
    expect(&mut get, 1, 2);
    echoes(&busy, "busy");
}

/// A file system of its own; none where mounting is not permitted.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(name: &str, bytes: u64) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("gapless-{name}-{}", super::unique()));
        std::fs::create_dir_all(&path).expect("made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes},mode=700"), "tmpfs"]).arg(&path);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("SKIPPED: a tmpfs cannot be mounted here; that needs root");
            let _ = std::fs::remove_dir(&path);
        }
        mounted.then_some(Self(path))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Story: the volume ran full at night. Nothing may be dropped; when there is room it goes on.
#[test]
fn a_full_disk_makes_producers_wait_until_there_is_room() {
    let Some(mounted) = Mounted::new("full", 24 * MIB) else { return };
    let filler = mounted.0.join("filler");
    // gapless owns what is in its directory: it is a folder beside the filler.
    let mut home = Home::at(mounted.0.join("data"), &["--shards", "1"]);
    let server = home.serve();
    std::fs::write(&filler, vec![1; 16 * MIB as usize]).expect("room");
    let session = session(&server);
    let mut call = session.call("1", "stream", &flood(3000, 4096, 0));
    primed(&mut call);
    let reading = std::thread::spawn(move || {
        expect(&mut call, 1, 3000);
        expect_result(&mut call, 1, 3001);
    });
    server.wait_for_log("the disk is full", |line| text(line).contains("the disk is full"));
    assert!(!reading.is_finished());
    std::fs::remove_file(&filler).expect("it was made");
    reading.join().expect("every event, once");
    echoes(&session, "after");
    assert_eq!(server.stop().code, Some(0));
    assert_eq!(home.check().0, Some(0));
}

/// A disk that fails: told in-band to who waits, and to who asks; what is safe can be read.
#[test]
fn a_log_that_fails_is_told_and_what_is_safe_is_still_read() {
    let mut home = Home::new(&["--shards", "1"]);
    let server = home.serve();
    let session = session(&server);
    let mut done = session.call("1", "stream", &flood(5, 100, 0));
    let cursor = super::read_some(&mut done, 2);
    expect(&mut done, 3, 5);
    expect_result(&mut done, 1, 6);
    let mut get = session.listen();
    priming_id(&mut get);
    let mut waiting = session.call("2", "sleep", &json!({"ms": 3_600_000}));
    primed(&mut waiting);
    // No segment can be made any more.
    let shard = home.segments()[0].parent().expect("a folder").to_owned();
    let aside = home.dir.with_extension("aside");
    std::fs::rename(&shard, &aside).expect("moved");
    let mut flooded = session.call("3", "stream", &flood(2000, 4096, 0));
    primed(&mut flooded);
    assert_eq!(failed_in_band(&mut flooded)["id"], 3);
    assert_eq!(failed_in_band(&mut waiting)["id"], 2);
    let answer = session.call("4", "echo", &json!({"text": "t"})).result();
    assert_eq!(reason(&answer), (json!(4), json!("log_failed")), "{answer}");
    let mut safe = session.resume(&cursor);
    assert_eq!(primed(&mut safe), cursor);
    expect(&mut safe, 3, 5);
    expect_result(&mut safe, 1, 6);
    server.wait_for_log("the failure", |line| text(line) == "the log has failed");
    drop((get, server));
    std::fs::rename(&aside, &shard).expect("moved back");
    let _server = home.serve();
    let mut call = session.resume(&cursor);
    primed(&mut call);
    expect(&mut call, 3, 5);
    expect_result(&mut call, 1, 6);
    echoes(&session, "after");
}

fn reason(answer: &serde_json::Value) -> (serde_json::Value, serde_json::Value) {
    (answer["id"].clone(), answer["error"]["data"]["reason"].clone())
}

/// The error that ends a call whose log has failed; then the stream ends whole.
fn failed_in_band(stream: &mut crate::client::Connection) -> serde_json::Value {
    let last = std::iter::from_fn(|| stream.message()).last().expect("an error").json();
    assert_eq!(last["error"]["data"]["reason"], "log_failed", "{last}");
    assert_eq!(stream.end(), Some(End::Whole));
    last
}

/// Inverts one byte of the only place where this text is on the disk.
fn damage(home: &Home, text: &str) {
    let found = home.segments().into_iter().find_map(|path| {
        let bytes = std::fs::read(&path).expect("readable");
        let at = bytes.windows(text.len()).position(|window| window == text.as_bytes())?;
        Some((path, bytes, at))
    });
    let (path, mut bytes, at): (_, Vec<u8>, usize) = found.expect("it is on the disk");
    bytes[at] ^= 0x20;
    std::fs::write(Path::new(&path), bytes).expect("writable");
}

/// A bit has rotted: that stream is refused, never served with a hole, and no other suffers.
#[test]
fn a_damaged_event_refuses_its_stream_and_no_other() {
    let mut home = Home::new(&["--shards", "1", "--answers", "sse"]);
    let server = home.serve();
    let session = session(&server);
    let mut cursors = Vec::new();
    for id in ["1", "2"] {
        let mut call = session.call(id, "echo", &json!({"text": format!("marked-{id}")}));
        cursors.push(primed(&mut call));
        assert_eq!(call.message().expect("the answer").number(), 1);
    }
    server.kill();
    damage(&home, "marked-1");
    let (code, told) = home.check();
    assert_eq!(code, Some(1), "{told}");
    let _server: Server = home.serve();
    let mut refused = session.resume(&cursors[0]);
    assert_eq!(primed(&mut refused), cursors[0]);
    let error = refused.message().expect("an error").json();
    assert_eq!(reason(&error), (json!(1), json!("log_failed")), "{error}");
    assert_eq!(error["error"]["code"], -31004);
    let mut served = session.resume(&cursors[1]);
    assert_eq!(primed(&mut served), cursors[1]);
    expect_result(&mut served, 2, 1);
    echoes(&session, "after");
}
