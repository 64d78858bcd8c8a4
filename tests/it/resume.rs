//! `Last-Event-ID` over HTTP: each class of a resume, its exact answer, its counter and its line.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Answer, Connection, End, NEWEST, Session, ask, bare};
use crate::numbered::{self, expect, expect_result, flood, primed, priming_id, sibling};
use crate::server::{Server, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// The line that one class of resume writes, for a message of this text.
fn line(server: &Server, message: &str, class: &str) -> Value {
    server.wait_for_log(&format!("a line for {class}"), |line| {
        line["message"] == message && line["class"] == class
    })
}

/// The answer to a resume that is refused before a stream is opened.
fn refused(session: &Session, cursor: &str) -> Answer {
    session.resume(cursor).answer()
}

/// A refusal in-band: priming with the cursor, then one error for `call`, then a clean end on a
/// connection that can be used again. Returns the error's data.
fn refused_in_band(session: &Session, cursor: &str, call: u64, code: i64) -> Value {
    let mut connection = session.resume(cursor);
    assert_eq!(primed(&mut connection), cursor);
    let told = connection.message().expect("the refusal");
    assert_eq!(told.id, sibling(cursor, "end"));
    let message = told.json();
    assert_eq!((&message["id"], &message["error"]["code"]), (&json!(call), &json!(code)));
    assert_eq!(connection.event(), None);
    assert_eq!(connection.end(), Some(End::Whole));
    connection.send(bare("GET", &session.fields()));
    assert_eq!(connection.head().status, 200, "the connection goes on");
    message["error"]["data"].clone()
}

/// Opens the standalone stream, takes `count` messages that are pushed, and goes away.
fn read_and_leave(session: &Session, count: u64, size: u64) -> String {
    let mut get = session.listen();
    priming_id(&mut get);
    numbered::push(session, count, size);
    let last = if count == 0 { String::new() } else { expect(&mut get, 1, count) };
    drop(get);
    last
}

#[test]
fn aligned_the_client_goes_on_where_delivery_was_confirmed() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let third = read_and_leave(&session, 3, 10);
    let mut post = session.call("1", "standalone", &flood(3, 10, 0));
    post.result();
    let mut get = session.resume(&third);
    assert_eq!(primed(&mut get), third, "a resumed stream is primed with the presented cursor");
    for number in 4..=6 {
        let event = get.message().expect("what was missed");
        assert_eq!((event.number(), numbered::sequence(&event)), (number, Some(number - 3)));
    }
    let told = line(&server, "resumed", "aligned");
    assert_eq!((&told["number"], &told["floor"], &told["tail"]), (&json!(3), &json!(1), &json!(6)));
    assert_eq!(told["source"], "ring");
    assert_eq!(server.stop().total("resumes.aligned"), 1);
}

/// The kernel of the client has acknowledged more than the client has read.
#[test]
fn ring_ahead_acknowledged_is_not_consumed() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let sixth = read_and_leave(&session, 6, 10);
    let second = sibling(&sixth, 2);
    let mut get = session.resume(&second);
    assert_eq!(primed(&mut get), second);
    expect(&mut get, 3, 6);
    assert_eq!(line(&server, "resumed", "ring_ahead")["source"], "log");
    assert_eq!(server.stop().total("resumes.ring_ahead"), 1);
}

/// The client has more than the TCP of its newest connection had confirmed.
#[test]
fn ring_behind_what_the_client_names_is_not_repeated() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let sixth = read_and_leave(&session, 6, 500_000);
    let mut stalled = session.resume(&sibling(&sixth, 0));
    primed(&mut stalled);
    let mut get = session.resume(&sibling(&sixth, 5));
    primed(&mut get);
    expect(&mut get, 6, 6);
    line(&server, "resumed", "ring_behind");
    drop((get, stalled));
    assert_eq!(server.stop().total("resumes.ring_behind"), 1);
}

#[test]
fn nothing_new_attaches_live() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let second = read_and_leave(&session, 2, 10);
    let mut get = session.resume(&second);
    assert_eq!(primed(&mut get), second);
    numbered::push(&session, 1, 10);
    assert_eq!(get.message().expect("the new one").number(), 3);
    line(&server, "resumed", "nothing_new");
    assert_eq!(server.stop().total("resumes.nothing_new"), 1);
}

