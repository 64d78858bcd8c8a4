//! The protocol with an upstream behind a pipe: one child per session, messages as lines. Pure.
//!
//! Invariants:
//! * Ids and progress tokens are rewritten to the session's own keys on the way in and restored,
//!   type and bytes, on the way out. Everything else passes byte for byte.
//! * The ids of the child's own requests are rewritten per incarnation, so that a late answer can
//!   never approve a different question after a child restarted.
//! * A restarted child is set up like the one before: `initialize` with the session's own
//!   parameters, `initialized`, the last log level, the live subscriptions. Until it has answered
//!   alike, nothing of the client reaches it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits::LINE_OVERHEAD_BYTES;
use crate::mcp::json;
use crate::mcp::jsonrpc::{self, Envelope, Kind, Message, codes};
use crate::mcp::revision;
use crate::session::{About, Asked, CallKey, Ended, Remembered, Session, Upstream};

use super::setup::{self, Setup};

/// The id of the `initialize` that sets a restarted child up.
const SETUP_ID: &str = r#""gapless:setup""#;
/// A child that dies sooner than this after its start is restarted only after a pause.
const CRASH_WINDOW: Duration = Duration::from_secs(1);
/// The first pause before a restart, doubled with each crash in a row.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// The longest pause before a restart.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// What happens when a child exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnChildExit {
    /// A fresh child is started on the next call.
    #[default]
    Respawn,
    /// The session ends.
    EndSession,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first child; the client's own `initialize` is under way or done.
    First,
    /// No child; one may be started at this instant.
    Dead(Instant),
    /// A child is being started or set up again.
    SettingUp,
    /// A restarted child that is set up.
    Again,
}

/// What a line from the child came to, where the shell should say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message, routed.
    Routed,
    /// No JSON-RPC: for the log.
    Junk,
    /// An answer that nobody waits for, or progress of nothing.
    Unclaimed,
}

/// The pipe's side of one session.
pub struct Piped {
    on_exit: OnChildExit,
    state: State,
    incarnation: u32,
    started: Instant,
    crashes: u32,
    setup: Setup,
    initialize: Option<CallKey>,
    lines: VecDeque<Vec<u8>>,
    /// Lines of the client that wait until a restarted child is set up.
    held: VecDeque<Vec<u8>>,
    /// Bytes in both queues and in the shell's hands, with [`LINE_OVERHEAD_BYTES`] for each line.
    queued: usize,
    queued_max: usize,
    /// The shard has no room for what is not read at once.
    crowded: bool,
    /// Calls that were refused because of that or because the queue was full.
    refused: u32,
    spawn: bool,
    /// Until when a restarted child has to be set up.
    setup_by: Option<Instant>,
    kill: bool,
}

impl Piped {
    /// Before the first child, which is asked for at once. `queued_max` bounds the bytes that
    /// wait for a child to read.
    pub fn new(now: Instant, on_exit: OnChildExit, queued_max: usize) -> Self {
        Self {
            on_exit,
            state: State::First,
            incarnation: 1,
            started: now,
            crashes: 0,
            setup: Setup::default(),
            initialize: None,
            lines: VecDeque::new(),
            held: VecDeque::new(),
            queued: 0,
            queued_max,
            crowded: false,
            refused: 0,
            spawn: true,
            setup_by: None,
            kill: false,
        }
    }

    /// A session that outlived its process: a fresh child is set up on the first use.
    pub fn restored(
        now: Instant,
        on_exit: OnChildExit,
        queued_max: usize,
        remembered: &Remembered,
    ) -> Self {
        let setup = Setup::restored(remembered);
        let state = State::Dead(now);
        Self { state, setup, spawn: false, ..Self::new(now, on_exit, queued_max) }
    }

    /// Whether the child's queue is so full that no notification is taken.
    pub fn is_full(&self) -> bool {
        self.queued > 0 && self.queued >= self.room()
    }

    /// Bytes that wait for the child to read them.
    pub fn queued_bytes(&self) -> usize {
        self.queued
    }

