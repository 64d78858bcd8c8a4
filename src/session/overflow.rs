//! What happens when a reader is slower than its producer.
//!
//! Where the producer can wait, it waits while its reader is far behind, for a bounded time. Where
//! it cannot, or the time is over, the window slides: a reader that falls out is fenced, cut and
//! told. A reader that is caught up is never affected, and no policy makes a hole inside of what
//! is delivered.

use std::time::{Duration, Instant};

use super::streams::{Entry, STANDALONE};
use super::upstream::About;
use super::{Session, Settings};

/// How long a producer waits for a reader before it goes on ahead of it on the disk.
pub const DISK_WAIT: Duration = Duration::from_millis(100);

/// The operator's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overflow {
    /// Pause a producer that feeds the slow stream alone; cut the reader where it feeds others too.
    #[default]
    Auto,
    /// Pause the producer also where others wait with it.
    Pause,
    /// Never pause.
    Cut,
}

impl Entry {
    /// Whether the stream takes more from a producer that can wait: half of the budget may be
    /// ahead of its reader, or of where the last one stopped, who may come back. Only a standalone
    /// stream without a listener has nobody to wait for.
    fn has_room(&self, now: Instant, settings: &Settings) -> bool {
        let limits = &settings.limits;
        let unsent = self.stream.unsent_bytes();
        let ahead = unsent >= limits.stream_bytes / 2;
        let nobody = self.ids.is_empty() && self.stream.attached().is_none();
        if settings.overflow == Overflow::Cut || !ahead || nobody {
            self.full_since.set(None);
            return true;
        }
        let since = self.full_since.get().unwrap_or(now);
        self.full_since.set(Some(since));
        let waited = now.duration_since(since);
        // On the disk nobody has to wait long; but a reader that is nearly as fast as the producer
        // shall find in memory what it reads, and what is not committed yet is in memory only.
        let fits_on_disk = self.stream.disk_bytes() > 0
            && unsent < limits.stream_disk_bytes / 2
            && self.stream.bytes() <= limits.stream_bytes;
        waited >= limits.pause_timeout || fits_on_disk && waited >= DISK_WAIT
    }
}

impl Session {
    /// Whether a producer that can wait may go on writing about this. One that may not is asked
    /// again when its reader has taken something, or after the pause timeout: then it may. While
    /// the journal is full nobody may, whatever the policy: that is what the disk can take.
    pub fn has_room(&self, about: About, now: Instant) -> bool {
        if self.log_is_full() {
            return false;
        }
        let number = self.number_of(about);
        let entry = number.and_then(|number| self.streams.get(number));
        entry.is_none_or(|entry| entry.has_room(now, &self.settings))
    }

    /// Whether the pipe that carries the upstream's messages should not be read for now. Messages
    /// of all streams come through it, so unless the operator prefers it, only the one open call
    /// of a session may hold it up, and it is read again as soon as another request arrives. An
    /// HTTP+SSE session has one reader, for whom everything is.
    pub fn wants_pause(&self, now: Instant) -> bool {
        if self.log_is_full() {
            return true;
        }
        let full = |number: u32| {
            let entry = self.streams.get(number);
            entry.is_some_and(|entry| !entry.has_room(now, &self.settings))
        };
        match self.settings.overflow {
            Overflow::Cut => false,
            _ if self.is_http_sse() => full(STANDALONE),
            Overflow::Auto if self.calls.calls.len() != 1 => false,
            Overflow::Auto => self.open_streams().any(full),
            Overflow::Pause => self.open_streams().chain([STANDALONE]).any(full),
        }
    }

    /// The streams of open calls.
    fn open_streams(&self) -> impl Iterator<Item = u32> {
        let open = self.calls.exchanges.values().filter(|exchange| exchange.open > 0);
        open.filter_map(|exchange| exchange.stream)
    }
}
