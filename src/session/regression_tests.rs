use super::*;
use crate::limits::FINISHED_STREAMS_MAX;
use crate::mcp::headers::Accept;
use crate::mcp::jsonrpc::{self, Envelope, Message, codes};

/// An upstream that takes everything and says nothing.
#[derive(Default)]
pub(super) struct Silent {
    pub(super) newest: CallKey,
}

impl Upstream for Silent {
    fn request(&mut self, _: &mut Session, _: Instant, call: CallKey, _: &Envelope<'_>) {
        self.newest = call;
    }

    fn notification(&mut self, _: &mut Session, _: Instant, _: &Envelope<'_>) {}

    fn cancel(&mut self, _: CallKey, _: Option<&Envelope<'_>>, _: &str) {}

    fn answer(&mut self, _: &mut Session, _: Instant, _: &Asked, _: Result<&Envelope<'_>, &str>) {}

    fn remember(&self) -> Option<Remembered> {
        None
    }
}

fn session(now: Instant) -> Session {
    session_with(now, Limits::default())
}

fn session_with(now: Instant, limits: Limits) -> Session {
    let settings = Settings::in_memory(limits, [7; 32], Overflow::Auto);
    let mut session = Session::new(SessionId::from_random(0, [1; 16]), Rc::new(settings), now, 0);
    session.set_initialized("2025-11-25");
    session
}

fn post(session: &mut Session, now: Instant, upstream: &mut Silent, text: &str, sse: bool) {
    let message: Message<'_> = jsonrpc::parse(text.as_bytes()).expect("a message");
    let form = ReplyForm { accept: Accept { json: true, sse }, answers: Answers::Auto };
    session.handle_post(now, &message, form, upstream).expect("taken");
}

/// Does what a shell does, without a connection.
fn settle(session: &mut Session, now: Instant, upstream: &mut Silent) {
    while let Some(effect) = session.poll_effect() {
        if let Effect::Relieve(number) = effect {
            session.relieve(now, number, upstream);
        }
    }
}

fn text_of(session: &mut Session, number: u32) -> String {
    let attached = session.attach_first(number).expect("nobody reads it");
    let mut out = Vec::new();
    while session.transmit(number, attached.generation, 0, &mut out) == Step::Write {}
    String::from_utf8(out).expect("text")
}

/// Story: a client started streams and cancelled them; nothing was logged, so nothing looked at
/// the budget, and all of them were kept for the whole retention.
#[test]
fn streams_of_cancelled_calls_are_bounded() {
    let now = Instant::now();
    let (mut session, mut upstream) = (session(now), Silent::default());
    for id in 0..FINISHED_STREAMS_MAX + 100 {
        let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#);
        post(&mut session, now, &mut upstream, &call, true);
        let params = format!(r#"{{"requestId":{id}}}"#);
        let method = "notifications/cancelled";
        let cancel = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
        post(&mut session, now, &mut upstream, &cancel, true);
        settle(&mut session, now, &mut upstream);
    }
    assert!(session.stream_numbers().len() <= FINISHED_STREAMS_MAX + 1);
}

/// Story: a stream was reserved for a call whose client went away; the answer was dropped as JSON,
/// and the empty stream stayed for the life of its session. Found by the simulator.
#[test]
fn a_reserved_stream_of_an_abandoned_call_goes_with_it() {
    let now = Instant::now();
    let (mut session, mut upstream) = (session(now), Silent::default());
    let empty = session.bytes();
    let call = jsonrpc::parse(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    let accept = Accept { json: true, sse: true };
    let form = ReplyForm { accept, answers: Answers::Json };
    let posted = session.handle_post(now, &call.expect("a message"), form, &mut upstream);
    let Ok(Posted::Exchange(key)) = posted else { panic!("{posted:?}") };
    session.reserve(upstream.newest).expect("it is open");
    session.abandon(key);
    session.respond(now, upstream.newest, 2, |_, out| out.extend_from_slice(b"{}"));
    assert_eq!((session.stream_numbers(), session.bytes()), (vec![STANDALONE], empty));
}

/// Story: a child died with a question open on its call's stream; the call was answered first,
/// which finished that stream, and the client was told on another one.
#[test]
fn a_dead_upstreams_question_is_taken_back_where_it_was_asked() {
    let now = Instant::now();
    let (mut session, mut upstream) = (session(now), Silent::default());
    let call = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call"}"#;
    post(&mut session, now, &mut upstream, call, true);
    session.ask(now, About::Call(upstream.newest), "1", 1, 64, |key, out| {
        jsonrpc::request(out, &key.to_string(), "ping", None);
    });
    session.handle_upstream_lost(now, 1, "gone");
    let text = text_of(&mut session, 1);
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in {text}"));
    assert!(at("ping") < at("notifications/cancelled"));
    assert!(at("notifications/cancelled") < at(&codes::UPSTREAM_LOST.to_string()));
    assert_eq!(session.stream(STANDALONE).map(Stream::tail), Some(0));
}

/// Story: a child's death answered a call and ended the session in one turn; who waited for JSON
/// got 404 in place of the error.
#[test]
fn an_answer_survives_the_end_of_its_session() {
    let now = Instant::now();
    let (mut session, mut upstream) = (session(now), Silent::default());
    for id in ["1", "2"] {
        let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#);
        post(&mut session, now, &mut upstream, &call, false);
    }
    session.respond_error(now, 1, codes::UPSTREAM_LOST, "gone", None);
    session.end(Ended::UpstreamLost);
    assert!(matches!(session.reply(1), Reply::Json(body) if body.ends_with(b"}}")));
    assert_eq!(session.reply(2), Reply::Gone);
}

#[test]
fn standalone_events_age_also_after_the_first_ones_have_gone() {
    let start = Instant::now();
    let (mut session, mut upstream) = (session(start), Silent::default());
    let mut now = start;
    let empty = session.bytes();
    for _ in 0..3 {
        session.notify(now, About::Standalone, 64, |out| out.extend_from_slice(b"{}"));
        let retention = Limits::default().retention;
        assert!(session.timeout() <= now + retention);
        now += retention + Duration::from_secs(1);
        session.handle_timeout(now, &mut upstream);
        assert_eq!(session.bytes(), empty);
    }
}

#[test]
fn an_expired_stream_that_is_being_read_does_not_ask_for_time() {
    let start = Instant::now();
    let (mut session, mut upstream) = (session(start), Silent::default());
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#;
    post(&mut session, start, &mut upstream, call, true);
    let attached = session.attach_first(1).expect("nobody reads it");
    session.respond(start, upstream.newest, 64, |_, out| out.extend_from_slice(b"{}"));
    let now = start + Limits::default().retention + Duration::from_secs(1);
    session.handle_timeout(now, &mut upstream);
    assert!(session.timeout() > now + Duration::from_secs(60));
    session.handle_closed(now, 1, attached.generation, 0);
    session.handle_timeout(now, &mut upstream);
    assert!(session.stream(1).is_none(), "its reader's end lets it go");
}

/// Story: the stream of a call was looked for where an HTTP+SSE session has none: its producer
/// never waited for the one reader, what it asked after had not started, its comments were lost.
#[test]
fn a_call_of_http_sse_is_about_the_one_stream() {
    let now = Instant::now();
    let settings = Settings::in_memory(Limits::default(), [7; 32], Overflow::Auto);
    let half = settings.limits.stream_bytes as usize / 2;
    let id = SessionId::from_random(0, [1; 16]);
    let mut session = Session::new_http_sse(id, Rc::new(settings), now, 0, "messages?".into());
    let mut upstream = Silent::default();
    let call = jsonrpc::parse(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    let call = call.expect("a message");
    session.handle_http_sse_post(now, &call, &mut upstream).expect("taken");
    let about = About::Call(upstream.newest);
    let attached = session.attach_first(STANDALONE).expect("nobody reads");
    assert!(session.is_started(about) && session.has_room(about, now));
    session.comment_about(now, about, b"hello");
    let mut out = Vec::new();
    session.transmit(STANDALONE, attached.generation, 0, &mut out);
    assert_eq!(String::from_utf8_lossy(&out), ": hello\n\n");
    session.close_about(about);
    let step = session.transmit(STANDALONE, attached.generation, 0, &mut Vec::new());
    assert_eq!(step, Step::Wait, "it is not the call's to end");
    let at = session.write(now, about, half, |out| out.resize(out.len() + half, b'1'));
    assert_eq!(at, (STANDALONE, 1));
    assert!(!session.has_room(about, now), "it waits for the reader of the one stream");
    session.handle_http_sse_post(now, &call, &mut upstream).expect("taken");
    assert!(session.wants_pause(now), "whatever comes through the pipe is for that reader");
}

/// Story: a stream at its budget was flooded; each of its events asked for relief, and each relief
/// read the acknowledged byte count, so that three fifths of the server's time were system calls.
#[test]
fn a_flood_over_the_budget_asks_for_relief_once_a_turn() {
    let now = Instant::now();
    let mut upstream = Silent::default();
    let limits = Limits { stream_events: 2, ..Limits::default() };
    let mut session = session_with(now, limits);
    for _ in 0..3 {
        for _ in 0..30 {
            session.write(now, About::Standalone, 1, |out| out.push(b'1'));
        }
        let mut relieved = 0;
        while let Some(effect) = session.poll_effect() {
            if let Effect::Relieve(number) = effect {
                session.relieve(now, number, &mut upstream);
                relieved += 1;
            }
        }
        assert_eq!(relieved, 1);
        let stream = session.stream(STANDALONE).expect("always there");
        assert_eq!(stream.tail() - stream.floor() + 1, 2, "what is kept");
    }
}
