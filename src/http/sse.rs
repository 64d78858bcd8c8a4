//! Server-Sent Events (WHATWG HTML, section 9.2): encoding, and an incremental decoder.
//!
//! Invariants of what is written: a payload, an id or a comment is one line, whatever it holds; a
//! block is `id`, `retry`, `data` in this order, as far as it has them; only CR and LF end a line,
//! so that U+2028, U+2029 and U+0085 pass untouched.
//!
//! The decoder holds at most as many bytes as its bound says, and how the bytes were split never
//! changes its events. It leaves UTF-8 to the reader of the data: decoding piecewise is how text
//! gets damaged at read boundaries.

use std::fmt;

/// Appends one message event with the id `<id_prefix>.<number>`.
///
/// `data` is one JSON text. A raw CR or LF in it can only be white space between its tokens (RFC
/// 8259, section 2) and becomes a space, so the value stays the same.
pub fn event(out: &mut Vec<u8>, id_prefix: &[u8], number: u64, data: &[u8]) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    out.reserve(id_prefix.len() + digits.len() + data.len() + 16);
    out.extend_from_slice(b"id: ");
    flat(out, id_prefix);
    out.push(b'.');
    out.extend_from_slice(digits);
    finish_event(out, data);
}

/// Appends one message event whose JSON text `data` writes straight into `out`, with the id
/// `<id_prefix[0]><id_prefix[1]>.<number>`; otherwise as [`event`].
pub fn event_with(
    out: &mut Vec<u8>,
    id_prefix: [&[u8]; 2],
    number: u64,
    data: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(id_prefix[0]);
    out.extend_from_slice(id_prefix[1]);
    out.push(b'.');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\ndata: ");
    let start = out.len();
    data(out);
    let mut from = start;
    while let Some(at) = memchr::memchr2(b'\r', b'\n', &out[from..]) {
        out[from + at] = b' ';
        from += at + 1;
    }
    out.extend_from_slice(b"\n\n");
}

/// Appends one message event with a given id; otherwise as [`event`].
pub fn event_with_id(out: &mut Vec<u8>, id: &[u8], data: &[u8]) {
    out.reserve(id.len() + data.len() + 16);
    out.extend_from_slice(b"id: ");
    flat(out, id);
    finish_event(out, data);
}

/// Appends the block that opens a stream: a cursor before the first message, and how long to wait
/// before a reconnect, in milliseconds.
///
/// With `with_data` it is an event with empty data (MCP 2025-11-25); without, it moves the cursor
/// and is no event, for clients that would read empty data as JSON.
pub fn priming(out: &mut Vec<u8>, id: &[u8], retry_ms: Option<u64>, with_data: bool) {
    out.extend_from_slice(b"id: ");
    flat(out, id);
    out.push(b'\n');
    if let Some(ms) = retry_ms {
        retry_line(out, ms);
    }
    out.extend_from_slice(if with_data { b"data:\n\n".as_slice() } else { b"\n" });
}

/// Appends the first event of the HTTP+SSE transport (MCP 2024-11-05): where to post. The id makes
/// it the stream's cursor before the next message.
pub fn endpoint(out: &mut Vec<u8>, id: &[u8], retry_ms: u64, uri: &[u8]) {
    out.extend_from_slice(b"event: endpoint\nid: ");
    flat(out, id);
    out.push(b'\n');
    retry_line(out, retry_ms);
    out.extend_from_slice(b"data: ");
    flat(out, uri);
    out.extend_from_slice(b"\n\n");
}

/// Appends a comment: bytes that keep a connection alive and are no event. Blank text gives a bare
/// `:`; line breaks become spaces.
pub fn comment(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b':');
    let text = text.trim_ascii();
    if !text.is_empty() {
        out.push(b' ');
        flat(out, text);
    }
    out.extend_from_slice(b"\n\n");
}

/// Appends a block that only sets the client's reconnection time, in milliseconds.
pub fn retry(out: &mut Vec<u8>, ms: u64) {
    retry_line(out, ms);
    out.push(b'\n');
}

