"""Topics: list, describe, create, delete, add partitions, delete records.

Served by: CreateTopics, DeleteTopics, CreatePartitions (controller), Metadata, DescribeTopicPartitions (any broker),
DeleteRecords (leaders).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafkapy.clients.admin.results import CreatePartitionsResult, TopicGrowth
from kafkapy.clients.admin.routing import AdminRouting, Deadline, raise_first
from kafkapy.clients.admin.shapes import PIECE, as_dict, as_dicts, by_topic, error_of, operation_names
from kafkapy.errors import ErrorCode, KafkaError, KafkaTimeoutError, error_for
from kafkapy.garbage import resting
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.types import ZERO_UUID, ConfigSource, TopicPartition

__all__ = ["NewPartitions", "NewTopic", "TopicAdmin"]

TopicNames = Iterable[str | UUID]
LOOK_AGAIN_S = 0.1
OLDEST_WITH_DEFAULTS = 4
"""The first CreateTopics version with defaults of the broker for -1 partitions or replicas (KIP-464)."""
DEFAULT_READY_MS = 10_000
"""The default timeout of wait_for_topics in ms."""


@dataclass
class NewTopic:
    """A topic to create.

    -1 partitions or replicas mean the broker's defaults, or the numbers in `replica_assignments`: {partition: [broker
    ids, the preferred leader first]}.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, list[int]] | None = field(default_factory=dict)
    topic_configs: Mapping[str, str | None] | None = field(default_factory=dict)


@dataclass
class NewPartitions:
    """A topic's new total number of partitions, and optionally the new replicas.

    `new_assignments` has the broker ids of each new partition; None: the cluster chooses.
    """

    total_count: int
    new_assignments: list[list[int]] | None = None


