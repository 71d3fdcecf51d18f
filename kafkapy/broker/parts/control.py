"""The deciding parts of a broker: replicas, authorization, controller, coordinators."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkapy._speedups.log.appender import LogAppender
from kafkapy.broker import client_telemetry
from kafkapy.broker.apis import KafkaApis
from kafkapy.broker.authorizer_parts import AuthorizerParts
from kafkapy.broker.auto_topics import AutoTopicCreation
from kafkapy.broker.context import BrokerContext
from kafkapy.broker.controller_channels import ControllerChannels
from kafkapy.broker.controller_client import ControllerClient
from kafkapy.broker.coordinators import Coordinators
from kafkapy.broker.inter_broker import InterBrokerClient, endpoints_of
from kafkapy.broker.logs_at_start import log_at_start
from kafkapy.broker.mutation_quotas import Unlimited
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.broker.producer_ids import (
    BlockSource,
    ControllerBlocks,
    ProducerIdManager,
    StoreBlocks,
    highest_known_id,
)
from kafkapy.controller.controller import KafkaController
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.metadata_version import IBP, MetadataVersion
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.policies import AlterConfigPolicy, CreateTopicPolicy
from kafkapy.replica.replica_manager import ReplicaManager
from kafkapy.security.authorizer.allow_all import AllowAllAuthorizer

if TYPE_CHECKING:
    from kafkapy.broker.client_telemetry.telemetry import ClientTelemetry

__all__ = ["Authorization", "Control", "Controllership", "Followers", "Replicas"]

logger = logging.getLogger("kafka.server.KafkaServer")

EPOCH_LOOK_S: Final = 1.0
"""Seconds between two looks at the epoch of an authorizer without `start`."""


class Replicas(Part):
    """Makes the ReplicaManager, which hosts the partitions of this broker."""

    name = "replica manager"

    async def start(self, broker: Broker) -> None:
        """Make it; the controller tells it later what to lead."""
        broker.metadata_cache = MetadataCache(broker.cluster_id)
        broker.replica_manager = ReplicaManager(
            broker.config,
            broker.node_id,
            broker.store,
            broker.log_manager,
            broker.partition_table,
            broker.metadata_cache,
            broker.repository,
        )
        broker.on_log_dir_failure = broker.replica_manager.log_dir_failed

    async def stop(self, broker: Broker) -> None:
        """End moves between directories and deletions under way."""
        if hasattr(broker, "replica_manager"):
            await broker.replica_manager.stop()


class Authorization(Part):
    """Makes the configured authorizer, and passes its epochs to the data plane."""

    name = "authorizer"

    def __init__(self) -> None:
        self._services: AuthorizerParts | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self, broker: Broker) -> None:
        """Make it, and let it load its ACLs."""
        broker.authorizer = authorizer = broker.plugins.create_authorizer(broker.config)
        start = getattr(authorizer, "start", None)
        if start is not None:
            self._services = AuthorizerParts(broker)
            await start(self._services)
        elif type(authorizer) is not AllowAllAuthorizer:
            self._looking = asyncio.get_running_loop().create_task(self._look(broker), name="authorizer-epoch")
        broker.plane.authorizer_epoch = authorizer.decisions_epoch

    async def stop(self, broker: Broker) -> None:
        """Close it."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        try:
            if hasattr(broker, "authorizer"):
                broker.authorizer.close()
        finally:
            if self._services is not None:
                await self._services.stop()

    @staticmethod
    async def _look(broker: Broker) -> None:
        """Look for another epoch of an authorizer that does not announce it."""
        while True:
            await asyncio.sleep(EPOCH_LOOK_S)
            broker.plane.authorizer_epoch = broker.authorizer.decisions_epoch


