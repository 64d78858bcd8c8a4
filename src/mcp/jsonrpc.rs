//! JSON-RPC 2.0 as MCP uses it: envelopes over raw text, and the few messages written here.
//!
//! * A message goes through byte for byte. What is read of it are spans of its text; what is
//!   changed (ids, progress tokens, revisions) is spliced into it.
//! * Where two readers could see two different messages, nothing is passed on: a name that routing
//!   rests on and that occurs twice, also in an escaped spelling, makes the message malformed.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::json::{self, Duplicate, Scanner};
use crate::limits::{BATCH_MESSAGES_MAX, RPC_ID_BYTES_MAX};

/// The error codes that are written or understood here: JSON-RPC 2.0 section 5.1, the two that
/// MCP's SDKs made a convention, and this program's own, outside the range that MCP reserves.
pub mod codes {
    /// The text is not JSON.
    pub const PARSE_ERROR: i32 = -32700;
    /// The JSON is not a JSON-RPC message, or not one that may be sent here.
    pub const INVALID_REQUEST: i32 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// The parameters are wrong.
    pub const INVALID_PARAMS: i32 = -32602;
    /// The receiver failed.
    pub const INTERNAL_ERROR: i32 = -32603;
    /// SDK convention: the server refuses the request at this point (no session named).
    pub const SERVER_ERROR: i32 = -32000;
    /// SDK convention: the session is unknown, expired or ended.
    pub const SESSION_NOT_FOUND: i32 = -32001;
    /// The events after the cursor are no longer kept, or the whole stream has expired.
    pub const LOG_TRUNCATED: i32 = -31001;
    /// The cursor lies ahead of everything that was ever sent.
    pub const CURSOR_AHEAD: i32 = -31002;
    /// The cursor belongs to an older epoch of the log.
    pub const EPOCH_CHANGED: i32 = -31003;
    /// The log failed and serves nothing any more.
    pub const LOG_FAILED: i32 = -31004;
    /// The upstream died while it worked on the request.
    pub const UPSTREAM_LOST: i32 = -31005;
    /// This program was restarted while the request was open.
    pub const RESTARTED: i32 = -31006;
    /// The upstream took longer than it is given.
    pub const REQUEST_TIMEOUT: i32 = -31007;
}

/// The three kinds of JSON-RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A method and an id: answered.
    Request,
    /// A method without an id: never answered.
    Notification,
    /// A result or an error for an id.
    Response,
}

/// One message: its text, and what routing needs to know of it.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// The whole message without the white space around it.
    pub text: &'a str,
    /// Request, notification or response.
    pub kind: Kind,
    /// The id's raw JSON text. A request's is a string or an integer; a response's may also be
    /// `null` where it is an error; a notification has none.
    pub id: Option<&'a str>,
    /// The method's name, decoded; a response has none.
    pub method: Option<Cow<'a, str>>,
    /// The raw parameters, an object or an array; absent also where they are `null`.
    pub params: Option<&'a str>,
    /// The raw `result` or `error` of a response.
    pub outcome: Option<&'a str>,
    /// Whether the response is an error.
    pub is_error: bool,
    progress_token: Option<&'a str>,
}

/// What one body, line or event holds.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// One message.
    Single(Envelope<'a>),
    /// A batch array (MCP 2025-03-26 and older) of 1 to [`BATCH_MESSAGES_MAX`] messages.
    Batch(Vec<Envelope<'a>>),
}

/// Why a text is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed<'a> {
    /// [`codes::PARSE_ERROR`] or [`codes::INVALID_REQUEST`].
    pub code: i32,
    /// The reason, for the sender.
    pub reason: &'static str,
    /// The raw id, where the text is JSON and names exactly one that a request may have. Of a
    /// batch it is absent.
    pub id: Option<&'a str>,
}

impl Malformed<'_> {
    fn not_json(reason: &'static str) -> Self {
        Self { code: codes::PARSE_ERROR, reason, id: None }
    }

    fn invalid(reason: &'static str) -> Self {
        Self { code: codes::INVALID_REQUEST, reason, id: None }
    }
}

impl From<json::Fault> for Malformed<'_> {
    fn from(fault: json::Fault) -> Self {
        Self::not_json(fault.0)
    }
}

