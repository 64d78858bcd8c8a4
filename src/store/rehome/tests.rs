//! Directories whose number of shards changes: what lives is the same afterwards.

use std::collections::BTreeMap;
use std::fs;

use super::super::body::{SessionBody, Transport};
use super::super::directory::boot_id;
use super::super::directory::tests::Scratch;
use super::super::journal::Level;
use super::super::start::{Opened, open};
use super::*;
use crate::config::DataConfig;
use crate::mcp::session_id::SessionId;

const KEY: [u8; 32] = [5; 32];
const SEGMENT_BYTES: u64 = 4096;

fn session_id(shard: u16, number: u8) -> SessionId {
    SessionId::from_random(shard, [number; 16])
}

fn config(scratch: &Scratch, durability: Level) -> DataConfig {
    DataConfig { dir: scratch.join("data"), durability }
}

fn event(id: &SessionId, stream: u32, epoch: u32, number: u64) -> Vec<u8> {
    let mut event = b"id: ".to_vec();
    Token::mint(&KEY, id, stream, epoch).push_id(number, &mut event);
    // Some are as large as all else in a segment, one is larger than a segment.
    let length = if (stream, number) == (1, 3) { 6000 } else { number as usize * 300 };
    event.extend_from_slice(b"\ndata: ");
    event.resize(event.len() + length, b'a' + number as u8);
    event.extend_from_slice(b"\n\n");
    event
}

/// A directory of `shards` shards in the epoch 5, whose segments are of the epochs 4 and 5, as
/// processes that were killed at `level` left it.
fn make(scratch: &Scratch, shards: u16, level: Level) {
    let mut directory = Directory::open(&scratch.join("data")).expect("made");
    let meta = Meta { generation: 1, shards, epoch: 5, runs: 2, key: KEY };
    directory.replace_meta(meta).expect("written");
    directory.make_generation(1, shards).expect("made");
    for shard in 0..shards {
        let folder = directory.layout().shard(1, shard);
        for number in 1..=2 {
            fs::write(folder.join(file_name(number)), segment((shard, shards), number, level))
                .expect("made");
        }
    }
}

fn segment((shard, shards): (u16, u16), number: u32, level: Level) -> Vec<u8> {
    let header = SegmentHeader {
        shard,
        number,
        epoch: 3 + number,
        generation: 1,
        level,
        boot_id: boot_id().expect("known"),
        created: 1_000_000_000,
        run: number,
    };
    let mut bytes = header.encode().to_vec();
    let mut push = |header: Header, body: &[u8]| record::push(&mut bytes, number, &header, body);
    for slot in 0..5 {
        let id = session_id(shard + shards * slot as u16, (shard * 10 + slot as u16) as u8);
        let of = |kind, stream, number| Header { slot, stream, ..Header::of_log(kind, number) };
        let stream = |tail, ids: &[(&str, bool)]| {
            let id = |&(raw, answered): &(&str, bool)| StreamId { raw: raw.into(), answered };
            let mut body = Vec::new();
            StreamBody { tail, ids: ids.iter().map(id).collect() }.encode(&mut body);
            body
        };
        if number == 2 {
            // 0 goes on; the call is answered; one is finished without; one is buried; one has a
            // hole; one is over.
            let epoch = 5;
            (3..6).for_each(|n| push(of(Kind::Event, 0, n), &event(&id, 0, epoch, n)));
            let answer = Header { answers: 2, ..of(Kind::Event, 1, 3) };
            push(answer, &event(&id, 1, epoch, 3));
            push(of(Kind::Finish, 2, 1), b"");
            push(Header { flags: BURIED, ..of(Kind::Floor, 3, 2) }, b"");
            push(of(Kind::Event, 4, 4), &event(&id, 4, epoch, 4));
            push(of(Kind::Floor, 0, 2), b"");
            if slot == 4 {
                push(of(Kind::End, 0, 0), b"");
            }
            continue;
        }
        let encoded = session(id, slot);
        push(of(Kind::Session, 0, 0), &encoded);
        push(of(Kind::Setup, 0, 1), b"first");
        push(of(Kind::Setup, 0, 2), b"second");
        push(of(Kind::Stream, 0, 1), &stream(0, &[]));
        push(of(Kind::Stream, 1, 1), &stream(0, &[("7", true), ("\"b\"", false)]));
        for other in 2..5 {
            push(of(Kind::Stream, other, 1), &stream(0, &[("8", false)]));
            push(of(Kind::Event, other, 1), &event(&id, other, 4, 1));
        }
        // A stream that is broken before it had an event.
        push(of(Kind::Stream, 6, 1), b"no body of a stream");
        for n in 1..3 {
            push(of(Kind::Event, 0, n), &event(&id, 0, 4, n));
            push(of(Kind::Event, 1, n), &event(&id, 1, 4, n));
        }
    }
    if number == 1 {
        push(Header::of_log(Kind::Seal, 0), b"");
    }
    // Space that was reserved.
    bytes.resize(bytes.len() + 1000, 0);
    bytes
}

