//! MCP: raw JSON-RPC envelopes, header fields, ids, revisions, pure.
