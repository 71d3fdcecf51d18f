"""Partition logs without a network: what an idle partition costs, and how fast one thread appends and reads.

python perf/log_bench.py [partitions ...]       # default: 1000 10000
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from kafkapy.config.broker import BrokerConfig
from kafkapy.log.log_manager import LogManager
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import TopicPartition

BATCH_BYTES = 16_384
TOTAL_BYTES = 256 << 20


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def manager(root: Path) -> LogManager:
    path = root / "server.properties"
    path.write_text(f"broker.id=1\nlog.dirs={root / 'logs'}\nnum.recovery.threads.per.data.dir=2\n")
    made = LogManager(BrokerConfig.load(str(path)))
    made.acquire()
    return made


def idle_partitions(root: Path, count: int) -> None:
    logs = manager(root)
    logs.load()
    memory, files, started = resident_kib(), open_files(), time.perf_counter()
    for number in range(count):
        logs.get_or_create(TopicPartition("bench", number))
    seconds = time.perf_counter() - started
    print(
        f"{count} partitions: created in {seconds:.2f} s, {(resident_kib() - memory) / count:.2f} KiB and "
        f"{(open_files() - files) / count:.2f} descriptors each"
    )
    started = time.perf_counter()
    logs.shutdown()
    print(f"{count} partitions: clean stop in {time.perf_counter() - started:.2f} s")
    del logs
    gc.collect()
    logs = manager(root)
    memory, files, mapped, started = resident_kib(), open_files(), maps(), time.perf_counter()
    logs.load()
    print(
        f"{count} partitions: loaded in {time.perf_counter() - started:.2f} s, "
        f"{(resident_kib() - memory) / count:.2f} KiB, {(open_files() - files) / count:.2f} descriptors and "
        f"{(maps() - mapped) / count:.2f} maps each"
    )
    logs.shutdown()


def throughput(root: Path) -> None:
    logs = manager(root)
    log = logs.get_or_create(TopicPartition("throughput", 0))
    log.become_leader(1, 0, [1])
    builder = RecordBatchBuilder()
    while builder.size < BATCH_BYTES - 120:
        builder.append(time.time_ns() // 1_000_000, None, b"x" * 100)
    batch = builder.build()
    rounds = TOTAL_BYTES // len(batch)
    started = time.perf_counter()
    for _ in range(rounds):
        log.append_as_leader(batch, api_version=9)
    seconds = time.perf_counter() - started
    print(f"append: {rounds * len(batch) / seconds / 1e6:.0f} MB/s, {rounds / seconds:.0f} batches/s of {len(batch)} B")
    offset, size, started = 0, 0, time.perf_counter()
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, isolation=0)[0]
        whole = len(data) // len(batch)
        size += whole * len(batch)
        offset += whole * len(builder)
    print(f"read, 1 MiB at a time: {size / (time.perf_counter() - started) / 1e6:.0f} MB/s")
    logs.shutdown()


def main() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    for count in [int(argument) for argument in sys.argv[1:]] or [1000, 10_000]:
        root = Path(tempfile.mkdtemp(prefix="kafkapy-log-bench-"))
        try:
            idle_partitions(root, count)
        finally:
            shutil.rmtree(root)
    root = Path(tempfile.mkdtemp(prefix="kafkapy-log-bench-"))
    try:
        throughput(root)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
