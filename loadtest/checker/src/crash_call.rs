//! One stream that is read over crashes: of a call, or the standalone stream of a session.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::join;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::sleep;

use crate::crash::{Life, gone};
use crate::expect::{Expected, Payload};
use crate::http::{Connection, READ_BYTES, Response};
use crate::session::Session;
use crate::sse::Decoder;

/// How long one stream may take over all crashes.
const STREAM_TIME: Duration = Duration::from_secs(45);
/// How long a client that has stopped reading waits for the crash, before it reads on.
const STALL_TIME: Duration = Duration::from_millis(450);
/// Receive buffer of a client that reads slowly or not at all, bytes.
const SMALL_RECEIVE_BUFFER: u32 = 16 * 1024;
/// What marks the last series of a standalone stream: bytes of padding.
const LAST_SIZE: usize = 7;

/// How one connection reads.
#[derive(Clone, Copy)]
enum Manner {
    Fast,
    Slow,
    /// Takes so many events, and then leaves unread what its kernel acknowledges.
    Stalled(u64),
}

/// What is read of one stream, over all connections.
struct Seen {
    token: Option<String>,
    /// The newest event that was read whole; none before the priming event.
    cursor: Option<u64>,
    /// A hash of each event's data, from number 1.
    hashes: Vec<u64>,
    /// Whether the body goes on after the last event.
    endless: bool,
}

impl Seen {
    fn new(endless: bool) -> Self {
        Self { token: None, cursor: None, hashes: Vec::new(), endless }
    }

    /// The event is where it has to be, and what it was before.
    fn note(&mut self, number: u64, data: &str) -> Result<(), String> {
        let mut hasher = DefaultHasher::new();
        data.hash(&mut hasher);
        let hash = hasher.finish();
        let index = usize::try_from(number - 1).map_err(|_| format!("event {number}"))?;
        match self.hashes.get(index) {
            Some(known) if *known == hash => {}
            Some(_) => return Err(format!("event {number} is not what it was: {data:.200}")),
            None if index == self.hashes.len() => self.hashes.push(hash),
            None => return Err(format!("event {number} after {}", self.hashes.len())),
        }
        self.cursor = self.cursor.max(Some(number));
        Ok(())
    }
}

/// What a stream's events are given to; true after the last one.
type Judge<'a> = &'a mut dyn FnMut(&mut Seen, u64, &str) -> Result<bool, String>;

/// Makes the call, or resumes its stream; the head of the answer is that of a stream.
async fn open(
    session: &Session,
    seen: &Seen,
    (opening, presented): (&[u8], Option<u64>),
    receive_buffer: Option<u32>,
) -> io::Result<(Connection, Response)> {
    let mut connection = Connection::open(&session.run.target, receive_buffer).await?;
    match (&seen.token, presented) {
        (Some(token), Some(number)) => {
            connection.send(&session.get(Some(&format!("{token}.{number}")))).await?;
        }
        _ => connection.send(opening).await?,
    }
    let mut response = connection.response().await?;
    if response.status != 200 {
        let body = connection.body(&mut response).await?;
        return Err(wrong(format!("{} {}", response.status, String::from_utf8_lossy(&body))));
    }
    Ok((connection, response))
}

