"""Configuration keys without effect: the broker accepts them with a warning.

`WITHOUT_EFFECT` and `TOPIC_WITHOUT_EFFECT` are the tables. tests/config/test_effects.py compares both with the code
that reads the keys, so a key leaves its table in the change that makes it work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kafkapy.config import store_keys
from kafkapy.config.accepted_keys import ACCEPTED_KEYS
from kafkapy.config.broker import BROKER_CONFIG_DEF
from kafkapy.config.group import GROUP_CONFIG_DEF, WITH_EFFECT
from kafkapy.config.security_keys import SSL_KEYS

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

NOTHING_READS: Final = (
    "sasl.client.*", "sasl.kerberos.min.*", "sasl.kerberos.ticket.*", "sasl.login.refresh.*",
    "sasl.mechanism.controller.*", "remote.*", "controller.quorum.*",
    "zookeeper.metadata.migration.*", "metadata.log.max.*",
    "metadata.log.segment.*", "metadata.max.*", "kafka.metrics.*",
    "alter.log.dirs.replication.quota.*", "log.local.retention.*",
)  # fmt: skip
"""Whole families of keys."""

_SINGLE_KEYS: Final = frozenset((
    "auto.include.jmx.reporter",
    "broker.heartbeat.interval.ms", "broker.session.timeout.ms",
    "delete.records.purgatory.purge.interval.requests", "early.start.listeners", "eligible.leader.replicas.enable",
    "fetch.purgatory.purge.interval.requests", "group.coordinator.append.linger.ms", "group.coordinator.new.enable",
    "group.coordinator.threads", "group.share.enable", "group.share.max.groups",
    "initial.broker.registration.timeout.ms",
    "log.cleaner.io.buffer.size", "log.dir.failure.timeout.ms", "log.message.format.version", "log.preallocate",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "offsets.commit.required.acks", "process.roles",
    "producer.purgatory.purge.interval.requests",
    "security.providers", "server.max.startup.time.ms", "sasl.kerberos.kinit.cmd", "sasl.login.callback.handler.class",
    "sasl.login.class", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.header.urlencode", "sasl.oauthbearer.token.endpoint.url",
    "ssl.engine.factory.class", "ssl.keymanager.algorithm", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm", "socket.connection.setup.timeout.ms",
    "unclean.leader.election.interval.ms",
    "unstable.api.versions.enable", "unstable.feature.versions.enable", "zookeeper.clientCnxnSocket",
))  # fmt: skip


def _in_families(name: str) -> bool:
    return any(name.startswith(family.removesuffix("*")) for family in NOTHING_READS)


WITHOUT_EFFECT: Final = (
    _SINGLE_KEYS
    | {key.name for key in ACCEPTED_KEYS}
    | {key.name for key in BROKER_CONFIG_DEF if _in_families(key.name)}
)
"""Broker keys that no code reads, or only checks."""

AUTHORIZER_KEYS: Final = frozenset(("super.users", "allow.everyone.if.no.acl.found"))
ZOOKEEPER_KEYS: Final = frozenset(
    key.name for key in store_keys.ZOOKEEPER_KEYS if key.name not in WITHOUT_EFFECT | {"zookeeper.connect"}
)
ZOOKEEPER_TLS_KEYS: Final = frozenset(
    name for name in ZOOKEEPER_KEYS if name.startswith("zookeeper.ssl.") and name != "zookeeper.ssl.client.enable"
)
ETCD_KEYS: Final = frozenset(key.name for key in store_keys.ETCD_KEYS)
TLS_KEYS: Final = frozenset(key.name for key in SSL_KEYS) - WITHOUT_EFFECT


def _asks_zookeeper(config: BrokerConfig) -> bool:
    """Whether the metadata, or the ACLs alone, are in ZooKeeper."""
    acls = config["authorizer.zookeeper.url"] and config.get_str("authorizer.class.name")
    return config.metadata_store == "zookeeper" or bool(acls)


CONDITIONAL: Final[Mapping[str, Callable[[BrokerConfig], bool]]] = {
    **dict.fromkeys(AUTHORIZER_KEYS, lambda config: bool(config.get_str("authorizer.class.name"))),
    **dict.fromkeys(ZOOKEEPER_KEYS, _asks_zookeeper),
    **dict.fromkeys(
        ZOOKEEPER_TLS_KEYS, lambda config: _asks_zookeeper(config) and config.get_bool("zookeeper.ssl.client.enable")
    ),
    **dict.fromkeys(ETCD_KEYS, lambda config: config.metadata_store == "etcd"),
    **dict.fromkeys(TLS_KEYS, lambda config: any(each.security_protocol.tls for each in config.listeners)),
}
"""Broker keys that depend on another key, with a function that tells whether they have an effect. An authorizer may
read its keys."""

LISTENER_LIMITS: Final = frozenset(("max.connections", "max.connection.creation.rate"))
"""Limits that work for one listener."""
SASL_LISTENER_KEYS: Final = frozenset((
    "connections.max.reauth.ms", "sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.server.callback.handler.class",
    "sasl.server.max.receive.size",
))  # fmt: skip
"""Keys of SASL that work for one listener, some also for one mechanism of it."""
LISTENER_KEYS: Final = LISTENER_LIMITS | SASL_LISTENER_KEYS | {"num.network.threads", "principal.builder.class"}
"""Kafka's keys that work for one listener, besides those of TLS."""

TOPIC_WITHOUT_EFFECT: Final = frozenset((
    "local.retention.bytes", "local.retention.ms",
    "max.decompressed.message.bytes", "message.format.version", "preallocate", "remote.copy.lag.bytes",
    "remote.copy.lag.ms", "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable",
))  # fmt: skip
"""Topic keys that no code reads, or only checks."""

GROUP_WITHOUT_EFFECT: Final = frozenset(GROUP_CONFIG_DEF.names) - WITH_EFFECT
"""Group keys that no code reads: keys of streams groups, and of constants."""


def has_effect(config: BrokerConfig, name: str) -> bool:
    """Whether a set broker key changes the broker. Keys of plugins do."""
    key = config.key_for(name)
    if key is None:
        return config.definition.has_prefix(name)
    if name != key.name:
        if key.name in TLS_KEYS:
            return any(
                each.security_protocol.tls and name.startswith(f"listener.name.{each.listener_name.lower()}.")
                for each in config.listeners
            )
        return key.name in LISTENER_KEYS or key.name not in BROKER_CONFIG_DEF
    conditional = CONDITIONAL.get(name)
    return name not in WITHOUT_EFFECT and (conditional is None or conditional(config))


def ineffective_keys(config: BrokerConfig) -> list[str]:
    """The set keys without effect, from all layers, sorted."""
    layers = (config.static, config.dynamic_default, config.dynamic)
    unknown = set(config.unknown_keys)
    return sorted({name for layer in layers for name in layer if name not in unknown and not has_effect(config, name)})


def ineffective_topic_keys(names: Iterable[str]) -> list[str]:
    """The topic keys without effect, sorted."""
    return sorted(TOPIC_WITHOUT_EFFECT.intersection(names))


def ineffective_group_keys(names: Iterable[str]) -> list[str]:
    """The group keys without effect, sorted."""
    return sorted(GROUP_WITHOUT_EFFECT.intersection(names))
