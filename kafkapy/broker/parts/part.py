"""A part of a broker (`Part`), and the parts' common state (`Broker`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kafkapy.broker.broker_state import BrokerState
from kafkapy.broker.config_effects import ConfigEffects
from kafkapy.broker.loop_lag import LoopLag
from kafkapy.broker.message_conversion import ConversionCounts
from kafkapy.config.topic import LogConfig
from kafkapy.plugins import PluginManager
from kafkapy.replica.log_configs import effective_log_config
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.base.event_queue import EventQueue
    from kafkapy._speedups.requests.data_plane import DataPlane
    from kafkapy._speedups.requests.partition_table import PartitionTable
    from kafkapy.broker.apis import KafkaApis
    from kafkapy.broker.client_quotas import ClientQuotas
    from kafkapy.broker.context import BrokerContext
    from kafkapy.broker.data_plane_asks import DataPlaneAsks
    from kafkapy.broker.data_plane_events import DataPlaneEvents
    from kafkapy.broker.descriptors import DescriptorBudget
    from kafkapy.broker.dynamic_config import DynamicConfig
    from kafkapy.broker.finalized_features import FinalizedFeatures
    from kafkapy.broker.listener_security import ListenerSecurities
    from kafkapy.broker.logins import Logins
    from kafkapy.broker.metrics_listener import MetricsListener
    from kafkapy.broker.principals import PrincipalBuilders
    from kafkapy.broker.scheduler import KafkaScheduler
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.log.log_manager import LogManager
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.metadata.config_repository import ConfigRepository
    from kafkapy.metadata.store import MetadataStore
    from kafkapy.network.socket_server import SocketServer
    from kafkapy.replica.replica_manager import ReplicaManager
    from kafkapy.security.add_scram import AddedUser
    from kafkapy.security.authorizer.base import Authorizer

__all__ = ["Broker", "Part"]


class Broker:
    """Holds the objects that the parts of one broker make.

    A part sets its attributes when it starts; parts behind it in the list use them. On the control loop; any thread may
    call `log_config`, `log_config_of` and `stop_failed`.

    `stop_failed` asks the server to stop because the broker cannot go on.
    """

    events: EventQueue
    budget: DescriptorBudget
    scheduler: KafkaScheduler
    log_manager: LogManager
    store: MetadataStore
    repository: ConfigRepository
    dynamic: DynamicConfig
    features: FinalizedFeatures
    node_id: int
    cluster_id: str
    partition_table: PartitionTable
    plane: DataPlane
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    authorizer: Authorizer
    logins: Logins
    client_quotas: ClientQuotas
    context: BrokerContext
    apis: KafkaApis
    principals: PrincipalBuilders
    listener_security: ListenerSecurities
    socket_server: SocketServer
    plane_events: DataPlaneEvents
    asks: DataPlaneAsks

    def __init__(
        self,
        config: BrokerConfig,
        plugins: PluginManager | None,
        stop_failed: Callable[[], None],
        *,
        rebuild_metadata: bool = False,
        added_users: Sequence[AddedUser] = (),
    ) -> None:
        if plugins is None:
            plugins = PluginManager.load(config.get_list("kafkapy.plugins.disabled"))
            config = config.with_definition(plugins.broker_config_def())
        self.config = config
        self.plugins = plugins
        self.rebuild_metadata = rebuild_metadata
        """Whether the start writes the topics that the log directories hold into the metadata store."""
        self.added_users = added_users
        """SCRAM users that the start adds when they are missing."""
        self.state = BrokerState.NOT_RUNNING
        self.loop_lag = LoopLag()
        self.conversions = ConversionCounts()
        self.effects = ConfigEffects()
        self.metrics_listener: MetricsListener | None = None
        self.on_log_dir_failure: Callable[[Path, list[TopicPartition]], None] | None = None
        """Set when there are partitions that may lose their log."""
        self.stop_failed = stop_failed

    @property
    def has_sasl(self) -> bool:
        """Whether a listener authenticates its clients by SASL."""
        return any(endpoint.security_protocol.sasl for endpoint in self.config.listeners)

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's registration, -1 before it."""
        return self.context.controller.broker_epoch if hasattr(self, "context") else -1

    def log_config(self, topic: str) -> LogConfig:
        """Of a log that is being loaded. Worker threads."""
        return effective_log_config(topic, self.repository.topic(topic), self.config)

    def log_config_of(self, partition: TopicPartition) -> LogConfig:
        """Of a log that runs. Worker threads."""
        log = self.log_manager.get(partition)
        config: LogConfig = self.log_config(partition.topic) if log is None else log.config
        return config


class Part:
    """One part of a broker.

    Its start and its stop run on the control loop, once each.

    `stop` is called for every part whose start has begun, so it copes with a start that failed half way.
    """

    name: ClassVar[str]
    """For the log line of a stop that fails."""

    async def start(self, broker: Broker) -> None:
        """Make what the part owns and set it in `broker`."""

    async def stop(self, broker: Broker) -> None:
        """End what the start began."""
