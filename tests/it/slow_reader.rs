//! A reader that stops reading: it is cut and told, and it alone.

use serde_json::json;

use crate::client::{NEWEST, Session};
use crate::numbered::{expect, expect_result, flood, primed, priming_id, read_until_cut, sibling};
use crate::server::{Server, eventually};

/// One pipe carries all streams of a child, so the window slides past the reader that stalls:
/// never a hole inside of what it was given, an explicit error when it comes back, and everybody
/// else is served meanwhile.
#[test]
fn an_unread_standalone_stream_of_a_child_is_cut_and_its_reader_told() {
    let server = Server::stdio(&["--stream-bytes", "256KiB", "--event-bytes", "64KiB"]);
    let session = Session::start(&server, NEWEST);
    let mut stalled = session.listen();
    let priming = priming_id(&mut stalled);
    // With two calls open, what is related to none goes to the standalone stream.
    let mut sleep = session.call("1", "sleep", &json!({"ms": 3_600_000}));
    primed(&mut sleep);
    let mut flooding = session.call("2", "standalone", &flood(1000, 4096, 0));
    primed(&mut flooding);
    for call in 0..20 {
        let echo = session.call(&format!("\"e{call}\""), "echo", &json!({"text": "t"})).result();
        assert_eq!(echo["id"], format!("e{call}"));
    }
    let last = read_until_cut(&server, &mut stalled);
    assert!(last >= 1);
    eventually("the flood is over and what is kept can be read", || {
        let answer = session.resume(&sibling(&priming, 0)).answer();
        assert_eq!((answer.status(), answer.code()), (410, -31001));
        let data = &answer.json()["error"]["data"];
        let (floor, tail) = (data["floor"].as_u64().unwrap(), data["tail"].as_u64().unwrap());
        assert!(1 < floor && floor <= tail && last <= tail, "{data}");
        let resume_from = data["resume_from"].as_str().expect("a place to go on");
        let mut get = session.resume(resume_from);
        assert_eq!(primed(&mut get), resume_from);
        // While the flood goes on, this reader may be cut as well.
        let read = (floor..=tail).map_while(|number| Some((number, get.message()?.number())));
        read.filter(|(expected, number)| expected == number).count() as u64 == tail - floor + 1
    });
    session.delete();
    let stopped = server.stop();
    assert!(stopped.total("cuts") >= 1);
    assert!(stopped.total("resumes.truncated") >= 1);
}

/// A producer inside of the server waits for its reader, so the reader loses nothing.
#[test]
fn a_builtin_producer_waits_for_a_slow_reader() {
    let server = Server::start(&["--stream-bytes", "1MiB", "--event-bytes", "64KiB"]);
    let session = Session::start(&server, NEWEST);
    let mut slow = session.call("1", "stream", &flood(8000, 4096, 0));
    primed(&mut slow);
    std::thread::sleep(std::time::Duration::from_millis(300));
    for first in (1..8000).step_by(100) {
        expect(&mut slow, first, first + 99);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    expect_result(&mut slow, 1, 8001);
    assert_eq!(server.stop().total("cuts"), 0);
}
