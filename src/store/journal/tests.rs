//! The machine against a disk that does one thing at a time.

use super::*;

fn event(number: u64) -> Header {
    Header { kind: Kind::Event, flags: 0, answers: 0, slot: 3, stream: 1, number }
}

#[test]
fn an_append_has_the_place_of_its_header() {
    let mut journal = Journal::new(Level::Process, 1, 4096, 0, Segments::default());
    let (first, seq) = journal.append(&event(1), b"one");
    // The first record of a process is a mark.
    assert_eq!((first, seq), (Place { segment: 1, offset: 64 + 32 }, 1));
    let (second, seq) = journal.append(&event(2), b"two");
    assert_eq!((second, seq), (Place { segment: 1, offset: 64 + 32 + 35 }, 1));
}
