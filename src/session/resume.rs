//! `Last-Event-ID`: whether a cursor can be served, and what a client is told when it cannot.
//!
//! The checks touch nothing until a cursor is admitted, so a refused resume never disturbs the
//! healthy connection of that stream.

use std::time::{Duration, Instant};

use crate::http::sse;
use crate::limits::EVENT_ID_BYTES_MAX;
use crate::mcp::event_id::{self, Cursor};
use crate::mcp::jsonrpc::{self, codes};
use crate::stream::resume::Class;
use crate::stream::takeover::Lost;
use crate::stream::{Attached, Start, Takeover};

use super::streams::STANDALONE;
use super::{RETRY_MS, Session};

/// How many older epochs of a session are recognised.
const EPOCHS_KNOWN: u32 = 8;

/// A refused resume, with what a log line and a counter want to know.
#[derive(Debug)]
pub struct Refusal {
    /// Why.
    pub class: Class,
    /// The stream, where the cursor is genuine.
    pub stream: Option<u32>,
    /// The number, where the cursor is genuine.
    pub number: Option<u64>,
    /// Oldest event kept.
    pub floor: u64,
    /// Newest event.
    pub tail: u64,
    /// What the client is told.
    pub answer: RefusalAnswer,
}

/// The form of a refusal on the wire.
#[derive(Debug)]
pub enum RefusalAnswer {
    /// 200 and a stream of these bytes, then its end: the one form that every client reports.
    InBand(Vec<u8>),
    /// 405 with this body: everything was seen, ask no more.
    Over(Vec<u8>),
    /// 410 with this body.
    Gone(Vec<u8>),
    /// 400 with this body, the same for every cursor that is not ours.
    Unknown(Vec<u8>),
}

impl Session {
    /// A GET without a cursor: a new listener of the standalone stream. It is never refused.
    pub fn listen(&mut self, now: Instant) -> (u32, Takeover) {
        self.used = now;
        let entry = self.streams.get_mut(STANDALONE).expect("a session has its standalone stream");
        let takeover = Takeover::begin(&mut entry.stream, Start::Fresh);
        (STANDALONE, takeover.expect("only a cursor can be refused"))
    }

    /// A GET with a cursor: admission and fence, or what to tell the client.
    pub fn resume(&mut self, now: Instant, raw: &[u8]) -> Result<(u32, Takeover), Refusal> {
        self.used = now;
        let Some(cursor) = self.cursor(raw) else { return Err(unknown()) };
        let (stream, epoch, number) = match cursor {
            Cursor::Number { stream, epoch, number } => (stream, epoch, number),
            Cursor::End { stream, .. } => return Err(self.over(stream, None)),
        };
        if epoch != self.epoch {
            return Err(self.refuse(stream, number, Class::EpochChanged, raw));
        }
        let Some(entry) = self.streams.get_mut(stream) else {
            return Err(self.refuse_buried(stream, number, raw));
        };
        match Takeover::begin(&mut entry.stream, Start::After(number)) {
            Ok(takeover) => Ok((stream, takeover)),
            Err(class) => {
                if class == Class::FinishedSeen {
                    entry.stream.handle_named(number);
                }
                Err(self.refuse(stream, number, class, raw))
            }
        }
    }

    /// The connection that posted attaches to its new stream, before the first event.
    pub fn attach_first(&mut self, stream: u32) -> Option<Attached> {
        let entry = self.streams.get_mut(stream)?;
        let takeover = Takeover::begin(&mut entry.stream, Start::Fresh).ok()?;
        takeover.must_close().is_none().then(|| self.streams.attach(stream, takeover)?.ok())?
    }

    /// The fenced connection is gone: attach, or find that another has won or the log has moved.
    pub fn attach(
        &mut self,
        stream: u32,
        takeover: Takeover,
        raw: &[u8],
    ) -> Result<Attached, Option<Refusal>> {
        match self.streams.attach(stream, takeover) {
            Some(Ok(attached)) => Ok(attached),
            None | Some(Err(Lost::Superseded)) => Err(None),
            Some(Err(Lost::Refused(class, number))) => {
                Err(Some(self.refuse(stream, number, class, raw)))
            }
        }
    }