    /// Whether the shard has no room for what is not read at once: then a call is taken only while
    /// nothing waits.
    pub fn set_crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
    }

    /// Calls that were refused since this was asked last.
    pub fn take_refused(&mut self) -> u32 {
        std::mem::take(&mut self.refused)
    }

    fn room(&self) -> usize {
        if self.crowded { 0 } else { self.queued_max }
    }

    /// Whether a child should be started now; true once per wish.
    pub fn poll_spawn(&mut self) -> bool {
        std::mem::take(&mut self.spawn)
    }

    /// Whether the child should be killed: it has not let itself be set up. True once per wish.
    pub fn poll_kill(&mut self) -> bool {
        std::mem::take(&mut self.kill)
    }

    /// When [`Piped::handle_timeout`] wants to be called.
    pub fn timeout(&self) -> Option<Instant> {
        self.setup_by
    }

    /// Time has passed: a restarted child that has not answered its set-up is given up, and its
    /// exit answers the calls that wait for it.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.setup_by.is_some_and(|by| by <= now) {
            self.setup_by = None;
            self.kill = true;
        }
    }

    /// The next line for the child's stdin, with its newline.
    pub fn poll_line(&mut self) -> Option<Vec<u8>> {
        self.lines.pop_front()
    }

    /// The shell has written (or lost) so many bytes of lines, counted as in the queue.
    pub fn handle_written(&mut self, bytes: usize) {
        self.queued = self.queued.saturating_sub(bytes);
    }

    /// A child runs.
    pub fn handle_started(&mut self, now: Instant) {
        self.started = now;
    }

    /// The child is gone, or could not be started.
    pub fn handle_exit(&mut self, session: &mut Session, now: Instant, reason: &str) {
        self.lines.clear();
        self.held.clear();
        self.queued = 0;
        self.setup_by = None;
        // One that was never set up has not even lived.
        let young = now.saturating_duration_since(self.started) < CRASH_WINDOW;
        let early = young || self.state == State::SettingUp;
        self.crashes = if early { self.crashes.saturating_add(1) } else { 0 };
        let pause = match self.crashes {
            0 => Duration::ZERO,
            crashes => (BACKOFF_MIN * 2u32.saturating_pow(crashes - 1)).min(BACKOFF_MAX),
        };
        self.state = State::Dead(now + pause);
        session.handle_upstream_lost(now, self.incarnation, reason);
        self.incarnation += 1;
        // A session that never began ends with the answer to its initialize; one of HTTP+SSE here,
        // because its client has it already and nobody could set a fresh child up.
        match session.is_initialized() {
            true if self.on_exit == OnChildExit::Respawn => {}
            false if !session.is_http_sse() => {}
            _ => session.end(Ended::UpstreamLost),
        }
    }

    /// One line of the child's stdout.
    pub fn handle_line(&mut self, session: &mut Session, now: Instant, line: &[u8]) -> Heard {
        match jsonrpc::parse(line) {
            Ok(Message::Single(message)) => self.handle_message(session, now, &message),
            Ok(Message::Batch(all)) => {
                let heard = all.iter().map(|message| self.handle_message(session, now, message));
                heard.fold(Heard::Routed, |all, one| if one == Heard::Routed { all } else { one })
            }
            Err(_) => Heard::Junk,
        }
    }

    /// A line was over the limit and is lost; `head` is its beginning. Servers write the id early
    /// in an answer: where it can be seen there, its call gets an error.
    pub fn handle_line_lost(&mut self, session: &mut Session, now: Instant, head: &[u8]) {
        let head = String::from_utf8_lossy(head);
        let Some((before, after)) = head.split_once("\"id\":") else { return };
        // An id deeper inside is part of somebody's result and names no call.
        if before.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count() != 1 {
            return;
        }
        let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
        if let Ok(call) = digits.parse::<CallKey>()
            && !head.contains("\"method\"")
        {
            let reason = "the server's answer is larger than an event may be";
            session.respond_error(now, call, codes::INTERNAL_ERROR, reason, None);
        }
    }

    fn handle_message(
        &mut self,
        session: &mut Session,
        now: Instant,
        message: &Envelope<'_>,
    ) -> Heard {
        let routed = match message.kind {
            Kind::Response => self.handle_response(session, now, message),
            Kind::Notification => self.handle_notification(session, now, message),
            Kind::Request => {
                self.pass_request(session, now, message);
                true
            }
        };
        if routed { Heard::Routed } else { Heard::Unclaimed }
    }

    /// A request of the child goes to the client, unless too many of them are open.
    fn pass_request(&mut self, session: &mut Session, now: Instant, message: &Envelope<'_>) {
        let id = message.id.unwrap_or_default();
        let about = session.unrelated();
        let hint = message.text.len() + 20;
        let asked = session.ask(now, about, id, self.incarnation, hint, |key, out| {
            splice_number(message.text, message.id, key, out);
        });
        if !asked {
            let mut line = Vec::with_capacity(160);
            let reason = "the client has too many requests of this server to answer";
            jsonrpc::error(&mut line, Some(id), codes::SERVER_ERROR, reason, None);
            line.push(b'\n');
            self.queue_now(line);
        }
    }

    fn handle_response(
        &mut self,
        session: &mut Session,
        now: Instant,
        message: &Envelope<'_>,
    ) -> bool {
        let id = message.id.unwrap_or_default();
        if id == SETUP_ID {
            self.handle_setup(session, now, message);
            return true;
        }
        if id.starts_with(setup::STEP_ID) {
            return true;
        }
        let Ok(call) = id.parse::<CallKey>() else { return false };
        if self.initialize == Some(call) {
            self.initialize = None;
            if !self.setup.accept_initialize(session, message) && !message.is_error {
                let reason = "the server's answer names no protocol revision";
                return session.respond_error(now, call, codes::INTERNAL_ERROR, reason, None);
            }
        }
        if let Some(task) = task_of(message.outcome.unwrap_or_default()) {
            session.keep_task(call, &task);
        }
        session.respond(now, call, message.text.len(), |id, out| {
            jsonrpc::splice(message.text, &edit(message.id, id.as_bytes()), out);
        })
    }

    fn handle_notification(
        &mut self,
        session: &mut Session,
        now: Instant,
        message: &Envelope<'_>,
    ) -> bool {
        let text = message.text;
        let about = match message.method.as_deref().unwrap_or_default() {
            "notifications/progress" => {
                let token = jsonrpc::progress_token(message);
                let call = token.and_then(|token| token.parse::<CallKey>().ok());
                return call.is_some_and(|call| pass_progress(session, now, call, message, token));
            }
            "notifications/cancelled" => {
                let id = jsonrpc::cancelled_request_id(message);
                return id.is_some_and(|id| {
                    session.withdraw(now, id, self.incarnation, |key, out| {
                        splice_number(text, Some(id), key, out);
                    })
                });
            }
            "notifications/message" => session.unrelated(),
            "notifications/tasks/status" => {
                if let Some(task) = ended_task(message.params.unwrap_or_default()) {
                    session.end_task(&task);
                }
                About::Standalone
            }
            _ => About::Standalone,
        };
        session.notify(now, about, text.len(), |out| out.extend_from_slice(text.as_bytes()));
        true
    }

    /// A restarted child has answered its `initialize`.
    fn handle_setup(&mut self, session: &mut Session, now: Instant, message: &Envelope<'_>) {
        if self.state != State::SettingUp {
            return;
        }
        if !self.setup.is_alike(message) {
            session.handle_upstream_lost(now, self.incarnation, "the restarted server differs");
            return session.end(Ended::UpstreamLost);
        }
        self.state = State::Again;
        self.setup_by = None;
        for line in self.setup.lines_after_initialize() {
            self.queue_now(line);
        }
        self.lines.append(&mut self.held);
    }

    /// Makes sure that there is a child, or that one will come; false while it may not.
    fn ensure_child(&mut self, session: &Session, now: Instant) -> bool {
        let State::Dead(from) = self.state else { return true };
        if now < from {
            return false;
        }
        self.state = State::SettingUp;
        self.setup_by = Some(now + session.init_timeout());
        self.spawn = true;
        if let Some(line) = self.setup.initialize_line(SETUP_ID) {
            self.queue_now(line);
        }
        true
    }

    fn queue_now(&mut self, line: Vec<u8>) {
        self.queued += line.len() + LINE_OVERHEAD_BYTES;
        self.lines.push_back(line);
    }

    fn queue(&mut self, line: Vec<u8>) {
        if matches!(self.state, State::Dead(_)) {
            return;
        }
        self.queued += line.len() + LINE_OVERHEAD_BYTES;
        match self.state {
            State::SettingUp => self.held.push_back(line),
            _ => self.lines.push_back(line),
        }
    }
}

