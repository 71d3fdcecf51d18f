"""A broker's replication with other brokers: fetchers of what they lead, ISR changes of what this broker leads.

A broker that is alone in its cluster has none of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkapy.broker.inter_broker import InterBrokerClient, endpoints_of, inter_broker_client_config
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.metadata.metadata_version import IBP, MetadataVersion

if TYPE_CHECKING:
    from kafkapy.replica.alter_partition import AlterPartitionSender
    from kafkapy.replica.isr import IsrManager

__all__ = ["Replication"]

logger = logging.getLogger("kafka.server.KafkaServer")


class Replication(Part):
    """Makes the fetchers and the ISR manager, and gives them to the ReplicaManager.

    The controller's first request finds them there.
    """

    name = "replication"

    def __init__(self) -> None:
        self._sender: AlterPartitionSender | None = None
        self._isr: IsrManager | None = None
        self._expiration: asyncio.Task[None] | None = None

    async def start(self, broker: Broker) -> None:
        """Make them, in a cluster that may have other brokers."""
        if not broker.store.is_shared:
            return
        # A broker alone starts without these modules.
        from kafkapy._speedups.base.event_queue import FOLLOWER_CAUGHT_UP
        from kafkapy._speedups.log.replication import Replication as LogReplication
        from kafkapy.replica.fetcher_api import FollowerVersions
        from kafkapy.replica.fetcher_manager import ReplicaFetcherManager
        from kafkapy.replica.isr import IsrManager

        config, replicas = broker.config, broker.replica_manager
        version = MetadataVersion.parse(config.get_str(IBP))
        endpoint_of = endpoints_of(broker.metadata_cache, config.inter_broker_listener_name)
        replication = LogReplication()
        self._sender = _alter_partition_sender(broker, version)
        self._isr = IsrManager(broker.node_id, replication, self._sender)
        fetchers = ReplicaFetcherManager(
            config,
            broker.node_id,
            broker.log_manager,
            inter_broker_client_config(config, [InterBrokerClient.NOWHERE]),
            endpoint_of,
            replicas,
            versions=FollowerVersions(
                version.fetch_version,
                version.list_offsets_version,
                version.offset_for_leader_epoch_version,
                version.truncates_on_fetch,
            ),
        )
        replicas.replicate(fetchers, self._isr, replication)
        broker.plane_events.on(FOLLOWER_CAUGHT_UP, self._isr.follower_caught_up)

        def registered(epoch: int) -> None:
            fetchers.broker_epoch = epoch

        broker.context.controller.registered.append(registered)
        self._expiration = asyncio.get_running_loop().create_task(self._expire(broker), name="isr-expiration")

    async def stop(self, broker: Broker) -> None:
        """Fetch and change nothing more."""
        if self._expiration is not None:
            self._expiration.cancel()
            await asyncio.gather(self._expiration, return_exceptions=True)
        if broker.replica_manager.fetchers is not None:
            await broker.replica_manager.fetchers.close()
        if self._isr is not None:
            await self._isr.close()
        if self._sender is not None:
            await self._sender.close()

    async def _expire(self, broker: Broker) -> None:
        """Have lagging replicas leave the ISRs, every half of replica.lag.time.max.ms."""
        assert self._isr is not None
        while True:
            await asyncio.sleep(broker.config.get_int("replica.lag.time.max.ms") / 2000)
            await self._isr.shrink_all()


def _alter_partition_sender(broker: Broker, version: MetadataVersion) -> AlterPartitionSender:
    from kafkapy.replica.alter_partition import AlterPartitionManager, StoreIsrWriter

    if not version.has_alter_partition:
        return StoreIsrWriter(broker.store)
    config, controller = broker.config, broker.context.controller
    endpoint_of = endpoints_of(broker.metadata_cache, config.inter_broker_listener_name)
    return AlterPartitionManager(
        broker.node_id,
        InterBrokerClient(config, broker.node_id, "alter-partition", endpoint_of),
        lambda: controller.active_controller_id,
        lambda: controller.broker_epoch,
    )
