"""Plugins: found through entry points, registered with pluggy, put into tables by name.

The hooks are in `hookspecs`.

plugins = PluginManager.for_properties(properties)
config = BrokerConfig.from_properties(properties, plugins.broker_config_def())
authorizer = plugins.create_authorizer(config)
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pluggy

from kafkapy import hookspecs
from kafkapy.config.broker import BROKER_CONFIG_DEF, BrokerConfig
from kafkapy.config.config_def import ConfigDef, ConfigKey
from kafkapy.config.listeners import split_list
from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import ConfigError, KafkaError, PluginError
from kafkapy.installed_plugins import InstalledPlugin, installed_plugins
from kafkapy.plugin_contracts import check_factories, make

if TYPE_CHECKING:
    from click import Command

    from kafkapy.broker.client_telemetry.telemetry import ClientTelemetryReceiver
    from kafkapy.broker.quota_callback import ClientQuotaCallback
    from kafkapy.clients.consumer.membership.assignors.api import ConsumerPartitionAssignor
    from kafkapy.coordinator.group.assignors.api import GroupAssignor
    from kafkapy.metadata.store import MetadataStore
    from kafkapy.policies import AlterConfigPolicy, CreateTopicPolicy
    from kafkapy.replica.selectors import ReplicaSelector
    from kafkapy.security.authorizer.base import Authorizer
    from kafkapy.security.principal_builder import PrincipalBuilder
    from kafkapy.security.sasl.base import CallbackHandler, SaslMechanism

hookimpl: Final = pluggy.HookimplMarker(hookspecs.PROJECT)
"""Marks a plugin's functions as implementations of the hooks they are named after."""

BUILTIN_PLUGINS: Final[Sequence[str]] = (
    "kafkapy.security.authorizer.allow_all",
    "kafkapy.security.authorizer.acl_plugin",
    "kafkapy.broker.registered_quotas",
    "kafkapy.security.sasl.mechanisms",
    "kafkapy.log.backends.local",
    "kafkapy.log.backends.memory",
    "kafkapy.metadata.registered_stores",
    "kafkapy.coordinator.group.assignors.uniform",
    "kafkapy.coordinator.group.assignors.range",
    "kafkapy.coordinator.group.assignors.simple",
    "kafkapy.replica.registered_selectors",
)
"""Modules that register what kafkapy itself brings."""

AUTHORIZER_ALIASES: Final[Mapping[str, str]] = {
    "": "allow_all",
    "kafka.security.authorizer.AclAuthorizer": "acl",
    "kafka.security.auth.SimpleAclAuthorizer": "acl",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer": "acl",
}
"""Built-in names for Kafka's class names, and for no name."""

DEFAULT_PRINCIPAL_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
"""Kafka's name for the built-in rules of principals."""

ASSIGNOR_ALIASES: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    "org.apache.kafka.coordinator.group.assignor.SimpleAssignor": "simple",
}
"""Built-in names for Kafka's class names."""

SELECTOR_ALIASES: Final[Mapping[str, str]] = {
    "": "leader",
    "org.apache.kafka.common.replica.LeaderSelector": "leader",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": "rack_aware",
}
"""Built-in names for Kafka's class names, and for no name."""

JMX_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"
"""Kafka's default reporter. It is left out: there is no JMX, and metrics.listeners serves Prometheus."""

logger = logging.getLogger("kafkapy.plugins")


