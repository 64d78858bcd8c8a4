//! One thread for each shard while the process starts, and a line now and then that says how far
//! they are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tracing::info;

/// How often work that takes long says how far it is.
const PROGRESS_TIME: Duration = Duration::from_secs(2);
/// How often is looked whether it is done.
const POLL_TIME: Duration = Duration::from_millis(1);

/// Does `work` for each of `shards` shards at once; it adds the bytes that it is done with to its
/// second argument, all of which are `total`. `what` is the message of the line.
///
/// # Errors
/// The first sentence of `work`, by the shard's number; a panic is one, too.
pub fn for_each_shard<T: Send>(
    shards: u16,
    total: u64,
    what: &'static str,
    work: impl Fn(u16, &AtomicU64) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        let (work, done) = (&work, &done);
        let threads: Vec<_> =
            (0..shards).map(|shard| scope.spawn(move || work(shard, done))).collect();
        let mut told = Instant::now();
        while threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(POLL_TIME);
            if told.elapsed() >= PROGRESS_TIME {
                told = Instant::now();
                let percent = done.load(Ordering::Relaxed) * 100 / total.max(1);
                info!(percent, total_bytes = total, "{what}");
            }
        }
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|one| one.unwrap_or_else(|_| Err(format!("{what}: a panic")))).collect()
    })
}
