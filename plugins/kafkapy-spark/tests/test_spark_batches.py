"""The column kernel in Spark's types: against what pyarrow makes of the same records."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from clients.consumer.fetched import chunk
from hypothesis import given, settings
from hypothesis import strategies as st
from kafkapy_spark.spark_batches import SparkBatches

from kafkapy.connector import crc32c
from kafkapy.errors import KafkaError
from kafkapy.records.batches import RecordBatchBuilder

COLUMNS: dict[str, Any] = {
    "key": "binary",
    "value": "string",
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "integer",
    "headers": {"type": "array"},
}
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", HEADER)),
    }
)
NOW = 1_700_000_000_000


def spark_batches(columns: list[str]) -> SparkBatches:
    fields = [{"name": name, "type": COLUMNS[name], "nullable": True, "metadata": {}} for name in columns]
    return SparkBatches(json.dumps({"type": "struct", "fields": fields}))


def batch(base: int, rows: list[Any], codec: int = 0, **build: Any) -> bytes:
    builder = RecordBatchBuilder(base_offset=base)
    for at, (key, value, headers) in enumerate(rows):
        builder.append(NOW + at, key, value.encode() if value is not None else None, headers)
    return builder.build(codec, **build)


def taken(columns: list[str], chunks: list[Any], step: int = 1 << 40) -> list[pa.RecordBatch]:
    into = spark_batches(columns)
    out = []
    for each in chunks:
        while into.columns.append(each, step):
            out += into.batches()
            assert (into.rows, into.bytes) == (0, 0)
    for each in out:
        each.validate(full=True)
        assert each.schema == pa.schema([SCHEMA.field(name) for name in columns])
    return out


ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=40),
        st.none() | st.text(max_size=20),
        st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 5), ROWS, st.integers(0, 4), st.booleans()), max_size=4
    ),
    st.permutations(list(COLUMNS)),
    st.integers(1, 8),
    st.integers(1, 30),
)  # fmt: skip
def test_batches_are_the_records_in_spark_s_types(parts: Any, order: list[str], count: int, step: int) -> None:
    columns = order[:count]
    chunks = []
    expected = []
    for topic, number, rows, codec, appended in parts:
        time = NOW + 99 if appended else None
        data = batch(3, rows, codec, log_append_time=time)
        chunks.append(chunk(data, partition=number, topic=topic, start=0))
        for at, (key, value, headers) in enumerate(rows):
            whole = {
                "key": key, "value": value, "topic": topic, "partition": number, "offset": 3 + at,
                "timestamp": (NOW + (99 if appended else at)) * 1000, "timestampType": int(appended),
                "headers": [{"key": name, "value": data} for name, data in headers] or None,
            }  # fmt: skip
            expected.append({name: whole[name] for name in columns})
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    assert pa.Table.from_batches(taken(columns, chunks, step), schema=schema) == pa.Table.from_pylist(
        expected, schema=schema
    )


def test_times_beyond_microseconds_stand_at_the_ends_of_these() -> None:
    data = bytearray(batch(0, [(None, "v", [])]))
    for time, micros in (((1 << 62), (1 << 63) - 1), (-(1 << 62), -(1 << 63)), (9_223_372_036_854_775, None)):
        data[27:35] = data[35:43] = time.to_bytes(8, "big", signed=True)
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
        (found,) = taken(["timestamp"], [chunk(bytes(data), start=0)])
        assert found["timestamp"].cast(pa.int64()).to_pylist() == [time * 1000 if micros is None else micros]


def test_batches_that_were_handed_out_stay_as_they_are() -> None:
    """Columns of one topic are slices of one array, and memory is used again."""
    rng = random.Random(2)
    into = spark_batches(list(COLUMNS))
    kept = []
    for turn in range(30):
        rows = [(b"%d" % turn, "v" * rng.randrange(2000), []) for _ in range(rng.randrange(1, 60))]
        into.columns.append(chunk(batch(0, rows), topic="t", start=0), 1000)
        (found,) = into.batches()
        kept.append((found, [(key, value) for key, value, _ in rows]))
    for found, rows in kept:
        assert found["topic"].to_pylist() == ["t"] * len(rows)
        assert list(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == rows


def test_random_bits_give_a_valid_batch_or_an_error() -> None:
    rng = random.Random(7)
    rows: list[Any] = [(b"key", "v" * 30, [("name", b"x"), ("né", None)]), (None, None, [])]
    # Whether strings are UTF-8 is Spark's to see, so the value is binary here.
    columns = [name for name in COLUMNS if name != "value"]
    for _ in range(300):
        whole = bytearray(batch(0, rows * 3))
        whole[rng.randrange(21, len(whole))] ^= 1 << rng.randrange(8)
        whole[17:21] = crc32c(bytes(whole[21:])).to_bytes(4, "big")
        try:
            for end in (len(whole), rng.randrange(len(whole))):
                taken(columns, [chunk(bytes(whole[:end]), start=0)], rng.randrange(1, 5))
        except KafkaError:
            pass
