//! The one thread that starts children, and the one place that reaps those nobody waits for.
//!
//! Starting a process takes a fraction of a millisecond, or much longer where the program lies on a
//! slow disk: a shard must not wait for it. The thread has an empty signal mask, because children
//! inherit the mask of the thread that makes them and a blocked SIGTERM could not stop them.
//!
//! Invariants: a started child has exactly one [`Process`]; when that is dropped before the child
//! was reaped, the child's whole process group is killed and the child is reaped here. So a session
//! that is gone before its answer arrives leaves nothing behind. Nothing runs between fork and exec
//! (`pre_exec`): std then uses `posix_spawn`, which does not copy the address space.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use futures_channel::oneshot;

use crate::sys::{pidfd, pipe, signal};

/// Commands that may wait for the thread. More are refused, and the call that wanted one is told.
const WAITING_MAX: usize = 1024;
/// How often a killed child is looked at until it can be reaped.
const REAP_INTERVAL: Duration = Duration::from_millis(5);

/// What to run. No shell is involved.
#[derive(Clone, Debug, Default)]
pub struct CommandSpec {
    /// A path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// The arguments after the program's name.
    pub args: Vec<OsString>,
    /// Its whole environment. Ours is never passed on as it is: it may hold secrets.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts; none is where we run.
    pub cwd: Option<PathBuf>,
}

impl CommandSpec {
    /// A group of its own, three pipes and nothing of our environment. Every other descriptor of
    /// ours is close-on-exec.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command
    }
}

/// A started child: its process, the notice of its exit, and our ends of its pipes, which are in
/// non-blocking mode.
///
/// Dropped as a whole, it leaves nothing behind (see [`Process`]).
#[derive(Debug)]
pub struct Pipes {
    /// The child itself.
    pub process: Process,
    /// Readable once the child has exited.
    pub pidfd: OwnedFd,
    /// Where the child reads messages.
    pub stdin: OwnedFd,
    /// Where the child writes messages, one a line.
    pub stdout: OwnedFd,
    /// Where the child writes what is for the log.
    pub stderr: OwnedFd,
}

/// The right to signal a child's process group and to reap the child.
///
/// As long as the child is not reaped its number, which is also its group's, is not given to
/// anybody else. Dropped before it was reaped, the group is killed and the child reaped by the
/// spawner's thread.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    reaped: bool,
    /// Keeps the thread running, and takes the child over when this is dropped.
    jobs: Sender<Job>,
}

impl Process {
    /// The child's process number, which is also the number of its group.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal to the child and all its descendants that stayed in its group.
    pub fn signal_group(&self, signal: i32) {
        if self.reaped {
            return;
        }
        if let Err(error) = pidfd::kill_group(self.pid, signal) {
            tracing::warn!(pid = self.pid, signal, %error, "cannot signal a child's group");
        }
    }

    /// Collects the child if it has exited; `None` while it runs. Never waits.
    ///
    /// Signal the group first: afterwards its number may belong to somebody else.
    pub fn try_reap(&mut self) -> Option<ExitStatus> {
        if self.reaped {
            return None;
        }
        match pidfd::try_reap(self.pid) {
            Ok(status) => {
                self.reaped = status.is_some();
                status
            }
            Err(error) => {
                // Somebody else reaped it, so the number is not ours any more.
                self.reaped = true;
                tracing::error!(pid = self.pid, %error, "a child cannot be reaped");
                None
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.signal_group(libc::SIGKILL);
        // It takes a moment to die, and this may be a shard's thread, which does not wait.
        if self.try_reap().is_none() && !self.reaped && self.jobs.send(Job::Reap(self.pid)).is_err()
        {
            tracing::error!(pid = self.pid, "a killed child stays unreaped: the spawner is gone");
        }
    }
}

enum Job {
    Spawn {
        command: Arc<CommandSpec>,
        reply: oneshot::Sender<io::Result<Pipes>>,
        /// For the child's [`Process`]. The thread keeps none itself: it would never end.
        jobs: Sender<Job>,
    },
    Reap(u32),
}

/// The handle of the spawner's thread, for all shards. The thread ends when the last handle and
/// the last [`Process`] are gone.
#[derive(Clone, Debug)]
pub struct Spawner {
    jobs: Sender<Job>,
    waiting: Arc<AtomicUsize>,
}

impl Spawner {
    /// Starts the thread. Errors: the system allows no further thread.
    pub fn start() -> io::Result<Self> {
        let (jobs, queue) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let worker = Worker { queue, waiting: waiting.clone(), dying: Vec::new() };
        std::thread::Builder::new().name("spawner".to_owned()).spawn(move || worker.run())?;
        Ok(Self { jobs, waiting })
    }

    /// Starts a child; callable on any shard, and dropping the future leaves no child behind.
    ///
    /// Errors: what the system said, with the program's name (`NotFound`: there is no such
    /// program; `WouldBlock`: no process or descriptor is to be had now, or too many commands
    /// wait already).
    pub async fn spawn(&self, command: Arc<CommandSpec>) -> io::Result<Pipes> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let why = format!("{WAITING_MAX} children wait to be started");
            return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
        }
        let (reply, answer) = oneshot::channel();
        // An error means that the thread is gone, and so is `reply`: the next line tells.
        drop(self.jobs.send(Job::Spawn { command, reply, jobs: self.jobs.clone() }));
        answer.await.unwrap_or_else(|_| Err(io::Error::other("the spawner's thread is gone")))
    }
}

