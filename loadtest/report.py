"""Tables, plots and targets out of the figures that loadtest/compare found.

Ratios are of the server's CPU per request or event, taken round by round, the median of them: above
1 the first is cheaper than the second.
"""

import json
import re
import statistics

import plots
from cases import ROOT, number
from peers import (
    CEILING,
    GAPLESS,
    PIPE,
    RMCP_STATELESS,
    RMCP_STORE,
    SUPERGATEWAY,
    TYPESCRIPT_JSON,
    TYPESCRIPT_STORE,
)

DOCS = ROOT / "docs"
ECHO_JSON = "echo as JSON"
# The server that the last column of the table compares with, by the beginning of a row's name.
PEERS = {ECHO_JSON: RMCP_STATELESS}
# The budget that bounds an unread stream, MiB. A child's messages without a token may belong to any
# of its open calls, so that the small calls' streams get their share of them.
BUDGETS = {GAPLESS: ("--stream-bytes", 16), f"{GAPLESS}, stdio child": ("--session-bytes", 64)}
# KiB in a MiB: sizes were saved in KiB.
MIB = 1024


class Case:
    """One server in one row, as it was saved."""

    def __init__(self, saved):
        self.__dict__ |= saved

    def costs(self, key="server_cpu"):
        """Seconds of CPU for one request, round by round."""
        return [one[key] / one["requests"] for one in self.rounds]

    def cost(self, key="server_cpu"):
        """Microseconds, the median."""
        return statistics.median(self.costs(key)) * 1e6

    def rates(self):
        return [one["requests"] / one["seconds"] for one in self.rounds]

    def median(self, key):
        values = [one[key] for one in self.rounds if key in one]
        return statistics.median(values) if values else None

    def busy(self, key):
        """Percent of one CPU."""
        shares = [one[key] / one["seconds"] * 100 for one in self.rounds if key in one]
        return f"{statistics.median(shares):.0f} %" if shares else ""

    def rate(self):
        rates = self.rates()
        middle = f"{number(statistics.median(rates))} {self.unit}"
        return f"{middle} ({number(min(rates))} to {number(max(rates))})"

    def p99(self):
        late = self.median("p99")
        return "" if late is None else number(late * 1e3, 2)


def ratio(case, other):
    """How many times less CPU `case` takes for a request than `other`."""
    return statistics.median(b / a for a, b in zip(case.costs(), other.costs()))


def rows_of(found):
    """The cases by row, and in it by server."""
    rows = {}
    for saved in found["rows"]:
        rows.setdefault(saved["what"], {})[saved["server"]] = Case(saved)
    return rows


def table(heads, lines):
    """`heads`: names of columns, those with numbers marked by a leading `>`."""
    yield "| " + " | ".join(head.lstrip(">") for head in heads) + " |"
    yield "| " + " | ".join("---:" if head.startswith(">") else "---" for head in heads) + " |"
    for line in lines:
        yield "| " + " | ".join(map(str, line)) + " |"


def about(found):
    told = found["about"]
    load = ", ".join(map(str, told["load"]))
    versions = ", ".join(f"{name} {version}" for name, version in told["peers"].items())
    yield f"{told['date']}, commit {told['commit']}. {told['machine']}; {told['compiler']}."
    yield f"Peers: rmcp as its lock file says, {versions}."
    yield f"Load average after each round, with the run itself: {load}."


def big_table(found):
    heads = ("what", "server", ">per second (lowest to highest round)", ">p99 ms")
    heads += (">server CPU each, us", ">server CPU", ">generator CPU", ">x ceiling", ">x rmcp")

    def lines():
        for what, row in rows_of(found).items():
            if CEILING not in row:
                continue
            peer = row[next((p for name, p in PEERS.items() if what.startswith(name)), RMCP_STORE)]
            for case in row.values():
                cost = number(case.cost(), 2 if case.unit == "requests" else 3)
                columns = [what, case.server, case.rate(), case.p99(), cost]
                columns += [case.busy("server_cpu"), case.busy("generator_cpu")]
                yield columns + [f"{ratio(case, other):.2f}" for other in (row[CEILING], peer)]

    return table(heads, lines())


def stdio_table(found):
    heads = ("server", ">requests/s (lowest to highest round)", ">p99 ms")
    heads += (">CPU each with the child, us", ">without the child, us", ">server and child CPU")
    heads += (">generator CPU", ">x bare pipe", ">x supergateway")

    def lines():
        for row in rows_of(found).values():
            if PIPE not in row:
                continue
            for case in row.values():
                columns = [case.server, case.rate(), case.p99(), number(case.cost(), 2)]
                columns += [number(case.cost("alone_cpu"), 2), case.busy("server_cpu")]
                columns.append(case.busy("generator_cpu"))
                others = (row[PIPE], row[SUPERGATEWAY])
                yield columns + [f"{ratio(case, other):.2f}" for other in others]

    return table(heads, lines())


