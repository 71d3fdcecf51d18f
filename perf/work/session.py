"""One run of the instrument: which peers take part, how many rounds, what came out."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
import peers
from peers import LIMIT, Peer

Metrics = dict[str, float]
WARM_UP_S = 5.0
WARM_UP_CPU_S = 40.0  # of a broker with a just-in-time compiler, on one core with it
WARM_UP_LIMIT_S = 60.0
SETTLE_S = 0.1  # for what a broker that stood still has to catch up with


@dataclass
class Row:
    """What one peer reached in one cell: each metric has one value a round."""

    work: str
    cell: str
    mode: str
    peer: str
    metrics: dict[str, list[float]] = field(default_factory=dict)

    def add(self, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self.metrics.setdefault(name, []).append(round(value, 9))


@dataclass
class Session:
    """Owns the running brokers of the work that is measured now. All calls come from the main thread."""

    peers: list[Peer]
    rounds: int
    smoke: bool
    data_dir: Path
    rows: dict[tuple[str, str, str, str], Row] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    work: str = ""
    cold: dict[str, tuple[int, float, float]] = field(default_factory=dict)  # name: pid, warming since, CPU used then
    pids: dict[str, int] = field(default_factory=dict)  # of the brokers that run side by side

    @property
    def brokers(self) -> list[Peer]:
        """All peers but the limit."""
        return [peer for peer in self.peers if peer is not LIMIT]

    def seconds(self, full: float, smoke: float) -> float:
        return smoke if self.smoke else full

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def fail(self, peer: str, what: str, error: BaseException) -> None:
        """Remembers an error; the run goes on and ends with exit code 1."""
        text = f"{self.work} {peer}, {what}: {type(error).__name__}: {error}"
        self.errors.append(text)
        self.say(f"ERROR {text}")
        if not isinstance(error, (measure.LoadError, RuntimeError, OSError)):
            traceback.print_exception(error)

    def add(self, peer: Peer, cell: str, metrics: Metrics, mode: str = "pinned") -> None:
        key = (self.work, cell, mode, peer.name)
        self.rows.setdefault(key, Row(self.work, cell, mode, peer.name)).add(metrics)

    @contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        """A new directory on the file system of the measurements, removed afterwards."""
        with tempfile.TemporaryDirectory(
            prefix=f"perf-{name}-", dir=self.data_dir, ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)

    @contextmanager
    def running(
        self,
        *,
        pinned: bool = True,
        with_limit: bool = True,
        limit_batch: int = 16384,
        overrides: dict[str, str] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """All peers started side by side, by name. One that does not start is an error, the others go on.

        A pinned broker is so from its start: it sees one core, and has the threads for one. Its core is kept awake.
        """
        brokers: dict[str, Any] = {}
        awake = measure.kept_awake() if measure.polls(pinned) else nullcontext()
        with self.folder(self.work.lower()) as folder, awake:
            try:
                for peer in self.peers:
                    if peer is LIMIT and not with_limit:
                        continue
                    own = {"batch.bytes": str(limit_batch)} if peer is LIMIT else (overrides or {})
                    try:
                        with measure.on_cores(measure.broker_cores(pinned)):
                            brokers[peer.name] = peers.started(peer, folder / peer.name, own)
                    except Exception as error:
                        self.fail(peer.name, "start", error)
                self.pids = {name: broker.pid for name, broker in brokers.items()}
                self.cold = {name: (broker.pid, 0.0, 0.0) for name, broker in brokers.items() if name != LIMIT.name}
                yield brokers
            finally:
                self.pids = {}
                for broker in brokers.values():
                    broker.kill()
                    broker.remove()

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """The other brokers stand still meanwhile: compiling and collecting garbage, they would take from the core of
        the one that is measured."""
        others = [pid for other, pid in self.pids.items() if other != name]
        stopped = [member for pid in others for member in measure.process_tree(pid)]
        try:
            _signal(stopped, signal.SIGSTOP)
            time.sleep(SETTLE_S)
            yield
        finally:
            _signal(stopped, signal.SIGCONT)

    def is_warm(self, name: str) -> bool:
        """Warm once, warm until the brokers are stopped."""
        if name not in self.cold:
            return True
        pid, since, cpu_before = self.cold[name]
        if not since:
            self.cold[name] = (pid, time.monotonic(), measure.cpu_seconds(pid))
            return False
        took = time.monotonic() - since
        used = measure.cpu_seconds(pid) - cpu_before
        warm = took >= WARM_UP_S and (used >= WARM_UP_CPU_S or not peers.by_name(name).is_apache)
        if warm or took >= WARM_UP_LIMIT_S:
            del self.cold[name]
        return warm

    def in_turns(
        self, cell: str, calls: dict[str, Callable[[], Metrics]], mode: str = "pinned", warm_up: bool = True
    ) -> None:
        """A B A B: a warm-up of each, then the rounds. A peer that fails is left out of the cell's remaining rounds.

        A broker's first warm-up lasts until it is warm: WARM_UP_S, and in a JVM until it has used WARM_UP_CPU_S.
        """
        left = dict(calls)
        begin = time.monotonic()
        for turn in range(-1 if warm_up else 0, self.rounds):
            for name in list(left):
                try:
                    with self.alone(name) if turn >= 0 else nullcontext():
                        metrics = left[name]()
                    while turn < 0 and not self.smoke and not self.is_warm(name):
                        left[name]()
                except Exception as error:
                    self.fail(name, f"{cell} ({mode})", error)
                    del left[name]
                    continue
                if turn >= 0:
                    self.add(peers.by_name(name), cell, metrics, mode)
        self.say(f"{self.work}  {cell} ({mode}): {time.monotonic() - begin:.1f} s")


def _signal(pids: list[int], number: signal.Signals) -> None:
    """One that has ended is an error of its own rounds, and keeps no other from going on."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def rates(measured: dict[str, Any]) -> Metrics:
    """What load.c printed, as the metrics of a row."""
    return {
        "gb_per_s": measured["bytes"] / measured["seconds"] / measure.GB,
        "cpu_s_per_gb": measured["broker_cpu_s"] / measured["bytes"] * measure.GB,
        "requests_per_s": measured["requests"] / measured["seconds"],
        "cpu_us_per_request": measured["broker_cpu_s"] / measured["requests"] * 1e6,
        "broker_cores": measured["broker_cpu_s"] / measured["seconds"],
        "load_cores": measured["load_cpu_s"] / measured["seconds"],
        "p50_us": measured["latency_us"]["p50"],
        "p99_us": measured["latency_us"]["p99"],
    }
