//! Plain answers: status, a JSON body or none.

use tracing::{info, warn};

use crate::auth::cors::preflight;
use crate::auth::gate::Refusal;
use crate::http::response::{self, Status};
use crate::limits::WRITE_BYTES_MAX;
use crate::mcp::jsonrpc::{self, Message, codes};
use crate::mcp::session_id::SessionId;
use crate::shard::Shard;

use super::request::{Early, Frame};

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
    /// Further fields of the head.
    pub(super) fields: Vec<(&'static str, String)>,
}

impl Answer {
    pub(super) fn json(body: Vec<u8>) -> Self {
        Self::with(Status::Ok, body)
    }

    pub(super) fn empty(status: Status) -> Self {
        Self::with(status, Vec::new())
    }

    pub(super) fn with(status: Status, body: Vec<u8>) -> Self {
        Self { status, body, session: None, fields: Vec::new() }
    }

    /// A JSON-RPC error for this id, raw, or for none.
    pub(super) fn error(status: Status, id: Option<&str>, code: i32, reason: &str) -> Self {
        let mut body = Vec::with_capacity(128);
        jsonrpc::error(&mut body, id, code, reason, None);
        Self::with(status, body)
    }

    /// The answer to a head that decides it alone.
    pub(super) fn early(shard: &Shard, frame: &Frame, early: Early) -> Self {
        match early {
            Early::Refused(status, reason) => {
                Self::error(status, None, codes::SERVER_ERROR, reason)
            }
            Early::Preflight => {
                let mut answer = Self::empty(Status::NoContent);
                answer.fields = preflight(frame.allow).map(|(n, v)| (n, v.to_owned())).into();
                answer
            }
            Early::Metadata => {
                let metadata = shard.process.credentials.metadata(frame.server);
                let document = metadata.map_or("", |metadata| &metadata.document);
                let mut answer = Self::json(document.as_bytes().to_vec());
                answer.fields.push(("cache-control", "max-age=3600".to_owned()));
                answer
            }
            Early::Denied(refusal) => {
                let reason = refusal.reason();
                if shard.may_log() {
                    info!(reason, "a request without good credentials was refused");
                }
                let status = match refusal {
                    Refusal::Scope => Status::Forbidden,
                    _ => Status::Unauthorized,
                };
                let mut answer = Self::error(status, None, codes::SERVER_ERROR, reason);
                answer
                    .fields
                    .push(("www-authenticate", shard.gate.challenge(frame.server, refusal)));
                answer
            }
        }
    }

    /// The one answer for a session that is not there, whoever asks and whyever.
    pub(super) fn no_session(id: Option<&str>) -> Self {
        Self::error(Status::NotFound, id, codes::SESSION_NOT_FOUND, "Session not found")
    }

    /// The answer, or an error in its place where a large one finds no room in the shard's budget:
    /// readers that do not read must not take all of it. What fits into a pooled buffer always
    /// does.
    pub(super) fn within_budget(self, shard: &Shard) -> Self {
        let bytes = self.body.len();
        if bytes <= WRITE_BYTES_MAX || shard.budget.has_room_for(bytes as u64) {
            return self;
        }
        shard.counters.answers_refused.increment();
        if shard.may_log() {
            let transit = shard.budget.transit();
            warn!(bytes, transit, "an answer was refused: there is no room for it in the budget");
        }
        Self { body: no_room(&self.body), ..self }
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
        head = frame.cross_origin(head);
        for (name, value) in &self.fields {
            head = head.field(name, value.as_bytes());
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

/// Errors for the ids of these answers.
fn no_room(answers: &[u8]) -> Vec<u8> {
    let error = |id: Option<&str>, out: &mut Vec<u8>| {
        let reason = "the server has no room for an answer of this size just now";
        let data = r#"{"reason":"no_room"}"#;
        jsonrpc::error(out, id, codes::SERVER_ERROR, reason, Some(data));
    };
    let mut body = Vec::with_capacity(256);
    match jsonrpc::parse(answers) {
        Ok(Message::Single(one)) => error(one.id, &mut body),
        Ok(Message::Batch(all)) => {
            for answer in &all {
                body.push(if body.is_empty() { b'[' } else { b',' });
                error(answer.id, &mut body);
            }
            body.push(b']');
        }
        Err(_) => error(None, &mut body),
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_room_is_an_error_for_each_of_its_ids() {
        let one = no_room(br#"{"jsonrpc":"2.0","id":"a","result":{}}"#);
        let Ok(Message::Single(error)) = jsonrpc::parse(&one) else { panic!("one error") };
        assert!(error.is_error && error.id == Some("\"a\""));
        let both = r#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]"#;
        let both = no_room(both.as_bytes());
        let Ok(Message::Batch(errors)) = jsonrpc::parse(&both) else { panic!("a batch") };
        let ids: Vec<_> = errors.iter().map(|error| error.id).collect();
        assert_eq!(ids, [Some("1"), Some("2")]);
    }
}
