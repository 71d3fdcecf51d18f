"""The accumulator at its bounds: sizes of records and batches, room, what a request takes, what an end leaves."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.network_client import request_header
from kafkapy.errors import KafkaError, RecordTooLargeError

NODE = 1
LATER = 10**15
HEADER = 61
"""Bytes of a batch before its records."""
OVERHEAD = HEADER + 46
"""The most bytes of a batch with one record besides key, value and headers."""


def made(
    partitions: int = 1, *, memory: int = 1 << 20, batch_size: int = 1000, most: int = 1 << 20, **options: Any
) -> RecordAccumulator:
    accumulator = RecordAccumulator(memory, batch_size, 5, most, [100, 200], **options)
    accumulator.topic("t").update([(NODE, 0)] * partitions)
    return accumulator


def append(accumulator: RecordAccumulator, size: int, partition: int = 0) -> ProducerBatch:
    """The open batch of the partition, after a record with a value of `size` bytes."""
    assert accumulator.append("t", partition, 1000, None, bytes(size)) is not None
    return accumulator.queue("t", partition).batches[-1]


def test_an_accumulator_has_what_it_was_given() -> None:
    accumulator = RecordAccumulator(5000, 1000, 7, 9000, [1, 2])
    assert (accumulator.pool.total, accumulator.batch_size, accumulator.linger_ms) == (5000, 1000, 7)
    assert (accumulator.max_request_size, accumulator.backoff_ms) == (9000, [1, 2])
    assert (accumulator.ignore_keys, accumulator.adaptive) == (False, True)
    assert (accumulator.open, accumulator.sending_allowed, accumulator.closed) == (True, True, False)
    assert (accumulator.producer_id, accumulator.producer_epoch) == (-1, -1)
    assert (accumulator.idempotent, accumulator.transactional, accumulator.completing) == (False, False, False)
    assert (accumulator.wake_asked, accumulator.timer_set, accumulator.saturated) == (False, False, False)
    assert (accumulator.flushes, accumulator.failure, accumulator.asked, accumulator.wake) == (0, None, None, None)
    assert (accumulator.topics, accumulator.incomplete, accumulator.undrained) == ({}, set(), False)
    other = RecordAccumulator(5000, 1000, 7, 9000, [1, 2], ignore_keys=True, adaptive=False)
    assert (other.ignore_keys, other.adaptive) == (True, False)


@pytest.mark.parametrize(("given", "size"), [(0, 62), (61, 62), (62, 62), (63, 63), (1000, 1000)])
def test_a_batch_has_room_for_a_byte(given: int, size: int) -> None:
    accumulator = made(batch_size=given)
    assert (accumulator.batch_size, accumulator.pool.buffer_size) == (size, size)
    append(accumulator, 0)
    assert accumulator.pool.available == accumulator.pool.total - max(size, OVERHEAD)


@pytest.mark.parametrize("parts", [("value",), ("key",), ("key", "value")])
def test_a_record_may_be_as_large_as_a_request_or_the_buffer(parts: tuple[str, ...]) -> None:
    # The size of a request is checked with the most that a record may take.
    for size, fits in ((2000 - OVERHEAD, True), (2000 - OVERHEAD + 1, False)):
        of = {name: bytes(size // len(parts)) for name in parts}
        of[parts[0]] += bytes(size - sum(map(len, of.values())))
        for accumulator in (made(most=2000), made(memory=2000)):
            if fits:
                assert accumulator.append("t", 0, 1000, of.get("key"), of.get("value")) is not None
                continue
            with pytest.raises(RecordTooLargeError):
                accumulator.append("t", 0, 1000, of.get("key"), of.get("value"))
            assert not accumulator.incomplete


@pytest.mark.parametrize(("batch_size", "most"), [(1000, 400), (400, 400), (5000, 400)])
def test_an_open_batch_takes_no_record_that_is_too_large(batch_size: int, most: int) -> None:
    accumulator = made(batch_size=batch_size, most=most)
    append(accumulator, 1)
    for size in (most - OVERHEAD + 1, most - OVERHEAD + 2, most - 1, most, most + 1):
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            append(accumulator, size)
    append(accumulator, most - OVERHEAD)


def test_records_are_refused_while_the_accumulator_is_not_open() -> None:
    accumulator = made()
    accumulator.open = False
    with pytest.raises(KafkaError, match="the producer takes no records now"):
        append(accumulator, 1)
    accumulator.open = True
    append(accumulator, 1)


def test_what_was_appended_is_released() -> None:
    accumulator = made()
    key, value, header = bytearray(b"k"), bytearray(b"v"), bytearray(b"h")
    for partition in (0, 5):
        accumulator.append("t", partition, 1000, key, value, [("h", header)])
        for each in (key, value, header):
            each.append(1)  # a buffer that is held cannot grow


def test_headers_without_a_value_have_the_length_of_none() -> None:
    accumulator = made()
    future = accumulator.append("t", 0, 1000, None, None, [("none", None), ("empty", b"")])
    without = accumulator.append("t", 0, 1000, None, None, [])
    keyed = accumulator.append("t", 0, 1000, b"key", b"value")
    assert future is not None
    assert without is not None
    assert keyed is not None
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
    encoded = ProduceRequestFrame(9, request_header(0, 9, "me"), [batch], -1, 1000).to_bytes()
    assert b"\x08none\x01\x0aempty\x00" in encoded
    accumulator.succeed(batch, 0, -1)
    sizes = [
        (each.serialized_key_size, each.serialized_value_size, each.serialized_header_size)
        for each in (future.get(0), without.get(0), keyed.get(0))
    ]
    assert sizes == [(-1, -1, 9), (-1, -1, -1), (3, 5, -1)]


def test_headers_count_for_the_partition_of_records_without_a_key() -> None:
    accumulator = made(2, batch_size=1000)
    for _ in range(200):
        accumulator.append("t", None, 1000, None, b"", [("h", bytes(400))])
    counts = [len(accumulator.queue("t", partition).batches) for partition in range(2)]
    assert min(counts) > 10


def test_a_batch_that_is_full_is_closed() -> None:
    accumulator = made()
    first = append(accumulator, 600)
    assert (first.closed, first.full) == (False, False)
    second = append(accumulator, 600)
    assert (first.closed, first.full, second.closed) == (True, True, False)


def test_a_batch_is_full_at_its_size() -> None:
    around = append(made(), 900).size - 900
    full = append(made(), 1000 - around)
    assert (full.size, full.full, full.closed) == (1000, True, False)
    open_ = append(made(), 999 - around)
    assert (open_.size, open_.full) == (999, False)


# --- waking -------------------------------------------------------------------------------------------------------


def test_the_sender_is_asked_once_for_each_pass() -> None:
    accumulator = made()
    asked: list[int] = []
    accumulator.wake = lambda: asked.append(1)
    append(accumulator, 10)
    assert (asked, accumulator.wake_asked) == ([1], True)
    accumulator.wait_for_room(lambda: None)
    append(accumulator, 2000)
    assert asked == [1]
    accumulator.wake_asked = False
    accumulator.wait_for_room(lambda: None)
    assert (asked, accumulator.pool.waiting) == ([1, 1], 2)


@pytest.mark.parametrize(
    ("memory", "tells"), [(8000, True), (8007, True), (8008, True), (8200, True), (8999, False), (15_999, True)]
)
def test_waiters_hear_of_an_eighth_of_the_buffer(memory: int, tells: bool) -> None:
    accumulator = made(memory=memory)
    batches = []
    while accumulator.pool.available >= 1000:
        batches.append(append(accumulator, 800))
    accumulator.drain(NODE, 1 << 20, LATER)
    called: list[int] = []
    accumulator.wait_for_room(lambda: called.append(1))
    accumulator.wait_for_room(lambda: called.append(2))
    assert accumulator.pool.waiting == 2
    accumulator.tell_room()
    free = accumulator.pool.available
    assert (called == [1, 2]) is (free >= memory // 8)
    if memory == 8999:
        assert called == []  # 999 bytes are a ninth, not an eighth
        accumulator.tell_room(always=True)
        assert (called, accumulator.pool.waiting) == ([1, 2], 0)
        return
    accumulator.succeed(batches[0], 0, -1)
    accumulator.tell_room()
    assert (called == [1, 2]) is tells
    assert accumulator.pool.waiting == 0
    accumulator.tell_room(always=True)
    assert called == [1, 2]


def test_waiters_hear_that_no_batch_is_left_to_make_room() -> None:
    accumulator = made(memory=1000)
    batch = append(accumulator, 10)
    accumulator.drain(NODE, 1 << 20, LATER)
    frame = ProduceRequestFrame(9, request_header(0, 9, "me"), [batch], -1, 1000)
    called: list[int] = []
    accumulator.wait_for_room(lambda: called.append(1))
    accumulator.tell_room()
    assert called == []
    accumulator.fail(batch, KafkaError("x"))
    assert accumulator.pool.available == 0
    accumulator.tell_room()
    assert called == [1]
    frame.release()
    assert (accumulator.has_room(1000), accumulator.has_room(1001)) == (True, False)


def test_a_waiter_that_stops_is_not_called() -> None:
    accumulator = made()
    called: list[int] = []

    def first() -> None:
        called.append(1)

    def second() -> None:
        called.append(2)

    accumulator.wait_for_room(first)
    accumulator.wait_for_room(second)
    accumulator.stop_waiting(first)
    accumulator.stop_waiting(first)
    assert accumulator.pool.waiting == 1
    accumulator.tell_room()
    assert (called, accumulator.pool.waiting) == ([2], 0)


# --- ready and drain ----------------------------------------------------------------------------------------------


def test_queues_without_batches_hide_nothing() -> None:
    accumulator = made(4)
    for partition in range(4):
        append(accumulator, 10, partition)
    topic = accumulator.topic("t")
    assert len(accumulator.drain(NODE, 70, LATER)) == 1
    topic.update([(NODE, 0), (-1, 0), (NODE, 0), (2, 0)])
    accumulator.queue("t", 2).muted = True
    # One has no batch, one no leader, one is muted: the last is ready.
    nodes, next_ms, leaderless = accumulator.ready(LATER)
    assert (nodes, next_ms, leaderless) == ([2], None, {"t"})
    assert [batch.partition for batch in accumulator.drain(2, 1 << 20, LATER)] == [3]


def test_the_next_batch_is_the_one_with_the_least_wait() -> None:
    accumulator = made(3)
    batches = [append(accumulator, 10, partition) for partition in range(3)]
    for batch, attempted in zip(batches, (1002, 1000, 1004), strict=True):
        batch.attempted_ms = attempted
    assert accumulator.ready(1001)[:2] == ([], 4)
    assert accumulator.ready(1004)[:2] == ([], 1)
    assert accumulator.ready(1005)[:2] == ([NODE], 2)
    topic = accumulator.topic("t")
    topic.update([(3, 0), (1, 0), (3, 0)])
    assert accumulator.ready(1020)[0] == [3, 1]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_retry_waits_for_its_back_off(attempts: int) -> None:
    accumulator = made()
    append(accumulator, 10)
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
    batch.attempts = attempts - 1
    accumulator.retry(batch, LATER)
    wait = 100 if attempts == 1 else 200  # later attempts wait as long as the last one that is known
    accumulator.flushes = 1
    assert accumulator.ready(LATER)[:2] == ([], wait)
    assert accumulator.ready(LATER + wait - 1)[:2] == ([], 1)
    assert accumulator.drain(NODE, 1 << 20, LATER + wait - 1) == []
    assert accumulator.ready(LATER + wait)[:2] == ([NODE], None)
    assert accumulator.drain(NODE, 1 << 20, LATER + wait) == [batch]


def test_a_request_ends_with_the_first_batch_that_does_not_fit() -> None:
    accumulator = made(4, batch_size=2000)
    sizes = [append(accumulator, size, partition).size for partition, size in enumerate((500, 600, 50, 10))]
    for most, partitions in ((1, [0]), (sizes[1] + sizes[2] - 1, [1]), (sizes[2] + sizes[3], [2, 3])):
        drained = accumulator.drain(NODE, most, LATER)
        assert [batch.partition for batch in drained] == partitions
        assert all(batch.closed and batch.drained_ms == LATER for batch in drained)


def test_a_small_batch_does_not_overtake_one_that_does_not_fit() -> None:
    accumulator = made(3, batch_size=2000)
    sizes = [append(accumulator, size, partition).size for partition, size in enumerate((500, 600, 50))]
    drained = accumulator.drain(NODE, sizes[0] + sizes[2], LATER)
    assert [batch.partition for batch in drained] == [0]


def test_a_drained_batch_takes_no_more_records() -> None:
    accumulator = made()
    first = append(accumulator, 10)
    assert accumulator.undrained
    assert accumulator.drain(NODE, 1 << 20, LATER) == [first]
    assert (first.closed, accumulator.undrained) == (True, False)
    second = append(accumulator, 10)
    assert second is not first
    assert (first.record_count, second.record_count) == (1, 1)


def idempotent(partitions: int = 1) -> RecordAccumulator:
    accumulator = made(partitions)
    accumulator.idempotent = True
    accumulator.producer_id, accumulator.producer_epoch = 0, 0
    return accumulator


def test_an_id_of_zero_is_one() -> None:
    accumulator = idempotent()
    batch = append(accumulator, 10)
    accumulator.producer_id = -1
    assert accumulator.drain(NODE, 1 << 20, LATER) == []
    accumulator.producer_id = 0
    accumulator.sending_allowed = False
    assert accumulator.drain(NODE, 1 << 20, LATER) == []
    accumulator.sending_allowed = True
    assert accumulator.drain(NODE, 1 << 20, LATER) == [batch]
    assert (batch.producer_id, batch.base_sequence) == (0, 0)


@pytest.mark.parametrize(("unresolved", "drains"), [(-1, True), (0, False), (1, False)])
def test_no_batch_gets_a_number_while_earlier_ones_are_not_resolved(unresolved: int, drains: bool) -> None:
    accumulator = idempotent()
    batch = append(accumulator, 10)
    accumulator.queue("t", 0).unresolved_sequence = unresolved
    assert accumulator.drain(NODE, 1 << 20, LATER) == ([batch] if drains else [])


def test_a_queue_is_listed_once() -> None:
    accumulator = made()
    first = append(accumulator, 10)
    accumulator.drain(NODE, 1 << 20, LATER)
    assert accumulator.listed_topics() == {"t"}
    accumulator.drain(NODE, 1 << 20, LATER)
    assert accumulator.listed_topics() == set()
    accumulator.retry(first, 0)
    assert accumulator.listed_topics() == {"t"}
    second = append(accumulator, 10)
    assert accumulator.drain(NODE, 1 << 20, LATER) == [first]
    assert accumulator.drain(NODE, 1 << 20, LATER) == [second]


def test_a_retry_takes_its_own_batch_out_of_those_that_are_sent() -> None:
    accumulator = made()
    batches = []
    for _ in range(3):
        append(accumulator, 10)
        batches += accumulator.drain(NODE, 1 << 20, LATER)
    queue = accumulator.queue("t", 0)
    accumulator.retry(batches[1], LATER)
    assert queue.sent == [batches[0], batches[2]]
    assert list(queue.batches) == [batches[1]]
    assert (batches[1].attempts, batches[1].attempted_ms) == (1, LATER)


# --- results ------------------------------------------------------------------------------------------------------


def test_the_end_of_a_batch_leaves_the_open_one() -> None:
    for end in ("fail", "take_expired", "succeed"):
        accumulator = made()
        first = append(accumulator, 10)
        accumulator.drain(NODE, 1 << 20, LATER)
        second = append(accumulator, 10)
        second.created_ms = first.created_ms + 10
        if end == "fail":
            assert accumulator.fail(first, KafkaError("x"))
        elif end == "succeed":
            accumulator.succeed(first, 0, -1)
        else:
            assert accumulator.take_expired(first.created_ms + 100, 100) == ([first], 10)
        assert append(accumulator, 10) is second
        assert second.record_count == 2


@pytest.mark.parametrize("take", ["take_expired", "take_undrained", "take_all"])
def test_batches_that_are_taken_are_closed_and_off_their_queues(take: str) -> None:
    accumulator = made()
    first = append(accumulator, 10)
    taken = accumulator.take_expired(LATER, 1)[0] if take == "take_expired" else getattr(accumulator, take)()
    assert taken == [first]
    assert (first.closed, accumulator.undrained) == (True, False)
    assert list(accumulator.queue("t", 0).batches) == []
    second = append(accumulator, 10)
    assert second is not first


def test_an_aborted_transaction_keeps_what_was_sent() -> None:
    accumulator = idempotent(3)
    sent = append(accumulator, 10, 0)
    accumulator.drain(NODE, 1 << 20, LATER)
    numbered = append(accumulator, 10, 1)
    numbered.set_producer(0, 0, 0, True)
    drained = append(accumulator, 10, 2)
    drained.drained_ms = 1
    assert accumulator.take_undrained() == []
    drained.drained_ms = 0
    assert accumulator.take_undrained() == [drained]
    assert sent in accumulator.incomplete


def test_the_first_failure_is_remembered() -> None:
    accumulator = made()
    errors = [KafkaError(str(number)) for number in range(4)]
    append(accumulator, 10)
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
    accumulator.queue("t", 0).muted = True
    assert accumulator.fail(batch, errors[0], {3: errors[3], 1: errors[1], 2: errors[2]})
    assert accumulator.failure is errors[1]
    assert not accumulator.queue("t", 0).muted
    assert not accumulator.fail(batch, errors[2])
    append(accumulator, 10)
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
    accumulator.fail(batch, errors[2])
    assert accumulator.failure is errors[1]
    other = made()
    append(other, 10)
    (batch,) = other.drain(NODE, 1 << 20, LATER)
    other.fail(batch, errors[2])
    assert other.failure is errors[2]


def test_the_next_expiry_is_that_of_the_oldest_batch() -> None:
    accumulator = made(3)
    batches = [append(accumulator, 10, partition) for partition in range(3)]
    for batch, created in zip(batches, (1020, 1000, 1010), strict=True):
        batch.created_ms = created
    assert accumulator.take_expired(1050, 100) == ([], 50)
    assert accumulator.take_expired(1099, 100) == ([], 1)
    assert accumulator.take_expired(1100, 100) == ([batches[1]], 10)
    assert accumulator.take_expired(2000, 100)[0] == [batches[1], batches[2], batches[0]]
    assert len(accumulator.incomplete) == 3  # they have no result yet
