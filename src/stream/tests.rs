use super::*;

const KEEP: Retention = Retention { bytes: 1 << 20, events: 1000, age: None };

pub(super) fn attach(stream: &mut Stream, start: Start) -> Attached {
    Takeover::begin(stream, start).expect("admitted").finish(stream).expect("won")
}

fn append(stream: &mut Stream, count: u64) {
    for _ in 0..count {
        stream.append(Instant::now(), 16, |number, out| {
            out.extend_from_slice(format!("[{number:8}]").as_bytes());
        });
    }
}

/// Sends everything at connection offset `offset`, one event of ten bytes after the other.
pub(super) fn send(stream: &mut Stream, at: &Attached, offset: u64, max: usize) -> String {
    let mut out = Vec::new();
    let sent = stream.poll_transmit(at.generation, offset, max, &mut out);
    assert_eq!(sent, Transmit::Data(out.len()));
    String::from_utf8(out).expect("text")
}

/// 100..140 are logged; the socket stalls after 118; the old socket's last drain moves the ring
/// head to 124; the client reconnects with 118. It must see 119, 120, ... 140, 141.
#[test]
fn ring_head_at_124_client_at_118() {
    let mut stream = Stream::default();
    append(&mut stream, 140);
    let first = attach(&mut stream, Start::After(0));
    let text = send(&mut stream, &first, 0, 10 * 140);
    assert!(text.ends_with("[     140]"));
    let takeover = Takeover::begin(&mut stream, Start::After(118)).expect("admitted");
    assert_eq!(takeover.must_close(), Some(first.generation));
    // The kernel had acknowledged 123 events and a half, which the client's process never read.
    stream.handle_closed(first.generation, 1235);
    assert_eq!(stream.confirmed(), 123);
    let second = takeover.finish(&mut stream).expect("won");
    assert_eq!(second.class, Class::RingAhead);
    append(&mut stream, 1);
    let text = send(&mut stream, &second, 77, usize::MAX);
    let expected: String = (119..=141).map(|number| format!("[{number:8}]")).collect();
    assert_eq!(text, expected);
}

#[test]
fn each_class_by_the_position_of_the_ring() {
    let mut stream = Stream::default();
    append(&mut stream, 10);
    let at = attach(&mut stream, Start::After(0));
    assert_eq!(at.class, Class::Aligned);
    send(&mut stream, &at, 0, 100);
    stream.handle_acked(at.generation, 50);
    stream.handle_closed(at.generation, 50);
    let at = attach(&mut stream, Start::After(7));
    assert_eq!(at.class, Class::RingBehind);
    stream.handle_closed(at.generation, 0);
    assert_eq!(attach(&mut stream, Start::After(10)).class, Class::NothingNew);
    assert_eq!(Takeover::begin(&mut stream, Start::After(11)).err(), Some(Class::Ahead));
    stream.finish();
    assert_eq!(Takeover::begin(&mut stream, Start::After(10)).err(), Some(Class::FinishedSeen));
}

#[test]
fn a_refused_resume_leaves_the_reader_alone() {
    let mut stream = Stream::default();
    append(&mut stream, 5);
    let at = attach(&mut stream, Start::After(0));
    send(&mut stream, &at, 0, 20);
    assert_eq!(Takeover::begin(&mut stream, Start::After(3)).err(), Some(Class::Ahead));
    assert_eq!(stream.attached(), Some(at.generation));
    assert_eq!(send(&mut stream, &at, 20, 10), "[       3]");
}

#[test]
fn of_three_connections_the_newest_wins() {
    let mut stream = Stream::default();
    append(&mut stream, 5);
    let first = attach(&mut stream, Start::After(0));
    send(&mut stream, &first, 0, 50);
    let second = Takeover::begin(&mut stream, Start::After(1)).expect("admitted");
    let third = Takeover::begin(&mut stream, Start::After(2)).expect("admitted");
    assert_eq!(third.must_close(), Some(first.generation));
    stream.handle_closed(first.generation, 0);
    assert_eq!(second.finish(&mut stream).err(), Some(takeover::Lost::Superseded));
    assert_eq!(third.finish(&mut stream).expect("won").after, 2);
}

#[test]
fn a_cut_fences_before_the_floor_passes() {
    let mut stream = Stream::default();
    append(&mut stream, 5);
    let at = attach(&mut stream, Start::After(0));
    send(&mut stream, &at, 0, 50);
    stream.handle_acked(at.generation, 30);
    let keep = Retention { events: 2, ..KEEP };
    assert_eq!(stream.relieve(Instant::now(), &keep), None, "only what is confirmed had to go");
    assert_eq!(stream.floor(), 4);
    append(&mut stream, 1);
    assert_eq!(stream.relieve(Instant::now(), &keep), Some(at.generation));
    assert_eq!((stream.floor(), stream.attached()), (5, None));
    stream.handle_closed(at.generation, 50);
    assert_eq!(Takeover::begin(&mut stream, Start::After(3)).err(), Some(Class::Truncated));
    assert_eq!(attach(&mut stream, Start::After(4)).class, Class::RingAhead);
}

