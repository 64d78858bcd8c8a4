// An event store in memory: what the TypeScript SDK needs so that a client can resume a stream.
//
// * An event's id is its stream's id, `/`, and its number in the stream, so that it is found again
//   without a search.
// * The oldest streams are dropped beyond STREAMS_MAX; a run would fill the memory otherwise.

// Streams that are kept.
const STREAMS_MAX = 10_000;

export class Memory {
  // A Map keeps the order of insertion: its first key is the oldest stream.
  #streams = new Map();

  async storeEvent(streamId, message) {
    let events = this.#streams.get(streamId);
    if (events === undefined) {
      if (this.#streams.size === STREAMS_MAX) {
        this.#streams.delete(this.#streams.keys().next().value);
      }
      events = [];
      this.#streams.set(streamId, events);
    }
    events.push(message);
    return `${streamId}/${events.length - 1}`;
  }

  async getStreamIdForEventId(eventId) {
    const streamId = eventId.slice(0, eventId.lastIndexOf("/"));
    return this.#streams.has(streamId) ? streamId : undefined;
  }

  async replayEventsAfter(lastEventId, { send }) {
    const slash = lastEventId.lastIndexOf("/");
    const streamId = lastEventId.slice(0, slash);
    const events = this.#streams.get(streamId) ?? [];
    for (let number = Number(lastEventId.slice(slash + 1)) + 1; number < events.length; number++) {
      await send(`${streamId}/${number}`, events[number]);
    }
    return streamId;
  }
}
