//! Table tests of the head parser.

use super::*;

/// The error for a head, which no prefix of it may contradict.
fn refused(head: &str) -> HeadError {
    let error = parse(head.as_bytes()).expect_err(head);
    for end in 0..head.len() {
        match parse(&head.as_bytes()[..end]) {
            Ok(None) => {}
            other => assert_eq!(other, Err(error), "{end} bytes of {head:?}"),
        }
    }
    error
}

/// The head parsed from a request line and fields that lack `Host` and the empty line.
fn accepted(lines: &str) -> Head<'static> {
    let text = format!("{lines}\r\nHost: a\r\n\r\n");
    let head = parse(text.leak().as_bytes()).expect(lines).expect(lines);
    assert_eq!(head.len, lines.len() + 13);
    head
}

fn post(fields: &str) -> String {
    format!("POST /mcp HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn a_usual_post() {
    let text = "POST /mcp?a=b?c HTTP/1.1\r\nhost: 127.0.0.1:8383\r\nconnection: keep-alive\r\n\
                Content-Type: application/json \t\r\nmcp-session-id:abc\r\nX-Empty:\r\nX-A: 1\r\n\
                x-a: 2\r\ncontent-length: 46\r\n\r\n{}";
    let head = parse(text.as_bytes()).unwrap().unwrap();
    assert_eq!((head.method, head.version), (Method::Post, Version::Http11));
    assert_eq!((head.path, head.query, head.authority), ("/mcp", Some("a=b?c"), None));
    assert_eq!(head.framing, Framing::Length(46));
    assert!(head.keep_alive && !head.expect_continue);
    assert_eq!(&text[head.len..], "{}");
    assert_eq!(head.host(), Some(b"127.0.0.1:8383".as_slice()));
    assert_eq!(head.field("content-type"), Some(b"application/json".as_slice()));
    assert_eq!(head.field("Mcp-Session-Id"), Some(b"abc".as_slice()));
    assert_eq!(head.field("x-empty"), Some(b"".as_slice()));
    assert_eq!(head.field("x-b"), None);
    assert!(head.fields("x-a").eq([b"1", b"2"]));
}

#[test]
fn methods() {
    for (token, method) in [
        ("GET", Method::Get),
        ("POST", Method::Post),
        ("DELETE", Method::Delete),
        ("HEAD", Method::Head),
        ("OPTIONS", Method::Options),
        ("PUT", Method::Put),
        ("PATCH", Method::Other),
        ("get", Method::Other),
    ] {
        assert_eq!(accepted(&format!("{token} / HTTP/1.1")).method, method);
    }
}

#[test]
fn targets() {
    let parts = |target: &str| {
        let head = accepted(&format!("GET {target} HTTP/1.1"));
        (head.path, head.query, head.authority)
    };
    assert_eq!(parts("/"), ("/", None, None));
    assert_eq!(parts("/a%20b?"), ("/a%20b", Some(""), None));
    assert_eq!(parts("//h/a"), ("//h/a", None, None));
    assert_eq!(parts("http://h:1/a?b"), ("/a", Some("b"), Some("h:1")));
    assert_eq!(parts("HTTPS://h"), ("/", None, Some("h")));
    assert_eq!(parts("http://[::1]?b"), ("/", Some("b"), Some("[::1]")));
    assert_eq!(accepted("OPTIONS * HTTP/1.1").path, "*");
    // The authority of the target replaces Host.
    assert_eq!(accepted("GET http://h/ HTTP/1.1").host(), Some(b"h".as_slice()));

    for target in
        ["*", "a", "a.b:80", "http:///a", "http://u@h/", "ftp://h/", "/a#b", "/é", "/\u{7f}"]
    {
        let error = refused(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(error.status(), Status::BadRequest, "{target}");
    }
}

#[test]
fn versions() {
    for line in
        ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET / HTTP/1.2\r\n\r\n"]
    {
        assert_eq!(refused(line), HeadError::Version);
    }
    for line in [
        "GET /\r\n\r\n",
        "GET / FTP/1.1\r\n\r\n",
        "GET / http/1.1\r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        " GET / HTTP/1.1\r\n\r\n",
        "\u{16}\u{3}\u{1}",
    ] {
        assert_eq!(refused(line), HeadError::RequestLine, "{line:?}");
    }
}

#[test]
fn persistence() {
    let keep_alive = |version: &str, connection: &str| {
        accepted(&format!("GET / HTTP/{version}\r\n{connection}X: y")).keep_alive
    };
    assert!(keep_alive("1.1", ""));
    assert!(!keep_alive("1.1", "Connection: x, Close\r\n"));
    assert!(!keep_alive("1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
    assert!(keep_alive("1.1", "Connection: closed\r\n"));
    assert!(!keep_alive("1.0", ""));
    assert!(keep_alive("1.0", "Connection: Keep-Alive\r\n"));
    assert!(!keep_alive("1.0", "Connection: close, keep-alive\r\n"));
}

#[test]
fn expectations() {
    let waits = |version: &str| {
        accepted(&format!("POST / HTTP/{version}\r\nExpect: 100-Continue")).expect_continue
    };
    assert!(waits("1.1"));
    assert!(!waits("1.0"), "a 1.0 client cannot understand an interim response");
    let error = refused(&post("Expect: 200-ok\r\n"));
    assert_eq!(error.status(), Status::ExpectationFailed);
}

#[test]
fn host_is_given_exactly_once() {
    for fields in ["", "Host: a\r\nHost: a\r\n", "Host: a,b\r\n", "Host: a b\r\n", "Host: a/b\r\n"]
    {
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{fields}\r\n")), HeadError::Host);
    }
    assert_eq!(refused("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"), HeadError::Host);
    let old = parse(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap();
    assert_eq!((old.host(), old.framing), (None, Framing::None));
    let empty = parse(b"GET / HTTP/1.1\r\nHost:\r\n\r\n").unwrap().unwrap();
    assert_eq!(empty.host(), Some(b"".as_slice()));
}

#[test]
fn framings() {
    let framing = |field: &str| accepted(&format!("POST / HTTP/1.1\r\n{field}")).framing;
    assert_eq!(framing("X: y"), Framing::None);
    assert_eq!(framing("Content-Length: 0"), Framing::None);
    assert_eq!(framing("Content-Length: 18446744073709551615"), Framing::Length(u64::MAX));
    assert_eq!(framing("Content-Length: 5\r\ncontent-length: 05"), Framing::Length(5));
    assert_eq!(framing("transfer-encoding: Chunked"), Framing::Chunked);
}

/// A front end that frames by one field and a back end that frames by the other let a second
/// request through inside the body of the first.
#[test]
fn content_length_beside_transfer_encoding_is_refused_in_either_order() {
    let hidden = "0\r\n\r\nPOST /mcp HTTP/1.1\r\n";
    for fields in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
    ] {
        assert_eq!(refused(&(post(fields) + hidden)), HeadError::TransferEncoding);
    }
}

#[test]
fn a_length_that_two_readers_could_see_differently_is_refused() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 50\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 5,5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5_0\r\n",
        "Content-Length: 5 0\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
    ] {
        assert_eq!(refused(&post(fields)), HeadError::ContentLength, "{fields:?}");
    }
}

#[test]
fn a_coding_that_is_not_plainly_chunked_is_refused() {
    for (value, error) in [
        ("chunked, identity", HeadError::TransferEncoding),
        ("chunked, chunked", HeadError::TransferEncoding),
        ("chunked,", HeadError::TransferEncoding),
        ("", HeadError::TransferEncoding),
        ("chunked\r\nTransfer-Encoding: chunked", HeadError::TransferEncoding),
        ("chunked\r\nTransfer-Encoding: identity", HeadError::TransferEncoding),
        ("gzip, chunked", HeadError::UnknownCoding),
        ("gzip\r\nTransfer-Encoding: chunked", HeadError::UnknownCoding),
    ] {
        assert_eq!(refused(&post(&format!("Transfer-Encoding: {value}\r\n"))), error, "{value:?}");
    }
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(old), HeadError::TransferEncoding);
}

/// Story: `Transfer-Encoding: identity` was answered 501, as if the body could be told from the
/// next request had the coding been known. RFC 9112, section 6.3, demands 400.
#[test]
fn a_body_whose_last_coding_is_not_chunked_has_no_end() {
    for value in ["identity", "gzip", "gzip, deflate", "xchunked", "\"chunked\"", "chunked;q=1"] {
        let error = refused(&post(&format!("Transfer-Encoding: {value}\r\n")));
        assert_eq!(error, HeadError::TransferEncoding, "{value:?}");
    }
}

#[test]
fn field_lines_that_break_the_grammar_are_refused() {
    for field in [
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "X: a\r\n folded\r\n",
        "X: a\rb\r\n",
        "X: a\0b\r\n",
        "X: a\x7fb\r\n",
        "X\r\n",
        ": a\r\n",
        "X\u{e9}: a\r\n",
    ] {
        assert_eq!(refused(&post(field)), HeadError::Field, "{field:?}");
    }
}

#[test]
fn a_bare_lf_ends_no_line() {
    for head in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a \n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.0\r\n\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\n\r\n",
        "GET / HTTP/1.1\r\nX:\nHost: a\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX",
    ] {
        assert_eq!(refused(head), HeadError::LineEnd, "{head:?}");
    }
}

