//! What each request pays for MCP: reading the envelope, minting and verifying event ids.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gapless::mcp::event_id::{Token, verify};
use gapless::mcp::jsonrpc::{self, Message};
use gapless::mcp::session_id::SessionId;

const CALL: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1234,"method":"tools/call","params":{"name":"echo","arguments":{"m"#,
    r#"essage":"The quick brown fox jumps over the lazy dog."}}}"#,
);
const CALL_WITH_TOKEN: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1234,"method":"tools/call","params":{"name":"echo","arguments":{"m"#,
    r#"essage":"The quick brown fox"},"_meta":{"progressToken":1234}}}"#,
);

fn parse(c: &mut Criterion) {
    let large = CALL.replace("lazy", &"lazy ".repeat(13_000));
    let mut group = c.benchmark_group("parse");
    for (name, text) in
        [("call", CALL), ("call_with_progress_token", CALL_WITH_TOKEN), ("call_of_64_kib", &large)]
    {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |b| b.iter(|| jsonrpc::parse(black_box(text.as_bytes()))));
    }
    group.finish();
}

fn splice(c: &mut Criterion) {
    let Ok(Message::Single(call)) = jsonrpc::parse(CALL_WITH_TOKEN.as_bytes()) else {
        unreachable!("the constant is one message")
    };
    let edits = [
        (call.id.unwrap_or_default(), b"77".as_slice()),
        (jsonrpc::request_progress_token(&call).unwrap_or_default(), b"77".as_slice()),
    ];
    let mut out = Vec::with_capacity(512);
    c.bench_function("push_line", |b| {
        b.iter(|| {
            out.clear();
            jsonrpc::push_line(black_box(call.text), black_box(&edits), &mut out);
        });
    });
}

fn event_ids(c: &mut Criterion) {
    let key = [7; 32];
    let session = SessionId::from_random(3, [0x5A; 16]);
    let mut raw = Vec::new();
    Token::mint(&key, &session, 12, 3).push_id(118, &mut raw);
    c.bench_function("token_mint", |b| {
        b.iter(|| Token::mint(black_box(&key), black_box(&session), black_box(12), black_box(3)));
    });
    c.bench_function("token_verify", |b| {
        b.iter(|| verify(black_box(&raw), black_box(&key), black_box(&session), 3, 1));
    });
    let text = session.write();
    c.bench_function("session_id_parse", |b| b.iter(|| SessionId::parse(black_box(&text))));
}

criterion_group!(benches, parse, splice, event_ids);
criterion_main!(benches);