class TopicAdmin(AdminRouting):
    """The admin client's calls for topics."""

    async def list_topics(self) -> list[str]:
        """The names of all visible topics, including internal ones."""
        return [topic["name"] for topic in (await self.cluster_metadata(None))["topics"]]

    async def describe_topics(self, topics: TopicNames | None = None) -> list[dict[str, Any]]:
        """A dict per topic. `topics`: names and ids (uuid.UUID), None for all.

        Fields: error_code, name, topic_id, is_internal, partitions (partition_index, leader_id, leader_epoch,
        replica_nodes, isr_nodes, offline_replicas, error_code), authorized_operations. A topic that does not exist has
        an error_code.
        """
        found: list[dict[str, Any]] = (await self.cluster_metadata(topics))["topics"]
        return found

    async def cluster_metadata(self, topics: TopicNames | None) -> dict[str, Any]:
        """A MetadataResponse as a dict; [] requests no topics, None all."""
        deadline = self.deadline()
        wanted = None if topics is None else list(topics)

        def build(version: int) -> MetadataRequest:
            return MetadataRequest(
                topics=None if wanted is None else [_metadata_topic(each) for each in wanted],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=8 <= version <= 10,
                include_topic_authorized_operations=version >= 8,
            )

        low = 12 if any(isinstance(each, UUID) for each in wanted or ()) else 4
        response = await self.one(
            self.anywhere, lambda node: self.send_built(node, MetadataRequest, build, deadline, low=low), deadline
        )
        return await _metadata_dict(response)

    async def describe_topic_partitions(
        self, topics: Iterable[str], response_partition_limit: int = 2000, cursor: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One page of topics with eligible leader replicas (KIP-966).

        {'topics': [...], 'next_cursor': None or {'topic_name', 'partition_index'}}. UnsupportedVersionError before
        Kafka 3.7.
        """
        deadline = self.deadline()
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.Topic(name=name) for name in sorted(topics)],
            response_partition_limit=response_partition_limit,
            cursor=None
            if cursor is None
            else DescribeTopicPartitionsRequest.Cursor(
                topic_name=cursor["topic_name"], partition_index=cursor["partition_index"]
            ),
        )
        response = await self.one(self.anywhere, lambda node: self.send(node, request, deadline), deadline)
        shown = as_dict(response, "throttle_time_ms")
        for row, topic in zip(shown["topics"], response.topics, strict=True):
            row["topic_id"] = topic.topic_id
            for partition in row["partitions"]:
                partition["eligible_leader_replicas"] = partition["eligible_leader_replicas"] or None
                partition["last_known_elr"] = partition["last_known_elr"] or None
        return shown

    async def create_topics(
        self,
        new_topics: Mapping[str, Mapping[str, Any]] | Iterable[str | NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Creates topics: names, `NewTopic`s, or {name: {...}}.

        The keys of {name: {...}} are num_partitions, replication_factor, assignments and configs. Returns {'topics': [a
        dict per topic]} with name, topic_id, error_code, error_message, num_partitions, replication_factor, and configs
        if the broker returns them. `raise_errors` raises the first topic's error. UnsupportedVersionError for a
        broker's defaults before Kafka 2.4. `wait_for_metadata` returns when all partitions have a leader in the
        cluster's metadata.
        """
        if validate_only and wait_for_metadata:
            raise ValueError("validate_only and wait_for_metadata exclude each other")
        wanted = {topic.name: topic for topic in map(_creation, _new_topics(new_topics))}
        if not wanted:
            raise ValueError("new_topics contains no topic")
        deadline = self.deadline(timeout_ms)
        low = OLDEST_WITH_DEFAULTS if any(map(_has_defaults, wanted.values())) else 1 if validate_only else 0

        async def ask(node: int, names: list[str]) -> dict[str, Any]:
            request = CreateTopicsRequest(
                topics=[wanted[name] for name in names],
                timeout_ms=self.request_ms(deadline),
                validate_only=validate_only,
            )
            response = await self.send(node, request, deadline, low=low)
            return _answers(response.topics)

        outcomes = await self.drive(wanted, self.at_controller, ask, deadline)
        topics = [_created(item) for item in _items(outcomes, raise_errors, "topic")]
        if wait_for_metadata:
            await self.wait_for_topics(wanted)
        return {"topics": topics}

    async def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: int = DEFAULT_READY_MS) -> None:
        """Returns when all partitions of the topics have a leader.

        KafkaTimeoutError with the topics that are not ready.
        """
        names = list(topic_names)
        if not names:
            return
        deadline = Deadline(timeout_ms)
        while True:
            try:
                found = {topic["name"]: topic for topic in await self.describe_topics(names)}
            except KafkaError as error:
                reasons = dict.fromkeys(names, str(error))
            else:
                pairs = ((name, _not_ready(found.get(name))) for name in names)
                reasons = {name: reason for name, reason in pairs if reason}
            if not reasons:
                return
            if not deadline.left_ms:
                said = "; ".join(f"{name}: {reason.rstrip('.')}" for name, reason in reasons.items())
                raise KafkaTimeoutError(f"Topics are not ready after {timeout_ms} ms: {said}.")
            await asyncio.sleep(LOOK_AGAIN_S)

    async def delete_topics(
        self, topics: TopicNames, timeout_ms: int | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Deletes topics by name or by id (uuid.UUID; Kafka 2.8 and newer).

        Returns {'topics': [{name, topic_id, error_code, error_message}]}. `raise_errors` raises the first error.
        """
        wanted = list(topics)
        ids = [each for each in wanted if isinstance(each, UUID)]
        deadline = self.deadline(timeout_ms)

        async def ask(node: int, keys: list[str | UUID]) -> dict[str | UUID, Any]:
            def build(version: int) -> DeleteTopicsRequest:
                time_ms = self.request_ms(deadline)
                if version >= 6:
                    return DeleteTopicsRequest(topics=[_deletion(each) for each in keys], timeout_ms=time_ms)
                return DeleteTopicsRequest(topic_names=[str(each) for each in keys], timeout_ms=time_ms)

            response = await self.send_built(node, DeleteTopicsRequest, build, deadline, low=6 if ids else 0)
            answers: dict[str | UUID, Any] = {}
            for item in response.responses:
                error = error_of(item.error_code, item.error_message)
                key = item.topic_id if item.topic_id in ids else item.name
                answers[key] = error if error is not None and _sent_again(error) else item
            return answers

        outcomes = await self.drive(wanted, self.at_controller, ask, deadline)
        return {"topics": [as_dict(item) for item in _items(outcomes, raise_errors, "topic")]}

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> CreatePartitionsResult:
        """Adds partitions to topics: {topic: total count}, or {topic: NewPartitions}.

        Or {topic: {'count': total, 'assignments': [[broker ids] per new partition]}}. Returns `results` with name,
        error_code and error_message of each. `raise_errors` raises the first error.
        """
        wanted = {name: _growth(name, value) for name, value in topic_partitions.items()}
        deadline = self.deadline(timeout_ms)

        async def ask(node: int, names: list[str]) -> dict[str, Any]:
            request = CreatePartitionsRequest(
                topics=[wanted[name] for name in names],
                timeout_ms=self.request_ms(deadline),
                validate_only=validate_only,
            )
            return _answers((await self.send(node, request, deadline)).results)

        outcomes = await self.drive(wanted, self.at_controller, ask, deadline)
        items = _items(outcomes, raise_errors, "topic")
        return CreatePartitionsResult(
            throttle_time_ms=0,
            results=[TopicGrowth(each.name, each.error_code, each.error_message) for each in items],
        )

    async def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Deletes the records below an offset in each partition.

        -1 is the high watermark. Returns {partition: {partition_index, low_watermark, error_code}}; raises the first
        partition's error. `partition_leader_id`: the broker to send to instead of each partition's leader.
        """
        deadline = self.deadline(timeout_ms)
        offsets = {TopicPartition(*key): offset for key, offset in records_to_delete.items()}

        async def ask(node: int, partitions: list[TopicPartition]) -> dict[TopicPartition, Any]:
            topic_class = DeleteRecordsRequest.Topic
            request = DeleteRecordsRequest(
                topics=[
                    topic_class(
                        name=topic,
                        partitions=[
                            topic_class.Partition(partition_index=each, offset=offsets[TopicPartition(topic, each)])
                            for each in numbers
                        ],
                    )
                    for topic, numbers in by_topic(partitions).items()
                ],
                timeout_ms=self.request_ms(deadline),
            )
            response = await self.send(node, request, deadline)
            return {
                TopicPartition(topic.name, each.partition_index): _records_error(topic.name, each) or as_dict(each)
                for topic in response.topics
                for each in topic.partitions
            }

        locate = self.at_leaders(deadline) if partition_leader_id is None else self.at_node(partition_leader_id)
        return raise_first(await self.drive(offsets, locate, ask, deadline))


def _metadata_topic(topic: str | UUID) -> MetadataRequest.Topic:
    if isinstance(topic, UUID):
        return MetadataRequest.Topic(topic_id=topic, name=None)
    return MetadataRequest.Topic(name=topic)


async def _metadata_dict(response: Any) -> dict[str, Any]:
    shown = as_dict(response, "topics", "cluster_authorized_operations", "error_code")
    shown["topics"] = topics = []
    shown["authorized_operations"] = operation_names(response.cluster_authorized_operations)
    done = 0
    with resting(keeps=False):
        for topic in response.topics:
            row = as_dict(topic, "partitions", "topic_authorized_operations")
            row["partitions"] = await as_dicts(topic.partitions)
            row["authorized_operations"] = operation_names(topic.topic_authorized_operations)
            topics.append(row)
            done += 1 + len(topic.partitions)
            if done > PIECE:
                done = 0
                await asyncio.sleep(0)
    return shown


def _new_topics(given: Mapping[str, Mapping[str, Any]] | Iterable[str | NewTopic]) -> Iterable[NewTopic]:
    if isinstance(given, Mapping):
        known = {"num_partitions", "replication_factor", "assignments", "configs"}
        for name, data in given.items():
            if unknown := set(data) - known:
                raise ValueError(f"topic {name}: {', '.join(sorted(unknown))} is not one of {', '.join(sorted(known))}")
            yield NewTopic(
                name,
                data.get("num_partitions", -1),
                data.get("replication_factor", -1),
                data.get("assignments"),
                data.get("configs"),
            )
        return
    for each in given:
        if not isinstance(each, (str, NewTopic)):
            raise TypeError(f"a topic must be a name or a NewTopic, not {each!r}")
        yield NewTopic(each) if isinstance(each, str) else each


def _creation(topic: NewTopic) -> CreateTopicsRequest.Topic:
    topic_class = CreateTopicsRequest.Topic
    return topic_class(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            topic_class.Assignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in (topic.replica_assignments or {}).items()
        ],
        configs=[
            topic_class.Config(name=name, value=None if value is None else str(value))
            for name, value in (topic.topic_configs or {}).items()
        ],
    )


