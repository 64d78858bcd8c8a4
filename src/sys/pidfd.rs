//! Child processes: a descriptor per process, signals to a process and to its group, reaping.
//!
//! Order that the caller must keep: signal, and only then reap. A number is free for reuse once
//! its process is reaped, and a signal to the number would reach a stranger.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::{cvt, cvt_retry};

/// A descriptor of the process, close-on-exec, readable once it has exited (pidfd_open(2), Linux
/// 5.3). Call it right after spawn, before anybody reaps. ESRCH: there is no such process.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes no pointers.
    let fd = cvt(unsafe { libc::syscall(libc::SYS_pidfd_open, number(pid)?, 0) })?;
    let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: pidfd_open just made this descriptor, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to exactly the process of the descriptor; `Ok(false)` if it is gone.
pub fn send_signal(process: BorrowedFd<'_>, signal: i32) -> io::Result<bool> {
    // SAFETY: the null pointer means "as kill(2) would fill it in", by the call's contract.
    delivered(cvt(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    }))
}

/// Sends a signal to every process of a group; `Ok(false)` if none is left.
///
/// Groups 0 and 1 are refused: kill(2) would take them as "my own group" and "everything".
pub fn kill_group(pgid: u32, signal: i32) -> io::Result<bool> {
    let group = number(pgid)?;
    if group < 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the group of a child"));
    }
    // SAFETY: kill takes no pointers.
    delivered(cvt(unsafe { libc::kill(-group, signal) }))
}

/// Collects a child that has exited; `None` while it runs. Never waits. ECHILD: not a child of
/// ours, or collected before.
pub fn try_reap(pid: u32) -> io::Result<Option<ExitStatus>> {
    let pid = number(pid)?;
    if pid < 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a child"));
    }
    let mut status = 0;
    // SAFETY: the pointer is to a live local.
    let reaped = cvt_retry(|| unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) })?;
    Ok((reaped == pid).then(|| ExitStatus::from_raw(status)))
}

fn number(pid: u32) -> io::Result<libc::pid_t> {
    libc::pid_t::try_from(pid)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not a process number"))
}

fn delivered<R>(sent: io::Result<R>) -> io::Result<bool> {
    match sent {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sys::fds;

    /// A shell in its own group whose child of its own holds on to stdout.
    fn family() -> std::process::Child {
        Command::new("sh")
            .args(["-c", "sleep 60 & echo ready; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("spawned")
    }

    fn reap_within(pid: u32, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = try_reap(pid).expect("a child of ours") {
                return status;
            }
            assert!(Instant::now() < end, "child {pid} still runs");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "reaped by the function under test")]
    fn a_group_dies_with_all_its_members_and_is_reaped_once() {
        let mut child = family();
        let pid = child.id();
        let mut stdout = child.stdout.take().expect("piped");
        let mut ready = [0; 6];
        io::Read::read_exact(&mut stdout, &mut ready).expect("it runs");
        let process = pidfd_open(pid).expect("open");
        assert!(fds::is_cloexec(process.as_fd()).expect("flags"));
        assert!(try_reap(pid).expect("a child of ours").is_none());

        assert!(kill_group(pid, libc::SIGKILL).expect("sent"));
        // The end of the pipe shows that the grandchild, which held it open, is gone too.
        io::Read::read_to_end(&mut stdout, &mut Vec::new()).expect("the end");
        let status = reap_within(pid, Duration::from_secs(2));
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        assert!(!send_signal(process.as_fd(), libc::SIGTERM).expect("gone is no error"));
        let again = try_reap(pid).expect_err("reaped before");
        assert_eq!(again.raw_os_error(), Some(libc::ECHILD));
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "reaped by the function under test")]
    fn a_signal_reaches_the_process_of_the_descriptor() {
        let child = Command::new("sleep").arg("60").spawn().expect("spawned");
        let process = pidfd_open(child.id()).expect("open");
        assert!(send_signal(process.as_fd(), libc::SIGTERM).expect("sent"));
        let status = reap_within(child.id(), Duration::from_secs(2));
        assert_eq!(status.signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn numbers_that_mean_everything_are_refused() {
        for pid in [0, 1, u32::MAX] {
            assert!(kill_group(pid, libc::SIGCONT).is_err());
        }
        assert!(try_reap(0).is_err());
        assert!(try_reap(u32::MAX).is_err());
        assert!(pidfd_open(0).is_err());
    }
}
