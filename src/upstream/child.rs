//! A stdio child on the shard that owns its session: messages in and out, one a line, and its end.
//!
//! One task serves a child. It holds three pumps (stdin, stdout, stderr), none of which waits for
//! another, and the child's life: it runs; it is asked to end; it has exited and its last words are
//! read; the rest of its group is killed; it is reaped; all of that is told.
//!
//! Invariants:
//! * Every wait is a poll by the ring, which can be dropped at any time; the read or write after it
//!   never waits ([`crate::sys::pipe`]). So an idle child holds no buffer, and nobody who keeps a
//!   pipe open can hold up the end.
//! * At most 64 KiB are read between two polls, so that a child that floods lets timers
//!   and other tasks run.
//! * The group is signalled before the child is reaped, never after: until then its number cannot
//!   belong to a stranger.
//! * The events are told from the child's own task, never from inside a call of [`Child`];
//!   [`ChildEvents::exited`] is the last, and comes exactly once, even if the task panics.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::pin::{Pin, pin};
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_channel::mpsc;
use futures_util::future::{Either, join3, select};
use monoio::net::UnixStream;
use monoio::time::{sleep, timeout};

use self::gate::Gate;
use self::latch::Latch;
use self::lines::{Lines, Piece};
use self::pumps::{Output, Stdin};
use self::stderr::StderrLog;
use super::spawner::{Pipes, Process};
use crate::limits::{LINE_OVERHEAD_BYTES, Limits};
use crate::shard::task;

mod gate;
mod latch;
mod lines;
mod pumps;
mod stderr;

/// How long stdout may stay open after the child has exited, because a descendant holds it: once
/// for descendants that still pass on what the child wrote, and once after they were killed.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long to wait when the system cannot even poll for an exit.
const POLL_RETRY: Duration = Duration::from_millis(100);

/// What a child does, told on the owning shard.
pub trait ChildEvents {
    /// One line of stdout, without its newline and without a carriage return before that. A last
    /// line that has no newline counts.
    fn line(&self, line: &[u8]);
    /// A line went over `Limits::event_bytes`: `bytes_so_far` of it had come, `head` is its start
    /// (at most 512 bytes). What follows up to the next newline is thrown away.
    fn line_too_long(&self, bytes_so_far: usize, head: &[u8]);
    /// So many more bytes of the lines sent were written to the child, or are lost with it; with
    /// the last byte of each line `LINE_OVERHEAD_BYTES` more.
    fn written(&self, bytes: usize);
    /// The child is gone: its stdout was read to the end, nothing is left of its process group and
    /// it was reaped. `how` is like `exit status 3` or `signal 9`.
    fn exited(&self, how: &str);
}

/// The handle of a child. Clones are the same child; dropping the last one closes it.
#[derive(Clone)]
pub struct Child {
    handle: Rc<Handle>,
}

impl Child {
    /// Serves a child from now on, in a task of the calling shard. `name` is the session's short
    /// id, for the log. Errors: the descriptors cannot be polled; the child is killed, and nothing
    /// is told.
    pub fn start(
        pipes: Pipes,
        limits: &Limits,
        events: Rc<dyn ChildEvents>,
        name: String,
    ) -> io::Result<Self> {
        let Pipes { process, pidfd, stdin, stdout, stderr } = pipes;
        let (lines, queue) = mpsc::unbounded();
        let task = Task {
            pidfd: pollable(pidfd)?,
            stdin: Stdin::new(pollable(stdin)?, queue, events.clone()),
            stdout: Output::new(pollable(stdout)?),
            stderr: Output::new(pollable(stderr)?),
            lines: Lines::new(limits.event_bytes),
            log: StderrLog::new(name.clone()),
            grace: limits.child_grace,
        };
        let shared = Rc::new(Shared {
            name,
            pid: process.pid(),
            process: RefCell::new(Some(process)),
            lines,
            refused: Cell::new(0),
            closing: Latch::default(),
            stdout_ended: Latch::default(),
            stdout_gate: Gate::default(),
            exited: Latch::default(),
        });
        let end = End { events, shared: shared.clone(), told: false };
        // If it panics, `End` is dropped, which tells what is to be told.
        task::spawn("child", task.run(end), || ());
        Ok(Self { handle: Rc::new(Handle { shared }) })
    }

    /// Queues bytes for stdin: whole lines with their newlines. The caller bounds what is queued,
    /// by [`ChildEvents::written`]. After [`Child::close`] they are lost.
    pub fn send(&self, line: Vec<u8>) {
        let shared = &self.handle.shared;
        let bytes = line.len() + LINE_OVERHEAD_BYTES;
        if shared.lines.unbounded_send(line).is_err() {
            shared.refused.set(shared.refused.get() + bytes);
        }
    }

    /// Asks the child to end and sees to it that it does: what is queued goes out and stdin ends;
    /// after `Limits::child_grace` its group gets SIGTERM, after that time again SIGKILL. Returns
    /// at once; a second call changes nothing.
    pub fn close(&self) {
        self.handle.shared.close();
    }

    /// Stops reading the child's stdout, or goes on: what it writes waits in its pipe, and then the
    /// child does. What it had written is read all the same once it is gone.
    pub fn set_paused(&self, paused: bool) {
        self.handle.shared.stdout_gate.set_closed(paused);
    }

    /// Kills the child's group at once, for a shutdown that waits no longer.
    pub fn kill(&self) {
        self.close();
        self.handle.shared.signal_group(libc::SIGKILL);
    }

    /// Returns once the child was reaped and [`ChildEvents::exited`] was told.
    pub async fn closed(&self) {
        self.handle.shared.exited.opened().await;
    }

