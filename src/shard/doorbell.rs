//! How a sleeping shard is woken by another thread: one write(2) per step from idle to busy.
//!
//! The producer pushes, then takes the flag; if it was up, it signals. The owner drains, then
//! raises the flag, **then looks again**, and only then sleeps. Both change the flag by a
//! read-modify-write, so one of them sees the other. Raising it by a plain store loses a wake-up,
//! and so does taking it down when the second look finds something (`tests/loom.rs`).

use std::io;
use std::os::fd::OwnedFd;

use crate::sys::atomics::{AtomicBool, Ordering};
use crate::sys::eventfd::EventFd;

/// The protocol alone: a flag that says whether the owner may be asleep.
#[derive(Debug)]
pub struct Armed(AtomicBool);

impl Armed {
    /// Not raised: the owner is awake and has not looked at its queues yet.
    #[expect(clippy::new_without_default, reason = "a flag that starts down is not obvious")]
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// The producer's step, after its push; `true`: it must signal.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    /// The owner's step, before its second look. Only a producer takes the flag down again.
    pub fn raise(&self) {
        self.0.swap(true, Ordering::AcqRel);
    }
}

/// The flag and the eventfd that the owner sleeps on.
#[derive(Debug)]
pub struct Doorbell {
    armed: Armed,
    signal: EventFd,
}

impl Doorbell {
    /// A bell that has not been armed. Errors: no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { armed: Armed::new(), signal: EventFd::new()? })
    }

    /// Wakes the owner if it sleeps or is about to; for any thread, after it has pushed.
    pub fn ring(&self) {
        if self.armed.take()
            && let Err(error) = self.signal.signal()
        {
            // An open eventfd below its maximum takes every write.
            tracing::error!(%error, "a shard could not be woken");
        }
    }

    /// Announces that the owner will sleep; it must look at its queues once more before it does.
    pub fn arm(&self) {
        self.armed.raise();
    }

    /// A descriptor to sleep on: a read of 8 bytes ends when the bell is rung.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.signal.try_clone_fd()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn one_arming_gives_one_signal_however_often_it_rings() {
        let bell = Doorbell::new().expect("made");
        let mut sleeper = File::from(bell.try_clone_fd().expect("cloned"));
        bell.ring();
        bell.arm();
        bell.ring();
        bell.ring();
        bell.arm();
        bell.ring();
        let mut count = [0; 8];
        sleeper.read_exact(&mut count).expect("read");
        assert_eq!(u64::from_ne_bytes(count), 2);
    }
}
