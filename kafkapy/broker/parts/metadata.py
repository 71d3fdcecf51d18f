"""A broker's metadata store, and its identity and configuration from there."""

from __future__ import annotations

import logging
from pathlib import Path

from kafkapy.broker.dynamic_config import DynamicConfig
from kafkapy.broker.finalized_features import FeatureChanges, FinalizedFeatures
from kafkapy.broker.identity import establish
from kafkapy.broker.live_listeners import LiveListeners
from kafkapy.broker.meta_properties import StartupError
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.config.broker import BrokerConfig
from kafkapy.metadata.config_repository import READ_AT_START, ConfigRepository
from kafkapy.metadata.quota_entities import QUOTA_TYPES

__all__ = ["ConfigChanges", "Configuration", "Features", "Store"]

logger = logging.getLogger("kafka.server.KafkaServer")


class Store(Part):
    """Opens the metadata store that the configuration names."""

    name = "metadata store"

    async def start(self, broker: Broker) -> None:
        """Connect, or open its file. MetadataStoreError."""
        if broker.config.metadata_store == "embedded":
            _prepare_directory(broker)
        store = broker.plugins.create_metadata_store(broker.config)
        await store.start()
        broker.store = store

    async def stop(self, broker: Broker) -> None:
        """Close it; its session takes the broker's registration with it."""
        if hasattr(broker, "store"):
            await broker.store.close()


def _prepare_directory(broker: Broker) -> None:
    """Make the directory of the embedded store. StartupError."""
    directory = Path(broker.config.metadata_log_dir).absolute()
    for log_dir in broker.log_manager.offline_dirs:
        if log_dir.path == directory:
            raise StartupError(f"Directory {directory} cannot hold the cluster's metadata: {log_dir.failure}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(f"Directory {directory} cannot be made: {error.strerror}") from error


class Configuration(Part):
    """Agrees on cluster id and broker id.

    It lays the dynamic configuration over that of the file.
    """

    name = "configuration"

    async def start(self, broker: Broker) -> None:
        """Read and follow the store's configurations. StartupError when the ids contradict each other."""
        broker.repository = repository = ConfigRepository(broker.store)
        # Users have SCRAM credentials, which every login needs at once; users, client ids and addresses have quotas.
        await repository.start((*READ_AT_START, *QUOTA_TYPES))
        directories = [str(each.path) for each in broker.log_manager.live_dirs if each.persistent]
        broker.node_id, broker.cluster_id = await establish(broker.config, broker.store, directories)
        repository.topics_read = broker.effects.check_topics
        broker.dynamic = DynamicConfig(broker.config, broker.node_id, repository)
        await broker.dynamic.start()
        broker.config = broker.dynamic.config
        # These were made before the store could be read.
        broker.log_manager.update_broker_config(broker.config)
        broker.scheduler.resize(broker.config.get_int("background.threads"))
        broker.effects.check_broker(broker.config)

    async def stop(self, broker: Broker) -> None:
        """Follow the store no more."""
        if hasattr(broker, "repository"):
            await broker.repository.stop()


class Features(Part):
    """Follows the cluster's finalized features."""

    name = "finalized features"

    def __init__(self) -> None:
        self._changes: FeatureChanges | None = None

    async def start(self, broker: Broker) -> None:
        """Read them. StartupError for one that this broker does not support."""
        broker.features = FinalizedFeatures(zookeeper=broker.config.metadata_store == "zookeeper")
        self._changes = FeatureChanges(broker.store, broker.features, broker.stop_failed)
        await self._changes.start()

    async def stop(self, broker: Broker) -> None:
        """Follow them no more."""
        del broker
        if self._changes is not None:
            await self._changes.stop()


class ConfigChanges(Part):
    """Gives changes of the broker's dynamic configuration to the parts they concern."""

    name = "configuration changes"

    def __init__(self) -> None:
        self._listeners: LiveListeners | None = None

    async def start(self, broker: Broker) -> None:
        """Begin to listen."""

        def changed(config: BrokerConfig) -> None:
            logger.info("The dynamic broker configuration changed")
            broker.effects.check_broker(config)
            broker.config = config
            broker.context.controller.update_config(config)
            broker.log_manager.update_broker_config(config)
            broker.replica_manager.update_config(config)
            broker.context.coordinators.update_config(config)
            broker.plane.verify_transactions = broker.context.coordinators.verifies_transactions
            broker.scheduler.resize(config.get_int("background.threads"))
            if hasattr(broker, "asks"):
                broker.asks.resize(config.get_int("num.io.threads"))

        broker.dynamic.broker_listeners.append(changed)
        broker.dynamic.broker_listeners.append(broker.logins.config_changed)
        broker.dynamic.broker_checks.append(broker.logins.check)
        self._listeners = LiveListeners(broker)
        broker.dynamic.broker_checks += [
            self._listeners.check,
            broker.listener_security.check,
            broker.principals.check_name,
        ]
        broker.dynamic.broker_appliers.append(self._listeners.apply)
        broker.dynamic.broker_touched.append(broker.listener_security.reconfigure)
        # What the store said before this listened, as while logs were loaded.
        broker.listener_security.reconfigure(broker.dynamic.config)
        if broker.dynamic.config is not broker.config:
            for listener in broker.dynamic.broker_listeners:
                listener(broker.dynamic.config)
            await self._listeners.apply(broker.dynamic.config)

    async def stop(self, broker: Broker) -> None:
        """Wait for connections of removed listeners no more."""
        del broker
        if self._listeners is not None:
            await self._listeners.stop()
