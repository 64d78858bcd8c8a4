//! Reading from a log of many segments.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

use super::super::directory::tests::Scratch;
use super::super::journal::Level;
use super::super::record::{HEADER_BYTES, Header, Kind};
use super::super::segment::SEGMENT_HEADER_BYTES;
use super::super::start::open;
use super::*;
use crate::config::DataConfig;
use crate::mcp::session_id::SessionId;
use crate::stream::log::Place;

const SEGMENTS: u32 = 40;

/// A log whose every segment has one event of slot 0, stream 0, with the segment's number.
fn made(scratch: &Scratch) -> Rc<Wal> {
    let config = DataConfig { dir: scratch.join("data"), durability: Level::Process };
    let opened = open(&config, 4096, 1).expect("opened");
    let home = &opened.shards[0].home;
    for number in 1..=SEGMENTS {
        let mut bytes = SegmentHeader { number, ..home.header }.encode().to_vec();
        let header = Header { number: number.into(), ..Header::of_log(Kind::Event, 0) };
        record::push(&mut bytes, number, &header, b"event");
        record::push(&mut bytes, number, &Header::of_log(Kind::Seal, 0), b"");
        fs::write(home.folder.join(file_name(number)), bytes).expect("written");
    }
    drop(opened);
    let mut opened = open(&config, 4096, 1).expect("opened");
    Wal::open(opened.shards.remove(0)).0
}

fn load(segment: u32) -> Load {
    let place = Place { segment, offset: SEGMENT_HEADER_BYTES as u32 };
    let bytes = (HEADER_BYTES + 5) as u64;
    let extent = Extent { place, first: segment.into(), count: 1, bytes };
    Load { first: segment.into(), extents: vec![extent], bytes: 5 }
}

fn run(test: impl Future<Output = ()>) {
    monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
        .with_entries(64)
        .build()
        .expect("a ring")
        .block_on(test);
}

#[test]
fn a_log_of_many_segments_takes_few_descriptors() {
    let scratch = Scratch::new();
    let token = Token::mint(&[0; 32], &SessionId::from_random(0, [0; 16]), 0, 1);
    run(async {
        let wal = made(&scratch);
        for _ in 0..2 {
            for segment in 1..=SEGMENTS {
                let read = wal.read(0, 0, &token, &load(segment)).await;
                assert_eq!(read.expect("read"), b"event");
                assert!(wal.open.borrow().len() <= OPEN_SEGMENTS_MAX);
            }
        }
        // What is not yet synced stays open, however much that is.
        for segment in SEGMENTS + 1..SEGMENTS + 100 {
            let file = wal.file(1).await.expect("open");
            wal.keep_open(segment, file);
            assert!(wal.open.borrow().contains_key(&segment));
        }
        assert!((SEGMENTS + 1..SEGMENTS + 100).all(|one| wal.open.borrow().contains_key(&one)));
    });
}

#[test]
fn a_reader_that_goes_away_in_the_middle_leaves_no_pin() {
    let scratch = Scratch::new();
    let token = Token::mint(&[0; 32], &SessionId::from_random(0, [0; 16]), 0, 1);
    run(async {
        let wal = made(&scratch);
        let wanted = load(3);
        let mut read = Box::pin(wal.read(0, 0, &token, &wanted));
        assert!((&mut read).now_or_never().is_none(), "it waits for the disk");
        drop(read);
        let unpinned = catch_unwind(AssertUnwindSafe(|| wal.journal.borrow_mut().unpin(3)));
        assert!(unpinned.is_err(), "a pin was left");
        let read = wal.read(0, 0, &token, &wanted).await;
        assert_eq!(read.expect("read"), b"event");
    });
}
