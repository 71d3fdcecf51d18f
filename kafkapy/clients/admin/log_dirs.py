"""Log directories of brokers: their contents, and moves of replicas between them.

Served by: DescribeLogDirs, AlterReplicaLogDirs (each broker for itself).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from kafkapy.clients.admin.routing import AdminRouting
from kafkapy.clients.admin.shapes import as_dict, checked, error_type
from kafkapy.errors import KafkaError
from kafkapy.garbage import resting
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.types import TopicPartitionReplica

__all__ = ["LogDirAdmin"]


class LogDirAdmin(AdminRouting):
    """The admin client's calls for log directories."""

    async def describe_log_dirs(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[str] | None = None,
        brokers: Iterable[int] | None = None,
    ) -> list[dict[str, Any]]:
        """The log directories of brokers, with their topics and sizes.

        [{'broker', 'log_dirs': [{error_code, log_dir, topics, total_bytes, usable_bytes, is_cordoned}]}].
        `topic_partitions`: {topic: [partition]}, or topics, or None for all. `brokers`: all when None. An offline
        directory has its error_code; a broker's error is raised.
        """
        deadline = self.deadline()
        wanted = sorted(await self.brokers()) if brokers is None else list(brokers)
        topics = None if topic_partitions is None else await self._partitions_of(topic_partitions)

        async def describe(node: int) -> dict[str, Any]:
            request = DescribeLogDirsRequest(topics=topics)

            async def ask(at: int) -> Any:
                return checked(await self.send(at, request, deadline))

            response = await self.one(self.at_node(node), ask, deadline)
            with resting(keeps=False):
                return {"broker": node, "log_dirs": [as_dict(result) for result in response.results]}

        return list(await asyncio.gather(*map(describe, wanted)))

    async def alter_replica_log_dirs(
        self, replica_assignments: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, type[KafkaError]]:
        """Starts moves: {TopicPartitionReplica(topic, partition, broker_id): directory}.

        Returns {replica: NoError or its error's class}. `describe_log_dirs` shows when a move is complete.
        """
        deadline = self.deadline()
        directories = {TopicPartitionReplica(*replica): path for replica, path in replica_assignments.items()}
        by_broker: dict[int, list[TopicPartitionReplica]] = {}
        for replica in directories:
            by_broker.setdefault(replica.broker_id, []).append(replica)

        async def alter(broker: int, replicas: list[TopicPartitionReplica]) -> dict[Any, type[KafkaError]]:
            request = _alteration({replica: directories[replica] for replica in replicas})
            response = await self.one(self.at_node(broker), lambda node: self.send(node, request, deadline), deadline)
            return {
                TopicPartitionReplica(result.topic_name, each.partition_index, broker): error_type(each.error_code)
                for result in response.results
                for each in result.partitions
            }

        answers: dict[Any, type[KafkaError]] = {}
        for told in await asyncio.gather(*(alter(*each) for each in by_broker.items())):
            answers |= told
        return answers

    async def _partitions_of(
        self, topics: Mapping[str, Iterable[int]] | Iterable[str]
    ) -> list[DescribeLogDirsRequest.Topic]:
        if isinstance(topics, Mapping):
            numbers = {name: list(partitions) for name, partitions in topics.items()}
        else:
            found = await self.topic_metadata(list(topics), self.deadline())
            numbers = {name: [each.partition_index for each in topic.partitions] for name, topic in found.items()}
        return [DescribeLogDirsRequest.Topic(topic=name, partitions=each) for name, each in numbers.items()]


def _alteration(directories: Mapping[TopicPartitionReplica, str]) -> AlterReplicaLogDirsRequest:
    dirs: dict[str, dict[str, list[int]]] = {}
    for replica, path in directories.items():
        dirs.setdefault(path, {}).setdefault(replica.topic, []).append(replica.partition)
    dir_class = AlterReplicaLogDirsRequest.Dir
    return AlterReplicaLogDirsRequest(
        dirs=[
            dir_class(
                path=path,
                topics=[dir_class.Topic(name=topic, partitions=numbers) for topic, numbers in topics.items()],
            )
            for path, topics in dirs.items()
        ]
    )
