//! What one request head asks for, checked as far as a head can be. Pure.

use crate::auth::origin::OriginPolicy;
use crate::http::request::{Framing, Head, Method, Version};
use crate::http::response::Status;
use crate::mcp::headers::{self, Accept, Single};
use crate::mcp::revision;
use crate::mcp::session_id::SessionId;

/// What the session header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionField {
    /// Not there.
    Missing,
    /// Two different ones.
    Conflicting,
    /// One that is no id of ours: unknown like an ended one.
    Foreign,
    /// One that may be ours.
    Id(SessionId),
}

/// What `MCP-Protocol-Version` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VersionField {
    /// Absent, or a revision that is served.
    Served,
    /// One that is not: right only if the session's upstream named it.
    Other(Box<str>),
    /// Two different ones.
    Conflicting,
}

/// The MCP method of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Post,
    Get,
    Delete,
}

/// A request whose head was acceptable.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) verb: Verb,
    pub(super) accept: Accept,
    pub(super) session: SessionField,
    pub(super) version: VersionField,
    /// `Last-Event-ID` of a GET; two different ones are no id of anybody.
    pub(super) cursor: Option<Box<[u8]>>,
}

/// How the request's body and its answer are framed; known even for a refused head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) head_bytes: usize,
    pub(super) framing: Framing,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
    pub(super) expect_continue: bool,
    /// The answer has no body (HEAD).
    pub(super) head_only: bool,
}

/// A refusal that the head alone decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadRefusal {
    pub(super) status: Status,
    pub(super) reason: &'static str,
}

impl Frame {
    pub(super) fn of(head: &Head<'_>) -> Self {
        Self {
            head_bytes: head.len,
            framing: head.framing,
            version: head.version,
            keep_alive: head.keep_alive,
            expect_continue: head.expect_continue,
            head_only: head.method == Method::Head,
        }
    }
}

impl Request {
    /// Checks a head, in the order of `docs/wire.md`: who asks, what for, in which form.
    pub(super) fn read(
        head: &Head<'_>,
        path: &str,
        origins: &OriginPolicy,
    ) -> Result<Self, HeadRefusal> {
        let refuse = |status, reason| Err(HeadRefusal { status, reason });
        if !origins.allows_origin(head.fields("origin")) {
            return refuse(Status::Forbidden, "this origin is not allowed");
        }
        if !origins.allows_host(head.host()) {
            return refuse(Status::Forbidden, "this host is not served here");
        }
        if head.path != path {
            return refuse(Status::NotFound, "nothing is served at this path");
        }
        let verb = match head.method {
            Method::Post => Verb::Post,
            Method::Get => Verb::Get,
            Method::Delete => Verb::Delete,
            _ => return refuse(Status::MethodNotAllowed, "the methods here are GET, POST, DELETE"),
        };
        if verb == Verb::Post
            && !head.field("content-type").is_some_and(headers::is_json_content_type)
        {
            return refuse(Status::UnsupportedMediaType, "the body must be application/json");
        }
        let accept = headers::accept(head.fields("accept"));
        let acceptable = match verb {
            Verb::Post => accept.json || accept.sse,
            Verb::Get => accept.sse,
            Verb::Delete => true,
        };
        if !acceptable {
            let reason = "the answer is text/event-stream, or application/json for a POST";
            return refuse(Status::NotAcceptable, reason);
        }
        Ok(Self {
            verb,
            accept,
            session: session_field(head),
            version: version_field(head),
            cursor: cursor(head, verb),
        })
    }
}

fn session_field(head: &Head<'_>) -> SessionField {
    match headers::session_id(head.fields("mcp-session-id")) {
        Single::Absent => SessionField::Missing,
        Single::Conflicting => SessionField::Conflicting,
        Single::One(text) => match SessionId::parse(text) {
            Some(id) => SessionField::Id(id),
            None => SessionField::Foreign,
        },
    }
}

fn version_field(head: &Head<'_>) -> VersionField {
    match headers::protocol_version(head.fields("mcp-protocol-version")) {
        Single::Absent => VersionField::Served,
        Single::One(name) if revision::is_served(name) => VersionField::Served,
        Single::One(name) => VersionField::Other(name.into()),
        Single::Conflicting => VersionField::Conflicting,
    }
}

fn cursor(head: &Head<'_>, verb: Verb) -> Option<Box<[u8]>> {
    if verb != Verb::Get {
        return None;
    }
    match headers::last_event_id(head.fields("last-event-id")) {
        Single::Absent => None,
        Single::One(raw) => Some(raw.into()),
        Single::Conflicting => Some(Box::default()),
    }
}
