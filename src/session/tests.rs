use std::rc::Rc;

use super::*;
use crate::mcp::headers::Accept;
use crate::mcp::jsonrpc::{self, Envelope};
use crate::stream::receipt::{Outcome, Stage};
use crate::stream::resume::Class;

/// An upstream that answers nothing by itself and notes what it is asked.
#[derive(Default)]
struct Silent {
    calls: Vec<CallKey>,
    cancelled: Vec<CallKey>,
    answers: Vec<Result<String, String>>,
}

impl Upstream for Silent {
    fn request(&mut self, _: &mut Session, _: Instant, call: CallKey, _: &Envelope<'_>) {
        self.calls.push(call);
    }

    fn notification(&mut self, _: &mut Session, _: Instant, _: &Envelope<'_>) {}

    fn cancel(&mut self, call: CallKey, _: Option<&Envelope<'_>>, _: &str) {
        self.cancelled.push(call);
    }

    fn answer(
        &mut self,
        _: &mut Session,
        _: Instant,
        _: &Asked,
        answer: Result<&Envelope<'_>, &str>,
    ) {
        let text = answer.map(|message| message.text.to_owned());
        self.answers.push(text.map_err(str::to_owned));
    }

    fn remember(&self) -> Option<Remembered> {
        None
    }
}

struct Bench {
    session: Session,
    upstream: Silent,
    now: Instant,
}

const BOTH: Accept = Accept { json: true, sse: true };

impl Bench {
    fn new(limits: Limits, revision: &str) -> Self {
        let now = Instant::now();
        let settings = Rc::new(Settings::in_memory(limits, [7; 32], Overflow::Auto));
        let id = SessionId::from_random(3, [1; 16]);
        let mut session = Session::new(id, settings, now, 0);
        session.set_initialized(revision);
        Self { session, upstream: Silent::default(), now }
    }

    fn usual() -> Self {
        Self::new(Limits::default(), "2025-11-25")
    }

    fn post(&mut self, text: &str, accept: Accept, answers: Answers) -> Posted {
        let message = jsonrpc::parse(text.as_bytes()).expect("a message");
        let form = ReplyForm { accept, answers };
        let upstream = &mut self.upstream;
        self.session.handle_post(self.now, &message, form, upstream).expect("taken")
    }

    /// A call whose reply stays dormant, as an in-process handler has it.
    fn dormant(&mut self, accept: Accept) -> (ExchangeKey, CallKey) {
        let text = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call"}"#;
        let Posted::Exchange(key) = self.post(text, accept, Answers::Json) else { panic!() };
        (key, *self.upstream.calls.last().expect("asked"))
    }

    fn answer(&mut self, call: CallKey) {
        self.session.respond(self.now, call, 9, |id, out| jsonrpc::result(out, id, "{}"));
    }

    fn write(&mut self, about: About, text: &str) -> (u32, u64) {
        self.session.write(self.now, about, 9, |out| out.extend_from_slice(text.as_bytes()))
    }

