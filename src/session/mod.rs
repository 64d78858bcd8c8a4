//! One MCP session: its streams, its requests in flight, and who hears what.
//!
//! Sans-IO like the streams it holds: messages and `now` come in, [`Effect`]s and bytes go out.
//! The order of calls:
//!
//! 1. A POST goes to [`Session::handle_post`]; its [`Session::reply`] is JSON, a stream, or still
//!    pending until [`Effect::Ready`].
//! 2. The upstream's messages go to [`Session::respond`], [`Session::notify`] and
//!    [`Session::ask`].
//! 3. A GET goes to [`Session::listen`] or [`Session::resume`]; the shell closes the connection
//!    that [`crate::stream::Takeover::must_close`] names, then calls [`Session::attach`].
//! 4. A connection's writer calls [`Session::transmit`] until it says wait.
//! 5. After every call: [`Session::poll_effect`] until empty, and [`Session::timeout`].
//!
//! Invariants:
//! * A message belongs to exactly one stream.
//! * A call gets exactly one final answer, and it is logged before anybody is told.
//! * A disconnect cancels nothing.

mod book;
mod calls;
mod client;
mod durable;
#[cfg(test)]
mod durable_tests;
mod effect;
mod overflow;
#[cfg(test)]
mod regression_tests;
#[cfg(test)]
mod relief_tests;
mod resume;
mod streams;
pub mod table;
#[cfg(test)]
mod tests;
mod upstream;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::limits::{COMMENT_BYTES_MAX, Limits, WRITE_BYTES_MAX};
use crate::mcp::event_id::Token;
use crate::mcp::revision::{self, Revision};
use crate::mcp::session_id::SessionId;
use crate::store::journal::{Journal, Seq};
use crate::stream::log::Load;
use crate::stream::receipt::{Outcome, Stage, Ticket};
use crate::stream::{Generation, Stream, Transmit};

pub use self::calls::{Answers, Asked, CallKey, ExchangeKey, ReplyForm};
pub use self::client::{PostRefusal, Posted, Reply};
pub use self::effect::{Effect, Ended};
pub use self::overflow::{DISK_WAIT, Overflow};
pub use self::resume::{Refusal, RefusalAnswer};
pub use self::streams::{Entry, STANDALONE};
pub use self::upstream::{About, Remembered, Upstream};

use self::calls::Calls;
use self::streams::Streams;

/// The `retry` of every stream, milliseconds.
pub const RETRY_MS: u64 = 3000;

/// What all sessions of a shard share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server that stands behind, by its place in the configuration.
    pub server: u16,
    /// What that server is called: what the durable log knows it by.
    pub server_name: Box<str>,
    /// The bounds.
    pub limits: Limits,
    /// The key of the event ids' tokens.
    pub key: [u8; 32],
    /// What happens when a reader is slower than its producer.
    pub overflow: Overflow,
    /// The epoch of the logs.
    pub epoch: u32,
    /// The number before the first request of an upstream to a client: higher than any that an
    /// earlier process gave out, so that a late answer never meets another question.
    pub asked_before: u64,
    /// Where the logs are kept beside memory; none where they end with the process.
    pub journal: Option<Rc<RefCell<Journal>>>,
}

/// The name of the server that has no name: the only one, where no file says what is served.
pub const DEFAULT_SERVER: &str = "default";

impl Settings {
    /// Of sessions of the only server, that end with their process.
    pub fn in_memory(limits: Limits, key: [u8; 32], overflow: Overflow) -> Self {
        Self {
            server: 0,
            server_name: DEFAULT_SERVER.into(),
            limits,
            key,
            overflow,
            epoch: 1,
            asked_before: 0,
            journal: None,
        }
    }
}

/// What a session has done since it was asked last, for the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Streams that were made.
    pub streams_started: u32,
    /// Streams that got their last event.
    pub streams_finished: u32,
    /// Events that were logged.
    pub events: u32,
    /// Bytes of them.
    pub event_bytes: u64,
    /// Times the session was over its budget.
    pub reliefs: u32,
    /// Answers that became errors because the session kept too many.
    pub answers_refused: u32,
}

