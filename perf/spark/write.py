"""How many records a second Spark writes: format("kafkapy") beside Spark's own connector, and beside what Spark gives
away at most.

    python perf/spark/write.py [--rows 4000000] [--rounds 2] [--jobs keyed,values] [--sinks kafkapy,kafka,limit]
                               [--conf KEY=VALUE]... [--json FILE]

One kafkapy broker (storage in memory, in a process of its own), one Spark session (local[2]) for all sinks; after a
round that is not counted each job is run with the one and the other in turn: A B A B. Rows come from local Parquet
files: keys of 8 bytes, values of 100. Every write goes to a new topic, whose records are counted. Jobs:

    keyed       key and value
    values      value only
    columns     key, value, topic, partition, headers (one) and timestamp
    stream      the time of one micro-batch of 100 rows: median of a query's, ms

Sinks:

    kafkapy     at least once
    once        kafkapy with delivery=exactly-once
    kafka       Spark's own connector, of the version of pyspark, or where Maven Central has none of
                perf/peers/spark_kafka.py's
    limit       a Python sink that does nothing with Arrow batches (limit_sink.py): as fast as Spark gives rows away

Beside it stands the processor time of all processes (Spark's, the broker's) for a record: where a machine has other
things to do, that says more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import measure
from peers import spark_kafka
from peers.apache_kafka import PeerMissingError
from read import session

from kafkapy import KafkaAdminClient
from kafkapy.admin import NewTopic
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import TopicPartition

WRITE_JOBS = ("keyed", "values", "columns")
STREAM = "stream"
BATCHES = 20
"""Micro-batches of a measurement."""
BATCH_ROWS = 100
ROUND_BYTES = 1 << 30
"""More than what a write makes the broker keep: memory that the machine is to have before (measure.back_pages)."""
FORMATS = {"kafkapy": "kafkapy", "once": "kafkapy", "kafka": "kafka", "limit": "limit-sink"}


def fill(directory: Path, rows: int, tasks: int) -> Path:
    """Parquet files with so many rows, one for each task."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chosen = random.Random(1)
    values = [chosen.randbytes(50).hex().encode() for _ in range(1000)]
    keys = [b"%08d" % number for number in range(997)]
    path = directory / "rows"
    path.mkdir()
    for task in range(tasks):
        count = rows // tasks
        table = pa.table(
            {
                "key": pa.array([keys[number % 997] for number in range(count)], pa.binary()),
                "value": pa.array([values[number % 1000] for number in range(count)], pa.binary()),
            }
        )
        pq.write_table(table, path / f"{task}.parquet")
    return path


def processor_s(root: int) -> float:
    """Processor time of a process and those that it started, s."""
    parents, times = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        times[int(folder.name)] = sum(map(int, fields[11:15]))
    wanted = {root}
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    return sum(times.get(pid, 0) for pid in wanted) / os.sysconf("SC_CLK_TCK")


