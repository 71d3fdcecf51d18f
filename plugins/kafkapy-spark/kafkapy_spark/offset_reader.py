"""What the driver asks the cluster: which partitions there are, and their offsets.

Source: org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin, ConsumerStrategy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Final, TypeVar
from uuid import UUID

from kafkapy.clients.consumer.consumer import KafkaConsumer
from kafkapy.errors import (
    IllegalArgumentError,
    KafkaError,
    NoBrokersAvailableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.types import ListOffsetsTimestamp, TopicPartition
from kafkapy_spark.offsets import (
    EARLIEST,
    LATEST,
    EarliestOffsets,
    LatestOffsets,
    OffsetLimit,
    OffsetsAtTimestamp,
    OffsetsByTimestamp,
    PartitionOffsets,
    SpecificOffsets,
    names,
)
from kafkapy_spark.options import SourceOptions, topic_matcher
from kafkapy_spark.planning import OffsetRange

T = TypeVar("T")
_Topic = DescribeLogDirsRequest.Topic

logger = logging.getLogger("kafkapy.spark")

SIZES_MAX_AGE_S: Final = 60.0
"""Averages of bytes are as old at most."""
METADATA_MAX_AGE_S: Final = 1.0
"""New partitions are seen after so long, where it is not asked for more."""

CONSUMER_CONFIGS: Final[Mapping[str, object]] = {
    "group.id": None,
    "enable.auto.commit": False,
    "auto.offset.reset": "none",
    "allow.auto.create.topics": False,
}


class _Lister(KafkaConsumer):
    """A consumer that reads nothing: it keeps metadata of topics and lists offsets."""

    _held: AbstractContextManager[None] | None = None
    _listed: Collection[str] = ()

    def partitions(self, topics: Collection[str]) -> set[TopicPartition]:
        """All partitions of these topics as the cluster has them now. UnknownTopicOrPartitionError."""
        if set(topics) != set(self._listed):
            self._background.call(self._hold, topics)
        self.bootstrap(refresh=True)
        numbers = {topic: self._core.network.cluster.partitions_for_topic(topic) for topic in topics}
        missing = sorted(topic for topic, found in numbers.items() if not found)
        if missing:
            raise UnknownTopicOrPartitionError(f"This server does not host topic {', '.join(missing)}")
        return {TopicPartition(topic, number) for topic, found in numbers.items() for number in found or ()}

    def topic_ids(self) -> dict[str, UUID]:
        """The ids of the topics that were asked about last, of those that have one."""
        cluster = self._core.network.cluster
        ids = {topic: cluster.topic_id(topic) for topic in self._listed}
        return {topic: found for topic, found in ids.items() if found}

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """The offset for each timestamp in ms, or ListOffsetsTimestamp; -1 where there is none."""
        listed = self._run(self._core.list_offsets(dict(timestamps), self._api_timeout_ms))
        return {partition: found.offset for partition, found in listed.items()}

    def log_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What the logs of these partitions take at their leaders, of those that are known to have one. KafkaError."""
        return self._run(self._log_bytes(partitions))

    async def _log_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        network = self._core.network
        asked: dict[int, dict[str, list[int]]] = {}
        for topic, number in partitions:
            leader = network.cluster.leader_for(TopicPartition(topic, number))
            if leader is not None:
                asked.setdefault(leader, {}).setdefault(topic, []).append(number)
        requests = [
            network.send(node, DescribeLogDirsRequest(topics=[_Topic(topic=name, partitions=at) for name, at in each]))
            for node, each in ((node, topics.items()) for node, topics in asked.items())
        ]
        found: dict[TopicPartition, int] = {}
        for response in await asyncio.gather(*requests):
            if response.error_code:
                raise error_for(response.error_code)
            for result in response.results:
                for topic in result.topics:
                    for each in topic.partitions:
                        if not each.is_future_key:
                            found[TopicPartition(topic.name, each.partition_index)] = each.partition_size
        return found

    def _hold(self, topics: Collection[str]) -> None:
        """Metadata is asked for about these from now on, instead of before each question about them."""
        before, self._held = self._held, self._core.topics.wanting(topics)
        self._held.__enter__()
        self._listed = tuple(topics)
        if before is not None:
            before.__exit__(None, None, None)


