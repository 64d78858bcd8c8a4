//! Nothing of a child outlives its session, however the session ends.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{NEWEST, Session, ask, initialize_body, post};
use crate::numbered::primed;
use crate::scripted::{child, processes};
use crate::server::{Server, eventually};

const LIST: &str = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;

/// How a session ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Delete,
    Idle,
    Vanished,
    SetUpError,
}

/// A wrapper with a process in the background, all of which ignore SIGTERM and the end of stdin.
/// Its command lines, and its processes', hold the marker.
fn stubborn(marker: &str) -> String {
    let script = child(&format!(
        r#"
        while read -r line; do take "$line"; answer '{{}}'; done
        while :; do sleep {marker}; done"#
    ));
    let refuse = r#"case "$line" in *refuse*)
        printf '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}\n';
        while :; do sleep 1000; done;;
    esac; take"#;
    let script = script.replacen("take \"$line\"\n", &format!("{refuse} \"$line\"\n"), 1);
    format!("trap '' TERM; sleep {marker} &\n{script}")
}

/// A number of seconds that no other process sleeps for.
fn marker(number: u32) -> String {
    format!("10{}{number}.5", std::process::id())
}

fn end(server: &Server, ending: Ending) {
    if let Ending::SetUpError = ending {
        let body = initialize_body(NEWEST).replace("\"name\":\"it\"", "\"name\":\"refuse\"");
        let answer = ask(server.address, post("", &body));
        assert_eq!((answer.status(), answer.code()), (200, -32602), "{}", answer.text());
        return;
    }
    let session = Session::start(server, NEWEST);
    assert_eq!(session.post(LIST).result()["result"], json!({}));
    match ending {
        Ending::Delete => assert_eq!(session.delete().status(), 200),
        Ending::Vanished => drop(session.listen()),
        Ending::Idle | Ending::SetUpError => {}
    }
}

/// The signal hit the wrapper only, or nobody cleaned up after a set-up that failed, a client that
/// vanished or a session that idled; thousands of orphans were counted in the field.
#[test]
fn a_hundred_sessions_of_each_ending_leave_no_process() {
    let marker = marker(1);
    let flags = ["--child-grace", "100ms", "--idle-timeout", "2s", "--retention", "1s"];
    let server = Server::shell(&flags, &stubborn(&marker));
    end(&server, Ending::Delete);
    eventually("the first child is gone", || server.children().is_empty());
    let descriptors = server.descriptors();
    let endings = [Ending::Delete, Ending::Idle, Ending::Vanished, Ending::SetUpError];
    for ending in endings {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..25).for_each(|_| end(&server, ending)));
            }
        });
        // The idle ones have their two seconds, and each child its two graces, all at one time.
        let start = Instant::now();
        eventually("no child is left, be it a zombie", || server.children().is_empty());
        assert!(start.elapsed() < Duration::from_secs(15), "{ending:?}: {:?}", start.elapsed());
        // Only this server's children have the marker; its own command line has it, too.
        assert_eq!(processes(&marker), [server.pid()], "{ending:?}");
    }
    eventually("the descriptors are closed", || server.descriptors() <= descriptors);
    let stopped = server.stop();
    assert_eq!(stopped.total("children_started"), 401);
    assert_eq!(stopped.total("children_exited"), 401);
}

/// A child that does not want to end held up the request that ended it, and others.
#[test]
fn nobody_waits_for_a_child_that_does_not_end() {
    let marker = marker(2);
    let server = Server::shell(&["--child-grace", "3s", "--shards", "1"], &stubborn(&marker));
    let [ending, other] = [(); 2].map(|()| Session::start(&server, NEWEST));
    let start = Instant::now();
    assert_eq!(ending.delete().status(), 200);
    for _ in 0..20 {
        assert_eq!(other.post(LIST).result()["result"], json!({}));
    }
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(server.children().len(), 2, "its graces are not over");
}

/// After the gateway's own end nothing runs, whether it was asked once or twice.
#[test]
fn the_gateway_takes_everything_with_it() {
    for (round, signals) in (3..).zip([1, 2]) {
        let marker = marker(round);
        let flags = ["--child-grace", "100ms", "--drain-timeout", "1s"];
        let server = Server::shell(&flags, &stubborn(&marker));
        let sessions: Vec<Session> = (0..20).map(|_| Session::start(&server, NEWEST)).collect();
        let mut open = sessions[0].call("1", "any", &json!({}));
        if signals == 1 {
            assert!(open.result()["result"].is_object());
        } else {
            primed(&mut open);
        }
        assert!(processes(&marker).len() > 40);
        let start = Instant::now();
        server.signal(libc::SIGTERM);
        if signals == 2 {
            server.signal(libc::SIGINT);
        }
        let stopped = server.wait();
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        if signals == 1 {
            assert_eq!((stopped.code, stopped.total("children_exited")), (Some(0), 20));
        }
        eventually("no descendant runs", || processes(&marker).is_empty());
    }
}
