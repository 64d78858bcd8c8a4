//! Descriptors of the process: which ones children inherit, and how many there may be.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::cvt;

/// Sets close-on-exec on every open descriptor from 3 up except `keep` (close_range(2), Linux
/// 5.11).
///
/// For descriptors that this process inherited: called once, at start. A child must not hold a
/// socket of ours open.
pub fn cloexec_inherited(keep: &[RawFd]) -> io::Result<()> {
    let mut kept: Vec<libc::c_uint> = keep
        .iter()
        .filter_map(|fd| libc::c_uint::try_from(*fd).ok())
        .filter(|fd| *fd > 2)
        .collect();
    kept.sort_unstable();
    let mut first: libc::c_uint = 3;
    for fd in kept {
        if first < fd {
            cloexec_range(first, fd - 1)?;
        }
        first = fd.saturating_add(1);
    }
    cloexec_range(first, libc::c_uint::MAX)
}

fn cloexec_range(first: libc::c_uint, last: libc::c_uint) -> io::Result<()> {
    // SAFETY: with CLOSE_RANGE_CLOEXEC nothing is closed and no memory is touched.
    cvt(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}

/// Raises the soft limit of open descriptors to the hard limit (`RLIMIT_NOFILE`) and returns it.
pub fn raise_nofile_limit() -> io::Result<u64> {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: the pointer is to a live local of the right type.
    cvt(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) })?;
    // SAFETY: it was zeroed and then written by the kernel; integers have no invalid value.
    let mut limit = unsafe { limit.assume_init() };
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the pointer is to a live local of the right type, which the kernel only reads.
        cvt(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    }
    Ok(limit.rlim_cur)
}

/// Whether a descriptor is closed in children (`FD_CLOEXEC`).
pub fn is_cloexec(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: F_GETFD takes no pointer.
    cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }).map(|f| f & libc::FD_CLOEXEC != 0)
}

/// Whether a descriptor refuses to wait (`O_NONBLOCK`); those that io_uring waits on do wait.
pub fn is_nonblocking(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: F_GETFL takes no pointer.
    cvt(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) }).map(|f| f & libc::O_NONBLOCK != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;

    /// A descriptor that children would inherit.
    fn inherited() -> OwnedFd {
        let file = File::open("/dev/null").expect("opened");
        // SAFETY: F_DUPFD takes no pointer.
        let fd = cvt(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 3) }).expect("a copy");
        // SAFETY: fcntl just made this descriptor, so nobody else owns it.
        unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
    }

    #[test]
    fn only_the_listed_descriptors_stay_inherited() {
        let fds = [inherited(), inherited(), inherited()];
        let keep = fds[1].as_raw_fd();
        cloexec_inherited(&[keep, keep, -1, 0]).expect("set");
        let after = fds.each_ref().map(|fd| is_cloexec(fd.as_fd()).expect("flags"));
        assert_eq!(after, [true, false, true]);
    }

    #[test]
    fn the_soft_limit_reaches_the_hard_one() {
        let limit = raise_nofile_limit().expect("raised");
        assert!(limit > 0);
        assert_eq!(raise_nofile_limit().expect("raised before"), limit);
    }
}
