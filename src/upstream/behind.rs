//! Whichever kind of upstream a session has, as one type. Pure.

use std::time::Instant;

use crate::mcp::jsonrpc::Envelope;
use crate::session::{Asked, CallKey, Remembered, Session, Upstream};

use super::in_process::InProcess;
use super::piped::Piped;

/// Whatever stands behind a session.
pub enum Behind {
    /// The built-in server.
    InProcess(Box<InProcess>),
    /// A child process.
    Piped(Box<Piped>),
}

impl Behind {
    /// Whether nothing more can be taken for the upstream.
    pub fn is_full(&self) -> bool {
        match self {
            Self::InProcess(_) => false,
            Self::Piped(piped) => piped.is_full(),
        }
    }

    /// Bytes that wait for the upstream to read them.
    pub fn queued_bytes(&self) -> usize {
        match self {
            Self::InProcess(_) => 0,
            Self::Piped(piped) => piped.queued_bytes(),
        }
    }

    /// Nothing is expected for a while: gives back what only a busy session needs.
    pub fn rest(&mut self) {
        if let Self::InProcess(server) = self {
            server.rest();
        }
    }

    /// Whether the shard has no room for what an upstream does not read at once.
    pub fn set_crowded(&mut self, crowded: bool) {
        if let Self::Piped(piped) = self {
            piped.set_crowded(crowded);
        }
    }
}

impl Upstream for Behind {
    fn request(
        &mut self,
        session: &mut Session,
        now: Instant,
        call: CallKey,
        message: &Envelope<'_>,
    ) {
        match self {
            Self::InProcess(server) => server.request(session, now, call, message),
            Self::Piped(piped) => piped.request(session, now, call, message),
        }
    }

    fn notification(&mut self, session: &mut Session, now: Instant, message: &Envelope<'_>) {
        match self {
            Self::InProcess(server) => server.notification(session, now, message),
            Self::Piped(piped) => piped.notification(session, now, message),
        }
    }

    fn cancel(&mut self, call: CallKey, message: Option<&Envelope<'_>>, reason: &str) {
        match self {
            Self::InProcess(server) => server.cancel(call, message, reason),
            Self::Piped(piped) => piped.cancel(call, message, reason),
        }
    }

    fn answer(
        &mut self,
        session: &mut Session,
        now: Instant,
        asked: &Asked,
        answer: Result<&Envelope<'_>, &str>,
    ) {
        match self {
            Self::InProcess(server) => server.answer(session, now, asked, answer),
            Self::Piped(piped) => piped.answer(session, now, asked, answer),
        }
    }

    fn remember(&self) -> Option<Remembered> {
        match self {
            Self::InProcess(server) => server.remember(),
            Self::Piped(piped) => piped.remember(),
        }
    }
}
