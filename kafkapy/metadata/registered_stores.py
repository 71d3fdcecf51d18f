"""Registers the built-in metadata stores.

The module of a store is imported when the configuration names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkapy.plugins import hookimpl

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.store import MetadataStore

__all__ = ["register_metadata_stores"]


def _embedded(config: BrokerConfig) -> MetadataStore:
    from kafkapy.metadata.embedded import EmbeddedStore

    return EmbeddedStore(config.metadata_log_dir)


def _memory(config: BrokerConfig) -> MetadataStore:
    del config
    from kafkapy.metadata.memory import MemoryStore

    return MemoryStore()


def _zookeeper(config: BrokerConfig) -> MetadataStore:
    from kafkapy.metadata.zookeeper import ZooKeeperStore
    from kafkapy.metadata.zookeeper_connection import security_of

    session_ms = config.get_int("zookeeper.session.timeout.ms")
    connection_ms = config.get_optional_int("zookeeper.connection.timeout.ms") or session_ms
    return ZooKeeperStore(
        config.get_str("zookeeper.connect"),
        session_ms,
        connection_ms,
        max_in_flight=config.get_int("zookeeper.max.in.flight.requests"),
        security=security_of(config),
    )


def _etcd(config: BrokerConfig) -> MetadataStore:
    from kafkapy.metadata.etcd import EtcdStore
    from kafkapy.metadata.store_tls import client_ssl_context, settings_of

    endpoints = config.get_list("kafkapy.etcd.endpoints")
    session_ms = config.get_int("kafkapy.etcd.session.timeout.ms")
    connection_ms = config.get_optional_int("kafkapy.etcd.connection.timeout.ms") or session_ms
    prefix, user = config.get_str("kafkapy.etcd.prefix"), config.get_optional_str("kafkapy.etcd.user")
    password = config.get_password("kafkapy.etcd.password")
    return EtcdStore(
        endpoints,
        prefix=prefix,
        session_timeout_ms=session_ms,
        connection_timeout_ms=connection_ms,
        context=(
            client_ssl_context(settings_of(config, "kafkapy.etcd."))
            if any(endpoint.startswith("https://") for endpoint in endpoints)
            else None
        ),
        user=user,
        password=None if password is None else password.value,
    )


@hookimpl
def register_metadata_stores() -> Mapping[str, Callable[[BrokerConfig], MetadataStore]]:
    """The factories of the stores, by their registered names."""
    return {"embedded": _embedded, "memory": _memory, "zookeeper": _zookeeper, "etcd": _etcd}
