"""What producers that do and do not follow the protocol of transactions get from a broker (KIP-890), on the wire."""

from __future__ import annotations

import time
from typing import Any

import pytest
from broker.handlers.transactions import Producer, read_committed

from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType, TopicPartition

BROKER_RESOURCE = 4
SET = 0
OLD_VERSIONS = [3, 8, 9, 10, 11]


def request_of(
    client: Any, producer: Producer, topic: str, version: int, value: bytes, sequence: int, acks: int = -1
) -> ProduceRequest:
    builder = RecordBatchBuilder()
    builder.append(time.time_ns() // 1_000_000, None, value)
    records = builder.build(
        CompressionType.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    named = ProduceRequest.Topic(partition_data=[ProduceRequest.Topic.Partition(index=0, records=records)])
    if version >= 13:
        named.topic_id = client.topic_ids[topic]
    else:
        named.name = topic
    return ProduceRequest(transactional_id=producer.name, acks=acks, timeout_ms=10_000, topic_data=[named])


def produce(
    client: Any, producer: Producer, topic: str, version: int, value: bytes = b"x", sequence: int = 0
) -> tuple[ErrorCode, str | None]:
    """One transactional record; the error and what was said about it."""
    response = client(request_of(client, producer, topic, version, value, sequence), version)
    answered = response.responses[0].partition_responses[0]
    return ErrorCode(answered.error_code), answered.error_message if version >= 8 else None


def log_of(broker: Any, topic: str) -> Any:
    return broker.context.replica_manager.log(TopicPartition(topic, 0))


@pytest.fixture
def topic(client: Any, topic_name: str) -> str:
    client.topic_ids = {topic_name: client.create_topic(topic_name)}
    return topic_name


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_a_producer_that_adds_no_partition_gets_nothing_into_the_log(
    client: Any, broker: Any, topic: str, version: int
) -> None:
    producer = Producer(client, f"verified-{topic}")
    code, message = produce(client, producer, topic, version)
    assert code is (ErrorCode.TRANSACTION_ABORTABLE if version == 11 else ErrorCode.INVALID_TXN_STATE)
    assert version < 8 or message
    assert log_of(broker, topic).log_end_offset == 0
    assert log_of(broker, topic).producers() == []
    producer.add((topic, [0]))
    assert produce(client, producer, topic, version)[0] is ErrorCode.NONE
    assert produce(client, producer, topic, version, sequence=1)[0] is ErrorCode.NONE
    producer.end()
    producer.wait_for("CompleteCommit")
    # What comes after the marker would be in no transaction again.
    assert produce(client, producer, topic, version, sequence=2)[0] is code
    assert read_committed(client, topic) == ([b"x", b"x"], 3)


@pytest.mark.parametrize("version", [3, 11, 12])
def test_who_is_not_the_producer_of_the_id_gets_nothing_into_the_log(
    client: Any, broker: Any, topic: str, version: int
) -> None:
    name = f"verified-{topic}"
    zombie = Producer(client, name)
    current = Producer(client, name)
    current.add((topic, [0]))
    assert produce(client, zombie, topic, version)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    zombie.producer_id += 1_000_000
    assert produce(client, zombie, topic, version)[0] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    zombie.name = f"nobody-{topic}"
    assert produce(client, zombie, topic, version)[0] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    zombie.name = ""
    assert produce(client, zombie, topic, version)[0] is ErrorCode.INVALID_REQUEST
    assert log_of(broker, topic).log_end_offset == 0
    assert produce(client, current, topic, version)[0] is ErrorCode.NONE


@pytest.mark.parametrize("version", [12, 13])
def test_the_broker_adds_the_partition_and_each_transaction_has_its_epoch(
    client: Any, topic: str, version: int
) -> None:
    producer = Producer(client, f"adds-{topic}")
    for committed, value in ((True, b"1"), (False, b"2"), (True, b"3")):
        assert produce(client, producer, topic, version, value)[0] is ErrorCode.NONE
        described = producer.describe()
        assert (described.transaction_state, [each.topic for each in described.topics]) == ("Ongoing", [topic])
        ended = producer.end(committed, 5)
        assert (ended.error_code, ended.producer_epoch) == (ErrorCode.NONE, producer.epoch + 1)
        late, producer.epoch = producer.epoch, ended.producer_epoch
        producer.wait_for("CompleteCommit" if committed else "CompleteAbort")
        again = producer.end(committed, 5)
        assert again.error_code in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)
        if again.error_code == ErrorCode.NONE:  # an abort of nothing has an epoch of its own too
            producer.epoch = again.producer_epoch
            producer.wait_for("CompleteAbort")
        current, producer.epoch = producer.epoch, late
        assert produce(client, producer, topic, version, b"late", 1)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
        producer.epoch = current
    assert read_committed(client, topic) == ([b"1", b"3"], 6)


@pytest.mark.parametrize("version", [11, 12])
def test_a_transaction_that_is_being_ended_is_waited_for(
    client: Any, broker: Any, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(client, f"busy-{topic}")
    producer.add((topic, [0]))
    assert produce(client, producer, topic, version)[0] is ErrorCode.NONE
    client.create_topic(f"{topic}-next")
    markers = broker.context.coordinators.markers
    away = Later.failure(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with monkeypatch.context() as patch:
        patch.setattr(markers, "write", lambda *_: away)
        ended = producer.end(version=5 if version == 12 else 3)
        if version == 12:
            producer.epoch = ended.producer_epoch
        code, message = produce(client, producer, f"{topic}-next", version)
        if version == 12:
            assert code is ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            assert code is ErrorCode.NOT_ENOUGH_REPLICAS, "which older clients try again after"
            assert message is not None
            assert "CONCURRENT_TRANSACTIONS" in message
        assert log_of(broker, f"{topic}-next").log_end_offset == 0
    producer.wait_for("CompleteCommit")
    if version < 12:
        producer.add((f"{topic}-next", [0]))
    assert produce(client, producer, f"{topic}-next", version)[0] is ErrorCode.NONE


def test_a_refused_batch_without_acks_closes_the_connection(client: Any, connect: Any, broker: Any, topic: str) -> None:
    producer = Producer(client, f"verified-{topic}")
    other = connect()
    other.send_frame(encode_request(0, 9, 1, "test", request_of(client, producer, topic, 9, b"x", 0, acks=0)))
    assert other.is_closed()
    assert log_of(broker, topic).log_end_offset == 0


def test_a_client_that_goes_away_while_the_coordinator_is_asked_does_no_harm(
    client: Any, connect: Any, broker: Any, topic: str
) -> None:
    producer = Producer(client, f"verified-{topic}")
    for _ in range(20):
        other = connect()
        other.send_frame(encode_request(0, 9, 1, "test", request_of(client, producer, topic, 9, b"x", 0)))
        other.close()
    producer.add((topic, [0]))
    assert produce(client, producer, topic, 9)[0] is ErrorCode.NONE
    assert log_of(broker, topic).log_end_offset == 1


def alter(client: Any, key: str, value: str) -> None:
    config = IncrementalAlterConfigsRequest.Resource.Config(name=key, config_operation=SET, value=value)
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=BROKER_RESOURCE, resource_name="", configs=[config]
    )
    response = client(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert response.responses[0].error_code == ErrorCode.NONE, response.responses[0].error_message


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def test_verification_can_be_switched_off_and_on(client: Any, broker: Any, topic: str) -> None:
    key = "transaction.partition.verification.enable"
    plane = broker.socket_server.request_channel.plane
    producer = Producer(client, f"verified-{topic}")
    try:
        alter(client, key, "false")
        wait_until(lambda: not plane.verify_transactions)
        assert produce(client, producer, topic, 9)[0] is ErrorCode.NONE
        assert produce(client, producer, f"{topic}-not", 9)[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert producer.commit_offset("any-group", topic, 1, version=3) in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
    finally:
        alter(client, key, "true")
    wait_until(lambda: plane.verify_transactions)
    producer.add((topic, [0]))
    producer.end(committed=False)
    producer.wait_for("CompleteAbort")
    assert produce(client, producer, topic, 9, sequence=1)[0] is ErrorCode.INVALID_TXN_STATE
    assert read_committed(client, topic) == ([], 2)


def test_idle_producers_are_forgotten_as_soon_as_the_configuration_says(client: Any, broker: Any, topic: str) -> None:
    client.produce(topic, [(1, b"x")], producer_id=900_100, producer_epoch=0, base_sequence=0)
    log, manager = log_of(broker, topic), broker.context.log_manager
    manager.tasks.expire_producers()
    assert len(log.producers()) == 0, "its timestamp is of 1970"
    now = time.time_ns() // 1_000_000
    client.produce(topic, [(now, b"x")], producer_id=900_101, producer_epoch=0, base_sequence=0)
    manager.tasks.expire_producers()
    assert len(log.producers()) == 1
    try:
        alter(client, "producer.id.expiration.ms", "1")
        wait_until(lambda: manager.config.get_int("producer.id.expiration.ms") == 1)
        time.sleep(0.01)
        manager.tasks.expire_producers()
        assert len(log.producers()) == 0
    finally:
        alter(client, "producer.id.expiration.ms", "86400000")
