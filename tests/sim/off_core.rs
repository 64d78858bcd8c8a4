//! A producer on another core: its handle, its ring, and what the ring has accepted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gapless::stream::outbound::{Bell, NotTaken, Op, OutboundStream};
use gapless::sys::mpsc::{Consumer, Ring};

use crate::check::{same, violated};
use crate::world::World;

/// Slots of a ring: few, so that it is often full.
const SLOTS: usize = 4;

/// A handle, the owner's end of its ring, and the oracle of what is between them.
pub struct OffCore {
    handle: OutboundStream,
    ring: Consumer<Op>,
    rung: Arc<AtomicBool>,
    accepted: VecDeque<Vec<u8>>,
    closed: bool,
}

/// Far above any payload of the simulator.
const EVENT_BYTES_MAX: usize = 1 << 30;

struct Flag(Arc<AtomicBool>);

impl Bell for Flag {
    fn ring(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn event_bytes_max(&self) -> usize {
        EVENT_BYTES_MAX
    }
}

impl OffCore {
    pub fn new() -> Self {
        let (producer, ring) = Ring::with_slots(SLOTS);
        let rung = Arc::new(AtomicBool::new(false));
        let bell = Box::new(Flag(Arc::clone(&rung)));
        let started = Arc::new(AtomicBool::new(true));
        let handle = OutboundStream::new(producer, bell, started, None);
        Self { handle, ring, rung, accepted: VecDeque::new(), closed: false }
    }

    /// Whether the owner has been told that something is there.
    pub fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// Nothing may be lost on the way to the owner.
    pub fn check_drained(&self) {
        let left = self.accepted.len();
        if left > 0 {
            violated("accepted", format!("{left} accepted events never reached their stream"));
        }
    }
}

impl World {
    /// The producer writes a burst; a full ring holds back this producer alone.
    pub fn push(&mut self, s: usize, count: u64) {
        for _ in 0..count {
            let text = self.payload().into_bytes();
            let off_core = &mut self.streams[s].off_core;
            match off_core.handle.try_write_event(text.clone()) {
                Ok(()) if off_core.closed => violated("accepted", "an event after the end"),
                Ok(()) => off_core.accepted.push_back(text),
                Err(NotTaken::Full(back)) => {
                    same("accepted", "a full ring's answer", back.as_ref(), text.as_slice());
                    same("accepted", "events in a full ring", off_core.accepted.len(), SLOTS);
                    self.coverage.mark("producer ring full");
                    return;
                }
                Err(NotTaken::TooLarge { bytes, most }) => {
                    violated("accepted", format!("{bytes} bytes are more than {most}"));
                }
                Err(NotTaken::Closed) => {
                    same("accepted", "whether it is closed", true, off_core.closed);
                    self.coverage.mark("producer told that it is over");
                    return;
                }
            }
        }
    }

    /// The owner logs what the bell told it of.
    pub fn drain(&mut self, s: usize) {
        self.streams[s].off_core.rung.store(false, Ordering::Release);
        while let Some(op) = self.streams[s].off_core.ring.pop() {
            let Op::Event(text, _) = op else { violated("accepted", "nobody asked for that") };
            let accepted = self.streams[s].off_core.accepted.pop_front();
            same("accepted", "the next event", Some(text.as_ref()), accepted.as_deref());
            self.append(s, std::str::from_utf8(&text).expect("it was text"));
        }
        self.streams[s].off_core.ring.wake_waiters();
    }

    /// The stream's last event: what was accepted comes before it, nothing is accepted after it.
    pub fn close_off_core(&mut self, s: usize) {
        self.streams[s].off_core.ring.close();
        self.drain(s);
        let off_core = &mut self.streams[s].off_core;
        off_core.check_drained();
        same("accepted", "whether the ring is done", off_core.ring.is_finished(), true);
        off_core.closed = true;
    }
}
