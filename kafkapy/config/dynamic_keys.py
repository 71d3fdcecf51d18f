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
SAME_AS_TOTAL: Final = -2
"""The value of the keys for local retention that stands for the whole retention."""


def check_names(config: BrokerConfig, names: Iterable[str], per_broker: bool) -> None:
    """INVALID_REQUEST for keys that no change may set, or not there."""
    for text, found in _refused(config, list(names), per_broker):
        raise error_for(ErrorCode.INVALID_REQUEST, f"{text}: [{', '.join(sorted(found))}]")


def usable(config: BrokerConfig, keys: Mapping[str, str], per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """The stored keys that this broker can use, and sentences about the others."""
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
    """INVALID_REQUEST for connection limits of 0, and for wrong keys of local retention."""
    for name in new.dynamic.keys() | new.dynamic_default.keys():
        key = new.key_for(name)
        if key is not None and key.name in (RATE, CONNECTIONS) and new[name] <= 0:
            changed = name not in old or old[name] != new[name]
            if changed:
                raise error_for(ErrorCode.INVALID_REQUEST, f"Invalid {key.name} {new[name]}")
    _check_local_retention(new)


def _check_local_retention(new: BrokerConfig) -> None:
    _check_retention("log.local.retention.ms", new, "log.retention.ms", new.log_retention_ms)
    _check_retention("log.local.retention.bytes", new, "log.retention.bytes", new.get_int("log.retention.bytes"))


def _check_retention(name: str, config: BrokerConfig, total_name: str, total: int) -> None:
    local = config.get_int(name)
    lag_name = name.replace("local.retention", "remote.copy.lag")
    lag, kept = config.get_int(lag_name), total if local == SAME_AS_TOTAL else local
    if 0 <= kept < lag:
        limit = f"Value must not exceed {name} (effective value: {kept})"
        raise error_for(ErrorCode.INVALID_REQUEST, f"Invalid value {lag} for configuration {lag_name}: {limit}")
    if total < 0 or local == SAME_AS_TOTAL:
        return
    if local == -1:
        limit = f"Value must not be -1 as {total_name} value is set as {total}."
    elif local > total:
        limit = f"Value must not be more than {total_name} property value: {total}"
    else:
        return
    raise error_for(ErrorCode.INVALID_REQUEST, f"Invalid value {local} for configuration {name}: {limit}")


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
