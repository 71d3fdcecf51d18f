"""kafkapy acls against a broker with ACLs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.acting import ActingClient, acl_broker, connected
from tools.sasl_server import Run, runner

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with acl_broker(tmp_path_factory.mktemp("acls")) as running:
        yield running


@pytest.fixture
def admin(server: KafkaServer) -> Iterator[ActingClient]:
    client = connected(server)
    yield client
    client.remove_all()
    client.close()


@pytest.fixture
def run(server: KafkaServer, admin: ActingClient, tmp_path: Path) -> Run:
    return runner(server, tmp_path, "acls")


def lines(result: Any) -> list[str]:
    """resource name pattern principal host operation permission, one ACL a line."""
    assert result.exit_code == 0, result.output
    return [" ".join(each.values()) for each in json.loads(result.stdout)]


def test_a_consumer_needs_one_command(run: Run, server: KafkaServer, admin: ActingClient) -> None:
    admin.create_topic("bills")
    added = run(
        "add", "--json", "--allow-principal", "User:alice", "--consumer", "--topic", "bills", "--group", "billing"
    )
    assert lines(added) == [
        "Topic bills literal User:alice * Read Allow",
        "Topic bills literal User:alice * Describe Allow",
        "Group billing literal User:alice * Read Allow",
    ]
    assert sorted(lines(run("list", "--json"))) == sorted(lines(added))
    alice = connected(server, "alice")
    assert alice.append("bills") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    options = ["--allow-principal", "User:alice", "--producer", "--topic", "bills"]
    assert len(lines(run("add", "--json", *options))) == 3
    assert alice.append("bills") == ErrorCode.NONE
    removed = lines(run("remove", "--yes", "--json", *options))
    assert len(removed) == 3
    assert alice.append("bills") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    alice.close()


def test_a_producer_with_transactions_and_idempotence(run: Run) -> None:
    added = run(
        "add",
        "--json",
        "--allow-principal",
        "User:alice",
        "--producer",
        "--idempotent",
        "--topic",
        "a",
        "--transactional-id",
        "t",
    )
    assert [" ".join(line.split()[i] for i in (0, 1, 5)) for line in lines(added)] == [
        "Topic a Write",
        "Topic a Describe",
        "Topic a Create",
        "TransactionalId t Write",
        "TransactionalId t Describe",
        "Cluster kafka-cluster IdempotentWrite",
    ]


def test_hosts_denies_and_prefixes(run: Run) -> None:
    run(
        "add",
        "--allow-principal",
        "User:*",
        "--deny-principal",
        "User:bob",
        "--deny-host",
        "10.0.0.1",
        "--operation",
        "read",
        "--topic",
        "logs-",
        "--pattern-type",
        "prefixed",
    )
    assert lines(run("list", "--json")) == [
        "Topic logs- prefixed User:* * Read Allow",
        "Topic logs- prefixed User:bob 10.0.0.1 Read Deny",
    ]
    affecting = run("list", "--json", "--topic", "logs-2026", "--pattern-type", "match", "--principal", "User:bob")
    assert lines(affecting) == ["Topic logs- prefixed User:bob 10.0.0.1 Read Deny"]
    assert lines(run("list", "--json", "--topic", "logs-2026")) == []
    table = run("list")
    assert "logs-" in table.stdout
    assert "User:bob" in table.stdout


def test_removal_by_operation_leaves_the_others(run: Run) -> None:
    run("add", "--allow-principal", "User:alice", "--topic", "t", "--operation", "read", "--operation", "Write")
    run("add", "--allow-principal", "User:bob", "--topic", "t", "--operation", "write")
    assert lines(run("remove", "--json", "--yes", "--topic", "t", "--operation", "write", "--dry-run")) == [
        "Topic t literal User:alice * Write Allow",
        "Topic t literal User:bob * Write Allow",
    ]
    assert len(lines(run("list", "--json"))) == 3
    run("remove", "--yes", "--topic", "t", "--operation", "write")
    assert lines(run("list", "--json")) == ["Topic t literal User:alice * Read Allow"]
    run("remove", "--yes", "--topic", "t")
    assert lines(run("list", "--json")) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["add", "--topic", "t"], "Say who: --allow-principal or --deny-principal."),
        (["add", "--allow-principal", "User:a"], "Name the resources with --topic"),
        (
            ["add", "--allow-principal", "alice", "--topic", "t"],
            "'alice' is not of the form Type:name, such as User:alice",
        ),
        (
            ["add", "--allow-principal", "User:a", "--topic", "t", "--operation", "raed"],
            "'raed' is no operation; did you mean Read",
        ),
        (
            ["add", "--allow-principal", "User:a", "--group", "g", "--operation", "write"],
            "Group has no operation Write, only Read, Describe, Delete",
        ),
        (
            ["add", "--allow-principal", "User:a", "--topic", "t", "--pattern-type", "match"],
            "A new ACL has the pattern type literal or prefixed.",
        ),
        (["list", "--pattern-type", "prefix"], "'prefix' is no pattern type; did you mean Prefixed"),
        (["add", "--allow-principal", "User:a", "--consumer", "--topic", "t"], "--consumer needs --topic and --group."),
        (["add", "--allow-principal", "User:a", "--producer"], "--producer needs --topic."),
        (
            ["add", "--allow-principal", "User:a", "--producer", "--topic", "t", "--operation", "read"],
            "--producer stands for allowed operations",
        ),
        (["add", "--allow-host", "h", "--topic", "t"], "--allow-host needs --allow-principal."),
        (
            ["add", "--allow-principal", "User:a", "--topic", "a/b"],
            "The resource name of an ACL cannot contain '/': a/b",
        ),
        (["remove"], "Name the resources with --topic"),
        (["remove", "--topic", "nothing"], "No ACL matches. kafkapy acls list shows the ACLs."),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_mistakes_get_a_sentence(run: Run, arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code != 0
    assert sentence in " ".join(result.stderr.split())


def test_a_misspelt_resource_gets_a_suggestion(run: Run) -> None:
    run("add", "--allow-principal", "User:alice", "--topic", "invoices")
    result = run("remove", "--yes", "--topic", "invoces")
    assert result.exit_code == 1
    assert "No ACL of Topic invoces matches; did you mean invoices?" in " ".join(result.stderr.split())


def test_who_may_not_gets_the_reason(run: Run) -> None:
    result = run("list", user="alice")
    assert result.exit_code == 1
    assert "DESCRIBE on the cluster is not allowed for User:alice" in " ".join(result.stderr.split())
    result = run("add", "--allow-principal", "User:alice", "--topic", "t", user="alice")
    assert result.exit_code == 1
    assert "ALTER on the cluster is not allowed for User:alice" in " ".join(result.stderr.split())
