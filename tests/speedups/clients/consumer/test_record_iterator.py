"""The buffers between fetching and the user: positions, turns of partitions, what is held back, what is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clients.consumer.fetched import batch, chunk

from kafkapy._speedups.clients.arrow.columns import ArrowColumns
from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer, PartitionBuffer, RecordIterator
from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition


class Calls:
    """A FetchBuffer with one PartitionBuffer per number, and what it told."""

    def __init__(self, partitions: int = 1) -> None:
        self.hungry = 0
        self.ready = 0
        self.buffer = FetchBuffer(self._hungry, self._ready)
        self.partitions = [self.buffer.partition(TopicPartition("t", number)) for number in range(partitions)]
        for partition in self.partitions:
            partition.seek(0)
            partition.readable = True

    def _hungry(self) -> None:
        self.hungry += 1

    def _ready(self) -> None:
        self.ready += 1

    def add(self, number: int, count: int, epoch: int = 0) -> None:
        partition = self.partitions[number]
        at = partition.end_offset
        partition.add(chunk(batch(at, count, epoch), partition=number, start=at))


def offsets(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def test_a_new_partition_has_no_position() -> None:
    buffer = FetchBuffer(lambda: None, lambda: None)
    partition = buffer.partition(TopicPartition("t", 0))
    assert (partition.position, partition.position_epoch, partition.end_offset, partition.chunks) == (-1, -1, -1, 0)
    assert buffer.empty
    assert buffer.next() is None
    assert buffer.take(10) == {}
    assert buffer.take_list(10) == []


def test_position_follows_each_record_and_the_end_is_known_before() -> None:
    calls = Calls()
    calls.add(0, 3, epoch=4)
    calls.add(0, 2, epoch=5)
    partition = calls.partitions[0]
    assert (partition.position, partition.end_offset, partition.end_epoch, partition.chunks) == (0, 5, 5, 2)
    seen = []
    for expected in range(5):
        assert partition.position == expected
        record = calls.buffer.next()
        seen.append((record.offset, record.value))
    assert seen == [(offset, b"%d" % offset) for offset in range(5)]
    assert partition.position == 5
    assert calls.buffer.next() is None
    assert (partition.position, partition.position_epoch, partition.chunks) == (5, 5, 0)
    assert calls.buffer.records == 5


def test_memory_is_counted_and_given_back() -> None:
    calls = Calls(2)
    calls.add(0, 3)
    calls.add(1, 3)
    first, second = calls.partitions
    assert calls.buffer.bytes == first.bytes + second.bytes > 0
    assert len(calls.buffer.take_list(100)) == 6
    assert calls.buffer.bytes == first.bytes == second.bytes == 0
    calls.add(0, 3)
    first.seek(9)
    assert calls.buffer.bytes == 0


def test_partitions_have_their_turn_chunk_by_chunk() -> None:
    calls = Calls(2)
    calls.add(0, 2)
    calls.add(0, 2)
    calls.add(1, 2)
    calls.add(1, 2)
    got = [(record.partition, record.offset) for record in iter(calls.buffer.next, None)]
    assert got == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]


def test_take_stops_at_the_limit_and_goes_on_there() -> None:
    calls = Calls(2)
    calls.add(0, 3)
    calls.add(1, 3)
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    taken = calls.buffer.take(2)
    assert {partition: offsets(records) for partition, records in taken.items()} == {first: [0, 1]}
    taken = calls.buffer.take(3)
    assert {partition: offsets(records) for partition, records in taken.items()} == {first: [2], second: [0, 1]}
    assert offsets(calls.buffer.take_list(10)) == [2]


def test_chunks_of_one_partition_come_as_one_list() -> None:
    calls = Calls()
    calls.add(0, 2)
    calls.add(0, 2)
    assert {p: offsets(r) for p, r in calls.buffer.take(10).items()} == {TopicPartition("t", 0): [0, 1, 2, 3]}


def test_a_held_partition_gives_nothing_and_keeps_what_it_has() -> None:
    calls = Calls(2)
    calls.add(0, 3)
    calls.add(1, 1)
    assert calls.buffer.next().offset == 0
    calls.partitions[0].readable = False
    assert [(record.partition, record.offset) for record in iter(calls.buffer.next, None)] == [(1, 0)]
    assert calls.partitions[0].position == 1
    calls.partitions[0].readable = True
    assert offsets(calls.buffer.take_list(10)) == [1, 2]


def test_a_partition_held_while_it_waits_for_its_turn_is_passed_over() -> None:
    calls = Calls(2)
    calls.add(0, 1)
    calls.add(1, 1)
    calls.partitions[1].readable = False
    assert [record.partition for record in calls.buffer.take_list(10)] == [0]
    calls.partitions[1].readable = True
    calls.add(1, 1)
    assert [(record.partition, record.offset) for record in calls.buffer.take_list(10)] == [(1, 0), (1, 1)]


def test_seek_drops_what_was_fetched() -> None:
    calls = Calls()
    calls.add(0, 5)
    assert calls.buffer.next().offset == 0
    partition = calls.partitions[0]
    partition.seek(100, 7)
    assert (partition.position, partition.position_epoch, partition.end_offset, partition.end_epoch) == (100, 7, 100, 7)
    assert calls.buffer.next() is None
    calls.add(0, 1)
    assert calls.buffer.next().offset == 100


@pytest.mark.parametrize(("epoch", "known"), [(0, 0), (4, 4), (-1, 7)])
def test_the_epoch_of_a_position_is_that_of_its_last_record(epoch: int, known: int) -> None:
    calls = Calls()
    partition = calls.partitions[0]
    partition.seek(0, 7)
    at = batch(0, 2, epoch) if epoch >= 0 else batch(0, 2, 2**32 - 1)
    partition.add(chunk(at, start=0))
    assert offsets(calls.buffer.take_list(2)) == [0, 1]
    assert calls.buffer.take_list(1) == []
    assert (partition.position, partition.position_epoch, partition.end_epoch) == (2, known, known)


def test_rewind_keeps_the_position_and_its_epoch() -> None:
    calls = Calls()
    calls.add(0, 2, epoch=3)
    calls.add(0, 2, epoch=9)
    assert calls.buffer.next().offset == 0
    partition = calls.partitions[0]
    partition.rewind()
    assert (partition.position, partition.end_offset, partition.end_epoch, partition.chunks) == (1, 1, 3, 0)


def test_the_loop_is_told_once_that_there_is_room_when_it_asked_for_it() -> None:
    calls = Calls()
    calls.add(0, 1)
    calls.buffer.take_list(10)
    assert calls.hungry == 0
    calls.buffer.telling = True
    calls.add(0, 1)
    calls.add(0, 1)
    calls.add(0, 1)
    assert calls.buffer.next().offset == 1
    assert calls.hungry == 0
    calls.buffer.take_list(10)
    assert calls.hungry == 1
    calls.buffer.telling = True
    calls.add(0, 1)
    calls.buffer.take_list(10)
    assert calls.hungry == 2


def test_the_user_is_told_when_there_is_something_after_nothing() -> None:
    calls = Calls(2)
    calls.add(0, 1)
    calls.add(0, 1)
    calls.add(1, 1)
    assert calls.ready == 1
    calls.buffer.take_list(10)
    calls.add(1, 1)
    assert calls.ready == 2


def test_invisible_records_move_the_position() -> None:
    calls = Calls()
    partition = calls.partitions[0]
    # Offsets below the position are in the batch, but not for the user.
    partition.seek(4)
    partition.add(chunk(batch(0, 5), start=4))
    assert offsets(calls.buffer.take_list(10)) == [4]
    assert calls.buffer.next() is None
    assert partition.position == 5


def test_a_corrupt_batch_is_told_when_the_user_comes_to_it_each_time() -> None:
    calls = Calls()
    bad = bytearray(batch(2, 2))
    bad[-1] ^= 0xFF
    calls.partitions[0].add(chunk(batch(0, 2) + bytes(bad), start=0))
    assert offsets(calls.buffer.take_list(10)) == [0, 1]
    for _ in range(2):
        with pytest.raises(KafkaError, match="t-0 at offset 2"):
            calls.buffer.take(10)
        with pytest.raises(KafkaError, match="t-0 at offset 2"):
            calls.buffer.next()
    assert calls.partitions[0].position == 2
    calls.partitions[0].seek(4)
    assert calls.buffer.next() is None


class Consumer(RecordIterator):
    """Counts how often the slow way was gone."""

    def __init__(self, buffer: FetchBuffer) -> None:
        super().__init__(buffer)
        self.slow = 0

    def next_slowly(self) -> ConsumerRecord:
        self.slow += 1
        self.fetch_buffer.attention = False
        record = self.fetch_buffer.next()
        if record is None:
            raise StopIteration
        return record


def test_iteration_goes_the_slow_way_for_attention_and_for_nothing() -> None:
    calls = Calls()
    calls.add(0, 10)
    consumer = Consumer(calls.buffer)
    assert [next(consumer).offset for _ in range(5)] == [0, 1, 2, 3, 4]
    assert consumer.slow == 0
    calls.buffer.attention = True
    assert next(consumer).offset == 5
    assert consumer.slow == 1
    assert [record.offset for record in consumer] == [6, 7, 8, 9]
    assert consumer.slow == 2


def test_a_subclass_without_a_slow_way_is_an_error() -> None:
    with pytest.raises(NotImplementedError):
        next(RecordIterator(FetchBuffer(lambda: None, lambda: None)))


@pytest.fixture
def partition() -> Iterator[PartitionBuffer]:
    buffer = FetchBuffer(lambda: None, lambda: None)
    yield buffer.partition(TopicPartition("t", 0))


def test_wrong_arguments_are_errors(partition: PartitionBuffer) -> None:
    with pytest.raises(TypeError):
        partition.add(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PartitionBuffer(TopicPartition("t", 0), None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        RecordIterator(None)  # type: ignore[arg-type]


def test_calls_and_records_are_counted() -> None:
    calls = Calls()
    calls.add(0, 9)
    buffer = calls.buffer
    takes: list[Callable[[], Any]] = [
        buffer.next,
        lambda: buffer.take(2),
        lambda: buffer.take_list(3),
        lambda: buffer.take_list(0),
        lambda: buffer.take_columns(ArrowColumns(("offset",)), 2, 1 << 20),
        lambda: buffer.take_list(10),
        buffer.next,
        lambda: buffer.take(2),
    ]
    assert (buffer.calls, buffer.records) == (0, 0)
    counted = []
    for take in takes:
        take()
        counted.append((buffer.calls, buffer.records))
    assert counted == [(1, 1), (2, 3), (3, 6), (4, 6), (5, 8), (6, 9), (7, 9), (8, 9)]
