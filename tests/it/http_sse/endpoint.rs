//! The first event: where to post, whatever stands between client and server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use serde_json::json;

use super::client::{Client, get, open, post, resolve};
use crate::client::{ask, call_body, initialize_body};
use crate::server::Server;

#[test]
fn the_first_event_is_the_endpoint_with_an_id_and_a_retry() {
    let server = Server::start(&[]);
    let (stream, head, first) = open(server.address, "/sse", "");
    assert_eq!(head.field("content-type"), Some("text/event-stream"));
    assert_eq!(head.field("cache-control"), Some("no-cache, no-transform"));
    assert_eq!(head.field("x-accel-buffering"), Some("no"));
    assert_eq!(head.field("transfer-encoding"), Some("chunked"));
    assert_eq!(head.field("mcp-session-id"), None);
    let session = first.data.strip_prefix("messages?sessionId=").expect("a relative reference");
    assert_eq!(
        first.id.strip_prefix(session).and_then(|id| id.strip_suffix(".0")).map(str::len),
        Some(25)
    );
    let text = format!("event: endpoint\nid: {}\nretry: 3000\ndata: {}\n\n", first.id, first.data);
    assert_eq!(stream.stream_text(), text);
    let (_, _, other) = open(server.address, "/sse", "Last-Event-ID: \r\n");
    assert_ne!(other.data, first.data, "an empty cursor is none: a session of its own");
}

/// Forwards connections to `to`, and takes `/pre` off the path of each one's first request, as a
/// reverse proxy in front of several services does.
fn prefix_proxy(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || forward(client, to));
        }
    });
    address
}

fn forward(mut client: TcpStream, to: SocketAddr) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.extend_from_slice(&byte);
    }
    let head = String::from_utf8(head).ok()?;
    let mut server = TcpStream::connect(to).ok()?;
    server.write_all(head.replacen(" /pre/", " /", 1).as_bytes()).ok()?;
    let (mut up, mut down) = (client.try_clone().ok()?, server.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut down, &mut client);
        let _ = client.shutdown(Shutdown::Write);
    });
    std::io::copy(&mut up, &mut server).ok()?;
    server.shutdown(Shutdown::Write).ok()
}

/// Story: behind a proxy that strips a prefix the endpoint dropped it, and every POST was a 404.
#[test]
fn the_endpoint_resolves_under_a_prefix_that_a_proxy_strips() {
    let server = Server::start(&[]);
    let proxy = prefix_proxy(server.address);
    let mut client = Client::connect_at(proxy, "/pre/sse");
    assert!(client.endpoint.starts_with("/pre/messages?sessionId="), "{}", client.endpoint);
    client.initialize(super::client::REVISION);
    client.echo("through the proxy");
}

#[test]
fn the_reference_is_relative_to_the_stream_s_path() {
    for (stream, messages) in [
        ("/a/b/sse", "/a/post"),
        ("/a/sse", "/b/c/post"),
        ("/sse", "/a/post"),
        ("/v1:sse", "/v1:messages"),
        ("/a/sse", "/a//post"),
        ("/sse", "//post"),
        ("/", "/messages"),
    ] {
        let server = Server::start(&["--sse-path", stream, "--messages-path", messages]);
        let (_, _, first) = open(server.address, stream, "");
        for prefix in ["", "/pre", "/pre/fix"] {
            let resolved = resolve(&format!("{prefix}{stream}"), &first.data);
            assert!(resolved.starts_with(&format!("{prefix}{messages}?")), "{resolved}");
        }
        let mut client = Client::connect_at(server.address, stream);
        client.initialize(super::client::REVISION);
    }
}

/// A first segment with a colon would be taken for a scheme, an empty one for a host (RFC 3986,
/// section 4.2).
#[test]
fn the_reference_is_no_scheme_and_no_host() {
    for messages in ["/v1:messages", "//messages"] {
        let server = Server::start(&["--messages-path", messages]);
        let (_, _, first) = open(server.address, "/sse", "");
        assert!(first.data.starts_with("./"), "{}", first.data);
    }
}

#[test]
fn a_public_base_stands_before_the_messages_path() {
    let base = "https://mcp.example.org/pre";
    for given in [base.to_owned(), format!("{base}/")] {
        let server = Server::start(&["--public-base", &given]);
        let (mut stream, _, first) = open(server.address, "/sse", "");
        let target = first.data.strip_prefix(base).expect("the base as it was given");
        assert!(target.starts_with("/messages?sessionId="), "{target}");
        assert_eq!(ask(server.address, post(target, &initialize_body("2024-11-05"))).status(), 202);
        assert_eq!(stream.event().expect("the answer").json()["id"], "init");
        let fields = format!("Last-Event-ID: {}\r\n", first.id);
        let (_, _, again) = open(server.address, "/sse", &fields);
        assert_eq!(again.data, first.data);
    }
}

#[test]
fn switched_off_it_is_404_and_mcp_is_served() {
    let server = Server::start(&["--sse-path", "off"]);
    let call = call_body("1", "echo", &json!({"text": "x"}));
    for request in
        [get("/sse", ""), get("/sse", "Last-Event-ID: x.1\r\n"), post("/messages", &call)]
    {
        let answer = ask(server.address, &request);
        assert_eq!(
            (answer.status(), answer.field("content-type")),
            (404, Some("application/json"))
        );
    }
    crate::client::Session::start(&server, crate::client::NEWEST);
}
