//! HTTP heads, chunked bodies and event streams: no panic, the same outcome however the bytes are
//! split, decoding undoes encoding, and nothing from outside can end a line.

use gapless::http::request::{self, Head, HeadError};
use gapless::http::response::{self, Status};
use gapless::http::{chunked, sse};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// `bytes` cut at arbitrary places; some parts may be empty.
fn parts<'b>(bytes: &'b [u8], cuts: &[Index]) -> Vec<&'b [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    vec(any::<Index>(), 0..12)
}

/// Pieces of request heads, good and bad, which in random order reach far into the parser.
fn head_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = select(
        [
            "GET ",
            "POST ",
            "OPTIONS * ",
            "/mcp",
            "/mcp?a=b",
            "http://h/a",
            " HTTP/1.1\r\n",
            " HTTP/1.0\r\n",
            " HTTP/2.0\r\n",
            "Host: a\r\n",
            "Host: b\r\n",
            "Content-Length: 5\r\n",
            "Content-Length: 6\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding: x\r\n",
            "Connection: close\r\n",
            "Expect: 100-continue\r\n",
            "Expect: y\r\n",
            "X: y\r\n",
            "X : y",
            ": ",
            "\r\n",
            "\r",
            "\n",
            " ",
            "\0",
            "é",
            "x",
        ]
        .map(str::as_bytes)
        .to_vec(),
    );
    let start = select(
        [
            "",
            "\r\n",
            "GET / HTTP/1.1\r\n",
            "POST /mcp HTTP/1.1\r\nHost: a\r\n",
            "POST / HTTP/1.0\r\n",
        ]
        .map(str::as_bytes)
        .to_vec(),
    );
    (start, vec(piece, 0..8))
        .prop_map(|(start, pieces)| [start, pieces.concat().as_slice(), b"\r\n\r\n"].concat())
}

/// Every prefix of `bytes` needs more, or has the outcome of the whole.
fn prefixes_agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    let whole: Result<Option<Head<'_>>, HeadError> = request::parse(bytes);
    for end in 0..bytes.len() {
        match request::parse(&bytes[..end]) {
            Ok(None) => {}
            outcome => prop_assert_eq!(&outcome, &whole, "{} bytes", end),
        }
    }
    if let Ok(Some(head)) = whole {
        prop_assert!(head.len <= bytes.len());
        prop_assert!(bytes[..head.len].ends_with(b"\r\n\r\n"));
    }
    Ok(())
}

/// Encodes `body` in chunks of the given sizes, as a writer here does.
fn encode_chunked(body: &[u8], sizes: &[usize]) -> Vec<u8> {
    let (mut out, mut rest, mut sizes) = (Vec::new(), body, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(1, |&size| size.clamp(1, rest.len()));
        let mut head = [0; chunked::HEAD_LEN];
        chunked::fill_head(&mut head, size);
        out.extend_from_slice(&head);
        out.extend_from_slice(&rest[..size]);
        out.extend_from_slice(chunked::TAIL);
        rest = &rest[size..];
    }
    out.extend_from_slice(chunked::LAST);
    out
}

/// What a decoder makes of a body that arrives in `parts`: data, bytes consumed, whether done.
fn decode_chunked(
    parts: &[&[u8]],
    max_body: usize,
) -> Result<(Vec<u8>, usize, bool), chunked::ChunkError> {
    let (mut decoder, mut out, mut consumed) = (chunked::Decoder::new(), Vec::new(), 0);
    for part in parts {
        let progress = decoder.decode(part, &mut out, max_body)?;
        consumed += progress.consumed;
        if progress.done {
            return Ok((out, consumed, true));
        }
    }
    Ok((out, consumed, false))
}

/// An owned event: id, name, data, retry.
type Event = (Option<Vec<u8>>, Vec<u8>, Vec<u8>, Option<u64>);

/// The events of a stream that arrives in `parts`, and the cursor at its end.
fn decode_sse(
    parts: &[&[u8]],
    max: usize,
) -> (Vec<Event>, Option<Vec<u8>>, Result<(), sse::EventTooLarge>) {
    let (mut decoder, mut events) = (sse::Decoder::new(max), Vec::new());
    for mut part in parts.iter().copied() {
        loop {
            match decoder.decode(&mut part) {
                Ok(Some(event)) => events.push((
                    event.id.map(<[u8]>::to_vec),
                    event.event.to_vec(),
                    event.data.to_vec(),
                    event.retry,
                )),
                Ok(None) => break,
                Err(error) => return (events, None, Err(error)),
            }
        }
    }
    let cursor = decoder.last_event_id().map(<[u8]>::to_vec);
    (events, cursor, Ok(()))
}

