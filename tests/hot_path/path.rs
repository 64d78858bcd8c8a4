//! The pure way of one request, and of the events of a stream that is read as fast as it is
//! produced: what the benchmark of sessions, the count of allocations and the count of instructions
//! all run. What it costs beyond this is the shell's: system calls and tasks.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use gapless::http::request;
use gapless::http::response::{self, Status};
use gapless::limits::{Limits, WRITE_BYTES_MAX};
use gapless::mcp::headers::{self, Accept};
use gapless::mcp::jsonrpc::{self, Message};
use gapless::mcp::session_id::SessionId;
use gapless::session::{
    Answers, Effect, Overflow, Posted, Reply, ReplyForm, Session, Settings, Step,
};
use gapless::store::journal::{Action, Journal, Level};
use gapless::store::segment::Segments;
use gapless::stream::Generation;
use gapless::upstream::in_process::InProcess;

const BODY: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1234,"method":"tools/call","params":{"name":"echo","arguments":{"t"#,
    r#"ext":"the quick brown fox"}}}"#,
);
const BOTH: Accept = Accept { json: true, sse: true };

/// A session as it stands after `initialize`, with its server.
pub struct Fixture {
    pub session: Session,
    pub server: InProcess,
    pub now: Instant,
    /// Where sessions are kept beside memory.
    journal: Option<Rc<RefCell<Journal>>>,
    /// One whole request.
    input: Vec<u8>,
    pub output: Vec<u8>,
}

impl Fixture {
    pub fn new(limits: Limits) -> Self {
        Self::with_journal(limits, None)
    }

    /// A session that outlives its process, whose writes are done as soon as they are asked for.
    pub fn journaled(limits: Limits) -> Self {
        let journal = Journal::new(Level::Process, 1, 64 << 20, 0, Segments::default());
        Self::with_journal(limits, Some(Rc::new(RefCell::new(journal))))
    }

    fn with_journal(limits: Limits, journal: Option<Rc<RefCell<Journal>>>) -> Self {
        let now = Instant::now();
        let settings = Settings::in_memory(limits, [7; 32], Overflow::Auto);
        let settings = Rc::new(Settings { journal: journal.clone(), ..settings });
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
            session: Session::new(id, settings, now, 0),
            server: InProcess::default(),
            now,
            journal,
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

    pub fn post(&mut self, message: &Message<'_>, answers: Answers) -> Reply {
        let form = ReplyForm { accept: BOTH, answers };
        let posted = self.session.handle_post(self.now, message, form, &mut self.server);
        let Ok(Posted::Exchange(exchange)) = posted else { panic!("{posted:?}") };
        self.session.reply(exchange)
    }

    /// Reads the request, asks, and writes the whole answer to `output`.
    pub fn serve(&mut self, answers: Answers) {
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
        self.write_journal();
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

    /// What the shell does for the journal, without a disk.
    fn write_journal(&mut self) {
        let Some(journal) = &self.journal else { return };
        let mut woken = Vec::new();
        let mut journal = journal.borrow_mut();
        while let Some(action) = journal.poll_action() {
            match action {
                Action::Create(segment) => journal.handle_created(segment),
                Action::SyncDirectory => journal.handle_directory_synced(),
                Action::Write { seq, bytes, .. } => {
                    journal.handle_written(seq, bytes.len(), bytes);
                }
                Action::Sync { upto, .. } => journal.handle_synced(upto),
                Action::Remove(segment) => journal.handle_removed(segment),
            }
        }
        journal.take_committed(&mut woken);
        drop(journal);
        for (_, stream) in woken {
            self.session.handle_committed(stream);
        }
    }

    /// What the shell does after each call, without a world to do it in.
    pub fn settle(&mut self) {
        while let Some(effect) = self.session.poll_effect() {
            if let Effect::Relieve(stream) = effect {
                self.session.relieve(self.now, stream, &mut self.server);
            }
        }
        black_box(self.session.timeout());
    }
}

/// A stream of 100-byte payloads that is read as fast as the built-in server produces it. The
/// first [`Flood::WARM`] events bring its log to its budget, so that every further event drives an
/// old one out.
pub struct Flood {
    fixture: Fixture,
    stream: u32,
    generation: Generation,
    /// Bytes written on the connection.
    written: u64,
    /// Events that were written whole.
    pub events: u64,
}

impl Flood {
    /// Events before the steady state.
    pub const WARM: u64 = 20_000;

    /// A stream in its steady state.
    pub fn new() -> Self {
        let limits = Limits { stream_bytes: 1 << 20, ..Limits::default() };
        let mut fixture = Fixture::new(limits);
        let call = concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"stream","argument"#,
            r#"s":{"count":10000000,"size":100}}}"#,
        );
        let message = jsonrpc::parse(call.as_bytes()).expect("the constant is one message");
        let Reply::Stream(stream) = fixture.post(&message, Answers::Sse) else {
            panic!("a producer answers with a stream")
        };
        let attached = fixture.session.attach_first(stream).expect("nobody else reads it");
        let generation = attached.generation;
        let mut flood = Self { fixture, stream, generation, written: 0, events: 0 };
        while flood.events < Self::WARM {
            flood.turn();
        }
        flood
    }

    /// One turn: a slice of events is produced, logged and written, and its acknowledgement read.
    pub fn turn(&mut self) {
        self.produce();
        self.send_and_confirm();
    }

    /// The server produces a slice, as long as a write may be.
    pub fn produce(&mut self) {
        let Fixture { session, server, now, .. } = &mut self.fixture;
        server.run(session, *now, WRITE_BYTES_MAX);
        self.fixture.settle();
    }

    /// What was logged is written, and its acknowledgement read.
    pub fn send_and_confirm(&mut self) {
        let Fixture { session, output, .. } = &mut self.fixture;
        loop {
            output.clear();
            let step = session.transmit(self.stream, self.generation, self.written, output);
            self.written += output.len() as u64;
            if step != Step::Write {
                assert_eq!(step, Step::Wait, "the reader has everything");
                break;
            }
        }
        let session = &mut self.fixture.session;
        session.handle_acked(self.stream, self.generation, self.written);
        self.events = session.stream(self.stream).expect("it is open").confirmed();
    }
}
