//! The only folder that may hold `unsafe`: what std and monoio do not offer of Linux.
//!
//! Invariants: every descriptor made here is close-on-exec; every function is one system call, or
//! a loop over it until it is no longer interrupted, or in [`memory`] a call of the allocator, and
//! keeps no state; errors are the kernel's, as [`std::io::Error`], except where a human is told
//! what to do about them ([`uring`], [`listen::probe_free`], [`listen::inherited`]).

use std::io;

pub mod accept;
pub mod affinity;
pub mod atomics;
pub mod borrow;
pub mod eventfd;
pub mod fds;
pub mod file;
pub mod leash;
pub mod listen;
pub mod memory;
pub mod mpsc;
pub mod pidfd;
pub mod pipe;
pub mod random;
pub mod service;
pub mod signal;
mod sockaddr;
pub mod tcp;
pub mod uring;

/// A return value of libc, -1 being "see errno".
trait Return: Copy {
    fn failed(self) -> bool;
}

impl Return for libc::c_int {
    fn failed(self) -> bool {
        self == -1
    }
}

impl Return for libc::c_long {
    fn failed(self) -> bool {
        self == -1
    }
}

/// Turns the C convention into a `Result`.
fn cvt<R: Return>(returned: R) -> io::Result<R> {
    if returned.failed() { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// The same, again and again while the call is interrupted by a signal.
fn cvt_retry<R: Return>(mut call: impl FnMut() -> R) -> io::Result<R> {
    loop {
        match cvt(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
