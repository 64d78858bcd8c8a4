//! What one shard owns, and the small things that its tasks ask of it.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tracing::{info, warn};

use crate::auth::gate::Gate;
use crate::auth::origin::OriginPolicy;
use crate::config::{Config, HttpSsePaths, ServerConfig, UpstreamConfig};
use crate::http::response::DateCache;
use crate::limits::Limits;
use crate::mcp::session_id::SessionId;
use crate::net::handle::Handle;
use crate::obs::counters::{SharedCounters, Totals};
use crate::session::table::IdHasher;
use crate::session::{Session, Settings};
use crate::store::wal::Wal;
use crate::sys::memory;
use crate::sys::random::Random;
use crate::upstream::behind::Behind;
use crate::upstream::child::Child;
use crate::upstream::piped::Piped;
use crate::upstream::spawner::{CommandSpec, Spawner};

use super::budget::Budget;
use super::credentials::Credentials;
use super::durable::Kept;
use super::fairness::Yielder;
use super::handoff::Letter;
use super::live::Live;
use super::mailbox::Mailbox;
use super::pool::Pool;
use super::producers::Producers;
use super::signal::Signal;
use super::timer::{Fired, KEY_BITS, Owner, Timer, TimerKey};
use super::wheel::Wheel;
use super::{child_link, task};

/// Buffers that a shard keeps for bursts: 4 MiB.
const POOLED_BUFFERS: usize = 64;
/// Log lines about clients' and children's mistakes, per shard and second.
const COMPLAINTS_PER_SECOND: u32 = 20;

/// How long after the end of a session its memory is given back, unless another one ends
/// meanwhile: where sessions come and go the next one needs it.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);

/// What all shards of a process share.
pub struct Process {
    /// The configuration.
    pub config: Config,
    /// Which origins and hosts are served.
    pub origins: OriginPolicy,
    /// What requests have to bring.
    pub credentials: Credentials,
    /// The key of the event ids' tokens.
    pub key: [u8; 32],
    /// The epoch of the logs.
    pub epoch: u32,
    /// How often the logs have been opened; 0 where they end with the process.
    pub runs: u32,
    /// Each shard's mailbox, by index.
    pub mailboxes: Vec<Arc<Mailbox<Letter>>>,
    /// Each shard's counters, by index.
    pub counters: Vec<SharedCounters>,
    /// Starts children; there only where a command is served.
    pub spawner: Option<Spawner>,
    /// What is started for a session of each server, by its place in the configuration; none for
    /// the built-in one.
    pub commands: Vec<Option<Arc<CommandSpec>>>,
    /// Connections that are open.
    pub connections: AtomicUsize,
    /// Sessions that are alive.
    pub sessions: AtomicUsize,
    /// Shards that have killed their children because the process ends at once.
    pub killed: AtomicUsize,
    /// Where a shard says that it has drained.
    pub drained: Mutex<Sender<()>>,
}

impl Process {
    /// The sum of all shards' counters.
    pub fn totals(&self, log_lines_lost: u64) -> Totals {
        Totals::sum(&self.counters, log_lines_lost)
    }

    /// A shard has nothing left to do. Once in its life, so a lock is harmless.
    pub(super) fn handle_drained(&self) {
        if let Ok(drained) = self.drained.lock() {
            // Nobody listens any more only while the process exits.
            let _ = drained.send(());
        }
    }
}

/// Work that waits for its slice.
pub enum Work {
    /// A session's built-in server has something to produce.
    Session(Rc<Live>),
    /// A producer's ring has something.
    Producer(u64),
    /// More is held than the shard's part of the process's budget.
    Relief,
}

/// The shard's key for the session of this id: a part of what is random in it.
pub(super) fn key_of(id: &SessionId) -> u64 {
    id.key() >> (u64::BITS - KEY_BITS)
}

type ById<T> = RefCell<HashMap<u64, Rc<T>, BuildHasherDefault<IdHasher>>>;

