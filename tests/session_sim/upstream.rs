//! An upstream that notes what it is asked and answers when the schedule says so.

use std::time::Instant;

use gapless::mcp::jsonrpc::Envelope;
use gapless::session::{Asked, CallKey, Remembered, Session, Upstream};

#[derive(Default)]
pub struct Fake {
    /// Calls that it was asked and has not answered, with the client's ids.
    pub open: Vec<(CallKey, u64)>,
    /// Calls that were given up.
    pub cancelled: Vec<CallKey>,
    /// Ids of its own requests that came back, answered or not.
    pub came_back: Vec<u64>,
}

impl Upstream for Fake {
    fn request(&mut self, _: &mut Session, _: Instant, call: CallKey, message: &Envelope<'_>) {
        let id = message.id.and_then(|id| id.parse().ok()).expect("our ids are numbers");
        self.open.push((call, id));
    }

    fn notification(&mut self, _: &mut Session, _: Instant, _: &Envelope<'_>) {}

    fn cancel(&mut self, call: CallKey, _: Option<&Envelope<'_>>, _: &str) {
        self.open.retain(|&(open, _)| open != call);
        self.cancelled.push(call);
    }

    fn answer(
        &mut self,
        _: &mut Session,
        _: Instant,
        asked: &Asked,
        _: Result<&Envelope<'_>, &str>,
    ) {
        self.came_back.push(asked.id.parse().expect("our ids are numbers"));
    }

    fn remember(&self) -> Option<Remembered> {
        None
    }
}
