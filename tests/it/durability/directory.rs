//! The directory itself: who may use it, who may read it, and what is told of it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::numbered::{flood, primed, priming_id, token};
use crate::server::PROGRAM;

use super::{Home, ended_by_restart, read_some, session, walk};

#[test]
fn a_second_process_is_refused_and_told_by_whom() {
    let mut home = Home::new(&[]);
    let server = home.serve();
    let mut program = Command::new(PROGRAM);
    program.args(["serve", "--listen", "127.0.0.1:0", "--shards", "2", "--data-dir"]);
    let output = program.arg(&home.dir).stdin(Stdio::null()).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("in use by process {}", server.pid())), "{told}");
    assert_eq!(server.stop().code, Some(0));
    assert_eq!(home.serve().stop().code, Some(0), "the lock goes with its process");
}

fn assert_closed(dir: &Path) {
    let mut files = 0;
    walk(dir, &mut |path, metadata| {
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        let mode = metadata.permissions().mode() & 0o7777;
        assert_eq!(mode, expected, "{mode:o} {}", path.display());
        files += u32::from(metadata.is_file());
    });
    assert!(files >= 4, "lock, meta and two segments at the least: {files}");
}

#[test]
fn nobody_else_can_read_it() {
    let mut home = Home::new(&[]);
    std::fs::create_dir(&home.dir).expect("made");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&home.dir, open).expect("set");
    let server = home.serve();
    session(&server).call("1", "echo", &json!({"text": "t"})).result();
    assert_closed(&home.dir);
    server.kill();
    home.serve().stop();
    assert_closed(&home.dir);
}

/// Who can read the logs must not be able to resume other people's streams.
#[test]
fn no_token_session_id_or_body_is_logged() {
    let mut home = Home::new(&["--drain-timeout", "200ms"]);
    let server = home.serve();
    let session = session(&server);
    let body = "a-body-that-is-nobodys-business";
    let answer = session.call("1", "echo", &json!({"text": body})).result();
    assert!(answer.to_string().contains(body), "{answer}");
    let standalone = priming_id(&mut session.listen());
    let mut call = session.call("2", "stream", &flood(100_000, 10, 1));
    let cursor = read_some(&mut call, 3);
    let mut logs = server.kill().logs;
    let server = home.serve();
    ended_by_restart(&session, &cursor, 2);
    primed(&mut session.resume(&standalone));
    logs.extend(server.stop().logs);
    assert!(!logs.is_empty());
    for line in logs {
        let line = line.to_string();
        for secret in [&session.id, token(&standalone), token(&cursor), body] {
            assert!(!line.contains(secret), "{secret} in {line}");
        }
    }
}
