//! Several servers in one process, out of a configuration file: each at its own paths, none in the
//! way of another.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::client::{NEWEST, Session, ask, bare, initialize_body, post};
use crate::data::Data;
use crate::server::{PROGRAM, Server};

/// A folder of a test with a configuration file in it.
struct Files(Data);

impl Files {
    fn new(name: &str, text: &str) -> Self {
        let data = Data::new(name);
        std::fs::create_dir_all(data.path()).expect("made");
        let files = Self(data);
        files.write(text);
        files
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).expect("written");
    }

    fn path(&self) -> String {
        self.0.join("gapless.toml").display().to_string()
    }
}

fn two_servers() -> String {
    format!(
        "[server.demo]\nbuiltin = true\n\n[server.child]\ncommand = [{PROGRAM:?}, \"stdio\"]\n\
         env = [\"MARK=here\"]\n"
    )
}

/// The same request at another path.
fn at(path: &str, request: &str) -> String {
    request.replacen("/mcp", path, 1)
}

#[test]
fn each_server_is_served_at_its_own_path() {
    let files = Files::new("servers", &two_servers());
    let server = Server::start(&["--config", &files.path()]);
    for path in ["/demo/mcp", "/child/mcp"] {
        let answer = ask(server.address, at(path, &post("", &initialize_body(NEWEST))));
        assert_eq!(answer.status(), 200, "{path}");
        assert!(answer.field("mcp-session-id").is_some(), "{path}");
    }
    assert_eq!(server.children().len(), 1, "a child for the session of one server alone");
    assert_eq!(ask(server.address, post("", &initialize_body(NEWEST))).status(), 404);
    assert_eq!(server.stop().code, Some(0));
}

/// A session's id is worth nothing at another server's path: the answer is the one for an id that
/// nobody has.
#[test]
fn a_session_of_one_server_is_unknown_at_anothers_path() {
    let files = Files::new("servers-apart", &two_servers());
    let server = Server::start(&["--config", &files.path()]);
    let made = ask(server.address, at("/demo/mcp", &post("", &initialize_body(NEWEST))));
    let id = made.field("mcp-session-id").expect("a session").to_owned();
    let unknown = "0".repeat(id.len());
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"}).to_string();
    for method in ["POST", "GET", "DELETE"] {
        let to = |path: &str, id: &str| {
            let fields = format!("Mcp-Session-Id: {id}\r\n");
            let request = match method {
                "POST" => post(&fields, &body),
                _ => bare(method, &format!("{fields}Accept: text/event-stream\r\n")),
            };
            ask(server.address, at(path, &request))
        };
        let (other, nobody) = (to("/child/mcp", &id), to("/child/mcp", &unknown));
        assert_eq!((other.status(), other.text()), (404, nobody.text()), "{method}");
    }
    let fields = format!("Mcp-Session-Id: {id}\r\n");
    assert_eq!(ask(server.address, at("/demo/mcp", &post(&fields, &body))).status(), 200);
    assert_eq!(server.stop().code, Some(0));
}

/// Story: an operator takes a server out of the file and restarts. Its sessions are over, those of
/// the others go on, and none is given to another server.
#[test]
fn after_a_restart_a_session_is_served_by_its_own_server_or_not_at_all() {
    let files = Files::new("servers-restart", &two_servers());
    let data = Data::new("servers-restart-data");
    let path = files.path();
    let flags = ["--config", &path, "--data-dir", data.path(), "--shards", "1"];
    let server = Server::start(&flags);
    let session = |path: &str| {
        let made = ask(server.address, at(path, &post("", &initialize_body(NEWEST))));
        made.field("mcp-session-id").expect("a session").to_owned()
    };
    let (demo, child) = (session("/demo/mcp"), session("/child/mcp"));
    server.kill();
    let ping = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"}).to_string();
    let status = |server: &Server, path: &str, id: &str| {
        let fields = format!("Mcp-Session-Id: {id}\r\n");
        ask(server.address, at(path, &post(&fields, &ping))).status()
    };
    files.write("[server.demo]\nbuiltin = true\n");
    let server = Server::start(&flags);
    assert_eq!(status(&server, "/demo/mcp", &demo), 200);
    assert_eq!(status(&server, "/demo/mcp", &child), 404);
    server.wait_for_log("what is not served any more", |line| line["server"] == "child");
    assert_eq!(server.stop().code, Some(0));
    // It is over for good, also where its server comes back.
    files.write(&two_servers());
    let server = Server::start(&flags);
    assert_eq!(status(&server, "/demo/mcp", &demo), 200);
    assert_eq!(status(&server, "/child/mcp", &child), 404);
    assert_eq!(server.stop().code, Some(0));
    let (code, _, said) = data.log("check", &[]);
    assert_eq!(code, Some(0), "{said}");
}

fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(PROGRAM).args(words).stdin(Stdio::null()).output().expect("run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn check_tells_every_error_at_once_and_starts_nothing() {
    let files = Files::new("check", "sesions = 4\nretention = \"5\"\n[server.x]\nbuiltin = true\n");
    let path = files.path();
    let (code, out, said) = run(&["check", "--config", &path]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(said.contains(":1: there is no option sesions; did you mean sessions?"), "{said}");
    assert!(said.contains(":2: retention \"5\" is not a time"), "{said}");
    files.write(&two_servers());
    let (code, out, said) = run(&["check", "--config", &path]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(out.contains("/child/mcp, /demo/mcp"), "{out}");
}

#[test]
fn a_desktop_clients_file_is_served_as_it_is() {
    let text = json!({"mcpServers": {"My Tools": {"command": PROGRAM, "args": ["stdio"]}}});
    let files = Files::new("mcp-config", &text.to_string());
    let server = Server::start(&["--mcp-config", &files.path()]);
    let answer = ask(server.address, at("/my-tools/mcp", &post("", &initialize_body(NEWEST))));
    assert_eq!(answer.status(), 200);
    assert_eq!(server.children().len(), 1);
    assert_eq!(server.stop().code, Some(0));
}

/// The short form stays what it was.
#[test]
fn a_file_without_servers_is_the_short_form() {
    let files = Files::new("short", &format!("command = [{PROGRAM:?}, \"stdio\"]\nshards = 1\n"));
    let server = Server::start(&["--config", &files.path()]);
    let session = Session::start(&server, NEWEST);
    assert_eq!(server.children().len(), 1);
    assert_eq!(session.delete().status(), 200);
    assert_eq!(server.stop().code, Some(0));
}
