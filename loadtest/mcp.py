"""The little of MCP that a load run needs: a session, a call, a finished stream. Only loopback."""

import http.client
import json
import re
import urllib.parse

REVISION = "2025-11-25"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": REVISION,
}


class Endpoint:
    """One MCP endpoint on this machine."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in LOOPBACK:
            raise SystemExit(f"{url}: load goes to http:// on this machine only")
        self.url = url
        self.host = parts.hostname
        self.port = parts.port or 80
        self.path = parts.path or "/"

    def post(self, message, session=None):
        """Status, headers and the whole body of the answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        headers = HEADERS | ({"Mcp-Session-Id": session} if session else {})
        connection.request("POST", self.path, json.dumps(message), headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, response.headers, body

    def initialize(self):
        """A new session's id; None where the server keeps no sessions."""
        params = {
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": {"name": "loadtest", "version": "1"},
        }
        status, headers, body = self.post(request(0, "initialize", params))
        if status != 200:
            raise SystemExit(f"{self.url}: initialize was answered {status} {body[:400]!r}")
        session = headers.get("Mcp-Session-Id")
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
        return session

    def check_echo(self, session, call, text, media_type):
        """One call by hand: a fast answer is worth nothing unless it is the right one."""
        status, headers, body = self.post(call, session)
        kind = headers.get("Content-Type", "")
        if status != 200 or text.encode() not in body or media_type not in kind:
            raise SystemExit(f"{self.url}: echo was answered {status} {kind} {body[:400]!r}")

    def finished_stream(self, session, events, size):
        """Makes a finished stream of `events` events and the result: its cursor before the first
        event, and the bytes of event stream that a resume from there brings."""
        arguments = {"count": events, "size": size}
        call = request(1, "tools/call", {"name": "stream", "arguments": arguments})
        status, _, body = self.post(call, session)
        ids = re.findall(rb"^id: (\S+)\.(\d+)$", body, re.MULTILINE)
        numbers = [int(number) for _, number in ids]
        if status != 200 or numbers != list(range(events + 2)):
            raise SystemExit(f"the stream is not whole: {status}, {len(ids)} ids, {body[:400]!r}")
        return (ids[0][0] + b".0").decode(), len(body)


def request(number, method, params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
