//! MCP: raw JSON-RPC envelopes, header fields, ids, revisions, pure.

pub mod json;
pub mod jsonrpc;
