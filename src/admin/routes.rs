//! What each path answers.

use std::rc::Rc;

use serde::Serialize;

use crate::http::request::Method;
use crate::http::response::Status;
use crate::obs::prometheus::{self, ProcessFacts};
use crate::obs::snapshot::{SessionSnapshot, ShardSnapshot};
use crate::session::Ended;
use crate::shard::live::Live;
use crate::shard::{Shard, snapshot};
use crate::sys::{random::Random, signal};

use super::{Admin, ask, notify};

/// Sessions that are listed unless `limit` says otherwise, and at the most.
const LISTED: usize = 1000;
const LISTED_MAX: usize = 100_000;

/// The status page.
const PAGE: &str = include_str!("page.html");
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// An answer with its body.
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
    /// The methods of the path, for a 405.
    pub(super) allow: &'static str,
    /// The client is asked for the token.
    pub(super) challenge: bool,
    /// What the page's own script and style are known by.
    pub(super) nonce: Option<String>,
}

impl Answer {
    fn new(status: Status, content_type: &'static str, body: Vec<u8>) -> Self {
        Self { status, content_type, body, allow: "", challenge: false, nonce: None }
    }

    /// `body` as JSON.
    pub(super) fn json(status: Status, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("names and numbers can be written");
        Self::new(status, JSON, body)
    }

    /// A refusal, with its reason.
    pub(super) fn refuse(status: Status, reason: &str) -> Self {
        Self::json(status, &serde_json::json!({ "error": reason }))
    }

    /// A shard did not answer.
    pub(super) fn silent(shard: usize) -> Self {
        Self::refuse(Status::ServiceUnavailable, &format!("shard {shard} does not answer"))
    }

    fn not_allowed(allow: &'static str) -> Self {
        let reason = format!("this path serves {allow}");
        Self { allow, ..Self::refuse(Status::MethodNotAllowed, &reason) }
    }
}

/// The answer to a request that may be made.
pub(super) fn answer(
    admin: &Admin,
    method: Method,
    path: &str,
    query: &str,
    body: &[u8],
) -> Answer {
    let is_read = matches!(method, Method::Get | Method::Head);
    match path {
        "/" | "/healthz" | "/readyz" | "/metrics" | "/api/status" | "/api/sessions" if !is_read => {
            Answer::not_allowed("GET")
        }
        "/" => page(),
        "/healthz" => Answer::new(Status::Ok, "text/plain; charset=utf-8", b"ok\n".to_vec()),
        "/readyz" => ready(admin),
        "/metrics" => metrics(admin),
        "/api/status" => status(admin),
        "/api/sessions" => list(admin, query),
        "/api/notify" if method == Method::Post => notify::all(admin, query, body),
        "/api/drain" if method == Method::Post => drain(),
        "/api/notify" | "/api/drain" => Answer::not_allowed("POST"),
        _ => match path.strip_prefix("/api/sessions/") {
            Some(rest) => session(admin, method, rest, query, body),
            None => Answer::refuse(Status::NotFound, "nothing is served at this path"),
        },
    }
}

fn session(admin: &Admin, method: Method, rest: &str, query: &str, body: &[u8]) -> Answer {
    match (rest.split_once('/'), method) {
        (None, Method::Get) => one(admin, rest),
        (None, Method::Delete) => end(admin, rest),
        (None, _) => Answer::not_allowed("GET, DELETE"),
        (Some((short, "notify")), Method::Post) => notify::one(admin, short, query, body),
        (Some((_, "notify")), _) => Answer::not_allowed("POST"),
        _ => Answer::refuse(Status::NotFound, "nothing is served at this path"),
    }
}

/// The page, whose script and style have a name of this answer's own, so that no other would run.
fn page() -> Answer {
    let mut bytes = [0; 16];
    let nonce = match Random::new() {
        Ok(mut random) => {
            random.fill(&mut bytes);
            format!("{:032x}", u128::from_ne_bytes(bytes))
        }
        Err(_) => return Answer::refuse(Status::ServiceUnavailable, "there is no randomness"),
    };
    let page = PAGE.replace("{nonce}", &nonce).into_bytes();
    Answer { nonce: Some(nonce), ..Answer::new(Status::Ok, HTML, page) }
}

/// Whether new work may be sent here (a load balancer's question).
fn ready(admin: &Admin) -> Answer {
    let shards = match ask::all(&admin.process, |shard| snapshot::of_shard(shard)) {
        Ok(shards) => shards,
        Err(shard) => return Answer::silent(shard),
    };
    if shards.iter().any(|shard| shard.draining) {
        return Answer::refuse(Status::ServiceUnavailable, "draining");
    }
    for shard in &shards {
        if let Some(log) = shard.log.as_ref().filter(|log| log.fault.is_some() || log.disk_full) {
            let why = log.fault.as_deref().unwrap_or("disk full");
            let reason = format!("the log of shard {} has failed: {why}", shard.shard);
            return Answer::refuse(Status::ServiceUnavailable, &reason);
        }
    }
    Answer::json(Status::Ok, &serde_json::json!({ "ready": true }))
}

fn metrics(admin: &Admin) -> Answer {
    match ask::all(&admin.process, |shard| snapshot::of_shard(shard)) {
        Ok(shards) => {
            let totals = admin.process.totals((admin.lost_lines)());
            let text = prometheus::text(&facts(admin), &totals, &shards);
            Answer::new(Status::Ok, prometheus::CONTENT_TYPE, text.into_bytes())
        }
        Err(shard) => Answer::silent(shard),
    }
}

