//! The io_uring that each shard runs on: its set-up flags, and the check at start that the system
//! allows one.
//!
//! * `SINGLE_ISSUER | COOP_TASKRUN`: one thread submits, and completions run when it enters the
//!   kernel anyway. Never `DEFER_TASKRUN`: monoio enters without GETEVENTS while tasks are ready,
//!   and deferred completions would wait for an idle moment.
//! * Never `SQPOLL`: monoio panics when the submission queue is full.

use std::error::Error;
use std::fmt;
use std::io;

use io_uring::{IoUring, Probe, opcode};

/// Submission entries of a shard's ring.
pub const ENTRIES: u32 = 4096;
/// Completion entries: a broadcast to many waiting sockets completes at once, and what does not
/// fit goes through the kernel's slow overflow list.
const COMPLETION_ENTRIES: u32 = 16 * 1024;

/// The builder for `monoio::RuntimeBuilder::uring_builder`; use it with [`ENTRIES`], in the thread
/// that will run the ring (`SINGLE_ISSUER`).
pub fn builder() -> io_uring::Builder {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_coop_taskrun().setup_cqsize(COMPLETION_ENTRIES);
    builder
}

/// Why the program cannot run here; its `Display` is for the operator.
#[derive(Debug)]
pub struct Unavailable {
    why: String,
    cause: Option<io::Error>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Error for Unavailable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

/// Sets up one ring as the shards will and asks it for every operation that they use.
pub fn probe() -> Result<(), Unavailable> {
    let ring = builder().build(ENTRIES).map_err(|cause| Unavailable {
        why: explain(&cause, disabled_by_sysctl()),
        cause: Some(cause),
    })?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|cause| Unavailable {
        why: format!("io_uring does not tell what it can do: {cause}"),
        cause: Some(cause),
    })?;
    let missing: Vec<&str> = OPERATIONS
        .iter()
        .filter(|(code, _)| !probe.is_supported(*code))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!("this kernel's io_uring lacks {}: Linux 6.0 is needed", missing.join(", "));
    Err(Unavailable { why, cause: None })
}

/// What monoio submits for us.
const OPERATIONS: [(u8, &str); 11] = [
    (opcode::PollAdd::CODE, "POLL_ADD"),
    (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
    (opcode::Timeout::CODE, "TIMEOUT"),
    (opcode::Connect::CODE, "CONNECT"),
    (opcode::Recv::CODE, "RECV"),
    (opcode::Send::CODE, "SEND"),
    (opcode::Read::CODE, "READ"),
    (opcode::Write::CODE, "WRITE"),
    (opcode::Writev::CODE, "WRITEV"),
    (opcode::Fsync::CODE, "FSYNC"),
    (opcode::Close::CODE, "CLOSE"),
];

/// Whether the administrator switched io_uring off (`kernel.io_uring_disabled`, Linux 6.6: 1 for
/// processes without a capability, 2 for all).
fn disabled_by_sysctl() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .is_ok_and(|text| matches!(text.trim(), "1" | "2"))
}

/// One sentence of cause and one of remedy.
fn explain(error: &io::Error, disabled: bool) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) if disabled => {
            "io_uring is switched off on this machine (sysctl kernel.io_uring_disabled). \
             Set it to 0 and start again."
                .to_owned()
        }
        Some(libc::EPERM) => "io_uring is forbidden here, most likely by the container's seccomp \
             profile. Allow io_uring_setup, io_uring_enter and io_uring_register (Docker: \
             --security-opt seccomp=<profile>)."
            .to_owned(),
        Some(libc::ENOSYS) => "this kernel has no io_uring, or a sandbox hides it. \
             Linux 6.0 or later is needed."
            .to_owned(),
        Some(libc::EINVAL) => "this kernel's io_uring is too old (it refuses SINGLE_ISSUER or \
             COOP_TASKRUN). Linux 6.0 or later is needed."
            .to_owned(),
        Some(libc::ENOMEM) => format!(
            "there is not enough lockable memory for an io_uring of {ENTRIES} entries. \
             Raise the memlock limit (ulimit -l) or the container's memory."
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            "no file descriptor is left for an io_uring. Raise the limit (ulimit -n).".to_owned()
        }
        _ => format!("io_uring cannot be set up: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_with_our_flags_can_be_set_up() {
        if let Err(error) = probe() {
            panic!("{error} ({:?})", error.source());
        }
    }

    #[test]
    fn each_refusal_names_its_remedy() {
        let say = |errno, disabled| explain(&io::Error::from_raw_os_error(errno), disabled);
        assert!(say(libc::EPERM, false).contains("seccomp"));
        assert!(say(libc::EPERM, true).contains("kernel.io_uring_disabled"));
        assert!(say(libc::ENOSYS, false).contains("Linux 6.0"));
        assert!(say(libc::EINVAL, false).contains("too old"));
        assert!(say(libc::ENOMEM, false).contains("memlock"));
        assert!(say(libc::EMFILE, false).contains("ulimit -n"));
        assert!(say(libc::EIO, false).contains("cannot be set up"));
    }
}
