//! `docs/wire.md`, "HTTP+SSE": the deprecated transport of MCP 2024-11-05 over real sockets.

mod client;
mod endings;
mod endpoint;
mod messages;
mod refusals;
mod resume;