fn facts(admin: &Admin) -> ProcessFacts {
    use std::sync::atomic::Ordering::Relaxed;
    let (process, limits) = (&admin.process, &admin.process.config.limits);
    ProcessFacts {
        started: admin.started,
        sessions: (process.sessions.load(Relaxed), limits.sessions),
        connections: (process.connections.load(Relaxed), limits.connections),
    }
}

#[derive(Serialize)]
struct Everything {
    version: &'static str,
    /// Unix time, seconds.
    started: u64,
    totals: serde_json::Map<String, serde_json::Value>,
    shards: Vec<ShardSnapshot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<Vec<SessionSnapshot>>,
}

/// The state of the process and of its `most` largest sessions, as JSON; or the shard that did
/// not answer.
pub(super) fn everything(admin: &Admin, most: usize) -> Result<String, usize> {
    let all = Everything { sessions: Some(largest(admin, most)?.0), ..state(admin)? };
    Ok(serde_json::to_string(&all).expect("names and numbers can be written"))
}

fn state(admin: &Admin) -> Result<Everything, usize> {
    let mut totals = serde_json::Map::new();
    admin.process.totals((admin.lost_lines)()).for_each(|name, value| {
        totals.insert(name.to_owned(), value.into());
    });
    let (version, started) = (env!("CARGO_PKG_VERSION"), admin.started);
    let shards = ask::all(&admin.process, |shard| snapshot::of_shard(shard))?;
    Ok(Everything { version, started, totals, shards, sessions: None })
}

fn status(admin: &Admin) -> Answer {
    match state(admin) {
        Ok(state) => Answer::json(Status::Ok, &state),
        Err(shard) => Answer::silent(shard),
    }
}

/// The `most` sessions that hold most, and how many there are.
fn largest(admin: &Admin, most: usize) -> Result<(Vec<SessionSnapshot>, usize), usize> {
    let of_each = ask::all(&admin.process, move |shard| {
        let mut all = shard.sessions();
        let count = all.len();
        all.sort_by_key(|live| std::cmp::Reverse(live.held_bytes()));
        all.truncate(most);
        let shown = all.iter().map(|live| snapshot::of_session(shard, live));
        (shown.collect::<Vec<_>>(), count)
    })?;
    let count = of_each.iter().map(|(_, count)| count).sum();
    let mut sessions: Vec<SessionSnapshot> = of_each.into_iter().flat_map(|(all, _)| all).collect();
    sessions.sort_by_key(|session| std::cmp::Reverse(session.bytes));
    sessions.truncate(most);
    Ok((sessions, count))
}

fn list(admin: &Admin, query: &str) -> Answer {
    let limit = match parameter(query, "limit").map(str::parse) {
        None => LISTED,
        Some(Ok(limit)) if limit <= LISTED_MAX => limit,
        Some(_) => {
            let reason = format!("limit is no number up to {LISTED_MAX}");
            return Answer::refuse(Status::BadRequest, &reason);
        }
    };
    match largest(admin, limit) {
        Ok((sessions, count)) => {
            let more = count - sessions.len().min(count);
            Answer::json(Status::Ok, &serde_json::json!({ "sessions": sessions, "more": more }))
        }
        Err(shard) => Answer::silent(shard),
    }
}

/// What is asked of the one session with this short id, wherever it is.
fn of_one<T: Send + 'static>(
    admin: &Admin,
    short: &str,
    question: impl Fn(&Rc<Shard>, &Rc<Live>) -> T + Clone + Send + 'static,
) -> Result<T, Answer> {
    let short = short.to_owned();
    let answers = ask::all(&admin.process, move |shard| {
        let mut found = shard.sessions();
        found.retain(|live| live.short.to_string() == short);
        found.iter().map(|live| question(shard, live)).collect::<Vec<_>>()
    });
    let mut answers: Vec<T> = answers.map_err(Answer::silent)?.into_iter().flatten().collect();
    match (answers.pop(), answers.len()) {
        (None, _) => Err(Answer::refuse(Status::NotFound, "no session is called so")),
        (Some(answer), 0) => Ok(answer),
        (Some(_), _) => Err(Answer::refuse(Status::Conflict, "more than one is called so")),
    }
}

fn one(admin: &Admin, short: &str) -> Answer {
    match of_one(admin, short, |shard, live| snapshot::of_session(shard, live)) {
        Ok(session) => Answer::json(Status::Ok, &session),
        Err(refusal) => refusal,
    }
}

fn end(admin: &Admin, short: &str) -> Answer {
    // Looked at first: where two are called so, neither is ended.
    if let Err(refusal) = of_one(admin, short, |_, _| ()) {
        return refusal;
    }
    let ended = of_one(admin, short, |shard, live| {
        tracing::info!(session = %live.short, "ended by the admin");
        live.with(shard, |session, _, _| session.end(Ended::Deleted));
    });
    match ended {
        Ok(()) => Answer::json(Status::Ok, &serde_json::json!({ "ended": short })),
        Err(refusal) => refusal,
    }
}

fn drain() -> Answer {
    match signal::send_to_self(libc::SIGTERM) {
        Ok(()) => Answer::json(Status::Accepted, &serde_json::json!({ "draining": true })),
        Err(error) => Answer::refuse(Status::InternalServerError, &error.to_string()),
    }
}

/// The value of a parameter of the query; none of ours needs percent-encoding.
pub(super) fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}
