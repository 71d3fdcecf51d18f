"""Queues of batches by partition: order of retries, sequence numbers, and the partition of records without a key."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kafkapy._speedups.clients.producer.partition_queue import PartitionQueue, TopicQueue
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.errors import IllegalStateError, KafkaError
from kafkapy.types import TopicPartition

NODE = 1
LATER = 10**15
LAST = 2**31 - 1
"""The last sequence number; 0 follows."""


class Bench:
    """An accumulator that gives every record a batch, with one partition that has a producer."""

    def __init__(self, partitions: int = 1, **options: Any) -> None:
        self.accumulator = RecordAccumulator(1 << 20, 200, 5, 1 << 20, [0], **options)
        self.accumulator.topic("t").update([(NODE, 0)] * partitions)
        self.accumulator.idempotent = True
        self.accumulator.producer_id, self.accumulator.producer_epoch = 7, 3
        self.queue = self.accumulator.queue("t", 0)

    def batch(self, records: int = 1, partition: int = 0) -> ProducerBatch:
        """A batch that is not sent yet."""
        for _ in range(records):
            future = self.accumulator.append("t", partition, 1000, None, bytes(100 // records))
            assert future is not None
        made = self.accumulator.queue("t", partition).batches[-1]
        assert made.record_count == records
        return made

    def sent(self, records: int = 1) -> ProducerBatch:
        """A batch that is in flight."""
        made = self.batch(records)
        assert self.accumulator.drain(NODE, 1 << 20, LATER) == [made]
        return made

    def acknowledged(self, offset: int, records: int = 1) -> ProducerBatch:
        made = self.sent(records)
        self.accumulator.succeed(made, offset, -1)
        return made


def state(queue: PartitionQueue) -> tuple[int, ...]:
    return (
        queue.producer_id,
        queue.producer_epoch,
        queue.last_acked_sequence,
        queue.last_acked_offset,
        queue.unresolved_sequence,
    )


def test_a_queue_begins_without_leader_and_producer() -> None:
    queue = PartitionQueue(TopicQueue("t", 1000, True), 4)
    assert state(queue) == (-1, -1, -1, -1, -1)
    assert (queue.leader, queue.leader_epoch, queue.partition, len(queue)) == (-1, -1, 4, 0)
    assert (list(queue.batches), queue.sent, queue.unacked) == ([], [], [])
    assert queue.topic_partition == TopicPartition("t", 4)
    assert (queue.muted, queue.in_transaction, queue.joining) == (False, False, False)
    assert queue.take_sequence(3) == 0
    assert queue.take_sequence(1) == 3


# --- sequences ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0), (0, 2, 1), (2, 0, 1)])
def test_retries_stand_before_new_batches_in_the_order_of_their_numbers(order: tuple[int, ...]) -> None:
    for first in (0, LAST - 1, LAST):
        bench = Bench()
        bench.queue.start_sequence(7, 3)
        bench.queue.take_sequence(first)
        bench.acknowledged(0)
        retried = [bench.sent() for _ in range(3)]
        new = [bench.batch(), bench.batch()]
        for number in order:
            bench.accumulator.retry(retried[number], LATER)
        assert list(bench.queue.batches) == retried + new
        assert bench.queue.unacked == retried
        assert bench.queue.sent == []


def test_a_retry_without_a_number_goes_first() -> None:
    bench = Bench()
    bench.accumulator.idempotent = False
    first, second = bench.sent(), bench.sent()
    new = bench.batch()
    bench.accumulator.retry(first, LATER)
    bench.accumulator.retry(second, LATER)
    assert list(bench.queue.batches) == [second, first, new]


def test_the_parts_of_a_batch_are_remembered_in_their_place() -> None:
    bench = Bench()
    bench.acknowledged(0)
    one, two, three = bench.sent(), bench.sent(4), bench.sent()
    assert bench.accumulator.split(two) > 1
    first, *parts, last = bench.queue.unacked
    assert (first, last) == (one, three)
    assert [part.base_sequence for part in parts] == [2 + index for index in range(0, 4, 4 // len(parts))]


def test_a_broker_recognizes_the_last_five_batches() -> None:
    bench = Bench()
    bench.acknowledged(0)
    in_flight = [bench.sent() for _ in range(5)]
    new = bench.batch()
    # With a sixth, the broker would no longer know the first again.
    assert bench.accumulator.drain(NODE, 1 << 20, LATER) == []
    bench.accumulator.succeed(in_flight[1], 2, -1)
    assert bench.accumulator.drain(NODE, 1 << 20, LATER) == []
    bench.accumulator.succeed(in_flight[0], 1, -1)
    assert bench.accumulator.drain(NODE, 1 << 20, LATER) == [new]
    last = bench.batch()
    assert bench.accumulator.drain(NODE, 1 << 20, LATER) == [last]
    bench.batch()
    assert bench.accumulator.drain(NODE, 1 << 20, LATER) == []


@pytest.mark.parametrize("producer", [(7, 4), (8, 3)])
def test_batches_of_another_producer_are_not_passed(producer: tuple[int, int]) -> None:
    bench = Bench()
    bench.queue.start_sequence(7, 3)
    bench.queue.take_sequence(5)
    old = bench.sent()
    two = bench.batch(2)
    two.set_producer(*producer, 3, False)
    bench.accumulator.split(two)
    assert bench.queue.unacked[0] is old
    assert [part.base_sequence for part in bench.queue.unacked[1:]] == [3, 4]


def test_a_batch_with_a_result_is_forgotten() -> None:
    bench = Bench()
    bench.acknowledged(0)
    one, two, three = bench.sent(), bench.sent(), bench.sent()
    bench.queue.forget(two)
    assert (bench.queue.sent, bench.queue.unacked) == ([one, three], [one, three])
    bench.queue.forget(two)
    assert (bench.queue.sent, bench.queue.unacked) == ([one, three], [one, three])


def test_the_last_acknowledged_number_and_offset_only_grow() -> None:
    bench = Bench()
    queue = bench.queue
    bench.acknowledged(0)
    assert (queue.last_acked_sequence, queue.last_acked_offset) == (0, 0)
    second = bench.acknowledged(1, 2)
    assert (queue.last_acked_sequence, queue.last_acked_offset) == (2, 2)
    third = bench.acknowledged(100, 3)
    assert (queue.last_acked_sequence, queue.last_acked_offset) == (5, 102)
    queue.acknowledged(second, 1)
    assert (queue.last_acked_sequence, queue.last_acked_offset) == (5, 102)
    queue.acknowledged(third, -1)
    queue.acknowledged(third, 100)
    assert (queue.last_acked_sequence, queue.last_acked_offset) == (5, 102)
    queue.acknowledged(third, 101)
    assert queue.last_acked_offset == 103
    # Batches of an earlier id or epoch say nothing of the numbers.
    for producer in ((7, 2), (8, 3)):
        third.set_producer(*producer, 50, False)
        queue.acknowledged(third, 200)
        assert (queue.last_acked_sequence, queue.last_acked_offset) == (5, 202)


def test_an_unknown_offset_is_not_remembered() -> None:
    bench = Bench()
    batch = bench.acknowledged(-1, 3)
    assert (bench.queue.last_acked_sequence, bench.queue.last_acked_offset) == (2, -1)
    bench.queue.acknowledged(batch, 0)
    assert bench.queue.last_acked_offset == 2


@pytest.mark.parametrize(
    ("acknowledged", "following"), [(None, 0), (0, 1), (1, 2), (LAST - 1, LAST), (LAST, 0), (2**30, 2**30 + 1)]
)
def test_one_number_follows_the_last_acknowledged_one(acknowledged: int | None, following: int) -> None:
    bench = Bench()
    bench.queue.start_sequence(7, 3)
    if acknowledged is not None:
        bench.queue.take_sequence(acknowledged)
        bench.acknowledged(0)
    assert bench.queue.last_acked_sequence == (-1 if acknowledged is None else acknowledged)
    near = {0, 1, 2, 3, LAST - 1, LAST, following, 2**30, 2**30 + 1, 2**30 + 2}
    assert {number for number in near if bench.queue.is_next_sequence(number)} == {following}


def test_numbers_that_wrap_are_later() -> None:
    bench = Bench()
    bench.queue.start_sequence(7, 3)
    bench.queue.take_sequence(LAST)
    bench.acknowledged(0)
    assert bench.queue.last_acked_sequence == LAST
    bench.acknowledged(1)
    assert bench.queue.last_acked_sequence == 0
    bench.acknowledged(2)
    assert bench.queue.last_acked_sequence == 1


@pytest.mark.parametrize(("ahead", "later"), [(2**30 - 1, True), (2**30, False), (2**30 + 1, False), (0, False)])
def test_half_of_all_numbers_are_later(ahead: int, later: bool) -> None:
    bench = Bench()
    batch = bench.acknowledged(0)
    batch.set_producer(7, 3, ahead, False)
    bench.queue.acknowledged(batch, 0)
    assert bench.queue.last_acked_sequence == (ahead if later else 0)


def test_a_sequence_starts_with_the_batches_without_a_result() -> None:
    bench = Bench()
    bench.acknowledged(0)
    one, two = bench.sent(2), bench.sent(3)
    bench.queue.start_sequence(9, 1)
    assert state(bench.queue) == (9, 1, -1, 0, -1)
    assert [(each.producer_id, each.producer_epoch, each.base_sequence) for each in (one, two)] == [
        (9, 1, 0),
        (9, 1, 2),
    ]
    assert (one.sequence_reset, two.sequence_reset, two.transactional) == (True, True, False)
    assert bench.queue.take_sequence(1) == 5
    two.set_producer(9, 1, 2, True)
    bench.queue.start_sequence(9, 2)
    assert (one.transactional, two.transactional) == (False, True)


def test_a_reset_sequence_is_unknown() -> None:
    bench = Bench()
    bench.acknowledged(5)
    bench.sent()
    bench.queue.unresolved_sequence = 4
    bench.queue.reset_sequence()
    assert state(bench.queue) == (-1, -1, -1, -1, -1)
    assert (bench.queue.unacked, bench.queue.take_sequence(1)) == ([], 0)


def test_a_gap_is_closed_for_the_numbers_behind_it() -> None:
    bench = Bench()
    bench.acknowledged(0)
    one, two, three = bench.sent(1), bench.sent(2), bench.sent(3)
    three.set_producer(7, 3, 4, True)
    assert [each.base_sequence for each in (one, two, three)] == [1, 2, 4]
    bench.accumulator.fail(two, KafkaError("x"))
    for other in ((8, 3), (7, 2)):
        two.set_producer(*other, 2, False)
        bench.queue.close_gap(two)
        assert three.base_sequence == 4
    two.set_producer(7, 3, 2, False)
    bench.queue.close_gap(two)
    assert [each.base_sequence for each in (one, three)] == [1, 2]
    assert (one.transactional, three.transactional, one.sequence_reset) == (False, True, False)
    assert bench.queue.take_sequence(1) == 5


def test_a_gap_at_the_begin_of_a_sequence_is_closed_to_zero() -> None:
    bench = Bench()
    first = bench.sent(2)
    bench.accumulator.fail(first, KafkaError("x"))
    bench.queue.close_gap(first)
    assert bench.queue.take_sequence(1) == 0
    with pytest.raises(IllegalStateError, match="the sequence of t-0 would fall below 0"):
        bench.queue.close_gap(first)


# --- topics -------------------------------------------------------------------------------------------------------


def test_the_metadata_says_leaders_and_epochs() -> None:
    topic = TopicQueue("t", 1000, True)
    assert (len(topic), topic.topic_id, topic.name) == (0, None, "t")
    topic.update([(5, 3), (-1, 2)], "id")
    first, second = topic.partitions
    assert [(each.leader, each.leader_epoch) for each in (first, second)] == [(5, 3), (-1, 2)]
    assert (first.partition, second.partition, topic.topic_id) == (0, 1, "id")
    topic.update([(6, 2), (4, 3)])
    assert topic.partitions == [first, second]
    assert [(each.leader, each.leader_epoch) for each in (first, second)] == [(6, 3), (4, 3)]
    assert topic.topic_id is None
    topic.update([(6, 4)])
    assert topic.partitions == [first]
    assert (second.leader, first.leader_epoch) == (-1, 4)


@pytest.mark.parametrize("kept", ["batches", "sent", "unacked", "nothing"])
def test_a_removed_partition_stays_with_its_batches(kept: str) -> None:
    bench = Bench(3)
    topic, queue = bench.accumulator.topic("t"), bench.accumulator.queue("t", 2)
    batch = bench.batch(partition=2)
    queue.batches.clear()
    if kept == "batches":
        queue.batches.append(batch)
    elif kept != "nothing":
        getattr(queue, kept).append(batch)
    topic.update([(NODE, 0)])
    assert len(topic) == (1 if kept == "nothing" else 3)
    assert queue.leader == -1
    queue.batches.clear()
    queue.sent.clear()
    queue.unacked.clear()
    topic.update([(NODE, 0)])
    assert len(topic) == 1


def chosen(topic: TopicQueue, count: int = 400) -> Counter[int]:
    return Counter(topic.next_partition() for _ in range(count))


def test_each_partition_with_a_leader_is_chosen() -> None:
    for adaptive in (True, False):
        topic = TopicQueue("t", 1000, adaptive)
        topic.update([(1, 0), (-1, 0), (2, 0)])
        topic.update_load(())
        assert set(chosen(topic)) == {0, 2}
        topic.update([(-1, 0)] * 3)
        topic.update_load(())
        assert set(chosen(topic)) == {0, 1, 2}
        topic.update([(1, 0)])
        topic.update_load({1})
        assert set(chosen(topic)) == {0}


def test_brokers_that_accept_nothing_are_left_out() -> None:
    topic = TopicQueue("t", 1000, True)
    topic.update([(1, 0), (2, 0), (3, 0)])
    topic.update_load({2})
    assert set(chosen(topic)) == {0, 2}
    topic.update_load({1})
    assert set(chosen(topic)) == {1, 2}
    topic.update_load({1, 2, 3})
    assert set(chosen(topic)) == {0, 1, 2}
    topic.update_load({1, 3})
    assert set(chosen(topic)) == {1}
    topic.update_load(())
    assert set(chosen(topic)) == {0, 1, 2}
    # Without the weights, excluded brokers are chosen like others.
    fixed = TopicQueue("t", 1000, False)
    fixed.update([(1, 0), (2, 0), (3, 0)])
    fixed.update_load({2})
    assert set(chosen(fixed)) == {0, 1, 2}


@pytest.mark.parametrize("lengths", [(0, 3), (3, 0), (1, 4), (0, 0, 3), (3, 0, 0), (0, 3, 0), (2, 2), (0, 0, 0)])
def test_the_choice_goes_by_the_lengths_of_the_queues(lengths: tuple[int, ...]) -> None:
    bench = Bench(len(lengths))
    topic = bench.accumulator.topic("t")
    for partition, length in enumerate(lengths):
        for _ in range(length):
            bench.batch(partition=partition)
    topic.update_load(())
    draws = 6000
    counts = chosen(topic, draws)
    weights = [max(lengths) + 1 - length for length in lengths]
    for partition, weight in enumerate(weights):
        expected = draws * weight / sum(weights)
        # Eight standard deviations: chance does not reach that far.
        share = weight / sum(weights)
        assert abs(counts[partition] - expected) < 8 * (draws * share * (1 - share)) ** 0.5 + 1


def test_metadata_forgets_the_weights() -> None:
    topic = TopicQueue("t", 1000, True)
    topic.update([(1, 0), (2, 0)])
    topic.update_load({2})
    assert set(chosen(topic)) == {0}
    topic.update([(1, 0), (2, 0)])
    assert set(chosen(topic)) == {0, 1}
    topic.update_load({2})
    topic.update([(1, 0)])
    topic.update_load({1})
    assert set(chosen(topic)) == {0}


def test_a_topic_without_partitions_has_no_choice() -> None:
    with pytest.raises(IllegalStateError, match="no partition of new is known"):
        TopicQueue("new", 1000, True).next_partition()
