"""The last record of each key in a range of records. Runs on executors; no Spark in here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkapy_spark.planning import OffsetRange

COLUMNS: Final = ("key", "value", "offset", "timestamp")
SCHEMA: Final = (
    "key binary, value binary, offset bigint, timestamp timestamp, partition int, "
    "rows bigint, bytes bigint, without_key bigint"
)
"""Records with a key; the last columns are null in them, and all but these are null in one row for each range, which
counts what was read."""
_READ: Final = ("rows", "bytes", "without_key")

HELD_ROWS: Final = 500_000
HELD_BYTES: Final = 128 << 20
"""Records that are held before those that are not the last of their keys are dropped."""


def latest_of_range(each: OffsetRange, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of SCHEMA. A key may come more than once where a range has too many of them to hold."""
    read = dict.fromkeys(_READ, 0)
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        read["rows"] += batch.num_rows
        read["bytes"] += sum(pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("key", "value"))
        if batch.column("key").null_count:
            read["without_key"] += batch.column("key").null_count
            batch = batch.filter(pc.is_valid(batch.column("key")))
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows > HELD_ROWS or size > HELD_BYTES:
            held = _last(held)
            rows, size = sum(kept.num_rows for kept in held), sum(kept.nbytes for kept in held)
            if rows > HELD_ROWS // 2 or size > HELD_BYTES // 2:
                yield from _out(each, held)
                held, rows, size = [], 0, 0
    yield from _out(each, _last(held))
    yield _row(read)


def _last(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Offsets rise within a range, so the last record of a key is that with the highest one."""
    if not batches:
        return []
    table = pa.Table.from_batches(batches)
    last = table.select(["key", "offset"]).group_by("key").aggregate([("offset", "max")])
    if last.num_rows == table.num_rows:
        return batches
    kept = table.filter(pc.is_in(table["offset"], value_set=last["offset_max"].combine_chunks()))
    out: list[pa.RecordBatch] = kept.to_batches()
    return out


def _out(each: OffsetRange, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        partition = pa.repeat(pa.scalar(each.partition.partition, pa.int32()), batch.num_rows)
        counts = [pa.nulls(batch.num_rows, pa.int64())] * len(_READ)
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, partition, *counts], names=[*batch.schema.names, "partition", *_READ]
        )


def _row(read: dict[str, int]) -> pa.RecordBatch:
    kinds = [pa.binary(), pa.binary(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.int32()]
    columns = [*(pa.nulls(1, kind) for kind in kinds), *(pa.array([read[name]], pa.int64()) for name in _READ)]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "offset", "timestamp", "partition", *_READ])
