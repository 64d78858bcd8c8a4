//! One stream, several connections that want it: the newest has it, at once and exactly.

use std::net::Shutdown;

use crate::client::{Connection, End, Event, NEWEST, Session, bare};
use crate::numbered::{self, expect, expect_result, flood, primed, priming_id, sequence, sibling};
use crate::server::{PATIENCE, Server};

/// A message that is large enough for a few to fill what the kernel holds for a stalled reader.
const LARGE: u64 = 8 * 1024;

/// Time after which the acknowledgements of a stalled reader have come, delayed ones included.
const SETTLED_MS: u64 = 500;

fn pause(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// Reads the stream to its end, which is no planned one; the last message that came whole.
fn read_to_the_cut(connection: &mut Connection) -> u64 {
    let mut last = 0;
    while let Some(event) = connection.message() {
        assert_eq!(event.number(), last + 1, "{}", event.id);
        last = event.number();
    }
    assert_eq!(connection.end(), Some(End::Broken), "no terminator: the stream goes on");
    last
}

/// The old connection has exactly what TCP had acknowledged when the new one took over, and the
/// new one goes on with the next event: nothing lost, nothing doubled, nothing after the snapshot.
#[test]
fn a_listener_without_a_cursor_goes_on_where_tcp_had_confirmed() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, NEWEST);
        let mut stalled = session.listen();
        priming_id(&mut stalled);
        let mut other = session.call("0", "sleep", &serde_json::json!({"ms": 3_600_000}));
        assert_eq!(other.head().status, 200);
        // 800 KB: some of it in the kernels' buffers, the rest in the log alone.
        let mut push = session.call("1", "standalone", &flood(100, LARGE, 0));
        push.result();
        // What is on its way arrives and is acknowledged; then nothing moves any more.
        pause(SETTLED_MS);
        let mut get = session.listen();
        let priming = priming_id(&mut get);
        let first = get.message().expect("the rest");
        assert_eq!(Some(first.number()), sequence(&first));
        assert_eq!(priming, sibling(&first.id, first.number() - 1));
        let last = read_to_the_cut(&mut stalled);
        assert_eq!(first.number(), last + 1, "the new stream begins where the old one ends");
        assert!((1..100).contains(&last), "{last}: the old connection was stalled midway");
        expect(&mut get, last + 2, 100);
    }
}

/// A second listener ends the first one at once, and each message is on exactly one of them.
#[test]
fn a_second_listener_ends_the_first_at_once() {
    let server = Server::start(&["--sse-keep-alive", "1h"]);
    let session = Session::start(&server, NEWEST);
    let mut first = session.listen();
    priming_id(&mut first);
    numbered::push(&session, 2, 10);
    expect(&mut first, 1, 2);
    let mut second = session.listen();
    priming_id(&mut second);
    assert_eq!(first.event(), None);
    assert_eq!(first.end(), Some(End::Broken));
    let mut push = session.call("1", "standalone", &flood(3, 10, 0));
    push.result();
    for number in 3..=5 {
        assert_eq!(second.message().expect("it is live").number(), number);
    }
}

#[test]
fn a_cursor_is_exact_whatever_the_old_connection_does() {
    let server = Server::start(&[]);
    for (call, what) in (1..).zip(["healthy", "stalled", "half-closed", "closed", "reset"]) {
        let session = Session::start(&server, NEWEST);
        let mut old = session.call(&call.to_string(), "stream", &flood(300, 4096, 2));
        let priming = primed(&mut old);
        let mut seen = 20;
        expect(&mut old, 1, seen);
        match what {
            "healthy" => {
                expect(&mut old, 21, 40);
                seen = 40;
            }
            "half-closed" => old.socket().shutdown(Shutdown::Write).expect("it is open"),
            "closed" => old.socket().shutdown(Shutdown::Both).expect("it is open"),
            _ => pause(60),
        }
        // Dropped with unread bytes, the socket goes with a reset.
        let old = (what != "reset").then_some(old);
        let cursor = sibling(&priming, seen);
        let mut get = session.resume(&cursor);
        assert_eq!(primed(&mut get), cursor, "{what}");
        expect(&mut get, seen + 1, 300);
        expect_result(&mut get, call, 301);
        if let Some(mut old) = old.filter(|_| what != "closed") {
            while let Some(event) = old.message() {
                seen += 1;
                assert_eq!(event.number(), seen, "{what}: {}", event.id);
            }
            assert_eq!(old.end(), Some(End::Broken), "{what}");
        }
    }
}

/// What one of several racing listeners came to: the messages it was given, or no answer at all.
fn race(session: &Session, cursor: Option<&str>) -> Option<Vec<Event>> {
    let mut connection = match cursor {
        Some(cursor) => session.resume(cursor),
        None => {
            let mut connection = Connection::open(session.address);
            connection.send(bare("GET", &session.fields()));
            connection
        }
    };
    let head = connection.try_head()?;
    assert_eq!(head.status, 200, "{head:?}");
    let mut events = Vec::new();
    while let Some(event) = connection.message() {
        events.push(event);
        if events.last().and_then(sequence) == Some(1) {
            break;
        }
    }
    Some(events)
}

/// Three at a time, again and again: exactly one has the stream in the end, and it is live.
#[test]
fn of_racing_listeners_one_wins_and_is_live() {
    let server = Server::start(&[]);
    for round in 0..10 {
        let session = Session::start(&server, NEWEST);
        let mut first = session.listen();
        let priming = priming_id(&mut first);
        let cursor = (round % 2 == 0).then_some(priming.as_str());
        let winners = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..3).map(|_| scope.spawn(|| race(&session, cursor))).collect();
            // The first two to end have lost; then the third is told something.
            let start = std::time::Instant::now();
            while racers.iter().filter(|racer| racer.is_finished()).count() < 2 {
                assert!(start.elapsed() < PATIENCE, "the losers were not closed");
                pause(2);
            }
            numbered::push(&session, 1, 10);
            let ends = racers.into_iter().map(|racer| racer.join().expect("no panic"));
            ends.filter(|end| end.as_ref().is_some_and(|events| events.len() == 1)).count()
        });
        assert_eq!(winners, 1, "round {round}");
        assert_eq!(first.event(), None, "the first one is closed");
    }
}
