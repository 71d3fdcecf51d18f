"""kafkapy.arrow against a broker: poll_arrow, read and stream, and tables that come back as they were sent."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkapy.clients.consumer.consumer import KafkaConsumer
from kafkapy.clients.producer.producer import KafkaProducer
from kafkapy.errors import KafkaTimeoutError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafkapy.types import BulkMetadata, SentRecords, TopicPartition

pa = pytest.importorskip("pyarrow")
arrow = pytest.importorskip("kafkapy.arrow")

NOW = 1_700_000_000_000


@pytest.fixture
def servers(kafka_broker: Any) -> str:
    return str(kafka_broker.bootstrap_servers)


@pytest.fixture
def topic(kafka_broker: Any, request: pytest.FixtureRequest) -> str:
    name = f"arrow-{abs(hash(request.node.name))}-{time.monotonic_ns()}"
    # The records are old: a broker that checks its logs in the middle of a test would delete them.
    kafka_broker.create_topic(name, 3, {"retention.ms": "-1"})
    return name


def fill(servers: str, topic: str, count: int = 300, **config: Any) -> None:
    """`count` records, one after the other in partitions 0, 1 and 2, a second apart."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, **config})
    for i in range(count):
        producer.produce(
            topic,
            value=b"v%d" % i if i % 5 else None,
            key=b"k%d" % i if i % 3 else None,
            partition=i % 3,
            headers=[("n", b"%d" % i), ("none", None)] if i % 4 == 0 else None,
            timestamp=NOW + 1000 * i,
        )
    assert producer.flush(20) == 0


def rows_of(table: Any) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def expected_row(topic: str, i: int) -> dict[str, Any]:
    return {
        "key": b"k%d" % i if i % 3 else None,
        "value": b"v%d" % i if i % 5 else None,
        "headers": [{"key": "n", "value": b"%d" % i}, {"key": "none", "value": None}] if i % 4 == 0 else [],
        "topic": topic,
        "partition": i % 3,
        "offset": i // 3,
        "timestamp": datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=NOW + 1000 * i),
        "timestamp_type": 0,
    }


def expected(topic: str, numbers: Any) -> list[dict[str, Any]]:
    return sorted((expected_row(topic, i) for i in numbers), key=lambda row: (row["partition"], row["offset"]))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_poll_arrow_gives_what_poll_gives(servers: str, topic: str, codec: str) -> None:
    fill(servers, topic, **{"compression.type": codec})
    tables, records = [], []
    with KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        while sum(table.num_rows for table in tables) < 300:
            tables.append(consumer.poll_arrow(5000))
            assert tables[-1].num_rows
        assert consumer.poll_arrow().num_rows == 0
        assert consumer.poll_arrow().schema == arrow.SCHEMA
        positions = [consumer.position(partition) for partition in sorted(consumer.assignment())]
    assert positions == [100, 100, 100]
    with KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        while len(records) < 300:
            records += consumer.poll_batch(timeout_ms=5000)
    got = rows_of(pa.concat_tables(tables))
    assert got == expected(topic, range(300))
    assert [(row["partition"], row["offset"], row["value"]) for row in got] == sorted(
        (record.partition, record.offset, record.value) for record in records
    )


def test_poll_arrow_keeps_to_rows_and_columns(servers: str, topic: str) -> None:
    fill(servers, topic)
    with KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        table = consumer.poll_arrow(5000, max_records=7, columns=["offset", "value"])
        assert table.column_names == ["offset", "value"]
        assert table.num_rows == 7
        record = consumer.poll_batch(1, timeout_ms=5000)[0]  # both read from one position
        assert record.offset == table["offset"][-1].as_py() + 1
        for wrong in (0, -1):
            with pytest.raises(ValueError):
                consumer.poll_arrow(max_records=wrong)
        with pytest.raises(ValueError, match="no column"):
            consumer.poll_arrow(columns=["size"])


# --- read -----------------------------------------------------------------------------------------------------------


