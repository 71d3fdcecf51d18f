"""The settings of a console: of a TOML file, of the command line, or of a broker's configuration.

name = "production"            # shown on every page
read-only = false              # true: no action that changes anything
hosts = ["console.example"]    # host names that browsers may use; default: names of this machine

[kafka]                        # keys of Kafka's clients
"bootstrap.servers" = "kafka1:9092,kafka2:9092"

[login]
mode = "users"                 # none, users, sasl (Kafka's own users), oidc
session-hours = 12
[login.users]
ann = "scrypt$..."             # kafkapy console password

[login.oidc]
issuer = "https://login.example/realms/main"
client-id = "kafka-console"
client-secret = "..."

[[role]]                       # viewer, editor, admin
role = "editor"
users = ["ann"]                # "*": everybody who is logged in
groups = ["team-a"]            # groups of OIDC
prefixes = ["team-a."]         # topics, groups, subjects; without: everything

[[mask]]
topics = ["payments.*"]
fields = ["card.number"]
pattern = "[0-9]{12,19}"

[registry]
url = "http://localhost:8081"

[[connect]]
name = "main"
url = "http://localhost:8083"

[metrics]
urls = ["http://broker1:9400/metrics"]

[audit]
file = "audit.jsonl"

Several clusters: [[cluster]] with name, read-only, and its own tables kafka, registry, connect, metrics, schemas and
mask (`[cluster.kafka]`). Then the file has none of these tables but mask, and a role may be bound to clusters:

[[role]]
role = "admin"
users = ["ann"]
clusters = ["staging"]
"""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import ConfigError

__all__ = ["ConnectSettings", "Level", "MaskRule", "OidcSettings", "RegistrySettings", "RoleRule", "Settings"]

CLUSTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
RESERVED: Final = ("static", "health", "login", "logout")
"""First parts of addresses that are no names of clusters."""
OF_ONE_CLUSTER: Final = ("kafka", "registry", "connect", "metrics", "schemas")
"""Tables that stand in each [[cluster]], when there are several."""
MODES: Final = ("none", "users", "sasl", "oidc")
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]", "::1")


class Level(IntEnum):
    """What a role allows; a higher one includes the lower ones."""

    VIEWER = 1
    EDITOR = 2
    ADMIN = 3


