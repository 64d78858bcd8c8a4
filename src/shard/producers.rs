//! The owner's side of the handles that other threads write streams with.
//!
//! A handle's ring exists only once it is taken; producers on the owning shard append directly.
//! A ring that has something is named in the mailbox at most once at a time, so the mailbox's
//! command queue is never full because of producers (asserted in `limits`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;

use crate::limits::{PRODUCER_RING_SLOTS, PRODUCERS_MAX, WRITE_BYTES_MAX};
use crate::mcp::jsonrpc;
use crate::session::table::IdHasher;
use crate::session::{About, Session};
use crate::stream::outbound::{Bell, Op, OutboundStream};
use crate::sys::mpsc::{Consumer, Ring};

use super::Shard;
use super::handoff::Letter;
use super::live::Live;
use super::mailbox::Mailbox;

thread_local! {
    /// Whether this is a shard's thread: it must never wait for a shard.
    static ON_SHARD: Cell<bool> = const { Cell::new(false) };
}

/// This thread is a shard's from now on.
pub(super) fn enter_shard() {
    ON_SHARD.set(true);
}

/// One ring's owner.
struct End {
    consumer: Consumer<Op>,
    /// A letter that names the ring is under way.
    queued: Arc<AtomicBool>,
    started: Arc<AtomicBool>,
    live: Weak<Live>,
    about: About,
}

/// The rings of one shard.
#[derive(Default)]
pub struct Producers {
    ends: RefCell<HashMap<u64, End, BuildHasherDefault<IdHasher>>>,
}

struct MailBell {
    event_bytes_max: usize,
    mailbox: Arc<Mailbox<Letter>>,
    key: u64,
    queued: Arc<AtomicBool>,
}

impl Bell for MailBell {
    fn ring(&self) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let sent = self.mailbox.try_send(Letter::Producer(self.key));
            assert!(sent.is_ok(), "the mailbox has a place for each producer");
        }
    }

    fn may_wait(&self) -> bool {
        !ON_SHARD.get()
    }

    fn event_bytes_max(&self) -> usize {
        self.event_bytes_max
    }
}

impl Producers {
    /// A handle for any thread on what `about` writes to; none where this shard has given out as
    /// many as it may, or the call is not open.
    pub fn take(&self, shard: &Shard, live: &Rc<Live>, about: About) -> Option<OutboundStream> {
        let mut ends = self.ends.borrow_mut();
        if ends.len() >= PRODUCERS_MAX {
            return None;
        }
        let (key, started) = live.reserve(about)?;
        let started = Arc::new(AtomicBool::new(started));
        let queued = Arc::new(AtomicBool::new(false));
        let (producer, consumer) = Ring::with_slots(PRODUCER_RING_SLOTS);
        let number = shard.key();
        let mailbox = Arc::clone(&shard.process.mailboxes[usize::from(shard.index)]);
        let event_bytes_max = live.look(|session| session.settings().limits.event_bytes);
        let bell = MailBell { event_bytes_max, mailbox, key: number, queued: Arc::clone(&queued) };
        let (live, outbound_started) = (Rc::downgrade(live), Arc::clone(&started));
        ends.insert(number, End { consumer, queued, started, live, about });
        Some(OutboundStream::new(producer, Box::new(bell), outbound_started, key))
    }

    /// One slice of what is in a ring, applied in its order; true where more is there.
    pub fn drain(&self, shard: &Rc<Shard>, number: u64) -> bool {
        let Some(mut end) = self.ends.borrow_mut().remove(&number) else { return false };
        // Before the ring is looked at: what is pushed from now on sends another letter.
        end.queued.swap(false, Ordering::AcqRel);
        let Some(live) = end.live.upgrade() else { return false };
        let now = Instant::now();
        let about = end.about;
        if live.look(|session| is_open(session, about) && !session.has_room(about, now)) {
            // Left in the ring, and nobody is rung for more of it: the producer waits with it.
            end.queued.store(true, Ordering::Release);
            self.ends.borrow_mut().insert(number, end);
            live.stall(shard, number, now);
            return false;
        }
        let (mut bytes, mut more, mut open) = (0, false, true);
        while let Some(op) = end.consumer.pop() {
            if let Op::Event(message, _) = &op {
                bytes += message.len();
            }
            open = apply(shard, &live, end.about, op);
            if !open {
                break;
            }
            if bytes >= WRITE_BYTES_MAX {
                more = true;
                break;
            }
        }
        end.consumer.wake_waiters();
        if !open || end.consumer.is_finished() {
            // Dropping the consumer closes the ring: whoever waits wakes with `Closed`.
            return false;
        }
        end.started.store(live.look(|session| session.is_started(end.about)), Ordering::Release);
        // Where more is there the driver comes back by itself, unless a letter is under way
        // already. Where nothing is left the flag stays down, or the next push would ring nobody.
        let again = more && !end.queued.swap(true, Ordering::AcqRel);
        self.ends.borrow_mut().insert(number, end);
        again
    }
}

/// Applies one operation; false where the stream takes no more.
fn apply(shard: &Rc<Shard>, live: &Rc<Live>, about: About, op: Op) -> bool {
    if !live.look(|session| is_open(session, about)) {
        return false;
    }
    match op {
        Op::Start => live.with(shard, |session, _, now| session.start_about(now, about)),
        Op::Comment(text) => live.with(shard, |session, _, now| {
            session.comment_about(now, about, text.unwrap_or_default().as_bytes());
        }),
        Op::Close => live.with(shard, |session, _, _| session.close_about(about)),
        Op::Event(message, tell) => live.write(shard, about, &message, tell),
        Op::Respond(result) => {
            respond(shard, live, about, &result);
            return false;
        }
    }
    true
}

fn respond(shard: &Rc<Shard>, live: &Rc<Live>, about: About, result: &Bytes) {
    if let About::Call(call) = about {
        live.with(shard, |session, _, now| {
            session.respond(now, call, result.len() + 48, |id, out| {
                jsonrpc::result(out, id, result);
            });
        });
    }
}

fn is_open(session: &Session, about: About) -> bool {
    session.ended().is_none()
        && match about {
            About::Call(call) => session.exchange_of(call).is_some(),
            About::Standalone => true,
        }
}
