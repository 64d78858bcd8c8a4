//! A reader that does not read costs a bound of memory, and nobody else's time.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Connection, End, NEWEST, Session};
use crate::numbered::{self, expect, flood, primed, priming_id, sequence, sibling};
use crate::server::Server;

const MIB: u64 = 1024 * 1024;
/// What a stalled stream may cost besides its log: buffers of its connection, of the child's
/// pipe and of the allocator.
const MARGIN: u64 = 16 * MIB;
/// Far above what an answer takes on a busy machine, far below what waiting for a stalled reader
/// would take.
const SOON: Duration = Duration::from_secs(5);

/// Reads a stream that was left alone until it ends or `last` has come; it has no hole.
fn read_on(connection: &mut Connection, last: u64) -> u64 {
    let mut seen = 0;
    while seen < last
        && let Some(event) = connection.message()
    {
        seen += 1;
        assert_eq!((event.number(), sequence(&event)), (seen, Some(seen)), "a hole");
    }
    seen
}

/// Answers of other calls come soon, on the same session and on another.
fn assert_others_are_served(sessions: &[&Session], times: usize) {
    for session in sessions {
        for call in 0..times {
            let start = Instant::now();
            let id = format!("\"echo {call}\"");
            let echo = session.call(&id, "echo", &json!({"text": "t"})).result();
            assert_eq!(echo["id"], format!("echo {call}"));
            assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        }
    }
}

/// A reader that was cut after event `seen` comes back: what follows is there, if it had more than
/// its TCP had confirmed when the log slid past that, or it is told that it is not.
fn goes_on_or_is_told(session: &Session, cursor: &str, seen: u64) {
    let mut get = session.resume(cursor);
    let head = get.head();
    if head.status == 200 {
        assert_eq!(priming_id(&mut get), cursor);
        let next = get.message().expect("the rest of the log");
        assert_eq!((next.number(), sequence(&next)), (seen + 1, Some(seen + 1)), "a hole");
        return;
    }
    let body: serde_json::Value = serde_json::from_slice(&get.body(&head)).expect("JSON");
    assert_eq!((head.status, body["error"]["code"].as_i64()), (410, Some(-31001)), "{body}");
}

/// The queue of a reader that stopped reading grew without a bound, or was bounded by a count
/// of events whatever their size. A child is not stopped for one reader: the log slides.
#[test]
fn an_unread_stream_of_a_child_costs_its_log_and_no_more() {
    for (count, size) in [(15_000, 4096), (100_000, 8)] {
        let server = Server::stdio(&["--stream-bytes", "4MiB", "--event-bytes", "1MiB"]);
        let session = Session::start(&server, NEWEST);
        let other = Session::start(&server, NEWEST);
        let mut stalled = session.listen();
        let priming = priming_id(&mut stalled);
        // With two calls open, what is related to none goes to the standalone stream.
        let mut sleep = session.call("1", "sleep", &json!({"ms": 3_600_000}));
        primed(&mut sleep);
        let before = server.resident();
        let mut flooding = session.call("2", "standalone", &flood(count, size, 0));
        primed(&mut flooding);
        let done = std::thread::scope(|scope| {
            let done = scope.spawn(|| flooding.message());
            let mut most = 0;
            while !done.is_finished() {
                most = most.max(server.resident());
                assert_others_are_served(&[&session, &other], 1);
            }
            let grown = most.saturating_sub(before);
            assert!(grown <= 4 * MIB + MARGIN, "{grown} bytes for {count} events of {size}");
            done.join().expect("no panic")
        });
        assert!(done.is_some(), "the flood has ended");
        // Whoever comes back gets the rest whole, or is told what is missing.
        let seen = read_on(&mut stalled, count);
        let tail = sibling(&priming, seen);
        if seen < count {
            assert_eq!(stalled.end(), Some(End::Broken), "it was cut");
            goes_on_or_is_told(&session, &tail, seen);
        } else {
            let mut get = session.resume(&tail);
            assert_eq!(primed(&mut get), tail);
        }
    }
}

/// A producer inside of the server waits for its reader, and nobody else does; whoever
/// reads on has everything.
#[test]
fn an_unread_builtin_stream_waits_and_blocks_nobody() {
    let server = Server::start(&["--shards", "1"]);
    let [session, other] = [(); 2].map(|()| Session::start(&server, NEWEST));
    let mut stalled = session.listen();
    priming_id(&mut stalled);
    let before = server.resident();
    let mut flooding = session.call("1", "standalone", &flood(20_000, 4096, 0));
    primed(&mut flooding);
    std::thread::sleep(Duration::from_millis(500));
    assert_others_are_served(&[&session, &other], 40);
    let grown = server.resident().saturating_sub(before);
    assert!(grown <= 16 * MIB + MARGIN, "{grown} bytes");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_on(&mut stalled, 20_000));
        assert_others_are_served(&[&session, &other], 5);
        assert_eq!(reader.join().expect("no hole"), 20_000);
    });
    assert!(flooding.message().expect("the flood's answer").json()["result"].is_object());
}

/// One client that replays slowly, on the session of the others.
#[test]
fn a_slow_replay_holds_up_no_answer() {
    let server = Server::stdio(&[]);
    let session = Session::start(&server, NEWEST);
    let mut get = session.listen();
    let priming = priming_id(&mut get);
    let mut sleep = session.call("1", "sleep", &json!({"ms": 3_600_000}));
    primed(&mut sleep);
    numbered::push(&session, 100, 100_000);
    let mut replay = session.resume(&priming);
    assert_eq!(primed(&mut replay), priming);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            for number in 1..=100 {
                expect(&mut replay, number, number);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        while !slow.is_finished() {
            assert_others_are_served(&[&session], 1);
        }
        slow.join().expect("all of it, in order");
    });
}

/// Comments for a reader that does not read were queued, one for each interval.
#[test]
fn keep_alives_do_not_pile_up_before_a_stalled_reader() {
    let server = Server::start(&["--sse-keep-alive", "50ms"]);
    let session = Session::start(&server, NEWEST);
    let mut stalled = session.call("1", "stream", &flood(25, 1_000_000, 0));
    primed(&mut stalled);
    // Once the kernels' buffers are full nothing moves for thirty intervals.
    std::thread::sleep(Duration::from_millis(1500));
    expect(&mut stalled, 1, 25);
    assert_eq!(stalled.message().expect("its answer").number(), 26);
    let comments = stalled.stream_text().matches("\n\n:").count();
    assert!(comments <= 10, "{comments} comments stood in line");
}

/// A stream is sent as it is, whatever coding its client would take: one that collects
/// bytes would hold back events.
#[test]
fn no_content_coding_holds_events_back() {
    let server = Server::start(&["--sse-keep-alive", "100ms"]);
    let session = Session::start(&server, NEWEST);
    let fields = format!("{}Accept-Encoding: gzip, br\r\n", session.fields());
    let sleep = crate::client::call_body("1", "sleep", &json!({"ms": 500}));
    for request in [crate::client::post(&fields, &sleep), crate::client::bare("GET", &fields)] {
        let mut stream = Connection::open(server.address);
        stream.send(request);
        let head = stream.head();
        assert_eq!(head.field("content-encoding"), None);
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        assert_eq!(head.field("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(head.field("x-accel-buffering"), Some("no"));
        assert_eq!(stream.event().expect("it begins at once").number(), 0);
        stream.read_until("\n\n:", 2);
        assert_eq!(stream.cursor().as_deref().map(|id| id.ends_with(".0")), Some(true));
    }
}