/// Reads a message or a batch. The whole text must be JSON in UTF-8 before anything else about
/// it counts, so that [`codes::PARSE_ERROR`] and [`codes::INVALID_REQUEST`] do not depend on the
/// order of members. A malformed element refuses its whole batch.
pub fn parse(bytes: &[u8]) -> Result<Message<'_>, Malformed<'_>> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::not_json("not UTF-8"))?;
    let text = text.trim_matches(json::is_space);
    let mut scanner = Scanner::new(text);
    match scanner.peek() {
        Some(b'{') => {
            let mut members = Members::default();
            scanner.object(0, |key, value| members.take(key, value))?;
            scanner.end()?;
            members.envelope(text).map(Message::Single)
        }
        Some(b'[') => batch(scanner),
        _ => {
            scanner.value(0)?;
            scanner.end()?;
            Err(Malformed::invalid("a message is an object"))
        }
    }
}

#[cold]
fn batch(mut scanner: Scanner<'_>) -> Result<Message<'_>, Malformed<'_>> {
    let mut elements = Vec::new();
    let mut count = 0_usize;
    scanner.array(0, |element| {
        count += 1;
        if count <= BATCH_MESSAGES_MAX {
            elements.push(element);
        }
    })?;
    scanner.end()?;
    if count == 0 {
        return Err(Malformed::invalid("an empty batch"));
    }
    if count > BATCH_MESSAGES_MAX {
        return Err(Malformed::invalid("too many messages in a batch"));
    }
    let read = |text| {
        let mut members = Members::default();
        // It is JSON already, so what can be wrong is that it is no object.
        Scanner::new(text)
            .object(1, |key, value| members.take(key, value))
            .map_err(|_| Malformed::invalid("a message is an object"))?;
        members.envelope(text).map_err(|malformed| Malformed { id: None, ..malformed })
    };
    elements.into_iter().map(read).collect::<Result<_, _>>().map(Message::Batch)
}

/// The members of a message that mean something in JSON-RPC, raw.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
    duplicate: bool,
    duplicate_id: bool,
}

impl<'a> Members<'a> {
    #[inline]
    fn take(&mut self, key: &str, value: &'a str) {
        let slot = match &*json::decode(key) {
            "jsonrpc" => &mut self.jsonrpc,
            "id" => {
                self.duplicate_id |= self.id.is_some();
                &mut self.id
            }
            "method" => &mut self.method,
            "params" => &mut self.params,
            "result" => &mut self.result,
            "error" => &mut self.error,
            _ => return,
        };
        self.duplicate |= slot.is_some();
        *slot = Some(value);
    }

    fn envelope(&self, text: &'a str) -> Result<Envelope<'a>, Malformed<'a>> {
        self.checked(text).map_err(|reason| {
            let id = self.id.filter(|id| !self.duplicate_id && is_request_id(id));
            Malformed { code: codes::INVALID_REQUEST, reason, id }
        })
    }

    /// The rules of JSON-RPC 2.0 sections 4 and 5, and MCP's: no fraction in an id, no `null` id
    /// on a request.
    fn checked(&self, text: &'a str) -> Result<Envelope<'a>, &'static str> {
        if self.duplicate {
            return Err("a member of the message occurs twice");
        }
        let version = self.jsonrpc.ok_or("jsonrpc is missing")?;
        if !json::is_string(version) || json::decode(version) != "2.0" {
            return Err("jsonrpc must be \"2.0\"");
        }
        match self.method {
            Some(method) => self.call(text, method),
            None => self.response(text),
        }
    }

    fn call(&self, text: &'a str, method: &'a str) -> Result<Envelope<'a>, &'static str> {
        if !json::is_string(method) {
            return Err("method must be a string");
        }
        if self.result.is_some() || self.error.is_some() {
            return Err("a message has a method or an outcome, not both");
        }
        if !self.id.is_none_or(is_request_id) {
            return Err("an id must be a string or an integer, within its size limit");
        }
        // Several clients write `null` for parameters they do not have.
        let params = self.params.filter(|&params| params != "null");
        if !params.is_none_or(|params| params.starts_with(['{', '['])) {
            return Err("params must be an object or an array");
        }
        let kind = if self.id.is_some() { Kind::Request } else { Kind::Notification };
        let progress_token = match params {
            Some(params) if kind == Kind::Request => find_progress_token(params)?,
            _ => None,
        };
        let decoded = json::decode(method);
        if decoded == "initialize"
            && params.is_some_and(|params| json::member(params, "protocolVersion").is_err())
        {
            return Err("the protocol version occurs twice");
        }
        Ok(Envelope {
            text,
            kind,
            id: self.id,
            method: Some(decoded),
            params,
            outcome: None,
            is_error: false,
            progress_token,
        })
    }

