//! The built-in demo server: an MCP server as a pure state machine.
//!
//! It is served in-process behind HTTP and, the same code, over stdin and stdout. It has no clock,
//! no thread and no IO: it is told what arrived and what time it is, and tells a [`Sink`] what to
//! send. The order of calls for one session: [`Builtin::new`]; then `handle_*` for what arrives, in
//! order; [`Builtin::poll`] when the instant of [`Builtin::poll_timeout`] has come, **and when a
//! stream that had no room has some again**, since a producer that found no room asks for no time.
//!
//! Invariants: one answer per call, unless it is cancelled; an answer comes after every event of
//! its call; the same inputs give the same outputs; what a session keeps is bounded by its open
//! calls.
//! What is handed to the sink is raw JSON on one line.

mod ask;
mod calls;
mod content;
mod fixtures;
mod producer;
mod prompts;
mod resources;
#[cfg(test)]
mod tests;
pub mod tools;

use std::borrow::Cow;
use std::mem;
use std::time::Instant;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

pub use crate::session::About;
use ask::{ClientCapabilities, ClientOffers};
use calls::Calls;
use producer::Allowance;
pub use producer::push_padded_params;
use resources::Subscriptions;
use tools::Reply;

use crate::mcp::jsonrpc::{codes, push_string};
use crate::mcp::revision::{self, Revision};

/// MCP 2025-11-25, resources: resource not found.
const RESOURCE_NOT_FOUND: i32 = -32002;

/// Bytes of the composing buffer that a session keeps when nothing is open.
const BUFFER_KEPT_BYTES: usize = 8 * 1024;

const SERVER: &str = concat!(
    r#","capabilities":{"completions":{},"logging":{},"prompts":{},"#,
    r#""resources":{"subscribe":true},"tools":{}},"#,
    r#""serverInfo":{"name":"gapless-demo","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""},"instructions":"A demo server. `echo` returns its text; `stream` sends numbered "#,
    r#"messages on the stream of the call and `standalone` on the standalone stream; `progress` "#,
    r#"reports progress; `sleep` takes its time. The other tools are fixtures of the MCP "#,
    r#"conformance suite."}"#
);

/// A JSON-RPC error (JSON-RPC 2.0 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcError<'a> {
    /// The code.
    pub code: i32,
    /// One sentence, plain text.
    pub message: &'a str,
    /// Raw JSON.
    pub data: Option<&'a str>,
}

/// What the machine tells the world; the caller composes envelopes around raw JSON.
pub trait Sink {
    /// `{"jsonrpc":"2.0","method":method,"params":params}` on that stream. `params` is raw JSON.
    fn notify(&mut self, about: About, method: &str, params: &[u8]);
    /// A request to the client; `id` is the machine's own, unique for its life.
    fn request(&mut self, about: About, id: u64, method: &str, params: &[u8]);
    /// The final answer of a call: raw JSON of `result`, or an error.
    fn respond(&mut self, call: u64, result: Result<&[u8], RpcError<'_>>);
    /// Whether a producer may go on writing about this (back-pressure). Asked before each event
    /// that a poll sends. After `false`, poll again once there is room.
    fn has_room(&self, about: About) -> bool;
}

/// Severity of a log message (RFC 5424 section 6.2.1), the least severe first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// The default: nothing is held back until the client says so.
    #[default]
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

/// Why a request is answered with an error.
struct Refusal {
    code: i32,
    message: Cow<'static, str>,
    data: Option<String>,
}

impl Refusal {
    fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: codes::INVALID_PARAMS, message: message.into(), data: None }
    }

    fn resource_not_found(uri: &str) -> Self {
        let mut data = br#"{"uri":"#.to_vec();
        push_string(&mut data, uri);
        data.push(b'}');
        Self {
            code: RESOURCE_NOT_FOUND,
            message: "Resource not found".into(),
            data: Some(String::from_utf8_lossy(&data).into_owned()),
        }
    }
}

