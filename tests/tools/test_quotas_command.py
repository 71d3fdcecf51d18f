"""kafkapy quotas against a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
from broker.conftest import config

from kafkapy.broker.server import KafkaServer
from kafkapy.tools.cli import main


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(config(tmp_path_factory.mktemp("quotas-command"))) as started:
        yield started


@pytest.fixture
def run(server: KafkaServer, tmp_path: Path) -> Any:
    def invoke(*arguments: str) -> click.testing.Result:
        options = ["-b", f"127.0.0.1:{server.endpoints[0].port}"]
        return click.testing.CliRunner().invoke(main, ["quotas", *arguments, *options])

    return invoke


def rows(result: click.testing.Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def row(quota: str, value: float, **entity: str) -> dict[str, Any]:
    return {"user": None, "client_id": None, "ip": None, **entity, "quota": quota, "value": value}


def test_quotas_are_set_listed_described_and_removed(run: Any) -> None:
    alice = ("--user", "alice", "--client-id", "app")
    wanted = [
        row("producer_byte_rate", 10 * 1024**2, user="alice", client_id="app"),
        row("request_percentage", 12.5, user="alice", client_id="app"),
    ]
    assert rows(run("set", "producer_byte_rate=10Mi", "request_percentage=12.5", *alice, "--json")) == wanted
    assert rows(run("set", "consumer_byte_rate=5K", "--user-default", "--json")) == [
        row("consumer_byte_rate", 5000, user="<default>")
    ]
    assert rows(run("set", "connection_creation_rate=7", "--ip", "10.0.0.1", "--json"))[0]["ip"] == "10.0.0.1"
    assert rows(run("describe", *alice, "--json")) == wanted
    assert len(rows(run("list", "--json"))) == 4
    assert rows(run("list", "--user", "alice", "--json")) == wanted
    refused = run("describe", "--user", "alice")
    assert refused.exit_code == 1
    assert "There is no quota of user alice; kafkapy quotas list shows all." in refused.stderr
    assert rows(run("remove", "request_percentage", *alice, "--json")) == wanted[1:]
    assert rows(run("remove", *alice, "--json")) == wanted[:1]
    assert run("remove", *alice).exit_code == 1
    run("remove", "--user-default")
    run("remove", "--ip", "10.0.0.1")
    assert rows(run("list", "--json")) == []


def test_a_dry_run_changes_nothing(run: Any) -> None:
    assert run("set", "producer_byte_rate=1", "--client-id", "dry", "--dry-run").exit_code == 0
    assert rows(run("list", "--json")) == []
    run("set", "producer_byte_rate=1", "--client-id", "dry")
    assert run("remove", "--client-id", "dry", "--dry-run").exit_code == 0
    assert len(rows(run("list", "--json"))) == 1
    run("remove", "--client-id", "dry")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("set", "producer_byte_rate=1"), "Name an entity"),
        (("set", "producer_byte_rate=1", "--user", "a", "--user-default"), "exclude each other"),
        (("set", "producer_byte_rate=1", "--user", "a", "--ip", "::1"), "no user and no client id"),
        (("set", "speed=1", "--user", "a"), "There is no quota speed"),
        (("set", "producer_byte_rate=much", "--user", "a"), "must be a number"),
        (("set", "producer_byte_rate=-1", "--user", "a"), "greater than 0"),
        (("set", "producer_byte_rate=nan", "--user", "a"), "greater than 0"),
        (("set", "connection_creation_rate=1", "--user", "a"), "Invalid configuration key"),
        (("set", "producer_byte_rate=0.5", "--user", "a"), "cannot be a fractional value"),
    ],
)
def test_mistakes_are_one_sentence(run: Any, arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert sentence in " ".join(result.stderr.split())
