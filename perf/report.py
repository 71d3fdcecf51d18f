"""The report: tables, floors with pass and miss, charts. Everything is made from the stored results alone."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import charts

OURS, LIMIT, APACHE = "kafkapy", "limit", "apache"

Results = dict[str, Any]


@dataclass(frozen=True)
class Metric:
    """One number of a row: where it stands in the results, how it reads, and whether less of it is better."""

    key: str
    title: str
    scale: float = 1.0
    digits: int = 2
    less: bool = True


CPU_GB = Metric("cpu_s_per_gb", "broker CPU, s/GB", digits=3)
THROUGHPUT = Metric("gb_per_s", "throughput, GB/s", less=False)
CPU_REQUEST = Metric("cpu_us_per_request", "broker CPU, µs/request", digits=1)
REQUESTS = Metric("requests_per_s", "requests/s", digits=0, less=False)
P50, P99 = Metric("p50_us", "p50, µs", digits=0), Metric("p99_us", "p99, µs", digits=0)
START = Metric("first_produce_s", "start to first accepted produce, ms", 1000, 0)
IDLE_RSS = Metric("idle_rss_mb", "idle RSS, MB", digits=1)
LOAD_RSS = Metric("rss_under_load_mb", "RSS under load, MB", digits=1)
START_CLEAN = Metric("start_clean_s", "clean start, s")
START_KILLED = Metric("start_killed_s", "start after SIGKILL, s")

COMMITS = Metric("commits_per_s", "commits/s", digits=0, less=False)
CPU_COMMIT = Metric("cpu_us_per_commit", "broker CPU, µs/commit", digits=1)
TRANSACTIONS = Metric("transactions_per_s", "transactions/s", digits=0, less=False)
SETTLED = Metric("settled_s", "until all are in, s", digits=3)
CPU_JOIN = Metric("cpu_s", "broker CPU, s", digits=3)

RECORDS = Metric("records_per_s", "records/s", digits=0, less=False)
CPU_RECORD = Metric("cpu_us_per_record", "broker CPU, µs/record", digits=2)

LOAD = Metric("load_cores", "load generator, cores")

COLUMNS: dict[str, list[Metric]] = {
    "W1": [CPU_GB, THROUGHPUT, P99, LOAD],
    "W2": [CPU_REQUEST, REQUESTS, P50, P99, LOAD],
    "W3": [CPU_GB, THROUGHPUT, P99, LOAD],
    "W4": [P50, P99, Metric("p999_us", "p99.9, µs", digits=0), CPU_REQUEST, REQUESTS],
    "W5": [
        Metric("create_s", "creation, s"),
        Metric("metadata_us", "Metadata, µs", digits=0),
        Metric("stop_s", "clean stop, s"),
        START_CLEAN,
        START_KILLED,
        Metric("rss_mb", "RSS, MB", digits=0),
        Metric("descriptors", "descriptors", digits=0),
    ],
    "W6": [START, IDLE_RSS, LOAD_RSS, Metric("idle_cpu_share", "idle CPU, % of a core", 100, 1)],
    "W9": [
        CPU_GB,
        THROUGHPUT,
        CPU_REQUEST,
        Metric("handshakes_per_s", "handshakes/s", digits=0, less=False),
        Metric("logins_per_s", "logins/s", digits=0, less=False),
        P99,
        LOAD,
    ],
    "W7": [
        COMMITS,
        CPU_COMMIT,
        TRANSACTIONS,
        Metric("cpu_us_per_transaction", "broker CPU, µs/transaction", digits=1),
        Metric("retries_per_transaction", "retries/transaction", digits=2),
        SETTLED,
        CPU_JOIN,
        Metric("generation", "generation", digits=0),
        Metric("requests", "requests", digits=0),
        P50,
        P99,
        LOAD,
    ],
    "W10": [
        CPU_GB,
        THROUGHPUT,
        Metric("mb_per_s", "throughput, MB/s", digits=0, less=False),
        P99,
        Metric("seconds", "time, s"),
        Metric("gap_s", "longest gap, s"),
        Metric("failover_s", "controller failover, s"),
        Metric("restart_s", "restart until in sync, s"),
        Metric("rss_mb", "RSS of a broker, MB", digits=0),
    ],
    "W11": [
        RECORDS,
        CPU_RECORD,
        Metric("requests_per_s", "requests/s", digits=0, less=False),
        Metric("redelivered", "delivered again", digits=0),
        P50,
        P99,
        LOAD,
    ],
    "X": [CPU_GB, Metric("mb_per_s", "throughput, MB/s", digits=0, less=False)],
}


@dataclass(frozen=True)
class Floor:
    """A ratio of medians that is to hold in every cell it names."""

    work: str
    metric: Metric
    against: str
    bound: float
    cell: str = ""  # regular expression found in the cell's name; all cells without it
    mode: str = "pinned"
    limit_reaches: bool | None = None
    """True: only where the limit reaches AHEAD times Apache Kafka; False: only where it does not; None: everywhere."""

    @property
    def title(self) -> str:
        where = f" ({self.cell})" if self.cell else ""
        against = "best Apache Kafka" if self.against == APACHE else "the limit"
        reached = {None: "", True: f", where the limit reaches {AHEAD}", False: ", where it does not"}
        return f"{self.work} {self.metric.title}{where} vs {against}{reached[self.limit_reaches]}"

    def names(self, cell: str) -> bool:
        return re.search(self.cell, cell) is not None

    def holds(self, ratio: float) -> bool:
        return ratio <= self.bound if self.metric.less else ratio >= self.bound


AHEAD = 1.5
"""Throughput to be reached beside Apache Kafka."""

FLOORS = [
    Floor("W1", CPU_GB, APACHE, 0.3, "none"),
    Floor("W1", CPU_GB, LIMIT, 1.1, "none"),
    Floor("W1", CPU_GB, APACHE, 0.45, "lz4"),
    Floor("W1", CPU_GB, LIMIT, 1.15, "lz4"),
    Floor("W1", CPU_GB, APACHE, 0.55, "zstd"),
    Floor("W1", CPU_GB, LIMIT, 1.15, "zstd"),
    Floor("W1", THROUGHPUT, APACHE, AHEAD, limit_reaches=True),
    Floor("W1", THROUGHPUT, LIMIT, 0.95, limit_reaches=False),
    Floor("W2", CPU_REQUEST, APACHE, 0.24, "connections"),
    Floor("W2", CPU_REQUEST, LIMIT, 1.15, "connections"),
    Floor("W3", CPU_GB, APACHE, 0.72),
    Floor("W3", CPU_GB, LIMIT, 1.08),
    Floor("W3", THROUGHPUT, APACHE, AHEAD, limit_reaches=True),
    Floor("W3", THROUGHPUT, LIMIT, 0.95, limit_reaches=False),
    Floor("W4", P99, APACHE, 0.05, "50 %"),
    Floor("W5", START_CLEAN, APACHE, 0.08, "10,000 partitions", "unpinned"),
    Floor("W5", START_KILLED, APACHE, 0.08, "10,000 partitions", "unpinned"),
    Floor("W6", START, APACHE, 0.08, mode="unpinned"),
    Floor("W6", IDLE_RSS, APACHE, 0.11, mode="unpinned"),
    Floor("W6", LOAD_RSS, APACHE, 0.08, mode="unpinned"),
    Floor("W7", COMMITS, APACHE, 1.5, "offset commits"),
    Floor("W7", CPU_COMMIT, APACHE, 0.4, "offset commits"),
    Floor("W7", CPU_COMMIT, LIMIT, 2.0, "offset commits"),
    Floor("W7", SETTLED, APACHE, 0.6, "join"),
    Floor("W7", CPU_JOIN, APACHE, 0.6, "join"),
    Floor("W9", CPU_GB, APACHE, 0.5),
    Floor("W9", CPU_REQUEST, APACHE, 0.5),
    Floor("W9", CPU_GB, LIMIT, 1.25),
    Floor("W10", CPU_GB, APACHE, 0.4, "64 KB", "unpinned"),
    Floor("W10", P99, APACHE, 0.4, "half of the maximum", "unpinned"),
    Floor("W10", Metric("seconds", "time, s"), APACHE, 0.5, "SIGKILL", "unpinned"),
    Floor("W10", Metric("gap_s", "longest gap, s"), APACHE, 0.5, "rolling restart", "unpinned"),
    Floor("W10", Metric("failover_s", "controller failover, s"), APACHE, 0.2, "3 x", "unpinned"),
    Floor("W10", Metric("restart_s", "restart until in sync, s"), APACHE, 0.2, "3 x", "unpinned"),
    Floor("W10", Metric("rss_mb", "RSS of a broker, MB"), APACHE, 0.2, "3 x", "unpinned"),
    Floor("W11", RECORDS, APACHE, 1.5, "B records"),
    Floor("W11", CPU_RECORD, APACHE, 0.4),
    Floor("W11", P99, APACHE, 0.5, "paced"),
]


LIMIT_MODES: list[tuple[str, str, str]] = [
    ("W1", "lz4", "Produce, decompressed"),
    ("W1", "zstd", "Produce, decompressed"),
    ("W1", "", "Produce"),
    ("W2", "", "Produce, group append"),
    ("W3", "", "Fetch"),
    ("W7", "offset commits", "offset commit"),
    ("W9", "produce", "Produce, TLS"),
    ("W9", "fetch", "Fetch, TLS"),
    ("W9", "handshakes", "TLS"),
    ("W10", "RF 3", "leader, two followers"),
    ("W10", "catch-up", "leader, follower"),
]
"""Work, part of the cell's name, and the limit's mode there (perf/method.md); the first that fits counts."""


def limit_mode(work: str, cell: str) -> str:
    """The mode of the limit in a cell. Empty where it has none."""
    return next((mode for of, part, mode in LIMIT_MODES if of == work and part in cell), "")


@dataclass(frozen=True)
class Headline:
    """A line of the README: the median over the cells it names, of kafkapy and of the best Apache Kafka."""

    title: str
    work: str
    metric: Metric
    cell: str = ""  # part of the cell's name; all cells without it
    mode: str = "pinned"


HEADLINES = [
    Headline("produce records of 1 KB: broker CPU, s/GB", "W1", CPU_GB),
    Headline("the same: throughput on one core, GB/s", "W1", THROUGHPUT),
    Headline("produce one record of 100 bytes a request, 64 connections: broker CPU, µs", "W2", CPU_REQUEST, "64 "),
    Headline("catch-up reads: broker CPU, s/GB", "W3", CPU_GB),
    Headline("the same: throughput on one core, GB/s", "W3", THROUGHPUT),
    Headline("end to end at half of Kafka's maximum: p99, µs", "W4", P99, "50 %"),
    Headline("clean start with 10,000 partitions, s", "W5", START_CLEAN, "10,000", "unpinned"),
    Headline("start to the first accepted produce, ms", "W6", START, mode="unpinned"),
    Headline("memory when idle, MB", "W6", IDLE_RSS, mode="unpinned"),
    Headline("memory under load, MB", "W6", LOAD_RSS, mode="unpinned"),
    Headline("offset commits a second, 64 connections", "W7", COMMITS, "64 "),
    Headline("transactions a second, 64 producers", "W7", TRANSACTIONS, "64 "),
]
README_BEGIN, README_END = "<!-- written by make perf -->", "<!-- end of what make perf writes -->"

CHARTS: list[tuple[str, str, Metric, str]] = [
    ("w1-cpu", "W1", CPU_GB, "pinned"),
    ("w1-throughput", "W1", THROUGHPUT, "pinned"),
    ("w2-cpu", "W2", CPU_REQUEST, "pinned"),
    ("w2-requests", "W2", REQUESTS, "pinned"),
    ("w3-cpu", "W3", CPU_GB, "pinned"),
    ("w3-throughput", "W3", THROUGHPUT, "pinned"),
    ("w4-p99", "W4", P99, "pinned"),
    ("w5-start", "W5", START_CLEAN, "unpinned"),
    ("w6-start", "W6", START, "unpinned"),
    ("w6-idle", "W6", IDLE_RSS, "unpinned"),
    ("w6-load", "W6", LOAD_RSS, "unpinned"),
    ("w7-commits", "W7", COMMITS, "pinned"),
    ("w7-transactions", "W7", TRANSACTIONS, "pinned"),
    ("w7-join", "W7", SETTLED, "pinned"),
]


def median(results: Results, work: str, cell: str, mode: str, peer: str, key: str) -> float | None:
    """None where that was not measured."""
    for row in results["rows"]:
        if (row["work"], row["cell"], row["mode"], row["peer"]) == (work, cell, mode, peer):
            values = row["metrics"].get(key)
            return statistics.median(values) if values else None
    return None


def cells(results: Results, work: str, mode: str | None = None) -> list[tuple[str, str]]:
    """(cell, mode) in the order measured."""
    found = ((row["cell"], row["mode"]) for row in results["rows"] if row["work"] == work)
    return list(dict.fromkeys(pair for pair in found if mode is None or pair[1] == mode))


def peers_of(results: Results) -> list[str]:
    """Names of the peers that have results, kafkapy first and the limit last."""
    present = {row["peer"] for row in results["rows"]}
    return [peer["name"] for peer in results["peers"] if peer["name"] in present]


def reference(results: Results, work: str, cell: str, mode: str, metric: Metric, against: str) -> float | None:
    """The limit's median, or the best one of the Apache Kafka releases."""
    names = [LIMIT] if against == LIMIT else [name for name in peers_of(results) if name.startswith(APACHE)]
    values = [median(results, work, cell, mode, name, metric.key) for name in names]
    known = [value for value in values if value is not None]
    return (min(known) if metric.less else max(known)) if known else None


