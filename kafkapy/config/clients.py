"""The keys of all clients, and `ClientConfig`, one client's values.

    config = ClientConfig(PRODUCER, {"bootstrap.servers": "a:9092,b:9092"}, linger_ms=5)
    config["linger.ms"]                 # 5
    "linger.ms" in config.given         # True

Names of keys are Kafka's (``linger.ms``) or kafka-python's (``linger_ms``). Text parses as in Kafka; other Python
values stay unchanged. Source: org.apache.kafka.clients.CommonClientConfigs (4.1).
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from kafkapy.config import client_security
from kafkapy.config.config_def import (
    HIDDEN,
    MAX_INT,
    MAX_LONG,
    ConfigDef,
    ConfigKey,
    Importance,
    Password,
    at_least,
    non_empty,
    one_of,
    one_of_ignoring_case,
)
from kafkapy.config.providers import PROVIDERS, is_provider_key, resolve
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigType

__all__ = ["COMMON", "ClientConfig", "ClientConfigDef", "shown"]

log = logging.getLogger(__name__)

STRING, INT, LONG, LIST = ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
BOOLEAN, CLASS, SHORT = ConfigType.BOOLEAN, ConfigType.CLASS, ConfigType.SHORT
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
K = ConfigKey

MOST: Final = {SHORT: 2**15 - 1, INT: MAX_INT, LONG: MAX_LONG}
"""The meaning of kafka-python's float("inf")."""

WITHOUT_EFFECT: Final = frozenset(
    {
        "api_version_auto_timeout_ms",
        "kafka_client",
        "metrics_enabled",
        "selector",
        "sock_chunk_buffer_count",
        "sock_chunk_bytes",
    }
)
"""Keywords of kafka-python about its internal parts; accepted without effect."""
KAFKA_WITHOUT_EFFECT: Final = frozenset(
    {
        "bootstrap.controllers",
        "bootstrap.resolve.timeout.ms",
        "buffer.memory.allocation.strategy",
        "client.rack",
        "config.providers",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "metadata.cluster.check.enable",
        "partitioner.rack.aware",
        "security.providers",
        "share.acknowledgement.mode",
        "share.acquire.mode",
        *client_security.WITHOUT_EFFECT,
    }
)
"""Keys of the Java clients of 4.4 that these clients accept without effect, with a warning."""
SECRETS: Final = ("password", "passphrase", "secret", "jaas", "token", "pem", ".key", "_key")
"""Parts of the names of secrets. A misspelt key hides its value when its name, or a suggestion, has one of them."""
PROXIES: Final = frozenset({"proxy_url", "socks5_proxy"})


class ClientConfigDef(ConfigDef):
    """The keys of one kind of client. Read-only after the import.

    `aliases` maps other names to a key (kafka-python's ``partitioner``). `without_effect` are names that the client
    accepts and ignores.
    """

    def __init__(
        self,
        keys: Iterable[ConfigKey] = (),
        aliases: Mapping[str, str] | None = None,
        without_effect: Iterable[str] = (),
    ) -> None:
        super().__init__(keys)
        self.aliases = dict(aliases or {})
        self.without_effect = frozenset(without_effect)

    def with_keys(
        self,
        keys: Iterable[ConfigKey],
        aliases: Mapping[str, str] | None = None,
        without_effect: Iterable[str] = (),
    ) -> ClientConfigDef:
        """A new definition with more keys.

        A key of the same name, with another default, replaces the old one.
        """
        merged = {key.name: key for key in self} | {key.name: key for key in keys}
        return ClientConfigDef(
            merged.values(), self.aliases | dict(aliases or {}), self.without_effect | frozenset(without_effect)
        )

    def key_of(self, name: str) -> ConfigKey | None:
        """The key of a dotted name, a snake-case name or an alias.

        None for a name without effect. ConfigError for any other name, with the closest keys.
        """
        dotted = name.replace("_", ".")
        for candidate in (name, self.aliases.get(name, ""), dotted, self.aliases.get(dotted, "")):
            key = self.get(candidate)
            if key is not None:
                return key
        if name in self.without_effect or dotted in KAFKA_WITHOUT_EFFECT:
            return None
        raise self.unknown_key(dotted, None)

    def known_names(self) -> Iterable[str]:
        """Keys and their aliases with dots."""
        return [*self.names, *(alias for alias in self.aliases if "." in alias)]


