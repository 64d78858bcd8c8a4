//! From a complete request to what its session answers.

use std::rc::Rc;

use tracing::{info, warn};

use crate::http::response::Status;
use crate::mcp::headers::Accept;
use crate::mcp::jsonrpc::{self, Envelope, Kind, Malformed, Message, codes};
use crate::mcp::session_id::SessionId;
use crate::obs::counters::RequestKind;
use crate::session::{Answers, Ended, ExchangeKey, Posted, Reply, ReplyForm};
use crate::shard::Shard;
use crate::shard::live::Live;

use super::answer::Answer;
use super::request::{Request, SessionField, VersionField};

/// What a POST or DELETE leads to.
pub(super) enum Outcome {
    /// An answer that is there.
    Answer(Answer),
    /// The stream of a session, from its start.
    Stream(Rc<Live>, u32),
    /// The answer that a session begins or ends with, as soon as a restart would find it so.
    Kept(Rc<Live>, Answer),
    /// A reply that will come as JSON, or start a stream.
    Wait(Rc<Live>, ExchangeKey),
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

/// A POST with its whole body.
pub(super) fn post(shard: &Rc<Shard>, request: &Request, body: &[u8]) -> Outcome {
    let message = match jsonrpc::parse(body) {
        Ok(message) => message,
        Err(wrong) => return malformed(shard, request, &wrong).into(),
    };
    shard.counters.request(kind(&message));
    if shard.log_failed()
        && let Some(answer) = refuse_unlogged(&message)
    {
        return answer.into();
    }
    if let Message::Single(single) = &message
        && single.kind == Kind::Request
        && single.method.as_deref() == Some("initialize")
    {
        return initialize(shard, request, single);
    }
    let live = match find(shard, request, id_of(&message), Some(&message)) {
        Ok(live) => live,
        Err(answer) => return answer.into(),
    };
    let form = ReplyForm { accept: request.accept, answers: shard.server(request.server).answers };
    let only_notes = match &message {
        Message::Single(single) => single.kind != Kind::Request,
        Message::Batch(all) => all.iter().all(|message| message.kind != Kind::Request),
    };
    let posted = live.with(shard, |session, behind, now| {
        behind.set_crowded(shard.budget.is_crowded());
        if only_notes && behind.is_full() {
            return None;
        }
        Some(session.handle_post(now, &message, form, behind))
    });
    match posted {
        None => full(shard, &live).into(),
        Some(Ok(Posted::Accepted)) => Answer::empty(Status::Accepted).into(),
        Some(Ok(Posted::Exchange(exchange))) => reply(shard, live, exchange),
        Some(Err(refusal)) => {
            Answer::error(Status::BadRequest, None, refusal.code, refusal.reason).into()
        }
    }
}

/// A POST of the HTTP+SSE transport: the answers go to the session's stream.
pub(super) fn post_http_sse(shard: &Rc<Shard>, request: &Request, body: &[u8]) -> Answer {
    let message = match jsonrpc::parse(body) {
        Ok(message) => message,
        Err(wrong) => return malformed(shard, request, &wrong),
    };
    shard.counters.request(kind(&message));
    if shard.log_failed()
        && let Some(answer) = refuse_unlogged(&message)
    {
        return answer;
    }
    let live = match find(shard, request, id_of(&message), Some(&message)) {
        Ok(live) => live,
        Err(answer) => return answer,
    };
    let posted = live.with(shard, |session, behind, now| {
        behind.set_crowded(shard.budget.is_crowded());
        (!behind.is_full()).then(|| session.handle_http_sse_post(now, &message, behind))
    });
    match posted {
        None => full(shard, &live),
        Some(Ok(())) => Answer::empty(Status::Accepted),
        Some(Err(refusal)) => Answer::error(Status::BadRequest, None, refusal.code, refusal.reason),
    }
}

/// A body that is no message. A session that is named comes first: its end is what the client has
/// to learn, whatever it sends. Without one the body may have been meant as an `initialize`.
fn malformed(shard: &Rc<Shard>, request: &Request, wrong: &Malformed<'_>) -> Answer {
    if request.session != SessionField::Missing
        && let Err(answer) = find(shard, request, wrong.id, None)
    {
        return answer;
    }
    Answer::error(Status::BadRequest, wrong.id, wrong.code, wrong.reason)
}

/// Nothing more can be taken for the upstream.
fn full(shard: &Shard, live: &Live) -> Answer {
    shard.counters.inputs_refused.increment();
    if shard.may_log() {
        let queued = live.queued_bytes();
        warn!(session = %live.short, queued, "a message was refused: no room before the child");
    }
    let reason = "the server does not read its input fast enough";
    Answer::error(Status::ServiceUnavailable, None, codes::SERVER_ERROR, reason)
}

/// DELETE ends the session, and says so when no restart can bring it back.
pub(super) fn delete(shard: &Rc<Shard>, request: &Request) -> Outcome {
    shard.counters.request(RequestKind::Delete);
    match find(shard, request, None, None) {
        Ok(live) => {
            live.with(shard, |session, _, _| session.end(Ended::Deleted));
            let answer = Answer::empty(Status::Ok);
            if shard.wal().is_some() { Outcome::Kept(live, answer) } else { answer.into() }
        }
        Err(answer) => answer.into(),
    }
}

/// The session of a request that has to name one.
pub(super) fn find(
    shard: &Rc<Shard>,
    request: &Request,
    id: Option<&str>,
    message: Option<&Message<'_>>,
) -> Result<Rc<Live>, Answer> {
    let bad = |code, reason| Err(Answer::error(Status::BadRequest, id, code, reason));
    if request.version == VersionField::Conflicting {
        return bad(codes::INVALID_REQUEST, "MCP-Protocol-Version names two revisions");
    }
    let unserved = "this protocol revision is not served; start with initialize";
    let key = match request.session {
        SessionField::Missing if is_unserved(request, message) => {
            return bad(codes::INVALID_REQUEST, unserved);
        }
        SessionField::Missing => return bad(codes::SERVER_ERROR, "the session id is missing"),
        SessionField::Conflicting => {
            return bad(codes::SERVER_ERROR, "the request names two sessions");
        }
        SessionField::Foreign => return Err(Answer::no_session(id)),
        SessionField::Id(key) => key,
    };
    let Some(live) = shard.session(&key) else { return Err(Answer::no_session(id)) };
    // Until its initialize is answered nobody but us knows the id, except where the transport
    // names it first. A session of one transport is none of the other's, nor one of another
    // server's; and one of another principal is none at all: nothing may tell that it is there.
    let http_sse = request.verb.is_http_sse();
    let served = live.look(|session| {
        session.ended().is_none()
            && session.settings().server == request.server
            && session.principal() == request.principal()
            && session.is_http_sse() == http_sse
            && (http_sse || session.is_initialized())
    });
    if !served {
        return Err(Answer::no_session(id));
    }
    if let VersionField::Other(name) = &request.version
        && live.look(|session| session.revision_name() != &**name)
    {
        return bad(codes::INVALID_REQUEST, unserved);
    }
    Ok(live)
}

/// The reply as it stands.
pub(super) fn reply(shard: &Rc<Shard>, live: Rc<Live>, exchange: ExchangeKey) -> Outcome {
    match live.with(shard, |session, _, _| session.reply(exchange)) {
        Reply::Pending => Outcome::Wait(live, exchange),
        // Every request of the POST was cancelled: there is no answer, and nothing is wrong.
        Reply::Json(body) if body.is_empty() => Answer::empty(Status::Accepted).into(),
        Reply::Json(body) => {
            let mut answer = Answer::json(body);
            if live.is_new() {
                answer.session = accept_session(shard, &live);
            }
            match answer.session {
                Some(_) if shard.wal().is_some() => Outcome::Kept(live, answer),
                _ => answer.into(),
            }
        }
        Reply::Stream(stream) => Outcome::Stream(live, stream),
        Reply::Gone => Answer::no_session(None).into(),
    }
}

/// The answer to `initialize` is there: the session begins, or it never was one.
fn accept_session(shard: &Rc<Shard>, live: &Rc<Live>) -> Option<SessionId> {
    live.set_known();
    if live.look(|session| session.is_initialized() && session.ended().is_none()) {
        shard.log_started(live);
        return Some(live.look(|session| session.id()));
    }
    live.with(shard, |session, _, _| session.end(Ended::NotInitialized));
    None
}

/// The answer that a session begins or ends with: once that is in the log, or an error if it never
/// will be.
pub(super) async fn keep(shard: &Rc<Shard>, live: &Rc<Live>, answer: Answer) -> Answer {
    let Some(wal) = shard.wal() else { return answer };
    let remembered_at = live.look(|session| session.remembered_at());
    if wal.committed(remembered_at).await {
        return answer;
    }
    live.with(shard, |session, _, _| session.end(Ended::NotInitialized));
    match jsonrpc::parse(&answer.body) {
        Ok(message) => log_failed(id_of_any(&message)),
        Err(_) => log_failed(None),
    }
}

/// What requests are answered once the log has failed; none where there are none.
fn refuse_unlogged(message: &Message<'_>) -> Option<Answer> {
    let is_request = |message: &&Envelope<'_>| message.kind == Kind::Request;
    match message {
        Message::Single(single) => is_request(&single).then(|| log_failed(single.id)),
        Message::Batch(all) => {
            let errors = all.iter().filter(is_request).map(|request| log_failed(request.id).body);
            let errors: Vec<Vec<u8>> = errors.collect();
            let whole = [b"[".as_slice(), &errors.join(b",".as_slice()), b"]"].concat();
            (!errors.is_empty()).then(|| Answer::json(whole))
        }
    }
}

fn log_failed(id: Option<&str>) -> Answer {
    let mut body = Vec::with_capacity(160);
    let (reason, data) = ("the log of this server has failed", r#"{"reason":"log_failed"}"#);
    jsonrpc::error(&mut body, id, codes::LOG_FAILED, reason, Some(data));
    Answer::json(body)
}

fn id_of_any<'a>(message: &Message<'a>) -> Option<&'a str> {
    match message {
        Message::Single(single) => single.id,
        Message::Batch(_) => None,
    }
}