def test_read_a_whole_topic(servers: str, topic: str) -> None:
    fill(servers, topic)
    table = arrow.read(topic, bootstrap_servers=servers)
    assert table.schema == arrow.SCHEMA
    assert rows_of(table) == expected(topic, range(300))
    for number in range(3):
        in_order = [row["offset"] for row in table.to_pylist() if row["partition"] == number]
        assert in_order == sorted(in_order)


def test_read_stretches(servers: str, topic: str) -> None:
    fill(servers, topic)

    def read(offsets: Any) -> list[tuple[int, int]]:
        table = arrow.read(topic, offsets, bootstrap_servers=servers, columns=["partition", "offset"])
        return [(row["partition"], row["offset"]) for row in rows_of(table)]

    def span(number: int, start: int, end: int) -> list[tuple[int, int]]:
        return [(number, offset) for offset in range(start, end)]

    assert read({1: (5, 17)}) == span(1, 5, 17)
    assert read({0: ("earliest", 3), 2: (98, "latest")}) == span(0, 0, 3) + span(2, 98, 100)
    assert read((97, 1_000_000)) == [row for number in range(3) for row in span(number, 97, 100)]
    assert read({0: (5, 5), 1: (100, 200), 2: (7, 3)}) == []
    start = datetime.fromtimestamp(NOW / 1000 + 30, UTC)
    assert read({0: (start, start + timedelta(seconds=30))}) == span(0, 10, 20)
    assert read({1: (start, "latest")}) == span(1, 10, 100)
    later = start + timedelta(microseconds=1)
    assert read({0: (later, later + timedelta(seconds=30))}) == span(0, 11, 21)
    assert read({1: ("latest", "latest")}) == []
    assert read({1: (start + timedelta(days=1), "latest")}) == []


def test_read_what_is_not_there(servers: str, topic: str, kafka_broker: Any) -> None:
    fill(servers, topic, 30)
    options = {"bootstrap_servers": servers}
    with pytest.raises(UnknownTopicOrPartitionError):
        arrow.read(topic, {3: (0, 1)}, **options)
    with pytest.raises(OffsetOutOfRangeError):
        arrow.read(topic, {0: (11, 20)}, **options)
    with pytest.raises(ValueError, match="time zone"):
        arrow.read(topic, {0: (datetime(2020, 1, 1), "latest")}, **options)
    for place in ("first", -1, 1.5, True, None):
        with pytest.raises(ValueError):
            arrow.read(topic, {0: (place, "latest")}, **options)
    with pytest.raises(ValueError, match="no column"):
        arrow.read(topic, columns=["colour"], **options)


def test_read_skips_aborted_transactions_and_ends_behind_markers(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(20)
    for turn in range(4):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(topic, b"%d-%d" % (turn, i), partition=0)
        producer.flush(20)
        if turn % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    committed = arrow.read(topic, {0: (0, "latest")}, bootstrap_servers=servers, isolation_level="read_committed")
    assert committed["value"].to_pylist() == [b"%d-%d" % (turn, i) for turn in (0, 2) for i in range(5)]
    everything = arrow.read(topic, {0: (0, "latest")}, bootstrap_servers=servers)
    assert everything["value"].to_pylist() == [b"%d-%d" % (turn, i) for turn in range(4) for i in range(5)]
    only_marker = arrow.read(topic, {0: (23, 24)}, bootstrap_servers=servers, timeout_ms=20_000)
    assert only_marker.num_rows == 0


def test_stream_holds_a_batch_at_a_time(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 50_000})
    for i in range(3000):
        producer.produce(topic, struct.pack(">i", i) + bytes(1000), partition=i % 3)
    assert producer.flush(20) == 0
    seen = []
    reader = arrow.stream(
        topic, bootstrap_servers=servers, columns=["value"], batch_bytes=100_000, fetch_max_bytes=200_000
    )
    for batch in reader:
        assert batch.nbytes < 2_000_000
        seen += [struct.unpack(">i", value[:4])[0] for value in batch["value"].to_pylist()]
    assert sorted(seen) == list(range(3000))


