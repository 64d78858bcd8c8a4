//! One budget for everything that grows: what does not fit is refused, small requests go on, and
//! what was taken is given back.

use serde_json::Value;

use crate::client::{Connection, NEWEST, Session};
use crate::server::{Server, eventually};

const MIB: usize = 1024 * 1024;
/// 8 MiB for one shard, half of them for what is in transit.
const SMALL: [&str; 10] = [
    "--shards",
    "1",
    "--memory-bytes",
    "8MiB",
    "--session-bytes",
    "4MiB",
    "--stream-bytes",
    "2MiB",
    "--event-bytes",
    "64KiB",
];

/// Two of them with their heads fit into that half.
const BODY: usize = 2 * MIB - 4096;

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

/// Sends the head of a ping whose body has so many bytes, and `sent` of them.
fn large_ping(session: &Session, bytes: usize, sent: usize) -> Connection {
    let mut connection = Connection::open(session.address);
    let fields = session.fields();
    connection.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{fields}Content-Length: {bytes}\r\n\r\n\
         {PING}"
    ));
    connection.try_send(" ".repeat(sent - PING.len()));
    connection
}

/// What the newest SIGUSR1 says of the one shard.
fn shard_stands(server: &Server) -> Option<(u64, u64)> {
    server.signal(libc::SIGUSR1);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let logs = server.logs();
    let line = logs.iter().rev().find(|line| line["message"] == "where a shard stands")?;
    let number = |name: &str| line[name].as_u64();
    Some((number("session_bytes")?, number("transit_bytes")?))
}

/// Bodies that are being received take half of the budget at most: the next is refused at once and
/// may come again, small requests go on, and those under way end well.
#[test]
fn bodies_beyond_the_budget_are_refused_and_small_requests_go_on() {
    let server = Server::start(&SMALL);
    let session = Session::start(&server, NEWEST);
    let mut under_way: Vec<Connection> =
        (0..2).map(|_| large_ping(&session, BODY, BODY - 10)).collect();
    eventually("both are on the account", || {
        shard_stands(&server).is_some_and(|(_, transit)| transit > 3 * MIB as u64)
    });
    let refused = large_ping(&session, BODY, 1000).answer();
    assert_eq!((refused.status(), refused.code()), (503, -32000), "{refused:?}");
    assert!(refused.field("retry-after").is_some());
    for _ in 0..20 {
        assert_eq!(session.post(PING).answer().status(), 200);
    }
    for body in &mut under_way {
        body.send(" ".repeat(10));
        assert_eq!(body.answer().json()["id"], 7);
    }
    assert_eq!(large_ping(&session, BODY, BODY).answer().status(), 200);
    drop(under_way);
    session.delete();
    eventually("what was taken is given back", || shard_stands(&server) == Some((0, 0)));
    let stopped = server.stop();
    assert_eq!(stopped.total("bodies_refused"), 1);
    assert_eq!(stopped.total("refusals.503"), 1);
}

/// A chunked body says nothing of its size: it is refused when it has grown too large.
#[test]
fn a_chunked_body_is_refused_where_it_outgrows_the_budget() {
    let server = Server::start(&SMALL);
    let session = Session::start(&server, NEWEST);
    let other = large_ping(&session, 3 * MIB, 3 * MIB - 10);
    eventually("the other is on the account", || {
        shard_stands(&server).is_some_and(|(_, transit)| transit > 2 * MIB as u64)
    });
    let mut chunked = Connection::open(session.address);
    let fields = session.fields();
    chunked.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"
    ));
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..40 {
        if !chunked.try_send(&chunk) {
            break;
        }
    }
    assert_eq!(chunked.answer().status(), 503);
    drop(other);
    eventually("given back", || shard_stands(&server).is_some_and(|(_, transit)| transit == 0));
    server.stop();
}

/// A session that was deleted while its reader stood still is on the account until that is gone.
#[test]
fn what_an_ended_session_holds_is_on_the_account_until_its_reader_is_gone() {
    let server = Server::start(&["--shards", "1"]);
    let session = Session::start(&server, NEWEST);
    let mut stalled = session.call("1", "stream", &crate::numbered::flood(4000, 4096, 0));
    crate::numbered::primed(&mut stalled);
    server.wait_for_log("the pause", |line: &Value| {
        line["message"].as_str().is_some_and(|text| text.contains("waits for a slow reader"))
    });
    session.delete();
    let (held, _) = shard_stands(&server).expect("a dump");
    assert!(held > MIB as u64, "{held} bytes");
    drop(stalled);
    eventually("given back", || shard_stands(&server) == Some((0, 0)));
    server.stop();
}