    /// Whether [`ChildEvents::exited`] was not told yet.
    pub fn is_running(&self) -> bool {
        !self.handle.shared.exited.is_open()
    }

    /// The child's process number, for the log and for the operator.
    pub fn pid(&self) -> u32 {
        self.handle.shared.pid
    }
}

/// Owned by the clones of [`Child`] together, and not by the task.
struct Handle {
    shared: Rc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// What the handle and the task share.
struct Shared {
    /// The session's short id.
    name: String,
    pid: u32,
    /// The child until it is reaped.
    process: RefCell<Option<Process>>,
    /// What is to be written to stdin; closed, it ends stdin when it is empty.
    lines: mpsc::UnboundedSender<Vec<u8>>,
    /// Bytes that came when `lines` was closed.
    refused: Cell<usize>,
    /// The child is asked to end.
    closing: Latch,
    /// Nothing more will come from stdout.
    stdout_ended: Latch,
    /// Closed while stdout should not be read.
    stdout_gate: Gate,
    /// Everything is told.
    exited: Latch,
}

impl Shared {
    fn close(&self) {
        self.lines.close_channel();
        self.closing.open();
    }

    fn signal_group(&self, signal: i32) {
        if let Some(process) = &*self.process.borrow() {
            process.signal_group(signal);
        }
    }

    /// Collects the exited child; from here on its group is not signalled any more.
    fn reap(&self) -> Option<ExitStatus> {
        let mut process = self.process.borrow_mut();
        let status = process.as_mut().and_then(Process::try_reap);
        if status.is_some() {
            *process = None;
        }
        status
    }
}

/// Tells the end once, whatever happens to the task that owns it.
struct End {
    events: Rc<dyn ChildEvents>,
    shared: Rc<Shared>,
    told: bool,
}

impl End {
    fn tell(&mut self, how: &str) {
        self.told = true;
        self.events.exited(how);
        self.shared.exited.open();
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Not reaped yet: this kills the group and leaves the reaping to the spawner.
        drop(self.shared.process.take());
        if !self.told {
            self.tell("killed, because its task ended early");
        }
    }
}

/// The task of one child.
struct Task {
    pidfd: UnixStream,
    stdin: Stdin,
    stdout: Output,
    stderr: Output,
    lines: Lines,
    log: StderrLog,
    grace: Duration,
}

impl Task {
    async fn run(self, mut end: End) {
        let Self { pidfd, mut stdin, mut stdout, mut stderr, mut lines, mut log, grace } = self;
        let (shared, events) = (end.shared.clone(), end.events.clone());
        let mut on_stdout = |chunk: &[u8]| lines.feed(chunk, |piece| tell(&*events, &piece));
        let mut on_stderr = |chunk: &[u8]| log.feed(chunk, Instant::now());
        {
            let pumps = pin!(join3(
                stdin.run(),
                async {
                    stdout.run(Some(&shared.stdout_gate), &mut on_stdout).await;
                    shared.stdout_ended.open();
                },
                stderr.run(None, &mut on_stderr),
            ));
            let life = pin!(live(&shared, &pidfd, grace));
            if let Either::Left((_, life)) = select(pumps, life).await {
                life.await;
            }
        }
        stdout.rest(&mut on_stdout);
        stderr.rest(&mut on_stderr);
        lines.finish(|piece| tell(&*events, &piece));
        let lost = stdin.lost() + shared.refused.take();
        if lost > 0 {
            events.written(lost);
        }
        let how = shared.reap().map_or_else(|| "exit status unknown".to_owned(), describe);
        let stderr_tail = log.finish(Instant::now());
        tracing::info!(session = shared.name, pid = shared.pid, how, stderr_tail, "a child exited");
        end.tell(&how);
    }
}

/// From the start to the point where nobody is left in the child's group but its own remains.
async fn live(shared: &Shared, pidfd: &UnixStream, grace: Duration) {
    let mut exited = pin!(exit_of(pidfd));
    // A child that has closed its stdout can answer nothing any more: it is asked to end, too.
    let closing = pin!(shared.closing.opened());
    let silent = pin!(shared.stdout_ended.opened());
    if let Either::Right(_) = select(exited.as_mut(), select(closing, silent)).await {
        shared.close();
        stop(shared, exited, grace).await;
    }
    // Whether time runs out makes no difference: what is in the pipe is read afterwards.
    let _ = timeout(LAST_WORDS, shared.stdout_ended.opened()).await;
    shared.signal_group(libc::SIGKILL);
    let _ = timeout(LAST_WORDS, shared.stdout_ended.opened()).await;
}

/// Waits for the exit of a child whose stdin ends, and gets stricter twice.
async fn stop(shared: &Shared, mut exited: Pin<&mut impl Future<Output = ()>>, grace: Duration) {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        if timeout(grace, exited.as_mut()).await.is_ok() {
            return;
        }
        tracing::info!(session = shared.name, pid = shared.pid, signal, "a child does not end");
        shared.signal_group(signal);
    }
    exited.await;
}

async fn exit_of(pidfd: &UnixStream) {
    while let Err(error) = pidfd.readable(false).await {
        tracing::warn!(%error, "cannot poll for the exit of a child");
        sleep(POLL_RETRY).await;
    }
}

/// monoio polls descriptors of any kind as long as they come as one of its own types.
fn pollable(fd: OwnedFd) -> io::Result<UnixStream> {
    UnixStream::from_std(fd.into())
}

fn tell(events: &dyn ChildEvents, piece: &Piece<'_>) {
    match piece {
        Piece::Line(line) => events.line(line),
        Piece::TooLong { bytes, head } => events.line_too_long(*bytes, head),
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
