"""Topics as pages show them: one request for all names, and requests for the rows of a page only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkapy.admin import ConfigResource, OffsetSpec
from kafkapy.errors import KafkaError, error_for
from kafkapy.types import TopicPartition
from kafkapy_console.errors import NotFoundError
from kafkapy_console.services.clients import Clients

__all__ = ["MOST_COUNTED", "Offsets", "Topic", "Topics"]

METADATA_S = 3
SIZES_S = 15
MOST_ASKED = 5000
"""Partitions in one request for offsets."""
MOST_COUNTED = 5000
"""Partitions whose offsets a page sums, or polls for a chart."""


@dataclass(frozen=True)
class Topic:
    """A topic of the metadata."""

    name: str
    id: str | None
    internal: bool
    partitions: Sequence[Mapping[str, Any]]
    operations: Sequence[str] | None

    @property
    def replication(self) -> int:
        """The replicas of its first partition."""
        return len(self.partitions[0]["replica_nodes"]) if self.partitions else 0

    @property
    def under_replicated(self) -> int:
        """The partitions with a replica that is not in sync."""
        return sum(len(each["isr_nodes"]) < len(each["replica_nodes"]) for each in self.partitions)

    @property
    def offline(self) -> int:
        """The partitions without a leader."""
        return sum(each["leader_id"] < 0 for each in self.partitions)

    @property
    def numbers(self) -> list[int]:
        """The partition numbers in order."""
        return sorted(each["partition_index"] for each in self.partitions)

    @property
    def readable(self) -> list[TopicPartition]:
        """The partitions with a leader, in order."""
        led = (each["partition_index"] for each in self.partitions if each["leader_id"] >= 0)
        return [TopicPartition(self.name, number) for number in led]

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions in order."""
        return [TopicPartition(self.name, number) for number in self.numbers]


@dataclass(frozen=True)
class Offsets:
    """The first and the next offset of partitions; partitions without an answer are missing."""

    begin: Mapping[TopicPartition, int] = field(default_factory=dict)
    end: Mapping[TopicPartition, int] = field(default_factory=dict)

    def count(self, partitions: Iterable[TopicPartition]) -> int | None:
        """The offsets in the log, None when one is unknown. Compacted logs have fewer records."""
        total = 0
        for each in partitions:
            if each not in self.begin or each not in self.end:
                return None
            total += self.end[each] - self.begin[each]
        return total


class Topics:
    """The topics that one principal sees."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def all(self) -> dict[str, Topic]:
        """All topics by name, sorted, a few seconds old at most."""
        return await self._clients.cache.get("topics", METADATA_S, self._read)

    async def _read(self) -> dict[str, Topic]:
        found = [_topic(each) for each in await (await self._clients.admin()).describe_topics()]
        return {topic.name: topic for topic in sorted(found, key=lambda each: each.name)}

    async def with_partitions(self, partitions: Iterable[TopicPartition]) -> dict[str, Topic]:
        """The topics of partitions by name, however young they are; those that do not exist are missing."""
        wanted: dict[str, int] = {}
        for each in partitions:
            wanted[each.topic] = max(each.partition, wanted.get(each.topic, 0))
        known = await self.all()
        found = {name: known[name] for name in wanted if name in known}
        younger = sorted(
            name for name, last in wanted.items() if name not in found or last not in found[name].numbers
        )
        if younger:
            for told in await (await self._clients.admin()).describe_topics(younger):
                if not told["error_code"]:
                    found[told["name"]] = _topic(told)
        return found

    async def one(self, name: str) -> Topic:
        """A topic, as it is now. NotFoundError."""
        (found,) = await (await self._clients.admin()).describe_topics([name])
        if found["error_code"]:
            error = error_for(found["error_code"])
            if found["error_code"] == 3:
                raise NotFoundError(f"There is no topic {name}, or you may not see it.")
            raise error
        return _topic(found)

    async def sizes(self) -> dict[str, int]:
        """Bytes of all replicas by topic, from the brokers' log directories; empty without permission."""

        async def read() -> dict[str, int]:
            totals: dict[str, int] = {}
            for broker in await self.log_dirs():
                for directory in broker["log_dirs"]:
                    for topic in directory["topics"]:
                        size = sum(each["partition_size"] for each in topic["partitions"])
                        totals[topic["name"]] = totals.get(topic["name"], 0) + size
            return totals

        try:
            return await self._clients.cache.get("sizes", SIZES_S, read)
        except KafkaError:
            return {}

    async def log_dirs(self) -> list[dict[str, Any]]:
        """The log directories of all brokers."""

        async def read() -> list[dict[str, Any]]:
            return await (await self._clients.admin()).describe_log_dirs()

        return await self._clients.cache.get("log dirs", SIZES_S, read)

    async def offsets(self, topics: Iterable[Topic]) -> Offsets:
        """The offsets of the partitions with a leader. One request for each leader and end of the log."""
        return await self.offsets_of([partition for topic in topics for partition in topic.readable])

    async def offsets_of(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """The offsets of partitions; an error of one partition leaves the batch it was in without answers."""
        admin = await self._clients.admin()
        begin: dict[TopicPartition, int] = {}
        end: dict[TopicPartition, int] = {}
        for start in range(0, len(partitions), MOST_ASKED):
            batch = partitions[start : start + MOST_ASKED]
            first, last = await asyncio.gather(
                admin.list_partition_offsets(dict.fromkeys(batch, OffsetSpec.EARLIEST)),
                admin.list_partition_offsets(dict.fromkeys(batch, OffsetSpec.LATEST)),
            )
            for found, told in ((begin, first), (end, last)):
                found.update({partition: each.offset for partition, each in told.items()})
        return Offsets(begin, end)

    async def configs(self, name: str) -> dict[str, dict[str, Any]]:
        """The configuration of a topic, with documentation where the broker gives it."""
        return await described(self._clients, "topic", name)

    def changed(self) -> None:
        """Forget what is cached, after a change."""
        self._clients.cache.drop("topics", "sizes", "log dirs")


async def described(clients: Clients, kind: str, name: str) -> dict[str, dict[str, Any]]:
    """All keys of a resource with synonyms and documentation; brokers before Kafka 2.6 give no documentation."""
    admin = await clients.admin()
    resource = ConfigResource(kind, name)
    try:
        found = await admin.describe_configs([resource], True, "all", include_documentation=True)
    except KafkaError as error:
        if type(error).__name__ != "UnsupportedVersionError":
            raise
        found = await admin.describe_configs([resource], True, "all")
    return dict(sorted(found[kind][name].items()))


def _topic(found: Mapping[str, Any]) -> Topic:
    return Topic(
        name=found["name"],
        id=found.get("topic_id"),
        internal=bool(found.get("is_internal")),
        partitions=sorted(found["partitions"], key=lambda each: each["partition_index"]),
        operations=found.get("authorized_operations"),
    )
