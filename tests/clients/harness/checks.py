"""Named checks: run many at once, tell each one's outcome, count."""

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass
class Checks:
    """`only` keeps the checks whose name contains it, and those that run always."""

    only: str = ""
    passed: int = 0
    failures: list[str] = field(default_factory=list)

    async def run_all(self, suite: str, body: Callable[["Checks"], Awaitable[None]]) -> None:
        """A suite; what breaks outside of its checks (a server's start or end) fails it too."""
        try:
            await body(self)
        except Exception as error:
            self.fail(suite, error)

    async def run(
        self, name: str, body: Callable[[], Awaitable[object]], *, always: bool = False
    ) -> None:
        if not always and self.only not in name:
            return
        started = time.monotonic()
        try:
            await body()
        except Exception as error:
            self.fail(name, error)
        else:
            self.passed += 1
            print(f"ok {name} ({time.monotonic() - started:.1f} s)", flush=True)

    def fail(self, name: str, error: Exception) -> None:
        self.failures.append(name)
        print(f"FAILED {name}: {describe(error)}", flush=True)
        if not isinstance(error, AssertionError):
            traceback.print_exception(error, file=sys.stdout)


def describe(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"


def same(what: str, actual: object, expected: object) -> None:
    """Fails with both values unless they are equal."""
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r}, expected {expected!r}")


def holds(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)


async def at_most(count: int, bodies: list[Callable[[], Awaitable[object]]]) -> None:
    """Runs all, `count` at a time."""
    gate = asyncio.Semaphore(count)

    async def gated(body: Callable[[], Awaitable[object]]) -> None:
        async with gate:
            await body()

    async with asyncio.TaskGroup() as group:
        for body in bodies:
            group.create_task(gated(body))
