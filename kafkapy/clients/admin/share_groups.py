"""Start offsets of share groups: list, alter, reset, delete (KIP-932).

Served by: DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets (the group's coordinator, Kafka
4.1), ListOffsets (leaders) for resets. `list_groups`, `describe_share_groups` and `delete_groups` are in groups.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkapy.clients.admin.group_offsets import GroupOffsetAdmin
from kafkapy.clients.admin.routing import raise_first
from kafkapy.clients.admin.shapes import by_topic, error_of, error_type
from kafkapy.errors import KafkaError, error_for
from kafkapy.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kafkapy.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kafkapy.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kafkapy.types import TopicPartition

__all__ = ["ShareGroupOffsetAdmin", "SharePartitionOffset"]

Partitions = Iterable[TopicPartition] | None


class SharePartitionOffset(NamedTuple):
    """The state of one partition for a share group."""

    start_offset: int
    """The first offset that is not done: earlier records are accepted or archived. -1 without a state."""
    leader_epoch: int
    lag: int | None
    """Number of records that are not done; None when unknown, or before Kafka 4.2."""


class ShareGroupOffsetAdmin(GroupOffsetAdmin):
    """The admin client's calls for the offsets of share groups."""

    async def list_share_group_offsets(
        self, group_specs: Mapping[str, Partitions] | Iterable[str] | str
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset]]:
        """{group: {partition: SharePartitionOffset}}. Raises the first error.

        `group_specs`: {group: partitions, None for all}, or groups, or one group.
        """
        if isinstance(group_specs, str):
            group_specs = [group_specs]
        specs = dict(group_specs) if isinstance(group_specs, Mapping) else dict.fromkeys(group_specs, None)
        wanted = {
            group: None if partitions is None else by_topic(TopicPartition(*each) for each in partitions)
            for group, partitions in specs.items()
        }
        if not wanted:
            raise ValueError("group_specs contains no group")
        deadline = self.deadline()
        group_class = DescribeShareGroupOffsetsRequest.Group

        async def ask(node: int, groups: list[str]) -> dict[str, Any]:
            request = DescribeShareGroupOffsetsRequest(
                groups=[group_class(group_id=group, topics=_topics(wanted[group])) for group in groups]
            )
            response = await self.send(node, request, deadline)
            return {each.group_id: _offsets(each) for each in response.groups}

        def _topics(topics: Mapping[str, list[int]] | None) -> list[Any] | None:
            if topics is None:
                return None
            return [group_class.Topic(topic_name=name, partitions=numbers) for name, numbers in topics.items()]

        return raise_first(await self.drive(wanted, self.at_group(None, deadline), ask, deadline))

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, type[KafkaError]]:
        """Sets start offsets of a share group without members: {partition: NoError or error class}.

        The group delivers the records from there on once more. Raises an error of the whole group (NonEmptyGroupError,
        GroupIdNotFoundError).
        """
        if not offsets:
            return {}
        deadline = self.deadline()
        topic_class = AlterShareGroupOffsetsRequest.Topic
        topics: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                topic_class.Partition(partition_index=partition, start_offset=int(offset))
            )
        request = AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[topic_class(topic_name=name, partitions=partitions) for name, partitions in topics.items()],
        )

        async def ask(node: int, _: list[str]) -> dict[str, Any]:
            response = await self.send(node, request, deadline)
            return {group_id: error_of(response.error_code, response.error_message) or response}

        response = raise_first(await self.drive([group_id], self.at_group(None, deadline), ask, deadline))[group_id]
        return {
            TopicPartition(topic.topic_name, each.partition_index): error_type(each.error_code)
            for topic in response.responses
            for each in topic.partitions
        }

    async def reset_share_group_offsets(
        self, group_id: str, offset_specs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Resets start offsets of a share group without members: {partition: {'error': class, 'offset': int}}.

        Targets as in `reset_group_offsets`.
        """
        targets = await self.reset_targets(offset_specs)
        outcomes = await self.alter_share_group_offsets(group_id, targets)
        return {partition: {"error": error, "offset": targets[partition]} for partition, error in outcomes.items()}

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, type[KafkaError]]:
        """Forgets a share group's state in unsubscribed topics: {topic: NoError or error class}.

        Raises an error of the whole group (GroupIdNotFoundError, NonEmptyGroupError).
        """
        wanted = list(dict.fromkeys(topics))
        if not wanted:
            return {}
        deadline = self.deadline()
        topic_class = DeleteShareGroupOffsetsRequest.Topic
        request = DeleteShareGroupOffsetsRequest(
            group_id=group_id, topics=[topic_class(topic_name=name) for name in wanted]
        )

        async def ask(node: int, _: list[str]) -> dict[str, Any]:
            response = await self.send(node, request, deadline)
            return {group_id: error_of(response.error_code, response.error_message) or response}

        response = raise_first(await self.drive([group_id], self.at_group(None, deadline), ask, deadline))[group_id]
        return {each.topic_name: error_type(each.error_code) for each in response.responses}


def _offsets(group: Any) -> dict[TopicPartition, SharePartitionOffset] | KafkaError:
    if error := error_of(group.error_code, group.error_message):
        return error
    found = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            if each.error_code:
                text = each.error_message or error_for(each.error_code)
                return error_for(each.error_code, f"Partition {partition}: {text}")
            lag = each.lag if each.lag >= 0 else None
            found[partition] = SharePartitionOffset(each.start_offset, each.leader_epoch, lag)
    return found
