"""The last record of each key of a range, against a dict of the same records."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from kafkapy_spark.jobs import range_latest
from kafkapy_spark.jobs.range_latest import latest_of_range
from kafkapy_spark.planning import OffsetRange

from kafkapy.types import TopicPartition

Record = tuple[bytes | None, bytes | None, int]


def batch(records: list[Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key for key, _, _ in records], pa.binary()),
            pa.array([value for _, value, _ in records], pa.binary()),
            pa.array([offset for _, _, offset in records], pa.int64()),
            pa.array([offset * 1000 for _, _, offset in records], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        ],
        names=["key", "value", "offset", "timestamp"],
    )


@pytest.mark.parametrize("held", [1, 7, 50, 100_000])
@pytest.mark.parametrize("seed", range(10))
def test_the_last_record_of_each_key_is_there(seed: int, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more keys come than are held; then other records of a key may be there too, and each is one of the
    range's. Offsets have gaps."""
    monkeypatch.setattr(range_latest, "HELD_ROWS", held)
    chance = random.Random(seed)
    records: list[Record] = []
    offset = 5
    for _ in range(chance.choice([0, 1, 200])):
        key = chance.choice([None, b"", b"hot", b"hot", str(chance.randint(0, 40)).encode()])
        records.append((key, chance.choice([None, b"", b"v%d" % offset]), offset))
        offset += chance.choice([1, 1, 3])
    batches, left = [], list(records)
    while left:
        size = chance.randint(1, 30)
        batches.append(batch(left[:size]))
        left = left[size:]
    out = pa.Table.from_batches(latest_of_range(OffsetRange(TopicPartition("t", 3), 5, offset), batches))
    rows = out.to_pylist()
    counts = [row for row in rows if row["rows"] is not None]
    assert [(each["rows"], each["bytes"], each["without_key"], each["offset"]) for each in counts] == [
        (
            len(records),
            sum(len(key or b"") + len(value or b"") for key, value, _ in records),
            sum(key is None for key, _, _ in records),
            None,
        )
    ]
    found = [row for row in rows if row["rows"] is None]
    assert all(row["partition"] == 3 and row["timestamp"].microsecond % 1000 == 0 for row in found)
    last = {key: (value, offset) for key, value, offset in records if key is not None}
    newest = {row["key"]: (row["value"], row["offset"]) for row in sorted(found, key=lambda row: row["offset"])}
    assert newest == last
    assert {(row["key"], row["value"], row["offset"]) for row in found} <= set(records)
    assert len(found) == len(last) if held > len(records) else len(found) <= len(records)


def test_keys_that_repeat_are_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_latest, "HELD_ROWS", 10)
    batches = [batch([(b"%d" % (offset % 3), b"x", offset) for offset in range(at, at + 8)]) for at in range(0, 800, 8)]
    out = pa.Table.from_batches(latest_of_range(OffsetRange(TopicPartition("t", 0), 0, 800), batches))
    assert sorted(offset for offset in out["offset"].to_pylist() if offset is not None) == [797, 798, 799]