/// 405 is the one status that stops every client's loop; nothing was lost.
#[test]
fn finished_and_all_seen_is_405() {
    let server = Server::start(&["--answers", "sse"]);
    let session = Session::start(&server, NEWEST);
    let mut post = session.call("1", "echo", &json!({"text": "t"}));
    let priming = primed(&mut post);
    expect_result(&mut post, 1, 1);
    for end in ["1", "end"] {
        let answer = refused(&session, &sibling(&priming, end));
        assert_eq!(answer.status(), 405);
        assert_eq!(answer.field("content-type"), Some("application/json"));
        assert!(answer.field("allow").is_some_and(|allow| allow.contains("GET")), "{answer:?}");
        assert!(answer.json()["error"]["code"].is_i64(), "{answer:?}");
    }
    line(&server, "resume refused", "finished_seen");
    let stopped = server.stop();
    assert_eq!(stopped.total("resumes.finished_seen"), 2);
    assert_eq!(stopped.total("refusals.405"), 2);
}

/// Only an error in-band is reported at once by every client; the call itself goes on.
#[test]
fn truncated_on_a_request_stream_is_told_in_band_and_the_call_goes_on() {
    let server = Server::start(&["--stream-events", "10"]);
    let session = Session::start(&server, NEWEST);
    let mut post = session.call("7", "stream", &flood(60, 10, 10));
    primed(&mut post);
    let first = expect(&mut post, 1, 1);
    drop(post);
    std::thread::sleep(Duration::from_millis(300));
    let data = refused_in_band(&session, &first, 7, -31001);
    assert_eq!((&data["reason"], &data["requested"]), (&json!("log_truncated"), &json!(1)));
    let (floor, tail) = (data["floor"].as_u64().unwrap(), data["tail"].as_u64().unwrap());
    assert!(3 <= floor && floor + 9 == tail && tail <= 61, "{data}");
    assert!(data["epoch"].is_u64(), "{data}");
    let told = line(&server, "resume refused", "truncated");
    assert_eq!((&told["number"], &told["floor"]), (&json!(1), &json!(floor)));
    std::thread::sleep(SECOND);
    let mut rest = None;
    eventually("the call is finished", || {
        let mut connection = session.resume(&sibling(&first, 51));
        primed(&mut connection);
        let event = connection.message().expect("an event or the refusal");
        let served = event.id == sibling(&first, 52);
        rest = served.then_some(connection);
        std::thread::sleep(Duration::from_millis(if served { 0 } else { 200 }));
        served
    });
    let mut rest = rest.expect("it was just served");
    expect(&mut rest, 53, 60);
    expect_result(&mut rest, 7, 61);
    assert!(server.stop().total("resumes.truncated") >= 1);
}

#[test]
fn truncated_on_the_standalone_stream_is_410_with_a_place_to_go_on() {
    let server = Server::start(&["--stream-events", "10"]);
    let session = Session::start(&server, NEWEST);
    let priming = priming_id(&mut session.listen());
    numbered::push(&session, 20, 10);
    let answer = refused(&session, &priming);
    assert_eq!((answer.status(), answer.code()), (410, -31001));
    assert_eq!(answer.field("content-type"), Some("application/json"));
    let data = &answer.json()["error"]["data"];
    let resume_from = sibling(&priming, 10);
    let epoch = data["epoch"].as_u64().expect("the epoch");
    let expected = json!({
        "reason": "log_truncated", "requested": 0, "floor": 11, "tail": 20, "epoch": epoch,
        "resume_from": resume_from,
    });
    assert_eq!(data, &expected);
    let mut get = session.resume(&resume_from);
    assert_eq!(primed(&mut get), resume_from, "the client accepts the gap");
    expect(&mut get, 11, 20);
    let stopped = server.stop();
    assert_eq!((stopped.total("resumes.truncated"), stopped.total("refusals.410")), (1, 1));
}

