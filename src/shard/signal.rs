//! A flag that tasks of one shard wait for.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Raised by anybody on the shard, taken by who waits. Waking costs no allocation as long as one
/// task waits.
#[derive(Default)]
pub struct Signal {
    raised: Cell<bool>,
    first: Cell<Option<Waker>>,
    more: Cell<Option<Box<More>>>,
}

/// Who waits beside the first, which is rare: a signal is part of every connection.
#[derive(Default)]
struct More(Vec<Waker>);

impl Signal {
    /// Raises the flag and wakes whoever waits.
    pub fn raise(&self) {
        self.raised.set(true);
        if let Some(waker) = self.first.take() {
            waker.wake();
        }
        if let Some(more) = self.more.take() {
            more.0.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether it is raised; takes it down.
    pub fn take(&self) -> bool {
        self.raised.replace(false)
    }

    /// Ready while it is raised; leaves it so. Otherwise `context` is woken when it is.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.raised.get() {
            return Poll::Ready(());
        }
        let waker = context.waker();
        let first = self.first.take();
        if first.as_ref().is_some_and(|known| !known.will_wake(waker)) {
            let mut more = self.more.take().unwrap_or_default();
            more.0.push(waker.clone());
            self.more.set(Some(more));
        }
        self.first.set(Some(first.unwrap_or_else(|| waker.clone())));
        Poll::Pending
    }

    /// Waits until it is raised and leaves it so: for an end that many wait for.
    pub fn raised(&self) -> impl Future<Output = ()> {
        std::future::poll_fn(|context| self.poll(context))
    }

    /// Waits until it is raised or `other` is ready; the signal wins, and is left raised.
    pub fn or<F: Future>(&self, mut other: Pin<&mut F>) -> impl Future<Output = Option<F::Output>> {
        std::future::poll_fn(move |context| match self.poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => other.as_mut().poll(context).map(Some),
        })
    }
}
