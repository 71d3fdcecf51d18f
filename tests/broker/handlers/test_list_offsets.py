"""ListOffsets as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.transactions import Producer

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def request(topic: str, *timestamps: int, partition: int = 0, epoch: int = -1, **fields: Any) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=each, current_leader_epoch=epoch)
        for each in timestamps
    ]
    topics = [ListOffsetsRequest.Topic(name=topic, partitions=partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=topics, **fields)


def ask(client: Any, topic: str, timestamp: int, version: int, **fields: Any) -> Any:
    return client(request(topic, timestamp, **fields), version).topics[0].partitions[0]


@pytest.fixture
def topic(client: Any, topic_name: str) -> str:
    """Six records at offsets 0 to 5; the newest timestamp is at offset 3."""
    client.create_topic(topic_name)
    client.produce(topic_name, [(1000, b"a"), (2000, b"b")])
    client.produce(topic_name, [(3000, b"c"), (9000, b"d")])
    client.produce(topic_name, [(4000, b"e"), (5000, b"f")])
    return topic_name


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_knows_earliest_latest_and_timestamps(client: Any, topic: str, version: int) -> None:
    found = [(each.timestamp, each.offset) for each in (ask(client, topic, t, version) for t in (EARLIEST, LATEST))]
    assert found == [(-1, 0), (-1, 6)]
    for timestamp, expected in ((0, (1000, 0)), (1500, (2000, 1)), (3000, (3000, 2)), (4500, (9000, 3))):
        answer = ask(client, topic, timestamp, version)
        assert (answer.error_code, answer.timestamp, answer.offset) == (ErrorCode.NONE, *expected)
    after = ask(client, topic, 10_000, version)
    assert (after.error_code, after.timestamp, after.offset) == (ErrorCode.NONE, -1, -1)


def test_version_0_answers_with_a_list(client: Any, topic: str) -> None:
    asked = request(topic, LATEST)
    asked.topics[0].partitions[0].max_num_offsets = 10
    assert client(asked, 0).topics[0].partitions[0].old_style_offsets == [6, 0]
    asked.topics[0].partitions[0].timestamp = EARLIEST
    assert client(asked, 0).topics[0].partitions[0].old_style_offsets == [0]


def test_the_newest_timestamp_is_found(client: Any, topic: str) -> None:
    answer = ask(client, topic, MAX_TIMESTAMP, 7)
    assert (answer.timestamp, answer.offset) == (9000, 3)


def test_an_empty_partition_has_no_newest_timestamp(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    answer = ask(client, topic_name, MAX_TIMESTAMP, 7)
    assert (answer.error_code, answer.timestamp, answer.offset) == (ErrorCode.NONE, -1, -1)


def test_places_of_tiered_storage_without_it(client: Any, topic: str) -> None:
    assert ask(client, topic, EARLIEST_LOCAL, 8).offset == 0
    for timestamp, version in ((LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11)):
        answer = ask(client, topic, timestamp, version)
        assert (answer.error_code, answer.timestamp, answer.offset) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING_UPLOAD, 10), (-99, 11)],
)
def test_places_a_version_does_not_know_are_refused(client: Any, topic: str, timestamp: int, version: int) -> None:
    assert ask(client, topic, timestamp, version).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_leader_epoch_comes_from_version_4_on(client: Any, topic: str) -> None:
    assert ask(client, topic, LATEST, 4).leader_epoch == 0
    assert ask(client, topic, 1500, 11).leader_epoch == 0


def test_an_epoch_the_broker_does_not_have_is_refused(client: Any, topic: str) -> None:
    assert ask(client, topic, LATEST, 4, epoch=7).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(client, topic, LATEST, 4, epoch=-2).error_code == ErrorCode.FENCED_LEADER_EPOCH, "only -1 is no epoch"
    assert ask(client, topic, LATEST, 4, epoch=0).error_code == ErrorCode.NONE


def test_unknown_topics_and_partitions(client: Any, topic: str, topic_name: str) -> None:
    assert ask(client, "no-" + topic_name, LATEST, 11).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(client, topic, LATEST, 11, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_asked_for_twice_is_refused(client: Any, topic: str) -> None:
    answers = client(request(topic, LATEST, EARLIEST), 11).topics[0].partitions
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_REQUEST], "one answer, as Kafka 4 gives"


def test_version_0_begins_at_the_log_start(client: Any, topic: str) -> None:
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=3)
    topics = [DeleteRecordsRequest.Topic(name=topic, partitions=[partition])]
    assert client(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2).topics[0].partitions[0].low_watermark == 3
    assert ask(client, topic, EARLIEST, 0).old_style_offsets == [3]


def test_a_replica_that_is_not_assigned_sees_what_a_consumer_sees(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    transaction = Producer(client, f"{topic_name}-open")
    transaction.add((topic_name, [0]))
    transaction.produce(topic_name, b"uncommitted")
    for replica_id, offset in ((-1, 0), (77, 0), (0x7FFFFFFF, 0), (-2, 1)):
        for timestamp, expected in ((LATEST, offset), (MAX_TIMESTAMP, offset - 1)):
            asked = request(topic_name, timestamp, isolation_level=1)
            asked.replica_id = replica_id
            answer = client(asked, 7).topics[0].partitions[0]
            assert (answer.error_code, answer.offset) == (ErrorCode.NONE, expected)


@pytest.mark.parametrize("level", [2, -1, 127])
def test_an_isolation_level_that_does_not_exist_is_an_invalid_request(client: Any, topic: str, level: int) -> None:
    assert ask(client, topic, EARLIEST, 5, isolation_level=level).error_code == ErrorCode.INVALID_REQUEST
