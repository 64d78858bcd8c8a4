//! A session alive on its shard: the pure session, its upstream, and who waits for what.
//!
//! Every change goes through [`Live::with`], which borrows, calls, and then does in the world
//! what the session asks. Nothing is borrowed across an await.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use crate::limits::WRITE_BYTES_MAX;
use crate::mcp::jsonrpc::codes;
use crate::mcp::session_id::ShortId;
use crate::net::handle::Handle;
use crate::session::table::Table;
use crate::session::{About, DISK_WAIT, Done, Effect, Ended, ExchangeKey, Session, Step};
use crate::stream::Generation;
use crate::stream::outbound::{Tell, Told};
use crate::stream::receipt::{Outcome, Ticket};
use crate::upstream::behind::Behind;
use crate::upstream::child::Child;
use crate::upstream::off_core;
use crate::upstream::piped::Heard;

use super::budget::{Budget, Charge, Of};
use super::room::{Room, Wait};
use super::signal::Signal;
use super::state::Work;
use super::state::key_of;
use super::timer::{Owner, Timer};
use super::{Shard, task};

/// How often acknowledgements are read while somebody waits for them.
const SWEEP: Duration = Duration::from_millis(20);

/// The connection that reads one stream.
pub struct Reader {
    /// The connection.
    pub handle: Rc<Handle>,
    /// Its claim on the stream.
    pub generation: Generation,
    /// Raised when its socket is gone and reported.
    pub closed: Signal,
}

/// What a session has beside, once something in it has taken its time: most sessions are idle, and
/// many have never been otherwise.
#[derive(Default)]
pub struct Busy {
    /// When its built-in server wants to be run.
    pub run_timer: Timer,
    /// When acknowledgements that somebody waits for are read again.
    pub sweep_timer: Timer,
    /// Who waits for the reply of an exchange.
    waits: RefCell<Table<ExchangeKey, Rc<Signal>>>,
    /// Who is told how far a push has come.
    tellers: RefCell<Table<Ticket, Told>>,
    room: Room,
}

/// The child of a session, where there is to be one.
struct Pipe {
    /// Its handle, while it runs.
    child: RefCell<Option<Child>>,
    /// What it has not read, on the shard's account.
    queued: Charge,
}

/// One session on its shard.
pub struct Live {
    session: RefCell<Session>,
    behind: RefCell<Behind>,
    /// Of a piped upstream.
    pipe: Option<Box<Pipe>>,
    readers: RefCell<Table<u32, Rc<Reader>>>,
    /// When the session wants to be looked at.
    pub timer: Timer,
    /// Its client does not know of it yet.
    new: Cell<bool>,
    /// What the session holds, on the shard's account.
    held: Charge,
    /// What a session needs in which something takes its time.
    busy: OnceCell<Box<Busy>>,
    /// It is in the shard's list of sessions that produce.
    runnable: Cell<bool>,
    /// Its number in the shard's log, where it outlives the process.
    pub slot: Cell<Option<u32>>,
    /// Its short id, for log lines.
    pub short: ShortId,
}

// With its counts, 448 bytes of every session.
const _: () = assert!(size_of::<Live>() <= 432);

impl Live {
    /// A session with what stands behind it; nothing has happened yet.
    pub fn new(session: Session, behind: Behind, budget: &Rc<Budget>) -> Self {
        let short = session.id().short();
        let pipe = || Pipe { child: RefCell::new(None), queued: Charge::new(budget, Of::Transit) };
        Self {
            pipe: matches!(behind, Behind::Piped(_)).then(|| Box::new(pipe())),
            session: RefCell::new(session),
            behind: RefCell::new(behind),
            readers: RefCell::default(),
            timer: Timer::default(),
            new: Cell::new(true),
            held: Charge::new(budget, Of::Session),
            busy: OnceCell::new(),
            runnable: Cell::new(false),
            slot: Cell::new(None),
            short,
        }
    }

    /// The shard's own key for it.
    pub fn key(&self) -> u64 {
        self.look(|session| key_of(&session.id()))
    }

    /// Its child, while one runs.
    fn child(&self) -> Option<Child> {
        self.pipe.as_ref()?.child.borrow().clone()
    }

