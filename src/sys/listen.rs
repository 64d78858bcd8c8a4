//! Listening sockets, one per shard on the same address (`SO_REUSEPORT`, socket(7)), or the one
//! that a service manager holds and hands over ([`inherited`]).
//!
//! `SO_REUSEPORT` would let this process silently join the listener of an older process of the
//! same user and take a share of its connections: [`probe_free`] is called once before the first
//! [`listen`] on an address that a user gave.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{cvt, sockaddr, tcp};

/// A listening socket: non-blocking, close-on-exec, `SO_REUSEADDR` and `SO_REUSEPORT`.
///
/// `backlog` is in connections; the kernel caps it at `net.core.somaxconn`. With port 0 the kernel
/// chooses: ask [`local_addr`] and give that address to the other shards.
pub fn listen(addr: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let socket = bound(addr, true)?;
    // SAFETY: listen takes no pointers; the descriptor is open.
    cvt(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
    Ok(socket)
}

/// Whether `addr` can be bound by this process alone; the socket is closed again at once.
///
/// The error is a sentence for the operator: the address is in use, not ours, or not permitted.
/// Port 0 is always free.
pub fn probe_free(addr: SocketAddr) -> io::Result<()> {
    bound(addr, false).map(drop).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another program listens there already".to_owned(),
            io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
            io::ErrorKind::PermissionDenied => {
                "no permission (ports below 1024 need CAP_NET_BIND_SERVICE)".to_owned()
            }
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("cannot listen on {addr}: {why}"))
    })
}

/// The listening TCP socket that a service manager handed over (sd_listen_fds(3): `LISTEN_FDS` and
/// `LISTEN_PID`), non-blocking and close-on-exec; none where nothing was handed to this process.
///
/// It is a copy: the socket that was handed over stays open with the process, as it does with the
/// service manager, so whoever connects while nobody accepts waits in its backlog.
///
/// The error is a sentence for the operator: not one socket, or not one that TCP connections are
/// accepted from.
pub fn inherited() -> io::Result<Option<OwnedFd>> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let mut handed = match sd_notify::listen_fds() {
        Ok(handed) => handed,
        Err(error) => return refuse(format!("LISTEN_FDS names no open socket: {error}")),
    };
    let Some(first) = handed.next() else { return Ok(None) };
    if handed.len() > 0 {
        let count = handed.len() + 1;
        return refuse(format!("LISTEN_FDS hands over {count} sockets, and one is served"));
    }
    // SAFETY: its flags were just set, so it is open, and nothing in this program closes it.
    let socket = unsafe { BorrowedFd::borrow_raw(first) }.try_clone_to_owned()?;
    let listens = is_listening(socket.as_fd()).unwrap_or(false);
    if !listens || local_addr(socket.as_fd()).is_err() {
        return refuse("what LISTEN_FDS hands over is no listening TCP socket".to_owned());
    }
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(Some(listener.into()))
}

/// Whether connections can be accepted from a descriptor (`SO_ACCEPTCONN`, socket(7)).
fn is_listening(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: both pointers are to live locals, and `length` is the size of the first.
    cvt(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value != 0)
}

/// The address that a socket is bound to (getsockname(2)).
pub fn local_addr(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    // SAFETY: sockaddr_storage is plain data for which all zeroes is a value.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&storage) as libc::socklen_t;
    // SAFETY: both pointers are to live locals, and `length` is the size of the first.
    cvt(unsafe {
        libc::getsockname(socket.as_raw_fd(), (&raw mut storage).cast(), &raw mut length)
    })?;
    sockaddr::decode(&storage, length)
}

/// A bound stream socket. `SO_REUSEADDR` is always set: without it a restart would have to wait
/// for the old process' connections to leave TIME_WAIT.
fn bound(addr: SocketAddr, share_port: bool) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers.
    let fd = cvt(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: socket just made this descriptor, so nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    tcp::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1_i32)?;
    if share_port {
        tcp::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1_i32)?;
    }
    let (storage, length) = sockaddr::encode(addr);
    // SAFETY: the pointer is to a live local that holds `length` bytes of an address.
    cvt(unsafe { libc::bind(socket.as_raw_fd(), (&raw const storage).cast(), length) })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fds;

    fn any_port() -> SocketAddr {
        "127.0.0.1:0".parse().expect("an address")
    }

    #[test]
    fn a_second_shard_binds_the_port_that_the_first_was_given() {
        let first = listen(any_port(), 16).expect("bound");
        let addr = local_addr(first.as_fd()).expect("an address");
        assert_ne!(addr.port(), 0);
        let second = listen(addr, 16).expect("bound again");
        assert_eq!(local_addr(second.as_fd()).expect("an address"), addr);
        assert!(fds::is_cloexec(second.as_fd()).expect("flags"));
        assert!(fds::is_nonblocking(second.as_fd()).expect("flags"));
    }

    #[test]
    fn a_foreign_listener_is_noticed_even_where_it_shares_its_port() {
        let foreign = listen(any_port(), 16).expect("bound");
        let addr = local_addr(foreign.as_fd()).expect("an address");
        let error = probe_free(addr).expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("another program"), "{error}");

        drop(foreign);
        probe_free(addr).expect("free again");
    }

    #[test]
    fn a_listener_is_told_from_a_connection_and_from_a_file() {
        let listener = listen(any_port(), 16).expect("bound");
        assert!(is_listening(listener.as_fd()).expect("a socket"));
        let addr = local_addr(listener.as_fd()).expect("an address");
        let connection = std::net::TcpStream::connect(addr).expect("connected");
        assert!(!is_listening(connection.as_fd()).expect("a socket"));
        let file = std::fs::File::open("/dev/null").expect("opened");
        assert!(is_listening(file.as_fd()).is_err());
    }

    #[test]
    fn an_address_of_another_machine_is_told_apart() {
        let error = probe_free("192.0.2.1:80".parse().expect("an address")).expect_err("not ours");
        assert!(error.to_string().contains("no such address"), "{error}");
    }
}
