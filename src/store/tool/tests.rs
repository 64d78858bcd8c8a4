//! What the tool says of directories in every state.

use std::fs;
use std::path::PathBuf;

use super::walk::{Found, Walk};
use super::*;
use crate::mcp::session_id::SessionId;
use crate::store::body::{SessionBody, StreamBody, StreamId, Transport};
use crate::store::directory::boot_id;
use crate::store::directory::tests::Scratch;
use crate::store::journal::Level;
use crate::store::record::{self, FINISHED, Header, Kind};
use crate::store::segment::{SegmentHeader, file_name};

const SEGMENT: u32 = 1;

fn session_id() -> SessionId {
    SessionId::from_random(0, *b"sixteen secrets.")
}

/// A directory with one shard, whose only segment these records make.
struct Made {
    scratch: Scratch,
    bytes: Vec<u8>,
    /// Where each record begins.
    places: Vec<usize>,
}

impl Made {
    fn new() -> Self {
        let header = SegmentHeader {
            shard: 0,
            number: SEGMENT,
            epoch: 7,
            generation: 1,
            level: Level::Process,
            boot_id: boot_id().expect("known"),
            created: 1_000_000_000,
            run: 1,
        };
        let made =
            Self { scratch: Scratch::new(), bytes: header.encode().to_vec(), places: Vec::new() };
        let mut directory = Directory::open(&made.root()).expect("made");
        let meta = Meta { generation: 1, shards: 1, epoch: 7, runs: 3, key: [1; 32] };
        directory.replace_meta(meta).expect("written");
        directory.make_generation(1, 1).expect("made");
        made
    }

    /// One session with the standalone stream, one call of three events, and a planned end.
    fn usual() -> Self {
        let mut made = Self::new();
        let mut body = Vec::new();
        let session = SessionBody {
            id: session_id(),
            server: "default".into(),
            principal: 0,
            transport: Transport::StreamableHttp,
            next_stream: 2,
            revision: "2025-11-25".to_owned(),
            endpoint: String::new(),
            initialize: b"{\"private\":1}".to_vec(),
            result: b"{}".to_vec(),
        };
        session.encode(&mut body);
        made.push(header(Kind::Session, 0, 0), &body);
        for (stream, ids) in
            [(0, vec![]), (1, vec![StreamId { raw: b"\"q\"".into(), answered: false }])]
        {
            body.clear();
            StreamBody { tail: 0, ids }.encode(&mut body);
            made.push(header(Kind::Stream, stream, 1), &body);
        }
        for number in 1..=3 {
            let event = format!("id: tokenoftokens.{number}\ndata: {{\"secret\":{number}}}\n\n");
            let answers = u16::from(number == 3);
            made.push(Header { answers, ..header(Kind::Event, 1, number) }, event.as_bytes());
        }
        made
    }

    fn push(&mut self, header: Header, body: &[u8]) {
        self.places.push(self.bytes.len());
        record::push(&mut self.bytes, SEGMENT, &header, body);
    }

    /// The planned end, with everything synced before it.
    fn end(&mut self) {
        let at = u64::from(SEGMENT) << 32 | self.bytes.len() as u64;
        self.push(Header::of_log(Kind::Mark, at), b"");
        self.push(Header::of_log(Kind::Clean, u64::from(SEGMENT)), b"");
    }

    fn root(&self) -> PathBuf {
        self.scratch.join("data")
    }

    fn path(&self) -> PathBuf {
        Layout::new(&self.root()).shard(1, 0).join(file_name(SEGMENT))
    }

    /// Writes the segment, with this behind it.
    fn write(&self, behind: &[u8]) {
        fs::write(self.path(), [&self.bytes[..], behind].concat()).expect("written");
    }

    fn check(&self) -> (bool, String) {
        let mut out = Vec::new();
        let sound = check(&self.root(), &mut out).expect("read");
        (sound, String::from_utf8(out).expect("text"))
    }

    fn dump(&self, what: &Dump) -> (bool, String) {
        let mut out = Vec::new();
        let sound = dump(&self.root(), what, &mut out).expect("read");
        (sound, String::from_utf8(out).expect("text"))
    }
}

fn header(kind: Kind, stream: u32, number: u64) -> Header {
    Header { kind, flags: 0, answers: 0, slot: 5, stream, number }
}

fn assert_has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
}

#[test]
fn a_sound_directory_is_told_with_its_figures() {
    let mut made = Made::usual();
    made.end();
    made.write(&[0; 5000]);
    let (sound, told) = made.check();
    assert!(sound, "{told}");
    assert_has(
        &told,
        &[
            "generation 1, 1 shards, epoch 7, opened 3 times",
            "shard 0: 1 segments",
            "ended as planned, at level process, on this boot",
            "session 1, stream 2, event 3, mark 1, clean 1",
            "sessions: 1 live, 0 ended; streams: 2; events kept: 3 of ",
        ],
    );
    assert!(told.ends_with("sound\n"), "{told}");
}

