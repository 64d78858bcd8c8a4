//! Every interleaving (up to two preemptions) of the two lock-free protocols: the shard's doorbell
//! and the producers' ring.
//!
//! Run with `cargo test --features loom --test loom --release`. The feature swaps the atomics of
//! `gapless::sys::atomics` for loom's, which work only inside a model: run nothing else with it.
//!
//! Rules that loom asks for: a thread that may be unparked is never joined by the unparker and
//! never joins, and no loop spins. So a consumer that waits is parked, as a shard is, and woken by
//! whoever pushed. A model that is meant to fail owns nothing whose drop asks loom (its `Arc`),
//! which would panic once more while the failure unwinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as StdAtomicUsize, Ordering as StdOrdering};

use gapless::shard::doorbell::Armed;
use gapless::sys::mpsc::{Consumer, PushError, Ring};
use loom::sync::Notify;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// The protocol of `shard::doorbell`, so that wrong versions of it can be tried.
trait Bell: Send + Sync + 'static {
    fn new() -> Self;
    fn take(&self) -> bool;
    fn raise(&self);
    /// What the owner does when its second look finds something.
    fn stay_awake(&self) {}
}

impl Bell for Armed {
    fn new() -> Self {
        Self::new()
    }
    fn take(&self) -> bool {
        self.take()
    }
    fn raise(&self) {
        self.raise();
    }
}

/// Two producers push one item each; the owner sleeps between. A lost wake-up is a deadlock.
fn two_producers_wake_the_owner<B: Bell>() {
    check(|| {
        // The queue is the weakest that there is: one flag for each producer's item.
        let queue = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let bell = Arc::new(B::new());
        // Like an eventfd: signals are kept until the owner sleeps on them, and then taken as one.
        let signal = Arc::new(Notify::new());
        for who in 0..2 {
            let (queue, bell, signal) = (queue.clone(), bell.clone(), signal.clone());
            thread::spawn(move || {
                queue[who].store(true, Ordering::Release);
                if bell.take() {
                    signal.notify();
                }
            });
        }
        let mut seen = [false; 2];
        let look = |seen: &mut [bool; 2]| {
            let before = *seen;
            for who in 0..2 {
                seen[who] |= queue[who].load(Ordering::Acquire);
            }
            *seen != before
        };
        loop {
            look(&mut seen);
            bell.raise();
            if seen == [true; 2] {
                break;
            }
            if look(&mut seen) {
                bell.stay_awake();
                continue;
            }
            signal.wait();
        }
    });
}

#[test]
fn the_doorbell_loses_no_wake_up() {
    two_producers_wake_the_owner::<Armed>();
}

/// Arms by a plain store and takes by a load and a store.
struct PlainStores(AtomicBool);

impl Bell for PlainStores {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }
    fn take(&self) -> bool {
        let armed = self.0.load(Ordering::Acquire);
        if armed {
            self.0.store(false, Ordering::Release);
        }
        armed
    }
    fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_doorbell_of_plain_stores_loses_one() {
    two_producers_wake_the_owner::<PlainStores>();
}

/// Takes the flag down again when the second look finds something.
struct Disarms(AtomicBool);