fn retry_line(out: &mut Vec<u8>, ms: u64) {
    out.extend_from_slice(b"retry: ");
    out.extend_from_slice(itoa::Buffer::new().format(ms).as_bytes());
    out.push(b'\n');
}

fn finish_event(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"\ndata: ");
    flat(out, data);
    out.extend_from_slice(b"\n\n");
}

/// Appends `text` with a space for each byte that would end the line.
fn flat(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(at) = memchr::memchr2(b'\r', b'\n', rest) {
        let (line, behind) = rest.split_at(at);
        out.extend_from_slice(line);
        out.push(b' ');
        rest = behind.get(1..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// One dispatched event, borrowed from its [`Decoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'d> {
    /// The last event id in force, this block's or an earlier one's; none if it is empty.
    pub id: Option<&'d [u8]>,
    /// The event's name, `message` by default.
    pub event: &'d [u8],
    /// The data, its lines joined with LF. May be empty.
    pub data: &'d [u8],
    /// The reconnection time that this block set, in milliseconds.
    pub retry: Option<u64>,
}

/// A line, or the lines of one block, exceed the decoder's bound. The stream must be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTooLarge;

impl fmt::Display for EventTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the event is too large")
    }
}

impl std::error::Error for EventTooLarge {}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// An incremental decoder of an event stream (WHATWG HTML, sections 9.2.5 and 9.2.6).
#[derive(Clone, Debug)]
pub struct Decoder {
    max_event_bytes: usize,
    /// How many bytes of a leading BOM have been seen; none once it is decided.
    bom: Option<usize>,
    /// Whether the last byte was a CR, so that an LF belongs to the same line end.
    after_cr: bool,
    /// The unfinished line.
    line: Vec<u8>,
    /// Whether the block has been handed out, so that it is cleared before anything else.
    dispatched: bool,
    /// Whether the block has a data line, which may be empty.
    has_data: bool,
    data: Vec<u8>,
    event: Vec<u8>,
    block_retry: Option<u64>,
    /// The id that the next end of a block puts in force.
    next_id: Vec<u8>,
    last_id: Vec<u8>,
    retry: Option<u64>,
}