/// What a connection's writer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes were appended: write them.
    Write,
    /// Nothing to send now.
    Wait,
    /// Read the acknowledgements, then ask again.
    RingFull,
    /// What comes next is on the disk: read it ([`Session::load`]), then ask again.
    Load,
    /// The stream is over and everything has been sent.
    Finished,
    /// The connection ends in the planned way; the stream does not.
    Planned,
    /// Another connection has the stream.
    Stale,
}

/// One session. See the module's documentation for the order of calls.
pub struct Session {
    id: SessionId,
    /// Whose it is: the id of a principal, 0 for nobody's.
    principal: u64,
    settings: Rc<Settings>,
    epoch: u32,
    revision: Revision,
    revision_name: Box<str>,
    initialized: bool,
    streams: Streams,
    /// Streams of which somebody waits for a receipt.
    #[expect(clippy::box_collection, reason = "an empty one would be 24 bytes of every session")]
    receipts: Option<Box<BTreeSet<u32>>>,
    calls: Calls,
    effects: VecDeque<Effect>,
    used: Instant,
    timeout: Instant,
    ended: Option<Ended>,
    /// Of an HTTP+SSE session: where its client posts. Its one stream carries everything.
    endpoint: Option<Box<str>>,
    /// The write of the newest record of the session itself: how it stands, or its end.
    remembered_at: Seq,
    /// What the writer of a stream has just been told to read.
    load: Option<Box<(u32, Load)>>,
}

/// Getters.
impl Session {
    /// A session that has not been initialized yet, of this principal (0: of nobody).
    pub fn new(id: SessionId, settings: Rc<Settings>, now: Instant, principal: u64) -> Self {
        let mut session = Self::bare(id, settings, now, principal);
        session.open_book();
        session.add_stream(Box::default());
        session
    }

    /// A session without a stream.
    fn bare(id: SessionId, settings: Rc<Settings>, now: Instant, principal: u64) -> Self {
        let timeout = now + settings.limits.idle_timeout;
        Self {
            id,
            principal,
            epoch: settings.epoch,
            calls: Calls::new(settings.asked_before),
            settings,
            revision: revision::NEWEST,
            revision_name: Box::default(),
            initialized: false,
            streams: Streams::new(),
            receipts: None,
            effects: VecDeque::new(),
            used: now,
            timeout,
            ended: None,
            endpoint: None,
            remembered_at: 0,
            load: None,
        }
    }

    /// A session of the HTTP+SSE transport (MCP 2024-11-05), whose client posts to `endpoint`. Its
    /// event ids begin with the session's id, because its client names no session when it comes
    /// back.
    pub fn new_http_sse(
        id: SessionId,
        settings: Rc<Settings>,
        now: Instant,
        principal: u64,
        endpoint: String,
    ) -> Self {
        let mut session = Self::bare(id, settings, now, principal);
        session.endpoint = Some(endpoint.into());
        // Without a connection there is no way to post a second GET to: it is kept no longer than
        // what it holds.
        session.timeout = now + session.idle_timeout();
        session.open_book();
        session.add_stream(Box::default());
        session
    }

    /// Whether it is of the HTTP+SSE transport.
    pub fn is_http_sse(&self) -> bool {
        self.endpoint.is_some()
    }

    /// How long the upstream may take for `initialize`.
    pub fn init_timeout(&self) -> Duration {
        self.settings.limits.init_timeout
    }

    fn idle_timeout(&self) -> Duration {
        let limits = &self.settings.limits;
        if self.is_http_sse() { limits.retention } else { limits.idle_timeout }
    }

    /// What it shares with the other sessions of its server.
    pub fn settings(&self) -> &Rc<Settings> {
        &self.settings
    }

    /// The session's id, a secret.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whose session it is: the id of a principal, 0 for nobody's. For everybody else it is an
    /// unknown one.
    pub fn principal(&self) -> u64 {
        self.principal
    }

    /// The negotiated revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The negotiated revision as the upstream named it.
    pub fn revision_name(&self) -> &str {
        &self.revision_name
    }

    /// Whether the upstream has accepted the session.
    pub fn is_initialized(&self) -> bool {
        self.initialized
    }

    /// Why the session is over, if it is.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The epoch of its log.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Calls that have no final answer.
    pub fn open_calls(&self) -> usize {
        self.calls.calls.len()
    }

