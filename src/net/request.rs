//! What one request head asks for, checked as far as a head can be.

use std::time::SystemTime;

use crate::auth::cors;
use crate::auth::gate::{self, Gate, Who};
use crate::auth::metadata::Metadata;
use crate::auth::origin::OriginPolicy;
use crate::config::{Config, ServerConfig};
use crate::http::request::{Framing, Head, Method, Version};
use crate::http::response::{HeadWriter, Status};
use crate::mcp::headers::{self, Accept, Single};
use crate::mcp::revision;
use crate::mcp::session_id::{SESSION_ID_CHARS, SessionId};

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

/// What is asked for, by path and method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Post,
    Get,
    Delete,
    /// GET of the HTTP+SSE transport: a new session, or one that goes on after a cursor.
    OpenHttpSse,
    /// POST of the HTTP+SSE transport.
    PostHttpSse,
}

impl Verb {
    pub(super) fn is_http_sse(self) -> bool {
        matches!(self, Self::OpenHttpSse | Self::PostHttpSse)
    }
}

/// A path that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Mcp,
    HttpSseStream,
    HttpSseMessages,
    /// The document that says who gives tokens (RFC 9728), where there is one.
    Metadata,
}

impl Endpoint {
    /// With the server that it belongs to, by its place in the configuration.
    pub(super) fn find(path: &str, config: &Config) -> Option<(u16, Self)> {
        config
            .servers
            .iter()
            .zip(0..)
            .find_map(|(server, index)| Some((index, Self::of(path, server, config)?)))
    }

    fn of(path: &str, server: &ServerConfig, config: &Config) -> Option<Self> {
        if path == server.path {
            return Some(Self::Mcp);
        }
        if config.auth.metadata.is_some() && Metadata::is_at(path, &server.path) {
            return Some(Self::Metadata);
        }
        let paths = server.http_sse.as_ref()?;
        if path == paths.stream {
            return Some(Self::HttpSseStream);
        }
        (path == paths.messages).then_some(Self::HttpSseMessages)
    }

    /// The methods of the path, as `Allow` lists them.
    fn allow(self) -> &'static str {
        match self {
            Self::Mcp => "GET, POST, DELETE",
            Self::HttpSseStream => "GET",
            Self::HttpSseMessages => "POST",
            Self::Metadata => "GET, HEAD",
        }
    }

    fn verb(self, method: Method) -> Option<Verb> {
        match (self, method) {
            (Self::Mcp, Method::Post) => Some(Verb::Post),
            (Self::Mcp, Method::Get) => Some(Verb::Get),
            (Self::Mcp, Method::Delete) => Some(Verb::Delete),
            (Self::HttpSseStream, Method::Get) => Some(Verb::OpenHttpSse),
            (Self::HttpSseMessages, Method::Post) => Some(Verb::PostHttpSse),
            _ => None,
        }
    }
}

/// A request whose head was acceptable.
#[derive(Debug)]
pub(super) struct Request {
    /// The server whose path it is.
    pub(super) server: u16,
    pub(super) verb: Verb,
    pub(super) who: Who,
    pub(super) accept: Accept,
    pub(super) session: SessionField,
    pub(super) version: VersionField,
    /// `Last-Event-ID` of a GET; two different ones are no id of anybody.
    pub(super) cursor: Option<Box<[u8]>>,
}

/// How the request's body and its answer are framed; known even for a refused head.
#[derive(Debug)]
pub(super) struct Frame {
    /// The server whose path it is; the first one where it is nobody's.
    pub(super) server: u16,
    pub(super) head_bytes: usize,
    pub(super) framing: Framing,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
    pub(super) expect_continue: bool,
    /// The answer has no body (HEAD).
    pub(super) head_only: bool,
    /// The methods of the path, for a 405.
    pub(super) allow: &'static str,
    /// The allowed `Origin` of a page that asks.
    pub(super) origin: Option<Box<[u8]>>,
    /// When the credentials of whoever asks end.
    pub(super) until: Option<SystemTime>,
}

/// What a request is answered whose head alone decides that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Early {
    /// A refusal.
    Refused(Status, &'static str),
    /// A browser asks whether a page may ask.
    Preflight,
    /// Who gives tokens is asked for.
    Metadata,
    /// Its credentials are not good.
    Denied(gate::Refusal),
}

impl Frame {
    /// `found` is what [`Endpoint::find`] says of the path.
    pub(super) fn of(
        head: &Head<'_>,
        found: Option<(u16, Endpoint)>,
        origins: &OriginPolicy,
    ) -> Self {
        let origin = head.field("origin");
        let origin = origin.filter(|_| origins.allows_origin(head.fields("origin")));
        Self {
            server: found.map_or(0, |(server, _)| server),
            head_bytes: head.len,
            framing: head.framing,
            version: head.version,
            keep_alive: head.keep_alive,
            expect_continue: head.expect_continue,
            head_only: head.method == Method::Head,
            allow: found.map_or("", |(_, endpoint)| endpoint.allow()),
            origin: origin.map(Box::from),
            until: None,
        }
    }
}