#[test]
fn a_torn_end_is_told_and_is_no_damage() {
    let mut made = Made::usual();
    made.bytes.truncate(made.bytes.len() - 7);
    made.write(&[0; 5000]);
    let (sound, told) = made.check();
    assert!(sound, "{told}");
    let torn = format!("ends without a seal at {SEGMENT}:{}", made.places[5]);
    assert_has(&told, &[&torn, "did not end as planned", "events kept: 2 of "]);
}

#[test]
fn damage_is_told_with_its_place_and_what_is_refused() {
    let mut made = Made::usual();
    made.end();
    let event = made.places[4];
    made.bytes[event + record::HEADER_BYTES + 30] ^= 1;
    made.write(&[]);
    let (sound, told) = made.check();
    assert!(!sound, "{told}");
    let place = format!("DAMAGED g1/shard-0/0000000001.wal:{event} event slot=5 stream=1 number=2");
    let stream = format!("DAMAGED stream 1 of session {}", session_id().short());
    assert_has(&told, &[&place, &stream]);
    assert!(told.ends_with("DAMAGED\n"), "{told}");
    let (sound, lines) = made.dump(&Dump::default());
    assert!(!sound && lines.contains("DAMAGED: its "), "{lines}");

    // A header: nothing says whose record it was, so every session so far is touched.
    let mut made = Made::usual();
    made.end();
    made.bytes[event] ^= 1;
    made.write(&[]);
    let (sound, told) = made.check();
    assert!(!sound, "{told}");
    let bytes = made.places[5] - event;
    let place = format!("0000000001.wal:{event}: {bytes} bytes are no record");
    assert_has(&told, &[&place, &format!("DAMAGED session {}", session_id().short())]);
}

#[test]
fn another_format_is_told_and_not_called_sound() {
    let mut made = Made::usual();
    made.bytes[8] = 9;
    let mut hasher = crc32fast::Hasher::new_with_initial(SEGMENT);
    hasher.update(&made.bytes[..60]);
    made.bytes[60..64].copy_from_slice(&hasher.finalize().to_le_bytes());
    made.write(&[]);
    let (sound, told) = made.check();
    assert!(!sound);
    assert_has(&told, &["segment 1 has format 9"]);
}

#[test]
fn a_dump_hides_ids_cursors_and_bodies_unless_asked() {
    let mut made = Made::usual();
    made.push(Header { flags: FINISHED, ..header(Kind::Floor, 1, 2) }, b"");
    made.end();
    made.write(&[]);
    let id = String::from_utf8(session_id().write().to_vec()).expect("text");
    let short = session_id().short().to_string();
    let (sound, lines) = made.dump(&Dump::default());
    assert!(sound, "{lines}");
    let event = format!(
        "g1/shard-0/0000000001.wal:{} event slot=5 session={short} stream=1 number=3 bytes=",
        made.places[5]
    );
    assert_has(&lines, &[&event, "answers=1", "revision=\"2025-11-25\"", "floor=2 finished"]);
    assert_has(&lines, &["epoch 7, level process", "made 2001-09-09T01:46:40Z", "synced=1:"]);
    let secrets = [id.as_str(), "tokenoftokens"];
    let bodies = ["private", "secret\\\"", "\\\"q\\\""];
    for word in secrets.iter().chain(&bodies) {
        assert!(!lines.contains(word), "{word} is in:\n{lines}");
    }
    let (_, lines) = made.dump(&Dump { bodies: true, ..Dump::default() });
    assert_has(&lines, &bodies);
    assert_has(&lines, &["body=id: (hidden).3\\ndata: "]);
    assert!(!lines.contains(secrets[0]) && !lines.contains(secrets[1]), "{lines}");
    let (_, lines) = made.dump(&Dump { bodies: true, secrets: true, ..Dump::default() });
    assert_has(&lines, &secrets);
}

#[test]
fn a_dump_of_one_session_or_stream_has_nothing_else() {
    let mut made = Made::usual();
    // Of a session whose birth is not kept.
    made.push(Header { slot: 6, ..header(Kind::Event, 1, 9) }, b"id: a.9\ndata: x\n\n");
    made.end();
    made.write(&[]);
    let records = |what: &Dump| -> Vec<String> {
        let (_, lines) = made.dump(what);
        let lines = lines.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
    };
    let usual = ["session", "stream", "stream", "event", "event", "event"];
    let whole = String::from_utf8(session_id().write().to_vec()).expect("text");
    for name in [session_id().short().to_string(), whole] {
        assert_eq!(records(&Dump { session: Some(name), ..Dump::default() }), usual);
    }
    let of_stream = |stream| Dump { stream: Some(stream), ..Dump::default() };
    assert_eq!(records(&of_stream(0)), ["stream"]);
    assert_eq!(records(&of_stream(1)), ["stream", "event", "event", "event", "event"]);
    let session = Some(session_id().short().to_string());
    let both = Dump { session, ..of_stream(1) };
    assert_eq!(records(&both), ["stream", "event", "event", "event"]);
    let nobody = Dump { session: Some("00000000".to_owned()), ..Dump::default() };
    assert!(records(&nobody).is_empty());
}

