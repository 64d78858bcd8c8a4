//! The planned end of a shard: SIGTERM, `docs/wire.md`, "Drain".

use std::rc::Rc;
use std::time::{Duration, Instant};

use monoio::time::sleep;
use tracing::{info, warn};

use crate::net::handle::Phase;
use crate::session::Ended;

use super::Shard;

/// How often the drain looks whether calls and connections are done.
const LOOK: Duration = Duration::from_millis(10);
/// How long connections may take for their planned close once all calls are answered.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Serves open calls until `deadline`, answers the rest with errors, ends streams in the planned
/// way, then children; tells the process that this shard is done.
pub async fn drain(shard: Rc<Shard>, deadline: Instant) {
    if shard.draining.replace(true) {
        return;
    }
    shard.stop_accepting.raise();
    close_idle(&shard);
    while Instant::now() < deadline && open_calls(&shard) > 0 {
        sleep(LOOK).await;
        close_idle(&shard);
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
        close_idle(&shard);
    }
    for live in shard.sessions() {
        live.with(&shard, |session, _, _| session.end(Ended::Drained));
    }
    for child in shard.take_closing() {
        child.closed().await;
    }
    info!(shard = shard.index, "drained");
    shard.process.handle_drained();
}

fn open_calls(shard: &Rc<Shard>) -> usize {
    shard.sessions().iter().map(|live| live.look(|session| session.open_calls())).sum()
}

/// Connections between requests end at once.
fn close_idle(shard: &Rc<Shard>) {
    for handle in shard.connections() {
        if matches!(handle.phase.get(), Phase::Idle | Phase::Hot) {
            handle.stop();
        }
    }
}
