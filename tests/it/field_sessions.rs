//! Which session a request means, and how long one is kept.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{
    Answer, Connection, End, NEWEST, Session, ask, bare, call_body, initialize_body, post,
};
use crate::numbered::{self, expect, expect_result, flood, primed, priming_id, sibling};
use crate::server::{Server, eventually};

const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
const MIB: u64 = 1024 * 1024;

/// Every way to name a session, each with what it does to one that is there.
fn requests(fields: &str) -> Vec<(&'static str, String)> {
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let cursor = format!("{fields}Last-Event-ID: AAAAAAAAAAAAAAAA.1\r\n");
    vec![
        ("request", post(fields, LIST)),
        ("call", post(fields, &call_body("7", "sleep", &json!({"ms": 3_600_000})))),
        ("notification", post(fields, note)),
        ("response", post(fields, response)),
        ("GET", bare("GET", fields)),
        ("GET with a cursor", bare("GET", &cursor)),
        ("DELETE", bare("DELETE", fields)),
    ]
}

fn fields(id: &str) -> String {
    format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {NEWEST}\r\n")
}

/// The id of a session that idled away.
fn expired(server: &Server) -> String {
    let session = Session::start(server, NEWEST);
    server.wait_for_log("the session expires", |line| line["why"] == "idle");
    session.id
}

/// An id that is not there got 400, 401, 503 or an event stream, so that clients, who start
/// over on 404 alone, repeated it until somebody restarted them.
#[test]
fn a_session_that_is_not_there_is_404_whoever_made_its_id_and_whatever_is_asked() {
    let server = Server::start(&["--idle-timeout", "700ms", "--retention", "100ms"]);
    let wider = Server::start(&["--shards", "8"]);
    let expired = expired(&server);
    let live = Session::start(&server, NEWEST);
    let mut listener = live.listen();
    priming_id(&mut listener);
    let ended = Session::start(&server, NEWEST);
    assert_eq!(ended.delete().status(), 200);
    let mut ids = vec![expired, ended.id, "7c1f0f5e-5a54-4a40-8a63-0d2f9a3c1b11".to_owned()];
    // Another process's, and among them those of shards that this one does not have.
    ids.extend((0..16).map(|_| Session::start(&wider, NEWEST).id));
    let mut flipped = live.id.clone().into_bytes();
    let last = flipped.len() - 2;
    flipped[last] = if flipped[last] == b'A' { b'B' } else { b'A' };
    ids.push(String::from_utf8(flipped).expect("ASCII"));
    ids.extend([live.id[1..].to_owned(), format!("{}A", live.id), live.id.to_ascii_lowercase()]);
    ids.extend(["0", "null", "../..", "%00", "a b"].map(str::to_owned));
    ids.push("A".repeat(4000));
    for id in &ids {
        for (what, request) in requests(&fields(id)) {
            let answer = ask(server.address, request);
            let told = (answer.status(), answer.code(), answer.field("content-type"));
            assert_eq!(told, (404, -32001, Some("application/json")), "{what} with {id:.60}");
            assert_eq!(answer.field("mcp-session-id"), None, "{what} with {id:.60}");
        }
    }
    for (what, request) in requests("") {
        let answer = ask(server.address, request);
        assert_eq!((answer.status(), answer.code()), (400, -32000), "{what}");
    }
    // All of that left the live session alone.
    numbered::push(&live, 1, 10);
    expect(&mut listener, 1, 1);
    assert_eq!(live.post(LIST).result()["id"], 7);
}

/// A client that initializes with the dead id in its head gets a session of its own.
#[test]
fn initialize_with_a_dead_id_makes_a_new_session() {
    let server = Server::start(&[]);
    let ended = Session::start(&server, NEWEST);
    assert_eq!(ended.delete().status(), 200);
    for id in [ended.id.as_str(), "nobody", ""] {
        let answer = ask(server.address, post(&fields(id), &initialize_body(NEWEST)));
        assert_eq!(answer.status(), 200);
        let new = answer.field("mcp-session-id").expect("a new session");
        assert!(new != id && !new.is_empty());
    }
}

/// What is not the header does not name a session.
#[test]
fn a_session_is_named_by_its_header_alone() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let id = &session.id;
    let cookie = format!("Cookie: Mcp-Session-Id={id}\r\n");
    let bearer = format!("Authorization: Bearer {id}\r\n");
    for request in [
        post("", LIST).replacen("/mcp", &format!("/mcp?sessionId={id}"), 1),
        post("", LIST).replacen("/mcp", &format!("/mcp?Mcp-Session-Id={id}"), 1),
        post(&cookie, LIST),
        post(&bearer, LIST),
        bare("DELETE", &cookie),
        bare("GET", &bearer),
    ] {
        let answer = ask(server.address, &request);
        assert_eq!((answer.status(), answer.code()), (400, -32000), "{request}");
    }
    assert_eq!(session.post(LIST).result()["id"], 7);
    let ids: HashSet<String> = (0..50).map(|_| Session::start(&server, NEWEST).id).collect();
    assert_eq!(ids.len(), 50);
}

/// A client that logs something, begins something, and is never heard of again.
fn abandon(server: &Server, round: usize, bytes: u64) {
    let session = Session::start(server, NEWEST);
    numbered::push(&session, 4, bytes / 4);
    match round % 4 {
        0 => drop(session.listen()),
        1 => {
            let mut call = session.call("1", "stream", &flood(4, 10, 0));
            primed(&mut call);
        }
        2 => drop(session.resume("nonsense")),
        _ => {}
    }
}

