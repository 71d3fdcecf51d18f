"""The producer's accumulator: appending, memory, what is ready, draining in sequence, results, splitting, threads."""

from __future__ import annotations

import gc
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy._speedups.base.murmur2 import partition_for_key
from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch, next_sequence
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy._speedups.clients.producer.record_future import FutureRecordMetadata
from kafkapy._speedups.records.memory_records import iter_batches
from kafkapy.clients.network_client import request_header
from kafkapy.errors import IllegalStateError, KafkaError, RecordTooLargeError
from kafkapy.protocol.header import decode_request

NODE = 1
LATER = 10**15
"""A time at which every batch has waited long enough."""


def made(partitions: int = 1, *, memory: int = 1 << 20, batch_size: int = 1000, **options: Any) -> RecordAccumulator:
    accumulator = RecordAccumulator(memory, batch_size, 5, 1 << 20, [100, 200], **options)
    accumulator.topic("t").update([(NODE, 0)] * partitions)
    return accumulator


def idempotent(partitions: int = 1, **options: Any) -> RecordAccumulator:
    accumulator = made(partitions, **options)
    accumulator.idempotent = True
    accumulator.producer_id, accumulator.producer_epoch = 7, 0
    return accumulator


def sent(accumulator: RecordAccumulator, value: bytes = b"v", **where: Any) -> FutureRecordMetadata:
    future = accumulator.append("t", where.get("partition"), where.get("timestamp", 1000), where.get("key"), value)
    assert future is not None
    return future


def records_of(batches: list[ProducerBatch]) -> dict[int, list[Any]]:
    """What a request with these batches carries, decoded by the message's own decoder."""
    frame = ProduceRequestFrame(9, request_header(0, 9, "me"), batches, -1, 1000).to_bytes()
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, request = decode_request(frame[4:])
    found: dict[int, list[Any]] = {}
    for topic in request.topic_data:
        for partition in topic.partition_data:
            (batch,) = iter_batches(bytes(partition.records))
            found[partition.index] = batch.decode()
    return found


# --- appending ----------------------------------------------------------------------------------------------------


def test_records_are_what_was_appended() -> None:
    accumulator = made()
    headers = [("h", b"1"), ("null", None), ("ü", b"")]
    accumulator.append("t", 0, 1000, b"key", b"value", headers)
    accumulator.append("t", 0, 995, None, None)
    accumulator.append("t", 0, 2000, bytearray(b"k2"), memoryview(b"v2"))
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
    assert (batch.record_count, batch.base_timestamp, batch.max_timestamp) == (3, 1000, 2000)
    first, second, third = records_of([batch])[0]
    assert (first.key, first.value, list(first.headers), first.timestamp) == (b"key", b"value", headers, 1000)
    assert (second.key, second.value, second.timestamp) == (None, None, 995)
    assert (third.key, third.value, third.timestamp) == (b"k2", b"v2", 2000)


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        ("text", None, None),
        (None, 7, None),
        (None, b"", [("a", "text")]),
        (None, b"", [(b"a", b"b")]),
        (None, b"", ["a"]),
        (None, b"", [("a", b"b", b"c")]),
    ],
)
def test_what_is_not_bytes_is_refused_and_changes_nothing(key: Any, value: Any, headers: Any) -> None:
    accumulator = made()
    with pytest.raises(TypeError):
        accumulator.append("t", 0, 1, key, value, headers)
    assert not accumulator.incomplete
    assert accumulator.pool.available == accumulator.pool.total


def test_batches_of_another_size() -> None:
    accumulator = made(batch_size=1000, memory=10_000)
    futures = [sent(accumulator, bytes(400)) for _ in range(3)]
    pool = accumulator.pool
    assert pool.available == 8000
    accumulator.set_batch_size(3000)
    futures += [sent(accumulator, bytes(400)) for _ in range(8)]
    assert pool.available == 5000, "the open one took what it had room for; the others are in one of the new size"
    drained = [batch for _ in range(3) for batch in accumulator.drain(NODE, 1 << 20, LATER)]
    assert [batch.record_count for batch in drained] == [2, 2, 7]
    for batch in drained:
        accumulator.succeed(batch, 0, -1)
    assert all(future.succeeded() for future in futures)
    assert (pool.available, pool.kept_bytes) == (10_000, 3000)
    accumulator.set_batch_size(1000)
    assert (pool.available, pool.kept_bytes) == (10_000, 0)


