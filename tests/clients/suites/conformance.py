"""The official conformance suite, requirement set 2025-11-25: every scored scenario passes."""

import asyncio
import json
import re
import shutil
from functools import partial
from pathlib import Path

from harness.checks import Checks, holds, same
from harness.client import CACHE, HERE, NODE
from harness.gapless import Server, with_server

from .upstreams import UPSTREAMS

REVISION = "2025-11-25"
SUITE = HERE / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
SCORED_SCENARIOS = 30
SECONDS = 300


async def suite(*arguments: str) -> tuple[int, str]:
    """Its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        NODE,
        str(SUITE),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode()


async def scored() -> list[str]:
    """The names of the server scenarios that the revision requires, from the suite itself."""
    _, listing = await suite("list", "--requirements", REVISION)
    _, _, servers = listing.partition("Server scenarios")
    servers, _, _ = servers.partition("Client scenarios")
    return re.findall(r"^  - (\S+)$", servers, re.MULTILINE)


def failures(results: Path, scenario: str) -> list[str]:
    """The failed checks of a scenario; a scenario that checked nothing has failed."""
    [folder] = [
        found
        for found in results.iterdir()
        if re.fullmatch(rf"server-{re.escape(scenario)}-\d{{4}}-\d\d-\d\dT.*", found.name)
    ]
    checks = json.loads((folder / "checks.json").read_text())
    if not checks:
        return ["no check was made"]
    return [
        f"{check['id']}: {check.get('errorMessage', check['status'])}"
        for check in checks
        if check["status"] == "FAILURE"
    ]


async def try_server(checks: Checks, upstream: str, scenarios: list[str], server: Server) -> None:
    results = CACHE / f"conformance-{upstream}"
    shutil.rmtree(results, ignore_errors=True)
    code, output = await suite(
        "server", "--url", server.url, "--requirements", REVISION, "-o", str(results)
    )

    async def passes(scenario: str) -> None:
        same("failed checks", failures(results, scenario), [])

    before = len(checks.failures)
    for scenario in scenarios:
        await checks.run(f"conformance/{upstream}/{scenario}", partial(passes, scenario))
    if code != 0:
        print(output)
        holds(len(checks.failures) > before, f"the suite exited with {code}")


async def run(checks: Checks) -> None:
    scenarios = await scored()
    same("scored scenarios", len(scenarios), SCORED_SCENARIOS)
    for upstream, command in UPSTREAMS.items():
        body = partial(try_server, checks, upstream, scenarios)
        await with_server(checks, f"conformance/{upstream}", command, body)
