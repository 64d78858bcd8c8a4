//! `docs/wire.md`, "Streams": comments keep a silent stream alive, and count for nothing.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Connection, NEWEST, Session};
use crate::server::{Server, eventually};

const FLAGS: [&str; 2] = ["--sse-keep-alive", "200ms"];

/// Reads comments only: nothing else may come in the silence.
fn assert_comments(stream: &mut Connection, times: usize) {
    let before = stream.stream_text().len();
    let known = stream.stream_text().matches("\n\n:").count();
    stream.read_until("\n\n:", known + times);
    let text = stream.stream_text();
    assert!(text[before..].lines().all(|line| line.is_empty() || line.starts_with(':')), "{text}");
}

#[test]
fn comments_come_on_get_and_post_streams_and_use_no_number() {
    for server in [Server::start(&FLAGS), Server::stdio(&FLAGS)] {
        let session = Session::start(&server, NEWEST);
        let mut listener = session.listen();
        let first = listener.event().expect("the priming event");
        // A second call is open, so that what belongs to neither goes to the listener.
        let mut call = session.call("1", "sleep", &json!({"ms": 2000}));
        assert_eq!(call.head().status, 200);
        call.event().expect("the priming event");
        assert_comments(&mut call, 2);
        assert_comments(&mut listener, 2);
        assert_eq!(listener.cursor(), Some(first.id));
        session.call("2", "standalone", &json!({"count": 2})).result();
        let numbers = [(); 2].map(|()| listener.message().expect("a message").number());
        assert_eq!(numbers, [1, 2]);
        assert_comments(&mut listener, 2);
        assert_eq!(call.message().expect("the answer").number(), 1);
    }
}

/// The silence counts from the last byte, so a busy stream carries no comments.
#[test]
fn a_busy_stream_needs_no_comments() {
    let server = Server::start(&["--sse-keep-alive", "10s"]);
    let session = Session::start(&server, NEWEST);
    let mut call = session.call("1", "stream", &json!({"count": 20, "interval_ms": 10}));
    assert_eq!(call.head().status, 200);
    assert_eq!(call.events().len(), 22);
    assert!(!call.stream_text().contains("\n:"), "{}", call.stream_text());
}

/// A connection that has been silent for a second rests: it still carries keep-alives, each in its
/// time, and messages, and notices its peer's end and another listener.
#[test]
fn a_stream_that_has_rested_goes_on() {
    let server = Server::start(&["--sse-keep-alive", "1500ms"]);
    let session = Session::start(&server, NEWEST);
    let before = server.descriptors();
    let mut listener = session.listen();
    listener.event().expect("the priming event");
    let since = Instant::now();
    assert_comments(&mut listener, 2);
    let silence = since.elapsed();
    assert!((2_500..4_500).contains(&silence.as_millis()), "two keep-alives took {silence:?}");
    std::thread::sleep(Duration::from_millis(1200));
    session.call("1", "standalone", &json!({"count": 2})).result();
    let numbers = [(); 2].map(|()| listener.message().expect("a message").number());
    assert_eq!(numbers, [1, 2]);
    std::thread::sleep(Duration::from_millis(1200));
    let mut other = session.listen();
    other.event().expect("the priming event");
    assert_eq!(listener.event().map(|event| event.id), None, "it has been taken over");
    std::thread::sleep(Duration::from_millis(1200));
    drop(other);
    eventually("its descriptor is closed", || server.descriptors() <= before);
}
