//! Requests in flight: the client's calls, the exchanges they belong to, and the upstream's own
//! requests to the client.

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use crate::limits::Limits;
use crate::mcp::headers::Accept;

use super::table::IdHasher;

/// Progress tokens of tasks kept in one session after their calls were answered.
const TASKS_MAX: usize = 256;

/// A session's own key of one call; also its id and progress token towards a piped upstream.
pub type CallKey = u64;
/// The key of an exchange: that of its first call.
pub type ExchangeKey = u64;

/// One request of the client that has no final answer yet.
pub(super) struct Call {
    /// The client's id, raw JSON text.
    pub(super) id: Box<str>,
    /// The client's progress token, raw JSON text.
    pub(super) token: Option<Box<str>>,
    pub(super) exchange: ExchangeKey,
    /// When it times out unless progress is reported.
    pub(super) deadline: Instant,
    /// When it times out whatever is reported.
    pub(super) deadline_max: Instant,
}

impl Call {
    /// Bytes charged for it.
    fn bytes(&self) -> u64 {
        let token = self.token.as_ref().map_or(0, |token| token.len());
        (size_of::<Self>() + self.id.len() + token) as u64
    }

    /// The earliest instant at which the call times out.
    pub(super) fn timeout(&self) -> Instant {
        self.deadline.min(self.deadline_max)
    }
}

/// How a POST wants to be answered.
#[derive(Clone, Copy, Debug)]
pub struct ReplyForm {
    /// What the client accepts.
    pub accept: Accept,
    /// The operator's choice.
    pub answers: Answers,
}

/// How answers to requests are sent: the operator's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Answers {
    /// JSON when the answer is there at once, else a stream.
    #[default]
    Auto,
    /// Always a stream, where the client accepts one.
    Sse,
    /// JSON, unless the upstream sends something else first.
    Json,
}

/// The reply to one POST that holds requests: dormant until something decides its form.
pub(super) struct Exchange {
    pub(super) accept: Accept,
    pub(super) batch: bool,
    /// Calls without a final answer.
    pub(super) open: u32,
    /// The stream, from the first message on that goes there.
    pub(super) stream: Option<u32>,
    /// Whether the reply is a stream for good.
    pub(super) started: bool,
    /// Whether the connection that posted has its reply, or is gone.
    pub(super) taken: bool,
    /// Whether one of its requests ended without an answer.
    pub(super) cut_short: bool,
    /// Final answers kept while the reply may still become JSON.
    pub(super) answers: Vec<Vec<u8>>,
    /// The raw ids of its requests, for what is told in-band.
    pub(super) ids: Box<[Box<str>]>,
}

impl Exchange {
    /// A reply to requests of these ids, of which none is in flight yet.
    pub(super) fn new(accept: Accept, batch: bool, ids: Box<[Box<str>]>) -> Self {
        Self {
            accept,
            batch,
            open: ids.len() as u32,
            stream: None,
            started: false,
            taken: false,
            cut_short: false,
            answers: Vec::new(),
            ids,
        }
    }

    /// Bytes charged for it, without the answers that it keeps.
    fn bytes(&self) -> u64 {
        size_of::<Self>() as u64 + ids_bytes(&self.ids)
    }
}

/// Bytes charged for the ids of requests.
pub(super) fn ids_bytes(ids: &[Box<str>]) -> u64 {
    ids.iter().map(|id| (size_of::<Box<str>>() + id.len()) as u64).sum()
}

/// Bytes charged for answers that are kept.
fn answers_bytes(answers: &[Vec<u8>]) -> u64 {
    answers.iter().map(|answer| (size_of::<Vec<u8>>() + answer.len()) as u64).sum()
}

/// A request of the upstream that the client has not answered.
#[derive(Debug)]
pub struct Asked {
    /// The upstream's own id, raw JSON text.
    pub id: Box<str>,
    /// The upstream's incarnation that asked.
    pub incarnation: u32,
    /// The stream that carried the request, and its number there.
    pub(super) at: (u32, u64),
    pub(super) deadline: Instant,
}

