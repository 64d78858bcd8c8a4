//! What is read back from what a journal wrote, and from what a crash left of it.

use super::super::body::{StreamBody, StreamId};
use super::super::fake_disk::{
    BOOT, Disk, OTHER_BOOT, SEGMENT_BYTES, begin, event, journal, of, session_body,
};
use super::super::journal::{Journal, Level};
use super::super::record::{self, BURIED, FINISHED};
use super::*;

/// A log that `fill` writes, at this level, without a planned end.
fn written(level: Level, fill: impl FnOnce(&mut Journal)) -> Disk {
    let (mut journal, mut disk) = (journal(level), Disk::default());
    fill(&mut journal);
    disk.run(&mut journal, level);
    disk
}

/// The only stream of the only session.
fn only(recovered: &Recovered) -> &RecoveredStream {
    assert_eq!((recovered.sessions.len(), recovered.sessions[0].streams.len()), (1, 1));
    &recovered.sessions[0].streams[0]
}

/// The events of a stream, read as the shell reads them.
fn bodies(disk: &Disk, slot: u32, stream: &RecoveredStream) -> Vec<String> {
    let mut all = Vec::new();
    for run in &stream.runs {
        let bytes: u32 = run.lengths.iter().map(|length| length + HEADER_BYTES as u32).sum();
        let run_bytes = &disk.files[&run.place.segment][run.place.offset as usize..];
        let run_bytes = &run_bytes[..bytes as usize];
        let (segment, count) = (run.place.segment, run.lengths.len() as u64);
        let mut out = Vec::new();
        record::events(run_bytes, segment, slot, stream.number, run.first, count, &mut out)
            .expect("a run of that stream");
        let mut rest = out.as_slice();
        for &length in &run.lengths {
            let (body, after) = rest.split_at(length as usize);
            all.push(String::from_utf8_lossy(body).trim_matches(char::from(0)).to_owned());
            rest = after;
        }
    }
    all
}

fn log(journal: &mut Journal, slot: u32, stream: u32, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        journal.append(&event(slot, stream, number), format!("e{number}").as_bytes());
    }
}

#[test]
fn what_was_logged_is_there_however_the_bytes_come() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 4, 1, &["7", "\"b\""]);
        journal.append(&of(Kind::Setup, 4, 0, 1), b"one");
        journal.append(&of(Kind::Setup, 4, 0, 2), b"two");
        log(journal, 4, 1, 1..=30);
        journal.append(&Header { answers: 2, ..event(4, 1, 31) }, b"e31");
    });
    for part in [1, 7, 31, 32, 33, 64, 1000, 4096] {
        let recovered = disk.scan(BOOT, Sure::default(), part).unwrap();
        let session = &recovered.sessions[0];
        assert_eq!((session.slot, &session.body), (4, &session_body(4)));
        assert_eq!(session.setups, [b"one", b"two"]);
        let stream = only(&recovered);
        assert_eq!((stream.floor, stream.tail), (1, 31));
        assert_eq!(stream.ids, [b"7".to_vec(), b"\"b\"".to_vec()]);
        assert_eq!(stream.answered, [false, true]);
        assert!(!stream.broken && !stream.finished && !stream.buried);
        let expected: Vec<_> = (1..=31).map(|number| format!("e{number}")).collect();
        assert_eq!(bodies(&disk, 4, stream), expected);
        assert_eq!(stream.runs.len(), disk.files.len(), "one run a segment");
        assert_eq!((recovered.next_slot, recovered.counts.records[Kind::Event as usize]), (5, 31));
        assert_eq!(recovered.counts.bad_headers + recovered.counts.bad_bodies, 0);
    }
}

#[test]
fn a_stream_is_finished_by_its_last_answer_or_its_record_but_never_the_standalone_one() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &["7"]);
        begin(journal, 0, 2, &["7"]);
        begin(journal, 0, 0, &["7"]);
        for stream in [0, 1] {
            journal.append(&Header { answers: 1, ..event(0, stream, 1) }, b"e1");
        }
        journal.append(&of(Kind::Finish, 0, 2, 0), b"");
    });
    let recovered = disk.recover(BOOT);
    let finished: Vec<_> = recovered.sessions[0].streams.iter().map(|s| s.finished).collect();
    assert_eq!(finished, [false, true, true]);
}

