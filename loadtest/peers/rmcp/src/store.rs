//! An event store in memory: what rmcp needs so that a client can resume a stream.
//!
//! * An event's id is its stream's id, `/`, and its number in the stream, so that it is found again
//!   without a search.
//! * The oldest streams are dropped beyond `STREAMS_MAX`; a run would fill the memory otherwise.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use rmcp::transport::streamable_http_server::session::{
    EventStore, EventStoreError, EventStream, ServerSseMessage,
};

/// Streams that are kept.
const STREAMS_MAX: usize = 10_000;

#[derive(Default)]
struct Streams {
    by_id: HashMap<String, Vec<ServerSseMessage>>,
    oldest_first: VecDeque<String>,
}

/// The store. One lock is no bottleneck on one thread.
#[derive(Default)]
pub struct Memory {
    streams: Mutex<Streams>,
}

#[async_trait::async_trait]
impl EventStore for Memory {
    async fn store_event(
        &self,
        stream_id: &str,
        event: &ServerSseMessage,
    ) -> Result<String, EventStoreError> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if !streams.by_id.contains_key(stream_id) {
            if streams.oldest_first.len() == STREAMS_MAX
                && let Some(oldest) = streams.oldest_first.pop_front()
            {
                streams.by_id.remove(&oldest);
            }
            streams.oldest_first.push_back(stream_id.to_owned());
            streams.by_id.insert(stream_id.to_owned(), Vec::new());
        }
        let Some(events) = streams.by_id.get_mut(stream_id) else {
            return Err("the stream was just inserted".into());
        };
        let id = format!("{stream_id}/{}", events.len());
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        events.push(event);
        Ok(id)
    }

    async fn replay_events_after(
        &self,
        last_event_id: &str,
    ) -> Result<EventStream, EventStoreError> {
        let (stream_id, number) = last_event_id.rsplit_once('/').ok_or("not an id of ours")?;
        let number: usize = number.parse()?;
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let events = streams.by_id.get(stream_id).ok_or("the stream is unknown or dropped")?;
        let after = events.get(number + 1..).unwrap_or_default().to_vec();
        Ok(Box::pin(futures::stream::iter(after)))
    }
}
