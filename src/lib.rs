//! gapless: MCP servers on the network, with streams that never silently lose or repeat an event.
//!
//! It is a durable, ordered event log per stream, with HTTP in front. The way of data:
//!
//! ```text
//! net::accept -> net::conn (http::request -> mcp) -> [shard::handoff to the owner] -> session
//!   -> upstream -> stream.append (log) -> ring -> net::writer -> socket
//! back: net::handle (acknowledged bytes) -> stream.handle_acked -> the ring evicts
//! ```
//!
//! `http`, `mcp`, `session`, `stream` are pure: they take bytes, events and `now`, and return what
//! to do. `sys`, `shard`, `net` and the shells of `upstream` touch the machine.

pub mod admin;
pub mod auth;
pub mod config;
pub mod http;
pub mod limits;
pub mod mcp;
pub mod net;
pub mod obs;
pub mod session;
pub mod shard;
pub mod store;
pub mod stream;
pub mod sys;
pub mod upstream;