def without_frames(method: Callable[..., T]) -> Callable[..., T]:
    """For what Spark calls: Spark shows each frame of a traceback, and that no broker can be reached needs none."""

    @wraps(method)
    def call(*arguments: Any) -> T:
        try:
            return method(*arguments)
        except NoBrokersAvailableError as error:
            raise error.with_traceback(None) from None

    return call


class OffsetReader:
    """Connects at the first question. Used by one thread. Questions that fail are asked again,
    fetchOffset.numRetries times in all, and then raise a KafkaError."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: _Lister | None = None
        self._partitions: set[TopicPartition] = set()
        self._partitions_at = 0.0
        self._topic_ids: dict[str, UUID] = {}
        self._recreated: set[str] = set()
        self._bytes_per_row: dict[TopicPartition, float] = {}
        self._bytes_at: dict[TopicPartition, float] = {}

    def close(self) -> None:
        """Ends the connections; a further question makes new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def partitions(self, max_age_s: float = 0.0) -> set[TopicPartition]:
        """The partitions that the options choose, as they were at most so long ago."""
        if not self._partitions_at or time.monotonic() - self._partitions_at > max_age_s:
            self._partitions = self._retried(self._find_partitions)
            self._partitions_at = time.monotonic()
            ids = self._connected().topic_ids()
            self._recreated |= {topic for topic, found in ids.items() if self._topic_ids.get(topic, found) != found}
            self._topic_ids |= ids
        return self._partitions

    def topic_ids(self) -> dict[str, UUID]:
        """The ids of the topics of these partitions, of those that have one."""
        return dict(self._topic_ids)

    def take_recreated(self) -> set[str]:
        """Topics that have been deleted and created again, as far as this object has seen, since the last call."""
        out, self._recreated = self._recreated, set()
        return out

    def earliest(self, partitions: Collection[TopicPartition]) -> PartitionOffsets:
        """First offsets."""
        return self._list(dict.fromkeys(partitions, int(ListOffsetsTimestamp.EARLIEST)))

    def latest(self, known: Mapping[TopicPartition, int], max_age_s: float = 0.0) -> PartitionOffsets:
        """Ends of all chosen partitions (for read_committed their last stable offsets). A broker that lags behind what
        is `known` already is asked again (SPARK-26267), before its word is taken."""
        for attempt in range(self._options.fetch_offset_retries):
            if attempt:
                time.sleep(self._options.fetch_offset_retry_interval_ms / 1000)
            found = self.ends(self.partitions(max_age_s))
            behind = {at: (known[at], offset) for at, offset in found.items() if offset < known.get(at, 0)}
            if not behind:
                break
            logger.warning("Found ends of partitions before what was known (known, found): %s", behind)
        return found

    def ends(self, partitions: Collection[TopicPartition]) -> PartitionOffsets:
        """Ends of these partitions."""
        return self._list(dict.fromkeys(partitions, int(ListOffsetsTimestamp.LATEST)))

    def decided(self, ranges: Collection[OffsetRange]) -> set[TopicPartition]:
        """Partitions whose ranges end before whatever a reader of the isolation level does not get to see yet."""
        last = self.ends([each.partition for each in ranges])
        return {each.partition for each in ranges if each.end <= last[each.partition]}

    def bytes_per_row(self, ranges: Collection[OffsetRange]) -> dict[TopicPartition, float]:
        """What an offset of these partitions takes in their logs, on average: log size by offsets, as it was at most
        SIZES_MAX_AGE_S ago. None for partitions of clusters that do not tell, or not this user."""
        now = time.monotonic()
        wanted = [each.partition for each in ranges]
        old = [each for each in wanted if now - self._bytes_at.get(each, -SIZES_MAX_AGE_S) >= SIZES_MAX_AGE_S]
        if old:
            self._bytes_at |= dict.fromkeys(old, now)
            try:
                self.partitions(METADATA_MAX_AGE_S)  # leaders are known then
                sizes = self._connected().log_bytes(old)
                first, last = self.earliest(sizes), self.ends(sizes)
            except KafkaError as error:
                logger.info("Sizes of logs are not known, and tasks are planned by offsets alone: %s", error)
                return {}
            for each, size in sizes.items():
                self._bytes_per_row[each] = size / max(last[each] - first[each], 1)
        return {each: self._bytes_per_row[each] for each in wanted if each in self._bytes_per_row}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is at or after the time in ms; None where there is none."""
        found = self._list(times)
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def resolve(self, limit: OffsetLimit, *, starting: bool) -> PartitionOffsets:
        """The offsets that a limit stands for. IllegalArgumentError for one that does not fit the partitions."""
        chosen = self.partitions()
        if isinstance(limit, EarliestOffsets):
            return self.earliest(chosen)
        if isinstance(limit, LatestOffsets):
            return self.ends(chosen)
        if isinstance(limit, SpecificOffsets):
            _check_all(limit.offsets, chosen, "start offsets" if starting else "end offsets")
            return self._resolve_words(limit.offsets)
        if isinstance(limit, OffsetsByTimestamp):
            side = "timestamp based start offsets" if starting else "timestamp based end offsets"
            _check_all(limit.timestamps, chosen, side)
            times = limit.timestamps
        else:
            times = dict.fromkeys(chosen, limit.timestamp)
        return self._resolve_times(times, limit, starting)

    def _resolve_words(self, offsets: PartitionOffsets) -> PartitionOffsets:
        first = self.earliest([partition for partition, offset in offsets.items() if offset == EARLIEST])
        last = self.ends([partition for partition, offset in offsets.items() if offset == LATEST])
        return offsets | first | last

    def _resolve_times(
        self, times: PartitionOffsets, limit: OffsetsByTimestamp | OffsetsAtTimestamp, starting: bool
    ) -> PartitionOffsets:
        found: PartitionOffsets = {}
        for partition, offset in self.at_times(times).items():
            if offset is None and starting and not limit.latest_without_match:
                raise IllegalArgumentError(
                    f"No offset matched from request of topic-partition {partition} and timestamp {times[partition]}."
                )
            found[partition] = LATEST if offset is None else offset
        return self._resolve_words(found)

    # --- the cluster ------------------------------------------------------------------------------------------------

    def _find_partitions(self) -> set[TopicPartition]:
        options = self._options
        if options.partitions:
            found = self._connected().partitions({partition.topic for partition in options.partitions})
            missing = set(options.partitions) - found
            if missing:
                raise UnknownTopicOrPartitionError(f"This server does not host {names(missing)}")
            return set(options.partitions)
        if options.pattern is None:
            return self._connected().partitions(options.topics)
        matches = topic_matcher(options.pattern)
        topics = [name for name in self._connected().topics() if matches(name)]
        return self._connected().partitions(topics) if topics else set()

    def _list(self, timestamps: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """Offsets for special or real timestamps; -1 where no record is that late."""
        if not timestamps:
            return {}
        return self._retried(lambda: self._connected().list_offsets(timestamps))

    def _connected(self) -> _Lister:
        if self._client is None:
            self._client = _Lister(configs={**self._options.kafka, **CONSUMER_CONFIGS})
        return self._client

    def _retried(self, ask: Callable[[], T]) -> T:
        left = self._options.fetch_offset_retries
        while True:
            try:
                return ask()
            except (IllegalArgumentError, NoBrokersAvailableError):
                raise  # the client has tried to reach a broker for bootstrap.timeout.ms
            except KafkaError as error:
                left -= 1
                if left <= 0:
                    raise
                logger.warning("Asking for offsets failed, and is tried again: %s", error)
                self.close()
                time.sleep(self._options.fetch_offset_retry_interval_ms / 1000)


def _check_all(given: Mapping[TopicPartition, int], chosen: set[TopicPartition], what: str) -> None:
    if given.keys() != chosen:
        raise IllegalArgumentError(
            f"Partitions specified for Kafka {what} don't match what are assigned. Maybe topic partitions are created "
            "or deleted while the query is running. All must be specified; -1 is latest, -2 is earliest. "
            f"Specified: [{names(given)}] Assigned: [{names(chosen)}]"
        )
