//! The server's half of one TCP connection, as its task sees it, and the client's half.

use std::collections::VecDeque;

use gapless::stream::{ConnOut, Generation, Start, Takeover};

use crate::coverage::Coverage;
use crate::cursor::Presented;
use crate::decode::{Decoder, Item};
use crate::rng::Rng;
use crate::socket::Socket;

/// A GET as it arrives at the server.
#[derive(Clone, Debug)]
pub struct Request {
    pub session: usize,
    /// The stream that a GET without a cursor listens to.
    pub stream: usize,
    /// `Last-Event-ID`.
    pub cursor: Option<Presented>,
}

/// What the connection's task is doing.
pub enum Role {
    Idle,
    /// Fenced another connection (`old`), waits for its end.
    Taking {
        stream: usize,
        takeover: Takeover,
        generation: Generation,
        start: Start,
        old: Option<usize>,
    },
    Streaming {
        stream: usize,
        generation: Generation,
        ended: bool,
    },
    /// Has lost its stream; its writer has not returned yet.
    Fenced {
        stream: usize,
        generation: Generation,
    },
    Closed,
}

/// The response that the client is reading.
pub struct Response {
    /// Number of the last event seen; none before the priming event of a listener without cursor.
    pub seen: Option<u64>,
    pub stream: usize,
    pub priming: bool,
}

/// The client's process.
pub struct Peer {
    pub client: usize,
    pub decoder: Decoder,
    pub asked: VecDeque<Request>,
    pub status: u16,
    pub response: Option<Response>,
    pub dropped: bool,
}

pub struct Connection {
    pub socket: Socket,
    pub role: Role,
    pub inbox: VecDeque<Request>,
    pub out: ConnOut,
    /// Bytes truly acknowledged, as far as honest readings have said so.
    pub truth: u64,
    /// Decodes what is put on the connection.
    pub tap: Decoder,
    pub handed_off: bool,
    pub streams_served: u32,
    pub peer: Peer,
    /// Bytes that wait for the write in flight.
    waiting: Vec<u8>,
}

impl Connection {
    pub fn new(client: usize, socket: Socket) -> Self {
        Self {
            socket,
            role: Role::Idle,
            inbox: VecDeque::new(),
            out: ConnOut::default(),
            truth: 0,
            tap: Decoder::new(),
            handed_off: false,
            streams_served: 0,
            peer: Peer {
                client,
                decoder: Decoder::new(),
                asked: VecDeque::new(),
                status: 0,
                response: None,
                dropped: false,
            },
            waiting: Vec::new(),
        }
    }

    /// Whether every byte put on the connection has been taken by completed writes.
    pub fn is_flushed(&self) -> bool {
        !self.socket.is_writing() && self.waiting.is_empty()
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.role, Role::Closed)
    }

    /// Puts bytes on the connection, in order; returns what they complete.
    pub fn send(&mut self, bytes: Vec<u8>) -> Vec<Item> {
        let mut items = Vec::new();
        self.tap.feed(&bytes, &mut items);
        if self.is_flushed() {
            self.socket.submit(bytes);
        } else {
            self.waiting.extend(bytes);
        }
        items
    }

    /// The write in flight returns; what it did not take goes into the next, if there may be one.
    pub fn complete(&mut self, coverage: &mut Coverage) {
        let Some(done) = self.socket.complete(coverage) else { return };
        self.out.handle_written(done.length);
        let mut next = done.rest;
        next.append(&mut self.waiting);
        let open = !matches!(self.role, Role::Fenced { .. } | Role::Closed);
        if !next.is_empty() && open && !self.socket.peer_gone() {
            self.socket.submit(next);
        }
    }

    /// Reads the acknowledged byte count: what may be believed.
    pub fn read_acked(&mut self, rng: &mut Rng, coverage: &mut Coverage) -> u64 {
        let reading = self.socket.reading(rng, coverage);
        self.truth = self.truth.max(reading.truth.unwrap_or_default());
        self.out.handle_acked(reading.raw)
    }

    /// Moves to another shard, between requests: only the counts travel.
    pub fn hand_off(&mut self) {
        self.out = ConnOut::carried(self.out.written(), self.out.acked());
        self.handed_off = true;
    }
}

/// One HTTP chunk.
pub fn chunk(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:08x}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Bytes of a chunk before its data.
pub const CHUNK_HEAD_BYTES: u64 = 10;

/// The head of a stream's response, its priming event and, if there is one, the gap marker.
pub fn stream_head(id: &str, gap: Option<(u64, u64)>) -> Vec<u8> {
    let mut out = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mut first = format!("id: {id}\nretry: 3000\ndata: \n\n");
    if let Some((from, to)) = gap {
        first.push_str(&format!("event: gap\ndata: {from}-{to}\n\n"));
    }
    chunk(first.as_bytes(), &mut out);
    out
}

/// A response with a length.
pub fn answer(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} -\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}