#[test]
fn floors_and_burials_outlive_what_is_found_below_them() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &[]);
        begin(journal, 0, 2, &["5"]);
        log(journal, 0, 1, 1..=9);
        log(journal, 0, 2, 1..=2);
        journal.append(&of(Kind::Floor, 0, 1, 5), b"");
        journal.append(&Header { flags: BURIED, ..of(Kind::Floor, 0, 2, 3) }, b"");
        // Copies that a compaction made before the floors moved.
        log(journal, 0, 1, 3..=5);
        log(journal, 0, 2, 1..=1);
    });
    let recovered = disk.recover(BOOT);
    let [kept, buried] = &recovered.sessions[0].streams[..] else { panic!("two streams") };
    assert_eq!(bodies(&disk, 0, kept), ["e5", "e6", "e7", "e8", "e9"]);
    assert!(kept.runs[0].place.offset > kept.runs[1].place.offset, "the later copy holds");
    assert_eq!((buried.buried, buried.floor, buried.tail, buried.broken), (true, 3, 2, false));
    assert_eq!((buried.ids.as_slice(), buried.runs.len()), (&[b"5".to_vec()][..], 0));
}

#[test]
fn an_ended_session_never_rises_whatever_is_found_of_it() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &[]);
        journal.append(&of(Kind::End, 0, 0, 0), b"");
        begin(journal, 0, 1, &[]);
        log(journal, 0, 1, 1..=3);
        begin(journal, 1, 1, &[]);
    });
    let recovered = disk.recover(BOOT);
    assert_eq!((recovered.ended.as_slice(), recovered.sessions.len()), (&[0][..], 1));
    assert_eq!(recovered.sessions[0].slot, 1);
}

#[test]
fn a_hole_breaks_its_stream_and_no_other() {
    let disk = written(Level::Process, |journal| {
        for stream in [1, 2, 3] {
            begin(journal, 0, stream, &[]);
        }
        log(journal, 0, 1, 1..=3);
        log(journal, 0, 1, 5..=6);
        log(journal, 0, 2, 1..=3);
        journal.append(&of(Kind::Finish, 0, 3, 4), b"");
    });
    let recovered = disk.recover(BOOT);
    let broken: Vec<_> = recovered.sessions[0].streams.iter().map(|s| s.broken).collect();
    assert_eq!(broken, [true, false, true]);
    assert!(recovered.sessions[0].streams[0].runs.is_empty());
}

#[test]
fn a_compacted_log_says_the_same_as_before() {
    let (mut journal, mut disk) = (journal(Level::Process), Disk::default());
    begin(&mut journal, 0, 1, &["1"]);
    log(&mut journal, 0, 1, 1..=40);
    disk.run(&mut journal, Level::Process);
    let oldest = journal.retire(0, 0, 0).expect("more than one segment");
    let before = disk.recover(BOOT);
    let events = bodies(&disk, 0, only(&before));
    let copied: Vec<_> = only(&before).runs.iter().filter(|r| r.place.segment == oldest).collect();
    let mut body = Vec::new();
    session_body(0).encode(&mut body);
    journal.append(&of(Kind::Session, 0, 0, 0), &body);
    body.clear();
    let ids = vec![StreamId { raw: b"1".to_vec(), answered: false }];
    StreamBody { tail: 40, ids }.encode(&mut body);
    journal.append(&of(Kind::Stream, 0, 1, 1), &body);
    for run in copied {
        let last = run.first + run.lengths.len() as u64 - 1;
        log(&mut journal, 0, 1, run.first..=last);
    }
    journal.remove(oldest);
    disk.run(&mut journal, Level::Process);
    assert!(!disk.files.contains_key(&oldest));
    let after = disk.recover(BOOT);
    assert_eq!(bodies(&disk, 0, only(&after)), events);
    assert_eq!(only(&after).ids, only(&before).ids);
    assert!(!only(&after).broken);
}

