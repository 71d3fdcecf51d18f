"""Partitions: offsets by time and position, leader elections, reassignments.

Served by: ListOffsets (leaders), ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments (controller).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from kafkapy.clients.admin.results import ElectLeadersResult, PartitionElection, TopicElection
from kafkapy.clients.admin.routing import Deadline, raise_first
from kafkapy.clients.admin.shapes import (
    as_dict,
    by_topic,
    checked,
    error_of,
    error_type,
    member_of,
    partitions_argument,
)
from kafkapy.clients.admin.topics import TopicAdmin
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkapy.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkapy.types import IsolationLevel, ListOffsetsTimestamp, OffsetAndTimestamp, TopicPartition

__all__ = ["ElectionType", "OffsetTimestamp", "PartitionAdmin"]

CLIENT = -1
"""The replica id of clients."""
OLDEST_FOR = {
    ListOffsetsTimestamp.MAX_TIMESTAMP: 7,
    ListOffsetsTimestamp.EARLIEST_LOCAL: 8,
    ListOffsetsTimestamp.LATEST_TIERED: 9,
    ListOffsetsTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
"""The first ListOffsets version with each position."""
OLDEST_WITH_TIMEOUT = 10


class ElectionType(IntEnum):
    """The kind of a leader election.

    PREFERRED elects the first replica. UNCLEAN elects any replica when none is in sync, and loses records.
    """

    PREFERRED = 0
    UNCLEAN = 1


class OffsetTimestamp(int):
    """A timestamp in ms, where a plain int would be an offset."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


