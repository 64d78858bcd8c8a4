//! A session, and the good clients that live in one.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::sleep;

use crate::expect::{Expected, Payload};
use crate::http::{Connection, Response};
use crate::reader::{Manner, Reader};
use crate::run::{Run, Upstream, pick};

/// Log bytes of one session's streams, below the server's `--session-bytes`, so that no budget
/// excuses a refusal.
const SESSION_BYTES: u64 = 40 * 1024 * 1024;
/// Log bytes of an ordinary stream, below a quarter of the server's `--stream-bytes`.
const STREAM_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes of padding of an event of a stream that is larger than its log.
const LARGE_EVENT_BYTES: usize = 16 * 1024;

/// `initialize` of the newest served revision.
pub const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"checker","version":"1"}}}"#
);
/// What a small call asks for.
pub const ECHO_ARGUMENTS: &str = r#"{"text":"still here"}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A session that the server knows.
pub struct Session {
    /// The run that it belongs to.
    pub run: Rc<Run>,
    /// Its id.
    pub id: String,
    next_call: Cell<u64>,
}

impl Session {
    /// Makes one; `None` when there are too many already.
    pub async fn start(run: &Rc<Run>) -> io::Result<Option<Self>> {
        let mut connection = Connection::open(&run.target, None).await?;
        let started = Instant::now();
        let request = run.target.request("POST", "", INITIALIZE);
        let (response, body) = connection.ask(&request).await?;
        if response.status == 503 {
            run.refusal("503 initialize".to_owned());
            return Ok(None);
        }
        run.time("initialize", started);
        let id = response.field("mcp-session-id").unwrap_or_default().to_owned();
        if response.status != 200 || id.is_empty() {
            let body = body.escape_ascii();
            return Err(io::Error::other(format!("initialize: {} {body}", response.status)));
        }
        run.count("sessions");
        let session = Self { run: Rc::clone(run), id, next_call: Cell::new(1) };
        let (response, _) = connection.ask(&session.post(INITIALIZED)).await?;
        if response.status != 202 {
            return Err(io::Error::other(format!("initialized: {}", response.status)));
        }
        Ok(Some(session))
    }

    /// The field that names the session.
    pub fn field(&self) -> String {
        format!("Mcp-Session-Id: {}\r\n", self.id)
    }

    /// A POST of this message.
    pub fn post(&self, message: &str) -> Vec<u8> {
        self.run.target.request("POST", &self.field(), message)
    }

    /// A GET, after this cursor if there is one.
    pub fn get(&self, cursor: Option<&str>) -> Vec<u8> {
        let cursor = cursor.map(|cursor| format!("Last-Event-ID: {cursor}\r\n"));
        let fields = self.field() + &cursor.unwrap_or_default();
        self.run.target.request("GET", &fields, "")
    }

    /// A `tools/call` with an id of its own, and that id.
    pub fn call(&self, tool: &str, arguments: &str) -> (u64, Vec<u8>) {
        let id = self.next_call.replace(self.next_call.get() + 1);
        // The token is the id once more, as a text.
        let params = format!(
            r#"{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":"t{id}"}}}}"#
        );
        let message =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        (id, self.post(&message))
    }

