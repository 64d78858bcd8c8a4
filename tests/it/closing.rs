//! Answers on connections that close, or that carry another answer at the same time.

use std::time::Duration;

use serde_json::json;

use crate::client::{Connection, Session, bare, call_body, post};
use crate::server::Server;

/// Story: an answer to a refused head was composed and thrown away where the connection was to
/// close: the client saw an empty reply.
#[test]
fn a_refused_head_is_answered_before_the_connection_closes() {
    let server = Server::start(&[]);
    let requests = [
        (bare("PUT", "Connection: close\r\n"), 405),
        (bare("GET", "Connection: close\r\nOrigin: http://elsewhere.example\r\n"), 403),
        ("GET /nowhere HTTP/1.0\r\nHost: localhost\r\n\r\n".to_owned(), 404),
    ];
    for (request, status) in requests {
        let mut connection = Connection::open(server.address);
        connection.send(&request);
        assert_eq!(connection.answer().status(), status, "{request}");
    }
}

/// Story: the reply to a pipelined request came while the answer before it was being written, and
/// woke nobody, because the wait began only afterwards.
#[test]
fn a_reply_that_comes_while_an_earlier_answer_is_written_is_seen() {
    let server = Server::start(&["--answers", "json"]);
    let session = Session::start(&server, "2025-11-25");
    // Larger than what the system buffers, so that it is being written until it is read.
    let text = "x".repeat(7 << 20);
    let body = call_body("1", "echo", &json!({"text": text}));
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}\
         Transfer-Encoding: chunked\r\n\r\n",
        session.fields()
    );
    // Chunked, so that the read of its end brings the next request along.
    let echo = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let sleep = post(&session.fields(), &call_body("2", "sleep", &json!({"ms": 50})));
    let mut connection = Connection::open(server.address);
    connection.send(echo + &sleep);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(connection.answer().json()["id"], 1);
    assert_eq!(connection.answer().json()["id"], 2);
}
