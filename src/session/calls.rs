//! Requests in flight: the client's calls, the exchanges they belong to, and the upstream's own
//! requests to the client.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
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
    /// Final answers kept while the reply may still become JSON.
    pub(super) answers: Vec<Vec<u8>>,
    /// The raw ids of its requests, for what is told in-band.
    pub(super) ids: Box<[Box<str>]>,
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

/// A call whose answer is a task: its progress goes on, on the standalone stream, until the task's
/// terminal status (MCP 2025-11-25, Tasks).
struct Task {
    call: CallKey,
    id: Box<str>,
    token: Box<str>,
}

type ByKey<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;

/// Everything in flight in one session.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) calls: ByKey<Call>,
    pub(super) exchanges: ByKey<Exchange>,
    pub(super) asked: ByKey<Asked>,
    /// Calls that were answered with a task which still runs, oldest first.
    tasks: VecDeque<Task>,
    next_call: CallKey,
    next_asked: u64,
}

impl Calls {
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
        self.calls.insert(key, call);
        (key, timeout)
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
        self.asked.insert(self.next_asked, asked);
        (self.next_asked, deadline)
    }

    /// The answer to `call` is the task `id`: its token is kept.
    pub(super) fn keep_task(&mut self, call: CallKey, id: &str) {
        let Some(token) = self.calls.get(&call).and_then(|call| call.token.clone()) else { return };
        if self.tasks.len() == TASKS_MAX {
            self.tasks.pop_front();
        }
        self.tasks.push_back(Task { call, id: id.into(), token });
    }

    /// The client's progress token of a task that was started by `call`.
    pub(super) fn task_token(&self, call: CallKey) -> Option<&str> {
        self.tasks.iter().find(|task| task.call == call).map(|task| task.token.as_ref())
    }

    /// The task `id` has come to its end.
    pub(super) fn end_task(&mut self, id: &str) {
        self.tasks.retain(|task| *task.id != *id);
    }

    /// The newest call in flight.
    pub(super) fn newest(&self) -> Option<CallKey> {
        self.calls.keys().copied().max()
    }
}
