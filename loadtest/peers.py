"""The ceiling, the peers and the checking client: how they are built, and their command lines."""

import json
import socket
import subprocess
import sys
import time

from cases import ROOT, TOOLS, Server

BUILT = TOOLS / "build" / "release"
CHECKER = ROOT / "loadtest" / "checker" / "target" / "release" / "checker"
NODE = ROOT / "loadtest" / "peers" / "node"

# The servers, by their names in the tables.
CEILING = "ceiling"
GAPLESS = "gapless"
RMCP_STATELESS = "rmcp, stateless"
RMCP_STATEFUL = "rmcp, stateful"
RMCP_STORE = "rmcp, event store"
TYPESCRIPT_JSON = "TypeScript, JSON"
TYPESCRIPT_SSE = "TypeScript, SSE"
TYPESCRIPT_STORE = "TypeScript, event store"
SUPERGATEWAY = "supergateway"
PIPE = "bare pipe"

COMMANDS = {
    CEILING: [BUILT / "ceiling"],
    RMCP_STATELESS: [BUILT / "gapless-peer-rmcp", "stateless"],
    RMCP_STATEFUL: [BUILT / "gapless-peer-rmcp", "stateful"],
    RMCP_STORE: [BUILT / "gapless-peer-rmcp", "store"],
    TYPESCRIPT_JSON: ["node", NODE / "server.mjs", "json"],
    TYPESCRIPT_SSE: ["node", NODE / "server.mjs", "sse"],
    TYPESCRIPT_STORE: ["node", NODE / "server.mjs", "store"],
}

# Seconds that a server without a word about itself may take until it listens.
START_TIME = 20


def build():
    """Everything but gapless itself; what is built already is left alone."""
    # The checker has its own folder: loadtest/soak builds it there too.
    targets = {"ceiling": BUILT.parent, "peers/rmcp": BUILT.parent, "checker": CHECKER.parent.parent}
    for folder, target in targets.items():
        manifest = ROOT / "loadtest" / folder / "Cargo.toml"
        words = ["cargo", "build", "--release", "--locked", "--quiet", "-j2"]
        words += ["--manifest-path", manifest, "--target-dir", target]
        subprocess.run(["nice", *words], check=True)
    installed, lock = NODE / "node_modules" / ".package-lock.json", NODE / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        words = ["npm", "ci", "--ignore-scripts", "--no-progress", "--loglevel=error"]
        subprocess.run(words, cwd=NODE, check=True, stdout=sys.stderr)


def versions():
    """Of the peers from npm, and of node."""
    for name in ("@modelcontextprotocol/sdk", "supergateway"):
        package = json.loads((NODE / "node_modules" / name / "package.json").read_text())
        yield name, package["version"]
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    yield "node", node.stdout.strip()


class Supergateway(Server):
    """supergateway in front of a stdio server, with sessions, and quiet: it does not say where it
    listens, and would otherwise write two lines about each call."""

    def __init__(self, stdio_command, cpus):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        script = NODE / "node_modules" / "supergateway" / "dist" / "index.js"
        words = ["node", script, "--stdio", " ".join(map(str, stdio_command))]
        words += ["--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"]
        super().__init__([*words, "--port", self.port], cpus)

    def announced(self):
        deadline = time.monotonic() + START_TIME
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return f"http://127.0.0.1:{self.port}/mcp"
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise SystemExit("supergateway did not start")
