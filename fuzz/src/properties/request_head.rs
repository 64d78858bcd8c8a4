//! A head means the same however it arrives, and one that is accepted is strict to the letter: a
//! second reader, which knows nothing of the first, sees the same fields and the same framing.

use gapless::http::request::{self, Framing, Head, Method, Version};
use gapless::limits::{HEAD_BYTES_MAX, HEAD_FIELDS_MAX};

use super::{chance, shown};

/// Heads up to this length are parsed at every prefix, longer ones at some.
const EVERY_PREFIX_MAX: usize = 160;
/// What an input begins with that is to lie across the bound of a head.
const AT_THE_BOUND: u8 = 0xff;

/// The input is a head as it arrives. If it begins with `ff`, the next byte says how much of the
/// rest lies below [`HEAD_BYTES_MAX`], and a long field comes before it.
pub fn holds(input: &[u8]) {
    match input {
        [AT_THE_BOUND, below, rest @ ..] => {
            let mut wire = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
            wire.resize(HEAD_BYTES_MAX - usize::from(*below), b'x');
            wire.extend_from_slice(rest);
            let bound = HEAD_BYTES_MAX.min(wire.len());
            prefixes_agree(&wire, &[bound.saturating_sub(1), bound, bound + 1]);
        }
        wire if wire.len() <= EVERY_PREFIX_MAX => {
            prefixes_agree(wire, &(0..wire.len()).collect::<Vec<_>>());
        }
        wire => {
            let mut rng = chance(wire);
            let ends: Vec<_> =
                (0..24).map(|_| rng.between(0, wire.len() as u64) as usize).collect();
            prefixes_agree(wire, &ends);
        }
    }
}

/// Each prefix needs more, or has the outcome of the whole.
fn prefixes_agree(wire: &[u8], ends: &[usize]) {
    let whole = request::parse(wire);
    for &end in ends {
        let prefix = wire.get(..end).unwrap_or(wire);
        let outcome = request::parse(prefix);
        assert!(outcome == Ok(None) || outcome == whole, "{end} bytes of {}", shown(wire));
    }
    let Ok(Some(head)) = whole else { return };
    let own = wire.get(..head.len).expect("a head ends in the buffer");
    assert_eq!(request::parse(own), Ok(Some(head.clone())), "what follows changes nothing");
    is_strict(own, &head);
}

/// Reads an accepted head again, line by line; the panics are what it may not contain.
fn is_strict(own: &[u8], head: &Head<'_>) {
    assert!(own.len() <= HEAD_BYTES_MAX);
    let mut text = own;
    while let Some(rest) = text.strip_prefix(b"\r\n") {
        text = rest;
    }
    let text = text.strip_suffix(b"\r\n\r\n").expect("a head ends with an empty line");
    let lines: Vec<&[u8]> = lines(text).collect();
    let (request_line, fields) = lines.split_first().expect("a request line");
    let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|line| field(line)).collect();
    assert!(fields.len() <= HEAD_FIELDS_MAX);
    for (name, _) in &fields {
        let name = std::str::from_utf8(name).expect("a token is ASCII");
        let upper = name.to_ascii_uppercase();
        let values: Vec<&[u8]> = values(&fields, name).collect();
        assert_eq!(head.fields(&upper).collect::<Vec<_>>(), values, "the values of {name}");
        assert_eq!(head.field(name), values.first().copied());
    }
    request_line_agrees(request_line, head);
    framing_agrees(&fields, head);
    options_agree(&fields, head);
}

/// The lines of a text; none holds a CR or an LF.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text.windows(2).position(|pair| pair == b"\r\n");
        let line = &text[..end.unwrap_or(text.len())];
        rest = end.map(|end| &text[end + 2..]);
        assert!(!line.is_empty(), "an empty line ends a head: {}", shown(text));
        assert!(!line.contains(&b'\r') && !line.contains(&b'\n'), "{}", shown(line));
        Some(line)
    })
}

/// Name and value of a field line (RFC 9112, section 5).
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let colon = line.iter().position(|&byte| byte == b':').expect("a field has a colon");
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    assert!(is_token(name), "the name of {}", shown(line));
    let clean = value.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control());
    assert!(clean, "the value of {}", shown(line));
    (name, value.trim_ascii())
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &[u8]) -> bool {
    let is = |&byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.iter().all(is)
}

