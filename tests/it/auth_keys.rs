//! `docs/security.md`, "API keys": who has none is refused, and a session is its principal's.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::client::{Answer, Connection, NEWEST, ask, bare, call_body, initialize_body, post};
use crate::data::Data;
use crate::server::{PROGRAM, Server};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// A key of this name, by the program's own command: the key, and its line for the file.
fn issue(name: &str) -> (String, String) {
    let output = Command::new(PROGRAM).args(["key", name]).stdin(Stdio::null()).output();
    let output = output.expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let (key, line) = text.trim_end().split_once('\n').unwrap_or_else(|| panic!("{text:?}"));
    assert!(line.starts_with(&format!("{name} ")) && !line.contains(key), "{line}");
    (key.to_owned(), line.to_owned())
}

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

/// A session of whoever has this key: its fields, the key's included.
fn start(server: &Server, key: &str) -> String {
    let answer = ask(server.address, post(&bearer(key), &initialize_body(NEWEST)));
    assert_eq!(answer.status(), 200, "{answer:?}");
    session_fields(answer.field("mcp-session-id").expect("a session"))
}

fn session_fields(id: &str) -> String {
    format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {NEWEST}\r\n")
}

/// Everything of an answer but its date.
fn bytes(answer: &Answer) -> String {
    let fields: Vec<_> = answer.head.fields.iter().filter(|(name, _)| name != "date").collect();
    format!("{} {fields:?} {}", answer.status(), answer.text())
}

#[test]
fn whoever_has_no_key_is_refused_everywhere_and_nothing_secret_is_logged() {
    let data = Data::new("auth-keys-refused");
    fs::create_dir(data.path()).unwrap();
    let (key, line) = issue("alice");
    let file = data.join("keys");
    fs::write(&file, format!("# people\n{line}\n")).unwrap();
    let server = Server::start(&["--api-keys", file.to_str().unwrap()]);
    let fields = start(&server, &key);
    let unknown = "gl_not-one-of-ours";
    let both = format!("{}{}", bearer(&key), bearer(&key));
    for (credentials, error) in [
        (String::new(), false),
        ("Authorization: Basic YTpi\r\n".to_owned(), false),
        (bearer(unknown), true),
        (bearer(&key[..key.len() - 1]), true),
        (bearer(""), true),
        (both, true),
    ] {
        let all = format!("{fields}{credentials}");
        for request in [
            post(&all, LIST),
            post(&credentials, &initialize_body(NEWEST)),
            bare("GET", &all),
            bare("DELETE", &all),
            bare("GET", &credentials).replacen("/mcp", "/sse", 1),
            post(&all, LIST).replacen("/mcp", "/messages", 1),
        ] {
            let answer = ask(server.address, &request);
            assert_eq!(answer.status(), 401, "{request}");
            assert_eq!(answer.code(), -32000);
            let challenge = answer.field("www-authenticate").expect("a challenge");
            assert!(challenge.starts_with("Bearer "), "{challenge}");
            assert_eq!(challenge.contains("error=\"invalid_token\""), error, "{challenge}");
        }
    }
    // Origin, path and method come first; then nothing else about the request is looked at.
    let origin = format!("{}Origin: http://evil.example\r\n", bearer(unknown));
    assert_eq!(ask(server.address, post(&origin, LIST)).status(), 403);
    assert_eq!(ask(server.address, bare("GET", "").replacen("/mcp", "/x", 1)).status(), 404);
    assert_eq!(ask(server.address, bare("PUT", "")).status(), 405);
    let text = post("", LIST).replacen("application/json", "text/plain", 1);
    assert_eq!(ask(server.address, text).status(), 401);
    // The session has outlived all of it.
    let good = ask(server.address, post(&format!("{fields}{}", bearer(&key)), LIST));
    assert_eq!(good.status(), 200, "{good:?}");
    let stopped = server.stop();
    assert_eq!(stopped.total("refusals.401"), 37);
    let logs = format!("{:?}", stopped.logs);
    assert!(logs.contains("a request without good credentials was refused"));
    assert!(logs.contains("\"alice\""), "{logs}");
    assert!(!logs.contains(&key) && !logs.contains(unknown) && !logs.contains("YTpi"));
}

