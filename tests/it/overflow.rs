//! A reader that is slower than its producer: who waits, who is cut, and that nothing is lost.

use std::time::Duration;

use serde_json::json;

use crate::client::{NEWEST, Session};
use crate::numbered::{expect, expect_result, flood, primed, priming_id, read_until_cut};
use crate::server::Server;

const SMALL: [&str; 4] = ["--stream-bytes", "1MiB", "--event-bytes", "64KiB"];

/// Reads a flood of `count` events, a hundred at a time with a pause before each.
fn read_slowly(server: Server, args: &serde_json::Value, count: u64) -> crate::server::Stopped {
    let session = Session::start(&server, NEWEST);
    let mut slow = session.call("1", "stream", args);
    primed(&mut slow);
    std::thread::sleep(Duration::from_millis(500));
    for first in (1..count).step_by(100) {
        expect(&mut slow, first, first + 99);
        std::thread::sleep(Duration::from_millis(5));
    }
    expect_result(&mut slow, 1, count + 1);
    session.delete();
    server.stop()
}

/// The pipe of a child is not read while the reader of its only call is far behind.
#[test]
fn a_child_waits_for_the_slow_reader_of_its_only_call() {
    let stopped = read_slowly(Server::stdio(&SMALL), &flood(4000, 4096, 0), 4000);
    assert_eq!(stopped.total("cuts"), 0);
    assert!(stopped.total("pauses") >= 1);
}

/// A producer on a thread of its own waits with a full ring.
#[test]
fn an_off_core_producer_waits_for_a_slow_reader() {
    let args = json!({"count": 4000, "size": 4096, "off_core": true});
    let stopped = read_slowly(Server::start(&SMALL), &args, 4000);
    assert_eq!(stopped.total("cuts"), 0);
    assert!(stopped.total("pauses") >= 1);
}

/// As soon as another request comes through the pipe, it is read again: nobody waits for the slow
/// reader, who may fall out of the log and is told.
#[test]
fn another_request_on_the_pipe_ends_the_pause() {
    let server = Server::stdio(&SMALL);
    let session = Session::start(&server, NEWEST);
    let mut stalled = session.call("1", "stream", &flood(4000, 4096, 0));
    primed(&mut stalled);
    server.wait_for_log("the pause", |line| {
        line["message"].as_str().is_some_and(|text| text.contains("waits for a slow reader"))
    });
    let mut echo = session.call("2", "echo", &json!({"text": "t"}));
    assert_eq!(echo.result()["id"], 2);
    session.delete();
    server.stop();
}

#[test]
fn the_policy_cut_pauses_nobody() {
    let flags = [&SMALL[..], &["--overflow", "cut"]].concat();
    let server = Server::start(&flags);
    let session = Session::start(&server, NEWEST);
    let mut stalled = session.call("1", "stream", &flood(4000, 4096, 0));
    let priming = primed(&mut stalled);
    read_until_cut(&server, &mut stalled);
    // The floor has passed at least the first event, or nobody would have been cut.
    let refusal = session.resume(&priming).result();
    assert_eq!(refusal["error"]["code"], -31001, "{refusal}");
    assert_eq!(server.stop().total("pauses"), 0);
}

/// Nobody waits for ever: after the pause timeout the window slides.
#[test]
fn a_pause_has_an_end() {
    let flags = [&SMALL[..], &["--pause-timeout", "300ms"]].concat();
    for server in [Server::start(&flags), Server::stdio(&flags)] {
        let session = Session::start(&server, NEWEST);
        let mut stalled = session.call("1", "stream", &flood(4000, 4096, 0));
        primed(&mut stalled);
        server.wait_for_log("the cut", |line| {
            line["message"].as_str().is_some_and(|text| text.starts_with("cut a reader"))
        });
        let stopped = server.stop();
        assert!(stopped.total("pauses") >= 1);
        assert!(stopped.total("cuts") >= 1);
    }
}

/// Everything that a thread writes arrives, in order, once; and it stops when its call is over.
#[test]
fn an_off_core_flood_arrives_whole() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let args = json!({"count": 20_000, "size": 10, "off_core": true});
    let mut whole = session.call("1", "stream", &args);
    primed(&mut whole);
    expect(&mut whole, 1, 20_000);
    expect_result(&mut whole, 1, 20_001);
    let endless = json!({"count": 10_000_000, "size": 10, "off_core": true});
    let mut ended = session.call("2", "stream", &endless);
    primed(&mut ended);
    expect(&mut ended, 1, 100);
    assert_eq!(session.delete().status(), 200);
    while ended.message().is_some() {}
    let threads = || std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count();
    crate::server::eventually("the producer's thread ends", || threads() <= 5);
    server.stop();
}

/// Many sessions that nobody reads hold no more memory than the process may: the largest give way
/// first, and whoever comes back for what is gone is told.
#[test]
fn the_logs_of_all_sessions_stay_within_the_budget_of_the_process() {
    let flags = ["--memory-bytes", "8MiB", "--session-bytes", "4MiB", "--stream-bytes", "2MiB"];
    let server = Server::start(&[&flags[..], &["--event-bytes", "64KiB"]].concat());
    let sessions: Vec<Session> = (0..12).map(|_| Session::start(&server, NEWEST)).collect();
    for session in &sessions {
        crate::numbered::push(session, 400, 4096);
    }
    let mut told = 0;
    for session in &sessions {
        let mut get = session.listen();
        let first = priming_id(&mut get);
        if !first.ends_with(".0") {
            let gap = get.message().expect("the gap is marked");
            assert_eq!(gap.json()["params"]["data"]["reason"], "log_truncated");
            told += 1;
        }
    }
    assert!(told >= 6, "19 MiB do not fit into 8: {told} were told");
    assert!(server.stop().total("reliefs") >= 1);
}

/// The reader at a twentieth of the producer's rate: it falls behind, its connection is cut off
/// several times, it comes back each time with its cursor, and ends whole with no refusal, because
/// its producer also waits while it is away.
#[test]
fn the_slow_reader_that_is_cut_off_and_resumes_ends_whole() {
    // The usual bounds: the log is larger than what the kernels between the two take unread.
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, NEWEST);
        let mut reader = session.call("1", "stream", &flood(8000, 4096, 0));
        let mut cursor = primed(&mut reader);
        for first in (1..8000).step_by(100) {
            if first % 1000 == 1 {
                drop(reader);
                std::thread::sleep(Duration::from_millis(200));
                reader = session.resume(&cursor);
                assert_eq!(primed(&mut reader), cursor);
            }
            cursor = expect(&mut reader, first, first + 99);
            std::thread::sleep(Duration::from_millis(2));
        }
        expect_result(&mut reader, 1, 8001);
        let stopped = server.stop();
        assert_eq!(stopped.total("cuts"), 0);
        assert_eq!(stopped.total("resumes.truncated"), 0);
    }
}
