//! The ceiling: bare monoio and httparse with fixed answers, on one thread. No sessions, no JSON,
//! no log; what gapless loses below it, it loses in its own work.
//!
//! Listens on a free port of 127.0.0.1 and prints its endpoint. What it answers:
//!
//! * POST of anything: one JSON answer, always the same.
//! * GET `/stream?count=N&size=S`: N events with S bytes of padding as an event stream, 64 in a
//!   write, and a result as the last event.
//! * GET of anything else: the head of an event stream on which nothing ever comes.

use std::io;

use gapless_ceiling::run;
use monoio::buf::{IoBufMut, SliceMut};
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};

/// Bytes of one read; a request of a load run is far smaller.
const READ_BYTES: usize = 4096;
/// Bytes of one request, head and body.
const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Events of one write.
const BATCH: u64 = 64;
/// Bytes of padding in an event.
const SIZE_MAX: usize = 64 * 1024;

/// What gapless answers an echo of the load run with, to the byte.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 22:26:10 GMT\r\n\
content-type: application/json\r\ncontent-length: 117\r\n\r\n\
{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\
\"text\":\"The quick brown fox jumps over the lazy dog.\"}]}}";
const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
Transfer-Encoding: chunked\r\nCache-Control: no-store\r\n\r\n";
const RESULT: &[u8] = b"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n";

/// What one request asks for.
enum Ask {
    Answer,
    Stream { count: u64, size: usize },
    Silence,
}

/// The first request in `input` and its length; `None` while it is not whole.
fn parse(input: &[u8]) -> io::Result<Option<(Ask, usize)>> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(input) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(bad(&error.to_string())),
    };
    let mut length = 0;
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let value = std::str::from_utf8(header.value).ok();
            length = value.and_then(|value| value.parse().ok()).ok_or_else(|| bad("length"))?;
        }
    }
    let whole = head + length;
    if whole > input.len() {
        return Ok(None);
    }
    let ask = match (request.method, request.path) {
        (Some("POST"), _) => Ask::Answer,
        (_, Some(path)) if path.starts_with("/stream?") => {
            let number = |name: &str| {
                let word = path.split(['?', '&']).find_map(|word| word.strip_prefix(name));
                word.and_then(|word| word.parse::<u64>().ok()).ok_or_else(|| bad("query"))
            };
            let size = usize::try_from(number("size=")?).unwrap_or(SIZE_MAX).min(SIZE_MAX);
            Ask::Stream { count: number("count=")?, size }
        }
        _ => Ask::Silence,
    };
    Ok(Some((ask, whole)))
}

/// One HTTP chunk of `count` events, each the same, of the size of gapless' own.
fn chunk(count: u64, size: usize) -> Vec<u8> {
    let mut event = b"id: AAAAAAAAAAAAAAAAAAAAAAAA.100000\ndata: {\"jsonrpc\":\"2.0\",\
\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"logger\":\"stream\",\
\"data\":{\"seq\":100000,\"pad\":\""
        .to_vec();
    event.resize(event.len() + size, b'x');
    event.extend_from_slice(b"\"}}}\n\n");
    let mut payload = Vec::new();
    for _ in 0..count {
        payload.extend_from_slice(&event);
    }
    framed(&payload)
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", payload.len()).into_bytes();
    chunk.extend_from_slice(payload);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

async fn stream(socket: &mut TcpStream, count: u64, size: usize) -> io::Result<()> {
    socket.write_all(STREAM_HEAD).await.0?;
    let mut batch = chunk(BATCH, size);
    for _ in 0..count / BATCH {
        let (written, back) = socket.write_all(batch).await;
        written?;
        batch = back;
    }
    let left = count % BATCH;
    let mut rest = if left > 0 { chunk(left, size) } else { Vec::new() };
    rest.extend_from_slice(&framed(RESULT));
    rest.extend_from_slice(b"0\r\n\r\n");
    socket.write_all(rest).await.0?;
    Ok(())
}

/// Waits without a buffer, as gapless does for an idle client, until the client is gone.
async fn silence(mut socket: TcpStream) -> io::Result<()> {
    socket.write_all(STREAM_HEAD).await.0?;
    socket.readable(false).await
}

async fn serve(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        let filled = buffer.len();
        if filled > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        buffer.reserve(READ_BYTES);
        let end = buffer.capacity();
        let (read, slice): (_, SliceMut<Vec<u8>>) =
            socket.read(IoBufMut::slice_mut(buffer, filled..end)).await;
        buffer = slice.into_inner();
        if read? == 0 {
            return Ok(());
        }
        while let Some((ask, whole)) = parse(&buffer)? {
            buffer.drain(..whole);
            match ask {
                Ask::Answer => drop(socket.write_all(ANSWER).await.0?),
                Ask::Stream { count, size } => stream(&mut socket, count, size).await?,
                Ask::Silence => {
                    drop(buffer);
                    return silence(socket).await;
                }
            }
        }
    }
}

async fn accept() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on http://{}/", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        monoio::spawn(async move {
            // A client that goes away in the middle is no event worth a word.
            let _ = serve(socket).await;
        });
    }
}

fn main() -> io::Result<()> {
    run(accept())?
}
