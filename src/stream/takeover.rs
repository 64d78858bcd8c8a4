//! How a connection takes a stream over from another one.
//!
//! Between the fence and the attachment there are awaits (the old writer returns, its socket
//! closes), and anything may happen there: a third connection may win, retention may move. So
//! [`Takeover::finish`] checks both again and attaches in the same step.

use super::resume::Class;
use super::{Generation, Stream};

/// Where the new connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// After this event, which the client has (`Last-Event-ID`).
    After(u64),
    /// Where the last listener's confirmed delivery ended: a GET without a cursor.
    Fresh,
}

/// A take-over under way.
#[derive(Debug)]
pub struct Takeover {
    start: Start,
    generation: Generation,
    old: Option<Generation>,
}

/// A take-over that has won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The generation of the new connection.
    pub generation: Generation,
    /// How the stream is continued.
    pub class: Class,
    /// The event after which it is continued.
    pub after: u64,
    /// First and last number of events that a listener without a cursor has missed.
    pub gap: Option<(u64, u64)>,
}

/// Why a take-over ends without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A newer connection has won.
    Superseded,
    /// The log moved meanwhile: the class, and the number that was asked for.
    Refused(Class, u64),
}

impl Takeover {
    /// Admission, touching nothing when it fails; then the fence.
    pub fn begin(stream: &mut Stream, start: Start) -> Result<Self, Class> {
        if let Start::After(number) = start {
            stream.admit(number)?;
        }
        let old = stream.fence();
        Ok(Self { start, generation: stream.generation(), old })
    }

    /// The connection that has to be closed and reported before [`Takeover::finish`].
    pub fn must_close(&self) -> Option<Generation> {
        self.old
    }

    /// Step 3, after the last await: the generation and the floor once more, then attachment.
    pub fn finish(self, stream: &mut Stream) -> Result<Attached, Lost> {
        if stream.generation() != self.generation {
            return Err(Lost::Superseded);
        }
        assert!(stream.holder().is_none(), "the fenced connection is closed first");
        match self.start {
            Start::After(number) => {
                stream.admit(number).map_err(|class| Lost::Refused(class, number))?;
                stream.handle_named(number);
                let class = stream.attach(self.generation, number);
                Ok(Attached { generation: self.generation, class, after: number, gap: None })
            }
            Start::Fresh => {
                let confirmed = stream.confirmed();
                let after = confirmed.max(stream.floor() - 1);
                let gap = (after > confirmed).then_some((confirmed + 1, after));
                stream.attach(self.generation, after);
                Ok(Attached { generation: self.generation, class: Class::Fresh, after, gap })
            }
        }
    }
}