def test_rows_without_a_key_stick_to_a_partition_for_a_batch_of_the_new_size() -> None:
    accumulator = made(8, batch_size=1000, memory=1 << 20)
    sent(accumulator)
    accumulator.set_batch_size(50_000)
    for _ in range(100):
        sent(accumulator, bytes(400))
    drained = [batch for _ in range(4) for batch in accumulator.drain(NODE, 1 << 20, LATER)]
    assert {batch.partition for batch in drained} == {drained[0].partition}


def test_an_unknown_topic_or_partition_gives_no_future() -> None:
    accumulator = made(2)
    assert accumulator.append("other", None, 1, None, b"v") is None
    assert accumulator.append("t", 2, 1, None, b"v") is None
    accumulator.topic("empty")
    assert accumulator.append("empty", None, 1, b"k", b"v") is None


def test_a_record_that_no_request_or_buffer_can_hold_is_refused() -> None:
    accumulator = made(memory=10_000)
    with pytest.raises(RecordTooLargeError, match=r"buffer\.memory"):
        accumulator.append("t", 0, 1, None, bytes(10_000))
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        accumulator.append("t", 0, 1, None, bytes(1 << 20))
    sent(accumulator)
    with pytest.raises(RecordTooLargeError):
        accumulator.append("t", 0, 1, None, b"", [("h", bytes(1 << 20))])
    assert len(accumulator.incomplete) == 1


def test_a_batch_is_closed_at_its_size_and_a_large_record_has_its_own() -> None:
    accumulator = made(batch_size=200)
    for _ in range(10):
        sent(accumulator, bytes(50), partition=0)
    sent(accumulator, bytes(1000), partition=0)
    sizes = []
    while batches := accumulator.drain(NODE, 1 << 20, LATER):
        sizes += [(batch.record_count, batch.size) for batch in batches]
    assert [count for count, _ in sizes] == [2, 2, 2, 2, 2, 1]
    assert all(size <= 200 for count, size in sizes[:-1])


@pytest.mark.parametrize("memory", [1000, 5000])
def test_a_batch_that_was_begun_meanwhile_takes_the_record(memory: int) -> None:
    """The creation of a batch may run other code, such as a finalizer; there may be no room for a second one."""
    thresholds = gc.get_threshold()
    for allocations in range(1, 12):
        accumulator = made(memory=memory)
        others: list[FutureRecordMetadata] = []

        def meanwhile(
            phase: str,
            info: object,
            accumulator: RecordAccumulator = accumulator,
            others: list[FutureRecordMetadata] = others,
        ) -> None:
            if not others:
                others.append(sent(accumulator, b"other"))

        gc.collect()
        gc.callbacks.append(meanwhile)
        gc.set_threshold(allocations)
        try:
            sent(accumulator)
        finally:
            gc.callbacks.remove(meanwhile)
            gc.set_threshold(*thresholds)
        (batch,) = accumulator.incomplete
        assert batch.record_count == 1 + len(others)


@pytest.mark.parametrize("end", [lambda batch: batch.succeed(3, -1), lambda batch: batch.fail(KafkaError())])
def test_a_batch_with_a_result_takes_no_more_records(end: Callable[[ProducerBatch], bool]) -> None:
    accumulator = made()
    first = sent(accumulator, partition=0)
    (batch,) = accumulator.incomplete
    assert not batch.closed
    assert end(batch)
    assert not end(batch)  # it has one result
    assert batch.closed
    assert first.is_done
    assert not sent(accumulator, partition=0).is_done
    assert (len(accumulator.incomplete), batch.record_count) == (2, 1)


def test_memory_is_bounded_and_comes_back() -> None:
    accumulator = made(memory=3000, batch_size=1000)
    while accumulator.append("t", 0, 1, None, bytes(300)) is not None:
        pass
    assert accumulator.pool.available < 1000
    assert not accumulator.has_room(1000)
    assert accumulator.append("t", 0, 1, None, bytes(900)) is None
    while batches := accumulator.drain(NODE, 1 << 20, LATER):
        for batch in batches:
            accumulator.succeed(batch, 0, -1)
    assert accumulator.pool.available == accumulator.pool.total
    assert 0 < accumulator.pool.kept_bytes <= 3000
    sent(accumulator, bytes(300))


