//! Crashes: a server with a data directory is killed in the middle of its load and started again,
//! on the same port, and everybody resumes.
//!
//! Invariants: a call ends once, with its result or with the error of a restart, and never with the
//! error where there was no crash since it began; whatever is read a second time is byte for byte
//! what it was the first time; what got 200 to its DELETE is never known again; no connection ends
//! early but by a crash.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::task::{JoinHandle, LocalSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::crash_call::{Call, Feed};
use crate::expect::{Expected, Payload};
use crate::http::{self, Connection};
use crate::options::Options;
use crate::run::{Run, Upstream, pick};
use crate::server::Server;
use crate::session::{ECHO_ARGUMENTS, Session};

/// How long the clients of a round may take to come to their ends.
const ROUND_TIME: Duration = Duration::from_secs(60);
/// The longest time of a round before its crash, milliseconds.
const CRASH_AFTER_MS: u64 = 400;
/// Finished calls of earlier rounds that are read again after each crash.
const READ_AGAIN: usize = 4;
/// Finished calls that are kept for that.
const KEPT_MAX: usize = 40;
/// Every so many rounds one has a stdio child behind the server.
const STDIO_PART: u64 = 5;

/// Whether the server is there, as far as its clients are to judge it.
pub struct Life {
    /// How often it was killed.
    pub crashes: Cell<u64>,
    /// Whether it runs.
    pub up: Cell<bool>,
}

impl Life {
    /// The server, at this moment.
    pub fn moment(&self) -> (u64, bool) {
        (self.crashes.get(), self.up.get())
    }

    /// Whether a connection that was begun at `moment` may have been cut by a crash.
    pub fn excuses(&self, moment: (u64, bool)) -> bool {
        moment != (self.crashes.get(), true)
    }
}

/// What outlives a round.
struct World {
    run: Rc<Run>,
    life: Rc<Life>,
    kept: RefCell<Vec<Call>>,
    deleted: RefCell<Vec<String>>,
}

/// `rounds` crashes, most of them with the built-in server; the number of faults.
///
/// # Errors
/// The server could not be started or the directory not be made.
pub async fn crash(options: &Options, rounds: u64) -> io::Result<usize> {
    let mut faults = 0;
    for upstream in &options.upstreams {
        let part = match upstream {
            Upstream::Stdio => rounds / STDIO_PART,
            Upstream::Builtin => rounds - rounds / STDIO_PART,
        };
        faults += crash_one(options, *upstream, part).await?;
    }
    Ok(faults)
}

async fn crash_one(options: &Options, upstream: Upstream, rounds: u64) -> io::Result<usize> {
    let name = format!("gapless-crash-{}-{upstream:?}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let started = Instant::now();
    let first = Server::durable(&options.program, options.shards, upstream, &dir, None)?;
    let run = Run::new(first.target.clone(), upstream, options.seed, true);
    let life = Rc::new(Life { crashes: Cell::new(0), up: Cell::new(true) });
    let (kept, deleted) = Default::default();
    let world = Rc::new(World { run: Rc::clone(&run), life, kept, deleted });
    let mut server = Some(first);
    let local = LocalSet::new();
    local.run_until(rounds_of(options, &world, &mut server, &dir, rounds)).await?;
    if let Some(server) = server {
        let faults = server.stop(true)?.faults.into_iter();
        // Sessions of earlier processes end here that did not start here.
        let judged = faults.filter(|fault| !fault.starts_with("sessions_started"));
        judged.for_each(|fault| run.fault(fault));
    }
    std::fs::remove_dir_all(&dir)?;
    let stats = run.stats.borrow();
    let seconds = started.elapsed().as_secs_f64();
    println!("{upstream:?}: {rounds} rounds, {} crashes, {seconds:.1} s", world.life.crashes.get());
    println!("  events checked: {}", stats.events);
    for (name, count) in &stats.counts {
        println!("  {name}: {count}");
    }
    if let Some(times) = stats.times.get("restart") {
        let [p50, max] = [0.5, 1.0].map(|q| times.value_at_quantile(q) as f64 / 1000.0);
        println!("  killed until it listens again, p50/max: {p50:.1} / {max:.1} ms");
    }
    println!("  faults: {}", run.faults());
    Ok(run.faults())
}

async fn rounds_of(
    options: &Options,
    world: &Rc<World>,
    server: &mut Option<Server>,
    dir: &PathBuf,
    rounds: u64,
) -> io::Result<()> {
    let mut dice = world.run.dice("crash", 0);
    for round in 0..rounds {
        let before = world.run.faults();
        let clients: Vec<JoinHandle<()>> = (0..options.sessions)
            .map(|index| {
                let (world, dice) =
                    (Rc::clone(world), world.run.dice("client", round << 32 | index));
                tokio::task::spawn_local(async move { client(&world, dice).await })
            })
            .collect();
        // Now and then the next crash comes while everybody is still coming back.
        let crashes = if dice.random_bool(0.2) { 2 } else { 1 };
        for crash in 0..crashes {
            let most = if crash == 0 { CRASH_AFTER_MS } else { 60 };
            sleep(Duration::from_millis(dice.random_range(0..=most))).await;
            kill_and_start(options, world, server, dir).await?;
        }
        for client in clients {
            match timeout(ROUND_TIME, client).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => world.run.fault(format!("a client failed: {error}")),
                Err(_) => world.run.fault(format!("not done {ROUND_TIME:?} after the crash")),
            }
        }
        look_back(world, &mut dice).await;
        if world.run.faults() > before {
            eprintln!("that was in round {round} of {:?}", world.run.upstream);
            break;
        }
    }
    Ok(())
}

