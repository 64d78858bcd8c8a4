//! Pieces of the JSON text that params and results are composed of.
//!
//! Invariant: what is written is on one line (no raw line end), as the stdio transport and the
//! `data` field of Server-Sent Events want it.

/// Writes `text` as a JSON string (RFC 8259 section 7).
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    // Neither a `Vec` as the writer nor a `str` as the value can fail.
    let written = serde_json::to_writer(out, text);
    debug_assert!(written.is_ok());
}

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
