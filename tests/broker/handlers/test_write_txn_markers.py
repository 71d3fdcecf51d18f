"""WriteTxnMarkers as a transaction coordinator on another broker sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker.handlers.transactions import read_committed

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

Marker = WriteTxnMarkersRequest.Marker


def marker(producer_id: int, epoch: int, committed: bool, coordinator_epoch: int, *topics: tuple[str, int]) -> Marker:
    return Marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[Marker.Topic(name=name, partition_indexes=[partition]) for name, partition in topics],
        coordinator_epoch=coordinator_epoch,
    )


def write(client: Any, *markers: Marker, version: int = 1) -> list[tuple[int, str, int, ErrorCode]]:
    response = client(WriteTxnMarkersRequest(markers=list(markers)), version)
    return [
        (each.producer_id, topic.name, partition.partition_index, ErrorCode(partition.error_code))
        for each in response.markers
        for topic in each.topics
        for partition in topic.partitions
    ]


def produce(client: Any, topic: str, producer_id: int, value: bytes) -> None:
    client.produce(
        topic,
        [(1, value)],
        transactional_id="of another broker",
        producer_id=producer_id,
        producer_epoch=4,
        base_sequence=0,
        transactional=True,
    )


@pytest.fixture
def unverified(broker: Any) -> Iterator[None]:
    """The coordinator of these producers is another broker's, so this one's is not asked about them."""
    plane = broker.socket_server.request_channel.plane
    plane.verify_transactions = False
    yield
    plane.verify_transactions = True


@pytest.mark.usefixtures("unverified")
@pytest.mark.parametrize("version", range(3))
def test_markers_end_transactions(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name)
    produce(client, topic_name, 900_001, b"kept")
    produce(client, topic_name, 900_002, b"dropped")
    assert read_committed(client, topic_name) == ([], 0)
    answers = write(
        client,
        marker(900_001, 4, True, 1, (topic_name, 0)),
        marker(900_002, 4, False, 1, (topic_name, 0), ("nowhere", 7)),
        version=version,
    )
    assert answers == [
        (900_001, topic_name, 0, ErrorCode.NONE),
        (900_002, topic_name, 0, ErrorCode.NONE),
        (900_002, "nowhere", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert read_committed(client, topic_name) == ([b"kept"], 4)


@pytest.mark.usefixtures("unverified")
def test_old_epochs_and_replaced_coordinators_are_refused(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    produce(client, topic_name, 900_003, b"x")
    [(*_, error)] = write(client, marker(900_003, 3, True, 5, (topic_name, 0)))
    assert error == ErrorCode.INVALID_PRODUCER_EPOCH
    [(*_, error)] = write(client, marker(900_003, 4, True, 5, (topic_name, 0)))
    assert error == ErrorCode.NONE
    [(*_, error)] = write(client, marker(900_003, 4, True, 4, (topic_name, 0)))
    assert error == ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [
        (-1, 4, ErrorCode.UNKNOWN_SERVER_ERROR),
        (-(2**63), 4, ErrorCode.UNKNOWN_SERVER_ERROR),
        (900_004, -1, ErrorCode.UNKNOWN_SERVER_ERROR),
        (900_004, -(2**15), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_of_no_producer_is_refused_beside_a_good_one(
    client: Any, topic_name: str, producer_id: int, epoch: int, error: ErrorCode
) -> None:
    client.create_topic(topic_name)
    answers = write(
        client,
        marker(producer_id, epoch, True, 1, (topic_name, 0)),
        marker(900_005, 4, True, 1, (topic_name, 0)),
    )
    assert [answer[3] for answer in answers] == [error, ErrorCode.NONE]
    newest = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.Topic(name=topic_name, partitions=[newest])
    answer = client(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
    assert answer.topics[0].partitions[0].offset == 1, "only the good one is in the log"


def test_no_markers_are_no_work(client: Any) -> None:
    assert write(client) == []