    /// Bytes charged for it: its logs, what is known of its streams, comments that wait, and
    /// everything in flight, with the answers that are kept.
    pub fn bytes(&self) -> u64 {
        self.streams.bytes() + self.calls.bytes()
    }

    /// Whether it holds more than it may.
    pub fn is_over_budget(&self) -> bool {
        self.bytes() > self.settings.limits.session_bytes
    }

    /// As [`Session::bytes`], counted anew from everything that is there.
    pub fn recount(&self) -> u64 {
        self.streams.recount() + self.calls.recount()
    }

    /// One of its streams.
    pub fn stream(&self, number: u32) -> Option<&Stream> {
        self.streams.get(number).map(|entry| &entry.stream)
    }

    /// Its streams' numbers, in order.
    pub fn stream_numbers(&self) -> Vec<u32> {
        self.streams.numbers()
    }

    /// When [`Session::handle_timeout`] wants to be called; early is harmless.
    pub fn timeout(&self) -> Instant {
        self.timeout
    }

    /// What was done since this was asked last.
    pub fn take_done(&mut self) -> Done {
        self.streams.take_done()
    }

    /// The next thing to do in the world.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}

/// Commands.
impl Session {
    /// The upstream has accepted the session, in the revision of this name.
    pub fn set_initialized(&mut self, name: &str) {
        self.revision = Revision::behaviour_of(name);
        self.revision_name = name.into();
        self.initialized = true;
        if self.streams.book.is_some() {
            self.effects.push_back(Effect::Remember);
        }
    }

    /// Somebody used the session.
    pub fn touch(&mut self, now: Instant) {
        self.used = now;
    }

    /// Nothing is expected for a while: gives back the room that only a busy session needs.
    pub fn rest(&mut self) {
        self.calls.rest();
        self.streams.rest();
        self.effects.shrink_to_fit();
    }

    /// The logs may have lost their tails: every cursor given out so far is of an older epoch.
    pub fn change_epoch(&mut self) {
        self.epoch += 1;
        for number in self.streams.numbers() {
            let token = self.mint(number);
            if let Some(entry) = self.streams.get_mut(number) {
                entry.token = token;
            }
        }
    }

    /// Ends the session. Its connections are woken and find that it is over.
    pub fn end(&mut self, why: Ended) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(why);
        if let Some(book) = self.streams.book.take() {
            self.remembered_at = book.end();
        }
        for number in self.streams.numbers() {
            if let Some(entry) = self.streams.get_mut(number) {
                entry.stream.handle_ended();
            }
            self.effects.push_back(Effect::Wake(number));
        }
        for &exchange in self.calls.exchanges.keys() {
            self.effects.push_back(Effect::Ready(exchange));
        }
        self.effects.push_back(Effect::Ended(why));
    }

    /// Ends the stream's current connection in the planned way, once it has sent what is logged.
    pub fn close_planned(&mut self, number: u32) {
        if let Some(entry) = self.streams.get_mut(number) {
            entry.planned_close = entry.stream.attached().is_some();
            self.wake(number);
        }
    }

    /// Keeps a comment for the stream's connection, if there is one. Only the start of a long text:
    /// what is written at once has to fit into one chunk.
    fn comment(&mut self, number: u32, text: &[u8]) {
        let text = text.get(..COMMENT_BYTES_MAX).unwrap_or(text);
        if self.streams.comment(number, text) {
            self.wake(number);
        }
    }

    /// Brings a stream back into its budget; its acknowledgements have just been read.
    pub fn relieve(&mut self, now: Instant, number: u32, upstream: &mut impl Upstream) {
        let held = self.calls.bytes();
        if !self.streams.over_budget(number, held, &self.settings.limits) {
            return;
        }
        self.streams.relieve(now, number, held, &self.settings.limits, &mut self.effects);
        self.fail_unseen(now, upstream);
    }

    /// Brings the session down to `most` bytes: the shard holds more than it may.
    pub fn shrink(&mut self, now: Instant, most: u64, upstream: &mut impl Upstream) {
        let most = most.saturating_sub(self.calls.bytes());
        self.streams.shrink(now, most, &mut self.effects);
        self.fail_unseen(now, upstream);
    }

