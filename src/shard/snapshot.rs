//! What a shard says of itself when somebody asks.

use std::rc::Rc;
use std::time::Instant;

use crate::obs::snapshot::{LogSnapshot, SessionSnapshot, ShardSnapshot, StreamSnapshot};
use crate::stream::Stream;

use super::Shard;
use super::live::Live;

/// The shard as it stands.
pub fn of_shard(shard: &Shard) -> ShardSnapshot {
    let budget = &shard.budget;
    let log = shard.wal().map(|wal| {
        let journal = wal.journal().borrow();
        LogSnapshot {
            disk_bytes: journal.disk_bytes(),
            pending_bytes: journal.pending_bytes(),
            disk_full: journal.is_disk_full(),
            fault: journal.poisoned().map(|fault| format!("{fault:?}")),
        }
    });
    ShardSnapshot {
        shard: shard.index,
        sessions: shard.sessions().len(),
        connections: shard.connections().len(),
        draining: shard.draining.get(),
        budget_bytes: budget.most(),
        session_bytes: budget.sessions(),
        transit_bytes: budget.transit(),
        log,
    }
}

/// A session as it stands. Acknowledgements are read first, so that what is shown as confirmed is
/// so now.
pub fn of_session(shard: &Shard, live: &Rc<Live>) -> SessionSnapshot {
    let numbers = live.look(|session| session.stream_numbers());
    numbers.iter().for_each(|&number| live.read_acked(number));
    live.look(|session| SessionSnapshot {
        session: live.short.to_string(),
        shard: shard.index,
        server: session.settings().server_name.to_string(),
        revision: session.revision_name().to_owned(),
        calls: session.open_calls(),
        bytes: live.held_bytes(),
        queued_bytes: live.queued_bytes(),
        streams: numbers
            .into_iter()
            .filter_map(|number| session.stream(number).map(|stream| of_stream(number, stream)))
            .collect(),
    })
}

fn of_stream(number: u32, stream: &Stream) -> StreamSnapshot {
    let waiting = stream.unsent_since().map(|since| Instant::now().duration_since(since));
    StreamSnapshot {
        stream: number,
        attached: stream.attached().is_some(),
        finished: stream.is_finished(),
        floor: stream.floor(),
        tail: stream.tail(),
        sent: stream.sent(),
        confirmed: stream.confirmed(),
        named: stream.named(),
        committed: stream.committed(),
        log_bytes: stream.bytes(),
        disk_bytes: stream.disk_bytes(),
        unconfirmed_bytes: stream.unconfirmed_bytes(),
        lag_events: stream.tail().saturating_sub(stream.sent()),
        lag_bytes: stream.unsent_bytes(),
        lag_s: waiting.unwrap_or_default().as_secs_f32(),
    }
}