def test_a_stream_that_is_left_ends_its_consumer(servers: str, topic: str) -> None:
    fill(servers, topic, 30)

    def threads() -> int:
        return sum("kafkapy-consumer" in thread.name for thread in threading.enumerate())

    before = threads()
    reader = arrow.stream(topic, bootstrap_servers=servers, batch_bytes=1)
    assert reader.read_next_batch().num_rows
    assert threads() == before + 1
    del reader
    assert threads() == before
    assert arrow.stream(topic, bootstrap_servers=servers).read_all().num_rows == 30
    assert threads() == before


def test_a_read_that_gets_nothing_ends(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(servers, topic, 30)
    monkeypatch.setattr(arrow._StretchReader, "_wait_for", lambda self, take, seconds: False)
    with pytest.raises(KafkaTimeoutError, match="within 0.1 s"):
        arrow.read(topic, bootstrap_servers=servers, timeout_ms=100)


# --- send -----------------------------------------------------------------------------------------------------------


def sent_rows(
    table: Any, columns: tuple[str, ...] = ("key", "value", "headers", "partition", "timestamp")
) -> list[Any]:
    return sorted(tuple(repr(row[name]) for name in columns) for row in table.to_pylist())


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_a_table_comes_back_as_it_was_sent(servers: str, topic: str, codec: str | None) -> None:
    rows = [
        {
            "key": None if i % 4 == 0 else b"" if i % 4 == 1 else b"key-%d" % i,
            "value": None if i % 7 == 0 else b"v" * (i % 50),
            "headers": [{"key": "a", "value": b"%d" % i}, {"key": "größe", "value": None}][: i % 3],
            "partition": i % 3,
            "timestamp": NOW + i,
        }
        for i in range(500)
    ]
    names = ["key", "value", "headers", "partition", "timestamp"]
    table = pa.Table.from_pylist(rows, schema=pa.schema([arrow.SCHEMA.field(name) for name in names]))
    with KafkaProducer(bootstrap_servers=servers, compression_type=codec) as producer:
        future = producer.send_arrow(table, topic)
        assert len(future) == 500
        stretches = future.get(20)
        assert sum(each.records for each in stretches) == 500
        assert {each.topic_partition.topic for each in stretches} == {topic}
        assert str(stretches).startswith(f"<500 records sent: {topic}-0 offset")
    back = arrow.read(topic, bootstrap_servers=servers)
    assert sent_rows(back) == sent_rows(table)
    for number in range(3):
        order = [row["timestamp"] for row in back.to_pylist() if row["partition"] == number]
        assert order == sorted(order)
    # What was polled can be sent as it is, topics and all; one topic goes before those of the rows.
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send_arrow(back).get(20)
        producer.send_arrow(back.slice(100, 50), topic).get(20)
    again = arrow.read(topic, (0, 10_000), bootstrap_servers=servers)
    assert sent_rows(again) == sorted(2 * sent_rows(table) + sent_rows(back.slice(100, 50)))


def test_where_records_were_written_is_told_in_words() -> None:
    def at(partition: int, offset: int, records: int) -> SentRecords:
        return SentRecords(TopicPartition("orders", partition), offset, records)

    assert repr(BulkMetadata()) == "<0 records sent>"
    assert str(BulkMetadata([at(0, 7, 1)])) == "<1 record sent: orders-0 offset 7>"
    two = BulkMetadata([at(0, 0, 3), at(1, -1, 2)])
    assert repr(two) == "<5 records sent: orders-0 offsets 0 to 2, orders-1 (2 without offsets)>"
    assert two[0] == (TopicPartition("orders", 0), 0, 3)
    many = BulkMetadata(at(0, 2 * number, 1) for number in range(100_000))
    assert repr(many).endswith("orders-0 offset 18, and 99990 more runs>")
    assert len(repr(many)) < 500


def test_without_pyarrow_the_error_says_how_to_get_it() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
from kafkapy import KafkaProducer
try:
    KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(3, 9)).send_arrow([])
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "pyarrow Arrow tables need pyarrow: pip install 'kafkapy[arrow]'\n"


