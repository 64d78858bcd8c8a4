//! The client's side of a session: what a POST holds, and what it is answered.

use std::time::Instant;

use crate::mcp::event_id::STREAM_NUMBER_MAX;
use crate::mcp::headers::Accept;
use crate::mcp::jsonrpc::{self, Envelope, Kind, Message, codes};

use super::Session;
use super::calls::{Answers, CallKey, Exchange, ExchangeKey, ReplyForm};
use super::upstream::Upstream;

/// Requests that change how the upstream is set up for its session.
const SETUP_METHODS: [&str; 3] =
    ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// What became of a POST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// Only notifications or responses: 202.
    Accepted,
    /// Requests: their reply is asked for with this key.
    Exchange(ExchangeKey),
}

/// Why a POST is refused as a whole: 400 with a JSON-RPC error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostRefusal {
    /// The JSON-RPC code.
    pub code: i32,
    /// The reason, for the sender.
    pub reason: &'static str,
}

/// The reply of an exchange as it stands.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing yet.
    Pending,
    /// One JSON body; empty where every request was cancelled.
    Json(Vec<u8>),
    /// This stream, from its start.
    Stream(u32),
    /// The session ended before there was an answer.
    Gone,
}

impl PostRefusal {
    fn invalid(reason: &'static str) -> Self {
        Self { code: codes::INVALID_REQUEST, reason }
    }
}

impl Session {
    /// A POST's message or batch, which is not an `initialize`.
    pub fn handle_post(
        &mut self,
        now: Instant,
        message: &Message<'_>,
        form: ReplyForm,
        upstream: &mut impl Upstream,
    ) -> Result<Posted, PostRefusal> {
        self.used = now;
        if self.streams.next() > STREAM_NUMBER_MAX {
            let reason = "this session has had as many streams as it may; start a new one";
            return Err(PostRefusal::invalid(reason));
        }
        match message {
            Message::Single(single) => Ok(self.take(now, &[single], false, form, upstream)),
            Message::Batch(all) => {
                self.check_batch(all)?;
                let all: Vec<&Envelope<'_>> = all.iter().collect();
                Ok(self.take(now, &all, true, form, upstream))
            }
        }
    }

    /// A POST of the HTTP+SSE transport: every answer goes to the session's one stream.
    pub fn handle_http_sse_post(
        &mut self,
        now: Instant,
        message: &Message<'_>,
        upstream: &mut impl Upstream,
    ) -> Result<(), PostRefusal> {
        let accept = Accept { json: false, sse: false };
        let form = ReplyForm { accept, answers: Answers::Json };
        if let Posted::Exchange(key) = self.handle_post(now, message, form, upstream)? {
            self.abandon(key);
        }
        Ok(())
    }

    /// The reply as it stands; JSON and streams are handed out once.
    pub fn reply(&mut self, key: ExchangeKey) -> Reply {
        let Some(exchange) = self.calls.exchanges.get_mut(&key) else { return Reply::Gone };
        if exchange.started {
            let number = exchange.stream.expect("a started reply has its stream");
            exchange.taken = true;
            self.forget_if_taken(key);
            return Reply::Stream(number);
        }
        if exchange.open > 0 {
            return if self.ended.is_some() { Reply::Gone } else { Reply::Pending };
        }
        let batch = exchange.batch;
        let mut answers = self.calls.take_answers(key);
        self.forget(key);
        // Nothing is the answer where every request was cancelled: JSON-RPC has no empty array.
        if !batch || answers.is_empty() {
            return Reply::Json(answers.pop().unwrap_or_default());
        }
        let mut all = answers.join(b",".as_slice());
        all.insert(0, b'[');
        all.push(b']');
        Reply::Json(all)
    }

    /// Nobody waits for the reply any more: a JSON answer will be dropped, a stream goes on.
    pub fn abandon(&mut self, key: ExchangeKey) {
        if let Some(exchange) = self.calls.exchanges.get_mut(&key) {
            exchange.taken = true;
            self.forget_if_taken(key);
        }
    }

    pub(super) fn forget_if_taken(&mut self, key: ExchangeKey) {
        let done = |exchange: &Exchange| exchange.taken && exchange.open == 0;
        if self.calls.exchanges.get(&key).is_some_and(done) {
            self.forget(key);
        }
    }

    /// An exchange is over. A stream that nobody has heard of goes with it.
    fn forget(&mut self, key: ExchangeKey) {
        let exchange = self.calls.exchanges.get(&key);
        let unused = exchange.filter(|exchange| !exchange.started).and_then(|e| e.stream);
        if let Some(unused) = unused {
            self.streams.remove_unused(unused);
        }
        self.calls.remove_exchange(key);
    }

