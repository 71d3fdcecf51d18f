"""The broker's configuration: all keys, and `BrokerConfig`.

Source: kafka.server.KafkaConfig.

    config = BrokerConfig.from_properties(load_properties("config/server.properties").override(["broker.id=1"]))
    config.get_int("num.network.threads"), config.listeners, config.log_dirs

A value comes from the first of: the broker's dynamic configuration, the cluster-wide dynamic configuration, the
properties file, the default. A dynamic change creates a new `BrokerConfig` (`with_dynamic`).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import dropwhile
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from kafkapy.config.accepted_keys import ACCEPTED_KEYS
from kafkapy.config.broker_keys import LOG_KEYS, REPLICATION_KEYS, SERVER_KEYS, SOCKET_KEYS
from kafkapy.config.compatibility import PURELY_DYNAMIC, is_listed
from kafkapy.config.config_def import HIDDEN, MAX_INT, ConfigDef, ConfigKey, Password, UpdateMode, format_value
from kafkapy.config.coordinator_keys import (
    GROUP_KEYS,
    KRAFT_KEYS,
    REMOTE_KEYS,
    SHARE_COORDINATOR_KEYS,
    TRANSACTION_KEYS,
)
from kafkapy.config.entries import ConfigEntry, ConfigSynonym
from kafkapy.config.listeners import parse_listeners, parse_map, parse_protocol_map, split_list
from kafkapy.config.properties import Properties, load_properties
from kafkapy.config.providers import resolve_properties
from kafkapy.config.security_keys import SASL_KEYS, SSL_KEYS, TOKEN_KEYS
from kafkapy.config.store_keys import ETCD_KEYS, ZOOKEEPER_KEYS
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigSource, Endpoint, SecurityProtocol

T = TypeVar("T")

KEY_GROUPS: Final[Mapping[str, tuple[ConfigKey, ...]]] = {
    "Server": SERVER_KEYS,
    "Sockets": SOCKET_KEYS,
    "Logs": LOG_KEYS,
    "Replication and quotas": REPLICATION_KEYS,
    "Groups": GROUP_KEYS,
    "Share coordinator": SHARE_COORDINATOR_KEYS,
    "Transactions": TRANSACTION_KEYS,
    "TLS": SSL_KEYS,
    "SASL": SASL_KEYS,
    "Delegation tokens and secrets": TOKEN_KEYS,
    "Remote storage": REMOTE_KEYS,
    "ZooKeeper": ZOOKEEPER_KEYS,
    "etcd": ETCD_KEYS,
    "KRaft": KRAFT_KEYS,
    "Keys of Apache Kafka 4.4 without effect": ACCEPTED_KEYS,
}
"""The keys, in the order of the reference page."""

BROKER_CONFIG_DEF: Final = ConfigDef(key for group in KEY_GROUPS.values() for key in group)
"""Kafka's and kafkapy's own broker keys. Keys of plugins are in `PluginManager.broker_config_def()`."""

LISTENER_KEY = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<base>.+)")

CLUSTER_LISTENER_KEYS: Final = frozenset(("max.connections", "max.connection.creation.rate", "num.network.threads"))
"""Keys that a change may set for one listener of all brokers. Other keys of listeners are for one broker."""

SYNONYM_CHAINS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Keys with the same meaning in other units, the strongest first."""

_CHAIN_OF: Final = {
    name: chain for chain in SYNONYM_CHAINS for name in chain if name != "log.flush.scheduler.interval.ms"
}
"""The sources of each key's value; the pause between checks of the scheduler is also a separate key."""
NEAR: Final = 0.82
"""Least similarity of an unknown key in a file to a known key (1.0: equal) to count as misspelt. Keys with one wrong
letter or word reach 0.85 and more; keys of plugins for Kafka stay below 0.8."""
MS_PER_MINUTE: Final = 60_000
MS_PER_HOUR: Final = 3_600_000


