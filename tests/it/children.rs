//! `docs/wire.md`, "Between client and child": a child's life as the client sees it.

use serde_json::{Value, json};

use crate::client::{ACCEPT_BOTH, Connection, End, NEWEST, Session, ask, call_body, post};
use crate::server::{Server, eventually, is_alive};

const FOREVER: u64 = 3_600_000;
const LIST: &str = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;

/// Answers `initialize`, then runs `rest`; the client's first request has the id 2 there.
fn script(rest: &str) -> String {
    format!(
        r#"
        read -r first; printf 'child reads %s\n' "$first" >&2
        printf '{{"jsonrpc":"2.0","id":%s,"result":{{"protocolVersion":"2025-11-25",' \
            "$(printf '%s' "$first" | sed 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/')"
        printf '"capabilities":{{}},"serverInfo":{{"name":"s","version":"0"}}}}}}\n'
        read -r initialized; printf 'child reads %s\n' "$initialized" >&2
        {rest}"#
    )
}

fn kill(pid: u32) {
    let pidfd = gapless::sys::pidfd::pidfd_open(pid).expect("the child lives");
    let pidfd = std::os::fd::AsFd::as_fd(&pidfd);
    gapless::sys::pidfd::send_signal(pidfd, libc::SIGKILL).expect("it can be killed");
}

fn open(session: &Session, id: &str) -> Connection {
    let mut call = session.call(id, "sleep", &json!({"ms": FOREVER}));
    assert_eq!(call.head().status, 200);
    call
}

/// A child that dies soon after its start is restarted after a pause; until then calls fail.
fn until_restarted(session: &Session, body: &str) -> Value {
    let mut answer = Value::Null;
    eventually("the child is restarted", || {
        answer = session.post(body).result();
        answer["error"]["code"] != -31005
    });
    answer
}

#[test]
fn a_child_that_is_killed_fails_each_pending_call_on_its_own_stream_and_the_next_one_restarts_it() {
    let server = Server::stdio(&[]);
    let session = Session::start(&server, NEWEST);
    let mut listener = session.listen();
    let mut calls = ["1", "\"two\""].map(|id| open(&session, id));
    let child = server.children()[0];
    kill(child);
    for (call, id) in calls.iter_mut().zip([json!(1), json!("two")]) {
        let answer = call.message().expect("a final answer").json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-31005)));
        assert!(call.message().is_none());
        assert_eq!(call.end(), Some(End::Whole));
    }
    let body = call_body("3", "echo", &json!({"text": "again"}));
    let answer = until_restarted(&session, &body);
    assert_eq!(answer["result"]["content"][0]["text"], "again");
    assert!(!server.children().contains(&child));
    // The listener survives the restart. It gets what may belong to either of two calls.
    let _pending = open(&session, "5");
    session.call("4", "standalone", &json!({"count": 1})).result();
    assert_eq!(listener.message().expect("a message").json()["method"], "notifications/message");
    assert_eq!(server.stop().total("children_started"), 2);
}

/// The errors are in the log: whoever was away can fetch them.
#[test]
fn a_client_that_was_away_learns_of_the_child_s_death() {
    let server = Server::stdio(&[]);
    let session = Session::start(&server, NEWEST);
    let mut call = open(&session, "1");
    call.event().expect("the priming event");
    let cursor = call.cursor().expect("a cursor");
    drop(call);
    kill(server.children()[0]);
    server.wait_for_log("the exit", |line| line.to_string().contains("signal"));
    let mut resumed = session.resume(&cursor);
    assert_eq!(resumed.head().status, 200);
    let answer = resumed.message().expect("the error").json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-31005)));
    assert!(resumed.message().is_none());
}

#[test]
fn a_restarted_child_is_set_up_with_the_session_s_own_parameters() {
    let rest = r#"
        while read -r line; do
            printf 'child reads %s\n' "$line" >&2
            case "$line" in *die*) exit 9;; esac
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id"
        done"#;
    let server = Server::shell(&[], &script(rest));
    let session = Session::start(&server, NEWEST);
    let level =
        r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}"#;
    assert_eq!(session.post(level).result()["error"], Value::Null);
    let died = session.post(r#"{"jsonrpc":"2.0","id":2,"method":"die"}"#).result();
    assert_eq!(died["error"]["code"], -31005);
    assert_eq!(until_restarted(&session, LIST), json!({"jsonrpc":"2.0","id":"list","result":{}}));
    let logs = server.logs();
    let texts = logs.iter().filter_map(|line| line["message"].as_str());
    let read: Vec<&str> = texts.filter(|text| text.starts_with("child reads")).collect();
    let initializes: Vec<&&str> =
        read.iter().filter(|line| line.contains("protocolVersion")).collect();
    assert_eq!(initializes.len(), 2, "{read:#?}");
    assert!(initializes.iter().all(|line| line.contains("clientInfo")), "{read:#?}");
    let count = |text: &str| read.iter().filter(|line| line.contains(text)).count();
    assert_eq!(
        (count("notifications/initialized"), count("logging/setLevel")),
        (2, 2),
        "{read:#?}"
    );
}

