//! A client that reads one stream to its end, in one of several manners, and checks every event.
//!
//! Invariants: on each connection the events are N+1, N+2, ... after the cursor it presented, and
//! nothing else; a cursor is an event that was read whole; the stream is read to its last event,
//! once, or a fault says why not.

use std::cell::{Cell, OnceCell};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join_all, select};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::sleep;

use crate::expect::Expected;
use crate::http::{self, Connection, READ_BYTES, Response};
use crate::server::IDLE_SECONDS;
use crate::session::Session;
use crate::sse::Decoder;

/// Receive buffer of a slow client, bytes: its server notices at once.
const SMALL_RECEIVE_BUFFER: u32 = 16 * 1024;
/// Reads of a slow client in each second.
const READS_PER_SECOND: u64 = 20;
/// Resets after which a resetting client reads on, so that it comes to an end.
const RESETS_MAX: u32 = 25;
const SMOKE_RESETS_MAX: u32 = 4;
/// Connections for one stream after which it is going nowhere.
const CONNECTIONS_MAX: u32 = 100;

/// How a client reads.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// As fast as it can.
    Fast,
    /// So many bytes in a second, out of a small receive buffer.
    Slow {
        /// Its rate.
        bytes_per_second: u64,
    },
    /// Not at all for a time, after so many events.
    Stalled {
        /// Events before it.
        after: u64,
        /// How long.
        time: Duration,
    },
    /// Cuts its connection with RST after some events, and comes back; sometimes with an older
    /// cursor.
    Resetting,
    /// Sends FIN behind its request, then reads.
    HalfClosing,
    /// As `Resetting`, and comes back with several connections at once.
    Racing,
    /// Is cut when the run's storm says so, and comes back at the moment that it names.
    Storm,
}

/// What one connection does.
#[derive(Clone, Copy)]
struct Plan {
    manner: Manner,
    /// Events after which it is reset.
    reset_after: Option<u64>,
}

/// How one connection ended.
enum Outcome {
    /// The last event was read, or was seen before.
    Finished,
    /// In the middle, after this event; `None` before the first id.
    Cut { after: Option<u64>, by_us: bool },
    /// The server refused to go on.
    Refused(String),
}

/// A client of one stream.
pub struct Reader<'a> {
    session: &'a Session,
    expected: Expected,
    opening: Vec<u8>,
    manner: Manner,
    dice: StdRng,
    /// Whether the stream is larger than its log, so that a budget may cut it.
    large: bool,
    token: OnceCell<String>,
    opened: Instant,
}

impl<'a> Reader<'a> {
    /// A client that will open the stream with the request `opening`.
    pub fn new(
        session: &'a Session,
        expected: Expected,
        opening: Vec<u8>,
        manner: Manner,
        dice: StdRng,
        large: bool,
    ) -> Self {
        Self {
            session,
            expected,
            opening,
            manner,
            dice,
            large,
            token: OnceCell::new(),
            opened: Instant::now(),
        }
    }

    /// Reads the stream; what is wrong becomes a fault of the run.
    pub async fn read(mut self) {
        let run = &self.session.run;
        match self.read_to_the_end().await {
            Ok(()) => run.count("streams whole"),
            Err(what) => {
                let (session, manner, expected) = (&self.session.id, self.manner, &self.expected);
                let series = &expected.series;
                let about = format!("{:?} of {series:?} events, {manner:?}", expected.call);
                run.fault(format!("session {session}, call {about}: {what}"));
            }
        }
    }

    async fn read_to_the_end(&mut self) -> Result<(), String> {
        let run = self.session.run.clone();
        let mut cursor = None;
        let mut resets = 0;
        for connections in 0..CONNECTIONS_MAX {
            if connections > 0 {
                run.count("reconnects");
                let pause = match self.manner {
                    Manner::Storm => run.storm.time_away(),
                    _ => Duration::from_millis(self.dice.random_range(0..=300)),
                };
                sleep(pause).await;
            }
            let plan = self.plan(&mut resets);
            let racers = match self.manner {
                Manner::Racing if cursor.is_some() => self.dice.random_range(1..=4),
                _ => 1,
            };
            let presented = cursor.map(|cursor| self.rewound(cursor));
            let outcomes = join_all((0..racers).map(|_| self.connection(presented, plan))).await;
            for _ in 1..racers {
                run.count("take-overs");
            }
            let mut furthest = cursor;
            for outcome in outcomes {
                match outcome? {
                    Outcome::Finished if connections == 0 && self.is_stormy() => {
                        return Err("ended before the storm could cut it".to_owned());
                    }
                    Outcome::Finished => return self.after_the_end().await,
                    Outcome::Cut { after, by_us } => {
                        let excused = by_us
                            || racers > 1
                            || self.large
                            || matches!(self.manner, Manner::HalfClosing);
                        if !excused {
                            return Err(format!("the server closed it after {after:?}"));
                        }
                        furthest = furthest.max(after);
                    }
                    Outcome::Refused(class) if self.large => {
                        run.refusal(format!("{class} (larger than its log)"));
                        return Ok(());
                    }
                    Outcome::Refused(_) if self.may_have_expired() => {
                        run.refusal("a stream older than its retention".to_owned());
                        return Ok(());
                    }
                    Outcome::Refused(class) => {
                        return Err(format!("refused after {cursor:?}: {class}"));
                    }
                }
            }
            if furthest.is_none() && self.expected.call.is_some() {
                // A call whose client went away before it had an id cannot be found again.
                if self.is_stormy() {
                    return Err("cut by the storm before its first id".to_owned());
                }
                run.count("calls without an id");
                return Ok(());
            }
            cursor = furthest;
        }
        Err(format!("not whole after {CONNECTIONS_MAX} connections, at {cursor:?}"))
    }