    fn check_batch(&self, all: &[Envelope<'_>]) -> Result<(), PostRefusal> {
        if !self.revision.has_batches() {
            let reason = "batches were removed after revision 2025-03-26";
            return Err(PostRefusal::invalid(reason));
        }
        let requests: Vec<&Envelope<'_>> =
            all.iter().filter(|message| message.kind == Kind::Request).collect();
        if requests.iter().any(|request| request.method.as_deref() == Some("initialize")) {
            return Err(PostRefusal::invalid("initialize must not be part of a batch"));
        }
        if !requests.is_empty() && all.iter().any(|message| message.kind == Kind::Response) {
            return Err(PostRefusal::invalid("a batch must not mix requests with responses"));
        }
        for (index, request) in requests.iter().enumerate() {
            let same = |other: &&Envelope<'_>| {
                jsonrpc::same_id(other.id.unwrap_or_default(), request.id.unwrap_or_default())
            };
            if requests[..index].iter().any(same) {
                return Err(PostRefusal::invalid("a batch must not use one id twice"));
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        now: Instant,
        messages: &[&Envelope<'_>],
        batch: bool,
        form: ReplyForm,
        upstream: &mut impl Upstream,
    ) -> Posted {
        let requests = messages.iter().filter(|message| message.kind == Kind::Request);
        let ids: Box<[Box<str>]> = requests.filter_map(|m| m.id).map(Into::into).collect();
        let key = self.calls.next_key();
        let any = !ids.is_empty();
        if any {
            let exchange = Exchange::new(form.accept, batch, ids);
            self.calls.add_exchange(key, exchange);
            if form.answers == Answers::Sse || !form.accept.json {
                self.start(now, key);
            }
        }
        for message in messages {
            match message.kind {
                Kind::Request => self.take_request(now, key, message, upstream),
                Kind::Notification => self.take_notification(now, message, upstream),
                Kind::Response => self.take_response(now, message, upstream),
            }
        }
        if !any {
            return Posted::Accepted;
        }
        let pending = self.calls.exchanges.get(&key).is_some_and(|e| e.open > 0);
        if pending && form.answers == Answers::Auto {
            self.start(now, key);
        }
        Posted::Exchange(key)
    }

    fn take_request(
        &mut self,
        now: Instant,
        exchange: ExchangeKey,
        message: &Envelope<'_>,
        upstream: &mut impl Upstream,
    ) {
        let limits = &self.settings.limits;
        let id = message.id.unwrap_or_default();
        let token = jsonrpc::request_progress_token(message);
        let full = self.calls.calls.len() >= limits.calls_per_session;
        let first = match message.method.as_deref() {
            Some("initialize") => limits.init_timeout,
            _ => limits.request_timeout,
        };
        let (call, timeout) = self.calls.add(now, id, token, exchange, first, limits);
        self.expect_timeout(timeout);
        if full {
            let message = "too many requests of this session are in flight";
            let data = format!(r#"{{"limit":{}}}"#, self.settings.limits.calls_per_session);
            self.respond_error(now, call, codes::SERVER_ERROR, message, Some(&data));
            return;
        }
        if let (Some(method), Some(params)) = (message.method.as_deref(), message.params)
            && SETUP_METHODS.contains(&method)
        {
            self.note_setup(method, params);
        }
        upstream.request(self, now, call, message);
    }

    fn take_notification(
        &mut self,
        now: Instant,
        message: &Envelope<'_>,
        upstream: &mut impl Upstream,
    ) {
        if message.method.as_deref() != Some("notifications/cancelled") {
            return upstream.notification(self, now, message);
        }
        let Some(id) = jsonrpc::cancelled_request_id(message) else { return };
        if let Some(call) = self.newest_with_id(id) {
            upstream.cancel(call, Some(message), "the client cancelled the request");
            self.retire(now, call);
        }
    }

    fn take_response(
        &mut self,
        now: Instant,
        message: &Envelope<'_>,
        upstream: &mut impl Upstream,
    ) {
        let key = message.id.and_then(|id| id.parse::<u64>().ok());
        let asked = key.and_then(|key| self.calls.take_asked(key));
        if let Some(asked) = asked {
            upstream.answer(self, now, &asked, Ok(message));
        }
    }

    fn newest_with_id(&self, id: &str) -> Option<CallKey> {
        let calls = self.calls.calls.iter();
        calls.filter(|(_, call)| jsonrpc::same_id(&call.id, id)).map(|(&key, _)| key).max()
    }
}
