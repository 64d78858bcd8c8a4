"""Runs the client suites: `run.py [SUITE...] [--only TEXT]`; see README.md."""

import argparse
import asyncio
import signal
import sys
import time

from harness.checks import Checks
from suites import (
    basics,
    conformance,
    cuts,
    foreign_servers,
    http_sse,
    proxy_cuts_exactly,
    restart,
)

SUITES = {
    "proxy_cuts_exactly": proxy_cuts_exactly.run,
    "conformance": conformance.run,
    "basics": basics.run,
    "http_sse": http_sse.run,
    "foreign_servers": foreign_servers.run,
    "restart": restart.run,
    "cuts": cuts.run,
}


async def run_suite(name: str, only: str) -> bool:
    """Tells whether at least one check ran and all passed."""
    checks = Checks(only)
    started = time.monotonic()
    await checks.run_all(name, SUITES[name])
    failed = len(checks.failures)
    seconds = time.monotonic() - started
    print(f"suite {name}: {checks.passed} passed, {failed} failed, {seconds:.0f} s", flush=True)
    return checks.passed > 0 and failed == 0


async def main() -> int:
    # A cancelled run ends every process it started, on its way out.
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--only", default="", help="run the checks whose name contains this")
    options = parser.parse_args()
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    outcomes = [await run_suite(name, options.only) for name in options.suites or SUITES]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