struct Worker {
    queue: Receiver<Job>,
    /// Spawn jobs in the queue.
    waiting: Arc<AtomicUsize>,
    /// Killed children that are not reaped yet.
    dying: Vec<u32>,
}

impl Worker {
    fn run(mut self) {
        if let Err(error) = signal::unblock_all() {
            tracing::error!(%error, "children may start with blocked signals");
        }
        loop {
            let job = if self.dying.is_empty() {
                self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.queue.recv_timeout(REAP_INTERVAL)
            };
            match job {
                Ok(Job::Spawn { command, reply, jobs }) => {
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                    // An answer that nobody wants any more is dropped here, and the child with it.
                    drop(reply.send(spawn(&command, jobs)));
                }
                Ok(Job::Reap(pid)) => self.dying.push(pid),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if self.dying.is_empty() => return,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(REAP_INTERVAL),
            }
            self.dying.retain(|pid| matches!(pidfd::try_reap(*pid), Ok(None)));
        }
    }
}

fn spawn(spec: &CommandSpec, jobs: Sender<Job>) -> io::Result<Pipes> {
    let name = |error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", spec.program.to_string_lossy()))
    };
    let mut child = spec.command().spawn().map_err(name)?;
    // From here on an early return kills and reaps.
    let process = Process { pid: child.id(), reaped: false, jobs };
    let pidfd = pidfd::pidfd_open(process.pid).map_err(name)?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("a piped child came without its pipes"));
    };
    for end in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        pipe::set_nonblocking(end).map_err(name)?;
    }
    Ok(Pipes { process, pidfd, stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into() })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use futures_util::FutureExt;

    use super::*;

    fn shell(script: &str) -> Arc<CommandSpec> {
        Arc::new(CommandSpec {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            ..Default::default()
        })
    }

    /// Waits on this thread: the answer comes from the spawner's.
    fn spawned(spawner: &Spawner, command: Arc<CommandSpec>) -> io::Result<Pipes> {
        let mut asked = Box::pin(spawner.spawn(command));
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(answer) = (&mut asked).now_or_never() {
                return answer;
            }
            assert!(Instant::now() < end, "no answer");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Bytes of the next read; the pipe does not wait, so this does.
    fn read(stdout: &mut std::fs::File) -> usize {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            match stdout.read(&mut [0; 16]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done.expect("read"),
            }
            assert!(Instant::now() < end, "nothing comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether a process of this number exists, be it a zombie.
    fn exists(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    fn gone_within(pid: u32, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while exists(pid) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        !exists(pid)
    }

    #[test]
    fn unused_pipes_leave_no_process_of_the_group_and_no_zombie() {
        let spawner = Spawner::start().expect("started");
        let pipes = spawned(&spawner, shell("sleep 100 & echo ready; wait")).expect("spawned");
        let pid = pipes.process.pid();
        let mut stdout = std::fs::File::from(pipes.stdout.try_clone().expect("cloned"));
        assert_eq!(read(&mut stdout), 6, "it runs");
        drop(pipes);
        // The end of the pipe shows that the grandchild, which held it open, is gone too.
        assert_eq!(read(&mut stdout), 0, "the end");
        assert!(gone_within(pid, Duration::from_secs(5)));
    }

    #[test]
    fn an_asker_that_went_away_leaves_no_child() {
        let spawner = Spawner::start().expect("started");
        let mark = std::env::temp_dir().join(format!("gapless-asker-{}", std::process::id()));
        let script = format!("echo $$ > '{0}.new'; mv '{0}.new' '{0}'; sleep 100", mark.display());
        let (reply, answer) = oneshot::channel();
        let jobs = spawner.jobs.clone();
        spawner.waiting.fetch_add(1, Ordering::Relaxed);
        spawner.jobs.send(Job::Spawn { command: shell(&script), reply, jobs }).expect("queued");
        // The answer is sent, and its receiver is dropped without having looked.
        let end = Instant::now() + Duration::from_secs(5);
        while !mark.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let pid = std::fs::read_to_string(&mark).expect("the child ran").trim().parse();
        drop(answer);
        std::fs::remove_file(&mark).expect("removed");
        assert!(gone_within(pid.expect("a number"), Duration::from_secs(5)));
    }

    /// A storm of sessions must be told so, not queued without end.
    #[test]
    fn more_starts_than_may_wait_are_refused_by_a_clear_error() {
        let spawner = Spawner::start().expect("started");
        spawner.waiting.fetch_add(WAITING_MAX, Ordering::Relaxed);
        let error = spawned(&spawner, shell("exit 0")).expect_err("one too many");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(error.to_string(), "1024 children wait to be started");
        // A refusal takes no place: with one free again the next is started.
        spawner.waiting.fetch_sub(1, Ordering::Relaxed);
        spawned(&spawner, shell("exit 0")).expect("started");
    }

    #[test]
    fn a_program_that_does_not_exist_is_told_by_name() {
        let spawner = Spawner::start().expect("started");
        let command = CommandSpec { program: "no-such-program".into(), ..Default::default() };
        let error = spawned(&spawner, Arc::new(command)).expect_err("not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("no-such-program"));
    }
}
