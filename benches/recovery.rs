//! A start on a data directory, from its opening to what the shards go on with: time, and what the
//! index keeps in memory. The page cache is warm, so reading shows what the program costs. The
//! first start also syncs the whole log, as nothing in it says that this was done: it shows the
//! disk.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use gapless::config::DataConfig;
use gapless::mcp::event_id::Token;
use gapless::mcp::session_id::SessionId;
use gapless::store::body::{SessionBody, StreamBody, Transport};
use gapless::store::directory::{Directory, boot_id};
use gapless::store::journal::Level;
use gapless::store::meta::Meta;
use gapless::store::record::{self, HEADER_BYTES, Header, Kind};
use gapless::store::segment::{SegmentHeader, file_name};
use gapless::store::start;

const SEGMENT_BYTES: usize = 64 << 20;
/// Bytes of the log of all shards together.
const LOG_BYTES: usize = 1 << 30;
const SESSIONS: u32 = 64;
const KEY: [u8; 32] = [3; 32];

/// The bytes of segment `number`, full of events that go round the sessions.
fn segment(shard: u16, number: u32, event_bytes: usize, next: &mut [u64]) -> Vec<u8> {
    let header = SegmentHeader {
        shard,
        number,
        epoch: 1,
        generation: 1,
        level: Level::Process,
        boot_id: boot_id().expect("known"),
        created: 1,
        run: 1,
    };
    let mut bytes = Vec::with_capacity(SEGMENT_BYTES);
    bytes.extend_from_slice(&header.encode());
    let of = |kind, slot, number| Header { slot, ..Header::of_log(kind, number) };
    let id = |slot| SessionId::from_random(shard, u128::from(slot).to_be_bytes());
    for slot in (0..SESSIONS).filter(|_| number == 1) {
        let (mut session, mut stream) = (Vec::new(), Vec::new());
        let body = SessionBody {
            id: id(slot),
            server: "default".into(),
            principal: 0,
            transport: Transport::StreamableHttp,
            next_stream: 1,
            revision: "2025-11-25".to_owned(),
            endpoint: String::new(),
            initialize: Vec::new(),
            result: Vec::new(),
        };
        body.encode(&mut session);
        StreamBody::default().encode(&mut stream);
        record::push(&mut bytes, number, &of(Kind::Session, slot, 0), &session);
        record::push(&mut bytes, number, &of(Kind::Stream, slot, 1), &stream);
    }
    let mut event = Vec::new();
    loop {
        for (slot, next) in (0..).zip(next.iter_mut()) {
            event.clear();
            event.extend_from_slice(b"id: ");
            Token::mint(&KEY, &id(slot), 0, 1).push_id(*next, &mut event);
            event.extend_from_slice(b"\ndata: ");
            event.resize(event_bytes - 2, b'x');
            event.extend_from_slice(b"\n\n");
            if bytes.len() + event.len() + 2 * HEADER_BYTES > SEGMENT_BYTES {
                record::push(&mut bytes, number, &Header::of_log(Kind::Seal, 0), b"");
                return bytes;
            }
            record::push(&mut bytes, number, &of(Kind::Event, slot, *next), &event);
            *next += 1;
        }
    }
}

/// A directory as a killed process leaves it: the last segment of each shard is fresh.
fn make(path: &Path, shards: u16, event_bytes: usize) -> u64 {
    let mut directory = Directory::open(path).expect("made");
    let meta = Meta { generation: 1, shards, epoch: 1, runs: 1, key: KEY };
    directory.replace_meta(meta).expect("written");
    directory.make_generation(1, shards).expect("made");
    let mut events = 0;
    for shard in 0..shards {
        let mut next = vec![1; SESSIONS as usize];
        let count = (LOG_BYTES / SEGMENT_BYTES / usize::from(shards)) as u32;
        for number in 1..=count {
            let bytes = segment(shard, number, event_bytes, &mut next);
            let name = directory.layout().shard(1, shard).join(file_name(number));
            let mut file = BufWriter::new(File::create(name).expect("made"));
            file.write_all(&bytes).expect("written");
        }
        events += next.iter().map(|next| next - 1).sum::<u64>();
    }
    events
}

/// Resident memory, bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").expect("read");
    let pages: u64 = status.split(' ').nth(1).expect("resident").parse().expect("a number");
    pages * 4096
}

fn main() {
    // `cargo test` runs benches, too, to see that they start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let path: PathBuf = std::env::temp_dir().join(format!("gapless-bench-{}", std::process::id()));
    for event_bytes in [256, 1024, 16384] {
        for shards in [1, 2] {
            let events = make(&path, shards, event_bytes);
            let config = DataConfig { dir: path.clone(), durability: Level::Process };
            for (what, target) in [("not yet synced", shards), ("again", shards), ("moved", 3)] {
                let (before, started) = (resident(), Instant::now());
                let opened = start::open(&config, SEGMENT_BYTES as u64, target).expect("opened");
                let seconds = started.elapsed().as_secs_f64();
                let kept: usize = opened.shards.iter().flat_map(|log| &log.sessions).count();
                let memory = resident().saturating_sub(before);
                println!(
                    "{event_bytes} B events, {shards} shards, {what}: {:.2} GiB/s, \
                     {:.2} M events/s, {seconds:.2} s, {kept} sessions, \
                     {:.1} B of memory per event",
                    LOG_BYTES as f64 / seconds / (1u64 << 30) as f64,
                    events as f64 / seconds / 1e6,
                    memory as f64 / events as f64,
                );
            }
            fs::remove_dir_all(&path).expect("removed");
        }
    }
}