@dataclass(frozen=True)
class RoleRule:
    """A role for users and groups, on names with these prefixes (none: on everything).

    With several clusters, in these `clusters` (none: in all).
    """

    level: Level
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True)
class MaskRule:
    """Fields and texts of records that nobody sees.

    `topics` are shell patterns. `fields` are dotted paths in decoded values; `pattern` is a regular expression for
    texts; `headers` are names of headers. A rule without any of them hides keys and values whole.
    """

    topics: tuple[str, ...]
    fields: tuple[tuple[str, ...], ...] = ()
    pattern: re.Pattern[str] | None = None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class RegistrySettings:
    """A schema registry with Confluent's REST API."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None


@dataclass(frozen=True)
class ConnectSettings:
    """A cluster of Kafka Connect."""

    name: str
    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None


@dataclass(frozen=True)
class OidcSettings:
    """An identity provider of OpenID Connect."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    user_claim: str = "preferred_username"
    groups_claim: str = "groups"
    ca_file: str | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of one console. ConfigError for a wrong key or value.

    With several `clusters`, each has settings of its own for its brokers and services, and the logins are these.
    """

    kafka: Mapping[str, object] = field(default_factory=dict, repr=False)
    name: str = ""
    read_only: bool = False
    hosts: tuple[str, ...] = ()
    login: str = "none"
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    session_hours: float = 12.0
    secure_cookies: bool = False
    oidc: OidcSettings | None = None
    roles: tuple[RoleRule, ...] = ()
    masks: tuple[MaskRule, ...] = ()
    registry: RegistrySettings | None = None
    connect: tuple[ConnectSettings, ...] = ()
    metrics_urls: tuple[str, ...] = ()
    audit_file: Path | None = None
    schema_dir: Path | None = None
    clusters: tuple[Settings, ...] = ()
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def __post_init__(self) -> None:
        if self.clusters:
            self._check_clusters()
        elif not self.kafka.get("bootstrap.servers"):
            raise ConfigError("kafka.bootstrap.servers", "", "addresses of brokers are needed")
        for bound in (name for rule in self.roles for name in rule.clusters):
            if bound not in {each.name for each in self.clusters}:
                raise ConfigError("role.clusters", bound, "no [[cluster]] has this name")
        for key in self.kafka:
            _check_client_key(str(key))
        if self.login not in MODES:
            raise ConfigError("login.mode", self.login, f"one of {', '.join(MODES)}")
        if self.login == "users" and not self.users:
            raise ConfigError("login.users", "", "the login by users needs at least one user")
        if self.login == "oidc" and self.oidc is None:
            raise ConfigError("login.oidc", "", "the login by oidc needs issuer, client-id and client-secret")
        if self.login == "sasl":
            self._check_kafka_logins()

    def _check_clusters(self) -> None:
        names = [each.name for each in self.clusters]
        for name in names:
            if not CLUSTER_NAME.fullmatch(name) or name in RESERVED:
                reason = f"letters, digits, dots, - and _ are allowed, and none of {', '.join(RESERVED)}"
                raise ConfigError("cluster.name", name, reason)
            if names.count(name) > 1:
                raise ConfigError("cluster.name", name, "two clusters have this name")
        if self.kafka:
            raise ConfigError("kafka", "", "with several clusters, each [[cluster]] has its own table kafka")
        if self.login == "sasl":
            raise ConfigError("login.mode", "sasl", "the login by Kafka users is for a console of one cluster")

    def _check_kafka_logins(self) -> None:
        """Brokers check the passwords, and what a user may do by their ACLs."""
        given = {str(name).replace("_", "."): value for name, value in self.kafka.items()}
        protocol = str(given.get("security.protocol", "PLAINTEXT")).upper()
        if not protocol.startswith("SASL_"):
            reason = "the login by Kafka users needs SASL_PLAINTEXT or SASL_SSL: else no broker checks a password"
            raise ConfigError("kafka.security.protocol", protocol, reason)
        if not self.roles and (self.registry is not None or self.connect):
            reason = "the login by Kafka users beside a schema registry or Connect needs roles: no ACL guards those"
            raise ConfigError("role", "", reason)

    @classmethod
    def from_file(cls, path: Path | str, kafka: Mapping[str, object] | None = None) -> Settings:
        """The settings of a TOML file; `kafka` has keys of the client that win over the file's. ConfigError."""
        source = str(path)
        try:
            with Path(path).open("rb") as file:
                data = tomllib.load(file)
        except OSError as error:
            raise ConfigError("console file", source, str(error.strerror)) from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError("console file", source, str(error)) from None
        return cls.from_mapping(data, kafka, Path(path).parent)

    @classmethod
    def from_mapping(
        cls, data: Mapping[str, Any], kafka: Mapping[str, object] | None = None, base: Path | None = None
    ) -> Settings:
        """The settings of a parsed file. Relative paths begin at `base`."""
        top = _Table(
            data, "", "name", "read-only", "hosts", "kafka", "login", "role", "mask", "registry", "connect", "metrics",
            "audit", "schemas", "cluster",
        )  # fmt: skip
        root = base or Path()
        clusters = top.tables("cluster", "name", "read-only", "mask", *OF_ONE_CLUSTER)
        for key in OF_ONE_CLUSTER if clusters else ():
            if key in top:
                raise ConfigError(key, "", f"with several clusters, each [[cluster]] has its own table {key}")
        if clusters and kafka:
            raise ConfigError("kafka", "", "the file names several clusters: keys of the command line are of none")
        login = top.table("login", "mode", "users", "session-hours", "secure-cookies", "oidc")
        audit = top.table("audit", "file")
        audit_file = audit.text("file")
        common: dict[str, Any] = {
            "read_only": top.raw("read-only", bool, False),
            "masks": _masks(top),
            "audit_file": None if audit_file is None else root / audit_file,
        }
        users = login.raw("users", dict, {})
        return cls(
            **(common if clusters else common | _of_one_cluster(top, root, kafka or {})),
            name=top.text("name") or "",
            clusters=tuple(cls._cluster(each, root, common) for each in clusters),
            hosts=top.texts("hosts"),
            login=login.text("mode") or "none",
            users={str(name): str(value) for name, value in users.items()},
            session_hours=float(login.raw("session-hours", (int, float), 12)),
            secure_cookies=login.raw("secure-cookies", bool, False),
            oidc=_oidc(login) if "oidc" in login else None,
            roles=tuple(_role(each) for each in top.tables("role", "role", "users", "groups", "prefixes", "clusters")),
        )

    @classmethod
    def _cluster(cls, table: _Table, root: Path, common: Mapping[str, Any]) -> Settings:
        """The settings of a [[cluster]]. Its errors name it."""
        try:
            return cls(**{**common, **_of_one_cluster(table, root, {}), **_own(table, common)})
        except ConfigError as error:
            if error.key.startswith(table.name):
                raise
            raise ConfigError(f"{table.name}.{error.key}", error.value, error.reason) from None

    def with_changes(self, **changes: Any) -> Settings:
        """A copy with other values; None leaves a value as it is. Read-only holds for all clusters."""
        given = {name: value for name, value in changes.items() if value is not None}
        if self.clusters and given.get("read_only"):
            given["clusters"] = tuple(replace(each, read_only=True) for each in self.clusters)
        return replace(self, **given)


def _check_client_key(name: str) -> None:
    """ConfigError for a key that no client has."""
    from kafkapy.config.admin import ADMIN
    from kafkapy.config.consumer import CONSUMER
    from kafkapy.config.producer import PRODUCER

    error: ConfigError | None = None
    for definition in (PRODUCER, CONSUMER, ADMIN):
        try:
            definition.key_of(name)
            return
        except ConfigError as found:
            error = found
    assert error is not None
    raise error


