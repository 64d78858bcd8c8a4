//! The built-in server behind a session: no pipe, no ids to rewrite. Pure.

use std::cell::Cell;
use std::time::Instant;

use crate::mcp::jsonrpc::{self, Envelope};
use crate::session::{About, Asked, CallKey, Remembered, Session, Upstream};

use super::builtin::tools::{Flood, ToolCall};
use super::builtin::{Builtin, RpcError, Sink};

/// The built-in server of one session.
pub struct InProcess {
    builtin: Builtin,
    initialize: Option<CallKey>,
    /// A producer found no room: it goes on when its stream has some again.
    waits_for_room: bool,
    /// Calls whose events shall come from a thread of their own.
    off_core: Vec<(CallKey, Flood)>,
}

impl Default for InProcess {
    fn default() -> Self {
        Self {
            builtin: Builtin::new(),
            initialize: None,
            waits_for_room: false,
            off_core: Vec::new(),
        }
    }
}

impl InProcess {
    /// A server that stands where the one of a session stood that outlived its process.
    pub fn restored(now: Instant, remembered: &Remembered) -> Self {
        let mut restored = Self::default();
        let initialize = ("initialize", remembered.initialize.as_str());
        let others = remembered.requests.iter().map(|(method, params)| (&**method, &**params));
        for (method, params) in std::iter::once(initialize).chain(others) {
            restored.builtin.handle_request(now, 0, method, Some(params), None, &mut Unheard);
        }
        restored
    }

    /// When [`InProcess::run`] wants to be called; an instant that has passed means at once.
    pub fn timeout(&self, now: Instant) -> Option<Instant> {
        self.builtin.poll_timeout(now)
    }

    /// Whether a producer waits for room on its stream.
    pub fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    /// The next call whose events shall come from a thread of their own.
    pub fn poll_off_core(&mut self) -> Option<(CallKey, Flood)> {
        self.off_core.pop()
    }

    /// Nothing is expected for a while: gives back what only a busy session needs.
    pub fn rest(&mut self) {
        self.builtin.rest();
    }

    /// Lets what is due produce at most `budget` bytes.
    pub fn run(&mut self, session: &mut Session, now: Instant, budget: usize) {
        self.waits_for_room = false;
        let mut wire = Wire::new(session, now, self.initialize);
        self.builtin.poll(now, budget, &mut wire);
        self.waits_for_room = wire.full.get();
    }
}

impl Upstream for InProcess {
    fn request(
        &mut self,
        session: &mut Session,
        now: Instant,
        call: CallKey,
        message: &Envelope<'_>,
    ) {
        let method = message.method.as_deref().unwrap_or_default();
        if method == "initialize" {
            self.initialize = Some(call);
        }
        if let Some(flood) = off_core(method, message.params) {
            self.off_core.push((call, flood));
            return;
        }
        let token = jsonrpc::request_progress_token(message);
        let mut wire = Wire::new(session, now, self.initialize);
        self.builtin.handle_request(now, call, method, message.params, token, &mut wire);
    }

    fn notification(&mut self, session: &mut Session, now: Instant, message: &Envelope<'_>) {
        let method = message.method.as_deref().unwrap_or_default();
        let mut wire = Wire::new(session, now, self.initialize);
        self.builtin.handle_notification(now, method, message.params, &mut wire);
    }

    fn cancel(&mut self, call: CallKey, _: Option<&Envelope<'_>>, _: &str) {
        self.builtin.handle_cancelled(call);
    }

    fn answer(
        &mut self,
        session: &mut Session,
        now: Instant,
        asked: &Asked,
        answer: Result<&Envelope<'_>, &str>,
    ) {
        let Ok(id) = asked.id.parse() else { return };
        let given_up;
        let result = match answer {
            Ok(message) if message.is_error => Err(message.outcome.unwrap_or("{}")),
            Ok(message) => Ok(message.outcome.unwrap_or("{}")),
            Err(reason) => {
                given_up = error_object(reason);
                Err(given_up.as_str())
            }
        };
        let mut wire = Wire::new(session, now, self.initialize);
        self.builtin.handle_response(now, id, result, &mut wire);
    }

