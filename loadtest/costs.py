"""What gapless does for a request or an event: its system calls, and where its CPU time goes.

Both are looked at from outside by perf while the server is under full load: `perf trace` counts
system calls, `perf record` samples by the CPU clock. Neither is on while the table is made.
"""

import collections
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from cases import ROOT, Server, gapless
from peers import GAPLESS
from rows import CONNECTIONS, JSON, SSE, Calls, Flood

# Samples in a second, off the beat of timers.
FREQUENCY = 1997
# Seconds that perf takes to attach to all threads.
ATTACHED_AFTER = 0.5
# Events of the stream: some seconds of it, and no more than one call may ask for.
EVENTS = 10_000_000
# Lines of the profile.
TOP = 10
# Where gapless' own source files are.
OURS = f"{ROOT}/src/"


def cases():
    yield f"echo as JSON, {CONNECTIONS} connections", "auto", Calls(GAPLESS, CONNECTIONS, JSON)
    yield f"echo as SSE, {CONNECTIONS} connections", "sse", Calls(GAPLESS, CONNECTIONS, SSE)
    yield "1 stream", "auto", Flood(GAPLESS, 1, EVENTS)


def watched(case, answers, chosen, words):
    """Measures the case with perf at the server: what perf wrote to stderr, and where the server's
    program was loaded."""
    server = Server(gapless(chosen.program, answers), chosen.server_cpu)
    case.endpoint, case.pid = server.endpoint, server.pid
    try:
        program = str(Path(chosen.program).resolve())
        maps = Path(f"/proc/{server.pid}/maps").read_text().splitlines()
        base = min(int(line.split("-")[0], 16) for line in maps if line.endswith(program))
        perf = subprocess.Popen(
            ["taskset", "-c", str(chosen.generator_cpu), "perf", *words, "-p", str(server.pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(ATTACHED_AFTER)
        case.measure(chosen)
        perf.send_signal(signal.SIGINT)
        _, told = perf.communicate(timeout=60)
    finally:
        server.stop()
    return told, base


def system_calls(chosen):
    """For each case, how often each system call was made for one request or event."""
    for what, answers, case in cases():
        told, _ = watched(case, answers, chosen, ["trace", "-s"])
        counts = collections.Counter()
        for name, calls in re.findall(r"^ +(\w+) +(\d+) +\d+ +[\d.]+ ", told, re.MULTILINE):
            counts[name] += int(calls)
        if not counts:
            raise SystemExit(f"perf trace told nothing: {told}")
        requests = case.rounds[-1]["requests"]
        yield {"what": what, "requests": requests, "calls": dict(counts.most_common())}


def frames_of(program, addresses):
    """For each address in the program where it is: pairs of function and file, the innermost
    first. Of an inlined function only the bare name is known, so that the file has to say whose it
    is."""
    words = ["llvm-addr2line", "-a", "-f", "-i", "-C", "-e", program]
    text = "".join(f"{address:#x}\n" for address in addresses)
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
    frames, lines = {}, iter(done.stdout.splitlines())
    current = []
    for line in lines:
        if line.startswith("0x"):
            current = frames.setdefault(int(line, 16), [])
        else:
            current.append((line, next(lines)))
    return frames


def crate_of(file):
    """The crate that a source file belongs to; a version stands behind its name."""
    if file.startswith(OURS):
        return "gapless"
    found = re.search(r"/([\w-]+?)-\d+\.\d+[^/]*/", file)
    return found.group(1) if found else "std"


def function_of(frames):
    """The innermost function of gapless itself, with its file, else the innermost of all. What is
    inlined into it counts as its own."""
    ours = [frame for frame in frames if frame[0] != "??" and frame[1].startswith(OURS)]
    name, file = (ours or frames or [("?", "?")])[0]
    # Without path, hash and generic arguments.
    name = re.sub(r"::h[0-9a-f]{16}$", "", name).replace("_$u7b$$u7b$closure$u7d$$u7d$", "{closure}")
    name = name.split("<")[0] if not name.startswith("<") else name
    if not ours:
        return f"{name}, {crate_of(file)}"
    name = "::".join(re.sub(r"^.*gapless::", "", name).split("::")[-2:])
    return f"{name}, {file.removeprefix(OURS).split(':')[0]}"


def profile(chosen):
    """For each case the shares of the CPU time: by part, and the largest functions."""
    program = str(Path(chosen.program).resolve())
    for what, answers, case in cases():
        with tempfile.NamedTemporaryFile(suffix=".perf") as file:
            words = ["record", "-F", str(FREQUENCY), "-e", "cpu-clock", "-o", file.name]
            _, base = watched(case, answers, chosen, words)
            words = ["perf", "script", "-i", file.name, "-F", "ip,sym,dso"]
            script = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        samples = re.findall(r"^ *([0-9a-f]+) (.*) \((.*)\)$", script, re.MULTILINE)
        if not samples:
            raise SystemExit("perf record took no sample")
        inside = {int(ip, 16) - base for ip, _, dso in samples if dso == program}
        frames = frames_of(program, sorted(inside))
        parts = collections.Counter()
        functions = {"user": collections.Counter(), "kernel": collections.Counter()}
        for ip, symbol, dso in samples:
            if dso == program:
                around = frames.get(int(ip, 16) - base, [])
                name = function_of(around)
                part = crate_of(around[0][1]) if around else "?"
            elif dso.startswith("["):
                part, name = "kernel", symbol
            else:
                part, name = Path(dso).name, symbol
            parts[part] += 1
            functions["kernel" if part == "kernel" else "user"][name] += 1
        share = 100 / len(samples)
        yield {
            "what": what,
            "samples": len(samples),
            "parts": {part: round(count * share, 1) for part, count in parts.most_common(TOP)},
            "top": {
                side: [[name, round(count * share, 1)] for name, count in counts.most_common(TOP)]
                for side, counts in functions.items()
            },
        }


def lacking():
    """Programs that are needed here and are not installed."""
    return [name for name in ("perf", "llvm-addr2line") if not shutil.which(name)]
