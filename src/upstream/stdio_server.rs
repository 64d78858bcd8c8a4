//! The built-in demo server over stdin and stdout: one JSON-RPC message per line (MCP 2025-11-25,
//! transports, stdio).
//!
//! A thread reads lines and hands them over a bounded channel; the caller's thread runs the machine
//! and writes. Invariants: answers of calls that take no time come in the order of their requests;
//! whatever is composed is written before the server waits; a reader of our output that is slow
//! slows the producers and then our reading, never the other way round; memory is bounded by a few
//! lines, the open calls and one batch of output.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::thread;
use std::time::Instant;

use super::builtin::{About, Builtin, RpcError, Sink};
use crate::limits::{Limits, WRITE_BYTES_MAX};
use crate::mcp::jsonrpc::{self, Envelope, Kind, Message, codes};

/// Lines that wait between the reading thread and the machine.
const LINES_WAITING_MAX: usize = 4;

/// Serves one client until the end of `input`: then the calls that are still open are dropped and
/// what is composed is written.
///
/// # Errors
///
/// What reading `input` or writing `output` fails with.
pub fn run(input: impl Read + Send + 'static, mut output: impl Write) -> io::Result<()> {
    let limits = Limits::default();
    let (sender, lines) = mpsc::sync_channel(LINES_WAITING_MAX);
    let line_bytes_max = limits.body_bytes;
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || read_lines(BufReader::new(input), line_bytes_max, &sender))?;
    let mut server = Server {
        builtin: Builtin::new(),
        outbox: Outbox::default(),
        calls_max: limits.calls_per_session,
    };
    loop {
        match server.next(&lines, &mut output)? {
            Next::Line(line) => server.handle_line(Instant::now(), &line),
            Next::Due => {}
            Next::End(end) => return server.outbox.write_to(&mut output).and(end),
        }
        server.builtin.poll(Instant::now(), WRITE_BYTES_MAX, &mut server.outbox);
        if server.outbox.lines.len() >= WRITE_BYTES_MAX {
            server.outbox.write_to(&mut output)?;
        }
    }
}

/// A line as it was read.
enum Line {
    /// Without its line end.
    Whole(Vec<u8>),
    /// It was longer than allowed, and was thrown away.
    TooLong,
}

/// What the server goes on with.
enum Next {
    /// A line of the client.
    Line(Line),
    /// The machine has something to do.
    Due,
    /// The input ended, or failed.
    End(io::Result<()>),
}

impl From<io::Result<Line>> for Next {
    fn from(line: io::Result<Line>) -> Self {
        line.map_or_else(|error| Self::End(Err(error)), Self::Line)
    }
}

/// Reads until the end, an error, or nobody wants the lines any more.
fn read_lines(mut input: impl BufRead, bytes_max: usize, lines: &SyncSender<io::Result<Line>>) {
    loop {
        let line = match read_line(&mut input, bytes_max) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let failed = line.is_err();
        if lines.send(line).is_err() || failed {
            return;
        }
    }
}

/// The next line, `None` at the end. The last one may lack its line end.
fn read_line(input: &mut impl BufRead, bytes_max: usize) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let allowed = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    if input.by_ref().take(allowed).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(Line::Whole(line)));
    }
    if line.len() <= bytes_max {
        return Ok(Some(Line::Whole(line)));
    }
    input.skip_until(b'\n')?;
    Ok(Some(Line::TooLong))
}

/// The machine, and what it said.
struct Server {
    builtin: Builtin,
    outbox: Outbox,
    calls_max: usize,
}

impl Server {
    /// The next line if one is there, else what is due. Before it waits for either, it writes.
    fn next(
        &mut self,
        lines: &Receiver<io::Result<Line>>,
        output: &mut impl Write,
    ) -> io::Result<Next> {
        match lines.try_recv() {
            Ok(line) => return Ok(line.into()),
            Err(TryRecvError::Disconnected) => return Ok(Next::End(Ok(()))),
            Err(TryRecvError::Empty) => {}
        }
        let now = Instant::now();
        let due = self.builtin.poll_timeout(now);
        if due.is_some_and(|at| at <= now) {
            return Ok(Next::Due);
        }
        self.outbox.write_to(output)?;
        let waited = match due {
            Some(at) => lines.recv_timeout(at.saturating_duration_since(now)),
            None => lines.recv().map_err(RecvTimeoutError::from),
        };
        Ok(match waited {
            Ok(line) => line.into(),
            Err(RecvTimeoutError::Timeout) => Next::Due,
            Err(RecvTimeoutError::Disconnected) => Next::End(Ok(())),
        })
    }

