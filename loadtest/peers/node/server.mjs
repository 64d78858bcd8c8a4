// An MCP server on the TypeScript SDK with the tools `echo` and `stream` that gapless' built-in
// server has.
//
// `node server.mjs MODE` listens on a free port of 127.0.0.1 and prints its endpoint. The modes, all
// of them with sessions:
//
// * `json`: answers as JSON.
// * `sse`: answers as SSE streams that cannot be resumed after their end.
// * `store`: the same with an event store in memory, so that streams can be resumed.
//
// The SDK's low-level server and node's own HTTP: nothing is measured but the SDK.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { CallToolRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { Memory } from "./store.mjs";

const mode = process.argv[2];
if (!["json", "sse", "store"].includes(mode)) {
  console.error("usage: node server.mjs json|sse|store");
  process.exit(2);
}
const transports = new Map();
const eventStore = mode === "store" ? new Memory() : undefined;

function text(words) {
  return { content: [{ type: "text", text: words }] };
}

async function stream({ count, size }, send) {
  const pad = "x".repeat(size);
  for (let seq = 1; seq <= count; seq++) {
    const params = { level: "info", logger: "stream", data: { seq, pad } };
    await send({ method: "notifications/message", params });
  }
  return text(`${count} events sent`);
}

function newServer() {
  const capabilities = { logging: {}, tools: {} };
  const server = new Server({ name: "gapless-peer", version: "1" }, { capabilities });
  server.setRequestHandler(CallToolRequestSchema, ({ params }, extra) => {
    switch (params.name) {
      case "echo":
        return text(params.arguments.text);
      case "stream":
        return stream(params.arguments, extra.sendNotification);
      default:
        throw new Error(`no tool ${params.name}`);
    }
  });
  return server;
}

async function newTransport() {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => transports.set(id, transport),
    onsessionclosed: (id) => transports.delete(id),
    enableJsonResponse: mode === "json",
    eventStore,
  });
  await newServer().connect(transport);
  return transport;
}

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString());
}

async function answer(request, response) {
  const message = request.method === "POST" ? await body(request) : undefined;
  const id = request.headers["mcp-session-id"];
  const transport = id === undefined ? await newTransport() : transports.get(id);
  if (transport === undefined) {
    response.writeHead(404).end();
    return;
  }
  await transport.handleRequest(request, response, message);
}

const http = createServer((request, response) => {
  answer(request, response).catch((error) => {
    console.error(error);
    response.destroy();
  });
});
http.listen(0, "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${http.address().port}/mcp`);
});
