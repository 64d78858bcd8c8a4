//! Stories of events that were lost or doubled elsewhere; each test tells its own.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::client::{Connection, End, NEWEST, Session, ask, bare};
use crate::numbered::{
    self, expect, expect_result, flood, primed, priming_id, sequence, sibling, token,
};
use crate::server::Server;

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// How the client that stalled after event 118 goes away, or does not.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    /// It stays, its socket open and unread.
    Never,
    /// Another thread closes it with unread bytes, which is a reset, while the resume is on its
    /// way.
    WithReset,
    /// Another thread goes on reading it during the resume.
    Reading,
}

/// Events 100..140 are logged; the socket stalls after 118; what the kernel of the client has
/// acknowledged moves the ring's head beyond that (to 124, in the story); the client reconnects
/// with 118. It must see 119, 120, ... 140, 141, each once.
#[test]
fn the_story_of_118_and_124() {
    let server = Server::start(&[]);
    for (call, leaves) in (1..).zip([Leaves::Never, Leaves::WithReset, Leaves::Reading]) {
        let session = Session::start(&server, NEWEST);
        let mut stalled = session.call(&call.to_string(), "stream", &flood(160, 4096, 4));
        let priming = primed(&mut stalled);
        expect(&mut stalled, 1, 118);
        // About 22 more events are logged and sent; nobody reads them.
        pause(88);
        let cursor = sibling(&priming, 118);
        std::thread::scope(|scope| {
            scope.spawn(move || match leaves {
                Leaves::Never => Some(stalled),
                Leaves::WithReset => None,
                Leaves::Reading => {
                    let mut last = 118;
                    while let Some(event) = stalled.message() {
                        last += 1;
                        assert_eq!(event.number(), last, "the old connection has no hole");
                    }
                    Some(stalled)
                }
            });
            let mut get = session.resume(&cursor);
            assert_eq!(primed(&mut get), cursor);
            expect(&mut get, 119, 160);
            expect_result(&mut get, call, 161);
        });
    }
    assert_eq!(server.stop().total("resumes.ring_ahead"), 3);
}

/// The stream of a cursor was guessed from its text, so the standalone stream never resumed,
/// and events of one stream leaked into the resume of another.
#[test]
fn three_streams_resume_side_by_side() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    let mut a = session.listen();
    let mut b = session.call("1", "stream", &flood(50, 10, 0));
    let mut c = session.call("2", "stream", &flood(50, 10, 0));
    priming_id(&mut a);
    primed(&mut b);
    primed(&mut c);
    numbered::push(&session, 3, 10);
    let cursors = [expect(&mut a, 1, 1), expect(&mut b, 1, 5), expect(&mut c, 1, 7)];
    drop((a, b, c));
    pause(300);
    let mut resumed = cursors.clone().map(|cursor| session.resume(&cursor));
    for (connection, cursor) in resumed.iter_mut().zip(&cursors) {
        assert_eq!(&primed(connection), cursor);
    }
    let [a, b, c] = &mut resumed;
    expect(a, 2, 3);
    expect(b, 6, 50);
    expect_result(b, 1, 51);
    expect(c, 8, 50);
    expect_result(c, 2, 51);
    numbered::push(&session, 1, 10);
    let live = a.message().expect("the standalone stream is live");
    assert_eq!((live.number(), sequence(&live)), (4, Some(1)));
    let tokens: HashSet<&str> = cursors.iter().map(|cursor| token(cursor)).collect();
    assert_eq!(tokens.len(), 3);
}

/// The response that was produced while the client was away was lost, or was kept until it
/// had been written once.
#[test]
fn an_answer_waits_for_a_client_that_knows_only_the_priming_id() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let session = Session::start(&server, NEWEST);
        let [p7, p8] = ["7", "8"].map(|id| {
            let mut post = session.call(id, "sleep", &json!({"ms": 300}));
            primed(&mut post)
        });
        assert_ne!(token(&p7), token(&p8));
        pause(600);
        for (call, cursor) in [(7, &p7), (8, &p8), (7, &p7)] {
            let mut get = session.resume(cursor);
            assert_eq!(&primed(&mut get), cursor);
            expect_result(&mut get, call, 1);
        }
    }
}

