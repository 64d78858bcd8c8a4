//! What an event costs in the heart: logged, handed to a socket, confirmed, and read again by a
//! client that resumes.

use std::hint::black_box;
use std::time::Instant;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gapless::http::sse;
use gapless::limits::WRITE_BYTES_MAX;
use gapless::mcp::event_id::Token;
use gapless::mcp::session_id::SessionId;
use gapless::stream::{ConnOut, Generation, Start, Stream, Takeover, Transmit};

/// The program's allocator: appending is to a good part getting memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EVENTS: u64 = 10_000;
/// Events of one write, as a busy stream sends them.
const BATCH: u64 = 64;

/// A message of 100 bytes of JSON.
const MESSAGE: &[u8] = concat!(
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"seq""#,
    r#":118,"a":1}}}"#,
)
.as_bytes();

fn token() -> Token {
    Token::mint(&[7; 32], &SessionId::from_random(3, [0x5A; 16]), 12, 1)
}

fn append(stream: &mut Stream, token: &Token, now: Instant, count: u64) {
    for _ in 0..count {
        stream.append(now, MESSAGE.len() + 80, |number, out| {
            sse::event_with(out, [b"", token.as_bytes()], number, |out| {
                out.extend_from_slice(MESSAGE)
            });
        });
    }
}

fn attach(stream: &mut Stream, start: Start) -> Generation {
    let takeover = Takeover::begin(stream, start).expect("the cursor is inside of the log");
    takeover.finish(stream).expect("nobody else resumes").generation
}

/// Writes everything that there is, a write's bytes at a time; returns the bytes.
fn read_out(stream: &mut Stream, generation: Generation, buffer: &mut Vec<u8>) -> u64 {
    let mut connection = ConnOut::default();
    loop {
        buffer.clear();
        match stream.poll_transmit(generation, connection.written(), WRITE_BYTES_MAX, buffer) {
            Transmit::Data(bytes) => connection.handle_written(black_box(bytes) as u64),
            Transmit::RingFull => {
                let acked = connection.handle_acked(u64::MAX);
                stream.handle_acked(generation, acked);
            }
            _ => break,
        }
    }
    stream.handle_closed(generation, connection.acked());
    connection.written()
}

fn log(c: &mut Criterion) {
    let (token, now) = (token(), Instant::now());
    let mut group = c.benchmark_group("log");
    group.throughput(Throughput::Elements(EVENTS));
    group.bench_function("append 10000 events of 100 bytes", |b| {
        b.iter_batched_ref(
            Stream::default,
            |stream| append(stream, &token, now, EVENTS),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// The live path: a batch is logged, handed over as one write, and acknowledged.
fn send(c: &mut Criterion) {
    let (token, now) = (token(), Instant::now());
    let mut group = c.benchmark_group("send");
    group.throughput(Throughput::Elements(EVENTS));
    group.bench_function("log, transmit and confirm 10000 events by 64", |b| {
        b.iter_batched_ref(
            || (Stream::default(), Vec::with_capacity(WRITE_BYTES_MAX)),
            |(stream, buffer)| {
                let generation = attach(stream, Start::Fresh);
                let mut connection = ConnOut::default();
                let mut logged = 0;
                while logged < EVENTS {
                    let batch = BATCH.min(EVENTS - logged);
                    append(stream, &token, now, batch);
                    logged += batch;
                    buffer.clear();
                    let offset = connection.written();
                    let step = stream.poll_transmit(generation, offset, WRITE_BYTES_MAX, buffer);
                    let Transmit::Data(bytes) = step else { panic!("{step:?}") };
                    connection.handle_written(bytes as u64);
                    let acked = connection.handle_acked(connection.written());
                    stream.handle_acked(generation, acked);
                }
                assert_eq!(stream.confirmed(), EVENTS);
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn resume(c: &mut Criterion) {
    let (token, now) = (token(), Instant::now());
    let mut stream = Stream::default();
    let mut buffer = Vec::with_capacity(WRITE_BYTES_MAX);
    append(&mut stream, &token, now, EVENTS);
    stream.finish();
    let first = attach(&mut stream, Start::Fresh);
    let whole = read_out(&mut stream, first, &mut buffer);

    let mut group = c.benchmark_group("resume");
    group.throughput(Throughput::Elements(EVENTS));
    group.bench_function("10000 events in writes of 64 KiB", |b| {
        b.iter(|| {
            let generation = attach(&mut stream, Start::After(0));
            assert_eq!(read_out(&mut stream, generation, &mut buffer), whole);
        });
    });
    // Classification and attachment alone: what a resume costs before its first byte.
    group.throughput(Throughput::Elements(1));
    group.bench_function("classify and attach in the middle", |b| {
        b.iter(|| {
            let generation = attach(&mut stream, black_box(Start::After(EVENTS / 2)));
            stream.handle_closed(generation, 0);
        });
    });
    group.finish();
}

criterion_group!(benches, log, send, resume);
criterion_main!(benches);
