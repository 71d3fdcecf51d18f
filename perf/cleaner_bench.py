"""Compaction: how fast the cleaner maps and rewrites a log, and what it costs.

python perf/cleaner_bench.py [--records 10000000] [--keys 1000000] [--size 100] [--codec none]

Writes a log of `records` records of `size` bytes (key and value) with `keys` keys in random order, in batches of 16 KiB
and segments of 256 MiB, then cleans it once. Prints MB/s of log bytes and CPU seconds per GB, for building the map and
for rewriting together, and the memory it took. Runs alone; asks nothing of the network.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import tempfile
import time
from pathlib import Path

from kafkapy._speedups.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.log.loader import load_log
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType, TopicPartition

TP = TopicPartition("bench", 0)
NOW = 1_600_000_000_000


def write(log: PartitionLog, records: int, keys: int, size: int, codec: int) -> int:
    """Fills the log; its bytes."""
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
    return log.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--codec", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--directory", type=Path, help="where the log is written (default: a temporary directory)")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(dir=arguments.directory, prefix="cleaner-bench-"))
    try:
        config = LogConfig.create(overrides={"cleanup.policy": "compact", "segment.bytes": str(256 << 20)})
        log, _ = load_log(LocalBackend().open_log(root, str(TP), create=True), TP, config)
        log.become_leader(1, 0, (1,))
        codec = CompressionType[arguments.codec.upper()]
        size = write(log, arguments.records, arguments.keys, arguments.size, codec)
        log.flush()
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started, cpu = time.monotonic(), time.process_time()
        end, stats = Cleaner(128 << 20).clean(log_to_clean(TP, log, None, NOW), NOW)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
        report = {
            "records": arguments.records, "keys": stats.keys, "codec": arguments.codec, "log_mb": round(size / 1e6, 1),
            "cleaned_to_offset": end, "left_mb": round(log.size / 1e6, 1), "seconds": round(seconds, 2),
            "mb_per_s": round(size / 1e6 / seconds, 1), "cpu_s_per_gb": round(cpu / (size / 1e9), 2),
            "records_per_s": round(arguments.records / seconds),
            "extra_rss_mb": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) / 1024, 1),
        }  # fmt: skip
        print(json.dumps(report))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
