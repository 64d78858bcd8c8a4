//! Properties of `mcp`: JSON-RPC envelopes against `serde_json`, event ids, content negotiation.

use gapless::limits::JSON_DEPTH_MAX;
use gapless::mcp::event_id::{Cursor, STREAM_NUMBER_MAX, Token, verify};
use gapless::mcp::headers::{Accept, accept, is_json_content_type, last_event_id};
use gapless::mcp::json::{self, Scanner};
use gapless::mcp::jsonrpc::{self, Envelope, Kind, Message};
use gapless::mcp::session_id::SessionId;
use proptest::prelude::*;
use serde_json::Value;

/// A JSON value in some spelling: white space, escapes and number forms vary.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        string_text(),
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..5), space())
                .prop_map(|(elements, space)| format!("[{}]", elements.join(&format!("{space},")))),
            (prop::collection::vec((string_text(), inner), 0..5), space()).prop_map(
                |(members, space)| {
                    let member = |(key, value)| format!("{key}{space}:{space}{value}");
                    let members: Vec<_> = members.into_iter().map(member).collect();
                    format!("{{{}{space}}}", members.join(","))
                }
            ),
        ]
    })
}

fn space() -> impl Strategy<Value = String> {
    "[ \t\r\n]{0,2}"
}

/// A JSON string in some spelling, its quotes with it; no lone surrogates, which `serde_json`
/// refuses.
fn string_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ !#-\\[\\]-~é漢😀]{0,12}",
        Just("\\\"".to_owned()),
        Just("\\\\".to_owned()),
        Just("\\n\\/".to_owned()),
        Just("\\ud83d\\ude00".to_owned()),
        (0_u32..0xD800).prop_map(|unit| format!("\\u{unit:04x}")),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// `text` with one byte changed, removed or doubled.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = (any::<prop::sample::Index>(), any::<u8>(), 0..4);
    (json_text(), damage).prop_map(|(text, (index, byte, kind))| {
        let mut bytes = text.into_bytes();
        let at = index.index(bytes.len());
        match kind {
            0 => bytes[at] = byte,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, bytes[at]),
            _ => bytes[at] = b"{}[]\",:\\0- "[usize::from(byte) % 11],
        }
        bytes
    })
}

fn is_json(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut scanner = Scanner::new(text);
    scanner.value(0).is_ok() && scanner.end().is_ok()
}

/// `serde_json`'s verdict. It reads numbers as `f64`, so that it refuses `1e400`, and refuses lone
/// surrogates; both are valid JSON here and excluded by the callers.
fn is_json_to_serde(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Value>(bytes).is_ok()
}

fn is_outside_serde(bytes: &[u8]) -> bool {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(_) => false,
        Err(error) => {
            let reason = error.to_string();
            ["number out of range", "surrogate", "hex escape"]
                .iter()
                .any(|excluded| reason.contains(excluded))
        }
    }
}

fn single(text: &str) -> Option<Envelope<'_>> {
    match jsonrpc::parse(text.as_bytes()).ok()? {
        Message::Single(envelope) => Some(envelope),
        Message::Batch(_) => None,
    }
}

