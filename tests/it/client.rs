//! A blocking HTTP/1.1 client that shows everything: raw bytes out, heads, bodies and events in.
//!
//! Only the SSE decoder is the program's own; framing is read by code of this file, so that a
//! mistake in the program's framing cannot hide itself.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use gapless::http::sse::Decoder;
use serde_json::{Value, json};

use crate::server::{PATIENCE, Server};

/// What a client lists in `Accept`.
pub const ACCEPT_BOTH: &str = "application/json, text/event-stream";
/// The newest revision that is served.
pub const NEWEST: &str = "2025-11-25";

/// The head of an answer.
#[derive(Clone, Debug)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Names in lower case, values trimmed, in their order.
    pub fields: Vec<(String, String)>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status and fields.
    pub head: Head,
    /// The body without its framing.
    pub body: Vec<u8>,
}

/// One SSE event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// The id in force.
    pub id: String,
    /// Its data; empty for a priming event.
    pub data: String,
}

/// How the body of a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With the last chunk.
    Whole,
    /// The connection ended without it.
    Broken,
}

/// One connection.
pub struct Connection {
    socket: TcpStream,
    /// Bytes read and not yet used.
    input: Vec<u8>,
    decoder: Decoder,
    /// Bytes of the stream's body that the decoder has not seen.
    undecoded: Vec<u8>,
    /// The stream's body so far.
    text: Vec<u8>,
    end: Option<End>,
    /// When what is waited for should be there, whatever else comes meanwhile.
    deadline: Instant,
}

/// A session that is initialized.
#[derive(Clone, Debug)]
pub struct Session {
    /// The server's address.
    pub address: SocketAddr,
    /// `Mcp-Session-Id`.
    pub id: String,
    /// The negotiated revision.
    pub revision: String,
}

impl Head {
    /// The first field of this name, which is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let fields = lines.filter_map(|line| line.split_once(':'));
        Self {
            status: status.unwrap_or_else(|| panic!("no status line: {status_line:?}")),
            fields: fields.map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned())).collect(),
        }
    }
}

impl Answer {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The first field of this name, which is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of the JSON-RPC error in the body.
    pub fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_default()
    }
}

impl Event {
    /// The data as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {}", self.data))
    }

    /// The number behind the last dot of the id.
    pub fn number(&self) -> u64 {
        let number = self.id.rsplit_once('.').and_then(|(_, number)| number.parse().ok());
        number.unwrap_or_else(|| panic!("no number in the id {:?}", self.id))
    }
}