class Bench:
    """The jobs, on one session and broker."""

    def __init__(self, spark: Any, bootstrap: str, partitions: int, rows: Path) -> None:
        self.spark, self.bootstrap, self.partitions, self.rows = spark, bootstrap, partitions, rows
        self.directory = rows.parent
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def frame(self, job: str, topic: str) -> Any:
        """What a job writes."""
        from pyspark.sql import functions as f

        frame = self.spark.read.parquet(str(self.rows))
        if job == "values":
            return frame.select("value")
        if job == "columns":
            header = f.struct(f.lit("source").alias("key"), f.col("key").alias("value"))
            return frame.select(
                "key",
                "value",
                f.lit(topic).alias("topic"),
                (f.xxhash64("key") % self.partitions).cast("int").bitwiseAND(self.partitions - 1).alias("partition"),
                f.array(header).alias("headers"),
                f.lit("2026-11-22 00:00:00").cast("timestamp").alias("timestamp"),
            )
        return frame

    def options(self, sink: str, job: str, topic: str) -> dict[str, str]:
        """Of a sink."""
        out = {"kafka.bootstrap.servers": self.bootstrap}
        if job != "columns":
            out["topic"] = topic
        if sink == "once":
            out |= {"delivery": "exactly-once", "transactionalIdPrefix": topic}
        return out

    def write(self, sink: str, job: str) -> tuple[float, float]:
        """(records a second, ns of processor time for each)."""
        topic = self.made()
        frame = self.frame(job, topic)
        writer = frame.write.format(FORMATS[sink]).mode("append").options(**self.options(sink, job, topic))
        measure.back_pages(self.directory, ROUND_BYTES)
        used, began = processor_s(os.getpid()), time.perf_counter()
        writer.save()
        took, used = time.perf_counter() - began, processor_s(os.getpid()) - used
        rows = self.rows_of(frame)
        if sink != "limit":
            assert self.written(topic, sink) >= rows, (sink, topic)
        self.admin.delete_topics([topic])
        return rows / took, used / rows * 1e9

    def stream(self, sink: str) -> float:
        """The median time of a micro-batch, ms."""
        topic = self.made()
        query = (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", BATCH_ROWS)
            .load()
            .selectExpr("CAST(value AS STRING) AS value")
            .writeStream.format(FORMATS[sink])
            .options(**self.options(sink, STREAM, topic))
            .option("checkpointLocation", tempfile.mkdtemp(dir=self.directory))
            .start()
        )
        while len(query.recentProgress) < BATCHES + 2:
            if query.exception() is not None:
                raise query.exception()
            time.sleep(0.1)
        times = [each["durationMs"]["triggerExecution"] for each in query.recentProgress[2:]]
        query.stop()
        self.admin.delete_topics([topic])
        return float(statistics.median(times))

    def job(self, name: str) -> Callable[[str], tuple[float, float]]:
        """What measures it once with a sink."""
        if name == STREAM:
            return lambda sink: (self.stream(sink), 0.0)
        return lambda sink: self.write(sink, name)

    def made(self) -> str:
        """A new topic."""
        topic = f"w-{uuid.uuid4().hex[:8]}"
        self.admin.create_topics([NewTopic(topic, self.partitions, 1)])
        return topic

    def rows_of(self, frame: Any) -> int:
        """How many there are to write."""
        return int(frame.count())

    def written(self, topic: str, sink: str) -> int:
        """How many records a topic has."""
        from kafkapy import KafkaConsumer

        with KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None) as consumer:
            partitions = [TopicPartition(topic, number) for number in range(self.partitions)]
            return sum(consumer.end_offsets(partitions).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--partitions", type=int, default=2, help="a power of two")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", default=",".join((*WRITE_JOBS, STREAM)))
    parser.add_argument("--sinks", default="kafkapy,kafka,limit")
    parser.add_argument("--conf", action="append", default=[], help="KEY=VALUE, a setting of the session")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sinks, jobs = options.sinks.split(","), options.jobs.split(",")

    import pyspark

    jars: list[Path] = []
    connector = None
    if "kafka" in sinks:
        try:
            connector, jars = spark_kafka.jars(pyspark.__version__)
        except PeerMissingError as error:
            print(f"without Spark's connector: {error}", file=sys.stderr)
            sinks.remove("kafka")
    results: dict[str, dict[str, list[tuple[float, float]]]] = {job: {sink: [] for sink in sinks} for job in jobs}
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(overrides={"kafkapy.storage.backend": "memory"}) as broker,
    ):
        rows = fill(Path(directory), options.rows, 2)
        with session(jars, dict(each.split("=", 1) for each in options.conf)) as spark:
            from limit_sink import LimitSink

            spark.dataSource.register(LimitSink)
            bench = Bench(spark, broker.bootstrap, options.partitions, rows)
            for job in jobs:
                run = bench.job(job)
                for number in range(options.rounds + 1):
                    for sink in sinks:
                        measured = run(sink)
                        if number:
                            results[job][sink].append(measured)
                        note = "" if number else "  (not counted)"
                        print(f"{job:8} {sink:8} {measured[0]:14,.1f} {measured[1]:8,.0f} ns{note}", flush=True)
            bench.admin.close()
    print(f"\npyspark {pyspark.__version__}, Spark's connector {connector}; {options.rows:,} records")
    print(f"{'':8} " + " ".join(f"{sink:>14}" for sink in sinks))
    for job, found in results.items():
        unit = "ms a batch" if job == STREAM else "records/s"
        print(f"{job:8} " + " ".join(f"{middle(found[sink], 0):14,.0f}" for sink in sinks) + f"  {unit}")
        if job != STREAM:
            times = " ".join(f"{middle(found[sink], 1):14,.0f}" for sink in sinks)
            print(f"{'':8} {times}  ns of processor time")
    if options.json:
        options.json.write_text(json.dumps({"pyspark": pyspark.__version__, "connector": connector, "jobs": results}))


def middle(measured: list[tuple[float, float]], at: int) -> float:
    """The median."""
    return statistics.median(each[at] for each in measured)


if __name__ == "__main__":
    main()