impl Decoder {
    /// A decoder at the start of a stream. `max_event_bytes` bounds one block: its data, name and
    /// id, and the line being read.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            bom: Some(0),
            after_cr: false,
            line: Vec::new(),
            dispatched: false,
            has_data: false,
            data: Vec::new(),
            event: Vec::new(),
            block_retry: None,
            next_id: Vec::new(),
            last_id: Vec::new(),
            retry: None,
        }
    }

    /// The id that a reconnect would name, put in force by the last complete block, with or without
    /// data; none if it is empty.
    pub fn last_event_id(&self) -> Option<&[u8]> {
        (!self.last_id.is_empty()).then_some(self.last_id.as_slice())
    }

    /// The last reconnection time of the stream, in milliseconds.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Reads from `input`, which it advances, up to the end of the next event. `Ok(None)` means
    /// that `input` is used up. At the end of a stream an unfinished block counts for nothing.
    ///
    /// # Errors
    /// [`EventTooLarge`] if a block exceeds the bound.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Event<'_>>, EventTooLarge> {
        if std::mem::take(&mut self.dispatched) {
            self.clear_block();
        }
        self.skip_bom(input);
        while let Some((&first, behind)) = input.split_first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                *input = behind;
                continue;
            }
            let end = memchr::memchr2(b'\r', b'\n', input);
            let (part, rest) = input.split_at(end.unwrap_or(input.len()));
            if self.held() + part.len() > self.max_event_bytes {
                return Err(EventTooLarge);
            }
            let Some((&line_end, rest)) = rest.split_first() else {
                self.line.extend_from_slice(part);
                *input = rest;
                break;
            };
            self.after_cr = line_end == b'\r';
            *input = rest;
            if self.end_line(part) {
                self.dispatched = true;
                return Ok(Some(self.event()));
            }
        }
        Ok(None)
    }

    /// Takes one byte order mark away from the start of the stream.
    fn skip_bom(&mut self, input: &mut &[u8]) {
        while let (Some(seen), Some((first, behind))) = (self.bom, input.split_first()) {
            if BOM.get(seen) == Some(first) {
                *input = behind;
                self.bom = (seen + 1 < BOM.len()).then_some(seen + 1);
            } else {
                // It was none: what has been taken for one is the start of the first line.
                self.line.extend_from_slice(BOM.get(..seen).unwrap_or_default());
                self.bom = None;
            }
        }
    }

    /// Bytes held for the current block.
    fn held(&self) -> usize {
        let block = if self.has_data { self.data.len() + 1 } else { 0 };
        self.line.len() + block + self.event.len() + self.next_id.len()
    }

    /// Ends a line with its last `part`; whether that completes an event.
    fn end_line(&mut self, part: &[u8]) -> bool {
        if self.line.is_empty() {
            return self.take_line(part);
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(part);
        let complete = self.take_line(&line);
        line.clear();
        self.line = line;
        complete
    }

    /// Takes one whole line in; whether it completes an event.
    fn take_line(&mut self, line: &[u8]) -> bool {
        if line.is_empty() {
            return self.end_block();
        }
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.event.clear();
                self.event.extend_from_slice(value);
            }
            b"id" if memchr::memchr(0, value).is_none() => {
                self.next_id.clear();
                self.next_id.extend_from_slice(value);
            }
            b"retry" => {
                if let Some(ms) = super::decimal(value) {
                    self.block_retry = Some(ms);
                    self.retry = Some(ms);
                }
            }
            // A comment has the empty name; unknown fields are ignored.
            _ => {}
        }
        false
    }

    /// Ends a block, which puts its id in force; whether it is an event, that is, has data.
    fn end_block(&mut self) -> bool {
        if self.last_id != self.next_id {
            self.last_id.clone_from(&self.next_id);
        }
        if !self.has_data {
            self.clear_block();
        }
        self.has_data
    }

    fn clear_block(&mut self) {
        self.has_data = false;
        self.data.clear();
        self.event.clear();
        self.block_retry = None;
    }

    fn event(&self) -> Event<'_> {
        Event {
            id: self.last_event_id(),
            event: if self.event.is_empty() { b"message" } else { &self.event },
            data: &self.data,
            retry: self.block_retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owned event: id, name, data, retry.
    type Owned = (Option<String>, String, String, Option<u64>);

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// Decodes `stream` whole and byte by byte, which must agree.
    fn decoded(stream: &[u8]) -> Vec<Owned> {
        let run = |step: usize| {
            let (mut decoder, mut events) = (Decoder::new(1000), Vec::new());
            for mut part in stream.chunks(step) {
                while let Some(event) = decoder.decode(&mut part).unwrap() {
                    let id = event.id.map(text);
                    events.push((id, text(event.event), text(event.data), event.retry));
                }
            }
            events
        };
        let whole = run(stream.len().max(1));
        assert_eq!(whole, run(1));
        whole
    }

    fn message(id: Option<&str>, data: &str) -> Owned {
        (id.map(str::to_owned), "message".to_owned(), data.to_owned(), None)
    }

    #[test]
    fn events_as_they_are_written() {
        let mut out = Vec::new();
        priming(&mut out, b"tok.0", Some(3000), true);
        event(&mut out, b"tok", 118, br#"{"a":1}"#);
        comment(&mut out, b"");
        comment(&mut out, b" \r\n ");
        comment(&mut out, b"still\r\nid: here");
        retry(&mut out, 500);
        event_with_id(&mut out, b"tok.end", b"{}");
        assert_eq!(
            text(&out),
            "id: tok.0\nretry: 3000\ndata:\n\n\
             id: tok.118\ndata: {\"a\":1}\n\n\
             :\n\n\
             :\n\n\
             : still  id: here\n\n\
             retry: 500\n\n\
             id: tok.end\ndata: {}\n\n"
        );
    }

    #[test]
    fn priming_without_data_moves_the_cursor_and_is_no_event() {
        let mut out = Vec::new();
        priming(&mut out, b"tok.0", Some(3000), false);
        assert_eq!(text(&out), "id: tok.0\nretry: 3000\n\n");
        let mut decoder = Decoder::new(100);
        assert_eq!(decoder.decode(&mut out.as_slice()), Ok(None));
        assert_eq!(decoder.last_event_id(), Some(b"tok.0".as_slice()));
        assert_eq!(decoder.retry(), Some(3000));
    }

    /// A carriage return between JSON tokens ended the `data` line, and the rest of the message
    /// was read as fields of its own.
    #[test]
    fn carriage_return_in_a_payload_does_not_split_the_event() {
        let mut out = Vec::new();
        event(&mut out, b"t", 1, b"{\"id\":1,\r\"event\":\r\n\"x\"}\n");
        event_with_id(&mut out, b"t\r\ndata: forged", b"{}");
        assert_eq!(
            decoded(&out),
            [
                message(Some("t.1"), "{\"id\":1, \"event\":  \"x\"} "),
                message(Some("t  data: forged"), "{}"),
            ]
        );
    }

    #[test]
    fn line_ends_of_all_kinds() {
        let events = [message(None, "a\nb"), message(None, "c")];
        assert_eq!(decoded(b"data: a\ndata:b\n\ndata: c\n\n"), events);
        assert_eq!(decoded(b"data: a\rdata:b\r\rdata: c\r\r"), events);
        assert_eq!(decoded(b"data: a\r\ndata:b\r\n\r\ndata: c\r\n\r\n"), events);
    }

    #[test]
    fn one_bom_is_dropped_and_only_at_the_start() {
        assert_eq!(decoded(b"\xef\xbb\xbfdata: a\n\n"), [message(None, "a")]);
        assert_eq!(decoded(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n"), []);
        assert_eq!(decoded(b"\xef\xbbdata: a\n\n"), []);
        assert_eq!(decoded(b"\n\xef\xbb\xbfdata: a\n\ndata: b\n\n"), [message(None, "b")]);
    }

    #[test]
    fn fields_by_the_letter() {
        // An empty data line is an event, no data line is none.
        assert_eq!(
            decoded(b"data\n\ndata:\n\nevent: x\n\n"),
            [message(None, ""), message(None, "")]
        );
        // One space is taken away; names are exact; an unfinished block counts for nothing.
        assert_eq!(decoded(b"data:  a:b\nData: c\n data: d\n\ndata: e\n"), [message(None, " a:b")]);
        // An id lasts, NUL makes it invalid, an empty one takes it away.
        assert_eq!(
            decoded(b"id: 1\ndata\n\nid: 2\0\ndata\n\nid\ndata\n\n"),
            [message(Some("1"), ""), message(Some("1"), ""), message(None, "")]
        );
        // `retry` is digits alone; the name of an event does not outlive it.
        assert_eq!(
            decoded(b"retry: 20\nevent: e\ndata\n\nretry: +3\nretry:\nretry: 1 \ndata\n\n"),
            [(None, "e".to_owned(), String::new(), Some(20)), message(None, "")]
        );
    }

    #[test]
    fn the_bound_holds_for_lines_blocks_and_comments() {
        for stream in ["data: 12345678901", "data: 12345\ndata: 12345\n\n", ":234567890123456789"] {
            let run = |step: usize| {
                let mut decoder = Decoder::new(15);
                stream
                    .as_bytes()
                    .chunks(step)
                    .try_for_each(|mut part| decoder.decode(&mut part).map(|_| ()))
            };
            assert_eq!(run(1), Err(EventTooLarge), "{stream:?}");
            assert_eq!(run(100), Err(EventTooLarge), "{stream:?}");
        }
        let mut decoder = Decoder::new(15);
        let mut many = b"data: 123\n\ndata: 123\n\ndata: 123\n\n".as_slice();
        for _ in 0..3 {
            assert!(decoder.decode(&mut many).unwrap().is_some());
        }
    }
}
