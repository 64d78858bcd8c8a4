//! Pipes to and from a child, read and written at once, after a poll has said that it will do.
//!
//! io_uring could wait in the read itself, but neither way that monoio offers can be taken back: a
//! read or write of a file cannot be cancelled, and a pipe is no socket. A descendant of the child
//! that holds the other end would then keep the buffer, the task and the descriptor for ever.
//! A poll can be dropped at any time; the call after it only copies.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{cvt, cvt_retry};

/// Lets reads and writes of this end return [`io::ErrorKind::WouldBlock`] instead of waiting
/// (`O_NONBLOCK`). The flag belongs to our end alone; the child's end keeps its mode.
pub fn set_nonblocking(end: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: F_GETFL takes no pointer.
    let flags = cvt(unsafe { libc::fcntl(end.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: F_SETFL takes no pointer.
    cvt(unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// Reads what is there, at most `buffer`; 0 is the end: every writer has closed its end.
pub fn read(end: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let length = buffer.len();
    let at = buffer.as_mut_ptr();
    cvt_retry(|| {
        // SAFETY: `at` points to `length` bytes that are borrowed for writing during the call.
        (unsafe { libc::read(end.as_raw_fd(), at.cast(), length) }) as libc::c_long
    })
    .map(bytes)
}

/// Writes as much of `slices`, in order, as the pipe takes; at most 1024 slices (`IOV_MAX`).
/// EPIPE: every reader has closed its end.
pub fn write_vectored(end: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let count = libc::c_int::try_from(slices.len()).map_err(io::Error::other)?;
    cvt_retry(|| {
        // SAFETY: IoSlice is iovec by its documented layout; the slices and the bytes that they
        // name are borrowed during the call, and `count` is their number.
        (unsafe { libc::writev(end.as_raw_fd(), slices.as_ptr().cast(), count) }) as libc::c_long
    })
    .map(bytes)
}

/// A count that is not -1 is not negative.
fn bytes(count: libc::c_long) -> usize {
    usize::try_from(count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn neither_end_waits_and_the_ends_of_both_are_told() {
        let (reader, writer) = io::pipe().expect("a pipe");
        set_nonblocking(reader.as_fd()).expect("set");
        set_nonblocking(writer.as_fd()).expect("set");
        let mut buffer = [0; 8];
        let empty = read(reader.as_fd(), &mut buffer).expect_err("nothing is there");
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);

        let slices = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")];
        assert_eq!(write_vectored(writer.as_fd(), &slices).expect("written"), 6);
        assert_eq!(read(reader.as_fd(), &mut buffer).expect("read"), 6);
        assert_eq!(&buffer[..6], b"onetwo");

        let much = vec![0; 1 << 20];
        let taken = write_vectored(writer.as_fd(), &[IoSlice::new(&much)]).expect("a part");
        assert!(0 < taken && taken < much.len());
        let full = write_vectored(writer.as_fd(), &[IoSlice::new(b"x")]).expect_err("full");
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);

        drop(reader);
        let gone = write_vectored(writer.as_fd(), &[IoSlice::new(b"x")]).expect_err("no reader");
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(writer);
        assert_eq!(read(reader.as_fd(), &mut buffer).expect("the end"), 0);
    }
}
