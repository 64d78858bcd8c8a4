//! The upstream's side of a session: what it is asked, and where its messages go.

use std::time::Instant;

use crate::limits::ASKED_MAX;
use crate::mcp::jsonrpc::{self, Envelope, Message, codes};

use super::Session;
use super::calls::{Asked, CallKey, ExchangeKey};
use super::effect::Effect;
use super::streams::STANDALONE;

/// What a message of the upstream is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// One call: it goes to that call's stream.
    Call(CallKey),
    /// No call: it goes to the standalone stream.
    Standalone,
}

/// What a session's upstream has been told and has to be told again after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Params of the session's `initialize`, raw JSON.
    pub initialize: String,
    /// Revision and capabilities of the answer to it, raw JSON.
    pub result: String,
    /// Method and params, raw JSON, of what set it up further, in order.
    pub requests: Vec<(String, String)>,
}

/// Whatever produces the session's messages.
pub trait Upstream {
    /// A request of the client, under the session's own key.
    fn request(
        &mut self,
        session: &mut Session,
        now: Instant,
        call: CallKey,
        message: &Envelope<'_>,
    );

    /// A notification of the client.
    fn notification(&mut self, session: &mut Session, now: Instant, message: &Envelope<'_>);

    /// A call is given up: by the client's `message`, or by the gateway for `reason`.
    fn cancel(&mut self, call: CallKey, message: Option<&Envelope<'_>>, reason: &str);

    /// The client's answer to a request of the upstream, or an error where none will come.
    fn answer(
        &mut self,
        session: &mut Session,
        now: Instant,
        asked: &Asked,
        answer: Result<&Envelope<'_>, &str>,
    );

    /// What a restart has to know of it; none before it has accepted the session.
    fn remember(&self) -> Option<Remembered>;
}

/// Messages of the upstream.
impl Session {
    /// The final answer of a call: `payload` writes the message for the client's id. False where
    /// the call is no longer open: nobody waits, the answer is dropped.
    pub fn respond(
        &mut self,
        now: Instant,
        call: CallKey,
        hint: usize,
        payload: impl FnOnce(&str, &mut Vec<u8>),
    ) -> bool {
        let Some(call) = self.calls.take_call(call) else { return false };
        self.used = now;
        let key = call.exchange;
        let exchange = self.calls.exchanges.get_mut(&key).expect("a call has its exchange");
        exchange.open -= 1;
        if !exchange.started && exchange.accept.json && !self.streams.holds_any(exchange.stream) {
            let mut answer = Vec::with_capacity(hint + call.id.len());
            payload(&call.id, &mut answer);
            let last = exchange.open == 0;
            self.keep_answer(key, &call.id, answer);
            if last {
                self.effects.push_back(Effect::Ready(key));
            }
            self.forget_if_taken(key);
            return true;
        }
        if self.is_http_sse() {
            self.forget_if_taken(key);
            self.log(now, STANDALONE, Some(&call.id), hint + call.id.len(), |out| {
                payload(&call.id, out);
            });
            return true;
        }
        self.start(now, key);
        let number = self.stream_of(key);
        self.log(now, number, Some(&call.id), hint + call.id.len(), |out| payload(&call.id, out));
        self.finish_exchange(now, key);
        true
    }

    /// The final answer of a call is an error.
    pub fn respond_error(
        &mut self,
        now: Instant,
        call: CallKey,
        code: i32,
        message: &str,
        data: Option<&str>,
    ) -> bool {
        let hint = 96 + message.len() * 2 + data.map_or(0, str::len);
        self.respond(now, call, hint, |id, out| {
            jsonrpc::error(out, Some(id), code, message, data);
        })
    }

    /// A notification that should go out now: it starts the reply's stream.
    pub fn notify(
        &mut self,
        now: Instant,
        about: About,
        hint: usize,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> (u32, u64) {
        let at = self.write(now, about, hint, payload);
        if let About::Call(call) = about
            && let Some(exchange) = self.exchange_of(call)
        {
            self.start(now, exchange);
        }
        at
    }

    /// Logs a message about something without starting a dormant reply; says where.
    pub fn write(
        &mut self,
        now: Instant,
        about: About,
        hint: usize,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> (u32, u64) {
        let number = match about {
            About::Standalone => STANDALONE,
            About::Call(call) => match self.exchange_of(call) {
                Some(key) if self.calls.exchanges[&key].accept.sse => self.stream_of(key),
                _ => STANDALONE,
            },
        };
        (number, self.log(now, number, None, hint, payload))
    }

    /// The stream that carries what is written about this, if it is there already.
    pub(super) fn number_of(&self, about: About) -> Option<u32> {
        let About::Call(call) = about else { return Some(STANDALONE) };
        let exchange = self.calls.exchanges.get(&self.exchange_of(call)?)?;
        if exchange.accept.sse { exchange.stream } else { Some(STANDALONE) }
    }

    /// A request of the upstream to the client. `payload` writes it for the id that the client
    /// sees. False where too many are open ([`ASKED_MAX`]).
    pub fn ask(
        &mut self,
        now: Instant,
        about: About,
        id: &str,
        incarnation: u32,
        hint: usize,
        payload: impl FnOnce(u64, &mut Vec<u8>),
    ) -> bool {
        if self.calls.asked.len() >= ASKED_MAX {
            return false;
        }
        let timeout = self.settings.limits.server_request_timeout;
        let (key, deadline) = self.calls.ask(now, id, incarnation, timeout);
        self.expect_timeout(deadline);
        let at = self.notify(now, about, hint, |out| payload(key, out));
        if let Some(asked) = self.calls.asked.get_mut(&key) {
            asked.at = at;
        }
        true
    }

    /// The upstream takes its request `id` back: `payload` writes the notification for the id
    /// that the client saw, and it goes to the stream that carried the request.
    pub fn withdraw(
        &mut self,
        now: Instant,
        id: &str,
        incarnation: u32,
        payload: impl FnOnce(u64, &mut Vec<u8>),
    ) -> bool {
        let open =
            self.calls.asked.iter().find(|(_, asked)| {
                asked.incarnation == incarnation && jsonrpc::same_id(&asked.id, id)
            });
        let Some((&key, _)) = open else { return false };
        self.take_back(now, key, payload);
        true
    }

    /// The upstream's `incarnation` is gone: its open requests are taken back on the streams that
    /// carried them, its open calls are answered.
    pub fn handle_upstream_lost(&mut self, now: Instant, incarnation: u32, reason: &str) {
        // Before the answers: those finish the streams that carried the requests.
        let asked = self.calls.asked.iter();
        let gone = asked.filter(|(_, asked)| asked.incarnation == incarnation);
        for key in gone.map(|(&key, _)| key).collect::<Vec<_>>() {
            self.take_back(now, key, |id, out| {
                let params = format!(r#"{{"requestId":{id},"reason":"the server is gone"}}"#);
                jsonrpc::notification(out, "notifications/cancelled", Some(&params));
            });
        }
        for call in self.call_keys() {
            let data = r#"{"reason":"upstream_lost"}"#;
            self.respond_error(now, call, codes::UPSTREAM_LOST, reason, Some(data));
        }
    }

    /// Where progress of `call` goes, and the client's token for it: to the call's stream while it
    /// is open, then to the standalone stream while the task that answered it runs.
    pub fn progress_of(&self, call: CallKey) -> Option<(About, &str)> {
        match self.calls.calls.get(&call) {
            Some(open) => Some((About::Call(call), open.token.as_deref()?)),
            None => Some((About::Standalone, self.calls.task_token(call)?)),
        }
    }

    /// The answer to `call` says that the task `id` does its work.
    pub fn keep_task(&mut self, call: CallKey, id: &str) {
        self.calls.keep_task(call, id);
    }

    /// The task `id` has come to a terminal status.
    pub fn end_task(&mut self, id: &str) {
        self.calls.end_task(id);
    }

    /// Progress was reported: the call's clock starts again.
    pub fn handle_progress(&mut self, now: Instant, call: CallKey) {
        if let Some(call) = self.calls.calls.get_mut(&call) {
            call.deadline = now + self.settings.limits.request_timeout;
        }
    }

    /// Where a message goes that says nothing of what it belongs to: exactly one call open: its
    /// stream. Several: the standalone stream if attached, else the newest call. None: the
    /// standalone stream.
    pub fn unrelated(&self) -> About {
        let standalone = self.stream(STANDALONE).is_some_and(|stream| stream.attached().is_some());
        match self.calls.newest() {
            Some(call) if self.calls.calls.len() == 1 || !standalone => About::Call(call),
            _ => About::Standalone,
        }
    }

    /// Every open call is answered with an error and every connection ends in the planned way:
    /// the deadline of a drain.
    pub fn drain(&mut self, now: Instant) {
        for call in self.call_keys() {
            let data = r#"{"reason":"restarted"}"#;
            let message = "the server is restarting; the call was not finished";
            self.respond_error(now, call, codes::RESTARTED, message, Some(data));
        }
        for number in self.streams.numbers() {
            self.close_planned(number);
        }
    }

    /// Makes the exchange's reply a stream, with what was kept for it; false where its client
    /// takes no stream.
    pub fn start(&mut self, now: Instant, key: ExchangeKey) -> bool {
        let Some(exchange) = self.calls.exchanges.get_mut(&key) else { return false };
        if exchange.started || !exchange.accept.sse {
            return exchange.started;
        }
        exchange.started = true;
        let kept = self.calls.take_answers(key);
        let number = self.stream_of(key);
        for answer in kept {
            let id = answered_by(&answer);
            self.log(now, number, id, answer.len(), |out| out.extend_from_slice(&answer));
        }
        self.effects.push_back(Effect::Ready(key));
        true
    }

    /// The exchange of an open call.
    pub fn exchange_of(&self, call: CallKey) -> Option<ExchangeKey> {
        self.calls.calls.get(&call).map(|call| call.exchange)
    }

    /// Keeps an answer, or an error in its place where the session keeps too many already: each of
    /// a batch may be as large as an event, and none leaves before all are there.
    fn keep_answer(&mut self, key: ExchangeKey, id: &str, answer: Vec<u8>) {
        if self.calls.may_keep(answer.len(), &self.settings.limits) {
            self.calls.keep_answer(key, answer);
            return self.relieve_later(STANDALONE);
        }
        self.streams.count_refused_answer();
        let mut error = Vec::with_capacity(160 + id.len());
        let reason = "the answers that wait for others are more than this session may hold";
        let data = r#"{"reason":"no_room"}"#;
        jsonrpc::error(&mut error, Some(id), codes::SERVER_ERROR, reason, Some(data));
        self.calls.keep_answer(key, error);
    }

    pub(super) fn call_keys(&self) -> Vec<CallKey> {
        let mut keys: Vec<CallKey> = self.calls.calls.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// A call ends without an answer: the client cancelled it.
    pub(super) fn retire(&mut self, now: Instant, call: CallKey) {
        let Some(call) = self.calls.take_call(call) else { return };
        let key = call.exchange;
        if let Some(exchange) = self.calls.exchanges.get_mut(&key) {
            exchange.open -= 1;
            exchange.cut_short = true;
            if exchange.started || self.streams.holds_any(exchange.stream) {
                self.start(now, key);
                self.finish_exchange(now, key);
            } else if exchange.open == 0 {
                self.effects.push_back(Effect::Ready(key));
                self.forget_if_taken(key);
            }
        }
    }

    pub(super) fn stream_of(&mut self, key: ExchangeKey) -> u32 {
        let exchange = self.calls.exchanges.get_mut(&key).expect("the exchange is open");
        if let Some(number) = exchange.stream {
            return number;
        }
        let ids = exchange.ids.clone();
        let number = self.add_stream(ids);
        self.calls.exchanges.get_mut(&key).expect("still open").stream = Some(number);
        number
    }

    fn finish_exchange(&mut self, now: Instant, key: ExchangeKey) {
        let Some(exchange) = self.calls.exchanges.get(&key) else { return };
        if exchange.open > 0 {
            return;
        }
        let number = exchange.stream.expect("a started reply has its stream");
        self.streams.finish(now, number, exchange.cut_short);
        self.expect_timeout(now + self.settings.limits.retention);
        self.forget_if_taken(key);
        self.wake(number);
        // A cancelled call logs nothing, and its stream counts all the same.
        self.relieve_later(number);
    }

    pub(super) fn log(
        &mut self,
        now: Instant,
        number: u32,
        answered: Option<&str>,
        hint: usize,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> u64 {
        let event = self.streams.append(now, number, answered, hint, payload);
        // The only one that is kept, so that nothing has asked for its age yet.
        if number == STANDALONE && self.stream(number).is_some_and(|s| s.floor() == event) {
            self.expect_timeout(now + self.settings.limits.retention);
        }
        // What is not committed yet wakes nobody: the journal says when it is.
        if self.stream(number).is_some_and(|stream| stream.committed() == stream.tail()) {
            self.wake(number);
        }
        self.relieve_later(number);
        event
    }

    fn take_back(&mut self, now: Instant, key: u64, payload: impl FnOnce(u64, &mut Vec<u8>)) {
        let Some(asked) = self.calls.take_asked(key) else { return };
        let (carrier, _) = asked.at;
        let open = self.stream(carrier).is_some_and(|stream| !stream.is_finished());
        let number = if open { carrier } else { STANDALONE };
        self.log(now, number, None, 128, |out| payload(key, out));
    }

    pub(super) fn time_out_calls(&mut self, now: Instant, upstream: &mut impl Upstream) {
        let calls = self.calls.calls.iter();
        let mut late: Vec<CallKey> =
            calls.filter(|(_, call)| call.timeout() <= now).map(|(&key, _)| key).collect();
        late.sort_unstable();
        for call in late {
            upstream.cancel(call, None, "the request timed out");
            let data = r#"{"reason":"request_timeout"}"#;
            let message = "the request timed out";
            self.respond_error(now, call, codes::REQUEST_TIMEOUT, message, Some(data));
        }
    }

    pub(super) fn time_out_asked(&mut self, now: Instant, upstream: &mut impl Upstream) {
        let asked = self.calls.asked.iter();
        let late = asked.filter(|(_, asked)| asked.deadline <= now).map(|(&key, _)| key);
        self.fail_asked(now, late.collect(), "the client did not answer in time", upstream);
    }

    /// Requests of the upstream whose event was trimmed before any connection had it.
    pub(super) fn fail_unseen(&mut self, now: Instant, upstream: &mut impl Upstream) {
        let unseen = self.calls.asked.iter().filter(|(_, asked)| {
            let (carrier, number) = asked.at;
            self.stream(carrier).is_none_or(|s| number < s.floor() && number > s.sent_max())
        });
        let keys = unseen.map(|(&key, _)| key).collect();
        self.fail_asked(now, keys, "the client never saw the request", upstream);
    }

    fn fail_asked(
        &mut self,
        now: Instant,
        keys: Vec<u64>,
        reason: &str,
        upstream: &mut impl Upstream,
    ) {
        for key in keys {
            if let Some(asked) = self.calls.take_asked(key) {
                upstream.answer(self, now, &asked, Err(reason));
            }
        }
    }
}

/// The raw id of the request that a final answer is for.
fn answered_by(answer: &[u8]) -> Option<&str> {
    match jsonrpc::parse(answer) {
        Ok(Message::Single(message)) => message.id,
        _ => None,
    }
}
