//! An incremental decoder of HTTP/1.1 responses, chunked bodies and SSE, with byte offsets.
//!
//! The clients read with it, and the oracle taps with it what a connection is given: it says at
//! which byte of the connection's byte stream each event ends, from the bytes alone.

/// One thing that was decoded.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// The head of a response.
    Head { status: u16 },
    /// The whole body of a response with a length.
    Body(String),
    /// A whole SSE event, the number of bytes of the connection up to and including its end.
    Event { id: String, kind: String, data: String, end: u64 },
    /// A comment.
    Comment,
    /// The end of a chunked body.
    End,
}

#[derive(Clone, Copy)]
enum State {
    Head,
    Body { left: usize },
    ChunkHead,
    Chunk { left: usize },
    ChunkEnd { left: usize, last: bool },
}

pub struct Decoder {
    state: State,
    consumed: u64,
    line: Vec<u8>,
    text: Vec<u8>,
    id: String,
    kind: String,
    data: String,
    in_event: bool,
}

impl Decoder {
    pub fn new() -> Self {
        Self {
            state: State::Head,
            consumed: 0,
            line: Vec::new(),
            text: Vec::new(),
            id: String::new(),
            kind: String::new(),
            data: String::new(),
            in_event: false,
        }
    }

    /// Whether the last byte seen lies inside an event.
    pub fn in_mid_event(&self) -> bool {
        self.in_event || !self.text.is_empty()
    }

    pub fn feed(&mut self, mut bytes: &[u8], items: &mut Vec<Item>) {
        while !bytes.is_empty() {
            let taken = match self.state {
                State::Head | State::ChunkHead => self.feed_line(bytes, items),
                State::Body { left } => self.feed_body(left, bytes, items),
                State::Chunk { left } => self.feed_chunk(left, bytes, items),
                State::ChunkEnd { left, last } => self.feed_chunk_end(left, last, bytes, items),
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
    }

    /// Framing is short: byte by byte up to the end of a head or of a chunk's size line.
    fn feed_line(&mut self, bytes: &[u8], items: &mut Vec<Item>) -> usize {
        let ends: &[u8] = if matches!(self.state, State::Head) { b"\r\n\r\n" } else { b"\r\n" };
        for (index, &byte) in bytes.iter().enumerate() {
            self.consumed += 1;
            self.line.push(byte);
            if self.line.ends_with(ends) {
                let line = String::from_utf8(std::mem::take(&mut self.line)).expect("ASCII");
                self.state = match self.state {
                    State::Head => self.after_head(&line, items),
                    _ => match usize::from_str_radix(line.trim_end(), 16).expect("a chunk size") {
                        0 => State::ChunkEnd { left: 2, last: true },
                        left => State::Chunk { left },
                    },
                };
                return index + 1;
            }
        }
        bytes.len()
    }

    fn after_head(&mut self, head: &str, items: &mut Vec<Item>) -> State {
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        items.push(Item::Head { status: status.expect("a status") });
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        match length {
            Some(left) => State::Body { left: left.parse().expect("a length") },
            None => State::ChunkHead,
        }
    }

    fn feed_body(&mut self, left: usize, bytes: &[u8], items: &mut Vec<Item>) -> usize {
        let taken = bytes.len().min(left);
        self.consumed += taken as u64;
        self.line.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        self.state = State::Body { left: left - taken };
        if taken == left {
            let body = String::from_utf8(std::mem::take(&mut self.line)).expect("text");
            items.push(Item::Body(body));
            self.state = State::Head;
        }
        taken
    }

    fn feed_chunk(&mut self, left: usize, bytes: &[u8], items: &mut Vec<Item>) -> usize {
        let inside = bytes.get(..left.min(bytes.len())).unwrap_or_default();
        let taken = match inside.iter().position(|&byte| byte == b'\n') {
            Some(at) => at + 1,
            None => inside.len(),
        };
        self.consumed += taken as u64;
        self.text.extend_from_slice(inside.get(..taken).unwrap_or_default());
        if self.text.ends_with(b"\n") {
            let line = String::from_utf8(std::mem::take(&mut self.text)).expect("UTF-8");
            self.sse_line(line.trim_end_matches('\n'), items);
        }
        self.state = match left - taken {
            0 => State::ChunkEnd { left: 2, last: false },
            left => State::Chunk { left },
        };
        taken
    }

    fn feed_chunk_end(
        &mut self,
        left: usize,
        last: bool,
        bytes: &[u8],
        items: &mut Vec<Item>,
    ) -> usize {
        let taken = bytes.len().min(left);
        self.consumed += taken as u64;
        self.state = match (left - taken, last) {
            (0, true) => {
                items.push(Item::End);
                self.text.clear();
                self.forget_event();
                State::Head
            }
            (0, false) => State::ChunkHead,
            (left, last) => State::ChunkEnd { left, last },
        };
        taken
    }

    fn sse_line(&mut self, line: &str, items: &mut Vec<Item>) {
        if line.is_empty() {
            if self.in_event {
                let (id, kind) = (std::mem::take(&mut self.id), std::mem::take(&mut self.kind));
                let data = std::mem::take(&mut self.data);
                items.push(Item::Event { id, kind, data, end: self.consumed });
            }
            self.forget_event();
        } else if line.starts_with(':') {
            items.push(Item::Comment);
        } else {
            self.in_event = true;
            let (field, value) = line.split_once(": ").unwrap_or((line, ""));
            match field {
                "id" => value.clone_into(&mut self.id),
                "event" => value.clone_into(&mut self.kind),
                "data" => value.clone_into(&mut self.data),
                _ => (),
            }
        }
    }

    fn forget_event(&mut self) {
        self.id.clear();
        self.kind.clear();
        self.data.clear();
        self.in_event = false;
    }
}
