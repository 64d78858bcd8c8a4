//! MCP: raw JSON-RPC envelopes, header fields, ids, revisions, pure.

pub mod event_id;
pub mod headers;
pub mod json;
pub mod jsonrpc;
mod opaque;
pub mod revision;
pub mod session_id;
