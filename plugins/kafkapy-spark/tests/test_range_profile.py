"""What is kept of ranges of records, against a count of the same records one by one."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from kafkapy_spark.jobs import range_profile
from kafkapy_spark.jobs.range_profile import ARROW_SCHEMA, RangeProfile, profile_range
from kafkapy_spark.planning import OffsetRange

from kafkapy.types import TopicPartition

T0 = TopicPartition("t", 0)
GAP_MS = 50


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    offset: int
    time: int
    """ms; -1: none."""


def batch(records: list[Record]) -> pa.RecordBatch:
    keys, values, offsets, times = zip(*records, strict=True) if records else ((), (), (), ())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(offsets, pa.int64()),
            pa.array([time * 1000 for time in times], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        ],
        names=["key", "value", "offset", "timestamp"],
    )


def cut(items: list[Any], pieces: int, chance: random.Random) -> list[list[Any]]:
    at = sorted(chance.randint(0, len(items)) for _ in range(pieces - 1))
    return [items[start:end] for start, end in zip([0, *at], [*at, len(items)], strict=True)]


def truth(records: list[Record], start: int, end: int) -> dict[str, Any]:
    """One record at a time."""
    gaps, expected = [], start
    for record in records:
        if record.offset > expected:
            gaps.append(record.offset - expected)
        expected = record.offset + 1
    if end > expected:
        gaps.append(end - expected)
    latest = before = None
    silences, out_of_order = [], 0
    for record in records:
        if record.time >= 0:
            if latest is not None and record.time - latest > GAP_MS:
                silences.append((latest, record.time))
            out_of_order += before is not None and record.time < before
            before = record.time
            latest = record.time if latest is None else max(latest, record.time)
    times = [record.time for record in records if record.time >= 0]
    return {
        "rows": len(records),
        "gaps": (len(gaps), max(gaps, default=0)),
        "null_keys": sum(record.key is None for record in records),
        "tombstones": sum(record.value is None for record in records),
        "bytes": sum(len(record.key or b"") + len(record.value or b"") for record in records),
        "times": (min(times, default=None), max(times, default=None)),
        "silences": silences,
        "out_of_order": out_of_order,
        "keys": Counter(record.key for record in records if record.key is not None),
        "key_size": Counter(len(record.key) for record in records if record.key is not None),
        "value_size": Counter(len(record.value) for record in records if record.value is not None),
    }


def found(ranges: list[tuple[OffsetRange, list[pa.RecordBatch]]]) -> dict[str, Any]:
    """The same from ranges in order."""
    keys: Counter[bytes] = Counter()
    sizes: dict[str, Counter[int]] = {"key_size": Counter(), "value_size": Counter()}
    pieces = []
    for each, batches in ranges:
        for out in profile_range(each, batches, GAP_MS, True):
            assert out.schema == ARROW_SCHEMA
            for row in out.to_pylist():
                assert row["topic"] == "t"
                if row["kind"] == "range":
                    pieces.append(RangeProfile(**json.loads(row["text"])))
                elif row["kind"] == "key":
                    keys[row["key"]] += row["count"]
                else:
                    sizes[row["kind"]][row["number"]] += row["count"]
    whole, *others = pieces
    for piece in others:
        whole.merge(piece, GAP_MS)
    return {
        "rows": whole.rows,
        "gaps": whole.whole(),
        "null_keys": whole.null_keys,
        "tombstones": whole.tombstones,
        "bytes": whole.key_bytes + whole.value_bytes,
        "times": (whole.first_time, whole.last_time),
        "silences": [(gap[0], gap[1]) for gap in whole.time_gaps],
        "out_of_order": whole.out_of_order,
        "keys": keys,
        **sizes,
    }


@pytest.mark.parametrize("seed", range(150))
def test_any_cut_into_ranges_and_batches_gives_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps at the edges of ranges and batches, times that go back, records without key, value or time."""
    chance = random.Random(seed)
    monkeypatch.setattr(range_profile, "MERGE_KEYS", chance.choice([3, 10, 1000]))
    monkeypatch.setattr(range_profile, "MOST_KEYS", chance.choice([2, 1000]))
    monkeypatch.setattr(range_profile, "EMIT_ROWS", chance.choice([2, 1000]))
    start = offset = chance.randint(0, 5)
    now, records = 1000, []
    for _ in range(chance.choice([0, 1, 5, 60])):
        offset += chance.choice([0, 0, 0, 1, 7])
        now += chance.choice([0, 1, 10, 60, 200])
        time = chance.choice([now, now, now, max(0, now - chance.randint(0, 300)), -1])
        key = chance.choice([None, b"", b"a", b"b", str(chance.randint(0, 30)).encode()])
        records.append(Record(key, chance.choice([None, b"", b"x" * chance.randint(1, 9)]), offset, time))
        offset += 1
    end = offset + chance.choice([0, 0, 4])
    borders = sorted({start, end, *(chance.randint(start, end) for _ in range(chance.randint(0, 4)))})
    borders = borders if len(borders) > 1 else [start, end]
    ranges = []
    for low, high in pairwise(borders):
        inside = [record for record in records if low <= record.offset < high]
        batches = [batch(piece) for piece in cut(inside, chance.randint(1, 4), chance)]
        ranges.append((OffsetRange(T0, low, high), batches))
    assert found(ranges) == truth(records, start, end)


def test_keys_need_not_be_counted() -> None:
    records = [Record(b"a", b"x", 0, 0)]
    rows = [row for out in profile_range(OffsetRange(T0, 0, 1), [batch(records)], 1, False) for row in out.to_pylist()]
    assert sorted(row["kind"] for row in rows) == ["key_size", "range", "value_size"]
