//! A large stream that nobody reads, and small calls beside it: on its own session, and on another.
//!
//! Invariant: what is compared is measured by the same two clients in the same run, first while the
//! server has nothing else to do, then while the stream is unread.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::{join, try_join};
use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::expect::{Expected, Payload};
use crate::http::Connection;
use crate::reader::{Manner, Reader};
use crate::run::{Run, new_times};
use crate::session::{ECHO_ARGUMENTS, Session};

/// Bytes of padding of one event.
const EVENT_BYTES: usize = 1000;
/// Events that are read before the reading stops.
const EVENTS_READ: u64 = 10;
/// Pause between two small calls.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a small call may take before it counts as not answered.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// The line that is printed before the stream is read on.
const UNREAD_OVER: &str = "unread no more";

/// What the small calls saw; times in microseconds.
#[derive(Serialize)]
struct Calls {
    answered: u64,
    unanswered: u64,
    p50: u64,
    p99: u64,
    max: u64,
}

/// One phase: calls on the stream's own session, and on another.
#[derive(Serialize)]
struct Phase {
    own: Calls,
    other: Calls,
}

/// What was found.
#[derive(Serialize)]
pub struct Found {
    idle: Phase,
    unread: Phase,
    /// How the stream ended for a client that then read on: `whole`, or the refusal of its resume.
    end: String,
}

/// Leaves a stream of `mebibytes` unread for `time`, after as much time without it. A `foreign`
/// server's stream is not read on afterwards: what its events are is not known here.
///
/// # Errors
/// What kept the sessions or the stream from being opened, or a wrong answer.
pub async fn unread(
    run: &Rc<Run>,
    mebibytes: u64,
    time: Duration,
    foreign: bool,
) -> io::Result<Found> {
    let started = || io::Error::other("no session");
    let own = Session::start(run).await?.ok_or_else(started)?;
    let other = Session::start(run).await?.ok_or_else(started)?;
    let idle = phase(&own, &other, time).await?;
    let count = mebibytes * 1024 * 1024 / EVENT_BYTES as u64;
    let arguments = format!(r#"{{"count":{count},"size":{EVENT_BYTES}}}"#);
    let (id, opening) = own.call("stream", &arguments);
    let stream = async {
        if foreign {
            return hold(&own, &opening, time).await;
        }
        let payload = Payload::Padded(EVENT_BYTES);
        let expected = Expected { payload, series: vec![count], call: Some(id) };
        let manner = Manner::Stalled { after: EVENTS_READ, time };
        let dice = run.dice("unread", 0);
        Reader::new(&own, expected, opening, manner, dice, true).read().await;
        let stats = run.stats.borrow();
        Ok(stats.refusals.keys().next().cloned().unwrap_or_else(|| "whole".to_owned()))
    };
    let beside = async {
        let seen = phase(&own, &other, time).await;
        // Whoever watches the server's memory wants to know until when the stream was unread.
        println!("{UNREAD_OVER}");
        seen
    };
    let (unread, end) = join(beside, stream).await;
    Ok(Found { idle, unread: unread?, end: end? })
}

/// Opens the stream, reads its head, and lets it stand for `time`.
async fn hold(session: &Session, opening: &[u8], time: Duration) -> io::Result<String> {
    let mut connection = Connection::open(&session.run.target, None).await?;
    connection.send(opening).await?;
    let response = connection.response().await?;
    if response.status != 200 {
        return Err(io::Error::other(format!("the stream: {}", response.status)));
    }
    sleep(time).await;
    connection.reset();
    Ok("reset".to_owned())
}

async fn phase(own: &Session, other: &Session, time: Duration) -> io::Result<Phase> {
    let until = Instant::now() + time;
    let (own, other) = try_join(calls(own, until), calls(other, until)).await?;
    Ok(Phase { own, other })
}

/// One small call after the other.
async fn calls(session: &Session, until: Instant) -> io::Result<Calls> {
    let mut times: Histogram<u64> = new_times();
    let mut unanswered = 0;
    let mut connection = Connection::open(&session.run.target, None).await?;
    while Instant::now() < until {
        let (id, request) = session.call("echo", ECHO_ARGUMENTS);
        let started = Instant::now();
        match timeout(ANSWER_TIME, connection.ask(&request)).await {
            Ok(answer) => {
                let (response, body) = answer?;
                let microseconds = u64::try_from(started.elapsed().as_micros());
                times.saturating_record(microseconds.unwrap_or(u64::MAX));
                session.check_echo(id, &response, &body)?;
            }
            Err(_) => {
                unanswered += 1;
                connection = Connection::open(&session.run.target, None).await?;
            }
        }
        sleep(PAUSE).await;
    }
    Ok(Calls {
        answered: times.len(),
        unanswered,
        p50: times.value_at_quantile(0.5),
        p99: times.value_at_quantile(0.99),
        max: times.max(),
    })
}
