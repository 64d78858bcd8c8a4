//! Bad clients: what the network brings besides readers. Each attack knows what it may get.
//!
//! Invariant: an attack never harms a session of a good client; what it makes it leaves behind,
//! because the server has to clean up by itself.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use tokio::time::{sleep, timeout};

use crate::http::{self, Connection};
use crate::run::{Run, pick};
use crate::session::{INITIALIZE, Session};

/// Bytes of a body that no server may read to its end.
const ENDLESS_BYTES: usize = 64 * 1024 * 1024;
/// The most that a slow head may take: several times the `--head-timeout` of the run.
const SLOWLORIS_TIME: Duration = Duration::from_secs(20);
/// Sessions that one flood leaves behind.
const FLOOD_SESSIONS: u32 = 12;

#[derive(Clone, Copy)]
enum Attack {
    Garbage,
    Smuggling,
    Slowloris,
    HugeBody,
    EndlessChunks,
    ForgedCursor,
    InitializeFlood,
    AbortedPost,
    Vanished,
    MalformedJson,
    WrongOrigin,
    WrongRequest,
    LongHead,
    SilentConnection,
    Pipelined,
}

const ATTACKS: &[Attack] = &[
    Attack::Garbage,
    Attack::Smuggling,
    Attack::Smuggling,
    Attack::Slowloris,
    Attack::HugeBody,
    Attack::EndlessChunks,
    Attack::ForgedCursor,
    Attack::ForgedCursor,
    Attack::InitializeFlood,
    Attack::AbortedPost,
    Attack::AbortedPost,
    Attack::Vanished,
    Attack::MalformedJson,
    Attack::WrongOrigin,
    Attack::WrongRequest,
    Attack::LongHead,
    Attack::SilentConnection,
    Attack::Pipelined,
];

/// What an attack got.
enum Got {
    /// An answer with this status.
    Status(u16),
    /// The connection was closed instead.
    Closed,
}

/// One attack after the other, until the run ends.
pub async fn bad_clients(run: Rc<Run>, index: u64) {
    let mut dice = run.dice("bad", index);
    while run.goes_on() {
        let attack = pick(&mut dice, ATTACKS);
        let done = attack.run(&run, &mut dice).await;
        if let Err(error) = done
            && !http::is_cut(&error)
        {
            run.fault(format!("bad client {index}, {}: {error}", attack.name()));
        }
        run.count("attacks");
        sleep(Duration::from_millis(dice.random_range(0..100))).await;
    }
}

impl Attack {
    fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Smuggling => "smuggling",
            Self::Slowloris => "slowloris",
            Self::HugeBody => "huge body",
            Self::EndlessChunks => "endless chunks",
            Self::ForgedCursor => "forged cursor",
            Self::InitializeFlood => "initialize flood",
            Self::AbortedPost => "aborted POST",
            Self::Vanished => "vanished reader",
            Self::MalformedJson => "malformed JSON",
            Self::WrongOrigin => "wrong origin",
            Self::WrongRequest => "wrong request",
            Self::LongHead => "long head",
            Self::SilentConnection => "silent connection",
            Self::Pipelined => "pipelined",
        }
    }

    async fn run(self, run: &Rc<Run>, dice: &mut StdRng) -> io::Result<()> {
        match self {
            Self::Garbage => self.expect(run, &garbage(dice), &[400, 431], true).await,
            Self::Smuggling => {
                let shape = pick(dice, SMUGGLING);
                let request = request_with(run, shape);
                self.expect(run, &request, &[400, 501], false).await
            }
            Self::Slowloris => slowloris(run, dice).await,
            Self::HugeBody => {
                let length = pick(dice, &["1000000000000", "8388609", "18446744073709551615"]);
                let shape = format!("Content-Length: {length}\r\n\r\n{{\"");
                self.expect(run, &request_with(run, &shape), &[400, 413], false).await
            }
            Self::EndlessChunks => endless_chunks(run).await,
            Self::ForgedCursor => self.forged_cursor(run, dice).await,
            Self::InitializeFlood => flood(run).await,
            Self::AbortedPost => aborted(run, dice).await,
            Self::Vanished => vanished(run, dice).await,
            Self::MalformedJson => {
                let body = pick(dice, MALFORMED);
                let request = run.target.request("POST", "", body);
                self.expect(run, &request, &[400], false).await
            }
            Self::WrongOrigin => {
                let field = pick(dice, ORIGINS);
                let request = run.target.request("POST", field, INITIALIZE);
                self.expect(run, &request, &[403], false).await
            }
            Self::WrongRequest => {
                let (request, status) = pick(dice, WRONG);
                let request = request.replace("HOST", &run.target.address.to_string());
                self.expect(run, request.as_bytes(), &[status], false).await
            }
            Self::LongHead => {
                let fields = "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(2000);
                let request = run.target.request("GET", &fields, "");
                self.expect(run, &request, &[431], true).await
            }
            Self::SilentConnection => silent(run, dice).await,
            Self::Pipelined => pipelined(run).await,
        }
    }

    /// Sends this and looks at the answer.
    async fn expect(
        self,
        run: &Run,
        bytes: &[u8],
        wanted: &[u16],
        or_closed: bool,
    ) -> io::Result<()> {
        let mut connection = Connection::open(&run.target, None).await?;
        let got = match answer(&mut connection, bytes).await? {
            Got::Closed if or_closed => {
                run.refusal(format!("closed: {}", self.name()));
                return Ok(());
            }
            Got::Closed => "nothing".to_owned(),
            Got::Status(status) if wanted.contains(&status) => {
                run.refusal(format!("{status} {}", self.name()));
                return Ok(());
            }
            Got::Status(status) => status.to_string(),
        };
        let start = bytes.get(..bytes.len().min(400)).unwrap_or_default().escape_ascii();
        Err(io::Error::other(format!("{got} instead of {wanted:?} to {start}")))
    }

    async fn forged_cursor(self, run: &Rc<Run>, dice: &mut StdRng) -> io::Result<()> {
        if dice.random_bool(0.3) {
            let cursor = "Mcp-Session-Id: nobodys\r\nLast-Event-ID: k3Jx0QpV9sYw2mBd.118\r\n";
            let request = run.target.request("GET", cursor, "");
            return self.expect(run, &request, &[404], false).await;
        }
        let Some(session) = Session::start(run).await? else { return Ok(()) };
        for _ in 0..dice.random_range(1..6) {
            let cursor = pick(dice, CURSORS);
            self.expect(run, &session.get(Some(cursor)), &[400], false).await?;
        }
        session.end().await
    }
}

