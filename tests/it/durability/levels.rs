//! What each level of `--durability` means to a cursor.

use serde_json::{Value, json};

use crate::client::Session;
use crate::numbered::{self, expect, expect_result, flood, primed, priming_id, sibling};

use super::{Home, echoes, ended_by_restart, read_some, session};

/// The cursors of a standalone stream and of a call that is over, both after event 2.
fn two_cursors(session: &Session) -> (String, String) {
    let mut get = session.listen();
    priming_id(&mut get);
    numbered::push(session, 4, 100);
    let standalone = expect(&mut get, 1, 2);
    let mut call = session.call("1", "stream", &flood(5, 100, 0));
    let cursor = read_some(&mut call, 2);
    expect(&mut call, 3, 5);
    expect_result(&mut call, 1, 6);
    (standalone, cursor)
}

#[test]
fn at_none_a_crash_makes_cursors_stale_and_says_so() {
    let mut home = Home::new(&["--durability", "none", "--answers", "sse"]);
    let server = home.serve();
    let session = session(&server);
    let (standalone, cursor) = two_cursors(&session);
    server.kill();

    let server = home.serve();
    let answer = session.resume(&standalone).answer();
    assert_eq!((answer.status(), answer.code()), (410, -31003), "{}", answer.text());
    let data = answer.json()["error"]["data"].clone();
    assert_eq!((&data["reason"], &data["requested"]), (&json!("epoch_changed"), &json!(2)));
    let resume_from = data["resume_from"].as_str().expect("a place to go on").to_owned();
    assert_ne!(numbered::token(&resume_from), numbered::token(&standalone), "another token");
    let mut get = session.resume(&resume_from);
    assert_eq!(primed(&mut get), resume_from, "the client accepts the gap");

    assert_eq!(code_told(&session, &cursor), -31003);
    echoes(&session, "after");
    drop(get);
    drop(server);
}

/// The code that a stale cursor of call 1 is answered with: in-band where the log still has the
/// call, else by 410. Story: where it had not, the answer was an empty stream.
fn code_told(session: &Session, cursor: &str) -> i64 {
    let mut told = session.resume(cursor);
    let head = told.head();
    if head.status == 410 {
        let body: Value = serde_json::from_slice(&told.body(&head)).expect("JSON");
        return body["error"]["code"].as_i64().expect("a code");
    }
    assert_eq!(priming_id(&mut told), cursor);
    let error = told.message().expect("the refusal").json();
    assert_eq!(error["id"], json!(1), "{error}");
    assert_eq!(told.event(), None);
    error["error"]["code"].as_i64().expect("a code")
}

#[test]
fn at_none_a_planned_end_loses_nothing() {
    let mut home = Home::new(&["--durability", "none", "--answers", "sse"]);
    let server = home.serve();
    let session = session(&server);
    let (standalone, cursor) = two_cursors(&session);
    assert_eq!(server.stop().code, Some(0));
    let _server = home.serve();
    let mut get = session.resume(&standalone);
    assert_eq!(primed(&mut get), standalone);
    expect(&mut get, 3, 4);
    let mut call = session.resume(&cursor);
    assert_eq!(primed(&mut call), cursor);
    expect(&mut call, 3, 5);
    expect_result(&mut call, 1, 6);
}

#[test]
fn at_power_events_go_out_and_outlive_a_crash() {
    let mut home = Home::new(&["--durability", "power"]);
    let server = home.serve();
    let session = session(&server);
    let (standalone, _) = two_cursors(&session);
    let mut call = session.call("2", "stream", &flood(100_000, 100, 1));
    let cursor = read_some(&mut call, 20);
    server.kill();
    let _server = home.serve();
    let mut get = session.resume(&standalone);
    assert_eq!(primed(&mut get), standalone);
    assert_eq!(expect(&mut get, 3, 4), sibling(&standalone, 4));
    assert!(ended_by_restart(&session, &cursor, 2) > 20);
}

/// A directory that was restored from a copy has numbers that clients hold for other events.
#[test]
fn a_new_epoch_by_hand_makes_every_cursor_stale() {
    let mut home = Home::new(&["--answers", "sse"]);
    let server = home.serve();
    let session = session(&server);
    let (standalone, _) = two_cursors(&session);
    assert_eq!(server.stop().code, Some(0));
    let output = super::log_tool("new-epoch", &home.dir);
    assert!(output.status.success(), "{output:?}");
    let _server = home.serve();
    let answer = session.resume(&standalone).answer();
    assert_eq!((answer.status(), answer.code()), (410, -31003), "{}", answer.text());
    let data = answer.json()["error"]["data"].clone();
    let resume_from = data["resume_from"].as_str().expect("a place to go on");
    let mut get = session.resume(resume_from);
    assert_eq!(primed(&mut get), resume_from);
    numbered::push(&session, 1, 100);
    let number = resume_from.rsplit_once('.').expect("a number").1.parse::<u64>().expect("one");
    let next = get.message().expect("an event");
    assert_eq!(next.id, sibling(resume_from, number + 1), "what is kept has the new token");
}
