//! A connection on its way to the shard that owns its session.
//!
//! It moves whole and between requests, when no operation of it is in flight: its descriptor, the
//! bytes already read, and the byte count that its acknowledgements are measured by.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::stream::ConnOut;

use super::{Process, Shard};

/// What another thread wants to know of a shard, or to have done by it.
pub type Question = Box<dyn FnOnce(&Rc<Shard>) + Send>;

/// What is put into a shard's mailbox.
pub enum Letter {
    /// A connection moves here. Boxed: most of a mailbox is empty most of the time.
    Connection(Box<Arrived>),
    /// The ring of the producer with this key has something.
    Producer(u64),
    /// Say in the log where every stream stands.
    Dump,
    /// A question from another thread, which finds its own way back with the answer.
    Ask(Question),
    /// The process ends at once: children that ignore the end of their input must not be left.
    Kill,
    /// The drain begins; calls are served until the deadline.
    Drain(Instant),
}

/// A connection that was just accepted, or that moves here.
pub struct Arrived {
    /// The socket. A message lost on the way closes it.
    pub socket: OwnedFd,
    /// Bytes read and not yet used: at least the head of the request that belongs here.
    pub input: Vec<u8>,
    /// Bytes written and acknowledged since accept.
    pub out: ConnOut,
    /// Its place among the process's connections.
    pub permit: Permit,
}

/// One of the process's connections; gives its place back when dropped.
pub struct Permit(Arc<Process>);

impl Permit {
    /// A place for one more connection, if there is one.
    pub fn new(process: &Arc<Process>) -> Option<Self> {
        let open = process.connections.fetch_add(1, Ordering::Relaxed);
        if open >= process.config.limits.connections {
            process.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self(Arc::clone(process)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
