"""Produce as a client sees it, in every served version, through the data plane's own code; and hostile bodies."""

from __future__ import annotations

import random
import struct
import time
from typing import Any
from uuid import UUID

import pytest

from kafkapy._speedups.base.event_queue import FLUSH_WANTED
from kafkapy._speedups.requests.produce import decode as produce_decode
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkapy.records.batches import iter_batches
from kafkapy.types import TimestampType

VERSIONS = range(14)


def random_request(source: random.Random, version: int) -> ProduceRequest:
    topics = []
    for _ in range(source.randrange(4)):
        partitions = [
            ProduceRequest.Topic.Partition(
                index=source.randrange(-(1 << 31), 1 << 31),
                records=source.choice([None, b"", source.randbytes(source.randrange(200))]),
            )
            for _ in range(source.randrange(4))
        ]
        topic = ProduceRequest.Topic(partition_data=partitions)
        if version >= 13:
            topic.topic_id = UUID(bytes=source.randbytes(16))
        else:
            topic.name = "".join(source.choice("abcäö.-_") for _ in range(source.randrange(200)))
        topics.append(topic)
    return ProduceRequest(
        transactional_id=source.choice([None, "", "tx" * source.randrange(100)]) if version >= 3 else None,
        acks=source.randrange(-32768, 32768),
        timeout_ms=source.randrange(-(1 << 31), 1 << 31),
        topic_data=topics,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_decoder_reads_what_the_protocol_layer_writes(version: int) -> None:
    source = random.Random(version)
    for _ in range(100):
        request = random_request(source, version)
        decoded = produce_decode.decode(version, request.encode(version))
        assert decoded == {
            "transactional_id": None if request.transactional_id is None else request.transactional_id.encode(),
            "acks": request.acks,
            "timeout_ms": request.timeout_ms,
            "topics": [
                (
                    topic.topic_id.bytes if version >= 13 else topic.name.encode(),
                    [(p.index, p.records) for p in topic.partition_data],
                )
                for topic in request.topic_data
            ],
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_appended_and_answered(broker: Any, version: int) -> None:
    logs = broker.topic("t", 3)
    broker.topic("other")
    reply = broker.produce(
        {"t": [(2, broker.batch(b"a", b"b")), (0, broker.batch(b"c"))], "other": [(0, broker.batch())]}, version=version
    )
    assert reply.throttle_time_ms == 0
    assert [(index, e.error_code, e.base_offset) for (_, index), e in broker.by_partition(reply).items()] == [
        (2, 0, 0),
        (0, 0, 0),
        (0, 0, 0),
    ]
    reply = broker.produce({"t": [(2, broker.batch(b"d"))]}, version=version)
    entry = broker.only(reply)
    assert entry.base_offset == 2
    assert entry.log_append_time_ms == -1
    assert entry.log_start_offset == (0 if version >= 5 else -1)
    assert [log.log_end_offset for log in logs] == [1, 0, 3]


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_requests_are_answered_empty(broker: Any, version: int) -> None:
    assert broker.produce({}, version=version).responses == []
    broker.topic("t")
    (topic,) = broker.produce({"t": []}, version=version).responses
    assert topic.partition_responses == []


@pytest.mark.parametrize("version", [-1, 14, 100])
def test_versions_that_are_not_served_close_the_connection(broker: Any, version: int) -> None:
    exchange = broker.driver.handle(0, version, 1, None, b"")
    assert exchange.kind == "close"
    assert "version" in exchange.message


@pytest.mark.parametrize("version", [3, 9, 12])
def test_unknown_topics_and_partitions(broker: Any, version: int) -> None:
    broker.topic("t")
    reply = broker.produce(
        {"nowhere": [(0, broker.batch())], "t": [(0, broker.batch()), (1, broker.batch()), (-1, broker.batch())]},
        version=version,
    )
    codes = {key: entry.error_code for key, entry in broker.by_partition(reply).items()}
    assert codes == {("nowhere", 0): 3, ("t", 0): 0, ("t", 1): 3, ("t", -1): 3}
    assert broker.by_partition(reply)["t", 1].base_offset == -1


def test_an_unknown_topic_id(broker: Any) -> None:
    reply = broker.produce({"nowhere": [(0, broker.batch())]}, version=13)
    assert broker.only(reply).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("records", [None, b""])
def test_a_partition_without_records_is_invalid(broker: Any, records: bytes | None) -> None:
    (log,) = broker.topic("t")
    reply = broker.produce({"t": [(0, records)]}, version=9)
    assert broker.only(reply).error_code == ErrorCode.INVALID_RECORD
    assert broker.only(reply).error_message
    assert log.log_end_offset == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_out_of_range_fail_every_partition_that_exists(broker: Any, acks: int) -> None:
    logs = broker.topic("t", 2)
    reply = broker.produce(
        {"t": [(0, broker.batch()), (1, broker.batch())], "nowhere": [(0, broker.batch())]}, version=9, acks=acks
    )
    codes = [entry.error_code for entry in broker.by_partition(reply).values()]
    assert codes == [ErrorCode.INVALID_REQUIRED_ACKS] * 2 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [log.log_end_offset for log in logs] == [0, 0]


def test_acks_0_has_no_reply_and_closes_on_error(broker: Any) -> None:
    (log,) = broker.topic("t")
    assert broker.send(broker.produce_request({"t": [(0, broker.batch())]}, version=9, acks=0), 9).kind == "no_reply"
    assert log.log_end_offset == 1
    exchange = broker.send(broker.produce_request({"t": [(1, broker.batch())]}, version=9, acks=0), 9)
    assert exchange.kind == "close"
    assert "acks=0" in exchange.message


def test_of_several_entries_for_one_partition_the_last_one_counts_and_is_answered(broker: Any) -> None:
    (log,) = broker.topic("t")
    reply = broker.produce({"t": [(0, broker.batch(b"first")), (0, broker.batch(b"second"))]}, version=9)
    (topic,) = reply.responses
    assert [(entry.index, entry.base_offset) for entry in topic.partition_responses] == [(0, 0)]
    assert log.log_end_offset == 1


def test_of_very_many_entries_for_one_partition_the_last_one_counts_and_is_answered(broker: Any) -> None:
    first, second = broker.topic("t", 2)
    entries = [(0, broker.batch(b"value")), (1, broker.batch(b"value"))] * 50 + [(7, broker.batch(b"value"))] * 50
    reply = broker.produce({"t": entries}, version=9)
    (topic,) = reply.responses
    answered = {entry.index: (entry.error_code, entry.base_offset) for entry in topic.partition_responses}
    assert answered == {0: (0, 0), 1: (0, 0), 7: (3, -1)}
    assert len(topic.partition_responses) == 3
    assert (first.log_end_offset, second.log_end_offset) == (1, 1)


def test_a_corrupt_batch_is_refused_and_its_neighbour_is_not(broker: Any) -> None:
    logs = broker.topic("t", 2)
    bad = bytearray(broker.batch())
    bad[-1] ^= 1
    reply = broker.produce({"t": [(0, bytes(bad)), (1, broker.batch())]}, version=9)
    assert [e.error_code for e in broker.by_partition(reply).values()] == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    assert [log.log_end_offset for log in logs] == [0, 1]


def test_internal_topics_are_for_the_admin_client_only(broker: Any) -> None:
    broker.topic("__consumer_offsets")
    request = broker.produce_request({"__consumer_offsets": [(0, broker.batch())]}, version=9)
    assert broker.only(broker.produce_reply(broker.send(request, 9), 9)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (
        broker.only(broker.produce_reply(broker.send(request, 9, client_id=None), 9)).error_code
        == ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    assert (
        broker.only(broker.produce_reply(broker.send(request, 9, client_id="__admin_client"), 9)).error_code
        == ErrorCode.NONE
    )


@pytest.mark.parametrize("version", [7, 8, 9, 13])
def test_record_errors_name_the_records(broker: Any, version: int) -> None:
    (log,) = broker.topic("t", cleanup_policy=["compact"])
    reply = broker.produce({"t": [(0, broker.batch(b"a", b"b", key=None))]}, version=version)
    entry = broker.only(reply)
    assert entry.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in entry.record_errors] == ([0, 1] if version >= 8 else [])
    if version >= 8:
        assert entry.error_message
        assert all("key" in error.batch_index_error_message for error in entry.record_errors)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("version", [3, 13])
def test_log_append_time_is_told(broker: Any, version: int) -> None:
    broker.topic("t", message_timestamp_type="LogAppendTime")
    assert (
        broker.only(broker.produce({"t": [(0, broker.batch())]}, version=version)).log_append_time_ms
        > 1_700_000_000_000
    )


def test_a_repeated_idempotent_batch_is_answered_with_its_first_offset(broker: Any) -> None:
    (log,) = broker.topic("t")
    batch = broker.batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        entry = broker.only(broker.produce({"t": [(0, batch)]}, version=9, acks=-1))
        assert (entry.error_code, entry.base_offset) == (0, 0)
    assert log.log_end_offset == 2
    gap = broker.batch(b"c", producer_id=5, producer_epoch=0, base_sequence=9)
    assert (
        broker.only(broker.produce({"t": [(0, gap)]}, version=9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


# ---- authorization ----


def test_all_questions_are_asked_at_once(broker: Any) -> None:
    logs = [*broker.topic("a"), *broker.topic("b")]
    broker.plane.authorizer_epoch = 3
    batch = broker.batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    request = broker.produce_request(
        {"a": [(0, batch)], "b": [(0, batch)], "hidden": [(0, batch)]}, version=9, transactional_id="tx"
    )
    exchange = broker.send(request, 9)
    assert exchange.kind == "ask"
    assert sorted(exchange.questions) == [b"\x04\x01tx", b"\x04a", b"\x04b", b"\x04hidden"]
    assert [log.log_end_offset for log in logs] == [0, 0]
    broker.driver.decide({b"\x04\x01tx": True, b"\x04a": True, b"\x04b": False, b"\x04hidden": False})
    assert exchange.resume().asks_verification, "then the transaction coordinator is asked about what is allowed"
    exchange.confirm_transaction(0)
    codes = {key[0]: e.error_code for key, e in broker.by_partition(broker.produce_reply(exchange.resume(), 9)).items()}
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes == {"a": 0, "b": denied, "hidden": denied}
    assert [log.log_end_offset for log in logs] == [1, 0]


def test_topic_ids_are_authorized_by_name(broker: Any) -> None:
    broker.topic("a")
    broker.plane.authorizer_epoch = 3
    exchange = broker.send(
        broker.produce_request({"a": [(0, broker.batch())], "nowhere": [(0, broker.batch())]}, version=13), 13
    )
    assert exchange.questions == [b"\x04a"]
    broker.driver.decide({b"\x04a": False})
    codes = [e.error_code for e in broker.by_partition(broker.produce_reply(exchange.resume(), 13)).values()]
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_a_transactional_batch_needs_an_allowed_transactional_id(broker: Any, transactional_id: str | None) -> None:
    (log,) = broker.topic("a")
    broker.plane.authorizer_epoch = 3
    broker.driver.decide({b"\x04a": True, b"\x04\x01tx": False})
    batch = broker.batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    reply = broker.produce({"a": [(0, batch)]}, version=9, transactional_id=transactional_id)
    assert broker.only(reply).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert log.log_end_offset == 0


# ---- parking ----


def test_acks_all_waits_for_the_in_sync_replicas(broker: Any) -> None:
    (log,) = broker.topic("t", isr=(1, 2))
    exchange = broker.send(broker.produce_request({"t": [(0, broker.batch(b"a", b"b"))]}, version=9, acks=-1), 9)
    assert exchange.kind == "parked"
    assert exchange.deadline_ns > 0
    assert log.log_end_offset == 2
    log.follower_position(2, 1)
    assert exchange.resume().kind == "parked"
    log.follower_position(2, 2)
    assert exchange.wakes == 1
    entry = broker.only(broker.produce_reply(exchange.resume(), 9))
    assert (entry.error_code, entry.base_offset) == (0, 0)


def test_a_duplicate_waits_for_the_replicas_of_its_own_batch(broker: Any) -> None:
    """Its first request may have been answered by nobody: that it is in the log does not make it safe."""
    (log,) = broker.topic("t", isr=(1, 2))
    batches = [
        broker.batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=sequence) for sequence in (0, 2)
    ]

    def send(data: bytes) -> Any:
        return broker.send(broker.produce_request({"t": [(0, data)]}, version=9, acks=-1), 9)

    for data in batches:
        assert send(data).kind == "parked"
    first, second = map(send, batches)
    assert (first.kind, second.kind, log.log_end_offset) == ("parked", "parked", 4)
    log.follower_position(2, 1)
    assert first.resume().kind == "parked"
    log.follower_position(2, 2)
    entry = broker.only(ProduceResponse.decode(first.resume().reply[9:], 9))
    assert (entry.error_code, entry.base_offset) == (0, 0)
    log.follower_position(2, 3)
    assert second.resume().kind == "parked"
    log.follower_position(2, 4)
    entry = broker.only(ProduceResponse.decode(second.resume().reply[9:], 9))
    assert (entry.error_code, entry.base_offset) == (0, 2)


def test_acks_1_does_not_wait(broker: Any) -> None:
    broker.topic("t", isr=(1, 2))
    assert broker.only(broker.produce({"t": [(0, broker.batch())]}, acks=1)).error_code == 0


@pytest.mark.parametrize("timeout_ms", [30_000, 0, -5])
def test_acks_all_times_out(broker: Any, timeout_ms: int) -> None:
    broker.topic("t", isr=(1, 2))
    exchange = broker.send(
        broker.produce_request({"t": [(0, broker.batch())]}, version=9, acks=-1, timeout_ms=timeout_ms), 9
    )
    if timeout_ms > 0:
        assert exchange.kind == "parked"
        exchange.resume(timed_out=True)
    assert broker.only(broker.produce_reply(exchange, 9)).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_acks_all_ends_when_leadership_is_lost(broker: Any) -> None:
    (log,) = broker.topic("t", isr=(1, 2))
    exchange = broker.send(broker.produce_request({"t": [(0, broker.batch())]}, version=10, acks=-1), 10)
    log.become_follower(2, 1)
    assert exchange.wakes == 1
    entry = broker.only(broker.produce_reply(exchange.resume(), 10))
    assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (2, 1)


def test_only_the_partition_that_waits_decides_when(broker: Any) -> None:
    (waiting,) = broker.topic("waiting", isr=(1, 2))
    broker.topic("done")
    request = broker.produce_request(
        {"done": [(0, broker.batch())], "waiting": [(0, broker.batch())], "nowhere": [(0, broker.batch())]},
        version=9,
        acks=-1,
    )
    exchange = broker.send(request, 9)
    assert exchange.kind == "parked"
    waiting.follower_position(2, 1)
    codes = {key[0]: e.error_code for key, e in broker.by_partition(broker.produce_reply(exchange.resume(), 9)).items()}
    assert codes == {"done": 0, "waiting": 0, "nowhere": 3}


def test_a_cancelled_produce_leaves_no_waiter(broker: Any) -> None:
    (log,) = broker.topic("t", isr=(1, 2))
    exchange = broker.send(broker.produce_request({"t": [(0, broker.batch())]}, version=9, acks=-1), 9)
    exchange.cancel()
    log.follower_position(2, 1)
    assert exchange.wakes == 0


def test_a_full_segment_parks_and_finished_partitions_are_not_appended_again(broker: Any) -> None:
    (full,) = broker.topic("full", segment_bytes=300)
    (other,) = broker.topic("other")
    broker.produce({"full": [(0, broker.batch(b"x" * 150))]})
    batch = broker.batch(b"y" * 150)
    request = broker.produce_request({"other": [(0, batch)], "full": [(0, batch)]}, version=9)
    exchange = broker.send(request, 9)
    assert exchange.kind == "parked"
    assert (full.log_end_offset, other.log_end_offset) == (1, 1)
    assert exchange.resume().kind == "parked"
    full.prepare_segment()
    assert exchange.wakes == 1
    exchange.resume()
    while exchange.kind == "parked":
        full.prepare_segment()
        exchange.resume()
    offsets = [
        (key, e.error_code, e.base_offset) for key, e in broker.by_partition(broker.produce_reply(exchange, 9)).items()
    ]
    assert offsets == [(("other", 0), 0, 0), (("full", 0), 0, 1)]
    assert (full.log_end_offset, other.log_end_offset) == (2, 1)
    assert b"y" * 150 in full.read(1)[0]


@pytest.mark.parametrize("acks", (1, -1))
@pytest.mark.parametrize("timeout_ms", (0, 30_000))
def test_a_flush_that_is_due_is_waited_for(broker: Any, acks: int, timeout_ms: int) -> None:
    """A worker does it (Kafka: the thread that appends); the client's timeout is for replicas, not for the disk."""
    (log,) = broker.topic("t", flush_messages=2)
    (other,) = broker.topic("other")
    assert broker.only(broker.produce({"t": [(0, broker.batch())]}, acks=acks, timeout_ms=timeout_ms)).error_code == 0
    assert flushes_wanted(broker) == 0
    request = broker.produce_request(
        {"t": [(0, broker.batch())], "other": [(0, broker.batch())]}, version=9, acks=acks, timeout_ms=timeout_ms
    )
    exchange = broker.send(request, 9)
    assert exchange.kind == "parked"
    assert (log.log_end_offset, other.log_end_offset) == (2, 1)
    assert flushes_wanted(broker) == 1
    assert exchange.resume().kind == "parked"
    assert exchange.wakes == 0
    log.flush_due()
    assert exchange.wakes == 1
    assert log.unflushed_messages == 0
    found = broker.by_partition(broker.produce_reply(exchange.resume(), 9))
    assert {key: (entry.error_code, entry.base_offset) for key, entry in found.items()} == {
        ("t", 0): (0, 1), ("other", 0): (0, 0)
    }  # fmt: skip
    assert broker.only(broker.produce({"t": [(0, broker.batch())]}, acks=acks, timeout_ms=timeout_ms)).error_code == 0
    # A batch that comes again waits for the flush of the first one, and acks=0 for nothing.
    batch = broker.batch(producer_id=5, producer_epoch=0, base_sequence=0)
    assert broker.send(broker.produce_request({"t": [(0, batch)]}, version=9, acks=0), 9).kind == "no_reply"
    again = broker.send(broker.produce_request({"t": [(0, batch)]}, version=9, acks=acks), 9)
    assert again.kind == "parked"
    log.flush_due()
    assert broker.only(broker.produce_reply(again.resume(), 9)).base_offset == 3


def test_a_flush_that_fails_or_never_comes_is_told(broker: Any) -> None:
    (log,) = broker.topic("t", flush_messages=1)
    exchange = broker.send(broker.produce_request({"t": [(0, broker.batch())]}, version=9), 9)
    assert exchange.kind == "parked"
    entry = broker.only(broker.produce_reply(exchange.resume(timed_out=True), 9))
    assert entry.error_code == ErrorCode.REQUEST_TIMED_OUT
    exchange = broker.send(broker.produce_request({"t": [(0, broker.batch())]}, version=9), 9)
    log.go_offline(5)
    assert exchange.wakes == 1
    entry = broker.only(broker.produce_reply(exchange.resume(), 9))
    assert entry.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_what_was_truncated_is_not_waited_for(broker: Any) -> None:
    (log,) = broker.topic("t", flush_messages=2)
    for _ in range(2):
        exchange = broker.send(broker.produce_request({"t": [(0, broker.batch())]}, version=9), 9)
    assert exchange.kind == "parked"
    log.become_follower(2, 1)
    assert exchange.wakes == 1
    assert broker.only(broker.produce_reply(exchange.resume(), 9)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    log.truncate_to(0)
    log.update_config(broker.log_config())
    log.become_leader(1, 2, [1])
    assert broker.only(broker.produce({"t": [(0, broker.batch())]})).base_offset == 0


def flushes_wanted(broker: Any) -> int:
    """How often the control plane was asked since the last call."""
    return [event[0] for event in broker.events.drain()].count(FLUSH_WANTED)


def test_a_parked_batch_gets_the_time_of_its_append(broker: Any) -> None:
    """It was stamped with LogAppendTime before it parked, and a batch that a client has marked so is refused."""
    (full,) = broker.topic("full", segment_bytes=300, message_timestamp_type="LogAppendTime")
    broker.produce({"full": [(0, broker.batch(b"x" * 150))]})
    exchange = broker.send(broker.produce_request({"full": [(0, broker.batch(b"y" * 150))]}, version=9), 9)
    assert exchange.kind == "parked"
    assert exchange.resume().kind == "parked"
    full.prepare_segment()
    entry = broker.only(broker.produce_reply(exchange.resume(), 9))
    assert (entry.error_code, entry.base_offset) == (0, 1)
    (stored,) = iter_batches(full.read(1)[0], check_crc=True)
    assert stored.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert entry.log_append_time_ms == stored.max_timestamp > 1_700_000_000_000


def test_a_segment_that_never_comes_times_out_without_a_trace(broker: Any) -> None:
    (full,) = broker.topic("full", segment_bytes=300)
    broker.produce({"full": [(0, broker.batch(b"x" * 150))]})
    exchange = broker.send(broker.produce_request({"full": [(0, broker.batch(b"y" * 150))]}, version=9), 9)
    assert exchange.kind == "parked"
    entry = broker.only(broker.produce_reply(exchange.resume(timed_out=True), 9))
    assert (entry.error_code, entry.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    full.prepare_segment()
    assert exchange.wakes == 0
    assert full.log_end_offset == 1


@pytest.mark.parametrize("answer", ["good", "replace", "refuse"])
def test_records_that_python_must_convert(broker: Any, answer: str) -> None:
    (log,) = broker.topic("t", compression_type="zstd")
    batch = broker.batch(b"v" * 100, codec=1)
    request = broker.produce_request({"nowhere": [(0, batch)], "t": [(0, batch)]}, version=9)
    exchange = broker.send(request, 9)
    assert exchange.asks_validation
    assert exchange.questions == [b"1"]
    assert exchange.records(1) == batch
    with pytest.raises(KeyError):
        exchange.records(0)
    if answer == "good":
        exchange.replace_records(1, None)
    elif answer == "replace":
        exchange.replace_records(1, broker.batch(b"w", b"w"))
    else:
        exchange.refuse_records(1, ErrorCode.INVALID_RECORD, "no key", [0])
    entry = broker.by_partition(broker.produce_reply(exchange.resume(), 9))["t", 0]
    if answer == "refuse":
        assert (entry.error_code, entry.error_message) == (ErrorCode.INVALID_RECORD, "no key")
        assert [(e.batch_index, e.batch_index_error_message) for e in entry.record_errors] == [(0, "no key")]
        assert log.log_end_offset == 0
    else:
        assert entry.error_code == 0
        assert log.log_end_offset == (1 if answer == "good" else 2)


# ---- hostile bytes ----


def full_request(broker: Any, version: int) -> bytes:
    request = broker.produce_request(
        {"t": [(0, broker.batch(b"a" * 20)), (1, broker.batch(b"b"))], "u": [(0, None)]},
        version=version,
        transactional_id="tx" if version >= 3 else None,
    )
    return bytes(request.encode(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_cut_anywhere_closes_and_appends_nothing(broker: Any, version: int) -> None:
    logs = broker.topic("t", 2)
    body = full_request(broker, version)
    for end in range(len(body)):
        assert broker.driver.handle(0, version, 1, None, body[:end]).kind == "close"
    for more in (b"\0", b"\xff", b"\0" * 30):
        assert broker.driver.handle(0, version, 1, None, body + more).kind == "close"
    assert [log.log_end_offset for log in logs] == [0, 0]
    assert broker.driver.handle(0, version, 1, None, body).kind == "reply"


@pytest.mark.parametrize("version", VERSIONS)
def test_flipped_bits_never_harm(broker: Any, version: int) -> None:
    source = random.Random(version)
    (log,) = broker.topic("t", 2)[:1]
    body = full_request(broker, version)
    for _ in range(1000):
        spoiled = bytearray(body)
        for _ in range(source.choice([1, 1, 2, 5])):
            spoiled[source.randrange(len(spoiled))] ^= 1 << source.randrange(8)
        exchange = broker.driver.handle(0, version, 1, None, bytes(spoiled))
        while exchange.kind == "ask" and version < 3:  # a message set now
            for question in exchange.questions:
                exchange.refuse_records(int(question), ErrorCode.CORRUPT_MESSAGE)
            exchange.resume()
        assert exchange.kind in ("reply", "close", "no_reply")
    reply = broker.only(broker.produce({"t": [(0, broker.batch())]}, version=version))
    assert reply.error_code == 0
    assert log.log_end_offset == reply.base_offset + 1


@pytest.mark.parametrize("version", VERSIONS)
def test_lying_lengths_are_not_believed(broker: Any, version: int) -> None:
    huge = b"\xff\xff\xff\xff\x0f" if version >= 9 else struct.pack(">i", 0x7FFFFFFF)
    no_transaction = b"\0" if version >= 9 else b"\xff\xff" if version >= 3 else b""
    head = no_transaction + struct.pack(">hi", 1, 1000)
    assert broker.driver.handle(0, version, 1, None, head + huge).kind == "close"
    assert broker.driver.handle(0, version, 1, None, head + huge + b"\0" * 1000).kind == "close"


@pytest.mark.parametrize("place", [-1, -2, -3], ids=["request", "topic", "partition"])
@pytest.mark.parametrize("version", range(9, 14))
def test_a_section_has_at_most_10000_tagged_fields(broker: Any, version: int, place: int) -> None:
    (log,) = broker.topic("t")
    body = broker.produce_request({"t": [(0, broker.batch())]}, version=version).encode(version)
    head, tail = body[:place], body[len(body) + place + 1 :]
    assert body[place] == 0
    for count, kind in ((10_000, "reply"), (10_001, "close"), (0xFFFFFFFF, "close")):
        assert broker.driver.handle(0, version, 1, None, head + tags(count) + tail).kind == kind
    assert log.log_end_offset == 1


def tags(count: int) -> bytes:
    """A section of so many empty fields that nobody knows, or no more than the first 20,000 of them."""
    return varint(count) + b"".join(varint(1000 + i) + b"\0" for i in range(min(count, 20_000)))


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("count", [3, 17, 5000])
def test_repeated_partitions_are_found_whatever_topics_and_order(broker: Any, count: int) -> None:
    source = random.Random(count)
    last: dict[tuple[str, int], int] = {}
    request = broker.produce_request({}, version=9)
    for number in range(count):
        name, index = f"unknown-{source.randrange(3)}", source.randrange(count // 3)
        entry = type(request).Topic.Partition(index=index, records=broker.batch() if number < 20 else b"")
        request.topic_data.append(type(request).Topic(name=name, partition_data=[entry]))
        last[name, index] = number
    exchange = broker.send(request, 9)
    while exchange.kind == "parked":
        exchange.resume()
    reply = broker.produce_reply(exchange, 9)
    answered = [(topic.name, entry.index) for topic in reply.responses for entry in topic.partition_responses]
    assert sorted(answered) == sorted(last)


def test_no_choice_of_partitions_makes_a_request_dear() -> None:
    """Multiples of a size that the standard library's hash tables take are all in one bucket of it."""

    def cost(indexes: list[int]) -> float:
        entries = [ProduceRequest.Topic.Partition(index=index, records=None) for index in indexes]
        body = ProduceRequest(acks=1, timeout_ms=1, topic_data=[ProduceRequest.Topic(name="t", partition_data=entries)])
        encoded = body.encode(9)
        tries = []
        for _ in range(3):
            before = time.thread_time()
            assert produce_decode.decode(9, encoded) is not None
            tries.append(time.thread_time() - before)
        return min(tries)

    count, buckets = 40_000, 42_043
    chosen = [number * buckets for number in range(count, 0, -1)]
    assert cost(chosen) < 10 * cost(list(range(count, 0, -1)))
