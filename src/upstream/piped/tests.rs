use std::rc::Rc;

use super::*;
use crate::limits::Limits;
use crate::mcp::headers::Accept;
use crate::mcp::session_id::SessionId;
use crate::session::{Answers, Overflow, Posted, Reply, ReplyForm, STANDALONE, Settings};

const SETUP_ANSWER: &str = concat!(
    r#"{"jsonrpc":"2.0","id":"gapless:setup","result":"#,
    r#"{"protocolVersion":"2024-11-05","capabilities":{"x":1}}}"#
);

const BOTH: Accept = Accept { json: true, sse: true };

fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// A session before a child that the test plays itself.
struct Bench {
    session: Session,
    piped: Piped,
    now: Instant,
}

impl Bench {
    fn new(on_exit: OnChildExit) -> Self {
        let now = Instant::now();
        let settings = Rc::new(Settings::in_memory(Limits::default(), [7; 32], Overflow::Auto));
        let id = SessionId::from_random(0, [1; 16]);
        let piped = Piped::new(now, on_exit, 1 << 20);
        let mut bench = Self { session: Session::new(id, settings, now, 0), piped, now };
        assert!(bench.piped.poll_spawn());
        let params = r#"{"protocolVersion":"2026-07-28","capabilities":{}}"#;
        bench.post(&request(r#""i""#, "initialize", params));
        let line = bench.line();
        assert!(line.contains(r#""id":1"#) && line.contains("2025-11-25"), "{line}");
        bench.hear(&SETUP_ANSWER.replace(SETUP_ID, "1"));
        assert!(bench.session.is_initialized());
        bench
    }

    fn post(&mut self, text: &str) -> Posted {
        let message = jsonrpc::parse(text.as_bytes()).expect("a message");
        let form = ReplyForm { accept: BOTH, answers: Answers::Auto };
        self.session.handle_post(self.now, &message, form, &mut self.piped).expect("taken")
    }

    fn call(&mut self, text: &str) -> u32 {
        let Posted::Exchange(key) = self.post(text) else { panic!("no request in {text}") };
        match self.session.reply(key) {
            Reply::Stream(stream) => stream,
            other => panic!("{other:?}"),
        }
    }

    fn line(&mut self) -> String {
        let line = self.piped.poll_line().expect("a line for the child");
        String::from_utf8(line).expect("text")
    }

    fn hear(&mut self, line: &str) -> Heard {
        self.piped.handle_line(&mut self.session, self.now, line.as_bytes())
    }

    /// Everything that a stream holds, as a new connection would get it.
    fn read(&mut self, stream: u32) -> String {
        let (number, takeover) = match stream {
            STANDALONE => self.session.listen(self.now),
            _ => {
                let attached = self.session.attach_first(stream).expect("nobody reads");
                return self.drain(stream, attached.generation);
            }
        };
        let attached = self.session.attach(number, takeover, b"").expect("won");
        self.drain(number, attached.generation)
    }

    fn drain(&mut self, stream: u32, generation: u32) -> String {
        let mut out = Vec::new();
        self.session.transmit(stream, generation, 0, &mut out);
        self.session.handle_closed(self.now, stream, generation, 0);
        String::from_utf8(out).expect("text")
    }
}

#[test]
fn two_calls_with_one_id_never_swap_answers() {
    let mut bench = Bench::new(OnChildExit::Respawn);
    let first = bench.call(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
    let second = bench.call(r#"{"jsonrpc":"2.0","id":"1","method":"b"}"#);
    assert!(bench.line().contains(r#""id":2,"#));
    assert!(bench.line().contains(r#""id":3,"#));
    bench.hear(r#"{"jsonrpc":"2.0","id":3,"result":"b"}"#);
    bench.hear(r#"{"result":1e400 ,"id": 2,"jsonrpc":"2.0"}"#);
    assert!(bench.read(second).contains(r#"{"jsonrpc":"2.0","id":"1","result":"b"}"#));
    assert!(bench.read(first).contains(r#"{"result":1e400 ,"id": 1,"jsonrpc":"2.0"}"#));
    assert_eq!(bench.hear(r#"{"jsonrpc":"2.0","id":3,"result":0}"#), Heard::Unclaimed);
}

#[test]
fn progress_keeps_the_clients_token_and_comes_before_the_answer() {
    let mut bench = Bench::new(OnChildExit::Respawn);
    let stream = bench.call(
        r#"{"jsonrpc":"2.0","id":5,"method":"t","params":{"_meta":{"progressToken":"p\u00e9"}}}"#,
    );
    assert!(bench.line().contains(r#""progressToken":2"#));
    let progress = |n| {
        notification("notifications/progress", &format!(r#"{{"progressToken":2,"progress":{n}}}"#))
    };
    assert_eq!(bench.hear(&progress(1)), Heard::Routed);
    bench.hear(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    assert_eq!(bench.hear(&progress(2)), Heard::Unclaimed, "after the answer it is nobody's");
    let text = bench.read(stream);
    let token = text.find(r#""progressToken":"p\u00e9""#).expect("the client's own token");
    assert!(token < text.find(r#""id":5"#).expect("the answer"));
}

#[test]
fn a_task_keeps_its_token_until_its_terminal_status() {
    let mut bench = Bench::new(OnChildExit::Respawn);
    bench.call(
        r#"{"jsonrpc":"2.0","id":5,"method":"t","params":{"task":{},"_meta":{"progressToken":9}}}"#,
    );
    bench.hear(r#"{"jsonrpc":"2.0","id":2,"result":{"task":{"taskId":"T","status":"working"}}}"#);
    let params = r#"{"progressToken":2,"progress":1}"#;
    let progress = notification("notifications/progress", params);
    assert_eq!(bench.hear(&progress), Heard::Routed);
    let ended = r#"{"taskId":"T","status":"completed"}"#;
    bench.hear(&notification("notifications/tasks/status", ended));
    assert_eq!(bench.hear(&progress), Heard::Unclaimed);
    let text = bench.read(STANDALONE);
    assert!(text.contains(r#""progressToken":9,"progress":1"#), "{text}");
    assert!(text.contains("tasks/status"), "{text}");
}

#[test]
fn messages_without_relation_go_where_they_can_be_heard() {
    let log =
        |n| notification("notifications/message", &format!(r#"{{"level":"info","data":{n}}}"#));
    let mut bench = Bench::new(OnChildExit::Respawn);
    bench.hear(&log(1));
    let only = bench.call(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
    bench.hear(&log(2));
    let newest = bench.call(r#"{"jsonrpc":"2.0","id":2,"method":"b"}"#);
    bench.hear(&log(3));
    let (stream, takeover) = bench.session.listen(bench.now);
    let attached = bench.session.attach(stream, takeover, b"").expect("won");
    bench.hear(&log(4));
    let standalone = bench.drain(STANDALONE, attached.generation);
    assert!(standalone.contains(r#""data":1"#) && standalone.contains(r#""data":4"#));
    assert!(!standalone.contains(r#""data":2"#) && !standalone.contains(r#""data":3"#));
    assert!(bench.read(only).contains(r#""data":2"#));
    assert!(bench.read(newest).contains(r#""data":3"#));
}

/// A late answer must never approve a different question after the child restarted.
#[test]
fn an_answer_for_a_gone_incarnation_goes_nowhere() {
    let mut bench = Bench::new(OnChildExit::Respawn);
    let stream = bench.call(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
    bench.line();
    bench.hear(r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#);
    bench.piped.handle_exit(&mut bench.session, bench.now, "gone");
    let text = bench.read(stream);
    assert!(text.contains(r#""id":1,"method":"elicitation/create""#), "{text}");
    assert!(text.contains("-31005"), "{text}");
    assert!(text.contains(r#"notifications/cancelled","params":{"requestId":1,"#), "{text}");
    bench.now += BACKOFF_MAX;
    bench.call(r#"{"jsonrpc":"2.0","id":2,"method":"a"}"#);
    assert!(bench.piped.poll_spawn());
    assert!(bench.line().contains(SETUP_ID), "the setup goes first");
    bench.post(r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}"#);
    assert_eq!(bench.piped.poll_line(), None);
}

#[test]
fn a_restarted_child_is_set_up_like_the_one_before() {
    let mut bench = Bench::new(OnChildExit::Respawn);
    bench
        .call(r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}"#);
    for uri in ["a:1", "b:2"] {
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        bench.call(&format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{params}}}"#
        ));
    }
    bench.call(
        r#"{"jsonrpc":"2.0","id":3,"method":"resources/unsubscribe","params":{"uri":"a:1"}}"#,
    );
    bench.piped.handle_exit(&mut bench.session, bench.now, "gone");
    bench.now += BACKOFF_MAX;
    bench.call(r#"{"jsonrpc":"2.0","id":4,"method":"after"}"#);
    assert!(bench.piped.poll_spawn() && !bench.piped.poll_spawn());
    let initialize = bench.line();
    assert!(initialize.contains(r#""protocolVersion":"2025-11-25""#), "{initialize}");
    assert_eq!(bench.piped.poll_line(), None, "nothing before the setup is answered");
    bench.hear(SETUP_ANSWER);
    assert!(bench.line().contains("notifications/initialized"));
    assert!(bench.line().contains(r#"{"level":"debug"}"#));
    assert!(bench.line().contains(r#"{"uri":"b:2"}"#));
    assert!(bench.line().contains(r#""method":"after""#));
    assert_eq!(bench.piped.poll_line(), None);
}

#[test]
fn a_restarted_child_that_differs_ends_the_session() {
    let mut bench = Bench::new(OnChildExit::Respawn);
    bench.piped.handle_exit(&mut bench.session, bench.now, "gone");
    bench.now += BACKOFF_MAX;
    bench.call(r#"{"jsonrpc":"2.0","id":4,"method":"after"}"#);
    bench.hear(&SETUP_ANSWER.replace("2024-11-05", "2025-06-18"));
    assert_eq!(bench.session.ended(), Some(Ended::UpstreamLost));
}

#[test]
fn a_child_that_keeps_crashing_is_given_a_pause() {
    let mut bench = Bench::new(OnChildExit::Respawn);
    bench.piped.handle_exit(&mut bench.session, bench.now, "gone");
    let Posted::Exchange(key) = bench.post(r#"{"jsonrpc":"2.0","id":4,"method":"m"}"#) else {
        panic!("a request")
    };
    let Reply::Json(answer) = bench.session.reply(key) else { panic!("answered at once") };
    assert!(String::from_utf8(answer).expect("text").contains("-31005"));
    assert!(!bench.piped.poll_spawn());
}

#[test]
fn a_cancelled_call_ends_without_an_answer() {
    let mut bench = Bench::new(OnChildExit::Respawn);
    let stream = bench.call(r#"{"jsonrpc":"2.0","id":"x","method":"a"}"#);
    bench.line();
    let params = r#"{"requestId":"\u0078","reason":"r"}"#;
    bench.post(&notification("notifications/cancelled", params));
    let line = bench.line();
    assert!(line.contains(r#""requestId":2,"reason":"r""#), "{line}");
    assert_eq!(bench.hear(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#), Heard::Unclaimed);
    assert_eq!(bench.read(stream), "");
    assert!(bench.session.stream(stream).expect("kept").is_finished());
}

#[test]
fn junk_reaches_nobody() {
    let mut bench = Bench::new(OnChildExit::Respawn);
    for junk in ["", "   ", "null", "42", "Server running", r#"{"status":200}"#, r#"{"jsonrpc":"#] {
        assert_eq!(bench.hear(junk), Heard::Junk, "{junk}");
    }
    assert_eq!(bench.read(STANDALONE), "");
}