impl Asked {
    /// Bytes charged for it.
    fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.id.len()) as u64
    }
}

/// A call whose answer is a task: its progress goes on, on the standalone stream, until the task's
/// terminal status (MCP 2025-11-25, Tasks).
struct Task {
    call: CallKey,
    id: Box<str>,
    token: Box<str>,
}

impl Task {
    /// Bytes charged for it.
    fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.id.len() + self.token.len()) as u64
    }
}

type ByKey<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;

/// Everything in flight in one session: made when something is looked for, and gone while nothing
/// is there and the session rests.
#[derive(Default)]
pub(super) struct Calls {
    flight: OnceCell<Box<Flight>>,
    next_call: CallKey,
    next_asked: u64,
}

/// What is in flight.
///
/// Invariant: `kept` and `bytes` are what [`Calls::recount`] finds, so whoever adds or takes
/// something does it through a method of [`Calls`].
#[derive(Default)]
pub(super) struct Flight {
    pub(super) calls: ByKey<Call>,
    pub(super) exchanges: ByKey<Exchange>,
    pub(super) asked: ByKey<Asked>,
    /// Calls that were answered with a task which still runs, oldest first.
    tasks: VecDeque<Task>,
    /// Bytes charged for answers that are kept because their reply may still become JSON.
    kept: u64,
    /// Bytes charged for everything else.
    bytes: u64,
}

impl Flight {
    fn is_empty(&self) -> bool {
        let Self { calls, exchanges, asked, tasks, .. } = self;
        calls.is_empty() && exchanges.is_empty() && asked.is_empty() && tasks.is_empty()
    }
}

impl Deref for Calls {
    type Target = Flight;

    fn deref(&self) -> &Flight {
        self.flight.get_or_init(Box::default)
    }
}

impl DerefMut for Calls {
    fn deref_mut(&mut self) -> &mut Flight {
        self.flight.get_or_init(Box::default);
        self.flight.get_mut().expect("it was just made")
    }
}

impl Calls {
    /// Nothing in flight; requests to the client are numbered after `asked_before`.
    pub(super) fn new(asked_before: u64) -> Self {
        Self { next_asked: asked_before, ..Self::default() }
    }

    pub(super) fn add(
        &mut self,
        now: Instant,
        id: &str,
        token: Option<&str>,
        exchange: ExchangeKey,
        timeout: Duration,
        limits: &Limits,
    ) -> (CallKey, Instant) {
        self.next_call += 1;
        let key = self.next_call;
        let call = Call {
            id: id.into(),
            token: token.map(Into::into),
            exchange,
            deadline: now + timeout,
            deadline_max: now + limits.request_timeout_max,
        };
        let timeout = call.timeout();
        self.bytes += call.bytes();
        self.calls.insert(key, call);
        (key, timeout)
    }

    /// Gives back the room of what is no longer in flight.
    pub(super) fn rest(&mut self) {
        if self.flight.get().is_some_and(|flight| flight.is_empty()) {
            self.flight.take();
        }
    }

    /// Bytes charged for all of it.
    pub(super) fn bytes(&self) -> u64 {
        self.flight.get().map_or(0, |flight| flight.bytes + flight.kept)
    }

    /// As [`Calls::bytes`], counted anew.
    pub(super) fn recount(&self) -> u64 {
        let calls: u64 = self.calls.values().map(Call::bytes).sum();
        let asked: u64 = self.asked.values().map(Asked::bytes).sum();
        let tasks: u64 = self.tasks.iter().map(Task::bytes).sum();
        let exchanges = self.exchanges.values();
        let exchanges: u64 = exchanges.map(|e| e.bytes() + answers_bytes(&e.answers)).sum();
        calls + asked + tasks + exchanges
    }