#[test]
fn a_listener_without_a_cursor_is_told_of_the_gap() {
    let mut stream = Stream::default();
    append(&mut stream, 5);
    stream.relieve(Instant::now(), &Retention { events: 2, ..KEEP });
    let at = attach(&mut stream, Start::Fresh);
    assert_eq!((at.after, at.gap), (3, Some((1, 3))));
    assert_eq!(send(&mut stream, &at, 0, 10), "[       4]");
    stream.handle_closed(at.generation, 10);
    let at = attach(&mut stream, Start::Fresh);
    assert_eq!((at.after, at.gap), (4, None));
}

/// Five events are trimmed before anybody reads them. A listener without a cursor is told of the
/// gap and gets the number before the floor as its first id; it drops before any event reaches it
/// and comes back with that id. It must be served, and so must a client that was told the number
/// in a refusal.
#[test]
fn the_number_before_the_floor_is_a_cursor() {
    let mut stream = Stream::default();
    append(&mut stream, 8);
    stream.relieve(Instant::now(), &Retention { events: 3, ..KEEP });
    assert_eq!(Takeover::begin(&mut stream, Start::After(6)).err(), Some(Class::Ahead));
    assert!(Takeover::begin(&mut stream, Start::After(5)).is_ok());
    let at = attach(&mut stream, Start::Fresh);
    assert_eq!((at.after, at.gap), (5, Some((1, 5))));
    stream.handle_closed(at.generation, 0);
    append(&mut stream, 1);
    let at = attach(&mut stream, Start::After(5));
    assert_eq!(send(&mut stream, &at, 0, 10), "[       6]");
}

/// Retention may drop an event before its producer gets to ask about it: nothing may be claimed of
/// it then, and the producer may not wait until the next trim or for ever.
#[test]
fn a_push_that_is_gone_is_told_so_at_once() {
    let mut stream = Stream::default();
    append(&mut stream, 5);
    stream.relieve(Instant::now(), &Retention { events: 2, ..KEEP });
    let far = Instant::now() + Duration::from_secs(1);
    stream.tell(1, 2, Stage::Sent, far);
    assert_eq!(stream.poll_told(), Some((1, Outcome::Trimmed)));
    let at = attach(&mut stream, Start::Fresh);
    send(&mut stream, &at, 0, 20);
    stream.handle_acked(at.generation, 20);
    stream.tell(2, 2, Stage::Confirmed, far);
    assert_eq!(stream.poll_told(), Some((2, Outcome::Trimmed)));
}

/// An event may be larger than what a connection may have unacknowledged: it still arrives,
/// because acknowledgements inside it make room.
#[test]
fn an_event_larger_than_the_ring_arrives() {
    let mut stream = Stream::default();
    let size = RING_BYTES_MAX as usize + 1;
    stream.append(Instant::now(), size, |_, out| out.resize(size, b'x'));
    let at = attach(&mut stream, Start::Fresh);
    send(&mut stream, &at, 0, size - 1);
    let mut out = Vec::new();
    let full = stream.poll_transmit(at.generation, RING_BYTES_MAX, size, &mut out);
    assert_eq!(full, Transmit::RingFull);
    stream.handle_acked(at.generation, RING_BYTES_MAX / 2);
    assert_eq!(send(&mut stream, &at, RING_BYTES_MAX, size), "x");
    stream.handle_acked(at.generation, RING_BYTES_MAX + 1);
    assert_eq!(stream.confirmed(), 1);
}

#[test]
fn a_push_is_told_once() {
    let mut stream = Stream::default();
    let at = attach(&mut stream, Start::Fresh);
    append(&mut stream, 2);
    let far = Instant::now() + Duration::from_secs(1);
    stream.tell(1, 1, Stage::Sent, far);
    stream.tell(2, 1, Stage::Confirmed, far);
    stream.tell(3, 2, Stage::Confirmed, far);
    stream.tell(4, 2, Stage::Named, far);
    assert_eq!(stream.poll_told(), None);
    send(&mut stream, &at, 0, 20);
    assert_eq!(stream.poll_told(), Some((1, Outcome::Reached(Stage::Sent))));
    stream.handle_acked(at.generation, 15);
    assert_eq!(stream.poll_told(), Some((2, Outcome::Reached(Stage::Confirmed))));
    stream.handle_closed(at.generation, 15);
    assert_eq!(stream.poll_told(), Some((3, Outcome::Detached)));
    stream.handle_timeout(far);
    assert_eq!(stream.poll_told(), Some((4, Outcome::TimedOut)));
    assert_eq!(stream.poll_told(), None);
}

/// Story: a reader that waited for acknowledgements was cut; its writer asked once more, below the
/// floor, and the connection's task panicked: nobody could take the stream over any more.
#[test]
fn a_writer_that_was_cut_asks_once_more() {
    let mut stream = Stream::default();
    append(&mut stream, 5);
    let at = attach(&mut stream, Start::Fresh);
    send(&mut stream, &at, 0, 20);
    append(&mut stream, 100);
    let keep = Retention { bytes: u64::MAX, events: 10, age: None };
    assert_eq!(stream.relieve(Instant::now(), &keep), Some(at.generation));
    let mut out = Vec::new();
    assert!(!stream.poll_comments(at.generation, &mut out));
    assert_eq!(stream.poll_transmit(at.generation, 20, 100, &mut out), Transmit::Stale);
    assert!(out.is_empty());
}
