//! The machine, one action at a time.

use std::time::{Duration, Instant};

use super::super::fake_disk::{Disk, SEGMENT_BYTES, begin, event, journal};
use super::super::record::Bad;
use super::*;
use crate::limits::{DISK_FULL_RETRY_TIME, DISK_FULL_TIME_MAX};

/// The next action, which must be of this form.
macro_rules! next {
    ($journal:expr, $form:pat => $out:expr) => {
        match $journal.poll_action() {
            Some($form) => $out,
            other => panic!("{other:?} instead of {}", stringify!($form)),
        }
    };
}

/// A journal whose first segment is there and whose first write is done.
fn open(level: Level) -> (Journal, Disk) {
    let (mut journal, mut disk) = (journal(level), Disk::default());
    disk.run(&mut journal, level);
    (journal, disk)
}

fn write(journal: &mut Journal) -> (Seq, u32, u32, Vec<u8>) {
    next!(journal, Action::Write { seq, segment, offset, bytes } => (seq, segment, offset, bytes))
}

#[test]
fn nothing_is_written_before_the_name_of_its_segment_is_durable() {
    let mut journal = journal(Level::Process);
    let (place, seq) = journal.append(&event(3, 1, 1), b"one");
    assert_eq!((place, seq), (Place { segment: 1, offset: 64 + 32 }, 1));
    next!(journal, Action::Create(1) => ());
    assert!(journal.poll_action().is_none());
    journal.handle_created(1);
    next!(journal, Action::SyncDirectory => ());
    assert!(journal.poll_action().is_none());
    journal.handle_directory_synced();
    let (seq, segment, offset, bytes) = write(&mut journal);
    assert_eq!((seq, segment, offset), (1, 1, 64));
    let (mark, _, length) = record::read(&bytes, 1).unwrap();
    assert_eq!(mark, Header::of_log(Kind::Mark, 1 << 32 | 64));
    assert_eq!(record::read(&bytes[length..], 1), Ok((event(3, 1, 1), &b"one"[..], 35)));
    assert_eq!(record::read(&bytes[length + 35..], 1), Err(Bad::End));
}

#[test]
fn a_directory_sync_covers_no_segment_that_was_created_after_it_began() {
    let mut journal = journal(Level::Process);
    (0..80).for_each(|number| {
        journal.append(&event(0, 0, number), &[0; 100]);
    });
    next!(journal, Action::Create(1) => ());
    journal.handle_created(1);
    next!(journal, Action::SyncDirectory => ());
    next!(journal, Action::Create(2) => ());
    journal.handle_created(2);
    journal.handle_directory_synced();
    next!(journal, Action::SyncDirectory => ());
    next!(journal, Action::Create(3) => ());
    let (seq, segment, _, bytes) = write(&mut journal);
    assert_eq!(segment, 1);
    journal.handle_written(seq, bytes.len(), bytes);
    assert!(journal.poll_action().is_none(), "segment 2 has no durable name yet");
    journal.handle_directory_synced();
    assert_eq!(write(&mut journal).1, 2);
}

#[test]
fn the_next_segment_is_created_ahead_and_a_full_one_is_sealed() {
    let (mut journal, mut disk) = open(Level::Process);
    journal.append(&event(0, 0, 1), &[7; 300]);
    disk.run(&mut journal, Level::Process);
    assert_eq!(disk.files.keys().collect::<Vec<_>>(), [&1]);
    journal.append(&event(0, 0, 2), &[7; 100]);
    disk.run(&mut journal, Level::Process);
    assert_eq!(disk.files.keys().collect::<Vec<_>>(), [&1, &2]);
    let (place, _) = journal.append(&event(0, 0, 3), &[7; 600]);
    assert_eq!(place, Place { segment: 2, offset: 64 });
    disk.run(&mut journal, Level::Process);
    let seal = 64 + 32 + 332 + 132;
    let (header, ..) = record::read(&disk.files[&1][seal..], 1).unwrap();
    assert_eq!(header.kind, Kind::Seal);
}

#[test]
fn a_record_that_fills_a_segment_exactly_leaves_room_for_the_seal() {
    for short in 0..40 {
        let (mut journal, mut disk) = open(Level::Power);
        let free = SEGMENT_BYTES as usize - 64 - 32 - 32 - 32;
        journal.append(&event(0, 0, 1), &vec![1; free - short]);
        journal.append(&event(0, 0, 2), b"x");
        disk.run(&mut journal, Level::Power);
        journal.close();
        disk.run(&mut journal, Level::Power);
        assert!(journal.is_closed());
        let ending = disk.recover([9; 16]).ending.unwrap();
        assert!(ending.clean, "{short} bytes short");
    }
}