/// One shard. Its tasks share it by `Rc`; nothing of it is borrowed across an await.
pub struct Shard {
    /// Its index.
    pub index: u16,
    /// The process.
    pub process: Arc<Process>,
    /// The bounds of the process.
    pub limits: Limits,
    /// What the sessions of each server share, by its place in the configuration.
    servers: Vec<Rc<Settings>>,
    /// Who may ask it.
    pub gate: Gate,
    /// Its counters.
    pub counters: SharedCounters,
    /// Its write and read buffers.
    pub pool: Pool,
    /// Its way to yield.
    pub yielder: Yielder,
    sessions: ById<Live>,
    connections: ById<Handle>,
    next_key: Cell<u64>,
    wheel: RefCell<Wheel<TimerKey>>,
    /// Raised when the wheel has a deadline earlier than the driver knows, or there is work.
    pub(super) changed: Signal,
    /// The instant until which the driver sleeps.
    pub(super) sleeps_until: Cell<Option<Instant>>,
    runnable: RefCell<VecDeque<Work>>,
    /// The rings that other threads write through.
    pub producers: Producers,
    /// Its part of the process's budget of memory.
    pub budget: Rc<Budget>,
    /// Sessions that are over and still held by a connection.
    ended: RefCell<Vec<Weak<Live>>>,
    closing: RefCell<Vec<Child>>,
    give_back: Timer,
    /// Children that are being started.
    pub(super) spawning: Cell<usize>,
    /// The process ends at once: a child that is still being started is killed, too.
    pub(super) killing: Cell<bool>,
    random: RefCell<Random>,
    date: RefCell<DateCache>,
    complaints: Cell<(u64, u32)>,
    pub(super) wal: Option<Rc<Wal>>,
    pub(super) kept: Kept,
    started: Instant,
    /// Set when the drain begins.
    pub draining: Cell<bool>,
    /// Raised when the listener should be closed.
    pub stop_accepting: Signal,
}

impl Shard {
    /// The shard `index`, made inside its runtime, with its log where it has one. Errors: no
    /// descriptor is left.
    pub fn new(
        index: u16,
        process: Arc<Process>,
        wal: Option<Rc<Wal>>,
    ) -> std::io::Result<Rc<Self>> {
        let now = Instant::now();
        let limits = process.config.limits.clone();
        let (memory_bytes, shards) = (limits.memory_bytes, process.mailboxes.len() as u64);
        let settings = |(server, config): (usize, &ServerConfig)| {
            Rc::new(Settings {
                server: server as u16,
                server_name: config.name.as_str().into(),
                limits: config.limits.clone(),
                key: process.key,
                overflow: config.overflow,
                epoch: process.epoch,
                asked_before: u64::from(process.runs) << 32,
                journal: wal.as_ref().map(|wal| Rc::clone(wal.journal())),
            })
        };
        let servers = process.config.servers.iter().enumerate().map(settings).collect();
        Ok(Rc::new(Self {
            index,
            limits,
            servers,
            gate: process.credentials.gate(),
            counters: process.counters[usize::from(index)].clone(),
            process,
            pool: Pool::new(POOLED_BUFFERS),
            yielder: Yielder::new()?,
            sessions: RefCell::default(),
            connections: RefCell::default(),
            next_key: Cell::new(1),
            wheel: RefCell::new(Wheel::new(now)),
            changed: Signal::default(),
            sleeps_until: Cell::new(None),
            runnable: RefCell::default(),
            producers: Producers::default(),
            budget: Budget::new(memory_bytes / shards),
            ended: RefCell::default(),
            closing: RefCell::default(),
            give_back: Timer::default(),
            spawning: Cell::new(0),
            killing: Cell::new(false),
            random: RefCell::new(Random::new()?),
            date: RefCell::new(DateCache::new()),
            complaints: Cell::new((0, 0)),
            wal,
            kept: Kept::default(),
            started: now,
            draining: Cell::new(false),
            stop_accepting: Signal::default(),
        }))
    }

    /// The text of the `Date` field now.
    pub fn date(&self) -> [u8; 29] {
        *self.date.borrow_mut().at(SystemTime::now())
    }

    /// Whether one more line about somebody's mistake may be logged in this second.
    pub fn may_log(&self) -> bool {
        let second = self.started.elapsed().as_secs();
        let (known, count) = self.complaints.get();
        let count = if known == second { count + 1 } else { 1 };
        if known != second && self.complaints.get().1 > COMPLAINTS_PER_SECOND {
            let suppressed = self.complaints.get().1 - COMPLAINTS_PER_SECOND;
            warn!(suppressed, "log lines about mistakes were suppressed");
        }
        self.complaints.set((second, count));
        count <= COMPLAINTS_PER_SECOND
    }

    /// A number of the shard's own, never used twice.
    pub fn key(&self) -> u64 {
        let key = self.next_key.get();
        self.next_key.set(key + 1);
        key
    }
}

/// Connections.
impl Shard {
    /// Registers a connection.
    pub fn add_connection(&self, handle: Rc<Handle>) {
        self.connections.borrow_mut().insert(handle.key, handle);
    }

    /// A connection is closed or moves away.
    pub fn remove_connection(&self, handle: &Handle) {
        self.connections.borrow_mut().remove(&handle.key);
    }

    /// Connections of this shard.
    pub fn connections(&self) -> Vec<Rc<Handle>> {
        self.connections.borrow().values().cloned().collect()
    }

    /// Sets a connection's deadline.
    pub fn set_deadline(&self, handle: &Handle, after: Duration) {
        if let Some(at) = handle.timer.set(Instant::now() + after) {
            self.insert_timer(at, Owner::Connection(handle.key).into());
        }
    }
}

