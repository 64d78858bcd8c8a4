//! The integration tests, in one binary: it links once.

mod client;
mod closing;
mod runtime_facts;
mod server;
mod sessions;
mod stdio_child;
