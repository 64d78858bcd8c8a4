//! GET: a listener of the standalone stream, or a client that goes on after a cursor.

use std::rc::Rc;

use tracing::{info, warn};

use crate::http::response::Status;
use crate::mcp::jsonrpc::codes;
use crate::obs::counters::RequestKind;
use crate::session::{Refusal, RefusalAnswer, STANDALONE};
use crate::shard::Shard;
use crate::shard::live::Live;
use crate::shard::timer::pause;
use crate::stream::Attached;
use crate::stream::resume::Class;

use super::answer::Answer;
use super::dispatch::{find, log_owner, no_room};
use super::request::{Request, SessionField, Verb};

/// What a GET leads to.
pub(super) enum Opened {
    /// A plain answer.
    Answer(Answer),
    /// 200 and these bytes of an event stream, then its end.
    InBand(Vec<u8>),
    /// The connection has the stream.
    Attached(Rc<Live>, u32, Attached),
    /// A newer connection has it: this one closes.
    Superseded,
}

/// Admission, fence, attachment: `docs/architecture.md`, "Resume".
pub(super) async fn open(shard: &Rc<Shard>, request: &Request) -> Opened {
    let cursor = request.cursor.as_deref();
    let kind = if cursor.is_some() { RequestKind::Resume } else { RequestKind::Get };
    shard.counters.request(kind);
    if request.verb == Verb::OpenHttpSse && request.session == SessionField::Missing {
        return open_http_sse(shard, request);
    }
    let live = match find(shard, request, None, None) {
        Ok(live) => live,
        Err(answer) => return Opened::Answer(answer),
    };
    let delay = live.with(shard, |session, _, now| session.reattach_delay(now, cursor));
    if let Some(delay) = delay {
        pause(delay).await;
        if live.look(|session| session.ended().is_some()) {
            return Opened::Answer(Answer::no_session(None));
        }
    }
    let begun = live.with(shard, |session, _, now| match cursor {
        Some(raw) => session.resume(now, raw),
        None => Ok(session.listen(now)),
    });
    let (stream, takeover) = match begun {
        Ok(begun) => begun,
        Err(refusal) => return refuse(shard, &live, cursor, refusal),
    };
    if let Some(old) = takeover.must_close() {
        live.close_reader(stream, old).await;
    }
    if live.look(|session| session.ended().is_some()) {
        return Opened::Answer(Answer::no_session(None));
    }
    let raw = cursor.unwrap_or_default();
    match live.with(shard, |session, _, _| session.attach(stream, takeover, raw)) {
        Ok(attached) => {
            log_attached(shard, &live, stream, &attached, cursor.is_some());
            Opened::Attached(live, stream, attached)
        }
        Err(None) => Opened::Superseded,
        Err(Some(refusal)) => refuse(shard, &live, cursor, refusal),
    }
}

/// A new session of the HTTP+SSE transport, whose stream this connection has at once.
fn open_http_sse(shard: &Rc<Shard>, request: &Request) -> Opened {
    if shard.draining.get() {
        let reason = "the server is shutting down";
        let status = Status::ServiceUnavailable;
        return Opened::Answer(Answer::error(status, None, codes::RESTARTED, reason));
    }
    if shard.log_failed() {
        let (status, reason) = (Status::ServiceUnavailable, "the log of this server has failed");
        return Opened::Answer(Answer::error(status, None, codes::LOG_FAILED, reason));
    }
    let paths = shard.server(request.server).http_sse.as_ref();
    let live =
        paths.and_then(|paths| shard.add_session(request.server, request.principal(), Some(paths)));
    let Some(live) = live else { return Opened::Answer(no_room(None)) };
    live.set_known();
    log_owner(&live, request);
    info!(session = %live.short, transport = "http+sse", "session started");
    match live.with(shard, |session, _, _| session.attach_first(STANDALONE)) {
        Some(attached) => Opened::Attached(live, STANDALONE, attached),
        None => Opened::Superseded,
    }
}

fn log_attached(shard: &Shard, live: &Live, stream: u32, attached: &Attached, resumes: bool) {
    shard.counters.resume(attached.class);
    let (class, number) = (attached.class, attached.after);
    if let Some((first, last)) = attached.gap {
        shard.counters.gap_markers.increment();
        warn!(session = %live.short, stream, first, last, "a listener has missed events");
    }
    if !resumes {
        return;
    }
    let (floor, tail) = live.look(|session| {
        session.stream(stream).map_or((0, 0), |stream| (stream.floor(), stream.tail()))
    });
    let (class, source) = (class.name(), class.source());
    info!(session = %live.short, stream, class, number, floor, tail, source, "resumed");
}

fn refuse(shard: &Shard, live: &Live, cursor: Option<&[u8]>, refusal: Refusal) -> Opened {
    shard.counters.resume(refusal.class);
    let Refusal { class, stream, number, floor, tail, answer } = refusal;
    if shard.may_log() {
        let (session, class_name) = (live.short, class.name());
        if class == Class::Unknown {
            let presented = cursor.unwrap_or_default().escape_ascii();
            info!(%session, class = class_name, %presented, "resume refused");
        } else {
            info!(%session, stream, class = class_name, number, floor, tail, "resume refused");
        }
    }
    match answer {
        RefusalAnswer::InBand(bytes) => Opened::InBand(bytes),
        RefusalAnswer::Over(body) => Opened::Answer(Answer::with(Status::MethodNotAllowed, body)),
        RefusalAnswer::Gone(body) => Opened::Answer(Answer::with(Status::Gone, body)),
        RefusalAnswer::Unknown(body) => Opened::Answer(Answer::with(Status::BadRequest, body)),
    }
}