    fn take_child(&self) -> Option<Child> {
        self.pipe.as_ref()?.child.borrow_mut().take()
    }

    /// What its child has not read is on the shard's account.
    fn charge_queued(&self) {
        if let Some(pipe) = &self.pipe {
            pipe.queued.set(self.behind.borrow().queued_bytes() as u64);
        }
    }

    /// What it has beside.
    pub fn busy(&self) -> &Busy {
        self.busy.get_or_init(Box::default)
    }

    /// Until when somebody waits for room, if anybody does.
    fn awaited_by(&self) -> Option<Instant> {
        self.busy.get()?.room.awaited_by()
    }

    /// Calls `change` with the session, and then does what it asks of the world.
    pub fn with<R>(
        self: &Rc<Self>,
        shard: &Rc<Shard>,
        change: impl FnOnce(&mut Session, &mut Behind, Instant) -> R,
    ) -> R {
        let now = Instant::now();
        let result = change(&mut self.session.borrow_mut(), &mut self.behind.borrow_mut(), now);
        self.settle(shard, now);
        result
    }

    /// As [`Live::with`], for a task that serves every session: a panic ends this session alone.
    pub fn with_contained(
        self: &Rc<Self>,
        shard: &Rc<Shard>,
        change: impl FnOnce(&mut Session, &mut Behind, Instant),
    ) {
        if task::contain("session", || self.with(shard, change)).is_some() {
            return;
        }
        shard.counters.panics.increment();
        task::contain("broken session", || {
            self.with(shard, |session, _, _| session.end(Ended::Broken));
        });
        shard.remove_session(self);
    }

    /// Whether its `initialize` has not been answered yet.
    pub fn is_new(&self) -> bool {
        self.new.get()
    }

    /// Its `initialize` is being answered.
    pub fn set_known(&self) {
        self.new.set(false);
    }

    /// Looks at the session without changing it.
    pub fn look<R>(&self, look: impl FnOnce(&Session) -> R) -> R {
        look(&self.session.borrow())
    }

    /// What the connection of `generation` should write next; see [`Session::transmit`].
    pub fn transmit(
        &self,
        stream: u32,
        generation: Generation,
        offset: u64,
        out: &mut Vec<u8>,
    ) -> Step {
        let mut session = self.session.borrow_mut();
        let step = session.transmit(stream, generation, offset, out);
        // Comments that waited are gone.
        self.held.set(session.bytes());
        while let Some((ticket, outcome)) = session.poll_told() {
            self.tell(ticket, outcome);
        }
        step
    }

    /// What was journaled for this stream is committed.
    pub fn handle_committed(&self, stream: u32) {
        self.session.borrow_mut().handle_committed(stream);
        if let Some(reader) = self.readers.borrow().get(stream) {
            reader.handle.signal.raise();
        }
        loop {
            let told = self.session.borrow_mut().poll_told();
            let Some((ticket, outcome)) = told else { break };
            self.tell(ticket, outcome);
        }
    }

    /// Reads what the writer of this stream was told to; false where it cannot go on.
    pub async fn load(self: &Rc<Self>, shard: &Rc<Shard>, stream: u32) -> bool {
        let wanted = self.session.borrow_mut().take_load(stream);
        let (Some(wanted), Some(wal)) = (wanted, shard.wal()) else { return false };
        let read = wal.read(wanted.slot, stream, &wanted.token, &wanted.load).await;
        if let Err(error) = &read {
            error!(session = %self.short, stream, %error, "events cannot be read from the log");
        }
        self.with(shard, |session, _, now| {
            session.handle_loaded(now, stream, &wanted.load, read.ok());
        });
        true
    }

    /// Makes sure that what `about` writes to is there for an off-core producer: its stream's key,
    /// and whether it has started. None where it takes no more.
    pub fn reserve(&self, about: About) -> Option<(Option<Box<str>>, bool)> {
        let mut session = self.session.borrow_mut();
        let key = match about {
            About::Standalone => None,
            About::Call(call) => session.reserve(call)?,
        };
        Some((key, session.is_started(about)))
    }