def ratio(results: Results, work: str, cell: str, mode: str, metric: Metric, against: str) -> float | None:
    ours = median(results, work, cell, mode, OURS, metric.key)
    other = reference(results, work, cell, mode, metric, against)
    return None if ours is None or not other else ours / other


@dataclass(frozen=True)
class Verdict:
    floor: Floor
    ratios: dict[str, float]  # by cell

    @property
    def worst(self) -> float:
        return (max if self.floor.metric.less else min)(self.ratios.values())

    @property
    def words(self) -> str:
        if not self.ratios:
            return "not measured"
        return "pass" if self.floor.holds(self.worst) else "MISS"


def verdicts(results: Results) -> list[Verdict]:
    """A floor holds when it holds in the worst of its cells."""
    found = []
    for floor in FLOORS:
        ratios = {}
        for cell, mode in cells(results, floor.work, floor.mode):
            value = ratio(results, floor.work, cell, mode, floor.metric, floor.against)
            if value is None or not floor.names(cell):
                continue
            if floor.limit_reaches in (None, _limit_is_ahead(results, floor.work, cell, mode, floor.metric)):
                ratios[cell] = value
        found.append(Verdict(floor, ratios))
    return found


def _limit_is_ahead(results: Results, work: str, cell: str, mode: str, metric: Metric) -> bool:
    limit = reference(results, work, cell, mode, metric, LIMIT)
    apache = reference(results, work, cell, mode, metric, APACHE)
    return limit is not None and apache is not None and limit >= AHEAD * apache