#[test]
fn a_restarted_child_that_differs_ends_the_session() {
    let rest = r#"read -r line; exit 9"#;
    // It names another revision the second time.
    let mark = std::env::temp_dir().join(format!("gapless-differs-{}", std::process::id()));
    let first = script(rest);
    let second = first.replace("2025-11-25", "2025-06-18");
    let both =
        format!("if [ -e '{0}' ]; then {second}\nelse : > '{0}'; {first}\nfi", mark.display());
    let server = Server::shell(&[], &both);
    let session = Session::start(&server, NEWEST);
    assert_eq!(session.post(LIST).result()["error"]["code"], -31005);
    eventually("the session has ended", || {
        let mut connection = session.post(LIST);
        connection.head().status == 404
    });
    std::fs::remove_file(&mark).expect("the mark was made");
}

/// Story: the call of a client that takes JSON only was answered 404 instead of by its error.
#[test]
fn where_the_operator_says_so_a_child_s_exit_ends_the_session() {
    let server = Server::stdio(&["--on-child-exit", "end-session"]);
    let session = Session::start(&server, NEWEST);
    let mut listener = session.listen();
    let mut call = open(&session, "1");
    // A client that takes JSON only waits without having seen a byte.
    let body = call_body("2", "stream", &json!({"count": 2, "interval_ms": FOREVER}));
    let request = post(&session.fields(), &body).replace(ACCEPT_BOTH, "application/json");
    let mut json_only = Connection::open(server.address);
    json_only.send(request);
    assert!(listener.message().is_some(), "the call is under way");
    kill(server.children()[0]);
    let answer = call.message().expect("a final answer").json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-31005)));
    let answer = json_only.result();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(2), &json!(-31005)));
    assert!(listener.message().is_none());
    assert_eq!(listener.end(), Some(End::Whole));
    assert_eq!(session.post(LIST).answer().status(), 404);
}

#[test]
fn junk_on_stdout_never_reaches_a_stream() {
    let rest = r#"
        read -r line
        printf 'Server running\n\n   \n\033[32mok\033[0m\nnull\n42\n{"status":200}\n\377\376\n'
        printf '{"jsonrpc":"2.0"\n{"jsonrpc":"2.0","id":77,"result":{}}\n'
        printf '{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}\n'
        read -r line"#;
    let server = Server::shell(&[], &script(rest));
    let session = Session::start(&server, NEWEST);
    let mut listener = session.listen();
    let mut call = session.post(LIST);
    let answer = call.result();
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": "list", "result": {"tools": []}}));
    assert!(call.message().is_none());
    server.wait_for_log("the junk", |line| line.to_string().contains("Server running"));
    assert_eq!(session.delete().status(), 200);
    assert!(listener.message().is_none());
}

/// 5 MiB in one line, in and out, with everything that a re-encoding would change.
#[test]
fn large_messages_pass_byte_for_byte() {
    // `read` and `sed -u` would take one byte at a time.
    let rest = r#"head -n 1 | sed 's/"method":"tools.call","params"/"result"/'; sleep 1000"#;
    let server = Server::shell(&[], &script(rest));
    let session = Session::start(&server, NEWEST);
    let odd = r#"{"a":9223372036854775807,"b":123456789012345678901234567890,"c":1.0,"d":1e5,
        "e":0.1000,"f":-0,"g":1e400,"h":"\ud800","i":"\u00e9é\u2028 😀","a":2}"#
        .replace('\n', "");
    let large = "x".repeat(5 * 1024 * 1024);
    let params = format!(r#"{{"name":"t","arguments":{odd},"large":"{large}"}}"#);
    let id = "\"\\u0041\"";
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
    let mut call = session.post(&body);
    assert_eq!(call.head().status, 200);
    let message = call.message().expect("the answer");
    let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{params}}}"#);
    assert!(message.data == expected, "{} bytes of {}", message.data.len(), expected.len());
}

#[test]
fn a_line_over_the_limit_costs_its_own_call_only() {
    let server = Server::shell(
        &["--event-bytes", "64KiB"],
        &script(
            r#"read -r line
            printf '{"jsonrpc":"2.0","id":2,"result":{"x":"'
            head -c 100000 /dev/zero | tr '\0' x
            printf '"}}\n'
            read -r line; printf '{"jsonrpc":"2.0","id":3,"result":{}}\n'
            read -r line"#,
        ),
    );
    let session = Session::start(&server, NEWEST);
    let lost = session.post(LIST).result();
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!("list"), &json!(-32603)));
    assert_eq!(session.post(LIST).result()["result"], json!({}));
}

