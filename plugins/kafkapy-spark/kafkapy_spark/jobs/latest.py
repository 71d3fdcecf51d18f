"""latest: the latest value of each key of a topic as a table, which is what a compacted topic stands for.

Within a partition the record with the highest offset is the latest one, as for compaction. A key that is in several
partitions (after partitions were added, or by a partitioner that does not go by keys) has the value of the partition
whose record has the latest timestamp. A key whose latest record has no value (a tombstone) is deleted: it is not in the
table. Records without a key are left out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from kafkapy.errors import IllegalArgumentError
from kafkapy.tools.options import key_values
from kafkapy_spark.jobs.progress import SILENT, JobProgress
from kafkapy_spark.jobs.session import Job, job_options
from kafkapy_spark.jobs.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

__all__ = ["LatestSummary", "latest", "latest_frame"]

TYPES: Final = ("binary", "string")
MODES: Final = ("error", "overwrite", "append")


@dataclass(kw_only=True)
class LatestSummary(Summary):
    """What was read, and what of it is in the table."""

    destination: str
    without_key: int = 0
    keys: int = 0
    """Keys with a value: rows of the table."""
    deleted_keys: int = 0
    """Keys whose latest record is a tombstone."""


def latest_frame(
    spark: SparkSession,
    topic: str,
    *,
    kafka: Mapping[str, str],
    options: Mapping[str, str] | None = None,
    key: str = "binary",
    value: str = "binary",
) -> DataFrame:
    """The latest values as a DataFrame: key, value, partition, offset, timestamp.

    The topic's ends are looked up now; what comes later is not in it. Records of aborted transactions do not count
    (isolation.level is read_committed unless `kafka` says otherwise).

    options     of a batch read of Spark's (startingTimestamp, maxTasks, failOnDataLoss, ...)
    key, value  "binary", or "string" for the same bytes as text
    IllegalArgumentError, KafkaError.
    """
    return _frame(spark, topic, kafka, options, key, value)


def latest(
    spark: SparkSession,
    topic: str,
    *,
    kafka: Mapping[str, str],
    path: str | None = None,
    table: str | None = None,
    format: str | None = None,
    mode: str = "error",
    write_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    key: str = "binary",
    value: str = "binary",
    progress: JobProgress = SILENT,
) -> LatestSummary:
    """Writes latest_frame() to `path` or as `table`.

    format, mode, write_options     of Spark's writer. "overwrite" removes what was there before it writes where the
                                    format has no transactions (Parquet): a run that fails leaves nothing
    Other arguments and errors are those of latest_frame(); errors of writing are Spark's.
    """
    from pyspark.sql import Observation

    if (path is None) == (table is None):
        raise IllegalArgumentError("Either a path or a table is to be written to")
    if mode not in MODES:
        raise IllegalArgumentError(f"mode must be one of {', '.join(MODES)}, and is '{mode}'")
    started = time.monotonic()
    progress.step("looking up offsets")
    read, found = Observation("read"), Observation("found")
    frame = _frame(spark, topic, kafka, options, key, value, (read, found))
    writer = frame.write.mode(mode).options(**(write_options or {}))
    if format is not None or path is not None:
        writer = writer.format(format or "parquet")
    progress.step(f"reading {topic}")
    if path is not None:
        writer.save(path)
    else:
        assert table is not None
        writer.saveAsTable(table)
    # Spark leaves out what it knows to be empty.
    counts = defaultdict(int, {name: count or 0 for name, count in (read.get | found.get).items()})
    return LatestSummary(
        job=f"latest {topic}",
        rows=counts["rows"],
        bytes=counts["bytes"],
        seconds=time.monotonic() - started,
        destination=path if path is not None else str(table),
        without_key=counts["without_key"],
        keys=counts["keys"] - counts["deleted"],
        deleted_keys=counts["deleted"],
    )


def _frame(
    spark: SparkSession,
    topic: str,
    kafka: Mapping[str, str],
    options: Mapping[str, str] | None,
    key: str,
    value: str,
    observed: tuple[Observation, Observation] | None = None,
) -> DataFrame:
    """`observed` get rows, bytes and without_key of what is read, and keys and deleted of what is found."""
    from pyspark.sql import functions

    from kafkapy_spark.jobs.range_latest import COLUMNS, SCHEMA, latest_of_range
    from kafkapy_spark.jobs.topic_scan import TopicScan

    for name, kind in (("key", key), ("value", value)):
        if kind not in TYPES:
            raise IllegalArgumentError(f"{name} must be one of {', '.join(TYPES)}, and is '{kind}'")
    scan = TopicScan(spark, {"isolation.level": "read_committed", **kafka}, [topic], options)
    frame = scan.frame(COLUMNS, latest_of_range, SCHEMA)
    if observed is not None:
        counts = (functions.sum(name).alias(name) for name in ("rows", "bytes", "without_key"))
        frame = frame.observe(observed[0], *counts)
    record = functions.struct("value", "partition", "offset", "timestamp")
    frame = frame.where("key IS NOT NULL").groupBy("partition", "key").agg(_newest(record, functions.col("offset")))
    if len(scan.ranges) > 1:
        order = functions.struct("record.timestamp", "record.partition")
        frame = frame.groupBy("key").agg(_newest(functions.col("record"), order))
    frame = frame.select("key", "record.*")
    if observed is not None:
        deleted = functions.count_if(functions.col("value").isNull())
        frame = frame.observe(observed[1], functions.count("*").alias("keys"), deleted.alias("deleted"))
    frame = frame.where("value IS NOT NULL")
    return frame.withColumns({"key": frame.key.cast(key), "value": frame.value.cast(value)})


def _newest(record: Column, order: Column) -> Column:
    from pyspark.sql import functions

    return functions.max_by(record, order).alias("record")


@click.command("latest")
@click.argument("topic")
@click.argument("path", required=False)
@click.option("--table", metavar="NAME", help="Table of Spark's catalog, instead of PATH.")
@click.option("--format", "format_", metavar="NAME", show_default="parquet", help="Spark's name: delta, orc, csv, ...")
@click.option(
    "--mode", default="error", show_default=True, type=click.Choice(MODES), help="Behaviour when the target exists."
)
@click.option("--key", default="binary", show_default=True, type=click.Choice(TYPES), help="Type of the column key.")
@click.option(
    "--value", default="binary", show_default=True, type=click.Choice(TYPES), help="Type of the column value."
)
@click.option("--option", multiple=True, metavar="KEY=VALUE", help="Option of the read (maxTasks, ...).")
@click.option("--write-option", multiple=True, metavar="KEY=VALUE", help="Option of the format.")
@job_options
def command(
    job: Job,
    topic: str,
    path: str | None,
    table: str | None,
    format_: str | None,
    mode: str,
    key: str,
    value: str,
    option: tuple[str, ...],
    write_option: tuple[str, ...],
) -> None:
    """Write the latest value of each key of TOPIC.

    The files go to PATH, or the table to --table. Its columns are key, value, partition, offset and timestamp. It omits
    keys that a tombstone deletes, and records without a key. With --mode overwrite, formats without transactions delete
    the old table before they write.
    """
    if (path is None) == (table is None):
        raise click.UsageError("Either PATH or --table is needed.")
    job.run(
        f"latest {topic}",
        latest,
        topic,
        path=path,
        table=table,
        format=format_,
        mode=mode,
        write_options=key_values(write_option),
        options=key_values(option),
        key=key,
        value=value,
    )
