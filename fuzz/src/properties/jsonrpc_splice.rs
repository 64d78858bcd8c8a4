//! A message is read as `serde_json` reads it, or refused; what is spliced into it changes that and
//! nothing else; what is made of it is one line, and is read back.

use std::fmt;

use gapless::limits::{JSON_DEPTH_MAX, RPC_ID_BYTES_MAX};
use gapless::mcp::jsonrpc::{self, Envelope, Kind, Message, codes};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::shown;

/// The input is a body, line or event as it arrives.
pub fn holds(bytes: &[u8]) {
    let parsed = jsonrpc::parse(bytes);
    let text = std::str::from_utf8(bytes).ok();
    let is_json = |text: &&str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    // `serde_json` counts no depth where it builds nothing.
    let json = text.filter(is_json).filter(|text| depth(text) <= JSON_DEPTH_MAX);
    let Some(text) = json else {
        let refused = parsed.map(|_| ()).map_err(|malformed| (malformed.code, malformed.id));
        assert_eq!(refused, Err((codes::PARSE_ERROR, None)), "{}", shown(bytes));
        return;
    };
    match parsed {
        Err(malformed) => {
            assert_eq!(malformed.code, codes::INVALID_REQUEST, "{text}");
            if let (Some(id), Some(members)) = (malformed.id, Members::read(text)) {
                assert_eq!(members.all("id"), [id], "{text}");
            }
            let expected = expected(text);
            assert!(expected.is_none_or(|expected| expected.is_err()), "refused: {text}");
        }
        Ok(Message::Single(envelope)) => {
            assert_eq!(envelope.text, text.trim_matches([' ', '\t', '\r', '\n']));
            agrees(&envelope);
            identity(&envelope);
            only_the_ids_change(&envelope);
            one_line(&envelope);
            read_back(&envelope);
        }
        Ok(Message::Batch(envelopes)) => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).expect("a batch");
            assert_eq!(envelopes.len(), elements.len());
            for (envelope, element) in envelopes.iter().zip(elements) {
                assert_eq!(envelope.text, element.get());
                agrees(envelope);
            }
        }
    }
}

/// Containers open at one time.
fn depth(text: &str) -> usize {
    let (mut open, mut most, mut string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => string = !string,
            b'{' | b'[' if !string => open += 1,
            b'}' | b']' if !string => open -= 1,
            _ => {}
        }
        most = most.max(open);
    }
    most
}

/// The members of an object, none left out, as `serde_json` reads them.
struct Members<'a>(Vec<(String, &'a str)>);

impl<'a> Members<'a> {
    /// None where `text` is no object, or a name holds a lone surrogate.
    fn read(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The values of the members called `name`.
    fn all(&self, name: &str) -> Vec<&'a str> {
        let same = |(key, value): &(String, &'a str)| (key == name).then_some(*value);
        self.0.iter().filter_map(same).collect()
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    members.push((key, value.get()));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// What a message must be read as.
#[derive(Debug, PartialEq)]
struct Reading<'a> {
    kind: Kind,
    id: Option<&'a str>,
    method: Option<String>,
    params: Option<&'a str>,
    outcome: Option<&'a str>,
    is_error: bool,
    token: Option<&'a str>,
}

/// A message that must be refused.
#[derive(Debug, PartialEq)]
struct Refused;

/// What `serde_json` makes of a message: none where it cannot tell, since it refuses lone
/// surrogates in what it decodes.
type Expected<T> = Option<Result<T, Refused>>;

/// Reads one message by the rules of JSON-RPC 2.0 and MCP.
fn expected(text: &str) -> Expected<Reading<'_>> {
    if !text.trim_start().starts_with('{') {
        return Some(Err(Refused));
    }
    let members = Members::read(text)?;
    let mut found = [None; 6];
    let names = ["jsonrpc", "id", "method", "params", "result", "error"];
    for (slot, name) in found.iter_mut().zip(names) {
        match members.all(name)[..] {
            [] => {}
            [value] => *slot = Some(value),
            _ => return Some(Err(Refused)),
        }
    }
    let [version, id, method, params, result, error] = found;
    let Some(version) = version.filter(|version| version.starts_with('"')) else {
        return Some(Err(Refused));
    };
    if serde_json::from_str::<String>(version).ok()? != "2.0" {
        return Some(Err(Refused));
    }
    match method {
        None => Some(response(id, result, error)),
        Some(_) if result.is_some() || error.is_some() => Some(Err(Refused)),
        Some(method) => call(id, method, params),
    }
}

fn call<'a>(id: Option<&'a str>, method: &str, params: Option<&'a str>) -> Expected<Reading<'a>> {
    let params = params.filter(|&params| params != "null");
    let structured = params.is_none_or(|params| params.starts_with(['{', '[']));
    if !method.starts_with('"') || !id.is_none_or(is_id) || !structured {
        return Some(Err(Refused));
    }
    let method = Some(serde_json::from_str(method).ok()?);
    let kind = if id.is_some() { Kind::Request } else { Kind::Notification };
    let token = match params {
        Some(params) if id.is_some() => token(params)?,
        _ => Ok(None),
    };
    Some(token.map(|token| Reading {
        kind,
        id,
        method,
        params,
        outcome: None,
        is_error: false,
        token,
    }))
}

/// `_meta.progressToken` of a request's parameters.
fn token(params: &str) -> Expected<Option<&str>> {
    if !params.starts_with('{') {
        return Some(Ok(None));
    }
    let metas = Members::read(params)?.all("_meta");
    let mut tokens = Vec::new();
    for meta in metas.iter().filter(|meta| meta.starts_with('{')) {
        tokens.extend(Members::read(meta)?.all("progressToken"));
    }
    let scalar = |token: &str| token.starts_with(|c: char| "\"-0123456789".contains(c));
    match (&metas[..], &tokens[..]) {
        // Without a token it is nobody's business that `_meta` occurs twice.
        ([_, _, ..], []) => None,
        ([_, _, ..], _) | (_, [_, _, ..]) => Some(Err(Refused)),
        (_, [token]) if scalar(token) && token.len() > RPC_ID_BYTES_MAX => Some(Err(Refused)),
        (_, tokens) => Some(Ok(tokens.first().copied().filter(|token| scalar(token)))),
    }
}

fn response<'a>(
    id: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
) -> Result<Reading<'a>, Refused> {
    let is_error = error.is_some();
    let outcome = match (result, error) {
        (Some(result), None) => result,
        (None, Some(error)) if error.starts_with('{') => error,
        _ => return Err(Refused),
    };
    if !id.is_some_and(|id| is_id(id) || is_error && id == "null") {
        return Err(Refused);
    }
    Ok(Reading {
        kind: Kind::Response,
        id,
        method: None,
        params: None,
        outcome: Some(outcome),
        is_error,
        token: None,
    })
}

