"""The echo of a stdio server: behind gapless, behind supergateway, and over its bare pipes.

The server's CPU is that of the program in front and of the child together, both on one CPU; what the
program in front takes by itself stands beside it. Behind `gapless serve`, behind supergateway and
behind the pipe driver is the same child, `gapless stdio`.
"""

import json
import subprocess

from cases import ECHO_TEXT, Case, Server, cpu_seconds, family_seconds, gapless
from peers import BUILT, GAPLESS, PIPE, SUPERGATEWAY, Supergateway
from rows import CALL, CONNECTIONS, SSE, Calls, measure_at

PIPE_DRIVER = BUILT / "pipe"


class Fronted(Calls):
    """Calls over HTTP to a program with a child behind it."""

    def begin(self):
        super().begin()
        self.alone_before = cpu_seconds(self.pid)

    def cpu(self):
        return family_seconds(self.pid)

    def load(self, options):
        result = super().load(options)
        return result | {"alone_cpu": cpu_seconds(self.pid) - self.alone_before}


class Bare(Case):
    """Calls into the child's pipe, as many under way as there are connections elsewhere."""

    def __init__(self, name, window, child):
        super().__init__(name, window, None, None)
        self.child = child

    def measure(self, options):
        words = [PIPE_DRIVER, self.connections, options.seconds, ECHO_TEXT, *self.child]
        driver = subprocess.Popen(
            ["taskset", "-c", str(options.server_cpu), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        driver.stdin.write(json.dumps(CALL) + "\n")
        driver.stdin.flush()
        line = driver.stdout.readline()
        if not line:
            raise SystemExit(f"{PIPE_DRIVER} failed: {driver.wait()}")
        cpu = {"server_cpu": family_seconds(driver.pid), "alone_cpu": cpu_seconds(driver.pid)}
        driver.stdin.close()
        driver.wait(20)
        self.rounds.append(json.loads(line) | cpu)


class Piped:
    """All of them; measured and saved as a row is."""

    name = f"stdio echo, {CONNECTIONS} connections"

    def __init__(self, chosen):
        child = [chosen.program, "stdio"]
        self.bare = Bare(PIPE, CONNECTIONS, child)
        self.ours = Fronted(GAPLESS, CONNECTIONS, SSE)
        self.command = gapless(chosen.program, "auto", 1, child)
        self.theirs = Fronted(SUPERGATEWAY, CONNECTIONS, SSE)

    def measure(self, chosen):
        self.bare.measure(chosen)
        server = Server(self.command, chosen.server_cpu)
        try:
            measure_at(server, self.ours, chosen)
        finally:
            server.stop()
        measure_at(chosen.warm.server(self.bare.child, Supergateway), self.theirs, chosen)

    def saved(self):
        cases = (self.bare, self.ours, self.theirs)
        return [case.saved(self.name, "requests") for case in cases]
