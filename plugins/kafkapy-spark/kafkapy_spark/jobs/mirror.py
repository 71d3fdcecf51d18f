"""mirror: topics to a topic, of the same cluster or another, with SQL between.

The SQL reads a view, `records`, with the source's columns (headers too), and gives the sink's: value, and as it likes
key, headers, partition, timestamp, topic. Streaming runs go on where the last one ended, by their checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from kafkapy.errors import IllegalArgumentError
from kafkapy.tools.options import key_values
from kafkapy_spark.jobs.progress import SILENT, JobProgress
from kafkapy_spark.jobs.query_run import observed, run_query
from kafkapy_spark.jobs.session import Job, job_options, kafka_options
from kafkapy_spark.jobs.summary import Summary
from kafkapy_spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MirrorSummary", "command", "mirror"]

VIEW: Final = "records"
MODES: Final = ("available-now", "continuous", "batch")
DELIVERIES: Final = ("at-least-once", "exactly-once")
COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "timestamp")


@dataclass(kw_only=True)
class MirrorSummary(Summary):
    """Of one run. `rows` are those that were read; the SQL may have made fewer or more of them (of a batch with SQL by
    Spark Connect: those that it has made). `batches` are those of streaming runs that had any."""

    job: str = "mirror"
    source: str
    target: str | None
    mode: str
    delivery: str
    batches: int | None = None


def mirror(
    spark: SparkSession,
    source: str,
    target: str | None = None,
    *,
    kafka: Mapping[str, str],
    target_kafka: Mapping[str, str] | None = None,
    sql: str | None = None,
    mode: str = "available-now",
    delivery: str = "at-least-once",
    checkpoint: str | None = None,
    interval: str | None = None,
    keep_partitions: bool = True,
    keep_timestamps: bool = True,
    pattern: bool = False,
    options: Mapping[str, str] | None = None,
    sink_options: Mapping[str, str] | None = None,
    progress: JobProgress = SILENT,
) -> MirrorSummary:
    """Copies records.

    source          names of topics with commas between, or with `pattern` an expression (RE2)
    target          the topic; None: the one that the column topic says, which without SQL is the record's own
    kafka           keys of the consumer and the producer, with bootstrap.servers
    target_kafka    keys of the producer that differ: bootstrap.servers of another cluster
    sql             a query on the view `records`; None: all records as they are
    mode            available-now: what is there at first, then ends; continuous: until SIGINT; batch: all of the
                    topics, each time, or what startingOffsets and endingOffsets say
    delivery        of the sink: at-least-once, exactly-once
    checkpoint      the streaming query's; needed but for a batch
    interval        continuous: how far apart batches begin, e.g. "10 seconds"; None: as they are done
    keep_partitions, keep_timestamps
                    False: the producer's partitioner chooses; records are of the time when they are sent
    options, sink_options
                    further options of the source (startingOffsets: default earliest) and of the sink

    Errors are those of the source and the sink, and Spark's; IllegalArgumentError.
    """
    began = time.monotonic()
    for what, value, allowed in (("mode", mode, MODES), ("delivery", delivery, DELIVERIES)):
        if value not in allowed:
            raise IllegalArgumentError(f"The {what} is {value}; it can be {', '.join(allowed)}")
    if mode != "batch" and checkpoint is None:
        raise IllegalArgumentError(f"The mode {mode} needs a checkpoint, which says where the next run goes on")
    if mode != "continuous" and interval is not None:
        raise IllegalArgumentError("An interval is for the mode continuous")
    if target is None and sql is None and not target_kafka:
        raise IllegalArgumentError("Without a target topic, SQL or another cluster, records would go where they are")
    summary = MirrorSummary(source=source, target=target, mode=mode, delivery=delivery)
    reader = (spark.read if mode == "batch" else spark.readStream).format("kafkapy")
    given = {
        **kafka_options(kafka),
        "subscribePattern" if pattern else "subscribe": source,
        "includeHeaders": "true",
        "startingOffsets": "earliest",
    }
    records = reader.options(**given).options(**(options or {})).load()
    sink = {**kafka_options({**kafka, **(target_kafka or {})}), "delivery": delivery, **(sink_options or {})}
    if target is not None:
        sink["topic"] = target
    dropped = set() if target is None else {"topic"}
    dropped |= set() if keep_partitions else {"partition"}
    dropped |= set() if keep_timestamps else {"timestamp"}
    progress.step("copying")
    if mode == "batch":
        from pyspark.sql import Observation

        sums = Observation()
        # Spark Connect does not tell what it has observed below SQL.
        late = sql is not None and is_connect(spark)
        with _transformed(spark, records if late else observed(records, sums), sql, dropped) as made:
            frame = observed(made, sums) if late else made
            frame.write.format("kafkapy").mode("append").options(**sink).save()
        summary.rows, summary.bytes = sums.get["rows"], sums.get["bytes"]
    else:
        with _transformed(spark, observed(records), sql, dropped) as made:
            writer = made.writeStream.format("kafkapy").options(**sink)
            writer = writer.outputMode("append").option("checkpointLocation", checkpoint)
            if mode == "available-now":
                writer = writer.trigger(availableNow=True)
            elif interval is not None:
                writer = writer.trigger(processingTime=interval)
            run = run_query(spark, writer.start)
        summary.rows, summary.bytes, summary.batches = run.rows, run.bytes, run.batches
    summary.seconds = time.monotonic() - began
    return summary


@contextmanager
def _transformed(spark: SparkSession, records: DataFrame, sql: str | None, dropped: set[str]) -> Iterator[DataFrame]:
    """The sink's columns of what the SQL makes of the records. The SQL's view is there for the time of the block: Spark
    Connect looks at it not before something is done with its rows."""
    made = records
    try:
        if sql is not None:
            records.createOrReplaceTempView(VIEW)
            made = spark.sql(sql)
        yield made.select(*(name for name in made.columns if name in COLUMNS and name not in dropped))
    finally:
        if sql is not None:
            spark.catalog.dropTempView(VIEW)


@click.command("mirror")
@click.argument("source")
@click.argument("target", required=False)
@click.option("--pattern", is_flag=True, help="Treat SOURCE as an expression (RE2) for topic names.")
@click.option(
    "--sql", metavar="QUERY", help='Query on the view records, e.g. "select * from records where key is not null".'
)
@click.option("--mode", type=click.Choice(MODES), default="available-now", show_default=True)
@click.option("--delivery", type=click.Choice(DELIVERIES), default="at-least-once", show_default=True)
@click.option("--checkpoint", metavar="DIRECTORY", help="Checkpoint of the streaming query; not for --mode batch.")
@click.option("--interval", metavar="TIME", help='continuous: time between batches, e.g. "10 seconds".')
@click.option("--keep-partitions/--new-partitions", default=True, show_default=True)
@click.option("--keep-timestamps/--new-timestamps", default=True, show_default=True)
@click.option(
    "--to", "target_servers", metavar="HOST:PORT[,...]", help="Brokers of the target, when it is another cluster."
)
@click.option("--to-kafka", multiple=True, metavar="KEY=VALUE", help="Configuration key of the producer.")
@click.option("--option", "-o", "options", multiple=True, metavar="KEY=VALUE", help="Option of the source.")
@click.option("--sink-option", "sink_options", multiple=True, metavar="KEY=VALUE", help="Option of the sink.")
@job_options
def command(
    job: Job,
    source: str,
    target: str | None,
    target_servers: str | None,
    to_kafka: tuple[str, ...],
    options: tuple[str, ...],
    sink_options: tuple[str, ...],
    **settings: Any,
) -> None:
    """Copy the records of SOURCE to the topic TARGET.

    SOURCE is one topic, or several separated by commas. Without TARGET, the column topic names the topic of each
    record.
    """
    target_kafka = key_values(to_kafka) | ({"bootstrap.servers": target_servers} if target_servers else {})
    job.run(
        f"mirror {source}",
        mirror,
        source,
        target,
        target_kafka=target_kafka,
        options=key_values(options),
        sink_options=key_values(sink_options),
        **settings,
    )
