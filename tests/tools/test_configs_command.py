"""kafkapy configs list: everything with a dynamic configuration, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tools.conftest import CommandLine

from kafkapy.testing.broker import Broker

Name = Callable[[], str]


@pytest.fixture
def own() -> Iterator[CommandLine]:
    """The command line against a fresh broker."""
    with Broker() as made:
        yield CommandLine(made.bootstrap_servers)


def test_only_what_sets_keys_is_listed(own: CommandLine) -> None:
    assert own.rows("configs", "list") == []
    assert own.json("configs", "list") == []
    for topic in ("plain", "kept"):
        own.done("topics", "create", topic)
    own.done("configs", "set", "topic", "kept", "retention.ms=-1", "cleanup.policy=compact,delete")
    own.done("configs", "set", "broker", "1", "log.cleaner.backoff.ms=16000")
    own.done("configs", "set", "broker", "default", "log.retention.ms=5000")
    own.done("configs", "set", "group", "readers", "consumer.session.timeout.ms=50000")
    own.done("client-metrics", "alter", "--name", "pushed", "--interval", "60000")
    own.done("quotas", "set", "--user", "alice", "producer_byte_rate=1024", "request_percentage=12.5")
    own.done("quotas", "set", "--user-default", "--client-id", "app", "consumer_byte_rate=2048")
    own.done("quotas", "set", "--ip", "10.1.2.3", "connection_creation_rate=5")
    own.done("users", "add", "alice", "--password-file", "-", "--mechanism", "SCRAM-SHA-256", stdin=b"secret")
    wanted = [
        ("topic", "kept", {"cleanup.policy": "compact,delete", "retention.ms": "-1"}),
        ("broker", "default", {"log.retention.ms": "5000"}),
        ("broker", "1", {"log.cleaner.backoff.ms": "16000"}),
        ("group", "readers", {"consumer.session.timeout.ms": "50000"}),
        ("client-metrics", "pushed", {"interval.ms": "60000"}),
        ("ip", "10.1.2.3", {"connection_creation_rate": "5"}),
        (
            "user",
            "alice",
            {"producer_byte_rate": "1024", "request_percentage": "12.5", "SCRAM-SHA-256": "iterations=4096"},
        ),
        ("user, client-id", "<default>, app", {"consumer_byte_rate": "2048"}),
    ]
    shown = own.json("configs", "list")
    assert [(row["type"], row["name"], row["configuration"]) for row in shown] == wanted
    rows = own.rows("configs", "list", "topics", "brokers")
    assert rows == [
        {"type": "topic", "name": "kept", "configuration": "cleanup.policy=compact,delete retention.ms=-1"},
        {"type": "broker", "name": "default", "configuration": "log.retention.ms=5000"},
        {"type": "broker", "name": "1", "configuration": "log.cleaner.backoff.ms=16000"},
    ]
    listed = own.rows("configs", "list", "client-id")
    assert [row["name"] for row in listed] == ["<default>, app"]
    own.done("configs", "delete", "topic", "kept", "retention.ms", "cleanup.policy")
    assert own.rows("configs", "list", "topic") == []


def test_an_unknown_type_is_refused_with_the_closest_one(kafkapy: CommandLine) -> None:
    assert "did you mean topic?" in kafkapy.failure("configs", "list", "topc", code=2)
    assert "broker-logger" in kafkapy.failure("configs", "list", "broker-logger", code=2)
