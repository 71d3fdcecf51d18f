"""The tables of keys without effect say what the code does: each key outside them is read, each key in them is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import kafkapy
from kafkapy.config.broker import BROKER_CONFIG_DEF, BrokerConfig
from kafkapy.config.effects import (
    CONDITIONAL,
    LISTENER_LIMITS,
    NOTHING_READS,
    TOPIC_WITHOUT_EFFECT,
    WITHOUT_EFFECT,
    ineffective_group_keys,
    ineffective_keys,
    ineffective_topic_keys,
)
from kafkapy.config.group import BROKER_KEYS
from kafkapy.config.properties import Properties
from kafkapy.config.topic import BROKER_SYNONYMS, TOPIC_CONFIG_DEF

ROOT = Path(kafkapy.__file__).parent
TABLES = {
    "accepted_keys.py",
    "broker_keys.py",
    "compatibility.py",
    "coordinator_keys.py",
    "effects.py",
    "reference.py",
    "security_keys.py",
    "single_node.py",
    "store_keys.py",
    "tls_store_keys.py",
}
CLIENT_KEYS = {"admin.py", "client_security.py", "clients.py", "consumer.py", "producer.py"}
"""Files that name keys and do nothing with their values, and keys of clients that have the same names."""
NO_BROKER = {"clients", "tools", "testing"}
LIMITS_OF_CHANGES = "thread_counts.py"
"""Names the keys whose changes are limited, whether they have an effect or not."""


def broker_sources() -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        if parts[-1] == LIMITS_OF_CHANGES:
            continue
        if parts[0] not in NO_BROKER and not (parts[0] == "config" and parts[-1] in TABLES | CLIENT_KEYS):
            yield path


@cache
def code() -> str:
    """Everything that may use an attribute: the kernels too, but not the readings of the configuration themselves."""
    own = {"config/topic.py"}
    files = [path for path in broker_sources() if str(path.relative_to(ROOT)) not in own]
    return "\n".join(path.read_text() for path in [*files, *sorted((ROOT / "_speedups").rglob("*.pyx"))])


def is_used(attribute: str) -> bool:
    """Whether code takes the attribute from an object; `name=`, where a reading fills it, is none."""
    return re.search(rf"(\.|getattr\(\w+, \"){attribute}\b(?!\()", code()) is not None


def readings(tree: ast.AST, key_names: frozenset[str]) -> Iterator[tuple[str, list[str]]]:
    """(key, what its value is kept as) for every mention of a key outside of checks and tables.

    A value that only fills a field or is only returned by a property is live where that attribute is used.
    """

    def walk(node: ast.AST, kept: list[str]) -> Iterator[tuple[str, list[str]]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name.startswith("_check") or node.name == "_require_tiered":
                return
            decorators = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
            if decorators & {"property", "cached_property"}:
                kept = [*kept, node.name]
        if isinstance(node, ast.Constant) and node.value in key_names:
            yield node.value, kept
        if isinstance(node, ast.keyword) and node.arg is not None:
            kept = [*kept, node.arg]
        for child in ast.iter_child_nodes(node):
            yield from walk(child, kept)

    yield from walk(tree, [])


@cache
def live_broker_keys() -> frozenset[str]:
    names = frozenset(key.name for key in BROKER_CONFIG_DEF)
    live = {name for keys in BROKER_KEYS.values() for name in keys} | CHECKS_SOMETHING | PASSED_ON
    live |= {name for name in names if name.startswith(READ_AS_FAMILIES)}
    for path in broker_sources():
        if path.name == "topic.py":
            continue
        for name, kept in readings(ast.parse(path.read_text()), names):
            if all(is_used(attribute) for attribute in kept):
                live.add(name)
    for topic_key, chain in BROKER_SYNONYMS.items():
        if topic_key not in TOPIC_WITHOUT_EFFECT:
            live.update(name for name, _ in chain)
    return frozenset(live)


CHECKS_SOMETHING = {"broker.id.generation.enable"}
"""Keys whose whole effect is that a start is refused."""

PASSED_ON = {
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
}
"""Keys whose values are arguments of constructors that keep them under other names."""

READ_AS_FAMILIES = ("kafkapy.etcd.ssl.", "zookeeper.ssl.")
"""Beginnings of keys that `kafkapy.metadata.store_tls.settings_of` reads together."""

MENTIONED = {
    "process.roles": None,
    "remote.log.storage.manager.impl.prefix": None,
    "remote.log.metadata.manager.impl.prefix": None,
}
"""Keys whose only readers do nothing for a user: a function that nobody calls, or None for a mere check."""


def test_every_key_that_is_not_read_is_in_the_table_and_no_other() -> None:
    idle = {name for name, function in MENTIONED.items() if function is None or not is_called(function)}
    unread = {key.name for key in BROKER_CONFIG_DEF} - (live_broker_keys() - idle)
    assert unread - set(CONDITIONAL) == WITHOUT_EFFECT - set(CONDITIONAL)


def is_called(function: str) -> bool:
    return re.search(rf"\.{function}\(", code()) is not None


def test_every_topic_key_that_no_log_uses_is_in_the_table_and_no_other() -> None:
    text = (ROOT / "config" / "topic.py").read_text()
    properties = {
        node.name: ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        and any(getattr(each, "id", "") == "property" for each in node.decorator_list)
    }
    helpers = {"message_timestamp_difference_max_ms": ("timestamp_before_max_ms", "timestamp_after_max_ms")}
    unused = set()
    for key in TOPIC_CONFIG_DEF:
        field = key.name.replace(".", "_")
        ways = [field, *helpers.get(field, ()), *(name for name, body in properties.items() if f"self.{field}" in body)]
        if not any(is_used(way) for way in ways) and not is_read_by_name(key.name):
            unused.add(key.name)
    assert unused == TOPIC_WITHOUT_EFFECT


def is_read_by_name(name: str) -> bool:
    """`kafkapy.storage.backend` and such: a handler that takes the key itself."""
    return f'"{name}"' in code()


@pytest.mark.parametrize("family", NOTHING_READS)
def test_a_family_of_keys_has_members_and_none_is_read(family: str) -> None:
    members = {key.name for key in BROKER_CONFIG_DEF if key.name.startswith(family.removesuffix("*"))}
    assert members
    assert members <= WITHOUT_EFFECT


def config(**keys: str) -> BrokerConfig:
    properties = Properties("test")
    for name, value in keys.items():
        properties.set(name.replace("__", "."), value)
    return BrokerConfig.from_properties(properties)


def test_keys_of_every_layer_are_found_and_those_that_work_are_not() -> None:
    given = config(
        super__users="User:a", num__partitions="3", ssl__provider="BC", ssl__client__auth="required"
    ).with_dynamic({"max.connections": "5", "log.cleaner.io.buffer.size": "2"}, {"log.preallocate": "true"})
    assert ineffective_keys(given) == [
        "log.cleaner.io.buffer.size", "log.preallocate", "ssl.client.auth", "ssl.provider", "super.users"
    ]  # fmt: skip
    assert ineffective_keys(config()) == []


def test_a_key_that_another_key_makes_live_is_not_named() -> None:
    assert ineffective_keys(config(super__users="User:a", authorizer__class__name="some")) == []
    assert ineffective_keys(config(zookeeper__session__timeout__ms="9000")) == ["zookeeper.session.timeout.ms"]
    assert ineffective_keys(config(zookeeper__session__timeout__ms="9000", zookeeper__connect="h:1")) == []


def test_only_the_limits_of_a_listener_have_an_effect_for_one_listener() -> None:
    for name in LISTENER_LIMITS:
        assert ineffective_keys(config(**{f"listener.name.plaintext.{name}": "10"})) == []
    assert ineffective_keys(config(**{"listener.name.plaintext.ssl.provider": "none"})) == [
        "listener.name.plaintext.ssl.provider"
    ]


def test_topic_keys() -> None:
    assert ineffective_topic_keys({"remote.storage.enable": "true", "retention.ms": "1"}) == ["remote.storage.enable"]


def test_unknown_keys_of_a_file_are_told_apart_from_keys_without_effect() -> None:
    given = config(my__plugin__bucket="b", log__cleaner__io__buffer__size="524288", num__partitions="3")
    assert given.unknown_keys == ["my.plugin.bucket"]
    assert ineffective_keys(given) == ["log.cleaner.io.buffer.size"]


def test_group_keys_of_what_is_not_served_are_named() -> None:
    given = {"streams.session.timeout.ms": "50000", "share.session.timeout.ms": "50000"}
    assert ineffective_group_keys(given) == ["streams.session.timeout.ms"]
