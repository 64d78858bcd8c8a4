//! What is posted, and its answers on the one stream.

use serde_json::{Value, json};

use super::client::{Client, post};
use crate::client::{Connection, NEWEST, call_body};
use crate::server::Server;

fn servers(flags: &[&str]) -> [Server; 2] {
    [Server::start(flags), Server::stdio(flags)]
}

fn sequence(messages: &[Value]) -> Vec<u64> {
    messages.iter().filter_map(|message| message["params"]["data"]["seq"].as_u64()).collect()
}

/// The client checks every event: named `message`, numbered without a hole.
#[test]
fn answers_and_notifications_come_on_the_stream_in_their_order() {
    for server in servers(&[]) {
        let mut client = Client::start(&server);
        assert_eq!(client.number(), 1);
        client.echo("hello");
        client.call("7", "stream", &json!({"count": 5, "size": 8}));
        let (before, answer) = client.until_answer(&json!(7));
        assert_eq!((sequence(&before), answer["error"].is_null()), ((1..=5).collect(), true));
        client.call(r#""s""#, "standalone", &json!({"count": 3}));
        let (mut before, _) = client.until_answer(&json!("s"));
        while before.len() < 3 {
            before.push(client.message());
        }
        assert_eq!(sequence(&before), [1, 2, 3]);
        client.post(r#"{"jsonrpc":"2.0","id":8,"method":"no/such"}"#);
        let answer = client.message();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(8), &json!(-32601)));
        client.echo("still there");
    }
}

#[test]
fn calls_at_once_are_each_answered_on_the_stream() {
    for server in servers(&[]) {
        let mut client = Client::start(&server);
        client.call("1", "sleep", &json!({"ms": 300}));
        client.call("2", "stream", &json!({"count": 4, "interval_ms": 20}));
        client.call(r#""3""#, "echo", &json!({"text": "x"}));
        let mut answers = Vec::new();
        while answers.len() < 3 {
            let message = client.message();
            if message.get("method").is_none() {
                answers.push(message["id"].clone());
            }
        }
        assert_eq!(answers, [json!("3"), json!(2), json!(1)]);
    }
}

#[test]
fn a_request_of_the_server_is_answered_by_a_post() {
    for server in servers(&[]) {
        let mut client = Client::start(&server);
        client.call("1", "test_sampling", &json!({"prompt": "x"}));
        let question = client.message();
        assert_eq!(question["method"], "sampling/createMessage", "{question}");
        let result = json!({"role": "assistant", "content": {"type": "text", "text": "forty-two"},
            "model": "m"});
        client.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}).to_string());
        let (_, answer) = client.until_answer(&json!(1));
        assert!(answer["result"]["content"].to_string().contains("forty-two"), "{answer}");
    }
}

/// A cancelled call has no answer, and its id can be used again.
#[test]
fn a_cancelled_call_is_not_answered() {
    for server in servers(&[]) {
        let mut client = Client::start(&server);
        client.call("1", "sleep", &json!({"ms": 3_600_000}));
        client.post(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        );
        client.echo("next");
        client.call("1", "echo", &json!({"text": "x"}));
        assert_eq!(client.message()["id"], 1);
    }
}

/// As JSON-RPC has them: the old base protocol says nothing else. Each answer is an event.
#[test]
fn batches_are_served_as_the_session_s_revision_has_them() {
    let batch = |ids: [u32; 2]| {
        let calls =
            ids.map(|id| call_body(&id.to_string(), "echo", &json!({"text": id.to_string()})));
        format!("[{},{}]", calls[0], calls[1])
    };
    for server in servers(&[]) {
        for revision in ["2024-11-05", "2025-03-26"] {
            let mut client = Client::start_at(&server, revision);
            client.post(&batch([1, 2]));
            let mut answers = [client.message(), client.message()].map(|answer| {
                let text = answer["result"]["content"][0]["text"].clone();
                (answer["id"].as_u64(), text.as_str().map(str::to_owned))
            });
            answers.sort_unstable();
            assert_eq!(answers, [1, 2].map(|id: u64| (Some(id), Some(id.to_string()))));
            for refused in ["[]".to_owned(), batch([3, 3])] {
                let answer = client.try_post(&refused);
                assert_eq!((answer.status(), answer.code()), (400, -32600), "{refused}");
            }
            client.echo("nothing of the refused batches was run");
        }
        let mut newer = Client::start_at(&server, NEWEST);
        let answer = newer.try_post(&batch([1, 2]));
        assert_eq!((answer.status(), answer.code()), (400, -32600));
        newer.echo("served");
    }
}

/// Connections arrive at any thread and move to the session's.
#[test]
fn posts_over_fresh_connections_find_the_session_on_every_shard() {
    for shards in ["1", "2", "4"] {
        let flags = ["--shards", shards];
        for server in servers(&flags) {
            let mut clients: Vec<Client> = (0..6).map(|_| Client::start(&server)).collect();
            for round in 0..8 {
                for (index, client) in clients.iter_mut().enumerate() {
                    client.echo(&format!("{round} of {index}"));
                }
            }
            let handed_off = server.stop().total("connections_handed_off");
            assert_eq!(handed_off > 0, shards != "1", "{shards} shards: {handed_off}");
        }
    }
}

/// One connection may carry the POSTs of several sessions.
#[test]
fn a_kept_connection_carries_posts_of_several_sessions() {
    let server = Server::start(&["--shards", "2"]);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::start(&server)).collect();
    let mut posts = Connection::open(server.address);
    for round in 0..4 {
        for client in &mut clients {
            let id = round.to_string();
            posts.send(post(&client.endpoint, &call_body(&id, "echo", &json!({"text": "x"}))));
            assert_eq!(posts.answer().status(), 202);
            assert_eq!(client.message()["id"], round);
        }
    }
}

/// More than a log holds: the producer waits for the reader, who falls out otherwise.
#[test]
fn a_producer_waits_for_the_reader_of_the_one_stream() {
    for server in servers(&[]) {
        let mut client = Client::start(&server);
        client.call("1", "stream", &json!({"count": 1500, "size": 32768}));
        std::thread::sleep(std::time::Duration::from_millis(500));
        let (before, answer) = client.until_answer(&json!(1));
        assert_eq!(sequence(&before), (1..=1500).collect::<Vec<u64>>());
        assert!(answer["error"].is_null(), "{answer}");
        assert_eq!(server.stop().total("cuts"), 0);
    }
}

#[test]
fn a_producer_with_a_thread_of_its_own_writes_to_the_one_stream() {
    let server = Server::start(&[]);
    let mut client = Client::start(&server);
    client.call("1", "stream", &json!({"count": 500, "off_core": true}));
    let (before, answer) = client.until_answer(&json!(1));
    assert_eq!(sequence(&before), (1..=500).collect::<Vec<u64>>());
    assert!(answer["error"].is_null(), "{answer}");
}

#[test]
fn an_initialize_that_failed_can_be_tried_again() {
    for server in servers(&[]) {
        let mut client = Client::connect(server.address);
        client.post(r#"{"jsonrpc":"2.0","id":"bad","method":"initialize"}"#);
        let answer = client.message();
        assert_eq!((&answer["id"], answer["error"].is_object()), (&json!("bad"), true));
        client.initialize(super::client::REVISION);
        client.echo("set up");
    }
}
