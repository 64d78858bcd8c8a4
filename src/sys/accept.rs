//! `accept4(2)`: monoio's own accept sets no close-on-exec and leaks the socket when its future is
//! dropped, so the listener is polled with `readable()` and emptied here.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{cvt, sockaddr};

/// Takes one connection off a non-blocking listener; `None` when no more is waiting.
///
/// The socket is close-on-exec and in blocking mode, which is what io_uring wants: it waits in the
/// kernel. A connection that its peer reset while it waited is passed over. Errors such as EMFILE
/// and ENFILE leave the connection in the backlog: the caller must pause before it tries again.
pub fn accept4(listener: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    loop {
        // SAFETY: sockaddr_storage is plain data for which all zeroes is a value.
        let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
        let mut length = mem::size_of_val(&storage) as libc::socklen_t;
        // SAFETY: both pointers are to live locals, and `length` is the size of the first.
        let accepted = cvt(unsafe {
            libc::accept4(
                listener.as_raw_fd(),
                (&raw mut storage).cast(),
                &raw mut length,
                libc::SOCK_CLOEXEC,
            )
        });
        let error = match accepted {
            Ok(fd) => {
                // SAFETY: accept4 just made this descriptor, so nobody else owns it.
                let socket = unsafe { OwnedFd::from_raw_fd(fd) };
                return Ok(Some((socket, sockaddr::decode(&storage, length)?)));
            }
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EAGAIN) => return Ok(None),
            Some(libc::EINTR | libc::ECONNABORTED) => {}
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::fd::AsFd;

    use super::*;
    use crate::sys::{fds, listen};

    #[test]
    fn empties_the_backlog_with_close_on_exec_sockets_in_blocking_mode() {
        let listener =
            listen::listen("127.0.0.1:0".parse().expect("an address"), 16).expect("bound");
        let addr = listen::local_addr(listener.as_fd()).expect("an address");
        assert!(accept4(listener.as_fd()).expect("nothing waits").is_none());

        let clients = [0; 2].map(|_| TcpStream::connect(addr).expect("connected"));
        for client in &clients {
            let (socket, peer) =
                accept4(listener.as_fd()).expect("accepted").expect("one is waiting");
            assert_eq!(peer, client.local_addr().expect("an address"));
            assert!(fds::is_cloexec(socket.as_fd()).expect("flags"));
            assert!(!fds::is_nonblocking(socket.as_fd()).expect("flags"));
        }
        assert!(accept4(listener.as_fd()).expect("nothing waits").is_none());
    }

    #[test]
    fn what_is_no_listener_is_an_error() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert!(accept4(a.as_fd()).is_err());
    }
}