/// One connection: `Ok(true)` when the last event was read and the body has ended.
async fn connection(
    session: &Session,
    life: &Life,
    seen: &mut Seen,
    (opening, presented): (&[u8], Option<u64>),
    manner: Manner,
    judge: Judge<'_>,
) -> io::Result<bool> {
    let run = &session.run;
    let moment = life.moment();
    let small = (!matches!(manner, Manner::Fast)).then_some(SMALL_RECEIVE_BUFFER);
    let (mut connection, mut response) = open(session, seen, (opening, presented), small).await?;
    let (mut decoder, mut bytes) = (Decoder::default(), Vec::new());
    let (mut due, mut over, mut events) = (None, false, 0);
    let read_max = if matches!(manner, Manner::Slow) { 4 * 1024 } else { READ_BYTES };
    loop {
        bytes.clear();
        let more = connection.payload(&mut response, read_max, &mut bytes).await?;
        decoder.feed(&bytes);
        while let Some(block) = decoder.next().map_err(wrong)? {
            let id = block.id.unwrap_or_default();
            let (token, number) = id.rsplit_once('.').ok_or_else(|| wrong(format!("id {id}")))?;
            if number == "end" {
                return Err(wrong(format!("refused: {}", block.data.unwrap_or_default())));
            }
            let number: u64 = number.parse().map_err(|_| wrong(format!("id {id}")))?;
            if *seen.token.get_or_insert_with(|| token.to_owned()) != token {
                return Err(wrong(format!("{id} is of another stream")));
            }
            let Some(next) = due else {
                if presented.is_some_and(|presented| presented != number) {
                    return Err(wrong(format!("primed with {number} after {presented:?}")));
                }
                seen.cursor = seen.cursor.max(Some(number));
                due = Some(number + 1);
                continue;
            };
            if number != next || over {
                return Err(wrong(format!("event {number} where {next} was due, over: {over}")));
            }
            let data = block.data.unwrap_or_default();
            over = seen
                .note(number, &data)
                .and_then(|()| judge(seen, number, &data))
                .map_err(wrong)?;
            due = Some(number + 1);
            events += 1;
            run.stats.borrow_mut().events += 1;
            if over && seen.endless {
                return Ok(true);
            }
            if let Manner::Stalled(after) = manner
                && events == after
                && stalled(life, moment).await
            {
                run.count("connections with events that were acknowledged and not read");
                return Ok(false);
            }
        }
        if !more {
            return if over { Ok(true) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        if matches!(manner, Manner::Slow) {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Waits for the crash; false where none came.
async fn stalled(life: &Life, moment: (u64, bool)) -> bool {
    let started = Instant::now();
    while started.elapsed() < STALL_TIME {
        sleep(Duration::from_millis(5)).await;
        if life.moment() != moment {
            return true;
        }
    }
    false
}

fn some_manner(dice: &mut StdRng) -> Manner {
    match dice.random_range(0..10) {
        0..5 => Manner::Fast,
        5..7 => Manner::Slow,
        _ => Manner::Stalled(dice.random_range(1..40)),
    }
}

/// A call and its stream.
pub struct Call {
    /// Its session.
    pub session: Rc<Session>,
    life: Rc<Life>,
    expected: Expected,
    opening: Vec<u8>,
    seen: Seen,
    /// The number of the last event, once it was read.
    end: Option<u64>,
    born: u64,
}

impl Call {
    /// A call that will be made with the request `opening`.
    pub fn new(
        session: &Rc<Session>,
        life: &Rc<Life>,
        expected: Expected,
        opening: Vec<u8>,
    ) -> Self {
        let (session, life) = (Rc::clone(session), Rc::clone(life));
        let born = life.crashes.get();
        Self { session, life, expected, opening, seen: Seen::new(false), end: None, born }
    }

    /// Whether it was read to its end.
    pub fn is_whole(&self) -> bool {
        self.end.is_some()
    }

    /// Makes the call and reads its stream to the end, whatever happens to the server.
    pub async fn read(mut self, mut dice: StdRng) -> Result<Self, String> {
        match self.try_read(&mut dice).await {
            Ok(()) => Ok(self),
            Err(what) => {
                let (id, call, at) = (&self.session.id, self.expected.call, self.seen.cursor);
                let series = &self.expected.series;
                Err(format!("session {id}, call {call:?} of {series:?}, at {at:?}: {what}"))
            }
        }
    }

    async fn try_read(&mut self, dice: &mut StdRng) -> Result<(), String> {
        let started = Instant::now();
        let run = Rc::clone(&self.session.run);
        while started.elapsed() < STREAM_TIME {
            let presented = self.seen.cursor.map(|cursor| match dice.random_bool(0.1) {
                true => dice.random_range(0..=cursor),
                false => cursor,
            });
            if presented.is_some() {
                run.count("resumes");
            }
            let moment = self.life.moment();
            match self.one(presented, some_manner(dice)).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    if !self.life.excuses(moment) {
                        return Err("refused, and there was no crash".to_owned());
                    }
                    sleep(Duration::from_millis(10)).await;
                    continue;
                }
                Err(error) if gone(&error) && self.life.excuses(moment) => {}
                Err(error) => return Err(error.to_string()),
            }
            if self.is_whole() {
                // Its last event was read, and the crash cut off what ends the body.
                return Ok(());
            }
            if self.seen.cursor.is_none() {
                // A call whose client was cut off before it had an id cannot be found again.
                run.count("calls without an id");
                return Ok(());
            }
            sleep(Duration::from_millis(dice.random_range(0..20))).await;
        }
        Err(format!("not over after {STREAM_TIME:?}"))
    }

    async fn one(&mut self, presented: Option<u64>, manner: Manner) -> io::Result<bool> {
        let Self { session, life, expected, opening, seen, end, born } = self;
        let crashed = life.crashes.get() > *born;
        let run = &session.run;
        let mut judge = |_: &mut Seen, number: u64, data: &str| {
            if let Some(end) = *end {
                return Ok(number >= end);
            }
            if data.contains(r#""reason":"restarted""#) {
                let call = expected.call.unwrap_or_default();
                if !crashed || !data.contains(&format!(r#""id":{call},"error""#)) {
                    return Err(format!("event {number} ends another call, or without a crash"));
                }
                if number > expected.tail() {
                    return Err(format!("event {number} after the result"));
                }
                run.count("calls ended by a crash");
            } else {
                expected.check(number, data)?;
                if number < expected.tail() {
                    return Ok(false);
                }
                run.count("calls whole");
            }
            *end = Some(number);
            Ok(true)
        };
        connection(session, life, seen, (opening, presented), manner, &mut judge).await
    }

    /// The whole stream once more, after a later crash: the same bytes, and then nothing.
    pub async fn read_again(&mut self) -> Result<(), String> {
        let what = |error: io::Error| format!("read again, session: {error}");
        match self.one(Some(0), Manner::Fast).await.map_err(what)? {
            true => Ok(()),
            false => Err("a finished call is not whole any more".to_owned()),
        }
    }
}

/// The standalone stream of a session, and the calls that feed it.
pub struct Feed {
    session: Rc<Session>,
    life: Rc<Life>,
    dice: StdRng,
}

impl Feed {
    /// The feed of a session.
    pub fn new(session: &Rc<Session>, life: &Rc<Life>, dice: StdRng) -> Self {
        Self { session: Rc::clone(session), life: Rc::clone(life), dice }
    }

    /// Feeds it in several series, and reads it to the end of the last one.
    pub async fn run(mut self) -> Result<(), String> {
        let size = 64;
        let counts: Vec<u64> = (0..3).map(|_| self.dice.random_range(20..150)).collect();
        let calls = async {
            let series = counts.iter().map(|&count| (count, size)).chain([(3, LAST_SIZE)]);
            for (count, size) in series {
                loop {
                    let arguments = format!(r#"{{"count":{count},"size":{size},"interval_ms":1}}"#);
                    let (id, opening) = self.session.call("standalone", &arguments);
                    let payload = Payload::Padded(size);
                    let expected = Expected { payload, series: Vec::new(), call: Some(id) };
                    let call = Call::new(&self.session, &self.life, expected, opening);
                    let own = self.session.run.dice("feeding", id);
                    let call = call.read(own).await?;
                    // The last series has to be whole.
                    if size != LAST_SIZE || call.is_whole() && call.born == self.life.crashes.get()
                    {
                        break;
                    }
                }
            }
            Ok::<(), String>(())
        };
        let reading = listen(&self.session, &self.life, &mut self.dice);
        let (called, read) = join(calls, reading).await;
        called?;
        read.map_err(|what| format!("session {}, standalone stream: {what}", self.session.id))
    }
}

/// Reads the standalone stream until the last series is whole.
async fn listen(session: &Session, life: &Life, dice: &mut StdRng) -> Result<(), String> {
    let (started, mut seen) = (Instant::now(), Seen::new(true));
    let opening = session.get(None);
    let mut series: Vec<(u64, usize)> = Vec::new();
    while started.elapsed() < STREAM_TIME {
        let moment = life.moment();
        let presented = seen.cursor;
        let mut judge = |seen: &mut Seen, number: u64, data: &str| {
            let (sequence, size) =
                numbered(data).ok_or_else(|| format!("no number: {data:.200}"))?;
            let known = usize::try_from(number).unwrap_or(usize::MAX) <= series.len();
            if !known {
                let before = series.last().copied().unwrap_or_default();
                let goes_on = sequence == before.0 + 1 && size == before.1;
                if !goes_on && sequence != 1 {
                    return Err(format!("{sequence} of {size} bytes after {before:?}"));
                }
                series.push((sequence, size));
            }
            Ok(seen.cursor == Some(number) && (sequence, size) == (3, LAST_SIZE))
        };
        let manner = some_manner(dice);
        let read =
            connection(session, life, &mut seen, (&opening, presented), manner, &mut judge).await;
        let last = series.last() == Some(&(3, LAST_SIZE));
        match read {
            Ok(_) => {}
            Err(error) if gone(&error) && life.excuses(moment) => {}
            Err(error) => return Err(error.to_string()),
        }
        if last {
            session.run.count("standalone streams whole");
            return Ok(());
        }
        sleep(Duration::from_millis(dice.random_range(1..20))).await;
    }
    Err(format!("its last series did not come within {STREAM_TIME:?}"))
}

/// Sequence number and bytes of padding of a numbered message.
fn numbered(data: &str) -> Option<(u64, usize)> {
    let message: serde_json::Value = serde_json::from_str(data).ok()?;
    let data = message.get("params")?.get("data")?;
    Some((data.get("seq")?.as_u64()?, data.get("pad")?.as_str()?.len()))
}

fn wrong(what: impl AsRef<str>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.as_ref().to_owned())
}
