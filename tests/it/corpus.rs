//! The corpus of `tests/it/corpus`: raw requests and the exact answers they must get.

mod format;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use serde_json::json;

use crate::client::{ACCEPT_BOTH, Answer, Connection, End, Session, ask, post};
use crate::server::Server;
use format::{After, Case, Expected, Names, Step};

const PING: &str = r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#;

/// Answers pings, and a call with its own arguments.
const CHILD: &str = r#"
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        case $line in
        *'"method":"initialize"'*)
            printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25",' "$id"
            printf '"capabilities":{},"serverInfo":{"name":"echo","version":"1"}}}\n' ;;
        *'"method":"ping"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id" ;;
        *'"arguments":'*)
            args=${line#*\"arguments\":}
            printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":%s}}\n' \
                "$id" "${args%\}\}}" ;;
        esac
    done"#;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/corpus")
}

/// The servers of the corpus and the names that belong to each.
struct Bench {
    server: Server,
    /// A session that no case has, and the token of a call's stream in it.
    other: OnceCell<(Session, String)>,
}

impl Bench {
    fn new(server: Server) -> Self {
        Self { server, other: OnceCell::new() }
    }

    fn names(&self, session: &Session, case: &Case) -> Names {
        let text = format!("{:?}", case.steps);
        let fields = "Host: localhost\\r\\nMcp-Session-Id: {SESSION}";
        let head = format!(
            "POST /mcp HTTP/1.1\\r\\n{fields}\\r\\nContent-Type: application/json\\r\\n\
             Accept: {ACCEPT_BOTH}"
        );
        let mut known = vec![
            ("SESSION", session.id.clone()),
            ("PORT", self.server.address.port().to_string()),
            ("POST", format!("{head}\\r\\nContent-Length: {{LENGTH}}\\r\\n\\r\\n")),
            ("HEAD", head),
            ("GET", format!("GET /mcp HTTP/1.1\\r\\n{fields}\\r\\nAccept: text/event-stream")),
            ("PING", PING.to_owned()),
            ("HIDDEN", format!("DELETE /mcp HTTP/1.1\\r\\n{fields}\\r\\n\\r\\n")),
        ];
        if text.contains("{TOKEN}") {
            known.push(("TOKEN", token(session)));
        }
        if text.contains("{FOREIGN}") || text.contains("{OTHER}") {
            let (other, token) = self.other.get_or_init(|| {
                let other = Session::start(&self.server, crate::client::NEWEST);
                let token = token(&other);
                (other, token)
            });
            known.extend([("OTHER", other.id.clone()), ("FOREIGN", token.clone())]);
        }
        Names { known }
    }

    /// Runs a case; panics where an answer is another one.
    fn run(&self, case: &Case) {
        let session = Session::start(&self.server, &case.revision);
        let names = self.names(&session, case);
        let mut connection = Connection::open(self.server.address);
        let last = case.steps.iter().rposition(|step| matches!(step, Step::Expect(_)));
        for (index, step) in case.steps.iter().enumerate() {
            match step {
                Step::Send(requests) => {
                    let requests: Vec<_> = requests.iter().map(|r| names.request(r)).collect();
                    // A server that refuses early may have closed.
                    connection.try_send(requests.concat());
                }
                Step::Expect(expected) => {
                    let is_last = Some(index) == last;
                    let after = if is_last { case.after } else { After::Unsaid };
                    check(expected, after, &names, &mut connection);
                }
            }
        }
        match case.after {
            After::Unsaid => panic!("the case does not say what becomes of the connection"),
            After::Closed => assert!(connection.is_closed(), "the connection goes on"),
            After::Kept => {
                connection.send("GET /the-end HTTP/1.1\r\nHost: localhost\r\n\r\n");
                assert_eq!(connection.answer().status(), 404, "another answer came in between");
            }
            After::Stream => {}
        }
        let fields = format!("Mcp-Session-Id: {}\r\n", session.id);
        let ping = ask(self.server.address, post(&fields, PING));
        let expected = if case.ends_session { 404 } else { 200 };
        assert_eq!(ping.status(), expected, "whether the session lives");
    }
}

/// The token of the stream of a call that has ended.
fn token(session: &Session) -> String {
    let mut call = session.call("1", "stream", &json!({"count": 1}));
    assert_eq!(call.head().status, 200);
    let events = call.events();
    let last = &events.last().expect("a call's stream has events").id;
    last.rsplit_once('.').expect("an id has a number").0.to_owned()
}

