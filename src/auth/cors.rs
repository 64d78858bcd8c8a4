//! What browsers are told, so that a page of an allowed origin may call (Fetch standard,
//! section 3.3, "CORS protocol").
//!
//! Invariants: what is named is the origin that asked, and only where it is allowed: never `*`,
//! and never credentials of the browser's own (cookies). A preflight says nothing of who may ask:
//! browsers send it without credentials.

/// The field that names the origin.
pub const ALLOW_ORIGIN: &str = "access-control-allow-origin";

/// The other fields of every answer to an allowed origin: what its page may read beside the body,
/// and that another origin gets another answer.
pub const FIELDS: [(&str, &str); 2] = [
    ("vary", "Origin"),
    ("access-control-expose-headers", "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate"),
];

/// The field that tells a preflight from another OPTIONS.
pub const REQUEST_METHOD: &str = "access-control-request-method";

/// The fields that a page may send.
const ALLOW_HEADERS: &str = "content-type, accept, authorization, mcp-session-id, \
                             mcp-protocol-version, last-event-id, traceparent";

/// Seconds that a browser may remember the answer: two hours, the most that any takes.
const MAX_AGE: &str = "7200";

/// The fields of the answer to a preflight of a path that serves `methods`.
pub fn preflight(methods: &'static str) -> [(&'static str, &'static str); 3] {
    [
        ("access-control-allow-methods", methods),
        ("access-control-allow-headers", ALLOW_HEADERS),
        ("access-control-max-age", MAX_AGE),
    ]
}