def _has_defaults(topic: CreateTopicsRequest.Topic) -> bool:
    return not topic.assignments and -1 in (topic.num_partitions, topic.replication_factor)


def _created(item: Any) -> dict[str, Any]:
    shown = as_dict(item)
    configs = shown.pop("configs")
    if configs:
        for config in configs:
            config["config_source"] = ConfigSource(config["config_source"]).name
        shown["configs"] = {config.pop("name"): config for config in configs}
    return shown


def _deletion(topic: str | UUID) -> DeleteTopicsRequest.Topic:
    if isinstance(topic, UUID):
        return DeleteTopicsRequest.Topic(topic_id=topic)
    return DeleteTopicsRequest.Topic(name=topic, topic_id=ZERO_UUID)


def _growth(name: str, value: int | NewPartitions | Mapping[str, Any]) -> CreatePartitionsRequest.Topic:
    if isinstance(value, int):
        value = NewPartitions(value)
    elif isinstance(value, Mapping):
        value = NewPartitions(value["count"], value.get("assignments"))
    topic_class = CreatePartitionsRequest.Topic
    assignments = value.new_assignments
    return topic_class(
        name=name,
        count=value.total_count,
        assignments=None
        if assignments is None
        else [topic_class.Assignment(broker_ids=list(brokers)) for brokers in assignments],
    )


