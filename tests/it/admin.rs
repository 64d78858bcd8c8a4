//! The admin listener, over sockets.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{NEWEST, Session};
use crate::data::Data;
use crate::server::{Server, eventually};

/// A server with an admin listener, and where that is.
fn start(flags: &[&str]) -> (Server, SocketAddr) {
    let server = Server::start(&[&["--admin-listen", "127.0.0.1:0"], flags].concat());
    let line = server.wait_for_log("the admin listener serves", |line| {
        line["message"] == "the admin listener serves"
    });
    let address = line["address"].as_str().expect("an address").parse().expect("an address");
    (server, address)
}

/// Status, head and body of an answer.
fn ask(address: SocketAddr, line: &str, fields: &str, body: &str) -> (u16, String, String) {
    let mut socket = TcpStream::connect(address).expect("connected");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
    );
    socket.write_all(request.as_bytes()).expect("written");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("read");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head[9..12].parse().expect("a status");
    (status, head.to_owned(), body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, Value) {
    let (status, _, body) = ask(address, &format!("GET {path}"), "", "");
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

#[test]
fn health_readiness_and_metrics_are_served() {
    let (server, admin) = start(&[]);
    assert_eq!(get(admin, "/healthz"), (200, json!("ok\n")));
    assert_eq!(get(admin, "/readyz"), (200, json!({"ready": true})));
    let session = Session::start(&server, NEWEST);
    assert_eq!(session.call("1", "echo", &json!({"text": "x"})).result()["isError"], json!(null));
    let (status, head, text) = ask(admin, "GET /metrics", "", "");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: application/openmetrics-text"), "{head}");
    for line in [
        "gapless_sessions 1",
        "gapless_requests_total{kind=\"initialize\"} 1",
        "gapless_requests_total{kind=\"tools_call\"} 1",
        "gapless_sessions_started_total 1",
        "gapless_panics_total 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(get(admin, "/api/status").1["shards"].as_array().map(Vec::len), Some(2));
    assert_eq!(get(admin, "/nowhere").0, 404);
    assert_eq!(ask(admin, "POST /metrics", "", "").0, 405);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_session_is_shown_by_its_short_id_and_can_be_ended() {
    let (server, admin) = start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut listener = session.listen();
    let (status, all) = get(admin, "/api/sessions?limit=10");
    assert_eq!((status, all["more"].as_u64()), (200, Some(0)));
    let one = &all["sessions"][0];
    let short = one["session"].as_str().expect("a short id").to_owned();
    assert_eq!((short.len(), &one["server"]), (8, &json!("default")));
    assert_eq!(one["streams"][0]["attached"], json!(true));
    assert!(!all.to_string().contains(session.fields().split_whitespace().nth(1).expect("an id")));
    let (status, again) = get(admin, &format!("/api/sessions/{short}"));
    assert_eq!((status, &again["session"]), (200, &json!(short)));
    assert_eq!(ask(admin, &format!("DELETE /api/sessions/{short}"), "", "").0, 200);
    while listener.message().is_some() {}
    assert_eq!(get(admin, &format!("/api/sessions/{short}")).0, 404);
    assert_eq!(session.delete().status(), 404);
    assert_eq!(get(admin, "/api/sessions?limit=x").0, 400);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_notification_is_pushed_and_its_way_is_told() {
    let (server, admin) = start(&[]);
    let (one, other) = (Session::start(&server, NEWEST), Session::start(&server, NEWEST));
    let mut listener = one.listen();
    let body = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}).to_string();
    let push = |path: &str| {
        let (status, _, text) = ask(admin, &format!("POST {path}"), "", &body);
        (status, serde_json::from_str::<Value>(&text).expect("JSON"))
    };
    let (status, told) = push("/api/notify?wait=logged");
    assert_eq!((status, &told["sessions"]), (200, &json!(2)));
    let outcomes = told["outcomes"].as_array().expect("outcomes");
    assert!(outcomes.iter().all(|told| told["outcome"] == "logged"), "{told}");
    assert_eq!(
        listener.message().expect("pushed").json()["method"],
        "notifications/tools/list_changed"
    );
    // Who listens has it confirmed; for who does not, the wait ends.
    let all = get(admin, "/api/sessions").1;
    for session in all["sessions"].as_array().expect("sessions") {
        let short = session["session"].as_str().expect("a short id");
        let listens = session["streams"][0]["attached"] == json!(true);
        let (status, told) =
            push(&format!("/api/sessions/{short}/notify?wait=confirmed&within=500ms"));
        let expected = if listens { "confirmed" } else { "timed_out" };
        assert_eq!((status, &told["outcomes"][0]["outcome"]), (200, &json!(expected)), "{told}");
    }
    assert_eq!(push("/api/notify?wait=soon").0, 400);
    assert_eq!(ask(admin, "POST /api/notify", "", "{}").0, 400);
    assert_eq!(push("/api/sessions/00000000/notify").0, 404);
    drop(other);
    assert_eq!(server.stop().code, Some(0));
}

/// Without the token nothing is told but whether the process lives; a page of another origin, or
/// under a rebound name, gets nothing at all.
#[test]
fn only_who_has_the_token_and_comes_by_the_right_name_is_served() {
    let data = Data::new("admin-token");
    std::fs::create_dir_all(data.path()).expect("made");
    let file = data.join("token");
    std::fs::write(&file, "secret\n").expect("written");
    let (server, admin) = start(&["--admin-token-file", file.to_str().expect("UTF-8")]);
    let (status, head, _) = ask(admin, "GET /metrics", "", "");
    assert_eq!(status, 401);
    assert!(head.contains("www-authenticate: Basic"), "{head}");
    let status = |fields: &str| ask(admin, "GET /metrics", fields, "").0;
    assert_eq!(status("Authorization: Bearer wrong\r\n"), 401);
    assert_eq!(status("Authorization: Bearer secret\r\n"), 200);
    // "me:secret".
    assert_eq!(status("Authorization: Basic bWU6c2VjcmV0\r\n"), 200);
    assert_eq!(status("Authorization: Bearer secret\r\nOrigin: https://evil.example\r\n"), 403);
    assert_eq!(ask(admin, "GET /healthz", "", "").0, 200);
    let mut socket = TcpStream::connect(admin).expect("connected");
    socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: rebound.example\r\n\r\n").expect("written");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("read");
    assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_drain_can_be_asked_for_and_readiness_says_so() {
    let (server, admin) = start(&["--drain-timeout", "3s"]);
    let session = Session::start(&server, NEWEST);
    let mut slow = session.call("1", "sleep", &json!({"ms": 1500}));
    eventually("the call is open", || {
        get(admin, "/api/sessions").1["sessions"][0]["calls"] == json!(1)
    });
    assert_eq!(ask(admin, "POST /api/drain", "", "").0, 202);
    eventually("not ready", || get(admin, "/readyz").0 == 503);
    assert!(slow.result().is_object(), "what was asked before is answered");
    assert_eq!(server.wait().code, Some(0));
}

/// More than it takes are closed, and it goes on; garbage gets an answer and no more.
#[test]
fn a_crowd_and_garbage_do_no_harm() {
    let (server, admin) = start(&[]);
    let crowd: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(admin).expect("connected")).collect();
    drop(crowd);
    eventually("served again", || {
        std::panic::catch_unwind(|| get(admin, "/healthz").0).is_ok_and(|status| status == 200)
    });
    for garbage in
        ["\0\0\0\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "POST /api/notify HTTP/1.1\r\nHost: "]
    {
        let mut socket = TcpStream::connect(admin).expect("connected");
        socket.write_all(garbage.as_bytes()).expect("written");
    }
    assert_eq!(get(admin, "/readyz").0, 200);
    assert_eq!(server.stop().total("panics"), 0);
}

#[test]
fn the_page_and_its_stream_are_served() {
    let (server, admin) = start(&[]);
    let (status, head, page) = ask(admin, "GET /", "", "");
    assert_eq!(status, 200);
    let nonce = page.split("nonce=\"").nth(1).and_then(|rest| rest.split('"').next());
    let nonce = nonce.expect("a nonce");
    assert!(head.contains(&format!("script-src 'nonce-{nonce}'")), "{head}");
    assert!(!page.contains("{nonce}") && nonce.len() == 32);
    assert!(
        !page.contains("http://")
            || page.matches("http://").count() == page.matches("http://www.w3.org").count()
    );
    let mut socket = TcpStream::connect(admin).expect("connected");
    write!(socket, "GET /api/events HTTP/1.1\r\nHost: {admin}\r\n\r\n").expect("written");
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while String::from_utf8_lossy(&text).matches("\nid: ").count() < 2
        && let Ok(bytes) = socket.read(&mut buffer)
    {
        text.extend_from_slice(&buffer[..bytes]);
    }
    let text = String::from_utf8(text).expect("UTF-8");
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).expect("an event");
    let now: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(now["sessions"], json!([]));
    assert!(now["totals"]["events_appended"].is_u64(), "{now}");
    assert_eq!(server.stop().code, Some(0));
}

/// What the documentation says of metrics cannot drift from what is served, nor can the alerts.
#[test]
fn the_documented_metrics_are_those_that_are_served() {
    let data = Data::new("admin-metrics");
    let (server, admin) = start(&["--data-dir", data.path()]);
    let (_, _, text) = ask(admin, "GET /metrics", "", "");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let served: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let page = include_str!("../../docs/operating.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `gapless_"));
    let documented: BTreeSet<String> =
        rows.filter_map(|row| Some(format!("gapless_{}", row.split_once('`')?.0))).collect();
    assert_eq!(documented, served.iter().map(|&name| name.to_owned()).collect());
    for alerted in include_str!("../../docs/alerts.yml").split(|c: char| !is_of_a_name(c)) {
        assert!(!alerted.starts_with("gapless_") || served.contains(alerted), "{alerted}");
    }
    assert_eq!(server.stop().code, Some(0));
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
