//! The way for any thread to write to a stream: a handle, a bounded ring, and the owner's bell.
//!
//! The owner alone assigns numbers. What a handle asks is applied in its order; a full ring is
//! back-pressure to that producer alone. Semantics, which the owner keeps:
//! * [`OutboundStream::write_event`] before `start` is kept and does not start the stream; `start`
//!   and `comment` do. `start` and `close` are idempotent.
//! * `close` before the final response ends the *connection*, not the stream: the response is
//!   still logged.
//! * After the final response, or when the session ends, every write returns [`Closed`], and a
//!   write that waits wakes with it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::sys::mpsc::{Producer, PushError};

use super::receipt::{Outcome, Stage};

/// Told once how far an event has come, on the owner's thread: it must not block.
pub type Told = Box<dyn FnOnce(Outcome) + Send>;

/// A wish to be told.
pub struct Tell {
    /// How far the event should come.
    pub stage: Stage,
    /// How long to wait for it.
    pub within: Duration,
    /// Who is told.
    pub told: Told,
}

/// What a handle asks of the stream's owner.
pub enum Op {
    /// Start the stream.
    Start,
    /// Log one message, a JSON text.
    Event(Bytes, Option<Tell>),
    /// Send a comment; none is a bare one.
    Comment(Option<Box<str>>),
    /// End the connection in the planned way.
    Close,
    /// The final response: the raw JSON of its `result`.
    Respond(Bytes),
}

/// How a handle reaches its owner.
pub trait Bell: Send + Sync {
    /// Something is in the ring. Never blocks.
    fn ring(&self);
    /// Whether this thread may wait for the owner; false on every shard's thread.
    fn may_wait(&self) -> bool;
    /// Bytes of the largest message that the stream's log takes.
    fn event_bytes_max(&self) -> usize;
}

/// The stream takes no more: it has its final response, or its session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stream is closed")
    }
}

impl std::error::Error for Closed {}

/// Why an event was not taken. Only [`OutboundStream::try_write_event`] says `Full`.
#[derive(Debug)]
pub enum NotTaken {
    /// The ring is full: here is the event again.
    Full(Bytes),
    /// The stream takes no more.
    Closed,
    /// The message is larger than an event may be.
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The most there may be.
        most: usize,
    },
}

impl From<Closed> for NotTaken {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

struct Inner {
    producer: Producer<Op>,
    bell: Box<dyn Bell>,
    started: Arc<AtomicBool>,
    key: Option<Box<str>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.producer.close();
        self.bell.ring();
    }
}

/// A handle on one stream of a session, for any thread. Clones are the same handle.
#[derive(Clone)]
pub struct OutboundStream(Arc<Inner>);

impl OutboundStream {
    /// A handle over `producer`; its owner sets `started` and knows the stream by `key`, which is
    /// none for the standalone stream.
    pub fn new(
        producer: Producer<Op>,
        bell: Box<dyn Bell>,
        started: Arc<AtomicBool>,
        key: Option<Box<str>>,
    ) -> Self {
        Self(Arc::new(Inner { producer, bell, started, key }))
    }

