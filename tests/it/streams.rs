//! Streams over HTTP: their heads, their first bytes, their ids and their ends.

use std::collections::HashSet;

use serde_json::json;

use crate::client::{Connection, End, NEWEST, Session, post};
use crate::numbered::{self, expect, expect_result, flood, primed, priming_id};
use crate::server::Server;

const FOREVER_MS: u64 = 3_600_000;

/// The upstream sleeps far longer than the test has patience, so what arrives arrived before it.
#[test]
fn head_and_priming_come_before_the_upstream_answers() {
    for server in [Server::stdio(&[]), Server::start(&[])] {
        let session = Session::start(&server, NEWEST);
        let mut post = session.call("1", "sleep", &json!({"ms": FOREVER_MS}));
        let mut get = session.listen();
        let head = post.head();
        assert_eq!(head.status, 200);
        for (name, value) in [
            ("content-type", Some("text/event-stream")),
            ("cache-control", Some("no-cache, no-transform")),
            ("x-accel-buffering", Some("no")),
            ("transfer-encoding", Some("chunked")),
            ("content-encoding", None),
            ("content-length", None),
        ] {
            assert_eq!(head.field(name), value, "{head:?}");
        }
        for connection in [&mut post, &mut get] {
            let id = priming_id(connection);
            let expected = format!("id: {id}\nretry: 3000\ndata:\n\n");
            assert_eq!(connection.stream_text(), expected);
            assert!(id.ends_with(".0"), "{id}");
        }
    }
}

/// Clients of older revisions parse empty data as JSON and fail.
#[test]
fn an_older_session_is_primed_without_data() {
    let server = Server::start(&[]);
    for revision in ["2025-03-26", "2025-06-18"] {
        let session = Session::start(&server, revision);
        let mut get = session.listen();
        let mut post = session.call("1", "sleep", &json!({"ms": FOREVER_MS}));
        assert_eq!(post.head().status, 200);
        for connection in [&mut get, &mut post] {
            connection.read_until("\n\n", 1);
            let text = connection.stream_text();
            assert!(text.starts_with("id: ") && !text.contains("data"), "{text:?}");
        }
        numbered::push(&session, 1, 1);
        let first = get.event().expect("the message");
        assert_eq!((first.number(), numbered::sequence(&first)), (1, Some(1)));
    }
}

#[test]
fn ids_are_dense_short_visible_and_unique_in_the_session() {
    let server = Server::start(&["--answers", "sse"]);
    let session = Session::start(&server, NEWEST);
    let mut streams = Vec::new();
    for call in 1..=3 {
        let mut post = session.call(&call.to_string(), "stream", &flood(20, 10, 0));
        assert_eq!(post.head().status, 200);
        streams.push(post.events());
    }
    numbered::push(&session, 7, 1);
    let mut get = session.listen();
    streams.push((0..=7).map(|_| get.event().expect("an event")).collect());
    let mut seen = HashSet::new();
    for events in &streams {
        let first = numbered::token(&events[0].id);
        for (number, event) in events.iter().enumerate() {
            assert_eq!(event.id, format!("{first}.{number}"));
            assert!(event.id.len() <= 64 && event.id.bytes().all(|b| b.is_ascii_graphic()));
            assert!(!event.id.starts_with('-') && first.len() >= 16, "96 bits or more");
            assert!(seen.insert(event.id.clone()), "{} came twice", event.id);
        }
    }
    let lengths: Vec<usize> = streams.iter().map(Vec::len).collect();
    assert_eq!(lengths, [22, 22, 22, 8]);
}

#[test]
fn the_answer_ends_the_stream_and_the_connection_goes_on() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, NEWEST);
        let mut connection = Connection::open(server.address);
        for call in 1..=3 {
            let args = json!({"count": 5, "interval_ms": 1});
            let params = json!({
                "name": "progress", "arguments": args, "_meta": {"progressToken": call},
            });
            let request =
                json!({"jsonrpc": "2.0", "id": call, "method": "tools/call", "params": params});
            connection.send(post(&session.fields(), &request.to_string()));
            primed(&mut connection);
            for step in 1..=5 {
                let event = connection.message().expect("progress");
                let params = &event.json()["params"];
                assert_eq!((event.number(), &params["progress"]), (step, &json!(step)));
            }
            expect_result(&mut connection, call, 6);
        }
        let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string();
        connection.send(post(&session.fields(), &ping));
        assert_eq!(connection.result()["id"], 9);
    }
}

#[test]
fn answers_are_json_or_a_stream_as_the_operator_says() {
    let (json, sse) = ("application/json", "text/event-stream");
    let sleep = json!({"ms": 20});
    let echo = json!({"text": "t"});
    for (answers, tool, args, form) in [
        ("auto", "echo", &echo, json),
        ("auto", "sleep", &sleep, sse),
        ("auto", "stream", &flood(3, 1, 0), sse),
        ("sse", "echo", &echo, sse),
        ("json", "echo", &echo, json),
        ("json", "sleep", &sleep, json),
        ("json", "standalone", &flood(3, 1, 0), json),
        ("json", "stream", &flood(3, 1, 0), sse),
    ] {
        let server = Server::start(&["--answers", answers, "--shards", "1"]);
        let session = Session::start(&server, NEWEST);
        let mut connection = session.call("5", tool, args);
        let head = connection.head();
        assert_eq!(head.field("content-type"), Some(form), "{answers} {tool}");
        if form == json {
            let body: serde_json::Value =
                serde_json::from_slice(&connection.body(&head)).expect("JSON");
            assert_eq!(body["id"], 5);
            continue;
        }
        priming_id(&mut connection);
        let messages = if tool == "stream" { 3 } else { 0 };
        expect(&mut connection, 1, messages);
        expect_result(&mut connection, 5, messages + 1);
    }
}

/// A planned close: a block of `retry` alone, the terminator, FIN; the open call is answered first.
#[test]
fn a_drain_closes_streams_in_the_planned_way() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut get = session.listen();
    priming_id(&mut get);
    let mut call = session.call("1", "sleep", &json!({"ms": 700}));
    primed(&mut call);
    server.signal(libc::SIGTERM);
    expect_result(&mut call, 1, 1);
    assert_eq!(get.event(), None);
    assert_eq!(get.end(), Some(End::Whole));
    assert!(get.stream_text().ends_with("data:\n\nretry: 3000\n\n"), "{}", get.stream_text());
    assert!(get.is_closed() && call.is_closed());
    assert_eq!(server.wait().code, Some(0));
}

/// Nothing is lost because no stream was attached yet, and a GET stream carries no response.
#[test]
fn the_standalone_stream_has_what_was_logged_before_it_and_no_response() {
    let server = Server::start(&["--answers", "sse"]);
    let session = Session::start(&server, NEWEST);
    numbered::push(&session, 2, 1);
    let mut get = session.listen();
    assert!(priming_id(&mut get).ends_with(".0"));
    expect(&mut get, 1, 2);
    for call in 1..=3 {
        let mut post = session.call(&call.to_string(), "stream", &flood(4, 1, 0));
        primed(&mut post);
        expect(&mut post, 1, 4);
        expect_result(&mut post, call, 5);
    }
    numbered::push(&session, 1, 1);
    let next = get.message().expect("the next standalone message");
    assert_eq!((next.number(), numbered::sequence(&next)), (3, Some(1)));
}