    /// Logs a message of an off-core producer, and remembers who wants to be told of it.
    pub fn write(
        self: &Rc<Self>,
        shard: &Rc<Shard>,
        about: About,
        message: &[u8],
        tell: Option<Tell>,
    ) {
        let wish = tell.map(|tell| {
            let ticket = shard.key();
            self.busy().tellers.borrow_mut().insert(ticket, tell.told);
            (ticket, tell.stage, tell.within)
        });
        self.with(shard, |session, _, now| {
            let hint = message.len();
            let (stream, number) =
                session.write(now, about, hint, |out| out.extend_from_slice(message));
            if let Some((ticket, stage, within)) = wish {
                session.tell(stream, ticket, number, stage, now + within);
            }
        });
        if wish.is_some() {
            self.sweep_later(shard);
        }
    }

    /// Reads the acknowledgements that somebody waits for.
    pub fn sweep(self: &Rc<Self>, shard: &Rc<Shard>) {
        self.read_all_acked();
        self.with(shard, |session, _, now| session.handle_receipt_timeouts(now));
        if !self.busy().tellers.borrow().is_empty() {
            self.sweep_later(shard);
        }
    }

    fn sweep_later(&self, shard: &Shard) {
        if let Some(at) = self.busy().sweep_timer.set(Instant::now() + SWEEP) {
            shard.insert_timer(at, Owner::Sweep(self.key()).into());
        }
    }

    fn tell(&self, ticket: Ticket, outcome: Outcome) {
        let told = self.busy().tellers.borrow_mut().remove(ticket);
        if let Some(told) = told {
            told(outcome);
        }
    }

    /// A connection has attached to a stream.
    pub fn add_reader(
        &self,
        stream: u32,
        handle: Rc<Handle>,
        generation: Generation,
    ) -> Rc<Reader> {
        let reader = Rc::new(Reader { handle, generation, closed: Signal::default() });
        self.readers.borrow_mut().insert(stream, Rc::clone(&reader));
        reader
    }

    /// The connection of a stream is gone, its socket too where it was fenced: the one way in
    /// which a reader ends. `acked` is its last acknowledged byte count.
    pub fn remove_reader(
        self: &Rc<Self>,
        shard: &Rc<Shard>,
        stream: u32,
        reader: &Reader,
        acked: u64,
    ) {
        let mut readers = self.readers.borrow_mut();
        if readers.get(stream).is_some_and(|known| known.generation == reader.generation) {
            readers.remove(stream);
        }
        drop(readers);
        self.with(shard, |session, _, now| {
            session.handle_closed(now, stream, reader.generation, acked);
        });
        // A producer that waited for this reader waits for nobody now: a disconnect is no pause.
        self.handle_sent(shard);
        reader.closed.raise();
    }

    /// The task of a connection has panicked: what it was reading is given up, or nobody could
    /// ever take it over.
    pub fn handle_task_lost(self: &Rc<Self>, shard: &Rc<Shard>, handle: &Rc<Handle>) {
        let readers = self.readers.borrow();
        let of_it = readers.iter().filter(|(_, reader)| Rc::ptr_eq(&reader.handle, handle));
        let lost: Vec<(u32, Rc<Reader>)> =
            of_it.map(|(stream, reader)| (stream, Rc::clone(reader))).collect();
        drop(readers);
        for (stream, reader) in lost {
            self.remove_reader(shard, stream, &reader, handle.out.get().acked());
        }
    }

    /// Shuts the connection of `generation` down and waits until its socket is gone.
    pub async fn close_reader(&self, stream: u32, generation: Generation) {
        let reader = self.readers.borrow().get(stream).cloned();
        if let Some(reader) = reader.filter(|reader| reader.generation == generation) {
            reader.handle.fence();
            reader.closed.raised().await;
        }
    }

    /// Nothing is expected for a while: gives back the room that only a busy session needs.
    pub fn rest(&self) {
        self.session.borrow_mut().rest();
        self.behind.borrow_mut().rest();
        self.readers.borrow_mut().shrink_to_fit();
        if let Some(busy) = self.busy.get() {
            busy.waits.borrow_mut().shrink_to_fit();
            busy.tellers.borrow_mut().shrink_to_fit();
        }
    }

