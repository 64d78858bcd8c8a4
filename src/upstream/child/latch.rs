//! Something that happens once, and the tasks of the same thread that wait for it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Open from the first [`Latch::open`] on, for ever.
#[derive(Debug, Default)]
pub(super) struct Latch {
    open: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Latch {
    pub(super) fn is_open(&self) -> bool {
        self.open.get()
    }

    pub(super) fn open(&self) {
        self.open.set(true);
        // Taken out first: a waker may run code that comes back here.
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Returns once it is open. Dropping the future is harmless.
    pub(super) async fn opened(&self) {
        poll_fn(|context| {
            if self.open.get() {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