    fn response(&self, text: &'a str) -> Result<Envelope<'a>, &'static str> {
        let (outcome, is_error) = match (self.result, self.error) {
            (Some(result), None) => (result, false),
            (None, Some(error)) => (error, true),
            (None, None) => return Err("a message needs a method, a result or an error"),
            (Some(_), Some(_)) => return Err("a response has a result or an error, not both"),
        };
        if is_error && !outcome.starts_with('{') {
            return Err("error must be an object");
        }
        let id = self.id.ok_or("a response needs an id")?;
        if !(is_request_id(id) || (is_error && id == "null")) {
            return Err("an id must be a string or an integer, within its size limit");
        }
        Ok(Envelope {
            text,
            kind: Kind::Response,
            id: Some(id),
            method: None,
            params: None,
            outcome: Some(outcome),
            is_error,
            progress_token: None,
        })
    }
}

fn is_request_id(id: &str) -> bool {
    id.len() <= RPC_ID_BYTES_MAX && (json::is_string(id) || json::is_integer(id))
}

/// Looks for `_meta.progressToken`, as [`request_progress_token`] documents it.
fn find_progress_token(params: &str) -> Result<Option<&str>, &'static str> {
    static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("progressToken"));
    // Any other spelling of the name escapes at least one ASCII character.
    static ESCAPED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u00"));
    if NAME.find(params.as_bytes()).is_none() && ESCAPED.find(params.as_bytes()).is_none() {
        return Ok(None);
    }
    let twice = |_: Duplicate| "the progress token occurs twice";
    let Some(meta) = json::member(params, "_meta").map_err(twice)? else {
        return Ok(None);
    };
    let token = json::member(meta, "progressToken").map_err(twice)?;
    let token = token.filter(|token| is_token(token));
    if token.is_some_and(|token| token.len() > RPC_ID_BYTES_MAX) {
        return Err("the progress token is too long");
    }
    Ok(token)
}

fn is_token(text: &str) -> bool {
    json::is_string(text) || json::is_number(text)
}

/// A member of a message's parameters that must be there once.
fn param<'a>(envelope: &Envelope<'a>, name: &str) -> Option<&'a str> {
    json::member(envelope.params?, name).ok().flatten()
}

/// A request's `params._meta.progressToken`, raw (a string or a number; anything else asks for no
/// progress). It was found by [`parse`]: a request in which `_meta` or the token occurs twice, or
/// whose token is longer than an id may be, is malformed, since the receiver could otherwise read
/// another token than the one that is rewritten.
pub fn request_progress_token<'a>(envelope: &Envelope<'a>) -> Option<&'a str> {
    envelope.progress_token
}

/// The raw `params.progressToken` of a `notifications/progress`. Absent, of another type or
/// occurring twice: none, and the notification belongs to no request.
pub fn progress_token<'a>(envelope: &Envelope<'a>) -> Option<&'a str> {
    param(envelope, "progressToken").filter(|token| is_token(token))
}

/// The raw `params.requestId` of a `notifications/cancelled`. Absent, no id or occurring twice:
/// none, and the notification belongs to no request.
pub fn cancelled_request_id<'a>(envelope: &Envelope<'a>) -> Option<&'a str> {
    param(envelope, "requestId").filter(|id| is_request_id(id))
}

/// What routing needs of the parameters of an `initialize` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitializeParams<'a> {
    /// The whole parameters, raw.
    pub params: &'a str,
    /// `protocolVersion`, raw: the span to splice where another revision is asked for.
    pub protocol_version_raw: &'a str,
    /// `protocolVersion`, decoded.
    pub protocol_version: Cow<'a, str>,
}

/// The parameters of an `initialize` request; none where `protocolVersion` is not there as one
/// string.
pub fn initialize_params<'a>(envelope: &Envelope<'a>) -> Option<InitializeParams<'a>> {
    let params = envelope.params?;
    let (raw, decoded) = protocol_version(params)?;
    Some(InitializeParams { params, protocol_version_raw: raw, protocol_version: decoded })
}

/// `protocolVersion` of an `initialize` result, raw and decoded; none in any other message.
pub fn result_protocol_version<'a>(envelope: &Envelope<'a>) -> Option<(&'a str, Cow<'a, str>)> {
    protocol_version(envelope.outcome.filter(|_| !envelope.is_error)?)
}

/// `protocolVersion` of an object, raw and decoded, where it is one string.
pub fn protocol_version(object: &str) -> Option<(&str, Cow<'_, str>)> {
    let raw = json::member(object, "protocolVersion").ok().flatten()?;
    json::is_string(raw).then(|| (raw, json::decode(raw)))
}

/// Whether two raw ids name the same request: strings by their characters, however escaped,
/// integers by value; `1` and `"1"` differ.
pub fn same_id(a: &str, b: &str) -> bool {
    if json::is_string(a) && json::is_string(b) {
        return json::same_string(a, b);
    }
    // JSON has one spelling of each integer but zero.
    let integer = |text| if text == "-0" { "0" } else { text };
    integer(a) == integer(b)
}

