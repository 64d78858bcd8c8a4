//! A flag that tasks of one shard wait for.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Raised by anybody on the shard, taken by who waits. Waking costs no allocation as long as one
/// task waits.
#[derive(Default)]
pub struct Signal {
    raised: Cell<bool>,
    first: RefCell<Option<Waker>>,
    more: RefCell<Vec<Waker>>,
}

impl Signal {
    /// Raises the flag and wakes whoever waits.
    pub fn raise(&self) {
        self.raised.set(true);
        if let Some(waker) = self.first.take() {
            waker.wake();
        }
        if !self.more.borrow().is_empty() {
            self.more.take().into_iter().for_each(Waker::wake);
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
        let mut first = self.first.borrow_mut();
        match &*first {
            None => *first = Some(waker.clone()),
            Some(known) if known.will_wake(waker) => {}
            Some(_) => self.more.borrow_mut().push(waker.clone()),
        }
        Poll::Pending
    }

    /// Waits until it is raised and leaves it so: for an end that many wait for.
    pub async fn raised(&self) {
        std::future::poll_fn(|context| self.poll(context)).await;
    }

    /// Waits until it is raised or `other` is ready; the signal wins, and is left raised.
    pub async fn or<F: Future>(&self, mut other: Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|context| match self.poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => other.as_mut().poll(context).map(Some),
        })
        .await
    }
}