def test_memory_that_a_request_lends_is_not_given_to_others() -> None:
    accumulator = made(memory=1000, batch_size=1000)
    future = sent(accumulator, b"precious")
    batches = accumulator.drain(NODE, 1 << 20, LATER)
    frame = ProduceRequestFrame(9, request_header(0, 9, "me"), batches, -1, 1000)
    accumulator.fail(batches[0], KafkaError("expired"))
    assert future.failed()
    assert accumulator.pool.available == 0  # the I/O thread may still be writing from it
    assert b"precious" in frame.to_bytes()
    del frame
    gc.collect()
    assert accumulator.pool.available == 1000


def test_dropping_everything_frees_batches_that_have_no_result() -> None:
    accumulator = made()
    pool = accumulator.pool
    sent(accumulator)
    del accumulator
    gc.collect()
    assert pool.available == pool.total


# --- partitions ---------------------------------------------------------------------------------------------------


def test_keys_go_where_murmur2_says() -> None:
    accumulator = made(7)
    for i in range(50):
        key = b"key-%d" % i
        future = sent(accumulator, key=key)
        assert future.topic_partition.partition == partition_for_key(key, 7)


def test_records_without_a_key_stick_to_a_partition_until_a_batch_is_full() -> None:
    accumulator = made(5, batch_size=1000, memory=4 << 20)
    chosen = [sent(accumulator, bytes(90)).topic_partition.partition for _ in range(10_000)]
    changes = sum(a != b for a, b in itertools.pairwise(chosen))
    assert 250 <= changes <= 1250  # ten records fill a batch, twenty at most go to a partition at a time
    counts = Counter(chosen)
    assert set(counts) == set(range(5))
    assert max(counts.values()) < 3 * min(counts.values())


def test_partitions_without_a_leader_get_no_records_without_a_key() -> None:
    accumulator = made()
    accumulator.topic("t").update([(-1, 0), (1, 0), (-1, 0), (2, 0)])
    chosen = {sent(accumulator, bytes(400)).topic_partition.partition for _ in range(200)}
    assert chosen == {1, 3}
    accumulator.topic("t").update([(-1, 0)] * 4)
    assert {sent(accumulator, bytes(400)).topic_partition.partition for _ in range(200)} == {0, 1, 2, 3}


def test_keys_can_be_ignored() -> None:
    accumulator = made(5, ignore_keys=True)
    assert len({sent(accumulator, bytes(400), key=b"same").topic_partition.partition for _ in range(200)}) == 5


def test_long_queues_get_fewer_records() -> None:
    accumulator = made(2, memory=100 << 20)
    topic = accumulator.topic("t")
    for _ in range(200):
        sent(accumulator, bytes(900), partition=0)
    topic.update_load(())
    chosen = Counter(topic.next_partition() for _ in range(2000))
    assert chosen[1] > 50 * chosen[0]
    topic.update([(NODE, 0), (2, 0)])
    topic.update_load({2})
    assert {topic.next_partition() for _ in range(50)} == {0}


def test_no_partition_is_chosen_where_none_is_known() -> None:
    accumulator = RecordAccumulator(1 << 20, 1000, 5, 1 << 20, [100])
    with pytest.raises(IllegalStateError, match="no partition of new is known"):
        accumulator.topic("new").next_partition()


def test_a_topic_may_shrink_and_grow() -> None:
    accumulator = made(4)
    topic = accumulator.topic("t")
    sent(accumulator, partition=3)
    topic.update([(NODE, 1)] * 2)
    assert len(topic) == 4  # its batch has to come to an end
    for batch in accumulator.take_all():
        accumulator.fail(batch, KafkaError("gone"))
    topic.update([(NODE, 1)] * 2)
    assert len(topic) == 2
    assert {sent(accumulator, bytes(500)).topic_partition.partition for _ in range(100)} == {0, 1}


# --- ready and drain ----------------------------------------------------------------------------------------------


def test_a_batch_is_ready_when_it_is_full_or_old_or_everything_has_to_go() -> None:
    accumulator = made(batch_size=500)
    future = sent(accumulator, b"v", partition=0)
    created = next(iter(accumulator.incomplete)).created_ms
    assert accumulator.ready(created) == ([], 5, set())
    assert accumulator.ready(created + 4) == ([], 1, set())
    assert accumulator.ready(created + 5)[0] == [NODE]
    for flag in ("flushes", "closed", "completing"):
        setattr(accumulator, flag, 1)
        assert accumulator.ready(created)[0] == [NODE]
        setattr(accumulator, flag, 0)
    accumulator.wait_for_room(lambda: None)
    assert accumulator.ready(created)[0] == [NODE]
    accumulator.tell_room(always=True)
    assert accumulator.ready(created)[0] == []
    sent(accumulator, bytes(450), partition=0)
    assert accumulator.ready(created)[0] == [NODE]
    assert not future.is_done


