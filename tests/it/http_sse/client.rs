//! A client of the HTTP+SSE transport: one GET that carries everything, POSTs on connections of
//! their own.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::{Answer, Connection, Event, Head, ask, call_body, initialize_body};
use crate::server::Server;

/// The revision whose transport it is.
pub const REVISION: &str = "2024-11-05";

/// A connected client.
pub struct Client {
    /// The server's address.
    pub address: SocketAddr,
    /// The GET, past its `endpoint` event.
    pub stream: Connection,
    /// Where it posts: path and query.
    pub endpoint: String,
    /// The id of the last event.
    pub cursor: String,
}

/// The bytes of a GET of this path with these further fields, each `name: value\r\n`.
pub fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{fields}\r\n")
}

/// The bytes of a POST to this path.
pub fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A GET of this path that is served: its head and its first event, which is the endpoint.
pub fn open(address: SocketAddr, path: &str, fields: &str) -> (Connection, Head, Event) {
    let mut stream = Connection::open(address);
    stream.send(get(path, fields));
    let head = stream.head();
    assert_eq!(head.status, 200, "{head:?}");
    let first = stream.event().expect("the endpoint event");
    assert_eq!(first.name, "endpoint", "{first:?}");
    (stream, head, first)
}

/// The path that a relative reference names for a client that got it at `base` (RFC 3986,
/// section 5.2, for a reference that begins with a path segment).
pub fn resolve(base: &str, reference: &str) -> String {
    assert!(!reference.starts_with('/') && !reference.contains("://"), "{reference}");
    let (reference, query) = reference.split_once('?').expect("a query");
    let mut parts: Vec<&str> = base.split('/').collect();
    parts.pop();
    for part in reference.split('/') {
        match part {
            "." => {}
            ".." => assert!(parts.pop().is_some_and(|part| !part.is_empty()), "{reference}"),
            part => parts.push(part),
        }
    }
    format!("{}?{query}", parts.join("/"))
}

impl Client {
    /// Connects, without `initialize`.
    pub fn connect(address: SocketAddr) -> Self {
        Self::connect_at(address, "/sse")
    }

    /// As [`Client::connect`], where the stream's path is another.
    pub fn connect_at(address: SocketAddr, path: &str) -> Self {
        let (stream, _, first) = open(address, path, "");
        let endpoint = resolve(path, &first.data);
        Self { address, stream, endpoint, cursor: first.id }
    }

    /// Connects and initializes.
    pub fn start(server: &Server) -> Self {
        Self::start_at(server, REVISION)
    }

    /// As [`Client::start`], with this revision.
    pub fn start_at(server: &Server, revision: &str) -> Self {
        let mut client = Self::connect(server.address);
        client.initialize(revision);
        client
    }

    /// `initialize` at this revision and `notifications/initialized`.
    pub fn initialize(&mut self, revision: &str) {
        self.post(&initialize_body(revision));
        let answer = self.message();
        assert_eq!(answer["id"], "init", "{answer}");
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        self.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// The session's id.
    pub fn session(&self) -> &str {
        self.endpoint.split_once("sessionId=").expect("the endpoint names the session").1
    }

    /// Posts on a new connection, whatever the answer.
    pub fn try_post(&self, body: &str) -> Answer {
        ask(self.address, post(&self.endpoint, body))
    }

    /// Posts on a new connection; it is accepted.
    pub fn post(&self, body: &str) {
        let answer = self.try_post(body);
        assert_eq!((answer.status(), answer.text().as_str()), (202, ""), "{body}");
    }

    /// Posts a call; `id` is raw JSON.
    pub fn call(&self, id: &str, tool: &str, args: &Value) {
        self.post(&call_body(id, tool, args));
    }

    /// The next event, a message that follows the one before without a hole.
    pub fn event(&mut self) -> Event {
        let event = self.stream.event().expect("a message before the stream's end");
        assert_eq!(event.name, "message", "{event:?}");
        assert_eq!(event.number(), self.number() + 1, "{event:?}");
        self.cursor.clone_from(&event.id);
        event
    }

    /// The data of the next event.
    pub fn message(&mut self) -> Value {
        self.event().json()
    }

    /// The messages up to the final answer to a call, and that.
    pub fn until_answer(&mut self, id: &Value) -> (Vec<Value>, Value) {
        let mut before = Vec::new();
        loop {
            let message = self.message();
            if message.get("method").is_none() && message["id"] == *id {
                return (before, message);
            }
            before.push(message);
        }
    }

    /// Calls `echo`, and wants its answer next.
    pub fn echo(&mut self, text: &str) {
        self.call(r#""echo""#, "echo", &json!({"text": text}));
        let answer = self.message();
        assert_eq!(answer["id"], "echo", "{answer}");
        assert_eq!(answer["result"]["content"][0]["text"], text, "{answer}");
    }

    /// The number of the last event.
    pub fn number(&self) -> u64 {
        number(&self.cursor)
    }

    /// The cursor of this session's event `number`, whether it was sent or not.
    pub fn cursor_at(&self, number: impl std::fmt::Display) -> String {
        format!("{}.{number}", self.cursor.rsplit_once('.').expect("a number").0)
    }

    /// Cuts the stream, and stays away for now.
    pub fn go_away(&mut self) {
        cut(std::mem::replace(&mut self.stream, Connection::open(self.address)));
    }

    /// Comes back with this cursor; the old connection, if it is open still, is left to the server.
    pub fn resume_at(&mut self, cursor: &str) -> Connection {
        let fields = format!("Last-Event-ID: {cursor}\r\n");
        let (stream, _, first) = open(self.address, "/sse", &fields);
        assert_eq!(first.id, cursor, "the cursor as it was presented");
        assert_eq!(resolve("/sse", &first.data), self.endpoint, "the same session");
        cursor.clone_into(&mut self.cursor);
        std::mem::replace(&mut self.stream, stream)
    }

    /// Comes back with the cursor of the last event.
    pub fn resume(&mut self) -> Connection {
        let cursor = self.cursor.clone();
        self.resume_at(&cursor)
    }

    /// A GET with this cursor that is answered whole.
    pub fn refused(&self, cursor: &str) -> Answer {
        ask(self.address, get("/sse", &format!("Last-Event-ID: {cursor}\r\n")))
    }
}

/// The number of an event's id.
pub fn number(id: &str) -> u64 {
    let number = id.rsplit_once('.').and_then(|(_, number)| number.parse().ok());
    number.unwrap_or_else(|| panic!("no number in the id {id:?}"))
}

/// Closes with a reset, as a connection that broke.
pub fn cut(connection: Connection) {
    gapless::sys::tcp::linger_zero(connection.socket()).expect("an option can be set");
}
