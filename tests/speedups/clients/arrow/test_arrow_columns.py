"""Arrow columns straight from batches against tables that pyarrow builds from the same records."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.clients.arrow.columns import COLUMN_NAMES, ArrowColumns
from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition
from kafkapy.errors import CorruptMessageError, KafkaError
from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.records.batches import Record, RecordBatchBuilder
from kafkapy.records.legacy import build_message_set

pa = pytest.importorskip("pyarrow")
arrow = pytest.importorskip("kafkapy.arrow")

NOW = 1_700_000_000_000
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def partition_of(
    data: bytes,
    topic: str = "t",
    number: int = 2,
    offset: int = 0,
    check_crcs: bool = True,
    max_decompressed: int = 1 << 30,
) -> FetchedPartition:
    response = FetchResponse(
        responses=[
            FetchResponse.TopicResponse(
                topic=topic,
                partitions=[
                    FetchResponse.TopicResponse.Partition(partition_index=number, high_watermark=9, records=data)
                ],
            )
        ]
    )
    frame = FetchResponseFrame(11, check_crcs, max_decompressed)
    frame.feed(b"\x00\x00\x00\x01" + response.encode(11))
    (partition,) = frame.partitions()
    partition.start(topic, offset, False, None, None)
    return partition


def batch(base: int, rows: list[Row], codec: int = 0, **build: Any) -> bytes:
    builder = RecordBatchBuilder(base_offset=base)
    for i, (key, value, headers) in enumerate(rows):
        builder.append(NOW + i, key, value, headers)
    return builder.build(codec, **build)


def table_of(records: list[Any], columns: list[str] | None = None) -> Any:
    """What pyarrow makes of the records, one object after the other."""
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp if record.timestamp != -1 else None,
            "timestamp_type": record.timestamp_type,
        }
        for record in records
    ]
    table = pa.Table.from_pylist(rows, schema=arrow.SCHEMA)
    return table if columns is None else table.select(columns)


def collected(parts: list[FetchedPartition], columns: list[str] | None = None, step: int = 1 << 40) -> Any:
    builder = arrow.TableBuilder(columns)
    for partition in parts:
        while taken := builder.add(partition, step):
            assert taken <= step
    rows = builder.rows
    table = builder.table()
    table.validate(full=True)
    assert table.num_rows == rows
    assert (builder.rows, builder.bytes) == (0, 0)
    return table


rows_of = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=60),
        st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_table_is_that_of_the_records(data: st.DataObject) -> None:
    def parts() -> list[FetchedPartition]:
        return [partition_of(raw, topic, number, offset) for raw, topic, number, offset in drawn]

    drawn = []
    for _ in range(data.draw(st.integers(0, 4))):
        raw, base = b"", 0
        for _ in range(data.draw(st.integers(0, 3))):
            rows = data.draw(rows_of)
            stamp = data.draw(st.none() | st.just(NOW + 99))
            raw += batch(base, rows, data.draw(st.sampled_from([0, 1, 2, 3, 4])), log_append_time=stamp)
            base += len(rows)
        drawn.append(
            (
                raw,
                data.draw(st.sampled_from(["a", "b.c", "d"])),
                data.draw(st.integers(0, 5)),
                data.draw(st.integers(0, base)),
            )
        )
    columns = data.draw(
        st.none() | st.permutations(arrow.COLUMNS).flatmap(lambda names: st.integers(1, 8).map(lambda n: names[:n]))
    )
    records = [record for partition in parts() for record in partition.take(1000)]
    table = collected(parts(), columns, data.draw(st.integers(1, 30)))
    expected = table_of(records, columns)
    assert table.schema == expected.schema
    assert table.to_pylist() == expected.to_pylist()
    assert {name: table[name].null_count for name in table.column_names} == {
        name: expected[name].null_count for name in expected.column_names
    }


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_stops_of_any_kind_do_not_change_what_is_read(data: st.DataObject) -> None:
    """Columns and records in turns, to limits of rows, offsets and bytes, against one record after the other."""
    raw, base = bytearray(), 0
    for _ in range(data.draw(st.integers(1, 6))):
        base += data.draw(st.integers(0, 3))  # where compaction has left nothing
        rows = data.draw(rows_of)
        made = bytearray(batch(base, rows, data.draw(st.sampled_from([0, 0, 2, 3]))))
        if data.draw(st.integers(0, 9)) == 0:
            made[17] ^= 1  # the CRC
        raw += made
        base += len(rows)
    budget = data.draw(st.sampled_from([0, 100, 1 << 30]))
    expected: list[int | type] = []
    one = partition_of(bytes(raw), max_decompressed=budget)
    try:
        while (record := one.next()) is not None:
            expected.append(record.offset)
    except CorruptMessageError as error:
        expected.append(type(error))
    turns = partition_of(bytes(raw), max_decompressed=budget)
    columns = ArrowColumns(["offset", "value"], chunk_bytes=data.draw(st.sampled_from([1, 60, 1 << 20])))
    found: list[int | type] = []
    while len(found) < len(expected):
        most = data.draw(st.integers(1, 15))
        end = turns.next_offset + data.draw(st.integers(1, 20))
        try:
            if data.draw(st.booleans()):
                found += [record.offset for record in turns.take(most)]
                continue
            gil, room = data.draw(st.booleans()), data.draw(st.integers(1, 200))
            taken = columns.append(turns, most, gil, end, room)
        except CorruptMessageError as error:
            found.append(type(error))
            break
        assert taken == columns.rows <= most
        offsets = [
            int(offset)
            for _, buffers in columns.finish()
            for offset in memoryview(buffers["offset"]).cast("b").cast("q")
        ]
        assert len(offsets) == taken
        assert all(offset < end for offset in offsets)
        found += offsets
    assert found == expected
    assert turns.next_offset == one.next_offset
    if expected and isinstance(expected[-1], int):
        assert columns.append(turns, 1 << 40) == 0
        assert turns.exhausted


def test_no_rows_and_no_columns() -> None:
    table = arrow.TableBuilder().table()
    assert table.num_rows == 0
    assert table.schema == arrow.SCHEMA
    assert tuple(COLUMN_NAMES) == arrow.COLUMNS
    for columns in ([], ["key", "key"], ["colour"]):
        with pytest.raises(ValueError):
            arrow.TableBuilder(columns)
    with pytest.raises(ValueError):
        ArrowColumns(["key"], 1 << 31)


def test_old_message_formats() -> None:
    records = [Record(5, -1, -1, None, b"a"), Record(6, -1, -1, b"k", None)]
    table = collected([partition_of(build_message_set(records, 0, 3))])
    assert table["timestamp"].to_pylist() == [None, None]
    assert table["timestamp_type"].to_pylist() == [-1, -1]
    assert table["value"].to_pylist() == [b"a", None]
    assert table["offset"].to_pylist() == [5, 6]


def test_names_that_are_not_utf8_are_what_records_have() -> None:
    rng = random.Random(3)
    pieces = [
        b"a",
        b"\xc3\xa9",
        b"\xe2\x82\xac",
        b"\xf0\x9f\x98\x80",
        b"\xff",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\x80",
        b"\xe0\x80\x80",
        b"\xf0\x80\x80\x80",
        b"\xc3",
        b"\xf1\x80",
    ]
    for _ in range(300):
        name = b"".join(rng.choices(pieces, k=rng.randrange(1, 6)))
        raw = batch(0, [(None, b"v", [("N" * len(name), b"x")])]).replace(b"N" * len(name), name)
        (record,) = partition_of(raw, check_crcs=False).take(1)
        ((entry,),) = collected([partition_of(raw, check_crcs=False)], ["headers"])["headers"].to_pylist()
        assert (entry["key"], entry["value"]) == record.headers[0] == (name.decode("utf-8", "replace"), b"x")


def test_chunks_follow_each_other_where_one_is_full() -> None:
    rows: list[Row] = [(b"k", bytes(1000), [("h", b"x")])] * 10
    columns = ArrowColumns(["value", "offset", "headers"], chunk_bytes=25_000)
    partition = partition_of(b"".join(batch(10 * i, rows) for i in range(12)))
    assert columns.append(partition, 1 << 40) == 120
    chunks = columns.finish()
    assert len(chunks) > 4
    assert sum(rows for rows, _ in chunks) == 120
    builder = arrow.TableBuilder(["value", "offset", "headers"])
    builder.columns = ArrowColumns(["value", "offset", "headers"], chunk_bytes=25_000)
    builder.add(partition_of(b"".join(batch(10 * i, rows) for i in range(12))), 1 << 40)
    table = builder.table()
    table.validate(full=True)
    assert table["offset"].num_chunks == len(chunks)
    assert table["offset"].to_pylist() == list(range(120))
    assert set(table["value"].to_pylist()) == {bytes(1000)}


def test_errors_come_where_the_position_reaches_them() -> None:
    bad = bytearray(batch(2, [(None, b"x", [])]))
    bad[-1] ^= 1
    partition = partition_of(batch(0, [(None, b"a", []), (None, b"b", [])]) + bytes(bad))
    builder = arrow.TableBuilder()
    assert builder.add(partition, 100) == 2
    for _ in range(2):
        with pytest.raises(CorruptMessageError, match="offset 2"):
            builder.add(partition, 100)
    assert builder.table()["value"].to_pylist() == [b"a", b"b"]


def test_random_bits_give_a_valid_table_or_an_error() -> None:
    rng = random.Random(11)
    rows: list[Row] = [(b"key", b"v" * 30, [("name", b"x"), ("né", None)]), (None, None, [])]
    for _ in range(1500):
        whole = bytearray(batch(0, rows * 3) + batch(6, rows, codec=rng.choice((1, 2, 3, 4))))
        for _ in range(rng.choice((1, 2, 8))):
            at = rng.randrange(len(whole))
            whole[at] ^= 1 << rng.randrange(8)
        builder = arrow.TableBuilder()
        try:
            partition = partition_of(bytes(whole), check_crcs=False)
            while builder.add(partition, rng.randrange(1, 5)):
                pass
        except (KafkaError, MemoryError):
            pass
        builder.table().validate(full=True)


def test_memory_is_used_again_and_never_shared() -> None:
    rng = random.Random(4)
    kept: list[tuple[Any, list[Any]]] = []
    for turn in range(60):
        rows: list[Row] = [(b"%d" % turn, rng.randbytes(rng.randrange(4000)), []) for _ in range(40)]
        raw = batch(0, rows)
        table = collected([partition_of(raw)], ["key", "value"])
        expected = [{"key": key, "value": value} for key, value, _ in rows]
        assert table.to_pylist() == expected
        if turn % 7 == 0:
            kept.append((table, expected))
        if len(kept) > 3:
            kept.pop(0)
        assert all(old.to_pylist() == wanted for old, wanted in kept)


def test_without_the_gil_in_threads_of_their_own() -> None:
    rows: list[Row] = [(b"k%d" % i, b"v" * i, [("h", b"%d" % i)]) for i in range(300)]
    raw = b"".join(batch(300 * i, rows, codec=i % 5) for i in range(10))
    wanted = [value for _, value, _ in rows] * 10
    wrong: list[int] = []

    def work() -> None:
        for _ in range(10):
            columns = ArrowColumns(["key", "value", "headers"])
            partition = partition_of(raw)
            while columns.append(partition, 700, True):
                pass
            builder = arrow.TableBuilder(["key", "value", "headers"])
            builder.columns = columns
            if builder.table()["value"].to_pylist() != wanted:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_columns_that_are_not_named_are_refused() -> None:
    with pytest.raises(TypeError):
        ArrowColumns()  # type: ignore[call-arg]