fn values<'f>(fields: &'f [(&[u8], &'f [u8])], name: &str) -> impl Iterator<Item = &'f [u8]> {
    let same = move |field: &&(&[u8], &[u8])| field.0.eq_ignore_ascii_case(name.as_bytes());
    fields.iter().filter(same).map(|field| field.1)
}

fn request_line_agrees(line: &[u8], head: &Head<'_>) {
    let parts: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = parts[..] else { panic!("{}", shown(line)) };
    assert!(is_token(method) && target.iter().all(u8::is_ascii_graphic), "{}", shown(line));
    let known: &[u8] = match head.method {
        Method::Get => b"GET",
        Method::Post => b"POST",
        Method::Delete => b"DELETE",
        Method::Head => b"HEAD",
        Method::Options => b"OPTIONS",
        Method::Put => b"PUT",
        Method::Other => method,
    };
    assert_eq!(known, method);
    let expected: &[u8] = if head.version == Version::Http10 { b"HTTP/1.0" } else { b"HTTP/1.1" };
    assert_eq!(expected, version);
    // Put together again, the parts are the target.
    let query = head.query.map(|query| format!("?{query}")).unwrap_or_default();
    let end = format!("{}{query}", head.path);
    let target = std::str::from_utf8(target).expect("graphic characters are ASCII");
    assert!(!head.path.contains('?') && !target.contains('#'), "{target}");
    match head.authority {
        None => {
            assert_eq!(end, target);
            assert!(target.starts_with('/') || (target == "*" && method == b"OPTIONS"));
        }
        Some(authority) => {
            let (scheme, rest) = target.split_once("://").expect("absolute form");
            assert!(["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)));
            let bare = end.strip_prefix('/').unwrap_or(&end);
            let forms = [format!("{authority}{end}"), format!("{authority}{bare}")];
            assert!(forms.iter().any(|form| form == rest) && names_a_host(authority.as_bytes()));
            assert!(!authority.is_empty() && head.path.starts_with('/'));
        }
    }
}

/// Nothing that could be a second host, user information, or the start of a path.
fn names_a_host(value: &[u8]) -> bool {
    value.iter().all(|&byte| byte.is_ascii_graphic() && !b",@/\\?#\"<>^`{|}".contains(&byte))
}

/// RFC 9112, section 6.3, with everything refused that section 11.2 warns of.
fn framing_agrees(fields: &[(&[u8], &[u8])], head: &Head<'_>) {
    let codings: Vec<&[u8]> = values(fields, "transfer-encoding").collect();
    let lengths: Vec<&[u8]> = values(fields, "content-length").collect();
    let length = |value: &[u8]| {
        assert!(!value.is_empty() && value.iter().all(u8::is_ascii_digit), "{}", shown(value));
        let text = std::str::from_utf8(value).expect("digits are ASCII");
        text.parse::<u64>().expect("a length fits into 64 bits")
    };
    let expected = match (&codings[..], &lengths[..]) {
        ([], []) => Framing::None,
        ([], [first, others @ ..]) => {
            let first = length(first);
            assert!(others.iter().all(|other| length(other) == first), "lengths that differ");
            if first == 0 { Framing::None } else { Framing::Length(first) }
        }
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => {
            assert_eq!(head.version, Version::Http11, "HTTP/1.0 knows no chunks");
            Framing::Chunked
        }
        _ => panic!("an ambiguous framing is accepted: {codings:?} {lengths:?}"),
    };
    assert_eq!(head.framing, expected);
}

fn options_agree(fields: &[(&[u8], &[u8])], head: &Head<'_>) {
    let http11 = head.version == Version::Http11;
    let hosts: Vec<&[u8]> = values(fields, "host").collect();
    assert!(hosts.len() <= 1 && hosts.len() >= usize::from(http11), "{} hosts", hosts.len());
    assert!(hosts.iter().all(|host| names_a_host(host)));
    let authority = head.authority.map(str::as_bytes);
    assert_eq!(head.host(), authority.or(hosts.first().copied()));

    let expectations: Vec<&[u8]> = values(fields, "expect").collect();
    let continues = |value: &&[u8]| value.eq_ignore_ascii_case(b"100-continue");
    assert!(expectations.iter().all(continues), "an expectation that nobody meets");
    assert_eq!(head.expect_continue, http11 && !expectations.is_empty());

    let options: Vec<String> = values(fields, "connection")
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(|option| String::from_utf8_lossy(option).trim().to_ascii_lowercase())
        .collect();
    let has = |wanted: &str| options.iter().any(|option| option == wanted);
    assert_eq!(head.keep_alive, !has("close") && (http11 || has("keep-alive")));
}
