"""format("kafkapy"): what Spark makes readers from."""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from kafkapy_spark.options import SourceOptions, wants_headers
from kafkapy_spark.schema import check_schema, source_schema

_READS_ONLY = 'format("kafkapy") is for reading only: this version of kafkapy-spark does not write to Kafka'


class KafkapyDataSource(DataSource):
    """Topics of Apache Kafka. Errors of options are IllegalArgumentErrors."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafkapy"

    def schema(self) -> StructType:
        """The columns of Spark's own Kafka source."""
        return source_schema(wants_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of the schema's columns."""
        from kafkapy_spark.reader import KafkapyReader

        check_schema(schema)
        return KafkapyReader(SourceOptions.parse(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read of the schema's columns."""
        from kafkapy_spark.stream_reader import KafkapyStreamReader

        check_schema(schema)
        return KafkapyStreamReader(SourceOptions.parse(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """NotImplementedError."""
        raise NotImplementedError(_READS_ONLY)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """NotImplementedError."""
        raise NotImplementedError(_READS_ONLY)
