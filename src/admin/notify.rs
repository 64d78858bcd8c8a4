//! Pushing a notification to standalone streams, and saying how far it has come.

use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::response::Status;
use crate::mcp::jsonrpc::{self, Kind, Message};
use crate::session::About;
use crate::shard::Shard;
use crate::shard::live::Live;
use crate::stream::outbound::Tell;
use crate::stream::receipt::{Outcome, Stage};

use super::routes::{Answer, parameter};
use super::{Admin, ask};

/// How long is waited unless `within` says otherwise, and at the most.
const WITHIN: Duration = Duration::from_secs(5);
const WITHIN_MAX: Duration = Duration::from_secs(60);

/// How far a notification shall come, and how long that may take.
#[derive(Clone, Copy)]
struct Wish {
    stage: Stage,
    within: Duration,
}

/// To every session's standalone stream.
pub(super) fn all(admin: &Admin, query: &str, body: &[u8]) -> Answer {
    push(admin, None, query, body)
}

/// To one session's.
pub(super) fn one(admin: &Admin, short: &str, query: &str, body: &[u8]) -> Answer {
    push(admin, Some(short), query, body)
}

fn push(admin: &Admin, short: Option<&str>, query: &str, body: &[u8]) -> Answer {
    let (message, wish) = match (notification(body), wish(query)) {
        (Ok(message), Ok(wish)) => (message, wish),
        (Err(why), _) | (_, Err(why)) => return Answer::refuse(Status::BadRequest, &why),
    };
    let (sender, receiver) = mpsc::channel();
    let wanted = short.map(str::to_owned);
    let asked = ask::all(&admin.process, move |shard| {
        let mut sessions = shard.sessions();
        sessions
            .retain(|live| wanted.as_ref().is_none_or(|short| live.short.to_string() == *short));
        sessions.retain(|live| live.look(|session| session.is_initialized()));
        sessions.iter().for_each(|live| write(shard, live, &message, wish, &sender));
        sessions.len()
    });
    let count: usize = match asked {
        Ok(counts) => counts.into_iter().sum(),
        Err(shard) => return Answer::silent(shard),
    };
    if count == 0 && short.is_some() {
        return Answer::refuse(Status::NotFound, "no session is called so");
    }
    // A little longer than the shards wait themselves: each of them tells exactly once.
    let end = Instant::now() + wish.within + Duration::from_secs(1);
    let mut outcomes = Vec::new();
    while outcomes.len() < count {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok((session, outcome)) => {
                outcomes.push(json!({ "session": session, "outcome": name(outcome) }));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Answer::json(Status::Ok, &json!({ "sessions": count, "outcomes": outcomes }))
}

fn write(
    shard: &Rc<Shard>,
    live: &Rc<Live>,
    message: &[u8],
    wish: Wish,
    sender: &Sender<(String, Outcome)>,
) {
    let (short, sender) = (live.short.to_string(), sender.clone());
    let told = Box::new(move |outcome| {
        // Nobody waits any more only where it took too long.
        let _ = sender.send((short, outcome));
    });
    let Wish { stage, within } = wish;
    live.write(shard, About::Standalone, message, Some(Tell { stage, within, told }));
}

/// The one line of a JSON-RPC notification.
fn notification(body: &[u8]) -> Result<Vec<u8>, String> {
    match jsonrpc::parse(body) {
        Ok(Message::Single(single)) if single.kind == Kind::Notification => {
            let mut line = body.trim_ascii().to_vec();
            jsonrpc::flatten(&mut line);
            Ok(line)
        }
        Ok(_) => Err("the body is no JSON-RPC notification".to_owned()),
        Err(wrong) => Err(wrong.reason.to_owned()),
    }
}

fn wish(query: &str) -> Result<Wish, String> {
    let stage = match parameter(query, "wait") {
        None | Some("logged") => Stage::Logged,
        Some("sent") => Stage::Sent,
        Some("confirmed") => Stage::Confirmed,
        Some(_) => return Err("wait is logged, sent or confirmed".to_owned()),
    };
    let within = match parameter(query, "within").map(humantime::parse_duration) {
        None => WITHIN,
        Some(Ok(within)) if within <= WITHIN_MAX => within,
        Some(_) => return Err("within is a time up to 60s, such as 5s".to_owned()),
    };
    Ok(Wish { stage, within })
}

fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Reached(Stage::Logged) => "logged",
        Outcome::Reached(Stage::Sent) => "sent",
        Outcome::Reached(Stage::Confirmed) => "confirmed",
        Outcome::Reached(Stage::Named) => "named",
        Outcome::Detached => "detached",
        Outcome::Trimmed => "trimmed",
        Outcome::Closed => "closed",
        Outcome::TimedOut => "timed_out",
    }
}
