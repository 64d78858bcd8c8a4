//! A shard: one thread pinned to one CPU, with its own ring, listener and sessions.
//!
//! Shards share no state. They meet only in [`mailbox`]es, each with one [`doorbell`]; on a shard
//! every task is contained ([`task`]), yields through the ring ([`fairness`]), and takes deadlines
//! ([`wheel`]) and write buffers ([`pool`]) from the shard's own stock.

pub mod boot;
pub mod budget;
mod child_link;
pub mod credentials;
pub mod doorbell;
mod drain;
pub mod driver;
mod dump;
mod durable;
pub mod fairness;
pub mod handoff;
mod jwks;
pub mod live;
pub mod mailbox;
pub mod pool;
pub mod producers;
mod room;
pub mod signal;
pub mod snapshot;
mod state;
pub mod task;
pub mod timer;
pub mod wheel;

pub use self::state::{Process, Shard};

/// Runs a future on a runtime like a shard's.
#[cfg(test)]
fn run<F: Future>(future: F) -> F::Output {
    monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
        .with_entries(64)
        .uring_builder(crate::sys::uring::builder())
        .enable_timer()
        .build()
        .expect("a runtime")
        .block_on(future)
}
