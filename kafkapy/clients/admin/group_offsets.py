"""Committed offsets of groups: list, alter, reset, delete.

Served by: OffsetFetch, OffsetCommit, OffsetDelete (the group's coordinator), ListOffsets (leaders) for resets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkapy.clients.admin.partitions import OffsetTimestamp, PartitionAdmin
from kafkapy.clients.admin.routing import WRONG_COORDINATOR, raise_first
from kafkapy.clients.admin.shapes import by_topic, error_of, error_type
from kafkapy.errors import KafkaError, error_for
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.types import ListOffsetsTimestamp, OffsetAndMetadata, TopicPartition

__all__ = ["GroupOffsetAdmin"]

Partitions = Iterable[TopicPartition] | None
Offsets = dict[TopicPartition, OffsetAndMetadata]

OLDEST_OF_GROUPS = 8
NEWEST_BY_NAME = {"fetch": 9, "commit": 9}
"""The newest versions with topic names; later ones have topic ids, which administration does not need."""


class GroupOffsetAdmin(PartitionAdmin):
    """The admin client's calls for committed offsets."""

    async def list_group_offsets(
        self, group_specs: Mapping[str, Partitions] | Iterable[str] | str, require_stable: bool = False
    ) -> dict[str, Offsets]:
        """{group: {partition: OffsetAndMetadata}}. Raises the first error.

        `group_specs`: {group: partitions, None for all with an offset}, or groups, or one group. A requested partition
        without an offset has offset -1. `require_stable`: wait while a transaction's offsets are pending.
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

        async def ask(node: int, groups: list[str]) -> dict[str, Any]:
            api = OffsetFetchRequest
            high = NEWEST_BY_NAME["fetch"]
            version = await self.network.version(node, api.API_KEY, 0, high)
            if version >= OLDEST_OF_GROUPS:
                request = _fetch_groups({group: wanted[group] for group in groups}, require_stable)
                response = await self.send(node, request, deadline, high=high)
                return {each.group_id: _offsets(each) for each in response.groups}
            answers = {}
            for group in groups:
                low = 7 if require_stable else 2 if wanted[group] is None else 0
                request = _fetch_group(group, wanted[group], require_stable)
                response = await self.send(node, request, deadline, low=low, high=OLDEST_OF_GROUPS - 1)
                answers[group] = _offsets(response)
            return answers

        located = self.at_group(None, deadline)
        return raise_first(await self.drive(wanted, located, ask, deadline))

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, type[KafkaError]]:
        """Commits offsets for a group without members: {partition: NoError or error class}."""
        if not offsets:
            return {}
        deadline = self.deadline()
        request = _commit(group_id, offsets)

        async def ask(node: int, _: list[str]) -> dict[str, Any]:
            response = await self.send(node, request, deadline, high=NEWEST_BY_NAME["commit"])
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in response.topics
                for each in topic.partitions
            }
            return {group_id: _wrong_coordinator(codes.values()) or codes}

        codes = raise_first(await self.drive([group_id], self.at_group(group_coordinator_id, deadline), ask, deadline))[
            group_id
        ]
        return {partition: error_type(code) for partition, code in codes.items()}

    async def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Resets offsets of a group without members: {partition: {'error': class, 'offset': int}}.

        Each partition's target is an OffsetSpec (EARLIEST, LATEST, ...), an OffsetTimestamp (the first record at or
        after it, in ms), or an int (the offset). An offset outside the log becomes the nearer end of the log; a
        timestamp after all records becomes the log end offset.
        """
        targets = await self.reset_targets(offset_specs)
        if not targets:
            return {}
        current = (await self.list_group_offsets({group_id: list(targets)}))[group_id]
        offsets = {
            partition: OffsetAndMetadata(offset, current[partition].metadata if partition in current else "")
            for partition, offset in targets.items()
        }
        outcomes = await self.alter_group_offsets(group_id, offsets, group_coordinator_id)
        return {partition: {"error": error, "offset": targets[partition]} for partition, error in outcomes.items()}

    async def reset_targets(self, offset_specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets that reset_group_offsets would commit."""
        specs = {TopicPartition(*partition): spec for partition, spec in offset_specs.items()}
        for partition, spec in specs.items():
            if not isinstance(spec, int):
                raise TypeError(f"{partition}: expected an OffsetSpec, an OffsetTimestamp or an offset, not {spec!r}")
        earliest = await self.list_partition_offsets(dict.fromkeys(specs, ListOffsetsTimestamp.EARLIEST))
        latest = await self.list_partition_offsets(dict.fromkeys(specs, ListOffsetsTimestamp.LATEST))
        searched = await self.list_partition_offsets(
            {
                partition: spec
                for partition, spec in specs.items()
                if isinstance(spec, (ListOffsetsTimestamp, OffsetTimestamp))
            }
        )
        targets = {}
        for partition, spec in specs.items():
            offset = searched[partition].offset if partition in searched else int(spec)
            low, high = earliest[partition].offset, latest[partition].offset
            targets[partition] = high if partition in searched and offset < 0 else min(max(offset, low), high)
        return targets

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, type[KafkaError]]:
        """Deletes committed offsets of unsubscribed topics: {partition: NoError or error class}.

        Raises an error of the whole group (GroupIdNotFoundError, NonEmptyGroupError).
        """
        topics = by_topic(TopicPartition(*each) for each in partitions)
        if not topics:
            return {}
        deadline = self.deadline()
        topic_class = OffsetDeleteRequest.Topic
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                topic_class(name=name, partitions=[topic_class.Partition(partition_index=each) for each in numbers])
                for name, numbers in topics.items()
            ],
        )

        async def ask(node: int, _: list[str]) -> dict[str, Any]:
            response = await self.send(node, request, deadline)
            return {group_id: error_of(response.error_code) or response}

        response = raise_first(
            await self.drive([group_id], self.at_group(group_coordinator_id, deadline), ask, deadline)
        )[group_id]
        return {
            TopicPartition(topic.name, each.partition_index): error_type(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }


def _fetch_groups(wanted: Mapping[str, Mapping[str, list[int]] | None], stable: bool) -> OffsetFetchRequest:
    group_class = OffsetFetchRequest.Group
    return OffsetFetchRequest(
        groups=[
            group_class(
                group_id=group,
                topics=None
                if topics is None
                else [group_class.Topic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
            )
            for group, topics in wanted.items()
        ],
        require_stable=stable,
    )


def _fetch_group(group: str, topics: Mapping[str, list[int]] | None, stable: bool) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        group_id=group,
        topics=None
        if topics is None
        else [OffsetFetchRequest.Topic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        require_stable=stable,
    )


def _offsets(group: Any) -> Offsets | KafkaError:
    if error := error_of(group.error_code):
        return error
    found = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                return error_for(each.error_code, f"Partition {partition}: {error_for(each.error_code)}")
            found[partition] = OffsetAndMetadata(
                each.committed_offset, each.metadata or "", each.committed_leader_epoch
            )
    return found


def _commit(group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommitRequest:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), committed in offsets.items():
        epoch = committed.leader_epoch
        topics.setdefault(topic, []).append(
            OffsetCommitRequest.Topic.Partition(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=-1 if epoch is None else epoch,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequest.Topic(name=name, partitions=each) for name, each in topics.items()],
    )


def _wrong_coordinator(codes: Iterable[int]) -> KafkaError | None:
    """The error after which the whole commit is sent again, or None."""
    return next((error_for(code) for code in codes if code in WRONG_COORDINATOR), None)