def number(value: float | None, metric: Metric) -> str:
    return "–" if value is None else f"{value * metric.scale:,.{metric.digits}f}"


def spread(results: Results, work: str, cell: str, mode: str, peer: str, metric: Metric) -> float | None:
    """Half of (largest - smallest) round, relative to the median."""
    for row in results["rows"]:
        if (row["work"], row["cell"], row["mode"], row["peer"]) == (work, cell, mode, peer):
            values = row["metrics"].get(metric.key, [])
            middle = statistics.median(values) if values else 0
            return (max(values) - min(values)) / 2 / middle if len(values) > 1 and middle else None
    return None


# --- text -------------------------------------------------------------------------------------------------------


def _rows(results: Results, work: str) -> list[list[str]]:
    """Header and one line for each cell and metric: values with spread, then kafkapy's ratios."""
    names = peers_of(results)
    present = [n for n in names if any(row["work"] == work and row["peer"] == n for row in results["rows"])]
    lines = [["cell", "metric", *present, "÷ Apache", "÷ limit", *(["limit's mode"] if LIMIT in present else [])]]
    for cell, mode in cells(results, work):
        label = cell if mode == "pinned" or work in ("W5", "W6") else f"{cell} (unpinned)"
        for metric in COLUMNS[work]:
            values = [median(results, work, cell, mode, name, metric.key) for name in present]
            if all(value is None for value in values):
                continue
            line = [label, metric.title]
            for name, value in zip(present, values, strict=True):
                about = spread(results, work, cell, mode, name, metric)
                line.append(
                    number(value, metric) + (f" ±{about * 100:.0f}%" if about is not None and value is not None else "")
                )
            for against in (APACHE, LIMIT):
                value = ratio(results, work, cell, mode, metric, against)
                line.append("–" if value is None else f"{value:.2f}")
            if LIMIT in present:
                line.append(limit_mode(work, cell) if label and values[present.index(LIMIT)] is not None else "")
            lines.append(line)
            label = ""
    return lines


