//! `docs/wire.md`, "Sessions and requests": what a POST may hold and how it is answered.

use serde_json::{Value, json};

use crate::client::{
    Answer, Connection, End, NEWEST, Session, ask, bare, call_body, initialize_body,
};
use crate::server::Server;

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// A POST with exactly these fields besides the session's.
fn post_with(session: &Session, fields: &str, body: &str) -> Answer {
    ask(session.address, post_bytes(session, fields, body))
}

fn post_bytes(session: &Session, fields: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{}{fields}Content-Length: {}\r\n\r\n{body}",
        session.fields(),
        body.len()
    )
}

fn accepting(session: &Session, accept: &str, body: &str) -> Answer {
    post_with(session, &format!("Content-Type: application/json\r\nAccept: {accept}\r\n"), body)
}

#[test]
fn notifications_and_responses_are_202_without_a_body() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/nobody/knows","params":{"a":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"none","error":{"code":-1,"message":"no"}}"#,
    ] {
        let answer = session.post(body).answer();
        assert_eq!((answer.status(), answer.body.len()), (202, 0), "{body}");
        assert_eq!(answer.field("content-length"), Some("0"));
    }
}

/// The id is null, unless one that a request may have can be read all the same.
#[test]
fn what_is_no_json_rpc_is_400() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    for (body, code) in [
        ("", -32700),
        ("{", -32700),
        ("{\"jsonrpc\":\"2.0\"", -32700),
        ("nonsense", -32700),
        ("\u{feff}{}", -32700),
        ("{}", -32600),
        ("42", -32600),
        ("null", -32600),
        ("[]", -32600),
        (r#"{"jsonrpc":"1.0","method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
    ] {
        let answer = session.post(body).answer();
        assert_eq!((answer.status(), answer.code()), (400, code), "{body}: {}", answer.text());
        assert_eq!(answer.json()["id"], Value::Null, "{body}");
    }
    for body in [r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#, r#"{"id":"a","method":"ping"}"#] {
        let answer = session.post(body).answer();
        assert_eq!((answer.status(), answer.code()), (400, -32600), "{body}");
        assert_eq!(answer.json()["id"], "a");
    }
    assert_eq!(session.post(LIST).answer().status(), 200);
}

/// Ids come back with type and bytes, whatever serde_json would make of them.
#[test]
fn ids_come_back_as_they_were_sent() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, NEWEST);
        for id in ["0", "-1", "9007199254740993", "\"1\"", "\"\"", "\"\\u00e9\\u0000\"", "\"é\""] {
            let mut connection = Connection::open(server.address);
            let body = call_body(id, "echo", &json!({"text": "x"}));
            let fields = "Content-Type: application/json\r\nAccept: application/json\r\n";
            connection.send(post_bytes(&session, fields, &body));
            let text = connection.answer().text();
            assert!(text.contains(&format!("\"id\":{id},")), "{id}: {text}");
        }
    }
}

#[test]
fn trouble_with_one_request_is_200_and_leaves_the_session_alone() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    for (body, code) in [
        (call_body("1", "no-such-tool", &json!({})), -32602),
        (call_body("1", "sleep", &json!({"ms": -1})), -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#.to_owned(), -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#.to_owned(), -32602),
    ] {
        let answer = session.post(&body).answer();
        assert_eq!((answer.status(), answer.code()), (200, code), "{body}: {}", answer.text());
    }
    let answer = session.post(&initialize_body(NEWEST)).answer();
    assert!(answer.field("mcp-session-id").is_some_and(|id| id != session.id));
}

#[test]
fn more_calls_than_a_session_may_have_are_told_so_with_200() {
    let server = Server::start(&["--calls-per-session", "2"]);
    let session = Session::start(&server, NEWEST);
    let mut open: Vec<Connection> = (1..=2)
        .map(|id| {
            let mut call = session.call(&id.to_string(), "sleep", &json!({"ms": 3_600_000}));
            assert_eq!(call.head().status, 200);
            call
        })
        .collect();
    let refused = session.call("3", "sleep", &json!({"ms": 1})).result();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(3), &json!(-32000)));
    assert_eq!(session.delete().status(), 200);
    assert!(open.iter_mut().all(|call| call.message().is_none()));
}