class Control(Part):
    """Makes the controller, the coordinators, KafkaApis and the handlers' BrokerContext."""

    name = "apis"

    def __init__(self) -> None:
        self._channels: ControllerChannels | None = None
        self._requests: ControllerClient | None = None
        self._policy: CreateTopicPolicy | None = None
        self._alter_policy: AlterConfigPolicy | None = None

    async def start(self, broker: Broker) -> None:
        """Make them; they are started when the ports are known."""
        plugins = broker.plugins
        version = broker.features.protocol(MetadataVersion.parse(broker.config.get_str(IBP)))
        self._channels = ControllerChannels(
            broker.config,
            broker.node_id,
            version,
            broker.replica_manager,
            lambda: broker.context.controller.context.live_brokers,
        )
        controller = KafkaController(
            broker.config,
            broker.node_id,
            broker.store,
            broker.metadata_cache,
            broker.repository,
            self._channels,
            replaced=broker.stop_failed,
            notify=plugins.notify,
            forget_offsets=lambda topics, count: broker.context.coordinators.forget_offsets(topics, count),
            logs_at_start=partial(log_at_start, broker.log_manager),
            metadata_version=version,
        )
        self._policy = plugins.create_create_topic_policy(broker.config)
        topic_admin = TopicAdmin(controller, self._policy)
        self._alter_policy = plugins.create_alter_config_policy(broker.config)
        log_manager = broker.log_manager
        connect = partial(_connect, broker)
        requests = ControllerClient(
            broker.node_id,
            broker.metadata_cache,
            lambda: controller.is_active,
            partial(connect, "to-controller"),
        )
        producer_ids = ProducerIdManager(
            _producer_id_blocks(broker, requests), lambda: highest_known_id(log_manager.logs())
        )
        auto_topics = AutoTopicCreation(broker.dynamic, topic_admin, requests, broker.metadata_cache)
        coordinators = Coordinators(
            broker.config,
            broker.store,
            broker.replica_manager,
            broker.metadata_cache,
            producer_ids.next_id,
            plugins.notify,
            plugins.create_group_assignors(broker.config),
            plugins.create_share_assignor(broker.config),
            connect,
            LogAppender(broker.events),
            features=broker.features,
            create_topic=lambda topic: auto_topics.create([topic], Unlimited()),
            commit_table=broker.plane.commit_table,
        )
        broker.context = BrokerContext(
            node_id=broker.node_id,
            cluster_id=broker.cluster_id,
            store=broker.store,
            metadata_cache=broker.metadata_cache,
            controller=controller,
            topic_admin=topic_admin,
            log_manager=log_manager,
            replica_manager=broker.replica_manager,
            scheduler=broker.scheduler,
            dynamic_config=broker.dynamic,
            authorizer=broker.authorizer,
            producer_ids=producer_ids,
            auto_topics=auto_topics,
            coordinators=coordinators,
            logins=broker.logins,
            client_quotas=broker.client_quotas,
            features=broker.features,
            alter_config_policy=self._alter_policy,
        )
        if client_telemetry.is_served(broker.config):
            broker.context.telemetry = _client_telemetry(broker)
        broker.apis = KafkaApis(broker.context)
        self._requests = requests

    async def stop(self, broker: Broker) -> None:
        """Close the controller's connections to other brokers, and this broker's to the controller."""
        if hasattr(broker, "context"):
            if broker.context.telemetry is not None:
                broker.context.telemetry.close()
            await broker.context.producer_ids.close()
        if self._requests is not None:
            await self._requests.close()
        if self._channels is not None:
            await self._channels.close()
        for policy in (self._policy, self._alter_policy):
            if policy is not None:
                policy.close()


class Followers(Part):
    """Lets the coordinators follow what this broker leads and how groups are configured."""

    name = "coordinators"

    async def start(self, broker: Broker) -> None:
        """Begin before the controller tells this broker to lead.

        So no partition is missed.
        """
        coordinators = broker.context.coordinators
        await coordinators.start()
        broker.dynamic.group_keys_read = broker.effects.check_group
        broker.dynamic.follow_groups(lambda *changed: coordinators.group.overrides.put(*changed))

    async def stop(self, broker: Broker) -> None:
        """Send nothing more to other brokers."""
        if hasattr(broker, "context"):
            await broker.context.coordinators.close()


class Controllership(Part):
    """Registers the broker in the cluster, and becomes controller or hears from it."""

    name = "controller"

    async def start(self, broker: Broker) -> None:
        """Register under the ports that were bound."""
        advertised = broker.config.advertise(broker.socket_server.bound_endpoints())
        rack = broker.config.get_optional_str("broker.rack")
        features = tuple((each.name, each.min_level, each.max_level) for each in broker.features.supported)
        await broker.context.controller.start(
            BrokerRegistration(
                broker.node_id, advertised, rack, features=features, cordoned=broker.dynamic.config.is_cordoned
            )
        )

    async def stop(self, broker: Broker) -> None:
        """Decide nothing more."""
        await broker.context.controller.stop()


def _client_telemetry(broker: Broker) -> ClientTelemetry:
    """The library behind it is imported only here."""
    from kafkapy.broker.client_telemetry.telemetry import ClientTelemetry

    receivers = broker.plugins.create_client_telemetry_receivers(broker.config)
    telemetry = ClientTelemetry(lambda: broker.dynamic.config, receivers)
    broker.dynamic.follow_client_metrics(telemetry.instances.subscribe)
    return telemetry


def _connect(broker: Broker, purpose: str) -> InterBrokerClient:
    """A client of other brokers for requests that may take request.timeout.ms."""
    config = broker.config
    return InterBrokerClient(
        config,
        broker.node_id,
        purpose,
        endpoints_of(broker.metadata_cache, config.inter_broker_listener_name),
        timeout_ms=config.get_int("request.timeout.ms"),
    )


def _producer_id_blocks(broker: Broker, controller: ControllerClient) -> BlockSource:
    own = StoreBlocks(broker.node_id, broker.store)
    if not MetadataVersion.parse(broker.config.get_str(IBP)).has_allocated_producer_ids:
        return own
    return ControllerBlocks(broker.node_id, lambda: broker.broker_epoch, controller, own)
