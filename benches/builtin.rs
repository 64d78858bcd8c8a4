//! Cost of the built-in demo server's hot paths, without any transport.

use std::hint::black_box;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gapless::upstream::builtin::{About, Builtin, RpcError, Sink};

/// Counts what it is given.
#[derive(Default)]
struct Counter {
    events: u64,
    answers: u64,
    bytes: u64,
}

impl Sink for Counter {
    fn notify(&mut self, _about: About, _method: &str, params: &[u8]) {
        self.events += 1;
        self.bytes += black_box(params).len() as u64;
    }

    fn request(&mut self, _about: About, _id: u64, _method: &str, params: &[u8]) {
        self.bytes += black_box(params).len() as u64;
    }

    fn respond(&mut self, _call: u64, result: Result<&[u8], RpcError<'_>>) {
        self.answers += 1;
        self.bytes += black_box(result).map_or(0, <[u8]>::len) as u64;
    }

    fn has_room(&self, _about: About) -> bool {
        true
    }
}

fn echo(criterion: &mut Criterion) {
    let now = Instant::now();
    let params = r#"{"name":"echo","arguments":{"text":"the quick brown fox"}}"#;
    let mut builtin = Builtin::new();
    let mut sink = Counter::default();
    criterion.bench_function("builtin/echo", |bencher| {
        bencher.iter(|| {
            let params = Some(black_box(params));
            builtin.handle_request(now, 1, "tools/call", params, None, &mut sink);
        });
    });
    assert!(sink.answers > 0 && sink.bytes > 0);
}

fn flood(criterion: &mut Criterion) {
    let now = Instant::now();
    let params = r#"{"name":"stream","arguments":{"count":1000,"size":100}}"#;
    let mut group = criterion.benchmark_group("builtin");
    group.throughput(Throughput::Elements(1000));
    group.bench_function("stream of 1000 events of 100 bytes", |bencher| {
        bencher.iter(|| {
            let mut builtin = Builtin::new();
            let mut sink = Counter::default();
            builtin.handle_request(now, 1, "tools/call", Some(params), None, &mut sink);
            while builtin.poll_timeout(now).is_some() {
                builtin.poll(now, 64 * 1024, &mut sink);
            }
            assert_eq!((sink.events, sink.answers), (1000, 1));
        });
    });
}

criterion_group!(benches, echo, flood);
criterion_main!(benches);
