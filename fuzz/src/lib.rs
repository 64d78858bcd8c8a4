//! What the fuzz targets need: the properties, and what the simulator has that they use.
//!
//! `tests/fuzz_corpus.rs` includes the same files, so that a property is written once.

pub mod properties;

#[path = "../../tests/sim/check.rs"]
pub mod check;
#[path = "../../tests/sim/coverage.rs"]
pub mod coverage;
#[path = "../../tests/sim/durable.rs"]
pub mod durable;
#[path = "../../tests/sim/oracle.rs"]
pub mod oracle;
#[path = "../../tests/sim/receipts.rs"]
pub mod receipts;
#[path = "../../tests/sim/rng.rs"]
pub mod rng;