def test_columns_of_many_types(servers: str, topic: str) -> None:
    texts = ["a", None, "grün", "", "d"]
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.string_view()):
            producer.send_arrow(pa.table({"value": pa.array(texts, pa.string()).cast(kind)}), topic)
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
            blobs = pa.array([None if text is None else text.encode() for text in texts], pa.binary()).cast(kind)
            producer.send_arrow(pa.record_batch({"value": blobs, "key": blobs}), topic)
        fixed = pa.array([b"abc", None], pa.binary(3))
        producer.send_arrow(pa.table({"key": fixed, "partition": pa.array([1, None], pa.int64())}), topic)
        chunked = pa.chunked_array([["x", "y"], [], ["z"]], pa.string())
        producer.send_arrow(pa.table({"value": chunked, "timestamp": pa.array([5, None, 7], pa.int64())}), topic)
        seconds = pa.array([datetime.fromtimestamp(NOW / 1000, UTC)], pa.timestamp("s", tz="Europe/Berlin"))
        mapped = pa.array([[("k", "v"), ("n", None)]], pa.map_(pa.string(), pa.string()))
        producer.send_arrow(pa.table({"value": ["mapped"], "timestamp": seconds, "headers": mapped}), topic)
        assert len(producer.send_arrow(pa.table({"value": pa.array([], pa.string())}), topic)) == 0
        producer.flush()
    back = arrow.read(topic, bootstrap_servers=servers).to_pylist()
    values = [row["value"] for row in back]
    for text in texts:
        wanted = None if text is None else text.encode()
        assert values.count(wanted) == 7 + (2 if text is None else 0)
    assert sorted(row["key"] or b"-" for row in back if row["key"] == b"abc") == [b"abc"]
    assert next(row["partition"] for row in back if row["key"] == b"abc") == 1
    (mapped_row,) = [row for row in back if row["value"] == b"mapped"]
    assert mapped_row["headers"] == [{"key": "k", "value": b"v"}, {"key": "n", "value": None}]
    assert mapped_row["timestamp"] == datetime.fromtimestamp(NOW / 1000, UTC)
    stamps = {row["value"]: row["timestamp"] for row in back if row["value"] in (b"x", b"y", b"z")}
    assert stamps[b"x"] == datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=5)
    assert abs(stamps[b"y"] - datetime.now(UTC)) < timedelta(minutes=5)


def test_keys_go_where_send_sends_them(servers: str, topic: str) -> None:
    keys = [b"key-%d" % i for i in range(60)]
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send_arrow(pa.table({"key": keys}), topic).get(20)
        placed = {key: producer.send(topic, key=key).get(20).partition for key in keys}
    got = arrow.read(topic, bootstrap_servers=servers, columns=["key", "partition"]).to_pylist()
    assert len(got) == 120
    assert all(placed[row["key"]] == row["partition"] for row in got)
    with KafkaProducer(bootstrap_servers=servers, partitioner=lambda key, every, available: 2) as producer:
        producer.send_arrow(pa.table({"key": keys}), topic).get(20)
    assert arrow.read(topic, {2: (0, "latest")}, bootstrap_servers=servers).num_rows >= 60


def test_tables_that_are_none_of_records(servers: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=servers, max_block_ms=300) as producer:
        for table, to, text in (
            (pa.table({"value": ["a"], "colour": ["red"]}), topic, "colour"),
            (pa.table({"partition": [1]}), topic, "key or value"),
            (pa.table({"value": ["a"]}), None, "no topic"),
            (pa.table({"value": [1.5]}), topic, "value is double"),
            (pa.table({"value": ["a"], "headers": ["x"]}), topic, "headers is string"),
            (pa.table({"value": ["a"], "partition": [-1]}), topic, "partition -1"),
            (pa.table({"value": ["a"], "timestamp": [-1]}), topic, "timestamp -1"),
            (pa.table({"value": ["a"], "topic": pa.array([None], pa.string())}), None, "row 0 names no topic"),
            (pa.table({"value": ["a"], "headers": [[{"key": None, "value": b"x"}]]}), topic, "has no name"),
        ):
            with pytest.raises(ValueError, match=text):
                producer.send_arrow(table, to)
        with pytest.raises(KafkaTimeoutError):
            producer.send_arrow(pa.table({"value": ["a"], "partition": [99]}), topic)
        with pytest.raises(TypeError, match="a table comes first, then the topic: a str is no table"):
            producer.send_arrow(topic, pa.table({"value": ["a"]}))  # type: ignore[arg-type]