impl Upstream for Piped {
    fn request(
        &mut self,
        session: &mut Session,
        now: Instant,
        call: CallKey,
        message: &Envelope<'_>,
    ) {
        if !self.ensure_child(session, now) {
            let reason = "the server keeps crashing; it is restarted after a pause";
            let data = r#"{"reason":"upstream_lost"}"#;
            session.respond_error(now, call, codes::UPSTREAM_LOST, reason, Some(data));
            return;
        }
        if self.queued > 0 && self.queued + message.text.len() > self.room() {
            self.refused += 1;
            let reason = "the server does not read its input fast enough";
            let data = format!(r#"{{"limit_bytes":{}}}"#, self.queued_max);
            session.respond_error(now, call, codes::SERVER_ERROR, reason, Some(&data));
            return;
        }
        let key = call.to_string();
        let mut edits = vec![(message.id.unwrap_or_default(), key.as_bytes())];
        if let Some(token) = jsonrpc::request_progress_token(message) {
            edits.push((token, key.as_bytes()));
        }
        let version;
        match message.method.as_deref() {
            Some("initialize") => {
                self.initialize = Some(call);
                if let Some(params) = jsonrpc::initialize_params(message) {
                    let asked = revision::ask_down(&params.protocol_version);
                    if asked != params.protocol_version {
                        version = format!("\"{asked}\"");
                        edits.push((params.protocol_version_raw, version.as_bytes()));
                    }
                }
            }
            Some(method) => self.setup.note(method, message.params),
            None => {}
        }
        let mut line = Vec::with_capacity(message.text.len() + 24);
        jsonrpc::push_line(message.text, &edits, &mut line);
        if self.initialize == Some(call) {
            self.setup.keep_initialize(&line);
        }
        self.queue(line);
    }

    fn notification(&mut self, _: &mut Session, _: Instant, message: &Envelope<'_>) {
        let mut line = Vec::with_capacity(message.text.len() + 1);
        jsonrpc::push_line(message.text, &[], &mut line);
        self.queue(line);
    }

    fn cancel(&mut self, call: CallKey, message: Option<&Envelope<'_>>, reason: &str) {
        let key = call.to_string();
        let mut line = Vec::with_capacity(128);
        match message {
            Some(message) => {
                let id = jsonrpc::cancelled_request_id(message);
                jsonrpc::push_line(message.text, &edit(id, key.as_bytes()), &mut line);
            }
            None => {
                let mut params = format!(r#"{{"requestId":{key},"reason":"#).into_bytes();
                jsonrpc::push_string(&mut params, reason);
                params.push(b'}');
                let params = String::from_utf8_lossy(&params);
                jsonrpc::notification(&mut line, "notifications/cancelled", Some(&params));
                line.push(b'\n');
            }
        }
        self.queue(line);
    }

    fn answer(
        &mut self,
        _: &mut Session,
        _: Instant,
        asked: &Asked,
        answer: Result<&Envelope<'_>, &str>,
    ) {
        if asked.incarnation != self.incarnation {
            return;
        }
        let mut line = Vec::with_capacity(128);
        match answer {
            Ok(message) => {
                let edits = edit(message.id, asked.id.as_bytes());
                jsonrpc::push_line(message.text, &edits, &mut line);
            }
            Err(reason) => {
                let id = Some(asked.id.as_ref());
                jsonrpc::error(&mut line, id, codes::REQUEST_TIMEOUT, reason, None);
                line.push(b'\n');
            }
        }
        // Not held back: the child that asked may wait for it before it lets itself be set up.
        self.queue_now(line);
    }

    fn remember(&self) -> Option<Remembered> {
        self.setup.remember()
    }
}

/// The id of the task that a result stands for: `result.task.taskId` of a CreateTaskResult.
fn task_of(result: &str) -> Option<String> {
    let task = result.contains("\"taskId\"").then(|| member(result, "task")).flatten()?;
    member(task, "taskId").map(|raw| json::decode(raw).into_owned())
}

/// The id of a task whose status is terminal (MCP 2025-11-25, Tasks, status lifecycle).
fn ended_task(params: &str) -> Option<String> {
    let status = json::decode(member(params, "status")?);
    let ended = matches!(&*status, "completed" | "failed" | "cancelled");
    let id = ended.then(|| member(params, "taskId")).flatten()?;
    Some(json::decode(id).into_owned())
}

fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    json::member(object, name).ok().flatten()
}

fn pass_progress(
    session: &mut Session,
    now: Instant,
    call: CallKey,
    message: &Envelope<'_>,
    token: Option<&str>,
) -> bool {
    let Some((about, own)) = session.progress_of(call) else { return false };
    let own = own.to_owned();
    session.handle_progress(now, call);
    let hint = message.text.len() + own.len();
    session.notify(now, about, hint, |out| {
        jsonrpc::splice(message.text, &edit(token, own.as_bytes()), out);
    });
    true
}

fn edit<'t, 'r>(span: Option<&'t str>, replacement: &'r [u8]) -> Vec<(&'t str, &'r [u8])> {
    span.map(|span| (span, replacement)).into_iter().collect()
}

fn splice_number(text: &str, span: Option<&str>, number: u64, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    jsonrpc::splice(text, &edit(span, digits.format(number).as_bytes()), out);
}

#[cfg(test)]
mod regression_tests;
#[cfg(test)]
mod tests;
