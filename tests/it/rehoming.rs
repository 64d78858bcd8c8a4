//! The number of shards changes from one start to the next: clients resume as if nothing had been.

use serde_json::json;

use crate::client::{End, NEWEST, Session};
use crate::data::Data;
use crate::numbered::{self, expect, expect_result, flood, primed, priming_id, sibling};
use crate::server::Server;

/// Reads the standalone stream from a cursor on, up to the message `last`.
fn resume(session: &Session, cursor: &str, last: u64) -> String {
    let mut get = session.resume(cursor);
    assert_eq!(primed(&mut get), cursor);
    let first = cursor.rsplit_once('.').and_then(|(_, number)| number.parse::<u64>().ok());
    let mut id = String::new();
    for number in first.expect("a number") + 1..=last {
        let event = get.message().unwrap_or_else(|| panic!("no message {number}"));
        assert_eq!(event.number(), number, "no hole and nothing twice: {}", event.id);
        id = event.id;
    }
    id
}

#[test]
fn clients_resume_on_another_number_of_shards_after_a_kill_and_a_planned_end() {
    let data = Data::new("rehoming");
    let server = Server::start(&["--shards", "1", "--data-dir", data.path()]);
    // Owned by different shards afterwards, and one that has ended.
    let mut sessions: Vec<_> = (0..6).map(|_| Session::start(&server, NEWEST)).collect();
    let mut cursors = Vec::new();
    let mut answers = Vec::new();
    for session in &sessions {
        let mut get = session.listen();
        priming_id(&mut get);
        numbered::push(session, 5, 200);
        cursors.push(sibling(&expect(&mut get, 1, 5), 3));
        let mut post = session.call("9", "stream", &flood(4, 100, 0));
        let primed_with = primed(&mut post);
        expect(&mut post, 1, 4);
        expect_result(&mut post, 9, 5);
        answers.push(sibling(&primed_with, 2));
    }
    let ended = sessions.pop().expect("six");
    assert_eq!(ended.delete().status(), 200);

    let mut server = server;
    for (round, shards) in (1..).zip(["4", "2", "3", "1"]) {
        if round % 2 == 1 {
            server.signal(libc::SIGKILL);
            assert_eq!(server.wait().code, None);
        } else {
            let stopped = server.stop();
            assert_eq!(stopped.code, Some(0), "{:?}", stopped.logs);
        }
        server = Server::start(&["--shards", shards, "--data-dir", data.path()]);
        let moved =
            server.wait_for_log("the move", |line| line["message"] == "the sessions were moved");
        assert_eq!(moved["sessions"], json!(5));
        let last = 5 * round;
        for (session, (cursor, answer)) in sessions.iter_mut().zip(cursors.iter_mut().zip(&answers))
        {
            session.address = server.address;
            resume(session, cursor, last);
            // A call that was answered before the first start of these, once more.
            let mut post = session.resume(answer);
            assert_eq!(primed(&mut post), *answer);
            expect(&mut post, 3, 4);
            expect_result(&mut post, 9, 5);
            assert_eq!(post.end(), Some(End::Whole));
            // And it goes on.
            numbered::push(session, 5, 200);
            resume(session, cursor, last + 5);
            *cursor = sibling(cursor, last + 2);
        }
        let ended = Session { address: server.address, ..ended.clone() };
        assert_eq!(ended.resume(&cursors[0]).answer().status(), 404, "what is over stays so");
    }
    assert_eq!(server.stop().code, Some(0));
}
