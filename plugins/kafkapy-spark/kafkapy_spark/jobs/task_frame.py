"""Rows that Python makes on the executors as a DataFrame, without pandas, which pyspark wants for mapInArrow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["frame_of_tasks"]

Run = Callable[[int], "Iterator[pa.RecordBatch]"]
"""The rows of the task of this number. It runs on executors."""

NAME: Final = "kafkapy_tasks"

_registering: Final = threading.Lock()


def frame_of_tasks(spark: SparkSession, number: int, run: Run, schema: str) -> DataFrame:
    """The rows of so many tasks, as a DataFrame of this schema (DDL)."""

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(each) for each in range(number)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
            # Where there are none, pyspark makes one without a value.
            return iter(()) if partition.value is None else run(partition.value)

    class Tasks(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    with _registering:  # load() takes what has the name then, and keeps it
        spark.dataSource.register(Tasks)
        return spark.read.format(NAME).schema(schema).load()
