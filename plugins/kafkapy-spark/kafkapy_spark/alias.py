"""format("kafka") that is format("kafkapy"): programs that were written for Spark's own connector run as they are.

    kafkapy_spark.alias_kafka(spark)
    spark.read.format("kafka")...

Spark itself lets no Python data source have that name, so the methods `format` of pyspark's readers and writers are
replaced, in this process and for the kind of session that was given (Spark Connect's are others). SQL (`USING kafka`)
and programs in Scala are not reached, and output mode "update" is not there for Python sinks (see foreach_batch).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kafkapy_spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KAFKA: Final = "kafka"
_OURS: Final = "kafkapy"
_ERROR_MODES: Final = frozenset({"error", "errorifexists", "default"})
"""Spark's default: to a topic its own sink appends in this mode, while a Python one is not asked."""

_active: dict[bool, KafkaAlias] = {}


def alias_kafka(spark: SparkSession) -> KafkaAlias:
    """Makes format("kafka") mean format("kafkapy") from now on, until `undo`. Calls after the first one change nothing.

    A batch write needs no mode("append") then, which Python data sources need otherwise. A writer of format("kafka")
    does not look at a column `timestamp`, as Spark's own sink does not; option("timestampColumn", True) after `format`
    changes that.
    """
    connect = is_connect(spark)
    if connect not in _active:
        _active[connect] = KafkaAlias(connect)
    return _active[connect]


class KafkaAlias:
    """The replaced methods; a context manager that undoes it."""

    def __init__(self, connect: bool) -> None:
        if connect:
            from pyspark.sql.connect.readwriter import DataFrameReader, DataFrameWriter
            from pyspark.sql.connect.streaming.readwriter import DataStreamReader, DataStreamWriter
        else:
            from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter  # type: ignore[assignment]
            from pyspark.sql.streaming.readwriter import (  # type: ignore[assignment]
                DataStreamReader,
                DataStreamWriter,
            )
        self._connect = connect
        self._replaced: list[tuple[type, str, Callable[..., Any], Callable[..., Any]]] = []
        for reader in (DataFrameReader, DataStreamReader):
            self._replace(reader, "format", _reader_format(reader.format))
        self._replace(DataStreamWriter, "format", _stream_writer_format(DataStreamWriter.format))
        mode, of_format = DataFrameWriter.mode, DataFrameWriter.format
        self._replace(DataFrameWriter, "mode", _writer_mode(mode))
        self._replace(DataFrameWriter, "format", _writer_format(of_format, mode))

    def undo(self) -> None:
        """format("kafka") is Spark's own again. What somebody else has replaced since then is left alone."""
        for kind, name, original, ours in self._replaced:
            if getattr(kind, name) is ours:
                setattr(kind, name, original)
        self._replaced.clear()
        if _active.get(self._connect) is self:
            del _active[self._connect]

    def __enter__(self) -> KafkaAlias:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()

    def _replace(self, kind: type, name: str, ours: Callable[..., Any]) -> None:
        self._replaced.append((kind, name, getattr(kind, name), ours))
        setattr(kind, name, ours)


def _is_kafka(source: str) -> bool:
    return source.lower() == _KAFKA


def _reader_format(original: Callable[..., Any]) -> Callable[..., Any]:
    def format(self: Any, source: str) -> Any:
        return original(self, _OURS if _is_kafka(source) else source)

    return format


def _stream_writer_format(original: Callable[..., Any]) -> Callable[..., Any]:
    def format(self: Any, source: str) -> Any:
        if not _is_kafka(source):
            return original(self, source)
        return original(self, _OURS).option("timestampColumn", "false")

    return format


def _writer_mode(original: Callable[..., Any]) -> Callable[..., Any]:
    def mode(self: Any, saveMode: str | None) -> Any:
        if saveMode is None:
            return original(self, saveMode)
        self._kafkapy_mode = saveMode
        return original(self, _mode(self, saveMode))

    return mode


def _writer_format(original: Callable[..., Any], mode: Callable[..., Any]) -> Callable[..., Any]:
    def format(self: Any, source: str) -> Any:
        kafka = _is_kafka(source)
        before = getattr(self, "_kafkapy_topics", False)
        self._kafkapy_topics = kafka or source.lower() == _OURS
        if before != self._kafkapy_topics:
            mode(self, _mode(self, getattr(self, "_kafkapy_mode", "error")))
        if not kafka:
            return original(self, source)
        return original(self, _OURS).option("timestampColumn", "false")

    return format


def _mode(writer: Any, given: str) -> str:
    """What Spark is told: a topic that is there is no error."""
    return "append" if getattr(writer, "_kafkapy_topics", False) and given.lower() in _ERROR_MODES else given
