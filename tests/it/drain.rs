//! `docs/wire.md`, "Drain": what SIGTERM means to whoever is connected.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Connection, End, NEWEST, Session, call_body, initialize_body, post};
use crate::server::{Server, eventually, is_alive};

const FOREVER: u64 = 3_600_000;

/// A stream that ends in the planned way: a block of `retry` alone, the last chunk, FIN.
fn assert_planned_close(stream: &mut Connection) {
    assert!(stream.message().is_none());
    assert_eq!(stream.end(), Some(End::Whole));
    let text = stream.stream_text();
    assert!(text.ends_with("retry: 3000\n\n"), "{text:?}");
    let block = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
    assert_eq!(block, "retry: 3000", "{text:?}");
    assert!(stream.is_closed());
}

#[test]
fn open_calls_are_answered_and_streams_closed_in_the_planned_way_at_the_deadline() {
    for server in
        [Server::start(&["--drain-timeout", "500ms"]), Server::stdio(&["--drain-timeout", "500ms"])]
    {
        let session = Session::start(&server, NEWEST);
        let mut listener = session.listen();
        let mut call = session.call("\"late\"", "sleep", &json!({"ms": FOREVER}));
        assert_eq!(call.head().status, 200);
        let children = server.children();
        server.signal(libc::SIGTERM);
        let answer = call.message().expect("a final answer");
        assert_eq!(answer.number(), 1, "it is logged like any other");
        let answer = answer.json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("late"), &json!(-31006)));
        assert!(call.message().is_none());
        assert_eq!(call.end(), Some(End::Whole));
        assert_planned_close(&mut listener);
        let stopped = server.wait();
        assert_eq!((stopped.code, stopped.total("panics")), (Some(0), 0));
        assert_eq!(stopped.total("connections_opened"), stopped.total("connections_closed"));
        assert!(children.iter().all(|&child| !is_alive(child)));
    }
}

#[test]
fn a_call_that_is_done_before_the_deadline_gets_its_answer() {
    let server = Server::start(&["--drain-timeout", "60s"]);
    let session = Session::start(&server, NEWEST);
    let mut call = session.call("1", "sleep", &json!({"ms": 700}));
    assert_eq!(call.head().status, 200);
    let mut kept = Connection::open(server.address);
    kept.send(post("", &initialize_body(NEWEST)));
    assert_eq!(kept.answer().status(), 200);
    server.signal(libc::SIGTERM);
    let answer = call.message().expect("the answer").json();
    assert_eq!((&answer["id"], answer["error"].is_null()), (&json!(1), true));
    // Nothing is left to wait for: the deadline is far away.
    let start = Instant::now();
    assert!(kept.is_closed());
    assert_eq!(server.wait().code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// A connection that is in the middle of a request is served once more.
#[test]
fn during_the_drain_live_sessions_are_served_and_new_ones_refused() {
    let server = Server::start(&["--drain-timeout", "60s"]);
    let session = Session::start(&server, NEWEST);
    let mut call = session.call("1", "sleep", &json!({"ms": FOREVER}));
    assert_eq!(call.head().status, 200);
    let echo = call_body("2", "echo", &json!({"text": "x"}));
    let expect = "Expect: 100-continue\r\n";
    let mut begun = [
        (post(&format!("{}{expect}", session.fields()), ""), echo),
        (post(expect, ""), initialize_body(NEWEST)),
    ]
    .map(|(head, body)| {
        let length = format!("Content-Length: {}", body.len());
        let mut connection = Connection::open(server.address);
        connection.send(head.replace("Content-Length: 0", &length));
        assert_eq!(connection.head().status, 100, "the server waits for the body");
        (connection, body)
    });
    server.signal(libc::SIGTERM);
    server.wait_for_log("the drain", |line| line["message"] == "draining");
    eventually("no connection is accepted", || {
        std::net::TcpStream::connect(server.address).is_err()
    });
    for (connection, body) in &mut begun {
        connection.send(body);
    }
    let served = begun[0].0.answer();
    assert_eq!((served.status(), &served.json()["id"]), (200, &json!(2)));
    assert_eq!(served.field("connection"), Some("close"));
    let refused = begun[1].0.answer();
    assert_eq!((refused.status(), refused.field("mcp-session-id")), (503, None));
    assert!(refused.field("retry-after").is_some());
    // The second signal does not wait for the call.
    let start = Instant::now();
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code, Some(128 + libc::SIGTERM));
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn an_idle_server_ends_at_once_on_sigterm_and_sigint() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let server = Server::start(&["--drain-timeout", "60s"]);
        let session = Session::start(&server, NEWEST);
        let mut listener = session.listen();
        let start = Instant::now();
        server.signal(signal);
        assert_planned_close(&mut listener);
        let stopped = server.wait();
        assert_eq!((stopped.code, stopped.total("sessions_ended")), (Some(0), 1));
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}

/// Story: the thread that starts children does not block SIGTERM, took it, and the default action
/// ended the process without a drain.
#[test]
fn sigterm_drains_a_server_with_children_too() {
    for _ in 0..3 {
        let server = Server::stdio(&[]);
        let session = Session::start(&server, NEWEST);
        let mut listener = session.listen();
        let children = server.children();
        assert_eq!(children.len(), 1);
        server.signal(libc::SIGTERM);
        assert_planned_close(&mut listener);
        let stopped = server.wait();
        assert_eq!((stopped.code, stopped.total("children_exited")), (Some(0), 1));
        assert!(!is_alive(children[0]));
        assert!(stopped.logs.iter().any(|line| line["message"] == "draining"));
    }
}
