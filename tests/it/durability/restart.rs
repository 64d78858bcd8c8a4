//! kill -9 and SIGTERM, and what clients find afterwards.

use serde_json::json;

use crate::client::{Answer, End, bare, post};
use crate::numbered::{self, expect, expect_result, flood, primed, priming_id, sibling};
use crate::server::eventually;

use super::{Home, echoes, ended_by_restart, let_it_run, read_some, session};

/// Story: the deploy came after the answer was computed and before the laptop was opened again.
#[test]
fn a_finished_answer_is_there_after_a_crash() {
    let mut home = Home::new(&["--answers", "sse"]);
    let server = home.serve();
    let session = session(&server);
    let mut call = session.call("1", "stream", &flood(20, 100, 0));
    let first = read_some(&mut call, 7);
    expect(&mut call, 8, 20);
    expect_result(&mut call, 1, 21);
    server.kill();
    let _server = home.serve();
    for _ in 0..2 {
        let mut resumed = session.resume(&first);
        assert_eq!(primed(&mut resumed), first);
        expect(&mut resumed, 8, 20);
        expect_result(&mut resumed, 1, 21);
    }
    let seen: Answer = session.resume(&sibling(&first, 21)).answer();
    assert_eq!(seen.status(), 405, "nothing is left to say");
    echoes(&session, "after");
}

#[test]
fn a_call_cut_by_a_crash_goes_on_to_the_last_logged_event_and_then_ends_with_one_error() {
    let mut home = Home::new(&[]);
    let server = home.serve();
    let session = session(&server);
    let mut call = session.call("7", "stream", &flood(100_000, 100, 1));
    let cursor = read_some(&mut call, 10);
    let_it_run(&server, 10_000, &home);
    server.kill();
    drop(call);
    let server = home.serve();
    let end = ended_by_restart(&session, &cursor, 7);
    assert!(end > 11, "what was logged and not read is not lost");
    assert_eq!(ended_by_restart(&session, &cursor, 7), end, "it is logged, once");
    assert_eq!(session.resume(&sibling(&cursor, end)).answer().status(), 405);
    echoes(&session, "after");
    server.kill();
    let _server = home.serve();
    assert_eq!(ended_by_restart(&session, &cursor, 7), end, "nor is it added at each restart");
}

#[test]
fn the_standalone_stream_goes_on_without_a_hole() {
    let mut home = Home::new(&[]);
    let server = home.serve();
    let session = session(&server);
    let mut get = session.listen();
    priming_id(&mut get);
    numbered::push(&session, 3, 100);
    let third = expect(&mut get, 1, 3);
    drop(get);
    numbered::push(&session, 2, 100);
    server.kill();
    let server = home.serve();
    numbered::push(&session, 2, 100);
    server.kill();
    let _server = home.serve();
    let mut get = session.resume(&third);
    assert_eq!(primed(&mut get), third);
    let mut last = third.clone();
    for (number, sequence) in [(4, 1), (5, 2), (6, 1), (7, 2)] {
        let event = get.message().expect("what was missed");
        assert_eq!((event.number(), numbered::sequence(&event)), (number, Some(sequence)));
        last = event.id;
    }
    assert_eq!(last, sibling(&third, 7));
    numbered::push(&session, 1, 100);
    assert_eq!(get.message().expect("live").number(), 8);
}

/// A listener without a cursor begins where nobody has confirmed anything to this process.
#[test]
fn a_listener_without_a_cursor_misses_nothing_after_a_crash() {
    let mut home = Home::new(&[]);
    let server = home.serve();
    let session = session(&server);
    numbered::push(&session, 5, 100);
    server.kill();
    let _server = home.serve();
    let mut get = session.listen();
    priming_id(&mut get);
    expect(&mut get, 1, 5);
}

/// The 200 of a DELETE is a promise: the session must not rise again, however soon the end comes.
#[test]
fn a_deleted_session_stays_deleted() {
    let mut home = Home::new(&[]);
    let mut server = home.serve();
    for _ in 0..5 {
        let [deleted, kept] = [(); 2].map(|()| session(&server));
        assert_eq!(deleted.delete().status(), 200);
        server.kill();
        server = home.serve();
        for request in [bare("GET", &deleted.fields()), post(&deleted.fields(), "{}")] {
            let answer = crate::client::ask(server.address, request);
            assert_eq!((answer.status(), answer.code()), (404, -32001), "{answer:?}");
        }
        echoes(&kept, "kept");
    }
}

/// A session is told to its client only when it is logged.
#[test]
fn a_session_that_was_just_told_to_its_client_is_known_after_a_crash() {
    let mut home = Home::new(&[]);
    let mut server = home.serve();
    for _ in 0..5 {
        let session = session(&server);
        server.kill();
        server = home.serve();
        echoes(&session, "known");
    }
}

#[test]
fn a_planned_end_closes_streams_leaves_a_clean_mark_and_everything_goes_on() {
    let mut home = Home::new(&["--drain-timeout", "300ms"]);
    let server = home.serve();
    let session = session(&server);
    let mut get = session.listen();
    priming_id(&mut get);
    numbered::push(&session, 2, 100);
    let second = expect(&mut get, 1, 2);
    let mut call = session.call("5", "stream", &flood(100_000, 100, 5));
    let cursor = read_some(&mut call, 3);
    server.signal(libc::SIGTERM);
    let last = std::iter::from_fn(|| call.message()).last().expect("an answer").json();
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(5), &json!(-31006)));
    assert_eq!(call.end(), Some(End::Whole));
    // What was logged before the end may still come; then the stream ends.
    while get.message().is_some() {}
    assert_eq!(get.end(), Some(End::Whole));
    let stopped = server.wait();
    assert_eq!((stopped.code, stopped.total("panics")), (Some(0), 0));
    let (code, told) = home.check();
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("sound"), "{told}");

    let _server = home.serve();
    let mut get = session.resume(&second);
    assert_eq!(primed(&mut get), second);
    numbered::push(&session, 1, 100);
    assert_eq!(get.message().expect("live").id, sibling(&second, 3), "the token is the same");
    let mut resumed = session.resume(&cursor);
    assert_eq!(primed(&mut resumed), cursor);
    let told: Vec<_> = std::iter::from_fn(|| resumed.message()).collect();
    let numbers = told.iter().map(|event| event.number());
    assert!(numbers.eq(4..4 + told.len() as u64), "{told:?}");
    assert_eq!(told.last().expect("the answer").json(), last, "the same answer, once");
    let errors = told.iter().filter(|event| event.json()["error"].is_object());
    assert_eq!(errors.count(), 1);
}

/// Many crashes in a row, the last thing read each time being the last thing asked for again.
#[test]
fn a_stream_outlives_many_crashes() {
    let mut home = Home::new(&[]);
    let mut server = home.serve();
    let session = session(&server);
    let mut get = session.listen();
    let mut cursor = priming_id(&mut get);
    for round in 0..8 {
        numbered::push(&session, 3, 100);
        let mut connection = if round == 0 { get } else { session.resume(&cursor) };
        if round > 0 {
            assert_eq!(primed(&mut connection), cursor);
        }
        for number in round * 3 + 1..=round * 3 + 3 {
            let event = connection.message().expect("an event");
            assert_eq!(event.number(), number);
            cursor = event.id;
        }
        get = connection;
        server.kill();
        server = home.serve();
    }
    eventually("the log has not grown by its restarts alone", || home.segments().len() < 64);
}
