"""A call's response is cut; the client must still get every event once, in order, and the result.

The call sends ten events between the priming event and the response: twelve in all. The cuts are
at every event boundary, inside every event, inside the chunk header after every event, before
the first byte of the head, and after events that the server's TCP saw acknowledged but the
client never saw. One longer call retells a failure that must never come back.
"""

from dataclasses import dataclass
from functools import partial

from harness.checks import Checks, at_most, holds, same
from harness.client import ClientError, Session, Worker, all_workers
from harness.gapless import Server, with_server
from proxy.cut import Cut, How, Place
from proxy.proxy import CuttingProxy, Exchange

from .upstreams import UPSTREAMS

PRIMING = 1  # the priming event's place among the events of a stream
SESSIONS_AT_ONCE = 40  # per client
# A client that would wait for ever gives a lost call up after this.
SECONDS_TO_LOSE = 5.0
SECONDS_TO_FINISH = 45.0


@dataclass(frozen=True)
class Call:
    """A tool call that sends `count` events, and how to number what the client saw of it."""

    tool: str
    count: int
    args: dict

    @property
    def response(self) -> int:
        """The response's place among the events of the stream: it is the last."""
        return PRIMING + self.count + 1

    async def run(self, session: Session, timeout: float = SECONDS_TO_FINISH) -> list[int]:
        """The numbers of the events in the order the client's callback saw them."""
        progress = self.tool == "progress"
        args = {"count": self.count, **self.args}
        result = await session.call(self.tool, args, progress=progress, timeout=timeout)
        same("is_error", result["is_error"], False)
        holds(result["texts"], "the result has no content")
        return result["progress"] if progress else [data["seq"] for data in result["logged"]]


CALLS = (
    # Longer than a client waits before it reconnects: the rest of the events arrives live.
    Call("progress", 10, {"interval_ms": 400}),
    # Over before the client is back: everything comes from the log.
    Call("stream", 10, {"size": 40, "interval_ms": 10}),
)


def cuts(call: Call, how: How) -> list[Cut]:
    """Every cut of one kind."""
    everywhere = range(PRIMING, call.response + 1)
    found = [Cut(Place.BEFORE_HEAD, how), Cut(Place.AFTER_HEAD, how)]
    found += [Cut(Place.AFTER_EVENT, how, event) for event in everywhere]
    found += [Cut(Place.INSIDE_EVENT, how, event) for event in everywhere]
    found += [Cut(Place.INSIDE_CHUNK_HEADER, how, event) for event in everywhere]
    for unknown in (False, True):
        found += [Cut(Place.AFTER_EVENT, how, 4, discard, unknown) for discard in range(1, 6)]
        # To the end: the server's TCP has the whole finished stream acknowledged.
        found.append(Cut(Place.AFTER_EVENT, how, call.response - 5, 5, unknown))
    return found


# Event 118 was the last that the client saw. The server's TCP had everything up to 124
# acknowledged, and a server that took that for delivered continued there: the client must get
# 119, 120, ... and 141.
STORY = Call("stream", 141, {"size": 40, "interval_ms": 2})


def story_cuts(how: How) -> list[Cut]:
    seen, acknowledged = PRIMING + 118, PRIMING + 124
    return [
        Cut(Place.AFTER_EVENT, how, seen, acknowledged - seen, unknown) for unknown in (False, True)
    ]


def nothing_seen(cut: Cut) -> bool:
    """No id reached the client, so it has nothing to resume with and the call is lost to it."""
    if cut.place is Place.INSIDE_EVENT:
        return cut.event == PRIMING
    return cut.place in (Place.BEFORE_HEAD, Place.AFTER_HEAD)


def all_seen(call: Call, exchange: Exchange) -> bool:
    """The response reached the client, so it has no reason to resume. Not for the last event
    alone: no chunk header lies between two events that the server wrote in one chunk."""
    return len(exchange.forwarded) == call.response


async def try_cut(worker: Worker, server: Server, call: Call, cut: Cut) -> None:
    async with CuttingProxy(server.port, cut) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/mcp"
        if nothing_seen(cut):
            await lose(worker, url, call, cut)
        else:
            async with worker.session(url) as session:
                seen = await call.run(session)
            same("events seen by the client", seen, list(range(1, call.count + 1)))
        same("faults of the proxy", proxy.faults, [])
        holds(proxy.cut_exchange, "nothing was cut")
        check_wire(proxy, call, cut)