fn session(id: SessionId, slot: u32) -> Vec<u8> {
    let body = SessionBody {
        id,
        server: "default".into(),
        principal: 3,
        transport: Transport::StreamableHttp,
        next_stream: 2,
        revision: "2025-11-25".to_owned(),
        endpoint: String::new(),
        initialize: b"{}".to_vec(),
        result: format!("{{\"of\":{slot}}}").into_bytes(),
    };
    let mut encoded = Vec::new();
    body.encode(&mut encoded);
    encoded
}

/// Everything that can be told of a session, with the bytes of its events.
fn told(opened: &Opened) -> BTreeMap<[u8; 16], String> {
    let mut all = BTreeMap::new();
    let count = opened.shards.len();
    for (shard, log) in (0..).zip(&opened.shards) {
        for session in &log.sessions {
            let id = session.body.id;
            assert_eq!(id.owner(count), shard, "it is where it is looked for");
            let mut text = format!("{:?} {:?}", session.body, session.setups);
            for stream in &session.streams {
                let RecoveredStream { number, ids, answered, finished, buried, .. } = stream;
                text += &format!("\n{number} {ids:?} {answered:?} {finished} {buried}");
                text += &format!(" {}", stream.broken && !buried);
                if !stream.broken {
                    text += &format!(" {}..={}", stream.floor, stream.tail);
                }
                let mut next = stream.floor;
                for run in &stream.runs {
                    let path = log.home.folder.join(file_name(run.place.segment));
                    let bytes = fs::read(path).expect("read");
                    let mut at = run.place.offset as usize;
                    for &length in &run.lengths {
                        let read = record::read(&bytes[at..], run.place.segment);
                        let (header, body, whole) = read.expect("whole");
                        assert_eq!((header.number, body.len()), (next, length as usize));
                        let epoch = log.home.epochs[&run.place.segment];
                        assert_eq!(body, event(&id, *number, epoch, next), "{number} {next}");
                        text += &format!(" {next}:{}", header.answers);
                        (at, next) = (at + whole, next + 1);
                    }
                }
                assert!(stream.broken || next == stream.tail + 1);
            }
            let old = all.insert(id.random, text.replace("next_stream: 2", "next_stream: 7"));
            assert_eq!(old, None, "one session is in one place");
        }
    }
    all
}