const SMUGGLING: &[&str] = &[
    "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}",
    "Content-Length: +2\r\n\r\n{}",
    "Content-Length: -2\r\n\r\n{}",
    "Content-Length: 2, 4\r\n\r\n{}{}",
    "Content-Length: 0x2\r\n\r\n{}",
    "Content-Length: 2\r\n 2\r\n\r\n{}",
    "Content-Length : 2\r\n\r\n{}",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\nx\r\n{}\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n{}\r\n0\r\n\r\n",
];

const CURSORS: &[&str] = &[
    "k3Jx0QpV9sYw2mBd.118",
    "0",
    "-1",
    "118",
    "18446744073709551616",
    ".1",
    "a.b.c",
    "k3Jx0QpV9sYw2mBd.end",
    "%2e%2e%2f",
    "1234567890123456789012345678901234567890123456789012345678901234567890",
];

const MALFORMED: &[&str] = &[
    "{",
    "nul",
    "[]",
    "42",
    "\"text\"",
    "{\"jsonrpc\":\"2.0\"",
    "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":1}",
];

const ORIGINS: &[&str] = &[
    "Origin: https://evil.example\r\n",
    "Origin: null\r\n",
    "Origin: http://localhost.evil.example\r\n",
    "Origin: http://127.0.0.1.evil.example:80\r\n",
];