#[test]
fn a_refused_request_keeps_its_connection() {
    let data = Data::new("auth-keys-kept");
    fs::create_dir(data.path()).unwrap();
    let (key, line) = issue("a");
    let file = data.join("keys");
    fs::write(&file, &line).unwrap();
    let server = Server::start(&["--api-keys", file.to_str().unwrap()]);
    let mut connection = Connection::open(server.address);
    for _ in 0..3 {
        connection.send(post("", &initialize_body(NEWEST)));
        assert_eq!(connection.answer().status(), 401);
        connection.send(post(&bearer(&key), &initialize_body(NEWEST)));
        assert_eq!(connection.answer().status(), 200);
    }
}

#[test]
fn the_session_of_another_principal_is_like_one_that_does_not_exist() {
    let data = Data::new("auth-keys-owner");
    fs::create_dir(data.path()).unwrap();
    let (alice, first) = issue("alice");
    let (also_alice, second) = issue("alice");
    let (bob, third) = issue("bob");
    let file = data.join("keys");
    fs::write(&file, format!("{first}\n{second}\n{third}\n")).unwrap();
    let log = data.join("log");
    let flags = ["--api-keys", file.to_str().unwrap(), "--data-dir", log.to_str().unwrap()];
    let server = Server::start(&flags);
    let fields = start(&server, &alice);
    let sse = open_sse(&server, &alice);
    // Of the same form and the same shard, so that the same code answers.
    let unknown = forged(&fields);
    let check = |server: &Server| {
        for request in [
            post("FIELDS", &call_body("7", "echo", &json!({"text": "x"}))),
            post("FIELDS", "not json"),
            bare("GET", "FIELDS"),
            bare("GET", "FIELDSLast-Event-ID: x.1\r\n"),
            bare("DELETE", "FIELDS"),
        ] {
            let with = |fields: &str, key: &str| {
                let fields = format!("{fields}{}", bearer(key));
                let request = request.replacen("FIELDS", &fields, 1);
                bytes(&ask(server.address, request))
            };
            let wanted = with(&unknown, &bob);
            assert!(wanted.starts_with("404 "), "{wanted}");
            assert_eq!(with(&fields, &bob), wanted, "{request}");
        }
    };
    check(&server);
    let message = |id: &str, key: &str| {
        let request = post(&bearer(key), LIST);
        let path = format!("/messages?sessionId={id}");
        bytes(&ask(server.address, request.replacen("/mcp", &path, 1)))
    };
    let stranger = message(&forged_id(&sse.1), &bob);
    assert!(stranger.starts_with("404 "), "{stranger}");
    assert_eq!(message(&sse.1, &bob), stranger);
    assert!(message(&sse.1, &alice).starts_with("202 "));
    drop(sse);
    // A restart remembers whose it is; another key of the same name opens it.
    assert_eq!(server.stop().code, Some(0));
    let server = Server::start(&flags);
    check(&server);
    let own = format!("{fields}{}", bearer(&also_alice));
    assert_eq!(ask(server.address, post(&own, LIST)).status(), 200);
    // Without keys everybody is nobody, whose session it is not.
    assert_eq!(server.stop().code, Some(0));
    let open = Server::start(&flags[2..]);
    assert_eq!(ask(open.address, post(&own, LIST)).status(), 404);
}

/// A stream of the HTTP+SSE transport, and the id of its session.
fn open_sse(server: &Server, key: &str) -> (Connection, String) {
    let mut stream = Connection::open(server.address);
    stream.send(bare("GET", &bearer(key)).replacen("/mcp", "/sse", 1));
    assert_eq!(stream.head().status, 200);
    let endpoint = stream.event().expect("the endpoint").data;
    let id = endpoint.split_once("sessionId=").expect("an id").1.to_owned();
    (stream, id)
}

/// The id with its last character changed: of the same shard, and nobody's.
fn forged_id(id: &str) -> String {
    let (rest, last) = id.split_at(id.len() - 1);
    format!("{rest}{}", if last == "A" { "Q" } else { "A" })
}

fn forged(fields: &str) -> String {
    let id = fields.split(['\r', ' ']).nth(1).expect("the id");
    fields.replacen(id, &forged_id(id), 1)
}

#[test]
fn wrong_keys_are_told_at_the_start_all_at_once() {
    let data = Data::new("auth-keys-wrong");
    fs::create_dir(data.path()).unwrap();
    let file = data.join("keys");
    fs::write(&file, "alice\nbob 12\n").unwrap();
    let mut program = Command::new(PROGRAM);
    let listen = ["serve", "--listen", "127.0.0.1:0", "--api-keys"];
    let output = program.args(listen).arg(&file).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("line 1: ") && told.contains("line 2: "), "{told}");
    let output = Command::new(PROGRAM).args(["key", "two words"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}
