"""Each official client does the everyday things."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from harness.checks import Checks, holds, same
from harness.client import Session, Worker, all_workers
from harness.gapless import Server, with_server

from .upstreams import UPSTREAMS

REVISION = "2025-11-25"

Connect = Callable[[], AbstractAsyncContextManager[Session]]
Step = Callable[[Session], Awaitable[None]]


async def initialize(session: Session) -> None:
    same("negotiated revision", session.hello["protocol"], REVISION)
    holds(session.hello["server"], "the server has no name")


async def list_tools(session: Session) -> None:
    missing = {"echo", "progress", "stream", "sleep", "standalone"} - set(await session.tools())
    same("missing tools", missing, set())


async def call_echo(session: Session) -> None:
    text = 'tea, Grüße, 日本, 😀, "quotes", \\ and\nlines'
    result = await session.call("echo", {"text": text})
    same("echo", (result["is_error"], result["texts"]), (False, [text]))


async def call_with_progress(session: Session) -> None:
    result = await session.call("progress", {"count": 10, "interval_ms": 5}, progress=True)
    same("is_error", result["is_error"], False)
    same("progress", result["progress"], list(range(1, 11)))


async def call_with_messages(session: Session) -> None:
    result = await session.call("stream", {"count": 10, "size": 16, "interval_ms": 5})
    same("is_error", result["is_error"], False)
    same("messages", [data["seq"] for data in result["logged"]], list(range(1, 11)))
    same("pad sizes", {len(data["pad"]) for data in result["logged"]}, {16})


async def two_calls_at_once(session: Session) -> None:
    slow, quick = await asyncio.gather(
        session.call("progress", {"count": 8, "interval_ms": 40}, progress=True),
        session.call("progress", {"count": 5, "interval_ms": 10}, progress=True),
    )
    same("progress of the slow call", slow["progress"], list(range(1, 9)))
    same("progress of the quick call", quick["progress"], list(range(1, 6)))


async def two_sessions_at_once(connect: Connect) -> None:
    async with connect() as one, connect() as other:
        results = await asyncio.gather(
            one.call("echo", {"text": "one"}), other.call("echo", {"text": "other"})
        )
    same("echoes", [result["texts"] for result in results], [["one"], ["other"]])


STEPS = (
    initialize,
    list_tools,
    call_echo,
    call_with_progress,
    call_with_messages,
    two_calls_at_once,
)


async def try_client(
    checks: Checks, prefix: str, connect: Connect, steps: tuple[Step, ...] = STEPS
) -> None:
    async def on_a_session(step) -> None:
        async with connect() as session:
            await step(session)

    for step in steps:
        await checks.run(f"{prefix}/{step.__name__}", partial(on_a_session, step))
    both = partial(two_sessions_at_once, connect)
    await checks.run(f"{prefix}/{two_sessions_at_once.__name__}", both)


async def try_all(checks: Checks, workers: list[Worker], upstream: str, server: Server) -> None:
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            prefix = f"basics/{worker.kind.name}/{upstream}"
            connect = partial(worker.session, server.url)
            group.create_task(try_client(checks, prefix, connect))


async def run(checks: Checks) -> None:
    async with all_workers() as workers:
        for upstream, command in UPSTREAMS.items():
            body = partial(try_all, checks, workers, upstream)
            await with_server(checks, f"basics/{upstream}", command, body)