/// Text with everything that has ever been mistaken for a line end or a field.
fn nasty() -> impl Strategy<Value = Vec<u8>> {
    let piece = select(vec![
        "\r",
        "\n",
        "\r\n",
        "\n\n",
        ":",
        " ",
        "data: x",
        "id: 9.9",
        "event: e",
        "retry: 1",
        "\u{2028}",
        "\u{2029}",
        "\u{85}",
        "\u{feff}",
        "😀",
        "{\"a\":1}",
        "\t",
        "\0",
    ]);
    vec(piece, 0..10).prop_map(|pieces| pieces.concat().into_bytes())
}

/// The rules of WHATWG HTML, section 9.2.6, on a whole stream at once: events and cursor.
fn reference_sse(stream: &[u8]) -> (Vec<Event>, Option<Vec<u8>>) {
    let stream = String::from_utf8(stream.to_vec()).unwrap();
    let stream = stream.strip_prefix('\u{feff}').unwrap_or(&stream);
    let stream = stream.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut cursor, mut next_id) = (Vec::new(), String::new(), String::new());
    let mut lines: Vec<&str> = stream.split('\n').collect();
    lines.pop(); // not ended
    let some = |id: &str| (!id.is_empty()).then(|| id.as_bytes().to_vec());
    let (mut data, mut name, mut retry) = (Vec::new(), "", None);
    for line in lines {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if line.is_empty() => {
                cursor.clone_from(&next_id);
                if !data.is_empty() {
                    let name = if name.is_empty() { "message" } else { name };
                    let (name, data) = (name.as_bytes().to_vec(), data.join("\n").into_bytes());
                    events.push((some(&cursor), name, data, retry));
                }
                (data, name, retry) = (Vec::new(), "", None);
            }
            "data" => data.push(value),
            "event" => name = value,
            "id" if !value.contains('\0') => next_id = value.to_owned(),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                retry = value.parse().ok().or(retry);
            }
            _ => {}
        }
    }
    (events, some(&cursor))
}

/// Whole event streams, made of what their grammar tells apart.
fn stream_like() -> impl Strategy<Value = Vec<u8>> {
    let start = select(vec!["", "\u{feff}", "\u{feff}\u{feff}", "\u{fefe}", "\u{f000}", "\n"]);
    let piece = select(vec![
        "data: a",
        "data:b",
        "data",
        "data:  c",
        "id: 1",
        "id: 2\0",
        "id",
        "event: e",
        "event",
        "retry: 10",
        "retry: x",
        "retry:",
        ": c",
        "Data: d",
        "\u{feff}data: e",
        "\u{2028}",
        " ",
        ":",
    ]);
    let end = select(vec!["\n", "\r", "\r\n", "\n\n", "\r\r", "\r\n\r\n", "\n\r", "\r\n\n", ""]);
    (start, vec((piece, end), 0..16)).prop_map(|(start, pieces)| {
        let body: String = pieces.iter().flat_map(|&(piece, end)| [piece, end]).collect();
        (start.to_owned() + &body).into_bytes()
    })
}

fn with_spaces(text: &[u8]) -> Vec<u8> {
    text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect()
}

