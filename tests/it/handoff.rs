//! A connection moves to the shard that owns the session of its request, whole and between
//! requests.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::json;

use crate::client::{Connection, End, NEWEST, Session, bare, call_body, post};
use crate::numbered::{expect, expect_result, flood, primed, priming_id, sequence};
use crate::server::Server;

/// The shard that owns a session: its id begins with it.
fn owner(session: &Session) -> u16 {
    let id = BASE64_URL_SAFE_NO_PAD.decode(&session.id).expect("base64url");
    u16::from_be_bytes([id[0], id[1]])
}

/// Two sessions that different shards own.
fn two_owners(server: &Server) -> [Session; 2] {
    let first = Session::start(server, NEWEST);
    let other = (0..1000).map(|_| Session::start(server, NEWEST));
    let other = other.into_iter().find(|other| owner(other) != owner(&first));
    [first, other.expect("the connections are spread over the shards")]
}

fn echo(session: &Session, id: u64, text: &str) -> String {
    let body = call_body(&id.to_string(), "echo", &json!({"text": text}));
    post(&session.fields(), &body)
}

fn expect_echo(connection: &mut Connection, id: u64, text: &str) {
    let answer = connection.answer();
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.json()["id"], id);
    assert!(answer.json()["result"]["content"][0]["text"] == text, "another text came back");
}

#[test]
fn every_connection_reaches_its_session_on_any_number_of_shards() {
    for shards in ["1", "2", "4"] {
        let server = Server::start(&["--shards", shards]);
        let sessions: Vec<Session> = (0..6).map(|_| Session::start(&server, NEWEST)).collect();
        for id in 0..60 {
            let session = &sessions[id as usize % sessions.len()];
            let mut connection = Connection::open(server.address);
            connection.send(echo(session, id, "t"));
            expect_echo(&mut connection, id, "t");
        }
        let moved = server.stop().total("connections_handed_off");
        assert_eq!(moved == 0, shards == "1", "{moved} moved on {shards} shards");
    }
}

#[test]
fn one_connection_alternates_between_two_owners() {
    for shards in ["2", "4"] {
        let server = Server::start(&["--shards", shards]);
        let sessions = two_owners(&server);
        let mut connection = Connection::open(server.address);
        for id in 0..500 {
            connection.send(echo(&sessions[id as usize % 2], id, "t"));
            expect_echo(&mut connection, id, "t");
        }
        assert!(server.stop().total("connections_handed_off") >= 499);
    }
}

/// Answers come in the order of the requests, whoever owns their sessions.
#[test]
fn pipelined_requests_to_two_owners_are_answered_in_order() {
    let server = Server::start(&[]);
    let sessions = two_owners(&server);
    let mut connection = Connection::open(server.address);
    let all: String = (0..40).map(|id| echo(&sessions[id as usize % 2], id, "t")).collect();
    connection.send(all);
    for id in 0..40 {
        expect_echo(&mut connection, id, "t");
    }
    let all = [
        post(&sessions[0].fields(), &call_body("1", "stream", &flood(5, 10, 0))),
        echo(&sessions[1], 2, "t"),
    ];
    connection.send(all.concat());
    primed(&mut connection);
    expect(&mut connection, 1, 5);
    expect_result(&mut connection, 1, 6);
    expect_echo(&mut connection, 2, "t");
}

/// The byte count by which acknowledgements are measured moves along. Were it lost, everything
/// that is written would count as confirmed, and a take-over would skip what never arrived.
#[test]
fn what_a_connection_carried_before_it_moved_confirms_nothing() {
    let server = Server::start(&[]);
    let [first, second] = two_owners(&server);
    let mut moved = Connection::open(server.address);
    moved.send(post(&first.fields(), &call_body("1", "stream", &flood(500, 8192, 0))));
    primed(&mut moved);
    expect(&mut moved, 1, 500);
    expect_result(&mut moved, 1, 501);
    moved.send(bare("GET", &second.fields()));
    primed(&mut moved);
    second.call("2", "standalone", &flood(900, 8192, 0)).result();
    // What is on its way arrives and is acknowledged; then nothing moves any more.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let mut get = second.listen();
    priming_id(&mut get);
    let next = get.message().expect("the rest");
    let mut last = 0;
    while let Some(event) = moved.message() {
        assert_eq!(event.number(), last + 1);
        last += 1;
    }
    assert_eq!(moved.end(), Some(End::Broken));
    assert_eq!((next.number(), sequence(&next)), (last + 1, Some(last + 1)));
    expect(&mut get, last + 2, 900);
}

#[test]
fn a_body_in_flight_arrives_where_its_session_is() {
    let server = Server::start(&["--shards", "4"]);
    let sessions = two_owners(&server);
    let text = "x".repeat(2_000_000);
    for id in 0..8 {
        let request = echo(&sessions[id as usize % 2], id, &text);
        let (begin, rest) = request.split_at(20_000);
        let mut connection = Connection::open(server.address);
        connection.send(begin);
        std::thread::sleep(std::time::Duration::from_millis(20));
        connection.send(rest);
        expect_echo(&mut connection, id, &text);
    }
}

#[test]
fn a_client_that_waits_to_be_invited_is_invited_by_the_owner() {
    let server = Server::start(&["--shards", "4"]);
    let sessions = two_owners(&server);
    let text = "y".repeat(100_000);
    let mut kept = Connection::open(server.address);
    for id in 0..16 {
        let session = &sessions[id as usize % 2];
        let body = call_body(&id.to_string(), "echo", &json!({"text": text}));
        let request = post(&format!("{}Expect: 100-continue\r\n", session.fields()), &body);
        let (head, body) = request.split_at(request.len() - body.len());
        let mut fresh = Connection::open(server.address);
        for connection in [&mut kept, &mut fresh] {
            connection.send(head);
            assert_eq!(connection.head().status, 100);
            connection.send(body);
            expect_echo(connection, id, &text);
        }
    }
}