/// A cursor that could not be served was answered 200, with an empty or gapped stream. The
/// rule is "N + 1 is still held".
#[test]
fn the_window_has_sharp_edges() {
    let server = Server::start(&["--stream-events", "10"]);
    let session = Session::start(&server, NEWEST);
    let mut get = session.listen();
    priming_id(&mut get);
    // All 20 are sent and acknowledged; the client reads but the first.
    session.call("1", "standalone", &flood(20, 10, 10)).result();
    let first = expect(&mut get, 1, 1);
    drop(get);
    let status = |cursor: &str| session.resume(cursor).answer().status();
    let other = Session::start(&server, NEWEST);
    let foreign = priming_id(&mut other.listen());
    for (cursor, expected) in [
        (first.clone(), 410),
        (sibling(&first, 9), 410),
        ("nonsense".to_owned(), 400),
        (foreign, 400),
    ] {
        assert_eq!(status(&cursor), expected, "{cursor}");
    }
    for last_seen in [11, 10] {
        let cursor = sibling(&first, last_seen);
        let mut get = session.resume(&cursor);
        assert_eq!(primed(&mut get), cursor);
        expect(&mut get, last_seen + 1, 20);
    }
    let echo = session.call("2", "echo", &json!({"text": "t"})).result();
    assert_eq!(echo["id"], 2, "the session stays usable");
}

/// The next number of a fixed sequence: the same cuts in every run.
fn random(state: &AtomicU64) -> u64 {
    let next = |old: u64| Some(old.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    let old = state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    old.unwrap_or_else(|old| old) >> 40
}

/// One client under a producer of one message a millisecond: 20 times it reads a few and is cut.
fn cut_and_resume(server: &Server, seed: u64) -> usize {
    let session = Session::start(server, NEWEST);
    let state = AtomicU64::new(seed);
    let mut get = session.listen();
    let mut cursor = priming_id(&mut get);
    let post = session.call("1", "standalone", &flood(900, 16, 1));
    let (mut seen, mut resumes) = (0, 0);
    while resumes < 20 {
        let read = random(&state) % 41;
        if read > 0 {
            cursor = expect(&mut get, seen + 1, seen + read);
            seen += read;
        }
        if read.is_multiple_of(2) {
            get.socket().shutdown(std::net::Shutdown::Both).expect("it is open");
        }
        drop(get);
        get = session.resume(&cursor);
        assert_eq!(primed(&mut get), cursor);
        resumes += 1;
    }
    expect(&mut get, seen + 1, 900);
    drop(post);
    // The stream is idle now: an event within a millisecond of the resume.
    let cursor = sibling(&cursor, 900);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| session.call("2", "standalone", &flood(1, 16, 0)).result());
        let mut get = session.resume(&cursor);
        assert_eq!(primed(&mut get), cursor);
        assert_eq!(get.message().expect("the late one").number(), 901);
        late.join().expect("no panic");
    });
    resumes + 1
}

/// An event that landed between reading the log and going live was in neither, or in both.
#[test]
fn no_event_falls_between_replay_and_live() {
    for shards in ["1", "2", "4"] {
        let server = Server::start(&["--shards", shards]);
        let resumes: usize = std::thread::scope(|scope| {
            let server = &server;
            let clients: Vec<_> =
                (0..10).map(|seed| scope.spawn(move || cut_and_resume(server, seed))).collect();
            clients.into_iter().map(|client| client.join().expect("contiguous")).sum()
        });
        assert_eq!(resumes, 210);
        assert_eq!(server.stop().total("requests.resume"), 210);
    }
}

