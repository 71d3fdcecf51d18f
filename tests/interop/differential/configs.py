"""Exchanges about configurations: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

import time
from typing import Any

from interop.differential.exchanges import Peer, scenario

from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.registry import ApiKeys

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


WATCHED = {
    TOPIC: ["segment.bytes", "retention.ms", "cleanup.policy", "leader.replication.throttled.replicas"],
    BROKER: ["log.retention.ms", "log.cleaner.threads"],
}


def settled(peer: Peer, kind: int, name: str) -> dict[str, str | None]:
    """What was set on a resource, once it has said the same for a while: with KRaft that takes a moment."""
    Resource = DescribeConfigsRequest.Resource
    asked = Resource(resource_type=kind, resource_name=name, configuration_keys=WATCHED[kind])
    request = DescribeConfigsRequest(resources=[asked])
    seen: list[dict[str, str | None]] = []
    while len(seen) < 200 and (len(seen) < 8 or seen[-1] != seen[-8]):
        result = peer.setup(request, 4).results[0]
        seen.append({each.name: each.value for each in result.configs if each.config_source in (1, 2, 3)})
        if peer.is_apache:
            time.sleep(0.005)
    return seen[-1]


@scenario(ApiKeys.DESCRIBE_CONFIGS)
def describe_configs(peer: Peer, version: int) -> None:
    name = f"dc-{version}"
    peer.create_topic(name, retention_ms="1234", cleanup_policy="compact,delete")
    Resource = DescribeConfigsRequest.Resource

    def ask(label: str, *resources: tuple[int, str, list[str] | None], **more: bool) -> None:
        made = [Resource(resource_type=k, resource_name=n, configuration_keys=keys) for k, n, keys in resources]
        peer.call(label, DescribeConfigsRequest(resources=made, **more), version)

    ask("topic", (TOPIC, name, None))
    ask("topic with synonyms", (TOPIC, name, None), include_synonyms=True)
    ask("topic with documentation", (TOPIC, name, None), include_documentation=True)
    ask("broker", (BROKER, "1", None))
    ask("broker with synonyms", (BROKER, "1", None), include_synonyms=True)
    ask("broker with documentation", (BROKER, "1", None), include_documentation=True)
    ask("all brokers", (BROKER, "", None))
    ask("some keys", (TOPIC, name, ["retention.ms", "no.such.key", "segment.bytes"]))
    ask("no keys", (TOPIC, name, []))
    ask("keys of broker", (BROKER, "1", ["log.retention.ms", "log.segment.bytes"]))
    ask("missing topic", (TOPIC, "dc-missing", None))
    ask("bad topic name", (TOPIC, ".", None))
    ask("empty topic name", (TOPIC, "", None))
    ask("other broker", (BROKER, "2", None))
    ask("broker that is no number", (BROKER, "one", None))
    ask("other logger", (LOGGER, "2", None))
    ask("default logger", (LOGGER, "", None))
    for kind in (0, 1, 3, 5, 99, -1):
        ask(f"resource type {kind}", (kind, "1", None))
    ask("twice", (TOPIC, name, ["retention.ms"]), (TOPIC, name, ["retention.ms"]))
    ask("good and bad", (TOPIC, name, ["retention.ms"]), (TOPIC, "dc-missing", None))
    ask("none")


@scenario(ApiKeys.ALTER_CONFIGS)
def alter_configs(peer: Peer, version: int) -> None:
    name = f"ac-{version}"
    peer.create_topic(name, retention_ms="1234")
    Resource = AlterConfigsRequest.Resource

    def ask(label: str, *resources: tuple[int, str, Any], validate_only: bool = False) -> None:
        made = [
            Resource(
                resource_type=kind,
                resource_name=named,
                configs=[
                    Resource.Config(name=key, value=value)
                    for key, value in (given.items() if isinstance(given, dict) else given)
                ],
            )
            for kind, named, given in resources
        ]
        peer.call(label, AlterConfigsRequest(resources=made, validate_only=validate_only), version)
        peer.note(f"{label}, afterwards", settled(peer, TOPIC, name))

    ask("set", (TOPIC, name, {"segment.bytes": "2000000"}))
    ask("validated only", (TOPIC, name, {"segment.bytes": "3000000"}), validate_only=True)
    ask("validated only, wrong", (TOPIC, name, {"segment.bytes": "x"}), validate_only=True)
    ask("unknown key", (TOPIC, name, {"no.such.key": "1"}))
    ask("wrong value", (TOPIC, name, {"retention.ms": "soon"}))
    ask("null value", (TOPIC, name, {"retention.ms": None}))
    ask("key twice", (TOPIC, name, [("retention.ms", "1"), ("retention.ms", "2")]))
    ask("missing topic", (TOPIC, "ac-missing", {"retention.ms": "5"}))
    ask("bad topic name", (TOPIC, ".", {"retention.ms": "5"}))
    ask("empty topic name", (TOPIC, "", {"retention.ms": "5"}))
    ask("resource twice", (TOPIC, name, {"retention.ms": "5"}), (TOPIC, name, {"retention.ms": "6"}))
    ask("good and bad", (TOPIC, name, {"retention.ms": "5"}), (TOPIC, "ac-missing", {"retention.ms": "6"}))
    ask("nothing", (TOPIC, name, {}))
    ask("broker, read-only key", (BROKER, "1", {"log.dirs": "/tmp"}))
    ask("broker, unknown key", (BROKER, "1", {"no.such.key": "1"}))
    ask("broker, wrong value", (BROKER, "1", {"log.cleaner.threads": "many"}))
    ask("other broker", (BROKER, "2", {"log.cleaner.threads": "1"}))
    ask("broker that is no number", (BROKER, "one", {"log.cleaner.threads": "1"}))
    ask("logger", (LOGGER, "1", {"kafka": "INFO"}))
    for kind in (0, 1, 3, 5, 99):
        ask(f"resource type {kind}", (kind, "1", {"a": "b"}))
    ask("none")


@scenario(ApiKeys.INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(peer: Peer, version: int) -> None:
    name = f"iac-{version}"
    peer.create_topic(name, retention_ms="1234")
    Resource = IncrementalAlterConfigsRequest.Resource
    Change = tuple[str, int, str | None]

    def many(
        label: str, *resources: tuple[int, str, list[Change]], validate_only: bool = False, see: bool = True
    ) -> None:
        made = [
            Resource(
                resource_type=kind,
                resource_name=named,
                configs=[Resource.Config(name=key, config_operation=what, value=value) for key, what, value in changes],
            )
            for kind, named, changes in resources
        ]
        peer.call(label, IncrementalAlterConfigsRequest(resources=made, validate_only=validate_only), version)
        if see:
            peer.note(f"{label}, afterwards", settled(peer, TOPIC, name))

    def ask(label: str, *changes: Change, validate_only: bool = False) -> None:
        many(label, (TOPIC, name, list(changes)), validate_only=validate_only)

    ask("set", ("segment.bytes", SET, "2000000"))
    ask("validated only", ("segment.bytes", SET, "3000000"), validate_only=True)
    ask("delete", ("retention.ms", DELETE, None))
    ask("delete again", ("retention.ms", DELETE, None))
    ask("delete with a value", ("segment.bytes", DELETE, "5"))
    ask("append", ("cleanup.policy", APPEND, "compact"))
    ask("append again", ("cleanup.policy", APPEND, "compact"))
    ask("append wrong", ("cleanup.policy", APPEND, "shred"))
    ask("subtract", ("cleanup.policy", SUBTRACT, "delete"))
    ask("subtract what is not there", ("cleanup.policy", SUBTRACT, "delete"))
    ask("subtract everything", ("cleanup.policy", SUBTRACT, "compact"))
    ask("delete list", ("cleanup.policy", DELETE, None))
    ask("append to no list", ("retention.ms", APPEND, "5"))
    ask("subtract from no list", ("retention.ms", SUBTRACT, "5"))
    ask("append two", ("leader.replication.throttled.replicas", APPEND, "0:1,1:1"))
    ask("subtract one of two", ("leader.replication.throttled.replicas", SUBTRACT, "0:1"))
    ask("append null", ("cleanup.policy", APPEND, None))
    ask("subtract null", ("cleanup.policy", SUBTRACT, None))
    ask("set null", ("retention.ms", SET, None))
    ask("set empty", ("retention.ms", SET, ""))
    ask("unknown key", ("no.such.key", SET, "1"))
    ask("delete unknown key", ("no.such.key", DELETE, None))
    ask("append to unknown key", ("no.such.key", APPEND, "1"))
    ask("empty key", ("", SET, "1"))
    ask("wrong value", ("retention.ms", SET, "soon"))
    ask("unknown operation", ("retention.ms", 7, "5"))
    ask("negative operation", ("retention.ms", -1, "5"))
    ask("key twice", ("retention.ms", SET, "5"), ("retention.ms", SET, "6"))
    ask("key twice, two operations", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
    ask("good and wrong key", ("retention.ms", SET, "9"), ("no.such.key", SET, "6"))
    ask("no change")
    many("missing topic", (TOPIC, "iac-missing", [("retention.ms", SET, "5")]), see=False)
    many("bad topic name", (TOPIC, ".", [("retention.ms", SET, "5")]), see=False)
    many("empty topic name", (TOPIC, "", [("retention.ms", SET, "5")]), see=False)
    same: tuple[int, str, list[Change]] = (TOPIC, name, [("retention.ms", SET, "5")])
    many("resource twice", same, same)
    missing: tuple[int, str, list[Change]] = (TOPIC, "iac-missing", [("retention.ms", SET, "5")])
    many("good and bad", (TOPIC, name, [("retention.ms", SET, "17")]), missing)
    many("broker, read-only key", (BROKER, "1", [("log.dirs", SET, "/tmp")]), see=False)
    many("broker, unknown key", (BROKER, "1", [("no.such.key", SET, "1")]), see=False)
    many("broker, wrong value", (BROKER, "1", [("log.cleaner.threads", SET, "many")]), see=False)
    many("broker, per broker only", (BROKER, "", [("listeners", SET, "PLAINTEXT://:1")]), see=False)
    many("other broker", (BROKER, "2", [("log.cleaner.threads", SET, "1")]), see=False)
    many("broker that is no number", (BROKER, "one", [("log.cleaner.threads", SET, "1")]), see=False)
    many("broker set", (BROKER, "1", [("log.retention.ms", SET, "604800001")]), see=False)
    peer.note("broker, afterwards", settled(peer, BROKER, "1"))
    many("all brokers set", (BROKER, "", [("log.retention.ms", SET, "604800002")]), see=False)
    peer.note("all brokers, afterwards", settled(peer, BROKER, ""))
    retention = DescribeConfigsRequest.Resource(
        resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"]
    )
    request = DescribeConfigsRequest(resources=[retention], include_synonyms=True)
    many("topic back to default", (TOPIC, name, [("retention.ms", DELETE, None)]))
    answer = peer.setup(request, 4).results[0].configs[0]
    peer.note("synonyms", [(each.name, each.value, each.source) for each in answer.synonyms])
    many("broker deleted", (BROKER, "1", [("log.retention.ms", DELETE, None)]), see=False)
    many("all brokers deleted", (BROKER, "", [("log.retention.ms", DELETE, None)]), see=False)
    peer.note("broker, in the end", settled(peer, BROKER, "1"))
    many("logger, unknown level", (LOGGER, "1", [("kafka", SET, "LOUD")]), see=False)
    many("logger, other broker", (LOGGER, "2", [("kafka", SET, "INFO")]), see=False)
    many("logger, append", (LOGGER, "1", [("kafka", APPEND, "INFO")]), see=False)
    for kind in (0, 1, 3, 5, 99):
        many(f"resource type {kind}", (kind, "1", [("a", SET, "b")]), see=False)
    many("none")
