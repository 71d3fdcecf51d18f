"""Which broker keys a dynamic change may set, and where. Source: kafka.server.DynamicBrokerConfig.

A change sets keys of one broker or of all brokers. A name with a listener prefix sets a key for one listener.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kafkapy.config.broker import CLUSTER_LISTENER_KEYS, LISTENER_KEY, BrokerConfig
from kafkapy.config.config_def import ConfigKey, UpdateMode
from kafkapy.errors import ConfigError, ErrorCode, error_for

__all__ = ["check_limits", "check_names", "usable"]

ONLY_WITH_LISTENER: Final = frozenset((
    "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
    "ssl.keystore.password", "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location",
    "ssl.truststore.password", "ssl.truststore.type",
))  # fmt: skip
"""Stores, which a change sets for one listener."""
RATE: Final = "max.connection.creation.rate"
CONNECTIONS: Final = "max.connections"


def check_names(config: BrokerConfig, names: Iterable[str], per_broker: bool) -> None:
    """INVALID_REQUEST for keys that no change may set, or not there."""
    for text, found in _refused(config, list(names), per_broker):
        raise error_for(ErrorCode.INVALID_REQUEST, f"{text}: [{', '.join(sorted(found))}]")


def usable(config: BrokerConfig, keys: Mapping[str, str], per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """The stored keys that this broker can use, and a sentence about those that it ignores."""
    refused = _refused(config, list(keys), per_broker)
    ignored = {name for _, names in refused for name in names}
    sentences = [f"{text}: [{', '.join(sorted(names))}]" for text, names in refused]
    kept = {}
    for name, value in keys.items():
        if name in ignored:
            continue
        try:
            config.check_dynamic(name, value, per_broker)
        except ConfigError as error:
            sentences.append(str(error))
        else:
            kept[name] = value
    return kept, sentences


def check_limits(old: BrokerConfig, new: BrokerConfig) -> None:
    """INVALID_REQUEST for connection limits that would let nobody in."""
    for name in new.dynamic.keys() | new.dynamic_default.keys():
        key = new.key_for(name)
        of_listener = key is not None and key.name == CONNECTIONS and name != CONNECTIONS
        if key is not None and (key.name == RATE or of_listener) and new[name] <= 0:
            changed = name not in old or old[name] != new[name]
            if changed:
                raise error_for(ErrorCode.INVALID_REQUEST, f"Invalid {key.name} {new[name]}")


def _refused(config: BrokerConfig, names: list[str], per_broker: bool) -> list[tuple[str, list[str]]]:
    keys: dict[str, ConfigKey] = {}
    for name in names:
        key = config.definition.get(name)
        if key is not None:
            keys[name] = key
    refused = [
        (
            "Cannot update these configs dynamically",
            [name for name, key in keys.items() if key.update_mode is UpdateMode.READ_ONLY],
        ),
        (
            "These security configs can be dynamically updated only per-listener using the listener prefix",
            [name for name in names if name in ONLY_WITH_LISTENER],
        ),
    ]
    if not per_broker:
        text = "Cannot update these configs at default cluster level, broker id must be specified"
        refused.append((text, [name for name in names if is_per_broker(config, name)]))
    return [(text, found) for text, found in refused if found]


def is_per_broker(config: BrokerConfig, name: str) -> bool:
    """Whether a change sets the key for one broker only."""
    listener = LISTENER_KEY.fullmatch(name)
    if listener is not None and name not in config.definition:
        return listener["base"] not in CLUSTER_LISTENER_KEYS
    key = config.definition.get(name)
    return key is not None and key.update_mode is UpdateMode.PER_BROKER