class BrokerConfig:
    """An immutable, checked configuration of the broker.

    The server creates it at the start (from the properties file), and the dynamic configuration creates later ones
    (`with_dynamic`). Any thread may read it. ConfigError when a key is misspelt, a value is not allowed, or two keys
    contradict each other. `unknown_keys` are keys in the file that resemble no known key.
    """

    def __init__(
        self,
        static: Mapping[str, str],
        dynamic: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        definition: ConfigDef = BROKER_CONFIG_DEF,
    ) -> None:
        self.definition = definition
        self.static = static
        self.dynamic: Mapping[str, str] = dict(dynamic or {})
        self.dynamic_default: Mapping[str, str] = dict(dynamic_default or {})
        self._layers: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, static),
        )
        self._values: dict[str, Any] = definition.defaults()
        # Weakest first, so that a stronger layer overwrites a weaker one and every layer is checked.
        for source, layer in reversed(self._layers):
            for name, raw in layer.items():
                self._values[name] = self._parse(name, raw, source)
        self._check()

    @classmethod
    def from_properties(cls, properties: Properties, definition: ConfigDef = BROKER_CONFIG_DEF) -> BrokerConfig:
        """Read a parsed properties file, and replace its variables; errors name its lines."""
        return cls(resolve_properties(properties), definition=definition)

    @classmethod
    def load(cls, path: str, overrides: Iterable[str] = (), definition: ConfigDef = BROKER_CONFIG_DEF) -> BrokerConfig:
        """Read a properties file, and apply ``key=value`` overrides."""
        return cls.from_properties(load_properties(path).override(overrides), definition)

    def with_dynamic(
        self, dynamic: Mapping[str, str] | None = None, dynamic_default: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """A new configuration with these dynamic layers. None keeps a layer."""
        return BrokerConfig(
            self.static,
            self.dynamic if dynamic is None else dynamic,
            self.dynamic_default if dynamic_default is None else dynamic_default,
            self.definition,
        )

    def with_definition(self, definition: ConfigDef) -> BrokerConfig:
        """The same settings read by another definition: by that of plugins, for instance. ConfigError."""
        return BrokerConfig(self.static, self.dynamic, self.dynamic_default, definition)

    # --- reading ----------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        """The effective value of a key. KeyError for an unknown key."""
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get_int(self, name: str) -> int:
        """The value of an int, short or long key."""
        return self._typed(name, int)

    def get_optional_int(self, name: str) -> int | None:
        """The value of an int, short or long key, or None."""
        return cast("int | None", self._values[name])

    def get_double(self, name: str) -> float:
        """The value of a double key."""
        return self._typed(name, float)

    def get_bool(self, name: str) -> bool:
        """The value of a boolean key."""
        return self._typed(name, bool)

    def get_str(self, name: str) -> str:
        """The value of a string or class key."""
        return self._typed(name, str)

    def get_optional_str(self, name: str) -> str | None:
        """The value of a string or class key, or None."""
        return cast("str | None", self._values[name])

    def get_list(self, name: str) -> list[str]:
        """The value of a list key; by default an empty list."""
        return list(self._values[name] or ())

    def get_password(self, name: str) -> Password | None:
        """The value of a secret key, or None."""
        return cast("Password | None", self._values[name])

    def is_set(self, name: str) -> bool:
        """Whether a file, command line or dynamic configuration sets the key."""
        return any(name in layer for _, layer in self._layers)

    def place_of(self, name: str) -> tuple[int | None, str | None]:
        """Line and file of a key that the properties file sets, for errors."""
        return (None, None) if name in self.dynamic or name in self.dynamic_default else self._line(name)

    @property
    def unknown_keys(self) -> list[str]:
        """The keys of the file that neither broker nor plugins know, sorted."""
        return sorted(name for name in self.static if self.key_for(name) is None and not self._of_a_plugin(name))

    def for_listener(self, listener_name: str, name: str, mechanism: str | None = None) -> Any:
        """The value of a key for one listener (and SASL mechanism).

        The most specific prefix wins.
        """
        prefix = f"listener.name.{listener_name.lower()}."
        if mechanism is not None:
            specific = f"{prefix}{mechanism.lower()}.{name}"
            if specific in self._values:
                return self._values[specific]
        return self._values.get(prefix + name, self._values[name])

    def values_of(self, prefixes: tuple[str, ...]) -> dict[str, Any]:
        """The effective values of the keys that begin with one of the prefixes."""
        return {name: value for name, value in self._values.items() if name.startswith(prefixes)}

    def plain(self) -> dict[str, str | None]:
        """Every value as text, with hidden secrets, for the log."""
        return {name: self._shown(name, value) for name, value in sorted(self._values.items())}

    # --- derived values ---------------------------------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        """broker.id, else node.id; -1 without a configured id.

        With -1 the broker reads the id from meta.properties, or generates one.
        """
        return self.get_int("broker.id") if self.get_int("broker.id") >= 0 else self.get_int("node.id")

    @property
    def metadata_store(self) -> str:
        """The registered name: embedded, zookeeper, etcd, memory, or that of a plugin."""
        explicit = self.get_optional_str("kafkapy.metadata.store")
        if explicit:
            return explicit
        return "zookeeper" if self["zookeeper.connect"] else "etcd" if self["kafkapy.etcd.endpoints"] else "embedded"

    @property
    def keeps_nothing(self) -> bool:
        """Whether the broker writes no files and loses everything at its stop."""
        return self.metadata_store == "memory"

    @cached_property
    def log_dirs(self) -> tuple[str, ...]:
        """The log directories in the given order: log.dirs, else log.dir."""
        explicit = self.get_optional_str("log.dirs")
        return tuple(self["log.dir"] if explicit is None else split_list(explicit))

    @property
    def cordoned_log_dirs(self) -> frozenset[Path]:
        """The absolute paths of the log directories that get no new partitions."""
        cordoned = self.get_list("cordoned.log.dirs")
        return _absolute(self.log_dirs if cordoned == ["*"] else cordoned)

    @property
    def is_cordoned(self) -> bool:
        """Whether the broker gets no new partitions: all of its log directories are cordoned."""
        return self.cordoned_log_dirs == _absolute(self.log_dirs)

    @property
    def metadata_log_dir(self) -> str:
        """Directory of the embedded metadata store."""
        return self.get_optional_str("metadata.log.dir") or self.log_dirs[0]

    @cached_property
    def security_protocols(self) -> dict[str, SecurityProtocol]:
        """The protocol of each listener name (upper case)."""
        name = "listener.security.protocol.map"
        try:
            protocols = parse_protocol_map(self.get_str(name))
        except ValueError as error:
            raise self._error(name, str(error)) from None
        if not self.is_set(name):
            # As in KRaft clusters without TLS and SASL: controller listeners need no entry.
            for controller in self.controller_listener_names:
                protocols.setdefault(controller, SecurityProtocol.PLAINTEXT)
        return protocols

    @cached_property
    def controller_listener_names(self) -> frozenset[str]:
        """Listeners of KRaft controllers, which kafkapy does not open."""
        return frozenset(item.upper() for item in split_list(self.get_optional_str("controller.listener.names") or ""))

    @cached_property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The addresses to bind, in order.

        An empty host means all interfaces, port 0 a free port.
        """
        return self._endpoints("listeners", distinct_ports=True)

    @cached_property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The configured addresses for clients.

        Ports may be 0 and hosts empty (see `advertise`).
        """
        if self.get_optional_str("advertised.listeners") is None:
            return self.listeners
        return self._endpoints("advertised.listeners", distinct_ports=False)

    def advertise(self, bound: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
        """The addresses for clients, after the sockets are bound.

        Port 0 becomes the bound port of that listener, and an empty host becomes this machine's name. A listener whose
        port 0 is not bound has no address.
        """
        ports = {endpoint.listener_name: endpoint.port for endpoint in bound}
        return tuple(
            Endpoint(
                endpoint.listener_name,
                endpoint.host or socket.getfqdn(),
                endpoint.port or ports[endpoint.listener_name],
                endpoint.security_protocol,
            )
            for endpoint in self.advertised_listeners
            if endpoint.port or endpoint.listener_name in ports
        )

    @cached_property
    def inter_broker_listener_name(self) -> str:
        """The listener for requests between brokers (upper case)."""
        name = self.get_optional_str("inter.broker.listener.name")
        if name is not None:
            return name.upper()
        if not self.is_set("security.inter.broker.protocol") and len(self.advertised_listeners) == 1:
            # A broker with one listener needs no second key to find it, whatever its name is.
            return self.advertised_listeners[0].listener_name
        return self.get_str("security.inter.broker.protocol")

    @cached_property
    def control_plane_listener_name(self) -> str | None:
        """The listener for requests of the controller (upper case), or None."""
        name = self.get_optional_str("control.plane.listener.name")
        return None if name is None else name.upper()

    @cached_property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        """Connection limits by host."""
        name = "max.connections.per.ip.overrides"
        try:
            return {host: int(limit) for host, limit in parse_map(self.get_str(name)).items()}
        except ValueError as error:
            raise self._error(name, f"must be host:number, comma-separated ({error})") from None

    @property
    def log_roll_ms(self) -> int:
        """Largest age in ms of the active segment."""
        ms = self.get_optional_int("log.roll.ms")
        return self.get_int("log.roll.hours") * MS_PER_HOUR if ms is None else ms

    @property
    def log_roll_jitter_ms(self) -> int:
        """Largest random reduction of the roll time, in ms."""
        ms = self.get_optional_int("log.roll.jitter.ms")
        return self.get_int("log.roll.jitter.hours") * MS_PER_HOUR if ms is None else ms

    @property
    def log_retention_ms(self) -> int:
        """Retention of records in ms; -1 for ever."""
        ms = self.get_optional_int("log.retention.ms")
        if ms is None:
            minutes = self.get_optional_int("log.retention.minutes")
            ms = self.get_int("log.retention.hours") * MS_PER_HOUR if minutes is None else minutes * MS_PER_MINUTE
        return -1 if ms < 0 else ms

    # --- DescribeConfigs --------------------------------------------------------------------------------------

    def source_of(self, name: str) -> ConfigSource:
        """The source of a key's effective value."""
        synonyms = self.synonyms(name)
        return synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        """The sources of a key's value, the strongest first.

        Sources include keys with the same meaning in other units. As in Kafka (ConfigHelper.configSynonyms), units that
        come before the key itself are left out. A key whose value comes only from another unit therefore has none.
        """
        names: tuple[str, ...] = _CHAIN_OF.get(name, (name,))
        listener = LISTENER_KEY.fullmatch(name)
        if listener is not None:
            key = self.key_for(name)
            names = (name, key.name) if key is not None else (name,)
        found = [
            ConfigSynonym(candidate, self._shown(candidate, layer[candidate]), source)
            for source, layer in self._layers
            for candidate in names
            if candidate in layer
        ]
        for candidate in names:
            key = self.definition.get(candidate)
            if key is not None and key.default is not None and candidate not in PURELY_DYNAMIC:
                shown = None if key.sensitive else format_value(key.type, key.default)
                found.append(ConfigSynonym(candidate, shown, ConfigSource.DEFAULT_CONFIG))
        return tuple(dropwhile(lambda each: each.name != name, found))

    def describe(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The entries of these keys for DescribeConfigs.

        None: all keys, except unset internal and compatibility keys. Unknown names and unset throttles are left out.
        """
        wanted = self._values if names is None else [name for name in names if name in self._values]
        entries = []
        for name in wanted:
            key = self.key_for(name)
            hidden = name in PURELY_DYNAMIC or (names is None and (key is None or key.internal or not is_listed(name)))
            if key is None or (hidden and not self.is_set(name)):
                continue
            synonyms = self.synonyms(name)
            # As in Kafka, a source shows its text, and so does a name with a listener's prefix.
            parsed = name == key.name or not synonyms
            shown = format_value(key.type, self._values[name]) if parsed else synonyms[0].value
            entries.append(
                ConfigEntry(
                    name,
                    None if key.sensitive else shown,
                    # As in Kafka, a name with a listener's prefix is shown as read-only.
                    key.update_mode is UpdateMode.READ_ONLY or name != key.name,
                    synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
                    key.sensitive,
                    synonyms,
                    key.type,
                    key.doc,
                )
            )
        return entries

    def key_for(self, name: str) -> ConfigKey | None:
        """The key of a name.

        The name may have a listener (and mechanism) prefix.
        """
        key = self.definition.get(name)
        if key is None and (match := LISTENER_KEY.fullmatch(name)) is not None:
            base = match["base"]
            key = self.definition.get(base) or self.definition.get(base.partition(".")[2])
        return key

    # --- checks -----------------------------------------------------------------------------------------------

    def _parse(self, name: str, raw: str, source: ConfigSource) -> Any:
        line, where = None, None
        if source is ConfigSource.STATIC_BROKER_CONFIG:
            line, where = self._line(name)
        key = self.key_for(name)
        if key is None:
            if self._of_a_plugin(name):
                return raw
            listener = LISTENER_KEY.fullmatch(name)
            unknown = name if listener is None else listener["base"]
            if source is ConfigSource.STATIC_BROKER_CONFIG and not self.definition.has_near(unknown, NEAR):
                # Kafka's users have keys of their plugins in the file; a misspelt key is another matter.
                return raw
            raise self.definition.unknown_key(unknown, raw, line, where)
        shown = None if key.sensitive else raw
        is_prefixed = name != key.name
        if (
            source is not ConfigSource.STATIC_BROKER_CONFIG
            and key.update_mode is UpdateMode.READ_ONLY
            and not is_prefixed
        ):
            raise ConfigError(name, shown, "cannot be changed while the broker runs")
        if source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG and (
            key.name not in CLUSTER_LISTENER_KEYS if is_prefixed else key.update_mode is UpdateMode.PER_BROKER
        ):
            raise ConfigError(name, shown, "can only be changed for single brokers")
        return key.parse(raw, line, where, name)

    def check_dynamic(self, name: str, raw: str, per_broker: bool) -> None:
        """ConfigError for a dynamic key or value that is not allowed."""
        source = ConfigSource.DYNAMIC_BROKER_CONFIG if per_broker else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        self._parse(name, raw, source)

    def _of_a_plugin(self, name: str) -> bool:
        return self.definition.has_prefix(name) or name.startswith(self._remote_prefixes())

    def _remote_prefixes(self) -> tuple[str, ...]:
        keys = ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")
        return tuple(self.static.get(key) or self.definition[key].default for key in keys)

    def _line(self, name: str) -> tuple[int | None, str | None]:
        if isinstance(self.static, Properties):
            return self.static.line_of(name), self.static.source_of(name)
        return None, None

    def _shown(self, name: str, value: Any) -> str | None:
        key = self.key_for(name)
        if key is None:
            # Of a plugin, or unknown: that may hold a secret.
            return str(value) if self._of_a_plugin(name) else HIDDEN
        if key.sensitive or isinstance(value, str):
            return None if key.sensitive else value
        return format_value(key.type, value)

    def _error(self, name: str, reason: str) -> ConfigError:
        line, where = self._line(name)
        return ConfigError(name, self._shown(name, self._values[name]), reason, line, where)

    def _typed(self, name: str, type_: type[T]) -> T:
        value = self._values[name]
        if not isinstance(value, type_):
            raise TypeError(f"{name} is {value!r}, not {type_.__name__}")
        return value

    def _endpoints(self, name: str, distinct_ports: bool) -> tuple[Endpoint, ...]:
        protocols = self.security_protocols
        try:
            endpoints = parse_listeners(self.get_str(name), protocols, distinct_ports)
        except ValueError as error:
            raise self._error(name, str(error)) from None
        return tuple(item for item in endpoints if item.listener_name not in self.controller_listener_names)

    def _require(self, condition: bool, name: str, reason: str) -> None:
        if not condition:
            raise self._error(name, reason)

    def _check(self) -> None:
        self._check_identity()
        self._check_listeners()
        self._check_log()
        self._check_limits()

    def _check_identity(self) -> None:
        broker_id, node_id = self.get_int("broker.id"), self.get_int("node.id")
        if self.is_set("broker.id") and self.is_set("node.id"):
            self._require(broker_id == node_id, "node.id", f"must be the same as broker.id ({broker_id})")
        name = "broker.id" if self.is_set("broker.id") else "node.id"
        if self.get_bool("broker.id.generation.enable"):
            # KRaft files number nodes above the reserved range; the limit only protects generated ids.
            limit = self.get_int("reserved.broker.max.id") if name == "broker.id" else MAX_INT
            allowed = f"must be between -1 and reserved.broker.max.id ({limit})"
            self._require(-1 <= self.get_int(name) <= limit, name, allowed)
        else:
            self._require(self.broker_id >= 0, name, "must be 0 or more when broker.id.generation.enable is false")
        if self.metadata_store == "zookeeper":
            self._require(bool(self["zookeeper.connect"]), "zookeeper.connect", "must be set for the zookeeper store")
        if self.metadata_store == "etcd":
            self._require(
                bool(self["kafkapy.etcd.endpoints"]), "kafkapy.etcd.endpoints", "must be set for the etcd store"
            )
        if self.keeps_nothing:
            reason = "must not be local when kafkapy.metadata.store is memory: there is no directory for its files"
            self._require(self["kafkapy.storage.backend"] != "local", "kafkapy.storage.backend", reason)
        if not self["process.roles"]:
            reason = "must not be set without process.roles"
            self._require(not self.controller_listener_names, "controller.listener.names", reason)

    def _check_listeners(self) -> None:
        names = {endpoint.listener_name for endpoint in self.listeners}
        self._require(bool(names), "listeners", "at least one listener must be defined")
        advertised = {endpoint.listener_name for endpoint in self.advertised_listeners}
        key = "advertised.listeners" if self.is_set("advertised.listeners") else "listeners"
        self._require(bool(advertised), key, "at least one listener must be advertised")
        valid = ", ".join(sorted(names))
        self._require(advertised <= names, key, f"may only name listeners that are in listeners ({valid})")
        for endpoint in self.advertised_listeners:
            reason = "0.0.0.0 cannot be advertised to clients; set advertised.listeners to an address they can reach"
            self._require(endpoint.host not in ("0.0.0.0", "::"), key, reason)
        shown = ", ".join(sorted(advertised))
        key = "inter.broker.listener.name"
        if self.is_set(key):
            both = "must not be set together with inter.broker.listener.name"
            self._require(not self.is_set("security.inter.broker.protocol"), "security.inter.broker.protocol", both)
        else:
            key = "security.inter.broker.protocol"
        known = self.inter_broker_listener_name in advertised
        self._require(known, key, f"must name an advertised listener ({shown})")
        control = self.control_plane_listener_name
        if control is not None:
            key = "control.plane.listener.name"
            self._require(control in advertised, key, f"must name an advertised listener ({shown})")
            different = control != self.inter_broker_listener_name
            self._require(different, key, "must differ from the inter-broker listener")
        protocol = self.security_protocols[self.inter_broker_listener_name]
        if protocol.sasl:
            key = "sasl.mechanism.inter.broker.protocol"
            enabled = self.for_listener(self.inter_broker_listener_name, "sasl.enabled.mechanisms") or []
            allowed = f"must be one of sasl.enabled.mechanisms ({', '.join(enabled)})"
            self._require(self.get_str(key) in enabled, key, allowed)

    def _check_log(self) -> None:
        self._require(bool(self.log_dirs), "log.dirs", "at least one log directory must be given")
        self._require(len(set(self.log_dirs)) == len(self.log_dirs), "log.dirs", "names a directory twice")
        cordoned = self.get_list("cordoned.log.dirs")
        self._require("*" not in cordoned or len(cordoned) == 1, "cordoned.log.dirs", "has directories besides *")
        known = {"*", *self.log_dirs, *map(str, _absolute(self.log_dirs))}
        missing = sorted(set(cordoned) - known)
        self._require(not missing, "cordoned.log.dirs", f"names directories outside log.dirs: {', '.join(missing)}")
        if self.is_set("log.roll.ms"):
            self._require(self.log_roll_ms >= 1, "log.roll.ms", "must be at least 1")
        if self.is_set("log.roll.jitter.ms"):
            self._require(self.log_roll_jitter_ms >= 0, "log.roll.jitter.ms", "must be at least 0")
        for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
            self._require(self[name] != 0, name, "must be at least 1, or -1 for no limit")
        buffer, threads = self.get_int("log.cleaner.dedupe.buffer.size"), self.get_int("log.cleaner.threads")
        roomy = threads == 0 or buffer // threads > 1024 * 1024
        self._require(roomy, "log.cleaner.dedupe.buffer.size", "must be more than 1 MiB (1048576) per cleaner thread")
        filled = 0 < self.get_double("log.cleaner.io.buffer.load.factor") < 1
        self._require(filled, "log.cleaner.io.buffer.load.factor", "must be more than 0 and less than 1")

    def _check_limits(self) -> None:
        wait = self.get_int("replica.fetch.wait.max.ms")
        for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
            self._require(wait <= self.get_int(name), name, f"must be at least replica.fetch.wait.max.ms ({wait})")
        queued, largest = self.get_int("queued.max.request.bytes"), self.get_int("socket.request.max.bytes")
        reason = f"must be -1, or at least socket.request.max.bytes ({largest})"
        self._require(queued <= 0 or queued >= largest, "queued.max.request.bytes", reason)
        overrides = self.max_connections_per_ip_overrides
        for host in overrides:
            valid = re.fullmatch(r"[0-9a-zA-Z\-%._:]+", host) is not None
            self._require(valid, "max.connections.per.ip.overrides", f"{host!r} is not a host")
        if self.get_int("max.connections.per.ip") == 0:
            reason = "may be 0 only together with max.connections.per.ip.overrides"
            self._require(bool(overrides), "max.connections.per.ip", reason)
        idle, delay = self.get_int("connections.max.idle.ms"), self.get_int("connection.failed.authentication.delay.ms")
        reason = f"must be less than connections.max.idle.ms ({idle})"
        self._require(idle < 0 or delay < idle, "connection.failed.authentication.delay.ms", reason)
        self._check_groups()

    def _check_groups(self) -> None:
        protocols = self.get_list("group.coordinator.rebalance.protocols")
        classic = any(item.lower() == "classic" for item in protocols)
        self._require(classic, "group.coordinator.rebalance.protocols", "must contain classic")
        for what in ("heartbeat.interval.ms", "session.timeout.ms"):
            self._check_group_bounds("consumer", what)
            self._check_group_bounds("share", what)
        for kind in ("consumer", "share", "streams"):
            self._check_group_bounds(kind, "assignment.interval.ms")
        for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"):
            self._check_group_bounds("share", what)
        name, members = "group.share.max.share.sessions", self.get_int("group.share.max.size")
        self._require(self.get_int(name) >= members, name, f"must be at least group.share.max.size ({members})")
        for kind in ("consumer", "share"):
            interval = self.get_int(f"group.{kind}.heartbeat.interval.ms")
            reason = f"must be greater than group.{kind}.heartbeat.interval.ms ({interval})"
            longer = self.get_int(f"group.{kind}.session.timeout.ms") > interval
            self._require(longer, f"group.{kind}.session.timeout.ms", reason)

    def _check_group_bounds(self, kind: str, what: str) -> None:
        """Check a key of groups that has a least and a largest value for single groups."""
        name = f"group.{kind}.{what}"
        least, most = self.get_int(f"group.{kind}.min.{what}"), self.get_int(f"group.{kind}.max.{what}")
        reason = f"must be at least group.{kind}.min.{what} ({least})"
        self._require(least <= most, f"group.{kind}.max.{what}", reason)
        reason = f"must be between group.{kind}.min.{what} ({least}) and group.{kind}.max.{what} ({most})"
        self._require(least <= self.get_int(name) <= most, name, reason)


def _absolute(paths: Iterable[str]) -> frozenset[Path]:
    return frozenset(Path(path).absolute() for path in paths)
