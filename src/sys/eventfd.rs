//! eventfd(2): the bell that wakes a shard that waits in its ring.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use super::cvt;

/// A 64-bit counter behind a descriptor: a write adds, a read takes all and waits for non-zero.
///
/// In blocking mode, because io_uring waits in the kernel. Reading is done by the owner through
/// monoio over a duplicate ([`EventFd::try_clone_fd`]).
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// A counter at 0, close-on-exec.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers.
        let fd = cvt(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
        // SAFETY: eventfd just made this descriptor, so nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// Adds one, which wakes a reader; callable from any thread. It does not wait: the counter
    /// would have to reach 2^64 - 1 first.
    pub fn signal(&self) -> io::Result<()> {
        (&self.0).write_all(&1_u64.to_ne_bytes())
    }

    /// A second descriptor of the same counter, close-on-exec.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::sys::fds;

    #[test]
    fn signals_add_up_and_one_read_takes_them_all() {
        let bell = EventFd::new().expect("made");
        assert!(fds::is_cloexec(bell.as_fd()).expect("flags"));
        let mut reader = File::from(bell.try_clone_fd().expect("cloned"));
        bell.signal().expect("signalled");
        bell.signal().expect("signalled");
        let mut count = [0; 8];
        reader.read_exact(&mut count).expect("read");
        assert_eq!(u64::from_ne_bytes(count), 2);
    }
}
