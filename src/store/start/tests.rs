//! Starts on directories that were left in every state.

use std::fs;

use super::super::directory::tests::Scratch;
use super::super::record::{self, HEADER_BYTES, Header};
use super::super::segment::position;
use super::*;
use crate::config::DataConfig;

const SEGMENT_BYTES: u64 = 4096;

fn config(scratch: &Scratch) -> DataConfig {
    DataConfig { dir: scratch.join("data"), durability: Level::Process }
}

/// A segment of the directory that was opened, with a mark of what is before it.
fn segment(opened: &Opened, number: u32) -> Vec<u8> {
    let header = SegmentHeader { number, ..opened.shards[0].home.header };
    let mut bytes = header.encode().to_vec();
    let here = position(number, bytes.len() as u32);
    record::push(&mut bytes, number, &Header::of_log(Kind::Mark, here), b"");
    bytes
}

#[test]
fn a_first_start_that_was_cut_off_anywhere_is_begun_again() {
    let scratch = Scratch::new();
    let config = config(&scratch);
    let mut directory = Directory::open(&config.dir).expect("made");
    in_force(&mut directory, 2).expect("made ready");
    drop(directory);
    // As if the folders had not been made durable; they come with another number of shards, too.
    fs::remove_dir_all(config.dir.join("g1")).expect("removed");
    let opened = open(&config, SEGMENT_BYTES, 3).expect("opened");
    assert_eq!((opened.meta.epoch, opened.meta.generation, opened.shards.len()), (1, 2, 3));
    drop(opened);
    fs::remove_dir_all(config.dir.join("g2")).expect("removed");
    let error = open(&config, SEGMENT_BYTES, 3).err().expect("logs are missing now");
    assert!(error.contains("g2/shard-0"), "{error}");
}

#[test]
fn a_torn_end_is_sealed_where_it_is_and_what_is_behind_it_goes() {
    let scratch = Scratch::new();
    let config = config(&scratch);
    let opened = open(&config, SEGMENT_BYTES, 1).expect("opened");
    let folder = opened.shards[0].home.folder.clone();
    let mut torn = segment(&opened, 1);
    let end = torn.len();
    torn.resize(SEGMENT_BYTES as usize, 0);
    fs::write(folder.join(file_name(1)), torn).expect("written");
    // Made ahead, never written to; the second has not even got a header.
    let ahead = &segment(&opened, 2)[..SEGMENT_HEADER_BYTES];
    fs::write(folder.join(file_name(2)), ahead).expect("written");
    fs::write(folder.join(file_name(3)), b"").expect("written");
    drop(opened);
    for _ in 0..2 {
        let opened = open(&config, SEGMENT_BYTES, 1).expect("opened");
        assert_eq!((opened.meta.epoch, opened.shards[0].first_segment), (1, 2));
        assert!(!folder.join(file_name(2)).exists() && !folder.join(file_name(3)).exists());
        let bytes = fs::read(folder.join(file_name(1))).expect("read");
        assert_eq!(bytes.len(), end + HEADER_BYTES);
        let (seal, ..) = record::read(&bytes[end..], 1).expect("a seal");
        assert_eq!(seal, Header::of_log(Kind::Seal, position(1, end as u32)), "it vouches");
    }
}

/// Damage stays what it is; it does not keep the rest from being served.
#[test]
fn a_damaged_segment_without_a_whole_header_does_not_stop_the_start() {
    let scratch = Scratch::new();
    let config = config(&scratch);
    let opened = open(&config, SEGMENT_BYTES, 1).expect("opened");
    let folder = opened.shards[0].home.folder.clone();
    fs::write(folder.join(file_name(1)), &segment(&opened, 1)[..10]).expect("written");
    fs::write(folder.join(file_name(2)), segment(&opened, 2)).expect("written");
    drop(opened);
    for _ in 0..2 {
        let opened = open(&config, SEGMENT_BYTES, 1).expect("opened");
        assert_eq!(opened.shards[0].first_segment, 3);
        assert_eq!(opened.shards[0].home.epochs, HashMap::from([(1, 0), (2, 1)]));
    }
}