    /// A signal that is raised when the exchange has its reply.
    pub fn wait_for(&self, exchange: ExchangeKey) -> Rc<Signal> {
        let signal = Rc::<Signal>::default();
        self.busy().waits.borrow_mut().insert(exchange, Rc::clone(&signal));
        signal
    }

    /// Nobody waits for the exchange any more.
    pub fn stop_waiting(&self, exchange: ExchangeKey) {
        self.busy().waits.borrow_mut().remove(exchange);
    }

    /// One slice of what the built-in server has to produce, or what a pipe's time has come for.
    pub fn run(self: &Rc<Self>, shard: &Rc<Shard>) {
        self.runnable.set(false);
        // Its client is gone for good: nothing of what it asked for is of use to anybody.
        if self.look(|session| session.ended().is_some()) {
            return;
        }
        if self.awaited_by().is_some_and(|by| by <= Instant::now()) {
            self.handle_sent(shard);
        }
        self.busy().room.begin_run();
        self.with_contained(shard, |session, behind, now| match behind {
            Behind::InProcess(server) => server.run(session, now, WRITE_BYTES_MAX),
            Behind::Piped(piped) => piped.handle_timeout(now),
        });
        self.busy().room.end_run();
    }

    /// A writer has sent something, or a reader is gone: producers that wait for room are asked
    /// again.
    pub fn handle_sent(self: &Rc<Self>, shard: &Shard) {
        if self.awaited_by().is_some() {
            self.release_rings(shard);
            self.make_runnable(shard);
        }
    }

    fn release_rings(&self, shard: &Shard) {
        let Some(busy) = self.busy.get() else { return };
        for producer in busy.room.take_rings() {
            shard.add_work(Work::Producer(producer));
        }
    }

    /// A producer's ring waits until its stream has room.
    pub fn stall(&self, shard: &Shard, producer: u64, now: Instant) {
        self.busy().room.add_ring(producer);
        self.expect_room(shard, now);
    }

    /// Somebody waits for room: after the pause timeout, or where there is a disk after the time
    /// that a reader has before the producer goes on there, it is asked again whatever happens.
    fn expect_room(&self, shard: &Shard, now: Instant) {
        let timeout = self.look(|session| session.settings().limits.pause_timeout);
        let timeout = if shard.wal().is_some() { timeout.min(DISK_WAIT) } else { timeout };
        let wait = self.busy().room.expect(now + timeout);
        if wait != Wait::Known {
            shard.counters.pauses.increment();
        }
        // A slow reader makes its producer wait many times a second: one line tells it.
        if wait == Wait::First {
            info!(session = %self.short, "a producer waits for a slow reader");
        }
    }

    /// The child's process is there.
    pub fn set_child(self: &Rc<Self>, shard: &Rc<Shard>, child: Child) {
        if self.look(|session| session.ended().is_some()) {
            child.close();
            shard.keep_until_closed(child);
            return;
        }
        if let Some(pipe) = &self.pipe {
            *pipe.child.borrow_mut() = Some(child);
        }
        self.with(shard, |_, behind, now| {
            if let Behind::Piped(piped) = behind {
                piped.handle_started(now);
            }
        });
    }

    /// Kills the child, if there is one.
    pub fn kill_child(&self) {
        if let Some(child) = self.child() {
            child.kill();
        }
    }

    /// The child could not be started, or is gone.
    pub fn handle_child_gone(self: &Rc<Self>, shard: &Rc<Shard>, reason: &str) {
        self.take_child();
        self.with(shard, |session, behind, now| {
            if let Behind::Piped(piped) = behind {
                piped.handle_exit(session, now, reason);
            }
        });
    }

    /// One line of the child's stdout.
    pub fn handle_child_line(self: &Rc<Self>, shard: &Rc<Shard>, line: &[u8]) {
        let heard = self.with(shard, |session, behind, now| match behind {
            Behind::Piped(piped) => piped.handle_line(session, now, line),
            Behind::InProcess(_) => Heard::Routed,
        });
        let what = match heard {
            Heard::Routed => return,
            Heard::Junk => "the server wrote a line that is no JSON-RPC",
            Heard::Unclaimed => "the server wrote a message that nobody waits for",
        };
        if shard.may_log() {
            let head = &line[..line.len().min(200)];
            warn!(session = %self.short, line = %head.escape_ascii(), "{what}");
        }
    }

