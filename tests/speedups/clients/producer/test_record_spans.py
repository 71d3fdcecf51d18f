"""One future for many records, whose batches end one by one, fail, and are split; and requests with few batches."""

from __future__ import annotations

from typing import Any

import pytest
from speedups.clients.producer.test_record_sender import Sender

from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame, ProduceResponseFrame
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy.clients.network_client import request_header
from kafkapy.errors import KafkaError, KafkaTimeoutError
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.produce import ProduceResponse

NODE = 1
LATER = 10**15


def drained(sender: Sender) -> list[ProducerBatch]:
    """All batches, those of partition 0 first."""
    found = []
    while batches := sender.accumulator.drain(NODE, 1 << 20, LATER):
        found += batches
    return sorted(found, key=lambda batch: batch.partition)


def test_many_records_are_done_with_the_last_of_their_batches() -> None:
    sender = Sender().known(2)
    future = sender.send_many("t", [bytes(600)] * 3, partition=0)
    first, second, third = drained(sender)
    called: list[Any] = []
    future.add_done_callback_threadless(called.append)
    for batch, offset in ((second, 7), (first, 0), (third, -1)):
        assert (future.is_done, future.done(), future.succeeded(), future.failed()) == (False,) * 4
        assert future.exception is None
        with pytest.raises(KafkaTimeoutError):
            future.wait(0)
        assert called == []
        sender.accumulator.succeed(batch, offset, -1)
    assert (future.is_done, future.succeeded(), future.failed()) == (True, True, False)
    assert called == [future]
    assert [(each.first_offset, each.records) for each in future.get(0)] == [(0, 1), (7, 1), (-1, 1)]
    future.add_done_callback_threadless(called.append)
    assert called == [future] * 2
    assert repr(future) == "<BulkFuture of 3 records: complete>"


def test_who_asks_for_a_record_is_told_once() -> None:
    sender = Sender().known()
    future = sender.send("t", b"v", partition=0)
    told: list[Any] = []
    future.add_done_callback_threadless(told.append)
    (batch,) = drained(sender)
    assert told == []
    sender.accumulator.succeed(batch, 7, -1)
    assert told == [future]
    future.add_done_callback_threadless(told.append)
    assert told == [future] * 2


def test_the_error_is_that_of_the_first_record_that_failed() -> None:
    sender = Sender().known()
    future = sender.send_many("t", [bytes(600)] * 4, partition=0)
    errors = [KafkaError(str(number)) for number in range(4)]
    batches = drained(sender)
    sender.accumulator.fail(batches[3], errors[3])
    assert (future.exception, future.is_done, future.failed()) == (errors[3], False, False)
    sender.accumulator.succeed(batches[0], 0, -1)
    sender.accumulator.fail(batches[2], errors[2])
    assert future.exception is errors[2]
    sender.accumulator.fail(batches[1], errors[1])
    assert (future.exception, future.is_done, future.failed(), future.succeeded()) == (errors[1], True, True, False)
    for wait in (future.wait, future.get):
        with pytest.raises(KafkaError, match="1"):
            wait(0)


def test_single_records_of_a_batch_may_fail() -> None:
    sender = Sender().known()
    future = sender.send_many("t", [b"a", b"b", b"c"], partition=0)
    (batch,) = drained(sender)
    error = KafkaError("x")
    others = KafkaError("others")
    sender.accumulator.fail(batch, others, {1: error})
    assert future.exception is others
    later = Sender().known()
    later.send("t", b"before", partition=0)
    future = later.send_many("t", [b"a", b"b"], partition=0)
    (batch,) = drained(later)
    later.accumulator.fail(batch, others, {1: error})
    assert future.exception is error