/// Appends `text` with spans replaced. Each edit is a sub-slice of `text` (that very memory, such
/// as a field of its [`Envelope`]) and what stands in its place; the order does not matter.
///
/// # Panics
///
/// Where an edit is no sub-slice of `text` or overlaps another: the caller mixed up messages, and
/// sending half an edit would hand one request's answer to another.
pub fn splice(text: &str, edits: &[(&str, &[u8])], out: &mut Vec<u8>) {
    let offset = |edit: &(&str, &[u8])| edit.0.as_ptr() as usize;
    if !edits.is_sorted_by_key(offset) {
        let mut sorted = edits.to_vec();
        sorted.sort_by_key(offset);
        return splice(text, &sorted, out);
    }
    let added: usize = edits.iter().map(|(_, new)| new.len()).sum();
    out.reserve(text.len() + added);
    let mut kept = 0;
    for edit in edits {
        let start = offset(edit).wrapping_sub(text.as_ptr() as usize);
        let before = text.as_bytes().get(kept..start);
        out.extend_from_slice(before.expect("an edit lies in the text, beside the others"));
        out.extend_from_slice(edit.1);
        kept = start + edit.0.len();
    }
    let rest = text.as_bytes().get(kept..);
    out.extend_from_slice(rest.expect("an edit ends in the text"));
}

/// Appends `text`, edited as by [`splice`], as one line for a stdio upstream, with its newline.
///
/// # Panics
///
/// As [`splice`] does.
pub fn push_line(text: &str, edits: &[(&str, &[u8])], out: &mut Vec<u8>) {
    let start = out.len();
    splice(text, edits, out);
    flatten(out.get_mut(start..).unwrap_or_default());
    out.push(b'\n');
}

/// Turns the line breaks of a JSON text into spaces, so that it is one line of a pipe or one
/// `data:` line. In JSON a raw CR or LF is white space between tokens, never part of a string.
pub fn flatten(json: &mut [u8]) {
    let mut rest = json;
    while let Some(at) = memchr::memchr2(b'\r', b'\n', rest) {
        let (_, from) = rest.split_at_mut(at);
        let Some((line_break, after)) = from.split_first_mut() else { return };
        *line_break = b' ';
        rest = after;
    }
}

/// Appends a successful response; `id` and `result` are raw JSON.
pub fn result(out: &mut Vec<u8>, id: &str, result: impl AsRef<[u8]>) {
    extend(out, &["{\"jsonrpc\":\"2.0\",\"id\":", id, ",\"result\":"]);
    out.extend_from_slice(result.as_ref());
    out.push(b'}');
}

/// Appends a notification of a flood: `method` needs no escapes, `params` is raw JSON.
pub fn event(out: &mut Vec<u8>, method: &str, params: &[u8]) {
    extend(out, &["{\"jsonrpc\":\"2.0\",\"method\":\"", method, "\",\"params\":"]);
    out.extend_from_slice(params);
    out.push(b'}');
}

/// Appends an error response; `id` (`null` where there is none) and `data` are raw JSON,
/// `message` is plain text.
pub fn error(out: &mut Vec<u8>, id: Option<&str>, code: i32, message: &str, data: Option<&str>) {
    let id = id.unwrap_or("null");
    extend(out, &["{\"jsonrpc\":\"2.0\",\"id\":", id, ",\"error\":{\"code\":"]);
    extend(out, &[itoa::Buffer::new().format(code), ",\"message\":"]);
    push_string(out, message);
    if let Some(data) = data {
        extend(out, &[",\"data\":", data]);
    }
    extend(out, &["}}"]);
}

/// Appends a notification; `method` is plain text, `params` raw JSON.
pub fn notification(out: &mut Vec<u8>, method: &str, params: Option<&str>) {
    extend(out, &["{\"jsonrpc\":\"2.0\",\"method\":"]);
    push_call(out, method, params);
}

/// Appends a request; `id` and `params` are raw JSON, `method` is plain text.
pub fn request(out: &mut Vec<u8>, id: &str, method: &str, params: Option<&str>) {
    extend(out, &["{\"jsonrpc\":\"2.0\",\"id\":", id, ",\"method\":"]);
    push_call(out, method, params);
}

fn push_call(out: &mut Vec<u8>, method: &str, params: Option<&str>) {
    push_string(out, method);
    if let Some(params) = params {
        extend(out, &[",\"params\":", params]);
    }
    extend(out, &["}"]);
}

/// Appends plain text as a JSON string.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a Vec takes every byte");
}

fn extend(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
#[path = "jsonrpc_tests.rs"]
mod tests;