def _floor_rows(results: Results) -> list[list[str]]:
    lines = [["floor", "bound", "median cell", "worst cell", "verdict", "worst in"]]
    for verdict in verdicts(results):
        sign = "≤" if verdict.floor.metric.less else "≥"
        line = [verdict.floor.title, f"{sign} {verdict.floor.bound}"]
        if verdict.ratios:
            worst_in = next(cell for cell, value in verdict.ratios.items() if value == verdict.worst)
            line += [
                f"{statistics.median(verdict.ratios.values()):.2f}",
                f"{verdict.worst:.2f}",
                verdict.words,
                worst_in,
            ]
        else:
            line += ["–", "–", verdict.words, ""]
        lines.append(line)
    return lines


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _markdown(lines: list[list[str]]) -> str:
    head, *rest = lines
    ruler = ["---" if i < 2 else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ruler, *rest])


def _run_rows(results: Results) -> list[list[str]]:
    lines = [["work", "measured, UTC", "commit", "rounds", "minutes", "load average before", "machine"]]
    for work, run in results["runs"].items():
        machine = f"{run['cores']} cores of {run['cpu']}, {run['memory_gb']} GB, Linux {run['kernel']}"
        machine += ", pinned cores kept awake" if run["may_keep_cores_awake"] else ", idle cores halt"
        machine += f", nice {run['nice']}" if run["nice"] else ""
        numbers = [str(run["rounds"]), f"{run['took_s'] / 60:.0f}", f"{run['load_average_at_start']:.1f}"]
        lines.append([work, run["date"], run["commit"], *numbers, machine])
    return lines


