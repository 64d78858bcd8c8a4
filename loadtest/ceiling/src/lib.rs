//! What the programs share: answers, and the runtime with the ring flags of gapless' shards.

use std::io;

use io_uring::IoUring;
use monoio::{IoUringDriver, RuntimeBuilder};

pub mod answer;

/// Submission entries, as a shard of gapless has.
const ENTRIES: u32 = 4096;
/// Completion entries, as a shard of gapless has.
const COMPLETION_ENTRIES: u32 = 16 * 1024;

/// Runs `future` on this thread, on a ring of its own.
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    let mut ring = IoUring::builder();
    ring.setup_single_issuer().setup_coop_taskrun().setup_cqsize(COMPLETION_ENTRIES);
    let mut runtime = RuntimeBuilder::<IoUringDriver>::new()
        .with_entries(ENTRIES)
        .uring_builder(ring)
        .enable_timer()
        .build()?;
    Ok(runtime.block_on(future))
}
