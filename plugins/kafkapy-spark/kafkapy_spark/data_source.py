"""format("kafkapy"): what Spark makes readers and writers from."""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kafkapy.errors import IllegalArgumentError, KafkaError
from kafkapy_spark.delegation_tokens import sink_with_token
from kafkapy_spark.options import SourceOptions, wants_headers
from kafkapy_spark.schema import check_schema, source_schema
from kafkapy_spark.sink_options import EXACTLY_ONCE, SinkOptions
from kafkapy_spark.sink_schema import check_columns

_TABLE_WITHOUT_OPTIONS: Final = (
    "There are no options. Spark does not hand the OPTIONS of a table to sources in Python; a query has to name them: "
    "SELECT * FROM table WITH (`kafka.bootstrap.servers` = '...', subscribe = '...'), which can be that of a view"
)


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

        if not self.options:
            raise IllegalArgumentError(_TABLE_WITHOUT_OPTIONS)
        check_schema(schema)
        return KafkapyReader(SourceOptions.parse(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read of the schema's columns. What is refused is said by the reader, when Spark asks it."""
        from kafkapy_spark.stream_reader import KafkapyStreamReader, RefusedStreamReader

        try:
            check_schema(schema)
            return KafkapyStreamReader(SourceOptions.parse(self.options, streaming=True), schema)
        except KafkaError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write of the schema's columns."""
        options = SinkOptions.parse(self.options, streaming=False)
        if overwrite:
            raise IllegalArgumentError("Save mode Overwrite not allowed for Kafka. The allowed save mode is Append.")
        check_columns(schema, options)
        options = sink_with_token(options)
        if options.delivery == EXACTLY_ONCE:
            from kafkapy_spark.exactly_once import ExactlyOnceWriter

            return ExactlyOnceWriter(options, schema)
        from kafkapy_spark.writer import KafkapyWriter

        return KafkapyWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write of the schema's columns. In complete mode (`overwrite`) every row is written again with
        every batch, as by Spark's own sink."""
        options = SinkOptions.parse(self.options, streaming=True)
        check_columns(schema, options)
        options = sink_with_token(options)
        if options.delivery == EXACTLY_ONCE:
            from kafkapy_spark.exactly_once_stream import ExactlyOnceStreamWriter

            return ExactlyOnceStreamWriter(options, schema)
        from kafkapy_spark.stream_writer import KafkapyStreamWriter

        return KafkapyStreamWriter(options, schema)