/// Gone with it: the wrapper, the server behind it, and whatever they started.
#[test]
fn no_process_is_left_after_delete_or_sigterm() {
    let stubborn = script("trap '' TERM; sleep 1000 & while :; do sleep 1000; done");
    let server = Server::shell(&["--child-grace", "100ms"], &stubborn);
    let sessions = [(); 2].map(|()| Session::start(&server, NEWEST));
    let mut descendants = Vec::new();
    eventually("the children have started theirs", || {
        descendants = server.children().iter().flat_map(|&child| children_of(child)).collect();
        descendants.len() >= 4
    });
    let children = server.children();
    assert_eq!(children.len(), 2);
    assert_eq!(sessions[0].delete().status(), 200);
    eventually("one child is gone", || server.children().len() == 1);
    let stopped = server.stop();
    assert_eq!((stopped.code, stopped.total("children_exited")), (Some(0), 2));
    for pid in children.into_iter().chain(descendants) {
        eventually("the process is gone", || !is_alive(pid));
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let list = std::fs::read_to_string(path).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// An answer for a child that is gone must not approve another question.
#[test]
fn the_open_question_of_a_child_that_died_is_taken_back() {
    let server = Server::stdio(&[]);
    let session = Session::start(&server, NEWEST);
    let mut call = session.call("1", "test_sampling", &json!({"prompt": "hi"}));
    assert_eq!(call.head().status, 200);
    let question = call.message().expect("the question").json();
    kill(server.children()[0]);
    // On the stream that carried it, so before that stream's end.
    let taken_back = call.message().expect("a notification").json();
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    let answer = call.message().expect("the final answer").json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-31005)));
    let late = json!({"jsonrpc": "2.0", "id": question["id"], "result": {}}).to_string();
    assert_eq!(session.post(&late).answer().status(), 202);
    let list = until_restarted(&session, LIST);
    assert!(list["result"]["tools"].is_array());
    assert_eq!(ask(server.address, post(&session.fields(), &late)).status(), 202);
}

/// What a child does not read is kept up to a bound: then notifications are refused, and requests
/// are told so.
#[test]
fn a_child_that_does_not_read_is_given_no_more_than_the_bound() {
    let flags = ["--stdin-bytes", "64KiB", "--event-bytes", "32KiB", "--body-bytes", "32KiB"];
    let server = Server::shell(&flags, &script("sleep 1000"));
    let session = Session::start(&server, NEWEST);
    let padding = "x".repeat(30 * 1024);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"p": padding}});
    let statuses: Vec<u16> =
        (0..20).map(|_| session.post(&note.to_string()).answer().status()).collect();
    let taken = statuses.iter().filter(|&&status| status == 202).count();
    // The pipe holds 64 KiB too.
    assert!((2..=6).contains(&taken), "{statuses:?}");
    assert!(statuses[taken..].iter().all(|&status| status == 503), "{statuses:?}");
    let refused = session.call("1", "any", &json!({"p": padding})).result();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32000)));
}

/// White space that ends a line of the event stream, and characters that end one elsewhere.
#[test]
fn line_ends_inside_a_message_do_not_end_its_event() {
    let rest = r#"
        read -r line
        printf '{"jsonrpc":"2.0","method":"notifications/message",'
        printf '"params":{"level":"info",\r"data":"a"}}\r\n'
        printf '{"jsonrpc":"2.0","id":2,"result":{"content":[]\r,\r"event":\r'
        printf '"A😀B\342\200\250C\342\200\251D\302\205E"}}\n'
        read -r line"#;
    let server = Server::shell(&[], &script(rest));
    let session = Session::start(&server, NEWEST);
    let mut call = session.post(LIST);
    assert_eq!(call.head().status, 200);
    let events = call.events();
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!(events[1].json()["params"], json!({"level": "info", "data": "a"}));
    let result = &events[2].json()["result"];
    assert_eq!(result, &json!({"content": [], "event": "A😀B\u{2028}C\u{2029}D\u{85}E"}));
}

/// Each message goes its own way.
#[test]
fn a_batch_of_a_child_is_split() {
    let rest = r#"
        read -r one; read -r two
        printf '[{"jsonrpc":"2.0","id":3,"result":{"n":2}},'
        printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"},'
        printf '{"jsonrpc":"2.0","id":2,"result":{"n":1}}]\n'
        read -r line"#;
    let server = Server::shell(&[], &script(rest));
    let session = Session::start(&server, NEWEST);
    let mut listener = session.listen();
    let mut first = open(&session, "\"first\"");
    let mut second = open(&session, "\"second\"");
    for (call, number) in [(&mut first, 1), (&mut second, 2)] {
        assert_eq!(call.message().expect("an answer").json()["result"]["n"], number);
        assert!(call.message().is_none());
    }
    let note = listener.message().expect("the notification").json();
    assert_eq!(note["method"], "notifications/tools/list_changed");
}