class PartitionAdmin(TopicAdmin):
    """The admin client's calls for partitions."""

    async def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, int],
        isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """{partition: OffsetAndTimestamp}. Raises the first error.

        The specs are {partition: OffsetSpec or a timestamp in ms}. EARLIEST and LATEST have timestamp -1. A timestamp
        after all records has offset -1. MAX_TIMESTAMP needs Kafka 3.0, EARLIEST_LOCAL 3.4, LATEST_TIERED 3.9,
        EARLIEST_PENDING_UPLOAD 4.2
        (UnsupportedVersionError).
        """
        level = member_of(IsolationLevel, isolation_level)
        specs: dict[TopicPartition, int] = {}
        for partition, spec in topic_partition_specs.items():
            if not isinstance(spec, int):
                raise TypeError(f"{partition}: expected an OffsetSpec or a timestamp in ms, not {spec!r}")
            specs[TopicPartition(*partition)] = int(ListOffsetsTimestamp(spec)) if spec < 0 else int(spec)
        deadline = self.deadline(timeout_ms)

        async def ask(node: int, partitions: list[TopicPartition]) -> dict[TopicPartition, Any]:
            oldest = [OLDEST_FOR.get(specs[each], 1) for each in partitions]  # type: ignore[call-overload]
            low = max(2 if level else 1, *oldest)

            def build(version: int) -> ListOffsetsRequest:
                return _list_offsets(
                    {each: specs[each] for each in partitions},
                    level,
                    self.request_ms(deadline) if version >= OLDEST_WITH_TIMEOUT else 0,
                )

            response = await self.send_built(node, ListOffsetsRequest, build, deadline, low=low)
            return {
                TopicPartition(topic.name, each.partition_index): _found(topic.name, each)
                for topic in response.topics
                for each in topic.partitions
            }

        return raise_first(await self.drive(specs, self.at_leaders(deadline), ask, deadline))

    async def elect_leaders(
        self,
        election_type: ElectionType | str | int,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[str] | None = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> ElectLeadersResult:
        """Elects leaders of partitions: {topic: [partition]}, topics, or all (None).

        Returns error_code and replica_election_results with topic and partition_result (partition_id, error_code,
        error_message). `raise_errors` raises the first error except ElectionNotNeededError.
        """
        kind = member_of(ElectionType, election_type)
        deadline = self.deadline(timeout_ms)
        wanted = None if topic_partitions is None else await self._numbers(topic_partitions, deadline)

        def build(version: int) -> ElectLeadersRequest:
            topics = None
            if wanted is not None:
                partitions_class = ElectLeadersRequest.TopicPartitions
                topics = [partitions_class(topic=name, partitions=numbers) for name, numbers in wanted.items()]
            time_ms = self.request_ms(deadline)
            if version == 0:
                return ElectLeadersRequest(topic_partitions=topics, timeout_ms=time_ms)
            return ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=time_ms)

        async def ask(node: int) -> ElectLeadersResponse:
            low = 1 if kind is ElectionType.UNCLEAN else 0
            response: ElectLeadersResponse = await self.send_built(node, ElectLeadersRequest, build, deadline, low=low)
            if response.error_code == ErrorCode.NOT_CONTROLLER or (raise_errors and response.error_code):
                raise error_for(response.error_code)
            return response

        response = await self.one(self.at_controller, ask, deadline)
        for topic in response.replica_election_results:
            for each in topic.partition_result:
                if raise_errors and each.error_code not in (0, ErrorCode.ELECTION_NOT_NEEDED):
                    error = error_of(each.error_code, each.error_message)
                    raise error_for(each.error_code, f"Partition {topic.topic}-{each.partition_id}: {error}")
        return ElectLeadersResult(
            response.throttle_time_ms,
            response.error_code,
            [
                TopicElection(
                    topic.topic,
                    [
                        PartitionElection(each.partition_id, each.error_code, each.error_message)
                        for each in topic.partition_result
                    ],
                )
                for topic in response.replica_election_results
            ],
        )

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Iterable[int] | None],
        timeout_ms: int | None = None,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, type[KafkaError] | None]:
        """Reassigns replicas: {partition: broker ids, None to cancel a reassignment}.

        Returns {partition: None or the error's class}; raises an error of the whole request.
        `allow_replication_factor_change=False` needs Kafka 4.1.
        """
        topics: dict[str, list[Any]] = {}
        for (topic, partition), replicas in reassignments.items():
            brokers = None if replicas is None else list(replicas)
            if brokers is not None and (not brokers or not all(isinstance(each, int) for each in brokers)):
                raise ValueError(f"{topic}-{partition}: expected a non-empty list of broker ids, or None to cancel")
            topics.setdefault(topic, []).append(
                AlterPartitionReassignmentsRequest.Topic.Partition(partition_index=partition, replicas=brokers)
            )
        deadline = self.deadline(timeout_ms)

        def build(_: int) -> AlterPartitionReassignmentsRequest:
            return AlterPartitionReassignmentsRequest(
                timeout_ms=self.request_ms(deadline),
                topics=[
                    AlterPartitionReassignmentsRequest.Topic(name=name, partitions=each)
                    for name, each in topics.items()
                ],
                allow_replication_factor_change=allow_replication_factor_change,
            )

        async def ask(node: int) -> Any:
            low = 0 if allow_replication_factor_change else 1
            return checked(await self.send_built(node, AlterPartitionReassignmentsRequest, build, deadline, low=low))

        response = await self.one(self.at_controller, ask, deadline)
        return {
            TopicPartition(topic.name, each.partition_index): error_type(each.error_code) if each.error_code else None
            for topic in response.responses
            for each in topic.partitions
        }

    async def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, dict[str, list[int]]]:
        """{partition: {'replicas', 'adding_replicas', 'removing_replicas'}} of running reassignments.

        All partitions by default.
        """
        deadline = self.deadline(timeout_ms)
        topics = None
        if topic_partitions is not None:
            topics = [
                ListPartitionReassignmentsRequest.Topic(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(partitions_argument(topic_partitions)).items()
            ]

        async def ask(node: int) -> Any:
            request = ListPartitionReassignmentsRequest(timeout_ms=self.request_ms(deadline), topics=topics)
            return checked(await self.send(node, request, deadline))

        response = await self.one(self.at_controller, ask, deadline)
        return {
            TopicPartition(topic.name, each.partition_index): as_dict(each, "partition_index")
            for topic in response.topics
            for each in topic.partitions
        }

    async def _numbers(
        self, topics: Mapping[str, Iterable[int]] | Iterable[str], deadline: Deadline
    ) -> dict[str, list[int]]:
        """Partition numbers by topic; all numbers if only topics are given."""
        if isinstance(topics, Mapping):
            return {name: list(numbers) for name, numbers in topics.items()}
        numbers = {}
        for name, topic in (await self.topic_metadata(list(topics), deadline)).items():
            if topic.error_code:
                raise error_for(topic.error_code, f"Topic {name}: {error_for(topic.error_code)}")
            numbers[name] = sorted(each.partition_index for each in topic.partitions)
        return numbers


def _list_offsets(specs: Mapping[TopicPartition, int], level: IsolationLevel, timeout_ms: int) -> ListOffsetsRequest:
    topic_class = ListOffsetsRequest.Topic
    return ListOffsetsRequest(
        replica_id=CLIENT,
        isolation_level=level,
        topics=[
            topic_class(
                name=topic,
                partitions=[
                    topic_class.Partition(partition_index=each, timestamp=specs[TopicPartition(topic, each)])
                    for each in numbers
                ],
            )
            for topic, numbers in by_topic(specs).items()
        ],
        timeout_ms=timeout_ms,
    )


def _found(topic: str, partition: Any) -> OffsetAndTimestamp | KafkaError:
    if partition.error_code:
        error = error_for(partition.error_code)
        return error_for(partition.error_code, f"Partition {topic}-{partition.partition_index}: {error}")
    epoch = partition.leader_epoch
    return OffsetAndTimestamp(partition.offset, partition.timestamp, epoch if epoch >= 0 else None)
