"""What a task of the arrow engine does: ranges of offsets become Parquet files of a size, without Spark's rows.

Record batches are collected by period, and written as row groups; a file that has its size is closed, and the next one
begun. Names of files are of one attempt of a task: what an attempt that failed has written is not heard of again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkapy_spark.executor_reader import ReadPlan, read_task
from kafkapy_spark.jobs.archive_layout import Layout, Period
from kafkapy_spark.jobs.archive_store import Store
from kafkapy_spark.planning import Task

__all__ = ["STATISTICS", "ArchivedFile", "WritePlan", "write_task"]

ROW_GROUP_BYTES: Final = 32 << 20
"""Of Arrow's memory, that make a row group."""
BUFFER_BYTES: Final = 96 << 20
"""Of all row groups that are being collected: the largest is written then."""
MAX_OPEN_FILES: Final = 32
"""The one that got no records for longest is closed then."""

_DICTIONARIES: Final = {
    "key": ("key",),
    "value": ("value",),
    "topic": ("topic",),
    "partition": ("partition",),
    "timestampType": ("timestampType",),
    "headers": ("headers.list.element.key", "headers.list.element.value"),
}
"""Columns of Parquet by columns; one whose values are too many for a dictionary gives it up in each row group."""
_DELTAS: Final = ("offset", "timestamp")
STATISTICS: Final = ("partition", "offset", "timestamp")
"""Columns whose least and greatest values are worth keeping."""


@dataclass(frozen=True)
class WritePlan:
    """What all tasks of a round have in common. `root` is the URI below which the files go, `name` how their names
    begin."""

    read: ReadPlan
    root: str
    name: str
    layout: Layout
    target_bytes: int
    compression: str


@dataclass(frozen=True)
class ArchivedFile:
    """A file that a task has written. `path` is below the plan's root."""

    path: str
    period: Period
    rows: int
    size: int
    record_bytes: int
    """Of keys and values."""
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Least and greatest values by column; a column without any is left out."""


def write_task(plan: WritePlan, number: int, task: Task) -> list[ArchivedFile]:
    """The files with a task's records. KafkaTimeoutError, DataLossError, OSError."""
    writer = TaskWriter(plan, f"{plan.name}-{number:05}-{uuid.uuid4().hex[:8]}")
    try:
        for batch in read_task(plan.read, task):
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


class TaskWriter:
    """Has a file open for each period. `name` is how names of files begin."""

    def __init__(self, plan: WritePlan, name: str) -> None:
        self._plan = plan
        self._name = name
        self._store = Store(plan.root)
        self._open: dict[Period, _File] = {}
        self._done: list[ArchivedFile] = []
        self._begun: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes rows; it holds on to the batch's memory until they are written."""
        for period, rows in self._plan.layout.divide(batch):
            file = self._open.get(period)
            if file is None:
                file = self._open[period] = self._begin(period, rows.schema)
            file.add(rows)
            if file.pending_bytes >= min(ROW_GROUP_BYTES, self._plan.target_bytes):
                self._flush(file)
        if sum(file.pending_bytes for file in self._open.values()) > BUFFER_BYTES:
            self._flush(max(self._open.values(), key=lambda file: file.pending_bytes))
        while len(self._open) > MAX_OPEN_FILES:
            self._close(min(self._open.values(), key=lambda file: file.used_at))

    def finish(self) -> list[ArchivedFile]:
        """Closes all files."""
        for file in [*self._open.values()]:
            self._close(file)
        return self._done

    def abandon(self) -> None:
        """Closes and removes all files."""
        for file in self._open.values():
            file.give_up()
        for path in self._begun:
            self._store.delete(path)

    def _begin(self, period: Period, schema: pa.Schema) -> _File:
        path = f"{period.directory}{self._name}-{len(self._begun):03}.parquet"
        self._begun.append(path)
        return _File(self._store, path, period, schema, self._plan.compression)

    def _flush(self, file: _File) -> None:
        if file.flush() >= self._plan.target_bytes:
            self._close(file)

    def _close(self, file: _File) -> None:
        del self._open[file.period]
        self._done.append(file.close())


class _File:
    def __init__(self, store: Store, path: str, period: Period, schema: pa.Schema, compression: str) -> None:
        self.period = period
        self.pending_bytes = 0
        self.used_at = 0.0
        self._store, self._path = store, path
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._record_bytes = 0
        self._footers: list[Any] = []
        self._stream = store.output(path)
        names = schema.names
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression=compression,
            use_dictionary=[path for name in names for path in _DICTIONARIES.get(name, ())],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in _DELTAS if name in names},
            write_statistics=[name for name in STATISTICS if name in names],
            metadata_collector=self._footers,
        )

    def add(self, rows: pa.RecordBatch) -> None:
        self._pending.append(rows)
        self.pending_bytes += rows.nbytes
        self.used_at = time.monotonic()

    def flush(self) -> int:
        """Writes what there is as a row group; the file's size then."""
        if self._pending:
            table = pa.Table.from_batches(self._pending)
            self._pending = []
            self.pending_bytes = 0
            self._rows += table.num_rows
            self._record_bytes += sum(
                _data_bytes(table[name]) for name in ("key", "value") if name in table.schema.names
            )
            self._writer.write_table(table, row_group_size=table.num_rows)
        return int(self._stream.tell())

    def close(self) -> ArchivedFile:
        self.flush()
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        self._store.sync(self._path)
        return ArchivedFile(self._path, self.period, self._rows, size, self._record_bytes, _bounds(self._footers[0]))

    def give_up(self) -> None:
        self._pending = []
        for each in (self._writer, self._stream):
            try:
                each.close()
            except OSError:
                pass  # what it could not write is removed anyway


def _data_bytes(column: pa.ChunkedArray) -> int:
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)


def _bounds(footer: Any) -> dict[str, tuple[Any, Any]]:
    found: dict[str, Sequence[Any]] = {}
    for group in range(footer.num_row_groups):
        for at in range(footer.num_columns):
            column = footer.row_group(group).column(at)
            statistics = column.statistics
            if column.path_in_schema in STATISTICS and statistics is not None and statistics.has_min_max:
                values = (*found.get(column.path_in_schema, ()), statistics.min, statistics.max)
                found[column.path_in_schema] = values
    return {name: (min(values), max(values)) for name, values in found.items()}
