"""Starts the server under test and ends it."""

import asyncio
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .checks import Checks

ROOT = Path(__file__).resolve().parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = os.environ.get("GAPLESS_BIN", str(TARGET / "release" / "gapless"))
SECONDS_TO_START = 20
SECONDS_TO_STOP = 30
LOG_TAIL = 4000  # characters of the server's log shown when it fails
PANICS = re.compile(r"\bpanics=[1-9]")
URL = re.compile(r"http://127\.0\.0\.1:(\d+)/mcp")


@dataclass
class Server:
    url: str
    port: int
    process: asyncio.subprocess.Process

    @property
    def sse_url(self) -> str:
        """The stream of the HTTP+SSE transport."""
        return self.url.removesuffix("/mcp") + "/sse"


@asynccontextmanager
async def gapless(*upstream: str) -> AsyncIterator[Server]:
    """A running `gapless serve`, before the stdio command `upstream` if one is given.

    Ends it with SIGTERM and demands a clean exit: code 0 within `SECONDS_TO_STOP`, none of
    its children outlives it; no panic of a task either, which the server survives and counts.
    """
    command = [BINARY, "serve", "--listen", "127.0.0.1:0"]
    if upstream:
        command += ["--", *upstream]
    log = tempfile.TemporaryFile()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
    )
    reading = None
    children: list[int] = []
    try:
        async with asyncio.timeout(SECONDS_TO_START):
            url, port = await first_url(process)
        # Its stdout is read on, so that it never blocks on a full pipe.
        reading = asyncio.create_task(process.stdout.read())
        yield Server(url, port, process)
        children = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS_TO_STOP):
            code = await process.wait()
        if code != 0:
            raise AssertionError(f"{' '.join(command)} exited with {code} on SIGTERM")
        if orphans := [pid for pid in children if runs(pid)]:
            raise AssertionError(f"{' '.join(command)} left {len(orphans)} children behind")
        if PANICS.search(contents(log)):
            raise AssertionError(f"{' '.join(command)} counted panics")
    except BaseException:
        print(f"the end of the log of {' '.join(command)}:\n{contents(log)[-LOG_TAIL:]}")
        raise
    finally:
        if process.returncode is None:
            children = children_of(process.pid)
            process.kill()
            await process.wait()
        for pid in filter(runs, children):
            os.kill(pid, signal.SIGKILL)
        if reading:
            reading.cancel()
        log.close()


@asynccontextmanager
async def gapless_once(
    options: tuple[str, ...], upstream: tuple[str, ...] = ()
) -> AsyncIterator[Server]:
    """A running `gapless serve` with these options that the caller ends in its own way."""
    command = [BINARY, "serve", *options, *(("--", *upstream) if upstream else ())]
    log = tempfile.TemporaryFile()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
    )
    try:
        async with asyncio.timeout(SECONDS_TO_START):
            url, port = await first_url(process)
        yield Server(url, port, process)
    except BaseException:
        print(f"the end of the log of {' '.join(command)}:\n{contents(log)[-LOG_TAIL:]}")
        raise
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        log.close()


def contents(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")


async def with_server(
    checks: Checks,
    name: str,
    upstream: tuple[str, ...],
    body: Callable[[Server], Awaitable[None]],
) -> None:
    """Runs the checks of `body`; that the server starts and ends well is a check of its own."""

    async def whole() -> None:
        async with gapless(*upstream) as server:
            await body(server)

    await checks.run(f"{name}/starts_and_ends_cleanly", whole, always=True)


def children_of(pid: int) -> list[int]:
    """Whichever of its threads started them."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for found in lists for child in found.read_text().split()]


def runs(pid: int) -> bool:
    """Whether the process is there and more than a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def first_url(process: asyncio.subprocess.Process) -> tuple[str, int]:
    while line := await process.stdout.readline():
        if match := URL.search(line.decode()):
            return match[0], int(match[1])
    raise RuntimeError(f"the server ended with {await process.wait()} before printing its URL")
