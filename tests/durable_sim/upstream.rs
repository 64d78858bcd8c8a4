//! An upstream that notes what it is asked and answers when the schedule says so.

use std::time::Instant;

use gapless::mcp::jsonrpc::Envelope;
use gapless::session::{Asked, CallKey, Remembered, Session, Upstream};

#[derive(Default)]
pub struct Fake {
    /// Calls that it was asked and has not answered, with the client's ids.
    pub open: Vec<(CallKey, u64)>,
    /// What it was told when the session began, and since.
    pub told: Remembered,
}

impl Upstream for Fake {
    fn request(&mut self, _: &mut Session, _: Instant, call: CallKey, message: &Envelope<'_>) {
        let id = message.id.and_then(|id| id.parse().ok()).expect("our ids are numbers");
        self.open.push((call, id));
    }

    fn notification(&mut self, _: &mut Session, _: Instant, _: &Envelope<'_>) {}

    fn cancel(&mut self, call: CallKey, _: Option<&Envelope<'_>>, _: &str) {
        self.open.retain(|&(open, _)| open != call);
    }

    fn answer(&mut self, _: &mut Session, _: Instant, _: &Asked, _: Result<&Envelope<'_>, &str>) {}

    fn remember(&self) -> Option<Remembered> {
        Some(self.told.clone())
    }
}
