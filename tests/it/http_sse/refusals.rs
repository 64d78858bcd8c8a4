//! What is not taken, and that nothing of it reaches the server behind.

use serde_json::json;

use super::client::{Client, REVISION, get, post};
use crate::client::{Session, ask, bare, call_body, initialize_body};
use crate::server::Server;

/// A call whose effect the one connected client would see.
fn effect() -> String {
    call_body("99", "standalone", &json!({"count": 1}))
}

/// Story: a server with exactly one client took a POST without a session id for that client's.
#[test]
fn a_post_that_names_no_session_of_its_own_reaches_no_child() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let mut client = Client::start(&server);
        let (id, cursor) = (client.session().to_owned(), client.cursor.clone());
        let streamable = Session::start(&server, REVISION).id;
        for (query, status, code) in [
            ("", 400, -32000),
            ("?", 400, -32000),
            ("?session=x", 400, -32000),
            (&format!("?sessionid={id}"), 400, -32000),
            (&format!("?sessionId={id}&sessionId={id}"), 400, -32000),
            (&format!("?sessionId={id}&sessionId=x"), 400, -32000),
            ("?sessionId=", 404, -32001),
            ("?sessionId=x", 404, -32001),
            ("?sessionId=7c1f0f5e-5a54-4a40-8a63-0d2f9a3c1b11", 404, -32001),
            (&format!("?sessionId={id}x"), 404, -32001),
            (&format!("?sessionId={}", &id[1..]), 404, -32001),
            (&format!("?sessionId={}", id.replace(|c: char| c.is_alphabetic(), "A")), 404, -32001),
            (&format!("?sessionId={cursor}"), 404, -32001),
            (&format!("?sessionId={streamable}"), 404, -32001),
        ] {
            for body in [effect(), initialize_body(REVISION)] {
                let answer = ask(server.address, post(&format!("/messages{query}"), &body));
                assert_eq!((answer.status(), answer.code()), (status, code), "{query}");
            }
        }
        // Other parameters do not matter, as the browser's or a proxy's own.
        let body = call_body("1", "echo", &json!({"text": "x"}));
        for query in [format!("?a=b&sessionId={id}&c"), format!("?sessionId={id}&")] {
            assert_eq!(
                ask(server.address, post(&format!("/messages{query}"), &body)).status(),
                202
            );
            assert_eq!(client.message()["id"], 1, "nothing but this answer");
        }
    }
}

/// A session of one transport is none of the other's, and does not notice.
#[test]
fn a_session_of_this_transport_is_404_on_the_mcp_endpoint() {
    let server = Server::start(&[]);
    let mut client = Client::start(&server);
    let streamable = Session::start(&server, REVISION);
    let crossed = Session { id: client.session().to_owned(), ..streamable.clone() };
    let fields = crossed.fields();
    let cursor = format!("{fields}Last-Event-ID: {}\r\n", client.cursor);
    assert_eq!(crossed.post(&effect()).answer().status(), 404);
    assert_eq!(ask(server.address, bare("GET", &fields)).status(), 404);
    assert_eq!(ask(server.address, bare("GET", &cursor)).status(), 404);
    assert_eq!(crossed.delete().status(), 404);
    client.echo("undisturbed");
    let mut listener = streamable.listen();
    streamable.call("1", "standalone", &json!({"count": 1})).result();
    let theirs = listener.message().expect("a message").id;
    for cursor in [theirs.clone(), format!("{}.{theirs}", streamable.id)] {
        let answer = client.refused(&cursor);
        assert_eq!((answer.status(), answer.code()), (404, -32001), "{cursor}");
    }
    streamable.call("2", "standalone", &json!({"count": 1})).result();
    assert_eq!(listener.message().expect("a message").number(), 2);
}

#[test]
fn other_methods_are_405_with_what_is_allowed() {
    let server = Server::start(&[]);
    let client = Client::start(&server);
    for (path, allowed) in [("/sse", "GET"), (client.endpoint.as_str(), "POST")] {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"] {
            if method == allowed {
                continue;
            }
            let request = post(path, "").replacen("POST", method, 1);
            let mut connection = crate::client::Connection::open(server.address);
            connection.send(&request);
            let head = connection.head();
            assert_eq!((head.status, head.field("allow")), (405, Some(allowed)), "{request}");
        }
    }
    for path in ["/sse/", "/SSE", "/messages/", "/sse/messages"] {
        assert_eq!(ask(server.address, get(path, "")).status(), 404, "{path}");
    }
}

#[test]
fn bodies_that_are_too_long_no_json_or_no_message_are_refused() {
    let server = Server::stdio(&["--body-bytes", "4096"]);
    let mut client = Client::start(&server);
    let long = call_body("1", "echo", &json!({"text": "x".repeat(5000)}));
    assert_eq!(client.try_post(&long).status(), 413);
    let mut chunked = post(&client.endpoint, "");
    chunked = chunked.replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let answer = ask(server.address, format!("{chunked}{:x}\r\n{long}\r\n0\r\n\r\n", long.len()));
    assert_eq!(answer.status(), 413);
    let call = post(&client.endpoint, &effect());
    for wrong in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let request = call.replace("application/json", wrong);
        assert_eq!(ask(server.address, &request).status(), 415, "{request}");
    }
    for (body, code) in [("", -32700), ("{", -32700), ("1", -32600), ("{}", -32600)] {
        let answer = client.try_post(body);
        assert_eq!((answer.status(), answer.code()), (400, code), "{body}");
    }
    let json_only = get("/sse", "").replace("text/event-stream", "application/json");
    assert_eq!(ask(server.address, json_only).status(), 406);
    client.echo("nothing of it was passed on");
}

#[test]
fn a_foreign_origin_or_host_is_403_before_anything_happens() {
    let server = Server::stdio(&[]);
    let mut client = Client::start(&server);
    let resumed = get("/sse", &format!("Last-Event-ID: {}\r\n", client.cursor));
    let children = server.children();
    for request in [get("/sse", ""), resumed, post(&client.endpoint, &effect())] {
        let host = request.replacen("Host: localhost", "Host: evil.example", 1);
        let origin = request.replacen("\r\n", "\r\nOrigin: http://evil.example\r\n", 1);
        let null = request.replacen("\r\n", "\r\nOrigin: null\r\n", 1);
        for request in [host, origin, null] {
            assert_eq!(ask(server.address, &request).status(), 403, "{request}");
        }
    }
    assert_eq!(server.children(), children, "no session was made");
    client.echo("undisturbed");
}

#[test]
fn with_as_many_sessions_as_may_be_it_is_503() {
    let server = Server::stdio(&["--sessions", "2"]);
    let mut client = Client::start(&server);
    let streamable = Session::start(&server, REVISION);
    let answer = ask(server.address, get("/sse", ""));
    assert_eq!(answer.status(), 503);
    assert!(answer.field("retry-after").is_some());
    assert_eq!(server.children().len(), 2);
    client.echo("undisturbed");
    assert_eq!(streamable.delete().status(), 200);
    Client::start(&server).echo("room again");
}
