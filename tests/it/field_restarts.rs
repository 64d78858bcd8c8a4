//! What a restarted child is, how often there is one, and what any child gets of the gateway.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Connection, NEWEST, Session, ask, call_body, initialize_body, post};
use crate::scripted::child;
use crate::server::{PROGRAM, Server, eventually};

/// A child that cannot be set up again is tried ever more seldom, however many calls come; each
/// of them is told at once, and no other session pays.
#[test]
fn a_child_that_crashes_at_each_restart_is_restarted_ever_more_seldom() {
    let mark = std::env::temp_dir().join(format!("gapless-crashes-{}", std::process::id()));
    let rest = r#"while read -r line; do
        take "$line"
        case "$line" in *'"die"'*) exit 9;; *) answer '{}';; esac
    done"#;
    let script = format!("[ -e '{}' ] && exit 7\n{}", mark.display(), child(rest));
    let server = Server::shell(&[], &script);
    let [crashing, other] = [(); 2].map(|()| Session::start(&server, NEWEST));
    std::fs::write(&mark, "").expect("a mark");
    let died = crashing.call("0", "die", &json!({})).result();
    assert_eq!(died["error"]["code"], -31005);
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        let answer = crashing.call("1", "any", &json!({})).result();
        assert_eq!(answer["error"]["code"], -31005, "{answer}");
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        assert!(other.call("2", "any", &json!({})).result()["result"].is_object());
        calls += 1;
    }
    std::fs::remove_file(&mark).expect("the mark was made");
    // It works again: the session was not given up.
    eventually("the child is restarted", || {
        let answer = crashing.call("3", "any", &json!({})).result();
        answer["result"].is_object()
    });
    let started = server.stop().total("children_started");
    // Two at first, and in three seconds, with pauses from 100 ms that double, at most six.
    assert!((4..=10).contains(&started), "{started} starts for {calls} calls");
    assert!(calls > 20, "{calls}: calls were not answered at once");
}

/// The question that a call of this tool makes the child ask; none while it is not restarted.
fn question(session: &Session, id: &str) -> Option<(Connection, Value)> {
    let mut call = session.call(id, "ask", &json!({}));
    assert_eq!(call.head().status, 200);
    let message = call.message().expect("a message").json();
    message.get("method").is_some().then(|| (call, message["id"].clone()))
}

/// Every incarnation of a child names its first question alike; the client's answer to the one of
/// a child that is gone must not approve another.
#[test]
fn a_late_answer_never_reaches_the_question_of_another_incarnation() {
    let rest = r#"while read -r line; do
        printf 'child reads %s\n' "$line" >&2
        case "$line" in
            *'"ask"'*)
                printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{'
                printf '"message":"m","requestedSchema":{"type":"object","properties":{}}}}\n';;
            *'"die"'*) exit 9;;
        esac
    done"#;
    let server = Server::shell(&["--answers", "sse"], &child(rest));
    let session = Session::start(&server, NEWEST);
    let (_first, first) = question(&session, "1").expect("a question");
    assert_eq!(session.call("2", "die", &json!({})).result()["error"]["code"], -31005);
    let mut second = None;
    eventually("the child asks again", || {
        second = question(&session, "3");
        second.is_some()
    });
    let (_second, second) = second.expect("it was just there");
    assert_ne!(first, second);
    for (id, action) in [(&first, "accept"), (&second, "decline")] {
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"action": action}});
        assert_eq!(session.post(&answer.to_string()).answer().status(), 202);
    }
    let read = server.wait_for_log("the second answer", |line| {
        line["message"].as_str().is_some_and(|text| text.contains("decline"))
    });
    assert!(read["message"].as_str().unwrap().contains(r#""id":"q""#), "{read}");
    let accepted = |line: &Value| line["message"].as_str().is_some_and(|t| t.contains("accept"));
    assert!(!server.logs().iter().any(accepted), "the late answer reached the wrong question");
}

/// What is in the gateway's environment may be a secret: a child gets what any program needs and
/// what the operator named, and starts where it was told to.
#[test]
fn a_child_gets_no_secret_of_the_gateway_s_environment() {
    let mut program = Command::new(PROGRAM);
    program
        .env("GATEWAY_TOKEN", "secret-1")
        .env("AWS_SECRET_ACCESS_KEY", "secret-2")
        .env("GAPLESS_RETENTION", "5m")
        .env("LD_PRELOAD", "")
        .env("NAMED", "passed on")
        .env("LANG", "C");
    let here = std::env::temp_dir().canonicalize().expect("it exists");
    let here = here.to_str().expect("text");
    let flags = ["--env", "NAMED", "--env", "MODE=a=b", "--env", "ABSENT", "--cwd", here];
    let script = "env | sed 's/^/variable /' >&2; printf 'starts in %s\\n' \"$(pwd -P)\" >&2";
    let server = Server::launch(program, &flags, &["sh", "-c", script]);
    let answer = ask(server.address, post("", &initialize_body(NEWEST)));
    assert_eq!(answer.code(), -31005, "it is no MCP server");
    server.wait_for_log("where it starts", |line| line["message"] == format!("starts in {here}"));
    let stopped = server.stop();
    let text: String = stopped.logs.iter().map(|line| format!("{line}\n")).collect();
    for secret in ["secret-1", "secret-2", "GATEWAY_TOKEN", "AWS_SECRET", "GAPLESS_", "LD_PRELOAD"]
    {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let messages: Vec<&str> = stopped.logs.iter().filter_map(|l| l["message"].as_str()).collect();
    for variable in ["variable NAMED=passed on", "variable MODE=a=b", "variable LANG=C"] {
        assert!(messages.contains(&variable), "{variable}: {messages:#?}");
    }
    assert!(messages.iter().any(|text| text.starts_with("variable PATH=/")), "{messages:#?}");
    assert!(!messages.iter().any(|text| text.starts_with("variable ABSENT")), "{messages:#?}");
}

/// A body of the client can hold what looks like one of the gateway's own ids.
#[test]
fn no_client_can_pass_for_the_gateway_s_own_set_up() {
    let server = Server::stdio(&[]);
    let session = Session::start(&server, NEWEST);
    for id in [r#""gapless:setup""#, r#""gapless:setup:0""#, "1", "2"] {
        let answer = session.post(&call_body(id, "echo", &json!({"text": "t"}))).result();
        assert_eq!(answer["id"].to_string(), id);
        assert_eq!(answer["result"]["content"][0]["text"], "t");
    }
}
