//! The machine against a sink that writes down what it is told.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::tools::{COUNT_MAX, INTERVAL_MS_MAX, SIZE_BYTES_MAX};
use super::{About, Builtin, RpcError, Sink};

/// What the machine said.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Notify(About, String, Value),
    Request(About, u64, String, Value),
    Result(u64, Value),
    Error(u64, i32, String, Option<Value>),
}

#[derive(Default)]
struct Record {
    said: Vec<Said>,
    /// Events that still fit; none: no bound.
    room: Option<usize>,
    bytes: usize,
}

impl Record {
    fn value(raw: &[u8]) -> Value {
        assert!(!raw.contains(&b'\n') && !raw.contains(&b'\r'), "one line");
        serde_json::from_slice(raw).expect("JSON")
    }
}

impl Sink for Record {
    fn notify(&mut self, about: About, method: &str, params: &[u8]) {
        self.bytes += params.len();
        self.room = self.room.map(|room| room - 1);
        self.said.push(Said::Notify(about, method.to_owned(), Self::value(params)));
    }

    fn request(&mut self, about: About, id: u64, method: &str, params: &[u8]) {
        self.said.push(Said::Request(about, id, method.to_owned(), Self::value(params)));
    }

    fn respond(&mut self, call: u64, result: Result<&[u8], RpcError<'_>>) {
        self.said.push(match result {
            Ok(result) => Said::Result(call, Self::value(result)),
            Err(error) => {
                let data = error.data.map(|data| Self::value(data.as_bytes()));
                Said::Error(call, error.code, error.message.to_owned(), data)
            }
        });
    }

    fn has_room(&self, _about: About) -> bool {
        self.room != Some(0)
    }
}

/// A machine, its sink and a clock that only moves when it is told.
struct World {
    builtin: Builtin,
    record: Record,
    start: Instant,
    now: Instant,
}

const LARGE: usize = 1 << 30;

impl World {
    fn new() -> Self {
        let start = Instant::now();
        Self { builtin: Builtin::new(), record: Record::default(), start, now: start }
    }

    fn initialized() -> Self {
        let mut world = Self::new();
        let capabilities = json!({ "sampling": {}, "elicitation": {} });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities });
        world.request(0, "initialize", &params.to_string());
        world.record.said.clear();
        world
    }

    fn request(&mut self, call: u64, method: &str, params: &str) {
        self.builtin.handle_request(self.now, call, method, Some(params), None, &mut self.record);
    }

    fn call(&mut self, call: u64, tool: &str, arguments: Value) {
        let params = json!({ "name": tool, "arguments": arguments }).to_string();
        self.request(call, "tools/call", &params);
    }

    fn call_with_token(&mut self, call: u64, tool: &str, arguments: Value, token: &str) {
        let params = json!({ "name": tool, "arguments": arguments }).to_string();
        self.builtin.handle_request(
            self.now,
            call,
            "tools/call",
            Some(&params),
            Some(token),
            &mut self.record,
        );
    }

    fn poll(&mut self, budget: usize) {
        self.builtin.poll(self.now, budget, &mut self.record);
    }

    /// Follows the machine's own timeouts until it wants nothing; returns the time that passed.
    fn run(&mut self) -> Duration {
        while let Some(at) = self.builtin.poll_timeout(self.now) {
            self.now = self.now.max(at);
            self.poll(LARGE);
        }
        self.now - self.start
    }

    /// The one answer to one request.
    fn answer(&mut self, method: &str, params: &str) -> Said {
        self.record.said.clear();
        self.request(1, method, params);
        assert_eq!(self.record.said.len(), 1, "{method}: {:?}", self.record.said);
        self.record.said.remove(0)
    }

    fn result(&mut self, method: &str, params: &str) -> Value {
        match self.answer(method, params) {
            Said::Result(1, result) => result,
            other => panic!("{method}: {other:?}"),
        }
    }

    fn refusal(&mut self, method: &str, params: &str) -> (i32, String) {
        match self.answer(method, params) {
            Said::Error(1, code, message, _) => (code, message),
            other => panic!("{method}: {other:?}"),
        }
    }

    fn tool_result(&mut self, tool: &str) -> Value {
        self.result("tools/call", &json!({ "name": tool }).to_string())
    }
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn event(seq: u64, size: usize) -> Value {
    json!({ "level": "info", "logger": "stream", "data": { "seq": seq, "pad": "x".repeat(size) } })
}

