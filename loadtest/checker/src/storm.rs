//! The reconnect storm: many streams are cut at one moment, and all are resumed at another.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep_until;

use crate::expect::{Expected, Payload};
use crate::reader::{Manner, Reader};
use crate::run::Run;
use crate::session::Session;

/// Streams of one session.
const STREAMS_PER_SESSION: usize = 25;
/// Events of one stream, and milliseconds between two: they outlive the cut, and 5,000 streams leave
/// the one thread of this program half idle.
const EVENTS: u64 = 40;
const INTERVAL_MS: u64 = 200;
/// When the streams are cut, after the last one was opened.
const CUT_AFTER: Duration = Duration::from_millis(2500);
/// From the opening of one stream to that of the next: the storm comes later.
const OPENING_TIME: Duration = Duration::from_micros(1000);
/// From the cut to the moment when all of them are resumed: the producers are done by then.
const AWAY: Duration = Duration::from_secs(8);

/// Cuts `streams` streams at once and resumes them; the time from the first resume to the last
/// stream that has caught up.
///
/// # Errors
/// What kept the streams from being opened.
pub async fn storm(run: &Rc<Run>, streams: usize) -> io::Result<Duration> {
    let mut sessions = Vec::new();
    for _ in 0..streams.div_ceil(STREAMS_PER_SESSION) {
        sessions.extend(Session::start(run).await?);
    }
    let started = Instant::now();
    let opening = OPENING_TIME.saturating_mul(u32::try_from(streams).unwrap_or(u32::MAX));
    let cut_at = started + CUT_AFTER + opening;
    let resume_at = cut_at + AWAY;
    let readers = (0..streams).filter_map(|index| {
        let session = sessions.get(index / STREAMS_PER_SESSION)?;
        let arguments = format!(r#"{{"count":{EVENTS},"interval_ms":{INTERVAL_MS}}}"#);
        let (id, opening) = session.call("progress", &arguments);
        let payload = Payload::Progress(format!("t{id}"));
        let expected = Expected { payload, series: vec![EVENTS], call: Some(id) };
        let manner = Manner::Storm { cut_at, resume_at };
        let dice = run.dice("storm", index as u64);
        let reader = Reader::new(session, expected, opening, manner, dice, false);
        let opened_at = started + OPENING_TIME * u32::try_from(index).unwrap_or(u32::MAX);
        Some(async move {
            sleep_until(opened_at.into()).await;
            reader.read().await;
        })
    });
    join_all(readers).await;
    let caught_up = resume_at.elapsed();
    for session in sessions {
        session.end().await?;
    }
    Ok(caught_up)
}
