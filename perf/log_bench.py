"""Partition logs without a network: what an idle partition costs, and how fast one thread appends and reads.

python perf/log_bench.py [partitions ...]       # default: 1000 10000
"""

from __future__ import annotations

import gc
import os
import re
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


def cost(name: str, count: int, before: tuple[int, int, int], seconds: float) -> None:
    memory, files, mapped = resident_kib() - before[0], open_files() - before[1], maps() - before[2]
    print(
        f"{count} partitions: {name} in {seconds:.2f} s, {memory / count:.2f} KiB, {files / count:.2f} descriptors and "
        f"{mapped / count:.2f} maps each"
    )


def figures() -> tuple[int, int, int]:
    gc.collect()
    return resident_kib(), open_files(), maps()


def batch_of(count: int) -> bytes:
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(time.time_ns() // 1_000_000, b"key-%d" % number, b"x" * 100)
    return builder.build()


def bytes_read() -> int:
    """By system calls of this process, from the page cache as well."""
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])  # type: ignore[index]


def crash_with(root: Path, count: int, unflushed: int, size: int) -> None:
    """In a process of its own: appends `size` bytes to each of some partitions, and ends without a stop."""
    child = os.fork()
    if child == 0:
        logs = manager(root)
        logs.load()
        batch = batch_of(100)
        for number in range(unflushed):
            log = logs.get_or_create(TopicPartition("bench", number * (count // unflushed)))
            log.become_leader(1, 1, [1])
            for _ in range(size // len(batch)):
                log.append_as_leader(batch)
        os._exit(0)
    os.waitpid(child, 0)


def idle_partitions(root: Path, count: int) -> None:
    """Partitions with little data: what they cost when made, after a clean start, and after a crash."""
    logs = manager(root)
    logs.load()
    before, batch, started = figures(), batch_of(10), time.perf_counter()
    for number in range(count):
        log = logs.get_or_create(TopicPartition("bench", number))
        log.become_leader(1, 0, [1])
        log.append_as_leader(batch)
    cost(f"created and {len(batch)} bytes appended", count, before, time.perf_counter() - started)
    started = time.perf_counter()
    logs.shutdown()
    print(f"{count} partitions: clean stop in {time.perf_counter() - started:.2f} s")
    del logs, log
    before = figures()
    logs = manager(root)
    started = time.perf_counter()
    logs.load()
    cost("clean start", count, before, time.perf_counter() - started)
    logs.shutdown()
    del logs
    unflushed, size = 100, 1 << 20
    crash_with(root, count, unflushed, size)
    before, read = figures(), bytes_read()
    logs = manager(root)
    started = time.perf_counter()
    logs.load()
    seconds, read = time.perf_counter() - started, bytes_read() - read
    cost("start after a crash", count, before, seconds)
    print(
        f"{count} partitions: {unflushed} of them had {size / 1e6:.1f} MB each that was not flushed, "
        f"{unflushed * size / 1e6:.0f} MB in all; {read / 1e6:.0f} MB were read"
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
