//! Tests of `jsonrpc`, in a file of their own for its length.

use super::*;

fn single(text: &str) -> Envelope<'_> {
    match parse(text.as_bytes()) {
        Ok(Message::Single(envelope)) => envelope,
        other => panic!("{text}: {other:?}"),
    }
}

fn refused(text: &str) -> (i32, Option<&str>) {
    let malformed = parse(text.as_bytes()).expect_err(text);
    (malformed.code, malformed.id)
}

#[test]
fn reads_a_request() {
    let text =
        r#" {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"},"x":1e400} "#;
    let call = single(text);
    assert_eq!(call.text, text.trim());
    assert_eq!(call.kind, Kind::Request);
    assert_eq!(call.id, Some("7"));
    assert_eq!(call.method.as_deref(), Some("tools/call"));
    assert_eq!(call.params, Some(r#"{"name":"echo"}"#));
    assert!(!call.is_error);
}

#[test]
fn reads_notifications_and_responses() {
    let note = single(r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":null}"#);
    assert_eq!((note.kind, note.id, note.params), (Kind::Notification, None, None));
    let good = single(r#"{"id":"a","result":null,"jsonrpc":"2.0"}"#);
    assert_eq!((good.kind, good.id, good.outcome), (Kind::Response, Some("\"a\""), Some("null")));
    let bad = single(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":""}}"#);
    assert!(bad.is_error);
    assert_eq!(bad.id, Some("null"));
}

#[test]
fn reads_escaped_names() {
    let call = single(r#"{"\u006asonrpc":"2\u002e0","\u0069d":1,"method":"tools\/call"}"#);
    assert_eq!(call.id, Some("1"));
    assert_eq!(call.method.as_deref(), Some("tools/call"));
}

#[test]
fn tells_bad_json_from_a_bad_message_whatever_comes_first() {
    for text in ["", "{", "{\"jsonrpc\":\"1.0\",", "{\"id\":null}x", "\u{feff}{}", "[1,", "nul"] {
        assert_eq!(refused(text), (codes::PARSE_ERROR, None), "{text}");
    }
    assert_eq!(parse(b"{\"a\":\"\xff\"}").unwrap_err().code, codes::PARSE_ERROR);
    let deep = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":{}", "[".repeat(200));
    assert_eq!(refused(&deep).0, codes::PARSE_ERROR);
}

#[test]
fn refuses_what_is_no_message() {
    for text in [
        "42",
        "null",
        "{}",
        "{\"status\":200}",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1.0,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1e2,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","method":1}"#,
        r#"{"jsonrpc":"2.0","method":"a","params":1}"#,
        r#"{"jsonrpc":"2.0","result":1}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":1}"#,
        r#"{"jsonrpc":"2.0","error":{}}"#,
    ] {
        assert_eq!(refused(text), (codes::INVALID_REQUEST, None), "{text}");
    }
    for text in [
        r#"{"id":1}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":2.0,"id":1,"method":"a"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#,
    ] {
        assert_eq!(refused(text), (codes::INVALID_REQUEST, Some("1")), "{text}");
    }
}

#[test]
fn refuses_an_id_beyond_its_limit() {
    let with =
        |digits: usize| format!(r#"{{"jsonrpc":"2.0","id":{},"method":"a"}}"#, "1".repeat(digits));
    single(&with(RPC_ID_BYTES_MAX));
    assert_eq!(refused(&with(RPC_ID_BYTES_MAX + 1)), (codes::INVALID_REQUEST, None));
}

#[test]
fn refuses_a_member_that_occurs_twice() {
    let whole = [r#""jsonrpc":"2.0""#, r#""id":1"#, r#""method":"a""#, r#""params":{}"#];
    single(&format!("{{{}}}", whole.join(",")));
    for second in
        [r#""jsonrpc":"2.0""#, r#""\u0069d":2"#, r#""m\u0065thod":"b""#, r#""params":{"a":1}"#]
    {
        let text = format!("{{{},{second}}}", whole.join(","));
        assert_eq!(refused(&text).0, codes::INVALID_REQUEST, "{text}");
    }
    assert_eq!(refused(r#"{"jsonrpc":"2.0","id":1,"method":"a","id":2}"#).1, None);
    assert_eq!(refused(r#"{"jsonrpc":"2.0","id":1,"result":1,"result":2}"#).1, Some("1"));
    // Members that mean nothing here are the receiver's business.
    single(r#"{"jsonrpc":"2.0","id":1,"method":"a","x":1,"x":2}"#);
}

/// Story: of two revisions the gateway read none and asked nothing down, and the child read the
/// last one.
#[test]
fn refuses_an_initialize_that_names_two_revisions() {
    let names = |second: &str| {
        let params = format!(r#"{{"protocolVersion":"2025-06-18","{second}":"2026-07-28"}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initi\u0061lize","params":{params}}}"#)
    };
    for second in ["protocolVersion", "protocol\\u0056ersion"] {
        assert_eq!(refused(&names(second)), (codes::INVALID_REQUEST, Some("1")));
    }
    assert!(initialize_params(&single(&names("protocolversion"))).is_some());
}

#[test]
fn reads_batches() {
    let note = r#"{"jsonrpc":"2.0","method":"a"}"#;
    let count = |number: usize| {
        let text = format!("[{}]", vec![note; number].join(" , "));
        match parse(text.as_bytes()) {
            Ok(Message::Batch(all)) => Ok(all.iter().filter(|one| one.text == note).count()),
            Ok(Message::Single(_)) => panic!("an array is a batch"),
            Err(malformed) => Err(malformed.code),
        }
    };
    assert_eq!(count(0), Err(codes::INVALID_REQUEST));
    assert_eq!(count(1), Ok(1));
    assert_eq!(count(BATCH_MESSAGES_MAX), Ok(BATCH_MESSAGES_MAX));
    assert_eq!(count(BATCH_MESSAGES_MAX + 1), Err(codes::INVALID_REQUEST));
    for element in ["1", "[]", "{}", r#"{"jsonrpc":"2.0","id":3,"method":4}"#] {
        assert_eq!(refused(&format!("[{note},{element}]")), (codes::INVALID_REQUEST, None));
    }
    assert_eq!(refused(&format!("[{note},]")).0, codes::PARSE_ERROR);
}

#[test]
fn finds_progress_tokens() {
    let token = |params: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{params}}}"#);
        parse(text.as_bytes()).map_err(|malformed| malformed.code).map(|message| match message {
            Message::Single(call) => request_progress_token(&call).map(str::to_owned),
            Message::Batch(_) => panic!("one message"),
        })
    };
    let found = |token: &str| Ok(Some(token.to_owned()));
    assert_eq!(token(r#"{"_meta":{"progressToken":"t"}}"#), found("\"t\""));
    assert_eq!(token(r#"{"a":1,"_meta":{"x":2,"progressToken" : 1.5}}"#), found("1.5"));
    assert_eq!(token(r#"{"\u005fmeta":{"progress\u0054oken":9}}"#), found("9"));
    assert_eq!(token(r#"{"_meta":{"progressToken":null}}"#), Ok(None));
    assert_eq!(token(r#"{"progressToken":1,"a":{"_meta":{"progressToken":1}}}"#), Ok(None));
    assert_eq!(token(r#"["_meta",{"progressToken":1}]"#), Ok(None));
    let twice = Err(codes::INVALID_REQUEST);
    assert_eq!(token(r#"{"_meta":{"progressToken":1,"progress\u0054oken":2}}"#), twice);
    assert_eq!(token(r#"{"_meta":{"progressToken":1},"_meta":{}}"#), twice);
    let long = format!(r#"{{"_meta":{{"progressToken":"{}"}}}}"#, "t".repeat(RPC_ID_BYTES_MAX));
    assert_eq!(token(&long), twice);
}

#[test]
fn reads_what_notifications_point_at() {
    let note = |params| format!(r#"{{"jsonrpc":"2.0","method":"n","params":{params}}}"#);
    let text = note(r#"{"progress":1,"progressToken":"t"}"#);
    assert_eq!(progress_token(&single(&text)), Some("\"t\""));
    let text = note(r#"{"progressToken":1,"progressToken":2}"#);
    assert_eq!(progress_token(&single(&text)), None);
    let text = note(r#"{"requestId":12,"reason":"requestId"}"#);
    assert_eq!(cancelled_request_id(&single(&text)), Some("12"));
    for params in [r#"{"requestId":null}"#, r#"{"requestId":1,"requestId":2}"#, "[1]"] {
        assert_eq!(cancelled_request_id(&single(&note(params))), None);
    }
}

#[test]
fn reads_revisions_of_both_sides_of_initialize() {
    let text = r#"{"jsonrpc":"2.0","id":0,"method":"initialize",
        "params":{"protocolVersion":"2025\u002d11-25","capabilities":{}}}"#;
    let initialize = initialize_params(&single(text)).unwrap();
    assert_eq!(initialize.protocol_version, "2025-11-25");
    assert_eq!(initialize.protocol_version_raw, r#""2025\u002d11-25""#);
    let text = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2024-11-05"}}"#;
    let answer = single(text);
    assert_eq!(result_protocol_version(&answer), Some(("\"2024-11-05\"", "2024-11-05".into())));
    let text = r#"{"jsonrpc":"2.0","id":0,"error":{"protocolVersion":"2024-11-05"}}"#;
    assert_eq!(result_protocol_version(&single(text)), None);
    let text = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#;
    assert_eq!(initialize_params(&single(text)), None);
}

#[test]
fn compares_ids_by_value_and_type() {
    assert!(same_id("1", "1"));
    assert!(same_id("-0", "0"));
    assert!(same_id(r#""\u0061""#, r#""a""#));
    assert!(!same_id("1", "\"1\""));
    assert!(!same_id("12345678901234567890", "12345678901234567891"));
    assert!(!same_id(r#""a""#, r#""A""#));
}

#[test]
fn splices_in_any_order() {
    let text = r#"{"jsonrpc":"2.0","id":"x","method":"a","params":{"_meta":{"progressToken":5}}}"#;
    let call = single(text);
    let id = (call.id.unwrap(), b"41".as_slice());
    let token = (request_progress_token(&call).unwrap(), b"\"p-41\"".as_slice());
    let expected =
        r#"{"jsonrpc":"2.0","id":41,"method":"a","params":{"_meta":{"progressToken":"p-41"}}}"#;
    for edits in [[id, token], [token, id]] {
        let mut out = b"> ".to_vec();
        splice(call.text, &edits, &mut out);
        assert_eq!(out, format!("> {expected}").as_bytes());
    }
}

#[test]
#[should_panic(expected = "an edit lies in the text")]
fn refuses_to_splice_a_span_of_another_message() {
    let text = String::from("{\"id\":1}");
    splice("[]", &[(&text[6..7], b"2")], &mut Vec::new());
}

#[test]
fn writes_one_line_whatever_breaks_stand_between_tokens() {
    let text = "{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\r\"method\":\"a\\n\"}";
    let mut out = b"before\r\n".to_vec();
    push_line(text, &[(single(text).id.unwrap(), b"22")], &mut out);
    let line = "before\r\n{\"jsonrpc\":\"2.0\",  \"id\":22, \"method\":\"a\\n\"}\n";
    assert_eq!(String::from_utf8(out).unwrap(), line);
}

#[test]
fn writes_messages_compactly() {
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        let text = String::from_utf8(out).unwrap();
        single(&text);
        text
    };
    assert_eq!(
        written(&|out| result(out, "1", "{\"a\":1}")),
        r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#
    );
    assert_eq!(
        written(&|out| error(out, None, codes::PARSE_ERROR, "a \"b\"\n", None)),
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"a \"b\"\n"}}"#
    );
    assert_eq!(
        written(&|out| error(out, Some("\"x\""), -31001, "gone", Some("[1]"))),
        r#"{"jsonrpc":"2.0","id":"x","error":{"code":-31001,"message":"gone","data":[1]}}"#
    );
    assert_eq!(
        written(&|out| notification(out, "n/a", Some("{}"))),
        r#"{"jsonrpc":"2.0","method":"n/a","params":{}}"#
    );
    assert_eq!(
        written(&|out| request(out, "5", "ping", None)),
        r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#
    );
}
