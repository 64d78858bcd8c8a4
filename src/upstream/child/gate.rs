//! A gate that is closed and opened again, and the one task that waits before it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Open at first.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Gate {
    pub(super) fn set_closed(&self, closed: bool) {
        self.closed.set(closed);
        if closed {
            return;
        }
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// Returns while it is open. Dropping the future is harmless.
    pub(super) async fn passed(&self) {
        poll_fn(|context| {
            if !self.closed.get() {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
