//! `docs/wire.md`: requests in flight. Ids used twice, cancellation, time limits, and the client's
//! answers to requests of the server.

use serde_json::{Value, json};

use crate::client::{Connection, End, NEWEST, Session, call_body};
use crate::server::{Server, eventually};

const FOREVER: u64 = 3_600_000;

fn cancelled(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    )
}

/// A call that stays open: its stream has begun, so the session knows of it.
fn open(session: &Session, id: &str, tool: &str, args: &Value) -> Connection {
    let mut call = session.call(id, tool, args);
    let head = call.head();
    assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")));
    call
}

/// A hosted client sends `id: 1` with every request and shares one session over its chats.
#[test]
fn two_calls_with_one_id_get_their_own_answers() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, NEWEST);
        let mut slow = open(&session, "1", "sleep", &json!({"ms": 300}));
        let mut text = open(&session, "\"1\"", "sleep", &json!({"ms": 200}));
        let fast = session.call("1", "echo", &json!({"text": "fast"})).result();
        assert_eq!(fast["id"], 1);
        assert_eq!(fast["result"]["content"][0]["text"], "fast");
        let text = text.message().expect("its answer").json();
        assert_eq!(text["id"], "1");
        assert!(text["result"].to_string().contains("200"), "{text}");
        let slow = slow.message().expect("its answer").json();
        assert_eq!(slow["id"], 1);
        assert!(slow["result"].to_string().contains("300"), "{slow}");
    }
}

#[test]
fn a_cancelled_call_ends_its_stream_without_an_answer() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, NEWEST);
        let mut call = open(&session, "\"a\"", "sleep", &json!({"ms": FOREVER}));
        let mut other = open(&session, "2", "sleep", &json!({"ms": 300}));
        assert_eq!(session.post(&cancelled("\"a\"")).answer().status(), 202);
        assert!(call.message().is_none());
        assert_eq!(call.end(), Some(End::Whole));
        assert_eq!(other.message().expect("the other's answer").json()["id"], 2);
        // Again, or for something that never was: nothing happens.
        assert_eq!(session.post(&cancelled("\"a\"")).answer().status(), 202);
    }
}

#[test]
fn a_child_that_answers_a_cancelled_request_is_not_heard() {
    let script = r#"
        read line
        printf '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25",'
        printf '"capabilities":{},"serverInfo":{"name":"s","version":"0"}}}\n'
        read line; read call; read cancel
        printf '%s\n' "$cancel" >&2
        printf '{"jsonrpc":"2.0","id":2,"result":{"late":true}}\n'
        read line
        printf '{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}\n'
        read line"#;
    let server = Server::shell(&[], script);
    let session = Session::start(&server, NEWEST);
    let mut call = open(&session, "\"mine\"", "any", &json!({}));
    assert_eq!(session.post(&cancelled("\"mine\"")).answer().status(), 202);
    assert!(call.message().is_none());
    let list = session.post(r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#).result();
    assert_eq!(list, json!({"jsonrpc": "2.0", "id": 9, "result": {"tools": []}}));
    // The child knows the call by its own id.
    server.wait_for_log("the cancel at the child", |line| {
        let line = line.to_string();
        line.contains("notifications/cancelled") && !line.contains("mine")
    });
}

#[test]
fn a_request_that_takes_too_long_is_answered_with_an_error() {
    for server in [
        Server::start(&["--request-timeout", "300ms"]),
        Server::stdio(&["--request-timeout", "300ms"]),
    ] {
        let session = Session::start(&server, NEWEST);
        let mut call = open(&session, "7", "sleep", &json!({"ms": FOREVER}));
        let answer = call.message().expect("a final answer").json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-31007)));
        assert!(call.message().is_none());
        assert_eq!(call.end(), Some(End::Whole));
        let echo = session.call("8", "echo", &json!({"text": "on"})).result();
        assert_eq!(echo["id"], 8);
    }
}

/// Progress starts the clock anew; the absolute limit it does not.
#[test]
fn progress_keeps_a_request_alive_up_to_the_absolute_limit() {
    let flags = ["--request-timeout", "1500ms", "--request-timeout-max", "4s"];
    let server = Server::stdio(&flags);
    let session = Session::start(&server, NEWEST);
    let progress = |id: &str, count: u64| {
        let args = json!({"count": count, "interval_ms": 100});
        let body = call_body(id, "progress", &args);
        let meta = format!(r#""params":{{"_meta":{{"progressToken":"t{id}"}},"#);
        session.post(&body.replacen(r#""params":{"#, &meta, 1))
    };
    let answer = progress("1", 20).result();
    assert_eq!((&answer["id"], &answer["error"]), (&json!(1), &Value::Null));
    let answer = progress("2", 1_000_000).result();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(2), &json!(-31007)));
}

#[test]
fn an_answer_that_comes_twice_is_202_and_counts_once() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, NEWEST);
        let mut call = open(&session, "1", "test_sampling", &json!({"prompt": "hi"}));
        let question = call.message().expect("the server's request").json();
        assert_eq!(question["method"], "sampling/createMessage");
        let answer = |text: &str| {
            json!({"jsonrpc": "2.0", "id": question["id"], "result": {"role": "assistant",
                "model": "m", "content": {"type": "text", "text": text}}})
            .to_string()
        };
        for text in ["first", "second"] {
            assert_eq!(session.post(&answer(text)).answer().status(), 202);
        }
        let result = call.message().expect("the result").json();
        assert!(result["result"].to_string().contains("first"), "{result}");
    }
}

/// Otherwise a client that never answers would hold the tool for ever.
#[test]
fn a_question_that_the_client_does_not_answer_in_time_fails_at_the_server() {
    for server in [
        Server::start(&["--server-request-timeout", "300ms"]),
        Server::stdio(&["--server-request-timeout", "300ms"]),
    ] {
        let session = Session::start(&server, NEWEST);
        let mut call = open(&session, "1", "test_elicitation", &json!({"message": "who?"}));
        let question = call.message().expect("the server's request").json();
        assert_eq!(question["method"], "elicitation/create");
        let result = call.message().expect("the result").json();
        assert_eq!(result["id"], 1);
        assert!(result.to_string().contains("in time"), "{result}");
        let late = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "cancel"}});
        assert_eq!(session.post(&late.to_string()).answer().status(), 202);
    }
}

/// A disconnect is not a cancel: the answer waits in the log.
#[test]
fn the_work_of_a_client_that_went_away_goes_on() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, NEWEST);
        let mut call = open(&session, "1", "sleep", &json!({"ms": 200}));
        assert_eq!(call.event().expect("the priming event").data, "");
        let cursor = call.cursor().expect("a cursor");
        call.socket().shutdown(std::net::Shutdown::Both).expect("it is open");
        let mut answers = Vec::new();
        eventually("the answer can be fetched", || {
            let mut resumed = session.resume(&cursor);
            assert_eq!(resumed.head().status, 200);
            answers.extend(resumed.message());
            !answers.is_empty()
        });
        assert_eq!(answers[0].json()["id"], 1);
    }
}
