"""replay: files back into topics, with the keys, headers, partitions and timestamps that the records had.

What is replayed is anything that Spark reads and that has the columns of the sink, above all an archive of `archive`:
value, and where they are there key, headers, partition, timestamp, topic. Records of a partition are sent in the order
of their offsets, where the columns partition and offset are there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from kafkapy.errors import IllegalArgumentError
from kafkapy.tools.options import key_values
from kafkapy_spark.jobs.parameters import size, time_ms
from kafkapy_spark.jobs.progress import SILENT, JobProgress
from kafkapy_spark.jobs.query_run import observed
from kafkapy_spark.jobs.session import Job, job_options, kafka_options
from kafkapy_spark.jobs.summary import Summary
from kafkapy_spark.jobs.table_files import read_files
from kafkapy_spark.session import default_parallelism
from kafkapy_spark.throttle import Rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ReplaySummary", "command", "replay"]

COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "timestamp")


@dataclass(kw_only=True)
class ReplaySummary(Summary):
    """Of one replay."""

    job: str = "replay"
    source: str
    topic: str | None = None
    tasks: int | None = None


def replay(
    spark: SparkSession,
    source: str | DataFrame,
    topic: str | None = None,
    *,
    kafka: Mapping[str, str],
    format: str = "parquet",
    since_ms: int | None = None,
    until_ms: int | None = None,
    rows_per_second: float | None = None,
    bytes_per_second: float | None = None,
    keep_partitions: bool = True,
    keep_timestamps: bool = True,
    in_order: bool = True,
    catalog: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    progress: JobProgress = SILENT,
) -> ReplaySummary:
    """Writes records to a topic.

    source              a DataFrame, a path or a table's name
    topic               None: each record goes to the topic that its column topic says
    kafka               keys of the producer, with bootstrap.servers
    format              one that Spark reads; delta and iceberg without a jar through deltalake and pyiceberg
    since_ms, until_ms  records with timestamps from the one on, and before the other
    rows_per_second, bytes_per_second
                        most of all tasks together; bytes are of keys and values
    keep_partitions     False: the producer's partitioner chooses
    keep_timestamps     False: records are of the time when they are sent
    in_order            False: without the exchange that brings the records of a partition together in order
    catalog             properties of pyiceberg's catalog, as of archive
    source_options      options of the reader
    options             further options of the sink: delivery, transactionalIdPrefix, txnAppId, ...

    Errors are Spark's and those of the sink; IllegalArgumentError.
    """
    from pyspark.sql import Observation

    began = time.monotonic()
    if isinstance(source, str):
        frame = read_files(spark, source, format, source_options or {}, catalog or {})
        frame = _in_window(frame, since_ms, until_ms, archived=format == "parquet" and _is_archive(source))
    else:
        frame = _in_window(source, since_ms, until_ms, archived=False)
    if "value" not in frame.columns:
        raise IllegalArgumentError(f"There is no column value to replay; there are {', '.join(frame.columns)}")
    summary = ReplaySummary(source=source if isinstance(source, str) else "a DataFrame", topic=topic)
    rate = Rate(rows_per_second, bytes_per_second)
    tasks = default_parallelism(spark)
    if in_order and {"partition", "offset"} <= {*frame.columns}:
        places = [name for name in ("topic", "partition") if name in frame.columns]
        frame = frame.repartition(tasks, *places).sortWithinPartitions(*places, "offset")
        summary.tasks = tasks
    elif rate != Rate():
        frame = frame.coalesce(tasks)
    dropped = {"topic"} if topic is not None else set()
    dropped |= set() if keep_partitions else {"partition"}
    dropped |= set() if keep_timestamps else {"timestamp"}
    frame = frame.select(*(name for name in COLUMNS if name in frame.columns and name not in dropped))
    sums = Observation()
    frame = observed(frame, sums)
    writer = frame.write.format("kafkapy").mode("append").options(**kafka_options(kafka))
    if topic is not None:
        writer = writer.option("topic", topic)
    share = rate.divided(tasks)
    if share.rows is not None:
        writer = writer.option("taskRowsPerSecond", share.rows)
    if share.bytes is not None:
        writer = writer.option("taskBytesPerSecond", share.bytes)
    progress.step("replaying")
    writer.options(**(options or {})).save()
    summary.rows, summary.bytes = sums.get["rows"], sums.get["bytes"]
    summary.seconds = time.monotonic() - began
    return summary


def _in_window(frame: DataFrame, since_ms: int | None, until_ms: int | None, *, archived: bool) -> DataFrame:
    """Rows with timestamps in the window. Of an archive's directory only days are read that are in it."""
    from pyspark.sql import functions

    when = functions.col("timestamp")
    days = archived and "date" in frame.columns
    if since_ms is not None:
        frame = frame.where(when >= functions.timestamp_millis(functions.lit(since_ms).cast("bigint")))
        if days:
            frame = frame.where(functions.col("date") >= functions.lit(_day(since_ms)))
    if until_ms is not None:
        frame = frame.where(when < functions.timestamp_millis(functions.lit(until_ms).cast("bigint")))
        if days:
            frame = frame.where(functions.col("date") <= functions.lit(_day(until_ms)))
    return frame


def _day(ms: int) -> Any:
    return datetime.fromtimestamp(ms // 1000, UTC).date()


def _is_archive(path: str) -> bool:
    from kafkapy_spark.jobs.archive_parquet import COMMITS
    from kafkapy_spark.jobs.archive_store import Store

    try:
        return Store(path).exists(COMMITS)
    except (IllegalArgumentError, OSError):
        return False  # a filesystem that only Spark knows


@click.command("replay")
@click.argument("source")
@click.argument("topic", required=False)
@click.option("--format", default="parquet", show_default=True, help="Any format that Spark reads; delta, iceberg.")
@click.option(
    "--since", "since_ms", type=time_ms, metavar="TIME", help="Read records of this time and later (ISO 8601, UTC)."
)
@click.option("--until", "until_ms", type=time_ms, metavar="TIME", help="Read records before this time.")
@click.option(
    "--rows-per-second", type=click.FloatRange(min=0, min_open=True), help="Limit of records for all tasks together."
)
@click.option(
    "--bytes-per-second", type=size, metavar="SIZE", help="Limit of key and value bytes for all tasks together."
)
@click.option("--keep-partitions/--new-partitions", default=True, show_default=True)
@click.option("--keep-timestamps/--new-timestamps", default=True, show_default=True)
@click.option(
    "--in-order/--any-order", default=True, show_default=True, help="Keep the order of a partition's records."
)
@click.option("--catalog", multiple=True, metavar="KEY=VALUE", help="Property of the Iceberg catalog; name=NAME.")
@click.option("--source-option", "source_options", multiple=True, metavar="KEY=VALUE", help="Option of the reader.")
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the sink, e.g. delivery=exactly-once.",
)
@job_options
def command(
    job: Job,
    source: str,
    topic: str | None,
    catalog: tuple[str, ...],
    source_options: tuple[str, ...],
    options: tuple[str, ...],
    **settings: Any,
) -> None:
    """Write the records of SOURCE to TOPIC.

    SOURCE is a directory with files that Spark reads, or a table. Without TOPIC, the column topic names the topic of
    each record.
    """
    job.run(
        f"replay {source}",
        replay,
        source,
        topic,
        catalog=key_values(catalog),
        source_options=key_values(source_options),
        options=key_values(options),
        **settings,
    )
