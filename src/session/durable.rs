//! What lets a session outlive its process: what is journaled of it, how it comes back, and how it
//! goes on when a segment of its log goes, or the log itself fails.

use std::rc::Rc;
use std::time::Instant;

use crate::http::sse;
use crate::limits::EVENT_ID_BYTES_MAX;
use crate::mcp::event_id::Token;
use crate::mcp::jsonrpc::{self, codes};
use crate::store::body::{SessionBody, Transport};
use crate::store::journal::Seq;
use crate::store::recovery::{RecoveredSession, RecoveredStream, Run};
use crate::stream::log::Load;
use crate::stream::{Restored, RestoredRun, Stream};

use super::book::{self, Book};
use super::streams::STANDALONE;
use super::upstream::{Remembered, Upstream};
use super::{Session, Settings, Step};

/// More events than a stream can have had behind the place where its log is damaged.
const LOST_EVENTS_MAX: u64 = 1 << 32;

/// What is read before a stream can go on.
#[derive(Debug)]
pub struct Wanted {
    /// The session's number in the journal.
    pub slot: u32,
    /// What the ids of the stream's events begin with.
    pub token: Token,
    /// Where the events are.
    pub load: Load,
}

/// Being journaled.
impl Session {
    /// From now on everything is journaled, where there is a journal.
    pub(super) fn open_book(&mut self) {
        let Some(journal) = &self.settings.journal else { return };
        let book = Book::new(journal);
        book.session(&self.body(&Remembered::default()));
        self.streams.book = Some(Box::new(book));
    }

    /// The number of the session in the journal; none where it does not outlive the process.
    pub fn slot(&self) -> Option<u32> {
        self.streams.book.as_ref().map(|book| book.slot())
    }

    /// The upstream has accepted the session: what a restart has to know of it is journaled.
    pub fn remember(&mut self, upstream: &impl Upstream) {
        let Some(book) = &self.streams.book else { return };
        let remembered = upstream.remember().unwrap_or_default();
        self.remembered_at = book.session(&self.body(&remembered));
        for (method, params) in &remembered.requests {
            book.setup(method, params);
        }
    }

    /// The client sets the upstream up: a restart has to do so again.
    pub(super) fn note_setup(&self, method: &str, params: &str) {
        if let Some(book) = &self.streams.book {
            book.setup(method, params);
        }
    }

    /// The write that has to be committed before the client may learn how the session stands.
    pub fn remembered_at(&self) -> Seq {
        self.remembered_at
    }

    /// What was journaled for this stream is committed: its connection has something to send.
    pub fn handle_committed(&mut self, number: u32) {
        let Some(journal) = &self.settings.journal else { return };
        let committed = journal.borrow().committed();
        if let Some(entry) = self.streams.get_mut(number) {
            entry.stream.handle_committed(committed);
        }
    }

    /// A segment of the journal shall go: what lies there and is in memory is journaled again, what
    /// is on the disk alone is dropped with it.
    pub fn handle_retired(&mut self, now: Instant, segment: u32, upstream: &mut impl Upstream) {
        if self.streams.book.is_none() {
            return;
        }
        self.remember(upstream);
        let limits = &self.settings.limits;
        let keep_finished = limits.memory_bytes <= limits.data_bytes / 2;
        for number in self.streams.numbers() {
            let open = self.open_ids(number);
            let effects = &mut self.effects;
            self.streams.retire(now, number, segment, &open, keep_finished, effects);
        }
        self.streams.write_tombstones();
        self.fail_unseen(now, upstream);
    }

    /// The process is about to end in the planned way: nothing more is journaled, and the session
    /// goes on after the restart.
    pub fn leave(&mut self) {
        self.streams.book = None;
    }

    /// The journal takes nothing any more: streams end once what is safe has been sent.
    pub fn handle_log_failed(&mut self) {
        for number in self.streams.numbers() {
            self.wake(number);
        }
    }

    /// Whether a connection may be told of the stream: its birth is committed.
    pub fn may_open(&self, number: u32) -> bool {
        self.stream(number).is_none_or(Stream::is_open)
    }

    /// Whether the journal has as much to write as it may.
    pub(super) fn log_is_full(&self) -> bool {
        self.settings.journal.as_ref().is_some_and(|journal| journal.borrow().is_full())
    }

    /// Whether the journal takes nothing any more: what is not committed never will be.
    pub fn log_failed(&self) -> bool {
        self.settings.journal.as_ref().is_some_and(|journal| journal.borrow().is_poisoned())
    }

    /// Tells the requests that still wait that their stream cannot go on. It is not logged.
    pub(super) fn give_up(&self, number: u32, out: &mut Vec<u8>) -> Step {
        let mut end = Vec::with_capacity(EVENT_ID_BYTES_MAX);
        self.mint(number).push_end_id(&mut end);
        for id in self.waiting_ids(number) {
            let mut error = Vec::with_capacity(160);
            let message = "the log of this server has failed; what was answered is unknown";
            let data = r#"{"reason":"log_failed"}"#;
            jsonrpc::error(&mut error, Some(id), codes::LOG_FAILED, message, Some(data));
            sse::event_with_id(out, &end, &error);
        }
        Step::Planned
    }

