//! The order in which a session that holds too much gives way.

use super::regression_tests::Silent;
use super::*;
use crate::limits::FINISHED_STREAMS_MAX;
use crate::mcp::headers::Accept;
use crate::mcp::jsonrpc;

const KIB: u64 = 1024;

struct Bench {
    session: Session,
    upstream: Silent,
    now: Instant,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        let settings = Settings::in_memory(limits, [7; 32], Overflow::Auto);
        let mut session =
            Session::new(SessionId::from_random(0, [1; 16]), Rc::new(settings), now, 0);
        session.set_initialized("2025-11-25");
        Self { session, upstream: Silent::default(), now }
    }

    /// A call that is answered as a stream: its key and its stream's number.
    fn call(&mut self) -> (CallKey, u32) {
        let text = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#;
        let message = jsonrpc::parse(text).expect("a message");
        let accept = Accept { json: true, sse: true };
        let form = ReplyForm { accept, answers: Answers::Sse };
        let posted = self.session.handle_post(self.now, &message, form, &mut self.upstream);
        let Ok(Posted::Exchange(key)) = posted else { panic!("{posted:?}") };
        let Reply::Stream(stream) = self.session.reply(key) else { panic!("no stream") };
        (self.upstream.newest, stream)
    }

    fn write(&mut self, call: CallKey, kib: u64) {
        for _ in 0..kib {
            let event = [b'x'; KIB as usize];
            let about = About::Call(call);
            self.session.write(self.now, about, event.len(), |out| out.extend_from_slice(&event));
        }
    }

    /// Reads everything; `arrives` says whether its TCP acknowledges it.
    fn read(&mut self, stream: u32, generation: Generation, arrives: bool) {
        let mut sent = 0;
        let mut out = Vec::new();
        while self.session.transmit(stream, generation, sent, &mut out) == Step::Write {
            sent += out.len() as u64;
            out.clear();
        }
        if arrives {
            self.session.handle_acked(stream, generation, sent);
        }
    }

    fn attach(&mut self, stream: u32) -> Generation {
        self.session.attach_first(stream).expect("nobody reads it").generation
    }

    /// Does what a shell does; the streams whose readers were cut.
    fn settle(&mut self) -> Vec<u32> {
        let mut cut = Vec::new();
        while let Some(effect) = self.session.poll_effect() {
            match effect {
                Effect::Relieve(number) => {
                    self.session.relieve(self.now, number, &mut self.upstream);
                }
                Effect::Close(stream, _) => cut.push(stream),
                _ => {}
            }
        }
        cut
    }

    fn kept(&self, stream: u32) -> u64 {
        self.session.stream(stream).map_or(0, |stream| stream.tail() + 1 - stream.floor())
    }
}

/// What the client has named goes before what its TCP has confirmed, that before what is not
/// confirmed, and no more than is needed.
#[test]
fn relief_takes_what_was_named_then_what_was_confirmed_then_the_rest() {
    let mut bench = Bench::new(Limits::default());
    let [(a, named), (b, confirmed), (c, unread)] = [(); 3].map(|()| bench.call());
    for call in [a, b, c] {
        bench.write(call, 40);
    }
    for stream in [named, confirmed] {
        let generation = bench.attach(stream);
        bench.read(stream, generation, true);
    }
    bench.session.streams.get_mut(named).expect("there").stream.handle_named(40);
    let bytes = bench.session.bytes();
    let kept = |bench: &Bench| [named, confirmed, unread].map(|stream| bench.kept(stream));
    let mut shrink = |by: u64| {
        bench.session.shrink(bench.now, bytes - by * KIB, &mut bench.upstream);
        let cut = bench.settle();
        (kept(&bench), cut)
    };
    let (first, cut) = shrink(10);
    assert!((30..=31).contains(&first[0]) && first[1..] == [40, 40] && cut.is_empty(), "{first:?}");
    let (second, cut) = shrink(60);
    assert!(second[0] == 0 && (20..=24).contains(&second[1]) && second[2] == 40, "{second:?}");
    assert!(cut.is_empty());
    let (third, cut) = shrink(100);
    assert!(third[..2] == [0, 0] && (20..=30).contains(&third[2]), "{third:?}");
    assert!(cut.is_empty(), "those who have everything lose nothing");
}

