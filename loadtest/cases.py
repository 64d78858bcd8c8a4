"""What a load run measures, and with what: servers, cases, the generator. Used by the programs."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mcp import HEADERS, Endpoint, request

ROOT = Path(__file__).resolve().parent.parent
OHA_VERSION = "1.16.0"
TOOLS = ROOT / "target" / "loadtest-tools"
TICKS = os.sysconf("SC_CLK_TCK")

ECHO_TEXT = "The quick brown fox jumps over the lazy dog."
ECHO = request(1, "tools/call", {"name": "echo", "arguments": {"text": ECHO_TEXT}})

# Bytes of padding of an event of the resumed streams.
EVENT_SIZE = 100
# Streams that are resumed in one measurement, at the least, and how often each: below the burst
# after which the server slows a client in a tight loop down.
STREAMS_MIN = 32
REPEATS = 16
# Seconds after which the server has forgotten one measurement's resumes.
FORGIVEN_AFTER = 10
# Bytes of logs in one session, below --session-bytes.
SESSION_BYTES = 48 * 1024 * 1024


def gapless(program, answers, shards=1, child=()):
    """The command line of a gapless to be measured, with its built-in server or this child."""
    words = ["--listen", "127.0.0.1:0", "--shards", str(shards), "--answers", answers]
    # Streams must live as long as the run.
    words += ["--retention", "30m", "--idle-timeout", "30m"]
    return [program, "serve", *words, *(["--", *child] if child else [])]


# Seconds after which a generator hangs.
GENERATOR_TIME = 120


class Server:
    """A server of our own, on one CPU or several ("0,1"); it prints its endpoint as the third
    word."""

    def __init__(self, command, cpus):
        self.command = command
        self.process = subprocess.Popen(
            ["taskset", "-c", str(cpus), *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pid = self.process.pid
        self.endpoint = Endpoint(self.announced())

    def announced(self):
        """Waits until it listens: where."""
        words = self.process.stdout.readline().split()
        if len(words) < 3:
            raise SystemExit(f"{self.command[0]} did not start")
        return words[2]

    def pin(self, cpu):
        """All its threads, and those of what it started, from now on to this CPU."""
        for pid in (self.pid, *descendants(self.pid)):
            words = ["taskset", "--all-tasks", "--cpu-list", "--pid", str(cpu), str(pid)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def stat_fields(pid):
    """Of /proc/PID/stat, those behind the name: the third of proc(5) is the first here."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def cpu_seconds(pid):
    """User and system time of a process with all its threads."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS


def descendants(pid):
    """The processes that it started, and those that they started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents.setdefault(int(stat_fields(folder.name)[1]), []).append(int(folder.name))
        except OSError:
            continue  # gone by now
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found[1:]


def family_seconds(pid):
    """CPU time of a process and of all that it started and that still runs."""
    return sum(map(cpu_seconds, [pid, *descendants(pid)]))


def resident(pid):
    """KiB of anonymous memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE).group(1))


def run_generator(words, cpu, text=None):
    """What the generator wrote, and the seconds of CPU that it took."""
    before = os.times()
    done = subprocess.run(
        ["taskset", "-c", str(cpu), *map(str, words)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=GENERATOR_TIME,
    )
    after = os.times()
    if done.returncode:
        raise SystemExit(f"{words[0]} failed: {done.stderr}")
    user = after.children_user - before.children_user
    return json.loads(done.stdout), user + after.children_system - before.children_system


class Case:
    """What is measured in one cell of the table, once a round."""

    def __init__(self, name, connections, endpoint, pid):
        self.name = name
        self.connections = connections
        self.endpoint = endpoint
        self.pid = pid
        self.rounds = []

    def measure(self, options):
        self.begin()
        result = self.load(options)
        if self.cpu_before is not None:
            result["server_cpu"] = self.cpu() - self.cpu_before
        self.rounds.append(result)

    def begin(self):
        """From here on the server's CPU counts; again, if there is something to prepare first."""
        self.cpu_before = self.cpu() if self.pid else None

    def cpu(self):
        return cpu_seconds(self.pid)

    def saved(self, what, unit):
        """What becomes of it in the file of figures."""
        return {
            "what": what,
            "unit": unit,
            "server": self.name,
            "connections": self.connections,
            "rounds": self.rounds,
        }

    def median(self, key):
        values = [result[key] for result in self.rounds if result.get(key) is not None]
        return statistics.median(values) if values else None

    def rates(self):
        return [result["requests"] / result["seconds"] for result in self.rounds]

    def cpu_per_request(self):
        """Microseconds of the server's CPU."""
        costs = [
            result["server_cpu"] / result["requests"] * 1e6
            for result in self.rounds
            if result.get("server_cpu") is not None
        ]
        return statistics.median(costs) if costs else None

    def busy(self, key):
        """Percent of one CPU."""
        shares = [
            result[key] / result["seconds"] * 100
            for result in self.rounds
            if result.get(key) is not None
        ]
        return statistics.median(shares) if shares else None


