//! stdio servers behind a gapless that was restarted.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::client::{Connection, NEWEST, Session};
use crate::numbered::{flood, primed, priming_id};
use crate::server::{PROGRAM, Server, eventually};

use super::{Home, echoes, ended_by_restart, let_it_run, read_some};

/// A child that notes every line it reads in `told`, answers every request, and asks a question in
/// the middle of a call of `ask`.
fn noting(told: &Path) -> String {
    format!(
        r#"while read -r line; do
        printf '%s\n' "$line" >> '{}'
        id=${{line#*\"id\":}}; id=${{id%%,*}}
        case "$line" in
            *'"initialize"'*)
                printf '{{"jsonrpc":"2.0","id":%s,"result":{{"protocolVersion":"2025-11-25",' "$id"
                printf '"capabilities":{{}},"serverInfo":{{"name":"s","version":"0"}}}}}}\n';;
            *'"ask"'*)
                printf '{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{{'
                printf '"message":"m","requestedSchema":{{"type":"object",'
                printf '"properties":{{}}}}}}}}\n';;
            *'"id":"q"'*|*'"notifications/'*) ;;
            *) printf '{{"jsonrpc":"2.0","id":%s,"result":{{}}}}\n' "$id";;
        esac
    done"#,
        told.display()
    )
}

/// A home whose children note what they read, and the file where they do.
fn noted(flags: &[&str]) -> (Home, PathBuf) {
    let home = Home::new(flags);
    let told = home.dir.with_extension("told");
    (home.behind(&["sh", "-c", &noting(&told)]), told)
}

/// What the children have read; the file is begun anew.
fn take(told: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(told).unwrap_or_default();
    let _ = std::fs::remove_file(told);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn ask_for(session: &Session, method: &str, params: &Value) {
    let body = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
    let answer = session.post(&body.to_string()).result();
    assert!(answer["result"].is_object(), "{answer}");
}

#[test]
fn a_child_is_started_again_on_first_use_and_set_up_as_its_session_was() {
    let (mut home, told) = noted(&[]);
    let server = home.serve();
    let session = Session::start(&server, NEWEST);
    ask_for(&session, "logging/setLevel", &json!({"level": "debug"}));
    ask_for(&session, "logging/setLevel", &json!({"level": "error"}));
    for uri in ["file:///a", "file:///b"] {
        ask_for(&session, "resources/subscribe", &json!({"uri": uri}));
    }
    ask_for(&session, "resources/unsubscribe", &json!({"uri": "file:///a"}));
    let first = take(&told);
    let mut server = server;
    for end in [Server::kill, Server::stop] {
        end(server);
        server = home.serve();
        assert_eq!(server.children().len(), 0, "nobody has asked for one");
        ask_for(&session, "tools/list", &json!({}));
        assert_eq!(server.children().len(), 1);
        let again = take(&told);
        let methods: Vec<&str> = again.iter().filter_map(|line| line["method"].as_str()).collect();
        assert_eq!(
            methods[..4],
            ["initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe"],
            "{again:?}"
        );
        assert_eq!(methods[4..], ["tools/list"], "once each");
        assert_eq!(again[0]["params"], first[0]["params"], "the session's own parameters");
        assert_eq!(again[2]["params"], json!({"level": "error"}), "the last level");
        assert_eq!(again[3]["params"], json!({"uri": "file:///b"}), "what is still subscribed");
    }
    let _ = std::fs::remove_file(&told);
}

/// The call of this id, and the id of the question that the child asks in the middle of it.
fn question(session: &Session, id: &str) -> (Connection, Value) {
    let mut call = session.call(id, "ask", &json!({}));
    assert_eq!(call.head().status, 200);
    let message = call.message().expect("a question").json();
    assert_eq!(message["method"], "elicitation/create", "{message}");
    (call, message["id"].clone())
}

/// The user answered after the restart: that must not approve the question of another child.
#[test]
fn a_late_answer_to_a_question_of_before_the_restart_never_reaches_a_new_one() {
    let (mut home, told) = noted(&["--answers", "sse"]);
    let server = home.serve();
    let session = Session::start(&server, NEWEST);
    let (_call, old) = question(&session, "1");
    server.kill();
    let _server = home.serve();
    let answer = |id: &Value, action: &str| {
        let body = json!({"jsonrpc": "2.0", "id": id, "result": {"action": action}});
        assert_eq!(session.post(&body.to_string()).answer().status(), 202);
    };
    answer(&old, "accept");
    let (_call, new) = question(&session, "2");
    assert_ne!(old, new);
    answer(&old, "accept");
    answer(&new, "decline");
    let mut lines = Vec::new();
    eventually("the answer reaches the child", || {
        lines.extend(take(&told));
        lines.iter().any(|line| line["result"]["action"] == "decline")
    });
    assert!(!lines.iter().any(|line| line["result"]["action"] == "accept"), "{lines:?}");
}

#[test]
fn a_call_of_a_child_that_died_with_the_server_ends_with_the_error_and_the_session_goes_on() {
    let mut home = Home::new(&[]).behind(&[PROGRAM, "stdio"]);
    let server = home.serve();
    let session = Session::start(&server, NEWEST);
    let mut get = session.listen();
    let standalone = priming_id(&mut get);
    let mut call = session.call("3", "stream", &flood(100_000, 100, 1));
    let cursor = read_some(&mut call, 10);
    let_it_run(&server, 10_000, &home);
    server.kill();
    let _server = home.serve();
    let end = ended_by_restart(&session, &cursor, 3);
    assert!(end > 11);
    assert_eq!(ended_by_restart(&session, &cursor, 3), end);
    assert_eq!(primed(&mut session.resume(&standalone)), standalone);
    echoes(&session, "after");
}
