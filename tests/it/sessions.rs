//! `docs/wire.md`, "Sessions and requests": which session a request names, and how one begins and
//! ends.

use serde_json::json;

use crate::client::{Connection, End, NEWEST, Session, ask, bare, initialize_body, post};
use crate::server::{Server, eventually};

const NO_SESSION: &str =
    r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;

/// The same bytes whyever the session is not there, with the id as it was sent.
#[test]
fn an_unknown_or_ended_session_is_404_with_the_id_echoed() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    assert_eq!(session.delete().status(), 200);
    let foreign = Session { id: "7c1f0f5e-5a54-4a40-8a63-0d2f9a3c1b11".into(), ..session.clone() };
    for session in [&session, &foreign] {
        let answer = session.post(LIST).answer();
        assert_eq!((answer.status(), answer.text().as_str()), (404, NO_SESSION));
        assert_eq!(answer.field("content-type"), Some("application/json"));
        let text_id = LIST.replace('7', r#""7\u0041""#);
        let answer = session.post(&text_id).answer();
        assert_eq!(answer.text(), NO_SESSION.replace('7', r#""7\u0041""#));
        let null = NO_SESSION.replace('7', "null");
        for method in ["GET", "DELETE"] {
            let answer = ask(server.address, bare(method, &session.fields()));
            assert_eq!((answer.status(), answer.text()), (404, null.clone()), "{method}");
        }
        let cursor =
            ask(server.address, bare("GET", &format!("{}Last-Event-ID: x\r\n", session.fields())));
        assert_eq!((cursor.status(), cursor.text()), (404, null));
    }
    let stopped = server.stop();
    assert_eq!((stopped.code, stopped.total("sessions_ended")), (Some(0), 1));
}

#[test]
fn a_session_calls_listens_resumes_and_ends() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let echo = session.call("1", "echo", &json!({"text": "hello"})).result();
    assert_eq!((&echo["id"], &echo["result"]["content"][0]["text"]), (&json!(1), &json!("hello")));
    let mut listener = session.listen();
    let first = listener.event().expect("the priming event");
    assert_eq!((first.data.as_str(), first.number()), ("", 0));
    session.call("2", "standalone", &json!({"count": 2})).result();
    assert_eq!(listener.message().expect("a message").number(), 1);
    let mut resumed = session.resume(&listener.cursor().expect("a cursor"));
    assert_eq!(resumed.head().status, 200);
    assert_eq!(resumed.message().expect("the rest").number(), 2);
    assert_eq!(session.delete().status(), 200);
    assert_eq!(resumed.events(), []);
    assert_eq!(resumed.end(), Some(End::Whole));
    assert_eq!(session.post(LIST).answer().status(), 404);
}

#[test]
fn a_request_must_name_exactly_one_session() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let other = Session::start(&server, NEWEST);
    let both = format!("Mcp-Session-Id: {}\r\nMcp-Session-Id: {}\r\n", session.id, other.id);
    for fields in ["", both.as_str()] {
        for request in [post(fields, LIST), bare("GET", fields), bare("DELETE", fields)] {
            let answer = ask(server.address, &request);
            assert_eq!((answer.status(), answer.code()), (400, -32000), "{request}");
        }
    }
    let twice = format!("Mcp-Session-Id: {0}\r\nMcp-Session-Id: {0}\r\n", session.id);
    assert_eq!(ask(server.address, post(&twice, LIST)).status(), 200);
    assert_eq!(other.post(LIST).answer().status(), 200);
}

#[test]
fn initialize_is_json_with_a_session_id_and_ignores_the_one_it_carries() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    for carried in ["no-such-session", &session.id] {
        let fields = format!("Mcp-Session-Id: {carried}\r\n");
        let mut connection = Connection::open(server.address);
        connection.send(post(&fields, &initialize_body(NEWEST)));
        let answer = connection.answer();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.field("content-type"), Some("application/json"));
        assert_eq!(answer.json()["id"], "init");
        let id = answer.field("mcp-session-id").expect("a session id");
        assert!(id != carried && id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id}");
    }
    assert_eq!(session.post(LIST).answer().status(), 200);
}

/// Calls and streams keep a session; without them it goes, and its child with it.
#[test]
fn a_session_that_nobody_uses_expires() {
    let flags = ["--idle-timeout", "400ms", "--retention", "100ms"];
    for server in [Server::start(&flags), Server::stdio(&flags)] {
        let idle = Session::start(&server, NEWEST);
        let listened = Session::start(&server, NEWEST);
        let called = Session::start(&server, NEWEST);
        let listener = listened.listen();
        let result = called.call("1", "sleep", &json!({"ms": 1500})).result();
        assert_eq!(result["id"], 1);
        let answer = idle.post(LIST).answer();
        assert_eq!((answer.status(), answer.text().as_str()), (404, NO_SESSION));
        assert_eq!(listened.post(LIST).result()["id"], 7);
        drop(listener);
        server.wait_for_log("all three sessions expire", |_| {
            let idle = |line: &&serde_json::Value| line["why"] == "idle";
            server.logs().iter().filter(idle).count() == 3
        });
        eventually("the children are gone", || server.children().is_empty());
    }
}

/// Where does every stream stand? SIGUSR1 says so in the log, and nothing else happens.
#[test]
fn sigusr1_says_where_every_stream_stands() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut listener = session.listen();
    crate::numbered::priming_id(&mut listener);
    crate::numbered::push(&session, 3, 10);
    crate::numbered::expect(&mut listener, 1, 3);
    server.signal(10);
    let line = server.wait_for_log("the stream's line", |line| {
        line["message"] == "where a stream stands" && line["stream"] == 0
    });
    let seen = ["tail", "sent", "floor", "lag_events"].map(|name| line[name].as_u64().unwrap());
    assert_eq!(seen, [3, 3, 1, 0], "{line}");
    assert_eq!(line["attached"], true);
    server.wait_for_log("each shard's line", |line| line["message"] == "where a shard stands");
    assert_eq!(server.stop().code, Some(0));
}
