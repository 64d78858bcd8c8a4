//! An event stream means the same however it arrives and however its lines end; no event exceeds
//! the bound, and a higher bound changes nothing but what it refuses; what is written is read back.

use gapless::http::sse::{self, Decoder, EventTooLarge};

use super::{chance, for_each_split, shown};

/// An owned event: id, name, data, retry.
type Event = (Option<Vec<u8>>, Vec<u8>, Vec<u8>, Option<u64>);

/// The events, and the cursor and the reconnection time at the end, if the bound was kept.
type Outcome = (Vec<Event>, Result<(Option<Vec<u8>>, Option<u64>), EventTooLarge>);

/// The input is a stream as it arrives, and then a payload to be sent.
pub fn holds(wire: &[u8]) {
    let ample = wire.len() + 1;
    let unbounded = decoded(&[wire], ample);
    let tight = chance(wire).between(0, 64) as usize;
    for max in [ample, tight] {
        let whole = decoded(&[wire], max);
        for_each_split(wire, |parts| {
            assert_eq!(decoded(parts, max), whole, "{}", shown(wire));
        });
        if whole.1.is_ok() {
            assert_eq!(whole, unbounded, "a bound that is kept changes nothing");
        } else {
            assert!(unbounded.0.starts_with(&whole.0), "what comes before a refusal stays");
        }
        let normal = with_line_feeds(wire);
        assert_eq!(decoded(&[&normal], max), whole, "line ends are all alike");
    }
    assert!(unbounded.1.is_ok(), "no block is larger than its stream");
    // Behind a BOM, so that none is left to begin the stream.
    let prefixed = [b"\xef\xbb\xbf: comment\r\n\n", wire].concat();
    let bare = wire.strip_prefix(b"\xef\xbb\xbf").is_none();
    assert!(!bare || decoded(&[&prefixed], ample + 16) == unbounded, "a comment says nothing");
    read_back(wire);
}

fn decoded(parts: &[&[u8]], max: usize) -> Outcome {
    let (mut decoder, mut events) = (Decoder::new(max), Vec::new());
    for mut part in parts.iter().copied() {
        loop {
            match decoder.decode(&mut part) {
                Ok(Some(event)) => {
                    let id = event.id.map(<[u8]>::to_vec);
                    let held = event.data.len() + event.id.map_or(0, <[u8]>::len);
                    assert!(held <= max, "an event of {held} bytes, above the bound of {max}");
                    events.push((id, event.event.to_vec(), event.data.to_vec(), event.retry));
                }
                Ok(None) => {
                    assert!(part.is_empty(), "what was not read is lost");
                    break;
                }
                Err(error) => return (events, Err(error)),
            }
        }
    }
    let cursor = decoder.last_event_id().map(<[u8]>::to_vec);
    (events, Ok((cursor, decoder.retry())))
}

/// Every line end as a line feed.
fn with_line_feeds(wire: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(wire.len());
    for (at, &byte) in wire.iter().enumerate() {
        match byte {
            b'\r' => out.push(b'\n'),
            b'\n' if at > 0 && wire[at - 1] == b'\r' => {}
            _ => out.push(byte),
        }
    }
    out
}

/// Whatever a payload, an id or a comment holds, the reader sees one event with one line of data.
fn read_back(payload: &[u8]) {
    let mut rng = chance(payload);
    let number = rng.next();
    let flat: Vec<u8> = payload
        .iter()
        .map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte })
        .collect();
    let mut wire = Vec::new();
    sse::priming(&mut wire, b"t.0", Some(7), rng.once_in(2));
    sse::comment(&mut wire, payload);
    let start = wire.len();
    sse::event(&mut wire, b"t", number, payload);
    let mut written_through = Vec::new();
    sse::event_with(&mut written_through, [b"", b"t"], number, |out| {
        out.extend_from_slice(payload)
    });
    assert_eq!(wire[start..], written_through, "both ways to write an event agree");
    sse::event_with_id(&mut wire, payload, b"{}");
    sse::retry(&mut wire, 9);
    let (mut events, end) = decoded(&[&wire], wire.len());
    // A NUL makes an id invalid, which leaves the one before in force.
    let id = format!("t.{number}").into_bytes();
    let last = if payload.contains(&0) { id.clone() } else { flat.clone() };
    // One space behind the colon is the field's, and the written one is it.
    let last = (!last.is_empty()).then_some(last);
    assert_eq!(end, Ok((last.clone(), Some(9))));
    assert_eq!(events.pop(), Some((last, b"message".to_vec(), b"{}".to_vec(), None)));
    assert_eq!(events.pop(), Some((Some(id), b"message".to_vec(), flat, None)));
    let primed = (Some(b"t.0".to_vec()), b"message".to_vec(), Vec::new(), Some(7));
    assert!(events.is_empty() || events == [primed]);
}
