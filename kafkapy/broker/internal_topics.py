"""The number of partitions of the coordinators' topics.

A group, a transactional id or a share-partition belongs to one of them. The number of a topic is fixed once it exists.
Another broker may create it, from another configuration, so a broker uses its own configured number for nothing but the
creation. Source: GroupMetadataManager and TransactionStateManager, which read the number at the start only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kafkapy.metadata.store import STORE_FAILED, MetadataStore
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kafkapy.metadata.znodes import decode_topic, topic_path

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

PARTITION_COUNT_KEYS: Final = {
    GROUP_METADATA_TOPIC: "offsets.topic.num.partitions",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.num.partitions",
    SHARE_GROUP_STATE_TOPIC: "share.coordinator.state.topic.num.partitions",
}
RETRY_S: Final = 0.5
"""Pause in seconds before the store is asked again after an error."""

logger = logging.getLogger("kafka.server.InternalTopics")


class InternalTopics:
    """The partition counts of `__consumer_offsets`, `__transaction_state` and `__share_group_state`.

    Owned by Coordinators; used on the control loop.
    """

    def __init__(self, config: BrokerConfig, store: MetadataStore) -> None:
        self._config = config
        self._store = store
        self._counts: dict[str, int] = {}
        """Of the topics that exist."""

    async def start(self) -> None:
        """Look for the topics once. MetadataStoreError."""
        for topic in PARTITION_COUNT_KEYS:
            await self._look(topic)

    def count(self, topic: str) -> int:
        """The topic's number of partitions; the configured one for an unknown topic."""
        known = self._counts.get(topic)
        return self._config.get_int(PARTITION_COUNT_KEYS[topic]) if known is None else known

    def is_known(self, topic: str) -> bool:
        """Whether `count` is that of an existing topic."""
        return topic in self._counts

    async def look_for(self, topic: str) -> bool:
        """Read the number of a topic; whether the topic exists.

        It waits while the store fails.
        """
        while topic not in self._counts:
            try:
                return await self._look(topic)
            except STORE_FAILED as error:
                logger.warning("The partitions of %s cannot be read; the broker retries: %s", topic, error)
                await asyncio.sleep(RETRY_S)
        return True

    def forget(self, topic: str) -> None:
        """Forget a deleted topic."""
        self._counts.pop(topic, None)

    async def _look(self, topic: str) -> bool:
        found = (await self._store.get_many([topic_path(topic)]))[0]
        if found is not None:
            self._counts[topic] = len(decode_topic(topic, found[0]).partitions)
        return found is not None