    fn body(&self, remembered: &Remembered) -> SessionBody {
        let transport =
            if self.is_http_sse() { Transport::HttpSse } else { Transport::StreamableHttp };
        SessionBody {
            id: self.id,
            server: self.settings.server_name.to_string(),
            principal: self.principal,
            transport,
            next_stream: self.streams.next(),
            revision: self.revision_name.to_string(),
            endpoint: self.endpoint.as_deref().unwrap_or_default().to_owned(),
            initialize: remembered.initialize.clone().into_bytes(),
            result: remembered.result.clone().into_bytes(),
        }
    }

    /// The raw ids of the open requests that a stream will answer.
    fn open_ids(&self, number: u32) -> Vec<Box<str>> {
        let exchange = self.calls.exchanges.iter().find(|(_, e)| e.stream == Some(number));
        let Some((&key, _)) = exchange else { return Vec::new() };
        let open = self.calls.calls.values().filter(|call| call.exchange == key);
        open.map(|call| call.id.clone()).collect()
    }
}

/// The disk tier.
impl Session {
    /// What [`Step::Load`] asks for; none where that is over.
    pub fn take_load(&mut self, number: u32) -> Option<Wanted> {
        let slot = self.slot()?;
        let token = self.streams.get(number)?.token;
        let (_, load) = *self.load.take_if(|load| load.0 == number)?;
        Some(Wanted { slot, token, load })
    }

    /// What was asked for has been read, or cannot be.
    pub fn handle_loaded(&mut self, now: Instant, number: u32, load: &Load, read: Option<Vec<u8>>) {
        self.streams.handle_loaded(number, load, read);
        self.used = now;
        self.relieve_later(number);
    }
}

/// Coming back.
impl Session {
    /// A session that outlived its process, and what its upstream was told. What was in flight is
    /// answered with errors. None where its client never learned of it.
    pub fn restore(
        recovered: RecoveredSession,
        settings: Rc<Settings>,
        now: Instant,
    ) -> Option<(Self, Remembered)> {
        let RecoveredSession { slot, body, setups, streams, .. } = recovered;
        let journal = settings.journal.clone()?;
        let mut session = Self::bare(body.id, settings, now, body.principal);
        match body.transport {
            Transport::StreamableHttp if body.revision.is_empty() => return None,
            Transport::StreamableHttp => {}
            Transport::HttpSse => session.endpoint = Some(body.endpoint.into()),
        }
        if !body.revision.is_empty() {
            session.set_initialized(&body.revision);
        }
        // Of this process: higher than whatever an earlier one counted.
        let before = session.settings.asked_before;
        session.streams.book = Some(Box::new(Book::of(&journal, slot, before)));
        for stream in streams {
            session.restore_stream(now, stream);
        }
        session.stream(STANDALONE)?;
        session.streams.handle_restored(body.next_stream);
        session.timeout = now + session.idle_timeout().min(session.settings.limits.retention);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let remembered = Remembered {
            initialize: text(body.initialize),
            result: text(body.result),
            requests: setups.into_iter().filter_map(|line| book::setup_of(&text(line))).collect(),
        };
        Some((session, remembered))
    }

    /// What a recovery has found cannot go on: the log says that it is over, for good.
    pub fn end_recovered(recovered: &RecoveredSession, settings: &Settings) {
        if let Some(journal) = &settings.journal {
            Book::of(journal, recovered.slot, settings.asked_before).end();
        }
    }

    fn restore_stream(&mut self, now: Instant, recovered: RecoveredStream) {
        let RecoveredStream { number, ids, answered, finished, buried, broken, floor, tail, runs } =
            recovered;
        let text = |id: Vec<u8>| String::from_utf8_lossy(&id).into_owned().into_boxed_str();
        let ids: Box<[Box<str>]> = ids.into_iter().map(text).collect();
        if buried {
            return self.streams.restore_tombstone(number, tail, ids);
        }
        let run = |Run { first, place, lengths }| RestoredRun { first, place, lengths };
        let runs = runs.into_iter().map(run).collect();
        // How many events of a damaged stream are lost is unknown: no number is used again.
        let tail = if broken { tail + LOST_EVENTS_MAX } else { tail };
        // Of a damaged call nothing can be served, and nothing follows: its client is told so.
        let over = finished || broken && number != STANDALONE;
        let restored = Restored { floor, tail, finished: over, broken, runs, at: now };
        let open: Vec<Box<str>> = ids
            .iter()
            .zip(answered.into_iter().chain(std::iter::repeat(false)))
            .filter(|(_, answered)| !answered && !finished)
            .map(|(id, _)| id.clone())
            .collect();
        let stream = Stream::restore(&restored);
        let (token, scope) = (self.mint(number), self.scope(number));
        self.streams.restore(now, number, (token, scope), ids, stream);
        if open.is_empty() || broken {
            return;
        }
        for id in open {
            let mut error = Vec::with_capacity(160);
            let message = "the server was restarted; the call was not finished";
            let data = r#"{"reason":"restarted"}"#;
            jsonrpc::error(&mut error, Some(&id), codes::RESTARTED, message, Some(data));
            self.log(now, number, Some(&id), error.len(), |out| out.extend_from_slice(&error));
        }
        self.streams.finish(now, number, false);
    }
}