class _Table:
    """A table of the file: known keys, values of the right type, and the name of a key in errors."""

    def __init__(self, data: Mapping[str, Any], name: str, *known: str) -> None:
        self._data = data
        self.name = name
        for key in data:
            if key not in known:
                question = did_you_mean(key, known)
                raise ConfigError(self._key(key), "", f"it is no setting{'; ' + question if question else ''}")

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def _key(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def raw(self, key: str, kind: Any, default: Any) -> Any:
        value = self._data.get(key, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = "/".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
            raise ConfigError(self._key(key), str(value), f"a value of type {names} is needed")
        return value

    def text(self, key: str) -> str | None:
        return self.raw(key, str, "") or None

    def needed(self, key: str) -> str:
        value = self.text(key)
        if value is None:
            raise ConfigError(self._key(key), "", "it is needed")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.raw(key, list, [])
        if not all(isinstance(each, str) for each in values):
            raise ConfigError(self._key(key), str(values), "a list of texts is needed")
        return tuple(values)

    def bounds(self, key: str) -> tuple[str, ...]:
        """Texts that bind something, to everything when the key is missing. An empty list or text says neither."""
        values = self.texts(key)
        if key in self and not all(values or ("",)):
            raise ConfigError(
                self._key(key), list(values), "nothing in it may be empty: without the key there is no bound"
            )
        return values

    def table(self, key: str, *known: str) -> _Table:
        return _Table(self.raw(key, dict, {}), self._key(key), *known)

    def tables(self, key: str, *known: str) -> Sequence[_Table]:
        rows = self.raw(key, list, [])
        found = []
        for number, row in enumerate(rows):
            where = f"{self._key(key)}[{number}]"
            if not isinstance(row, dict):
                raise ConfigError(where, str(row), f"a table [[{self._key(key)}]] is needed")
            if key == "cluster" and isinstance(row.get("name"), str):
                where += f" ({row['name']})"
            found.append(_Table(row, where, *known))
        return found


def _role(table: _Table) -> RoleRule:
    name = table.needed("role")
    try:
        level = Level[name.upper()]
    except KeyError:
        raise ConfigError("role.role", name, "one of viewer, editor, admin") from None
    return RoleRule(
        level, table.texts("users"), table.texts("groups"), table.bounds("prefixes"), table.bounds("clusters")
    )


def _masks(table: _Table) -> tuple[MaskRule, ...]:
    return tuple(_mask(each) for each in table.tables("mask", "topics", "fields", "pattern", "headers"))


def _mask(table: _Table) -> MaskRule:
    pattern = table.text("pattern")
    try:
        compiled = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigError("mask.pattern", pattern, f"a regular expression is needed: {error}") from None
    topics = table.texts("topics") or ("*",)
    fields = tuple(tuple(path.split(".")) for path in table.texts("fields"))
    return MaskRule(topics, fields, compiled, tuple(name.lower() for name in table.texts("headers")))


def _of_one_cluster(table: _Table, root: Path, kafka: Mapping[str, object]) -> dict[str, Any]:
    """The settings of the tables of one cluster; `kafka` has keys that win over the table's."""
    schema_dir = table.table("schemas", "directory").text("directory")
    return {
        "kafka": {**table.raw("kafka", dict, {}), **kafka},
        "registry": _registry(table) if "registry" in table else None,
        "connect": tuple(
            ConnectSettings(
                each.needed("name"),
                each.needed("url").rstrip("/"),
                each.text("user"),
                each.text("password"),
                each.text("ca-file"),
            )
            for each in table.tables("connect", "name", "url", "user", "password", "ca-file")
        ),
        "metrics_urls": table.table("metrics", "urls").texts("urls"),
        "schema_dir": None if schema_dir is None else root / schema_dir,
    }


def _own(cluster: _Table, common: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a [[cluster]] beside its tables."""
    return {
        "name": cluster.needed("name"),
        "read_only": common["read_only"] or cluster.raw("read-only", bool, False),
        "masks": (*common["masks"], *_masks(cluster)),
    }


def _registry(top: _Table) -> RegistrySettings:
    table = top.table("registry", "url", "user", "password", "ca-file")
    return RegistrySettings(
        table.needed("url").rstrip("/"), table.text("user"), table.text("password"), table.text("ca-file")
    )


def _oidc(login: _Table) -> OidcSettings:
    table = login.table(
        "oidc", "issuer", "client-id", "client-secret", "scopes", "user-claim", "groups-claim", "ca-file"
    )
    return OidcSettings(
        table.needed("issuer").rstrip("/"),
        table.needed("client-id"),
        table.needed("client-secret"),
        table.texts("scopes") or ("openid", "profile", "email"),
        table.text("user-claim") or "preferred_username",
        table.text("groups-claim") or "groups",
        table.text("ca-file"),
    )