/// The demo server, for one session.
#[derive(Default)]
pub struct Builtin {
    /// The open calls; none until there was one.
    calls: Option<Box<Calls>>,
    offers: ClientOffers,
    level: Level,
    subscriptions: Subscriptions,
    /// Where params and results are composed; empty between the calls.
    buffer: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeParams<'a> {
    #[serde(borrow)]
    protocol_version: Cow<'a, str>,
    #[serde(default)]
    capabilities: ClientCapabilities,
}

#[derive(Deserialize)]
struct SetLevelParams {
    level: Level,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListParams {
    cursor: Option<IgnoredAny>,
}

impl Builtin {
    /// A server that nobody has initialized yet. Allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A request of the client. `call` is the caller's own key, unique among the open calls (a
    /// call still open under it is dropped); `params` and `progress_token`
    /// (`params._meta.progressToken`) are raw JSON.
    pub fn handle_request(
        &mut self,
        now: Instant,
        call: u64,
        method: &str,
        params: Option<&str>,
        progress_token: Option<&str>,
        sink: &mut impl Sink,
    ) {
        let mut out = mem::take(&mut self.buffer);
        let reply = match method {
            "tools/call" => {
                let context = tools::Context { now, call, progress_token, offers: self.offers };
                tools::call(&context, params, &mut self.calls, &mut out, sink)
            }
            _ => self.answer(method, params, &mut out, sink).map(|()| Reply::Now),
        };
        match reply {
            Ok(Reply::Now) => sink.respond(call, Ok(&out)),
            Ok(Reply::Later) => {}
            Err(Refusal { code, message, data }) => {
                let error = RpcError { code, message: &message, data: data.as_deref() };
                sink.respond(call, Err(error));
            }
        }
        self.keep(out);
    }

    /// A notification of the client. None of those that MCP defines changes anything here:
    /// `notifications/cancelled` belongs to [`Self::handle_cancelled`], since it names the
    /// client's id of the call, which the caller alone knows.
    pub fn handle_notification(
        &mut self,
        _now: Instant,
        _method: &str,
        _params: Option<&str>,
        _sink: &mut impl Sink,
    ) {
    }

    /// The client's answer to the request `id`: raw JSON of its result, or of its error object.
    /// An answer to a request that is not open is ignored.
    pub fn handle_response(
        &mut self,
        _now: Instant,
        id: u64,
        result: Result<&str, &str>,
        sink: &mut impl Sink,
    ) {
        let taken = self.calls.as_mut().and_then(|calls| calls.take_asked(id));
        let Some((call, question)) = taken else { return };
        let mut out = mem::take(&mut self.buffer);
        question.write_result(result, &mut out);
        sink.respond(call, Ok(&out));
        self.keep(out);
    }

    /// The call is cancelled: it ends without an answer.
    pub fn handle_cancelled(&mut self, call: u64) {
        if let Some(calls) = &mut self.calls {
            calls.remove(call);
        }
    }

    /// Goes on with whatever is due: at most `budget` bytes of params in all, fairly over the
    /// calls. One event goes out even if it is larger than the budget, so that it ever does.
    pub fn poll(&mut self, now: Instant, budget: usize, sink: &mut impl Sink) {
        let Some(calls) = &mut self.calls else { return };
        let mut out = mem::take(&mut self.buffer);
        calls.poll(now, self.level, Allowance::new(budget), &mut out, sink);
        self.keep(out);
    }

    /// When [`Self::poll`] wants to be called next: `None` when nothing open needs time, an instant
    /// not after `now` when something can go on at once.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        self.calls.as_ref()?.next_turn(now)
    }

    /// Nothing is expected for a while: gives back what only a busy session needs.
    pub fn rest(&mut self) {
        if self.is_quiet() {
            self.buffer = Vec::new();
        }
    }