    fn read(&mut self, stream: u32) -> (String, Generation, Step) {
        let attached = self.session.attach_first(stream).expect("nobody reads");
        let mut out = Vec::new();
        self.session.transmit(stream, attached.generation, 0, &mut out);
        let step = self.session.transmit(stream, attached.generation, out.len() as u64, &mut out);
        (String::from_utf8(out).expect("text"), attached.generation, step)
    }
}

#[test]
fn what_is_written_before_the_start_is_kept_and_starts_nothing() {
    let mut bench = Bench::usual();
    let (key, call) = bench.dormant(BOTH);
    let (stream, number) = bench.write(About::Call(call), "1");
    assert_eq!((stream, number), (1, 1));
    assert_eq!(bench.session.reply(key), Reply::Pending);
    assert!(!bench.session.is_started(About::Call(call)));
    bench.answer(call);
    assert_eq!(bench.session.reply(key), Reply::Stream(1), "it holds an event, so it starts");
    let (text, _, step) = bench.read(1);
    let kept = text.find("data: 1\n").expect("kept");
    assert!(kept < text.find(r#""id":"c""#).expect("then the response"));
    assert_eq!(step, Step::Finished);
}

#[test]
fn a_reserved_stream_that_holds_nothing_may_still_become_json() {
    let mut bench = Bench::usual();
    let (key, call) = bench.dormant(BOTH);
    assert!(bench.session.reserve(call).expect("open").is_some());
    bench.answer(call);
    assert!(matches!(bench.session.reply(key), Reply::Json(_)));
    assert_eq!(bench.session.stream_numbers(), [STANDALONE]);
}

#[test]
fn start_and_comment_start_and_are_idempotent() {
    let mut bench = Bench::usual();
    let (key, call) = bench.dormant(BOTH);
    let about = About::Call(call);
    bench.session.comment_about(bench.now, about, b"hello");
    bench.session.start_about(bench.now, about);
    bench.session.start_about(bench.now, about);
    assert!(bench.session.is_started(about));
    assert_eq!(bench.session.reply(key), Reply::Stream(1));
}

#[test]
fn close_ends_the_connection_and_not_the_stream() {
    let mut bench = Bench::usual();
    let (key, call) = bench.dormant(BOTH);
    bench.session.start_about(bench.now, About::Call(call));
    assert_eq!(bench.session.reply(key), Reply::Stream(1));
    let (_, generation, step) = bench.read(1);
    assert_eq!(step, Step::Wait);
    bench.session.close_about(About::Call(call));
    let step = bench.session.transmit(1, generation, 0, &mut Vec::new());
    assert_eq!(step, Step::Planned);
    bench.session.handle_closed(bench.now, 1, generation, 0);
    bench.answer(call);
    let (text, ..) = bench.read(1);
    assert!(text.contains(r#""id":"c""#), "the response is still logged");
}

#[test]
fn a_client_that_takes_no_stream_hears_the_rest_on_the_standalone_one() {
    let mut bench = Bench::usual();
    let json = Accept { json: true, sse: false };
    let (key, call) = bench.dormant(json);
    assert_eq!(bench.session.reserve(call), Some(None));
    assert_eq!(bench.write(About::Call(call), "1").0, STANDALONE);
    bench.answer(call);
    assert!(matches!(bench.session.reply(key), Reply::Json(_)));
}

#[test]
fn a_client_that_takes_no_json_gets_a_stream() {
    let mut bench = Bench::usual();
    let (key, call) = bench.dormant(Accept { json: false, sse: true });
    bench.answer(call);
    assert_eq!(bench.session.reply(key), Reply::Stream(1));
}

#[test]
fn a_batch_is_one_stream_and_finished_when_all_are_answered() {
    let mut bench = Bench::new(Limits::default(), "2025-03-26");
    let text = r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]"#;
    let Posted::Exchange(key) = bench.post(text, BOTH, Answers::Auto) else { panic!() };
    assert_eq!(bench.session.reply(key), Reply::Stream(1));
    bench.answer(bench.upstream.calls[1]);
    assert!(!bench.session.stream(1).expect("there").is_finished());
    bench.answer(bench.upstream.calls[0]);
    assert!(bench.session.stream(1).expect("there").is_finished());
}

#[test]
fn a_receipt_outlives_its_stream_by_one_answer() {
    let limits = Limits { retention: Duration::from_secs(1), ..Limits::default() };
    let mut bench = Bench::new(limits, "2025-11-25");
    let (_, call) = bench.dormant(BOTH);
    let (stream, number) = bench.write(About::Call(call), "1");
    let far = bench.now + Duration::from_secs(60);
    bench.session.tell(stream, 8, number, Stage::Named, far);
    bench.answer(call);
    assert_eq!(bench.session.poll_told(), None);
    bench.now += Duration::from_secs(2);
    bench.session.handle_timeout(bench.now, &mut bench.upstream);
    assert_eq!(bench.session.poll_told(), Some((8, Outcome::Trimmed)));
    assert_eq!(bench.session.poll_told(), None);
}

#[test]
fn a_call_times_out_with_a_logged_answer_and_progress_resets_its_clock() {
    let mut bench = Bench::usual();
    let limits = Limits::default();
    let (key, call) = bench.dormant(BOTH);
    bench.session.start(bench.now, key);
    bench.now += limits.request_timeout - Duration::from_secs(1);
    bench.session.handle_progress(bench.now, call);
    bench.now += Duration::from_secs(2);
    bench.session.handle_timeout(bench.now, &mut bench.upstream);
    assert_eq!(bench.session.open_calls(), 1);
    bench.now += limits.request_timeout;
    bench.session.handle_timeout(bench.now, &mut bench.upstream);
    assert_eq!(bench.upstream.cancelled, [call]);
    let (text, _, step) = bench.read(1);
    assert!(text.contains("-31007"), "{text}");
    assert_eq!(step, Step::Finished);
}

#[test]
fn an_unanswered_question_of_the_server_comes_back_as_an_error() {
    let mut bench = Bench::usual();
    bench.session.ask(bench.now, About::Standalone, r#""q""#, 1, 9, |_, out| out.push(b'1'));
    bench.now += Limits::default().server_request_timeout;
    bench.session.handle_timeout(bench.now, &mut bench.upstream);
    assert!(matches!(bench.upstream.answers[..], [Err(_)]));
}

#[test]
fn a_question_that_was_trimmed_unseen_comes_back_as_an_error() {
    let limits = Limits { stream_events: 2, ..Limits::default() };
    let mut bench = Bench::new(limits, "2025-11-25");
    bench.session.ask(bench.now, About::Standalone, "7", 1, 9, |_, out| out.push(b'1'));
    for _ in 0..3 {
        bench.write(About::Standalone, "2");
    }
    while let Some(effect) = bench.session.poll_effect() {
        if let Effect::Relieve(stream) = effect {
            bench.session.relieve(bench.now, stream, &mut bench.upstream);
        }
    }
    assert!(matches!(bench.upstream.answers[..], [Err(_)]));
}

#[test]
fn every_refusal_names_its_class() {
    let mut bench = Bench::usual();
    let (key, call) = bench.dormant(BOTH);
    bench.session.start(bench.now, key);
    bench.answer(call);
    let (text, generation, _) = bench.read(1);
    bench.session.handle_closed(bench.now, 1, generation, 0);
    let id = text.strip_prefix("id: ").and_then(|text| text.split('\n').next()).expect("an id");
    let token = id.strip_suffix(".1").expect("number 1");
    let now = bench.now;
    let mut class =
        |cursor: &str| bench.session.resume(now, cursor.as_bytes()).expect_err("no").class;
    assert_eq!(class(&format!("{token}.1")), Class::FinishedSeen);
    assert_eq!(class(&format!("{token}.end")), Class::FinishedSeen);
    assert_eq!(class(&format!("{token}.2")), Class::Ahead);
    assert_eq!(class("nonsense"), Class::Unknown);
    bench.session.change_epoch();
    let refusal = bench.session.resume(now, format!("{token}.0").as_bytes()).expect_err("old");
    assert_eq!(refusal.class, Class::EpochChanged);
    let RefusalAnswer::InBand(bytes) = refusal.answer else { panic!("{:?}", refusal.answer) };
    let text = String::from_utf8(bytes).expect("text");
    assert!(text.contains("-31003") && text.contains(r#""id":"c""#), "{text}");
    assert!(text.contains(".end\n"), "{text}");
}

#[test]
fn an_idle_session_ends_and_a_busy_one_does_not() {
    let mut bench = Bench::usual();
    let idle = Limits::default().idle_timeout;
    let (_, call) = bench.dormant(BOTH);
    bench.session.handle_progress(bench.now + idle, call);
    bench.now += idle;
    bench.session.handle_timeout(bench.now, &mut bench.upstream);
    assert_eq!(bench.session.ended(), None);
    bench.answer(call);
    bench.now += idle;
    bench.session.handle_timeout(bench.now, &mut bench.upstream);
    assert_eq!(bench.session.ended(), Some(Ended::Idle));
}

/// Every byte that was charged is given back: logs, what is known of a stream, tombstones.
#[test]
fn what_was_taken_is_given_back() {
    let limits = Limits { retention: Duration::from_secs(1), ..Limits::default() };
    let mut bench = Bench::new(limits, "2025-11-25");
    let empty = bench.session.bytes();
    for _ in 0..300 {
        let (key, call) = bench.dormant(BOTH);
        bench.write(About::Call(call), "some text");
        bench.answer(call);
        assert!(matches!(bench.session.reply(key), Reply::Stream(_)));
    }
    assert!(bench.session.bytes() > empty + 300 * 100);
    bench.now += Duration::from_secs(2);
    bench.session.handle_timeout(bench.now, &mut bench.upstream);
    assert!(bench.session.bytes() > empty, "tombstones are charged too");
    bench.session.shrink(bench.now, 0, &mut bench.upstream);
    assert_eq!(bench.session.bytes(), empty);
}
