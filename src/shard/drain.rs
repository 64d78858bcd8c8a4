//! The planned end of a shard: SIGTERM, `docs/wire.md`, "Drain".

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use monoio::time::sleep;
use tracing::{info, warn};

use crate::net::handle::Phase;
use crate::session::Ended;

use super::Shard;

/// How long a connection that has just been accepted may take for its first request: its client
/// has been promised nothing else, and would find it broken for no reason of its own.
const FIRST_REQUEST_TIME: Duration = Duration::from_millis(500);
/// How often the drain looks whether calls and connections are done.
const LOOK: Duration = Duration::from_millis(10);
/// How long connections may take for their planned close once all calls are answered.
const CLOSE_TIME: Duration = Duration::from_secs(2);
/// How long the last bytes of a stream that its session's end cut short may take.
const LAST_WRITES: Duration = Duration::from_millis(100);

/// Serves open calls until `deadline`, answers the rest with errors, ends streams in the planned
/// way, then children; tells the process that this shard is done.
pub async fn drain(shard: Rc<Shard>, deadline: Instant) {
    if shard.draining.replace(true) {
        return;
    }
    shard.stop_accepting.raise();
    let first_requests = Instant::now() + FIRST_REQUEST_TIME;
    close_idle(&shard, first_requests);
    while Instant::now() < deadline && open_calls(&shard) > 0 {
        sleep(LOOK).await;
        close_idle(&shard, first_requests);
    }
    let unanswered = open_calls(&shard);
    if unanswered > 0 {
        warn!(unanswered, "the drain's deadline has come: open calls are answered with errors");
    }
    for live in shard.sessions() {
        live.with(&shard, |session, _, now| session.drain(now));
    }
    let end = Instant::now() + CLOSE_TIME;
    while Instant::now() < end && !shard.connections().is_empty() {
        sleep(LOOK).await;
        close_idle(&shard, first_requests);
    }
    for live in shard.sessions() {
        live.with(&shard, |session, _, now| {
            // Calls that came after the others had been answered.
            session.drain(now);
            // One that outlives the process goes on after the restart, wherever that is.
            session.leave();
            session.end(Ended::Drained);
        });
    }
    let end = Instant::now() + LAST_WRITES;
    while Instant::now() < end && !shard.connections().is_empty() {
        sleep(LOOK).await;
    }
    end_children(&shard).await;
    if let Some(wal) = shard.wal() {
        wal.close().await;
    }
    info!(shard = shard.index, "drained");
    shard.process.handle_drained();
}

fn open_calls(shard: &Rc<Shard>) -> usize {
    shard.sessions().iter().map(|live| live.look(|session| session.open_calls())).sum()
}

/// Returns when every child is gone, those that were still being started included: the process
/// ends next, and nobody would stop them.
async fn end_children(shard: &Rc<Shard>) {
    loop {
        // They stay in the shard's list: a second signal has to find them.
        let closing = shard.closing();
        if closing.is_empty() && shard.spawning.get() == 0 {
            return;
        }
        for child in closing {
            child.closed().await;
        }
        if shard.spawning.get() > 0 {
            sleep(LOOK).await;
        }
    }
}

/// Kills every child: nobody will be there to stop it.
pub(super) fn kill_children(shard: &Rc<Shard>) {
    shard.killing.set(true);
    for live in shard.sessions() {
        live.kill_child();
    }
    for child in shard.closing() {
        child.kill();
    }
    shard.process.killed.fetch_add(1, Ordering::Relaxed);
}

/// Connections between requests end at once, those that wait for their first one from then on.
fn close_idle(shard: &Rc<Shard>, first_requests: Instant) {
    let now = Instant::now();
    for handle in shard.connections() {
        let may_stay = handle.is_fresh() && now < first_requests;
        if matches!(handle.phase.get(), Phase::Idle | Phase::Hot) && !may_stay {
            handle.stop();
        }
    }
}
