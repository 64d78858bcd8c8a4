//! From a configuration to running shards, and back to an exit code.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use monoio::net::TcpListener;
use monoio::{IoUringDriver, RuntimeBuilder};
use tracing::{error, info, warn};

use crate::auth::origin::OriginPolicy;
use crate::config::{Config, EnvRule, UpstreamConfig};
use crate::limits::LISTEN_BACKLOG;
use crate::net::accept;
use crate::obs::counters;
use crate::store::directory::Directory;
use crate::store::meta::Meta;
use crate::store::start::{self, ShardLog};
use crate::store::wal::{self, Wal};
use crate::sys::signal::{self, SignalFd};
use crate::sys::{affinity, fds, listen, service, uring};
use crate::upstream::spawner::{CommandSpec, Spawner};

use super::credentials::Credentials;
use super::handoff::Letter;
use super::mailbox::Mailbox;
use super::{Process, Shard, driver, producers, task};

/// How long shards may take beyond the drain's deadline before the process goes anyway: twice the
/// children's grace comes on top.
const DRAIN_SLACK: Duration = Duration::from_secs(5);

/// How long a start waits for an address that is in use: a process that was killed has ended a
/// moment before the kernel has taken its rings down, and with them its sockets.
const ADDRESS_TIME: Duration = Duration::from_secs(2);

/// How long shards may take to kill their children when the process ends at once.
const KILL_TIME: Duration = Duration::from_secs(1);

/// What a child's environment has of ours without being asked for.
const CHILD_ENV: [&str; 11] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR",
    "TZ",
];

/// The signals that mean something: two begin a drain, SIGUSR1 asks where every stream stands.
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1];

/// Holds back the signals that mean something. To be called before any thread is started: one
/// thread without the mask would take a signal's default action, which is the end. Children get
/// an empty mask.
///
/// # Errors
/// The system's.
pub fn hold_signals() -> io::Result<()> {
    signal::block(&SIGNALS)
}

/// A served process.
pub struct Running {
    /// Where it listens; the port is resolved.
    pub address: SocketAddr,
    process: Arc<Process>,
    signals: Receiver<i32>,
    drained: Receiver<()>,
    /// Holds the lock of the data directory.
    _directory: Option<Directory>,
}

/// The socket that a service manager handed over (`LISTEN_FDS`), if it did: then `config` says
/// where that one listens. To be called before any thread is started.
///
/// # Errors
/// One sentence for the operator.
pub fn inherit(config: &mut Config) -> Result<Option<OwnedFd>, String> {
    let told = |error: io::Error| error.to_string();
    let inherited = listen::inherited().map_err(told)?;
    if let Some(socket) = &inherited {
        config.listen = listen::local_addr(socket.as_fd()).map_err(told)?;
    }
    Ok(inherited)
}

/// Starts every shard, on the socket that was handed over where there is one. When this returns,
/// connections are accepted.
///
/// # Errors
/// One sentence for the operator.
pub fn start(config: Config, inherited: Option<OwnedFd>) -> Result<Running, String> {
    let fail = |what: &str, error: io::Error| format!("{what}: {error}");
    fds::cloexec_inherited(&[]).map_err(|error| fail("inherited descriptors", error))?;
    uring::probe().map_err(|unavailable| unavailable.to_string())?;
    let cpus = affinity::allowed_cpus().map_err(|error| fail("the CPUs of the process", error))?;
    let count = config.shards.unwrap_or(cpus.len());
    if let Err(error) = fds::raise_nofile_limit() {
        warn!(%error, "the limit of open files could not be raised");
    }
    let signals = watch_signals().map_err(|error| fail("signals", error))?;
    if config.data.is_some() {
        let of_servers = config.servers.iter().flat_map(|server| server.limits.check_data(count));
        let wrong: BTreeSet<String> = of_servers.collect();
        if !wrong.is_empty() {
            let wrong: Vec<String> = wrong.into_iter().collect();
            return Err(wrong.join("; "));
        }
    }
    let listeners = match inherited {
        Some(socket) => {
            share(&socket, count).map_err(|error| fail("the socket that was handed over", error))?
        }
        None => listen_all(config.listen, count)?,
    };
    let address = listen::local_addr(listeners[0].as_fd())
        .map_err(|error| fail("the address that is listened on", error))?;
    let (drained, all_drained) = mpsc::channel();
    let opened = match &config.data {
        Some(data) => Some(start::open(data, config.limits.segment_bytes, count as u16)?),
        None => None,
    };
    let (meta, directory, logs) = match opened {
        Some(opened) => (opened.meta, Some(opened.directory), opened.shards),
        None => (start::meta_in_memory().map_err(|e| fail("random numbers", e))?, None, Vec::new()),
    };
    let mut logs = logs.into_iter();
    let process = Arc::new(process(config, address, &meta, count, drained)?);
    let (ready, all_ready) = mpsc::channel();
    for (index, listener) in listeners.into_iter().enumerate() {
        let (process, ready) = (Arc::clone(&process), ready.clone());
        let cpu = cpus[index % cpus.len()];
        let log = logs.next();
        let run = move || run_shard(index as u16, cpu, process, (listener, log), &ready);
        let started = thread::Builder::new().name(format!("shard-{index}")).spawn(run);
        started.map_err(|error| fail("a shard's thread", error))?;
    }
    for _ in 0..count {
        all_ready.recv().map_err(|_| "a shard ended at its start".to_owned())??;
    }
    Ok(Running { address, process, signals, drained: all_drained, _directory: directory })
}

