"""Tables of formats that a Spark session may lack the jar of, read by their lists of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import IllegalArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TABLE_FORMATS", "has_format", "how_to_add", "read_files"]

TABLE_FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "delta": (
        "io.delta:delta-spark_{}_2.13",
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ),
    "iceberg": (
        "org.apache.iceberg:iceberg-spark-runtime-{}_2.13",
        "a catalog (spark.sql.catalog.NAME=org.apache.iceberg.spark.SparkCatalog)",
    ),
}
"""The jar of each for a version of Spark, and further settings."""


def has_format(spark: SparkSession, name: str) -> bool:
    """Whether the session knows the format."""
    try:
        # Spark Connect looks for it only when it has to say what the columns are.
        _ = spark.read.format(name).load("file:///nowhere").schema
    except Exception as error:
        # Another one says that it is there, and that there is no such table.
        return "DATA_SOURCE_NOT_FOUND" not in str(error)
    return True


def how_to_add(spark: SparkSession, name: str) -> str:
    """What a session needs for the format, to be put in a sentence."""
    version = ".".join(spark.version.split(".")[:2])
    jar, settings = TABLE_FORMATS[name]
    return f"start Spark with spark.jars.packages={jar.format(version)}:RELEASE and {settings}"


def read_files(
    spark: SparkSession, source: str, form: str, options: Mapping[str, str], catalog: Mapping[str, str]
) -> DataFrame:
    """A directory or table as Spark reads it; Delta and Iceberg tables without a jar through deltalake and pyiceberg.
    IllegalArgumentError where that is not all there is to a table."""
    if form in TABLE_FORMATS and (catalog or not has_format(spark, form)):
        files = _delta_files(spark, source) if form == "delta" else _iceberg_files(spark, source, catalog)
        if not files:
            raise IllegalArgumentError(f"The table {source} has no files")
        return spark.read.parquet(*files)
    return spark.read.format(form).options(**options).load(source)


def _delta_files(spark: SparkSession, uri: str) -> list[str]:
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise IllegalArgumentError(
            'Delta tables need the package deltalake, pip install "kafkapy-spark[delta]", or its jar: '
            f"{how_to_add(spark, 'delta')} ({error})"
        ) from None
    table = DeltaTable(uri)
    needed: set[Any] = {*(table.protocol().reader_features or ())} & {"deletionVectors", "columnMapping"}
    if needed or table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise IllegalArgumentError(f"The files of {uri} are not all there is to it (deletion vectors, column mapping)")
    return list(table.file_uris())


def _iceberg_files(spark: SparkSession, identifier: str, catalog: Mapping[str, str]) -> list[str]:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise IllegalArgumentError(
            'Iceberg tables need the package pyiceberg, pip install "kafkapy-spark[iceberg]", or its jar: '
            f"{how_to_add(spark, 'iceberg')} ({error})"
        ) from None
    properties = dict(catalog)
    tasks = [*load_catalog(properties.pop("name", None), **properties).load_table(identifier).scan().plan_files()]
    if any(task.delete_files for task in tasks):
        raise IllegalArgumentError(
            f"Rows of {identifier} are deleted by files of their own, which Spark needs a jar for"
        )
    return [task.file.file_path for task in tasks]
