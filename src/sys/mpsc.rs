//! A bounded lock-free queue from many producers on any thread to one consumer.
//!
//! It carries what producers off the owning shard write to one stream. Each slot has a stamp that
//! says whose turn it is (D. Vyukov's bounded queue, with one consumer). Invariants:
//!
//! * A slot for position `p` is free at stamp `p`, full at `p + 1`, and free for the next lap at
//!   `p + slots`. The stamp's release and acquire carry the value.
//! * `tail` holds the next position and, as its lowest bit, the close mark. A producer claims a
//!   position by compare-and-swap on both, so after the mark nothing is accepted, and everything
//!   accepted before it is below the final tail: *finished* is "mark set, and tail == head". A
//!   flag beside `tail` would lose an accepted value. Closing succeeds on a full ring.
//! * A producer that waits goes: full -> push the waiter -> **retry** -> wait. The consumer goes:
//!   pop a batch -> take all waiters -> wake them. Both sides change `waiters` by a
//!   read-modify-write, so one of them sees the other: either the waiter is taken, or its retry
//!   sees the free slot.
//!
//! The queue wakes waiting producers but not the consumer: whoever pushes rings the shard's bell
//! afterwards.

use std::fmt;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll, Waker};

use crossbeam_utils::CachePadded;

use super::atomics::{Arc, AtomicBool, AtomicPtr, AtomicU64, Ordering, UnsafeCell, thread};

/// The close mark in `tail`; positions count from bit 1.
const CLOSED: u64 = 1;
const ONE_POSITION: u64 = 2;

/// The queue itself; seen through its [`Producer`]s and its one [`Consumer`].
pub struct Ring<T> {
    /// Next position to claim, shifted by one, and [`CLOSED`]. Padded: all producers write it.
    tail: CachePadded<AtomicU64>,
    /// Next position to pop; written by the consumer alone.
    head: CachePadded<AtomicU64>,
    /// A stack of waiting producers: pushed by them, taken as a whole.
    waiters: AtomicPtr<Node>,
    slots: Box<[Slot<T>]>,
}

