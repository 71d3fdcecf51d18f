"""The cluster's finalized features as /feature has them (KIP-584).

Clients hear the levels by ApiVersions; coordinators ask for them at each decision. A ZooKeeper cluster supports no
feature: Apache Kafka brokers there know none, and one that is finalized ends them. A new cluster on another store has
the latest levels. A finalized feature that this broker does not support ends it, because it could not keep the
cluster's promises. Source: kafka.server.FinalizedFeatureChangeListener.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from kafkapy.broker.meta_properties import StartupError
from kafkapy.metadata.features import (
    BY_NAME,
    FEATURES,
    GROUP_VERSION,
    LATEST_LEVELS,
    METADATA_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    Feature,
    protocol_at,
)
from kafkapy.metadata.metadata_version import LATEST, MetadataVersion
from kafkapy.metadata.store import STORE_FAILED, MetadataStore, NoNodeError, Watch, WatchEvent
from kafkapy.metadata.znodes import FEATURE, decode_feature

logger = logging.getLogger("kafka.server.FinalizedFeatureChangeListener")

RETRY_S = 0.5
"""Pause in seconds before the node is read again after an error of the store."""
UNKNOWN_EPOCH = -1
FIRST_EPOCH = 0
"""The version of a new /feature: clients keep what they know of the highest epoch."""


class FinalizedFeatures:
    """The levels in force. Changed and read on the control loop."""

    def __init__(self, *, zookeeper: bool = False) -> None:
        """`zookeeper`: Apache Kafka brokers may be in the cluster, so no feature is supported."""
        self.zookeeper = zookeeper
        self.supported: tuple[Feature, ...] = () if zookeeper else FEATURES
        self.levels: Mapping[str, int] = {} if zookeeper else LATEST_LEVELS
        self.epoch = UNKNOWN_EPOCH if zookeeper else FIRST_EPOCH
        """The version of /feature, -1 while there is none in a ZooKeeper cluster."""
        self._changed = asyncio.Event()
        self.listeners: list[Callable[[], None]] = []
        """Called after each change of the levels."""

    def put(self, levels: Mapping[str, int], epoch: int) -> None:
        """Take the content of /feature over.

        A node without metadata.version is from an earlier kafkapy, which had the latest levels in force.
        """
        if not self.zookeeper and METADATA_VERSION not in levels:
            levels, epoch = LATEST_LEVELS, max(epoch, FIRST_EPOCH)
        if levels != self.levels:
            logger.info("The finalized features are %s with epoch %d", dict(levels), epoch)
        self.levels, self.epoch = levels, epoch
        self._changed.set()
        for listener in self.listeners:
            listener()

    async def wait_for(self, epoch: int) -> None:
        """Return when this broker knows /feature in that version, or a later one."""
        while self.epoch < epoch:
            self._changed.clear()
            await self._changed.wait()

    @property
    def transaction_version(self) -> int:
        """The level of transaction.version."""
        return self.levels.get(TRANSACTION_VERSION, 0)

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether the levels allow the consumer protocol.

        In a ZooKeeper cluster only the configuration decides.
        """
        return self.zookeeper or self.levels.get(GROUP_VERSION, 0) >= 1

    @property
    def share_version(self) -> int:
        """The level of share.version; 0, so no share groups, in a ZooKeeper cluster."""
        return self.levels.get(SHARE_VERSION, 0)

    def protocol(self, configured: MetadataVersion) -> MetadataVersion:
        """The inter-broker protocol version that this broker uses, at most the configured one."""
        level = self.levels.get(METADATA_VERSION)
        return min(configured, LATEST if level is None else protocol_at(level))


def unsupported(levels: Mapping[str, int], *, zookeeper: bool = False) -> str:
    """The reason why this broker cannot keep a finalized level; empty without one.

    A ZooKeeper cluster has inter.broker.protocol.version, and no metadata.version.
    """
    for name, level in sorted(levels.items()):
        feature = None if zookeeper and name == METADATA_VERSION else BY_NAME.get(name)
        if feature is None:
            return f"the cluster has finalized feature {name} at level {level}, which this broker does not know"
        if not feature.min_level <= level <= feature.max_level:
            return (
                f"the cluster has finalized feature {name} at level {level}, and this broker supports levels "
                f"{feature.min_level} to {feature.max_level}"
            )
    return ""


class FeatureChanges:
    """Follows /feature. Owned by KafkaServer; used on the control loop."""

    def __init__(self, store: MetadataStore, features: FinalizedFeatures, unusable: Callable[[], None]) -> None:
        """`unusable` is called when this broker must stop."""
        self._store = store
        self._features = features
        self._unusable = unusable
        self._watch: Watch | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the node and follow it. StartupError for an unsupported feature."""
        self._watch = await self._store.watch_node(FEATURE, self._told)
        reason = await self._read()
        if reason:
            raise StartupError(f"This broker cannot join the cluster: {reason}.")
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="feature-changes")

    async def stop(self) -> None:
        """Follow it no more."""
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _told(self, event: WatchEvent) -> None:
        del event
        self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                reason = await self._read()
            except STORE_FAILED as error:
                logger.warning("The finalized features cannot be read; the broker retries: %s", error)
                self._changed.set()
                await asyncio.sleep(RETRY_S)
                continue
            if reason:
                logger.critical("This broker stops: %s", reason)
                self._unusable()
                return

    async def _read(self) -> str:
        """The reason why this broker cannot be part of the cluster, or ""."""
        try:
            value, stat = await self._store.get(FEATURE)
        except NoNodeError:
            self._features.put({}, UNKNOWN_EPOCH)
            return ""
        try:
            enabled, levels = decode_feature(value)
        except ValueError as error:
            return f"/feature cannot be read: {error}"
        if not enabled:
            levels = {}
        reason = unsupported(levels, zookeeper=self._features.zookeeper)
        if not reason:
            self._features.put(levels, stat.version)
        return reason