fn initialize(shard: &Rc<Shard>, request: &Request, message: &Envelope<'_>) -> Outcome {
    if shard.draining.get() {
        let reason = "the server is shutting down";
        let status = Status::ServiceUnavailable;
        return Answer::error(status, message.id, codes::RESTARTED, reason).into();
    }
    let Some(live) = shard.add_session(request.server, request.principal(), None) else {
        return no_room(message.id).into();
    };
    log_owner(&live, request);
    // Always JSON: its head carries the session's id.
    let accept = Accept { json: true, sse: false };
    let form = ReplyForm { accept, answers: Answers::Json };
    let message = Message::Single(message.clone());
    let posted =
        live.with(shard, |session, behind, now| session.handle_post(now, &message, form, behind));
    match posted {
        Ok(Posted::Exchange(exchange)) => reply(shard, live, exchange),
        _ => Answer::no_session(None).into(),
    }
}

/// Says whose session it will be, where that is known.
pub(super) fn log_owner(live: &Live, request: &Request) {
    if let Some(who) = &request.who {
        info!(session = %live.short, principal = &*who.name, "a session is asked for");
    }
}

/// The process has as many sessions as it may.
pub(super) fn no_room(id: Option<&str>) -> Answer {
    let reason = "the server has as many sessions as it may";
    Answer::error(Status::ServiceUnavailable, id, codes::SERVER_ERROR, reason)
}

/// A request of the revision that is not served, told apart so that a probing client falls back.
fn is_unserved(request: &Request, message: Option<&Message<'_>>) -> bool {
    let probes = match message {
        Some(Message::Single(single)) => single.method.as_deref() == Some("server/discover"),
        _ => false,
    };
    probes || matches!(request.version, VersionField::Other(_))
}

fn id_of<'a>(message: &Message<'a>) -> Option<&'a str> {
    match message {
        Message::Single(single) if single.kind == Kind::Request => single.id,
        _ => None,
    }
}

fn kind(message: &Message<'_>) -> RequestKind {
    let Message::Single(single) = message else { return RequestKind::Batch };
    match (single.kind, single.method.as_deref()) {
        (Kind::Request, Some("initialize")) => RequestKind::Initialize,
        (Kind::Request, Some("tools/call")) => RequestKind::ToolsCall,
        (Kind::Request, _) => RequestKind::OtherCall,
        (Kind::Notification, _) => RequestKind::Notification,
        (Kind::Response, _) => RequestKind::Response,
    }
}