/// The policy hits the stream that holds most unconfirmed bytes, not the one that holds most.
#[test]
fn the_policy_hits_the_most_unconfirmed_bytes() {
    let mut bench = Bench::new(Limits::default());
    let [(a, large), (b, behind)] = [(); 2].map(|()| bench.call());
    let [reads, lags] = [large, behind].map(|stream| bench.attach(stream));
    bench.write(a, 100);
    bench.read(large, reads, true);
    bench.write(a, 1);
    bench.write(b, 60);
    bench.read(behind, lags, false);
    let most = bench.session.bytes() - 120 * KIB;
    bench.session.shrink(bench.now, most, &mut bench.upstream);
    assert_eq!(bench.settle(), [behind]);
    assert_eq!(bench.kept(large), 1, "what its reader has not");
}

/// A reader that takes and acknowledges everything at once, beside one that reads nothing, while
/// both streams go over every budget again and again.
#[test]
fn a_reader_that_is_caught_up_is_never_paused_or_cut() {
    let limits = Limits { stream_bytes: 64 * KIB, session_bytes: 96 * KIB, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let [(fast, fast_stream), (slow, slow_stream)] = [(); 2].map(|()| bench.call());
    let reader = bench.attach(fast_stream);
    bench.attach(slow_stream);
    let mut offset = 0;
    let mut cut = Vec::new();
    for _ in 0..2000 {
        bench.write(fast, 4);
        bench.write(slow, 1);
        assert!(bench.session.has_room(About::Call(fast), bench.now), "paused");
        cut.append(&mut bench.settle());
        let mut out = Vec::new();
        while bench.session.transmit(fast_stream, reader, offset, &mut out) == Step::Write {
            offset += out.len() as u64;
            out.clear();
        }
        bench.session.handle_acked(fast_stream, reader, offset);
    }
    assert_eq!(cut, [slow_stream]);
    let stream = bench.session.stream(fast_stream).expect("there");
    assert_eq!((stream.confirmed(), stream.tail()), (8000, 8000));
}

/// Their number is bounded too: memory does not wait for the retention.
#[test]
fn a_hundred_thousand_finished_calls_do_not_hold_memory() {
    let mut bench = Bench::new(Limits::default());
    let mut most = 0;
    for _ in 0..100_000 {
        let (call, _) = bench.call();
        let now = bench.now;
        bench.session.respond(now, call, 64, |id, out| jsonrpc::result(out, id, "{}"));
        bench.settle();
        most = most.max(bench.session.bytes());
    }
    assert!(bench.session.stream_numbers().len() <= FINISHED_STREAMS_MAX + 1);
    assert!(most < FINISHED_STREAMS_MAX as u64 * KIB, "{most}");
    assert_eq!(bench.session.bytes(), bench.session.recount());
}

/// Each answer of a batch may be as large as an event, and none leaves before all are there.
#[test]
fn answers_that_wait_for_others_are_bounded() {
    let limits = Limits { session_bytes: 64 * KIB, stream_bytes: 64 * KIB, ..Limits::default() };
    let mut bench = Bench::new(limits);
    bench.session.set_initialized("2025-03-26");
    let calls: Vec<String> = (1..=4)
        .map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#))
        .collect();
    let text = format!("[{}]", calls.join(","));
    let message = jsonrpc::parse(text.as_bytes()).expect("a batch");
    let form = ReplyForm { accept: Accept { json: true, sse: false }, answers: Answers::Json };
    let posted = bench.session.handle_post(bench.now, &message, form, &mut bench.upstream);
    let Ok(Posted::Exchange(key)) = posted else { panic!("{posted:?}") };
    let large = format!(r#""{}""#, "x".repeat(20 * KIB as usize));
    for call in 1..=4 {
        bench.session.respond(bench.now, call, large.len(), |id, out| {
            jsonrpc::result(out, id, &large);
        });
    }
    assert!(bench.session.bytes() < 64 * KIB);
    assert_eq!(bench.session.take_done().answers_refused, 3);
    let Reply::Json(body) = bench.session.reply(key) else { panic!("all are there") };
    let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    let answers = body.as_array().expect("a batch");
    assert!(answers[0]["result"].is_string());
    assert!(answers[1..].iter().all(|answer| answer["error"]["data"]["reason"] == "no_room"));
}
