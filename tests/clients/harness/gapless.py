"""Starts the server under test and ends it."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = os.environ.get("GAPLESS_BIN", str(TARGET / "release" / "gapless"))
SECONDS_TO_START = 20
SECONDS_TO_STOP = 30
URL = re.compile(r"http://127\.0\.0\.1:(\d+)/mcp")


@dataclass
class Server:
    url: str
    port: int
    process: asyncio.subprocess.Process


@asynccontextmanager
async def gapless(*upstream: str) -> AsyncIterator[Server]:
    """A running `gapless serve`, before the stdio command `upstream` if one is given.

    Ends it with SIGTERM and demands a clean exit: code 0 within `SECONDS_TO_STOP`.
    """
    command = [BINARY, "serve", "--listen", "127.0.0.1:0"]
    if upstream:
        command += ["--", *upstream]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    reading = None
    try:
        async with asyncio.timeout(SECONDS_TO_START):
            url, port = await first_url(process)
        # Its stdout is read on, so that it never blocks on a full pipe.
        reading = asyncio.create_task(process.stdout.read())
        yield Server(url, port, process)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS_TO_STOP):
            code = await process.wait()
        if code != 0:
            raise AssertionError(f"{' '.join(command)} exited with {code} on SIGTERM")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if reading:
            reading.cancel()


async def first_url(process: asyncio.subprocess.Process) -> tuple[str, int]:
    while line := await process.stdout.readline():
        if match := URL.search(line.decode()):
            return match[0], int(match[1])
    raise RuntimeError(f"the server ended with {await process.wait()} before printing its URL")
