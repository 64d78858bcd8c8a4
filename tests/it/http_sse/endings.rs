//! Silence, and how the stream, the session and the child end.

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{Client, get, open};
use crate::client::{End, ask, call_body};
use crate::server::{Server, eventually, is_alive};

const FOREVER: u64 = 3_600_000;

fn kill(pid: u32) {
    let pidfd = gapless::sys::pidfd::pidfd_open(pid).expect("the child lives");
    let pidfd = std::os::fd::AsFd::as_fd(&pidfd);
    gapless::sys::pidfd::send_signal(pidfd, libc::SIGKILL).expect("it can be killed");
}

/// A session is gone for both of its paths.
fn assert_gone(client: &Client) {
    let answer = client.try_post(&call_body("1", "echo", &json!({"text": "x"})));
    assert_eq!((answer.status(), answer.code()), (404, -32001));
    let answer = client.refused(&client.cursor);
    assert_eq!((answer.status(), answer.code()), (404, -32001));
}

#[test]
fn comments_come_in_the_silence_and_use_no_number() {
    for server in [
        Server::start(&["--sse-keep-alive", "200ms"]),
        Server::stdio(&["--sse-keep-alive", "200ms"]),
    ] {
        let mut client = Client::start(&server);
        client.stream.read_until("\n\n:", 3);
        client.echo("one number further");
        client.resume();
        client.stream.read_until("\n\n:", 2);
        client.echo("and one more");
    }
}

/// An attached stream is a session in use, however silent; without a connection the session is
/// kept for the retention.
#[test]
fn a_silent_stream_keeps_its_session_and_a_cut_one_ends_with_the_retention() {
    let flags = ["--retention", "1500ms", "--idle-timeout", "1500ms", "--sse-keep-alive", "200ms"];
    for server in [Server::start(&flags), Server::stdio(&flags)] {
        let mut client = Client::start(&server);
        let started = Instant::now();
        client.stream.read_until("\n\n:", 12);
        assert!(started.elapsed() > Duration::from_secs(2));
        client.echo("still there");
        client.go_away();
        std::thread::sleep(Duration::from_millis(100));
        client.resume();
        client.echo("back in time");
        client.go_away();
        let ended = |line: &serde_json::Value| line["why"] == "idle";
        server.wait_for_log("the session expires", ended);
        eventually("the child is gone", || server.children().is_empty());
        assert_gone(&client);
    }
}

/// Nobody can fetch the answer later than its events are kept, but the call is not given up.
#[test]
fn a_call_in_flight_keeps_the_session_of_a_client_that_is_away() {
    let server = Server::stdio(&["--retention", "300ms", "--idle-timeout", "300ms"]);
    let mut client = Client::start(&server);
    client.call("1", "sleep", &json!({"ms": 3000}));
    client.go_away();
    std::thread::sleep(Duration::from_millis(1000));
    client.resume();
    assert_eq!(client.message()["id"], 1);
}

/// Story: slots of vanished clients were never freed, and after hours nobody was let in.
#[test]
fn vanished_clients_leave_no_child_and_no_slot_behind() {
    let clients = 200;
    let flags = ["--retention", "1s", "--idle-timeout", "1s", "--sessions", &clients.to_string()];
    let server = Server::stdio(&flags);
    let mut all: Vec<Client> = (0..clients).map(|_| Client::start(&server)).collect();
    assert_eq!(server.children().len(), clients);
    assert_eq!(ask(server.address, get("/sse", "")).status(), 503);
    let start = Instant::now();
    for client in &mut all {
        client.go_away();
    }
    eventually("all children are gone", || server.children().is_empty());
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    assert_gone(&all[0]);
    drop(all);
    let mut fresh: Vec<Client> = (0..20).map(|_| Client::start(&server)).collect();
    fresh[19].echo("a slot for each");
    let stopped = server.stop();
    assert_eq!(stopped.total("sessions_started"), clients as u64 + 20);
    assert_eq!(stopped.total("sessions_ended"), clients as u64 + 20);
    assert_eq!(stopped.total("connections_opened"), stopped.total("connections_closed"));
    assert_eq!(stopped.total("panics"), 0);
}