#[test]
fn at_process_a_write_commits_and_wakes_who_touched_it() {
    let (mut journal, _) = open(Level::Process);
    let seq = journal.append(&event(3, 1, 1), b"one").1;
    journal.touch(3, 1);
    journal.touch(3, 1);
    let (written, _, _, bytes) = write(&mut journal);
    assert_eq!(written, seq);
    let later = journal.append(&event(3, 1, 2), b"two").1;
    journal.touch(3, 1);
    assert!(later > seq && journal.committed() < seq);
    assert!(journal.poll_action().is_none(), "one write is under way at a time");
    let mut woken = Vec::new();
    journal.take_committed(&mut woken);
    assert!(woken.is_empty());
    journal.handle_written(seq, bytes.len(), bytes);
    journal.take_committed(&mut woken);
    assert_eq!((journal.committed(), woken.as_slice()), (seq, &[(3, 1)][..]));
}

#[test]
fn a_short_write_goes_on_where_it_stopped_and_commits_when_all_of_it_is_there() {
    let (mut journal, mut disk) = open(Level::Process);
    let (place, seq) = journal.append(&event(0, 0, 1), b"0123456789");
    let (_, segment, offset, bytes) = write(&mut journal);
    disk.write(segment, offset, &bytes[..20]);
    journal.handle_written(seq, 20, bytes);
    assert!(journal.committed() < seq);
    let (again, segment, rest, bytes) = write(&mut journal);
    assert_eq!((again, rest, bytes.len()), (seq, offset + 20, 42 - 20));
    disk.write(segment, rest, &bytes);
    journal.handle_written(seq, bytes.len(), bytes);
    assert_eq!((journal.committed(), journal.pending_bytes()), (seq, 0));
    assert!(record::read(&disk.files[&1][place.offset as usize..], 1).is_ok());
}

#[test]
fn at_power_only_a_sync_that_began_after_the_write_commits_it() {
    let (mut journal, _) = open(Level::Power);
    let first = journal.append(&event(0, 0, 1), b"one").1;
    let (_, _, _, bytes) = write(&mut journal);
    journal.handle_written(first, bytes.len(), bytes);
    let upto = next!(journal, Action::Sync { upto, .. } => upto);
    assert_eq!(upto, first);
    let second = journal.append(&event(0, 0, 2), b"two").1;
    let (_, _, _, bytes) = write(&mut journal);
    journal.handle_written(second, bytes.len(), bytes);
    assert!(journal.committed() < first, "written is not synced");
    assert!(journal.poll_action().is_none(), "one sync is under way at a time");
    journal.handle_synced(first);
    assert_eq!(journal.committed(), first);
    next!(journal, Action::Sync { upto, .. } => assert_eq!(upto, second));
    journal.handle_synced(second);
    assert_eq!(journal.committed(), second);
    assert!(journal.poll_action().is_none(), "a mark waits for a write that has to be done");
}

#[test]
fn a_sync_covers_every_segment_since_the_one_before() {
    let (mut journal, mut disk) = open(Level::Process);
    (0..20).for_each(|number| {
        journal.append(&event(0, 0, number), &[0; 100]);
    });
    disk.run(&mut journal, Level::Process);
    journal.remove(1);
    next!(journal, Action::Sync { segments, .. } => assert_eq!(segments, 1..=3));
}

#[test]
fn at_none_everything_is_committed_at_once_when_the_log_has_begun() {
    let mut journal = journal(Level::None);
    let seq = journal.append(&event(0, 0, 1), b"one").1;
    assert!(journal.committed() < seq);
    Disk::default().run(&mut journal, Level::None);
    let seq = journal.append(&event(0, 0, 2), b"two").1;
    assert_eq!(journal.committed(), seq);
}

/// An event that had been paged out before its write was done was told to be lost.
#[test]
fn what_is_committed_at_none_is_read_only_once_it_is_written() {
    let (mut journal, _) = open(Level::None);
    let (place, seq) = journal.append(&event(0, 1, 1), b"one");
    assert!(journal.committed() >= seq);
    let extent = Extent { place, first: 1, count: 1, bytes: HEADER_BYTES as u64 + 3 };
    assert!(!journal.is_written(&extent));
    let (seq, _, _, bytes) = write(&mut journal);
    assert!(!journal.is_written(&extent));
    journal.handle_written(seq, bytes.len(), bytes);
    assert!(journal.is_written(&extent));
}