impl Connection {
    /// A new connection.
    pub fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("the server accepts");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        socket.set_nodelay(true).expect("an option can be set");
        Self {
            socket,
            input: Vec::new(),
            decoder: Decoder::new(16 * 1024 * 1024),
            undecoded: Vec::new(),
            text: Vec::new(),
            end: None,
            deadline: Instant::now() + PATIENCE,
        }
    }

    /// The socket, for what only it can do.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Writes these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// As [`Connection::send`], for a server that may have closed; whether all were taken.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.write_all(bytes.as_ref()).is_ok()
    }

    /// Reads more; false at the end of the connection.
    fn more(&mut self) -> bool {
        // Comments could keep a read alive for ever.
        let late = Instant::now() > self.deadline;
        assert!(!late, "it did not come; the stream so far: {:?}", self.stream_text());
        let mut buffer = [0; 64 * 1024];
        match self.socket.read(&mut buffer) {
            Ok(bytes) => {
                self.input.extend_from_slice(&buffer[..bytes]);
                bytes > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}; unread: {:?}", String::from_utf8_lossy(&self.input)),
        }
    }

    /// Takes the bytes up to this mark, and the mark; none where the connection ends first.
    fn take_until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            let at = self.input.windows(mark.len()).position(|window| window == mark);
            if let Some(at) = at {
                let mut taken: Vec<u8> = self.input.drain(..at + mark.len()).collect();
                taken.truncate(at);
                return Some(taken);
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// Takes so many bytes; none where the connection ends first.
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.input.len() < bytes {
            if !self.more() {
                return None;
            }
        }
        Some(self.input.drain(..bytes).collect())
    }

    /// Reads the next head; none where the connection ends before it.
    pub fn try_head(&mut self) -> Option<Head> {
        self.deadline = Instant::now() + PATIENCE;
        self.decoder = Decoder::new(16 * 1024 * 1024);
        self.undecoded.clear();
        self.text.clear();
        self.end = None;
        let text = self.take_until(b"\r\n\r\n")?;
        Some(Head::parse(&String::from_utf8_lossy(&text)))
    }

    /// Reads the next head.
    pub fn head(&mut self) -> Head {
        self.try_head().expect("an answer before the end of the connection")
    }

    /// Reads the body behind this head to its end.
    pub fn body(&mut self, head: &Head) -> Vec<u8> {
        if head.status < 200 || head.status == 204 {
            return Vec::new();
        }
        if head.field("transfer-encoding") == Some("chunked") {
            while self.chunk() {}
            assert_eq!(self.end, Some(End::Whole), "a chunked body ends with its last chunk");
            return self.text.clone();
        }
        match head.field("content-length") {
            Some(length) => {
                let bytes = length.parse().expect("a length is a number");
                self.take(bytes).expect("the whole body comes")
            }
            None => {
                while self.more() {}
                std::mem::take(&mut self.input)
            }
        }
    }

    /// Reads the next answer, head and body.
    pub fn answer(&mut self) -> Answer {
        let head = self.head();
        let body = self.body(&head);
        Answer { head, body }
    }

    /// Reads one chunk of a stream's body; false at its end.
    fn chunk(&mut self) -> bool {
        let Some(size) = self.take_until(b"\r\n") else {
            self.end = Some(End::Broken);
            return false;
        };
        let size = String::from_utf8_lossy(&size).into_owned();
        let size = usize::from_str_radix(&size, 16).unwrap_or_else(|_| panic!("chunk {size:?}"));
        let Some(data) = self.take(size + 2) else {
            // What came of a chunk that is cut off has come: events may be whole in it.
            let came = &self.input[..size.min(self.input.len())];
            self.undecoded.extend_from_slice(came);
            self.text.extend_from_slice(came);
            self.input.clear();
            self.end = Some(End::Broken);
            return false;
        };
        assert_eq!(&data[size..], b"\r\n", "a chunk ends with a line end");
        self.undecoded.extend_from_slice(&data[..size]);
        self.text.extend_from_slice(&data[..size]);
        if size == 0 {
            self.end = Some(End::Whole);
        }
        size > 0
    }

    /// The next event of the stream; none at its end.
    pub fn event(&mut self) -> Option<Event> {
        self.deadline = Instant::now() + PATIENCE;
        loop {
            let mut input = self.undecoded.as_slice();
            let event = self.decoder.decode(&mut input).expect("events are bounded");
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("events are UTF-8");
            let event = event.map(|event| Event {
                name: text(event.event),
                id: event.id.map(text).unwrap_or_default(),
                data: text(event.data),
            });
            let used = self.undecoded.len() - input.len();
            self.undecoded.drain(..used);
            if event.is_some() {
                return event;
            }
            if self.end.is_some() || (!self.chunk() && self.undecoded.is_empty()) {
                return None;
            }
        }
    }

    /// The next event that has data: priming events are passed over.
    pub fn message(&mut self) -> Option<Event> {
        loop {
            match self.event() {
                Some(event) if event.data.is_empty() => {}
                other => return other,
            }
        }
    }

    /// Every event up to the end of the stream.
    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// How the stream ended, once [`Connection::event`] has returned none.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// The cursor that a client would reconnect with: id-only blocks count.
    pub fn cursor(&self) -> Option<String> {
        self.decoder.last_event_id().map(|id| String::from_utf8_lossy(id).into_owned())
    }

    /// The body of the stream so far, as it came.
    pub fn stream_text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }

    /// Reads on until the body of the stream holds this text so many times; its events are
    /// decoded later.
    pub fn read_until(&mut self, text: &str, times: usize) {
        self.deadline = Instant::now() + PATIENCE;
        while self.stream_text().matches(text).count() < times {
            assert!(self.chunk(), "the stream ended before {text:?}: {}", self.stream_text());
        }
    }

    /// Whether the server has closed, with nothing more to read.
    pub fn is_closed(&mut self) -> bool {
        self.deadline = Instant::now() + PATIENCE;
        self.input.is_empty() && !self.more()
    }

    /// The final answer to a POST, whether it comes as JSON or on a stream.
    pub fn result(&mut self) -> Value {
        let head = self.head();
        assert_eq!(head.status, 200, "{head:?}");
        if head.field("content-type") == Some("application/json") {
            let body = self.body(&head);
            return serde_json::from_slice(&body).expect("the body is JSON");
        }
        loop {
            let message = self.message().expect("a final answer before the stream's end").json();
            if message.get("method").is_none() {
                return message;
            }
        }
    }
}