def test_topics_without_a_leader_are_named() -> None:
    accumulator = made()
    accumulator.topic("t").update([(-1, 0)])
    sent(accumulator, partition=0)
    assert accumulator.ready(LATER) == ([], None, {"t"})
    assert accumulator.drain(NODE, 1 << 20, LATER) == []


def test_a_request_has_one_batch_of_a_partition_and_no_more_than_its_size() -> None:
    accumulator = made(4, batch_size=500)
    for partition in range(4):
        for _ in range(4):
            sent(accumulator, bytes(300), partition=partition)
    seen = []
    while batches := accumulator.drain(NODE, 900, LATER):
        assert len({batch.partition for batch in batches}) == len(batches)
        assert sum(batch.size for batch in batches) <= 900
        seen.append([batch.partition for batch in batches])
    assert seen[:4] == [[0, 1], [2, 3], [0, 1], [2, 3]]  # nobody starves
    assert len(seen) == 8


def test_one_at_a_time_mutes_a_partition_until_its_result() -> None:
    accumulator = made(batch_size=200)
    for _ in range(4):
        sent(accumulator, bytes(120), partition=0)
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER, True)
    assert accumulator.drain(NODE, 1 << 20, LATER, True) == []
    assert accumulator.ready(LATER)[0] == []
    accumulator.succeed(batch, 0, -1)
    assert len(accumulator.drain(NODE, 1 << 20, LATER, True)) == 1


def test_sequences_follow_each_other_and_wrap() -> None:
    accumulator = idempotent(batch_size=200)
    queue = accumulator.queue("t", 0)
    queue.start_sequence(7, 0)
    queue.take_sequence(2**31 - 3)
    for _ in range(8):
        sent(accumulator, bytes(40), partition=0)
    numbers = []
    while batches := accumulator.drain(NODE, 1 << 20, LATER):
        (batch,) = batches
        assert (batch.producer_id, batch.producer_epoch) == (7, 0)
        numbers.append((batch.base_sequence, batch.last_sequence, batch.record_count))
        if len(numbers) == 1:
            assert accumulator.drain(NODE, 1 << 20, LATER) == []  # the first of a sequence goes alone
            accumulator.succeed(batch, 0, -1)
    assert [count for _, _, count in numbers] == [2, 2, 2, 2]
    assert numbers[0][:2] == (2**31 - 3, 2**31 - 2)
    assert numbers[1][:2] == (2**31 - 1, 0)
    assert numbers[2][0] == 1
    for batch in list(queue.sent):
        accumulator.succeed(batch, 0, -1)
    assert queue.last_acked_sequence == 4
    assert queue.is_next_sequence(5)
    assert next_sequence(2**31 - 1, 1) == 0


def test_the_numbers_of_a_refused_batch_go_to_those_behind_it() -> None:
    accumulator = idempotent(batch_size=200)
    for _ in range(10):
        sent(accumulator, bytes(40), partition=0)
    (zero,) = accumulator.drain(NODE, 1 << 20, LATER)
    accumulator.succeed(zero, 0, -1)
    (one,), (two,), (three,) = (accumulator.drain(NODE, 1 << 20, LATER) for _ in range(3))
    assert [batch.base_sequence for batch in (zero, one, two, three)] == [0, 2, 4, 6]
    queue = accumulator.queue("t", 0)
    accumulator.fail(two, KafkaError())
    queue.close_gap(two)
    assert [batch.base_sequence for batch in (one, three)] == [2, 4]
    assert [batch.sequence_reset for batch in (zero, one, two, three)] == [False, False, False, True]
    (four,) = accumulator.drain(NODE, 1 << 20, LATER)
    assert four.base_sequence == 6
    for batch in (one, three, four):
        accumulator.succeed(batch, 0, -1)
    queue.start_sequence(7, 1)
    queue.close_gap(two)  # of the old epoch
    assert queue.take_sequence(2) == 0
    queue.start_sequence(7, 0)
    with pytest.raises(IllegalStateError, match="below 0"):
        queue.close_gap(two)