    /// Starts the stream: its head goes out, with what was kept.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn start(&self) -> Result<(), Closed> {
        self.push(Op::Start)
    }

    /// Whether the stream has started, as the owner last knew.
    pub fn started(&self) -> bool {
        self.0.started.load(Ordering::Acquire)
    }

    /// Logs one message, a JSON text; waits while the ring is full.
    ///
    /// # Errors
    /// [`NotTaken`]; closed also where it was waiting.
    ///
    /// # Panics
    /// On a shard's thread, which would wait for itself.
    pub fn write_event(&self, message: impl Into<Bytes>) -> Result<(), NotTaken> {
        let message = self.fitting(message)?;
        Ok(self.push(Op::Event(message, None))?)
    }

    /// As [`OutboundStream::write_event`], and `tell` says how far it has come, exactly once.
    ///
    /// # Errors
    /// [`NotTaken`]: then nobody is told.
    pub fn write_event_told(&self, message: impl Into<Bytes>, tell: Tell) -> Result<(), NotTaken> {
        let message = self.fitting(message)?;
        Ok(self.push(Op::Event(message, Some(tell)))?)
    }

    /// Logs one message if the ring has room now. For any thread.
    ///
    /// # Errors
    /// [`NotTaken`], with the message where there was no room.
    pub fn try_write_event(&self, message: impl Into<Bytes>) -> Result<(), NotTaken> {
        match self.0.producer.try_push(Op::Event(self.fitting(message)?, None)) {
            Ok(()) => {
                self.0.bell.ring();
                Ok(())
            }
            Err(PushError::Full(Op::Event(message, _))) => Err(NotTaken::Full(message)),
            Err(_) => Err(NotTaken::Closed),
        }
    }

    /// As [`OutboundStream::write_event`], for a task: it waits without blocking its thread.
    ///
    /// # Errors
    /// [`NotTaken`]; closed also where it was waiting.
    pub async fn write_event_async(&self, message: impl Into<Bytes>) -> Result<(), NotTaken> {
        let pushed = self.0.producer.push(Op::Event(self.fitting(message)?, None)).await;
        Ok(self.rung(pushed.map_err(|_| Closed))?)
    }

    /// Starts the stream and sends a comment, which is not logged; line breaks are flattened, and
    /// no or blank text is a bare `:`.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn comment(&self, text: Option<&str>) -> Result<(), Closed> {
        self.push(Op::Comment(text.map(Into::into)))
    }

    /// Ends the stream's connection in the planned way; the stream goes on.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn close(&self) -> Result<(), Closed> {
        self.push(Op::Close)
    }

    /// The final response: the raw JSON of its `result`. What follows is refused.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn respond(&self, result: impl Into<Bytes>) -> Result<(), Closed> {
        self.push(Op::Respond(result.into()))
    }

    /// The stream's name in its event ids; none for the standalone stream.
    pub fn stream_key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    fn fitting(&self, message: impl Into<Bytes>) -> Result<Bytes, NotTaken> {
        let (message, most) = (message.into(), self.0.bell.event_bytes_max());
        match message.len() {
            bytes if bytes > most => Err(NotTaken::TooLarge { bytes, most }),
            _ => Ok(message),
        }
    }

    fn push(&self, op: Op) -> Result<(), Closed> {
        assert!(self.0.bell.may_wait(), "a shard's thread must not wait for a shard");
        self.rung(self.0.producer.push_blocking(op).map_err(|_| Closed))
    }

    fn rung(&self, pushed: Result<(), Closed>) -> Result<(), Closed> {
        if pushed.is_ok() {
            self.0.bell.ring();
        }
        pushed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::sys::mpsc::{Consumer, Ring};

    struct Count(Arc<AtomicUsize>, bool);

    impl Bell for Count {
        fn ring(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn may_wait(&self) -> bool {
            self.1
        }

        fn event_bytes_max(&self) -> usize {
            4
        }
    }

    fn handle(may_wait: bool) -> (OutboundStream, Consumer<Op>, Arc<AtomicUsize>) {
        let (producer, consumer) = Ring::with_slots(2);
        let rung = Arc::new(AtomicUsize::new(0));
        let bell = Box::new(Count(Arc::clone(&rung), may_wait));
        let started = Arc::new(AtomicBool::new(false));
        (OutboundStream::new(producer, bell, started, Some("key".into())), consumer, rung)
    }

    #[test]
    fn each_operation_arrives_in_its_order_and_rings() {
        let (out, mut ring, rung) = handle(true);
        out.write_event("1").expect("taken");
        out.comment(None).expect("taken");
        assert_eq!(rung.load(Ordering::Relaxed), 2);
        assert!(matches!(ring.pop(), Some(Op::Event(text, None)) if text == "1"));
        assert!(matches!(ring.pop(), Some(Op::Comment(None))));
        let tell = Tell { stage: Stage::Sent, within: Duration::ZERO, told: Box::new(|_| ()) };
        out.write_event_told("2", tell).expect("taken");
        assert!(matches!(ring.pop(), Some(Op::Event(_, Some(tell))) if tell.stage == Stage::Sent));
        assert_eq!((out.stream_key(), out.started()), (Some("key"), false));
    }

    #[test]
    fn a_message_that_no_log_takes_is_refused_with_the_bound() {
        let (out, mut ring, rung) = handle(true);
        let refused = out.write_event("12345");
        assert!(matches!(refused, Err(NotTaken::TooLarge { bytes: 5, most: 4 })));
        assert!(ring.pop().is_none());
        assert_eq!(rung.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_write_that_waits_goes_on_with_room_and_wakes_when_it_is_closed() {
        let (out, mut ring, _) = handle(false);
        let context = &mut Context::from_waker(Waker::noop());
        out.try_write_event("1").expect("room");
        out.try_write_event("2").expect("room");
        assert!(matches!(out.try_write_event("3"), Err(NotTaken::Full(text)) if text == "3"));
        let mut waiting = Box::pin(out.write_event_async("3"));
        assert!(waiting.as_mut().poll(context).is_pending());
        ring.pop();
        ring.wake_waiters();
        assert!(matches!(waiting.as_mut().poll(context), Poll::Ready(Ok(()))));
        let mut waiting = Box::pin(out.write_event_async("4"));
        assert!(waiting.as_mut().poll(context).is_pending());
        drop(ring);
        assert!(matches!(waiting.as_mut().poll(context), Poll::Ready(Err(NotTaken::Closed))));
    }

    #[test]
    #[should_panic(expected = "must not wait for a shard")]
    fn a_shard_never_waits_for_a_shard() {
        let (out, _ring, _) = handle(false);
        let _ = out.start();
    }
}
