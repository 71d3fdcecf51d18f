"""ShareGroupHeartbeat as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.share_groups import beat, join, leave

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.types import ResourceType


@pytest.fixture
def topic(group_client: Any, topic_name: str) -> str:
    """A topic of two partitions."""
    group_client.client.create_topic(topic_name, partitions=2)
    return topic_name


def test_a_member_joins_lives_and_leaves(group_client: Any, group_name: str, topic: str) -> None:
    joined = join(group_client, group_name, topic)
    [assigned] = joined.assignment.topic_partitions
    assert assigned.partitions == [0, 1]
    lives = beat(group_client, group_name, epoch=joined.member_epoch)
    assert (lives.error_code, lives.member_id, lives.member_epoch) == (ErrorCode.NONE, "member", joined.member_epoch)
    assert (lives.assignment, lives.heartbeat_interval_ms) == (None, 5_000)
    left = beat(group_client, group_name, epoch=-1)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (ErrorCode.NONE, -1, 0)
    assert leave(group_client, group_name) == ErrorCode.UNKNOWN_MEMBER_ID


def test_two_members_share_a_single_partition(group_client: Any, group_name: str, topic_name: str) -> None:
    group_client.client.create_topic(topic_name, partitions=1)
    for member in ("one", "two"):
        joined = join(group_client, group_name, topic_name, member=member)
        assert [each.partitions for each in joined.assignment.topic_partitions] == [[0]]


def test_what_is_wrong_is_said_with_a_message(group_client: Any, group_name: str) -> None:
    group_client.coordinate(group_name)
    unknown = beat(group_client, group_name, epoch=3)
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Share group {group_name} not found.",
    )
    without_topics = beat(group_client, group_name)
    assert without_topics.error_code == ErrorCode.INVALID_REQUEST
    assert without_topics.error_message == "SubscribedTopicNames must be set in first request."
    assert beat(group_client, "", subscribed_topic_names=["t"]).error_code == ErrorCode.INVALID_REQUEST
    assert beat(group_client, group_name, "", subscribed_topic_names=["t"]).error_code == ErrorCode.INVALID_REQUEST
    assert beat(group_client, group_name, epoch=-2).error_code == ErrorCode.INVALID_REQUEST
    beat(group_client, group_name, subscribed_topic_names=["nowhere"])
    fenced = beat(group_client, group_name, epoch=9)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (9)" in fenced.error_message


def test_the_group_must_be_readable_and_the_topics_visible(
    group_client: Any, group_name: str, topic: str, deny: Any
) -> None:
    group_client.coordinate(group_name)
    deny((ResourceType.GROUP, group_name))
    refused = beat(group_client, group_name, subscribed_topic_names=[topic])
    assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    deny((ResourceType.TOPIC, topic))
    refused = beat(group_client, group_name, subscribed_topic_names=[topic])
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_protocols_of_groups_do_not_mix(group_client: Any, group_name: str, topic: str) -> None:
    join(group_client, group_name, topic)
    refused = group_client(
        ConsumerGroupHeartbeatRequest(
            group_id=group_name,
            member_id="consumer",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        ),
        1,
    )
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group_client.join(group_name).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_group_has_no_share_members(group_client: Any, group_name: str, topic: str) -> None:
    group_client.stable(group_name)
    refused = beat(group_client, group_name, subscribed_topic_names=[topic])
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group_name} is not a share group.",
    )


def test_a_cluster_may_have_no_share_groups_yet(
    group_client: Any, group_name: str, groups_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = groups_broker.context.coordinators.group.share
    monkeypatch.setattr(share, "_share_version", lambda: 0)
    assert beat(group_client, group_name, subscribed_topic_names=["t"]).error_code == ErrorCode.UNSUPPORTED_VERSION
