//! `Last-Event-ID` on the GET: the session goes on exactly after it.

use gapless::limits::REATTACH_BURST;
use serde_json::{Value, json};

use super::client::{Client, cut};
use crate::client::End;
use crate::server::Server;

const SHARDS: [&str; 3] = ["1", "2", "4"];

fn seq(message: &Value) -> Option<u64> {
    message["params"]["data"]["seq"].as_u64()
}

/// The client checks that numbers go on without a hole over all of its connections.
#[test]
fn a_call_cut_in_the_middle_goes_on_after_the_cursor() {
    for (index, shards) in SHARDS.into_iter().enumerate() {
        let flags = ["--shards", shards];
        for server in [Server::start(&flags), Server::stdio(&flags)] {
            let mut client = Client::start(&server);
            client.call("1", "stream", &json!({"count": 30, "size": 16, "interval_ms": 5}));
            for expected in 1..=10 + index as u64 {
                assert_eq!(seq(&client.message()), Some(expected));
            }
            cut(client.resume());
            let (rest, answer) = client.until_answer(&json!(1));
            let rest: Vec<Option<u64>> = rest.iter().map(seq).collect();
            assert_eq!(rest, (11 + index as u64..=30).map(Some).collect::<Vec<_>>());
            assert!(answer["error"].is_null(), "{answer}");
            client.echo("the session goes on");
        }
    }
}

/// Many connections of one client, some of them cut within a millisecond, under a steady producer.
/// No more than are answered at once: a client in a tight loop is slowed down.
#[test]
fn no_event_is_lost_or_doubled_over_many_cuts() {
    for shards in SHARDS {
        let server = Server::stdio(&["--shards", shards]);
        let mut client = Client::start(&server);
        client.call("1", "stream", &json!({"count": 400, "interval_ms": 1}));
        let mut expected = 1;
        for round in 0..REATTACH_BURST {
            for _ in 0..round * 7 % 13 {
                assert_eq!(seq(&client.message()), Some(expected));
                expected += 1;
            }
            cut(client.resume());
        }
        while expected <= 400 {
            assert_eq!(seq(&client.message()), Some(expected));
            expected += 1;
        }
        assert_eq!(client.message()["id"], 1);
        client.echo("the session goes on");
        assert_eq!(server.stop().total("panics"), 0);
    }
}

/// What is sent while nobody is attached is kept: answers, notifications, what the server asks.
#[test]
fn what_was_sent_while_nobody_was_there_is_delivered() {
    for server in [Server::start(&[]), Server::stdio(&[])] {
        let mut client = Client::start(&server);
        client.go_away();
        // The session is found by what it is posted, without a stream.
        client.call("1", "stream", &json!({"count": 3}));
        client.call("2", "standalone", &json!({"count": 2}));
        client.call("3", "test_sampling", &json!({"prompt": "x"}));
        client.resume();
        let mut seen: Vec<String> = (0..8)
            .map(|_| {
                let message = client.message();
                message["method"].as_str().map_or_else(|| message["id"].to_string(), str::to_owned)
            })
            .collect();
        seen.sort_unstable();
        let messages = ["notifications/message"; 5];
        let expected = [&["1", "2"][..], &messages, &["sampling/createMessage"]].concat();
        assert_eq!(seen, expected);
    }
}

/// The same cursor is good for as long as its events are kept, not once.
#[test]
fn a_cursor_can_be_presented_again() {
    let server = Server::start(&[]);
    let mut client = Client::start(&server);
    client.call("1", "stream", &json!({"count": 5}));
    client.until_answer(&json!(1));
    for cursor in [client.cursor_at(0), client.cursor_at(3), client.cursor_at(0)] {
        client.resume_at(&cursor);
        client.until_answer(&json!(1));
        assert_eq!(client.number(), 7);
    }
    let end = client.cursor.clone();
    client.resume_at(&end);
    client.echo("nothing is sent again");
}