def test_a_table_larger_than_the_buffer_waits_for_room(servers: str, topic: str) -> None:
    table = pa.table({"value": [b"%05d" % i + bytes(2000) for i in range(3000)]})
    with KafkaProducer(bootstrap_servers=servers, buffer_memory=200_000) as producer:
        producer.send_arrow(table, topic).get(60)
    back = arrow.read(topic, bootstrap_servers=servers, columns=["value"])
    assert sorted(back["value"].to_pylist()) == table["value"].to_pylist()


def test_in_a_transaction(servers: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            producer.send_arrow(pa.table({"value": [f"{commit}-{i}" for i in range(50)]}), topic)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    back = arrow.read(topic, bootstrap_servers=servers, isolation_level="read_committed")
    assert sorted(back["value"].to_pylist()) == sorted(b"True-%d" % i for i in range(50))


def test_checksum_knows_rows_and_not_their_order() -> None:
    keys = [None, b"", b"a", b"ab", b"k" * 300, b"x", None]
    values = [b"", None, b"b", b"", b"v" * 3000, None, None]
    table = pa.table({"key": keys, "value": values, "offset": range(7)})
    whole = arrow.checksum(table)
    shuffled = table.take([3, 0, 6, 5, 1, 4, 2])
    assert arrow.checksum(shuffled) == whole == arrow.checksum(shuffled.drop_columns("offset"))
    parts = [arrow.checksum(table.slice(at, 2)) for at in range(0, 7, 2)]
    assert sum(parts) % 2**64 == whole
    strings = table.set_column(0, "key", table["key"].cast(pa.large_string()))
    assert arrow.checksum(strings) == whole
    assert arrow.checksum(table.slice(0, 0)) == 0
    # One row that is not there, there twice, null for empty, a byte moved from key to value, two values exchanged.
    rows = list(zip(keys, values, strict=True))
    others = [
        rows[1:],
        [*rows, rows[0]],
        [(None, None), *rows[1:]],
        [*rows[:3], (b"a", b"b"), *rows[4:]],
        [*rows[:2], (b"a", b""), (b"ab", b"b"), *rows[4:]],
    ]
    sums = [arrow.checksum(pa.table({"key": k, "value": v})) for k, v in (zip(*each, strict=True) for each in others)]
    assert len({whole, *sums}) == 6
    with pytest.raises(ValueError, match="has no column key or value"):
        arrow.checksum(table.select(["offset"]))


# --- memory ---------------------------------------------------------------------------------------------------------

STREAM = """
import re, sys
from pathlib import Path
import pyarrow
import kafkapy.arrow

def kib(name):
    return int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

pyarrow.array([b""])  # which imports pandas, where that is installed
options = dict(bootstrap_servers=sys.argv[1], fetch_max_bytes=2 << 20, max_partition_fetch_bytes=256 << 10)
before = kib("VmRSS")
rows = size = 0
for batch in kafkapy.arrow.stream(sys.argv[2], batch_bytes=4 << 20, **options):
    rows += batch.num_rows
    size += batch.column("value").nbytes
print(rows, size, kib("VmHWM") - before)
"""


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_stream_of_much_takes_little(servers: str, topic: str, codec: str) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 20, "batch.size": 200_000}
    )
    count, value = 10_000, bytes(range(256)) * 32
    for i in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=i % 3)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    command = [sys.executable, "-c", STREAM, servers, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    rows, size, grown_kib = map(int, done.stdout.split())
    assert rows == count
    assert size > count * len(value)
    assert grown_kib < 48 << 10  # of 80 MiB; with zstd one response opens to all of it
