"""Real stdio servers that nobody here wrote, put on the network and used by a real client."""

import json
from functools import partial

from harness.checks import Checks, holds, same
from harness.client import CACHE, HERE, NODE, Session, Worker, all_workers
from harness.gapless import Server, with_server
from proxy.cut import Cut, How, Place
from proxy.proxy import CuttingProxy

EVERYTHING = (
    NODE,
    str(HERE / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"),
    "stdio",
)
TIME = (str(CACHE / "python-2/bin/mcp-server-time"), "--local-timezone", "UTC")
STEPS = 6
CUT_AFTER_EVENT = 3  # the priming event and two of the progress events
DISCARD = 2


async def everything_lists(session: Session) -> None:
    same("protocol", session.hello["protocol"], "2025-11-25")
    holds("trigger-long-running-operation" in await session.tools(), "a tool is missing")


async def everything_echoes(session: Session) -> None:
    result = await session.call("echo", {"message": "hello, world"})
    same("echo", (result["is_error"], result["texts"]), (False, ["Echo: hello, world"]))


async def everything_adds(session: Session) -> None:
    result = await session.call("get-sum", {"a": 2, "b": 40})
    holds("42" in result["texts"][0], f"the sum is {result['texts']}")


async def everything_tells_progress(session: Session) -> None:
    args = {"duration": 4.8, "steps": STEPS}
    result = await session.call("trigger-long-running-operation", args, progress=True)
    same("is_error", result["is_error"], False)
    same("progress", result["progress"], list(range(1, STEPS + 1)))
    holds("completed" in result["texts"][0], f"the result is {result['texts']}")


async def time_lists(session: Session) -> None:
    same("tools", sorted(await session.tools()), ["convert_time", "get_current_time"])


async def time_converts(session: Session) -> None:
    args = {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}
    result = await session.call("convert_time", args)
    same("is_error", result["is_error"], False)
    converted = json.loads(result["texts"][0])
    holds("T21:30:00" in converted["target"]["datetime"], f"the answer is {converted}")


async def time_refuses_nonsense(session: Session) -> None:
    result = await session.call("get_current_time", {"timezone": "Nowhere/Land"})
    same("is_error", result["is_error"], True)


async def on_a_session(worker: Worker, server: Server, step) -> None:
    async with worker.session(server.url) as session:
        await step(session)


async def cut_in_the_middle(worker: Worker, server: Server, how: How) -> None:
    cut = Cut(Place.AFTER_EVENT, how, CUT_AFTER_EVENT, DISCARD)
    async with CuttingProxy(server.port, cut) as proxy:
        async with worker.session(f"http://127.0.0.1:{proxy.port}/mcp") as session:
            await everything_tells_progress(session)
        same("faults of the proxy", proxy.faults, [])
        holds(proxy.cut_exchange, "nothing was cut")


async def try_everything(checks: Checks, client: Worker, server: Server) -> None:
    for step in (
        everything_lists,
        everything_echoes,
        everything_adds,
        everything_tells_progress,
    ):
        body = partial(on_a_session, client, server, step)
        await checks.run(f"foreign_servers/{step.__name__}", body)
    for how in How:
        body = partial(cut_in_the_middle, client, server, how)
        await checks.run(f"foreign_servers/everything_cut_by_{how.value}", body)


async def try_time(checks: Checks, client: Worker, server: Server) -> None:
    for step in (time_lists, time_converts, time_refuses_nonsense):
        body = partial(on_a_session, client, server, step)
        await checks.run(f"foreign_servers/{step.__name__}", body)


async def run(checks: Checks) -> None:
    async with all_workers() as workers:
        by_name = {worker.kind.name: worker for worker in workers}
        body = partial(try_everything, checks, by_name["typescript-1"])
        await with_server(checks, "foreign_servers/everything", EVERYTHING, body)
        body = partial(try_time, checks, by_name["python-2"])
        await with_server(checks, "foreign_servers/time", TIME, body)