    fn is_stormy(&self) -> bool {
        matches!(self.manner, Manner::Storm)
    }

    /// Whether the stream may have been finished for so long that it is no longer kept. It was not
    /// finished before it was opened; more is not known here.
    fn may_have_expired(&self) -> bool {
        self.opened.elapsed() > Duration::from_secs(IDLE_SECONDS - 1)
    }

    fn plan(&mut self, resets: &mut u32) -> Plan {
        let events = self.expected.events().max(1);
        let mut plan = Plan { manner: self.manner, reset_after: None };
        let most = if self.session.run.smoke { SMOKE_RESETS_MAX } else { RESETS_MAX };
        if matches!(self.manner, Manner::Resetting | Manner::Racing) && *resets < most {
            *resets += 1;
            plan.reset_after = Some(self.dice.random_range(0..=events / 3 + 2));
        }
        plan
    }

    /// The cursor, or sometimes an older one.
    fn rewound(&mut self, cursor: u64) -> u64 {
        // What a budget may have dropped is not asked for again.
        if self.large || cursor == 0 || !self.dice.random_bool(0.1) {
            return cursor;
        }
        self.session.run.count("rewinds");
        self.dice.random_range(0..cursor)
    }

    /// A finished stream can be read again for a while, and says that it is over.
    async fn after_the_end(&mut self) -> Result<(), String> {
        let Some(token) = self.token.get() else { return Ok(()) };
        if self.expected.call.is_none() || self.large || self.may_have_expired() {
            return Ok(());
        }
        if self.dice.random_bool(0.1) {
            self.session.run.count("whole replays");
            let plan = Plan { manner: Manner::Fast, reset_after: None };
            match self.connection(Some(0), plan).await? {
                Outcome::Finished => {}
                _ => return Err("a finished stream is not there again".to_owned()),
            }
        }
        if self.dice.random_bool(0.2) {
            let cursor = format!("{token}.{}", self.expected.tail());
            let answer = async {
                let mut connection = Connection::open(&self.session.run.target, None).await?;
                connection.ask(&self.session.get(Some(&cursor))).await
            };
            let (response, _) = answer.await.map_err(|error| format!("at its end: {error}"))?;
            if response.status != 405 {
                return Err(format!("at its end: {} instead of 405", response.status));
            }
            self.session.run.refusal("405 all was seen".to_owned());
        }
        Ok(())
    }

    /// One connection, from the request to its end.
    async fn connection(&self, presented: Option<u64>, plan: Plan) -> Result<Outcome, String> {
        let at = Cell::new(presented);
        let read = self.try_connection(&at, plan);
        let read = match plan.manner {
            Manner::Storm if presented.is_none() => {
                let cut = pin!(self.session.run.storm.cut.notified());
                match select(pin!(read), cut).await {
                    Either::Left((read, _)) => read,
                    Either::Right(_) => {
                        return Ok(Outcome::Cut { after: at.get(), by_us: true });
                    }
                }
            }
            _ => read.await,
        };
        match read {
            Ok(outcome) => Ok(outcome),
            Err(error) if http::is_cut(&error) => {
                Ok(Outcome::Cut { after: at.get(), by_us: false })
            }
            Err(error) => Err(format!("after {:?}: {error}", at.get())),
        }
    }

    async fn try_connection(&self, at: &Cell<Option<u64>>, plan: Plan) -> io::Result<Outcome> {
        let run = &self.session.run;
        let slow = matches!(plan.manner, Manner::Slow { .. } | Manner::Stalled { .. });
        let receive_buffer = slow.then_some(SMALL_RECEIVE_BUFFER);
        let mut connection = Connection::open(&run.target, receive_buffer).await?;
        if matches!(plan.manner, Manner::Storm) {
            // It may be dropped at any moment, and must not end in order then.
            connection.reset_when_dropped()?;
        }
        let presented = at.get();
        let cursor = match (presented, self.token.get()) {
            (Some(number), Some(token)) => Some(format!("{token}.{number}")),
            _ => None,
        };
        let started = Instant::now();
        match &cursor {
            Some(cursor) => connection.send(&self.session.get(Some(cursor))).await?,
            None => connection.send(&self.opening).await?,
        }
        if matches!(plan.manner, Manner::HalfClosing) {
            connection.half_close().await?;
            run.count("half-closes");
        }
        let mut response = connection.response().await?;
        run.time(if cursor.is_some() { "resume, head" } else { "stream, head" }, started);
        if response.status == 200 && !response.is_event_stream() && cursor.is_none() {
            let body = connection.body(&mut response).await?;
            let checked = self.expected.check_answer(&String::from_utf8_lossy(&body));
            return checked.map(|()| Outcome::Finished).map_err(wrong);
        }
        if response.status != 200 {
            // All was read, and the connection ended before its last chunk.
            if response.status == 405 && presented == Some(self.expected.tail()) {
                return Ok(Outcome::Finished);
            }
            let body = connection.body(&mut response).await?;
            let body = String::from_utf8_lossy(&body);
            return Ok(Outcome::Refused(format!("{} {}", response.status, reason(&body))));
        }
        self.events(connection, response, at, plan).await
    }