# fmt: off
_KEYS: Final = [
    K("bootstrap.servers", LIST, ["localhost:9092"], non_empty(), HIGH,
      "host:port of the first brokers; a few are enough, because they name the others."),
    K("client.id", STRING, "", None, MEDIUM, "Name of this client in the broker's logs, metrics and quotas."),
    K("client.dns.lookup", STRING, "use_all_dns_ips",
      one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), MEDIUM,
      "use_all_dns_ips: the client tries every address of a name. resolve_canonical_bootstrap_servers_only: it "
      "also expands bootstrap names to their canonical names."),
    K("bootstrap.timeout.ms", INT, 30000, at_least(0), MEDIUM,
      "Time in ms until one of the bootstrap servers must have answered (kafka-python's bootstrap_timeout_ms)."),
    K("metadata.max.age.ms", LONG, 300000, at_least(0), LOW,
      "Largest age in ms of metadata before the client refreshes it."),
    K("metadata.recovery.strategy", STRING, "rebootstrap", one_of_ignoring_case("none", "rebootstrap"), LOW,
      "Recovery when no known broker can be reached: start again with bootstrap.servers, or none (KIP-899)."),
    K("metadata.recovery.rebootstrap.trigger.ms", LONG, 300000, at_least(0), LOW,
      "Time in ms without fresh metadata from any known broker until the client starts again (KIP-1102)."),
    K("reconnect.backoff.ms", LONG, 50, at_least(0), LOW,
      "First wait in ms before the next attempt to connect to a broker; doubles with each failure."),
    K("reconnect.backoff.max.ms", LONG, 1000, at_least(0), LOW,
      "Longest wait in ms before the next attempt to connect."),
    K("retry.backoff.ms", LONG, 100, at_least(0), LOW,
      "First wait in ms before the client repeats a failed request; doubles with each failure."),
    K("retry.backoff.max.ms", LONG, 1000, at_least(0), LOW, "Longest wait in ms before the client repeats a request."),
    K("request.timeout.ms", INT, 30000, at_least(0), MEDIUM, "Time in ms to wait for the response to a request."),
    K("socket.connection.setup.timeout.ms", LONG, 10000, at_least(0), MEDIUM,
      "Time in ms to establish a connection; doubles with each failure."),
    K("socket.connection.setup.timeout.max.ms", LONG, 30000, at_least(0), MEDIUM,
      "Largest time in ms to establish a connection after failures."),
    K("connections.max.idle.ms", LONG, 540000, None, MEDIUM,
      "The client closes a connection after this many idle ms; -1: never."),
    K("send.buffer.bytes", INT, -1, at_least(-1), MEDIUM, "SO_SNDBUF in bytes; -1: the system's choice."),
    K("receive.buffer.bytes", INT, -1, at_least(-1), MEDIUM,
      "SO_RCVBUF in bytes; -1: the system's choice, which grows with the connection."),
    K("receive.message.max.bytes", INT, 100_000_000, at_least(1024), LOW,
      "Largest response in bytes; the client disconnects from a broker that announces a larger one."),
    K("socket.options", LIST, [], None, LOW,
      "(level, option, value) triples for setsockopt(), as in kafka-python."),
    K("security.protocol", STRING, "PLAINTEXT", one_of_ignoring_case(*client_security.SECURITY_PROTOCOLS), MEDIUM,
      "Security protocol of the connections: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."),
    K("enable.metrics.push", BOOLEAN, False, None, LOW,
      "Whether client_instance_id() of an admin client asks a broker for an id (KIP-714). An admin client pushes no "
      "metrics."),
    K("metric.reporters", LIST, [], None, LOW, "No effect: read the client's metrics() instead."),
    K("metrics.num.samples", INT, 2, at_least(1), LOW, "Number of sample windows of a rate."),
    K("metrics.sample.window.ms", LONG, 30000, at_least(0), LOW, "Length of a sample window in ms."),
    K("api.version", CLASS, None, None, LOW,
      "Release of the brokers as a tuple, such as (3, 9) (kafka-python's api_version). With it the constructor does "
      "not  "
      "wait for the cluster; the client still negotiates versions with each broker."),
    K("metrics.recording.level", STRING, "INFO", one_of_ignoring_case("INFO", "DEBUG", "TRACE"), LOW,
      "No effect: the client counts everything at every level."),
    *client_security.KEYS,
]
# fmt: on

COMMON: Final = ClientConfigDef(_KEYS, client_security.ALIASES, WITHOUT_EFFECT)
"""The keys of every client, with the defaults of Kafka 4, except for socket buffers: the system chooses their sizes."""


