//! A socket that another task of the same shard may shut down or ask about.
//!
//! A connection's task owns its socket and may be blocked in a write. Whoever takes its stream
//! over has to reach the descriptor all the same; a second descriptor for it would double the
//! open files and keep a closed socket alive.

use std::cell::Cell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use monoio::net::UnixStream;

/// Reaches a [`Leashed`] socket for as long as it is open.
#[derive(Debug)]
pub struct Leash(Cell<Option<RawFd>>);

impl Leash {
    /// Calls `with` with the descriptor; none once the socket is closed or has moved away.
    pub fn reach<R>(&self, with: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        // SAFETY: the descriptor is set only while the `Leashed` that owns it lives: every way out
        // of that type clears it first. Both stay on one thread (`Rc`, `Cell`), and `with` cannot
        // keep the borrow.
        self.0.get().map(|fd| with(unsafe { BorrowedFd::borrow_raw(fd) }))
    }
}

/// A connection's socket, with the leash that reaches it.
#[derive(Debug)]
pub struct Leashed {
    /// Always there until the value is consumed or dropped. The runtime's type for a socket of
    /// either family is a descriptor; that of TCP has room for its addresses besides, 72 bytes of
    /// every connection that nobody asks for.
    stream: Option<UnixStream>,
    leash: Rc<Leash>,
}

impl Leashed {
    /// Takes a socket of this shard. Errors: it is none that monoio can use.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let stream = UnixStream::from_std(std::os::unix::net::UnixStream::from(socket))?;
        let leash = Rc::new(Leash(Cell::new(Some(stream.as_raw_fd()))));
        Ok(Self { stream: Some(stream), leash })
    }

    /// The leash.
    pub fn leash(&self) -> Rc<Leash> {
        Rc::clone(&self.leash)
    }

    /// Takes the descriptor out, to move it or to close it at once: dropping the socket instead
    /// only queues its close.
    ///
    /// # Panics
    /// While an operation is in flight (monoio's rule).
    pub fn into_fd(mut self) -> OwnedFd {
        self.leash.0.set(None);
        let stream = self.stream.take().expect(OPEN);
        // SAFETY: `into_raw_fd` gives up the only owner of an open descriptor.
        unsafe { OwnedFd::from_raw_fd(stream.into_raw_fd()) }
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        // Before the field is dropped, which closes the descriptor.
        self.leash.0.set(None);
    }
}

impl Deref for Leashed {
    type Target = UnixStream;

    fn deref(&self) -> &UnixStream {
        self.stream.as_ref().expect(OPEN)
    }
}

impl DerefMut for Leashed {
    fn deref_mut(&mut self) -> &mut UnixStream {
        self.stream.as_mut().expect(OPEN)
    }
}

const OPEN: &str = "the socket is there until it is taken out or dropped";