struct Slot<T> {
    stamp: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: a value moves from one producer to the consumer and is touched by one thread at a time
// (module invariants), so T must be Send and need not be Sync. The stack's nodes are owned by
// whoever took the stack; tickets are shared and Sync.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

/// Why a value was not taken; it is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PushError<T> {
    /// All slots are in use.
    Full(T),
    /// The ring was closed, or its consumer is gone.
    Closed(T),
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> Ring<T> {
    /// A ring of `slots` values: a power of two, at least 2.
    ///
    /// # Panics
    /// For any other number of slots.
    pub fn with_slots(slots: usize) -> (Producer<T>, Consumer<T>) {
        assert!(slots.is_power_of_two() && slots >= 2, "{slots} slots");
        let slots = (0..slots as u64)
            .map(|position| Slot {
                stamp: AtomicU64::new(position),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            })
            .collect();
        let ring = Arc::new(Self {
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            waiters: AtomicPtr::new(ptr::null_mut()),
            slots,
        });
        (Producer { ring: ring.clone() }, Consumer { ring })
    }

    fn slot(&self, position: u64) -> &Slot<T> {
        // The number of slots is a power of two: the mask keeps the index inside.
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    fn try_push(&self, value: T) -> Result<(), PushError<T>> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            if tail & CLOSED != 0 {
                return Err(PushError::Closed(value));
            }
            let position = tail / ONE_POSITION;
            let slot = self.slot(position);
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp < position {
                return Err(PushError::Full(value));
            }
            if stamp > position {
                // Another producer took this position; its stamp also published the new tail.
                tail = self.tail.load(Ordering::Relaxed);
                continue;
            }
            let claimed = self.tail.compare_exchange_weak(
                tail,
                tail + ONE_POSITION,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match claimed {
                Ok(_) => {
                    // SAFETY: the claim made this thread the slot's only user until the stamp
                    // below passes it on.
                    slot.value.with_mut(|place| unsafe { (*place).write(value) });
                    slot.stamp.store(position + 1, Ordering::Release);
                    return Ok(());
                }
                Err(now) => tail = now,
            }
        }
    }

    /// One attempt of a producer that is ready to wait: `Err` gives the value back after a waiter
    /// was left behind, which will be woken.
    fn push_or_enqueue(
        &self,
        value: T,
        ticket: &mut Option<Arc<Ticket>>,
        waiter: impl FnOnce() -> Waiter,
    ) -> Result<Result<(), T>, T> {
        let value = match self.try_push(value) {
            Ok(()) => return Ok(Ok(())),
            Err(PushError::Closed(value)) => return Ok(Err(value)),
            Err(PushError::Full(value)) => value,
        };
        let new = Arc::new(Ticket { woken: AtomicBool::new(false), waiter: waiter() });
        *ticket = Some(new.clone());
        self.enqueue(new);
        // The retry: a slot that was freed before the waiter stood in the stack wakes nobody.
        match self.try_push(value) {
            Ok(()) => Ok(Ok(())),
            Err(PushError::Closed(value)) => Ok(Err(value)),
            Err(PushError::Full(value)) => Err(value),
        }
    }

    fn enqueue(&self, ticket: Arc<Ticket>) {
        let node = Box::into_raw(Box::new(Node { next: ptr::null_mut(), ticket }));
        let mut first = self.waiters.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node was just made and is not in the stack yet.
            unsafe { (*node).next = first };
            // Acquire: see the slots that were free at the last taking. Release: show the node.
            match self.waiters.compare_exchange_weak(
                first,
                node,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes the whole stack, in the order of arrival.
    fn take_waiters(&self) -> Vec<Arc<Ticket>> {
        let mut node = self.waiters.swap(ptr::null_mut(), Ordering::AcqRel);
        let mut tickets = Vec::new();
        while !node.is_null() {
            // SAFETY: the node came from Box::into_raw, and the swap made this thread its owner.
            let taken = unsafe { Box::from_raw(node) };
            node = taken.next;
            tickets.push(taken.ticket);
        }
        tickets.reverse();
        tickets
    }

    fn wake_waiters(&self) {
        for ticket in self.take_waiters() {
            ticket.woken.store(true, Ordering::Release);
            match &ticket.waiter {
                Waiter::Thread(thread) => thread.unpark(),
                Waiter::Task(waker) => waker.wake_by_ref(),
            }
        }
    }

    fn close(&self) {
        self.tail.fetch_or(CLOSED, Ordering::AcqRel);
        self.wake_waiters();
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Both ends are gone: every claimed position has been written, and nobody waits.
        let tail = self.tail.load(Ordering::Acquire) / ONE_POSITION;
        for position in self.head.load(Ordering::Acquire)..tail {
            // SAFETY: positions between head and tail hold values that nobody has taken.
            self.slot(position).value.with_mut(|place| unsafe { (*place).assume_init_drop() });
        }
        self.take_waiters();
    }
}

/// A producer's end, for any thread; clones push to the same ring.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        Self { ring: self.ring.clone() }
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Producer(..)")
    }
}

impl<T> Producer<T> {
    /// Pushes without waiting. Ring the owner's bell after `Ok`.
    pub fn try_push(&self, value: T) -> Result<(), PushError<T>> {
        self.ring.try_push(value)
    }

    /// Pushes, and parks the calling thread while the ring is full. `Err` gives the value back:
    /// the ring was closed.
    ///
    /// Never on a shard's thread: the consumer that it waits for may be that very thread.
    pub fn push_blocking(&self, mut value: T) -> Result<(), T> {
        loop {
            let mut ticket = None;
            let here = || Waiter::Thread(thread::current());
            match self.ring.push_or_enqueue(value, &mut ticket, here) {
                Ok(done) => return done,
                Err(back) => value = back,
            }
            while ticket.as_ref().is_some_and(|ticket| !ticket.woken.load(Ordering::Acquire)) {
                thread::park();
            }
        }
    }

    /// Pushes, and waits as a future while the ring is full; `Err` as for
    /// [`Producer::push_blocking`]. Dropping the future drops its value, unpushed.
    pub fn push(&self, value: T) -> Push<'_, T> {
        Push { ring: &self.ring, value: Some(value), ticket: None }
    }

