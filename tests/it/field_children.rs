//! A child that dies, never starts, or says what it should not.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Connection, End, NEWEST, Session, ask, call_body, initialize_body, post};
use crate::scripted::{child, until_restarted};
use crate::server::{Server, eventually};

const LIST: &str = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;
const MIB: u64 = 1024 * 1024;
/// More than the promised second by what a busy machine needs to start a process.
const SOON: Duration = Duration::from_secs(5);

/// Answers everything, but for what its name says of it.
const MORTAL: &str = r#"
    while read -r line; do
        take "$line"
        case "$line" in
            *'"hang"'*) ;;
            *'"die"'*) echo last words >&2; exit 9;;
            *'"half"'*) printf '{"jsonrpc":"2.0","id":%s,"resu' "$id"; exit 9;;
            *'"killed"'*) kill -9 $$;;
            *'"mute"'*) exec >&-; while :; do sleep 1000; done;;
            *) answer '{"content":[]}';;
        esac
    done"#;

fn open(session: &Session, id: &str, tool: &str) -> Connection {
    let mut call = session.call(id, tool, &json!({}));
    let head = call.head();
    assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")));
    call
}

/// The stream ends with the error for this call, at once.
fn expect_lost(call: &mut Connection, id: Value, since: Instant) {
    let answer = call.message().expect("a final answer").json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-31005)), "{answer}");
    assert!(call.message().is_none());
    assert_eq!(call.end(), Some(End::Whole));
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

/// A crash during a call left the caller waiting for ever, and the session a
/// zombie. Whatever the end looks like: each open call is told on its own stream, the reason is
/// logged, the listener survives, the next call gets a fresh child, and no other session notices.
#[test]
fn however_a_child_ends_its_calls_are_told_and_the_session_goes_on() {
    let server = Server::shell(&["--child-grace", "200ms"], &child(MORTAL));
    let other = Session::start(&server, NEWEST);
    let untouched = server.children();
    let ways = [
        ("die", "exit status 9", 1),
        ("half", "exit status 9", 2),
        ("killed", "signal 9", 1),
        ("mute", "signal 15", 1),
    ];
    for (way, how, times) in ways {
        let session = Session::start(&server, NEWEST);
        let mut listener = session.listen();
        let mut pending = open(&session, "1", "hang");
        let since = Instant::now();
        let mut last = open(&session, "\"2\"", way);
        expect_lost(&mut pending, json!(1), since);
        expect_lost(&mut last, json!("2"), since);
        eventually("the reason is in the log", || {
            let of_it = |line: &&Value| line["message"] == "child exited" && line["how"] == how;
            server.logs().iter().filter(of_it).count() == times
        });
        let echo = until_restarted(&session, &call_body("3", "echo", &json!({})));
        assert_eq!(echo["result"], json!({"content": []}), "{way}");
        assert_eq!(session.delete().status(), 200);
        assert!(listener.message().is_none());
        assert_eq!(listener.end(), Some(End::Whole), "{way}: it survived");
    }
    eventually("every child is reaped but the other's", || server.children() == untouched);
    assert_eq!(other.post(LIST).result()["id"], "list");
    let last =
        |line: &Value| line["stderr_tail"].as_str().is_some_and(|t| t.contains("last words"));
    assert!(server.logs().iter().any(last), "what the child said before it died is in the log");
}

/// Whatever never starts, `initialize` fails at once, by a
/// JSON-RPC error for its id, and leaves neither session nor child.
#[test]
fn a_child_that_never_answers_initialize_fails_it_at_once() {
    let here = env!("CARGO_MANIFEST_DIR");
    let manifest = format!("{here}/Cargo.toml");
    let scripts = [
        "echo broken >&2; exit 3",
        "exit 0",
        "read -r line; exit 0",
        "echo Server running; exit 0",
        "exec <&-; exit 1",
        "exec >&-; read -r line; exit 1",
        "kill -11 $$",
        r#"printf '{"jsonrpc":"2.0","id":1,"resu'; exit 3"#,
    ];
    let mut commands = vec![vec!["/no/such/program"], vec![here], vec![manifest.as_str()]];
    commands.extend(scripts.iter().map(|script| vec!["sh", "-c", *script]));
    for command in &commands {
        let server = Server::start_with(&["--child-grace", "200ms"], command);
        let start = Instant::now();
        let answer = ask(server.address, post("", &initialize_body(NEWEST)));
        assert!(start.elapsed() < SOON, "{command:?}: {:?}", start.elapsed());
        assert_eq!((answer.status(), answer.code()), (200, -31005), "{command:?}");
        assert_eq!(answer.json()["id"], "init", "{command:?}");
        assert_eq!(answer.field("mcp-session-id"), None, "{command:?}");
        eventually("nothing is left", || server.children().is_empty());
        let stopped = server.stop();
        assert_eq!(stopped.code, Some(0));
        assert_eq!(stopped.total("sessions_started"), stopped.total("sessions_ended"));
        assert_eq!(stopped.total("children_started"), stopped.total("children_exited"));
    }
}

