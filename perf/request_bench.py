"""Microseconds per Produce and per Fetch in the data plane, without sockets and without Python in between.

    PYTHONPATH=. .venv/bin/python perf/request_bench.py [--count N]

Each row is the best of five rounds: decode, authorization look-up, partition log in memory (memfd), reply built.
Fetch replies are built, not sent. "idle" rows have nothing new: what a fetch costs when it finds no data.
"""

from __future__ import annotations

import argparse
from typing import Any

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy._speedups.testing.request_driver import RequestDriver
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import RecordBatchBuilder

ROUNDS = 5
PRODUCE, FETCH = 0, 1


class Bench:
    """A data plane with one topic in memory, led by this broker; used by one thread."""

    def __init__(self, partitions: int) -> None:
        self.table = PartitionTable()
        self.plane = DataPlane(1, self.table, FetchSessionCache(), EventQueue())
        self.driver = RequestDriver(self.plane)
        self.table.put("topic-of-the-bench", bytes(range(16)), partitions)
        self.logs = []
        config: Any = LogConfig.create()
        for number in range(partitions):
            log = PartitionLog(
                "topic-of-the-bench", number, MemoryLogStorage(str(number)), config, topic_id=bytes(range(16))
            )
            log.prepare_segment()
            log.become_leader(1, 0, (1,))
            self.table.set_log("topic-of-the-bench", number, log)
            self.logs.append(log)

    def best(self, api_key: int, version: int, body: bytes, count: int) -> float:
        """Microseconds per request."""
        return min(self.driver.measure(api_key, version, body, count) for _ in range(ROUNDS)) / count / 1000


def batch(records: int, size: int) -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(records):
        builder.append(1_700_000_000_000, b"key", b"x" * size)
    return builder.build()


def produce_body(version: int, partitions: int, records: bytes, acks: int) -> bytes:
    entries = [ProduceRequest.Topic.Partition(index=number, records=records) for number in range(partitions)]
    topic = ProduceRequest.Topic(name="topic-of-the-bench", partition_data=entries)
    return bytes(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]).encode(version))


def fetch_body(version: int, partitions: int, offset: int) -> bytes:
    entries = [
        FetchRequest.Topic.Partition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number in range(partitions)
    ]
    topic = FetchRequest.Topic(topic="topic-of-the-bench", partitions=entries)
    return bytes(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, topics=[topic]).encode(version))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000, help="requests per round")
    count = parser.parse_args().count
    print(f"{'request':<58}{'us':>10}")
    for label, partitions, records, size in (
        ("Produce v12, 1 partition, 1 record of 100 B", 1, 1, 100),
        ("Produce v12, 1 partition, 100 records of 100 B", 1, 100, 100),
        ("Produce v12, 1 partition, 1 record of 100 kB", 1, 1, 100_000),
        ("Produce v12, 100 partitions, 1 record of 100 B each", 100, 1, 100),
    ):
        bench = Bench(partitions)
        turns = max(count // (partitions if size < 1000 else 20), 20)
        print(
            f"{label:<58}{bench.best(PRODUCE, 12, produce_body(12, partitions, batch(records, size), 1), turns):>10.2f}"
        )
    for partitions in (1, 100, 1000):
        bench = Bench(partitions)
        for log in bench.logs:
            log.append_as_leader(batch(10, 100))
        turns = max(count // partitions, 20)
        for label, offset in (("with data", 0), ("idle", 10)):
            took = bench.best(FETCH, 12, fetch_body(12, partitions, offset), turns)
            print(f"{f'Fetch v12, {partitions} partitions {label}':<58}{took:>10.2f}")


if __name__ == "__main__":
    main()
