//! HTTP/1.1 on raw sockets (RFC 9110, RFC 9112): connections, framing, limits, time.

use std::time::Duration;

use serde_json::json;

use crate::client::{
    ACCEPT_BOTH, Answer, Connection, NEWEST, Session, ask, bare, call_body, initialize_body, post,
};
use crate::server::Server;

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

fn echo(id: usize) -> String {
    call_body(&id.to_string(), "echo", &json!({"text": format!("t{id}")}))
}

/// The body in chunks of this size, with extensions and a trailer.
fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.chunks(size) {
        out.extend_from_slice(format!("{:X};ext=\"a b\"\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0;last\r\nX-Trailer: t\r\n\r\n");
    out
}

fn chunked_head(fields: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: {ACCEPT_BOTH}\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"
    )
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut connection = Connection::open(server.address);
    for id in 1..=3 {
        connection.send(post(&session.fields(), &echo(id)));
        let answer = connection.answer();
        assert_eq!((answer.status(), &answer.json()["id"]), (200, &json!(id)));
        assert_eq!(answer.field("connection"), None);
        assert!(answer.field("date").is_some_and(|date| date.ends_with(" GMT")));
        // A stream between two answers does not end the connection either.
        let body = call_body("9", "stream", &json!({"count": 2}));
        connection.send(post(&session.fields(), &body));
        assert_eq!(connection.head().status, 200);
        assert_eq!(connection.events().len(), 4);
        connection.send(post(&session.fields(), "{}"));
        assert_eq!(connection.answer().status(), 400);
    }
    connection.send(post(&format!("{}Connection: close\r\n", session.fields()), &echo(4)));
    let answer = connection.answer();
    assert_eq!(answer.field("connection"), Some("close"));
    assert!(connection.is_closed());
    let totals = server.stop();
    assert_eq!(totals.total("connections_opened"), totals.total("connections_closed"));
}

#[test]
fn ten_requests_in_one_write_are_answered_in_order() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut connection = Connection::open(server.address);
    let all: String = (0..10)
        .map(|id| match id {
            4 => post(&session.fields(), &call_body("4", "sleep", &json!({"ms": 50}))),
            6 => bare("PUT", &session.fields()),
            id => post(&session.fields(), &echo(id)),
        })
        .collect();
    connection.send(all);
    for id in 0..10 {
        if id == 6 {
            assert_eq!(connection.answer().status(), 405);
            continue;
        }
        assert_eq!(connection.result()["id"], id);
        if id == 4 {
            assert_eq!(connection.events(), []);
        }
    }
}

#[test]
fn a_request_may_come_byte_by_byte_and_in_any_chunks() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut whole = chunked_head(&session.fields()).into_bytes();
    whole.extend_from_slice(&chunked(echo(1).as_bytes(), 3));
    let mut connection = Connection::open(server.address);
    for byte in &whole {
        connection.send([*byte]);
    }
    assert_eq!(connection.answer().json()["id"], 1);
    // The same, cut in two at every byte, on one connection.
    for at in 1..whole.len() {
        connection.send(&whole[..at]);
        connection.send(&whole[at..]);
        assert_eq!(connection.answer().status(), 200, "cut at {at}");
    }
    // 1-byte chunks, large bodies, both framings.
    let large = call_body("2", "echo", &json!({"text": "x".repeat(900 * 1024)}));
    for size in [1, 4096, 700_000] {
        let mut request = chunked_head(&session.fields()).into_bytes();
        let body = if size == 1 { initialize_body(NEWEST) } else { large.clone() };
        request.extend_from_slice(&chunked(body.as_bytes(), size));
        assert_eq!(ask(server.address, request).status(), 200, "chunks of {size}");
    }
    let answer = session.post(&large).answer();
    assert_eq!((answer.status(), answer.body.len() > 900 * 1024), (200, true));
}

#[test]
fn a_body_over_the_limit_is_413_declared_or_found() {
    let server = Server::start(&["--body-bytes", "64KiB"]);
    let session = Session::start(&server, NEWEST);
    let fields = session.fields();
    let declared = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}\
         Content-Length: 10737418240\r\n\r\n"
    );
    let mut found = chunked_head(&fields);
    for _ in 0..20 {
        found.push_str(&format!("1000\r\n{}\r\n", "x".repeat(4096)));
    }
    let whole = post(&fields, &echo(1).replace("t1", &"x".repeat(70 * 1024)));
    for request in [declared, found, whole] {
        let mut connection = Connection::open(server.address);
        connection.send(&request);
        let answer = connection.answer();
        assert_eq!((answer.status(), answer.code()), (413, -32600));
        assert_eq!(answer.field("connection"), Some("close"));
        assert!(connection.is_closed());
    }
    let fits = post(&fields, &echo(1).replace("t1", &"x".repeat(63 * 1024)));
    assert_eq!(ask(server.address, fits).status(), 200);
}

