"""What the checking client measures: a stream that nobody reads, and streams that are cut at once."""

import json
import re
import subprocess
import threading
import time

from cases import Server, gapless, resident
from peers import CHECKER, COMMANDS, GAPLESS, RMCP_STORE, TYPESCRIPT_STORE

# MiB of the stream that is not read, and seconds of each phase: without it, and with it.
UNREAD_MIB = 200
UNREAD_SECONDS = 3
# Streams that are cut at once.
STORM = 5000
# Seconds between two looks at the server's memory, and before the last one.
LOOK_EVERY = 0.02
LOOK_LAST_AFTER = 2


class Watch:
    """The largest memory of a process while something runs, KiB."""

    def __init__(self, pid):
        self.pid = pid
        self.peak = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.over.wait(LOOK_EVERY):
            self.peak = max(self.peak, resident(self.pid))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def started(server, words, cpus):
    """The checker, at work on this server; its faults go to stderr."""
    words = [CHECKER, "--url", server.endpoint.url, "--upstream", "builtin", *words]
    words = ["taskset", "-c", str(cpus), *map(str, words)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def ended(checker, server):
    """What else the checker printed. It has time limits of its own."""
    told = checker.stdout.read()
    if checker.wait():
        raise SystemExit(f"the checker found faults at {' '.join(map(str, server.command))}")
    return told


def unread_of(name, command, cpus, chosen):
    server = Server(command, cpus)
    try:
        # What a server takes for its first sessions is not what the stream takes.
        server.endpoint.initialize()
        before = resident(server.pid)
        words = ["--unread", UNREAD_MIB, "--seconds", UNREAD_SECONDS]
        words += [] if name.startswith(GAPLESS) else ["--foreign"]
        with Watch(server.pid) as watch:
            checker = started(server, words, chosen.generator_cpu)
            checker.stdout.readline()
        found = json.loads(ended(checker, server))
        time.sleep(LOOK_LAST_AFTER)
        after = resident(server.pid)
    finally:
        server.stop()
    memory = {"before": before, "peak": watch.peak, "after": after}
    return found | {"server": name, "mebibytes": UNREAD_MIB} | memory


def unread(chosen):
    """Each server in turn. The children of a gapless may run on either CPU, as they do without us;
    the shard stays on its own."""
    child = [chosen.program, "stdio"]
    both = f"{chosen.server_cpu},{chosen.generator_cpu}"
    programs = [
        (GAPLESS, gapless(chosen.program, "auto"), chosen.server_cpu),
        (f"{GAPLESS}, stdio child", gapless(chosen.program, "auto", 1, child), both),
        (RMCP_STORE, COMMANDS[RMCP_STORE], chosen.server_cpu),
        (TYPESCRIPT_STORE, COMMANDS[TYPESCRIPT_STORE], chosen.server_cpu),
    ]
    for name, command, cpus in programs:
        yield unread_of(name, command, cpus, chosen)


def storm(chosen):
    """The streams are cut, and resumed when their producers are done; each event is checked."""
    server = Server(gapless(chosen.program, "auto"), chosen.server_cpu)
    try:
        words = ["--seconds", 0, "--sessions", 0, "--bad", 0, "--storm", STORM]
        report = ended(started(server, words, chosen.generator_cpu), server)
    finally:
        server.stop()

    def told(pattern):
        found = re.search(pattern, report, re.MULTILINE)
        if not found:
            raise SystemExit(f"the checker says nothing of {pattern}: {report}")
        return found.groups()

    reconnects = int(told(r"^reconnects +(\d+)")[0])
    if reconnects < STORM:
        raise SystemExit(f"only {reconnects} of {STORM} streams were cut: {report}")
    seconds = float(told(rf"^storm of {STORM} streams +([\d.]+) s")[0])
    p50, p99, _, last = map(float, told(r"^resume, head, \S+ +([\d./ ]+) ms of")[0].split(" / "))
    yield {
        "streams": STORM,
        "seconds": seconds,
        "whole": int(told(r"^streams whole +(\d+)")[0]),
        "reconnects": reconnects,
        "events": int(told(r"^events checked +(\d+),")[0]),
        "resume_ms": {"p50": p50, "p99": p99, "max": last},
    }