async def lose(worker: Worker, url: str, call: Call, cut: Cut) -> None:
    """The client reports the lost call (each in its own way), and a new client works."""
    told_at_once = cut.place is Place.BEFORE_HEAD
    timeout = SECONDS_TO_FINISH if told_at_once else SECONDS_TO_LOSE
    try:
        async with worker.session(url) as session:
            await call.run(session, timeout=timeout)
    except ClientError as error:
        expected = how_it_is_lost(worker.kind.name, cut)
        said = any(text in str(error) for text in expected)
        holds(said, f"the client said {error}, expected {' or '.join(expected)}")
    else:
        raise AssertionError("a response that never came was taken for one")
    async with worker.session(url) as fresh:
        result = await fresh.call("echo", {"text": "after"})
    same("echo of a new client", result["texts"], ["after"])


def how_it_is_lost(client: str, cut: Cut) -> tuple[str, ...]:
    """What the client tells its caller; without an event id no SDK can do better."""
    if cut.place is Place.BEFORE_HEAD:
        # The Python clients die as a whole, and the open call learns it in one of two ways.
        python = ("the client died", "Connection closed")
        return ("fetch failed",) if client.startswith("typescript") else python
    return {
        "typescript-1": ("Request timed out",),
        "typescript-2": ("Request timed out",),
        "python-1": ("Timed out while waiting",),
        "python-2": ("MCPError",),
    }[client]


def check_wire(proxy: CuttingProxy, call: Call, cut: Cut) -> None:
    """On the wire every resume continues exactly after the id that the client presented."""
    cut_events = proxy.cut_exchange.response.events
    sent_ids = [event.id for event in cut_events]
    resumes = [exchange for exchange in proxy.exchanges if exchange.last_event_id in sent_ids]
    if nothing_seen(cut) or all_seen(call, proxy.cut_exchange):
        same("resumes", len(resumes), 0)
        return
    holds(resumes, "the client did not resume")
    seen_ids = [event.id for event in proxy.cut_exchange.forwarded]
    for resume in resumes:
        holds(resume.last_event_id in seen_ids, "the client presented an id it never saw")
        check_resume(resume, cut_events)
    presented = resumes[0].last_event_id
    total = sent_ids.index(presented) + 1 + len(messages_of(resumes[0]))
    same("events of the stream", total, call.response)


def check_resume(resume: Exchange, before: list) -> None:
    same("status of the resume", resume.response.status, 200)
    events = messages_of(resume)
    rest = before[[event.id for event in before].index(resume.last_event_id) + 1 :]
    same("replayed events", events[: len(rest)], rest)
    ids = [event.id for event in events]
    same("ids given twice", len(ids) - len(set(ids)), 0)


def messages_of(exchange: Exchange) -> list:
    """The events of a resumed stream without its priming event, which repeats the cursor."""
    return [event for event in exchange.response.events if event.id != exchange.last_event_id]


def matrix() -> list[tuple[str, Call, Cut]]:
    """Each call and cut, with its name."""
    found = [
        (f"{call.tool}/{cut}", call, cut)
        for call in CALLS
        for how in How
        for cut in cuts(call, how)
    ]
    found += [(f"story of 118 and 124/{cut}", STORY, cut) for how in How for cut in story_cuts(how)]
    return found


async def try_all(checks: Checks, workers: list[Worker], upstream: str, server: Server) -> None:
    bodies = [
        partial(
            checks.run,
            f"cuts/{worker.kind.name}/{upstream}/{name}",
            partial(try_cut, worker, server, call, cut),
        )
        for name, call, cut in matrix()
        for worker in workers
    ]
    await at_most(SESSIONS_AT_ONCE * len(workers), bodies)


async def run(checks: Checks) -> None:
    async with all_workers() as workers:
        for upstream, command in UPSTREAMS.items():
            body = partial(try_all, checks, workers, upstream)
            await with_server(checks, f"cuts/{upstream}", command, body)
