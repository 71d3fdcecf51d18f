"""Every hook a plugin may implement. The docstring of a hook is its contract.

A plugin is a distribution with an entry point in the group ``kafkapy`` that names a module (or object) with functions
marked ``@kafkapy.plugins.hookimpl`` and named like the hooks below; it takes only the arguments it wants. Built-in
authorizers, storage backends and so on are registered through the same hooks.

Hooks are called at start or on rare events, never per record or batch. `register_*` hooks are called once, on the main
thread before the broker starts; what they return goes into plain tables, and a name that two plugins claim is an error.
Event hooks are called on the control loop: they must return soon, and an error in one is logged and goes no further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pluggy

if TYPE_CHECKING:
    from click import Command

    from kafkapy.broker.client_telemetry.telemetry import ClientTelemetryReceiver
    from kafkapy.broker.quota_callback import ClientQuotaCallback
    from kafkapy.clients.consumer.membership.assignors.api import ConsumerPartitionAssignor
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.config_def import ConfigKey
    from kafkapy.coordinator.group.assignors.api import GroupAssignor
    from kafkapy.metadata.store import MetadataStore
    from kafkapy.policies import AlterConfigPolicy, CreateTopicPolicy
    from kafkapy.replica.selectors import ReplicaSelector
    from kafkapy.security.authorizer.base import Authorizer
    from kafkapy.security.principal_builder import PrincipalBuilder
    from kafkapy.security.sasl.base import CallbackHandler, SaslMechanism
    from kafkapy.types import TopicPartition

PROJECT = "kafkapy"
hookspec = pluggy.HookspecMarker(PROJECT)


# --- registration -------------------------------------------------------------------------------------------------


@hookspec
def register_authorizers() -> Mapping[str, Callable[[], Authorizer]]:  # type: ignore[empty-body]
    """Authorizers by name, for the key authorizer.class.name.

    Each value is called without arguments and gives a `kafkapy.security.authorizer.base.Authorizer`; the broker then
    calls its `configure(config)` once, and then its `start(services)` where it has one. Built in: ``allow_all``,
    ``acl``.
    """


@hookspec
def register_sasl_mechanisms() -> Mapping[str, Callable[[], SaslMechanism]]:  # type: ignore[empty-body]
    """SASL mechanisms by name, for the key sasl.enabled.mechanisms.

    Each value is called without arguments, once for each listener that enables the mechanism, and gives a
    `kafkapy.security.sasl.base.SaslMechanism` of that name. The broker calls its `configure(settings, services)` once,
    and `server()` for each authentication; all of that on the control loop. Built in: ``PLAIN``, ``SCRAM-SHA-256``,
    ``SCRAM-SHA-512``, ``OAUTHBEARER``, ``GSSAPI``.
    """


@hookspec
def register_sasl_callback_handlers() -> Mapping[str, Callable[[], CallbackHandler]]:  # type: ignore[empty-body]
    """Checks of credentials by name, for the key sasl.server.callback.handler.class.

    Each value is called without arguments, once for each listener and mechanism that names it, and gives a
    `kafkapy.security.sasl.base.CallbackHandler`; the mechanism calls its `configure(settings)` once. For PLAIN it has a
    method ``authenticate(username, password) -> bool``: a coroutine function runs on the control loop, another function
    on a worker thread, so it may wait for a directory server. For OAUTHBEARER it has a method ``validate(token)``, that
    runs likewise. It returns a `kafkapy.security.oauthbearer.tokens.BearerToken`, or raises that module's `TokenError`.
    """


@hookspec
def register_principal_builders() -> Mapping[str, Callable[[], PrincipalBuilder]]:  # type: ignore[empty-body]
    """Builders of principals by name, for the key principal.builder.class.

    Each value is called without arguments, once for each listener that uses the builder, and gives a
    `kafkapy.security.principal_builder.PrincipalBuilder`. The broker calls its `configure(settings)` once, and its
    `build(context)` on the control loop after each authentication of a connection, also on listeners without SASL and
    certificates. An exception of `build` refuses the connection. Built in: Kafka's DefaultKafkaPrincipalBuilder.
    """


@hookspec
def register_storage_backends() -> Mapping[str, Callable[[BrokerConfig], Any]]:  # type: ignore[empty-body]
    """Storage backends by name, for the broker and topic key kafkapy.storage.backend.

    Each value is called with the broker's configuration and gives a `kafkapy.log.backends.base.StorageBackend`, which
    makes, opens, lists, seals and deletes segments and hands out file descriptors. The data plane reads and writes
    those itself, so a backend is never on the path of a record. Called on worker threads.
    Built in: ``local``, ``memory``.
    """


@hookspec
def register_metadata_stores() -> Mapping[str, Callable[[BrokerConfig], MetadataStore]]:  # type: ignore[empty-body]
    """Metadata stores by name, for the key kafkapy.metadata.store.

    Each value is called with the broker's configuration, once, and gives a `kafkapy.metadata.store.MetadataStore` that
    is not open yet; its docstrings are the contract. The broker calls `start()` first and `close()` last; all calls are
    on the control loop. `start()` raises a `StoreUnavailableError` with one sentence when the store cannot be reached.
    A store that other brokers share has `is_shared` true, an epoch (`created_transaction`) that grows, and a
    `session_timeout_s` after which the registration of a killed broker ends.
    Built in: ``embedded``, ``memory``, ``zookeeper``, ``etcd``.
    """


@hookspec
def register_partitioners() -> Mapping[str, Callable[..., Any]]:  # type: ignore[empty-body]
    """Partitioners for the producer by name, for its key partitioner.class.

    Each value is called with the producer's configuration and gives an object with ``partition(topic, key, value,
    partitions) -> int``: serialized key and value, and the number of partitions. It is called for every record that
    names no partition, on the thread that sends. Built in: ``default``, ``round_robin``, ``uniform_sticky``.
    """


@hookspec
def register_partition_assignors() -> Mapping[str, Callable[[], ConsumerPartitionAssignor]]:  # type: ignore[empty-body]
    """Assignors of consumers by name, for the consumer's key partition.assignment.strategy (the classic protocol).

    Each value is called without arguments, once for each consumer that names it, and gives a
    `kafkapy.clients.consumer.membership.assignors.api.ConsumerPartitionAssignor` of that name; it is called on the
    consumer's loop. Plugins are loaded by a consumer only where it names an assignor that is not built in. Built in:
    ``range``, ``roundrobin``, ``sticky``, ``cooperative-sticky``.
    """


@hookspec
def register_group_assignors() -> Mapping[str, Callable[[], GroupAssignor]]:  # type: ignore[empty-body]
    """Assignors of the broker by name, for its keys group.consumer.assignors and group.share.assignors.

    They serve the consumer protocol (KIP-848) and share groups (KIP-932). An assignor with a true attribute `shares`
    gives a partition to several members, and serves share groups only.

    Each value is called without arguments and gives a `kafkapy.coordinator.group.assignors.api.GroupAssignor`, made
    once and called on the control loop. Built in: ``uniform``, ``range``, and ``simple`` for share groups.
    """


@hookspec
def register_metrics_reporters() -> Mapping[str, Callable[[BrokerConfig], Any]]:  # type: ignore[empty-body]
    """Metrics reporters by name, for the key metric.reporters.

    Each value is called with the broker's configuration and gives an object with ``start(collectors)`` and ``close()``;
    collectors are `prometheus_client` collectors that read the broker's counters when they are asked.
    """


@hookspec
def register_client_telemetry_receivers() -> Mapping[  # type: ignore[empty-body]
    str, Callable[[BrokerConfig], ClientTelemetryReceiver]
]:
    """Receivers of the metrics that clients push (KIP-714) by name, for the key kafkapy.client.telemetry.receivers.

    Each value is called with the broker's configuration, once, and gives a
    `kafkapy.broker.client_telemetry.telemetry.ClientTelemetryReceiver`. The broker calls its ``receive(client,
    metrics)`` for each push, on the telemetry thread, with a MetricsData of OTLP, and ``close()`` at its end.
    """


@hookspec
def register_replica_selectors() -> Mapping[str, Callable[[BrokerConfig], ReplicaSelector]]:  # type: ignore[empty-body]
    """Selectors of consumers' replicas by name, for the key replica.selector.class (KIP-392).

    Each value is called with the broker's configuration, once, and gives a `kafkapy.replica.selectors.ReplicaSelector`.
    The broker calls its `select` on the control loop for each Fetch that a follower could serve, and `close` at its
    end. Built in: ``leader``, ``rack_aware``, which the data plane runs itself.
    """


@hookspec
def register_quota_managers() -> Mapping[str, Callable[[BrokerConfig], ClientQuotaCallback]]:  # type: ignore[empty-body]
    """Policies of client quotas by name, for the key client.quota.callback.class.

    Each value is called with the broker's configuration, once, and gives a
    `kafkapy.broker.quota_callback.ClientQuotaCallback`: it decides which clients share a quota and how much it is. The
    broker calls it on the control loop, once for each connection and client id and again after a change, and `close` at
    its end. Built in: ``default``, the quotas of the metadata store in Kafka's precedence.
    """


@hookspec
def register_create_topic_policies() -> Mapping[str, Callable[[BrokerConfig], CreateTopicPolicy]]:  # type: ignore[empty-body]
    """Policies for new topics by name, for the key create.topic.policy.class.name (KIP-108).

    Each value is called with the broker's configuration, once, and gives a `kafkapy.policies.CreateTopicPolicy`. The
    controller calls its `validate` on the control loop for each new topic that passed the broker's checks, also for one
    that is only validated, and `close` at its end. `kafkapy.policies.PolicyViolationError` refuses the topic.
    """


@hookspec
def register_alter_config_policies() -> Mapping[str, Callable[[BrokerConfig], AlterConfigPolicy]]:  # type: ignore[empty-body]
    """Policies for changes of configurations by name, for the key alter.config.policy.class.name (KIP-133).

    Each value is called with the broker's configuration, once, and gives a `kafkapy.policies.AlterConfigPolicy`. The
    broker calls its `validate` on the control loop for each change of a topic, a broker, a group or a client-metrics
    subscription that passed the broker's checks, also for one that is only validated, and `close` at its end.
    """


@hookspec
def register_commands() -> Iterable[Command]:  # type: ignore[empty-body]
    """Click commands that are added to the ``kafkapy`` command line, under their own names."""


@hookspec
def register_config_keys() -> Iterable[ConfigKey | str]:  # type: ignore[empty-body]
    """Broker configuration keys of the plugin.

    Each is a `ConfigKey`, or the beginning of keys that pass as they are.

    They are read, checked, documented and described like Kafka's own. Use a beginning that no other plugin has:
    ``myplugin.``.
    """


# --- events -------------------------------------------------------------------------------------------------------


@hookspec
def broker_started(broker: Any) -> None:
    """The broker is in state RUNNING: its listeners accept connections.

    `broker` is the `KafkaServer`; its `config` is the broker's configuration.
    """


@hookspec
def broker_stopping(broker: Any) -> None:
    """The broker begins its stop; clients are still served.

    Called once, also when the start failed half way.
    """


@hookspec
def topic_created(topic: str, topic_id: UUID, partitions: int, configs: Mapping[str, str]) -> None:
    """A topic exists.

    `configs` are the keys the topic itself sets. Called on the controller's broker.
    """


@hookspec
def topic_deleted(topic: str, topic_id: UUID) -> None:
    """A topic is gone from the metadata.

    Its files go after file.delete.delay.ms. Called on the controller's broker.
    """


@hookspec
def segment_sealed(topic_partition: TopicPartition, base_offset: int, next_offset: int, size: int) -> None:
    """A segment was rolled and takes no more records.

    It has the offsets base_offset to next_offset - 1, and `size` bytes.
    """


@hookspec
def group_rebalanced(group_id: str, generation: int, members: Sequence[str]) -> None:
    """A group finished a rebalance and is stable in a new generation.

    `members` are member ids; an empty group has none.
    """
