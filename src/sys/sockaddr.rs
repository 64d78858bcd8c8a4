//! Socket addresses between std's and the kernel's form.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The kernel's form and its length, as `bind` takes it.
pub(super) fn encode(addr: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: sockaddr_storage is plain data for which all zeroes is a value.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let length = match addr {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is larger than sockaddr_in and at least as aligned.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
            mem::size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: sockaddr_storage is larger than sockaddr_in6 and at least as aligned.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
            mem::size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

/// std's form of what the kernel wrote; an error for a family other than IPv4 and IPv6.
pub(super) fn decode(
    storage: &libc::sockaddr_storage,
    length: libc::socklen_t,
) -> io::Result<SocketAddr> {
    let length = length as usize;
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET if length >= mem::size_of::<libc::sockaddr_in>() => {
            // SAFETY: the family says that the kernel wrote a sockaddr_in, and the storage is
            // large and aligned enough for one.
            let raw = unsafe { *std::ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 if length >= mem::size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above, for sockaddr_in6.
            let raw = unsafe { *std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Ok(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        family => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("socket address of family {family}, {length} bytes"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_the_way_there_and_back() {
        for text in ["127.0.0.1:8383", "0.0.0.0:0", "[::1]:65535", "[fe80::1%3]:80"] {
            let addr: SocketAddr = text.parse().expect("an address");
            let (storage, length) = encode(addr);
            assert_eq!(decode(&storage, length).expect(text), addr);
        }
    }

    #[test]
    fn a_foreign_family_or_a_short_address_is_an_error() {
        let (mut storage, length) = encode("127.0.0.1:1".parse().expect("an address"));
        assert!(decode(&storage, length - 1).is_err());
        storage.ss_family = libc::AF_UNIX as libc::sa_family_t;
        assert!(decode(&storage, length).is_err());
    }
}