proptest! {
    #[test]
    fn parse_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = jsonrpc::parse(&bytes);
    }

    #[test]
    fn valid_json_is_what_serde_reads(text in json_text()) {
        prop_assert!(is_json_to_serde(text.as_bytes()) || is_outside_serde(text.as_bytes()));
        prop_assert!(is_json(text.as_bytes()));
    }

    #[test]
    fn damaged_json_is_judged_as_serde_does(bytes in damaged()) {
        let _ = jsonrpc::parse(&bytes);
        if !is_outside_serde(&bytes) {
            prop_assert_eq!(is_json(&bytes), is_json_to_serde(&bytes));
        }
    }

    #[test]
    fn depth_is_bounded_and_nothing_else(depth in 1..2 * JSON_DEPTH_MAX, objects in any::<bool>()) {
        let (open, close) = if objects { ("{\"a\":", "}") } else { ("[", "]") };
        let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
        prop_assert_eq!(is_json(text.as_bytes()), depth <= JSON_DEPTH_MAX);
    }

    #[test]
    fn strings_are_decoded_as_serde_does(raw in string_text()) {
        let expected: String = serde_json::from_str(&raw).unwrap();
        prop_assert_eq!(json::decode(&raw), expected.as_str());
        let mut written = Vec::new();
        jsonrpc::push_string(&mut written, &expected);
        prop_assert!(json::same_string(&raw, std::str::from_utf8(&written).unwrap()));
    }

    #[test]
    fn a_request_is_read_as_serde_reads_it(
        id in prop_oneof![any::<i64>().prop_map(|id| id.to_string()), string_text()],
        method in string_text(),
        params in prop::option::of(json_text()),
        space in space(),
        order in Just([0, 1, 2, 3]).prop_shuffle(),
    ) {
        let params = params.filter(|params| params.starts_with(['{', '[']));
        let members = [
            Some("\"jsonrpc\":\"2.0\"".to_owned()),
            Some(format!("\"id\":{space}{id}")),
            Some(format!("\"method\"{space}:{method}")),
            params.as_ref().map(|params| format!("\"params\":{params}{space}")),
        ];
        let members: Vec<_> = order.iter().filter_map(|&at| members[at].clone()).collect();
        let text = format!("{{{}}}", members.join(","));
        let call = single(&text).unwrap();
        prop_assert_eq!(call.kind, Kind::Request);
        prop_assert_eq!(call.text, &text);
        prop_assert_eq!(call.id, Some(id.as_str()));
        prop_assert_eq!(call.params, params.as_deref());
        let method: String = serde_json::from_str(&method).unwrap();
        prop_assert_eq!(call.method.as_deref(), Some(method.as_str()));
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let id: Value = serde_json::from_str(call.id.unwrap()).unwrap();
            prop_assert_eq!(&value["id"], &id);
            if let Some(params) = call.params {
                let params: Value = serde_json::from_str(params).unwrap();
                prop_assert_eq!(&value["params"], &params);
            }
        }
    }

    #[test]
    fn a_member_is_found_as_serde_finds_it(
        members in prop::collection::vec(("[ab]{1,2}", json_text()), 0..6),
        name in "[ab]{1,2}",
    ) {
        let spelled: Vec<_> =
            members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        let text = format!("{{{}}}", spelled.join(","));
        let mut same = members.iter().filter(|(key, _)| *key == name).map(|(_, value)| value);
        let expected = match (same.next(), same.next()) {
            (first, None) => Ok(first.map(String::as_str)),
            (_, Some(_)) => Err(json::Duplicate),
        };
        prop_assert_eq!(json::member(&text, &name), expected);
    }

    #[test]
    fn splicing_what_was_there_changes_nothing(
        id in any::<i64>(),
        token in string_text(),
        swap in any::<bool>(),
    ) {
        let text = format!(
            r#"{{"params":{{"_meta":{{"progressToken":{token}}}}},"jsonrpc":"2.0",
            "id":{id},"method":"a"}}"#
        );
        let call = single(&text).unwrap();
        let found = jsonrpc::request_progress_token(&call);
        prop_assert_eq!(found, Some(token.as_str()));
        let mut edits = [call.id.unwrap(), found.unwrap()].map(|span| (span, span.as_bytes()));
        if swap {
            edits.swap(0, 1);
        }
        let mut out = Vec::new();
        jsonrpc::splice(&text, &edits, &mut out);
        prop_assert_eq!(out, text.as_bytes());
    }

    #[test]
    fn a_line_for_a_child_is_one_line_of_the_same_json(text in json_text(), space in space()) {
        let text = format!("{space}{text}{space}");
        let mut line = Vec::new();
        jsonrpc::push_line(&text, &[], &mut line);
        prop_assert_eq!(line.pop(), Some(b'\n'));
        prop_assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            prop_assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), value);
        }
    }
}

fn session() -> impl Strategy<Value = SessionId> {
    any::<(u16, [u8; 16])>().prop_map(|(shard, random)| SessionId::from_random(shard, random))
}

