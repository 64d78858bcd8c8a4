//! Where a resume stands: the classes of `Last-Event-ID`, and what refuses it.

use super::ring::Ring;

/// How a resume is served, or why it is not. The order is that of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The ring begins exactly where the client goes on: drain it, then the log.
    Aligned,
    /// The ring begins later than the client goes on (sent or acknowledged was mistaken for
    /// delivered): discard it, read the log.
    RingAhead,
    /// The ring begins earlier than the client goes on (it has more than TCP had confirmed):
    /// discard it, read the log.
    RingBehind,
    /// The client has everything so far: live from here.
    NothingNew,
    /// The client has everything and no more will come.
    FinishedSeen,
    /// No cursor: a new listener of the standalone stream.
    Fresh,
    /// The events after the cursor are partly gone.
    Truncated,
    /// An event after the cursor is kept and cannot be read: the durable log is damaged.
    LogFailed,
    /// A number that was never handed out.
    Ahead,
    /// A cursor of a log that may have lost its tail.
    EpochChanged,
    /// A genuine cursor of a stream that is gone.
    Expired,
    /// Malformed, forged, or of another session: one indistinguishable answer.
    Unknown,
}

impl Class {
    /// Every class, in the order of the counters.
    pub const ALL: [Self; 12] = [
        Self::Aligned,
        Self::RingAhead,
        Self::RingBehind,
        Self::NothingNew,
        Self::FinishedSeen,
        Self::Fresh,
        Self::Truncated,
        Self::LogFailed,
        Self::Ahead,
        Self::EpochChanged,
        Self::Expired,
        Self::Unknown,
    ];

    /// The name in counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aligned => "aligned",
            Self::RingAhead => "ring_ahead",
            Self::RingBehind => "ring_behind",
            Self::NothingNew => "nothing_new",
            Self::FinishedSeen => "finished_seen",
            Self::Fresh => "fresh",
            Self::Truncated => "truncated",
            Self::LogFailed => "log_failed",
            Self::Ahead => "ahead",
            Self::EpochChanged => "epoch_changed",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        }
    }

    /// Where the events of a served resume come from.
    pub fn source(self) -> &'static str {
        match self {
            Self::Aligned => "ring",
            Self::RingAhead | Self::RingBehind | Self::Fresh => "log",
            _ => "none",
        }
    }
}

/// The class of a cursor that the log covers: `start` is in `floor..=tail + 1`.
pub(super) fn classify(start: u64, ring: &Ring, tail: u64, finished: bool) -> Class {
    if start == tail + 1 {
        return if finished { Class::FinishedSeen } else { Class::NothingNew };
    }
    match ring.head().cmp(&start) {
        std::cmp::Ordering::Equal => Class::Aligned,
        std::cmp::Ordering::Greater => Class::RingAhead,
        std::cmp::Ordering::Less => Class::RingBehind,
    }
}
