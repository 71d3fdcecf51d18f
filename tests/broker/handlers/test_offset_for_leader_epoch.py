"""OffsetForLeaderEpoch as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

Request = OffsetForLeaderEpochRequest


def ask(client: Any, topic: str, epoch: int, version: int = 4, current: int = -1, partition: int = 0) -> Any:
    asked = Request.Topic.Partition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    return client(Request(topics=[Request.Topic(topic=topic, partitions=[asked])]), version).topics[0].partitions[0]


@pytest.fixture
def topic(client: Any, topic_name: str) -> str:
    client.create_topic(topic_name)
    client.produce(topic_name, [(1, b"a"), (1, b"b"), (1, b"c")])
    return topic_name


@pytest.mark.parametrize("version", range(5))
def test_the_current_epoch_ends_at_the_log_end(client: Any, topic: str, version: int) -> None:
    answer = ask(client, topic, 0, version)
    assert (answer.error_code, answer.end_offset) == (ErrorCode.NONE, 3)
    if version >= 1:
        assert answer.leader_epoch == 0


def test_an_epoch_that_has_not_been_has_no_end(client: Any, topic: str) -> None:
    answer = ask(client, topic, 5)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (ErrorCode.NONE, -1, -1)


def test_clients_with_another_current_epoch_are_refused(client: Any, topic: str) -> None:
    assert ask(client, topic, 0, current=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(client, topic, 0, current=0).error_code == ErrorCode.NONE


def test_unknown_partitions_are_refused(client: Any, topic: str) -> None:
    assert ask(client, topic, 0, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
