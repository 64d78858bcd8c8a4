//! `docs/wire.md`, "Sessions and requests": `Origin` and `Host`, the protection against DNS
//! rebinding.

use serde_json::json;

use crate::client::{NEWEST, Session, ask, bare, call_body, post};
use crate::server::Server;

/// The requests of a session with this `Host` and these further fields; the call has an effect
/// that the standalone stream would show.
fn requests(session: &Session, host: &str, fields: &str) -> Vec<String> {
    let fields = format!("{}{fields}", session.fields());
    let call = call_body("1", "standalone", &json!({"count": 1}));
    let all = [post(&fields, &call), bare("GET", &fields), bare("DELETE", &fields)];
    all.map(|request| request.replacen("Host: localhost", &format!("Host: {host}"), 1)).into()
}

#[test]
fn a_foreign_origin_or_host_is_403_before_anything_happens() {
    let server = Server::start(&[]);
    let port = server.address.port();
    let session = Session::start(&server, NEWEST);
    let unknown = Session { id: "unknown".into(), ..session.clone() };
    let mut listener = session.listen();
    let own = format!("127.0.0.1:{port}");
    let mut refused = vec![(format!("evil.example:{port}"), String::new())];
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://localhost@evil.example",
        "http://evil.example#localhost",
        "file://",
        "",
    ] {
        refused.push((own.clone(), format!("Origin: {origin}\r\n")));
    }
    for host in ["localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0"] {
        refused.push((host.to_owned(), String::new()));
    }
    let two = format!("Origin: http://{own}\r\nOrigin: http://evil.example\r\n");
    refused.push((own.clone(), two));
    for (host, fields) in &refused {
        for session in [&session, &unknown] {
            for request in requests(session, host, fields) {
                assert_eq!(ask(server.address, &request).status(), 403, "{request}");
            }
        }
        let options = bare("OPTIONS", fields).replacen("localhost", host, 1);
        assert_eq!(ask(server.address, &options).status(), 403, "{options}");
    }
    // No call has run and nothing has ended: the first message is the one from here.
    session.call("2", "standalone", &json!({"count": 1})).result();
    assert_eq!(listener.message().expect("a message").number(), 1);
}

#[test]
fn this_machine_s_own_pages_and_names_are_served() {
    let server = Server::start(&[]);
    let port = server.address.port();
    for (host, origin) in [
        (format!("127.0.0.1:{port}"), format!("Origin: http://127.0.0.1:{port}\r\n")),
        (format!("localhost:{port}"), format!("Origin: HTTP://LOCALHOST:{port}\r\n")),
        (format!("LOCALHOST:{port}"), String::new()),
        ("[::1]".to_owned(), String::new()),
    ] {
        let session = Session::start(&server, NEWEST);
        for (request, status) in requests(&session, &host, &origin).into_iter().zip([200; 3]) {
            let mut connection = crate::client::Connection::open(server.address);
            connection.send(&request);
            assert_eq!(connection.head().status, status, "{request}");
        }
    }
}

#[test]
fn configured_origins_and_hosts_are_served_exactly() {
    let flags = ["--allow-origin", "https://app.example.org", "--allow-host", "mcp.example.org"];
    let server = Server::start(&flags);
    let session = Session::start(&server, NEWEST);
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (host, origin, status) in [
        ("mcp.example.org", "https://app.example.org", 200),
        ("mcp.example.org", "https://APP.example.org:443", 200),
        ("mcp.example.org", "http://app.example.org", 403),
        ("mcp.example.org", "https://app.example.org:444", 403),
        ("mcp.example.org", "https://x.app.example.org", 403),
        ("app.example.org", "https://app.example.org", 403),
    ] {
        let fields = format!("{}Origin: {origin}\r\n", session.fields());
        let request = post(&fields, list).replacen("localhost", host, 1);
        assert_eq!(ask(server.address, request).status(), status, "{host} {origin}");
    }
}
