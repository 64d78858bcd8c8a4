//! The integration tests, in one binary: it links once.

mod batches;
mod children;
mod client;
mod closing;
mod drain;
mod http1;
mod inflight;
mod initialize;
mod keep_alive;
mod origins;
mod requests;
mod runtime_facts;
mod server;
mod sessions;
mod stdio_child;