    fn handle_line(&mut self, now: Instant, line: &Line) {
        let Line::Whole(text) = line else {
            let (code, message) = (codes::INVALID_REQUEST, "the line is too long");
            return self.outbox.answer(None, None, Err(RpcError { code, message, data: None }));
        };
        if text.trim_ascii().is_empty() {
            return;
        }
        match jsonrpc::parse(text) {
            Ok(Message::Single(envelope)) => self.handle_message(now, &envelope, None),
            Ok(Message::Batch(envelopes)) => {
                let batch = self.outbox.open_batch();
                for envelope in &envelopes {
                    self.handle_message(now, envelope, Some(batch));
                }
                self.outbox.leave_batch(Some(batch));
            }
            Err(malformed) => {
                let (code, message) = (malformed.code, malformed.reason);
                let error = RpcError { code, message, data: None };
                self.outbox.answer(malformed.id, None, Err(error));
            }
        }
    }

    fn handle_message(&mut self, now: Instant, envelope: &Envelope<'_>, batch: Option<u64>) {
        let method = envelope.method.as_deref().unwrap_or_default();
        match (envelope.kind, envelope.id) {
            (Kind::Request, Some(id)) => {
                if self.outbox.calls.len() >= self.calls_max {
                    let (code, message) = (codes::SERVER_ERROR, "too many open calls");
                    let error = RpcError { code, message, data: None };
                    return self.outbox.answer(Some(id), batch, Err(error));
                }
                let call = self.outbox.open_call(id, batch);
                let token = jsonrpc::request_progress_token(envelope);
                let outbox = &mut self.outbox;
                self.builtin.handle_request(now, call, method, envelope.params, token, outbox);
            }
            (Kind::Response, Some(id)) => {
                let Ok(id) = id.parse() else { return };
                let outcome = envelope.outcome.unwrap_or("null");
                let result = if envelope.is_error { Err(outcome) } else { Ok(outcome) };
                self.builtin.handle_response(now, id, result, &mut self.outbox);
            }
            _ if method == "notifications/cancelled" => {
                if let Some(call) = self.outbox.cancelled_call(envelope) {
                    self.builtin.handle_cancelled(call);
                    self.outbox.close_call(call);
                }
            }
            _ => {
                let outbox = &mut self.outbox;
                self.builtin.handle_notification(now, method, envelope.params, outbox);
            }
        }
    }
}

/// A call that is not answered yet.
struct OpenCall {
    /// The client's id, raw.
    id: Box<str>,
    batch: Option<u64>,
}

/// The answers to a batch array, which go out together (JSON-RPC 2.0 section 6).
struct Batch {
    /// Calls that still miss, and one for the batch as long as it is read.
    open: usize,
    /// Responses, with commas between them.
    answers: Vec<u8>,
}

/// Composes lines, and knows whom they answer.
#[derive(Default)]
struct Outbox {
    lines: Vec<u8>,
    calls: BTreeMap<u64, OpenCall>,
    batches: BTreeMap<u64, Batch>,
    last_key: u64,
}

impl Outbox {
    fn write_to(&mut self, output: &mut impl Write) -> io::Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        output.write_all(&self.lines)?;
        self.lines.clear();
        self.lines.shrink_to(2 * WRITE_BYTES_MAX);
        output.flush()
    }

    fn next_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    fn open_call(&mut self, id: &str, batch: Option<u64>) -> u64 {
        let call = self.next_key();
        if let Some(batch) = batch.and_then(|batch| self.batches.get_mut(&batch)) {
            batch.open += 1;
        }
        self.calls.insert(call, OpenCall { id: id.into(), batch });
        call
    }

    /// The open call that a `notifications/cancelled` names; the newest, should the client have
    /// used an id twice.
    fn cancelled_call(&self, envelope: &Envelope<'_>) -> Option<u64> {
        let id = jsonrpc::cancelled_request_id(envelope)?;
        let mut calls = self.calls.iter().rev();
        calls.find(|(_, open)| jsonrpc::same_id(&open.id, id)).map(|(call, _)| *call)
    }

    /// The call ends without an answer.
    fn close_call(&mut self, call: u64) {
        if let Some(open) = self.calls.remove(&call) {
            self.leave_batch(open.batch);
        }
    }

    fn open_batch(&mut self) -> u64 {
        let batch = self.next_key();
        self.batches.insert(batch, Batch { open: 1, answers: Vec::new() });
        batch
    }

    /// One less to wait for. The last one writes the array, if there is any answer.
    fn leave_batch(&mut self, batch: Option<u64>) {
        let Some(key) = batch else { return };
        let Some(batch) = self.batches.get_mut(&key) else { return };
        batch.open = batch.open.saturating_sub(1);
        if batch.open > 0 {
            return;
        }
        if !batch.answers.is_empty() {
            self.lines.push(b'[');
            self.lines.append(&mut batch.answers);
            self.lines.extend_from_slice(b"]\n");
        }
        self.batches.remove(&key);
    }

    /// Composes a response, as a line or into its batch.
    fn answer(
        &mut self,
        id: Option<&str>,
        batch: Option<u64>,
        result: Result<&[u8], RpcError<'_>>,
    ) {
        match batch.and_then(|batch| self.batches.get_mut(&batch)) {
            Some(Batch { answers, .. }) => {
                if !answers.is_empty() {
                    answers.push(b',');
                }
                push_response(answers, id, result);
            }
            None => {
                push_response(&mut self.lines, id, result);
                self.lines.push(b'\n');
            }
        }
    }
}

