"""The topics whose metadata a consumer needs, and their errors."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafkapy.clients.consumer.subscription import SubscriptionState, SubscriptionType
from kafkapy.errors import ErrorCode, KafkaError, KafkaTimeoutError, error_for
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.network_client import NetworkClient

__all__ = ["Topics"]

FATAL: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Errors of a topic that are not retriable."""


class Topics:
    """The consumer's topics. On the loop's thread.

    `exclude_internal`: a pattern selects no internal topics.
    """

    def __init__(self, network: NetworkClient, subscription: SubscriptionState, exclude_internal: bool) -> None:
        self._network = network
        self._subscription = subscription
        self._exclude_internal = exclude_internal
        self._transient: Counter[str] = Counter()

    def want(self) -> None:
        """Sets the wanted topics of the metadata.

        They are the subscribed topics and the topics of running queries.
        """
        cluster = self._network.cluster
        if self._subscription.type in (SubscriptionType.PATTERN, SubscriptionType.SERVER_PATTERN):
            cluster.want_all(True)
        else:
            cluster.want_only(self._subscription.metadata_topics | set(self._transient))

    @contextmanager
    def wanting(self, topics: Iterable[str]) -> Iterator[None]:
        """Wants the metadata of these topics, too, within the block."""
        added = Counter(set(topics))
        self._transient += added
        self.want()
        try:
            yield
        finally:
            self._transient -= added
            self.want()

    def errors(self) -> list[KafkaError]:
        """Errors of subscribed topics, for the user."""
        errors = []
        for name in self._subscription.metadata_topics:
            topic = self._network.cluster.topics.get(name)
            code = ErrorCode.of(topic.error) if topic is not None else ErrorCode.NONE
            if code in FATAL:
                errors.append(error_for(code, f"{code.message} Topic: {name}"))
        return errors

    def match_pattern(self) -> bool:
        """Selects the topics that match the pattern now; whether they have changed."""
        if self._subscription.type is not SubscriptionType.PATTERN:
            return False
        return self._subscription.subscribe_matching(
            name
            for name, topic in self._network.cluster.topics.items()
            if not topic.error and not (self._exclude_internal and topic.is_internal)
        )

    def all_partitions(self) -> set[TopicPartition]:
        """All partitions of the subscribed topics."""
        return {
            TopicPartition(topic, number)
            for topic in self._subscription.topics
            for number in self._network.cluster.partitions_for_topic(topic) or ()
        }

    async def names(self, timeout_ms: int) -> set[str]:
        """The names of all visible topics, from a new request. RequestTimedOutError."""
        response = await self._network.send_any(MetadataRequest(topics=None), timeout_ms=timeout_ms)
        return {topic.name for topic in response.topics if not topic.error_code}

    async def partitions_of(self, topic: str, timeout_ms: int) -> set[int]:
        """The partition numbers of a topic, or an empty set.

        From the metadata, else from the cluster. Empty: the topic does not exist.
        """
        known = self._network.cluster.partitions_for_topic(topic)
        if known is None:
            with self.wanting([topic]):
                await self.refresh(timeout_ms)
                known = self._network.cluster.partitions_for_topic(topic)
        return known or set()

    async def refresh(self, timeout_ms: int) -> None:
        """Requests metadata now. KafkaTimeoutError."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._network.cluster.refresh()
        except TimeoutError:
            raise KafkaTimeoutError(f"Metadata was not available within {timeout_ms} ms") from None
