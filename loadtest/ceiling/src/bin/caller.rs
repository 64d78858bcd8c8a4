//! Calls as fast as the answers come: the generator of the echo rows.
//!
//! `caller ADDRESS CONNECTIONS SECONDS EXPECTED` takes HTTP requests from stdin, each ended by a
//! zero byte, and sends them on CONNECTIONS kept-alive connections, one call at a time on each;
//! the connections take the requests in turn, and each keeps its own. `100000000` in a request is
//! a JSON-RPC id and becomes another with every call: within a session they must differ, and a
//! server may route its answers by them. Each answer has to be a 200 with EXPECTED in its body.
//! Prints one JSON object: requests, seconds, and the latency's p50 and p99 in seconds.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use gapless_ceiling::answer::{self, Body, Failure, Length};
use gapless_ceiling::{FIRST_ID, requests, run};
use memchr::memmem;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// What every connection does.
struct Plan {
    address: SocketAddr,
    expected: Vec<u8>,
    next_id: Cell<u32>,
    end: Instant,
}

impl Plan {
    /// Puts the next id where the last one stands.
    fn put_id(&self, request: &mut [u8], at: usize) {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let digits = id.to_string();
        request[at..at + digits.len()].copy_from_slice(digits.as_bytes());
    }

    /// Whether `read` is the whole answer, and the right one.
    fn is_answered(&self, read: &[u8]) -> Result<bool, Failure> {
        let Some((begin, length)) = answer::head(read)? else { return Ok(false) };
        let body = &read[begin..];
        match length {
            Length::Bytes(length) if body.len() < length => return Ok(false),
            Length::Bytes(_) => {}
            Length::Chunked => {
                let mut chunks = Body::default();
                chunks.feed(body)?;
                if !chunks.is_done() {
                    return Ok(false);
                }
            }
        }
        match memmem::find(body, &self.expected) {
            Some(_) => Ok(true),
            None => Err(format!("answered {}", String::from_utf8_lossy(read)).into()),
        }
    }
}

/// Calls until the end: how long each call took, nanoseconds.
async fn call(plan: Rc<Plan>, mut request: Vec<u8>) -> Result<Vec<u64>, Failure> {
    let id_at = memmem::find(&request, FIRST_ID.to_string().as_bytes())
        .ok_or("the request has no id to replace")?;
    let mut socket = TcpStream::connect(plan.address).await?;
    socket.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let mut times = Vec::new();
    let mut started = Instant::now();
    while started < plan.end {
        plan.put_id(&mut request, id_at);
        let (written, back) = socket.write_all(request).await;
        written?;
        request = back;
        let mut answer = Vec::new();
        loop {
            let (read, back) = socket.read(buffer).await;
            buffer = back;
            if read? == 0 {
                return Err("the server closed the connection".into());
            }
            // Most answers come in one piece, and are looked at where they are.
            if answer.is_empty() && plan.is_answered(&buffer)? {
                break;
            }
            answer.extend_from_slice(&buffer);
            if plan.is_answered(&answer)? {
                break;
            }
        }
        let now = Instant::now();
        times.push(u64::try_from((now - started).as_nanos())?);
        started = now;
    }
    Ok(times)
}

async fn call_all(plan: Plan, requests: Vec<Vec<u8>>, connections: usize) -> Result<(), Failure> {
    let started = Instant::now();
    let plan = Rc::new(plan);
    let turns = requests.into_iter().cycle().take(connections);
    let tasks: Vec<_> = turns.map(|request| monoio::spawn(call(plan.clone(), request))).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.append(&mut task.await?);
    }
    let seconds = started.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, |nanoseconds| *nanoseconds as f64 / 1e9)
    };
    println!(
        "{{\"requests\": {}, \"seconds\": {seconds}, \"p50\": {}, \"p99\": {}}}",
        times.len(),
        at(50),
        at(99)
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, connections, seconds, expected] = words.as_slice() else {
        return Err("usage: caller ADDRESS CONNECTIONS SECONDS EXPECTED < REQUESTS".into());
    };
    let plan = Plan {
        address: address.parse()?,
        expected: expected.clone().into_bytes(),
        next_id: Cell::new(FIRST_ID),
        end: Instant::now() + Duration::from_secs(seconds.parse()?),
    };
    run(call_all(plan, requests()?, connections.parse()?))?
}