fn push_response(out: &mut Vec<u8>, id: Option<&str>, result: Result<&[u8], RpcError<'_>>) {
    match result {
        Ok(result) => {
            jsonrpc::result(out, id.unwrap_or("null"), result);
        }
        Err(error) => jsonrpc::error(out, id, error.code, error.message, error.data),
    }
}

impl Sink for Outbox {
    fn notify(&mut self, _about: About, method: &str, params: &[u8]) {
        jsonrpc::notification(&mut self.lines, method, Some(&String::from_utf8_lossy(params)));
        self.lines.push(b'\n');
    }

    fn request(&mut self, _about: About, id: u64, method: &str, params: &[u8]) {
        let id = id.to_string();
        let params = String::from_utf8_lossy(params);
        jsonrpc::request(&mut self.lines, &id, method, Some(&params));
        self.lines.push(b'\n');
    }

    fn respond(&mut self, call: u64, result: Result<&[u8], RpcError<'_>>) {
        if let Some(open) = self.calls.remove(&call) {
            self.answer(Some(&open.id), open.batch, result);
            self.leave_batch(open.batch);
        }
    }

    /// Always: what is too much waits in [`run`] for the reader of our output, as does all else.
    fn has_room(&self, _about: About) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter};
    use std::thread::JoinHandle;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    /// A server on a thread, behind two pipes.
    struct Client {
        to: Option<PipeWriter>,
        from: BufReader<PipeReader>,
        server: Option<JoinHandle<io::Result<()>>>,
    }

    impl Client {
        fn start() -> Self {
            let (input, to) = io::pipe().expect("a pipe");
            let (from, output) = io::pipe().expect("a pipe");
            let server = Some(thread::spawn(move || run(input, output)));
            Self { to: Some(to), from: BufReader::new(from), server }
        }

        fn send_text(&mut self, text: &str) {
            let to = self.to.as_mut().expect("open");
            to.write_all(text.as_bytes()).expect("written");
        }

        fn send(&mut self, message: Value) {
            self.send_text(&format!("{message}\n"));
        }

        fn call(&mut self, id: Value, tool: &str, arguments: Value) {
            let params = json!({ "name": tool, "arguments": arguments });
            self.send(json!({
                "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params,
            }));
        }

        fn read(&mut self) -> Value {
            let mut line = String::new();
            self.from.read_line(&mut line).expect("read");
            serde_json::from_str(&line).expect("a line of JSON")
        }

        /// Ends the input; returns what was still said.
        fn finish(mut self) -> Vec<Value> {
            drop(self.to.take());
            let mut rest = String::new();
            self.from.read_to_string(&mut rest).expect("read");
            let server = self.server.take().expect("running");
            server.join().expect("no panic").expect("no error");
            rest.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
        }
    }

    fn text(id: Value, text: &str) -> Value {
        let content = json!([{ "type": "text", "text": text }]);
        json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } })
    }

    #[test]
    fn a_session_from_initialize_to_cancel() {
        let mut client = Client::start();
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "t", "version": "1" },
        });
        client.send(json!({
            "jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params,
        }));
        client.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        let initialized = client.read();
        assert_eq!(initialized["id"], "i");
        assert_eq!(initialized["result"]["protocolVersion"], "2025-06-18");

        client.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }));
        let list = client.read();
        assert_eq!((&list["id"], &list["result"]["tools"][0]["name"]), (&json!(2), &json!("echo")));

        let arguments = json!({ "count": 2, "interval_ms": 1 });
        let meta = json!({ "progressToken": "p" });
        let params = json!({ "name": "progress", "arguments": arguments, "_meta": meta });
        client.send(json!({
            "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params,
        }));
        for step in 1..=2 {
            let params = json!({ "progressToken": "p", "progress": step, "total": 2 });
            let method = "notifications/progress";
            let expected = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            assert_eq!(client.read(), expected);
        }
        assert_eq!(client.read(), text(json!(3), "2 events sent"));

        client.call(json!(4), "test_elicitation", json!({ "message": "m" }));
        let asked = client.read();
        assert_eq!(asked["method"], "elicitation/create");
        let result = json!({ "action": "decline" });
        client.send(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }));
        assert_eq!(client.read(), text(json!(4), "User response: action=decline, content={}"));

        client.call(json!(5), "stream", json!({ "count": 10_000_000, "size": 1000 }));
        assert_eq!(client.read()["params"]["data"]["seq"], 1);
        let params = json!({ "requestId": 5 });
        let method = "notifications/cancelled";
        client.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
        client.send(json!({ "jsonrpc": "2.0", "id": 6, "method": "ping" }));
        let pong = json!({ "jsonrpc": "2.0", "id": 6, "result": {} });
        let mut events = 0;
        while client.read() != pong {
            events += 1;
        }
        assert!(events < 10_000, "{events}: the flood went on");
        assert_eq!(client.finish(), [] as [Value; 0], "the flood ended without an answer");
    }

    #[test]
    fn junk_is_answered_with_an_error_and_the_next_line_is_read() {
        let mut client = Client::start();
        client.send_text("\n  \r\n{\n");
        client.send_text("{\"jsonrpc\":\"2.0\",\"id\":7}\n42\n[]\n\u{0}\n");
        let errors: Vec<(Value, Value)> = (0..5)
            .map(|_| client.read())
            .map(|error| (error["id"].clone(), error["error"]["code"].clone()))
            .collect();
        let invalid = (Value::Null, json!(-32600));
        let not_json = (Value::Null, json!(-32700));
        let expected =
            [not_json.clone(), (json!(7), json!(-32600)), invalid.clone(), invalid, not_json];
        assert_eq!(errors, expected);
        client.send_text("{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"ping\"}");
        let pong = json!({ "jsonrpc": "2.0", "id": 8, "result": {} });
        assert_eq!(client.finish(), [pong], "a last line without its end counts");
    }

    #[test]
    fn lines_are_bounded_and_the_rest_of_a_long_one_is_thrown_away() {
        let mut input = io::Cursor::new(b"12345\n123456\n1234567890123\n12".to_vec());
        let mut read = || match read_line(&mut input, 5).expect("no error") {
            Some(Line::Whole(line)) => Some(Some(String::from_utf8(line).expect("text"))),
            Some(Line::TooLong) => Some(None),
            None => None,
        };
        assert_eq!(read(), Some(Some("12345".to_owned())));
        assert_eq!(read(), Some(None));
        assert_eq!(read(), Some(None));
        assert_eq!(read(), Some(Some("12".to_owned())));
        assert_eq!(read(), None);
    }

    #[test]
    fn a_batch_is_answered_with_one_array_when_its_last_call_ends() {
        let mut client = Client::start();
        let ping = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
        let sleep = |id: u64, ms: u64| {
            let params = json!({ "name": "sleep", "arguments": { "ms": ms } });
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
        };
        let cancel = |id: u64| {
            let method = "notifications/cancelled";
            json!({ "jsonrpc": "2.0", "method": method, "params": { "requestId": id } })
        };
        client.send(json!([sleep(1, 20), ping(2), sleep(3, 3_600_000), cancel(3)]));
        client.send(ping(4));
        let pong = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "result": {} });
        assert_eq!(client.read(), pong(4), "nobody waits for a batch");
        assert_eq!(client.read(), json!([pong(2), text(json!(1), "slept for 20 ms")]));
        client.send(json!([cancel(9)]));
        assert_eq!(client.finish(), [] as [Value; 0], "no answer to notifications");
    }

    #[test]
    fn the_end_of_the_input_drops_open_calls_at_once() {
        let start = Instant::now();
        let mut client = Client::start();
        client.call(json!(1), "sleep", json!({ "ms": 3_600_000 }));
        client.call(json!(2), "echo", json!({ "text": "t" }));
        assert_eq!(client.finish(), [text(json!(2), "t")]);
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn calls_beyond_the_limit_are_refused() {
        let mut client = Client::start();
        let max = Limits::default().calls_per_session;
        for id in 0..=max {
            client.call(json!(id), "sleep", json!({ "ms": 3_600_000 }));
        }
        let refused = client.read();
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(max), &json!(-32000)));
        assert_eq!(client.finish(), [] as [Value; 0]);
    }
}