def test_records_that_alternate_between_partitions_keep_their_places() -> None:
    sender = Sender().known(2)
    numbers = iter([0, 1, 0, 1, 1, 0])
    sender.partitioner = lambda *given: next(numbers)
    future = sender.send_many("t", [b"v"] * 6)
    assert len(future) == 6
    for batch in drained(sender):
        sender.accumulator.succeed(batch, 10 + 10 * batch.partition, -1)
    assert [(each.topic_partition.partition, each.first_offset, each.records) for each in future.get(0)] == [
        (0, 10, 1),
        (1, 20, 1),
        (0, 11, 1),
        (1, 21, 2),
        (0, 12, 1),
    ]


def test_the_parts_of_a_batch_are_waited_for() -> None:
    sender = Sender().known()
    sender.accumulator.set_batch_size(4000)
    sender.send("t", bytes(500), partition=0)
    future = sender.send_many("t", [bytes(500)] * 5, partition=0)
    (batch,) = drained(sender)
    sender.accumulator.set_batch_size(1200)
    assert sender.accumulator.split(batch) == 3
    parts = drained(sender)
    for number, part in enumerate(parts):
        assert not future.is_done
        with pytest.raises(KafkaTimeoutError):
            future.wait(0)
        sender.accumulator.succeed(part, 100 * number, -1)
    assert future.is_done
    assert [(each.first_offset, each.records) for each in future.get(0)] == [(1, 1), (100, 2), (200, 2)]


# --- requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "fits"), [(7, False), (8, True), (0x10000, True), (0x10001, False)])
def test_a_header_has_a_correlation_id_and_no_more_than_it_may(size: int, fits: bool) -> None:
    if fits:
        assert ProduceRequestFrame(9, bytes(size), [], -1, 1).batches == []
    else:
        with pytest.raises(ValueError, match=f"a request header of {size} bytes"):
            ProduceRequestFrame(9, bytes(size), [], -1, 1)


@pytest.mark.parametrize("codec", [-1, 0, 4, 5])
def test_codecs_have_numbers(codec: int) -> None:
    if codec in (0, 4):
        ProduceRequestFrame(9, bytes(8), [], -1, 1, codec=codec)
    else:
        with pytest.raises(ValueError, match=f"codec {codec} is none of Kafka's"):
            ProduceRequestFrame(9, bytes(8), [], -1, 1, codec=codec)


def test_a_request_counts_its_bytes_and_lets_them_go_once() -> None:
    sender = Sender(memory=10_000).known(2)
    for partition in range(2):
        sender.send("t", bytes(300), partition=partition)
    batches = drained(sender)
    batches[1].set_producer(7, 3, 5, True)
    frame = ProduceRequestFrame(9, request_header(0, 9, "me"), batches, 1, 777)
    assert frame.bytes_before == sum(batch.size for batch in batches)
    _, request = decode_request(frame.to_bytes()[4:])
    assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 777, None)
    plain, transactional = (bytes(each.records) for each in request.topic_data[0].partition_data)
    assert (plain[21:23], transactional[21:23]) == (b"\0\0", b"\0\x10")
    for batch in batches:
        sender.accumulator.succeed(batch, 0, -1)
    assert sender.accumulator.pool.available == 8000
    for _ in range(3):
        frame.release()
        assert sender.accumulator.pool.available == 10_000


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("empty_topics", [0, 1, 2])
def test_a_response_without_partitions_is_plain(version: int, empty_topics: int) -> None:
    topics = [ProduceResponse.TopicResponse(name="t", partition_responses=[]) for _ in range(empty_topics)]
    response = ProduceResponseFrame(version)
    response.feed(encode_response(0, version, 1, ProduceResponse(responses=topics, throttle_time_ms=55)))
    sender = Sender().known()
    nothing = ProduceRequestFrame(version, request_header(0, version, "me"), [], -1, 1)
    assert response.succeed_all(nothing, sender.accumulator)
    assert response.throttle_time_ms == 55
    sender.send("t", b"v", partition=0)
    batches = drained(sender)
    if version < 13:
        one = ProduceRequestFrame(version, request_header(0, version, "me"), batches, -1, 1)
        assert not response.succeed_all(one, sender.accumulator)
        assert not batches[0].done
