"""Memory of idle sessions, each with an open GET stream."""

import http.client
import resource
import time

from cases import Server, gapless, resident
from peers import CEILING, COMMANDS, GAPLESS, RMCP_STATEFUL, TYPESCRIPT_SSE

# Sessions at which the memory is looked at.
SESSIONS = (500, 1000, 2000)
# Seconds after which a server has put away what it keeps for busy clients only.
SETTLED_AFTER = 5
# Open files that the connections need, with room to spare.
FILES = 16 * 1024


class IdleSessions:
    def __init__(self, server):
        self.server = server
        self.open = []

    def grow(self, count):
        endpoint = self.server.endpoint
        while len(self.open) < count:
            session = endpoint.initialize()
            connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=30)
            headers = {"Accept": "text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
            if session:
                headers["Mcp-Session-Id"] = session
            connection.request("GET", endpoint.path, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise SystemExit(f"an idle stream was answered {response.status}")
            # The response holds the socket open.
            self.open.append((session, connection, response))
        time.sleep(SETTLED_AFTER)
        return resident(self.server.pid)

    def end(self):
        endpoint = self.server.endpoint
        for session, connection, response in self.open:
            response.close()
            connection.close()
            if session:
                goodbye = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=30)
                goodbye.request("DELETE", endpoint.path, headers={"Mcp-Session-Id": session})
                goodbye.getresponse().read()
                goodbye.close()
        time.sleep(SETTLED_AFTER)
        return resident(self.server.pid)


def memory(chosen):
    """For each server: KiB of its own memory by sessions, and after all have gone."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, FILES), most))
    programs = {
        CEILING: COMMANDS[CEILING],
        GAPLESS: gapless(chosen.program, "auto"),
        RMCP_STATEFUL: COMMANDS[RMCP_STATEFUL],
        TYPESCRIPT_SSE: COMMANDS[TYPESCRIPT_SSE],
    }
    for name, command in programs.items():
        server = Server(command, chosen.server_cpu)
        try:
            sessions = IdleSessions(server)
            sizes = [[0, resident(server.pid)]]
            sizes += [[count, sessions.grow(count)] for count in SESSIONS]
            yield {"server": name, "sizes": sizes, "after": sessions.end()}
        finally:
            server.stop()