    /// Accepts nothing more and wakes all waiting producers; what was accepted can still be popped.
    /// Idempotent. Ring the owner's bell afterwards: it may be finished.
    pub fn close(&self) {
        self.ring.close();
    }

    /// Whether the ring was closed, or its consumer is gone.
    pub fn is_closed(&self) -> bool {
        self.ring.tail.load(Ordering::Acquire) & CLOSED != 0
    }
}

/// The consumer's end. Dropping it closes the ring and drops what it holds.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Consumer(..)")
    }
}

impl<T> Consumer<T> {
    /// Takes the oldest value. `None` also while a producer is between claiming the next position
    /// and writing it: it rings the bell when it is done.
    ///
    /// Call [`Consumer::wake_waiters`] once after a batch, or producers wait forever.
    pub fn pop(&mut self) -> Option<T> {
        let head = self.ring.head.load(Ordering::Relaxed);
        let slot = self.ring.slot(head);
        if slot.stamp.load(Ordering::Acquire) != head + 1 {
            return None;
        }
        // SAFETY: the stamp says that the value is written and that the slot is ours; the stamp
        // below gives the slot, now without a value, to the producer of the next lap.
        let value = slot.value.with_mut(|place| unsafe { (*place).assume_init_read() });
        slot.stamp.store(head + self.ring.slots.len() as u64, Ordering::Release);
        self.ring.head.store(head + 1, Ordering::Relaxed);
        Some(value)
    }

    /// Wakes every producer that waits for a free slot.
    pub fn wake_waiters(&mut self) {
        self.ring.wake_waiters();
    }

    /// As [`Producer::close`].
    pub fn close(&self) {
        self.ring.close();
    }

    /// Whether the ring is closed and everything that it ever accepted has been popped.
    pub fn is_finished(&self) -> bool {
        let tail = self.ring.tail.load(Ordering::Acquire);
        tail & CLOSED != 0 && tail / ONE_POSITION == self.ring.head.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.ring.close();
        while self.pop().is_some() {}
    }
}

struct Node {
    next: *mut Node,
    ticket: Arc<Ticket>,
}

/// One wait of one producer. It may outlive the wait in the stack until the next taking.
struct Ticket {
    woken: AtomicBool,
    waiter: Waiter,
}

enum Waiter {
    Thread(thread::Thread),
    Task(Waker),
}

/// The future of [`Producer::push`].
#[must_use = "futures do nothing unless polled"]
pub struct Push<'a, T> {
    ring: &'a Ring<T>,
    value: Option<T>,
    ticket: Option<Arc<Ticket>>,
}

impl<T> fmt::Debug for Push<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Push(..)")
    }
}

// The value is only moved out, never pinned.
impl<T> Unpin for Push<'_, T> {}

impl<T> Push<'_, T> {
    /// Whether the waiter of an earlier poll still stands in the stack and wakes this very task.
    /// Without this a future that is polled for other reasons would fill the stack.
    fn is_enqueued(&self, waker: &Waker) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| {
            !ticket.woken.load(Ordering::Acquire)
                && matches!(&ticket.waiter, Waiter::Task(own) if own.will_wake(waker))
        })
    }
}

impl<T> Future for Push<'_, T> {
    type Output = Result<(), T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(value) = this.value.take() else {
            // Polled after it was done.
            return Poll::Pending;
        };
        let attempt = if this.is_enqueued(cx.waker()) {
            match this.ring.try_push(value) {
                Ok(()) => Ok(Ok(())),
                Err(PushError::Closed(value)) => Ok(Err(value)),
                Err(PushError::Full(value)) => Err(value),
            }
        } else {
            let here = || Waiter::Task(cx.waker().clone());
            this.ring.push_or_enqueue(value, &mut this.ticket, here)
        };
        match attempt {
            Ok(done) => Poll::Ready(done),
            Err(value) => {
                this.value = Some(value);
                Poll::Pending
            }
        }
    }
}