    fn remember(&self) -> Option<Remembered> {
        let mut all = self.builtin.remember().into_iter();
        let (_, initialize) = all.next()?;
        let requests = all.map(|(method, params)| (method.to_owned(), params)).collect();
        Some(Remembered { initialize, result: "{}".to_owned(), requests })
    }
}

/// Where the answers go that a restored server gives to what its session had asked before.
struct Unheard;

impl Sink for Unheard {
    fn notify(&mut self, _: About, _: &str, _: &[u8]) {}
    fn request(&mut self, _: About, _: u64, _: &str, _: &[u8]) {}
    fn respond(&mut self, _: u64, _: Result<&[u8], RpcError<'_>>) {}

    fn has_room(&self, _: About) -> bool {
        false
    }
}

/// The flood of a `stream` call that asks for a thread of its own. What is wrong with a call is for
/// the server itself to say.
fn off_core(method: &str, params: Option<&str>) -> Option<Flood> {
    let asks = method == "tools/call" && params.is_some_and(|text| text.contains("off_core"));
    let call = asks.then(|| ToolCall::parse(params).ok()).flatten()?;
    let flood = (call.name == "stream").then(|| Flood::parse(call.arguments).ok()).flatten()?;
    flood.off_core.then_some(flood)
}

/// The error object that the server is given where no answer will come.
fn error_object(reason: &str) -> String {
    let mut text =
        format!(r#"{{"code":{},"message":"#, jsonrpc::codes::REQUEST_TIMEOUT).into_bytes();
    jsonrpc::push_string(&mut text, reason);
    text.push(b'}');
    String::from_utf8(text).expect("a JSON string is UTF-8")
}

/// The session as the built-in server sees it.
struct Wire<'s> {
    session: &'s mut Session,
    now: Instant,
    initialize: Option<CallKey>,
    full: Cell<bool>,
}

impl<'s> Wire<'s> {
    fn new(session: &'s mut Session, now: Instant, initialize: Option<CallKey>) -> Self {
        Self { session, now, initialize, full: Cell::new(false) }
    }

    /// The server has accepted the session.
    fn accept(&mut self, result: &[u8]) {
        let result = std::str::from_utf8(result).unwrap_or_default();
        if let Some((_, name)) = jsonrpc::protocol_version(result) {
            self.session.set_initialized(&name);
        }
    }
}

impl Sink for Wire<'_> {
    fn notify(&mut self, about: About, method: &str, params: &[u8]) {
        if let About::Call(call) = about {
            self.session.handle_progress(self.now, call);
        }
        let hint = params.len() + method.len() + 64;
        self.session.notify(self.now, about, hint, |out| {
            jsonrpc::event(out, method, params);
        });
    }

    fn request(&mut self, about: About, id: u64, method: &str, params: &[u8]) {
        let hint = params.len() + method.len() + 96;
        let params = String::from_utf8_lossy(params);
        // Never too many: each asks for an open call, and those have a lower bound.
        self.session.ask(self.now, about, &id.to_string(), 0, hint, |key, out| {
            jsonrpc::request(out, itoa::Buffer::new().format(key), method, Some(&params));
        });
    }

    fn respond(&mut self, call: u64, result: Result<&[u8], RpcError<'_>>) {
        match result {
            Ok(result) => {
                if self.initialize == Some(call) {
                    self.accept(result);
                }
                self.session.respond(self.now, call, result.len() + 40, |id, out| {
                    jsonrpc::result(out, id, result);
                });
            }
            Err(error) => {
                let RpcError { code, message, data } = error;
                self.session.respond_error(self.now, call, code, message, data);
            }
        }
    }

    fn has_room(&self, about: About) -> bool {
        let room = self.session.has_room(about, self.now);
        self.full.set(self.full.get() || !room);
        room
    }
}
