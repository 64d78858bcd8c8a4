//! `docs/wire.md`, "Sessions and requests": `initialize`, what can go wrong behind it, and the
//! revision that comes of it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Answer, NEWEST, Session, ask, bare, initialize_body, post};
use crate::server::{Server, eventually, is_alive};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// Answers `initialize` in 2024-11-05 whatever is asked, then one line for each line.
const OLD_SERVER: &str = r#"
read line
printf '%s\n' "$line" >&2
printf '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{},'
printf '"serverInfo":{"name":"old","version":"0"}}}\n'
read line
read line
printf '{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}\n'
read line
"#;

fn initialize(server: &Server) -> Answer {
    ask(server.address, post("", &initialize_body(NEWEST)))
}

/// An error for the request's own id, and nothing that could be taken for a session.
fn assert_failed(answer: &Answer, code: i64) {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.field("mcp-session-id"), None);
    assert_eq!((answer.code(), &answer.json()["id"]), (code, &json!("init")));
}

#[test]
fn a_child_that_exits_at_once_fails_initialize_within_a_second() {
    let server = Server::shell(&[], "echo broken >&2; exit 3");
    let start = Instant::now();
    assert_failed(&initialize(&server), -31005);
    // The spawn of a process on a busy machine comes on top of the second of the promise.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let stopped = server.stop();
    assert_eq!((stopped.code, stopped.total("children_exited")), (Some(0), 1));
    assert_eq!(stopped.total("sessions_started"), stopped.total("sessions_ended"));
}

/// The death is what is told, not the time since the start.
#[test]
fn a_child_that_dies_before_it_has_answered_is_told_within_a_second_of_its_death() {
    let server = Server::shell(&[], "read line; echo reading >&2; sleep 1; exit 3");
    assert_failed(&initialize(&server), -31005);
}

#[test]
fn a_command_that_is_not_there_fails_initialize() {
    let server = Server::start_with(&[], &["/no/such/program"]);
    let start = Instant::now();
    assert_failed(&initialize(&server), -31005);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_child_that_never_answers_fails_initialize_at_its_timeout_and_is_ended() {
    let server =
        Server::shell(&["--init-timeout", "300ms", "--child-grace", "200ms"], "cat >/dev/null");
    assert_failed(&initialize(&server), -31007);
    eventually("the child is gone", || server.children().is_empty());
    assert_eq!(server.stop().code, Some(0));
}

/// The child's own refusal reaches the client, and leaves no session.
#[test]
fn an_initialize_that_the_child_refuses_gives_no_session() {
    let script = r#"
        read line
        printf '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}\n'
        read line"#;
    let server = Server::shell(&[], script);
    let answer = initialize(&server);
    assert_failed(&answer, -32602);
    assert_eq!(answer.json()["error"]["message"], "no");
    eventually("the child is gone", || server.children().is_empty());
}

#[test]
fn a_client_that_leaves_during_initialize_leaves_no_child() {
    let server = Server::shell(&["--child-grace", "200ms"], "cat >/dev/null");
    let mut connection = crate::client::Connection::open(server.address);
    connection.send(post("", &initialize_body(NEWEST)));
    eventually("the child runs", || !server.children().is_empty());
    let child = server.children()[0];
    drop(connection);
    eventually("the child is gone", || !is_alive(child));
}

#[test]
fn beyond_the_session_limit_initialize_is_503_with_retry_after() {
    let server = Server::start(&["--sessions", "2"]);
    let first = Session::start(&server, NEWEST);
    let second = Session::start(&server, NEWEST);
    let answer = initialize(&server);
    assert_eq!((answer.status(), answer.code()), (503, -32000));
    assert!(answer.field("retry-after").is_some_and(|value| value.parse::<u32>().is_ok()));
    assert_eq!((answer.field("mcp-session-id"), &answer.json()["id"]), (None, &json!("init")));
    assert_eq!(second.post(LIST).answer().status(), 200);
    assert_eq!(first.delete().status(), 200);
    Session::start(&server, NEWEST);
}

#[test]
fn each_revision_up_to_the_newest_is_what_the_client_asked_for() {
    let server = Server::start(&[]);
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST] {
        let session = Session::start(&server, revision);
        assert_eq!(session.revision, revision);
        let mut listener = session.listen();
        session.call("1", "standalone", &json!({"count": 1})).result();
        let first = listener.event().expect("an event");
        // Clients of older revisions would parse empty data as JSON.
        assert_eq!(first.data.is_empty(), revision == NEWEST, "{revision}: {first:?}");
        assert!(listener.stream_text().starts_with("id: "), "{}", listener.stream_text());
    }
    assert_eq!(Session::start(&server, "2026-07-28").revision, NEWEST);
}

/// What a client asks beyond the newest is asked down; what the child answers holds.
#[test]
fn an_old_child_names_the_revision_of_its_session() {
    let server = Server::shell(&[], OLD_SERVER);
    let session = Session::start(&server, "2026-07-28");
    assert_eq!(session.revision, "2024-11-05");
    let asked = server.wait_for_log("what the child was asked", |line| {
        line.to_string().contains("protocolVersion")
    });
    assert!(asked.to_string().contains("2025-11-25"), "{asked}");
    assert!(!asked.to_string().contains("2026-07-28"), "{asked}");
    let tools = session.post(LIST).result();
    assert_eq!(tools, json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}));
}

#[test]
fn the_protocol_version_field_may_name_any_served_revision_and_no_other() {
    let server = Server::start(&[]);
    let session = Session::start(&server, "2025-06-18");
    let list = |fields: &str| {
        let fields = format!("Mcp-Session-Id: {}\r\n{fields}", session.id);
        ask(server.address, post(&fields, LIST))
    };
    let version = |name: &str| format!("MCP-Protocol-Version: {name}\r\n");
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST] {
        assert_eq!(list(&version(revision)).status(), 200, "{revision}");
    }
    assert_eq!(list("").status(), 200);
    assert_eq!(list(&version("2025-06-18").repeat(2)).status(), 200);
    for fields in [
        version("1900-01-01"),
        version("2026-07-28"),
        version("2099-01-01"),
        version("latest"),
        version("2025-06-18") + &version(NEWEST),
        version("2025-06-18, 2025-11-25"),
    ] {
        let answer = list(&fields);
        assert_eq!((answer.status(), answer.code()), (400, -32600), "{fields}");
        assert_eq!(answer.json()["id"], 1);
        let fields = format!("Mcp-Session-Id: {}\r\n{fields}", session.id);
        assert_eq!(ask(server.address, bare("GET", &fields)).status(), 400, "{fields}");
    }
    assert_eq!(list("").status(), 200);
}

/// Clients of 2026-07-28 probe first and fall back on exactly this answer.
#[test]
fn a_probe_for_the_unserved_revision_is_400_with_its_id() {
    let server = Server::start(&[]);
    let probe = r#"{"jsonrpc":"2.0","id":"probe-1","method":"server/discover","params":{"_meta":
        {"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let call = r#"{"jsonrpc":"2.0","id":"probe-1","method":"tools/call","params":{"name":"echo"}}"#;
    let fields = "MCP-Protocol-Version: 2026-07-28\r\n";
    for (fields, body) in [(fields, probe), ("", probe), (fields, call)] {
        let answer = ask(server.address, post(fields, body));
        assert_eq!((answer.status(), answer.code()), (400, -32600), "{fields}{body}");
        assert_eq!(answer.json()["id"], "probe-1");
    }
    let initialize = ask(server.address, post(fields, &initialize_body("2026-07-28")));
    assert_eq!(initialize.json()["result"]["protocolVersion"], NEWEST);
}
