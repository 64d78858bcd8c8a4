//! Pieces of the JSON text that params and results are composed of.
//!
//! Invariant: what is written is on one line (no raw line end), as the stdio transport and the
//! `data` field of Server-Sent Events want it.

use crate::mcp::jsonrpc::push_string;

/// Writes a non-negative integer.
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes a `CallToolResult` with one text, `text` being a JSON string already.
pub(super) fn push_raw_text_result(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(br#"{"content":[{"type":"text","text":"#);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"}]}");
}

/// Writes a `CallToolResult` with one text.
pub(super) fn push_text_result(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(br#"{"content":[{"type":"text","text":"#);
    push_string(out, text);
    out.extend_from_slice(b"}]}");
}

/// Writes a `CallToolResult` that says why the tool failed, for the model to read.
pub(super) fn push_failed_result(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(br#"{"content":[{"type":"text","text":"#);
    push_string(out, text);
    out.extend_from_slice(br#"}],"isError":true}"#);
}