async fn kill_and_start(
    options: &Options,
    world: &World,
    server: &mut Option<Server>,
    dir: &PathBuf,
) -> io::Result<()> {
    world.life.crashes.set(world.life.crashes.get() + 1);
    world.life.up.set(false);
    let started = Instant::now();
    let (program, shards) = (options.program.clone(), options.shards);
    let (dir, upstream, address) = (dir.clone(), world.run.upstream, world.run.target.address);
    let killed = server.take();
    let next = spawn_blocking(move || {
        if let Some(killed) = killed {
            killed.kill()?;
        }
        Server::durable(&program, shards, upstream, &dir, Some(address))
    });
    *server = Some(next.await.map_err(io::Error::other)??);
    world.run.time("restart", started);
    world.life.up.set(true);
    Ok(())
}

/// One session and what is done in it, over the crash.
async fn client(world: &Rc<World>, mut dice: StdRng) {
    sleep(Duration::from_millis(dice.random_range(0..100))).await;
    if let Err(what) = try_client(world, &mut dice).await {
        world.run.fault(what);
    }
}

async fn try_client(world: &World, dice: &mut StdRng) -> Result<(), String> {
    let session = Rc::new(begin(world).await?);
    let builtin = world.run.upstream == Upstream::Builtin;
    let feed = (builtin && dice.random_bool(0.3)).then(|| {
        Feed::new(&session, &world.life, world.run.dice("feed", dice.random_range(0..9999)))
    });
    let calls = async {
        for _ in 0..dice.random_range(1..=3) {
            // One pipe carries all calls of a child: only one at a time can be told apart.
            let many = if builtin { dice.random_range(1..=3) } else { 1 };
            let calls = (0..many).map(|_| {
                let own = world.run.dice("call", dice.random_range(0..u64::MAX));
                some_call(&session, &world.life, dice).read(own)
            });
            for call in futures_util::future::join_all(calls).await {
                let call = call?;
                if call.is_whole() && world.kept.borrow().len() < KEPT_MAX {
                    world.kept.borrow_mut().push(call);
                }
            }
        }
        Ok::<(), String>(())
    };
    let feeding = async {
        match feed {
            Some(feed) => feed.run().await,
            None => Ok(()),
        }
    };
    let (calls, fed) = futures_util::future::join(calls, feeding).await;
    calls?;
    fed?;
    echo(world, &session).await?;
    let is_kept = world.kept.borrow().iter().any(|call| call.session.id == session.id);
    if !is_kept && dice.random_bool(0.7) {
        delete(world, &session).await?;
    }
    Ok(())
}

