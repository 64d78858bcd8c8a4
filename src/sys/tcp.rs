//! Options and counters of one TCP socket (tcp(7), socket(7)).

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::{cvt, cvt_retry};

pub use std::net::Shutdown as How;

/// Bytes that the peer's TCP has acknowledged since the connection began (`tcpi_bytes_acked`).
///
/// It stalls at the peer's receive window, counts a FIN as one byte, and while a write is in flight
/// it may be ahead of what the caller knows to be written: clamp it. Acknowledged is not consumed.
/// Costs about half a microsecond.
pub fn bytes_acked(socket: impl AsFd) -> io::Result<u64> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: both pointers are to live locals, and `length` is the size of the first.
    cvt(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    let needed = mem::offset_of!(libc::tcp_info, tcpi_bytes_acked) + size_of::<u64>();
    if (length as usize) < needed {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel's TCP_INFO does not count acknowledged bytes (Linux 4.1 and later do)",
        ));
    }
    // SAFETY: the struct was zeroed and the kernel wrote a prefix of it; integers have no invalid
    // value.
    Ok(unsafe { info.assume_init() }.tcpi_bytes_acked)
}

/// Sends small segments at once (`TCP_NODELAY`): events are batched by us, not by the kernel.
pub fn set_nodelay(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1_i32)
}

/// Lets a writer wait while more than `bytes` lie unsent in the kernel (`TCP_NOTSENT_LOWAT`), so
/// that a slow reader shows in our own ring. io_uring writes obey it.
pub fn set_notsent_lowat(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Ends the connection when sent data stays unacknowledged for `limit` (`TCP_USER_TIMEOUT`,
/// RFC 5482). It also ends a live peer whose window stays closed that long. Zero means the
/// system's default; the resolution is 1 ms.
pub fn set_user_timeout(socket: impl AsFd, limit: Duration) -> io::Result<()> {
    let millis = u32::try_from(limit.as_millis()).unwrap_or(i32::MAX as u32).min(i32::MAX as u32);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis)
}

/// Ends one or both directions at once, whoever else holds the socket (shutdown(2)).
///
/// A pending read ends with 0 bytes, a blocked write with EPIPE, and both give their buffers back:
/// this is how a connection's tasks are stopped. A peer that is gone already is no error.
pub fn shutdown(socket: impl AsFd, how: How) -> io::Result<()> {
    let how = match how {
        How::Read => libc::SHUT_RD,
        How::Write => libc::SHUT_WR,
        How::Both => libc::SHUT_RDWR,
    };
    // SAFETY: shutdown takes no pointers; the descriptor is open while it is borrowed.
    match cvt(unsafe { libc::shutdown(socket.as_fd().as_raw_fd(), how) }) {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        done => done.map(drop),
    }
}

/// Makes the next close throw away what is queued and send RST (`SO_LINGER` with 0 seconds), so
/// that nothing is delivered after the acknowledged count was read for the last time.
pub fn linger_zero(socket: impl AsFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, linger)
}

/// What a look at the receive queue shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// The peer will send no more.
    Eof,
    /// At least one byte is waiting.
    Data,
    /// Nothing is waiting now.
    Empty,
}

/// Looks at the receive queue without taking anything or waiting (`MSG_PEEK | MSG_DONTWAIT`).
///
/// A reset connection is the error that a read would give.
pub fn peek_eof(socket: impl AsFd) -> io::Result<Peek> {
    let socket = socket.as_fd();
    let mut byte = 0_u8;
    let peeked = cvt_retry(|| {
        // SAFETY: the pointer is to a live local of one byte.
        unsafe {
            libc::recv(
                socket.as_raw_fd(),
                (&raw mut byte).cast(),
                1,
                libc::MSG_PEEK | libc::MSG_DONTWAIT,
            ) as libc::c_long
        }
    });
    match peeked {
        Ok(0) => Ok(Peek::Eof),
        Ok(_) => Ok(Peek::Data),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Peek::Empty),
        Err(error) => Err(error),
    }
}

/// setsockopt(2) for a value that the kernel reads as plain bytes.
pub(super) fn set_option<T: Copy>(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the pointer is to a live local of exactly the given size, which the kernel only
    // reads.
    cvt(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("there");
        (client, listener.accept().expect("accepted").0)
    }

    /// Polls until `done` or two seconds have passed: the kernel acknowledges when it likes.
    fn eventually(mut done: impl FnMut() -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            if done() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    #[test]
    fn acknowledged_bytes_start_at_zero_and_count_what_arrived() {
        let (mut client, mut server) = pair();
        assert_eq!(bytes_acked(&server).expect("a count"), 0);
        server.write_all(&[7; 1000]).expect("written");
        let mut read = [0; 1000];
        client.read_exact(&mut read).expect("read");
        assert!(eventually(|| bytes_acked(&server).expect("a count") == 1000));
        assert!(bytes_acked(std::os::unix::net::UnixStream::pair().expect("a pair").0).is_err());
    }

    #[test]
    fn a_look_tells_nothing_data_and_the_end_apart() {
        let (mut client, mut server) = pair();
        assert_eq!(peek_eof(&server).expect("a look"), Peek::Empty);
        client.write_all(b"x").expect("written");
        assert!(eventually(|| peek_eof(&server).expect("a look") == Peek::Data));
        let mut byte = [0; 2];
        assert_eq!(server.read(&mut byte).expect("the byte is still there"), 1);
        shutdown(&client, How::Write).expect("shut down");
        assert!(eventually(|| peek_eof(&server).expect("a look") == Peek::Eof));
    }

    #[test]
    fn a_close_after_linger_zero_resets_the_peer() {
        let (client, server) = pair();
        linger_zero(&server).expect("set");
        drop(server);
        assert!(eventually(|| matches!(
            peek_eof(&client),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset
        )));
        shutdown(&client, How::Both).expect("a peer that is gone is no error");
    }

    #[test]
    fn the_options_are_accepted_at_their_edges() {
        let (_client, server) = pair();
        set_nodelay(&server).expect("set");
        assert!(server.nodelay().expect("a flag"));
        set_notsent_lowat(&server, crate::limits::NOTSENT_LOWAT_BYTES).expect("set");
        for time in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
            set_user_timeout(&server, time).expect("set");
        }
    }
}
