//! Where every stream stands, to the log: what SIGUSR1 asks for.

use std::rc::Rc;

use tracing::info;

use crate::obs::snapshot::{SessionSnapshot, StreamSnapshot};

use super::{Shard, snapshot};

/// Logs one line for each session of this shard, for each of its streams, and for the shard.
pub(super) fn dump(shard: &Rc<Shard>) {
    for live in &shard.sessions() {
        log_session(&snapshot::of_session(shard, live));
    }
    let (now, counters) = (snapshot::of_shard(shard), &shard.counters);
    info!(
        shard = now.shard,
        sessions = now.sessions,
        connections = now.connections,
        budget_bytes = now.budget_bytes,
        session_bytes = now.session_bytes,
        transit_bytes = now.transit_bytes,
        pauses = counters.pauses.get(),
        cuts = counters.cuts.get(),
        reliefs = counters.reliefs.get(),
        session_reliefs = counters.session_reliefs.get(),
        bodies_refused = counters.bodies_refused.get(),
        answers_refused = counters.answers_refused.get(),
        inputs_refused = counters.inputs_refused.get(),
        "where a shard stands"
    );
    if let Some(log) = now.log {
        info!(
            shard = now.shard,
            disk_bytes = log.disk_bytes,
            pending_bytes = log.pending_bytes,
            disk_full = log.disk_full,
            fault = log.fault,
            "where a log stands"
        );
    }
}

fn log_session(session: &SessionSnapshot) {
    info!(
        session = session.session,
        streams = session.streams.len(),
        calls = session.calls,
        bytes = session.bytes,
        queued_bytes = session.queued_bytes,
        "where a session stands"
    );
    for stream in &session.streams {
        log_stream(&session.session, stream);
    }
}

fn log_stream(session: &str, stream: &StreamSnapshot) {
    info!(
        session,
        stream = stream.stream,
        attached = stream.attached,
        finished = stream.finished,
        floor = stream.floor,
        tail = stream.tail,
        sent = stream.sent,
        confirmed = stream.confirmed,
        named = stream.named,
        log_bytes = stream.log_bytes,
        disk_bytes = stream.disk_bytes,
        committed = stream.committed,
        unconfirmed_bytes = stream.unconfirmed_bytes,
        lag_events = stream.lag_events,
        lag_bytes = stream.lag_bytes,
        lag_s = stream.lag_s,
        "where a stream stands"
    );
}
