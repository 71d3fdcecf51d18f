"""The keys beside those of Apache Kafka 4.4.

A line of tests/reference/kafka_4_4/configs.txt is a key: of what, name, type, default, valid values, whether internal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkapy.config.admin import ADMIN
from kafkapy.config.broker import BROKER_CONFIG_DEF
from kafkapy.config.clients import ClientConfig, ClientConfigDef
from kafkapy.config.compatibility import LISTED_NOWHERE, TOPIC_REMOVED, is_listed, is_removed
from kafkapy.config.config_def import ConfigDef, format_value
from kafkapy.config.consumer import CONSUMER
from kafkapy.config.group import GROUP_CONFIG_DEF
from kafkapy.config.producer import PRODUCER
from kafkapy.config.topic import TOPIC_CONFIG_DEF

KEYS = Path(__file__).parents[1] / "reference" / "kafka_4_4" / "configs.txt"
OUR_OWN = ("kafkapy.", "metrics.listeners")
OTHER_DEFAULTS = {
    "controller.listener.names": "there are no controllers to listen for",
    "group.coordinator.rebalance.protocols": "streams groups are not served",
    "metric.reporters": "classes of Java",
    "node.id": "an id is made where there is none",
    "process.roles": "required by KRaft",
}
"""Broker keys whose default is another one on purpose."""


class Key(NamedTuple):
    kind: str
    name: str
    type: str
    default: str | None
    valid: str | None
    internal: bool


def keys(kind: str) -> dict[str, Key]:
    every = (Key(*json.loads(line)) for line in KEYS.read_text().splitlines())
    return {each.name: each for each in every if each.kind == kind}


def theirs(default: Any, type_: str) -> str | None:
    """A default as it is written in DescribeConfigs."""
    if default is None:
        return None
    text = str(default).removeprefix("class ")
    return ",".join(each.strip() for each in text[1:-1].split(",")) if type_ == "LIST" else text


def test_every_broker_key_is_known_with_its_default() -> None:
    known = keys("broker")
    assert len(known) == 379
    assert known.keys() <= set(BROKER_CONFIG_DEF.names)
    differing = {
        name
        for name, key in known.items()
        if (format_value(BROKER_CONFIG_DEF[name].type, BROKER_CONFIG_DEF[name].default) or "")
        != (theirs(key.default, key.type) or "")
    }
    assert differing == OTHER_DEFAULTS.keys()


def test_broker_keys_that_kafka_4_4_does_not_list_are_marked() -> None:
    ours = {name for name in BROKER_CONFIG_DEF.names if not name.startswith(OUR_OWN)}
    assert {name for name in ours if not is_listed(name)} == ours - keys("broker").keys()
    assert not any(map(is_removed, LISTED_NOWHERE))
    assert set(BROKER_CONFIG_DEF.names) >= LISTED_NOWHERE


def test_internal_keys_are_internal_here() -> None:
    listed = {name for name, key in keys("broker").items() if key.internal and not BROKER_CONFIG_DEF[name].internal}
    assert listed == set()


def test_group_keys_are_those_of_kafka_with_their_defaults() -> None:
    known = keys("group")
    assert set(GROUP_CONFIG_DEF.names) == known.keys()
    for key in GROUP_CONFIG_DEF:
        told = known[key.name]
        assert key.type.label.upper() == told.type
        assert (format_value(key.type, key.default) or "") == (theirs(told.default, told.type) or "")
        assert key.internal == told.internal


def test_removed_topic_keys_are_topic_keys() -> None:
    assert set(TOPIC_CONFIG_DEF.names) >= TOPIC_REMOVED


@pytest.mark.parametrize(
    ("kind", "definition"), [("producer", PRODUCER), ("consumer", CONSUMER), ("admin", ADMIN)], ids=lambda each: each
)
def test_every_client_key_is_taken(kind: str, definition: ClientConfigDef) -> None:
    known = keys(kind)
    assert len(known) > 90
    for name in known:
        definition.key_of(name)
        definition.key_of(name.replace(".", "_"))


def test_client_keys_without_effect_are_named(caplog: pytest.LogCaptureFixture) -> None:
    ClientConfig(
        ADMIN, {"bootstrap.controllers": "localhost:9093"}, metadata_cluster_check_enable=False, client_id="me"
    )
    assert [record.getMessage() for record in caplog.records] == [
        "The configuration key bootstrap.controllers has no effect in this client",
        "The configuration key metadata_cluster_check_enable has no effect in this client",
    ]


def test_definitions_are_not_empty() -> None:
    assert all(isinstance(each, ConfigDef) and len(each) > 20 for each in (BROKER_CONFIG_DEF, TOPIC_CONFIG_DEF))
