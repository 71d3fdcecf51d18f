"""Produce requests and responses as frames: every version against the message's own codec, codecs, hostile answers."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame, ProduceResponseFrame
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy._speedups.records.memory_records import iter_batches
from kafkapy.clients.network_client import request_header
from kafkapy.errors import IllegalStateError, KafkaError
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.produce import ProduceResponse
from kafkapy.protocol.schema import DecodeError
from kafkapy.records.batches import iter_records

VERSIONS = range(3, 14)
IDS = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2**127 + 5)}
TopicResponse = ProduceResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse


def drained(*, transactional: bool = False) -> tuple[RecordAccumulator, list[ProducerBatch]]:
    """Batches of two topics, drained in an order that mixes them."""
    accumulator = RecordAccumulator(1 << 24, 20_000, 0, 1 << 20, [100])
    accumulator.idempotent = True
    accumulator.producer_id, accumulator.producer_epoch = 77, 3
    for topic in ("a", "b"):
        accumulator.topic(topic).update([(1, 0)] * 2)
    for topic, partition in (("a", 1), ("b", 0), ("a", 0)):
        for i in range(50):
            value = b"%s-%d value %d" % (topic.encode(), partition, i)
            accumulator.append(topic, partition, 1000 + i, b"key", value, [("h", b"x")])
    if transactional:
        accumulator.transactional = True
        for topic in ("a", "b"):
            for queue in accumulator.topic(topic).partitions:
                queue.in_transaction = True
    return accumulator, accumulator.drain(1, 1 << 20, 10**15)


def request(version: int, batches: list[ProducerBatch], **options: Any) -> ProduceRequestFrame:
    return ProduceRequestFrame(
        version, request_header(0, version, "client"), batches, -1, 4567, topic_ids=IDS, **options
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", range(5))
def test_a_request_is_what_the_message_says(version: int, codec: int) -> None:
    _, batches = drained(transactional=True)
    frame = request(version, batches, transactional_id="tx-ü", codec=codec, level=3)
    frame.correlation_id = 0x1234567
    encoded = frame.to_bytes()
    assert int.from_bytes(encoded[:4], "big") == len(encoded) - 4 == frame.bytes_encoded - 4
    header, decoded = decode_request(encoded[4:])
    assert (header.correlation_id, header.client_id, header.request_api_version) == (0x1234567, "client", version)
    assert (decoded.transactional_id, decoded.acks, decoded.timeout_ms) == ("tx-ü", -1, 4567)
    if version < 13:
        assert [topic.name for topic in decoded.topic_data] == ["a", "b"]
    else:
        assert [topic.topic_id for topic in decoded.topic_data] == [IDS["a"], IDS["b"]]
    assert [[part.index for part in topic.partition_data] for topic in decoded.topic_data] == [[1, 0], [0]]
    assert [(batch.topic, batch.partition) for batch in frame.batches] == [("a", 1), ("a", 0), ("b", 0)]
    for name, topic in zip("ab", decoded.topic_data, strict=True):
        for partition in topic.partition_data:
            (batch,) = iter_batches(bytes(partition.records), check_crc=True)
            assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 0)
            assert (batch.is_transactional, batch.is_control, batch.codec, batch.magic) == (True, False, codec, 2)
            assert (batch.base_offset, batch.last_offset_delta, batch.leader_epoch) == (0, 49, -1)
            assert (batch.base_timestamp, batch.max_timestamp, batch.timestamp_type) == (1000, 1049, 0)
            assert batch.delete_horizon_ms is None
            values = [record.value for record in iter_records(bytes(partition.records))]
            assert values == [b"%s-%d value %d" % (name.encode(), partition.index, i) for i in range(50)]


def test_a_request_encodes_the_same_again_with_other_sequences() -> None:
    _, batches = drained()
    frame = request(9, batches)
    first = frame.to_bytes()
    for batch in batches:
        batch.set_producer(77, 4, 1000, False)
    assert frame.to_bytes() == first  # what was made keeps the numbers it was made with
    _, decoded = decode_request(request(9, batches).to_bytes()[4:])
    (batch,) = iter_batches(bytes(decoded.topic_data[0].partition_data[0].records))
    assert (batch.producer_epoch, batch.base_sequence) == (4, 1000)


def test_a_request_of_complete_batches_or_unknown_versions_cannot_be_made() -> None:
    accumulator, batches = drained()
    for version in (2, 14):
        with pytest.raises(ValueError, match="version"):
            ProduceRequestFrame(version, request_header(0, 9, "c"), batches, -1, 1)
    with pytest.raises(ValueError, match="header"):
        ProduceRequestFrame(9, b"short", batches, -1, 1)
    with pytest.raises(ValueError, match="codec"):
        request(9, batches, codec=5)
    with pytest.raises(KeyError):
        ProduceRequestFrame(13, request_header(0, 13, "c"), batches, -1, 1, topic_ids={})
    accumulator.fail(batches[1], KafkaError("x"))
    with pytest.raises(IllegalStateError):
        request(9, batches)
    for batch in (batches[0], batches[2]):
        accumulator.succeed(batch, 0, -1)
    assert accumulator.pool.available == accumulator.pool.total


# --- responses ----------------------------------------------------------------------------------------------------


def response_to(frame: ProduceRequestFrame, version: int, **first: Any) -> ProduceResponse:
    """Success for every batch; `first` are fields of the first partition."""
    topics: dict[str, Any] = {}
    for index, batch in enumerate(frame.batches):
        topic = topics.get(batch.topic)
        if topic is None:
            topic = TopicResponse(name=batch.topic, topic_id=IDS[batch.topic], partition_responses=[])
            topics[batch.topic] = topic
        fields = {"index": batch.partition, "base_offset": 1000 * index, "log_append_time_ms": -1}
        topic.partition_responses.append(PartitionResponse(**{**fields, **(first if index == 0 else {})}))
    return ProduceResponse(responses=list(topics.values()), throttle_time_ms=42)


def parsed(response: ProduceResponse, version: int) -> ProduceResponseFrame:
    frame = ProduceResponseFrame(version)
    frame.feed(encode_response(0, version, 9, response))
    return frame


@pytest.mark.parametrize("version", VERSIONS)
def test_a_good_response_completes_every_batch(version: int) -> None:
    accumulator, batches = drained()
    frame = request(version, batches)
    response = parsed(response_to(frame, version, log_append_time_ms=5555), version)
    assert response.plain
    assert response.throttle_time_ms == 42
    assert response.succeed_all(frame, accumulator)
    assert [batch.base_offset for batch in frame.batches] == [0, 1000, 2000]
    assert [batch.log_append_time for batch in frame.batches] == [5555, -1, -1]
    assert not accumulator.incomplete
    assert accumulator.pool.available < accumulator.pool.total
    frame.release()
    frame.release()
    assert accumulator.pool.available == accumulator.pool.total


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_says_more_is_left_to_the_messages_decoder(version: int) -> None:
    accumulator, batches = drained()
    frame = request(version, batches)
    said: list[dict[str, Any]] = [{"error_code": 6, "base_offset": -1}]
    if version >= 8:
        said.append({"record_errors": [PartitionResponse.RecordError(batch_index=1)]})
    if version >= 10:
        said.append({"current_leader": PartitionResponse.LeaderIdAndEpoch(leader_id=2, leader_epoch=3)})
    for first in said:
        message = response_to(frame, version, **first)
        response = parsed(message, version)
        assert not response.plain
        assert not response.succeed_all(frame, accumulator)
        decoded = ProduceResponse.decode(response.body(), version)
        assert decoded.throttle_time_ms == 42
        assert decoded.responses[0].partition_responses[0].error_code == first.get("error_code", 0)
    assert len(accumulator.incomplete) == 3


def test_a_response_to_another_request_completes_nothing() -> None:
    accumulator, batches = drained()
    frame = request(9, batches)
    fitting = response_to(frame, 9)
    fewer = response_to(frame, 9)
    fewer.responses.pop()
    other_partition = response_to(frame, 9)
    other_partition.responses[0].partition_responses[0].index = 7
    other_topic = response_to(frame, 9)
    other_topic.responses[1].name = "c"
    for message in (fewer, other_partition, other_topic, ProduceResponse()):
        assert not parsed(message, 9).succeed_all(frame, accumulator)
    assert len(accumulator.incomplete) == 3
    assert parsed(fitting, 9).succeed_all(frame, accumulator)


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_torn_and_flipped_responses_never_complete_what_they_do_not_name(version: int) -> None:
    accumulator, batches = drained()
    frame = request(version, batches)
    whole = encode_response(0, version, 9, response_to(frame, version))
    for size in range(4, len(whole)):
        torn = ProduceResponseFrame(version)
        torn.feed(whole[:size])
        assert not torn.plain
        assert not torn.succeed_all(frame, accumulator)
    torn.feed(whole + b"\0")
    assert not torn.plain
    rng = random.Random(version)
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(4, len(data))] ^= 1 << rng.randrange(8)
        flipped = ProduceResponseFrame(version)
        flipped.feed(bytes(data))
        if flipped.plain:
            try:
                decoded = ProduceResponse.decode(flipped.body(), version)
            except DecodeError:
                assert not flipped.succeed_all(frame, accumulator)  # a topic's name that is no text
                continue
            codes = [each.error_code for topic in decoded.responses for each in topic.partition_responses]
            assert not any(codes)
    assert len(accumulator.incomplete) == 3