def test_nothing_is_drained_without_a_producer_id_or_out_of_turn() -> None:
    accumulator = idempotent(batch_size=200)
    accumulator.producer_id = -1
    for _ in range(8):
        sent(accumulator, bytes(60), partition=0)
    assert accumulator.drain(NODE, 1 << 20, LATER) == []
    accumulator.producer_id = 7
    (zero,) = accumulator.drain(NODE, 1 << 20, LATER)
    accumulator.succeed(zero, 0, -1)
    (one,), (two,) = accumulator.drain(NODE, 1 << 20, LATER), accumulator.drain(NODE, 1 << 20, LATER)
    accumulator.retry(two, LATER)
    accumulator.retry(one, LATER)
    queue = accumulator.queue("t", 0)
    assert list(queue.batches)[:2] == [one, two]
    assert accumulator.drain(NODE, 1 << 20, LATER) == []  # backing off
    assert accumulator.drain(NODE, 1 << 20, LATER + 100) == [one]
    assert accumulator.drain(NODE, 1 << 20, LATER + 100) == []  # two waits for the fate of one
    accumulator.succeed(one, 0, -1)
    assert accumulator.drain(NODE, 1 << 20, LATER + 100) == [two]
    accumulator.producer_epoch = 1
    assert accumulator.drain(NODE, 1 << 20, LATER + 100) == []  # the old epoch's batch goes first
    accumulator.succeed(two, 2, -1)
    (three,) = accumulator.drain(NODE, 1 << 20, LATER + 100)
    assert (three.base_sequence, three.producer_epoch) == (0, 1)


def test_a_partition_outside_of_the_transaction_waits() -> None:
    accumulator = idempotent()
    accumulator.transactional = True
    assert accumulator.append("t", 0, 1, None, b"v") is None
    assert accumulator.asked is accumulator.queue("t", 0)
    queue = accumulator.queue("t", 0)
    queue.joining = True
    sent(accumulator, partition=0)
    assert accumulator.drain(NODE, 1 << 20, LATER) == []
    queue.in_transaction = True
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
    assert batch.transactional


def test_a_new_leader_ends_the_back_off() -> None:
    accumulator = made()
    sent(accumulator, partition=0)
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
    accumulator.retry(batch, LATER)
    assert accumulator.ready(LATER)[:2] == ([], 100)
    accumulator.topic("t").update([(2, 1)])
    assert accumulator.ready(LATER)[0] == [2]
    assert accumulator.drain(2, 1 << 20, LATER) == [batch]
    accumulator.retry(batch, LATER)
    assert accumulator.ready(LATER)[:2] == ([], 200)


# --- results ------------------------------------------------------------------------------------------------------


def test_splitting_keeps_records_order_sequences_and_futures() -> None:
    accumulator = idempotent(batch_size=2000)
    futures = [sent(accumulator, b"%03d" % i * 20, partition=0, timestamp=1000 + i) for i in range(20)]
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
    called: list[int] = []
    for index, future in enumerate(futures):
        future.add_callback(lambda metadata, index=index: called.append((index, metadata.offset)))  # type: ignore[misc]
    assert accumulator.split(batch) == 3
    assert not futures[0].is_done
    parts = accumulator.drain(NODE, 1 << 20, LATER)
    assert accumulator.drain(NODE, 1 << 20, LATER) == []  # in sequence, one at a time
    values, offset = [], 100
    while parts:
        (part,) = parts
        assert part.base_sequence == len(values)
        values += [record.value for record in records_of(parts)[0]]
        accumulator.succeed(part, offset, -1)
        offset += part.record_count
        parts = accumulator.drain(NODE, 1 << 20, LATER)
    assert values == [b"%03d" % i * 20 for i in range(20)]
    assert [future.get(0).offset for future in futures] == list(range(100, 120))
    assert [future.get(0).timestamp for future in futures] == list(range(1000, 1020))
    assert called == [(i, 100 + i) for i in range(20)]
    assert not accumulator.incomplete
    assert accumulator.pool.available == accumulator.pool.total


def test_splitting_comes_to_an_end() -> None:
    accumulator = made(batch_size=100_000)
    futures = [sent(accumulator, bytes(10), partition=0) for _ in range(64)]
    rounds = 0
    while batches := accumulator.drain(NODE, 1 << 20, LATER):
        for batch in batches:
            if batch.record_count > 1:
                accumulator.split(batch)
                rounds += 1
            else:
                accumulator.fail(batch, RecordTooLargeError("too large"))
    assert rounds >= 6
    assert all(isinstance(future.exception, RecordTooLargeError) for future in futures)
    with pytest.raises(IllegalStateError):
        batch.split(10)