#[test]
fn while_a_process_writes_there_is_a_dump_and_no_check() {
    let mut made = Made::usual();
    made.end();
    made.write(&[]);
    let writing = Directory::open(&made.root()).expect("locked");
    let user = format!("in use by process {}", std::process::id());
    let refused = check(&made.root(), &mut Vec::new()).expect_err("in use");
    assert!(refused.to_string().contains(&user), "{refused}");
    let refused = new_epoch(&made.root(), &mut Vec::new()).expect_err("in use");
    assert!(refused.to_string().contains(&user), "{refused}");
    let (sound, lines) = made.dump(&Dump::default());
    assert!(sound);
    assert_has(&lines, &[&user, "number=3"]);
    drop(writing);
    assert!(made.check().0);
    assert!(!made.dump(&Dump::default()).1.contains("in use"));
    // Two may look at the same time, and then nobody may write.
    let held = Layout::new(&made.root()).hold_shared().expect("free");
    assert!(made.check().0);
    Directory::open(&made.root()).expect_err("somebody is looking");
    drop(held);
}

#[test]
fn a_new_epoch_changes_the_epoch_and_nothing_else() {
    let mut made = Made::usual();
    made.end();
    made.write(&[]);
    let before = fs::read(made.path()).expect("read");
    let mut out = Vec::new();
    new_epoch(&made.root(), &mut out).expect("done");
    assert!(out.starts_with(b"epoch 7 -> 8: "));
    let meta = Layout::new(&made.root()).read_meta().expect("read").expect("there");
    let expected = Meta { generation: 1, shards: 1, epoch: 8, runs: 3, key: [1; 32] };
    assert_eq!(meta, expected);
    assert_eq!(fs::read(made.path()).expect("read"), before);
}

#[test]
fn a_directory_that_is_not_there_is_told_and_not_made() {
    let scratch = Scratch::new();
    let root = scratch.join("data");
    let mut out = Vec::new();
    let refusals = [
        check(&root, &mut out).expect_err("nothing there"),
        dump(&root, &Dump::default(), &mut out).expect_err("nothing there"),
        new_epoch(&root, &mut out).expect_err("nothing there"),
    ];
    for refused in refusals {
        assert!(refused.to_string().contains("is no data directory"), "{refused}");
    }
    assert!(!root.exists() && out.is_empty());
}

/// A copy on a medium that cannot be written, or made without the lock file.
#[test]
fn a_backup_without_a_lock_file_can_be_checked() {
    let mut made = Made::usual();
    made.end();
    made.write(&[]);
    fs::remove_file(made.root().join("lock")).expect("removed");
    assert!(made.check().0);
    assert!(!made.root().join("lock").exists(), "nothing was changed");
}

/// Records, gaps and bodies that do not fit into one read of the file.
#[test]
fn a_walk_finds_every_record_wherever_reads_begin_and_end() {
    let mut made = Made::new();
    let long = vec![b'x'; 300_000];
    made.push(header(Kind::Event, 1, 1), &long);
    made.bytes.extend(vec![0xEE; 400_001]);
    let gap = made.places[0] + record::HEADER_BYTES + long.len();
    made.push(header(Kind::Event, 1, 2), b"");
    made.push(header(Kind::Event, 1, 3), &long);
    let end = made.bytes.len();
    for (behind, written) in [(vec![0; 700_000], false), (vec![7; 33], true), (vec![0; 31], false)]
    {
        made.write(&behind);
        let (mut walk, opened) = Walk::open(&made.path(), SEGMENT).expect("opened");
        opened.expect("a header");
        let mut found = Vec::new();
        while let Some((at, what)) = walk.next().expect("read") {
            found.push((
                at as usize,
                match what {
                    Found::Record(header, body) => format!("{} of {}", header.number, body.len()),
                    Found::Unreadable(bytes) => format!("no record in {bytes}"),
                    Found::Rest { bytes, written } => format!("rest of {bytes}, {written}"),
                    Found::BadBody(header, _) => format!("bad {}", header.number),
                },
            ));
        }
        let rest = format!("rest of {}, {written}", behind.len());
        let expected = [
            (made.places[0], "1 of 300000"),
            (gap, "no record in 400001"),
            (made.places[1], "2 of 0"),
            (made.places[2], "3 of 300000"),
            (end, rest.as_str()),
        ];
        let found: Vec<_> = found.iter().map(|(at, what)| (*at, what.as_str())).collect();
        assert_eq!(found, expected);
    }
}