#[test]
fn a_log_cut_anywhere_keeps_a_prefix_and_can_be_gone_on_with() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &[]);
        log(journal, 0, 1, 1..=16);
    });
    assert_eq!(disk.files.len(), 2);
    let mut last = 0;
    for cut in 64..SEGMENT_BYTES as usize {
        let mut cut_disk = disk.clone();
        cut_disk.files.get_mut(&2).unwrap().truncate(64);
        cut_disk.files.get_mut(&2).unwrap().resize(SEGMENT_BYTES as usize, 0);
        cut_disk.files.get_mut(&1).unwrap()[cut..].fill(0);
        let recovered = cut_disk.recover(BOOT);
        let tail =
            recovered.sessions.first().map_or(0, |s| s.streams.first().map_or(0, |s| s.tail));
        assert!(tail >= last && recovered.counts.bad_headers == 0, "cut at {cut}");
        last = tail;
        cut_disk.repair(&recovered);
        let again = cut_disk.recover(OTHER_BOOT);
        assert_eq!(again.sessions, recovered.sessions, "cut at {cut}");
        let mut next = Journal::new(
            Level::Process,
            recovered.next_segment,
            SEGMENT_BYTES,
            recovered.next_slot,
            recovered.segments,
        );
        begin(&mut next, 7, 1, &[]);
        cut_disk.run(&mut next, Level::Process);
        let third = cut_disk.recover(OTHER_BOOT);
        assert_eq!(third.sessions.len(), recovered.sessions.len() + 1);
        let counts = third.counts;
        assert_eq!(counts.bad_headers + counts.bad_bodies + counts.bad_segments, 0, "at {cut}");
        assert!(third.sessions.iter().all(|session| !session.broken), "cut at {cut}");
    }
    assert!(last > 8, "only {last} events");
}

/// A log of one session with a record changed at `offset` of the first segment.
fn damaged(disk: &Disk, offset: usize) -> Disk {
    let mut disk = disk.clone();
    disk.files.get_mut(&1).unwrap()[offset] ^= 1;
    disk
}

#[test]
fn on_the_same_boot_a_bad_place_before_a_good_record_is_damage() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &[]);
        begin(journal, 1, 1, &[]);
        log(journal, 0, 1, 1..=3);
        log(journal, 1, 1, 1..=3);
    });
    let place = only_of(&disk.recover(BOOT), 0).runs[0].place;
    let in_body = damaged(&disk, place.offset as usize + HEADER_BYTES).recover(BOOT);
    assert!(only_of(&in_body, 0).broken && !only_of(&in_body, 1).broken);
    assert_eq!(in_body.counts.bad_bodies, 1);
    assert_eq!(only_of(&in_body, 1).tail, 3);
    let in_header = damaged(&disk, place.offset as usize + 3).recover(BOOT);
    assert!(only_of(&in_header, 0).broken && only_of(&in_header, 1).broken);
    assert_eq!(in_header.counts.bad_headers, 1);
    // Nothing that is good is behind it: the torn end.
    let last = only_of(&disk.recover(BOOT), 1).runs[0].place.offset as usize + 2 * 34;
    let torn = damaged(&disk, last).recover(BOOT);
    assert_eq!((only_of(&torn, 1).tail, only_of(&torn, 1).broken), (2, false));
    assert_eq!(torn.torn, Some(Place { segment: 1, offset: last as u32 }));
}

fn only_of(recovered: &Recovered, slot: u32) -> &RecoveredStream {
    let session = recovered.sessions.iter().find(|session| session.slot == slot);
    &session.expect("a session of that slot").streams[0]
}

