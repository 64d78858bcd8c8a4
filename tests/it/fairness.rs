//! Streams that flood a shard take turns with everything else on it.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{NEWEST, Session};
use crate::numbered::{flood, primed};
use crate::server::Server;

const STREAMS: usize = 32;
/// Far above what a turn of every stream takes (32 x 64 KiB), far below what one flood takes.
const SOON: Duration = Duration::from_secs(3);

/// One shard, 32 streams as fast as they go, each with a reader that keeps up: an accept, an
/// answer, a resume and a timer come in between, again and again, while the floods go on.
#[test]
fn a_flood_of_streams_delays_no_accept_no_resume_and_no_timer() {
    let server = Server::start(&["--shards", "1"]);
    let session = Session::start(&server, NEWEST);
    let other = Session::start(&server, NEWEST);
    let priming = primed(&mut other.call("1", "sleep", &json!({"ms": 600_000})));
    let floods: Vec<_> =
        (0..STREAMS).map(|_| session.call("1", "stream", &flood(10_000_000, 100, 0))).collect();
    let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for part in floods.chunks(STREAMS / 2) {
            let (stop, read) = (&stop, &read);
            scope.spawn(move || {
                let mut buffer = vec![0; 256 * 1024];
                while !stop.load(Ordering::Relaxed) {
                    for connection in part {
                        let bytes = (&mut connection.socket()).read(&mut buffer).unwrap_or(0);
                        read.fetch_add(bytes as u64, Ordering::Relaxed);
                    }
                }
            });
        }
        let (mut slowest, mut went_on) = (Duration::ZERO, true);
        for _ in 0..10 {
            let before = read.load(Ordering::Relaxed);
            let start = Instant::now();
            let answer = other.call("2", "echo", &json!({"text": "t"})).result();
            assert_eq!(answer["id"], 2);
            let mut resumed = other.resume(&priming);
            assert_eq!(primed(&mut resumed), priming);
            let slept = other.call("3", "sleep", &json!({"ms": 50})).result();
            assert_eq!(slept["id"], 3);
            slowest = slowest.max(start.elapsed());
            went_on &= read.load(Ordering::Relaxed) > before;
        }
        stop.store(true, Ordering::Relaxed);
        println!("slowest of ten rounds: {slowest:?}");
        assert!(went_on, "the floods go on");
        assert!(slowest < SOON, "{slowest:?}");
    });
    session.delete();
    server.stop();
}