class PluginManager:
    """The loaded plugins and the tables of their registrations.

    Made once at start, on the main thread.

    The tables are made when they are first asked for and then only read, on any thread; `notify` is called on the
    control loop. PluginError when a plugin cannot be loaded, or two of them claim the same name.
    """

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._owners: dict[tuple[str, str], str] = {}
        """The plugin that registered a name, by (hook, name)."""

    @classmethod
    def load(cls, disabled: Iterable[str] = (), builtins: Iterable[str] = BUILTIN_PLUGINS) -> PluginManager:
        """The built-in and installed plugins, without the disabled entry-point names."""
        manager = cls()
        for module in builtins:
            try:
                manager.register(importlib.import_module(module), module)
            except ImportError as error:
                raise PluginError(f"built-in plugin {module} cannot be loaded: {error}") from error
        skip = set(disabled)
        for plugin in installed_plugins():
            if plugin.name in skip:
                logger.info("Plugin %s is disabled", plugin.name)
                continue
            manager.register(_load(plugin), plugin.name)
        return manager

    @classmethod
    def for_properties(cls, properties: Mapping[str, str]) -> PluginManager:
        """The plugins for a properties file that is read but not parsed yet.

        The parser needs the plugins' keys.
        """
        return cls.load(disabled=split_list(properties.get("kafkapy.plugins.disabled", "")))

    def register(self, plugin: object, name: str) -> None:
        """Add one plugin: a module or an object with hook implementations."""
        try:
            self._manager.register(plugin, name)
            self._manager.check_pending()
        except (ValueError, pluggy.PluginValidationError) as error:
            raise PluginError(f"plugin {name} cannot be registered: {error}") from error

    @property
    def names(self) -> list[str]:
        """The plugins that are loaded, in the order they were."""
        return [name for name, _ in self._manager.list_name_plugin()]

    # --- tables -----------------------------------------------------------------------------------------------

    @cached_property
    def authorizers(self) -> Mapping[str, Callable[[], Authorizer]]:
        """Authorizer factories by name."""
        return self._table("register_authorizers")

    @cached_property
    def sasl_mechanisms(self) -> Mapping[str, Callable[[], SaslMechanism]]:
        """SASL mechanism factories by name."""
        return self._table("register_sasl_mechanisms")

    @cached_property
    def sasl_callback_handlers(self) -> Mapping[str, Callable[[], CallbackHandler]]:
        """Factories of credential checks by name."""
        return self._table("register_sasl_callback_handlers")

    @cached_property
    def principal_builders(self) -> Mapping[str, Callable[[], PrincipalBuilder]]:
        """Factories of principal builders by name."""
        return self._table("register_principal_builders")

    @cached_property
    def storage_backends(self) -> Mapping[str, Callable[[BrokerConfig], Any]]:
        """Storage-backend factories by name."""
        return self._table("register_storage_backends")

    @cached_property
    def metadata_stores(self) -> Mapping[str, Callable[[BrokerConfig], MetadataStore]]:
        """Metadata-store factories by name."""
        return self._table("register_metadata_stores")

    @cached_property
    def partitioners(self) -> Mapping[str, Callable[..., Any]]:
        """Partitioner factories by name."""
        return self._table("register_partitioners")

    @cached_property
    def partition_assignors(self) -> Mapping[str, Callable[[], ConsumerPartitionAssignor]]:
        """Factories of consumers' assignors by name."""
        return self._table("register_partition_assignors")

    @cached_property
    def group_assignors(self) -> Mapping[str, Callable[[], GroupAssignor]]:
        """Factories of the broker's assignors by name."""
        return self._table("register_group_assignors")

    @cached_property
    def metrics_reporters(self) -> Mapping[str, Callable[[BrokerConfig], Any]]:
        """Metrics-reporter factories by name."""
        return self._table("register_metrics_reporters")

    @cached_property
    def client_telemetry_receivers(self) -> Mapping[str, Callable[[BrokerConfig], ClientTelemetryReceiver]]:
        """Factories of receivers of clients' metrics by name."""
        return self._table("register_client_telemetry_receivers")

    @cached_property
    def replica_selectors(self) -> Mapping[str, Callable[[BrokerConfig], ReplicaSelector]]:
        """Replica-selector factories by name."""
        return self._table("register_replica_selectors")

    @cached_property
    def quota_managers(self) -> Mapping[str, Callable[[BrokerConfig], ClientQuotaCallback]]:
        """Factories of policies of client quotas by name."""
        return self._table("register_quota_managers")

    @cached_property
    def create_topic_policies(self) -> Mapping[str, Callable[[BrokerConfig], CreateTopicPolicy]]:
        """Factories of policies for new topics by name."""
        return self._table("register_create_topic_policies")

    @cached_property
    def alter_config_policies(self) -> Mapping[str, Callable[[BrokerConfig], AlterConfigPolicy]]:
        """Factories of policies for changes of configurations by name."""
        return self._table("register_alter_config_policies")

    @cached_property
    def commands(self) -> Mapping[str, Command]:
        """Click commands by name."""
        items = ((command.name or "", command, plugin) for plugin, command in self._items("register_commands"))
        return self._unique("register_commands", items)

    def broker_config_def(self) -> ConfigDef:
        """Kafka's and kafkapy's broker keys together with those of plugins."""
        keys: list[ConfigKey] = []
        prefixes: list[str] = []
        for plugin, item in self._items("register_config_keys"):
            if isinstance(item, str):
                prefixes.append(item)
                continue
            if not isinstance(item, ConfigKey):
                raise PluginError(f"plugin {plugin}: register_config_keys gave {item!r}, not a ConfigKey or a prefix")
            if item.name in BROKER_CONFIG_DEF or any(item.name == key.name for key in keys):
                raise PluginError(f"plugin {plugin}: configuration key {item.name} is already defined")
            keys.append(item)
        return BROKER_CONFIG_DEF.extended(keys, prefixes) if keys or prefixes else BROKER_CONFIG_DEF

    # --- making things ----------------------------------------------------------------------------------------

    def create_authorizer(self, config: BrokerConfig) -> Authorizer:
        """The configured authorizer, configured. ConfigError when authorizer.class.name names none."""
        key = "authorizer.class.name"
        name = config.get_str(key)
        hook = "register_authorizers"
        authorizer: Authorizer = self._make(hook, key, AUTHORIZER_ALIASES.get(name, name), self.authorizers, name)
        try:
            authorizer.configure(config)
        except KafkaError:
            raise
        except Exception as error:
            plugin = self._owners[hook, AUTHORIZER_ALIASES.get(name, name)]
            reason = f"{type(error).__name__}: {error}"
            raise PluginError(f"plugin {plugin}: configure of the authorizer {name!r} failed: {reason}") from error
        return authorizer

    def create_sasl_mechanism(self, key: str, name: str) -> SaslMechanism:
        """A mechanism by name, not configured.

        ConfigError for `key` when no plugin registered the name.
        """
        hook = "register_sasl_mechanisms"
        mechanism: SaslMechanism = self._make(hook, key, name, self.sasl_mechanisms, name)
        if mechanism.name != name:
            raise PluginError(
                f"plugin {self._owners[hook, name]}: {name!r} of {hook} makes a mechanism with the name "
                f"{mechanism.name!r}; both names have to be the same"
            )
        return mechanism

    def create_sasl_callback_handler(self, key: str, name: str) -> CallbackHandler:
        """A check of credentials by name.

        ConfigError for `key` when no plugin registered the name.
        """
        hook = "register_sasl_callback_handlers"
        handler: CallbackHandler = self._make(hook, key, name, self.sasl_callback_handlers, name)
        return handler

    def create_principal_builder(self, key: str, name: str) -> PrincipalBuilder:
        """A builder of principals by name, not configured.

        ConfigError for `key` when no plugin registered the name.
        """
        hook = "register_principal_builders"
        if not self.principal_builders:
            raise ConfigError(key, name, f"must be {DEFAULT_PRINCIPAL_BUILDER}: no plugin registered another builder")
        builder: PrincipalBuilder = self._make(hook, key, name, self.principal_builders, name)
        return builder

    def create_storage_backends(self, config: BrokerConfig) -> dict[str, Any]:
        """All storage backends by name: a topic may name any of them. PluginError."""
        hook, key, backends = "register_storage_backends", "kafkapy.storage.backend", self.storage_backends
        return {name: self._make(hook, key, name, backends, name, config) for name in backends}

    def create_metadata_store(self, config: BrokerConfig) -> MetadataStore:
        """The configured metadata store, not open.

        ConfigError when kafkapy.metadata.store names one that is not registered.
        """
        name = config.metadata_store
        hook, key = "register_metadata_stores", "kafkapy.metadata.store"
        store: MetadataStore = self._make(hook, key, name, self.metadata_stores, name, config)
        return store

    def create_partition_assignor(self, key: str, name: str, configured: str) -> ConsumerPartitionAssignor:
        """A consumer's assignor by name. ConfigError for `key` when no plugin registered the name."""
        made: ConsumerPartitionAssignor = self._make(
            "register_partition_assignors", key, name, self.partition_assignors, configured
        )
        return made

    def create_group_assignors(self, config: BrokerConfig) -> list[GroupAssignor]:
        """The configured assignors of consumer groups; members that ask for none get the first.

        ConfigError when group.consumer.assignors is empty, or names one twice, one that is not registered, or one that
        gives a partition to several members.
        """
        key = "group.consumer.assignors"
        names = self._assignor_names(config, key)
        if not names or len(set(names)) < len(names):
            raise ConfigError(key, ",".join(names), "must name one assignor or several different ones")
        assignors = [self._create_assignor(key, name) for name in names]
        for assignor in assignors:
            if getattr(assignor, "shares", False):
                raise ConfigError(key, assignor.name, "gives a partition to several members, for share groups only")
        return assignors

    def create_share_assignor(self, config: BrokerConfig) -> GroupAssignor:
        """The configured assignor of share groups.

        ConfigError when group.share.assignors names none, several, or one that is not registered.
        """
        key = "group.share.assignors"
        names = self._assignor_names(config, key)
        if len(names) != 1:
            raise ConfigError(key, ",".join(names), "must name one assignor")
        return self._create_assignor(key, names[0])

    @staticmethod
    def _assignor_names(config: BrokerConfig, key: str) -> list[str]:
        return [ASSIGNOR_ALIASES.get(name, name) for name in config.get_list(key)]

    def _create_assignor(self, key: str, name: str) -> GroupAssignor:
        hook = "register_group_assignors"
        assignor: GroupAssignor = self._make(hook, key, name, self.group_assignors, name)
        if assignor.name != name:
            raise PluginError(
                f"plugin {self._owners[hook, name]}: {name!r} of {hook} makes an assignor with the name "
                f"{assignor.name!r}; both names have to be the same"
            )
        return assignor

    def create_metrics_reporters(self, config: BrokerConfig) -> list[Any]:
        """The configured metrics reporters. ConfigError when metric.reporters names one that is not registered."""
        return [self.create_metrics_reporter(name, config) for name in self.metrics_reporter_names(config)]

    def metrics_reporter_names(self, config: BrokerConfig) -> list[str]:
        """The names in metric.reporters. ConfigError for one that is not registered."""
        key = "metric.reporters"
        names = [name for name in dict.fromkeys(config.get_list(key)) if name not in (JMX_REPORTER, "")]
        for name in names:
            if name not in self.metrics_reporters:
                self._make("register_metrics_reporters", key, name, self.metrics_reporters, name, config)
        return names

    def create_metrics_reporter(self, name: str, config: BrokerConfig) -> Any:
        """A metrics reporter by name, not started. ConfigError when it is not registered."""
        table = self.metrics_reporters
        return self._make("register_metrics_reporters", "metric.reporters", name, table, name, config)

    def create_client_telemetry_receivers(self, config: BrokerConfig) -> dict[str, ClientTelemetryReceiver]:
        """The configured receivers of clients' metrics by name.

        ConfigError when kafkapy.client.telemetry.receivers names one that is not registered.
        """
        key, hook = "kafkapy.client.telemetry.receivers", "register_client_telemetry_receivers"
        table = self.client_telemetry_receivers
        return {name: self._make(hook, key, name, table, name, config) for name in config.get_list(key)}

    def create_replica_selector(self, config: BrokerConfig) -> ReplicaSelector:
        """The configured selector of consumers' replicas.

        ConfigError when replica.selector.class names one that is not registered.
        """
        key = "replica.selector.class"
        configured = config.get_optional_str(key) or ""
        name = SELECTOR_ALIASES.get(configured, configured)
        selector: ReplicaSelector = self._make(
            "register_replica_selectors", key, name, self.replica_selectors, configured, config
        )
        return selector

    def create_quota_manager(self, config: BrokerConfig) -> ClientQuotaCallback:
        """The configured policy of client quotas.

        ConfigError when client.quota.callback.class names one that is not registered.
        """
        key = "client.quota.callback.class"
        configured = config.get_optional_str(key) or ""
        callback: ClientQuotaCallback = self._make(
            "register_quota_managers", key, configured or "default", self.quota_managers, configured, config
        )
        return callback

    def create_create_topic_policy(self, config: BrokerConfig) -> CreateTopicPolicy | None:
        """The configured policy for new topics, or None.

        ConfigError when create.topic.policy.class.name names one that is not registered.
        """
        key = "create.topic.policy.class.name"
        name = config.get_optional_str(key)
        if not name:
            return None
        policy: CreateTopicPolicy = self._make(
            "register_create_topic_policies", key, name, self.create_topic_policies, name, config
        )
        return policy

    def create_alter_config_policy(self, config: BrokerConfig) -> AlterConfigPolicy | None:
        """The configured policy for changes of configurations, or None.

        ConfigError when alter.config.policy.class.name names one that is not registered.
        """
        key = "alter.config.policy.class.name"
        name = config.get_optional_str(key)
        if not name:
            return None
        policy: AlterConfigPolicy = self._make(
            "register_alter_config_policies", key, name, self.alter_config_policies, name, config
        )
        return policy

    # --- events -----------------------------------------------------------------------------------------------

    def has_listener(self, event: str) -> bool:
        """Whether a plugin implements an event hook."""
        return bool(getattr(self._manager.hook, event).get_hookimpls())

    def notify(self, event: str, **arguments: Any) -> None:
        """Call an event hook of every plugin that has it.

        Errors of plugins are logged with their name, no more. TypeError when the arguments are not the hook's.
        """
        caller: pluggy.HookCaller = getattr(self._manager.hook, event)
        expected = set(caller.spec.argnames) if caller.spec is not None else set()
        if expected != set(arguments):
            # Wrong for every plugin, also the one that is installed tomorrow: said here, not in a plugin's log line.
            raise TypeError(f"{event} takes {sorted(expected)}, not {sorted(arguments)}")
        for implementation in caller.get_hookimpls():
            try:
                implementation.function(*(arguments[name] for name in implementation.argnames))
            except Exception:
                # A plugin is foreign code: whatever it raises must not stop the broker, nor the plugins after it.
                logger.exception("Plugin %s failed in the hook %s", implementation.plugin_name, event)

    # --- inside -----------------------------------------------------------------------------------------------

    def _results(self, hook: str) -> Iterator[tuple[str, Any]]:
        """(plugin name, result) of a register hook, built-ins first."""
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        for implementation in caller.get_hookimpls():
            try:
                yield implementation.plugin_name, implementation.function()
            except Exception as error:
                raise PluginError(f"plugin {implementation.plugin_name} failed in {hook}: {error!r}") from error

    def _items(self, hook: str) -> Iterator[tuple[str, Any]]:
        for plugin, result in self._results(hook):
            if isinstance(result, str) or not isinstance(result, Iterable):
                raise PluginError(f"plugin {plugin}: {hook} gave {result!r}, not a list")
            for item in result:
                yield plugin, item

    def _table(self, hook: str) -> dict[str, Any]:
        items = (
            (name, value, plugin)
            for plugin, result in self._results(hook)
            for name, value in check_factories(plugin, hook, result).items()
        )
        return self._unique(hook, items)

    def _unique(self, hook: str, items: Iterable[tuple[str, Any, str]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for name, value, plugin in items:
            if name in table:
                owner = self._owners[hook, name]
                raise PluginError(f"plugin {plugin}: {hook} gave the name {name!r}, which {owner} has already")
            table[name] = value
            self._owners[hook, name] = plugin
        return table

    def _make(self, hook: str, key: str, name: str, table: Mapping[str, Any], configured: str, *arguments: Any) -> Any:
        """The object that the factory of that name makes.

        ConfigError when there is no such factory, PluginError when it breaks the hook's contract.
        """
        if name not in table:
            question = did_you_mean(name, table)
            allowed = f"must be one of {', '.join(sorted(table))}" if table else "no plugin registered any"
            raise ConfigError(key, configured, f"{allowed}; {question}" if question else allowed)
        return make(self._owners[hook, name], hook, name, table[name], *arguments)


def _load(plugin: InstalledPlugin) -> object:
    try:
        return plugin.load()
    except Exception as error:
        # A plugin's import may raise anything; the name of the plugin is what its user needs to see.
        reason = f"{type(error).__name__}: {error}"
        hint = f"kafkapy.plugins.disabled={plugin.name} starts without it"
        raise PluginError(
            f"plugin {plugin.name} ({plugin.distribution}, {plugin.value}) cannot be loaded: {reason}; {hint}"
        ) from error