fn check(expected: &Expected, after: After, names: &Names, connection: &mut Connection) {
    let head = connection.head();
    assert_eq!(head.status, expected.status, "{head:?}");
    for (name, value) in &expected.fields {
        let found = head.field(name);
        let right = match (value, found) {
            (Some(value), Some(found)) => format::matches(&names.expand(value), found.as_bytes()),
            (None, None) => true,
            _ => false,
        };
        assert!(right, "{name}: {found:?} instead of {value:?}");
    }
    if after == After::Closed {
        assert_eq!(head.field("connection"), Some("close"), "{head:?}");
    } else {
        assert_ne!(head.field("connection"), Some("close"), "{head:?}");
    }
    if !expected.messages.is_empty() || after == After::Stream {
        assert_eq!(head.field("content-type"), Some("text/event-stream"), "{head:?}");
        for message in &expected.messages {
            let event = connection.message().expect("another message");
            let right = format::matches(&names.expand(message), event.data.as_bytes());
            assert!(right, "{} instead of {message}", event.data);
        }
        if after != After::Stream {
            let further = connection.message();
            assert!(further.is_none() && connection.end() == Some(End::Whole), "{further:?}");
        }
        return;
    }
    if expected.bodiless {
        return;
    }
    let body = connection.body(&head);
    let answer = Answer { head, body };
    if let Some(body) = &expected.body {
        let right = format::matches(&names.expand(body), &answer.body);
        assert!(right, "{} instead of {body}", answer.text());
    }
    if expected.status >= 400 && !answer.body.is_empty() {
        assert_eq!(answer.field("content-type"), Some("application/json"));
        assert_ne!(answer.code(), 0, "no JSON-RPC error: {}", answer.text());
    }
}

#[test]
fn every_request_of_the_corpus_gets_its_answer() {
    let (small, hasty) = (["--body-bytes", "64KiB"], ["--head-timeout", "200ms"]);
    let benches = BTreeMap::from([
        ("builtin", Bench::new(Server::start(&[]))),
        ("small", Bench::new(Server::start(&small))),
        ("hasty", Bench::new(Server::start(&hasty))),
        ("child", Bench::new(Server::shell(&[], CHILD))),
    ]);
    let mut wrong = Vec::new();
    for case in format::read_all(&folder()) {
        let bench = benches.get(&*case.server).expect("a server of the corpus");
        if let Err(reason) = catch_unwind(AssertUnwindSafe(|| bench.run(&case))) {
            let reason = match reason.downcast_ref::<String>() {
                Some(reason) => reason.as_str(),
                None => reason.downcast_ref::<&str>().copied().unwrap_or_default(),
            };
            wrong.push(format!("{} {}: {}: {reason}", case.place, case.kind, case.title));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_corpus_has_at_least_120_requests_and_every_title_once() {
    let cases = format::read_all(&folder());
    let sent = cases.iter().flat_map(|case| &case.steps).map(|step| match step {
        Step::Send(requests) => requests.len(),
        Step::Expect(_) => 0,
    });
    assert!(sent.sum::<usize>() >= 120);
    let mut titles: Vec<&str> = cases.iter().map(|case| case.title.as_str()).collect();
    titles.sort_unstable();
    let doubled = titles.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(doubled, None);
}

/// One row of the table: kind, statuses, whether the connection may close and may be kept.
fn rows(text: &str) -> BTreeMap<String, (Vec<u16>, [bool; 2])> {
    let (_, section) = text.split_once("\n## Bad input\n").expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let table = section.lines().filter(|line| line.starts_with("| `"));
    let read = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let numbers = cells[3].split(|c: char| !c.is_ascii_digit() && c != '-');
        let statuses = numbers.filter_map(|word| word.parse().ok()).collect();
        let connection = [cells[4].contains("closed"), cells[4].contains("kept")];
        (cells[1].trim_matches('`').to_owned(), (statuses, connection))
    };
    table.map(read).collect()
}

#[test]
fn the_table_of_bad_input_says_what_the_corpus_says() {
    let wire = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/wire.md");
    let rows = rows(&std::fs::read_to_string(wire).expect("docs/wire.md is there"));
    let mut unshown: Vec<(&str, u16)> = Vec::new();
    for (kind, (statuses, _)) in &rows {
        unshown.extend(statuses.iter().map(|&status| (kind.as_str(), status)));
    }
    for case in &format::read_all(&folder()) {
        if case.kind == "served" {
            continue;
        }
        let (statuses, [closed, kept]) = rows
            .get(&case.kind)
            .unwrap_or_else(|| panic!("{}: the table has no kind {:?}", case.place, case.kind));
        let answers = case.steps.iter().filter_map(|step| match step {
            Step::Expect(expected) => Some(expected.status),
            Step::Send(_) => None,
        });
        let named: Vec<u16> = answers.filter(|status| statuses.contains(status)).collect();
        assert!(!named.is_empty(), "{}: no answer that the table names", case.place);
        unshown.retain(|(kind, status)| *kind != case.kind || !named.contains(status));
        let right = match case.after {
            After::Closed => *closed,
            _ => *kept,
        };
        assert!(right, "{}: the table says other things of the connection", case.place);
    }
    assert!(unshown.is_empty(), "no case shows {unshown:?}");
}
