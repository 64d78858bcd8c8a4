"""The clients of the deprecated HTTP+SSE transport: everyday things, and a stream that is cut.

One GET carries everything. Its events are the endpoint, the answer to `initialize`, and then what
the one call sends; it is cut in the middle of that call.
"""

import asyncio
from functools import partial

from harness.checks import Checks, at_most, holds, same
from harness.client import (
    HTTP_SSE,
    HTTP_SSE_MENDED,
    ClientError,
    Worker,
    all_workers,
)
from harness.gapless import Server, with_server
from proxy.cut import Cut, How, Place
from proxy.proxy import CuttingProxy, Exchange, is_get

from .basics import STEPS, call_with_progress, try_client, two_calls_at_once
from .cuts import Call
from .upstreams import UPSTREAMS

BEFORE_THE_CALL = 2  # the endpoint, and the answer to initialize
SESSIONS_AT_ONCE = 20  # per client
SECONDS_TO_LOSE = 5.0

# The TypeScript SDKs forget a call's progress callback when they see the answer, before they run
# the notifications that came in the same piece of the stream.
WITHOUT_PROGRESS = tuple(s for s in STEPS if s not in (call_with_progress, two_calls_at_once))

CALLS = (
    # Longer than an EventSource waits before it reconnects: the rest of the events arrives live.
    Call("progress", 10, {"interval_ms": 400}),
    # Over before the client is back: everything comes from the log.
    Call("stream", 10, {"size": 40, "interval_ms": 10}),
)


def cuts() -> list[Cut]:
    """In the call's events: after one, inside of one, between chunks, with some thrown away."""
    event = BEFORE_THE_CALL + 4
    return [
        cut
        for how in How
        for cut in (
            Cut(Place.AFTER_EVENT, how, event),
            Cut(Place.INSIDE_EVENT, how, event),
            Cut(Place.INSIDE_CHUNK_HEADER, how, event),
            Cut(Place.AFTER_EVENT, how, event, 3),
            Cut(Place.AFTER_EVENT, how, event, 3, server_side_open=True),
        )
    ]


def gets(proxy: CuttingProxy) -> list[Exchange]:
    return [exchange for exchange in proxy.exchanges if is_get(exchange)]


def sse_url(proxy: CuttingProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}/sse"


async def goes_on(worker: Worker, server: Server, call: Call, cut: Cut) -> None:
    """The client comes back with its cursor, and its caller notices nothing."""
    async with CuttingProxy(server.port, cut, is_get) as proxy:
        async with worker.session(sse_url(proxy), HTTP_SSE_MENDED) as session:
            seen = await call.run(session)
            same("events seen by the client", seen, list(range(1, call.count + 1)))
            after = await session.call("echo", {"text": "after"})
        same("echo of the same session", after["texts"], ["after"])
        same("faults of the proxy", proxy.faults, [])
        check_wire(proxy, call)


def check_wire(proxy: CuttingProxy, call: Call) -> None:
    """The endpoint comes first again, then exactly what followed the cursor."""
    first, resumed = gets(proxy)
    same("the cut stream", first, proxy.cut_exchange)
    seen = first.forwarded
    same("the cursor", resumed.last_event_id, seen[-1].id)
    endpoint, *rest = resumed.response.events
    same("the endpoint", (endpoint.id, endpoint.data), (seen[-1].id, seen[0].data))
    ids = [event.id for event in seen + rest]
    numbers = [int(event_id.rpartition(".")[2]) for event_id in ids]
    # Behind the call comes the echo.
    same("numbers of the events", numbers, list(range(BEFORE_THE_CALL + call.count + 2)))
    same("logs", {event_id.rpartition(".")[0] for event_id in ids}, {ids[0].rpartition(".")[0]})


async def is_lost(worker: Worker, server: Server, how: How) -> None:
    """Without a cursor it is another session: the caller learns it, and a new client works.

    When this fails because an SDK has begun to send its cursor, it belongs into `goes_on`.
    """
    cut = Cut(Place.AFTER_EVENT, how, BEFORE_THE_CALL + 4)
    async with CuttingProxy(server.port, cut, is_get) as proxy:
        url = sse_url(proxy)
        try:
            async with worker.session(url, HTTP_SSE) as session:
                await CALLS[1].run(session, timeout=SECONDS_TO_LOSE)
        except ClientError as error:
            said = any(text in str(error) for text in HOW_IT_IS_LOST[worker.kind.name])
            holds(said, f"the client said {error}")
        else:
            raise AssertionError("a response that never came was taken for one")
        async with worker.session(url, HTTP_SSE) as fresh:
            result = await fresh.call("echo", {"text": "after"})
        same("echo of a new client", result["texts"], ["after"])
        same("cursors", [get.last_event_id for get in gets(proxy)], [None] * len(gets(proxy)))


HOW_IT_IS_LOST = {
    "typescript-1": ("Request timed out",),
    "typescript-2": ("Request timed out",),
    "python-1": ("Connection closed",),
    "python-2": ("Connection closed",),
}


async def try_cuts(checks: Checks, workers: list[Worker], upstream: str, server: Server) -> None:
    bodies = []
    for worker in workers:
        prefix = f"http_sse/{worker.kind.name}/{upstream}"
        for how in How:
            name = f"{prefix}/without a cursor/{how.value}"
            bodies.append(partial(checks.run, name, partial(is_lost, worker, server, how)))
        if not worker.kind.name.startswith("typescript"):
            continue  # the Python clients do not come back at all
        for call in CALLS:
            for cut in cuts():
                name = f"{prefix}/{call.tool}/{cut}"
                body = partial(goes_on, worker, server, call, cut)
                bodies.append(partial(checks.run, name, body))
    await at_most(SESSIONS_AT_ONCE * len(workers), bodies)


async def try_all(checks: Checks, workers: list[Worker], upstream: str, server: Server) -> None:
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            prefix = f"http_sse/{worker.kind.name}/{upstream}"
            connect = partial(worker.session, server.sse_url, HTTP_SSE)
            if not worker.kind.name.startswith("typescript"):
                group.create_task(try_client(checks, prefix, connect))
                continue
            group.create_task(try_client(checks, prefix, connect, WITHOUT_PROGRESS))
            mended = partial(worker.session, server.sse_url, HTTP_SSE_MENDED)
            group.create_task(try_client(checks, f"{prefix}/mended", mended))
        group.create_task(try_cuts(checks, workers, upstream, server))


async def run(checks: Checks) -> None:
    async with all_workers() as workers:
        for upstream, command in UPSTREAMS.items():
            body = partial(try_all, checks, workers, upstream)
            await with_server(checks, f"http_sse/{upstream}", command, body)
