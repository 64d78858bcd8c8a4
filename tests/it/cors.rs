//! `docs/wire.md`, "Browsers": what a page of an allowed origin is told, and one of another is not.

use serde_json::json;

use crate::client::{Answer, Connection, Head, NEWEST, Session, ask, bare, call_body, post};
use crate::server::Server;

const PAGE: &str = "https://app.example.org";
const FLAGS: [&str; 2] = ["--allow-origin", PAGE];

fn from_page(fields: &str) -> String {
    format!("{fields}Origin: {PAGE}\r\n")
}

/// The fields of the CORS protocol, and `vary`.
fn cors(head: &Head) -> Vec<&(String, String)> {
    let is_cors = |name: &str| name.starts_with("access-control-") || name == "vary";
    head.fields.iter().filter(|(name, _)| is_cors(name)).collect()
}

fn assert_told(head: &Head) {
    assert_eq!(head.field("access-control-allow-origin"), Some(PAGE), "{head:?}");
    assert_eq!(head.field("vary"), Some("Origin"));
    let exposed = head.field("access-control-expose-headers").expect("exposed fields");
    assert_eq!(exposed, "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate");
    assert_eq!(head.field("access-control-allow-credentials"), None);
}

#[test]
fn every_answer_to_an_allowed_origin_names_it() {
    let server = Server::start(&FLAGS);
    let session = Session::start(&server, NEWEST);
    let fields = from_page(&session.fields());
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let unknown = from_page("Mcp-Session-Id: unknown\r\n");
    for (request, status) in [
        (post(&fields, list), 200),
        (post(&fields, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#), 202),
        (post(&fields, "{"), 400),
        (post(&unknown, list), 404),
        (bare("GET", &from_page("")).replacen("/mcp", "/nothing", 1), 404),
        (bare("PUT", &fields), 405),
        (
            post(&fields, list).replacen(
                "Accept: application/json, text/event-stream",
                "Accept: text/html",
                1,
            ),
            406,
        ),
        (post(&fields, list).replacen("application/json", "text/plain", 1), 415),
    ] {
        let answer = ask(server.address, &request);
        assert_eq!(answer.status(), status, "{request}");
        assert_told(&answer.head);
    }
    // Streams: of a call, the standalone one, and a refusal told in-band.
    let mut stream = Connection::open(server.address);
    stream.send(post(&fields, &call_body("2", "stream", &json!({"count": 2, "interval_ms": 20}))));
    let head = stream.head();
    assert_eq!(head.field("content-type"), Some("text/event-stream"));
    assert_told(&head);
    let mut listener = Connection::open(server.address);
    listener.send(bare("GET", &fields));
    assert_told(&listener.head());
    let cursor = stream.events().pop().expect("events").id;
    let ahead = format!("{}.99", cursor.rsplit_once('.').expect("a cursor").0);
    let answer = ask(server.address, bare("GET", &format!("{fields}Last-Event-ID: {ahead}\r\n")));
    assert_eq!(answer.status(), 200);
    assert_told(&answer.head);
    let deleted = ask(server.address, bare("DELETE", &fields));
    assert_eq!(deleted.status(), 200);
    assert_told(&deleted.head);
}

fn preflight(server: &Server, path: &str, fields: &str) -> Answer {
    let asked = format!("Access-Control-Request-Method: POST\r\n{fields}");
    ask(server.address, bare("OPTIONS", &asked).replacen("/mcp", path, 1))
}

#[test]
fn a_preflight_is_answered_for_each_path_without_credentials() {
    let data = crate::data::Data::new("cors-keys");
    std::fs::create_dir(data.path()).unwrap();
    let file = data.join("keys");
    std::fs::write(&file, "").unwrap();
    let server = Server::start(&[FLAGS[0], FLAGS[1], "--api-keys", file.to_str().unwrap()]);
    for (path, methods) in [("/mcp", "GET, POST, DELETE"), ("/sse", "GET"), ("/messages", "POST")] {
        let asked = "Access-Control-Request-Headers: authorization,content-type\r\n";
        let answer = preflight(&server, path, &from_page(asked));
        assert_eq!(answer.status(), 204, "{path}");
        assert_told(&answer.head);
        assert_eq!(answer.field("access-control-allow-methods"), Some(methods));
        let headers = answer.field("access-control-allow-headers").expect("fields");
        let allowed: Vec<_> = headers.split(", ").collect();
        for name in ["authorization", "content-type", "mcp-session-id", "last-event-id"] {
            assert!(allowed.contains(&name), "{headers}");
        }
        assert_eq!(answer.field("access-control-max-age"), Some("7200"));
        assert_eq!(answer.field("content-length"), None);
    }
    // What follows the preflight needs credentials, and the page may read that it does.
    let refused = ask(server.address, post(&from_page(""), "{}"));
    assert_eq!(refused.status(), 401);
    assert_told(&refused.head);
    assert!(refused.field("www-authenticate").is_some());
    // An OPTIONS that is no preflight is a method like any other.
    assert_eq!(ask(server.address, bare("OPTIONS", &from_page(""))).status(), 405);
    assert_eq!(preflight(&server, "/nothing", &from_page("")).status(), 404);
    assert_eq!(preflight(&server, "/mcp", "").status(), 405);
}

#[test]
fn who_is_no_page_or_not_allowed_is_told_nothing() {
    let server = Server::start(&FLAGS);
    let session = Session::start(&server, NEWEST);
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let plain = ask(server.address, post(&session.fields(), list));
    assert_eq!((plain.status(), cors(&plain.head)), (200, vec![]));
    for origin in ["https://evil.example", "null", "https://app.example.org.evil.example"] {
        let fields = format!("Origin: {origin}\r\n");
        let refused = ask(server.address, post(&format!("{}{fields}", session.fields()), list));
        assert_eq!((refused.status(), cors(&refused.head)), (403, vec![]), "{origin}");
        let refused = preflight(&server, "/mcp", &fields);
        assert_eq!((refused.status(), cors(&refused.head)), (403, vec![]), "{origin}");
    }
}