#[test]
fn ahead_is_an_error_in_both_forms() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let third = read_and_leave(&session, 3, 10);
    let answer = refused(&session, &sibling(&third, 4));
    assert_eq!((answer.status(), answer.code()), (410, -31002));
    assert_eq!(answer.json()["error"]["data"]["reason"], "cursor_ahead");
    let mut post = session.call("8", "sleep", &json!({"ms": 3_600_000}));
    let priming = primed(&mut post);
    let most = u64::MAX;
    let data = refused_in_band(&session, &sibling(&priming, most), 8, -31002);
    let bounds = (&data["reason"], &data["requested"], &data["floor"], &data["tail"]);
    assert_eq!(bounds, (&json!("cursor_ahead"), &json!(most), &json!(1), &json!(0)));
    line(&server, "resume refused", "ahead");
    drop(post);
    session.delete();
    assert_eq!(server.stop().total("resumes.ahead"), 2);
}

/// A stream whose events are gone is told in-band as long as its tombstone is there, and after
/// that its token alone still says that it was genuine.
#[test]
fn a_buried_stream_is_truncated_and_then_expired() {
    let server = Server::start(&["--answers", "sse", "--retention", "50ms", "--shards", "1"]);
    let session = Session::start(&server, NEWEST);
    let mut post = session.call("1", "stream", &flood(3, 10, 0));
    let priming = primed(&mut post);
    expect(&mut post, 1, 3);
    expect_result(&mut post, 1, 4);
    std::thread::sleep(Duration::from_millis(300));
    let data = refused_in_band(&session, &priming, 1, -31001);
    assert_eq!((&data["floor"], &data["tail"]), (&json!(5), &json!(4)));
    assert_eq!(refused(&session, &sibling(&priming, 4)).status(), 405, "all seen");
    for call in 0..300 {
        let answer = post_on(&mut post, &session, call);
        assert_eq!(answer["id"], call);
    }
    let mut answer = None;
    eventually("the tombstone is gone", || {
        let mut connection = session.resume(&priming);
        let head = connection.head();
        let gone = head.status == 410;
        answer = gone.then(|| Answer { body: connection.body(&head), head });
        std::thread::sleep(Duration::from_millis(20));
        gone
    });
    let answer = answer.expect("it was just gone");
    assert_eq!(answer.code(), -31001);
    assert_eq!(answer.json()["error"]["data"]["reason"], "expired");
    line(&server, "resume refused", "expired");
    assert_eq!(server.stop().total("resumes.expired"), 1);
}

fn post_on(connection: &mut Connection, session: &Session, call: u64) -> Value {
    let body = crate::client::call_body(&call.to_string(), "echo", &json!({"text": "t"}));
    connection.send(crate::client::post(&session.fields(), &body));
    let answer = connection.result();
    assert_eq!(connection.event(), None);
    answer
}

/// Whatever is wrong with an id that is not this session's, the answer is the same: no oracle.
#[test]
fn every_unknown_cursor_gets_the_same_bytes() {
    let (server, other_server) = (Server::start(&[]), Server::start(&[]));
    let session = Session::start(&server, NEWEST);
    let third = read_and_leave(&session, 3, 10);
    let others = [Session::start(&server, NEWEST), Session::start(&other_server, NEWEST)];
    let mut cursors: Vec<String> = vec!["nonsense".into(), ".".into(), ".end".into(), "%00".into()];
    cursors.extend(others.iter().map(|other| read_and_leave(other, 3, 10)));
    let forged = third
        .strip_prefix(['A', 'B', 'C', 'D'])
        .map_or_else(|| format!("A{}", &third[1..]), |rest| format!("z{rest}"));
    cursors.push(forged);
    let mut flipped = third.clone().into_bytes();
    flipped[20] = if flipped[20] == b'A' { b'B' } else { b'A' };
    cursors.push(String::from_utf8(flipped).expect("ASCII"));
    for number in ["", "+3", "-3", "03", "00", "3.0", "0x3", "18446744073709551616", "END", "end."]
    {
        cursors.push(sibling(&third, number));
    }
    cursors.push(sibling(&third, "1".repeat(40)));
    cursors.push(third.replace('.', "%2E"));
    cursors.push(format!("{third}, {}", sibling(&third, 2)));
    cursors.push(format!("{third}\r\nLast-Event-ID: {}", sibling(&third, 2)));
    cursors.push("x".repeat(4000));
    let expected = refused(&session, "nonsense");
    assert_eq!((expected.status(), expected.code()), (400, -32600));
    for cursor in &cursors {
        let answer = refused(&session, cursor);
        assert_eq!((answer.status(), &answer.body), (400, &expected.body), "{cursor}");
        let names = |answer: &Answer| -> Vec<String> {
            answer.head.fields.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&answer), names(&expected), "{cursor}");
    }
    let told = line(&server, "resume refused", "unknown");
    assert_eq!(told["presented"], "nonsense");
    let count = cursors.len() as u64 + 1;
    assert_eq!(server.stop().total("resumes.unknown"), count);
}

