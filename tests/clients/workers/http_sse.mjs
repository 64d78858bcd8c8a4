// The HTTP+SSE transport of either TypeScript SDK, with what the commands ask of a transport.

export function httpSse(SSEClientTransport, url, mended) {
  class Transport extends SSEClientTransport {
    setProtocolVersion(version) {
      super.setProtocolVersion(version);
      this.protocolVersion = version;
    }

    // This transport has no way to say so: the session ends some time after its stream.
    async terminateSession() {}
  }
  return new Transport(url, mended ? { eventSourceInit: { fetch: mendingFetch() } } : {});
}

// Makes up for two faults of the SDKs. They replace the header fields of their EventSource by
// their own, so the `Last-Event-ID` that it sends when it comes back is lost: this one reads the
// ids itself and puts it back. And they lose the progress that comes in one piece with the answer:
// this one hands the stream on event by event.
function mendingFetch() {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  let cursor;
  return async (url, init) => {
    const headers = new Headers(init.headers);
    if (cursor) headers.set("Last-Event-ID", cursor);
    const response = await fetch(url, { ...init, headers });
    if (!response.ok) return response;
    let text = "";
    const events = new TransformStream({
      transform(chunk, controller) {
        text += decoder.decode(chunk, { stream: true });
        for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
          const event = text.slice(0, end + 2);
          cursor = /^id: ?(.*)$/m.exec(event)?.[1] ?? cursor;
          controller.enqueue(encoder.encode(event));
        }
      },
    });
    return new Response(response.body.pipeThrough(events), response);
  };
}
