//! One property for each fuzz target: `holds` takes any bytes, and panics where it does not hold.
//!
//! Where a target reads structure out of its bytes, it says how; otherwise its bytes are what a
//! peer would send, so that a corpus file can be read and written by hand.

pub mod chunked;
pub mod event_id;
pub mod jsonrpc_splice;
pub mod request_head;
pub mod sse_decode;
pub mod stream;
pub mod wal_recovery;

use crate::rng::{Concern, Rng};

/// One target.
pub struct Target {
    /// The name of its binary and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Its property.
    pub holds: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [Target; 7] = [
    Target { name: "request_head", holds: request_head::holds },
    Target { name: "chunked", holds: chunked::holds },
    Target { name: "sse_decode", holds: sse_decode::holds },
    Target { name: "jsonrpc_splice", holds: jsonrpc_splice::holds },
    Target { name: "event_id", holds: event_id::holds },
    Target { name: "stream", holds: stream::holds },
    Target { name: "wal_recovery", holds: wal_recovery::holds },
];

/// Inputs up to this length are cut at every place, longer ones at a few.
const CUT_EVERYWHERE_MAX: usize = 32;

/// What stands in for chance: the same for the same input, so that every finding replays.
fn chance(input: &[u8]) -> Rng {
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    Rng::new(input.iter().fold(0xcbf2_9ce4_8422_2325, mix), Concern::Shape)
}

/// Gives `each` the ways in which `wire` may arrive: byte by byte, in two parts cut at every or
/// some places, and in a few parts, some of them empty.
fn for_each_split(wire: &[u8], mut each: impl FnMut(&[&[u8]])) {
    let mut rng = chance(wire);
    let parts = |cuts: &[usize]| -> Vec<&[u8]> {
        let all: Vec<usize> = [0].iter().chain(cuts).chain([&wire.len()]).copied().collect();
        all.windows(2).map(|pair| &wire[pair[0]..pair[1]]).collect()
    };
    each(&wire.chunks(1).collect::<Vec<_>>());
    let mut cut = || rng.between(0, wire.len() as u64) as usize;
    if wire.len() <= CUT_EVERYWHERE_MAX {
        (0..=wire.len()).for_each(|at| each(&parts(&[at])));
    } else {
        (0..8).for_each(|_| each(&parts(&[cut()])));
    }
    for _ in 0..3 {
        let mut cuts = [cut(), cut(), cut(), cut()];
        cuts.sort_unstable();
        each(&parts(&cuts));
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
