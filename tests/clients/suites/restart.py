"""Each official client in the middle of a call while the server restarts on its data directory.

What a client shows of it depends on the client: that the call ends soon, with the error that the
restart has logged for it, and that the same session then does a new call.
"""

import asyncio
import signal
import socket
import tempfile
import time
from functools import partial
from pathlib import Path

from harness.checks import Checks, holds, same
from harness.client import ClientError, Worker, all_workers
from harness.gapless import gapless_once

from .upstreams import UPSTREAMS

# A call that would take far longer than the test.
CALL = {"count": 10_000, "interval_ms": 20}
SECONDS_BEFORE = 1.0
SECONDS_TO_TELL = 30
ENDS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def restart_in_a_call(worker: Worker, upstream: tuple[str, ...], how: signal.Signals) -> None:
    with tempfile.TemporaryDirectory(prefix="gapless-restart-") as parent:
        port = free_port()
        options = (
            "--listen", f"127.0.0.1:{port}", "--data-dir", str(Path(parent) / "data"),
            "--drain-timeout", "200ms", "--segment-bytes", "32MiB", "--data-bytes", "2GiB",
        )
        async with gapless_once(options, upstream) as first:
            session_context = worker.session(first.url)
            session = await session_context.__aenter__()
            same("echo", (await session.call("echo", {"text": "one"}))["texts"], ["one"])
            call = asyncio.create_task(session.call("progress", CALL, progress=True, timeout=60))
            await asyncio.sleep(SECONDS_BEFORE)
            holds(not call.done(), "the call ended before the restart")
            first.process.send_signal(how)
            await first.process.wait()
        async with gapless_once(options, upstream) as second:
            started = time.monotonic()
            try:
                result = await asyncio.wait_for(call, SECONDS_TO_TELL)
                raise AssertionError(f"the call has a result: {result}")
            except ClientError as error:
                told = str(error)
            seconds = time.monotonic() - started
            holds("the call was not finished" in told, f"the call ended with {told!r}")
            print(f"   {worker.kind.name}: told after {seconds:.1f} s: {told[:150]}", flush=True)
            same("echo", (await session.call("echo", {"text": "two"}))["texts"], ["two"])
            await session_context.__aexit__(None, None, None)
            second.process.send_signal(signal.SIGTERM)
            same("exit code", await second.process.wait(), 0)


async def run(checks: Checks) -> None:
    async with all_workers() as workers:
        for upstream, command in UPSTREAMS.items():
            for name, how in ENDS.items():
                for worker in workers:
                    body = partial(restart_in_a_call, worker, command, how)
                    await checks.run(f"restart/{worker.kind.name}/{upstream}/{name}", body)
