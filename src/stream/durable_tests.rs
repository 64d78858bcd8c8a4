use super::tests::{attach, send};
use super::*;
use crate::stream::log::{Extent, RECORD_HEADER_BYTES};
use crate::stream::resume::Class;

/// Bytes of one event, and of its record.
const EVENT: u64 = 10;
const RECORD: u32 = RECORD_HEADER_BYTES + EVENT as u32;

fn opened() -> Stream {
    let mut stream = Stream::default();
    stream.handle_opened(1);
    stream.handle_committed(1);
    stream
}

/// Where the record of event `number` is if the stream is alone in segment 7.
fn place(number: u64) -> Place {
    Place { segment: 7, offset: 64 + (number as u32 - 1) * RECORD }
}

/// Appends an event; the first chunk, and one behind what is paged out, has room for 51.
fn append(stream: &mut Stream) -> u64 {
    let hint = if stream.event(stream.tail()).is_some() { EVENT } else { 512 };
    stream.append(Instant::now(), hint as usize, |number, out| out.extend(event(number).bytes()))
}

/// Appends events, each logged in write `seq`.
fn log(stream: &mut Stream, count: u64, seq: Seq) {
    for _ in 0..count {
        let number = append(stream);
        stream.handle_logged(place(number), seq);
    }
}

fn event(number: u64) -> String {
    format!("[{number:8}]")
}

fn events(numbers: std::ops::RangeInclusive<u64>) -> String {
    numbers.map(event).collect()
}

fn poll(stream: &mut Stream, at: &Attached) -> Transmit {
    stream.poll_transmit(at.generation, 0, usize::MAX, &mut Vec::new())
}

