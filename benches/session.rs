//! The pure way of one request: bytes in, head and envelope read, the session asked, the built-in
//! server's answer out. What a request costs beyond this is the shell's: system calls and tasks.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gapless::http::request;
use gapless::http::response::{self, Status};
use gapless::limits::{Limits, WRITE_BYTES_MAX};
use gapless::mcp::headers::{self, Accept};
use gapless::mcp::jsonrpc::{self, Message};
use gapless::mcp::session_id::SessionId;
use gapless::session::{
    About, Answers, CallKey, Overflow, Posted, Reply, ReplyForm, Session, Settings, Step,
};
use gapless::upstream::in_process::InProcess;

const BODY: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1234,"method":"tools/call","params":{"name":"echo","arguments":{"t"#,
    r#"ext":"the quick brown fox"}}}"#,
);
const BOTH: Accept = Accept { json: true, sse: true };

/// A session as it stands after `initialize`, with its server.
struct Fixture {
    session: Session,
    server: InProcess,
    now: Instant,
    /// One whole request.
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Fixture {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        let settings = Rc::new(Settings::in_memory(limits, [7; 32], Overflow::Auto));
        let id = SessionId::from_random(0, [0x5A; 16]);
        let mut input = b"POST /mcp HTTP/1.1\r\n\
            host: 127.0.0.1:8383\r\n\
            content-type: application/json\r\n\
            accept: application/json, text/event-stream\r\n\
            mcp-protocol-version: 2025-11-25\r\n\
            mcp-session-id: "
            .to_vec();
        input.extend_from_slice(&id.write());
        input.extend_from_slice(
            format!("\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len()).as_bytes(),
        );
        let mut fixture = Self {
            session: Session::new(id, settings, now),
            server: InProcess::default(),
            now,
            input,
            output: Vec::with_capacity(WRITE_BYTES_MAX),
        };
        let initialize = concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-"#,
            r#"11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
        )
        .as_bytes();
        let message = jsonrpc::parse(initialize).expect("the constant is one message");
        let reply = fixture.post(&message, Answers::Json);
        assert!(matches!(reply, Reply::Json(_)) && fixture.session.is_initialized());
        fixture
    }

    fn post(&mut self, message: &Message<'_>, answers: Answers) -> Reply {
        let form = ReplyForm { accept: BOTH, answers };
        let posted = self.session.handle_post(self.now, message, form, &mut self.server);
        let Ok(Posted::Exchange(exchange)) = posted else { panic!("{posted:?}") };
        self.session.reply(exchange)
    }

    /// Reads the request, asks, and writes the whole answer to `output`.
    fn serve(&mut self, answers: Answers) {
        let input = std::mem::take(&mut self.input);
        let head = request::parse(black_box(&input)).expect("a good head").expect("a whole head");
        let session = head.field("mcp-session-id").and_then(SessionId::parse);
        assert_eq!(session, Some(self.session.id()));
        assert_eq!(headers::accept(head.fields("accept")), BOTH);
        let body = input.get(head.len..).unwrap_or_default();
        let message = jsonrpc::parse(body).expect("the constant is one message");
        let reply = self.post(&message, answers);
        self.output.clear();
        match reply {
            Reply::Json(body) => {
                response::head(&mut self.output, Status::Ok).json().length(body.len() as u64);
                self.output.extend_from_slice(&body);
            }
            Reply::Stream(stream) => self.send(stream),
            other => panic!("{other:?}"),
        }
        self.input = input;
        self.settle();
    }

    /// The stream, from its first byte to its end.
    fn send(&mut self, stream: u32) {
        let attached = self.session.attach_first(stream).expect("nobody else reads it");
        response::head(&mut self.output, Status::Ok).event_stream().chunked();
        self.session.prologue(stream, &attached, &mut self.output);
        let generation = attached.generation;
        let mut step = Step::Write;
        while step == Step::Write {
            let offset = self.output.len() as u64;
            step = self.session.transmit(stream, generation, offset, &mut self.output);
        }
        assert_eq!(step, Step::Finished);
        let acked = self.output.len() as u64;
        self.session.handle_closed(self.now, stream, generation, acked);
    }

    /// What the shell does after each call, without a world to do it in.
    fn settle(&mut self) {
        while let Some(effect) = self.session.poll_effect() {
            if let gapless::session::Effect::Relieve(stream) = effect {
                self.session.relieve(self.now, stream, &mut self.server);
            }
        }
        black_box(self.session.timeout());
    }
}

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("request");
    group.throughput(Throughput::Elements(1));
    for (name, answers) in [("echo as JSON", Answers::Json), ("echo as SSE", Answers::Sse)] {
        let mut fixture = Fixture::new(Limits::default());
        group.bench_function(name, |b| {
            b.iter(|| {
                fixture.serve(answers);
                black_box(fixture.output.len())
            });
        });
        let text = String::from_utf8_lossy(&fixture.output);
        assert!(text.contains("the quick brown fox"), "{text}");
    }
    group.finish();
}

/// One more event in a session of many open calls whose logs fill its budget.
fn relief(c: &mut Criterion) {
    const CALLS: u64 = 500;
    const SLEEP: &str = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","argument"#,
        r#"s":{"ms":3600000}}}"#,
    );
    let limits = Limits { session_bytes: 8 << 20, stream_bytes: 1 << 20, ..Limits::default() };
    let mut fixture = Fixture::new(limits);
    let sleep = jsonrpc::parse(SLEEP.as_bytes()).expect("the constant is one message");
    for _ in 0..CALLS {
        assert!(matches!(fixture.post(&sleep, Answers::Sse), Reply::Stream(_)));
        fixture.settle();
    }
    // Keys are counted from 1, which `initialize` had.
    let calls: Vec<CallKey> = (2..CALLS + 2).collect();
    assert!(calls.iter().all(|&call| fixture.session.exchange_of(call).is_some()));
    let event = [b'x'; 1000];
    let mut turns = calls.iter().cycle();
    let mut write = |fixture: &mut Fixture| {
        let about = About::Call(*turns.next().expect("endless"));
        let (session, now) = (&mut fixture.session, fixture.now);
        session.write(now, about, event.len(), |out| out.extend_from_slice(&event));
        fixture.settle();
    };
    while fixture.session.bytes() < 7 << 20 {
        write(&mut fixture);
    }
    let mut group = c.benchmark_group("relief");
    group.throughput(Throughput::Elements(1));
    group.bench_function("an event at the session's budget", |b| b.iter(|| write(&mut fixture)));
    group.finish();
    assert!(fixture.session.bytes() <= 8 << 20);
}

criterion_group!(benches, requests, relief);
criterion_main!(benches);
