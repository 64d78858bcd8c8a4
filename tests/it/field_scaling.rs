//! Running out of something costs whoever comes too late, and nobody who is there.

use std::net::TcpStream;

use serde_json::json;

use crate::client::{Connection, NEWEST, Session, call_body, initialize_body, post};
use crate::server::{PROGRAM, Server, eventually};

/// A session with a connection of its own that stays open.
struct Kept {
    session: Session,
    connection: Connection,
}

impl Kept {
    fn new(server: &Server) -> Self {
        let session = Session::start(server, NEWEST);
        let mut kept = Self { session, connection: Connection::open(server.address) };
        kept.echo();
        kept
    }

    /// A call on the kept connection.
    fn echo(&mut self) {
        let body = call_body("1", "echo", &json!({"text": "t"}));
        self.connection.send(post(&self.session.fields(), &body));
        let answer = self.connection.answer();
        assert_eq!(answer.json()["result"]["content"][0]["text"], "t", "{answer:?}");
    }
}

const ANSWERS: [&str; 2] = ["--answers", "json"];

/// Fifteen live sessions, room for five more, and two hundred that want to come.
#[test]
fn beyond_the_limit_of_sessions_each_is_told_and_nobody_else_notices() {
    let flags = [&ANSWERS[..], &["--sessions", "20"]].concat();
    for (server, children) in [(Server::start(&flags), 0), (Server::stdio(&flags), 20)] {
        let mut live: Vec<Kept> = (0..15).map(|_| Kept::new(&server)).collect();
        let mut coming: Vec<Connection> =
            (0..200).map(|_| Connection::open(server.address)).collect();
        for connection in &mut coming {
            connection.send(post("", &initialize_body(NEWEST)));
        }
        let mut came = Vec::new();
        for (at, connection) in coming.iter_mut().enumerate() {
            let answer = connection.answer();
            match answer.status() {
                200 => came.push(answer.field("mcp-session-id").expect("a session").to_owned()),
                status => {
                    assert_eq!((status, answer.code()), (503, -32000));
                    assert!(answer.field("retry-after").is_some());
                    assert_eq!(answer.field("mcp-session-id"), None);
                }
            }
            let of_live = at % live.len();
            live[of_live].echo();
            assert!(server.children().len() <= 20);
        }
        assert_eq!(came.len(), 5, "all places are given, and none twice");
        assert_eq!(server.children().len(), children);
        for id in came {
            let session = Session { address: server.address, id, revision: NEWEST.to_owned() };
            assert_eq!(session.delete().status(), 200);
        }
        live.iter_mut().for_each(Kept::echo);
        live.push(Kept::new(&server));
        let stopped = server.stop();
        assert_eq!(stopped.code, Some(0));
        assert_eq!(stopped.total("sessions_started"), 21);
        assert_eq!(stopped.total("sessions_ended"), 21);
        assert_eq!(stopped.total("children_started"), stopped.total("children_exited"));
    }
}

/// Few descriptors, and five hundred connections: those that are there are served, a session that
/// needs a child is told that none can be had, and afterwards all is as before.
#[test]
fn without_descriptors_live_sessions_are_served_and_new_ones_told() {
    gapless::sys::fds::raise_nofile_limit().expect("this test holds many connections, too");
    let server = Server::with_descriptors(160, &ANSWERS, &[PROGRAM, "stdio"]);
    let mut live: Vec<Kept> = (0..15).map(|_| Kept::new(&server)).collect();
    let descriptors = server.descriptors();
    let storm: Vec<TcpStream> =
        (0..500).map_while(|_| TcpStream::connect(server.address).ok()).collect();
    server.wait_for_log("the limit", |line| {
        line["message"].as_str().is_some_and(|text| text.contains("could not be accepted"))
    });
    for _ in 0..5 {
        live.iter_mut().for_each(Kept::echo);
    }
    let connection = &mut live[0].connection;
    connection.send(post("", &initialize_body(NEWEST)));
    let refused = connection.answer();
    assert_eq!((refused.status(), refused.code()), (200, -31005), "{}", refused.text());
    assert_eq!((refused.field("mcp-session-id"), &refused.json()["id"]), (None, &json!("init")));
    live.iter_mut().for_each(Kept::echo);
    drop(storm);
    // What waits in the backlog is accepted in bursts with a pause between them: the storm is over
    // when it has been calm for longer than that.
    let mut calm = 0;
    eventually("the storm is over", || {
        calm = if server.descriptors() <= descriptors { calm + 1 } else { 0 };
        calm > 40
    });
    live.push(Kept::new(&server));
    live.iter_mut().for_each(Kept::echo);
    let stopped = server.stop();
    assert_eq!((stopped.code, stopped.total("panics")), (Some(0), 0));
    assert_eq!(stopped.total("sessions_started"), stopped.total("sessions_ended"));
}

/// A storm of connections beyond the limit is closed at the door.
#[test]
fn beyond_the_limit_of_connections_the_door_is_closed_and_opens_again() {
    let flags = [&ANSWERS[..], &["--connections", "30"]].concat();
    let server = Server::start(&flags);
    let mut live: Vec<Kept> = (0..10).map(|_| Kept::new(&server)).collect();
    let mut storm: Vec<Connection> = (0..200).map(|_| Connection::open(server.address)).collect();
    let mut closed = 0;
    for connection in &mut storm {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let sent = connection.try_send(post(&live[0].session.fields(), body));
        if !sent || connection.try_head().is_none() {
            closed += 1;
        }
    }
    assert!(closed >= 170, "{closed} of 200 were turned away");
    live.iter_mut().for_each(Kept::echo);
    drop(storm);
    eventually("the door is open again", || {
        let mut connection = Connection::open(server.address);
        connection.try_send(post("", &initialize_body(NEWEST)))
            && connection.try_head().is_some_and(|head| head.status == 200)
    });
    live.iter_mut().for_each(Kept::echo);
}
