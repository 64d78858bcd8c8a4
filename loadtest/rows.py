"""The rows of the big table: what is asked of gapless, the ceiling and the peers alike."""

import json
import re
from types import SimpleNamespace

from cases import ECHO, ECHO_TEXT, EVENT_SIZE, Case, Resume, Server, gapless, run_generator
from mcp import HEADERS, request
from peers import (
    BUILT,
    CEILING,
    COMMANDS,
    GAPLESS,
    RMCP_STATEFUL,
    RMCP_STATELESS,
    RMCP_STORE,
    TYPESCRIPT_JSON,
    TYPESCRIPT_SSE,
    TYPESCRIPT_STORE,
)

SINK = BUILT / "sink"
CALLER = BUILT / "caller"
# What the caller replaces by another id with every call.
ID_TO_REPLACE = 100_000_000
CALL = ECHO | {"id": ID_TO_REPLACE}
# The streams of the replay case, and how often each is read; as loadtest/run has it.
REPLAYED = 32
# A server on node is warm once a second of calls brings less than so many times those of the second
# before, or after so many seconds; for streams it is after so many events.
WARMER, WARM_UP_TIMES_MAX = 1.1, 8
WARM_UP_EVENTS = 20_000
JSON, SSE = "application/json", "text/event-stream"
# The connections at which gapless is compared with everything.
CONNECTIONS = 64


def http_request(method, path, headers, body=""):
    """One request, as the generators take it from their stdin."""
    headers = {"Host": "127.0.0.1", "Content-Length": str(len(body))} | headers
    if method == "GET":
        del headers["Content-Length"]
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n{body}\0"


def call_stream(count):
    """The call whose own stream carries `count` events: log messages from gapless and from the
    TypeScript SDK, progress from rmcp, which sends nothing else there."""
    arguments = {"count": count, "size": EVENT_SIZE}
    params = {"name": "stream", "arguments": arguments, "_meta": {"progressToken": 1}}
    return request(1, "tools/call", params)


class Calls(Case):
    """The echo of loadtest/run, but by the caller: a server may route its answers by the request's
    id, so that calls in one session need ids of their own, which oha cannot give them."""

    def __init__(self, name, connections, media_type, sessions=1):
        super().__init__(name, connections, None, None)
        self.media_type = media_type
        self.sessions = sessions

    def load(self, options):
        requests = []
        for _ in range(self.sessions):
            session = self.endpoint.initialize()
            self.endpoint.check_echo(session, ECHO, ECHO_TEXT, self.media_type)
            headers = HEADERS | ({"Mcp-Session-Id": session} if session else {})
            requests.append(http_request("POST", self.endpoint.path, headers, json.dumps(CALL)))
        address = f"{self.endpoint.host}:{self.endpoint.port}"
        words = [CALLER, address, self.connections, options.seconds, ECHO_TEXT]
        self.begin()
        report, cpu = run_generator(words, options.generator_cpu, "".join(requests))
        return report | {"generator_cpu": cpu}


class Sunk(Case):
    """Streams read by the sink; an event is what a request is elsewhere."""

    repeats = 1

    def load(self, options):
        if self.name in (TYPESCRIPT_SSE, TYPESCRIPT_STORE):
            self.endpoint.post(call_stream(WARM_UP_EVENTS), self.endpoint.initialize())
        text = "".join(self.requests())
        address = f"{self.endpoint.host}:{self.endpoint.port}"
        # The TypeScript SDK leaves a replayed stream open.
        left_open = isinstance(self, Replay) and self.name == TYPESCRIPT_STORE
        words = [SINK, address, self.repeats, *(["open"] if left_open else [])]
        self.begin()
        report, cpu = run_generator(words, options.generator_cpu, text)
        expected = self.events * self.connections * self.repeats
        if report["events"] < expected:
            raise SystemExit(f"{self.name}: {report['events']} events of {expected}")
        return {
            "requests": report["events"],
            "seconds": report["seconds"],
            "bytes": report["bytes"],
            "generator_cpu": cpu,
        }

    def bare_requests(self):
        path = f"/stream?count={self.events}&size={EVENT_SIZE}"
        return [http_request("GET", path, {}) for _ in range(self.connections)]


class Flood(Sunk):
    """`connections` streams at once, each of `events` events, as fast as they go, each in a session
    of its own."""

    def __init__(self, name, connections, events):
        super().__init__(name, connections, None, None)
        self.events = events // connections

    def requests(self):
        if self.name == CEILING:
            return self.bare_requests()
        body = json.dumps(call_stream(self.events))
        sessions = [self.endpoint.initialize() for _ in range(self.connections)]
        heads = [HEADERS | {"Mcp-Session-Id": session} for session in sessions]
        return [http_request("POST", self.endpoint.path, head, body) for head in heads]


class Replay(Sunk, Resume):
    """GET with the cursor before the first event of finished streams."""

    def __init__(self, name, events, repeats, streams=REPLAYED):
        Resume.__init__(self, name, streams, None, None)
        self.events = events
        self.repeats = repeats

    def requests(self):
        if self.name == CEILING:
            return self.bare_requests()
        self.streams = []
        if self.name == GAPLESS:
            self.prepare(self.events)
        else:
            for _ in range(self.connections):
                self.prepare_peer()
        heads = [
            {
                "Accept": "text/event-stream",
                "Mcp-Session-Id": stream["session"],
                "Last-Event-ID": stream["cursor"],
            }
            for stream in self.streams
        ]
        return [http_request("GET", self.endpoint.path, head) for head in heads]

    def prepare_peer(self):
        session = self.endpoint.initialize()
        status, _, body = self.endpoint.post(call_stream(self.events), session)
        ids = re.findall(rb"^id: (\S+)$", body, re.MULTILINE)
        if status != 200 or len(ids) < self.events:
            raise SystemExit(f"{self.name}: the stream is not whole: {status}, {len(ids)} ids")
        self.streams.append({"session": session, "cursor": ids[0].decode()})


