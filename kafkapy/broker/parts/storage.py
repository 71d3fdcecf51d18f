"""A broker's log directories, and the logs in them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkapy.broker.broker_state import BrokerState
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.broker.topics_on_disk import know_topics
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition

__all__ = ["LogDirectories", "Logs"]


class LogDirectories(Part):
    """Makes the LogManager and locks its directories."""

    name = "log directories"

    async def start(self, broker: Broker) -> None:
        """Lock them: another broker that uses one of them is an error."""
        sealed = _SegmentSealed(broker) if broker.plugins.has_listener("segment_sealed") else None
        broker.log_manager = LogManager(
            broker.config,
            backends=broker.plugins.create_storage_backends(broker.config),
            events=broker.events,
            scheduler=broker.scheduler,
            topic_config=broker.log_config,
            on_log_dir_failure=_LogDirFailed(broker),
            on_segment_sealed=sealed,
        )
        broker.log_manager.acquire()

    async def stop(self, broker: Broker) -> None:
        """Give the locks back."""
        if hasattr(broker, "log_manager"):
            for log_dir in broker.log_manager.dirs:
                log_dir.release()


class Logs(Part):
    """Loads the logs, after a crash with a recovery, and closes them.

    After that the directories are marked clean.
    """

    name = "logs"

    def __init__(self) -> None:
        self._loading = False

    async def start(self, broker: Broker) -> None:
        """Load them and begin with retention, flushes, checkpoints and cleaning."""
        broker.state = BrokerState.RECOVERY
        topics = await know_topics(
            broker.config, broker.store, broker.log_manager, broker.node_id, rebuild=broker.rebuild_metadata
        )
        await broker.repository.load_topics(topics)
        self._loading = True
        await asyncio.get_running_loop().run_in_executor(None, broker.log_manager.load)
        broker.log_manager.start()

    async def stop(self, broker: Broker) -> None:
        """Flush and close them."""
        if self._loading:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, broker.log_manager.shutdown, broker.broker_epoch)


class _SegmentSealed:
    """Tells plugins of a segment that takes no more records."""

    def __init__(self, broker: Broker) -> None:
        self._notify = broker.plugins.notify

    def __call__(self, partition: TopicPartition, base_offset: int, next_offset: int, size: int) -> None:
        self._notify(
            "segment_sealed", topic_partition=partition, base_offset=base_offset, next_offset=next_offset, size=size
        )


class _LogDirFailed:
    """Hears from the LogManager, on any thread, that a directory is offline."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(self, directory: Path, partitions: list[TopicPartition]) -> None:
        if self._broker.on_log_dir_failure is not None:
            self._broker.on_log_dir_failure(directory, partitions)
            if not self._broker.log_manager.live_dirs:
                self._broker.stop_failed()