#[test]
fn a_few_empty_lines_before_the_request_are_skipped() {
    let some = "\r\n".repeat(LEADING_EMPTY_LINES_MAX) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(parse(some.as_bytes()).unwrap().unwrap().len, some.len());
    assert_eq!(refused(&("\r\n".to_owned() + &some)), HeadError::LineEnd);
}

#[test]
fn a_head_is_bounded_in_bytes_and_fields() {
    let request = |pad: usize| post(&format!("X: {}\r\n", "x".repeat(pad)));
    let pad = HEAD_BYTES_MAX - request(0).len();
    assert_eq!(parse(request(pad).as_bytes()).unwrap().unwrap().len, HEAD_BYTES_MAX);
    assert_eq!(parse(request(pad + 1).as_bytes()), Err(HeadError::TooLarge));
    // Up to the bound more bytes may still come, above it nothing can help.
    let endless = post(&format!("X: {}", "x".repeat(HEAD_BYTES_MAX)));
    assert_eq!(parse(&endless.as_bytes()[..HEAD_BYTES_MAX]), Ok(None));
    assert_eq!(parse(&endless.as_bytes()[..=HEAD_BYTES_MAX]), Err(HeadError::TooLarge));
    // An error behind the bound does not depend on whether it has been read yet.
    assert_eq!(parse((endless + "\0").as_bytes()), Err(HeadError::TooLarge));

    let target = format!("GET /{}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(parse(target.as_bytes()).unwrap_err().status(), Status::UriTooLong);
    // Story: a method without end was told that its target was too long.
    let method = "X".repeat(HEAD_BYTES_MAX + 1);
    assert_eq!(parse(method.as_bytes()), Err(HeadError::MethodTooLong));

    assert!(parse(post(&"X: y\r\n".repeat(HEAD_FIELDS_MAX - 1)).as_bytes()).unwrap().is_some());
    let error = refused(&post(&"X: y\r\n".repeat(HEAD_FIELDS_MAX)));
    assert_eq!(error.status(), Status::FieldsTooLarge);
}