#[test]
fn after_a_power_cut_the_end_is_torn_only_behind_what_a_mark_vouches_for() {
    let (mut journal, mut disk) = (journal(Level::Power), Disk::default());
    begin(&mut journal, 0, 1, &[]);
    log(&mut journal, 0, 1, 1..=3);
    disk.run(&mut journal, Level::Power);
    let synced = only(&disk.recover(BOOT)).runs[0].place;
    log(&mut journal, 0, 1, 4..=6);
    disk.run(&mut journal, Level::Power);
    let torn = damaged(&disk, synced.offset as usize + 3 * 34 + 34 + 1);
    assert_eq!(only(&torn.recover(OTHER_BOOT)).tail, 4);
    assert!(!only(&torn.recover(OTHER_BOOT)).broken);
    assert!(only(&torn.recover(BOOT)).broken, "no power was cut");
    let below = damaged(&disk, synced.offset as usize + 1).recover(OTHER_BOOT);
    assert!(only(&below).broken, "the mark of the second write is behind it");
    assert_eq!(below.counts.bad_headers, 1);
}

#[test]
fn damage_is_not_repaired_away() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &[]);
        log(journal, 0, 1, 1..=30);
    });
    let place = only(&disk.recover(BOOT)).runs[0].place;
    let mut damaged = damaged(&disk, place.offset as usize);
    for boot_id in [BOOT, BOOT, BOOT] {
        let recovered = damaged.recover(boot_id);
        assert!(only(&recovered).broken);
        damaged.repair(&recovered);
        let next = recovered.next_segment;
        let mut journal = Journal::new(Level::Process, next, SEGMENT_BYTES, 9, recovered.segments);
        damaged.run(&mut journal, Level::Process);
    }
    assert!(only(&damaged.recover(OTHER_BOOT)).broken, "the marks vouch for it on every boot");
}

#[test]
fn a_missing_or_shortened_segment_is_damage_where_something_vouches_for_it() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &[]);
        log(journal, 0, 1, 1..=60);
    });
    let mut missing = disk.clone();
    missing.files.remove(&2);
    let recovered = missing.recover(BOOT);
    assert!(only(&recovered).broken);
    assert_eq!(recovered.counts.bad_segments, 1);
    assert!(only(&missing.recover(OTHER_BOOT)).broken, "its name was durable before segment 3");
    let mut short = disk;
    short.files.get_mut(&2).unwrap().truncate(10);
    assert!(only(&short.recover(BOOT)).broken);
    // Nothing was ever written to a segment that has nothing behind it.
    short.files.retain(|&number, _| number <= 2);
    let recovered = short.recover(OTHER_BOOT);
    assert_eq!((recovered.torn, recovered.discard.as_slice()), (None, &[2][..]));
    assert!(!only(&recovered).broken);
}

#[test]
fn sessions_that_appear_behind_damage_may_begin_in_the_middle() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &[]);
        log(journal, 0, 1, 1..=2);
        begin(journal, 1, 1, &[]);
        for _ in 0..8 {
            log(journal, 1, 1, 1..=1);
        }
        log(journal, 1, 1, 2..=30);
        begin(journal, 2, 1, &[]);
    });
    let place = only_of(&disk.recover(BOOT), 0).runs[0].place;
    let recovered = damaged(&disk, place.offset as usize).recover(BOOT);
    assert!(recovered.sessions[1].broken, "in the segment of the damage");
    assert!(!recovered.sessions[2].broken, "in a later one");
}

#[test]
fn stale_bytes_of_a_reused_file_say_nothing() {
    let mut disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &[]);
        log(journal, 0, 1, 1..=10);
    });
    // The file goes on as segment 2, with one short record over the bytes of segment 1.
    let old = disk.files.remove(&1).unwrap();
    let header = SegmentHeader::decode(&old, 1).unwrap();
    let mut new = SegmentHeader { number: 2, ..header }.encode().to_vec();
    record::push(&mut new, 2, &of(Kind::End, 1, 0, 0), b"");
    new.extend_from_slice(&old[new.len()..]);
    disk.files.insert(2, new);
    let recovered = disk.recover(BOOT);
    assert_eq!((recovered.ended.as_slice(), recovered.sessions.len()), (&[1][..], 0));
    let counts = recovered.counts;
    assert_eq!((counts.records.iter().sum::<u64>(), counts.discarded), (1, 0));
    assert_eq!(recovered.torn, Some(Place { segment: 2, offset: 96 }));
}