    /// A line of the child was over the limit; `head` is its beginning. If it tells whose answer
    /// it was, that call gets an error instead of waiting for its timeout.
    pub fn handle_child_line_lost(self: &Rc<Self>, shard: &Rc<Shard>, head: &[u8]) {
        self.with(shard, |session, behind, now| {
            if let Behind::Piped(piped) = behind {
                piped.handle_line_lost(session, now, head);
            }
        });
    }

    /// So many bytes of lines are written.
    pub fn handle_child_written(&self, bytes: usize) {
        if let Behind::Piped(piped) = &mut *self.behind.borrow_mut() {
            piped.handle_written(bytes);
        }
        self.charge_queued();
    }

    /// Bytes that its session holds.
    pub fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// Bytes of lines that its child has not read.
    pub fn queued_bytes(&self) -> u64 {
        self.pipe.as_ref().map_or(0, |pipe| pipe.queued.bytes())
    }

    /// Reads what the peers' TCP of all its connections has acknowledged.
    pub fn read_all_acked(&self) {
        let streams: Vec<u32> = self.readers.borrow().iter().map(|(stream, _)| stream).collect();
        for stream in streams {
            self.read_acked(stream);
        }
    }

    /// Reads what the peer's TCP of a stream's connection has acknowledged.
    pub fn read_acked(&self, stream: u32) {
        let reader = self.readers.borrow().get(stream).cloned();
        if let Some(reader) = reader
            && let Some(acked) = reader.handle.read_acked()
        {
            self.session.borrow_mut().handle_acked(stream, reader.generation, acked);
        }
    }

    fn settle(self: &Rc<Self>, shard: &Rc<Shard>, now: Instant) {
        self.settle_effects(shard, now);
        self.settle_upstream(shard, now);
        // A producer that could not be started has answered its call.
        self.settle_effects(shard, now);
        loop {
            let told = self.session.borrow_mut().poll_told();
            let Some((ticket, outcome)) = told else { break };
            self.tell(ticket, outcome);
        }
        self.held.set(self.look(Session::bytes));
        self.charge_queued();
        shard.relieve_if_due();
        let done = self.session.borrow_mut().take_done();
        if done != Done::default() {
            self.count(shard, &done);
        }
        shard.write_log();
        let timeout = self.session.borrow().timeout();
        if let Some(at) = self.timer.set(timeout) {
            shard.insert_timer(at, Owner::Session(self.key()).into());
        }
    }

    fn count(&self, shard: &Shard, done: &Done) {
        shard.counters.streams_started.add(done.streams_started.into());
        shard.counters.streams_finished.add(done.streams_finished.into());
        shard.counters.events_appended.add(done.events.into());
        shard.counters.event_bytes_appended.add(done.event_bytes);
        shard.counters.session_reliefs.add(done.reliefs.into());
        shard.counters.answers_refused.add(done.answers_refused.into());
        if done.reliefs > 0 && shard.may_log() {
            let bytes = self.held_bytes();
            info!(session = %self.short, bytes, "a session was over its budget");
        }
        if done.answers_refused > 0 && shard.may_log() {
            warn!(session = %self.short, "an answer was refused: too many wait for others");
        }
    }

    /// So many calls found no room before the child.
    fn count_refused(&self, shard: &Shard, calls: u32) {
        shard.counters.inputs_refused.add(calls.into());
        if calls > 0 && shard.may_log() {
            let queued = self.queued_bytes();
            warn!(session = %self.short, queued, "a call was refused: no room before the child");
        }
    }

