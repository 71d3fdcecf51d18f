"""ConsumerGroupHeartbeat as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.types import ResourceType


@pytest.fixture
def topic(group_client: Any, topic_name: str) -> str:
    """A topic of two partitions."""
    group_client.client.create_topic(topic_name, partitions=2)
    return topic_name


def beat(client: Any, group: str, member: str = "member", epoch: int = 0, version: int = 1, **fields: Any) -> Any:
    if epoch == 0:
        first = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [], "topic_partitions": []}
        fields = {**first, **fields}
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)
    return client(request, version)


@pytest.mark.parametrize("version", range(2))
def test_every_version_joins_lives_and_leaves(group_client: Any, group_name: str, topic: str, version: int) -> None:
    group_client.coordinate(group_name)
    joined = beat(group_client, group_name, version=version, subscribed_topic_names=[topic])
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "member", 1)
    assert joined.heartbeat_interval_ms == 5_000
    (assigned,) = joined.assignment.topic_partitions
    assert assigned.partitions == [0, 1]
    lives = beat(group_client, group_name, epoch=1, version=version)
    assert (lives.error_code, lives.member_epoch, lives.assignment) == (ErrorCode.NONE, 1, None)
    left = beat(group_client, group_name, epoch=-1, version=version)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)


def test_an_expression_is_matched_for_a_later_heartbeat(group_client: Any, group_name: str, topic: str) -> None:
    group_client.coordinate(group_name)
    joined = beat(group_client, group_name, subscribed_topic_names=None, subscribed_topic_regex=f"{topic[:-1]}.")
    assert joined.assignment.topic_partitions == []
    while (answer := beat(group_client, group_name, epoch=joined.member_epoch)).assignment is None:
        assert answer.error_code == ErrorCode.NONE
    assert answer.member_epoch == 2
    refused = beat(group_client, group_name, epoch=2, subscribed_topic_regex="a(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "not a valid regular expression" in refused.error_message


def test_what_is_wrong_is_said_with_a_message(group_client: Any, group_name: str) -> None:
    group_client.coordinate(group_name)
    unknown = beat(group_client, group_name, epoch=3)
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Consumer group {group_name} not found.",
    )
    beat(group_client, group_name)
    fenced = beat(group_client, group_name, epoch=3)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (3)" in fenced.error_message
    assert beat(group_client, "", epoch=3).error_code == ErrorCode.INVALID_REQUEST


def test_the_group_must_be_readable_and_the_topics_visible(
    group_client: Any, group_name: str, topic: str, deny: Any
) -> None:
    group_client.coordinate(group_name)
    deny((ResourceType.GROUP, group_name))
    assert beat(group_client, group_name).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    deny((ResourceType.TOPIC, topic))
    refused = beat(group_client, group_name, subscribed_topic_names=[topic])
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_topics_one_may_not_see_do_not_match_an_expression(
    group_client: Any, group_name: str, groups_broker: Any, topic: str, deny: Any
) -> None:
    group_client.coordinate(group_name)
    deny((ResourceType.TOPIC, topic))
    joined = beat(group_client, group_name, subscribed_topic_names=None, subscribed_topic_regex=topic)
    coordinator = groups_broker.context.coordinators.group
    group = coordinator.runtime.shards()[coordinator.partition_for(group_name)].groups[group_name]
    while topic not in group.resolved:
        assert beat(group_client, group_name, epoch=joined.member_epoch).assignment is None
    assert group.resolved[topic].topics == frozenset()
    assert beat(group_client, group_name, epoch=joined.member_epoch).assignment is None


def test_a_broker_may_serve_the_classic_protocol_only(
    group_client: Any, group_name: str, groups_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = groups_broker.context.coordinators.group
    monkeypatch.setattr(coordinator, "config", coordinator.config._replace(consumer_protocol=False))
    assert beat(group_client, group_name).error_code == ErrorCode.UNSUPPORTED_VERSION
