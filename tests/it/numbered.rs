//! The numbered messages of the demo server's tools, and how a stream of them must look.

use serde_json::{Value, json};

use crate::client::{Connection, End, Event, Session};
use crate::server::Server;

/// Arguments of the tools that send numbered messages.
pub fn flood(count: u64, size: u64, interval_ms: u64) -> Value {
    json!({"count": count, "size": size, "interval_ms": interval_ms})
}

/// The number that the tool has put into the message.
pub fn sequence(event: &Event) -> Option<u64> {
    event.json()["params"]["data"]["seq"].as_u64()
}

/// What stands before the last dot of an event id.
pub fn token(id: &str) -> &str {
    id.rsplit_once('.').map(|(token, _)| token).unwrap_or_else(|| panic!("no dot in {id:?}"))
}

/// The id of event `number` on the stream of `id`.
pub fn sibling(id: &str, number: impl std::fmt::Display) -> String {
    format!("{}.{number}", token(id))
}

/// Reads the head of a stream and its priming event; returns the priming id.
pub fn primed(connection: &mut Connection) -> String {
    let head = connection.head();
    assert_eq!(head.status, 200, "{head:?}");
    priming_id(connection)
}

/// Reads the priming event of a stream whose head was read.
pub fn priming_id(connection: &mut Connection) -> String {
    let priming = connection.event().expect("a stream is primed");
    assert_eq!(priming.data, "", "the first event is the priming event");
    priming.id
}

/// The next messages are those numbered `first..=last`, and so say their ids; the last id.
pub fn expect(connection: &mut Connection, first: u64, last: u64) -> String {
    let mut id = String::new();
    for number in first..=last {
        let event = connection.message();
        let event = event.unwrap_or_else(|| panic!("the stream ended before message {number}"));
        assert_eq!(event.number(), number, "dense ids: {}", event.id);
        assert_eq!(sequence(&event), Some(number), "in order: {}", event.id);
        id = event.id;
    }
    id
}

/// The next message is the final answer to call `id` with this number, then the stream ends whole.
pub fn expect_result(connection: &mut Connection, id: u64, number: u64) {
    let answer = connection.message().expect("the final answer");
    assert_eq!(answer.json()["id"], id, "{answer:?}");
    assert!(answer.json()["result"].is_object(), "{answer:?}");
    assert_eq!(answer.number(), number, "{answer:?}");
    assert_eq!(connection.event(), None);
    assert_eq!(connection.end(), Some(End::Whole));
}

/// Logs `count` messages of `size` bytes on the standalone stream, and waits until it is done.
pub fn push(session: &Session, count: u64, size: u64) {
    let answer = session.call("\"push\"", "standalone", &flood(count, size, 0)).result();
    assert!(answer["result"].is_object(), "{answer}");
}

/// Waits for the cut of a reader that has read nothing yet, then reads what it was given: no hole
/// inside of that, and no terminator at its end. The last number.
pub fn read_until_cut(server: &Server, reader: &mut Connection) -> u64 {
    server.wait_for_log("the cut", |line| {
        line["message"].as_str().is_some_and(|text| text.starts_with("cut a reader"))
    });
    let mut last = 0;
    while let Some(event) = reader.message() {
        assert_eq!(event.number(), last + 1, "no hole inside of what is delivered");
        last += 1;
    }
    assert_eq!(reader.end(), Some(End::Broken));
    last
}