class Echo(Case):
    """POST of one small call, all connections in one session."""

    def __init__(self, name, connections, endpoint, pid, media_type):
        super().__init__(name, connections, endpoint, pid)
        self.media_type = media_type

    def load(self, options):
        session = self.endpoint.initialize()
        self.endpoint.check_echo(session, ECHO, ECHO_TEXT, self.media_type)
        headers = HEADERS | ({"Mcp-Session-Id": session} if session else {})
        words = [options.oha, "--no-tui"]
        words += ["--output-format", "json", "--worker-threads", "1", "-w", "-t", "10s"]
        words += ["-z", f"{options.seconds}s", "-c", str(self.connections), "-m", "POST"]
        for name, value in headers.items():
            words += ["-H", f"{name}: {value}"]
        words += ["-d", json.dumps(ECHO), self.endpoint.url]
        report, cpu = run_generator(words, options.generator_cpu)
        statuses = report["statusCodeDistribution"]
        if set(statuses) != {"200"} or report["errorDistribution"]:
            raise SystemExit(f"{self.name}: {statuses} {report['errorDistribution']}")
        percentiles = report["latencyPercentiles"]
        return {
            "requests": statuses["200"],
            "seconds": report["summary"]["total"],
            "p50": percentiles["p50"],
            "p99": percentiles["p99"],
            "generator_cpu": cpu,
        }


class Resume(Case):
    """GET with the cursor before the first event of a finished stream."""

    def __init__(self, name, connections, endpoint, pid):
        super().__init__(name, connections, endpoint, pid)
        self.streams = []
        self.ready_at = 0

    def prepare(self, events):
        session, room = None, 0
        for _ in range(max(STREAMS_MIN, self.connections)):
            if room <= 0:
                session, room = self.endpoint.initialize(), SESSION_BYTES
            cursor, payload = self.endpoint.finished_stream(session, events, EVENT_SIZE)
            # One more of this size has to fit as well.
            room -= payload + 4 * events
            if room < payload + 4 * events:
                room = 0
            self.streams.append({"session": session, "cursor": cursor, "payload": payload})

    def load(self, options):
        time.sleep(max(0, self.ready_at - time.monotonic()))
        plan = {
            "host": self.endpoint.host,
            "port": self.endpoint.port,
            "path": self.endpoint.path,
            "connections": self.connections,
            "repeats": REPEATS,
            "streams": self.streams,
        }
        words = [sys.executable, ROOT / "loadtest" / "resume.py"]
        result, cpu = run_generator(
            words, options.generator_cpu, json.dumps(plan)
        )
        self.ready_at = time.monotonic() + FORGIVEN_AFTER
        return result | {"generator_cpu": cpu}


def number(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def install_oha():
    """The generator, built once, at a fixed version, beside the project's own build."""
    oha = TOOLS / "bin" / "oha"
    known = ""
    if oha.exists():
        known = subprocess.run([oha, "--version"], capture_output=True, text=True).stdout
    if OHA_VERSION not in known:
        print(f"building oha {OHA_VERSION}: this takes some minutes, once", file=sys.stderr)
        words = ["cargo", "install", "oha", "--locked", "--force", "--version", OHA_VERSION]
        subprocess.run(["nice", *words, "--root", str(TOOLS)], check=True)
    return oha


def bounded(low, high):
    def read(text):
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{low} to {high}")
        return value

    return read


def counts(text):
    return [bounded(1, 1024)(word) for word in text.split(",")]
