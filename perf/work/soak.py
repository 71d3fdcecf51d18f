"""W8: mixed load for a long time. Memory, file descriptors and latency are sampled; what drifts leaks.

    .venv/bin/python perf/work/soak.py [--minutes 30] [--peer kafkapy]

Produce to 12 partitions at a fixed rate, catch-up readers, a tailing consumer, topics that come and go, clients that
connect and leave, and retention that deletes segments all the time. Prints one JSON object a sample.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import measure
import peers
from client import Client, batch_of_size, record_batch, value, write_frames

PARTITIONS = 12
PRODUCE_RATE = 1200  # requests of 16 KB a second, 20 MB/s
TAIL_RATE = 500
OVERRIDES = {
    "log.retention.bytes": str(32 << 20),
    "log.segment.bytes": str(8 << 20),
    "log.retention.check.interval.ms": "5000",
}

Sample = dict[str, float]


class Loads:
    """Owns the threads that keep the loads going; each runs short pieces until `stop`. The first error ends all."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def keep(self, what: str, piece: Callable[[], None]) -> None:
        def run() -> None:
            while not self._stop.is_set():
                try:
                    piece()
                except Exception as error:
                    self.errors.append(f"{what}: {type(error).__name__}: {error}")
                    self._stop.set()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def ended(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


def _tail(folder: Path, broker: Any, latencies: list[dict[str, float]], piece_s: float) -> Callable[[], None]:
    batch = record_batch([b"KAFKAPY!" + bytes(8) + value(1000, random.Random(4))])
    number = iter(range(1 << 30))

    def piece() -> None:
        topic = f"soak-tail-{next(number)}"
        with Client(broker.port) as client:
            client.create_topic(topic, 1)
            frame = write_frames(folder, topic, [batch], 1)
            named = measure.options(port=broker.port, topic=topic, rate=TAIL_RATE, seconds=piece_s, warm_up=0.2)
            latencies.append(measure.run_native("tail", *named, *frame, pinned=False)["end_to_end_us"])
            client.delete_topic(topic)
        for path in frame:
            Path(path).unlink()

    return piece


def _read(broker: Any) -> Callable[[], None]:
    """Eight readers of whatever retention has left, from the log start on."""

    def piece() -> None:
        with Client(broker.port) as client:
            for partition in range(PARTITIONS):
                end = client.end_offsets("soak", PARTITIONS)[partition]
                start = max(0, end - 2000)
                for _ in client.batches("soak", partition, start, end):
                    pass
        time.sleep(0.2)

    return piece


def soak(minutes: float, peer: peers.Peer, data_dir: Path, samples: int = 30) -> Iterator[Sample]:
    """One sample every minutes/samples. Raises RuntimeError with the error of the load that failed."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=data_dir, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        broker = peers.started(peer, folder / peer.name, OVERRIDES)
        loads, latencies = Loads(), list[dict[str, float]]()
        interval = minutes * 60 / samples
        try:
            batches = [batch_of_size(16 << 10, 1000, seed)[0] for seed in range(PARTITIONS)]
            with Client(broker.port) as client:
                client.create_topic("soak", PARTITIONS)
            frames = write_frames(folder / "frames", "soak", batches, -1)
            piece_s = min(10.0, interval / 3)

            def produce() -> None:
                named = measure.options(
                    port=broker.port, connections=PARTITIONS, seconds=piece_s, rate=PRODUCE_RATE, topic="soak"
                )
                measure.run_native("load", "produce", *named, *frames, pinned=False)

            loads.keep("produce", produce)
            loads.keep("tail", _tail(folder / "frames", broker, latencies, piece_s))
            loads.keep("read", _read(broker))
            begin = time.monotonic()
            for index in range(samples):
                while time.monotonic() < begin + interval * (index + 1) and not loads.ended:
                    time.sleep(0.1)
                if loads.ended:
                    raise RuntimeError("; ".join(loads.errors))
                taken, latencies[:] = list(latencies), []
                yield {
                    "minute": round(interval * (index + 1) / 60, 2),
                    "rss_mb": measure.rss_bytes(broker.pid) / 1e6,
                    "descriptors": measure.file_descriptors(broker.pid),
                    "p99_us": statistics.median(entry["p99"] for entry in taken) if taken else 0.0,
                    "cpu_s": measure.cpu_seconds(broker.pid),
                }
            loads.stop()
            if loads.errors:
                raise RuntimeError("; ".join(loads.errors))
        finally:
            loads.stop()
            broker.kill()
            broker.remove()


def drift(samples: list[Sample], key: str) -> float:
    """Median of the last third over that of the second quarter: 1.0 is no drift. Caches fill in the first quarter."""
    n = len(samples)
    early = [sample[key] for sample in samples[n // 4 : n // 2]]
    late = [sample[key] for sample in samples[-(n // 3) :]]
    return statistics.median(late) / statistics.median(early)


def main() -> int:
    parser = argparse.ArgumentParser(description="W8: mixed load for a long time")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--peer", default="kafkapy")
    options = parser.parse_args()
    samples = []
    for sample in soak(options.minutes, peers.by_name(options.peer), measure.CACHE / "data"):
        samples.append(sample)
        print(json.dumps({key: round(value, 3) for key, value in sample.items()}), flush=True)
    keys = ("rss_mb", "descriptors", "p99_us")
    print(json.dumps({f"{key}_drift": round(drift(samples, key), 3) for key in keys}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