    async fn events(
        &self,
        mut connection: Connection,
        mut response: Response,
        at: &Cell<Option<u64>>,
        plan: Plan,
    ) -> io::Result<Outcome> {
        let presented = at.get();
        let mut primed = false;
        let (mut events, mut decoder, mut bytes) = (0, Decoder::default(), Vec::new());
        let (read_max, pause) = match plan.manner {
            Manner::Slow { bytes_per_second } => {
                let most =
                    usize::try_from(bytes_per_second / READS_PER_SECOND).unwrap_or(READ_BYTES);
                (most.max(16), Some(Duration::from_millis(1000 / READS_PER_SECOND)))
            }
            _ => (READ_BYTES, None),
        };
        loop {
            bytes.clear();
            let more = connection.payload(&mut response, read_max, &mut bytes).await?;
            self.session.run.stats.borrow_mut().bytes += bytes.len() as u64;
            decoder.feed(&bytes);
            while let Some(block) = decoder.next().map_err(wrong)? {
                let id = block.id.ok_or_else(|| wrong("an event without an id"))?;
                if id.ends_with(".end") {
                    let data = block.data.unwrap_or_default();
                    return Ok(Outcome::Refused(format!("in-band {}", reason(&data))));
                }
                let number = self.number(&id)?;
                if !primed {
                    if presented.is_some_and(|presented| presented != number) {
                        return Err(wrong(format!("primed with {id} after {presented:?}")));
                    }
                    at.set(Some(number));
                    primed = true;
                    if matches!(plan.manner, Manner::Storm) && presented.is_none() {
                        self.session.run.storm.note_open();
                    }
                } else {
                    self.event(at, number, &block.data.unwrap_or_default())?;
                    events += 1;
                }
                if plan.reset_after.is_some_and(|most| events >= most)
                    && number < self.expected.tail()
                {
                    connection.reset();
                    return Ok(Outcome::Cut { after: at.get(), by_us: true });
                }
                if self.expected.call.is_none() && number == self.expected.tail() {
                    return Ok(Outcome::Finished);
                }
                if let Manner::Stalled { after, time } = plan.manner
                    && events == after
                {
                    sleep(time).await;
                    events += 1;
                }
            }
            if !more {
                return self.ended(at, &decoder);
            }
            if let Some(pause) = pause {
                sleep(pause).await;
            }
        }
    }

    /// One event, in its place.
    fn event(&self, at: &Cell<Option<u64>>, number: u64, data: &str) -> io::Result<()> {
        let due = at.get().map_or(1, |last| last + 1);
        if number != due {
            return Err(wrong(format!("event {number} where {due} was due")));
        }
        self.expected.check(number, data).map_err(wrong)?;
        at.set(Some(number));
        self.session.run.stats.borrow_mut().events += 1;
        Ok(())
    }

    /// The last chunk has come.
    fn ended(&self, at: &Cell<Option<u64>>, decoder: &Decoder) -> io::Result<Outcome> {
        if decoder.is_mid_block() {
            return Err(wrong("the body ended in the middle of an event"));
        }
        if at.get() == Some(self.expected.tail()) {
            return Ok(Outcome::Finished);
        }
        Ok(Outcome::Cut { after: at.get(), by_us: false })
    }

    fn number(&self, id: &str) -> io::Result<u64> {
        let (token, number) = id.rsplit_once('.').ok_or_else(|| wrong(format!("the id {id}")))?;
        let number = number.parse().map_err(|_| wrong(format!("the id {id}")))?;
        match self.token.get() {
            Some(known) if known == token => Ok(number),
            Some(_) => Err(wrong(format!("{id} is of another stream"))),
            None if self.session.run.is_new_token(token) => {
                self.token.get_or_init(|| token.to_owned());
                Ok(number)
            }
            None => Err(wrong(format!("{id} was another stream's before"))),
        }
    }
}

fn wrong(what: impl AsRef<str>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.as_ref().to_owned())
}

/// The `reason` of an error, or all of it where it has none.
fn reason(error: &str) -> &str {
    let found = error.split_once(r#""reason":""#).and_then(|(_, rest)| rest.split_once('"'));
    found.map_or(error, |(reason, _)| reason)
}