/// Abandons so many sessions at once, waits until they are gone, and tells the most memory that
/// they took meanwhile.
fn abandon_all(server: &Server, count: usize, bytes: u64) -> u64 {
    let ended = || server.logs().iter().filter(|line| line["why"] == "idle").count();
    let before = ended();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || (0..count / 4).for_each(|at| abandon(server, worker + at, bytes)));
        }
    });
    let most = server.resident();
    eventually("every session expires", || ended() - before == count);
    most
}

/// Sessions whose client vanished were kept for ever, each with its buffers, sockets and
/// child.
#[test]
fn a_thousand_abandoned_sessions_leave_no_memory_and_no_descriptor() {
    let server = Server::start(&["--idle-timeout", "4s", "--retention", "1s"]);
    abandon_all(&server, 100, 40_000);
    let (descriptors, resident) = (server.descriptors(), server.resident());
    let most = abandon_all(&server, 1000, 40_000);
    // 40 MB are in the logs, if none has expired before the last was there.
    assert!(most > resident + 16 * MIB, "{most} after {resident}: nothing was kept");
    eventually("its descriptors are closed", || server.descriptors() <= descriptors);
    eventually("its memory is given back", || server.resident() <= resident + 8 * MIB);
    let stopped = server.stop();
    assert_eq!(stopped.total("sessions_started"), 1100);
    assert_eq!(stopped.total("sessions_ended"), 1100);
    assert_eq!(stopped.total("connections_opened"), stopped.total("connections_closed"));
}

#[test]
fn a_hundred_abandoned_sessions_leave_no_child() {
    let server = Server::stdio(&["--idle-timeout", "2s", "--retention", "1s"]);
    abandon_all(&server, 20, 4000);
    eventually("the children are gone", || server.children().is_empty());
    let (descriptors, resident) = (server.descriptors(), server.resident());
    abandon_all(&server, 100, 4000);
    eventually("the children are gone", || server.children().is_empty());
    eventually("their descriptors are closed", || server.descriptors() <= descriptors);
    eventually("their memory is given back", || server.resident() <= resident + 4 * MIB);
    let stopped = server.stop();
    assert_eq!(stopped.total("children_started"), 120);
    assert_eq!(stopped.total("children_exited"), 120);
}

/// A call keeps its session, with its client there as well as gone; its answer can be
/// fetched, and then the session goes.
#[test]
fn a_running_call_keeps_its_session_and_its_answer() {
    let flags = ["--idle-timeout", "500ms", "--retention", "500ms"];
    for server in [Server::start(&flags), Server::stdio(&flags)] {
        let [there, gone] = [(); 2].map(|()| Session::start(&server, NEWEST));
        let sleep = json!({"ms": 1800});
        let mut answered = there.call("1", "sleep", &sleep);
        primed(&mut answered);
        let mut left = gone.call("2", "sleep", &sleep);
        let cursor = primed(&mut left);
        drop(left);
        expect_result(&mut answered, 1, 1);
        let mut fetched = gone.resume(&cursor);
        assert_eq!(primed(&mut fetched), cursor);
        expect_result(&mut fetched, 2, 1);
        eventually("both sessions expire", || {
            server.logs().iter().filter(|line| line["why"] == "idle").count() == 2
        });
    }
}

/// A connection whose peer is still there in name only does not keep its
/// session. What it does not take fills its window; then the kernel gives it up, and its session
/// idles away. (A peer whose answers get lost on the way is the same to `TCP_USER_TIMEOUT`, which
/// a unit test of `sys::tcp` reads back; nothing here drops packets.)
#[test]
fn a_peer_that_takes_nothing_any_more_does_not_keep_its_session() {
    let timeouts = ["--idle-timeout", "1s", "--retention", "100ms", "--pause-timeout", "500ms"];
    let flags = [&timeouts[..], &["--peer-timeout", "1s", "--shards", "1"]].concat();
    let server = Server::start(&flags);
    let stalled = Session::start(&server, NEWEST);
    let mut listener = stalled.listen();
    priming_id(&mut listener);
    let healthy = Session::start(&server, NEWEST);
    let mut silent = healthy.listen();
    priming_id(&mut silent);
    drop(stalled.call("1", "standalone", &flood(20, 1_000_000, 0)));
    let start = Instant::now();
    server.wait_for_log("the stalled client's session expires", |line| line["why"] == "idle");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(stalled.post(LIST).answer().status(), 404);
    while listener.message().is_some() {}
    assert_eq!(listener.end(), Some(End::Broken));
    // The silence of one that acknowledges is no fault.
    numbered::push(&healthy, 1, 10);
    expect(&mut silent, 1, 1);
}

/// A listener that stopped reading, its socket still open, holds up nobody.
#[test]
fn a_listener_that_stopped_reading_is_taken_over_at_once() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut stalled = session.listen();
    let priming = priming_id(&mut stalled);
    drop(session.call("1", "standalone", &flood(20, 1_000_000, 0)));
    // It takes what fits into the kernels' buffers, and the producer waits.
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    let mut second = session.resume(&sibling(&priming, 0));
    assert_eq!(primed(&mut second), priming);
    expect(&mut second, 1, 20);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let echo: Answer = {
        let mut connection = Connection::open(server.address);
        connection.send(post(&session.fields(), &call_body("2", "echo", &json!({"text": "t"}))));
        connection.answer()
    };
    assert_eq!(echo.json()["id"], 2, "the answer is on its POST");
    numbered::push(&session, 1, 10);
    let live = second.message().expect("it is live, and carries no answer");
    assert_eq!((live.number(), numbered::sequence(&live)), (21, Some(1)));
}