def measure_at(server, case, chosen):
    case.endpoint, case.pid = server.endpoint, server.pid
    case.measure(chosen)


class Warm:
    """The servers on node: node compiles while it runs, so that one just started says little. They
    are called until they get no faster, on both CPUs, and kept for all rounds."""

    def __init__(self, chosen):
        self.chosen = chosen
        self.servers = {}

    def server(self, command, kind=Server):
        key = (kind, *map(str, command))
        if key not in self.servers:
            both = f"{self.chosen.server_cpu},{self.chosen.generator_cpu}"
            self.servers[key] = kind(command, both)
            self.warm_up(self.servers[key])
        return self.servers[key]

    def warm_up(self, server):
        case = Calls("warm-up", CONNECTIONS, "")
        case.endpoint = server.endpoint
        options = SimpleNamespace(generator_cpu=self.chosen.generator_cpu, seconds=1)
        rate, before = 1, 0
        for _ in range(WARM_UP_TIMES_MAX):
            if rate < before * WARMER:
                break
            before, rate = rate, case.load(options)["requests"]
        server.pin(self.chosen.server_cpu)

    def stop(self):
        for server in self.servers.values():
            server.stop()


class Row:
    """One line of the table: what is asked, and of whom, each with its command line and, if they
    are not the ordinary ones, its CPUs."""

    def __init__(self, name, unit, entries):
        self.name = name
        self.unit = unit
        self.entries = entries

    def measure(self, chosen):
        for case, command, *cpus in self.entries:
            if command[0] == "node" and isinstance(case, Calls):
                measure_at(chosen.warm.server(command), case, chosen)
                continue
            # A server of its own each time: nobody inherits the other's logs or memory.
            server = Server(command, *(cpus or [chosen.server_cpu]))
            try:
                measure_at(server, case, chosen)
            finally:
                server.stop()

    def saved(self):
        return [case.saved(self.name, self.unit) for case, *_ in self.entries]


def plural(count, word):
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def rows_of(chosen):
    ours = {answers: gapless(chosen.program, answers) for answers in ("auto", "sse")}
    for connections in chosen.connections:
        entries = [
            (Calls(CEILING, connections, JSON), COMMANDS[CEILING]),
            (Calls(GAPLESS, connections, JSON), ours["auto"]),
            (Calls(RMCP_STATELESS, connections, JSON), COMMANDS[RMCP_STATELESS]),
            (Calls(TYPESCRIPT_JSON, connections, JSON), COMMANDS[TYPESCRIPT_JSON]),
        ]
        yield Row(f"echo as JSON, {plural(connections, 'connection')}", "requests", entries)
    entries = [(Calls(CEILING, CONNECTIONS, JSON), COMMANDS[CEILING])]
    entries.append((Calls(GAPLESS, CONNECTIONS, SSE), ours["sse"]))
    for name in (RMCP_STATEFUL, RMCP_STORE, TYPESCRIPT_SSE, TYPESCRIPT_STORE):
        entries.append((Calls(name, CONNECTIONS, SSE), COMMANDS[name]))
    yield Row(f"echo as SSE, {CONNECTIONS} connections", "requests", entries)
    for streams in (1, 32):
        entries = [
            (Flood(CEILING, streams, 6_400_000), COMMANDS[CEILING]),
            (Flood(GAPLESS, streams, 3_200_000), ours["auto"]),
            (Flood(RMCP_STATEFUL, streams, 128_000), COMMANDS[RMCP_STATEFUL]),
            (Flood(RMCP_STORE, streams, 128_000), COMMANDS[RMCP_STORE]),
            (Flood(TYPESCRIPT_SSE, streams, 48_000), COMMANDS[TYPESCRIPT_SSE]),
            (Flood(TYPESCRIPT_STORE, streams, 48_000), COMMANDS[TYPESCRIPT_STORE]),
        ]
        yield Row(f"{plural(streams, 'stream')} at once", "events", entries)
    entries = [
        (Replay(CEILING, 10_000, 16), COMMANDS[CEILING]),
        (Replay(GAPLESS, 10_000, 16), ours["auto"]),
        (Replay(RMCP_STORE, 10_000, 4), COMMANDS[RMCP_STORE]),
        (Replay(TYPESCRIPT_STORE, 10_000, 1, 16), COMMANDS[TYPESCRIPT_STORE]),
    ]
    yield Row("replay of 10,000 events", "events", entries)


def shard_row(chosen):
    """Two shards beside one, each connection with a session of its own, so that both have work. The
    second shard shares its CPU with the generator, or the first one's CPU with the first."""
    both = f"{chosen.server_cpu},{chosen.generator_cpu}"
    entries = [
        (Calls("1 shard", CONNECTIONS, JSON, CONNECTIONS), gapless(chosen.program, "auto")),
        (Calls("2 shards", CONNECTIONS, JSON, CONNECTIONS), gapless(chosen.program, "auto", 2), both),
        (Calls("2 shards, one CPU", CONNECTIONS, JSON, CONNECTIONS), gapless(chosen.program, "auto", 2)),
    ]
    return Row(f"echo as JSON, {CONNECTIONS} connections and sessions", "requests", entries)