#[test]
fn expect_continue_is_told_to_go_on_or_refused_at_once() {
    let server = Server::start(&["--body-bytes", "64KiB"]);
    let session = Session::start(&server, NEWEST);
    let body = echo(1);
    let head = |length: usize, fields: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}\
             Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let mut connection = Connection::open(server.address);
    connection.send(head(body.len(), &session.fields()));
    assert_eq!(connection.head().status, 100);
    connection.send(&body);
    assert_eq!(connection.answer().json()["id"], 1);
    // Who does not wait needs no invitation.
    connection.send(head(body.len(), &session.fields()) + &body);
    assert_eq!(connection.answer().json()["id"], 1);
    // What the head alone decides is answered without asking for the body.
    connection.send(head(10_000_000, &session.fields()));
    assert_eq!(connection.answer().status(), 413);
    let origin = format!("{}Origin: http://evil.example\r\n", session.fields());
    assert_eq!(ask(server.address, head(body.len(), &origin)).status(), 403);
    let strange = post("Expect: something-else\r\n", &body);
    assert_eq!(ask(server.address, strange).status(), 417);
}

#[test]
fn a_head_beyond_its_limits_is_431_or_414() {
    let server = Server::start(&[]);
    let many = (0..200).map(|n| format!("X-{n}: {n}\r\n")).collect::<String>();
    let large = format!("X-Large: {}\r\n", "x".repeat(70_000));
    for fields in [many, large] {
        let mut connection = Connection::open(server.address);
        connection.try_send(bare("GET", &fields));
        let answer = connection.answer();
        assert_eq!((answer.status(), answer.field("connection")), (431, Some("close")));
    }
    let mut connection = Connection::open(server.address);
    connection.try_send(format!("GET /{} HTTP/1.1\r\n", "x".repeat(70_000)));
    assert_eq!(connection.answer().status(), 414);
}

#[test]
fn a_head_or_body_that_does_not_come_is_408() {
    let server = Server::start(&["--head-timeout", "300ms"]);
    let session = Session::start(&server, NEWEST);
    let request = post(&session.fields(), &echo(1));
    let head = request.find("\r\n\r\n").expect("a head") + 4;
    for at in [1, 20, head - 1, head, head + 5] {
        let mut connection = Connection::open(server.address);
        connection.send(&request[..at]);
        let answer = connection.answer();
        assert_eq!((answer.status(), answer.field("connection")), (408, Some("close")), "{at}");
        assert!(connection.is_closed());
    }
    let mut dripping = Connection::open(server.address);
    // Every byte is in time, the head is not.
    for byte in request.as_bytes().iter().take(40) {
        if !dripping.try_send([*byte]) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(dripping.answer().status(), 408);
}

#[test]
fn a_silent_connection_is_closed_without_a_word() {
    let server = Server::start(&["--keep-alive-timeout", "300ms"]);
    let session = Session::start(&server, NEWEST);
    let mut fresh = Connection::open(server.address);
    assert!(fresh.is_closed());
    let mut used = session.post(LIST);
    assert_eq!(used.answer().status(), 200);
    assert!(used.is_closed());
    // A stream that is silent is not a silent connection.
    let mut listener = session.listen();
    let result = session.call("1", "sleep", &json!({"ms": 700})).result();
    assert_eq!(result["id"], 1);
    session.call("2", "standalone", &json!({"count": 1})).result();
    assert!(listener.message().is_some());
}

#[test]
fn a_1_0_client_gets_a_body_that_ends_with_the_connection() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let request = |fields: &str, body: &str| {
        post(&format!("{}{fields}", session.fields()), body).replacen("HTTP/1.1", "HTTP/1.0", 1)
    };
    let mut connection = Connection::open(server.address);
    connection.send(request("", &echo(1)));
    let answer = connection.answer();
    assert_eq!((answer.status(), &answer.json()["id"]), (200, &json!(1)));
    assert!(connection.is_closed());
    let mut kept = Connection::open(server.address);
    for id in 1..=2 {
        kept.send(request("Connection: keep-alive\r\n", &echo(id)));
        assert_eq!(kept.answer().json()["id"], id);
    }
    let mut stream = Connection::open(server.address);
    stream.send(request("", &call_body("3", "stream", &json!({"count": 2}))));
    let answer = stream.answer();
    assert_eq!((answer.field("transfer-encoding"), answer.field("content-length")), (None, None));
    assert_eq!(answer.text().matches("\ndata: ").count(), 3, "{}", answer.text());
    assert!(stream.is_closed());
}