// loom's types work only inside its models (`tests/loom.rs`).
#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    fn drain<T>(consumer: &mut Consumer<T>) -> Vec<T> {
        let values = std::iter::from_fn(|| consumer.pop()).collect();
        consumer.wake_waiters();
        values
    }

    #[test]
    fn values_come_out_in_order_over_many_laps() {
        let (producer, mut consumer) = Ring::with_slots(4);
        for lap in 0..100 {
            for i in 0..4 {
                producer.try_push(lap * 4 + i).expect("there is room");
            }
            assert_eq!(producer.try_push(-1), Err(PushError::Full(-1)));
            assert_eq!(drain(&mut consumer), (lap * 4..lap * 4 + 4).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_close_succeeds_on_a_full_ring_and_loses_nothing() {
        let (producer, mut consumer) = Ring::with_slots(2);
        producer.try_push(1).expect("room");
        producer.try_push(2).expect("room");
        producer.close();
        producer.close();
        assert!(producer.is_closed());
        assert_eq!(producer.try_push(3), Err(PushError::Closed(3)));
        assert!(!consumer.is_finished());
        assert_eq!(drain(&mut consumer), [1, 2]);
        assert!(consumer.is_finished());
        assert_eq!(producer.push_blocking(4), Err(4));
    }

    #[test]
    fn every_value_is_dropped_once_wherever_it_lies() {
        let alive = std::sync::Arc::new(());
        let (producer, mut consumer) = Ring::with_slots(8);
        for _ in 0..6 {
            producer.try_push(alive.clone()).expect("room");
        }
        drop(consumer.pop());
        assert_eq!(std::sync::Arc::strong_count(&alive), 6);
        drop(consumer);
        assert_eq!(std::sync::Arc::strong_count(&alive), 1);
        assert!(matches!(producer.try_push(alive.clone()), Err(PushError::Closed(_))));

        let (producer, consumer) = Ring::with_slots(2);
        producer.try_push(alive.clone()).expect("room");
        drop(producer);
        drop(consumer);
        assert_eq!(std::sync::Arc::strong_count(&alive), 1);
    }

    #[test]
    fn blocked_producers_lose_and_reorder_nothing() {
        const EACH: usize = 2_000;
        let (producer, mut consumer) = Ring::with_slots(4);
        let threads = [0_usize, 1, 2].map(|who| {
            let producer = producer.clone();
            std::thread::spawn(move || {
                for i in 0..EACH {
                    producer.push_blocking((who, i)).expect("open");
                }
            })
        });
        let mut next = [0; 3];
        while next.iter().sum::<usize>() < 3 * EACH {
            for (who, i) in drain(&mut consumer) {
                assert_eq!(i, next[who]);
                next[who] += 1;
            }
            std::thread::yield_now();
        }
        for thread in threads {
            thread.join().expect("done");
        }
    }

    #[test]
    fn a_close_ends_a_blocked_push() {
        let (producer, consumer) = Ring::with_slots(2);
        producer.try_push(1).expect("room");
        producer.try_push(2).expect("room");
        let blocked = std::thread::spawn(move || producer.push_blocking(3));
        while consumer.ring.waiters.load(Ordering::Acquire).is_null() {
            std::thread::sleep(Duration::from_millis(1));
        }
        consumer.close();
        assert_eq!(blocked.join().expect("ended"), Err(3));
    }

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_task_waits_once_however_often_it_is_polled() {
        let count = std::sync::Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let (producer, mut consumer) = Ring::with_slots(2);
        producer.try_push(1).expect("room");
        producer.try_push(2).expect("room");
        let mut push = producer.push(3);
        for _ in 0..3 {
            assert!(Pin::new(&mut push).poll(&mut cx).is_pending());
        }
        assert_eq!(consumer.ring.take_waiters().len(), 1);

        // The waiter was thrown away above; a task that was woken for nothing waits again.
        push.ticket = None;
        assert!(Pin::new(&mut push).poll(&mut cx).is_pending());
        assert_eq!(drain(&mut consumer), [1, 2]);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(Pin::new(&mut push).poll(&mut cx), Poll::Ready(Ok(())));
        assert_eq!(drain(&mut consumer), [3]);
        consumer.close();
        assert_eq!(Pin::new(&mut producer.push(4)).poll(&mut cx), Poll::Ready(Err(4)));
    }
}