def shard_table(found):
    heads = ("server", ">requests/s (lowest to highest round)", ">p99 ms")
    heads += (">server CPU each, us", ">server CPU", ">generator CPU", ">CPU each by that of 1 shard")

    def lines():
        for row in rows_of(found).values():
            if "1 shard" not in row:
                continue
            for case in row.values():
                columns = [case.server, case.rate(), case.p99(), number(case.cost(), 2)]
                columns += [case.busy("server_cpu"), case.busy("generator_cpu")]
                yield columns + [f"{1 / ratio(case, row['1 shard']):.2f}"]

    return table(heads, lines())


def slope(one):
    """KiB for each session, between the first and the last count of them."""
    (low, small), (high, large) = one["sizes"][1], one["sizes"][-1]
    return (large - small) / (high - low)


def memory_table(found):
    counts = [count for count, _ in found["memory"][0]["sizes"][1:]]
    heads = ("server", ">KiB per session", ">MiB before", *(f">at {count:,}" for count in counts))

    def lines():
        for one in found["memory"]:
            sizes = [size for _, size in one["sizes"]] + [one["after"]]
            yield one["server"], number(slope(one), 2), *(number(s / MIB, 1) for s in sizes)

    return table((*heads, ">5 s after all have gone"), lines())


def unread_table(found):
    heads = ("server", ">MiB before", ">at the most, unread", ">2 s after the end")
    heads += (">same session, p99 ms: idle", ">unread", ">another session: idle", ">unread")
    heads += (">calls not answered within 1 s: same, another", "the stream, read on afterwards")

    def lines():
        for one in found["unread"]:
            columns = [one["server"]]
            columns += [number(one[key] / MIB, 1) for key in ("before", "peak", "after")]
            for session in ("own", "other"):
                for phase in ("idle", "unread"):
                    calls = one[phase][session]
                    columns.append(number(calls["p99"] / 1e3, 2) if calls["answered"] else "none")
            late = [str(one["unread"][session]["unanswered"]) for session in ("own", "other")]
            end = one["end"] if one["server"].startswith(GAPLESS) else "not read on"
            yield columns + [", ".join(late), end]

    return table(heads, lines())


def storm_lines(found):
    for one in found["storm"]:
        resume = one["resume_ms"]
        yield f"{one['streams']:,} streams, {one['whole']:,} of them whole and contiguous;"
        yield f"{one['reconnects']:,} reconnects, {one['events']:,} events checked one by one."
        yield f"From the first resume to the last stream caught up: {one['seconds']:.2f} s. From a"
        yield f"resume to the head of its answer: p50 {resume['p50']:.0f} ms, p99 {resume['p99']:.0f}"
        yield f"ms, at the most {resume['max']:.0f} ms."


def calls_table(found):
    heads = ("what", ">requests or events", ">system calls", ">one for so many", "which, for 1,000")

    def lines():
        for one in found["calls"]:
            total = sum(one["calls"].values())
            each = {name: calls / one["requests"] * 1e3 for name, calls in one["calls"].items()}
            which = ", ".join(f"{name} {share:.2f}" for name, share in each.items() if share > 0.01)
            columns = [one["what"], number(one["requests"]), number(total)]
            yield columns + [number(one["requests"] / total, 1), which]

    return table(heads, lines())


def profile_lines(found):
    for one in found["profile"]:
        parts = ", ".join(f"{part} {share} %" for part, share in one["parts"].items())
        yield f"**{one['what']}** ({one['samples']:,} samples): {parts}."
        yield ""
        heads = (">%", "in user mode", ">%", "in the kernel")
        pairs = zip(one["top"]["user"], one["top"]["kernel"])
        lines = ((u[1], f"`{u[0]}`", k[1], f"`{k[0]}`") for u, k in pairs)
        yield from table(heads, lines)
        yield ""


def at_least(value, target):
    return f"{value:.2f}" + ("" if value >= target else ": **missed**")


def at_most(value, target, text=None):
    return (text or f"{value:.2f}") + ("" if value <= target else ": **missed**")


def row_targets(rows):
    """(row, target by the ceiling, the peer of the other target, that target)."""
    plan = (
        (f"{ECHO_JSON}, 64 connections", 0.75, RMCP_STATELESS, 2.5),
        ("echo as SSE, 64 connections", 0.55, RMCP_STORE, 3),
        ("1 stream at once", 0.3, RMCP_STORE, 15),
        ("32 streams at once", 0.3, RMCP_STORE, 15),
        ("replay of 10,000 events", 0.5, RMCP_STORE, 4),
    )
    for what, least, peer, factor in plan:
        if what not in rows:
            continue
        row = rows[what]
        ours = row[GAPLESS]
        first = at_least(ratio(ours, row[CEILING]), least)
        second = at_least(ratio(ours, row[peer]), factor)
        also = row[TYPESCRIPT_JSON if peer == RMCP_STATELESS else TYPESCRIPT_STORE]
        yield (
            what,
            f"{least} x ceiling, {factor} x {peer}",
            f"{first}; {second}; {also.server}: {ratio(ours, also):.1f}",
        )


