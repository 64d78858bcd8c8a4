//! What the programs share: requests, answers, and the runtime with the ring flags of gapless'
//! shards.

use std::io::{self, Read};

use io_uring::IoUring;
use monoio::{IoUringDriver, RuntimeBuilder};

pub mod answer;

/// The JSON-RPC id in a request, and the first that is sent; the count of digits stays.
pub const FIRST_ID: u32 = 100_000_000;
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

/// The requests on stdin, each ended by a zero byte.
pub fn requests() -> io::Result<Vec<Vec<u8>>> {
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input)?;
    Ok(input.split(|byte| *byte == 0).filter(|one| !one.is_empty()).map(<[u8]>::to_vec).collect())
}