def _place(work: str) -> tuple[bool, int, str]:
    """W2 stands before W10, and both before X."""
    return not work[1:].isdigit(), int(work[1:] or 0) if work[1:].isdigit() else 0, work


def merged(old: Results, new: Results) -> Results:
    """The stored results with each work of the new run in place of what was stored of it; the rest stays as it is."""
    work = old["work"] | new["work"]
    rows = [row for row in old["rows"] if row["work"] not in new["work"]] + new["rows"]
    present = {row["peer"] for row in rows}
    before = {peer["name"]: peer for peer in old["peers"]}
    # A peer that this run has left out was measured when what is stored of it was, or it is missing as before.
    peers = [
        before[peer["name"]]
        if peer["status"] != "measured"
        and peer["name"] in before
        and (peer["name"] in present or before[peer["name"]]["status"] == "missing")
        else peer
        for peer in new["peers"]
    ]
    return new | {
        "peers": peers,
        "work": {name: work[name] for name in sorted(work, key=_place)},
        "runs": {name: (old["runs"] | new["runs"])[name] for name in sorted(work, key=_place)},
        "errors": [text for text in old["errors"] if text.split()[0] not in new["work"]] + new["errors"],
        "rows": sorted(rows, key=lambda row: _place(str(row["work"]))),
    }


def table(results: Results) -> str:
    """Everything, for the terminal."""
    parts = []
    for work, title in results["work"].items():
        if cells(results, work):
            parts.append(f"{work}: {title}\n" + _aligned(_rows(results, work)))
    parts += [f"{work}: {where}" for work, where in results["elsewhere"].items()]
    parts.append("Floors (kafkapy's ratio in every cell)\n" + _aligned(_floor_rows(results)))
    parts += [f"{p['title']}: {p['status']}, {p['why']}" for p in results["peers"] if p["status"] != "measured"]
    return "\n\n".join(parts)