/// The bytes of a POST with these further fields, each `name: value\r\n`.
pub fn post(fields: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: {ACCEPT_BOTH}\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The bytes of a GET or DELETE with these further fields.
pub fn bare(method: &str, fields: &str) -> String {
    format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: {ACCEPT_BOTH}\r\n{fields}\r\n")
}

/// One request on a connection of its own, answered whole.
pub fn ask(address: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    let mut connection = Connection::open(address);
    connection.send(request);
    connection.answer()
}

/// The body of `initialize`.
pub fn initialize_body(revision: &str) -> String {
    json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
        "protocolVersion": revision,
        "capabilities": {"sampling": {}, "elicitation": {}, "roots": {}},
        "clientInfo": {"name": "it", "version": "1"},
    }})
    .to_string()
}

/// The body of `tools/call`; `id` is raw JSON.
pub fn call_body(id: &str, tool: &str, args: &Value) -> String {
    let params = json!({"name": tool, "arguments": args});
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
}

impl Session {
    /// `initialize` at this revision and `notifications/initialized`.
    pub fn start(server: &Server, revision: &str) -> Self {
        let address = server.address;
        let answer = ask(address, post("", &initialize_body(revision)));
        assert_eq!(answer.status(), 200, "{answer:?}");
        let id = answer.field("mcp-session-id");
        let id = id.unwrap_or_else(|| panic!("no session: {}", answer.text())).to_owned();
        let result = answer.json()["result"].clone();
        let revision = result["protocolVersion"].as_str().expect("a revision").to_owned();
        let session = Self { address, id, revision };
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(session.post(note).answer().status(), 202);
        session
    }

    /// The fields that every request of the session has.
    pub fn fields(&self) -> String {
        let Self { id, revision, .. } = self;
        format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {revision}\r\n")
    }

    /// Sends a POST with this body on a new connection.
    pub fn post(&self, body: &str) -> Connection {
        let mut connection = Connection::open(self.address);
        connection.send(post(&self.fields(), body));
        connection
    }

    /// Sends a call on a new connection; `id` is raw JSON.
    pub fn call(&self, id: &str, tool: &str, args: &Value) -> Connection {
        self.post(&call_body(id, tool, args))
    }

    /// Opens the standalone stream; its head has been read and is 200.
    pub fn listen(&self) -> Connection {
        let mut connection = Connection::open(self.address);
        connection.send(bare("GET", &self.fields()));
        let head = connection.head();
        assert_eq!(head.status, 200, "{head:?}");
        connection
    }

    /// Sends a GET with this cursor on a new connection.
    pub fn resume(&self, cursor: &str) -> Connection {
        let mut connection = Connection::open(self.address);
        let fields = format!("{}Last-Event-ID: {cursor}\r\n", self.fields());
        connection.send(bare("GET", &fields));
        connection
    }

    /// Ends the session.
    pub fn delete(&self) -> Answer {
        ask(self.address, bare("DELETE", &self.fields()))
    }
}