/// The sequence numbers of the events about `about`, in the order they went out.
fn sequence(said: &[Said], about: About) -> Vec<u64> {
    said.iter()
        .filter_map(|said| match said {
            Said::Notify(to, _, params) if *to == about => params["data"]["seq"].as_u64(),
            _ => None,
        })
        .collect()
}

#[test]
fn initialize_agrees_to_a_known_revision_and_offers_the_newest_otherwise() {
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1.0", "2025-11-25"),
    ] {
        let params = json!({ "protocolVersion": asked, "capabilities": {} }).to_string();
        let result = World::new().result("initialize", &params);
        assert_eq!(result["protocolVersion"], agreed);
        assert_eq!(result["serverInfo"]["name"], "gapless-demo");
        assert_eq!(result["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(result["capabilities"]["resources"], json!({ "subscribe": true }));
        for capability in ["tools", "prompts", "logging", "completions"] {
            assert!(result["capabilities"][capability].is_object(), "{capability}");
        }
        assert!(result["instructions"].is_string());
    }
    assert_eq!(World::new().refusal("initialize", "{}").0, -32602);
}

#[test]
fn echo_returns_the_text_byte_for_byte() {
    struct Raw(Vec<u8>);
    impl Sink for Raw {
        fn notify(&mut self, _: About, _: &str, _: &[u8]) {}
        fn request(&mut self, _: About, _: u64, _: &str, _: &[u8]) {}
        fn respond(&mut self, _: u64, result: Result<&[u8], RpcError<'_>>) {
            self.0 = result.expect("a result").to_vec();
        }
        fn has_room(&self, _: About) -> bool {
            true
        }
    }
    let mut sink = Raw(Vec::new());
    let params = concat!(
        r#"{ "arguments" : {"x":[1], "text" : "\u0041 \"ä\" \ud83d\ude00\n"}, "#,
        r#""name":"\u0065cho" }"#
    );
    Builtin::new().handle_request(Instant::now(), 1, "tools/call", Some(params), None, &mut sink);
    let expected = r#"{"content":[{"type":"text","text":"\u0041 \"ä\" \ud83d\ude00\n"}]}"#;
    assert_eq!(String::from_utf8_lossy(&sink.0), expected);
}

#[test]
fn wrong_calls_are_refused_with_their_reason() {
    let mut world = World::initialized();
    assert_eq!(world.refusal("no/such", "{}"), (-32601, "unknown method: no/such".into()));
    let unknown = world.refusal("tools/call", r#"{"name":"no_such"}"#);
    assert_eq!(unknown, (-32602, "unknown tool: no_such".into()));
    for params in [
        r#"{"name":"echo"}"#,
        r#"{"name":"echo","arguments":{"text":1}}"#,
        r#"{"name":"echo","arguments":{"text":null}}"#,
        r#"{"name":"echo","arguments":[1]}"#,
        r#"{"name":1}"#,
        "[]",
        "{",
        "",
    ] {
        assert_eq!(world.refusal("tools/call", params).0, -32602, "{params}");
    }
    for method in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
        assert_eq!(world.refusal(method, r#"{"cursor":"x"}"#).0, -32602, "{method}");
    }
    world.record.said.clear();
    world.builtin.handle_request(world.now, 3, "tools/call", None, None, &mut world.record);
    assert!(matches!(world.record.said[..], [Said::Error(3, -32602, _, None)]));
}

#[test]
fn arguments_are_bounded_and_the_bounds_are_said() {
    let mut world = World::initialized();
    for (tool, name, max) in [
        ("stream", "count", COUNT_MAX),
        ("stream", "size", SIZE_BYTES_MAX),
        ("stream", "interval_ms", INTERVAL_MS_MAX),
        ("standalone", "count", COUNT_MAX),
        ("standalone", "size", SIZE_BYTES_MAX),
        ("standalone", "interval_ms", INTERVAL_MS_MAX),
        ("sleep", "ms", INTERVAL_MS_MAX),
        ("progress", "count", COUNT_MAX),
        ("progress", "interval_ms", INTERVAL_MS_MAX),
    ] {
        for value in [json!(max + 1), json!(-1), json!(1.5), json!("1"), json!(u64::MAX)] {
            let params = json!({ "name": tool, "arguments": { name: value } }).to_string();
            let expected = format!("{name} must be an integer from 0 to {max}");
            assert_eq!(world.refusal("tools/call", &params), (-32602, expected));
        }
        world.record.said.clear();
        world.call(9, tool, json!({ name: max }));
        assert_eq!(world.record.said, [], "the bound itself is accepted");
        world.builtin.handle_cancelled(9);
    }
}

#[test]
fn stream_sends_its_events_in_order_and_then_its_result() {
    let mut world = World::new();
    world.call(7, "stream", json!({ "count": 3, "size": 4 }));
    assert_eq!(world.record.said, []);
    assert_eq!(world.run(), Duration::ZERO);
    let method = "notifications/message".to_owned();
    let mut expected: Vec<Said> =
        (1..=3).map(|seq| Said::Notify(About::Call(7), method.clone(), event(seq, 4))).collect();
    expected.push(Said::Result(7, text("3 events sent")));
    assert_eq!(world.record.said, expected);
    assert_eq!(world.builtin.poll_timeout(world.now), None);
}

#[test]
fn standalone_sends_its_events_to_the_standalone_stream_alone() {
    let mut world = World::new();
    world.call(7, "standalone", json!({ "count": 3, "size": 0 }));
    world.run();
    assert_eq!(sequence(&world.record.said, About::Standalone), [1, 2, 3]);
    assert_eq!(sequence(&world.record.said, About::Call(7)), [0; 0]);
    assert_eq!(world.record.said.last(), Some(&Said::Result(7, text("3 events sent"))));
}

#[test]
fn timed_events_keep_their_schedule_when_polls_come_late() {
    let mut world = World::new();
    world.call(1, "stream", json!({ "count": 4, "size": 1, "interval_ms": 10 }));
    world.poll(LARGE);
    assert_eq!(sequence(&world.record.said, About::Call(1)), [1]);
    let due = world.start + Duration::from_millis(10);
    assert_eq!(world.builtin.poll_timeout(world.now), Some(due));
    world.now = world.start + Duration::from_millis(9);
    world.poll(LARGE);
    assert_eq!(sequence(&world.record.said, About::Call(1)), [1]);
    world.now = world.start + Duration::from_millis(25);
    world.poll(LARGE);
    assert_eq!(sequence(&world.record.said, About::Call(1)), [1, 2, 3]);
    assert_eq!(world.run(), Duration::from_millis(30));
    assert_eq!(world.record.said.last(), Some(&Said::Result(1, text("4 events sent"))));
}

#[test]
fn sleep_answers_after_its_time() {
    let mut world = World::new();
    world.call(1, "sleep", json!({ "ms": 250 }));
    world.now += Duration::from_millis(249);
    world.poll(LARGE);
    assert_eq!(world.record.said, []);
    assert_eq!(world.run(), Duration::from_millis(250));
    assert_eq!(world.record.said, [Said::Result(1, text("slept for 250 ms"))]);
}

#[test]
fn progress_reports_with_the_clients_token_and_takes_the_same_time_without() {
    let mut world = World::new();
    let arguments = json!({ "count": 3, "interval_ms": 20 });
    world.call_with_token(1, "progress", arguments.clone(), "\"a\\u0062\"");
    assert_eq!(world.run(), Duration::from_millis(40));
    let progress: Vec<Said> = (1..=3)
        .map(|step| {
            let params = json!({ "progressToken": "ab", "progress": step, "total": 3 });
            Said::Notify(About::Call(1), "notifications/progress".into(), params)
        })
        .chain([Said::Result(1, text("3 events sent"))])
        .collect();
    assert_eq!(world.record.said, progress);

    let mut world = World::new();
    world.call(1, "progress", arguments);
    assert_eq!(world.run(), Duration::from_millis(40));
    assert_eq!(world.record.said, [Said::Result(1, text("no progress token: 0 events sent"))]);
}

#[test]
fn a_flood_stays_within_the_budget_of_each_poll() {
    let mut world = World::new();
    world.call(1, "stream", json!({ "count": 1000, "size": 100 }));
    let mut polls = 0;
    while world.builtin.poll_timeout(world.now).is_some() {
        world.record.bytes = 0;
        world.poll(10_000);
        assert!(world.record.bytes <= 10_000, "{}", world.record.bytes);
        polls += 1;
    }
    assert!(polls > 10, "{polls}");
    assert_eq!(sequence(&world.record.said, About::Call(1)), Vec::from_iter(1..=1000));
}

#[test]
fn an_event_larger_than_the_budget_still_goes_out_alone() {
    let mut world = World::new();
    world.call(1, "stream", json!({ "count": 2, "size": SIZE_BYTES_MAX }));
    world.poll(1000);
    assert_eq!(sequence(&world.record.said, About::Call(1)), [1]);
    world.poll(1000);
    world.poll(1000);
    assert_eq!(sequence(&world.record.said, About::Call(1)), [1, 2]);
    assert_eq!(world.record.said.last(), Some(&Said::Result(1, text("2 events sent"))));
    assert!(world.builtin.buffer.capacity() <= super::BUFFER_KEPT_BYTES, "given back");
}

#[test]
fn a_flood_without_room_waits_for_room_and_asks_for_no_time() {
    let mut world = World::new();
    world.record.room = Some(5);
    world.call(1, "stream", json!({ "count": 12, "size": 10 }));
    world.call(2, "sleep", json!({ "ms": 100 }));
    world.poll(LARGE);
    assert_eq!(sequence(&world.record.said, About::Call(1)), [1, 2, 3, 4, 5]);
    let due = world.start + Duration::from_millis(100);
    assert_eq!(world.builtin.poll_timeout(world.now), Some(due), "only the sleep wants time");
    world.poll(LARGE);
    assert_eq!(sequence(&world.record.said, About::Call(1)).len(), 5);
    world.record.room = Some(6);
    world.poll(LARGE);
    assert_eq!(sequence(&world.record.said, About::Call(1)).len(), 11);
    world.record.room = None;
    world.run();
    assert_eq!(sequence(&world.record.said, About::Call(1)), Vec::from_iter(1..=12));
}

#[test]
fn floods_share_the_budget_fairly() {
    let mut world = World::new();
    world.call(1, "stream", json!({ "count": COUNT_MAX, "size": 1000 }));
    world.call(2, "stream", json!({ "count": COUNT_MAX, "size": 10 }));
    world.call(3, "standalone", json!({ "count": 3, "size": 10 }));
    for _ in 0..20 {
        world.poll(8_000);
    }
    let first = sequence(&world.record.said, About::Call(1)).len() * 1000;
    let second = sequence(&world.record.said, About::Call(2)).len() * 70;
    assert!(first.abs_diff(second) <= 20_000, "{first} and {second} bytes");
    assert!(world.record.said.contains(&Said::Result(3, text("3 events sent"))));
}

#[test]
fn a_cancelled_call_says_nothing_more_and_leaves_nothing_behind() {
    let mut world = World::initialized();
    world.record.room = Some(1);
    world.call(1, "stream", json!({ "count": 10 }));
    world.call(2, "sleep", json!({ "ms": 10 }));
    world.call(3, "test_elicitation", json!({ "message": "m" }));
    world.poll(LARGE);
    world.call(4, "standalone", json!({ "count": 10 }));
    let said = world.record.said.len();
    for call in 1..=5 {
        world.builtin.handle_cancelled(call);
    }
    assert!(world.builtin.is_quiet());
    assert_eq!(world.builtin.poll_timeout(world.now), None);
    world.record.room = None;
    world.now += Duration::from_secs(1);
    world.poll(LARGE);
    let accepted = r#"{"action":"accept"}"#;
    world.builtin.handle_response(world.now, 1, Ok(accepted), &mut world.record);
    assert_eq!(world.record.said.len(), said);
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let play = || {
        let mut world = World::initialized();
        world.call(5, "stream", json!({ "count": 300, "size": 50 }));
        world.call(3, "standalone", json!({ "count": 20, "interval_ms": 7 }));
        world.call_with_token(4, "progress", json!({ "count": 5, "interval_ms": 9 }), "17");
        world.call(2, "sleep", json!({ "ms": 35 }));
        for _ in 0..30 {
            world.poll(2_000);
            world.now += Duration::from_millis(3);
        }
        world.run();
        world.record.said
    };
    let said = play();
    assert_eq!(said.iter().filter(|said| matches!(said, Said::Result(..))).count(), 4);
    assert_eq!(said, play());
}

mod conformance;
