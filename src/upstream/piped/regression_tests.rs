use std::rc::Rc;

use super::*;
use crate::limits::Limits;
use crate::mcp::headers::Accept;
use crate::mcp::session_id::SessionId;
use crate::session::{Answers, Overflow, Posted, Reply, ReplyForm, Settings};

fn session(now: Instant) -> Session {
    let settings = Settings::in_memory(Limits::default(), [7; 32], Overflow::Auto);
    Session::new(SessionId::from_random(0, [1; 16]), Rc::new(settings), now, 0)
}

/// Posts a request whose answer will be JSON; the key of its exchange.
fn post(session: &mut Session, now: Instant, piped: &mut Piped, text: &str) -> u64 {
    let message = jsonrpc::parse(text.as_bytes()).expect("a message");
    let accept = Accept { json: true, sse: false };
    let form = ReplyForm { accept, answers: Answers::Json };
    match session.handle_post(now, &message, form, piped).expect("taken") {
        Posted::Exchange(exchange) => exchange,
        Posted::Accepted => panic!("not a request"),
    }
}

const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","#,
    r#""params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#,
);
const CALL: &str = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"x"}}"#;

fn started(now: Instant) -> (Session, Piped) {
    let mut session = session(now);
    let mut piped = Piped::new(now, OnChildExit::Respawn, 1 << 20);
    let exchange = post(&mut session, now, &mut piped, INITIALIZE);
    let result = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{exchange},"result":{result}}}"#);
    assert_eq!(piped.handle_line(&mut session, now, answer.as_bytes()), Heard::Routed);
    assert!(matches!(session.reply(exchange), Reply::Json(_)));
    (session, piped)
}

/// Story: an overlong result had an id inside that came before the answer's own; the call with
/// that number got the error.
#[test]
fn an_id_inside_an_overlong_answer_names_no_call() {
    let now = Instant::now();
    let (mut session, mut piped) = started(now);
    let exchange = post(&mut session, now, &mut piped, CALL);
    let head = format!(r#"{{"result":{{"rows":[{{"id":{exchange},"text":"xxx"#);
    piped.handle_line_lost(&mut session, now, head.as_bytes());
    assert_eq!(session.reply(exchange), Reply::Pending);
    let head = format!(r#"{{"jsonrpc":"2.0","id":{exchange},"result":{{"text":"xxx"#);
    piped.handle_line_lost(&mut session, now, head.as_bytes());
    assert!(matches!(session.reply(exchange), Reply::Json(_)));
}

#[test]
fn a_child_that_cannot_be_started_again_is_paused_for() {
    let start = Instant::now();
    let (mut session, mut piped) = started(start);
    assert!(piped.poll_spawn());
    let now = start + Duration::from_secs(60);
    piped.handle_exit(&mut session, now, "gone");
    post(&mut session, now, &mut piped, CALL);
    assert!(piped.poll_spawn(), "the first restart comes at once");
    piped.handle_exit(&mut session, now, "could not be started");
    post(&mut session, now, &mut piped, CALL);
    assert!(!piped.poll_spawn(), "the second one after a pause");
    post(&mut session, now + BACKOFF_MIN, &mut piped, CALL);
    assert!(piped.poll_spawn());
}

#[test]
fn the_answers_to_a_set_up_are_nobodys_mistake() {
    let now = Instant::now();
    let (mut session, mut piped) = started(now);
    let answer = br#"{"jsonrpc":"2.0","id":"gapless:setup:0","result":{}}"#;
    assert_eq!(piped.handle_line(&mut session, now, answer), Heard::Routed);
    let foreign = br#"{"jsonrpc":"2.0","id":"other","result":{}}"#;
    assert_eq!(piped.handle_line(&mut session, now, foreign), Heard::Unclaimed);
}