/// Lines that are no message, then 2 MiB of stderr without a newline, then an answer of 5 MiB.
fn noisy(writer: &str) -> String {
    child(&format!(
        r#"
        read -r line; take "$line"
        printf 'Server running\n\n   \n\033[32mok\033[0m\nnull\n42\n{{"status":200}}\n'
        printf '\377\376\n{{"jsonrpc":"2.0"\n\357\273\277{{}}\n"text"\n[]\n[42]\ntrue\n\0\n'
        head -c 2097152 /dev/zero | tr '\0' e >&2
        {{ printf '{{"jsonrpc":"2.0","id":%s,"result":{{"text":"' "$id"
           head -c 5242880 /dev/zero | tr '\0' x
           printf '"}}}}\n'; }} | {writer}
        read -r line; take "$line"; answer '{{}}'
        read -r line"#
    ))
}

/// A banner, a bare JSON value or a bad byte ended the transport; stderr that nobody read
/// blocked the child; a large line was cut, or was not, by how the pipe had cut it.
#[test]
fn junk_and_a_flood_of_stderr_before_a_large_answer() {
    for writer in ["cat", "dd bs=8M iflag=fullblock 2>/dev/null", "dd bs=4096 2>/dev/null"] {
        let server = Server::shell(&[], &noisy(writer));
        let session = Session::start(&server, NEWEST);
        let mut listener = session.listen();
        let mut call = session.post(LIST);
        assert_eq!(call.head().status, 200);
        let answer = call.message().expect("the answer").json();
        assert_eq!(answer["id"], "list");
        let text = answer["result"]["text"].as_str().expect("a text");
        assert!(text.len() == 5 << 20 && text.bytes().all(|byte| byte == b'x'), "{}", text.len());
        assert!(call.message().is_none(), "{writer}");
        server.wait_for_log("the junk", |line| line["line"] == "Server running");
        assert_eq!(session.post(LIST).result()["result"], json!({}), "the session is alive");
        assert_eq!(session.delete().status(), 200);
        assert!(listener.message().is_none(), "junk is on no stream");
    }
}

/// One byte over the limit costs the call that it answered; at the limit all passes, and
/// how the pipe cuts the line makes no difference.
#[test]
fn the_limit_of_a_line_is_exact_however_the_pipe_cuts_it() {
    const LIMIT: usize = 64 * 1024;
    for writer in ["cat", "dd bs=4096 2>/dev/null", "dd bs=4097 2>/dev/null"] {
        let line = |id: u32, bytes: usize| {
            let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":""#);
            let padding = bytes - head.len() - 3;
            format!(
                "read -r line; {{ printf '{head}'; head -c {padding} /dev/zero | tr '\\0' x; \
                 printf '\"}}}}\\n'; }} | {writer}\n"
            )
        };
        let lines = line(2, LIMIT) + &line(3, LIMIT + 1) + &line(4, 100) + "read -r line";
        let server = Server::shell(&["--event-bytes", "64KiB"], &child(&lines));
        let session = Session::start(&server, NEWEST);
        let at_the_limit = session.post(LIST).result();
        assert!(at_the_limit["result"]["x"].is_string(), "{:.200}", at_the_limit.to_string());
        let over = session.post(LIST).result();
        assert_eq!((&over["id"], &over["error"]["code"]), (&json!("list"), &json!(-32603)));
        assert!(session.post(LIST).result()["result"]["x"].is_string(), "in step again");
    }
}

/// A line without an end grew memory for ever.
#[test]
fn a_line_without_an_end_costs_no_more_than_the_limit() {
    let rest = r#"
        read -r line; take "$line"
        head -c 200000000 /dev/zero | tr '\0' x; echo
        answer '{}'
        read -r line"#;
    let server = Server::shell(&["--event-bytes", "1MiB"], &child(rest));
    let session = Session::start(&server, NEWEST);
    let before = server.resident();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| session.post(LIST).result());
        let mut most = before;
        while !answer.is_finished() {
            most = most.max(server.resident());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(answer.join().expect("an answer")["result"], json!({}));
        assert!(most - before <= 8 * MIB, "{} bytes more", most - before);
    });
}