#[test]
fn sessions_are_the_same_on_any_number_of_shards() {
    let scratch = Scratch::new();
    make(&scratch, 1, Level::Process);
    let config = config(&scratch, Level::Process);
    let first = told(&open(&config, SEGMENT_BYTES, 1).expect("opened"));
    assert_eq!(first.len(), 4, "one of five is over");
    let text = first.values().next().expect("one");
    for line in [
        "\n0 [] [] false false false 2..=5 2:0 3:0 4:0 5:0",
        "\n1 [[55], [34, 98, 34]] [true, true] true false false 1..=3 1:0 2:0 3:2",
        "\n2 [[56]] [false] true false false 1..=1 1:0",
        "\n3 [[56]] [false] false true false 2..=1",
        "\n4 [[56]] [false] false false true",
        "\n6 [] [] false false true",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    for (generation, shards) in [(2, 4), (3, 2), (4, 3), (5, 1)] {
        let opened = open(&config, SEGMENT_BYTES, shards).expect("opened");
        assert_eq!(told(&opened), first, "{shards} shards");
        assert_eq!((opened.meta.generation, opened.meta.epoch), (generation, 5));
        for log in &opened.shards {
            assert_eq!(log.next_slot as usize, log.sessions.len());
            assert!(log.home.epochs.values().all(|&epoch| epoch == 5));
        }
        drop(opened);
        let again = open(&config, SEGMENT_BYTES, shards).expect("opened");
        assert_eq!((told(&again), again.meta.epoch), (first.clone(), 5));
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = fs::read_dir(&config.dir).unwrap().map(name).collect();
        names.sort();
        assert_eq!(names, [format!("g{generation}").as_str(), "lock", "meta"]);
    }
}

#[test]
fn many_shards_become_few() {
    let scratch = Scratch::new();
    make(&scratch, 4, Level::Power);
    let config = config(&scratch, Level::Process);
    let first = told(&open(&config, SEGMENT_BYTES, 3).expect("opened"));
    assert_eq!(first.len(), 16);
    assert_eq!(told(&open(&config, SEGMENT_BYTES, 5).expect("opened")), first);
}

#[test]
fn a_new_epoch_is_in_every_id_of_what_was_moved() {
    let scratch = Scratch::new();
    make(&scratch, 2, Level::None);
    let config = config(&scratch, Level::Process);
    // Nobody promised anything, and it was killed.
    let opened = open(&config, SEGMENT_BYTES, 3).expect("opened");
    let first = told(&opened);
    assert_eq!((opened.meta.epoch, first.len()), (6, 8));
    drop(opened);
    let mut directory = Directory::open(&config.dir).expect("opened");
    let meta = directory.meta().expect("in force").clone();
    directory.replace_meta(Meta { epoch: 9, ..meta }).expect("written");
    drop(directory);
    let opened = open(&config, SEGMENT_BYTES, 2).expect("opened");
    assert_eq!((told(&opened), opened.meta.epoch), (first, 9));
    assert!(opened.shards.iter().all(|log| log.home.epochs.values().all(|&epoch| epoch == 9)));
}

/// What was moved has a planned end, which says nothing of the process that went on with it.
#[test]
fn who_went_on_after_the_move_and_was_killed_had_no_planned_end() {
    let scratch = Scratch::new();
    make(&scratch, 1, Level::Process);
    let config = config(&scratch, Level::None);
    let opened = open(&config, SEGMENT_BYTES, 2).expect("opened");
    assert_eq!(opened.meta.epoch, 5);
    let log = &opened.shards[0];
    let header = SegmentHeader { number: log.first_segment, ..log.home.header };
    fs::write(log.home.folder.join(file_name(header.number)), header.encode()).expect("written");
    drop(opened);
    assert_eq!(open(&config, SEGMENT_BYTES, 2).expect("opened").meta.epoch, 6);
}

#[test]
fn a_crash_in_the_middle_leaves_the_old_generation_in_force() {
    let scratch = Scratch::new();
    make(&scratch, 2, Level::Process);
    let config = config(&scratch, Level::Process);
    let first = told(&open(&config, SEGMENT_BYTES, 2).expect("opened"));
    for cut in 0..4 {
        let directory = Directory::open(&config.dir).expect("opened");
        let meta = directory.meta().expect("in force").clone();
        directory.make_generation(2, 3).expect("made");
        for shard in 0..cut {
            let folder = directory.layout().shard(2, shard);
            let half = &segment((shard, 3), 1, Level::Process)[..100 * usize::from(cut)];
            fs::write(folder.join(file_name(1)), half).expect("written");
        }
        drop(directory);
        let opened = open(&config, SEGMENT_BYTES, 2).expect("opened");
        assert_eq!((told(&opened), opened.meta.generation), (first.clone(), 1), "{cut}");
        assert_eq!(opened.meta.runs, meta.runs + 1);
        assert!(!config.dir.join("g2").exists());
    }
    assert_eq!(told(&open(&config, SEGMENT_BYTES, 3).expect("opened")), first);
}

#[test]
fn what_cannot_be_moved_stays_where_it_is() {
    let scratch = Scratch::new();
    make(&scratch, 1, Level::Process);
    let config = config(&scratch, Level::Process);
    let first = told(&open(&config, SEGMENT_BYTES, 1).expect("opened"));
    let directory = Directory::open(&config.dir).expect("opened");
    let scan = |layout: &Layout| {
        let segments = layout.segments(1, 0).expect("listed");
        let boot_id = boot_id().expect("known");
        let scanner = |sure| super::super::recovery::Scanner::new(0, 1, boot_id, sure);
        super::super::scan::scan(&segments, scanner, |_| ()).expect("read").expect("ours")
    };
    let recovered = [scan(directory.layout())];
    let path = directory.layout().shard(1, 0).join(file_name(2));
    let whole = fs::read(&path).expect("read");
    let mut changed = whole.clone();
    changed[SEGMENT_HEADER_BYTES + HEADER_BYTES + 50] ^= 1;
    fs::write(&path, changed).expect("written");
    let meta = directory.meta().expect("in force").clone();
    let next = Meta { generation: 2, shards: 2, ..meta };
    let header = SegmentHeader::decode(&whole, 2).expect("a header");
    let told_of = rehome(&directory, &recovered, &next, header, 4096).expect_err("it changed");
    assert!(told_of.contains("changed while it was read"), "{told_of}");
    assert!(!config.dir.join("g2").exists());
    fs::write(&path, whole).expect("written");
    drop(directory);
    assert_eq!(told(&open(&config, SEGMENT_BYTES, 1).expect("opened")), first);
}