/// Where two readers could see different requests, nobody gets to see the second one.
#[test]
fn ambiguous_framing_is_refused_and_the_connection_closed() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let fields = session.fields();
    let hidden = bare("DELETE", &fields);
    let start = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}"
    );
    for framing in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nContent-Length: 50\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5,5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: a\r\n Transfer-Encoding: chunked\r\n",
        "X: a\nTransfer-Encoding: chunked\r\n",
        "X: a\rb\r\n",
        "Host: other\r\n",
    ] {
        let mut connection = Connection::open(server.address);
        connection.send(format!("{start}{framing}\r\n0\r\n\r\n{hidden}"));
        let answer = connection.answer();
        assert!(matches!(answer.status(), 400 | 501), "{framing:?}: {answer:?}");
        assert_eq!(answer.field("connection"), Some("close"), "{framing:?}");
        assert!(connection.try_head().is_none(), "{framing:?}: the hidden request was answered");
    }
    for chunk in ["g\r\nx", "-1\r\nx", "1\nx\r\n0\r\n\r\n", "1\r\nxx\r\n0\r\n\r\n", " 1\r\nx\r\n"] {
        let mut connection = Connection::open(server.address);
        connection.send(format!("{start}Transfer-Encoding: chunked\r\n\r\n{chunk}{hidden}"));
        let answer = connection.answer();
        assert_eq!(
            (answer.status(), answer.field("connection")),
            (400, Some("close")),
            "{chunk:?}"
        );
        assert!(connection.try_head().is_none(), "{chunk:?}");
    }
    assert_eq!(session.post(LIST).answer().status(), 200, "no hidden request has run");
}

#[test]
fn the_request_line_has_its_forms() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let send = |line: &str, host: &str| -> Answer {
        let fields = session.fields();
        let length = LIST.len();
        ask(
            server.address,
            format!(
                "{line}\r\n{host}Content-Type: application/json\r\n{fields}\
                 Content-Length: {length}\r\n\r\n{LIST}"
            ),
        )
    };
    let host = "Host: localhost\r\n";
    for (line, host, status) in [
        ("POST http://localhost/mcp HTTP/1.1", host, 200),
        ("POST HTTP://127.0.0.1:9/mcp?x=1 HTTP/1.1", host, 200),
        ("POST http://evil.example/mcp HTTP/1.1", host, 403),
        ("POST http://user@localhost/mcp HTTP/1.1", host, 400),
        ("POST /mcp?session=1 HTTP/1.1", host, 200),
        ("POST /mcp#x HTTP/1.1", host, 400),
        ("POST mcp HTTP/1.1", host, 400),
        ("POST /mcp HTTP/1.1", "", 400),
        ("POST /mcp HTTP/2.0", host, 505),
        ("POST  /mcp HTTP/1.1", host, 400),
        ("\r\nPOST /mcp HTTP/1.1", host, 200),
        ("\x16\x03\x01\x02\x00\x01", "", 400),
    ] {
        assert_eq!(send(line, host).status(), status, "{line:?}");
    }
}

#[test]
fn other_methods_are_405_and_other_paths_404() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "BREW"] {
        let answer = ask(server.address, bare(method, &session.fields()));
        assert_eq!(answer.status(), 405, "{method}");
        assert_eq!(answer.field("allow"), Some("GET, POST, DELETE"), "{method}");
    }
    // No body behind the head, so that the next answer is found; GET would open a stream.
    let mut connection = Connection::open(server.address);
    connection.send(bare("HEAD", &session.fields()) + &post(&session.fields(), LIST));
    assert_eq!(connection.head().status, 405);
    assert_eq!(connection.answer().json()["id"], 1);
    for path in [
        "/",
        "/mcp/",
        "/mcp/x",
        "/MCP",
        "/mcp%2f",
        "//mcp",
        "/.well-known/oauth-protected-resource",
    ] {
        for method in ["GET", "POST", "DELETE", "PUT"] {
            let request = bare(method, &session.fields()).replacen("/mcp", path, 1);
            assert_eq!(ask(server.address, request).status(), 404, "{method} {path}");
        }
    }
    let star = bare("OPTIONS", "").replacen("/mcp", "*", 1);
    let answer = ask(server.address, star);
    assert!(matches!(answer.status(), 404 | 405), "{answer:?}");
    let other = Server::start(&["--path", "/tools/v1"]);
    let at = |path: &str| post("", &initialize_body(NEWEST)).replacen("/mcp", path, 1);
    assert_eq!(ask(other.address, at("/tools/v1")).status(), 200);
    assert_eq!(ask(other.address, at("/mcp")).status(), 404);
}
