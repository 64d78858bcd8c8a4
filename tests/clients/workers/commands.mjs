// Reads one JSON command a line from stdin, answers one JSON line each on stdout: the whole
// interface between the harness and a TypeScript client. `connect(url, onLog, transport)` is what
// differs between the SDKs. Commands of one session may overlap, so that two calls run at once.

import { createInterface } from "node:readline";

export function serve(connect) {
  const sessions = new Map();

  const operations = {
    async open({ session, url, transport: name }) {
      const logged = [];
      const connected = await connect(url, (data) => logged.push(data), name);
      sessions.set(session, { ...connected, logged });
      const { client, transport } = connected;
      return { server: client.getServerVersion().name, protocol: transport.protocolVersion };
    },
    async list({ session }) {
      const { tools } = await sessions.get(session).client.listTools();
      return { tools: tools.map((tool) => tool.name) };
    },
    async call({ session, name, args, progress, timeout_ms }) {
      const { call, logged } = sessions.get(session);
      const seen = [];
      const from = logged.length;
      const options = { timeout: timeout_ms };
      if (progress) options.onprogress = (update) => seen.push(update.progress);
      const result = await call({ name, arguments: args }, options);
      return {
        texts: result.content.map((part) => part.text),
        is_error: result.isError ?? false,
        progress: seen,
        logged: logged.slice(from),
      };
    },
    async close({ session }) {
      const { client, transport } = sessions.get(session);
      sessions.delete(session);
      // The SDK leaves the session on the server unless it is told to end it.
      await transport.terminateSession();
      await client.close();
      return {};
    },
  };

  createInterface({ input: process.stdin })
    .on("line", async (line) => {
      const { id, op, ...command } = JSON.parse(line);
      let answer;
      try {
        answer = { id, ok: await operations[op](command) };
      } catch (error) {
        answer = { id, error: `${error.name}: ${error.message}` };
      }
      process.stdout.write(`${JSON.stringify(answer)}\n`);
    })
    .on("close", () => process.exit(0));
}