/// One store for all sessions, with no session in its key: anybody's id replayed anybody's
/// messages.
#[test]
fn a_cursor_is_worth_nothing_in_another_session() {
    let server = Server::start(&[]);
    let [s1, s2] = [(); 2].map(|()| Session::start(&server, NEWEST));
    let mut get = s1.listen();
    priming_id(&mut get);
    let mut post = s1.call("1", "stream", &flood(200, 10, 5));
    let mut other = s2.listen();
    priming_id(&mut other);
    let posted = primed(&mut post);
    numbered::push(&s1, 2, 10);
    let second = expect(&mut get, 1, 2);
    let unknown = s2.resume("nonsense").answer();
    for cursor in [1, 2, 3].map(|number| sibling(&second, number)).into_iter().chain([posted]) {
        let answer = s2.resume(&cursor).answer();
        assert_eq!((answer.status(), &answer.body), (400, &unknown.body));
        let request = bare("GET", &format!("Last-Event-ID: {cursor}\r\n"));
        assert_eq!(ask(server.address, request).status(), 400, "a session is required");
    }
    // Neither session's own streams are disturbed.
    numbered::push(&s1, 1, 10);
    assert_eq!(get.message().expect("it is attached").number(), 3);
    numbered::push(&s2, 1, 10);
    assert_eq!(other.message().expect("it is attached").number(), 1);
    expect(&mut post, 1, 200);
    expect_result(&mut post, 1, 201);
}

/// The slot of a listener that was cut stayed taken, so that the next one got 409 or a dead
/// 200; responses were copied onto the GET stream; what came before the first GET was dropped.
#[test]
fn a_second_listener_is_live_at_once() {
    let server = Server::start(&[]);
    let session = Session::start(&server, NEWEST);
    numbered::push(&session, 2, 10);
    let mut first = session.listen();
    priming_id(&mut first);
    expect(&mut first, 1, 2);
    let mut second = session.listen();
    priming_id(&mut second);
    numbered::push(&session, 3, 10);
    let echo = session.call("1", "echo", &json!({"text": "t"})).result();
    assert_eq!(echo["id"], 1);
    numbered::push(&session, 1, 10);
    for (number, sequence_number) in [(3, 1), (4, 2), (5, 3), (6, 1)] {
        let event = second.message().expect("a message, and no response");
        assert_eq!((event.number(), sequence(&event)), (number, Some(sequence_number)));
    }
    assert_eq!(first.event(), None);
    assert_eq!(first.end(), Some(End::Broken));
}

/// Whether the session still answers.
fn is_alive(session: &Session) -> bool {
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let answer = session.post(&ping).answer();
    assert!(answer.status() == 200 || answer.status() == 404, "{answer:?}");
    answer.status() == 200
}

/// A session died with its connection, or never died at all.
#[test]
fn a_session_outlives_its_connections_and_no_longer_than_it_is_used() {
    let flags = ["--idle-timeout", "1s", "--retention", "1s"];
    for server in [Server::start(&flags), Server::stdio(&flags)] {
        let unused: Vec<Session> = (0..20).map(|_| Session::start(&server, NEWEST)).collect();
        let cut = Session::start(&server, NEWEST);
        drop(cut.listen());
        let echo = cut.call("1", "echo", &json!({"text": "t"})).result();
        assert_eq!(echo["id"], 1, "a session is not its stream");
        let listening = Session::start(&server, NEWEST);
        let mut silent = listening.listen();
        priming_id(&mut silent);
        let calling = Session::start(&server, NEWEST);
        let mut post = calling.call("1", "sleep", &json!({"ms": 3500}));
        let cursor = primed(&mut post);
        drop(post);
        pause(3000);
        assert!(!unused.iter().any(is_alive), "nobody used them");
        assert!(!is_alive(&cut), "nobody used it any more");
        assert!(is_alive(&listening), "an open stream keeps its session");
        pause(700);
        let mut get: Connection = calling.resume(&cursor);
        assert_eq!(primed(&mut get), cursor);
        expect_result(&mut get, 1, 1);
        assert_eq!(listening.delete().status(), 200);
        assert_eq!(silent.event(), None);
        assert_eq!(silent.end(), Some(End::Whole), "it was open until now");
        crate::server::eventually("its child has gone with each session", || {
            server.children().len() <= 1
        });
        let stopped = server.stop();
        let (started, ended) = (stopped.total("sessions_started"), stopped.total("sessions_ended"));
        assert_eq!((started, ended), (23, 23), "{:?}", stopped.logs.last());
    }
}
