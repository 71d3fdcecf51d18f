"""What a task of the sink does with its rows, without Spark around it; read back by a foreign client."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kafka.partitioner.default import murmur2

from kafkapy import KafkaAdminClient, testing
from kafkapy.errors import KafkaError, KafkaTimeoutError, RecordTooLargeError

pytest.importorskip("pyarrow")

import pyarrow as pa
from kafkapy_spark import record_writer
from kafkapy_spark.record_writer import NullTopicError, RecordWriter, Written
from kafkapy_spark.sink_options import SinkOptions

NOW = datetime(2026, 11, 22, 5, 6, 7, 891_234, UTC)
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@pytest.fixture(autouse=True)
def _close_idle() -> Iterator[None]:
    yield
    while record_writer._idle:
        record_writer._close_oldest()


@pytest.fixture
def options(broker: Any) -> Callable[..., SinkOptions]:
    """options(topic=None, **options): names have __ for dots."""

    def make(topic: str | None = None, **options: object) -> SinkOptions:
        given = {name.replace("__", "."): str(value) for name, value in options.items()}
        given["kafka.bootstrap.servers"] = broker.bootstrap_servers
        if topic is not None:
            given["topic"] = topic
        return SinkOptions.parse(given, streaming=False)

    return make


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def write(options: SinkOptions, *batches: Any) -> Written:
    with RecordWriter(options, batches[0].schema) as writer:
        return writer.write(batches)


def test_every_column(options: Any, topic: Any, records: Any) -> None:
    name, other = topic(3), topic(1)
    rows = batch(
        extra=pa.array([1, 2, 3, 4]),
        topic=pa.array([name, name, other, other]),
        key=pa.array(["k", None, "", "x"]),
        value=pa.array([b"v", b"", None, b"\x00\xff"]),
        partition=pa.array([2, 1, None, 0], pa.int32()),
        headers=pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None, []], HEADERS),
        timestamp=pa.array([NOW, NOW - timedelta(days=1), None, NOW], pa.timestamp("us", tz="UTC")),
    )
    before = int(time.time() * 1000)
    assert write(options(), rows) == Written(rows=4, bytes=1 + 1 + 1 + 2 + 7, checksum=0)
    stamp = int(NOW.timestamp() * 1000)
    assert records(name) == [
        (1, None, b"", [], stamp - 86_400_000),
        (2, b"k", b"v", [("h", b"1"), ("h", None)], stamp),
    ]
    tombstone, last = records(other)
    assert (tombstone[:4], last) == ((0, b"", None, []), (0, b"x", b"\x00\xff", [], stamp))
    assert before <= tombstone[4] <= time.time() * 1000


def test_the_option_topic_goes_before_the_column(options: Any, topic: Any, records: Any) -> None:
    name = topic()
    write(options(name), batch(topic=pa.array([None, "no-such-topic"]), value=pa.array(["a", "b"])))
    assert [row[2] for row in records(name)] == [b"a", b"b"]


def test_a_column_timestamp_may_be_left_alone(options: Any, topic: Any, records: Any) -> None:
    name = topic()
    rows = batch(value=["a"], timestamp=pa.array([NOW - timedelta(days=400)], pa.timestamp("us", tz="UTC")))
    before = int(time.time() * 1000)
    write(options(name, timestampColumn="false"), rows)
    assert records(name)[0][4] >= before


def test_the_first_of_two_columns_of_a_name_counts(options: Any, topic: Any, records: Any) -> None:
    name = topic()
    rows = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    write(options(name), rows)
    assert [row[2] for row in records(name)] == [b"a"]


# --- partitions -------------------------------------------------------------------------------------------------------


def random_keys(count: int) -> list[bytes]:
    chosen = random.Random(7)
    return [chosen.randbytes(chosen.choice((0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 64, 200))) for _ in range(count)]


def test_keys_go_where_java_sends_them(options: Any, topic: Any, records: Any) -> None:
    """The default partitioner: murmur2 without its sign, by another implementation than ours (test_java_partitions has
    Java's own)."""
    name = topic(7)
    keys = random_keys(10_000)
    assert write(options(name), batch(key=keys, value=[b""] * len(keys))).rows == len(keys)
    found = [(row[1], row[0]) for row in records(name)]
    assert sorted(found) == sorted((key, (murmur2(key) & 0x7FFFFFFF) % 7) for key in keys)


def test_rows_without_a_key_stick_to_a_partition_for_a_batch(options: Any, topic: Any, records: Any) -> None:
    name = topic(3)
    count = 20_000
    values = [b"%06d" % number for number in range(count)]
    write(options(name, kafka__batch__size=4096), batch(key=pa.nulls(count, pa.binary()), value=values))
    rows = records(name)
    assert sorted(row[2] for row in rows) == values
    by_partition = [[int(row[2]) for row in rows if row[0] == number] for number in range(3)]
    assert all(by_partition)
    stays = sum(after == before + 1 for each in by_partition for before, after in itertools.pairwise(each))
    assert stays > count * 0.98


def test_the_order_of_a_key_is_that_of_the_rows(options: Any, topic: Any, records: Any) -> None:
    name = topic(2)
    keys = [b"%d" % (number % 10) for number in range(5000)]
    rows = batch(key=keys, value=[b"%05d" % number for number in range(5000)])
    batches = [rows.slice(at, 100) for at in range(0, 5000, 100)]
    write(options(name, kafka__batch__size=2000), *batches)
    found = records(name)
    for key in set(keys):
        values = [row[2] for row in found if row[1] == key]
        assert len(values) == 500
        assert values == sorted(values)


def test_batches_are_as_large_as_the_buffer_allows_for_all_partitions(options: Any, topic: Any, records: Any) -> None:
    rows = batch(key=[b"%d" % number for number in range(5000)], value=[b"v"] * 5000)

    def batch_size(**given: Any) -> int:
        with RecordWriter(options(**given), rows.schema) as writer:
            assert writer.write([rows.slice(0, 0), rows]).rows == 5000
            assert writer.producer.accumulator.pool.available == writer.producer.accumulator.pool.total
            return writer.producer.accumulator.batch_size

    few, many = topic(2), topic(100)
    for name, size in ((few, 512 << 10), (many, (64 << 20) // 200), (few, 512 << 10)):
        assert batch_size(topic=name) == size, "with the same producer"
    assert batch_size(topic=many, kafka__buffer__memory=1 << 20) == 16 << 10
    assert batch_size(topic=few, kafka__max__request__size=100_000) == 100_000
    assert batch_size(topic=few, kafka__batch__size=5000) == 5000
    assert len(records(few)) == 20_000
    assert len(records(many)) == 10_000


def test_without_the_option_topic_batches_have_one_size(options: Any, topic: Any, records: Any) -> None:
    name = topic(2)
    with RecordWriter(options(), pa.schema({"topic": pa.string(), "value": pa.string()})) as writer:
        writer.write([batch(topic=[name] * 10, value=["v"] * 10)])
        assert writer.producer.accumulator.batch_size == 256 << 10
    assert len(records(name)) == 10


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_row_without_a_topic(options: Any, topic: Any, records: Any) -> None:
    name = topic()
    rows = batch(topic=pa.array([name, None]), value=["a", "b"])
    with pytest.raises(NullTopicError, match="null topic present in the data. Use the topic option"):
        write(options(), rows)
    assert records(name) == []


def test_a_partition_below_0(options: Any, topic: Any) -> None:
    with pytest.raises(ValueError, match="row 1 is for partition -1"):
        write(options(topic()), batch(value=["a", "b"], partition=pa.array([0, -1], pa.int32())))


@pytest.mark.parametrize("partition", [None, 3])
def test_what_is_not_there(partition: int | None, options: Any, topic: Any) -> None:
    name = topic(3) if partition is not None else "no-such-topic"
    rows = batch(value=["a"], partition=pa.array([partition], pa.int32()))
    with pytest.raises(KafkaTimeoutError, match=name):
        write(options(name, kafka__max__block__ms=300), rows)


def test_a_record_that_is_lost_fails_the_task(options: Any, topic: Any, records: Any) -> None:
    """The broker refuses one of many, and says so after the rows were taken."""
    name = topic(2, max_message_bytes=2000)
    small = [batch(value=[b"%d" % number], partition=pa.array([number % 2], pa.int32())) for number in range(20)]
    large = batch(value=[b"x" * 3000], partition=pa.array([1], pa.int32()))
    with pytest.raises(RecordTooLargeError):
        write(options(name), *small[:10], large, *small[10:])
    assert all(len(row[2]) < 10 for row in records(name))


def test_a_broker_that_goes_away_fails_the_task() -> None:
    with testing.Broker(auto_create_topics_enable=False) as away:
        away.create_topic("t", 1)
        given = {"kafka.bootstrap.servers": away.bootstrap_servers, "topic": "t"}
        given |= {"kafka.delivery.timeout.ms": "600", "kafka.request.timeout.ms": "500"}

        def rows() -> Iterator[Any]:
            yield batch(value=["a"])
            away.stop()
            yield batch(value=["b"])

        options = SinkOptions.parse(given, streaming=False)
        with pytest.raises(KafkaError), RecordWriter(options, rows_schema()) as writer:
            writer.write(rows())


def test_an_error_of_the_rows_goes_through(options: Any, topic: Any) -> None:
    def rows() -> Iterator[Any]:
        yield batch(value=["a"])
        raise ZeroDivisionError("upstream")

    with pytest.raises(ZeroDivisionError, match="upstream"), RecordWriter(options(topic()), rows_schema()) as writer:
        writer.write(rows())
    assert not record_writer._idle


def rows_schema() -> Any:
    return pa.schema([pa.field("value", pa.string())])


# --- producers --------------------------------------------------------------------------------------------------------


def test_a_producer_serves_tasks_of_one_configuration(options: Any, topic: Any) -> None:
    name = topic()
    seen = []
    for linger in (1, 1, 2, 1):
        with RecordWriter(options(name, kafka__linger__ms=linger), rows_schema()) as writer:
            assert writer.write([batch(value=["a"])]).rows == 1
            seen.append(writer.producer)
    assert seen[0] is seen[1] is seen[3] is not seen[2]
    with RecordWriter(options(name, kafka__linger__ms=3), rows_schema()) as writer:
        writer.write([])
    assert not seen[0]._closed
    assert seen[2]._closed, "only so many wait"


def test_a_producer_that_has_failed_is_not_used_again(options: Any, topic: Any, records: Any) -> None:
    name = topic(1, max_message_bytes=2000)
    with pytest.raises(RecordTooLargeError), RecordWriter(options(name), rows_schema()) as failed:
        failed.write([batch(value=["x" * 3000])])
    assert failed.producer._closed
    write(options(name), batch(value=["a"]))
    assert [row[2] for row in records(name)] == [b"a"]


def test_a_topic_that_is_made_again_between_tasks(options: Any, topic: Any, records: Any, broker: Any) -> None:
    name = topic(1)
    for number in range(3):
        write(options(name), batch(value=[b"before-%d" % number]))
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics([name])
    broker.create_topic(name, 1, {})
    write(options(name), batch(value=["after"]))
    assert [row[2] for row in records(name)] == [b"after"]


def test_a_forked_worker_has_a_producer_of_its_own(options: Any, topic: Any, records: Any) -> None:
    name = topic()
    write(options(name), batch(value=["parent"]))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            write(options(name), batch(value=["child"]))
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write(options(name), batch(value=["parent again"]))
    assert sorted(row[2] for row in records(name)) == [b"child", b"parent", b"parent again"]


def test_an_exactly_once_task_has_a_producer_and_a_checksum_of_its_own(options: Any, topic: Any, records: Any) -> None:
    name = topic()
    rows = batch(key=["a", "b", None], value=["1", "2", "3"])
    once = options(name, delivery="exactly-once", transactionalIdPrefix="p", onLostTransaction="replay")
    done = []
    for order in (rows, rows.take(pa.array([2, 0, 1])), rows.slice(0, 2)):
        with RecordWriter(once, rows.schema, transactional_id=f"{name}-1") as writer:
            writer.producer.init_transactions()
            writer.producer.begin_transaction()
            done.append(writer.write([order]))
            writer.producer.commit_transaction()
    assert done[0] == done[1] != done[2]
    assert done[0].checksum
    assert not record_writer._idle
    assert len(records(name, committed=True)) == 8
