"""Reads one JSON command a line from stdin, answers one JSON line each on stdout.

The whole interface between the harness and a Python client; the same commands as `commands.mjs`.
`connect(url, on_log, transport)`, an async context manager that yields a `Connected`, is what
differs between the SDKs; `transport` is `streamable-http` or `http-sse`. Commands of one session may overlap, so that two calls run at once.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

# A call is given up only this long after its own timeout, so that the SDK reports it first.
SECONDS_OF_GRACE = 10


@dataclass
class Connected:
    """What a command needs of a connected client."""

    server: str
    protocol: str
    list_tools: Callable[[], Awaitable[Any]]
    # name, args, progress callback (or None), timeout in seconds
    call_tool: Callable[[str, dict, Any, float], Awaitable[Any]]


@dataclass
class Session:
    """One client, living in a task of its own: the SDKs want enter and exit in one task."""

    ready: asyncio.Future
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    logged: list = field(default_factory=list)
    task: asyncio.Task | None = None

    async def live(self, connect, url: str, transport: str) -> None:
        async def on_log(params) -> None:
            self.logged.append(params.data)

        async with connect(url, on_log, transport) as connected:
            self.ready.set_result(connected)
            await self.stop.wait()

    async def bounded(self, work: Awaitable[Any], timeout: float) -> Any:
        """`work`'s result; the client's own death or `timeout` ends the wait (SDK 1.30 has no
        timeout of its own and leaves the caller waiting when its transport has died)."""
        work = asyncio.ensure_future(work)
        done, _ = await asyncio.wait(
            {work, self.task}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        if work in done:
            return work.result()
        work.cancel()
        if self.task in done:
            raise ConnectionError(f"the client died: {describe(self.task.exception())}")
        raise TimeoutError(f"no answer within {timeout} s")


def describe(error: BaseException | None) -> str:
    """An exception in one line, groups flattened."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"


class Commands:
    def __init__(self, connect) -> None:
        self.connect = connect
        self.sessions: dict[int, Session] = {}

    async def open(self, session: int, url: str, transport: str) -> dict:
        new = Session(ready=asyncio.get_running_loop().create_future())
        new.task = asyncio.create_task(new.live(self.connect, url, transport))
        connected = await new.bounded(new.ready, 30)
        self.sessions[session] = new
        return {"server": connected.server, "protocol": connected.protocol}

    async def list(self, session: int) -> dict:
        entry = self.sessions[session]
        result = await entry.bounded(entry.ready.result().list_tools(), 30)
        return {"tools": [tool.name for tool in result.tools]}

    async def call(
        self, session: int, name: str, args: dict, progress: bool, timeout_ms: int
    ) -> dict:
        entry = self.sessions[session]
        seen: list[float] = []
        first = len(entry.logged)

        async def on_progress(value: float, total: float | None, message: str | None) -> None:
            seen.append(value)

        timeout = timeout_ms / 1000
        call = entry.ready.result().call_tool(
            name, args, on_progress if progress else None, timeout
        )
        result = await entry.bounded(call, timeout + SECONDS_OF_GRACE)
        return {
            "texts": [getattr(part, "text", None) for part in result.content],
            "is_error": result.is_error if hasattr(result, "is_error") else result.isError,
            "progress": seen,
            "logged": entry.logged[first:],
        }

    async def close(self, session: int) -> dict:
        entry = self.sessions.pop(session)
        entry.stop.set()
        await entry.task
        return {}


async def run(connect) -> None:
    commands = Commands(connect)

    async def answer(line: bytes) -> None:
        request = json.loads(line)
        number, operation = request.pop("id"), request.pop("op")
        try:
            reply = {"id": number, "ok": await getattr(commands, operation)(**request)}
        except BaseException as error:  # a dying client also cancels, or throws groups
            reply = {"id": number, "error": describe(error)}
        print(json.dumps(reply), flush=True)

    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    running = set()
    while line := await reader.readline():
        task = asyncio.create_task(answer(line))
        running.add(task)
        task.add_done_callback(running.discard)


def serve(connect) -> None:
    asyncio.run(run(connect))