proptest! {
    #[test]
    fn head_of_any_bytes(bytes in vec(any::<u8>(), 0..200)) {
        prefixes_agree(&bytes)?;
    }

    #[test]
    fn head_of_likely_bytes(bytes in head_like()) {
        prefixes_agree(&bytes)?;
    }

    #[test]
    fn a_head_ends_where_it_says(bytes in head_like(), body in vec(any::<u8>(), 0..50)) {
        let whole = [bytes.as_slice(), &body].concat();
        if let Ok(Some(head)) = request::parse(&bytes) {
            prop_assert_eq!(request::parse(&whole), Ok(Some(head.clone())));
            prop_assert_eq!(request::parse(&whole[..head.len]), Ok(Some(head)));
        }
    }

    #[test]
    fn fields_are_found_again(
        fields in vec(("[a-z]{1,20}", "[!-~]([ -~]{0,20}[!-~])?"), 0..20),
        empty_lines in 0..4usize,
    ) {
        let mut text = "\r\n".repeat(empty_lines) + "POST /mcp HTTP/1.1\r\nHost: a\r\n";
        for (name, value) in &fields {
            text += &format!("X-{name}:  {value}\t\r\n");
        }
        text += "\r\n";
        let head = request::parse(text.as_bytes()).unwrap().unwrap();
        prop_assert_eq!(head.len, text.len());
        for (name, _) in &fields {
            let same = fields.iter().filter(|(other, _)| other == name);
            let expected: Vec<&[u8]> = same.map(|(_, value)| value.as_bytes()).collect();
            let upper = format!("x-{}", name.to_uppercase());
            prop_assert_eq!(head.fields(&upper).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(head.field(&upper), expected.first().copied());
        }
    }

    #[test]
    fn a_response_field_cannot_end_its_line(value in vec(any::<u8>(), 0..60)) {
        let mut out = Vec::new();
        response::head(&mut out, Status::Ok).field("x-a", &value).length(0);
        let lines: Vec<&[u8]> = out.split(|&byte| byte == b'\n').collect();
        prop_assert_eq!(lines.len(), 5);
        prop_assert!(lines[1].starts_with(b"x-a: "));
        prop_assert_eq!(lines[1].len(), value.len() + 6);
        prop_assert_eq!(&lines[2..], [b"content-length: 0\r".as_slice(), b"\r", b""]);
        prop_assert_eq!(out.iter().filter(|&&byte| byte == b'\r').count(), 4);
    }

    #[test]
    fn chunked_decoding_undoes_encoding(
        body in vec(any::<u8>(), 0..2000),
        sizes in vec(1..300usize, 1..8),
        behind in vec(any::<u8>(), 0..20),
        cuts in cuts(),
    ) {
        let encoded = encode_chunked(&body, &sizes);
        let wire = [encoded.as_slice(), &behind].concat();
        let decoded = decode_chunked(&parts(&wire, &cuts), body.len());
        prop_assert_eq!(decoded, Ok((body.clone(), encoded.len(), true)));
        if !body.is_empty() {
            let refused = decode_chunked(&parts(&wire, &cuts), body.len() - 1);
            prop_assert_eq!(refused, Err(chunked::ChunkError::TooLarge));
        }
    }

    #[test]
    fn chunked_of_any_bytes_is_the_same_however_split(
        pieces in vec(select(vec![
            "0", "3", "1", "a", "\r\n", "\r", "\n", ";", "x", "abc\r\n", " ", "0\r\n\r\n", "3\r\n",
        ]), 0..12),
        cuts in cuts(),
    ) {
        let wire = pieces.concat().into_bytes();
        prop_assert_eq!(decode_chunked(&parts(&wire, &cuts), 64), decode_chunked(&[&wire], 64));
    }

    #[test]
    fn sse_decoding_undoes_encoding(
        payloads in vec(nasty(), 0..8),
        comment in nasty(),
        bom in any::<bool>(),
        with_data in any::<bool>(),
        cuts in cuts(),
    ) {
        let mut wire = if bom { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
        let mut expected: Vec<Event> = Vec::new();
        let message = |id: &str, data: &[u8], retry| {
            (Some(id.as_bytes().to_vec()), b"message".to_vec(), with_spaces(data), retry)
        };
        sse::priming(&mut wire, b"tok.0", Some(3000), with_data);
        if with_data {
            expected.push(message("tok.0", b"", Some(3000)));
        }
        for (number, data) in (1..).zip(&payloads) {
            sse::event(&mut wire, b"tok", number, data);
            sse::comment(&mut wire, &comment);
            expected.push(message(&format!("tok.{number}"), data, None));
        }
        sse::event_with_id(&mut wire, b"tok.end", b"{}");
        sse::retry(&mut wire, 7);
        expected.push(message("tok.end", b"{}", None));
        let (events, cursor, outcome) = decode_sse(&parts(&wire, &cuts), 4096);
        prop_assert_eq!(outcome, Ok(()));
        prop_assert_eq!(events, expected);
        prop_assert_eq!(cursor, Some(b"tok.end".to_vec()));
    }

    #[test]
    fn sse_decoding_follows_the_standard(wire in stream_like(), cuts in cuts()) {
        let (events, cursor) = reference_sse(&wire);
        prop_assert_eq!(decode_sse(&parts(&wire, &cuts), 4096), (events, cursor, Ok(())));
    }

    #[test]
    fn an_sse_id_cannot_end_its_line(id in nasty(), data in nasty()) {
        let mut wire = Vec::new();
        sse::priming(&mut wire, &id, None, false);
        sse::event_with_id(&mut wire, &id, &data);
        let (events, _, _) = decode_sse(&[&wire], 4096);
        prop_assert_eq!(events.len(), 1);
        prop_assert_eq!(&events[0].1, b"message");
        prop_assert_eq!(&events[0].2, &with_spaces(&data));
        prop_assert_eq!(events[0].3, None);
        // NUL makes an id invalid, so that it is none.
        let id = (!id.is_empty() && !id.contains(&0)).then(|| with_spaces(&id));
        prop_assert_eq!(&events[0].0, &id);
    }

    #[test]
    fn sse_of_any_bytes_is_the_same_however_split(
        start in nasty(),
        bytes in vec(any::<u8>(), 0..100),
        end in nasty(),
        max in 1..80usize,
        cuts in cuts(),
    ) {
        let wire = [start, bytes, end].concat();
        prop_assert_eq!(decode_sse(&parts(&wire, &cuts), max), decode_sse(&[&wire], max));
    }
}
