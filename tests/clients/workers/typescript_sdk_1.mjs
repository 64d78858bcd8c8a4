// The official TypeScript SDK, 1.x.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

import { serve } from "./commands.mjs";
import { httpSse } from "./http_sse.mjs";

serve(async (url, onLog, name) => {
  const client = new Client({ name: "gapless-tests-ts1", version: "1" });
  const toLog = ({ params }) => onLog(params.data);
  client.setNotificationHandler(LoggingMessageNotificationSchema, toLog);
  const transport = name.startsWith("http-sse")
    ? httpSse(SSEClientTransport, new URL(url), name === "http-sse-mended")
    : new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  const call = (params, options) => client.callTool(params, undefined, options);
  return { client, transport, call };
});