    /// Time has passed: calls and questions time out, old events go, an unused session ends.
    pub fn handle_timeout(&mut self, now: Instant, upstream: &mut impl Upstream) {
        self.time_out_calls(now, upstream);
        self.time_out_asked(now, upstream);
        self.streams.expire(now, &self.settings.limits, &mut self.effects);
        self.fail_unseen(now, upstream);
        let in_use = !self.calls.calls.is_empty() || self.streams.any_attached();
        if in_use {
            self.used = now;
        }
        let idle_at = self.used + self.idle_timeout();
        if now >= idle_at {
            self.end(Ended::Idle);
        }
        let calls = self.calls.calls.values().map(calls::Call::timeout);
        let asked = self.calls.asked.values().map(|asked| asked.deadline);
        let streams = self.streams.expires(self.settings.limits.retention);
        let next = calls.chain(asked).chain(streams).min().unwrap_or(idle_at).min(idle_at);
        // A stream that is being read past its age stays; look again a little later.
        self.timeout = next.max(now + Duration::from_millis(10));
    }

    fn add_stream(&mut self, ids: Box<[Box<str>]>) -> u32 {
        let number = self.streams.next();
        let (token, scope) = (self.mint(number), self.scope(number));
        self.streams.add(token, scope, ids)
    }

    /// What stands before the token in the ids of a stream's events.
    fn scope(&self, number: u32) -> Box<[u8]> {
        if number != STANDALONE || !self.is_http_sse() {
            return Box::default();
        }
        let mut scope = self.id.write().to_vec();
        scope.push(b'.');
        scope.into()
    }

    fn mint(&self, stream: u32) -> Token {
        Token::mint(&self.settings.key, &self.id, stream, self.epoch)
    }

    fn wake(&mut self, number: u32) {
        self.push_once(Effect::Wake(number));
    }

    /// Asks for relief of a stream that has just grown, where it is due.
    fn relieve_later(&mut self, number: u32) {
        if self.streams.over_budget(number, self.calls.bytes(), &self.settings.limits) {
            self.push_once(Effect::Relieve(number));
        }
    }

    /// A stream that is fed in a loop asks for its wake and its relief with every event: once for
    /// all of them is enough, and relief costs a system call. Only the last two are looked at; one
    /// too many does no harm.
    fn push_once(&mut self, effect: Effect) {
        if !self.effects.iter().rev().take(2).any(|queued| *queued == effect) {
            self.effects.push_back(effect);
        }
    }

    fn expect_timeout(&mut self, at: Instant) {
        self.timeout = self.timeout.min(at);
    }
}

/// What off-core producers ask, beside [`Session::write`] and [`Session::respond`].
impl Session {
    /// Makes sure that an open call has a stream, without starting it, and says its key. The outer
    /// option is none where the call is not open; the inner one where its client takes no stream,
    /// so that the standalone stream stands in.
    pub fn reserve(&mut self, call: CallKey) -> Option<Option<Box<str>>> {
        let exchange = self.exchange_of(call)?;
        if !self.calls.exchanges.get(&exchange)?.accept.sse {
            return Some(None);
        }
        let number = self.stream_of(exchange);
        let token = self.streams.get(number)?.token;
        Some(Some(String::from_utf8_lossy(token.as_bytes()).into()))
    }

    /// Whether what `about` writes to goes out at once.
    pub fn is_started(&self, about: About) -> bool {
        match about {
            About::Standalone => true,
            About::Call(call) => self
                .exchange_of(call)
                .and_then(|exchange| self.calls.exchanges.get(&exchange))
                .is_some_and(|exchange| exchange.started || !exchange.accept.sse),
        }
    }

    /// Starts the reply of a call.
    pub fn start_about(&mut self, now: Instant, about: About) {
        if let About::Call(call) = about
            && let Some(exchange) = self.exchange_of(call)
        {
            self.start(now, exchange);
        }
    }

    /// Starts the stream and sends a comment on it.
    pub fn comment_about(&mut self, now: Instant, about: About, text: &[u8]) {
        self.start_about(now, about);
        if let Some(number) = self.number_of(about) {
            self.comment(number, text);
        }
    }

    /// Ends the connection of what `about` writes to, in the planned way. A call without a stream
    /// of its own ends no other's.
    pub fn close_about(&mut self, about: About) {
        let own = |number: &u32| about == About::Standalone || *number != STANDALONE;
        if let Some(number) = self.number_of(about).filter(own) {
            self.close_planned(number);
        }
    }

