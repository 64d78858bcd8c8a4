//! The integration tests, in one binary: it links once.

mod batches;
mod children;
mod client;
mod closing;
mod corpus;
mod drain;
mod handoff;
mod http1;
mod http_sse;
mod inflight;
mod initialize;
mod keep_alive;
mod numbered;
mod origins;
mod overflow;
mod regression;
mod requests;
mod resume;
mod runtime_facts;
mod server;
mod sessions;
mod slow_reader;
mod stdio_child;
mod streams;
mod takeover;
