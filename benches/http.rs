//! The work of `http` per request and per event.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::SystemTime;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gapless::http::response::{self, DateCache, Status};
use gapless::http::{chunked, request, sse};
use gapless::limits::HEAD_FIELDS_MAX;

/// A `tools/call` as the official TypeScript client sends it through Node's fetch.
const POST: &[u8] = b"POST /mcp HTTP/1.1\r\n\
    host: 127.0.0.1:8383\r\n\
    connection: keep-alive\r\n\
    content-type: application/json\r\n\
    accept: application/json, text/event-stream\r\n\
    mcp-session-id: k3Jx0QpV9sYw2mBdA7fKzR4n\r\n\
    mcp-protocol-version: 2025-11-25\r\n\
    accept-language: *\r\n\
    sec-fetch-mode: cors\r\n\
    user-agent: node\r\n\
    accept-encoding: gzip, deflate\r\n\
    content-length: 104\r\n\r\n";

fn heads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("http");
    group.throughput(Throughput::Bytes(POST.len() as u64));
    group.bench_function("parse the head of a POST", |bench| {
        bench.iter(|| request::parse(black_box(POST)).map(|head| head.map(|head| head.len)));
    });
    // The floor: what the lexer alone takes.
    group.bench_function("httparse alone on the same head", |bench| {
        bench.iter(|| {
            let mut slots = [const { MaybeUninit::uninit() }; HEAD_FIELDS_MAX];
            let mut raw = httparse::Request::new(&mut []);
            raw.parse_with_uninit_headers(black_box(POST), &mut slots)
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("write the head of a JSON answer", |bench| {
        let (mut out, mut date, now) = (Vec::new(), DateCache::new(), SystemTime::now());
        bench.iter(|| {
            out.clear();
            response::head(&mut out, black_box(Status::Ok))
                .json()
                .field("mcp-session-id", black_box(b"k3Jx0QpV9sYw2mBdA7fKzR4n"))
                .date(date.at(black_box(now)))
                .length(black_box(104));
            out.len()
        });
    });
    group.finish();
}

fn events(criterion: &mut Criterion) {
    const EVENTS: u64 = 1000;
    let data = concat!(
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{""#,
        r#"seq":118,"a":1}}}"#,
    )
    .as_bytes();
    let write = |out: &mut Vec<u8>| {
        for number in 0..EVENTS {
            sse::event(out, b"k3Jx0QpV9sYw2mBd", number, black_box(data));
        }
    };
    let mut wire = Vec::new();
    write(&mut wire);

    let mut group = criterion.benchmark_group("sse");
    group.throughput(Throughput::Elements(EVENTS));
    group.bench_function("encode 1000 events of 100 bytes", |bench| {
        let mut out = Vec::with_capacity(wire.len());
        bench.iter(|| {
            out.clear();
            write(&mut out);
            out.len()
        });
    });
    group.bench_function("decode 1000 events of 100 bytes", |bench| {
        bench.iter(|| {
            let (mut decoder, mut rest, mut bytes) =
                (sse::Decoder::new(4096), black_box(wire.as_slice()), 0);
            while let Ok(Some(event)) = decoder.decode(&mut rest) {
                bytes += event.data.len();
            }
            bytes
        });
    });
    group.finish();
}

fn bodies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chunked");
    for (name, chunk) in
        [("decode 64 KiB in chunks of 16 KiB", 16 * 1024), ("decode 64 KiB in chunks of 64 B", 64)]
    {
        let mut wire = Vec::new();
        for data in vec![b'x'; 64 * 1024].chunks(chunk) {
            let mut head = [0; chunked::HEAD_LEN];
            chunked::fill_head(&mut head, data.len());
            wire.extend_from_slice(&head);
            wire.extend_from_slice(data);
            wire.extend_from_slice(chunked::TAIL);
        }
        wire.extend_from_slice(chunked::LAST);
        group.throughput(Throughput::Bytes(64 * 1024));
        group.bench_function(name, |bench| {
            bench.iter_batched_ref(
                || Vec::with_capacity(64 * 1024),
                |out| chunked::Decoder::new().decode(black_box(&wire), out, 64 * 1024),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, heads, events, bodies);
criterion_main!(benches);
