"""A broker as a client of other brokers: the configuration of its connections.

The keys are those of the inter-broker listener (`inter.broker.listener.name` or `security.inter.broker.protocol`): its
keystore and truststore, `sasl.mechanism.inter.broker.protocol`, and the options `username` and `password` (or those of
the mechanism) in the listener's `sasl.jaas.config` of that mechanism. Source:
org.apache.kafka.common.network.ChannelBuilders.clientChannelBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.client_security import KEYS
from kafkapy.config.clients import COMMON, ClientConfig

__all__ = ["inter_broker_client_config"]

MECHANISM: Final = "sasl.mechanism"


def inter_broker_client_config(config: BrokerConfig, servers: Iterable[str]) -> ClientConfig:
    """The configuration of a client that connects to other brokers as this broker.

    `servers` are addresses of their inter-broker listeners. ConfigError for contradicting keys.
    """
    listener = config.inter_broker_listener_name
    protocol = config.security_protocols[listener]
    values: dict[str, Any] = {
        "bootstrap.servers": list(servers),
        "client.id": f"broker-{config.broker_id}-to-brokers",
        "security.protocol": protocol.name,
    }
    mechanism = None
    if protocol.sasl:
        mechanism = config.get_str("sasl.mechanism.inter.broker.protocol")
        values[MECHANISM] = mechanism
    prefix = f"listener.name.{listener.lower()}."
    for key in KEYS:
        if key.name == MECHANISM or key.name not in config:
            continue
        names = [prefix + key.name, key.name]
        if mechanism is not None:
            names.insert(0, f"{prefix}{mechanism.lower()}.{key.name}")
        if any(config.is_set(name) for name in names):
            values[key.name] = config.for_listener(listener, key.name, mechanism)
    return ClientConfig(COMMON, values)
