"""What decoding costs: from the bytes of a Fetch response to the record batches that Spark takes, ns a record.

    python perf/spark/decode.py [--size 100] [--codec none] [--rounds 15] [--json FILE]

One core, no network and no Spark. Keys of 8 bytes, values of --size, batches of 16 KiB, a response of 8 MiB. Stages:

    scan        the response's batches are found, checked (CRC) and decompressed, on the connection's thread
    columns     records become record batches in the types of Spark's schema

Each is the least of the rounds, in CPU time, for all columns of the source (without headers) and for key and value. The
gate of `columns` is 25 ns for values of 100 bytes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from kafkapy_spark.executor_reader import BATCH_BYTES, BATCH_ROWS
from kafkapy_spark.spark_batches import SparkBatches

from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType

VERSION = 12
RESPONSE_BYTES = 8 << 20
PRODUCED_BYTES = 16 << 10
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "integer",
}


def response_of(size: int, codec: int) -> tuple[bytes, int]:
    """A response's frame, and how many records it has."""
    rows = 0
    records = bytearray()
    while len(records) < RESPONSE_BYTES:
        builder = RecordBatchBuilder(base_offset=rows)
        for _ in range(max(PRODUCED_BYTES // (size + 16), 1)):
            builder.append(
                1_700_000_000_000 + rows,
                b"%08d" % rows,
                (b"%016x" % (rows * 0x9E3779B97F4A7C15 % 2**64) * (size // 16 + 1))[:size],
            )
            rows += 1
        records += builder.build(codec)
    Topic = FetchResponse.TopicResponse
    partition = Topic.Partition(partition_index=0, high_watermark=rows, records=bytes(records))
    body = FetchResponse(responses=[Topic(topic="rows", partitions=[partition])]).encode(VERSION)
    return b"\0\0\0\1\0" + body, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    frame, rows = response_of(options.size, CompressionType[options.codec.upper()])
    results: dict[str, dict[str, float]] = {}
    for name, columns in (("all", list(COLUMNS)), ("key, value", ["key", "value"])):
        fields = [{"name": each, "type": COLUMNS[each], "nullable": True, "metadata": {}} for each in columns]
        spark = SparkBatches(json.dumps({"type": "struct", "fields": fields}))
        best = dict.fromkeys(("scan", "columns"), float("inf"))
        for _ in range(options.rounds):
            times = measure(frame, rows, spark)
            best = {stage: min(best[stage], taken / rows * 1e9) for stage, taken in times.items()}
        results[name] = best
        stages = "  ".join(f"{stage} {taken:6.1f}" for stage, taken in best.items())
        print(f"{name:12} {stages}  ns a record")
    if options.json:
        options.json.write_text(json.dumps({"size": options.size, "codec": options.codec, "ns": results}))


def measure(frame: bytes, rows: int, spark: SparkBatches) -> dict[str, float]:
    """Seconds of each stage for one response."""
    response = FetchResponseFrame(VERSION)
    began = time.thread_time()
    response.feed(frame)
    fed = time.thread_time()
    (partition,) = response.partitions()
    partition.start("rows", 0, False, None, None)
    done = 0
    while done < rows:
        done += spark.columns.append(partition, BATCH_ROWS, True, rows, BATCH_BYTES)
        spark.batches()
    return {"scan": fed - began, "columns": time.thread_time() - fed}


if __name__ == "__main__":
    main()
