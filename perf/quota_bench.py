"""The price of client quotas: CPU of the broker per Produce and Fetch, in turns (A B A B ...).

    PYTHONPATH=. .venv/bin/python perf/quota_bench.py prepare DIRECTORY
    PYTHONPATH=. .venv/bin/python perf/quota_bench.py run [--without DIRECTORY] [--rounds 100] [--seconds 0.5]

`prepare` copies the committed tree into a new directory, takes the calls of quotas out of the data plane there, and
builds it. `run` has a broker for each of these, and gives medians, and the median of the ratios to the first with
its interval of 95 %. Many short rounds: neighbours of a virtual machine disturb a round as a whole.

    without   the prepared copy: no machinery
    off       nobody has a quota
    others    another client has quotas: this one is measured
    own       this client has quotas that it does not reach
"""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import measure
from client import Client, batch_of_size, write_frames

from kafkapy import KafkaAdminClient
from kafkapy.testing.broker_process import BrokerProcess

ROOT = Path(__file__).parents[1]
PROCESSOR = Path("kafkapy", "_speedups", "network", "channel_handler.pyx")
QUOTAS = {"producer_byte_rate": 1e15, "consumer_byte_rate": 1e15, "request_percentage": 1e9}
CLIENT_ID = "load"
"""Of the load generator."""
PARTITIONS = 8
BATCH = 1_000
FILLED = 4_000
"""Batches in a topic that is read."""


def prepare(folder: Path) -> None:
    """A copy of the committed tree without the calls of quotas in the data plane."""
    folder.mkdir(parents=True)
    tree = subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(folder)], stdin=tree.stdout, check=True)
    if tree.wait():
        raise SystemExit("git archive failed")
    path = folder / PROCESSOR
    after = r"(?m)^( +)quotas_(?:before_reply|throttle|count_sending)\(.*\)$"
    text, calls = re.subn(after, r"\1pass", path.read_text())
    text, uses = re.subn(r"(?m)^    quotas_use\(.*\)$", "    pass", text)
    text, asks = re.subn(r"if quotas_ready\(.*\):", "if True:", text)
    if (calls, uses, asks) != (3, 1, 1):
        raise SystemExit(f"{PROCESSOR} has other calls of quotas by now: {calls}, {uses}, {asks}")
    path.write_text(text)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, check=True)


class Mode:
    """A running broker of one mode."""

    def __init__(self, name: str, tree: Path, frames: Path) -> None:
        self.name = name
        self.frames = frames
        command = [sys.executable, "-P", "-m", "kafkapy.tools.server"]
        keys = {"log.retention.bytes": str(64 << 20), "num.network.threads": "1"}
        self.broker = BrokerProcess(None, keys, environment={"PYTHONPATH": str(tree)}, command=command)

    def __enter__(self) -> Mode:
        with measure.on_cores(measure.broker_cores(pinned=True)):
            self.broker.start()
        batch, _ = batch_of_size(BATCH, 100, 1)
        with Client(self.broker.port) as client:
            client.create_topic("written", PARTITIONS)
            client.create_topic("read", PARTITIONS)
            for _ in range(FILLED // PARTITIONS):
                client.produce("read", range(PARTITIONS), batch)
            self.end = client.end_offsets("read", PARTITIONS)[0]
        self.paths = write_frames(self.frames / self.name, "written", [batch] * PARTITIONS, 1)
        client_id = {"others": "somebody", "own": CLIENT_ID}.get(self.name)
        if client_id is not None:
            with KafkaAdminClient(bootstrap_servers=self.broker.bootstrap) as admin:
                admin.alter_client_quotas([({"client-id": client_id}, QUOTAS)])
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.remove()

    def cpu_us(self, work: str, seconds: float, connections: int) -> float:
        """CPU of the broker per request in microseconds."""
        named = {
            "port": self.broker.port, "connections": connections, "seconds": seconds,
            "pids": measure.pids(self.broker.pid), "poll": measure.polls(pinned=True),
        }  # fmt: skip
        if work == "produce":
            arguments = [*measure.options(**named, topic="written"), *self.paths]
        else:
            place = {"topic": "read", "partitions": PARTITIONS, "end_offset": self.end, "max_bytes": 4 * BATCH}
            arguments = measure.options(**named, **place)
        answer = measure.run_native("load", work, *arguments)
        return float(answer["broker_cpu_s"]) / float(answer["requests"]) * 1e6


def interval(ordered: list[float]) -> tuple[float, float]:
    """The interval that holds the median with 95 %, whatever the distribution is (order statistics)."""
    reach = 0.98 * len(ordered) ** 0.5
    middle = (len(ordered) - 1) / 2
    return ordered[max(0, math.floor(middle - reach))], ordered[min(len(ordered) - 1, math.ceil(middle + reach))]


def modes(without: Path | None, frames: Path) -> Iterator[Mode]:
    if without is not None:
        yield Mode("without", without, frames)
    for name in ("off", "others", "own"):
        yield Mode(name, ROOT, frames)


def run(without: Path | None, rounds: int, seconds: float, connections: int) -> None:
    with ExitStack() as stack:
        frames = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(measure.kept_awake())
        running = [stack.enter_context(mode) for mode in modes(without, frames)]
        for work in ("produce", "fetch"):
            taken: dict[str, list[float]] = {mode.name: [] for mode in running}
            for number in range(rounds + 1):
                # The order turns, so that none is always behind the same other; the first round is a warm-up.
                turn = running[number % len(running) :] + running[: number % len(running)]
                for mode in turn:
                    cost = mode.cpu_us(work, seconds, connections)
                    if number:
                        taken[mode.name].append(cost)
            first = taken[running[0].name]
            for name, costs in taken.items():
                ratios = sorted(cost / beside for cost, beside in zip(costs, first, strict=True))
                low, high = interval(ratios)
                print(
                    f"{work:<8} {name:<8} {statistics.median(costs):8.3f} us"
                    f"   {statistics.median(ratios):6.3f} ({low:.3f} to {high:.3f})"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare").add_argument("directory", type=Path)
    running = commands.add_parser("run")
    running.add_argument("--without", type=Path, help="the prepared directory")
    running.add_argument("--rounds", type=int, default=100)
    running.add_argument("--seconds", type=float, default=0.5, help="of each mode in a round")
    running.add_argument("--connections", type=int, default=8)
    chosen = parser.parse_args()
    if chosen.command == "prepare":
        prepare(chosen.directory)
    else:
        run(chosen.without and chosen.without.resolve(), chosen.rounds, chosen.seconds, chosen.connections)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(ROOT)
    main()