/// Sessions.
impl Shard {
    /// The session with this id.
    pub fn session(&self, id: &SessionId) -> Option<Rc<Live>> {
        let live = self.sessions.borrow().get(&key_of(id)).cloned();
        // The key is a part of the id. The shard that it names is another part, though this one
        // may own the session now.
        live.filter(|live| live.look(|session| session.id() == *id))
    }

    /// A server, by its place in the configuration.
    pub fn server(&self, server: u16) -> &ServerConfig {
        &self.process.config.servers[usize::from(server)]
    }

    /// What sessions of this server share.
    pub(super) fn settings(&self, server: u16) -> &Rc<Settings> {
        &self.servers[usize::from(server)]
    }

    /// A new session of a server, owned by this shard; none where the process has as many as it
    /// may. It is of this principal (0: of nobody); with `http_sse` it is one of that transport.
    pub fn add_session(
        self: &Rc<Self>,
        server: u16,
        principal: u64,
        http_sse: Option<&HttpSsePaths>,
    ) -> Option<Rc<Live>> {
        let most = self.limits.sessions;
        let counted = &self.process.sessions;
        if counted.fetch_add(1, Ordering::Relaxed) >= most {
            counted.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let now = Instant::now();
        let id = self.new_id();
        let settings = Rc::clone(self.settings(server));
        let config = self.server(server);
        let session = match http_sse {
            None => Session::new(id, settings, now, principal),
            Some(paths) => {
                let endpoint = paths.endpoint(&id.write());
                Session::new_http_sse(id, settings, now, principal, endpoint)
            }
        };
        let behind = match &config.upstream {
            UpstreamConfig::Builtin => Behind::InProcess(Box::default()),
            UpstreamConfig::Stdio { .. } => {
                let most = config.limits.stdin_bytes;
                Behind::Piped(Box::new(Piped::new(now, config.on_child_exit, most)))
            }
        };
        self.counters.sessions_started.increment();
        Some(self.register(session, behind))
    }

    fn new_id(&self) -> SessionId {
        loop {
            let mut random = [0; 16];
            self.random.borrow_mut().fill(&mut random);
            let id = SessionId::from_random(self.index, random);
            if self.has_place(&id) {
                return id;
            }
        }
    }

    /// Whether a session of this id can be added: no other one has the same key, which among 61
    /// random bits is next to impossible.
    pub(super) fn has_place(&self, id: &SessionId) -> bool {
        !self.sessions.borrow().contains_key(&key_of(id))
    }

    /// A session belongs to this shard from now on; the process has counted it.
    pub(super) fn register(&self, session: Session, behind: Behind) -> Rc<Live> {
        let key = key_of(&session.id());
        let live = Rc::new(Live::new(session, behind, &self.budget));
        let before = self.sessions.borrow_mut().insert(key, Rc::clone(&live));
        assert!(before.is_none(), "a session is added where there is a place for it");
        self.keep_slot(&live);
        live
    }

    /// The session is over; false where it was already. What it holds goes with its last
    /// connection.
    pub fn remove_session(&self, live: &Rc<Live>) -> bool {
        self.forget_slot(live);
        if self.sessions.borrow_mut().remove(&live.key()).is_none() {
            return false;
        }
        let mut ended = self.ended.borrow_mut();
        ended.retain(|live| live.strong_count() > 0);
        ended.push(Rc::downgrade(live));
        drop(ended);
        self.counters.sessions_ended.increment();
        self.process.sessions.fetch_sub(1, Ordering::Relaxed);
        if let Some(at) = self.give_back.set(Instant::now() + GIVE_BACK_AFTER) {
            self.insert_timer(at, Owner::GiveBack.into());
        }
        true
    }

    /// Every session of this shard.
    pub fn sessions(&self) -> Vec<Rc<Live>> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// Starts a child for a session, on a task of its own.
    pub fn spawn_child(self: &Rc<Self>, live: &Rc<Live>) {
        let server = live.look(|session| session.settings().server);
        let command = self.process.commands[usize::from(server)].clone();
        let (Some(spawner), Some(command)) = (self.process.spawner.clone(), command) else {
            return;
        };
        let (shard, live) = (Rc::clone(self), Rc::clone(live));
        self.spawning.update(|spawning| spawning + 1);
        let on_panic = Rc::clone(self);
        let start = async move {
            let started = spawner.spawn(command).await;
            shard.spawning.update(|spawning| spawning - 1);
            match started {
                // Nobody would stop it any more; dropped, it is killed.
                Ok(pipes) if shard.killing.get() => drop(pipes),
                Ok(pipes) => child_link::start(&shard, &live, pipes),
                Err(error) => {
                    let reason = format!("the server could not be started: {error}");
                    warn!(session = %live.short, %error, "the child could not be started");
                    live.handle_child_gone(&shard, &reason);
                }
            }
        };
        task::spawn("spawn", start, move || on_panic.counters.panics.increment());
    }

    /// Keeps a child's handle until its process is gone.
    pub fn keep_until_closed(&self, child: Child) {
        let mut closing = self.closing.borrow_mut();
        closing.retain(Child::is_running);
        closing.push(child);
    }

    /// Children that were told to go and still run.
    pub fn closing(&self) -> Vec<Child> {
        let mut closing = self.closing.borrow_mut();
        closing.retain(Child::is_running);
        closing.clone()
    }
}

/// The budget of memory.
impl Shard {
    /// Something has grown: asks for relief where that is due.
    pub fn relieve_if_due(&self) {
        if self.budget.poll_relief() {
            self.add_work(Work::Relief);
        }
    }

