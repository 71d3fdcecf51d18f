"""What a profile keeps of a range of records, and how ranges become partitions. Runs on executors; no Spark in here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkapy_spark.planning import OffsetRange

COLUMNS: Final = ("key", "value", "offset", "timestamp")
SCHEMA: Final = "kind string, topic string, key binary, number bigint, count bigint, text string"
ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("number", pa.int64()),
        pa.field("count", pa.int64()),
        pa.field("text", pa.string()),
    ]
)
"""Rows of a range: one "range" (text: the JSON of a RangeProfile); a "key_size" and "value_size" for each size (number)
and how often it occurs (count); "key" for keys and how often they occur, a key maybe several times."""

MERGE_KEYS: Final = 200_000
"""Counted keys that are held before those that are equal are added up."""
MOST_KEYS: Final = 100_000
"""Different keys that are held; more are left to Spark."""
EMIT_ROWS: Final = 50_000


@dataclass
class RangeProfile:
    """Times are ms since 1970; those of records without a time do not count."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    offset_gaps: int = 0
    """Stretches of offsets between the first and the last record that have no record."""
    largest_offset_gap: int = 0
    null_keys: int = 0
    tombstones: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    first_time: int | None = None
    """Of the earliest record, wherever it stands."""
    last_time: int | None = None
    begins_at: int | None = None
    """Of the first record that has a time, by offset."""
    ends_at: int | None = None
    out_of_order: int = 0
    """Records that are older than the one before."""
    time_gaps: list[tuple[int, int, int]] = field(default_factory=list)
    """(the latest time so far, the time of a record that is later by more than the limit, its offset)."""

    def merge(self, later: RangeProfile, gap_ms: int) -> None:
        """Adds the range that follows this one in the partition."""
        if later.first_offset is not None:
            if self.last_offset is not None:
                self._count_gap(later.first_offset - self.last_offset - 1)
            else:
                self.first_offset = later.first_offset
            self.last_offset = later.last_offset
        self.end = later.end
        self.rows += later.rows
        self.offset_gaps += later.offset_gaps
        self.largest_offset_gap = max(self.largest_offset_gap, later.largest_offset_gap)
        self.null_keys += later.null_keys
        self.tombstones += later.tombstones
        self.key_bytes += later.key_bytes
        self.value_bytes += later.value_bytes
        self._merge_times(later, gap_ms)

    def whole(self) -> tuple[int, int]:
        """(stretches without records, the largest one), with those before the first and behind the last record."""
        if self.first_offset is None or self.last_offset is None:
            return (1, self.end - self.start) if self.end > self.start else (0, 0)
        edges = [size for size in (self.first_offset - self.start, self.end - 1 - self.last_offset) if size > 0]
        return self.offset_gaps + len(edges), max([self.largest_offset_gap, *edges])

    def _count_gap(self, size: int) -> None:
        if size > 0:
            self.offset_gaps += 1
            self.largest_offset_gap = max(self.largest_offset_gap, size)

    def _merge_times(self, later: RangeProfile, gap_ms: int) -> None:
        """The latest time of this range goes before all of the later one: what was a gap there may be none here, or a
        smaller one, and its first record may come after one."""
        if later.begins_at is None or later.ends_at is None or later.last_time is None or later.first_time is None:
            return
        if self.last_time is None or self.first_time is None or self.ends_at is None:
            self.first_time, self.last_time = later.first_time, later.last_time
            self.begins_at, self.ends_at, self.time_gaps = later.begins_at, later.ends_at, later.time_gaps
            self.out_of_order += later.out_of_order
            return
        latest = self.last_time
        gaps = [(latest, later.begins_at, later.first_offset or 0), *later.time_gaps]
        moved = [(max(since, latest), until, offset) for since, until, offset in gaps]
        self.time_gaps += [gap for gap in moved if gap[1] - gap[0] > gap_ms]
        self.out_of_order += later.out_of_order + (later.begins_at < self.ends_at)
        self.ends_at = later.ends_at
        self.first_time = min(self.first_time, later.first_time)
        self.last_time = max(latest, later.last_time)


def profile_range(
    each: OffsetRange, batches: Iterable[pa.RecordBatch], gap_ms: int, with_keys: bool
) -> Iterator[pa.RecordBatch]:
    """Rows of ARROW_SCHEMA for a range."""
    topic = each.partition.topic
    found = RangeProfile(topic, each.partition.partition, each.start, each.end)
    sizes: dict[str, Counter[int]] = {"key_size": Counter(), "value_size": Counter()}
    keys = _Keys()
    for batch in batches:
        if not batch.num_rows:
            continue
        _add(found, sizes, batch, gap_ms)
        if with_keys:
            keys.add(batch.column("key"))
            if keys.are_many:
                yield from _rows(topic, "key", key=keys.take())
    if with_keys:
        yield from _rows(topic, "key", key=keys.take())
    for kind, counts in sizes.items():
        numbers = pa.array(counts.keys(), pa.int64()), pa.array(counts.values(), pa.int64())
        yield from _rows(topic, kind, number=numbers)
    row = {"kind": "range", "topic": topic, "text": json.dumps(asdict(found))}
    yield pa.RecordBatch.from_pylist([row], ARROW_SCHEMA)