    /// The call is no longer in flight.
    pub(super) fn take_call(&mut self, key: CallKey) -> Option<Call> {
        let call = self.calls.remove(&key)?;
        self.bytes -= call.bytes();
        Some(call)
    }

    pub(super) fn add_exchange(&mut self, key: ExchangeKey, exchange: Exchange) {
        self.bytes += exchange.bytes();
        self.exchanges.insert(key, exchange);
    }

    /// Forgets an exchange, and the answers that it still keeps.
    pub(super) fn remove_exchange(&mut self, key: ExchangeKey) {
        if let Some(exchange) = self.exchanges.remove(&key) {
            self.bytes -= exchange.bytes();
            self.kept -= answers_bytes(&exchange.answers);
        }
    }

    /// Whether an answer of so many bytes may be kept: of all answers together half of the
    /// session's budget, and always one.
    pub(super) fn may_keep(&self, bytes: usize, limits: &Limits) -> bool {
        self.kept == 0 || self.kept + bytes as u64 <= limits.session_bytes / 2
    }

    /// Keeps a final answer while the reply may still become JSON.
    pub(super) fn keep_answer(&mut self, key: ExchangeKey, answer: Vec<u8>) {
        let Flight { exchanges, kept, .. } = &mut **self;
        if let Some(exchange) = exchanges.get_mut(&key) {
            *kept += answers_bytes(std::slice::from_ref(&answer));
            exchange.answers.push(answer);
        }
    }

    /// The answers that were kept, in the order in which they came.
    pub(super) fn take_answers(&mut self, key: ExchangeKey) -> Vec<Vec<u8>> {
        let Flight { exchanges, kept, .. } = &mut **self;
        let Some(exchange) = exchanges.get_mut(&key) else { return Vec::new() };
        let answers = std::mem::take(&mut exchange.answers);
        *kept -= answers_bytes(&answers);
        answers
    }

    /// The request of the upstream is no longer open.
    pub(super) fn take_asked(&mut self, key: u64) -> Option<Asked> {
        let asked = self.asked.remove(&key)?;
        self.bytes -= asked.bytes();
        Some(asked)
    }

    /// The key that the next call will have.
    pub(super) fn next_key(&self) -> CallKey {
        self.next_call + 1
    }

    pub(super) fn ask(
        &mut self,
        now: Instant,
        id: &str,
        incarnation: u32,
        timeout: Duration,
    ) -> (u64, Instant) {
        self.next_asked += 1;
        let deadline = now + timeout;
        let asked = Asked { id: id.into(), incarnation, at: (0, 0), deadline };
        self.bytes += asked.bytes();
        let key = self.next_asked;
        self.asked.insert(key, asked);
        (key, deadline)
    }

    /// The answer to `call` is the task `id`: its token is kept.
    pub(super) fn keep_task(&mut self, call: CallKey, id: &str) {
        let Some(token) = self.calls.get(&call).and_then(|call| call.token.clone()) else { return };
        if self.tasks.len() == TASKS_MAX
            && let Some(oldest) = self.tasks.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
        let task = Task { call, id: id.into(), token };
        self.bytes += task.bytes();
        self.tasks.push_back(task);
    }

    /// The client's progress token of a task that was started by `call`.
    pub(super) fn task_token(&self, call: CallKey) -> Option<&str> {
        self.tasks.iter().find(|task| task.call == call).map(|task| task.token.as_ref())
    }

    /// The task `id` has come to its end.
    pub(super) fn end_task(&mut self, id: &str) {
        let Flight { tasks, bytes, .. } = &mut **self;
        tasks.retain(|task| {
            let ended = *task.id == *id;
            *bytes -= if ended { task.bytes() } else { 0 };
            !ended
        });
    }

    /// The newest call in flight.
    pub(super) fn newest(&self) -> Option<CallKey> {
        self.calls.keys().copied().max()
    }
}
