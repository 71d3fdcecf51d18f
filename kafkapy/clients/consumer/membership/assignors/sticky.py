"""The assignor ``sticky``: balance with the fewest changes of owner; eager.

Eager members own nothing when they join, so their user data contains their previous partitions:

    previous_assignment: array of (topic: string, partitions: array of int32), generation: int32 (not in version 0)

Source: org.apache.kafka.clients.consumer.StickyAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkapy.clients.consumer.membership.assignors.api import Assigned, PartitionAssignor, Topics
from kafkapy.clients.consumer.membership.assignors.balancing import MemberData, assign_sticky
from kafkapy.clients.consumer.membership.protocol import (
    NO_GENERATION_ID,
    Assignment,
    ConsumerGroupMetadata,
    DecodeError,
    Subscription,
    group_by_topic,
)
from kafkapy.protocol.schema import Record, Struct, array, int32, string
from kafkapy.types import TopicPartition

__all__ = ["StickyAssignor", "decode_user_data", "encode_user_data"]


class StickyUserData(Record, versions="0-1"):
    """A member's previous partitions. The version is not on the wire."""

    class TopicPartitions(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    previous_assignment: list[TopicPartitions] = array(TopicPartitions)
    generation: int = int32("1+", default=NO_GENERATION_ID, ignorable=True)


def encode_user_data(member: MemberData) -> bytes:
    """The user data of a member, in version 1."""
    return StickyUserData(
        previous_assignment=[
            StickyUserData.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in group_by_topic(member.partitions).items()
        ],
        generation=member.generation_id,
    ).encode(1)


def decode_user_data(data: bytes | None) -> MemberData:
    """A member's previous partitions, from user data of either version.

    Unreadable data gives none, because it is not worth an error.
    """
    for version in (1, 0):
        if not data:
            break
        try:
            # Java ignores bytes at the end, so they are not an error.
            message = StickyUserData.decode(data, version, exact=False)
        except DecodeError:
            continue
        partitions = (TopicPartition(each.topic, no) for each in message.previous_assignment for no in each.partitions)
        return MemberData(tuple(partitions), max(message.generation, NO_GENERATION_ID))
    return MemberData(())


class StickyAssignor(PartitionAssignor):
    """The sticky assignor; remembers this member's last assignment."""

    name = "sticky"

    def __init__(self) -> None:
        self._member: MemberData | None = None

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """See ConsumerPartitionAssignor."""
        return None if self._member is None else encode_user_data(self._member)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """See ConsumerPartitionAssignor."""
        self._member = MemberData(assignment.partitions, metadata.generation_id)

    def assign_partitions(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assigned:
        """See PartitionAssignor."""
        members = {member_id: decode_user_data(each.user_data) for member_id, each in subscriptions.items()}
        return assign_sticky(topics, subscriptions, members)[0]
