//! Plain answers: status, a JSON body or none.

use crate::http::response::{self, Status};
use crate::mcp::jsonrpc::{self, codes};
use crate::mcp::session_id::SessionId;
use crate::shard::Shard;

use super::request::Frame;

/// Seconds after which a client may try again when there was no room.
const RETRY_AFTER: &[u8] = b"5";

/// One answer, complete but for its head.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    /// JSON, or empty.
    pub(super) body: Vec<u8>,
    /// The session that was just made.
    pub(super) session: Option<SessionId>,
}

impl Answer {
    pub(super) fn json(body: Vec<u8>) -> Self {
        Self { status: Status::Ok, body, session: None }
    }

    pub(super) fn empty(status: Status) -> Self {
        Self { status, body: Vec::new(), session: None }
    }

    pub(super) fn with(status: Status, body: Vec<u8>) -> Self {
        Self { status, body, session: None }
    }

    /// A JSON-RPC error for this id, raw, or for none.
    pub(super) fn error(status: Status, id: Option<&str>, code: i32, reason: &str) -> Self {
        let mut body = Vec::with_capacity(128);
        jsonrpc::error(&mut body, id, code, reason, None);
        Self::with(status, body)
    }

    /// The one answer for a session that is not there, whoever asks and whyever.
    pub(super) fn no_session(id: Option<&str>) -> Self {
        Self::error(Status::NotFound, id, codes::SESSION_NOT_FOUND, "Session not found")
    }

    /// Writes head and body behind `out`.
    pub(super) fn write(&self, shard: &Shard, frame: &Frame, close: bool, out: &mut Vec<u8>) {
        let close = close || !frame.keep_alive || shard.draining.get();
        let mut head = response::head(out, self.status)
            .to_version(frame.version)
            .connection_close(close)
            .date(&shard.date());
        if let Some(session) = &self.session {
            head = head.field("mcp-session-id", &session.write());
        }
        match self.status {
            Status::MethodNotAllowed => head = head.field("allow", frame.allow.as_bytes()),
            Status::ServiceUnavailable => head = head.field("retry-after", RETRY_AFTER),
            _ => {}
        }
        if self.body.is_empty() {
            head.no_body();
            return;
        }
        head.json().length(self.body.len() as u64);
        if !frame.head_only {
            out.extend_from_slice(&self.body);
        }
    }
}
