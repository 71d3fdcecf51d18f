"""A broker's replication of partitions that other brokers lead."""

from __future__ import annotations

from kafkapy.broker.inter_broker import InterBrokerClient, endpoints_of, inter_broker_client_config
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.metadata.metadata_version import IBP, MetadataVersion

__all__ = ["Replication"]


class Replication(Part):
    """Makes the fetchers, and gives them to the ReplicaManager.

    A broker that is alone in its cluster has none.
    """

    name = "replication"

    async def start(self, broker: Broker) -> None:
        """Make them before the controller's first request."""
        if not broker.store.is_shared:
            return
        # A broker alone starts without these modules.
        from kafkapy.replica.fetcher_api import FollowerVersions
        from kafkapy.replica.fetcher_manager import ReplicaFetcherManager

        config, replicas = broker.config, broker.replica_manager
        version = broker.features.protocol(MetadataVersion.parse(config.get_str(IBP)))
        fetchers = ReplicaFetcherManager(
            config,
            broker.node_id,
            broker.log_manager,
            inter_broker_client_config(config, [InterBrokerClient.NOWHERE]),
            endpoints_of(broker.metadata_cache, config.inter_broker_listener_name),
            replicas,
            versions=FollowerVersions(
                version.fetch_version,
                version.list_offsets_version,
                version.offset_for_leader_epoch_version,
                version.truncates_on_fetch,
            ),
        )
        replicas.follow_with(fetchers)

        def registered(epoch: int) -> None:
            fetchers.broker_epoch = epoch

        broker.context.controller.registered.append(registered)

    async def stop(self, broker: Broker) -> None:
        """Fetch nothing more."""
        if broker.replica_manager.fetchers is not None:
            await broker.replica_manager.fetchers.close()