const WRONG: &[(&str, u16)] = &[
    ("PUT /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0\r\n\r\n", 405),
    ("TRACE /mcp HTTP/1.1\r\nHost: HOST\r\n\r\n", 405),
    ("GET /elsewhere HTTP/1.1\r\nHost: HOST\r\n\r\n", 404),
    ("GET /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    ("GET /mcp HTTP/1.1\r\n\r\n", 400),
    ("GET /mcp HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n", 400),
    ("GET /mcp HTTP/1.1\r\nHost: HOST\r\nAccept: text/event-stream\r\n\r\n", 400),
    ("DELETE /mcp HTTP/1.1\r\nHost: HOST\r\nMcp-Session-Id: nobodys\r\n\r\n", 404),
    ("POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Type: a/b\r\nContent-Length: 2\r\n\r\n{}", 415),
];

/// A POST whose framing and body are `shape`.
fn request_with(run: &Run, shape: &str) -> Vec<u8> {
    let (address, path) = (run.target.address, &run.target.path);
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\n");
    format!("{head}Content-Type: application/json\r\n{shape}").into_bytes()
}

fn garbage(dice: &mut StdRng) -> Vec<u8> {
    let mut bytes = vec![0; dice.random_range(1..4000)];
    dice.fill_bytes(&mut bytes);
    // A line end somewhere: else it may be the start of a long line, which has to be waited for.
    bytes.extend_from_slice(b"\r\n\r\n");
    bytes
}

async fn answer(connection: &mut Connection, bytes: &[u8]) -> io::Result<Got> {
    // An early answer may be followed by a reset, before all is written.
    let sent = connection.send(bytes).await;
    match connection.response().await {
        Ok(response) => Ok(Got::Status(response.status)),
        Err(error) if http::is_cut(&error) => Ok(Got::Closed),
        Err(error) => Err(sent.err().unwrap_or(error)),
    }
}

/// A head that comes byte by byte.
async fn slowloris(run: &Run, dice: &mut StdRng) -> io::Result<()> {
    let mut connection = Connection::open(&run.target, None).await?;
    let request =
        run.target.request("GET", "X-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", "");
    let pause = Duration::from_millis(dice.random_range(300..1000));
    let dripped = timeout(SLOWLORIS_TIME, async {
        for byte in request {
            connection.send(&[byte]).await?;
            sleep(pause).await;
        }
        io::Result::Ok(())
    });
    match dripped.await {
        Ok(Err(_)) => {
            run.refusal("closed: slowloris".to_owned());
            Ok(())
        }
        // The answer may have come while the rest was sent into the void.
        _ => match connection.response().await {
            Ok(response) if response.status == 408 => {
                run.refusal("408 slowloris".to_owned());
                Ok(())
            }
            Err(error) if http::is_cut(&error) => Ok(()),
            Ok(response) => Err(io::Error::other(format!("{} for a slow head", response.status))),
            Err(error) => Err(error),
        },
    }
}

async fn endless_chunks(run: &Run) -> io::Result<()> {
    let mut connection = Connection::open(&run.target, None).await?;
    connection.send(&request_with(run, "Transfer-Encoding: chunked\r\n\r\n")).await?;
    let mut chunk = b"10000\r\n".to_vec();
    chunk.resize(chunk.len() + 0x10000, b' ');
    chunk.extend_from_slice(b"\r\n");
    for _ in 0..ENDLESS_BYTES / chunk.len() {
        if connection.send(&chunk).await.is_err() {
            run.refusal("closed: endless chunks".to_owned());
            return Ok(());
        }
    }
    Err(io::Error::other(format!("{ENDLESS_BYTES} bytes of a body were read")))
}

/// Sessions that nobody ends.
async fn flood(run: &Rc<Run>) -> io::Result<()> {
    for _ in 0..FLOOD_SESSIONS {
        if Session::start(run).await?.is_some() {
            run.count("sessions abandoned");
        }
    }
    Ok(())
}

/// A call that is cut off in its body, or as soon as it is sent.
async fn aborted(run: &Rc<Run>, dice: &mut StdRng) -> io::Result<()> {
    let Some(session) = Session::start(run).await? else { return Ok(()) };
    for _ in 0..4 {
        let tool = pick(dice, &["stream", "progress", "standalone"]);
        let (_, request) = session.call(tool, r#"{"count":200,"interval_ms":2,"size":500}"#);
        let end =
            if dice.random_bool(0.5) { request.len() } else { dice.random_range(1..request.len()) };
        let mut connection = Connection::open(&run.target, None).await?;
        connection.send(request.get(..end).unwrap_or_default()).await?;
        sleep(Duration::from_millis(dice.random_range(0..20))).await;
        if dice.random_bool(0.7) {
            connection.reset();
        }
    }
    if dice.random_bool(0.5) {
        return session.end().await;
    }
    run.count("sessions abandoned");
    Ok(())
}

/// A flood that nobody reads, and whose client then is gone.
async fn vanished(run: &Rc<Run>, dice: &mut StdRng) -> io::Result<()> {
    let Some(session) = Session::start(run).await? else { return Ok(()) };
    let (_, request) = session.call("stream", r#"{"count":20000,"size":2000}"#);
    let mut connection = Connection::open(&run.target, Some(4096)).await?;
    connection.send(&request).await?;
    sleep(Duration::from_millis(dice.random_range(100..3000))).await;
    connection.reset();
    if dice.random_bool(0.5) {
        return session.end().await;
    }
    run.count("sessions abandoned");
    Ok(())
}

async fn silent(run: &Run, dice: &mut StdRng) -> io::Result<()> {
    let connection = Connection::open(&run.target, None).await?;
    sleep(Duration::from_millis(dice.random_range(0..500))).await;
    if dice.random_bool(0.5) {
        connection.reset();
    }
    Ok(())
}

/// Several requests in one write: the answers come in their order.
async fn pipelined(run: &Rc<Run>) -> io::Result<()> {
    let Some(session) = Session::start(run).await? else { return Ok(()) };
    let mut connection = Connection::open(&run.target, None).await?;
    let calls: Vec<_> = (0..8).map(|_| session.call("echo", r#"{"text":"in line"}"#)).collect();
    let bytes: Vec<u8> = calls.iter().flat_map(|(_, request)| request.clone()).collect();
    connection.send(&bytes).await?;
    for (id, _) in calls {
        let mut response = connection.response().await?;
        let body = connection.body(&mut response).await?;
        let body = String::from_utf8_lossy(&body);
        if response.status != 200 || !body.contains(&format!(r#""id":{id}"#)) {
            return Err(io::Error::other(format!("{} {body} to call {id}", response.status)));
        }
    }
    session.end().await
}