def _add(found: RangeProfile, sizes: dict[str, Counter[int]], batch: pa.RecordBatch, gap_ms: int) -> None:
    keys, values, offsets = batch.column("key"), batch.column("value"), batch.column("offset")
    found.rows += batch.num_rows
    found.null_keys += keys.null_count
    found.tombstones += values.null_count
    found.key_bytes += _count_sizes(sizes["key_size"], keys)
    found.value_bytes += _count_sizes(sizes["value_size"], values)
    if found.last_offset is None:
        found.first_offset = offsets[0].as_py()
    else:
        found._count_gap(offsets[0].as_py() - found.last_offset - 1)
    steps = pc.subtract(offsets[1:], offsets[:-1])
    if len(steps) and pc.max(steps).as_py() > 1:
        found.offset_gaps += pc.sum(pc.greater(steps, 1)).as_py()
        found.largest_offset_gap = max(found.largest_offset_gap, pc.max(steps).as_py() - 1)
    found.last_offset = offsets[-1].as_py()
    _add_times(found, batch, gap_ms)


def _add_times(found: RangeProfile, batch: pa.RecordBatch, gap_ms: int) -> None:
    times = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000)
    offsets = batch.column("offset")
    timed = pc.and_kleene(pc.is_valid(times), pc.greater_equal(times, 0))
    if not pc.all(timed).as_py():
        times, offsets = times.filter(timed), offsets.filter(timed)
        if not len(times):
            return
    first = times[0].as_py()
    if found.begins_at is None:
        found.begins_at = first
    before = pa.concat_arrays([pa.array([first if found.ends_at is None else found.ends_at], pa.int64()), times[:-1]])
    found.out_of_order += pc.sum(pc.less(times, before)).as_py()
    latest = first if found.last_time is None else found.last_time
    so_far = pc.cumulative_max(pa.concat_arrays([pa.array([latest], pa.int64()), times]))[:-1]
    late = pc.greater(pc.subtract(times, so_far), gap_ms)
    if pc.any(late).as_py():
        columns = (so_far, times, offsets)
        found.time_gaps += zip(*(column.filter(late).to_pylist() for column in columns), strict=True)
    lowest, highest = pc.min(times).as_py(), pc.max(times).as_py()
    found.first_time = lowest if found.first_time is None else min(found.first_time, lowest)
    found.last_time = highest if found.last_time is None else max(found.last_time, highest)
    found.ends_at = times[-1].as_py()


def _count_sizes(counts: Counter[int], column: pa.Array) -> int:
    """Counts the sizes of what is not null; their sum."""
    sizes = pc.binary_length(column).drop_null()
    for each in pc.value_counts(sizes).to_pylist():
        counts[each["values"]] += each["counts"]
    return int(pc.sum(sizes).as_py() or 0)


class _Keys:
    """Keys and how often they occur."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []
        self._held = 0
        self.are_many = False

    def add(self, keys: pa.Array) -> None:
        counted = pc.value_counts(keys.drop_null())
        if len(counted):
            self._parts.append(pa.table({"key": counted.field("values"), "count": counted.field("counts")}))
            self._held += len(counted)
        if self._held > MERGE_KEYS:
            self._merge()
            self.are_many = self._held > MOST_KEYS

    def take(self) -> tuple[pa.Array, pa.Array]:
        """All of them; none are held then."""
        self._merge()
        parts, self._parts, self._held, self.are_many = self._parts, [], 0, False
        if not parts:
            return pa.array([], pa.binary()), pa.array([], pa.int64())
        return parts[0]["key"].combine_chunks(), parts[0]["count"].combine_chunks()

    def _merge(self) -> None:
        if len(self._parts) > 1:
            summed = pa.concat_tables(self._parts).group_by("key").aggregate([("count", "sum")])
            self._parts = [summed.select(["key", "count_sum"]).rename_columns(["key", "count"])]
            self._held = summed.num_rows


def _rows(topic: str, kind: str, **counted: tuple[pa.Array, pa.Array]) -> Iterator[pa.RecordBatch]:
    """Rows of one kind: `key` or `number`, each with its counts."""
    ((name, (values, counts)),) = counted.items()
    for at in range(0, len(values), EMIT_ROWS):
        part = values[at : at + EMIT_ROWS]
        columns: dict[str, Any] = {field.name: pa.nulls(len(part), field.type) for field in ARROW_SCHEMA}
        columns |= {"kind": pa.repeat(kind, len(part)), "topic": pa.repeat(topic, len(part))}
        columns |= {name: part, "count": counts[at : at + EMIT_ROWS]}
        yield pa.RecordBatch.from_arrays(list(columns.values()), schema=ARROW_SCHEMA)
