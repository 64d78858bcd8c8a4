//! Signals as data: blocked in every thread, read from a signalfd(2) by one task.
//!
//! A mask is inherited by threads and by children. So: [`block`] in `main` before any thread is
//! made, [`unblock_all`] in the thread that spawns children. The kernel hands a signal to a thread
//! that does not block it, so the spawning thread would take it and end the process: [`receive`]
//! makes it pass signals on to the thread that reads them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cvt;

/// Bytes of one record that a read of a [`SignalFd`] returns (`struct signalfd_siginfo`).
pub const RECORD_BYTES: usize = size_of::<libc::signalfd_siginfo>();

/// Blocks `signals` for the calling thread and all threads that it makes from now on.
pub fn block(signals: &[i32]) -> io::Result<()> {
    mask(libc::SIG_BLOCK, &set(signals)?)
}

/// Sends this process a signal, as kill(2) by somebody else would.
pub fn send_to_self(signal: i32) -> io::Result<()> {
    // SAFETY: neither takes a pointer.
    cvt(unsafe { libc::kill(libc::getpid(), signal) }).map(drop)
}

/// Gives the calling thread an empty mask, for the children that it spawns.
pub fn unblock_all() -> io::Result<()> {
    mask(libc::SIG_SETMASK, &set(&[])?)
}

/// The thread that [`receive`]s, as its `pthread_t`.
static RECEIVER: AtomicUsize = AtomicUsize::new(0);

/// Directs `signals` to the calling thread whichever thread takes them. The caller blocks them,
/// reads them from a [`SignalFd`], and never ends. A child starts with the default actions again.
pub fn receive(signals: &[i32]) -> io::Result<()> {
    // SAFETY: asks for the caller's own number.
    RECEIVER.store(unsafe { libc::pthread_self() } as usize, Ordering::Release);
    let handler: extern "C" fn(libc::c_int) = pass_on;
    // SAFETY: all zeros is a valid sigaction: the default action, an empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    for &signal in signals {
        // SAFETY: the pointer is to a live sigaction, whose handler does only what a handler may.
        cvt(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })?;
    }
    Ok(())
}

extern "C" fn pass_on(signal: libc::c_int) {
    let receiver = RECEIVER.load(Ordering::Acquire) as libc::pthread_t;
    // SAFETY: async-signal-safe (signal-safety(7)), and the receiving thread never ends.
    unsafe { libc::pthread_kill(receiver, signal) };
}

/// A descriptor from which pending signals are read, [`RECORD_BYTES`] each. They must be blocked.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// For `signals`; close-on-exec and in blocking mode, because io_uring waits in the kernel.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let set = set(signals)?;
        // SAFETY: the pointer is to a live, initialised set, which the kernel only reads.
        let fd = cvt(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) })?;
        // SAFETY: signalfd just made this descriptor, so nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<SignalFd> for OwnedFd {
    fn from(signals: SignalFd) -> Self {
        signals.0
    }
}

/// The signal number of one record (its first field, `ssi_signo`); `None` if it is cut short.
pub fn decode(record: &[u8]) -> Option<i32> {
    if record.len() < RECORD_BYTES {
        return None;
    }
    let number = u32::from_ne_bytes(*record.first_chunk::<4>()?);
    i32::try_from(number).ok()
}

fn set(signals: &[i32]) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the pointer is to a live local of the right type.
    cvt(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    for signal in signals {
        // SAFETY: the set was initialised by sigemptyset.
        cvt(unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) })?;
    }
    // SAFETY: initialised by sigemptyset.
    Ok(unsafe { set.assume_init() })
}

fn mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is initialised and only read; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_blocked_signal_is_read_as_a_record() {
        block(&[libc::SIGUSR2]).expect("blocked");
        let signals = SignalFd::new(&[libc::SIGUSR2]).expect("made");
        // SAFETY: raises a signal in this thread alone, where it is blocked.
        assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) }, 0);
        let mut record = [0; RECORD_BYTES];
        File::from(OwnedFd::from(signals)).read_exact(&mut record).expect("read");
        assert_eq!(decode(&record), Some(libc::SIGUSR2));
        unblock_all().expect("unblocked");
    }

    /// Story: the spawner's thread does not block SIGTERM, took it, and the process was gone
    /// without a drain.
    #[test]
    fn a_signal_that_an_unblocked_thread_takes_is_read_by_the_receiver() {
        let (ready, started) = std::sync::mpsc::channel();
        let (read, records) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            block(&[libc::SIGUSR1]).expect("blocked");
            receive(&[libc::SIGUSR1]).expect("received");
            let mut file = File::from(OwnedFd::from(SignalFd::new(&[libc::SIGUSR1]).expect("fd")));
            ready.send(()).expect("the test waits");
            let mut record = [0; RECORD_BYTES];
            while file.read_exact(&mut record).is_ok() {
                // The test may have ended; this thread may not.
                let _ = read.send(decode(&record));
            }
        });
        started.recv().expect("started");
        // SAFETY: raises a signal in this thread, which has a handler for it.
        assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) }, 0);
        let record = records.recv_timeout(std::time::Duration::from_secs(10));
        assert_eq!(record, Ok(Some(libc::SIGUSR1)));
    }

    #[test]
    fn children_of_a_thread_with_an_empty_mask_can_be_stopped() {
        std::thread::spawn(|| {
            block(&[libc::SIGTERM, libc::SIGUSR1]).expect("blocked");
            assert_eq!(blocked_of_a_child() & (1 << (libc::SIGTERM - 1)), 1 << 14);
            unblock_all().expect("unblocked");
            assert_eq!(blocked_of_a_child() & (1 << (libc::SIGTERM - 1)), 0);
        })
        .join()
        .expect("both masks were inherited");
    }

    /// The mask that a child reports of itself, one bit a signal.
    fn blocked_of_a_child() -> u64 {
        let output = std::process::Command::new("grep")
            .args(["SigBlk", "/proc/self/status"])
            .output()
            .expect("ran");
        let text = String::from_utf8(output.stdout).expect("text");
        let mask = text.split_whitespace().nth(1).expect("a mask");
        u64::from_str_radix(mask, 16).expect("hexadecimal")
    }

    #[test]
    fn wrong_numbers_and_short_records_are_refused() {
        assert!(block(&[9999]).is_err());
        assert_eq!(decode(&[0; RECORD_BYTES - 1]), None);
    }
}