#[test]
fn a_planned_end_is_clean_only_where_nothing_came_after() {
    let (mut journal, mut disk) = (journal(Level::Process), Disk::default());
    begin(&mut journal, 0, 1, &[]);
    log(&mut journal, 0, 1, 1..=12);
    disk.run(&mut journal, Level::Process);
    assert!(!disk.recover(BOOT).ending.unwrap().clean);
    journal.close();
    disk.run(&mut journal, Level::Process);
    assert_eq!(disk.files.len(), 2, "one segment is made ahead");
    let recovered = disk.recover(OTHER_BOOT);
    assert!(recovered.ending.unwrap().clean);
    // A crash between the repair and the next process leaves it so.
    disk.repair(&recovered);
    let recovered = disk.recover(OTHER_BOOT);
    assert!(recovered.ending.unwrap().clean);
    // The next process has made its segment, but the power fails before its first write is there.
    let mut next =
        Journal::new(Level::None, recovered.next_segment, SEGMENT_BYTES, 1, recovered.segments);
    let create = next.poll_action().unwrap();
    disk.act(&mut next, Level::None, create);
    let ending = disk.recover(OTHER_BOOT).ending.unwrap();
    assert_eq!((ending.clean, ending.level), (false, Level::None));
}

#[test]
fn another_format_stops_the_scan() {
    let mut disk = written(Level::Process, |journal| begin(journal, 0, 1, &[]));
    let file = disk.files.get_mut(&1).unwrap();
    file[8] = 9;
    let mut hasher = record::body_hasher(1);
    hasher.update(&file[..60]);
    let sum = hasher.finalize().to_le_bytes();
    file[60..64].copy_from_slice(&sum);
    assert_eq!(
        disk.scan(BOOT, Sure::default(), 100).unwrap_err(),
        Stop::Version { segment: 1, version: 9 }
    );
}

#[test]
fn an_empty_log_is_a_beginning() {
    let recovered = Disk::default().recover(BOOT);
    assert_eq!((recovered.next_segment, recovered.next_slot, recovered.ending), (1, 0, None));
}

#[test]
fn a_checkpoint_says_what_records_below_it_said() {
    let disk = written(Level::Process, |journal| {
        begin(journal, 0, 1, &[]);
        let mut body = Vec::new();
        let ids = vec![StreamId { raw: b"8".to_vec(), answered: true }];
        StreamBody { tail: 6, ids }.encode(&mut body);
        let header = Header { flags: FINISHED | BURIED, ..of(Kind::Stream, 0, 3, 7) };
        journal.append(&header, &body);
    });
    let recovered = disk.recover(BOOT);
    let stream = &recovered.sessions[0].streams[1];
    assert_eq!((stream.number, stream.floor, stream.tail), (3, 7, 6));
    assert!(stream.finished && stream.buried && !stream.broken && stream.answered == [true]);
}

#[test]
fn hostile_numbers_cost_nothing_and_break_their_stream() {
    for number in [0, 1 << 62, u64::MAX] {
        let disk = written(Level::Process, |journal| {
            begin(journal, 0, 1, &[]);
            journal.append(&event(0, 1, number), b"x");
        });
        assert!(only(&disk.recover(BOOT)).broken, "{number}");
    }
}

/// A crash between two steps of a repair: were the torn end sealed first, the next start would read
/// on behind it, in what had never been committed.
#[test]
fn what_is_behind_the_torn_end_is_gone_before_the_end_is_sealed() {
    let torn = Place { segment: 2, offset: 96 };
    let mut segments = Segments::default();
    (1..3).for_each(|number| segments.push(Kept::new(number, 1024)));
    let recovered = Recovered {
        sessions: Vec::new(),
        ended: Vec::new(),
        lost: Vec::new(),
        ending: None,
        torn: Some(torn),
        discard: vec![3, 4],
        unsynced_from: 2,
        segments,
        next_segment: 3,
        next_slot: 0,
        counts: Counts::default(),
    };
    let steps = [Repair::Remove(4), Repair::Remove(3), Repair::Sync(2), Repair::Seal(torn)];
    assert_eq!(recovered.repairs(), steps);
}
