"""The cluster's finalized features as /feature has them (KIP-584).

A broker of a ZooKeeper cluster tells clients what the node says: Apache Kafka brokers there know no feature, and one
that is finalized ends them. Other clusters consist of brokers of one kind, and have the latest levels in force. A
finalized feature that this broker does not support ends it, because it could not keep the cluster's promises. Source:
kafka.server.FinalizedFeatureChangeListener.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from kafkapy.broker.features import FEATURES, FEATURES_EPOCH
from kafkapy.broker.meta_properties import StartupError
from kafkapy.metadata.store import STORE_FAILED, MetadataStore, NoNodeError, Watch, WatchEvent
from kafkapy.metadata.znodes import FEATURE, decode_feature

logger = logging.getLogger("kafka.server.FinalizedFeatureChangeListener")

RETRY_S = 0.5
"""Pause in seconds before the node is read again after an error of the store."""
UNKNOWN_EPOCH = -1


class FinalizedFeatures:
    """The levels in force, for ApiVersions. Changed and read on the control loop."""

    def __init__(self, *, follows_node: bool = False) -> None:
        """`follows_node`: the levels are those of /feature; otherwise they are fixed."""
        self.follows_node = follows_node
        self.levels: Mapping[str, int] = {} if follows_node else {each.name: each.finalized_level for each in FEATURES}
        self.epoch = UNKNOWN_EPOCH if follows_node else FEATURES_EPOCH
        """The version of /feature, -1 while there is none."""

    def put(self, levels: Mapping[str, int], epoch: int) -> None:
        """Take the content of /feature over."""
        if self.follows_node:
            self.levels, self.epoch = levels, epoch


def unsupported(levels: Mapping[str, int]) -> str:
    """The reason why this broker cannot keep a finalized level; empty without one."""
    known = {each.name: each for each in FEATURES}
    for name, level in sorted(levels.items()):
        feature = known.get(name)
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
        reason = unsupported(levels)
        if not reason:
            self._features.put(levels, stat.version)
        return reason