/// The older connection is most often dead; its client would be locked out until TCP finds out.
#[test]
fn a_second_get_with_the_cursor_takes_over() {
    for shards in SHARDS {
        let server = Server::stdio(&["--shards", shards]);
        let mut client = Client::start(&server);
        client.call("1", "stream", &json!({"count": 60, "interval_ms": 5}));
        for _ in 0..5 {
            client.message();
        }
        let mut old = client.resume();
        let (rest, _) = client.until_answer(&json!(1));
        assert_eq!(rest.len(), 55);
        let behind = old.events();
        assert!(behind.iter().all(|event| event.number() < client.number()), "{behind:?}");
        assert_eq!(old.end(), Some(End::Broken), "it is cut, not ended");
        assert!(old.is_closed());
        client.echo("on the new one");
    }
}

#[test]
fn cursors_that_cannot_be_served_are_told_and_disturb_nobody() {
    let server = Server::start(&[]);
    let mut client = Client::start(&server);
    let mut other = Client::start(&server);
    let id = client.session().to_owned();
    let token = client.cursor.rsplit('.').nth(1).expect("a token").to_owned();
    let theirs = other.cursor.rsplit('.').nth(1).expect("a token").to_owned();
    for number in ["3", "4294967296", "18446744073709551615"] {
        let answer = client.refused(&client.cursor_at(number));
        assert_eq!((answer.status(), answer.code()), (410, -31002), "{number}");
        let error = answer.json()["error"]["data"].clone();
        assert_eq!((&error["reason"], &error["tail"]), (&json!("cursor_ahead"), &json!(1)));
        assert_eq!(error["resume_from"], client.cursor_at(0).as_str());
    }
    let unknown = client.refused(&format!("{id}.x")).text();
    for cursor in [
        format!("{id}."),
        format!("{id}.x"),
        format!("{id}.{token}"),
        format!("{id}.{token}."),
        format!("{id}.{token}.+1"),
        format!("{id}.{token}.-1"),
        format!("{id}.{token}.01"),
        format!("{id}.{token}.1x"),
        format!("{id}.{token}.%31"),
        format!("{id}.{token}.18446744073709551616"),
        format!("{id}.{token}.{}", "1".repeat(40)),
        format!("{id}.{theirs}.1"),
        format!("{id}.{}.1", "A".repeat(24)),
        format!("{id}.{id}.1"),
    ] {
        let answer = client.refused(&cursor);
        assert_eq!((answer.status(), answer.code()), (400, -32600), "{cursor}");
        assert_eq!(answer.text(), unknown, "one body for all");
    }
    for cursor in [
        "x".to_owned(),
        "1".to_owned(),
        id.clone(),
        format!("{token}.1"),
        format!("{id}x.{token}.1"),
        format!("{}.{token}.1", &id[1..]),
        format!("{}.{token}.1", "A".repeat(24)),
        "9".repeat(2000),
    ] {
        let answer = client.refused(&cursor);
        assert_eq!((answer.status(), answer.code()), (404, -32001), "{cursor}");
    }
    let twice = format!("{}\r\nLast-Event-ID: {}", client.cursor, client.cursor_at(0));
    assert_eq!(client.refused(&twice).status(), 404, "two cursors are nobody's");
    client.echo("undisturbed");
    other.echo("undisturbed");
}

/// Events go by their budget; the refusal says what is left, and that can be had.
#[test]
fn a_cursor_whose_events_are_gone_is_410_with_where_to_go_on() {
    let server = Server::start(&["--stream-events", "16"]);
    let mut client = Client::start(&server);
    client.call("1", "stream", &json!({"count": 100, "interval_ms": 2}));
    client.until_answer(&json!(1));
    let first = client.cursor_at(2);
    let answer = client.refused(&first);
    assert_eq!((answer.status(), answer.code()), (410, -31001));
    let error = answer.json()["error"]["data"].clone();
    assert_eq!(error["reason"], "log_truncated");
    let from = error["resume_from"].as_str().expect("where to go on").to_owned();
    client.resume_at(&from);
    client.until_answer(&json!(1));
    client.echo("the session goes on");
}
