"""archive: topics to Parquet, Delta or Iceberg, each record exactly once, by the time of the records.

A run archives what there is when it begins and ends then (Spark's AvailableNow), so it is made for cron: each goes on
where the last one ended, whatever happened to that. Two engines:

    arrow   tasks on Spark's executors write Parquet straight from fetched records, the driver commits files and offsets
            together (archive_parquet, archive_delta, archive_iceberg: where offsets are, and why each record is there
            once). Several times as fast, needs no jar, and any reader of the directory sees committed files only. A
            task makes a file for each period that it has records of.
    spark   a streaming query into Spark's own file sink or the session's table format (archive_spark). Rows are
            exchanged, so that a backlog of many periods makes fewer files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from kafkapy.errors import IllegalArgumentError
from kafkapy.tools.options import key_values
from kafkapy_spark.jobs.parameters import size
from kafkapy_spark.jobs.progress import SILENT, JobProgress
from kafkapy_spark.jobs.session import Job, job_options, kafka_options
from kafkapy_spark.jobs.summary import Summary
from kafkapy_spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from kafkapy_spark.jobs.archive_destination import Destination
    from kafkapy_spark.options import SourceOptions

__all__ = ["ArchiveSummary", "archive", "command"]

ENGINES: Final = ("arrow", "spark")
FORMATS: Final = ("parquet", "delta", "iceberg")
LAYOUTS: Final = ("hourly", "daily", "none")
COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "none")
TARGET_FILE_BYTES: Final = 128 << 20
ROWS_PER_COMMIT: Final = 50_000_000


@dataclass(kw_only=True)
class ArchiveSummary(Summary):
    """Of one run. Files are not known of the engine spark, nor where the archive is: that is in its checkpoint."""

    job: str = "archive"
    engine: str
    format: str
    destination: str
    commits: int = 0
    files: int | None = None
    file_bytes: int | None = None
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    """Where the archive is, by topic and partition."""


def archive(
    spark: SparkSession,
    topics: str,
    destination: str,
    *,
    kafka: Mapping[str, str],
    engine: str = "arrow",
    format: str = "parquet",
    layout: str = "hourly",
    schema: str | None = None,
    target_file_bytes: int = TARGET_FILE_BYTES,
    rows_per_commit: int = ROWS_PER_COMMIT,
    compression: str = "snappy",
    name: str = "kafkapy",
    catalog: Mapping[str, str] | None = None,
    checkpoint: str | None = None,
    pattern: bool = False,
    options: Mapping[str, str] | None = None,
    progress: JobProgress = SILENT,
) -> ArchiveSummary:
    """Archives what is new in topics.

    topics              names with commas between, or with `pattern` an expression (RE2)
    destination         a directory or its URI; for iceberg the table's name in its catalog
    kafka               keys of the consumer, with bootstrap.servers; isolation.level is the one to think of
    layout              hourly or daily: directories date=2026-11-22/hour=05 by the records' timestamps in UTC (Iceberg:
                        its own partitioning by hour or day); or none
    schema              the columns, as in the source's schema; None: all, with headers
    target_file_bytes   about what a file shall have; those of a small run have less
    rows_per_commit     offsets of a round, which is committed as a whole
    name                arrow with delta or iceberg: the archive's name in the table, which several may write to
    catalog             arrow with iceberg: properties of pyiceberg's catalog, "name" is its name in pyiceberg's
                        configuration
    checkpoint          spark: where the query's checkpoint is; None: _checkpoint in the directory
    options             further options of the source: startingOffsets and its siblings (for the first run: default
                        earliest), endingOffsets (arrow), failOnDataLoss, ...

    IllegalArgumentError, OtherRunError, DataLossError, KafkaError; errors of tasks are Spark's.
    """
    from kafkapy_spark.jobs.archive_layout import Layout
    from kafkapy_spark.schema import source_schema

    began = time.monotonic()
    _one_of("engine", engine, ENGINES)
    _one_of("format", format, FORMATS)
    _one_of("layout", layout, LAYOUTS)
    _one_of("compression", compression, COMPRESSIONS)
    columns = source_schema(include_headers=True) if schema is None else _schema(schema, layout)
    source = {**kafka_options(kafka), "subscribePattern" if pattern else "subscribe": topics, **(options or {})}
    summary = ArchiveSummary(engine=engine, format=format, destination=destination)
    shared: dict[str, Any] = {
        "layout": Layout(layout),
        "target_file_bytes": target_file_bytes,
        "rows_per_commit": rows_per_commit,
        "compression": compression,
    }
    if engine == "spark":
        from kafkapy_spark.jobs.archive_spark import archive_with_spark

        if checkpoint is None and format == "iceberg":
            raise IllegalArgumentError("The engine spark needs a checkpoint to write to an Iceberg table")
        run = archive_with_spark(
            spark,
            source,
            columns,
            destination,
            table_format=format,
            checkpoint=checkpoint or f"{destination.rstrip('/')}/_checkpoint",
            **shared,
        )
        summary.rows, summary.bytes, summary.commits = run.rows, run.bytes, run.batches
    else:
        from kafkapy_spark.jobs.archive_arrow import ArrowArchive
        from kafkapy_spark.offsets import to_json
        from kafkapy_spark.options import SourceOptions

        if is_connect(spark):
            raise IllegalArgumentError(
                "The engine arrow needs a SparkContext, which a session of Spark Connect has not; the engine spark "
                "(--engine spark) runs there"
            )
        if checkpoint is not None:
            raise IllegalArgumentError("The engine arrow keeps offsets in the archive itself, and takes no checkpoint")
        parsed = SourceOptions.parse(source, streaming=False)
        place = _destination(parsed, columns, destination, format, Layout(layout), name, catalog or {})
        done = ArrowArchive(spark, parsed, columns, place, progress=progress, **shared).run()
        summary.rows, summary.bytes, summary.commits = done.rows, done.record_bytes, done.commits
        summary.files, summary.file_bytes = done.files, done.file_bytes
        summary.offsets = to_json(done.offsets)
    summary.seconds = time.monotonic() - began
    return summary


def _destination(
    options: SourceOptions,
    schema: StructType,
    where: str,
    table_format: str,
    layout: Any,
    name: str,
    catalog: Mapping[str, str],
) -> Destination:
    if table_format == "parquet":
        from kafkapy_spark.jobs.archive_parquet import ParquetDirectory

        return ParquetDirectory(where)
    from kafkapy_spark.spark_batches import SparkBatches

    arrow_schema = SparkBatches(schema.json()).schema
    if table_format == "delta":
        from kafkapy_spark.jobs.archive_delta import DeltaArchive
        from kafkapy_spark.offset_reader import OffsetReader

        lookup = OffsetReader(options)
        try:
            return DeltaArchive(where, name, arrow_schema, layout, lookup.partitions())
        finally:
            lookup.close()
    from kafkapy_spark.jobs.archive_iceberg import IcebergArchive

    return IcebergArchive(where, name, arrow_schema, layout, catalog)


def _schema(text: str, layout: str) -> StructType:
    from pyspark.sql.types import StructType

    from kafkapy_spark.schema import check_schema

    found = StructType.fromDDL(text)
    assert isinstance(found, StructType)
    check_schema(found)
    if layout != "none" and "timestamp" not in found.names:
        raise IllegalArgumentError(f"The layout {layout} needs the column timestamp in the schema")
    return found


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise IllegalArgumentError(f"The {what} is {value}; it can be {', '.join(allowed)}")


@click.command("archive")
@click.argument("topics")
@click.argument("destination")
@click.option("--pattern", is_flag=True, help="Treat TOPICS as an expression (RE2) for topic names.")
@click.option("--engine", type=click.Choice(ENGINES), default="arrow", show_default=True)
@click.option("--format", type=click.Choice(FORMATS), default="parquet", show_default=True)
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="hourly",
    show_default=True,
    help="Directories by the records' time.",
)
@click.option(
    "--schema", metavar="COLUMNS", show_default="all columns", help='E.g. "value string, timestamp timestamp".'
)
@click.option(
    "--file-size",
    "target_file_bytes",
    type=size,
    default=TARGET_FILE_BYTES,
    show_default="128MB",
    help="Approximate size of a file.",
)
@click.option(
    "--rows-per-commit",
    type=click.IntRange(min=1),
    default=ROWS_PER_COMMIT,
    show_default=True,
    help="Offsets of one commit.",
)
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="snappy", show_default=True)
@click.option(
    "--name", default="kafkapy", show_default=True, help="arrow: the archive's name in a Delta or Iceberg table."
)
@click.option(
    "--catalog", multiple=True, metavar="KEY=VALUE", help="arrow with iceberg: property of the catalog; name=NAME."
)
@click.option("--checkpoint", metavar="DIRECTORY", help="spark: the query's checkpoint.  [default: in the directory]")
@click.option("--option", "-o", "options", multiple=True, metavar="KEY=VALUE", help="Option of the source.")
@job_options
def command(
    job: Job, topics: str, destination: str, catalog: tuple[str, ...], options: tuple[str, ...], **settings: Any
) -> None:
    """Archive TOPICS to DESTINATION, exactly once.

    TOPICS is one topic, or several separated by commas. DESTINATION is a directory or its URI, for iceberg a table's
    name. A run archives the existing records and ends. The next run continues there, even when this one is killed.
    """
    job.run(
        f"archive {topics}",
        archive,
        topics,
        destination,
        catalog=key_values(catalog),
        options=key_values(options),
        **settings,
    )