class ClientConfig(Mapping[str, Any]):
    """The values of one client by dotted key.

    Immutable; every thread may use it.
    """

    def __init__(
        self, definition: ClientConfigDef, configs: Mapping[str, object] | None = None, /, **keywords: object
    ) -> None:
        """Parse and check the values. None stands for a key's default.

        ConfigError for an unknown name (with the closest keys), a value that is not allowed, or a key that is set
        twice.
        """
        self.definition = definition
        self._values = definition.defaults()
        given: dict[str, str] = {}
        for name, raw in _resolved([*(configs or {}).items(), *keywords.items()]):
            if name in PROXIES and raw is not None:
                raise ConfigError(name, raw, "proxies are not supported")
            key = None if name in PROXIES else self._key_of(name, raw)
            if key is None and name.replace("_", ".") in KAFKA_WITHOUT_EFFECT:
                log.warning("The configuration key %s has no effect in this client", name)
            if key is None or raw is None:
                continue
            if key.name in given:
                raise ConfigError(name, raw, f"set twice, also as {given[key.name]}")
            given[key.name] = name
            self._values[key.name] = _parsed(key, name, raw)
        self.given = frozenset(given)
        """The keys that the user set."""
        self._settle()

    def _key_of(self, name: str, raw: object) -> ConfigKey | None:
        try:
            return self.definition.key_of(name)
        except ConfigError as error:
            secret = any(word in f"{name} {error.reason}".lower() for word in SECRETS)
            raise ConfigError(name, None if secret else raw, error.reason) from None

    def _settle(self) -> None:
        """Apply rules between keys."""
        self._settle_security()
        if isinstance(release := self._values.get("api.version"), str):
            self._values["api.version"] = _release(release)
        # As in CommonClientConfigs.postProcessReconnectBackoffConfigs.
        if "reconnect.backoff.ms" in self.given and "reconnect.backoff.max.ms" not in self.given:
            self._values["reconnect.backoff.max.ms"] = self._values["reconnect.backoff.ms"]

    def _settle_security(self) -> None:
        """Refuse contradictions between the keys of TLS and SASL."""
        self._values["security.protocol"] = protocol = self._values["security.protocol"].upper()
        for first, second in client_security.CONTRADICTIONS:
            if first in self.given and second in self.given:
                raise ConfigError(second, None, f"contradicts {first}; set only one of them")
        if not protocol.startswith("SASL_"):
            return
        mechanism = self._values["sasl.mechanism"] = self._values["sasl.mechanism"].upper()
        if "sasl.plain.username" in self.given and mechanism not in client_security.WITH_PASSWORD:
            allowed = ", ".join(client_security.WITH_PASSWORD)
            raise ConfigError("sasl.mechanism", mechanism, f"sasl.plain.username is for one of {allowed}")

    def replaced(self, **keywords: object) -> ClientConfig:
        """A copy with these values replaced."""
        values = {name: self._values[name] for name in self.given}
        for name, value in keywords.items():
            key = self._key_of(name, value)
            if key is not None:
                values[key.name] = value
        return type(self)(self.definition, values)

    def learn_api_version(self, release: tuple[int, ...]) -> None:
        """Set the brokers' release, unless api.version was given.

        The client calls it once.
        """
        if self._values["api.version"] is None:
            self._values["api.version"] = release

    def __getitem__(self, name: str) -> Any:
        """The value of a key in any spelling. KeyError for another name."""
        try:
            return self._values[name]
        except KeyError:
            try:
                key = self.definition.key_of(name)
            except ConfigError:
                key = None
            if key is None:
                raise
            return self._values[key.name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = (f"{name}={HIDDEN if self.definition[name].sensitive else self[name]!r}" for name in sorted(self.given))
        return f"ClientConfig({', '.join(shown)})"


def shown(name: str, value: str) -> str:
    """A value as it may be shown.

    Secrets are hidden, also those of unknown keys with such a name.
    """
    try:
        key = COMMON.key_of(name)
    except ConfigError:
        key = None
    secret = key.sensitive if key is not None else any(word in name.lower() for word in SECRETS)
    return HIDDEN if secret else value


def _resolved(given: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """The given values with their variables replaced, and without config.providers."""
    texts = {name: raw for name, raw in given if isinstance(raw, str)}
    texts |= {name: ",".join(map(str, raw)) for name, raw in given if name == PROVIDERS and isinstance(raw, list)}
    if PROVIDERS not in texts and not any("${" in text for text in texts.values()):
        return given
    resolved = resolve(texts)
    return [(name, resolved.get(name, raw)) for name, raw in given if name != PROVIDERS and not is_provider_key(name)]


def _release(text: str) -> tuple[int, ...] | None:
    """kafka-python's older form of api_version: "2.5.0" or "auto"."""
    if text == "auto":
        return None
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}", text):
        raise ConfigError("api.version", text, "must be a release such as (3, 9)")
    return tuple(map(int, text.split(".")))


def _parsed(key: ConfigKey, name: str, raw: object) -> Any:
    """Convert a user's value: text as in Kafka, Python values unchanged."""
    if key.name in client_security.EXACT_PASSWORDS and isinstance(raw, str):
        return raw if isinstance(raw, Password) else Password(raw)
    if not isinstance(raw, str):
        if key.type is CLASS:
            return raw
        if isinstance(raw, Enum) and key.type is STRING:
            raw = raw.name  # IsolationLevel.READ_COMMITTED
        if key.type is LIST and isinstance(raw, Iterable):
            items = list(raw)
            if not all(isinstance(item, str) for item in items):
                return items
        if isinstance(raw, float) and key.type in MOST:
            raw = MOST[key.type] if raw == math.inf else int(raw) if raw.is_integer() else raw
        elif key.type is STRING and isinstance(raw, int) and not isinstance(raw, bool):
            raw = str(int(raw))
        elif key.type is LIST and not isinstance(raw, Iterable):
            raw = [raw]
    return key.parse(raw, name=name)
