"""Dynamic configuration key by key, beside Apache Kafka 3.9 and 4.4: same errors, texts, sources and synonyms.

Every key that Apache Kafka describes as not read-only is set to good and bad values, for one broker and for all, first
validated only. What differs on purpose stands in OTHERWISE with its reason.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.conftest import JAVA, with_jars
from interop.differential.exchanges import Peer
from peers.apache_kafka import VERSIONS, ApacheKafka

from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = [*JAVA, pytest.mark.timeout(1200)]

KEYS = (Path(__file__).parents[1] / "reference" / "kafka_4_4" / "dynamic.txt").read_text().split()
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
VALUES = ("-1", "0", "1", "5", "2147483647", "true", "x", "")
SAME = {"num.network.threads": "3", "num.io.threads": "8"}
"""Threads of both brokers: a limit is half and double of the present number."""

UNUSABLE = "A value that the broker could not use is refused when it is set; Kafka finds out later."
OTHERWISE: dict[tuple[str, str], str] = {
    ("config.providers", "*"): "A provider without a class is refused; Kafka leaves its variables as text.",
    ("log.cleaner.io.buffer.load.factor", "*"): UNUSABLE,
    ("min.insync.replicas", "*"): "KRaft keeps the cluster's value while eligible leader replicas are on.",
    ("sasl.login.refresh.buffer.seconds", "-1"): UNUSABLE,
    ("sasl.login.refresh.min.period.seconds", "-1"): UNUSABLE,
    ("sasl.login.refresh.window.factor", "*"): UNUSABLE,
    ("sasl.login.refresh.window.jitter", "*"): UNUSABLE,
    ("ssl.engine.factory.class", "*"): "Names a class of Java, which has no effect here.",
}
"""(key, value or *) with another result on purpose, and why."""
OTHERWISE_SHOWN = {
    "metric.reporters": "Kafka's default is a class of Java.",
    "min.insync.replicas": "KRaft keeps the cluster's value while eligible leader replicas are on.",
    "ssl.engine.factory.class": "Names a class of Java, which has no effect here.",
}
"""Keys that are described in another way on purpose, and why."""
ADDRESSES = re.compile(r"PLAINTEXT://127[.0-9]+:[0-9]+(,CONTROLLER://127[.0-9]+:[0-9]+)?")
"""The listeners of each broker, which are its own."""


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Peer]]:
    """kafkapy, then Apache Kafka."""
    place: Path = tmp_path_factory.mktemp("dynamic")
    brokers: list[Any] = [BrokerProcess(place / "kafkapy", SAME)]
    for version in sorted(VERSIONS):
        with_jars(version)
        brokers.append(ApacheKafka(version, place / version, SAME))
    try:
        made = [
            Peer(name, each.start().bootstrap)
            for name, each in zip(("kafkapy", *sorted(VERSIONS)), brokers, strict=True)
        ]
        yield made
        for peer in made:
            peer.close()
    finally:
        for each in brokers:
            each.remove()


def alter(
    peer: Peer, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str]:
    Resource = IncrementalAlterConfigsRequest.Resource
    configs = [Resource.Config(name=key, config_operation=what, value=value) for key, what, value in changes]
    resource = Resource(resource_type=kind, resource_name=name, configs=configs)
    answer = peer.setup(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1)
    return answer.responses[0].error_code, answer.responses[0].error_message or ""


def replace(peer: Peer, kind: int, name: str, keys: dict[str, str]) -> tuple[int, str]:
    Resource = AlterConfigsRequest.Resource
    configs = [Resource.Config(name=key, value=value) for key, value in keys.items()]
    resource = Resource(resource_type=kind, resource_name=name, configs=configs)
    answer = peer.setup(AlterConfigsRequest(resources=[resource], validate_only=True), 1)
    return answer.responses[0].error_code, answer.responses[0].error_message or ""


def described(peer: Peer, kind: int, name: str, *keys: str) -> dict[str, Any]:
    """Value, source, read-only, sensitive and synonyms by key, once the broker has said the same for a while."""
    resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=list(keys))
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    seen: list[dict[str, Any]] = []
    while len(seen) < 200 and (len(seen) < 8 or seen[-1] != seen[-8]):
        answer = peer.setup(request, 4).results[0]
        seen.append(
            {
                each.name: (
                    each.value,
                    each.config_source,
                    each.read_only,
                    each.is_sensitive,
                    [(one.name, one.value, one.source) for one in each.synonyms],
                )
                for each in answer.configs
            }
        )
        if peer.is_apache:
            time.sleep(0.01)
    return seen[-1]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_takes_and_refuses_what_kafka_does(peers: list[Peer], key: str) -> None:
    """Apache Kafka 3.9 counts for the keys that 4.4 does not have."""
    kafkapy, *apache = peers
    newest = apache[-1].name
    found = []
    for name in ("1", ""):
        for value in VALUES:
            ours = alter(kafkapy, BROKER, name, (key, SET, value), validate_only=True)
            theirs = {peer.name: alter(peer, BROKER, name, (key, SET, value), validate_only=True) for peer in apache}
            reason = OTHERWISE.get((key, value)) or OTHERWISE.get((key, "*"))
            if ours[0] != theirs[newest][0] and reason is None:
                found.append(f"{name!r} {value!r}: {ours}, theirs {theirs}")
    assert not found, "\n".join(found)


REFUSED: list[tuple[int, str, tuple[str, int, str | None]]] = [
    (BROKER, "1", ("log.dirs", SET, "/tmp")),
    (BROKER, "", ("log.retention.hours", SET, "5")),
    (BROKER, "1", ("num.io.threads", SET, "17")),
    (BROKER, "", ("num.io.threads", SET, "3")),
    (BROKER, "1", ("num.network.threads", SET, "7")),
    (BROKER, "", ("listener.name.plaintext.num.network.threads", SET, "7")),
    (BROKER, "1", ("num.replica.fetchers", SET, "3")),
    (BROKER, "1", ("num.recovery.threads.per.data.dir", SET, "9")),
    (BROKER, "1", ("background.threads", SET, "1000")),
    (BROKER, "1", ("log.cleaner.threads", SET, "3")),
    (BROKER, "1", ("ssl.keystore.password", SET, "x")),
    (BROKER, "", ("listener.name.a.ssl.keystore.password", SET, "x")),
    (BROKER, "", ("listener.name.a.sasl.jaas.config", SET, "x")),
    (BROKER, "", ("listeners", SET, "PLAINTEXT://:1")),
    (BROKER, "", ("listener.security.protocol.map", SET, "A:SSL")),
    (BROKER, "", ("sasl.enabled.mechanisms", SET, "PLAIN")),
    (BROKER, "1", ("max.connection.creation.rate", SET, "0")),
    (BROKER, "", ("cordoned.log.dirs", SET, "")),
    (BROKER, "1", ("log.remote.copy.lag.ms", SET, "604800001")),
    (BROKER, "1", ("log.retention.ms", APPEND, "5")),
    (BROKER, "1", ("log.retention.ms", SUBTRACT, "5")),
    (BROKER, "1", ("no.such.key", APPEND, "5")),
    (BROKER, "1", ("log.retention.ms", SET, None)),
    (BROKER, "2", ("log.retention.ms", SET, "5")),
    (BROKER, "one", ("log.retention.ms", SET, "5")),
    (LOGGER, "1", ("no.such.logger", SET, "INFO")),
    (LOGGER, "1", ("root", SET, "LOUD")),
    (LOGGER, "1", ("root", SET, "info")),
    (LOGGER, "1", ("root", DELETE, None)),
    (LOGGER, "1", ("root", APPEND, "INFO")),
    (LOGGER, "1", ("root", SUBTRACT, "INFO")),
    (LOGGER, "2", ("root", SET, "INFO")),
    (LOGGER, "one", ("root", SET, "INFO")),
    (LOGGER, "", ("root", SET, "INFO")),
    (METRICS, "", ("metrics", SET, "a")),
    (METRICS, "m", ("no.such.key", SET, "a")),
    (METRICS, "m", ("interval.ms", SET, "99")),
    (METRICS, "m", ("interval.ms", SET, "3600001")),
    (METRICS, "m", ("match", SET, "nobody=x")),
    (METRICS, "m", ("match", SET, "client_id=[")),
    (METRICS, "m", ("metrics", SET, None)),
    (GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
    (GROUP, "g", ("consumer.session.timeout.ms", APPEND, "50000")),
    (TOPIC, "", ("retention.ms", SET, "5")),
    (3, "x", ("a", SET, "b")),
]


@pytest.mark.parametrize(("kind", "name", "change"), REFUSED, ids=[f"{k}-{n}-{c}" for k, n, c in REFUSED])
def test_errors_have_kafkas_codes_and_texts(
    peers: list[Peer], kind: int, name: str, change: tuple[str, int, str | None]
) -> None:
    """Kafka wraps some texts into the name of a Java class, which is left out here."""
    kafkapy, newest = peers[0], peers[-1]
    for validate_only in (True, False):
        ours = alter(kafkapy, kind, name, change, validate_only=validate_only)
        theirs = alter(newest, kind, name, change, validate_only=validate_only)
        assert ours[0] == theirs[0] != 0
        assert ours[1] in theirs[1], theirs[1]


DESCRIBED = (
    "log.retention.ms", "log.retention.minutes", "log.retention.hours", "num.io.threads", "log.roll.ms",
    "log.roll.hours", "listener.name.plaintext.max.connections", "max.connections",
    "log.dirs", "log.cleanup.policy", "message.max.bytes", "leader.replication.throttled.rate",
    "follower.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second",
)  # fmt: skip


def test_sources_and_synonyms_are_kafkas(peers: list[Peer]) -> None:
    kafkapy, newest = peers[0], peers[-1]
    own: list[tuple[str, int, str | None]] = [
        ("log.retention.ms", SET, "111111"),
        ("listener.name.plaintext.max.connections", SET, "500"),
        ("leader.replication.throttled.rate", SET, "1000000"),
        ("log.cleanup.policy", APPEND, "compact"),
    ]
    cluster: list[tuple[str, int, str | None]] = [
        ("log.retention.ms", SET, "222222"),
        ("num.io.threads", SET, "9"),
        ("log.roll.ms", SET, "333333"),
        ("message.max.bytes", SET, "1000012"),
        ("leader.replication.throttled.rate", SET, "2000000"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", SET, "3000000"),
    ]
    seen: dict[str, list[Any]] = {}
    for peer in (kafkapy, newest):
        seen[peer.name] = []
        back = tuple([(key, DELETE, None) for key, _, _ in each] for each in (own, cluster))
        for changes in ((own, cluster), back):
            for name, each in zip(("1", ""), changes, strict=True):
                assert alter(peer, BROKER, name, *each) == (0, "")
            for name in ("1", ""):
                shown = described(peer, BROKER, name, *DESCRIBED)
                shown.pop("log.dirs", None)
                seen[peer.name].append(shown)
    for ours, theirs in zip(seen["kafkapy"], seen[newest.name], strict=True):
        assert {key: each for key, each in ours.items() if theirs.get(key) != each} == {}
        assert ours.keys() == theirs.keys()


GOOD = {
    "compression.type": "lz4",
    "config.providers": "",
    "cordoned.log.dirs": "",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.cleaner.io.buffer.load.factor": "0.5",
    "log.cleaner.io.buffer.size": "1048576",
    "log.cleaner.threads": "2",
    "log.cleanup.policy": "compact,delete",
    "log.message.timestamp.type": "LogAppendTime",
    "log.segment.bytes": "2097152",
    "max.connections.per.ip.overrides": "127.0.0.9:7",
    "num.recovery.threads.per.data.dir": "4",
    "num.replica.fetchers": "2",
    "sasl.kerberos.ticket.renew.jitter": "0.25",
    "sasl.kerberos.ticket.renew.window.factor": "0.5",
    "sasl.login.refresh.buffer.seconds": "5",
    "sasl.login.refresh.window.factor": "0.6",
    "sasl.login.refresh.window.jitter": "0.1",
}
"""A value that both brokers take; of other keys the first of TRIED."""
TRIED = ("5", "true", "x", "")
LISTENER = "listener.name.plaintext."


def outcome(peer: Peer, name: str, key: str, value: str) -> tuple[int, list[Any]]:
    """Error code of a change, then what each scope says of the key while it is set."""
    error, _ = alter(peer, BROKER, name, (key, SET, value))
    shown = [described(peer, BROKER, scope, key).get(key) for scope in ("1", "")]
    if error == 0:
        assert alter(peer, BROKER, name, (key, DELETE, None)) == (0, "")
    return error, shown


@pytest.mark.parametrize("key", [key for key in KEYS if key not in OTHERWISE_SHOWN])
def test_a_set_key_is_described_as_in_kafka(peers: list[Peer], key: str) -> None:
    """For one broker, for all brokers, and with the prefix of a listener."""
    kafkapy, newest = peers[0], peers[-1]
    found = []
    for name, shown in (("1", key), ("", key), ("1", LISTENER + key), ("", LISTENER + key)):
        for value in (GOOD[key],) if key in GOOD else TRIED:
            if alter(newest, BROKER, name, (shown, SET, value), validate_only=True)[0] == 0:
                break
        ours, theirs = (ADDRESSES.sub("its own", f"{outcome(peer, name, shown, value)}") for peer in (kafkapy, newest))
        if ours != theirs:
            found.append(f"{name!r} {shown}={value}: {ours}, theirs {theirs}")
    assert not found, "\n".join(found)


def test_alter_configs_replaces_and_checks_the_same(peers: list[Peer]) -> None:
    kafkapy, newest = peers[0], peers[-1]
    for kind, name, keys in (
        (BROKER, "1", {"log.dirs": "/tmp"}),
        (BROKER, "1", {"num.io.threads": "17"}),
        (BROKER, "", {"listeners": "PLAINTEXT://:1"}),
        (BROKER, "1", {"num.io.threads": "9"}),
        (LOGGER, "1", {"root": "INFO"}),
        (METRICS, "m", {"interval.ms": "5"}),
        (METRICS, "m", {"interval.ms": "500"}),
    ):
        ours, theirs = replace(kafkapy, kind, name, keys), replace(newest, kind, name, keys)
        assert ours[0] == theirs[0], (kind, keys, ours, theirs)
        assert ours[1] in theirs[1], (ours, theirs)


def test_a_subscription_is_described_as_in_kafka(peers: list[Peer]) -> None:
    kafkapy, newest = peers[0], peers[-1]
    seen = {}
    for peer in (kafkapy, newest):
        assert alter(peer, METRICS, "m", ("metrics", SET, "a.,b."), ("match", SET, "client_id=x")) == (0, "")
        seen[peer.name] = described(peer, METRICS, "m", "metrics", "match", "interval.ms")
        assert alter(peer, METRICS, "m", ("metrics", DELETE, None), ("match", DELETE, None)) == (0, "")
        for name in ("m", "unknown"):
            seen[peer.name] |= {f"{name} {key}": value for key, value in described(peer, METRICS, name).items()}
    assert seen["kafkapy"] == seen[newest.name]