/// Does `work` until no crash comes in between.
async fn through<T, F: Future<Output = io::Result<T>>>(
    life: &Life,
    work: impl Fn() -> F,
) -> Result<T, String> {
    loop {
        let moment = life.moment();
        match work().await {
            Ok(done) => return Ok(done),
            Err(error) if gone(&error) && life.excuses(moment) => {
                sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(format!("without a crash: {error}")),
        }
    }
}

/// Whether the server is not there, or went away.
pub fn gone(error: &io::Error) -> bool {
    http::is_cut(error) || error.kind() == io::ErrorKind::ConnectionRefused
}

async fn begin(world: &World) -> Result<Session, String> {
    let started = through(&world.life, || Session::start(&world.run)).await?;
    started.ok_or_else(|| "too many sessions".to_owned())
}

async fn echo(world: &World, session: &Session) -> Result<(), String> {
    through(&world.life, || async {
        let mut connection = Connection::open(&world.run.target, None).await?;
        let (id, request) = session.call("echo", ECHO_ARGUMENTS);
        connection.send(&request).await?;
        let mut response = connection.response().await?;
        let body = connection.body(&mut response).await?;
        session.check_echo(id, &response, &body)
    })
    .await
    .map_err(|error| format!("session {}: {error}", session.id))?;
    world.run.count("calls on a session after a crash");
    Ok(())
}

/// A DELETE that was answered is a promise.
async fn delete(world: &World, session: &Session) -> Result<(), String> {
    let status = through(&world.life, || async {
        let mut connection = Connection::open(&world.run.target, None).await?;
        let request = world.run.target.request("DELETE", &session.field(), "");
        Ok(connection.ask(&request).await?.0.status)
    })
    .await?;
    // 404 where the answer to an earlier one was cut off.
    if status != 200 && status != 404 {
        return Err(format!("DELETE: {status}"));
    }
    world.run.count("sessions deleted");
    world.deleted.borrow_mut().push(session.id.clone());
    Ok(())
}

fn some_call(session: &Rc<Session>, life: &Rc<Life>, dice: &mut StdRng) -> Call {
    let size = pick(dice, &[0, 64, 64, 1000, 8000]);
    let most = 2_000_000 / (size as u64 + 200);
    let count = (1_u64 << dice.random_range(0..12)).min(most) + dice.random_range(0..8);
    let interval = if count > 300 { 0 } else { pick(dice, &[0, 1, 1, 3]) };
    let (tool, payload) = match dice.random_bool(0.3) {
        true => ("progress", None),
        false => ("stream", Some(Payload::Padded(size))),
    };
    let arguments = match &payload {
        None => format!(r#"{{"count":{count},"interval_ms":{interval}}}"#),
        Some(_) => format!(r#"{{"count":{count},"size":{size},"interval_ms":{interval}}}"#),
    };
    let (id, opening) = session.call(tool, &arguments);
    let payload = payload.unwrap_or_else(|| Payload::Progress(format!("t{id}")));
    let expected = Expected { payload, series: vec![count], call: Some(id) };
    Call::new(session, life, expected, opening)
}

/// What was finished before the crash is as it was; what was deleted is gone.
async fn look_back(world: &World, dice: &mut StdRng) {
    let kept = world.kept.take();
    let mut left = Vec::new();
    for (index, mut call) in kept.into_iter().enumerate() {
        if index < READ_AGAIN {
            match call.read_again().await {
                Ok(()) => world.run.count("finished calls read again"),
                Err(what) => world.run.fault(what),
            }
        }
        // The oldest make room.
        if index >= READ_AGAIN || dice.random_bool(0.5) {
            left.push(call);
        }
    }
    world.kept.replace(left);
    for id in world.deleted.take() {
        let request = world.run.target.request("GET", &format!("Mcp-Session-Id: {id}\r\n"), "");
        let asked = async {
            let mut connection = Connection::open(&world.run.target, None).await?;
            connection.send(&request).await?;
            Ok::<u16, io::Error>(connection.response().await?.status)
        };
        match asked.await {
            Ok(404) => {}
            other => world.run.fault(format!("a deleted session after a crash: {other:?}")),
        }
    }
}