/// The load that the stream asks for.
fn load(stream: &mut Stream, at: &Attached) -> Load {
    match poll(stream, at) {
        Transmit::Load(load) => *load,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_sent_before_it_is_committed() {
    let mut stream = Stream::default();
    stream.handle_opened(3);
    assert!(!stream.is_open());
    let at = attach(&mut stream, Start::Fresh);
    log(&mut stream, 2, 4);
    log(&mut stream, 1, 6);
    assert_eq!(poll(&mut stream, &at), Transmit::Idle);
    assert_eq!(stream.unsent_since(), None);
    stream.handle_committed(3);
    assert!(stream.is_open());
    assert_eq!(poll(&mut stream, &at), Transmit::Idle);
    stream.handle_committed(5);
    assert_eq!((stream.committed(), stream.tail()), (2, 3));
    assert_eq!(send(&mut stream, &at, 0, usize::MAX), events(1..=2));
    assert_eq!(poll(&mut stream, &at), Transmit::Idle);
    stream.handle_committed(6);
    assert_eq!(send(&mut stream, &at, 20, usize::MAX), event(3));
}

/// A number that was not handed out yet is ahead, however long it has been logged.
#[test]
fn a_cursor_beyond_what_is_committed_is_ahead() {
    let mut stream = opened();
    log(&mut stream, 2, 2);
    stream.handle_committed(2);
    log(&mut stream, 2, 3);
    let at = attach(&mut stream, Start::Fresh);
    send(&mut stream, &at, 0, usize::MAX);
    assert_eq!(stream.sent_max(), 2);
    assert_eq!(Takeover::begin(&mut stream, Start::After(3)).err(), Some(Class::Ahead));
    assert!(Takeover::begin(&mut stream, Start::After(2)).is_ok());
}

#[test]
fn a_stream_is_over_only_when_its_end_is_committed() {
    let mut stream = opened();
    log(&mut stream, 1, 2);
    stream.finish();
    stream.handle_finish_logged(3);
    stream.handle_committed(2);
    let at = attach(&mut stream, Start::Fresh);
    send(&mut stream, &at, 0, usize::MAX);
    assert_eq!(poll(&mut stream, &at), Transmit::Idle);
    assert!(Takeover::begin(&mut stream, Start::After(1)).is_ok());
    stream.handle_closed(at.generation, 10);
    let at = attach(&mut stream, Start::After(1));
    assert_eq!(at.class, Class::NothingNew);
    stream.handle_committed(3);
    assert_eq!(poll(&mut stream, &at), Transmit::Finished);
    assert_eq!(Takeover::begin(&mut stream, Start::After(1)).err(), Some(Class::FinishedSeen));
}

/// A producer that asks whether its event is in the log means one that survives.
#[test]
fn a_push_is_logged_when_it_is_committed() {
    let mut stream = opened();
    log(&mut stream, 1, 2);
    let far = Instant::now() + Duration::from_secs(1);
    stream.tell(1, 1, Stage::Logged, far);
    assert_eq!(stream.poll_told(), None);
    stream.handle_committed(2);
    assert_eq!(stream.poll_told(), Some((1, Outcome::Reached(Stage::Logged))));
}

/// No budget is so small that an event is dropped of which a restart might know nothing: the
/// number before the floor is handed out as a cursor.
#[test]
fn what_is_not_committed_is_not_dropped() {
    let mut stream = opened();
    log(&mut stream, 3, 2);
    stream.handle_committed(2);
    log(&mut stream, 3, 3);
    let keep = Retention { bytes: 0, events: 0, age: Some(Duration::ZERO) };
    let later = Instant::now() + Duration::from_secs(1);
    stream.relieve(later, &keep);
    assert_eq!(stream.floor(), 4);
    assert_eq!(attach(&mut stream, Start::Fresh).after, 3);
    stream.raise_floor(7);
    assert_eq!(stream.floor(), 4);
}

#[test]
fn a_chunk_that_is_paged_out_comes_back_byte_for_byte() {
    let mut stream = opened();
    log(&mut stream, 100, 2);
    stream.handle_committed(2);
    let whole = stream.bytes();
    stream.spill(0);
    assert!(stream.bytes() < whole - 100 * EVENT + 1);
    assert_eq!(stream.disk_bytes(), 100 * (EVENT + 4));
    assert_eq!(stream.event(1), None);
    let at = attach(&mut stream, Start::Fresh);
    let asked = load(&mut stream, &at);
    let (first, count) = (asked.first, asked.bytes / EVENT);
    let bytes = count * u64::from(RECORD);
    assert_eq!(asked.extents, [Extent { place: place(1), first: 1, count, bytes }]);
    assert_eq!(load(&mut stream, &at), asked, "a writer that asks again is told the same");
    let read = events(first..=first + count - 1);
    assert!(stream.handle_loaded(&asked, read.clone().into_bytes()));
    assert_eq!(stream.event(2), Some(event(2).as_bytes()));
    stream.spill(0);
    assert_eq!(send(&mut stream, &at, 0, usize::MAX), read, "it stays until it is sent on");
    stream.spill(0);
    assert_eq!(stream.event(2), None);
    let next = load(&mut stream, &at);
    assert_eq!((next.first, next.extents[0].place), (count + 1, place(count + 1)));
}

#[test]
fn only_what_is_committed_is_paged_out() {
    let mut stream = opened();
    log(&mut stream, 60, 2);
    stream.handle_committed(2);
    log(&mut stream, 60, 3);
    stream.spill(0);
    assert_eq!(stream.event(1), None);
    assert_eq!(stream.event(61), Some(event(61).as_bytes()));
    stream.handle_committed(3);
    stream.spill(0);
    assert_eq!(stream.event(120), None);
    log(&mut stream, 1, 4);
    assert_eq!(stream.event(121), Some(event(121).as_bytes()));
    stream.handle_committed(4);
    let at = attach(&mut stream, Start::Fresh);
    let mut seen = String::new();
    while stream.sent() < 121 {
        match poll(&mut stream, &at) {
            Transmit::Load(load) => {
                let count = load.bytes / EVENT;
                let read = events(load.first..=load.first + count - 1);
                assert!(stream.handle_loaded(&load, read.into_bytes()));
                seen.push_str(&send(&mut stream, &at, seen.len() as u64, usize::MAX));
            }
            other => panic!("{other:?}"),
        }
        stream.spill(0);
    }
    assert_eq!(seen, events(1..=121));
}

/// Two writers may have asked for one chunk, and the first answer may be trimmed, sent on and
/// written after before the second one comes.
#[test]
fn a_late_answer_changes_nothing() {
    let mut stream = opened();
    log(&mut stream, 20, 2);
    stream.handle_committed(2);
    stream.spill(0);
    let first = attach(&mut stream, Start::Fresh);
    let late = load(&mut stream, &first);
    let read = || events(1..=20).into_bytes();
    stream.handle_closed(first.generation, 0);
    assert!(!stream.handle_loaded(&late, read()), "nobody waits for it");
    let second = attach(&mut stream, Start::Fresh);
    let asked = load(&mut stream, &second);
    let mut roomy = read();
    roomy.reserve(1000);
    assert!(stream.handle_loaded(&asked, roomy));
    log(&mut stream, 1, 3);
    stream.handle_committed(3);
    assert!(!stream.handle_loaded(&late, read()), "it is here");
    stream.handle_load_failed(&late);
    assert_eq!(send(&mut stream, &second, 0, usize::MAX), events(1..=21));
}

/// Retention moves on while a chunk is read: what is below the floor need not be there any more.
#[test]
fn a_failure_to_read_what_is_not_needed_breaks_nothing() {
    let mut stream = opened();
    log(&mut stream, 20, 2);
    stream.handle_committed(2);
    stream.spill(0);
    let at = attach(&mut stream, Start::Fresh);
    let late = load(&mut stream, &at);
    assert_eq!(stream.raise_floor(11), Some(at.generation));
    stream.handle_load_failed(&late);
    assert_eq!(stream.broken(), 0);
    stream.handle_closed(at.generation, 0);
    let at = attach(&mut stream, Start::Fresh);
    let asked = load(&mut stream, &at);
    assert_eq!((asked.first, asked.bytes, asked.extents[0].place), (11, 100, place(11)));
    assert!(!stream.handle_loaded(&late, events(1..=20).into_bytes()));
    assert!(stream.handle_loaded(&asked, events(11..=20).into_bytes()));
    assert_eq!(send(&mut stream, &at, 0, usize::MAX), events(11..=20));
}

#[test]
fn what_cannot_be_read_is_never_skipped() {
    let mut stream = opened();
    log(&mut stream, 200, 2);
    stream.handle_committed(2);
    let at = attach(&mut stream, Start::Fresh);
    send(&mut stream, &at, 0, usize::MAX);
    stream.handle_closed(at.generation, 0);
    stream.spill(0);
    let at = attach(&mut stream, Start::After(70));
    let damaged = load(&mut stream, &at);
    let last = damaged.first + damaged.bytes / EVENT - 1;
    stream.handle_load_failed(&damaged);
    assert_eq!(poll(&mut stream, &at), Transmit::Broken);
    assert_eq!((poll(&mut stream, &at), stream.broken()), (Transmit::Broken, last));
    stream.handle_closed(at.generation, 0);
    for number in [0, 70, last - 1] {
        let refused = Takeover::begin(&mut stream, Start::After(number)).err();
        assert_eq!(refused, Some(Class::LogFailed));
    }
    let at = attach(&mut stream, Start::Fresh);
    assert_eq!((at.after, poll(&mut stream, &at)), (70, Transmit::Broken));
    stream.handle_closed(at.generation, 0);
    let at = attach(&mut stream, Start::After(last));
    assert_eq!(load(&mut stream, &at).first, last + 1);
    stream.handle_closed(at.generation, 0);
    stream.raise_floor(last + 1);
    assert_eq!(stream.broken(), 0);
    assert_eq!(Takeover::begin(&mut stream, Start::After(0)).err(), Some(Class::Truncated));
}

#[test]
fn bytes_of_the_wrong_number_break_the_stream() {
    let mut stream = opened();
    log(&mut stream, 2, 2);
    stream.handle_committed(2);
    stream.spill(0);
    let at = attach(&mut stream, Start::Fresh);
    let asked = load(&mut stream, &at);
    assert!(!stream.handle_loaded(&asked, vec![b'x'; 19]));
    assert_eq!(poll(&mut stream, &at), Transmit::Broken);
}

/// Events of a segment that shall go are written once more where their bytes are at hand; where
/// they are not, the floor rises.
#[test]
fn a_segment_is_left_by_copies_and_by_the_floor() {
    let mut stream = opened();
    log(&mut stream, 20, 2);
    stream.handle_committed(2);
    stream.spill(0);
    log(&mut stream, 4, 3);
    let other = Place { segment: 8, offset: 64 };
    append(&mut stream);
    stream.handle_logged(other, 3);
    stream.handle_committed(3);
    let leaving = stream.events_in(7);
    assert_eq!(leaving, Leaving { floor: 21, events: (21..=24).collect() });
    assert_eq!(stream.events_in(8), Leaving { floor: 1, events: vec![25] });
    stream.raise_floor(leaving.floor);
    for (index, number) in leaving.events.into_iter().enumerate() {
        let place = Place { segment: 9, offset: 1000 + index as u32 * RECORD };
        stream.replace_place(number, place, 4);
    }
    assert_eq!(stream.events_in(7), Leaving { floor: 21, events: vec![] });
    stream.spill(0);
    assert!(stream.event(21).is_some(), "its copy may not be there yet");
    stream.handle_committed(4);
    stream.spill(0);
    let at = attach(&mut stream, Start::Fresh);
    let copies = Extent {
        place: Place { segment: 9, offset: 1000 },
        first: 21,
        count: 4,
        bytes: 4 * u64::from(RECORD),
    };
    let bytes = u64::from(RECORD);
    let rest = Extent { place: other, first: 25, count: 1, bytes };
    assert_eq!(load(&mut stream, &at).extents, [copies, rest]);
}

fn restored(floor: u64, tail: u64) -> Restored {
    let lengths = vec![EVENT as u32; (tail + 1 - floor) as usize];
    let runs = vec![RestoredRun { first: floor, place: place(floor), lengths }];
    Restored { floor, tail, finished: false, broken: false, runs, at: Instant::now() }
}

#[test]
fn a_restored_stream_goes_on_where_it_was() {
    let mut stream = Stream::restore(&restored(5, 24));
    assert_eq!((stream.floor(), stream.tail(), stream.sent_max()), (5, 24, 24));
    assert_eq!((stream.named(), stream.confirmed(), stream.committed()), (0, 4, 24));
    assert!(stream.is_open() && stream.bytes() < 20 * EVENT);
    append(&mut stream);
    stream.handle_logged(Place { segment: 9, offset: 64 }, 1);
    assert_eq!(Takeover::begin(&mut stream, Start::After(25)).err(), Some(Class::Ahead));
    let at = attach(&mut stream, Start::After(20));
    let asked = load(&mut stream, &at);
    assert!(stream.handle_loaded(&asked, events(5..=24).into_bytes()));
    assert_eq!(send(&mut stream, &at, 0, usize::MAX), events(21..=24));
    stream.handle_committed(1);
    assert_eq!(send(&mut stream, &at, 40, usize::MAX), event(25));
    let empty = Stream::restore(&Restored { runs: vec![], ..restored(1, 0) });
    assert_eq!((empty.floor(), empty.tail(), empty.bytes()), (1, 0, 0));
}

/// A hole, or a record that cannot be read: no event of the stream is served, and a listener
/// without a cursor is told what it misses.
#[test]
fn a_restored_stream_with_a_hole_is_broken() {
    let mut with_hole = restored(1, 20);
    with_hole.runs[0].lengths.pop();
    let mut late = restored(5, 20);
    late.floor = 1;
    let none = Restored { floor: 0, ..restored(1, 20) };
    for restored in [with_hole, late, none, Restored { broken: true, ..restored(1, 20) }] {
        let mut stream = Stream::restore(&restored);
        let refused = Takeover::begin(&mut stream, Start::After(10)).err();
        assert_eq!((refused, stream.broken()), (Some(Class::LogFailed), 20));
        let at = attach(&mut stream, Start::Fresh);
        assert_eq!((at.after, at.gap), (20, Some((1, 20))));
        append(&mut stream);
        stream.handle_logged(place(21), 1);
        stream.handle_committed(1);
        assert_eq!(send(&mut stream, &at, 0, usize::MAX), event(21));
    }
    let mut stream = Stream::restore(&Restored { floor: 30, ..restored(1, 20) });
    assert_eq!((stream.floor(), attach(&mut stream, Start::Fresh).after), (21, 20));
}