def headline_rows(results: Results) -> list[list[str]]:
    """Header, and a line for each headline that was measured of both."""
    lines = [["", "", "kafkapy", "Apache Kafka"]]
    for each in HEADLINES:
        ours, theirs = [], []
        for cell, mode in cells(results, each.work, each.mode):
            if each.cell in cell:
                mine = median(results, each.work, cell, mode, OURS, each.metric.key)
                best = reference(results, each.work, cell, mode, each.metric, APACHE)
                if mine is not None and best is not None:
                    ours.append(mine)
                    theirs.append(best)
        if ours:
            values = [number(statistics.median(side), each.metric) for side in (ours, theirs)]
            lines.append([each.work, each.title, *values])
    return lines


def write_readme(results: Results, readme: Path) -> None:
    """Puts the headlines between the two marks of the README. Raises ValueError when they are not there."""
    before, begin, rest = readme.read_text().partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        raise ValueError(f"{readme} has no place for the measured numbers: {README_BEGIN} ... {README_END}")
    table = _markdown(headline_rows(results))
    readme.write_text(f"{before}{begin}\n{table}\n{end}{after}")


def write(results: Results, docs: Path) -> None:
    """Writes docs/performance.md and the charts beside it."""
    folder = docs / "performance"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    titles = {peer["name"]: peer["title"] for peer in results["peers"]}
    out = [
        "# Performance",
        "",
        "`make perf` (`perf/run.py`) measures these values, and writes this page and its charts from "
        "`docs/performance.json`. Smaller is better for CPU, latency, memory and times; larger is better for "
        "throughput.",
        "",
        "Works may come from different runs. All measured peers of one work come from the same run:",
        "",
        _markdown(_run_rows(results)),
        "",
        "| peer | version | |",
        "|---|---|---|",
        *(
            f"| {p['title']} | {p['version']} | {p['status']}{': ' + p['why'] if p['why'] else ''} |"
            for p in results["peers"]
        ),
        "",
        "## Floors",
        "",
        "The ratio is kafkapy's median divided by the other's, in the median cell and in the worst cell. A floor holds "
        "when the worst cell is within its bound.",
        "",
        _markdown(_floor_rows(results)),
    ]
    for work, title in results["work"].items():
        if not cells(results, work):
            continue
        out += ["", f"## {work}: {title}", ""]
        for name, of, metric, mode in CHARTS:
            groups = _groups(results, of, metric, mode) if of == work else []
            if groups:
                (folder / f"{name}.svg").write_text(
                    charts.bars(f"{work} {metric.title}", groups, titles, metric.digits)
                )
                out += [f"![{work} {metric.title}](performance/{name}.svg)", ""]
        out.append(_markdown(_rows(results, work)))
    out += ["", "## Not measured here", ""]
    out += [f"- {work}: {why}" for work, why in results["elsewhere"].items()]
    if results["errors"]:
        out += ["", "## Errors", "", *(f"- {error}" for error in results["errors"])]
    out += ["", Path(__file__).with_name("method.md").read_text().rstrip(), ""]
    findings = docs / "performance-findings.md"
    if findings.exists():
        out += [findings.read_text().rstrip(), ""]
    (docs / "performance.md").write_text("\n".join(out))


def _groups(results: Results, work: str, metric: Metric, mode: str) -> list[tuple[str, list[charts.Bar]]]:
    groups = []
    for cell, _ in cells(results, work, mode):
        bars = []
        for name in peers_of(results):
            for row in results["rows"]:
                values = (
                    row["metrics"].get(metric.key)
                    if (row["work"], row["cell"], row["mode"], row["peer"]) == (work, cell, mode, name)
                    else None
                )
                if values:
                    scaled = [value * metric.scale for value in values]
                    bars.append(charts.Bar(name, statistics.median(scaled), min(scaled), max(scaled)))
        if bars:
            groups.append((cell, bars))
    return groups
