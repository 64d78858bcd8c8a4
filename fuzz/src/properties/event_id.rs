//! Only an id that was minted for this session, key and epoch is a cursor, and it has one spelling.

use arbitrary::{Arbitrary, Unstructured};
use gapless::mcp::event_id::{Cursor, STREAM_NUMBER_MAX, Token, verify};
use gapless::mcp::session_id::SessionId;

/// Characters of a token.
const TOKEN_CHARS: usize = 24;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    key: [u8; 32],
    shard: u16,
    random: [u8; 16],
    stream: u32,
    epoch: u32,
    /// How many epochs later the id is presented.
    newer: u8,
    /// How many older epochs are tried.
    older: u8,
    /// None: the id that marks the end.
    number: Option<u64>,
    change: Change,
    /// Presented as it is.
    raw: &'a [u8],
}

#[derive(Arbitrary, Debug)]
enum Change {
    Set {
        at: u8,
        byte: u8,
    },
    Insert {
        at: u8,
        byte: u8,
    },
    Remove {
        at: u8,
    },
    Cut {
        at: u8,
    },
    Tail {
        number: u64,
    },
    /// The token of another stream before this number.
    Renumber {
        stream: u32,
    },
}

/// Epochs that lie between the id and what presents it, or that are tried.
const EPOCHS_MAX: u8 = 8;

/// The input is an [`Input`] as `arbitrary` reads it.
pub fn holds(input: &[u8]) {
    let Ok(mut input) = Input::arbitrary_take_rest(Unstructured::new(input)) else { return };
    input.newer %= EPOCHS_MAX;
    input.older %= EPOCHS_MAX;
    let session = SessionId::from_random(input.shard, input.random);
    let stream = input.stream & STREAM_NUMBER_MAX;
    let epoch = input.epoch.min(u32::MAX - u32::from(EPOCHS_MAX));
    let minted = spelled(&input.key, &session, stream, epoch, input.number);
    let current = epoch + u32::from(input.newer);
    let older = u32::from(input.older);
    let read = |raw: &[u8]| verify(raw, &input.key, &session, current, older);

    let cursor = match input.number {
        Some(number) => Cursor::Number { stream, epoch, number },
        None => Cursor::End { stream, epoch },
    };
    let known = input.newer <= input.older;
    assert_eq!(read(&minted), known.then_some(cursor), "{:?}", minted.escape_ascii());

    let changed = changed(&minted, &input);
    for raw in [input.raw, &changed] {
        let cursor = read(raw);
        if raw.get(..TOKEN_CHARS) != minted.get(..TOKEN_CHARS) {
            assert_eq!(cursor, None, "a token that nobody minted: {}", raw.escape_ascii());
        }
        if let Some(cursor) = cursor {
            let (named, number) = match cursor {
                Cursor::Number { stream, number, .. } => (stream, Some(number)),
                Cursor::End { stream, .. } => (stream, None),
            };
            let again = spelled(&input.key, &session, named, epoch, number);
            assert_eq!(again, raw, "a cursor has one spelling");
        }
    }
    refused_elsewhere(&minted, &input, &session, current);
}

fn spelled(
    key: &[u8; 32],
    session: &SessionId,
    stream: u32,
    epoch: u32,
    number: Option<u64>,
) -> Vec<u8> {
    let (token, mut id) = (Token::mint(key, session, stream, epoch), Vec::new());
    match number {
        Some(number) => token.push_id(number, &mut id),
        None => token.push_end_id(&mut id),
    }
    id
}

fn changed(minted: &[u8], input: &Input<'_>) -> Vec<u8> {
    let mut id = minted.to_vec();
    let place = |at: u8| usize::from(at) % minted.len();
    match input.change {
        Change::Set { at, byte } => id[place(at)] = byte,
        Change::Insert { at, byte } => id.insert(place(at), byte),
        Change::Remove { at } => drop(id.remove(place(at))),
        Change::Cut { at } => id.truncate(place(at)),
        Change::Tail { number } => {
            id.truncate(TOKEN_CHARS + 1);
            id.extend_from_slice(number.to_string().as_bytes());
        }
        Change::Renumber { stream } => {
            let session = SessionId::from_random(0, [0; 16]);
            let other = Token::mint(&[0; 32], &session, stream & STREAM_NUMBER_MAX, 0);
            // The stream's number is the first 32 of the token's bits.
            id[..6].copy_from_slice(&other.as_bytes()[..6]);
        }
    }
    id
}

/// Another session, shard, key or later window reads nothing in a minted id.
fn refused_elsewhere(minted: &[u8], input: &Input<'_>, session: &SessionId, current: u32) {
    let older = u32::from(input.older);
    let other_shard = SessionId { shard: !session.shard, ..*session };
    let other_session = SessionId { random: session.random.map(|byte| !byte), ..*session };
    for other in [other_shard, other_session] {
        assert_eq!(verify(minted, &input.key, &other, current, older), None);
    }
    let mut key = input.key;
    key[0] ^= 1;
    assert_eq!(verify(minted, &key, session, current, older), None);
    if let Some(late) = current.checked_add(older + 1) {
        assert_eq!(verify(minted, &input.key, session, late, older), None);
    }
}