impl Frame {
    /// Tells the page that asks, where one does, that it may read the answer.
    pub(super) fn cross_origin<'o>(&self, head: HeadWriter<'o>) -> HeadWriter<'o> {
        let Some(origin) = &self.origin else { return head };
        let fields = cors::FIELDS.into_iter();
        fields.fold(head.field(cors::ALLOW_ORIGIN, origin), |head, (name, value)| {
            head.field(name, value.as_bytes())
        })
    }
}

impl Request {
    /// Checks a head, in the order of `docs/wire.md`: who asks, what for, in which form.
    pub(super) fn read(
        head: &Head<'_>,
        found: Option<(u16, Endpoint)>,
        origins: &OriginPolicy,
        gate: &Gate,
    ) -> Result<Self, Early> {
        let refuse = |status, reason| Err(Early::Refused(status, reason));
        if !origins.allows_origin(head.fields("origin")) {
            return refuse(Status::Forbidden, "this origin is not allowed");
        }
        if !origins.allows_host(head.host()) {
            return refuse(Status::Forbidden, "this host is not served here");
        }
        let Some((server, endpoint)) = found else {
            return refuse(Status::NotFound, "nothing is served at this path");
        };
        if is_preflight(head) {
            return Err(Early::Preflight);
        }
        // Nobody has to say who he is: it is for those who cannot yet.
        if endpoint == Endpoint::Metadata && matches!(head.method, Method::Get | Method::Head) {
            return Err(Early::Metadata);
        }
        let Some(verb) = endpoint.verb(head.method) else {
            return refuse(Status::MethodNotAllowed, "this path does not serve this method");
        };
        let who = gate.check(head.fields("authorization"), SystemTime::now);
        let who = who.map_err(Early::Denied)?;
        if matches!(verb, Verb::Post | Verb::PostHttpSse) && !is_json(head) {
            return refuse(Status::UnsupportedMediaType, "the body must be application/json");
        }
        let accept = headers::accept(head.fields("accept"));
        let acceptable = match verb {
            Verb::Post => accept.json || accept.sse,
            Verb::Get | Verb::OpenHttpSse => accept.sse,
            Verb::Delete | Verb::PostHttpSse => true,
        };
        if !acceptable {
            let reason = "the answer is text/event-stream, or application/json for a POST";
            return refuse(Status::NotAcceptable, reason);
        }
        let mut request = Self {
            server,
            verb,
            who,
            accept,
            session: SessionField::Missing,
            version: VersionField::Served,
            cursor: cursor(head, verb),
        };
        match verb {
            Verb::OpenHttpSse => request.take_scope(),
            Verb::PostHttpSse => request.session = session_query(head.query),
            _ => {
                request.session = session_field(head);
                request.version = version_field(head);
            }
        }
        Ok(request)
    }
}

impl Request {
    /// Whose sessions it may see: 0 is nobody's.
    pub(super) fn principal(&self) -> u64 {
        self.who.as_ref().map_or(0, |who| who.id)
    }

    /// The session that an HTTP+SSE cursor begins with; the rest is the cursor itself.
    fn take_scope(&mut self) {
        let Some(raw) = self.cursor.take() else { return };
        let scope = raw.split_at_checked(SESSION_ID_CHARS);
        let parts = scope.and_then(|(id, rest)| Some((SessionId::parse(id)?, rest)));
        match parts.and_then(|(id, rest)| Some((id, rest.strip_prefix(b".")?))) {
            Some((id, rest)) => {
                self.session = SessionField::Id(id);
                self.cursor = Some(rest.into());
            }
            None => self.session = SessionField::Foreign,
        }
    }
}

/// Whether it is a browser's question before a request that a page wants to make.
fn is_preflight(head: &Head<'_>) -> bool {
    head.method == Method::Options
        && head.field("origin").is_some()
        && head.field(cors::REQUEST_METHOD).is_some()
}

/// Whether the body says that it is JSON. Of several lines each must: two readers could follow
/// different ones.
fn is_json(head: &Head<'_>) -> bool {
    head.field("content-type").is_some()
        && head.fields("content-type").all(headers::is_json_content_type)
}

/// `sessionId` of an HTTP+SSE POST. Its characters need no percent-encoding.
fn session_query(query: Option<&str>) -> SessionField {
    let pairs = query.unwrap_or_default().split('&');
    let mut values = pairs.filter_map(|pair| pair.strip_prefix("sessionId="));
    match (values.next(), values.next()) {
        (None, _) => SessionField::Missing,
        (Some(_), Some(_)) => SessionField::Conflicting,
        (Some(text), None) => match SessionId::parse(text.as_bytes()) {
            Some(id) => SessionField::Id(id),
            None => SessionField::Foreign,
        },
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
    if !matches!(verb, Verb::Get | Verb::OpenHttpSse) {
        return None;
    }
    match headers::last_event_id(head.fields("last-event-id")) {
        Single::Absent => None,
        Single::One(raw) => Some(raw.into()),
        Single::Conflicting => Some(Box::default()),
    }
}
