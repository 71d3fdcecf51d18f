"""How many records a second Spark reads, and what a micro-batch costs: format("kafkapy") beside Spark's own connector.

    python perf/spark/read.py [--rows 4000000] [--rounds 2] [--jobs noop,group] [--formats kafkapy,kafka] [--json FILE]

One kafkapy broker (storage in memory, in a process of its own), one Spark session (local[2]) for both formats; after a
round that is not counted each job is run with the one and the other in turn: A B A B. Records have keys of 8 bytes and
values of 100, as the producer sends them (--codec none). Jobs:

    noop        every column into Spark's noop sink
    value       key and value only (kafkapy: by schema; kafka: by select)
    group       groupBy("partition").agg(sum("offset"))
    parquet     key, value, offset and timestamp into Parquet files
    batch-1, batch-128
                the time of one micro-batch of a record for each of so many partitions: median of a query's, ms

Beside each is the processor time of all of Spark's processes, Python's among them, for a record or a micro-batch, in us
or ms: a machine that does other things too tells it better than wall time.

--formats takes "limit" too: a Python source that yields one batch made beforehand, which is as fast as Spark takes any.
Spark's connector is of the version of pyspark, or where Maven Central has none of perf/peers/spark_kafka.py's.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import process_tree
from peers import spark_kafka
from peers.apache_kafka import PeerMissingError

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.admin import NewTopic
from kafkapy.testing.broker_process import BrokerProcess

READ_JOBS = ("noop", "value", "group", "parquet")
BATCH_JOBS = {"batch-1": 1, "batch-128": 128}
BATCHES = 20
"""Micro-batches of a measurement."""


def fill(bootstrap: str, topic: str, partitions: int, rows: int, codec: str) -> None:
    """A topic with so many records, partitions in turns."""
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1)])
    chosen = random.Random(1)
    values = [chosen.randbytes(50).hex().encode() for _ in range(1000)]
    keys = [b"%08d" % number for number in range(1000)]
    with KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, batch_size=1 << 18,
        linger_ms=20,
    ) as producer:  # fmt: skip
        for number in range(rows):
            producer.send(topic, values[number % 1000], keys[number % 997], partition=number % partitions)
        producer.flush()


@contextmanager
def session(jars: list[Path], settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[Any]:
    """Spark with both connectors, and settings of its own."""
    from pyspark.sql import SparkSession

    places = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(places)  # where workers find limit_source
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def spark_seconds(broker_pid: int) -> float:
    """Processor time of this process and all below it but the broker, processes that have ended included."""
    ticks = 0
    for pid in set(process_tree(os.getpid())) - set(process_tree(broker_pid)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended: its parent has its time
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Bench:
    """The jobs, on one session and broker."""

    def __init__(self, spark: Any, bootstrap: str, rows: int, directory: Path) -> None:
        self.spark, self.bootstrap, self.rows, self.directory = spark, bootstrap, rows, directory

    def frame(self, form: str, columns: str | None) -> Any:
        reader = self.spark.read.format(form).option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", "rows").option("rows", self.rows)
        if columns is None:
            return reader.load()
        if form != "kafka":
            return reader.schema(columns).load()
        return reader.load().select(*(each.split()[0] for each in columns.split(", ")))

    def read(self, form: str, job: str) -> float:
        """Records a second."""
        from pyspark.sql import functions

        began = time.perf_counter()
        if job == "noop":
            self.frame(form, None).write.format("noop").mode("overwrite").save()
        elif job == "value":
            self.frame(form, "key binary, value binary").write.format("noop").mode("overwrite").save()
        elif job == "group":
            sums = self.frame(form, None).groupBy("partition").agg(functions.count("*").alias("rows")).collect()
            assert sum(row["rows"] for row in sums) == self.rows, sums
        else:
            columns = "key binary, value binary, offset bigint, timestamp timestamp"
            self.frame(form, columns).write.mode("overwrite").parquet(str(self.directory / form))
        return self.rows / (time.perf_counter() - began)

    def batch_ms(self, form: str, partitions: int) -> float:
        """The median time of a micro-batch."""
        checkpoint = tempfile.mkdtemp(dir=self.directory)
        reader = (
            self.spark.readStream.format(form)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", f"parts-{partitions}")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", partitions)
        )
        if form == "kafkapy":
            reader = reader.option("maxTasks", 2)
        query = (
            reader.load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        times = [
            progress["durationMs"]["triggerExecution"]
            for progress in query.recentProgress
            if progress["numInputRows"] == partitions
        ]
        assert len(times) >= BATCHES - 1, query.recentProgress
        return float(statistics.median(times))

    def job(self, name: str) -> Callable[[str], float]:
        """What measures it once with a format."""
        if name in BATCH_JOBS:
            return lambda form: self.batch_ms(form, BATCH_JOBS[name])
        return lambda form: self.read(form, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--jobs", default=",".join((*READ_JOBS, *BATCH_JOBS)))
    parser.add_argument("--formats", default="kafkapy,kafka")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    formats = options.formats.split(",")
    jobs = options.jobs.split(",")

    import pyspark

    jars: list[Path] = []
    connector = None
    if "kafka" in formats:
        try:
            connector, jars = spark_kafka.jars(pyspark.__version__)
        except PeerMissingError as error:
            print(f"without Spark's connector: {error}", file=sys.stderr)
            formats.remove("kafka")
    results: dict[str, dict[str, list[float]]] = {
        job: {form: [] for form in formats if form != "limit" or job in READ_JOBS} for job in jobs
    }
    processor: dict[str, dict[str, list[float]]] = {job: {form: [] for form in results[job]} for job in jobs}
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(overrides={"kafkapy.storage.backend": "memory"}) as broker,
    ):
        if set(jobs) & set(READ_JOBS):
            fill(broker.bootstrap, "rows", options.partitions, options.rows, options.codec)
        for job in set(jobs) & set(BATCH_JOBS):
            count = BATCH_JOBS[job]
            fill(broker.bootstrap, f"parts-{count}", count, count * BATCHES, "none")
        with session(jars) as spark:
            if "limit" in formats:
                from limit_source import LimitSource

                spark.dataSource.register(LimitSource)
            bench = Bench(spark, broker.bootstrap, options.rows, Path(directory))
            for job in jobs:
                run = bench.job(job)
                for number in range(options.rounds + 1):
                    for form in results[job]:
                        before = spark_seconds(broker.pid)
                        measured = run(form)
                        spent = spark_seconds(broker.pid) - before
                        spent *= 1e3 / BATCHES if job in BATCH_JOBS else 1e6 / options.rows
                        if number:
                            results[job][form].append(measured)
                            processor[job][form].append(spent)
                        what = f"{measured:14,.1f} {spent:10,.2f}{'' if number else '  (not counted)'}"
                        print(f"{job:10} {form:8} {what}", flush=True)
    print(f"\npyspark {pyspark.__version__}, Spark's connector {connector}; {options.rows:,} records")
    print(f"{'':10} " + " ".join(f"{form:>14}" for form in formats))
    for title, table, units in (
        ("", results, ("records/s", "ms a batch")),
        ("processor time", processor, ("us a record", "ms a batch")),
    ):
        print(title)
        for job, found in table.items():
            digits = 0 if table is results or job in BATCH_JOBS else 2
            cells = [
                f"{statistics.median(found[form]):14,.{digits}f}" if form in found else 14 * " " for form in formats
            ]
            print(f"{job:10} " + " ".join(cells) + f"  {units[job in BATCH_JOBS]}")
    if options.json:
        versions = {"pyspark": pyspark.__version__, "connector": connector}
        options.json.write_text(json.dumps({**versions, "jobs": results, "processor": processor}))


if __name__ == "__main__":
    main()