/// A string, or a number without fraction and exponent, of bounded size.
fn is_id(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= RPC_ID_BYTES_MAX && (integer || text.starts_with('"'))
}

/// An accepted message is read as [`expected`] reads it.
fn agrees(envelope: &Envelope<'_>) {
    let Some(expected) = expected(envelope.text) else { return };
    let reading = Reading {
        kind: envelope.kind,
        id: envelope.id,
        method: envelope.method.as_deref().map(str::to_owned),
        params: envelope.params,
        outcome: envelope.outcome,
        is_error: envelope.is_error,
        token: jsonrpc::request_progress_token(envelope),
    };
    assert_eq!(Ok(reading), expected, "{}", envelope.text);
}

/// The spans of a message that do not lie inside of each other.
fn spans<'a>(envelope: &Envelope<'a>) -> Vec<&'a str> {
    let token = jsonrpc::request_progress_token(envelope);
    envelope.id.into_iter().chain(token).chain(envelope.outcome).collect()
}

/// What is replaced with itself is as it was, in whatever order it is replaced.
fn identity(envelope: &Envelope<'_>) {
    let mut edits: Vec<(&str, &[u8])> =
        spans(envelope).into_iter().map(|span| (span, span.as_bytes())).collect();
    for _ in 0..2 {
        let mut out = b"before".to_vec();
        jsonrpc::splice(envelope.text, &edits, &mut out);
        assert_eq!(out, [b"before", envelope.text.as_bytes()].concat());
        edits.reverse();
    }
}

/// Another id, and another progress token, change the value there and nowhere else.
fn only_the_ids_change(envelope: &Envelope<'_>) {
    let Some(id) = envelope.id else { return };
    let token = jsonrpc::request_progress_token(envelope);
    let (new_id, new_token) = ("\"g:\\u0031\"", "-17");
    let mut edits = vec![(id, new_id.as_bytes())];
    edits.extend(token.map(|token| (token, new_token.as_bytes())));
    let mut out = Vec::new();
    jsonrpc::splice(envelope.text, &edits, &mut out);
    let Ok(Message::Single(edited)) = jsonrpc::parse(&out) else {
        panic!("{} is no message", shown(&out));
    };
    assert_eq!((edited.id, edited.kind), (Some(new_id), envelope.kind));
    assert_eq!(jsonrpc::request_progress_token(&edited), token.map(|_| new_token));
    // Numbers beyond an `f64` and lone surrogates are no `Value`.
    let Ok(mut value) = serde_json::from_str::<Value>(envelope.text) else { return };
    value["id"] = Value::from("g:1");
    if token.is_some() {
        value["params"]["_meta"]["progressToken"] = Value::from(-17);
    }
    let edited: Value = serde_json::from_slice(&out).expect("a number and a string were put in");
    assert_eq!(edited, value);
}

/// A line for a child is one line, of the same value.
fn one_line(envelope: &Envelope<'_>) {
    let mut line = Vec::new();
    jsonrpc::push_line(envelope.text, &[], &mut line);
    assert_eq!(line.pop(), Some(b'\n'));
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'), "{}", shown(&line));
    assert_eq!(line.len(), envelope.text.len());
    let value = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    assert_eq!(value(&line), value(envelope.text.as_bytes()));
}

/// What is written around parts of a message is a message with these parts.
fn read_back(envelope: &Envelope<'_>) {
    let mut out = Vec::new();
    match (envelope.id, &envelope.method, envelope.outcome) {
        (Some(id), Some(method), _) => jsonrpc::request(&mut out, id, method, envelope.params),
        (None, Some(method), _) => jsonrpc::notification(&mut out, method, envelope.params),
        (Some(id), None, Some(outcome)) if !envelope.is_error => {
            jsonrpc::result(&mut out, id, outcome);
        }
        (id, _, outcome) => {
            // The data of an error lies one container deeper.
            let data = outcome.filter(|outcome| depth(outcome) + 2 <= JSON_DEPTH_MAX);
            jsonrpc::error(&mut out, id, 1, envelope.text, data);
        }
    }
    let Ok(Message::Single(again)) = jsonrpc::parse(&out) else {
        panic!("{} is no message", shown(&out));
    };
    assert_eq!((again.kind, again.id), (envelope.kind, envelope.id));
    assert_eq!((&again.method, again.params), (&envelope.method, envelope.params));
    assert_eq!(again.is_error, envelope.is_error);
    if let Some(id) = envelope.id {
        assert!(jsonrpc::same_id(id, id));
        if let Ok(decoded) = serde_json::from_str::<Value>(id) {
            let string = decoded.is_string();
            assert!(!string || jsonrpc::same_id(id, &decoded.to_string()), "{id}");
        }
    }
}