    /// Asks for a receipt of one event.
    pub fn tell(
        &mut self,
        stream: u32,
        ticket: Ticket,
        number: u64,
        stage: Stage,
        deadline: Instant,
    ) {
        if let Some(entry) = self.streams.get_mut(stream) {
            entry.stream.tell(ticket, number, stage, deadline);
            self.receipts.get_or_insert_default().insert(stream);
        }
    }

    /// Whether somebody waits for a receipt of this stream.
    pub fn has_receipts(&self, stream: u32) -> bool {
        self.receipts.as_ref().is_some_and(|streams| streams.contains(&stream))
    }

    /// The next push that has come as far as was asked, or never will.
    pub fn poll_told(&mut self) -> Option<(Ticket, Outcome)> {
        if let Some(told) = self.streams.poll_told() {
            return Some(told);
        }
        let (streams, receipts) = (&mut self.streams, self.receipts.as_ref()?);
        let mut told = receipts.iter().filter_map(|&number| {
            streams.get_mut(number).and_then(|entry| entry.stream.poll_told())
        });
        told.next()
    }

    /// Time has passed for those who wait for a receipt.
    pub fn handle_receipt_timeouts(&mut self, now: Instant) {
        let (streams, Some(receipts)) = (&mut self.streams, &mut self.receipts) else { return };
        receipts.retain(|&number| {
            let Some(entry) = streams.get_mut(number) else { return false };
            entry.stream.handle_timeout(now);
            entry.stream.has_receipts()
        });
        self.receipts.take_if(|receipts| receipts.is_empty());
    }
}

/// What a stream's connection does.
impl Session {
    /// Appends what the connection of `generation` should write next to `out`; the first byte
    /// appended will have `offset` in the connection's byte stream.
    pub fn transmit(
        &mut self,
        number: u32,
        generation: Generation,
        offset: u64,
        out: &mut Vec<u8>,
    ) -> Step {
        let Some(entry) = self.streams.get_mut(number) else { return Step::Stale };
        let before = out.len();
        entry.stream.poll_comments(generation, out);
        let commented = out.len() - before;
        if commented > 0 {
            self.streams.handle_comments_gone(commented);
        }
        let Some(entry) = self.streams.get_mut(number) else { return Step::Stale };
        let stream = &entry.stream;
        if commented == 0
            && stream.attached() == Some(generation)
            && stream.unsent_bytes() > 0
            && stream.unconfirmed_bytes() >= self.settings.limits.ring_bytes()
        {
            return Step::RingFull;
        }
        let max = WRITE_BYTES_MAX.saturating_sub(out.len());
        match entry.stream.poll_transmit(generation, offset + commented as u64, max, out) {
            Transmit::Data(_) => Step::Write,
            Transmit::Stale => Step::Stale,
            _ if commented > 0 => Step::Write,
            Transmit::Finished => Step::Finished,
            Transmit::Idle if self.ended.is_some() => Step::Finished,
            // What is logged and not committed yet goes out before the end.
            Transmit::Idle if entry.planned_close && !entry.stream.is_behind() => Step::Planned,
            Transmit::Idle if self.log_failed() => self.give_up(number, out),
            Transmit::Idle => Step::Wait,
            Transmit::RingFull => Step::RingFull,
            Transmit::Load(load) => {
                self.load = Some(Box::new((number, *load)));
                Step::Load
            }
            Transmit::Broken => self.give_up(number, out),
        }
    }

    /// The peer's TCP acknowledged `acked` bytes of the connection of `generation`.
    pub fn handle_acked(&mut self, number: u32, generation: Generation, acked: u64) {
        if let Some(entry) = self.streams.get_mut(number) {
            entry.stream.handle_acked(generation, acked);
        }
    }

    /// The connection of `generation` is gone; `acked` is its last acknowledged byte count.
    pub fn handle_closed(&mut self, now: Instant, number: u32, generation: Generation, acked: u64) {
        if self.streams.get(number).is_some() {
            self.streams.handle_closed(number, generation, acked);
            self.used = now;
            let expires = self.streams.expires(self.settings.limits.retention);
            let idle = now + self.idle_timeout();
            self.expect_timeout(expires.unwrap_or(idle).min(idle));
        }
    }
}
