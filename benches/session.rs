//! The pure way of one request: bytes in, head and envelope read, the session asked, the built-in
//! server's answer out. What a request costs beyond this is the shell's: system calls and tasks.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gapless::limits::Limits;
use gapless::mcp::jsonrpc;
use gapless::session::{About, Answers, CallKey, Reply};

use path::Fixture;

#[path = "../tests/hot_path/path.rs"]
#[expect(dead_code, reason = "the counts use the rest")]
mod path;

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("request");
    group.throughput(Throughput::Elements(1));
    for (name, answers) in [("echo as JSON", Answers::Json), ("echo as SSE", Answers::Sse)] {
        let mut fixture = Fixture::new(Limits::default());
        group.bench_function(name, |b| {
            b.iter(|| {
                fixture.serve(answers);
                black_box(fixture.output.len())
            });
        });
        let text = String::from_utf8_lossy(&fixture.output);
        assert!(text.contains("the quick brown fox"), "{text}");
    }
    group.finish();
}

/// One more event in a session of many open calls whose logs fill its budget.
fn relief(c: &mut Criterion) {
    const CALLS: u64 = 500;
    const SLEEP: &str = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","argument"#,
        r#"s":{"ms":3600000}}}"#,
    );
    let limits = Limits { session_bytes: 8 << 20, stream_bytes: 1 << 20, ..Limits::default() };
    let mut fixture = Fixture::new(limits);
    let sleep = jsonrpc::parse(SLEEP.as_bytes()).expect("the constant is one message");
    for _ in 0..CALLS {
        assert!(matches!(fixture.post(&sleep, Answers::Sse), Reply::Stream(_)));
        fixture.settle();
    }
    // Keys are counted from 1, which `initialize` had.
    let calls: Vec<CallKey> = (2..CALLS + 2).collect();
    assert!(calls.iter().all(|&call| fixture.session.exchange_of(call).is_some()));
    let event = [b'x'; 1000];
    let mut turns = calls.iter().cycle();
    let mut write = |fixture: &mut Fixture| {
        let about = About::Call(*turns.next().expect("endless"));
        let (session, now) = (&mut fixture.session, fixture.now);
        session.write(now, about, event.len(), |out| out.extend_from_slice(&event));
        fixture.settle();
    };
    while fixture.session.bytes() < 7 << 20 {
        write(&mut fixture);
    }
    let mut group = c.benchmark_group("relief");
    group.throughput(Throughput::Elements(1));
    group.bench_function("an event at the session's budget", |b| b.iter(|| write(&mut fixture)));
    group.finish();
    assert!(fixture.session.bytes() <= 8 << 20);
}

criterion_group!(benches, requests, relief);
criterion_main!(benches);
