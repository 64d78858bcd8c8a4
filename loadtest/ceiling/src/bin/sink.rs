//! Reads event streams as fast as they come, and counts: the generator of the stream rows.
//!
//! `sink ADDRESS REPEATS [open]` takes HTTP requests from stdin, each ended by a zero byte. Every
//! request has a connection of its own, on which it is sent REPEATS times, one after the other.
//! Each answer has to be a 200 with a chunked body that ends with a JSON-RPC result; all else is
//! an error. With `open` the body need not end behind the result, for servers that leave a
//! replayed stream open. Prints one JSON object: answers, events (blocks of event stream, the
//! result's included), bytes (of event stream, without the chunks' framing) and seconds.

use std::net::SocketAddr;
use std::time::Instant;

use gapless_ceiling::answer::{self, Body, Failure, Length};
use gapless_ceiling::{requests, run};
use memchr::memmem;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;

/// Bytes of one read: several of the server's writes.
const READ_BYTES: usize = 256 * 1024;

const RESULT: &[u8] = b"\"result\":";

/// What every connection does.
#[derive(Clone, Copy)]
struct Plan {
    address: SocketAddr,
    repeats: u64,
    /// Whether an answer is over once its result has come.
    open: bool,
}

/// Sends `request` as often as planned, on one connection: the events and the bytes that came.
async fn read_streams(plan: Plan, request: Vec<u8>) -> Result<(u64, u64), Failure> {
    let mut socket = TcpStream::connect(plan.address).await?;
    socket.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let mut request = request;
    let (mut events, mut bytes) = (0, 0);
    for _ in 0..plan.repeats {
        let (written, back) = socket.write_all(request).await;
        written?;
        request = back;
        let mut head = Vec::new();
        let mut body = Body::default();
        let mut begun = false;
        let has_result = |body: &Body| memmem::find(&body.tail, RESULT).is_some();
        while !body.is_done() && !(plan.open && has_result(&body)) {
            let (read, back) = socket.read(buffer).await;
            buffer = back;
            if read? == 0 {
                return Err("the server closed the connection in the middle".into());
            }
            if begun {
                body.feed(&buffer)?;
                continue;
            }
            head.extend_from_slice(&buffer);
            match answer::head(&head)? {
                Some((_, Length::Bytes(_))) => return Err("not an event stream".into()),
                Some((begin, Length::Chunked)) => body.feed(&head[begin..])?,
                None => continue,
            }
            begun = true;
        }
        if !has_result(&body) {
            let tail = String::from_utf8_lossy(&body.tail).into_owned();
            return Err(format!("the stream ended without its result: {tail}").into());
        }
        events += body.events;
        bytes += body.bytes;
    }
    Ok((events, bytes))
}

async fn read_all(plan: Plan, requests: Vec<Vec<u8>>) -> Result<(), Failure> {
    let started = Instant::now();
    let answers = requests.len() as u64 * plan.repeats;
    let tasks: Vec<_> =
        requests.into_iter().map(|request| monoio::spawn(read_streams(plan, request))).collect();
    let (mut events, mut bytes) = (0, 0);
    for task in tasks {
        let (more_events, more_bytes) = task.await?;
        events += more_events;
        bytes += more_bytes;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{{\"answers\": {answers}, \"events\": {events}, \"bytes\": {bytes}, \
         \"seconds\": {seconds}}}"
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (address, repeats, open) = match words.as_slice() {
        [address, repeats] => (address, repeats, false),
        [address, repeats, open] if open == "open" => (address, repeats, true),
        _ => return Err("usage: sink ADDRESS REPEATS [open] < REQUESTS".into()),
    };
    let plan = Plan { address: address.parse()?, repeats: repeats.parse()?, open };
    run(read_all(plan, requests()?))?
}