    fn settle_effects(self: &Rc<Self>, shard: &Rc<Shard>, now: Instant) {
        loop {
            let effect = self.session.borrow_mut().poll_effect();
            match effect {
                None => return,
                Some(Effect::Wake(stream)) => {
                    if let Some(reader) = self.readers.borrow().get(stream) {
                        reader.handle.signal.raise();
                    }
                }
                Some(Effect::Ready(exchange)) => {
                    if let Some(busy) = self.busy.get()
                        && let Some(signal) = busy.waits.borrow().get(exchange)
                    {
                        signal.raise();
                    }
                }
                Some(Effect::Close(stream, generation)) => self.cut(shard, stream, generation),
                Some(Effect::Relieve(stream)) => {
                    match self.look(Session::is_over_budget) {
                        true => self.read_all_acked(),
                        false => self.read_acked(stream),
                    }
                    let mut session = self.session.borrow_mut();
                    session.relieve(now, stream, &mut *self.behind.borrow_mut());
                }
                Some(Effect::Remember) => {
                    self.session.borrow_mut().remember(&*self.behind.borrow());
                }
                Some(Effect::Ended(why)) => self.handle_ended(shard, why),
            }
        }
    }

    fn settle_upstream(self: &Rc<Self>, shard: &Rc<Shard>, now: Instant) {
        match &mut *self.behind.borrow_mut() {
            Behind::InProcess(server) => {
                while let Some((call, flood)) = server.poll_off_core() {
                    let out = shard.producers.take(shard, self, About::Call(call));
                    let started = out.map(|out| off_core::start(out, flood));
                    if !matches!(started, Some(Ok(()))) {
                        let reason = "no thread is left for the call's events";
                        let mut session = self.session.borrow_mut();
                        session.respond_error(now, call, codes::SERVER_ERROR, reason, None);
                    }
                }
                if server.waits_for_room() {
                    self.expect_room(shard, now);
                }
                let due = server.timeout(now);
                self.run_at(shard, now, due);
            }
            Behind::Piped(piped) => {
                if piped.poll_spawn() {
                    shard.spawn_child(self);
                }
                self.count_refused(shard, piped.take_refused());
                self.settle_pause(shard, now);
                let due = piped.timeout();
                self.run_at(shard, now, due);
                if piped.poll_kill()
                    && let Some(child) = self.child()
                {
                    warn!(session = %self.short, "a restarted child did not let itself be set up");
                    child.kill();
                }
                if let Some(child) = self.child() {
                    while let Some(line) = piped.poll_line() {
                        child.send(line);
                    }
                }
            }
        }
    }

    /// Runs at `due`, or when somebody has waited for room long enough.
    fn run_at(self: &Rc<Self>, shard: &Shard, now: Instant, due: Option<Instant>) {
        match due.into_iter().chain(self.awaited_by()).min() {
            Some(at) if at <= now => self.make_runnable(shard),
            Some(at) => {
                if let Some(at) = self.busy().run_timer.set(at) {
                    shard.insert_timer(at, Owner::Run(self.key()).into());
                }
            }
            None => {}
        }
    }

    /// Stops or starts reading the child, by what its session wants.
    fn settle_pause(&self, shard: &Shard, now: Instant) {
        let Some(child) = self.child() else { return };
        let pause = self.look(|session| session.wants_pause(now));
        child.set_paused(pause);
        if pause {
            self.expect_room(shard, now);
        }
    }

    /// Puts it into the shard's list of sessions that produce.
    pub fn make_runnable(self: &Rc<Self>, shard: &Shard) {
        if !self.runnable.replace(true) {
            shard.add_work(Work::Session(Rc::clone(self)));
        }
    }

    fn cut(&self, shard: &Shard, stream: u32, generation: Generation) {
        let reader = self.readers.borrow().get(stream).cloned();
        if let Some(reader) = reader.filter(|reader| reader.generation == generation) {
            reader.handle.fence();
            shard.counters.cuts.increment();
            if shard.may_log() {
                warn!(session = %self.short, stream, "cut a reader that fell out of the log");
            }
        }
    }

    fn handle_ended(self: &Rc<Self>, shard: &Rc<Shard>, why: Ended) {
        if shard.remove_session(self) {
            info!(session = %self.short, why = why.name(), "session ended");
        }
        self.release_rings(shard);
        if let Some(child) = self.take_child() {
            child.close();
            shard.keep_until_closed(child);
        }
    }
}
