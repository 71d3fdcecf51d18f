"""For the user's own program: settings of a session that are good for this connector, and reads in a line.

    spark = kafkapy_spark.configure(SparkSession.builder).getOrCreate()
    kafkapy_spark.read(spark, "localhost:9092", "orders", schema="value string").show()

Imports no pyspark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PARTS_SEEN: Final = 100_000
"""Rows, which are not in more parts than these."""

SETTINGS: Final[Mapping[str, str]] = {
    # Python workers without TCP: a micro-batch costs a quarter less, and more records pass.
    "spark.python.unix.domain.socket.enabled": "true",
    # Conditions on topic, partition, offset and timestamp reach the reader.
    "spark.sql.python.filterPushdown.enabled": "true",
}

SMALL_ROWS: Final[Mapping[str, str]] = {
    # Spark adds up the bytes of an Arrow batch after each row, unless no batch can be too large.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}


def configure(builder: SparkSession.Builder, *, small_rows: bool = False) -> SparkSession.Builder:
    """Sets what makes reads and writes of this connector fast, and returns the builder. Call it before settings of your
    own, which then go before these.

    small_rows  no row that is written has 100 KB or more: ten thousand of them (spark.sql.execution.arrow.
                maxRecordsPerBatch) are to have less than 2 GiB. Spark then hands rows over faster; with larger rows a
                write would fail for lack of memory.

    Where the builder's master is local and PYSPARK_PYTHON is not set, Spark's Python processes are this Python. Spark
    itself takes the first python3 on the PATH, which has no connector when your virtual environment is not activated.
    """
    if str(getattr(builder, "_options", {}).get("spark.master", "")).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return builder.config(map={**SETTINGS, **(SMALL_ROWS if small_rows else {})})


def read(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: str | Iterable[str],
    *,
    schema: StructType | str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A batch read of topics.

    bootstrap_servers, topics
                the options kafka.bootstrap.servers and subscribe
    schema      the columns that are needed, None for all
    options     other options. maxTasks is the session's default parallelism where it is not among them: the process
                that plans a read does not know it.

    Errors are those of `load`, and of the query.
    """
    reader = _with_columns(spark.read, schema).format("kafkapy")
    return reader.options(**_options(spark, bootstrap_servers, topics, options)).load()


def read_stream(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: str | Iterable[str],
    *,
    schema: StructType | str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A streaming read of topics. Arguments are those of `read`."""
    reader = _with_columns(spark.readStream, schema).format("kafkapy")
    return reader.options(**_options(spark, bootstrap_servers, topics, options)).load()


def _with_columns(reader: Any, schema: StructType | str | None) -> Any:
    return reader if schema is None else reader.schema(schema)


def _options(
    spark: SparkSession, bootstrap_servers: str, topics: str | Iterable[str], more: Mapping[str, Any] | None
) -> dict[str, Any]:
    out: dict[str, Any] = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topics if isinstance(topics, str) else ",".join(topics),
        **(more or {}),
    }
    # A client of Spark Connect has no context: the planner's own guess is left to stand.
    context = None if is_connect(spark) else spark.sparkContext
    if context is not None and "maxtasks" not in {name.lower() for name in out}:
        out["maxTasks"] = context.defaultParallelism
    return out


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def default_parallelism(spark: SparkSession) -> int:
    """How many tasks of the session run at a time, about (spark.default.parallelism). A client of Spark Connect is not
    told, but sees in how many parts rows come."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql import functions

    parts = spark.range(PARTS_SEEN).select(functions.spark_partition_id().alias("part"))
    return int(parts.agg(functions.max("part").alias("last")).collect()[0]["last"]) + 1