    /// How long the answer to one more GET for this cursor's stream should wait.
    pub fn reattach_delay(&mut self, now: Instant, raw: Option<&[u8]>) -> Option<Duration> {
        let stream = match raw.map(|raw| self.cursor(raw)) {
            None => STANDALONE,
            Some(Some(Cursor::Number { stream, .. } | Cursor::End { stream, .. })) => stream,
            Some(None) => return None,
        };
        self.streams.reattach_delay(now, stream)
    }

    fn cursor(&self, raw: &[u8]) -> Option<Cursor> {
        event_id::verify(raw, &self.settings.key, &self.id, self.epoch, EPOCHS_KNOWN)
    }

    /// What opens the stream for a new connection: the priming block, and where a listener
    /// without a cursor has missed events, a marker, so that the stream does not look whole.
    pub fn prologue(&self, stream: u32, attached: &Attached, out: &mut Vec<u8>) {
        let Some(entry) = self.streams.get(stream) else { return };
        let mut id = Vec::with_capacity(EVENT_ID_BYTES_MAX);
        entry.push_id(attached.after, &mut id);
        match &self.endpoint {
            Some(uri) => sse::endpoint(out, &id, RETRY_MS, uri.as_bytes()),
            None => {
                let with_data = self.revision.has_empty_priming();
                sse::priming(out, &id, Some(RETRY_MS), with_data);
            }
        }
        if let Some((first, last)) = attached.gap {
            let mut marker = Vec::with_capacity(256);
            let data = format!(
                r#"{{"reason":"log_truncated","first_missed":{first},"last_missed":{last}}}"#
            );
            let params = format!(r#"{{"level":"error","logger":"gapless","data":{data}}}"#);
            jsonrpc::notification(&mut marker, "notifications/message", Some(&params));
            sse::event_with_id(out, &id, &marker);
        }
    }

    /// A genuine cursor of a stream whose events are gone.
    fn refuse_buried(&self, stream: u32, number: u64, raw: &[u8]) -> Refusal {
        match self.streams.tombstone(stream) {
            Some(tombstone) if tombstone.tail == number => self.over(stream, Some(number)),
            Some(_) => self.refuse(stream, number, Class::Truncated, raw),
            None => {
                let data = r#"{"reason":"expired"}"#;
                let mut body = Vec::new();
                let message = "the stream of this cursor has expired";
                jsonrpc::error(&mut body, None, codes::LOG_TRUNCATED, message, Some(data));
                Refusal {
                    class: Class::Expired,
                    stream: Some(stream),
                    number: Some(number),
                    floor: 0,
                    tail: 0,
                    answer: RefusalAnswer::Gone(body),
                }
            }
        }
    }

    fn refuse(&self, stream: u32, number: u64, class: Class, raw: &[u8]) -> Refusal {
        if class == Class::FinishedSeen {
            return self.over(stream, Some(number));
        }
        let (code, reason, message) = match class {
            Class::LogFailed => {
                let message = "events after this cursor cannot be read from the log";
                (codes::LOG_FAILED, "log_failed", message)
            }
            Class::Ahead => (codes::CURSOR_AHEAD, "cursor_ahead", "this event was never sent"),
            Class::EpochChanged => {
                let message = "the cursor is of a log that no longer exists";
                (codes::EPOCH_CHANGED, "epoch_changed", message)
            }
            _ => {
                let message = "events after this cursor are no longer kept";
                (codes::LOG_TRUNCATED, "log_truncated", message)
            }
        };
        let (floor, tail) = self.bounds(stream);
        let epoch = self.epoch;
        let bounds = format!(r#""floor":{floor},"tail":{tail},"epoch":{epoch}"#);
        let mut data = format!(r#"{{"reason":"{reason}","requested":{number},{bounds}"#);
        // Where nothing is known of a stream but that the cursor is genuine, there is nobody to be
        // told in-band: an empty stream would look like nothing was missed.
        let answer = if stream == STANDALONE || self.waiting_ids(stream).is_empty() {
            if let Some(entry) = self.streams.get(stream).filter(|_| stream == STANDALONE) {
                let mut id = Vec::with_capacity(EVENT_ID_BYTES_MAX);
                entry.push_id(floor - 1, &mut id);
                data.push_str(&format!(r#","resume_from":"{}""#, id.escape_ascii()));
            }
            data.push('}');
            let mut body = Vec::new();
            jsonrpc::error(&mut body, None, code, message, Some(&data));
            RefusalAnswer::Gone(body)
        } else {
            data.push('}');
            RefusalAnswer::InBand(self.in_band(stream, raw, code, message, &data))
        };
        Refusal { class, stream: Some(stream), number: Some(number), floor, tail, answer }
    }

    /// The refusal as a stream: priming with the presented cursor, then an error for each request
    /// that is still waited for. It is not logged; the call itself goes on.
    fn in_band(&self, stream: u32, raw: &[u8], code: i32, message: &str, data: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        sse::priming(&mut out, raw, Some(RETRY_MS), self.revision.has_empty_priming());
        let mut end = Vec::with_capacity(EVENT_ID_BYTES_MAX);
        self.mint(stream).push_end_id(&mut end);
        for id in self.waiting_ids(stream) {
            let mut error = Vec::with_capacity(256);
            jsonrpc::error(&mut error, Some(id), code, message, Some(data));
            sse::event_with_id(&mut out, &end, &error);
        }
        out
    }

    /// The requests of a stream that its client may still wait for: the open ones, or all.
    pub(super) fn waiting_ids(&self, stream: u32) -> Vec<&str> {
        let exchange = self.calls.exchanges.iter().find(|(_, e)| e.stream == Some(stream));
        if let Some((&key, _)) = exchange {
            let calls = self.calls.calls.values().filter(|call| call.exchange == key);
            let open: Vec<&str> = calls.map(|call| call.id.as_ref()).collect();
            if !open.is_empty() {
                return open;
            }
        }
        let entry = self.streams.get(stream).map(|entry| &entry.ids);
        let ids = entry.or_else(|| self.streams.tombstone(stream).map(|tombstone| &tombstone.ids));
        ids.map(|ids| ids.iter().map(Box::as_ref).collect()).unwrap_or_default()
    }

    fn bounds(&self, stream: u32) -> (u64, u64) {
        if let Some(entry) = self.streams.get(stream) {
            return (entry.stream.floor(), entry.stream.tail());
        }
        let tail = self.streams.tombstone(stream).map_or(0, |tombstone| tombstone.tail);
        (tail + 1, tail)
    }

    fn over(&self, stream: u32, number: Option<u64>) -> Refusal {
        let (floor, tail) = self.bounds(stream);
        let mut body = Vec::new();
        let data = r#"{"reason":"finished"}"#;
        let message = "the stream is finished and everything was seen";
        jsonrpc::error(&mut body, None, codes::SERVER_ERROR, message, Some(data));
        Refusal {
            class: Class::FinishedSeen,
            stream: Some(stream),
            number,
            floor,
            tail,
            answer: RefusalAnswer::Over(body),
        }
    }
}

/// The one answer for every cursor that this session never had.
fn unknown() -> Refusal {
    let mut body = Vec::new();
    let message = "Last-Event-ID is not an id of this session";
    jsonrpc::error(&mut body, None, codes::INVALID_REQUEST, message, None);
    Refusal {
        class: Class::Unknown,
        stream: None,
        number: None,
        floor: 0,
        tail: 0,
        answer: RefusalAnswer::Unknown(body),
    }
}