    /// Whether that is the answer to the call `id` of `echo` with [`ECHO_ARGUMENTS`].
    pub fn check_echo(&self, id: u64, response: &Response, body: &[u8]) -> io::Result<()> {
        let body = String::from_utf8_lossy(body);
        let right = body.contains(&format!(r#""id":{id}"#)) && body.contains("still here");
        if response.status != 200 || !right {
            return Err(io::Error::other(format!("echo: {} {body}", response.status)));
        }
        Ok(())
    }

    /// DELETE; every later request has to get 404.
    pub async fn end(self) -> io::Result<()> {
        let mut connection = Connection::open(&self.run.target, None).await?;
        let request = self.run.target.request("DELETE", &self.field(), "");
        let (response, _) = connection.ask(&request).await?;
        if response.status != 200 {
            return Err(io::Error::other(format!("DELETE: {}", response.status)));
        }
        let (response, _) = connection.ask(&self.post(INITIALIZED)).await?;
        if response.status != 404 {
            return Err(io::Error::other(format!("after DELETE: {}", response.status)));
        }
        self.run.count("sessions deleted");
        Ok(())
    }
}

/// One client after the other, each with a session of its own, until the run ends.
pub async fn good_clients(run: Rc<Run>, index: u64, streams: usize) {
    let mut dice = run.dice("good", index);
    while run.goes_on() {
        if let Err(error) = good_client(&run, &mut dice, streams).await {
            run.fault(format!("good client {index}: {error}"));
        }
    }
}

async fn good_client(run: &Rc<Run>, dice: &mut StdRng, streams: usize) -> io::Result<()> {
    let Some(session) = Session::start(run).await? else {
        sleep(Duration::from_millis(200)).await;
        return Ok(());
    };
    let mut room = SESSION_BYTES;
    for _ in 0..dice.random_range(1..=4) {
        // Where one pipe carries several calls, its messages cannot be told apart but by token.
        let alone = run.upstream == Upstream::Stdio && dice.random_bool(0.5);
        let many = if alone { 1 } else { dice.random_range(1..=streams) };
        let mut readers = Vec::new();
        for _ in 0..many {
            let (expected, opening, large) = some_stream(&session, dice, alone, many == 1);
            room = room.saturating_sub(expected.bytes());
            let manner = some_manner(dice, &expected, run.smoke);
            let dice = run.dice("reader", dice.random_range(0..u64::MAX));
            readers.push(Reader::new(&session, expected, opening, manner, dice, large));
        }
        let listening = run.upstream == Upstream::Builtin && dice.random_bool(0.3);
        let listener = listening.then(|| standalone(&session, dice)).into_iter();
        let read = join_all(readers.into_iter().map(Reader::read));
        let (_, listened) = join(read, join_all(listener)).await;
        // The standalone stream is read once in a session: its numbers go on over all of it.
        if !listened.is_empty() || room < SESSION_BYTES / 2 || !run.goes_on() {
            break;
        }
    }
    if dice.random_bool(0.1) {
        run.count("sessions abandoned");
        return Ok(());
    }
    session.end().await
}

/// A call that streams: what it brings, its request, and whether it is larger than its log.
fn some_stream(
    session: &Session,
    dice: &mut StdRng,
    alone: bool,
    only: bool,
) -> (Expected, Vec<u8>, bool) {
    let padded = alone || session.run.upstream == Upstream::Builtin;
    if !padded || dice.random_bool(0.2) {
        let count = dice.random_range(1..=if session.run.smoke { 30_u64 } else { 300 });
        let interval = pick(dice, &[0, 1, 5, 20]);
        let arguments = format!(r#"{{"count":{count},"interval_ms":{interval}}}"#);
        let (id, opening) = session.call("progress", &arguments);
        let payload = Payload::Progress(format!("t{id}"));
        return (Expected { payload, series: vec![count], call: Some(id) }, opening, false);
    }
    let large = only && !session.run.smoke && dice.random_bool(0.04);
    let size = if large { LARGE_EVENT_BYTES } else { pick(dice, &[0, 64, 64, 100, 1000, 16_000]) };
    let most = if session.run.smoke { STREAM_BYTES / 32 } else { STREAM_BYTES };
    let most = most / (size as u64 + 200);
    let count = if large {
        dice.random_range(1200..=1600)
    } else {
        // As many small streams as large ones, by order of magnitude.
        (1_u64 << dice.random_range(0..13)).min(most) + dice.random_range(0..8)
    };
    let intervals: &[u64] = if count > 1000 { &[0, 0, 1] } else { &[0, 0, 1, 5] };
    let interval = if large { 0 } else { pick(dice, intervals) };
    let off_core = dice.random_bool(0.2);
    let arguments = format!(
        r#"{{"count":{count},"size":{size},"interval_ms":{interval},"off_core":{off_core}}}"#
    );
    let (id, opening) = session.call("stream", &arguments);
    let payload = Payload::Padded(size);
    (Expected { payload, series: vec![count], call: Some(id) }, opening, large)
}

fn some_manner(dice: &mut StdRng, expected: &Expected, smoke: bool) -> Manner {
    match dice.random_range(0..12) {
        0..3 => Manner::Fast,
        3..5 => {
            let seconds = if smoke { 1 } else { dice.random_range(1..=8) };
            Manner::Slow { bytes_per_second: (expected.bytes() / seconds).clamp(2_000, 8_000_000) }
        }
        5 => {
            let most = if smoke { 1000 } else { 4000 };
            let after = dice.random_range(0..=expected.events());
            Manner::Stalled { after, time: Duration::from_millis(dice.random_range(500..most)) }
        }
        6..9 => Manner::Resetting,
        9 => Manner::HalfClosing,
        _ => Manner::Racing,
    }
}

/// Calls that feed the standalone stream, one after the other, and its listener.
async fn standalone(session: &Session, dice: &mut StdRng) {
    let size = pick(dice, &[0, 64, 1000]);
    let series: Vec<u64> =
        (0..dice.random_range(1..=4)).map(|_| dice.random_range(1..200)).collect();
    let manner = pick(dice, &[Manner::Fast, Manner::Resetting, Manner::Racing]);
    let expected = Expected { payload: Payload::Padded(size), series: series.clone(), call: None };
    let own = session.run.dice("listener", dice.random_range(0..u64::MAX));
    let listener = Reader::new(session, expected, session.get(None), manner, own, false);
    let interval = pick(dice, &[0, 1, 5]);
    let calls = async {
        for count in series {
            let arguments =
                format!(r#"{{"count":{count},"size":{size},"interval_ms":{interval}}}"#);
            let (id, opening) = session.call("standalone", &arguments);
            let payload = Payload::Padded(size);
            let expected = Expected { payload, series: Vec::new(), call: Some(id) };
            let own = session.run.dice("call", id);
            Reader::new(session, expected, opening, Manner::Fast, own, false).read().await;
        }
    };
    join(listener.read(), calls).await;
}

/// One small call after the other on one connection: what the others do to those who do nothing.
pub async fn echo(run: Rc<Run>) {
    let asked = async {
        let Some(session) = Session::start(&run).await? else { return Ok(()) };
        let mut connection = Connection::open(&run.target, None).await?;
        while run.goes_on() {
            let (id, request) = session.call("echo", ECHO_ARGUMENTS);
            let started = Instant::now();
            let (response, body) = connection.ask(&request).await?;
            run.time("echo", started);
            session.check_echo(id, &response, &body)?;
            sleep(Duration::from_millis(5)).await;
        }
        session.end().await
    };
    if let Err(error) = asked.await {
        run.fault(format!("echo: {error}"));
    }
}