impl Bell for Disarms {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
    fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
    fn stay_awake(&self) {
        self.0.store(false, Ordering::Release);
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_doorbell_that_the_owner_disarms_loses_one() {
    two_producers_wake_the_owner::<Disarms>();
}

/// Pops until `count` values have come, parked in between; producers unpark after each push.
fn pop_parked(consumer: &mut Consumer<u32>, count: usize) -> Vec<u32> {
    let mut values = Vec::new();
    loop {
        while let Some(value) = consumer.pop() {
            values.push(value);
        }
        consumer.wake_waiters();
        if values.len() == count {
            return values;
        }
        thread::park();
    }
}

#[test]
fn two_producers_lose_and_reorder_nothing() {
    check(|| {
        let (producer, mut consumer) = Ring::with_slots(4);
        let owner = thread::current();
        for who in [10, 20] {
            let (producer, owner) = (producer.clone(), owner.clone());
            thread::spawn(move || {
                for i in 0..2 {
                    producer.try_push(who + i).expect("room for four");
                }
                owner.unpark();
            });
        }
        let values = pop_parked(&mut consumer, 4);
        for who in [10, 20] {
            let own: Vec<_> = values.iter().filter(|value| **value / 10 == who / 10).collect();
            assert_eq!(own, [&who, &(who + 1)]);
        }
    });
}

#[test]
fn a_slot_is_used_again_only_when_it_was_emptied() {
    check(|| {
        let (producer, mut consumer) = Ring::with_slots(2);
        producer.try_push(1).expect("room");
        producer.try_push(2).expect("room");
        let pushed = thread::spawn(move || producer.try_push(3));
        assert_eq!(consumer.pop(), Some(1));
        let pushed = pushed.join().expect("no panic");
        assert_eq!(consumer.pop(), Some(2));
        match pushed {
            Ok(()) => assert_eq!(consumer.pop(), Some(3)),
            Err(error) => assert_eq!(error, PushError::Full(3)),
        }
        assert_eq!(consumer.pop(), None);
    });
}

#[test]
fn a_blocked_producer_is_woken_by_the_drain() {
    check(|| {
        let (producer, mut consumer) = Ring::with_slots(2);
        producer.try_push(1).expect("room");
        producer.try_push(2).expect("room");
        let owner = thread::current();
        thread::spawn(move || {
            producer.push_blocking(3).expect("open");
            owner.unpark();
        });
        assert_eq!(pop_parked(&mut consumer, 3), [1, 2, 3]);
    });
}

#[test]
fn two_blocked_producers_are_woken_by_one_drain() {
    check(|| {
        let (producer, mut consumer) = Ring::with_slots(2);
        producer.try_push(1).expect("room");
        producer.try_push(2).expect("room");
        let owner = thread::current();
        for value in [3, 4] {
            let (producer, owner) = (producer.clone(), owner.clone());
            thread::spawn(move || {
                producer.push_blocking(value).expect("open");
                owner.unpark();
            });
        }
        let mut values = pop_parked(&mut consumer, 4);
        values[2..].sort_unstable();
        assert_eq!(values, [1, 2, 3, 4]);
    });
}

#[test]
fn a_blocked_producer_is_woken_by_the_close() {
    check(|| {
        let (producer, consumer) = Ring::with_slots(2);
        producer.try_push(1).expect("room");
        producer.try_push(2).expect("room");
        let owner = thread::current();
        let refused = Arc::new(AtomicBool::new(false));
        thread::spawn({
            let refused = refused.clone();
            move || {
                assert_eq!(producer.push_blocking(3), Err(3));
                refused.store(true, Ordering::Release);
                owner.unpark();
            }
        });
        consumer.close();
        while !refused.load(Ordering::Acquire) {
            thread::park();
        }
    });
}

#[test]
fn what_was_accepted_before_the_close_is_seen_before_the_end() {
    // Both outcomes must occur among the interleavings, or the model shows nothing.
    let outcomes = Arc::new([StdAtomicUsize::new(0), StdAtomicUsize::new(0)]);
    check({
        let outcomes = outcomes.clone();
        move || {
            let (producer, mut consumer) = Ring::with_slots(2);
            let closer = producer.clone();
            let pushing = thread::spawn(move || producer.try_push(1));
            let closing = thread::spawn(move || closer.close());
            // The owner may come at any time; when it sees the end, it must have seen the value.
            let early = consumer.pop();
            let ended_early = consumer.is_finished();
            let pushed = pushing.join().expect("no panic");
            closing.join().expect("no panic");
            let late = consumer.pop();
            assert!(consumer.is_finished());
            match pushed {
                Ok(()) => assert_eq!((early.or(late), early.and(late)), (Some(1), None)),
                Err(error) => {
                    assert_eq!(error, PushError::Closed(1));
                    assert_eq!((early, late), (None, None));
                }
            }
            assert!(!ended_early || late.is_none(), "a value came after the end");
            outcomes[usize::from(late.is_some() || early.is_some())]
                .fetch_add(1, StdOrdering::Relaxed);
        }
    });
    assert!(outcomes.iter().all(|outcome| outcome.load(StdOrdering::Relaxed) > 0));
}

#[test]
fn a_dropped_consumer_frees_what_is_pushed_at_that_moment() {
    check(|| {
        let alive = Arc::new(());
        let (producer, consumer) = Ring::with_slots(2);
        let item = alive.clone();
        let pushing = thread::spawn(move || {
            // Either taken or given back: both end here.
            drop(producer.try_push(item));
        });
        drop(consumer);
        pushing.join().expect("no panic");
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}
