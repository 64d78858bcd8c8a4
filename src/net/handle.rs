//! What the rest of the shard may do with a connection: wake it, stop it, ask what arrived.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use monoio::io::Canceller;

use crate::shard::signal::Signal;
use crate::shard::timer::Timer;
use crate::stream::ConnOut;
use crate::sys::leash::Leash;
use crate::sys::tcp::{self, How};

/// What a connection's deadline means just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A read with a buffer is parked because more is expected soon: give the buffer back.
    Hot,
    /// Nothing is expected: close quietly.
    Idle,
    /// A request is coming in: stop reading and answer 408.
    Receiving,
    /// A stream is silent: send a comment.
    Streaming,
    /// An answer is being prepared or written: no deadline of its own.
    Answering,
}

/// One connection, as others on its shard see it.
pub struct Handle {
    leash: Rc<Leash>,
    /// The shard's own key for it.
    pub key: u64,
    /// Something happened that its task should look at.
    pub signal: Signal,
    /// Its one deadline.
    pub timer: Timer,
    /// What that deadline means.
    pub phase: Cell<Phase>,
    /// The deadline has passed.
    pub expired: Cell<bool>,
    /// Its stream has been taken: the socket goes with a reset, so that nothing that is queued
    /// arrives after the acknowledged count was read.
    pub fenced: Cell<bool>,
    /// Its request has waited for the keys of its token's issuer: it does so once.
    pub asked_issuer: Cell<bool>,
    /// Its byte count.
    pub out: Cell<ConnOut>,
    /// Ends the parked read of [`Phase::Hot`]; there only in that phase.
    pub canceller: Cell<Option<Canceller>>,
}

// With its counts, 112 bytes of every connection.
const _: () = assert!(size_of::<Handle>() <= 96);

impl Handle {
    /// A connection that its shard knows by `key` and that has `out` behind it.
    pub fn new(leash: Rc<Leash>, key: u64, out: ConnOut) -> Self {
        Self {
            leash,
            key,
            signal: Signal::default(),
            timer: Timer::default(),
            phase: Cell::new(Phase::Idle),
            expired: Cell::new(false),
            fenced: Cell::new(false),
            asked_issuer: Cell::new(false),
            out: Cell::new(out),
            canceller: Cell::new(None),
        }
    }

    /// Calls `with` with the socket, while it is open.
    pub fn reach<R>(&self, with: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        self.leash.reach(with)
    }

    /// Whether nothing has been answered on it yet.
    pub fn is_fresh(&self) -> bool {
        self.out.get().written() == 0
    }

    /// Stops the connection for good: its stream belongs to another one.
    pub fn fence(&self) {
        self.fenced.set(true);
        self.stop();
    }

    /// Ends every pending read and write; its task sees why and closes the socket.
    pub fn stop(&self) {
        self.leash.reach(|socket| tcp::shutdown(socket, How::Both));
        self.signal.raise();
    }

    /// The deadline has passed.
    pub fn handle_expired(&self) {
        match self.phase.get() {
            Phase::Hot => {
                if let Some(canceller) = self.canceller.take() {
                    canceller.cancel();
                }
            }
            Phase::Idle => self.stop(),
            Phase::Receiving => {
                self.expired.set(true);
                self.leash.reach(|socket| tcp::shutdown(socket, How::Read));
            }
            Phase::Streaming => {
                self.expired.set(true);
                self.signal.raise();
            }
            Phase::Answering => {}
        }
    }

    /// Asks the kernel how many bytes have been acknowledged, and believes what is possible. None
    /// where the socket is gone.
    pub fn read_acked(&self) -> Option<u64> {
        let raw = self.leash.reach(|socket| tcp::bytes_acked(socket))?.ok()?;
        let mut out = self.out.get();
        let acked = out.handle_acked(raw);
        self.out.set(out);
        Some(acked)
    }

    /// A write of `bytes` has completed.
    pub fn handle_written(&self, bytes: u64) {
        let mut out = self.out.get();
        out.handle_written(bytes);
        self.out.set(out);
    }
}
