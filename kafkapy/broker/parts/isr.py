"""The ISR changes of a broker: sender, lag timer, event of the data plane."""

from __future__ import annotations

from kafkapy._speedups.base.event_queue import FOLLOWER_CAUGHT_UP, FOLLOWER_LOG_START
from kafkapy.broker.inter_broker import InterBrokerClient, endpoints_of
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.metadata.metadata_version import IBP, MetadataVersion
from kafkapy.replica.alter_partition import AlterPartitionManager, AlterPartitionSender, StoreIsrWriter
from kafkapy.replica.isr import IsrManager

__all__ = ["IsrChanges"]


class IsrChanges(Part):
    """Lets followers join and leave the ISRs of the partitions that this broker leads."""

    name = "isr changes"

    def __init__(self) -> None:
        self._manager: IsrManager | None = None
        self._sender: AlterPartitionSender | None = None

    async def start(self, broker: Broker) -> None:
        """Begin before the controller tells this broker to lead."""
        replicas = broker.replica_manager
        self._sender = _sender(broker)
        self._manager = manager = IsrManager(broker.node_id, replicas.replication, self._sender)
        replicas.isr = manager
        broker.plane_events.on(FOLLOWER_CAUGHT_UP, manager.follower_caught_up)
        broker.plane_events.on(FOLLOWER_LOG_START, replicas.deletions.log_start_moved)
        period_ms = max(1, broker.config.get_int("replica.lag.time.max.ms") // 2)
        broker.scheduler.schedule("isr-expiration", manager.shrink_all, period_ms, period_ms)

    async def stop(self, broker: Broker) -> None:
        """Ask for nothing more."""
        if self._manager is not None:
            broker.replica_manager.isr = None
            await self._manager.close()
        if self._sender is not None:
            await self._sender.close()


def _sender(broker: Broker) -> AlterPartitionSender:
    config, cache = broker.config, broker.metadata_cache
    if not MetadataVersion.parse(config.get_str(IBP)).has_alter_partition:
        return StoreIsrWriter(broker.store)
    client = InterBrokerClient(
        config, broker.node_id, "alter-partition", endpoints_of(cache, config.inter_broker_listener_name)
    )
    return AlterPartitionManager(broker.node_id, client, lambda: cache.controller_id, lambda: broker.broker_epoch)