proptest! {
    #[test]
    fn session_ids_are_read_back(id in session()) {
        prop_assert_eq!(SessionId::parse(&id.write()), Some(id));
    }

    #[test]
    fn event_ids_are_read_back(
        key in any::<[u8; 32]>(),
        session in session(),
        stream in 0..=STREAM_NUMBER_MAX,
        (epoch, newer) in (0_u32..1 << 20, 0_u32..4),
        number in any::<u64>(),
    ) {
        let mut raw = Vec::new();
        Token::mint(&key, &session, stream, epoch).push_id(number, &mut raw);
        prop_assert!(raw[0].is_ascii_alphabetic());
        let expected = Some(Cursor::Number { stream, epoch, number });
        prop_assert_eq!(verify(&raw, &key, &session, epoch + newer, newer), expected);
    }

    #[test]
    fn a_token_with_any_character_changed_is_refused(
        session in session(),
        stream in 0..=STREAM_NUMBER_MAX,
        at in 0_usize..24,
        other in any::<u8>(),
    ) {
        let key = [9; 32];
        let mut raw = Vec::new();
        Token::mint(&key, &session, stream, 1).push_id(5, &mut raw);
        prop_assume!(raw[at] != other);
        raw[at] = other;
        prop_assert_eq!(verify(&raw, &key, &session, 1, 1), None);
    }

    #[test]
    fn verify_takes_nothing_that_was_not_minted(
        session in session(),
        raw in "[A-Za-z0-9_-]{24}\\.(end|[0-9]{1,20})",
    ) {
        prop_assert_eq!(verify(raw.as_bytes(), &[9; 32], &session, 3, 3), None);
    }
}

/// Ranges as a list of (type, subtype, weight in thousandths), spelled with noise.
fn ranges() -> impl Strategy<Value = Vec<(&'static str, &'static str, u32)>> {
    let range = prop::sample::select(vec![
        ("application", "json"),
        ("text", "event-stream"),
        ("application", "*"),
        ("text", "*"),
        ("*", "*"),
        ("text", "html"),
        ("application", "jsonx"),
    ]);
    let weight = prop::sample::select(vec![0, 1, 500, 1000]);
    prop::collection::vec((range, weight).prop_map(|((a, b), weight)| (a, b, weight)), 1..6)
}

/// RFC 9110 section 12.5.1 by the letter: of the ranges that match, those of the highest precedence
/// decide.
fn accepts(ranges: &[(&str, &str, u32)], wanted: (&str, &str)) -> bool {
    let precedence = |range: &(&str, &str, u32)| match (range.0, range.1) {
        ("*", "*") => Some(1),
        (a, "*") if a == wanted.0 => Some(2),
        (a, b) if (a, b) == wanted => Some(3),
        _ => None,
    };
    let best = ranges.iter().filter_map(precedence).max();
    best.is_some() && ranges.iter().any(|range| precedence(range) == best && range.2 > 0)
}

proptest! {
    #[test]
    fn accept_follows_the_slow_reference(
        ranges in ranges(),
        upper in any::<bool>(),
        lines in any::<bool>(),
        parameter in prop::sample::select(vec!["", ";charset=utf-8", "; x=\"a,b;q=0\""]),
    ) {
        let spelled: Vec<String> = ranges
            .iter()
            .map(|(a, b, weight)| {
                let text = format!("{a}/{b}{parameter} ; q={}.{:03}", weight / 1000, weight % 1000);
                if upper { text.to_ascii_uppercase() } else { text }
            })
            .collect();
        let joined = [spelled.join(" , ")];
        let values = if lines { &spelled[..] } else { &joined[..] };
        let expected = Accept {
            json: accepts(&ranges, ("application", "json")),
            sse: accepts(&ranges, ("text", "event-stream")),
        };
        prop_assert_eq!(accept(values.iter().map(String::as_bytes)), expected, "{:?}", values);
    }

    #[test]
    fn field_values_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        accept(std::iter::once(&bytes[..]));
        is_json_content_type(&bytes);
        last_event_id(std::iter::once(&bytes[..]));
        verify(&bytes, &[0; 32], &SessionId::from_random(0, [0; 16]), 1, 1);
    }
}