#[test]
fn a_failed_write_poisons_and_nothing_after_it_is_committed() {
    let (mut journal, _) = open(Level::Process);
    let seq = journal.append(&event(0, 0, 1), b"one").1;
    let action = journal.poll_action().unwrap();
    journal.append(&event(0, 0, 2), b"two");
    let next = journal.handle_failed(action, false, Instant::now());
    assert_eq!(next, Next::Poisoned(Fault::Write));
    assert_eq!(journal.append(&event(0, 0, 3), b"three").1, NEVER);
    assert!(journal.committed() < seq && journal.poll_action().is_none());
    assert_eq!(journal.pending_bytes(), 0);
}

#[test]
fn a_failed_sync_is_never_tried_again_even_on_a_full_disk() {
    let (mut journal, _) = open(Level::Power);
    let seq = journal.append(&event(0, 0, 1), b"one").1;
    let (_, _, _, bytes) = write(&mut journal);
    journal.handle_written(seq, bytes.len(), bytes);
    let sync = journal.poll_action().unwrap();
    assert_eq!(journal.handle_failed(sync, true, Instant::now()), Next::Poisoned(Fault::Sync));
    assert!(journal.committed() < seq && journal.poll_action().is_none());
}

#[test]
fn what_is_under_way_when_the_log_fails_still_counts() {
    let (mut journal, _) = open(Level::Process);
    let seq = journal.append(&event(0, 0, 1), b"one").1;
    let (_, _, _, bytes) = write(&mut journal);
    journal.poison(Fault::Sync);
    journal.handle_written(seq, bytes.len(), bytes);
    assert_eq!((journal.committed(), journal.pending_bytes()), (seq, 0));
    assert_eq!(journal.poison(Fault::Write), Next::Poisoned(Fault::Sync));
}

#[test]
fn a_full_disk_is_waited_for_up_to_its_bound() {
    let (mut journal, mut disk) = open(Level::Process);
    let seq = journal.append(&event(0, 0, 1), b"one").1;
    let mut now = Instant::now();
    let start = now;
    while now - start < DISK_FULL_TIME_MAX {
        let action = journal.poll_action().unwrap();
        let again = now + DISK_FULL_RETRY_TIME;
        assert_eq!(journal.handle_failed(action, true, now), Next::Retry(again));
        assert!(journal.is_disk_full() && journal.poll_action().is_none());
        assert_eq!(journal.timeout(), Some(again));
        journal.handle_timeout(again - Duration::from_millis(1));
        assert!(journal.poll_action().is_none());
        journal.handle_timeout(again);
        now = again;
    }
    let mut freed = journal.poll_action().map(|action| (journal, action)).unwrap();
    disk.act(&mut freed.0, Level::Process, freed.1);
    assert!(freed.0.committed() == seq && !freed.0.is_disk_full());

    let (mut journal, _) = open(Level::Process);
    journal.append(&event(0, 0, 1), b"one");
    let action = journal.poll_action().unwrap();
    journal.handle_failed(action, true, start);
    journal.handle_timeout(now);
    let action = journal.poll_action().unwrap();
    let next = journal.handle_failed(action, true, start + DISK_FULL_TIME_MAX);
    assert_eq!(next, Next::Poisoned(Fault::DiskFull));
}

/// Three segments, all written.
fn three_segments() -> (Journal, Disk) {
    let (mut journal, mut disk) = open(Level::Process);
    begin(&mut journal, 5, 1, &[]);
    begin(&mut journal, 9, 1, &[]);
    (0..20).for_each(|number| {
        journal.append(&event(9, 1, number), &[0; 100]);
    });
    disk.run(&mut journal, Level::Process);
    (journal, disk)
}