impl Running {
    /// Serves until a signal says to stop; the exit code.
    pub fn wait(self) -> i32 {
        let first = loop {
            match self.signals.recv() {
                Ok(libc::SIGUSR1) => self.send_all(|| Letter::Dump),
                Ok(signal) => break signal,
                Err(_) => return 1,
            }
        };
        let limits = &self.process.config.limits;
        let deadline = Instant::now() + limits.drain_timeout;
        info!(signal = first, grace_s = limits.drain_timeout.as_secs_f32(), "draining");
        let graces = self.process.config.servers.iter().map(|server| server.limits.child_grace);
        let last = deadline + DRAIN_SLACK + graces.max().unwrap_or_default() * 3;
        service::stopping(last.saturating_duration_since(Instant::now()));
        self.send_all(|| Letter::Drain(deadline));
        let mut waiting = self.process.mailboxes.len();
        while waiting > 0 {
            match self.drained.recv_timeout(Duration::from_millis(20)) {
                Ok(()) => waiting -= 1,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Ok(second) = self.signals.try_recv()
                && second != libc::SIGUSR1
            {
                warn!(signal = second, "a second signal: stopping at once");
                self.kill_children();
                return 128 + second;
            }
            if Instant::now() > last {
                error!(waiting, "shards did not drain in time");
                self.kill_children();
                return 1;
            }
        }
        0
    }

    /// Tells every shard the same.
    fn send_all(&self, letter: impl Fn() -> Letter) {
        for mailbox in &self.process.mailboxes {
            if mailbox.try_send(letter()).is_err() {
                warn!("a shard's mailbox is full; it cannot be told");
            }
        }
    }

    /// Kills every child that is left, as far as the shards still listen.
    fn kill_children(&self) {
        if self.process.spawner.is_none() {
            return;
        }
        self.send_all(|| Letter::Kill);
        let end = Instant::now() + KILL_TIME;
        let shards = self.process.mailboxes.len();
        while self.process.killed.load(Ordering::Relaxed) < shards && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What they share, for the line at the end.
    pub fn process(&self) -> Arc<Process> {
        Arc::clone(&self.process)
    }
}

fn process(
    config: Config,
    address: SocketAddr,
    meta: &Meta,
    count: usize,
    drained: mpsc::Sender<()>,
) -> Result<Process, String> {
    let fail = |what: &str, error: io::Error| format!("{what}: {error}");
    let origins = OriginPolicy::new(&[address], &config.origins, &config.hosts)
        .map_err(|wrong| wrong.join("; "))?;
    let mailboxes: io::Result<Vec<_>> =
        (0..count).map(|_| Mailbox::new(config.limits.connections)).collect();
    let commands: Vec<_> =
        config.servers.iter().map(|server| command_of(&server.upstream)).collect();
    let spawner = match commands.iter().any(Option::is_some) {
        true => Some(Spawner::start().map_err(|error| fail("the spawner", error))?),
        false => None,
    };
    let credentials = Credentials::load(&config.auth, &config.servers)?;
    Ok(Process {
        origins,
        credentials,
        key: meta.key,
        epoch: meta.epoch,
        runs: meta.runs,
        mailboxes: mailboxes.map_err(|error| fail("mailboxes", error))?,
        counters: (0..count).map(|_| counters::new_shared()).collect(),
        spawner,
        commands,
        connections: AtomicUsize::new(0),
        sessions: AtomicUsize::new(0),
        killed: AtomicUsize::new(0),
        drained: Mutex::new(drained),
        config,
    })
}

/// What is started for a session; none for the built-in server.
fn command_of(upstream: &UpstreamConfig) -> Option<Arc<CommandSpec>> {
    let UpstreamConfig::Stdio { command, env, cwd } = upstream else { return None };
    let (program, args) = command.split_first().expect("a command was checked not to be empty");
    let env = child_env(env, |name| std::env::var_os(name));
    let (program, args) = (program.clone(), args.to_vec());
    Some(Arc::new(CommandSpec { program, args, env, cwd: cwd.clone() }))
}

/// A child's environment: what any program needs, and what the operator named.
fn child_env(
    rules: &[EnvRule],
    own: impl Fn(&str) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let usual = CHILD_ENV.map(|name| EnvRule::Pass(name.to_owned()));
    let mut env: Vec<(OsString, OsString)> = Vec::new();
    for rule in usual.iter().chain(rules) {
        let (name, value) = match rule {
            EnvRule::Pass(name) => (name, own(name)),
            EnvRule::Set(name, value) => (name, Some(value.into())),
        };
        if let Some(value) = value {
            env.retain(|(known, _)| known != OsStr::new(name));
            env.push((name.into(), value));
        }
    }
    env
}

/// One listener a shard on the same address; the first one resolves port 0.
fn listen_all(address: SocketAddr, count: usize) -> Result<Vec<OwnedFd>, String> {
    let fail = |error: io::Error| format!("cannot listen on {address}: {error}");
    if address.port() != 0 {
        wait_until_free(address).map_err(|error| error.to_string())?;
    }
    let first = listen::listen(address, LISTEN_BACKLOG).map_err(fail)?;
    let resolved = listen::local_addr(first.as_fd()).map_err(fail)?;
    let mut listeners = vec![first];
    for _ in 1..count {
        listeners.push(listen::listen(resolved, LISTEN_BACKLOG).map_err(fail)?);
    }
    Ok(listeners)
}

fn wait_until_free(address: SocketAddr) -> io::Result<()> {
    let end = Instant::now() + ADDRESS_TIME;
    loop {
        match listen::probe_free(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// One descriptor a shard of the one socket: whoever is free first accepts.
fn share(socket: &OwnedFd, count: usize) -> io::Result<Vec<OwnedFd>> {
    (0..count).map(|_| socket.try_clone()).collect()
}

/// Reads the signals that mean something on a thread of their own, which never ends. When this
/// returns no thread can take one of them for itself.
fn watch_signals() -> io::Result<Receiver<i32>> {
    let mut file = std::fs::File::from(OwnedFd::from(SignalFd::new(&SIGNALS)?));
    let (sender, receiver) = mpsc::channel();
    let (ready, started) = mpsc::channel();
    thread::Builder::new().name("signals".into()).spawn(move || {
        // The starter waits for it.
        let _ = ready.send(signal::receive(&SIGNALS));
        let mut record = [0; signal::RECORD_BYTES];
        loop {
            if io::Read::read_exact(&mut file, &mut record).is_ok()
                && let Some(number) = signal::decode(&record)
            {
                // Nobody listens any more only while the process exits.
                let _ = sender.send(number);
            }
        }
    })?;
    let gone = |_| io::Error::other("the thread for signals is gone");
    started.recv().map_err(gone)??;
    Ok(receiver)
}

/// A shard's thread. It never returns: dropping a runtime with operations in flight would free
/// buffers that the kernel still writes to.
fn run_shard(
    index: u16,
    cpu: usize,
    process: Arc<Process>,
    (listener, log): (OwnedFd, Option<ShardLog>),
    ready: &mpsc::Sender<Result<(), String>>,
) {
    if let Err(error) = affinity::pin(cpu) {
        warn!(shard = index, cpu, %error, "the shard could not be pinned");
    }
    let runtime = RuntimeBuilder::<IoUringDriver>::new()
        .with_entries(uring::ENTRIES)
        .uring_builder(uring::builder())
        .enable_timer()
        .build();
    let mut runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(format!("io_uring could not be set up: {error}")));
            return;
        }
    };
    producers::enter_shard();
    runtime.block_on(async move {
        match start_tasks(index, process, listener, log) {
            Ok(()) => {
                let _ = ready.send(Ok(()));
                std::future::pending::<()>().await;
            }
            Err(error) => {
                let _ = ready.send(Err(format!("a shard could not start: {error}")));
            }
        }
    });
}

fn start_tasks(
    index: u16,
    process: Arc<Process>,
    listener: OwnedFd,
    log: Option<ShardLog>,
) -> io::Result<()> {
    let receiver = process.mailboxes[usize::from(index)].receiver()?;
    let (wal, sessions) = log.map(Wal::open).unzip();
    let shard = Shard::new(index, process, wal.clone())?;
    if let Some(wal) = wal {
        shard.restore(sessions.unwrap_or_default());
        shard.retire_segments();
        task::spawn("log", wal::drive(shard.clone(), wal), || std::process::abort());
    }
    let listener = TcpListener::from_std(std::net::TcpListener::from(listener))?;
    // Without one of these a shard would be deaf: better that the process goes down whole.
    task::spawn("driver", driver::drive(shard.clone()), || std::process::abort());
    task::spawn("mailbox", driver::read_mail(shard.clone(), receiver), || std::process::abort());
    task::spawn("accept", accept::accept(shard, listener), || std::process::abort());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway's environment holds keys of other services; a server that somebody installed in a
    /// hurry must not find them.
    #[test]
    fn no_secret_of_ours_is_in_a_childs_environment() {
        let own = |name: &str| match name {
            "PATH" => Some("/bin".into()),
            "SECRET" | "WANTED" => Some("value".into()),
            _ => None,
        };
        let rules = [
            EnvRule::Pass("WANTED".into()),
            EnvRule::Pass("ABSENT".into()),
            EnvRule::Set("PATH".into(), "/opt".into()),
        ];
        let env = child_env(&rules, own);
        let expected = [("WANTED", "value"), ("PATH", "/opt")];
        assert_eq!(env, expected.map(|(name, value)| (name.into(), value.into())));
    }
}