    /// Brings what is held well below the budget, the largest sessions first, so that this is rare
    /// however fast they grow.
    pub(super) fn relieve(self: &Rc<Self>) {
        let (before, target) = (self.budget.taken(), self.budget.relief_target());
        let mut sessions = self.sessions();
        sessions.extend(self.ended.borrow().iter().filter_map(Weak::upgrade));
        sessions.sort_by_key(|live| std::cmp::Reverse(live.held_bytes()));
        let mut shrunk = true;
        while self.budget.taken() > target && shrunk {
            shrunk = false;
            for live in &sessions {
                if self.budget.taken() <= target {
                    break;
                }
                let bytes = live.held_bytes();
                live.read_all_acked();
                live.with(self, |session, behind, now| session.shrink(now, bytes / 2, behind));
                shrunk |= live.held_bytes() < bytes;
            }
        }
        self.budget.handle_relieved();
        self.counters.reliefs.increment();
        if self.may_log() {
            let after = self.budget.taken();
            let transit = self.budget.transit();
            warn!(shard = self.index, before, after, transit, "a shard was over its budget");
        }
    }
}

/// Time and work.
impl Shard {
    /// Puts a deadline into the wheel.
    pub fn insert_timer(&self, at: Instant, key: TimerKey) {
        self.wheel.borrow_mut().insert(at, key);
        if self.sleeps_until.get().is_none_or(|until| at < until) {
            self.changed.raise();
        }
    }

    /// There is work, for one slice after the others.
    pub fn add_work(&self, work: Work) {
        self.runnable.borrow_mut().push_back(work);
        self.changed.raise();
    }

    /// The next work.
    pub(super) fn next_work(&self) -> Option<Work> {
        self.runnable.borrow_mut().pop_front()
    }

    /// When the wheel wants to be turned.
    pub(super) fn next_timer(&self, now: Instant) -> Option<Instant> {
        self.wheel.borrow().next(now)
    }

    /// Turns the wheel.
    pub(super) fn expire(self: &Rc<Self>, now: Instant) {
        let mut fired = Vec::new();
        self.wheel.borrow_mut().expire(now, &mut |key| fired.push(key));
        for key in fired {
            match key.owner() {
                Owner::Connection(number) => {
                    let handle = self.connections.borrow().get(&number).cloned();
                    if let Some(handle) = handle
                        && self.fire(now, key, &handle.timer)
                    {
                        handle.handle_expired();
                    }
                }
                Owner::Session(number) => {
                    if let Some(live) = self.live(number)
                        && self.fire(now, key, &live.timer)
                    {
                        live.with_contained(self, |session, behind, now| {
                            session.handle_timeout(now, behind);
                        });
                    }
                }
                Owner::Run(number) => {
                    if let Some(live) = self.live(number)
                        && self.fire(now, key, &live.busy().run_timer)
                    {
                        live.make_runnable(self);
                    }
                }
                Owner::Sweep(number) => {
                    if let Some(live) = self.live(number)
                        && self.fire(now, key, &live.busy().sweep_timer)
                    {
                        live.sweep(self);
                    }
                }
                Owner::Retire => self.retire_segments(),
                Owner::GiveBack => {
                    if self.fire(now, key, &self.give_back) {
                        memory::give_back();
                    }
                }
            }
        }
    }

    fn live(&self, key: u64) -> Option<Rc<Live>> {
        self.sessions.borrow().get(&key).cloned()
    }

    /// Whether the deadline of `timer`, of which an entry has fired, has passed.
    fn fire(&self, now: Instant, key: TimerKey, timer: &Timer) -> bool {
        match timer.fire(now) {
            Fired::Due => true,
            Fired::Again(at) => {
                self.insert_timer(at, key);
                false
            }
            Fired::Stale => false,
        }
    }

    /// Says that a session has started.
    pub fn log_started(&self, live: &Live) {
        let revision = live.look(|session| session.revision_name().to_owned());
        info!(session = %live.short, revision, "session started");
    }
}
