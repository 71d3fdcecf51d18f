"""The spark engine of `archive`: a streaming query with AvailableNow into Spark's own file sink, or into the table
format (delta, iceberg) whose jar the session has.

Exactly once by Spark's means: the checkpoint has the offsets of each batch, the sink knows the batches that it has.
What Spark's file sink has committed is in <directory>/_spark_metadata, which Spark looks at; another reader of the
directory sees also what a run that was killed has left. Sizes of files: rows are exchanged so that a task of the last
stage has those of a period, and about as much as a file shall have (adaptive execution's rebalancing).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkapy.errors import IllegalArgumentError
from kafkapy_spark.jobs.archive_layout import Layout
from kafkapy_spark.jobs.query_run import QueryRun, observed, run_query
from kafkapy_spark.jobs.settings import session_settings
from kafkapy_spark.jobs.table_files import TABLE_FORMATS, has_format, how_to_add

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["archive_with_spark"]


def archive_with_spark(
    spark: SparkSession,
    options: Mapping[str, str],
    schema: StructType,
    destination: str,
    *,
    table_format: str,
    layout: Layout,
    target_file_bytes: int,
    rows_per_commit: int,
    compression: str,
    checkpoint: str,
) -> QueryRun:
    """Runs the query to its end. `options` are the source's. StreamingQueryException; IllegalArgumentError where the
    session lacks the table format."""
    if table_format in TABLE_FORMATS and not has_format(spark, table_format):
        raise IllegalArgumentError(
            f"The session has no {table_format}: {how_to_add(spark, table_format)}; the engine arrow needs none of that"
        )
    if table_format == "iceberg":
        _create_iceberg(spark, destination, schema, layout)
    settings = {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(target_file_bytes),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": compression,
    }
    with session_settings(spark, settings):
        reader = spark.readStream.format("kafkapy").schema(schema).option("startingOffsets", "earliest")
        records = observed(reader.options(**options).option("maxOffsetsPerTrigger", rows_per_commit).load())
        writer = (
            _divided(records, layout, with_columns=table_format != "iceberg")
            .writeStream.format(table_format)
            .outputMode("append")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        if table_format == "iceberg":
            return run_query(spark, lambda: writer.option("fanout-enabled", "true").toTable(destination))
        if layout is not Layout.NONE:
            writer = writer.partitionBy(*layout.columns)
        return run_query(spark, lambda: writer.start(destination))


def _divided(records: DataFrame, layout: Layout, with_columns: bool) -> DataFrame:
    """Rows of a period together, in tasks of about a file. AQE cuts them by spark.sql.adaptive's advisory size."""
    from pyspark.sql import functions

    if layout is Layout.NONE:
        return records.hint("rebalance")
    time = functions.col("timestamp")
    every = {"date": functions.to_date(time), "hour": functions.hour(time)}
    columns = {name: every[name] for name in layout.columns}
    if with_columns:
        return records.withColumns(columns).hint("rebalance", *columns)
    return records.hint("rebalance", functions.date_trunc("hour" if layout is Layout.HOURLY else "day", time))


def _create_iceberg(spark: SparkSession, identifier: str, schema: StructType, layout: Layout) -> None:
    columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in schema.fields)
    transform = {Layout.HOURLY: "hours", Layout.DAILY: "days"}.get(layout)
    partitioning = f" PARTITIONED BY ({transform}(timestamp))" if transform else ""
    spark.sql(f"CREATE TABLE IF NOT EXISTS {identifier} ({columns}) USING iceberg{partitioning}")
