//! `docs/wire.md`, "Sessions and requests": batch arrays, which 2025-03-26 has and later ones not.

use serde_json::{Value, json};

use crate::client::{Answer, Connection, End, NEWEST, Session, ask, call_body};
use crate::server::Server;

const OLD: &str = "2025-03-26";

fn batch(messages: &[String]) -> String {
    format!("[{}]", messages.join(","))
}

fn echo(id: &str) -> String {
    call_body(id, "echo", &json!({"text": "x"}))
}

fn note() -> String {
    r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#.to_owned()
}

fn json_only_bytes(session: &Session, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json\r\n{}Content-Length: {}\r\n\r\n{body}",
        session.fields(),
        body.len()
    )
}

fn json_only(session: &Session, body: &str) -> Answer {
    ask(session.address, json_only_bytes(session, body))
}

fn sorted_ids(answers: &[Value]) -> Vec<i64> {
    let mut ids: Vec<i64> = answers.iter().filter_map(|answer| answer["id"].as_i64()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_batch_that_is_answered_at_once_is_one_json_array() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, OLD);
        let answer = json_only(&session, &batch(&[echo("1"), note(), echo("2")]));
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let answers = answer.json();
        let answers = answers.as_array().expect("an array");
        assert_eq!((sorted_ids(answers), answers.len()), (vec![1, 2], 2));
        let one = json_only(&session, &batch(&[echo("3")]));
        assert_eq!(one.json().as_array().map(Vec::len), Some(1), "{}", one.text());
    }
}

/// The stream holds a set of open ids and ends when it is empty.
#[test]
fn a_batch_that_takes_time_is_one_stream_with_each_answer() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, OLD);
        let calls = [
            call_body("1", "sleep", &json!({"ms": 120})),
            call_body("2", "sleep", &json!({"ms": 1})),
            call_body("3", "stream", &json!({"count": 2})),
        ];
        let mut connection = session.post(&batch(&calls));
        assert_eq!(connection.head().field("content-type"), Some("text/event-stream"));
        let events = connection.events();
        assert_eq!(connection.end(), Some(End::Whole));
        let numbers: Vec<u64> = events.iter().map(|event| event.number()).collect();
        assert_eq!(numbers, (1..=5).collect::<Vec<_>>(), "{events:?}");
        let messages: Vec<Value> = events.iter().map(|event| event.json()).collect();
        assert_eq!(sorted_ids(&messages), [1, 2, 3]);
        assert_eq!(messages.last().map(|last| last["id"].clone()), Some(json!(1)));
    }
}

#[test]
fn a_batch_of_notifications_or_responses_is_202() {
    let server = Server::start(&[]);
    let session = Session::start(&server, OLD);
    let response = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#.to_owned();
    for body in [batch(&[note(), note()]), batch(&[response.clone(), note()])] {
        let answer = session.post(&body).answer();
        assert_eq!((answer.status(), answer.body.len()), (202, 0), "{body}");
    }
}

#[test]
fn shapes_that_no_batch_may_have_are_400() {
    let server = Server::start(&[]);
    let session = Session::start(&server, OLD);
    let response = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#.to_owned();
    let initialize = crate::client::initialize_body(OLD);
    for body in [
        "[]".to_owned(),
        "[1]".to_owned(),
        batch(&[echo("1"), "{}".to_owned()]),
        batch(&[echo("1"), response]),
        batch(&[echo("1"), echo("2"), echo("1")]),
        batch(std::slice::from_ref(&initialize)),
        batch(&[initialize, echo("1")]),
        batch(&["[]".to_owned()]),
    ] {
        let answer = session.post(&body).answer();
        assert_eq!((answer.status(), answer.code()), (400, -32600), "{body}");
    }
    // The same digits as number and as text are two ids.
    let answer = json_only(&session, &batch(&[echo("1"), echo("\"1\"")]));
    assert_eq!(answer.json().as_array().map(Vec::len), Some(2), "{}", answer.text());
}

#[test]
fn newer_sessions_have_no_batches() {
    let server = Server::start(&[]);
    for revision in ["2025-06-18", NEWEST] {
        let session = Session::start(&server, revision);
        for body in [batch(&[echo("1")]), batch(&[note()]), "[]".to_owned()] {
            let answer = session.post(&body).answer();
            assert_eq!((answer.status(), answer.code()), (400, -32600), "{revision} {body}");
        }
    }
}

/// There is nothing to answer then, and JSON-RPC forbids an empty array.
#[test]
fn a_batch_whose_requests_were_all_cancelled_is_answered_without_a_body() {
    let server = Server::start(&[]);
    let session = Session::start(&server, OLD);
    let mut listener = session.listen();
    let forever = 3_600_000;
    let body = batch(&[
        call_body("1", "sleep", &json!({"ms": forever})),
        call_body("2", "standalone", &json!({"count": 2, "interval_ms": forever})),
    ]);
    let mut connection = Connection::open(server.address);
    connection.send(json_only_bytes(&session, &body));
    assert!(listener.message().is_some(), "the batch is under way");
    for id in [1, 2] {
        let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": id}});
        assert_eq!(session.post(&note.to_string()).answer().status(), 202);
    }
    let answer = connection.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (202, ""));
}
