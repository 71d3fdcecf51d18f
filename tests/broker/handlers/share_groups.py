"""Members of share groups, and their groups' offsets, by requests in short forms."""

from __future__ import annotations

import time
from typing import Any

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kafkapy.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kafkapy.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kafkapy.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

ALL: Any = None
"""All topics of a group."""


def beat(client: Any, group: str, member: str = "member", epoch: int = 0, **fields: Any) -> Any:
    """One ShareGroupHeartbeat."""
    return client(
        ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields),
        1,
    )


def join(client: Any, group: str, *topics: str, member: str = "member") -> Any:
    """Join, and send heartbeats until partitions are assigned; the last response with an assignment."""
    client.coordinate(group)
    answer = beat(client, group, member, subscribed_topic_names=list(topics))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert answer.error_code == ErrorCode.NONE, answer
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer
        time.sleep(0.02)
        answer = beat(client, group, member, answer.member_epoch)
    raise TimeoutError(group)


def leave(client: Any, group: str, member: str = "member") -> int:
    """The error of a member's last heartbeat."""
    code: int = beat(client, group, member, epoch=-1).error_code
    return code


def describe(client: Any, *groups: str, operations: bool = False) -> Any:
    """The groups of ShareGroupDescribe."""
    request = ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)
    return client(request, 1).groups


def describe_offsets(client: Any, group: str, topics: dict[str, list[int]] | None = ALL, version: int = 1) -> Any:
    """The one group of DescribeShareGroupOffsets."""
    asked = DescribeShareGroupOffsetsRequest.Group
    listed = None
    if topics is not None:
        listed = [asked.Topic(topic_name=name, partitions=numbers) for name, numbers in topics.items()]
    request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id=group, topics=listed)])
    [found] = client(request, version).groups
    assert found.group_id == group
    return found


def alter_offsets(client: Any, group: str, topics: dict[str, dict[int, int]]) -> Any:
    """The response of AlterShareGroupOffsets."""
    made = AlterShareGroupOffsetsRequest.Topic
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            made(
                topic_name=name,
                partitions=[
                    made.Partition(partition_index=number, start_offset=offset) for number, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )
    return client(request, 0)


def delete_offsets(client: Any, group: str, *topics: str) -> Any:
    """The response of DeleteShareGroupOffsets."""
    made = DeleteShareGroupOffsetsRequest.Topic
    request = DeleteShareGroupOffsetsRequest(group_id=group, topics=[made(topic_name=name) for name in topics])
    return client(request, 0)


def codes(response: Any) -> dict[str, dict[int, int]]:
    """The errors of an alteration, by topic and partition."""
    return {
        topic.topic_name: {each.partition_index: each.error_code for each in topic.partitions}
        for topic in response.responses
    }
