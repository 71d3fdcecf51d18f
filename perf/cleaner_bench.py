"""Compaction: how fast the cleaner maps and rewrites a log, and what it costs, beside Apache Kafka's.

python perf/cleaner_bench.py [--records 10000000] [--keys 1000000] [--size 100] [--codec none] [--peer 4.x] [--rounds 2]

Writes a log of `records` records of `size` bytes (key and value) with `keys` keys in random order, in batches of 16 KiB
and segments of 256 MiB, and has copies of it cleaned: by our cleaner, and by an Apache Kafka broker that finds two of
them as partitions of a compacted topic (one cleaner thread, otherwise as by default; the second one is cleaned by a JVM
that has warmed up). In turns, `rounds` times. One line of JSON for each: MB/s of log bytes and CPU seconds per GB, for
building the map and for rewriting together; of the broker by its own log lines and the CPU time of its process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers.apache_kafka import VERSIONS, ApacheKafka, PeerMissingError, jars

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.log.loader import load_log
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType, TopicPartition

TP = TopicPartition("bench", 0)
NOW = 1_600_000_000_000
KEYS = {"cleanup.policy": "compact", "segment.bytes": str(256 << 20)}
MAP_BYTES = 128 << 20
CLEANED = re.compile(
    rb"cleaned log bench-(\d) \(dirty section = \[\d+, (\d+)\]\).*?([\d,.]+) MB of log processed in ([\d,.]+) seconds",
    re.DOTALL,
)


def open_log(root: Path) -> PartitionLog:
    root.mkdir(exist_ok=True)
    storage = LocalBackend().open_log(root, str(TP), create=True)
    return load_log(storage, TP, LogConfig.create(overrides=KEYS))[0]


def write(root: Path, records: int, keys: int, size: int, codec: int) -> int:
    """Makes the log; its bytes."""
    log = open_log(root)
    log.become_leader(1, 0, (1,))
    rng = random.Random(1)
    value = rng.randbytes(max(size - 10, 1))
    per_batch = max(16_384 // (size + 10), 1)
    done = 0
    while done < records:
        builder = RecordBatchBuilder()
        for _ in range(min(per_batch, records - done)):
            builder.append(NOW, b"%010d" % rng.randrange(keys), value)
            done += 1
        log.append_as_leader(builder.build(codec))
    log.roll()
    log.close()
    log.flush()
    return log.size


def copy(source: Path, target: Path) -> None:
    """A copy of the log's files, with what the target has beside them. The large ones are linked: no cleaner changes a
    segment in place."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        (target / path.name).unlink(missing_ok=True)
        if path.suffix == ".log" and path.stat().st_size:
            os.link(path, target / path.name)
        else:
            shutil.copy2(path, target / path.name)


def clean_with_kafkapy(written: Path, root: Path, size: int) -> Iterator[dict[str, Any]]:
    copy(written / str(TP), root / str(TP))
    log = open_log(root)
    log.become_leader(1, 0, (1,))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, cpu = time.monotonic(), time.process_time()
    end, stats = Cleaner(MAP_BYTES).clean(log_to_clean(TP, log, None, NOW), NOW)
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) / 1024
    yield report("kafkapy", end, size, log.size, seconds, cpu) | {"keys": stats.keys, "extra_rss_mb": round(grown, 1)}
    log.close()


def report(name: str, end: int, size: int, left: int, seconds: float, cpu: float) -> dict[str, Any]:
    """Of one cleaning. Offset; bytes; seconds."""
    return {
        "cleaner": name, "cleaned_to_offset": end, "log_mb": round(size / 1e6, 1), "left_mb": round(left / 1e6, 1),
        "seconds": round(seconds, 2), "mb_per_s": round(size / 1e6 / seconds, 1),
        "cpu_s_per_gb": round(cpu / (size / 1e9), 2), "records_per_s": round(end / seconds),
    }  # fmt: skip


def clean_with_kafka(version: str, written: Path, root: Path, size: int) -> Iterator[dict[str, Any]]:
    import confluent_kafka.admin as admin

    keys = {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "1000"}
    broker = ApacheKafka(version, root, keys)
    # Its cleaner's lines are those of INFO; inherited by the process.
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join(
        f"-Dorg.slf4j.simpleLogger.log.{name}=info" for name in ("kafka.log", "org.apache.kafka.storage.internals.log")
    )
    try:
        broker.start()
        client = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        # Nothing is due before the policy says so.
        topic_keys = KEYS | {"cleanup.policy": "delete", "retention.ms": "-1", "min.cleanable.dirty.ratio": "0.01"}
        client.create_topics([admin.NewTopic("bench", 2, 1, config=topic_keys)])["bench"].result(60)
        broker.stop()
        for number in range(2):
            target = root / "logs" / f"bench-{number}"
            for path in target.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            copy(written / str(TP), target)
        broker.start()
        time.sleep(10)  # what a start leaves to do is done
        resource_ = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, "bench")
        policy = admin.ConfigEntry("cleanup.policy", "compact", incremental_operation=admin.AlterConfigOpType.SET)
        resource_.add_incremental_config(policy)
        client = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        client.incremental_alter_configs([resource_])[resource_].result(60)
        cpu = cpu_seconds(broker.pid)
        for state in ("cold", "warm"):
            number, end, seconds = wait_for_line(broker.log_path, 1 if state == "cold" else 2)
            used = cpu_seconds(broker.pid) - cpu
            cpu += used
            left = sum(path.stat().st_size for path in (root / "logs" / f"bench-{number}").glob("*.log"))
            yield report(f"Apache Kafka {VERSIONS[version]} ({state})", end, size, left, seconds, used)
    finally:
        broker.kill()
        del os.environ["JAVA_TOOL_OPTIONS"]


def wait_for_line(path: Path, count: int) -> tuple[int, int, float]:
    """Partition, offset and seconds of the cleaning of that number in the broker's log."""
    deadline = time.monotonic() + 600
    while len(found := CLEANED.findall(path.read_bytes())) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the broker has cleaned {len(found)} logs: {path.read_bytes()[-1000:]!r}")
        time.sleep(0.02)
    number, end, _, seconds = found[count - 1]
    return int(number), int(end), float(seconds.replace(b",", b""))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--codec", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--peer", default="4.x", choices=[*VERSIONS, "none"], help="the Apache Kafka to compare with")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="where the logs are written (default: a temporary directory)")
    arguments = parser.parse_args()
    peer = arguments.peer
    try:
        if peer != "none":
            jars(peer)
    except PeerMissingError as missing:
        print(json.dumps({"cleaner": f"Apache Kafka {VERSIONS[peer]}", "missing": str(missing)}))
        peer = "none"
    root = Path(tempfile.mkdtemp(dir=arguments.directory, prefix="cleaner-bench-"))
    try:
        codec = CompressionType[arguments.codec.upper()]
        size = write(root / "written", arguments.records, arguments.keys, arguments.size, codec)
        for number in range(arguments.rounds):
            for line in clean_with_kafkapy(root / "written", root / f"kafkapy-{number}", size):
                print(json.dumps(line), flush=True)
            shutil.rmtree(root / f"kafkapy-{number}")
            if peer == "none":
                continue
            for line in clean_with_kafka(peer, root / "written", root / f"kafka-{number}", size):
                print(json.dumps(line), flush=True)
            shutil.rmtree(root / f"kafka-{number}")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