#[test]
fn a_child_that_is_killed_fails_the_pending_calls_and_the_next_one_restarts_it() {
    let server = Server::stdio(&[]);
    let mut client = Client::start(&server);
    client.call("1", "sleep", &json!({"ms": FOREVER}));
    client.call(r#""two""#, "sleep", &json!({"ms": FOREVER}));
    let child = server.children()[0];
    kill(child);
    for id in [json!(1), json!("two")] {
        let answer = client.message();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-31005)));
    }
    let mut answer = json!(null);
    eventually("the child is restarted", || {
        client.call("3", "echo", &json!({"text": "again"}));
        answer = client.message();
        answer["error"]["code"] != -31005
    });
    assert_eq!(answer["result"]["content"][0]["text"], "again");
    assert!(!server.children().contains(&child));
}

#[test]
fn with_end_session_the_stream_ends_with_the_error_of_the_pending_call() {
    let server = Server::stdio(&["--on-child-exit", "end-session"]);
    let mut client = Client::start(&server);
    client.call("1", "sleep", &json!({"ms": FOREVER}));
    kill(server.children()[0]);
    let answer = client.message();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-31005)));
    assert_eq!(client.stream.event(), None);
    assert_eq!(client.stream.end(), Some(End::Whole));
    assert_gone(&client);
}

/// Story: a child that died before `initialize` was restarted and waited for a set-up that nobody
/// could give it; the client's own `initialize` waited with it.
#[test]
fn a_child_that_dies_before_it_is_initialized_ends_the_session() {
    for policy in ["respawn", "end-session"] {
        let flags = ["--on-child-exit", policy];
        let server = Server::shell(&flags, "read -r first; exit 3");
        let mut client = Client::connect(server.address);
        client.post(&crate::client::initialize_body(super::client::REVISION));
        let answer = client.message();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("init"), &json!(-31005)));
        assert_eq!(client.stream.event(), None);
        assert_eq!(client.stream.end(), Some(End::Whole));
        assert_gone(&client);
        let server = Server::shell(&flags, "exit 3");
        let (mut stream, _, _) = open(server.address, "/sse", "");
        assert_eq!(stream.event(), None);
        assert_eq!(stream.end(), Some(End::Whole));
    }
}

/// The answers are logged first, the last chunk comes last.
#[test]
fn a_drain_answers_the_open_calls_and_ends_the_stream_in_the_planned_way() {
    let flags = ["--drain-timeout", "500ms"];
    for server in [Server::start(&flags), Server::stdio(&flags)] {
        let mut client = Client::start(&server);
        client.call("1", "sleep", &json!({"ms": FOREVER}));
        let children = server.children();
        server.signal(libc::SIGTERM);
        let answer = client.message();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-31006)));
        assert_eq!(client.stream.event(), None);
        assert_eq!(client.stream.end(), Some(End::Whole));
        assert!(client.stream.stream_text().ends_with("\n\nretry: 3000\n\n"));
        assert!(client.stream.is_closed());
        let stopped = server.wait();
        assert_eq!((stopped.code, stopped.total("panics")), (Some(0), 0));
        assert_eq!(stopped.total("connections_opened"), stopped.total("connections_closed"));
        assert!(children.iter().all(|&child| !is_alive(child)));
    }
}

#[test]
fn an_idle_server_ends_at_once() {
    let server = Server::stdio(&["--drain-timeout", "60s"]);
    let mut client = Client::start(&server);
    let start = Instant::now();
    server.signal(libc::SIGTERM);
    assert_eq!(client.stream.event(), None);
    assert_eq!(client.stream.end(), Some(End::Whole));
    assert_eq!(server.wait().code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(20));
}