#[test]
fn accept_is_matched_by_its_meaning() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let json = "application/json";
    let sse = "text/event-stream";
    for (accept, expected) in [
        ("*/*", json),
        ("application/*, text/*", json),
        ("APPLICATION/JSON;charset=utf-8, Text/Event-Stream;q=0.1", json),
        ("text/event-stream, application/json", json),
        ("application/json", json),
        ("text/event-stream", sse),
        ("application/json;q=0, text/event-stream", sse),
        ("*/*, text/event-stream;q=0", json),
        ("*/*, application/json;q=0", sse),
    ] {
        let answer = accepting(&session, accept, LIST);
        assert_eq!((answer.status(), answer.field("content-type")), (200, Some(expected)));
    }
    let absent = post_with(&session, "Content-Type: application/json\r\n", LIST);
    assert_eq!((absent.status(), absent.field("content-type")), (200, Some(json)));
    for accept in ["text/html", "application/json;q=0", "*/*;q=0", "application/jsonx, text/plain"]
    {
        assert_eq!(accepting(&session, accept, LIST).status(), 406, "{accept}");
    }
}

#[test]
fn a_get_wants_an_event_stream_to_be_acceptable() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let get = |accept: &str| {
        let mut connection = Connection::open(server.address);
        let fields = session.fields();
        connection.send(format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}{accept}\r\n"));
        connection
    };
    for accept in ["Accept: */*\r\n", "", "Accept: text/*\r\n", "Accept: Text/Event-Stream\r\n"] {
        let head = get(accept).head();
        assert_eq!(head.status, 200, "{accept}");
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        assert_eq!(head.field("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(head.field("x-accel-buffering"), Some("no"));
        assert_eq!(head.field("content-encoding"), None);
    }
    for accept in ["Accept: application/json\r\n", "Accept: */*, text/event-stream;q=0\r\n"] {
        assert_eq!(get(accept).answer().status(), 406, "{accept}");
    }
}

#[test]
fn the_body_must_be_json_by_its_content_type() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    for (fields, status) in [
        ("Content-Type: application/json\r\n", 200),
        ("Content-Type: Application/JSON ; Charset=\"UTF-8\"\r\n", 200),
        ("Content-Type: application/json;charset=utf-16\r\n", 415),
        ("Content-Type: text/plain\r\n", 415),
        ("Content-Type: application/jsonx\r\n", 415),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 415),
        ("", 415),
    ] {
        assert_eq!(post_with(&session, fields, LIST).status(), status, "{fields}");
    }
}

/// What such a call sends besides its answer goes where a stream is read.
#[test]
fn a_client_that_takes_json_only_gets_the_notifications_of_its_call_on_the_standalone_stream() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut listener = session.listen();
    let body = call_body("5", "stream", &json!({"count": 3}));
    let answer = accepting(&session, "application/json", &body);
    assert_eq!((answer.status(), answer.field("content-type")), (200, Some("application/json")));
    assert_eq!((&answer.json()["id"], &answer.json()["error"]), (&json!(5), &Value::Null));
    for number in 1..=3 {
        let message = listener.message().expect("a notification");
        assert_eq!(
            (message.number(), &message.json()["method"]),
            (number, &json!("notifications/message"))
        );
    }
}

#[test]
fn the_operator_can_force_streams() {
    let server = Server::start(&["--answers", "sse"]);
    let session = Session::start(&server, NEWEST);
    let mut call = session.call("1", "echo", &json!({"text": "x"}));
    let head = call.head();
    assert_eq!(head.field("content-type"), Some("text/event-stream"));
    let events = call.events();
    assert_eq!(events.iter().map(|event| event.number()).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((&events[1].json()["id"], call.end()), (&json!(1), Some(End::Whole)));
}

/// Where the client takes no stream nothing is left but to wait.
#[test]
fn an_answer_that_takes_time_is_json_where_the_operator_forces_it() {
    let server = Server::start(&["--answers", "json"]);
    let session = Session::start(&server, NEWEST);
    let answer = session.call("1", "sleep", &json!({"ms": 50})).answer();
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.json()["id"], 1);
    // The upstream sends something else first: only a stream can carry it.
    let mut call = session.call("2", "stream", &json!({"count": 1}));
    assert_eq!(call.head().field("content-type"), Some("text/event-stream"));
    assert_eq!(call.events().len(), 3);
}

#[test]
fn delete_ends_streams_and_the_session() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut listener = session.listen();
    let mut call = session.call("1", "sleep", &json!({"ms": 3_600_000}));
    assert_eq!(call.head().status, 200);
    let deleted = session.delete();
    assert_eq!((deleted.status(), deleted.body.len()), (200, 0));
    for stream in [&mut listener, &mut call] {
        assert!(stream.message().is_none());
        assert_eq!(stream.end(), Some(End::Whole));
    }
    assert_eq!(session.post(LIST).answer().status(), 404);
    assert_eq!(ask(server.address, bare("DELETE", &session.fields())).status(), 404);
}
