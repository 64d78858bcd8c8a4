//! Where every stream stands, to the log: what SIGUSR1 asks for.

use std::rc::Rc;
use std::time::Instant;

use tracing::info;

use crate::stream::Stream;

use super::Shard;
use super::live::Live;

/// Logs one line for each session of this shard, for each of its streams, and for the shard.
/// Acknowledgements are read first, so that what is shown as confirmed is so now.
pub(super) fn dump(shard: &Rc<Shard>) {
    let sessions = shard.sessions();
    for live in &sessions {
        let (numbers, calls) = live.look(|s| (s.stream_numbers(), s.open_calls()));
        info!(
            session = %live.short,
            streams = numbers.len(),
            calls,
            bytes = live.held_bytes(),
            queued_bytes = live.queued_bytes(),
            "where a session stands"
        );
        for number in numbers {
            live.read_acked(number);
            live.look(|session| {
                if let Some(stream) = session.stream(number) {
                    log_stream(live, number, stream);
                }
            });
        }
    }
    let connections = shard.connections().len();
    let (budget, counters) = (&shard.budget, &shard.counters);
    info!(
        shard = shard.index,
        sessions = sessions.len(),
        connections,
        budget_bytes = budget.most(),
        session_bytes = budget.sessions(),
        transit_bytes = budget.transit(),
        pauses = counters.pauses.get(),
        cuts = counters.cuts.get(),
        reliefs = counters.reliefs.get(),
        session_reliefs = counters.session_reliefs.get(),
        bodies_refused = counters.bodies_refused.get(),
        answers_refused = counters.answers_refused.get(),
        inputs_refused = counters.inputs_refused.get(),
        "where a shard stands"
    );
    if let Some(wal) = shard.wal() {
        let journal = wal.journal().borrow();
        info!(
            shard = shard.index,
            disk_bytes = journal.disk_bytes(),
            pending_bytes = journal.pending_bytes(),
            disk_full = journal.is_disk_full(),
            fault = ?journal.poisoned(),
            "where a log stands"
        );
    }
}

fn log_stream(live: &Live, number: u32, stream: &Stream) {
    let waiting = stream.unsent_since().map(|since| Instant::now().duration_since(since));
    info!(
        session = %live.short,
        stream = number,
        attached = stream.attached().is_some(),
        finished = stream.is_finished(),
        floor = stream.floor(),
        tail = stream.tail(),
        sent = stream.sent(),
        confirmed = stream.confirmed(),
        named = stream.named(),
        log_bytes = stream.bytes(),
        disk_bytes = stream.disk_bytes(),
        committed = stream.committed(),
        unconfirmed_bytes = stream.unconfirmed_bytes(),
        lag_events = stream.tail().saturating_sub(stream.sent()),
        lag_bytes = stream.unsent_bytes(),
        lag_s = waiting.unwrap_or_default().as_secs_f32(),
        "where a stream stands"
    );
}
