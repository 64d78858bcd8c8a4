//! The checking client: good and bad clients against a gapless server, every event checked.
//!
//! One thread, one task for each client. The seed decides every choice of every client; when
//! something happens is left to the machine.

mod bad;
mod crash;
mod crash_call;
mod expect;
mod http;
mod options;
mod reader;
mod report;
mod run;
mod server;
mod session;
mod sse;
mod storm;
mod unread;

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::sleep;

use options::Options;
use report::Report;
use run::{Run, Upstream};
use server::{Holdings, IDLE_SECONDS, Server, Stopped};

/// How long a server may take, beyond its idle timeout, to give back what its clients left.
const EXPIRY_SLACK: Duration = Duration::from_secs(15);
/// How long a server is under load before it is stopped in the middle of it, and the part of the
/// choices that is made there.
const STOP_AFTER: Duration = Duration::from_secs(2);
const STOP_PART: u64 = 9;
/// How long good clients may take to come to their ends once the time is over.
const FINISH_TIME: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    let options = match Options::from_args() {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("checker: {error}");
            return ExitCode::from(2);
        }
    };
    eprintln!("seed {}", options.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let mut whole = true;
    if let Some(rounds) = options.crash {
        let done = match &runtime {
            Ok(runtime) => runtime.block_on(crash::crash(&options, rounds)),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        return match done {
            Ok(0) => ExitCode::SUCCESS,
            Ok(faults) => {
                eprintln!("{faults} faults; the same choices again: --seed {}", options.seed);
                ExitCode::FAILURE
            }
            Err(error) => {
                eprintln!("FAULT (seed {}): {error}", options.seed);
                ExitCode::FAILURE
            }
        };
    }
    for upstream in options.upstreams.clone() {
        let done = match &runtime {
            Ok(runtime) => runtime.block_on(asked_for(&options, upstream)),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        match done {
            Ok(faults) => whole &= faults == 0,
            Err(error) => {
                eprintln!("FAULT (seed {}): {error}", options.seed);
                whole = false;
            }
        }
    }
    if whole {
        return ExitCode::SUCCESS;
    }
    eprintln!("the same choices again: --seed {}", options.seed);
    ExitCode::FAILURE
}

/// What the options ask for, printed; the number of faults.
async fn asked_for(options: &Options, upstream: Upstream) -> io::Result<usize> {
    let Some(mebibytes) = options.unread else {
        let report = check(options, upstream).await?;
        println!("{report}");
        return Ok(report.faults);
    };
    let target = options.target.clone().ok_or_else(|| io::Error::other("--unread needs --url"))?;
    let run = Run::new(target, upstream, options.seed, options.smoke);
    let found = unread::unread(&run, mebibytes, options.time, options.foreign).await?;
    println!("{}", serde_json::to_string(&found)?);
    Ok(run.faults())
}

/// Everything, against one server.
async fn check(options: &Options, upstream: Upstream) -> io::Result<Report> {
    let server = match &options.target {
        Some(_) => None,
        None => Some(Server::start(&options.program, options.shards, upstream)?),
    };
    let target = options.target.clone().or_else(|| server.as_ref().map(|s| s.target.clone()));
    let target = target.ok_or_else(|| io::Error::other("no server"))?;
    let run = Run::new(target, upstream, options.seed, options.smoke);
    let mut holdings = Vec::new();
    if let Some(server) = &server {
        holdings.push(("at start", server.holdings()?));
    }
    // The first tenth fills pools and caches: what is held after it is what later ends compare to.
    let mut seconds = 0.0;
    let parts = if options.leak_check {
        vec![("after a tenth", options.time / 10), ("at the end", options.time * 9 / 10)]
    } else {
        vec![("at the end", options.time)]
    };
    for (part, (name, time)) in (0..).zip(parts) {
        let started = Instant::now();
        load(&run, options, time, part).await;
        seconds += started.elapsed().as_secs_f64();
        if let Some(server) = server.as_ref().filter(|_| options.leak_check) {
            holdings.push((name, settled(&run, server).await?));
        }
    }
    let storm = match options.storm {
        0 => None,
        streams => Some((streams, storm::storm(&run, streams).await?)),
    };
    if let Some(server) = server.as_ref().filter(|_| options.leak_check) {
        if storm.is_some() {
            holdings.push(("after the storm", settled(&run, server).await?));
        }
        compare(&run, &holdings, options.memory_slack_mib);
    }
    let mut totals = BTreeMap::new();
    if let Some(server) = server {
        let stopped = server.stop(true)?;
        let under_load = stop_under_load(options, upstream).await?;
        stopped.faults.into_iter().chain(under_load.faults).for_each(|fault| run.fault(fault));
        totals = stopped.totals;
    }
    let stats = std::mem::take(&mut *run.stats.borrow_mut());
    Ok(Report {
        upstream,
        seed: options.seed,
        seconds,
        stats,
        holdings,
        storm,
        totals,
        faults: run.faults(),
    })
}

/// Good and bad clients side by side for `time`, and until the good ones are done. Each `part` of
/// the run has choices of its own.
async fn load(run: &Rc<Run>, options: &Options, time: Duration, part: u64) {
    run.extend(time);
    let local = LocalSet::new();
    let clients = start_clients(&local, run, options, part);
    let all = local.run_until(join_all(clients));
    match tokio::time::timeout(time + FINISH_TIME, all).await {
        Ok(ends) => {
            for error in ends.into_iter().filter_map(Result::err) {
                run.fault(format!("a client of the checker failed: {error}"));
            }
        }
        Err(_) => run.fault(format!("clients were not done {FINISH_TIME:?} after the end")),
    }
}

fn start_clients(
    local: &LocalSet,
    run: &Rc<Run>,
    options: &Options,
    part: u64,
) -> Vec<JoinHandle<()>> {
    let mut clients = vec![local.spawn_local(session::echo(Rc::clone(run)))];
    for index in 0..options.sessions {
        let good = session::good_clients(Rc::clone(run), part << 32 | index, options.streams);
        clients.push(local.spawn_local(good));
    }
    for index in 0..options.bad {
        let bad = bad::bad_clients(Rc::clone(run), part << 32 | index);
        clients.push(local.spawn_local(bad));
    }
    clients
}

/// SIGTERM to a server of its own while all clients are at work. What they see of it is not judged.
async fn stop_under_load(options: &Options, upstream: Upstream) -> io::Result<Stopped> {
    let server = Server::start(&options.program, options.shards, upstream)?;
    let run = Run::new(server.target.clone(), upstream, options.seed, options.smoke);
    run.ignore_faults();
    run.extend(STOP_AFTER);
    let local = LocalSet::new();
    let clients = start_clients(&local, &run, options, STOP_PART);
    local.run_until(sleep(STOP_AFTER)).await;
    let stopped = local.run_until(tokio::task::spawn_blocking(move || server.stop(false))).await;
    clients.iter().for_each(JoinHandle::abort);
    stopped.map_err(io::Error::other)?
}

/// What the server holds once everything that was left behind has expired.
async fn settled(run: &Run, server: &Server) -> io::Result<Holdings> {
    let deadline = Instant::now() + Duration::from_secs(IDLE_SECONDS) + EXPIRY_SLACK;
    loop {
        let holdings = server.holdings()?;
        if holdings.sessions == 0 && holdings.children == 0 {
            // Memory and connections of the last ones go a moment later.
            sleep(Duration::from_secs(6)).await;
            return server.holdings();
        }
        if Instant::now() > deadline {
            run.fault(format!("not given back in time: {holdings:?}"));
            return Ok(holdings);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

fn compare(run: &Run, holdings: &[(&str, Holdings)], memory_slack_mib: u64) {
    let (Some((_, start)), Some((_, warm))) = (holdings.first(), holdings.get(1)) else { return };
    for (when, held) in holdings.iter().skip(1) {
        if held.fds > start.fds {
            run.fault(format!("{when}: {} open files, {} at start", held.fds, start.fds));
        }
        if held.threads > warm.threads.max(start.threads) {
            run.fault(format!("{when}: {} threads, {} before", held.threads, warm.threads));
        }
        if held.children + usize::try_from(held.sessions).unwrap_or(usize::MAX) > 0 {
            run.fault(format!("{when}: {} children, {} sessions", held.children, held.sessions));
        }
        if held.memory_kib > warm.memory_kib + memory_slack_mib * 1024 {
            let (now, before) = (held.memory_kib, warm.memory_kib);
            run.fault(format!("{when}: {now} KiB of memory, {before} KiB after a tenth"));
        }
    }
}
