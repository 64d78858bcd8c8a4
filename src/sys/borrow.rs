//! Borrowed descriptors of monoio's types, which implement only `AsRawFd`.

use std::os::fd::{AsRawFd, BorrowedFd};

mod sealed {
    pub trait Sealed {}
    impl Sealed for monoio::net::TcpStream {}
    impl Sealed for monoio::net::TcpListener {}
    impl Sealed for monoio::net::UnixStream {}
    impl Sealed for monoio::fs::File {}
}

/// A monoio type that owns an open descriptor for as long as it lives.
///
/// Sealed: an `AsRawFd` in general may name a descriptor that is closed (an `i32` is one).
pub trait OwnsFd: AsRawFd + sealed::Sealed {
    /// The descriptor, for the functions of [`super::tcp`] and for
    /// [`BorrowedFd::try_clone_to_owned`], which works while operations are in flight
    /// (`into_raw_fd` panics then).
    fn borrow_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the implementors are listed above; each keeps its descriptor open until it is
        // dropped or consumed, and the borrow ends before that.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl<T: AsRawFd + sealed::Sealed> OwnsFd for T {}
