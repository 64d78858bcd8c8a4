//! The reconnect storm: many streams are cut at one moment, and all are resumed at another.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};

use crate::expect::{Expected, Payload};
use crate::reader::{Manner, Reader};
use crate::run::Run;
use crate::session::Session;

/// Streams of one session.
const STREAMS_PER_SESSION: usize = 25;
/// Events of one stream, and milliseconds between two: the first stream outlives the opening of the
/// last on a busy machine too, and 5,000 streams leave the one thread of this program idle mostly.
const EVENTS: u64 = 40;
const INTERVAL_MS: u64 = 600;
/// From the opening of one stream to that of the next: the storm comes later.
const OPENING_TIME: Duration = Duration::from_micros(1000);
/// From the cut to the moment when all of them are resumed: the producers are done by then.
const AWAY: Duration = Duration::from_millis(EVENTS * INTERVAL_MS);
/// How long the opening may take before the streams that are open are cut without the others: a
/// stream that ends before it is cut is a fault.
const OPENING_TIME_MAX: Duration = AWAY.saturating_sub(Duration::from_secs(1));
/// How often it is looked whether all are open.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the readers of a storm share.
#[derive(Default)]
pub struct Storm {
    /// Streams whose first id has come.
    open: Cell<usize>,
    /// All connections are reset now.
    pub cut: Notify,
    /// When all of them come back.
    resume_at: Cell<Option<Instant>>,
}

impl Storm {
    /// One more stream can be found again.
    pub fn note_open(&self) {
        self.open.set(self.open.get() + 1);
    }

    /// How long a client that was cut stays away.
    pub fn time_away(&self) -> Duration {
        let resume_at = self.resume_at.get();
        resume_at.map_or(AWAY, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Cuts `streams` streams once all of them can be found again.
    async fn strike(&self, streams: usize) -> Instant {
        let deadline = Instant::now() + OPENING_TIME_MAX;
        while self.open.get() < streams && Instant::now() < deadline {
            sleep(LOOK_EVERY).await;
        }
        let resume_at = Instant::now() + AWAY;
        self.resume_at.set(Some(resume_at));
        self.cut.notify_waiters();
        resume_at
    }
}

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
    let readers = (0..streams).filter_map(|index| {
        let session = sessions.get(index / STREAMS_PER_SESSION)?;
        let arguments = format!(r#"{{"count":{EVENTS},"interval_ms":{INTERVAL_MS}}}"#);
        let (id, opening) = session.call("progress", &arguments);
        let payload = Payload::Progress(format!("t{id}"));
        let expected = Expected { payload, series: vec![EVENTS], call: Some(id) };
        let dice = run.dice("storm", index as u64);
        let reader = Reader::new(session, expected, opening, Manner::Storm, dice, false);
        let opened_at = started + OPENING_TIME * u32::try_from(index).unwrap_or(u32::MAX);
        Some(async move {
            sleep_until(opened_at.into()).await;
            reader.read().await;
        })
    });
    let (resume_at, _) = join(run.storm.strike(streams), join_all(readers)).await;
    let caught_up = resume_at.elapsed();
    for session in sessions {
        session.end().await?;
    }
    Ok(caught_up)
}
