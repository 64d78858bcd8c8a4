// The official TypeScript client package of SDK 2.x, in its default (2025 revisions) mode.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { serve } from "./commands.mjs";
import { httpSse } from "./http_sse.mjs";

serve(async (url, onLog, name) => {
  const client = new Client({ name: "gapless-tests-ts2", version: "1" });
  client.setNotificationHandler("notifications/message", ({ params }) => onLog(params.data));
  const transport = name.startsWith("http-sse")
    ? httpSse(SSEClientTransport, new URL(url), name === "http-sse-mended")
    : new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  const call = (params, options) => client.callTool(params, options);
  return { client, transport, call };
});