/// What cannot stand in a field value is refused with the head; a foreign byte is made printable.
#[test]
fn bytes_of_a_cursor_that_cannot_be_printed() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let request = |value: &[u8]| {
        let mut bytes = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\n{}", session.fields());
        bytes.push_str("Accept: text/event-stream\r\nLast-Event-ID: ");
        [bytes.as_bytes(), value, b"\r\n\r\n"].concat()
    };
    assert_eq!(ask(server.address, request(b"a\0b")).status(), 400);
    assert_eq!(ask(server.address, request(b"a\x1b[2Jb")).status(), 400);
    let answer = ask(server.address, request(b"caf\xc3\xa9\xff"));
    assert_eq!((answer.status(), answer.code()), (400, -32600));
    let told = line(&server, "resume refused", "unknown");
    assert_eq!(told["presented"], r"caf\xc3\xa9\xff");
}

#[test]
fn an_empty_cursor_is_none_and_equal_ones_are_one() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    for empty in ["", "   "] {
        let mut get = session.resume(empty);
        assert!(primed(&mut get).ends_with(".0"));
    }
    let third = read_and_leave(&session, 3, 10);
    let first = sibling(&third, 1);
    let mut get = session.resume(&format!("{first}\r\nLast-Event-ID: {first}"));
    assert_eq!(primed(&mut get), first);
    expect(&mut get, 2, 3);
    let stopped = server.stop();
    assert!(stopped.total("resumes.fresh") >= 3);
    assert_eq!(stopped.total("resumes.unknown"), 0);
}

#[test]
fn a_refused_resume_leaves_the_healthy_reader_attached() {
    let server = Server::start(&["--stream-events", "1000"]);
    let session = Session::start(&server, NEWEST);
    let mut get = session.listen();
    let priming = priming_id(&mut get);
    let refusals = ["nonsense".to_owned(), sibling(&priming, 7), sibling(&priming, "07")];
    for (round, cursor) in (0..).zip(&refusals) {
        let status = refused(&session, cursor).status();
        assert!(status == 400 || status == 410, "{cursor}: {status}");
        numbered::push(&session, 1, 10);
        assert_eq!(get.message().expect("it is still read").number(), round + 1);
    }
    let mut post = session.call("3", "stream", &flood(100, 10, 5));
    let priming = primed(&mut post);
    expect(&mut post, 1, 3);
    refused_in_band(&session, &sibling(&priming, 100_000), 3, -31002);
    expect(&mut post, 4, 100);
    expect_result(&mut post, 3, 101);
}

/// Retention is by window, never "because it was written once".
#[test]
fn a_finished_stream_replays_as_often_as_it_is_asked_for() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut post = session.call("1", "stream", &flood(5, 10, 0));
    let priming = primed(&mut post);
    expect(&mut post, 1, 5);
    expect_result(&mut post, 1, 6);
    for _ in 0..3 {
        let mut get = session.resume(&priming);
        assert_eq!(primed(&mut get), priming);
        expect(&mut get, 1, 5);
        expect_result(&mut get, 1, 6);
    }
}

/// A listener without a cursor must not take a truncated stream for a whole one.
#[test]
fn a_listener_that_missed_events_is_told_first() {
    let server = Server::start(&["--stream-events", "10"]);
    let session = Session::start(&server, NEWEST);
    numbered::push(&session, 25, 10);
    let mut get = session.listen();
    let priming = priming_id(&mut get);
    assert_eq!(priming, sibling(&priming, 15));
    let marker = get.message().expect("the gap marker").json();
    assert_eq!(marker["method"], "notifications/message");
    let data = &marker["params"]["data"];
    let expected = json!({"reason": "log_truncated", "first_missed": 1, "last_missed": 15});
    assert_eq!(data, &expected);
    expect(&mut get, 16, 25);
    let stopped = server.stop();
    assert_eq!((stopped.total("gap_markers"), stopped.total("resumes.fresh")), (1, 1));
}
