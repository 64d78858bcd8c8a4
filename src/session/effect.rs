//! What a session asks of its shell.

use crate::stream::Generation;

/// Something to do in the world, in the order in which it was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// The stream has something for its connection: bytes, its end, or a planned close.
    Wake(u32),
    /// The connection of this generation has lost the stream: its socket has to go.
    Close(u32, Generation),
    /// The stream is over its budget: read its acknowledgements, then [`super::Session::relieve`].
    Relieve(u32),
    /// The exchange is answered as JSON, or its stream has started.
    Ready(u64),
    /// The upstream has accepted the session: [`super::Session::remember`] it.
    Remember,
    /// The session is over: nothing of it can be served any more.
    Ended(Ended),
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client said so (DELETE).
    Deleted,
    /// Nobody used it for the idle timeout.
    Idle,
    /// Its upstream is gone for good.
    UpstreamLost,
    /// Its `initialize` failed.
    NotInitialized,
    /// The server drains.
    Drained,
    /// Serving it went wrong: its state cannot be trusted.
    Broken,
}

impl Ended {
    /// The word in the log line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Idle => "idle",
            Self::UpstreamLost => "upstream_lost",
            Self::NotInitialized => "not_initialized",
            Self::Drained => "drained",
            Self::Broken => "broken",
        }
    }
}