    /// Whether no call is open.
    fn is_quiet(&self) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.is_empty())
    }

    /// The requests that would bring a new server to where this one stands: method and params, the
    /// first of them `initialize`.
    pub fn remember(&self) -> Vec<(&'static str, String)> {
        let level = format!(r#"{{"level":"{}"}}"#, self.level.name());
        let subscriptions = self.subscriptions.uris();
        let subscriptions =
            subscriptions.map(|uri| ("resources/subscribe", format!(r#"{{"uri":"{uri}"}}"#)));
        [("initialize", self.offers.initialize_params()), ("logging/setLevel", level)]
            .into_iter()
            .chain(subscriptions)
            .collect()
    }

    /// Writes the result of a request that is answered at once.
    fn answer(
        &mut self,
        method: &str,
        params: Option<&str>,
        out: &mut Vec<u8>,
        sink: &mut impl Sink,
    ) -> Result<(), Refusal> {
        match method {
            "initialize" => return self.initialize(params, out),
            "resources/read" => return resources::read(params, self.level, out),
            "prompts/get" => return prompts::get(params, out),
            "completion/complete" => return prompts::complete(params, out),
            "tools/list" => {
                refuse_cursor(params)?;
                tools::write_list(out);
                return Ok(());
            }
            "resources/list" => refuse_cursor(params).map(|()| push(out, resources::LIST))?,
            "resources/templates/list" => {
                refuse_cursor(params).map(|()| push(out, resources::TEMPLATES))?;
            }
            "prompts/list" => refuse_cursor(params).map(|()| push(out, prompts::LIST))?,
            "ping" => push(out, "{}"),
            "resources/subscribe" => {
                self.subscriptions.set(params, true)?;
                push(out, "{}");
            }
            "resources/unsubscribe" => {
                self.subscriptions.set(params, false)?;
                push(out, "{}");
            }
            "logging/setLevel" => {
                self.set_level(parse::<SetLevelParams>(params)?.level, sink);
                push(out, "{}");
            }
            _ => {
                let message = format!("unknown method: {method}").into();
                return Err(Refusal { code: codes::METHOD_NOT_FOUND, message, data: None });
            }
        }
        Ok(())
    }

    fn initialize(&mut self, params: Option<&str>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let params: InitializeParams = parse(params)?;
        let asked = Revision::parse(&params.protocol_version);
        let agreed = asked.unwrap_or(revision::NEWEST);
        self.offers = params.capabilities.offers();
        push(out, r#"{"protocolVersion":"#);
        push_string(out, agreed.as_str());
        push(out, SERVER);
        Ok(())
    }

    /// Changes the level, which is what the watched resource shows.
    fn set_level(&mut self, level: Level, sink: &mut impl Sink) {
        let changed = mem::replace(&mut self.level, level) != level;
        if changed && self.subscriptions.watched() {
            let params = format!(r#"{{"uri":"{}"}}"#, resources::WATCHED);
            sink.notify(About::Standalone, "notifications/resources/updated", params.as_bytes());
        }
    }

    /// Takes the buffer back: large only as long as a producer may need it again.
    fn keep(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.is_quiet() && buffer.capacity() > BUFFER_KEPT_BYTES {
            buffer.shrink_to(BUFFER_KEPT_BYTES);
        }
        self.buffer = buffer;
    }
}

fn push(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

/// Every list is one page, so no cursor is one of ours.
fn refuse_cursor(params: Option<&str>) -> Result<(), Refusal> {
    match params.map(|params| parse::<ListParams>(Some(params))).transpose()? {
        Some(ListParams { cursor: Some(_) }) => Err(Refusal::invalid_params("unknown cursor")),
        _ => Ok(()),
    }
}

fn parse<'a, T: Deserialize<'a>>(params: Option<&'a str>) -> Result<T, Refusal> {
    let params = params.ok_or_else(|| Refusal::invalid_params("params are missing"))?;
    serde_json::from_str(params)
        .map_err(|error| Refusal::invalid_params(format!("invalid params: {error}")))
}

/// Arguments may be left out when none is required.
fn parse_arguments<'a, T>(arguments: Option<&'a RawValue>) -> Result<T, Refusal>
where
    T: Deserialize<'a> + Default,
{
    arguments.map_or_else(|| Ok(T::default()), |arguments| parse(Some(arguments.get())))
}

/// The argument as a JSON string, still in its quotes.
fn string_argument<'a>(argument: Option<&'a RawValue>, name: &str) -> Result<&'a str, Refusal> {
    argument
        .map(RawValue::get)
        .filter(|raw| raw.starts_with('"'))
        .ok_or_else(|| Refusal::invalid_params(format!("{name} must be a string")))
}