def other_targets(found, rows):
    for row in rows.values():
        if PIPE in row:
            ours = row[GAPLESS]
            first = at_least(ratio(ours, row[SUPERGATEWAY]), 2)
            second = at_least(ratio(ours, row[PIPE]), 0.7)
            yield "stdio echo", "2 x supergateway, 0.7 x bare pipe", f"{first}; {second}"
        if "1 shard" in row:
            more = {name: 1 / ratio(case, row["1 shard"]) for name, case in row.items()}
            figures = [f"{name}: {at_most(more[name], 1.1)}" for name in list(row)[1:]]
            yield "2 shards against 1", "CPU per request within 10 %", "; ".join(figures)
    for one in found.get("memory", ()):
        if one["server"] == GAPLESS:
            size = slope(one)
            what = "memory of an idle session with an open GET stream"
            yield what, "2 KiB", at_most(size, 2, f"{size:.2f} KiB")
    for one in found.get("unread", ()):
        if not one["server"].startswith(GAPLESS):
            continue
        grown = (one["peak"] - one["before"]) / MIB
        late = [
            one["unread"][session]["p99"] / max(1, one["idle"][session]["p99"])
            for session in ("own", "other")
        ]
        what = f"unread stream of 200 MiB, {one['server']}"
        option, budget = BUDGETS[one["server"]]
        within = f"growth within {option}, {budget} MiB"
        yield what, within, at_most(grown, budget, f"{grown:.1f} MiB")
        figures = f"same session {late[0]:.2f}, another {late[1]:.2f}"
        yield what, "p99 of echo within 2 x idle", at_most(max(late), 2, figures)
    for one in found.get("storm", ()):
        told = f"{one['whole']:,} of {one['streams']:,}, {one['seconds']:.2f} s"
        whole = at_most(one["streams"], one["whole"], told)
        yield "5,000 streams cut at once", "all contiguous; time reported", whole


def targets(found):
    rows = rows_of(found)
    lines = [*row_targets(rows), *other_targets(found, rows)]
    return table(("what", "target", "measured"), lines)


def sections(found):
    """The name and the lines of each section that there are figures for."""
    rows = rows_of(found)
    if found["about"]["load"]:
        yield "about", list(about(found))
    yield "targets", list(targets(found))
    if any(CEILING in row for row in rows.values()):
        yield "table", list(big_table(found))
    if any(PIPE in row for row in rows.values()):
        yield "stdio", list(stdio_table(found))
    if any("1 shard" in row for row in rows.values()):
        yield "shards", list(shard_table(found))
    makers = {
        "memory": memory_table,
        "unread": unread_table,
        "storm": storm_lines,
        "calls": calls_table,
        "profile": profile_lines,
    }
    for name, maker in makers.items():
        if name in found:
            yield name, list(maker(found))


def svgs(found):
    """The name of each plot's file, and its lines."""
    curves = {}
    for what, row in rows_of(found).items():
        if what.startswith(ECHO_JSON) and CEILING in row:
            for server, case in row.items():
                rate = statistics.median(case.rates())
                curves.setdefault(server, {})[case.connections] = rate
    if curves:
        title = f"POST {ECHO_JSON}, requests/s, one CPU each for server and load"
        yield "performance.svg", plots.draw(title, "connections", curves, False)
    if "memory" in found:
        curves = {one["server"]: {n: s / MIB for n, s in one["sizes"]} for one in found["memory"]}
        title = "Anonymous memory in MiB, sessions with an open GET stream each"
        yield "performance-memory.svg", plots.draw(title, "sessions", curves, True)


def publish(found):
    """Writes the figures and the plots into docs/, and the tables between their marks in the page
    there. What stands around the marks is written by hand."""
    page = DOCS / "performance.md"
    text = page.read_text(encoding="utf-8")
    for name, lines in sections(found):
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if begin not in text:
            raise SystemExit(f"{page} has no {begin}")
        body = "\n".join(lines).strip()
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        text = re.sub(pattern, lambda _: f"{begin}\n{body}\n{end}", text, flags=re.DOTALL)
    page.write_text(text, encoding="utf-8")
    for name, lines in svgs(found):
        (DOCS / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    figures = json.dumps(found, indent=1) + "\n"
    (DOCS / "performance.json").write_text(figures, encoding="utf-8")