#[test]
fn a_segment_goes_only_after_a_sync_of_what_was_copied_out_of_it() {
    let (mut journal, mut disk) = three_segments();
    assert_eq!(journal.disk_bytes(), 4 * u64::from(SEGMENT_BYTES));
    let oldest = journal.retire(100, 3000, u64::MAX).unwrap();
    assert_eq!(oldest, 1);
    assert_eq!(journal.slots_in(1).collect::<Vec<_>>(), [5, 9]);
    assert_eq!(journal.slots_in(2).collect::<Vec<_>>(), [9]);
    begin(&mut journal, 5, 1, &[]);
    journal.remove(oldest);
    assert_eq!(journal.retire(100, 3000, u64::MAX), None, "one at a time");
    let (seq, _, _, bytes) = write(&mut journal);
    assert!(journal.poll_action().is_none(), "the copy is not written");
    journal.handle_written(seq, bytes.len(), bytes);
    let upto = next!(journal, Action::Sync { upto, .. } => upto);
    assert!(journal.poll_action().is_none(), "the copy is not synced");
    journal.handle_synced(upto);
    next!(journal, Action::Remove(1) => ());
    assert!(journal.poll_action().is_none());
    journal.handle_removed(1);
    journal.remove(2);
    next!(journal, Action::SyncDirectory => ());
    assert!(journal.poll_action().is_none(), "the first removal is not durable");
    journal.handle_directory_synced();
    next!(journal, Action::Remove(2) => ());
    journal.handle_removed(2);
    disk.run(&mut journal, Level::Process);
}

#[test]
fn a_segment_that_is_read_stays() {
    let (mut journal, mut disk) = three_segments();
    assert!(journal.pin(1));
    journal.retire(0, 0, 0);
    journal.remove(1);
    disk.run(&mut journal, Level::Process);
    assert!(disk.files.contains_key(&1));
    journal.unpin(1);
    next!(journal, Action::Remove(1) => ());
    assert!(!journal.pin(1), "it is going");
}

#[test]
fn an_old_segment_is_sealed_and_goes_though_it_is_not_full() {
    let (mut journal, mut disk) = open(Level::Process);
    assert_eq!(journal.retire(0, u64::MAX, 10), None);
    assert_eq!(journal.retire(100, u64::MAX, 10), None, "there is nothing in it");
    journal.append(&event(0, 0, 1), b"one");
    assert_eq!(journal.retire(200, u64::MAX, 10), None);
    assert_eq!(journal.retire(210, u64::MAX, 10), None, "sealed, but young");
    assert_eq!(journal.append(&event(0, 0, 2), b"two").0.segment, 2);
    assert_eq!(journal.retire(220, u64::MAX, 10), Some(1));
    journal.remove(1);
    disk.run(&mut journal, Level::Process);
    assert_eq!(disk.files.keys().collect::<Vec<_>>(), [&2]);
}

#[test]
fn the_planned_end_is_synced_at_every_level_and_nothing_follows() {
    for level in [Level::None, Level::Process, Level::Power] {
        let (mut journal, mut disk) = open(level);
        journal.append(&event(0, 0, 1), b"one");
        journal.close();
        assert_eq!(journal.append(&event(0, 0, 2), b"two").1, NEVER);
        assert!(!journal.is_closed());
        disk.run(&mut journal, level);
        assert!(journal.is_closed());
    }
}

#[test]
fn buffers_come_back() {
    let (mut journal, _) = open(Level::Process);
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..6 {
        journal.append(&event(0, 0, number), b"one");
        let (seq, _, _, bytes) = write(&mut journal);
        seen.insert(bytes.as_ptr() as usize);
        journal.handle_written(seq, bytes.len(), bytes);
    }
    assert!(seen.len() <= 3, "{} buffers", seen.len());
}

/// Story: the events of one fast stream went into one write of up to 16 MiB, so that the first of
/// them waited for the last.
#[test]
fn a_flood_is_handed_out_in_writes_of_a_bounded_size() {
    let segment_bytes = 16 * LOG_WRITE_BYTES_MAX as u32;
    let mut journal = Journal::new(Level::Process, 1, segment_bytes, 0, Segments::default());
    next!(journal, Action::Create(1) => ());
    journal.handle_created(1);
    next!(journal, Action::SyncDirectory => ());
    journal.handle_directory_synced();
    let seqs: Vec<Seq> =
        (1..=100).map(|number| journal.append(&event(0, 0, number), &[7; 100_000]).1).collect();
    let (first, last) = (seqs[0], seqs[99]);
    assert!(first < last, "{seqs:?}");
    next!(journal, Action::Create(2) => ());
    let mut next = SEGMENT_HEADER_BYTES as u32;
    for expected in first..=last {
        let (seq, segment, offset, bytes) = write(&mut journal);
        assert_eq!((seq, segment, offset), (expected, 1, next));
        assert!(bytes.len() <= LOG_WRITE_BYTES_MAX + HEADER_BYTES, "{}", bytes.len());
        next = offset + bytes.len() as u32;
        journal.handle_written(seq, bytes.len(), bytes);
        assert_eq!(journal.committed(), expected);
    }
    assert_eq!(journal.pending_bytes(), 0);
}