def test_expired_batches_leave_their_queues_oldest_first() -> None:
    accumulator = made(batch_size=200)
    futures = [sent(accumulator, bytes(120), partition=0) for _ in range(3)]
    created = [batch.created_ms for batch in accumulator.queue("t", 0).batches]
    assert accumulator.take_expired(created[0], 1000) == ([], 1000)
    (first,) = accumulator.drain(NODE, 1 << 20, LATER)
    expired, left = accumulator.take_expired(created[2] + 1000, 1000)
    assert len(expired) == 3
    assert left is None
    assert expired[0] is first
    for batch in expired:
        assert accumulator.fail(batch, KafkaError("expired"))
        assert not accumulator.fail(batch, KafkaError("again"))
    assert all(str(future.exception) == "expired" for future in futures)
    assert not accumulator.undrained
    sent(accumulator)


@pytest.mark.parametrize("take", ["take_expired", "take_undrained", "take_all"])
def test_batches_of_one_millisecond_are_taken_in_the_order_of_their_creation(take: str) -> None:
    accumulator = made(3, batch_size=200)
    created = []
    for number in range(60):
        sent(accumulator, bytes(120), partition=number % 3)
        batch = accumulator.queue("t", number % 3).batches[-1]
        batch.created_ms = 1000
        created.append(batch)
    created[-1].created_ms = 999
    created.insert(0, created.pop())
    if take == "take_expired":
        assert accumulator.take_expired(2000, 1000) == (created, None)
    else:
        assert getattr(accumulator, take)() == created


def test_the_sender_is_woken_for_a_first_record_and_a_full_batch_only() -> None:
    accumulator = made(batch_size=300)
    woken: list[int] = []

    def wake() -> None:
        woken.append(1)
        accumulator.wake_asked = False

    accumulator.wake = wake
    sent(accumulator, bytes(50), partition=0)
    assert len(woken) == 1
    sent(accumulator, bytes(50), partition=0)
    assert len(woken) == 1
    sent(accumulator, bytes(130), partition=0)  # exactly full, or the next begins a batch
    sent(accumulator, bytes(130), partition=0)
    assert 2 <= len(woken) <= 3
    woken.clear()
    accumulator.timer_set = accumulator.saturated = True
    for _ in range(20):
        sent(accumulator, bytes(100), partition=0)
    assert woken == []


# --- threads ------------------------------------------------------------------------------------------------------


def test_threads_that_append_while_another_drains_lose_nothing() -> None:
    accumulator = idempotent(4, memory=64 << 20, batch_size=700)
    each, threads = 2000, 6
    stop = threading.Event()
    seen: dict[int, list[bytes]] = {partition: [] for partition in range(4)}
    futures: list[list[FutureRecordMetadata]] = [[] for _ in range(threads)]

    def append(number: int) -> None:
        for i in range(each):
            future = accumulator.append("t", i % 4, 1, None, b"%d-%d" % (number, i), [("h", b"x" * (i % 7))])
            assert future is not None
            futures[number].append(future)

    def drain() -> None:
        offsets = Counter[int]()
        while True:
            last = stop.is_set()
            batches = accumulator.drain(NODE, 1 << 20, LATER)
            for partition, records in (records_of(batches) if batches else {}).items():
                seen[partition] += [record.value for record in records]
            for batch in batches:
                accumulator.succeed(batch, offsets[batch.partition], -1)
                offsets[batch.partition] += batch.record_count
            if last and not batches:
                return

    gc.set_threshold(50, 2, 2)  # collections in the middle of everything
    try:
        drainer = threading.Thread(target=drain)
        appenders = [threading.Thread(target=append, args=(number,)) for number in range(threads)]
        for thread in [drainer, *appenders]:
            thread.start()
        for thread in appenders:
            thread.join()
        stop.set()
        drainer.join()
    finally:
        gc.set_threshold(700, 10, 10)
    for partition, values in seen.items():
        assert len(values) == len(set(values)) == each * threads // 4
        for number in range(threads):
            mine = [value for value in values if value.startswith(b"%d-" % number)]
            assert mine == [b"%d-%d" % (number, i) for i in range(partition, each, 4)]
            for i in range(partition, each, 4 * 101):
                assert values[futures[number][i].get(5).offset] == b"%d-%d" % (number, i)
    assert accumulator.pool.available == accumulator.pool.total
    assert not accumulator.incomplete