def _sent_again(error: KafkaError) -> bool:
    return error.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _answers(items: Iterable[Any]) -> dict[str, Any]:
    """The results by name; errors for topics that are sent again."""
    answers: dict[str, Any] = {}
    for item in items:
        error = error_of(item.error_code, item.error_message)
        answers[item.name] = error if error is not None and _sent_again(error) else item
    return answers


def _items(outcomes: Mapping[Any, Any], raise_errors: bool, kind: str) -> list[Any]:
    """The results of all outcomes. A topic without a result always raises.

    `raise_errors` raises the error of a result, too.
    """
    items = list(raise_first(outcomes).values())
    for key, item in outcomes.items():
        if raise_errors and item.error_code:
            message = item.error_message or str(error_for(item.error_code))
            raise error_for(item.error_code, f"{kind.capitalize()} {key}: {message}")
    return items


def _records_error(topic: str, partition: Any) -> KafkaError | None:
    if not partition.error_code:
        return None
    error = error_for(partition.error_code)
    return error_for(partition.error_code, f"Partition {topic}-{partition.partition_index}: {error}")


def _not_ready(topic: Mapping[str, Any] | None) -> str | None:
    if topic is None:
        return "it is not in the metadata"
    if topic["error_code"]:
        return str(error_for(topic["error_code"]))
    if not topic["partitions"]:
        return "it has no partitions"
    waiting = [str(each["partition_index"]) for each in topic["partitions"] if each["leader_id"] < 0]
    return f"partitions without a leader: {', '.join(waiting)}" if waiting else None
