"""Kafka Connect by its REST API. A stand-in answers as Connect does: a worker of Apache Kafka needs Java."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from connect_double import CONFIG, Worker, worker
from console_site import Person
from kafkapy_console.settings import ConnectSettings


@pytest.fixture
def kept() -> Iterator[Worker]:
    with worker() as started:
        yield started


@pytest.fixture
def visitor(kept: Worker, console: Callable[..., Person]) -> Person:
    away = ConnectSettings("away", "http://127.0.0.1:1")
    return console(connect=(ConnectSettings("main", kept.url), away))


def test_connectors_and_a_cluster_that_is_away(visitor: Person) -> None:
    page = visitor.get("/connect")
    assert "FileSource" in page
    assert "1 failed" in page
    assert "Connect cluster away" in page
    page = visitor.get("/connect/main/files")
    assert "hush" not in page
    assert "<script>bad" not in page
    assert "RUNNING" in page


@pytest.mark.parametrize(("what", "state"), [("pause", "PAUSED"), ("stop", "STOPPED"), ("resume", "RUNNING")])
def test_actions(visitor: Person, kept: Worker, what: str, state: str) -> None:
    visitor.send("/connect/main/files", {"what": what}, page="/connect/main/files")
    assert kept.states["files"] == state
    assert state in visitor.get("/connect/main/files")


def test_a_restart_takes_the_tasks_too(visitor: Person, kept: Worker) -> None:
    visitor.send("/connect/main/files", {"what": "restart"}, page="/connect/main/files")
    assert "POST /connectors/files/restart?includeTasks=true&onlyFailed=false" in kept.requests
    visitor.send("/connect/main/files", {"task": "0"}, page="/connect/main/files")
    assert "POST /connectors/files/tasks/0/restart" in kept.requests


def test_a_change_keeps_hidden_secrets(visitor: Person, kept: Worker) -> None:
    config = {**CONFIG, "file": "/tmp/y", "db.password": "••••"}
    visitor.send("/create-connector/main", {"name": "files", "config": json.dumps(config)}, page="/connect/main/files")
    assert kept.configs["files"] == {**CONFIG, "file": "/tmp/y"}


def test_connect_checks_a_configuration_first(visitor: Person, kept: Worker) -> None:
    kept.problems = ["Missing required configuration"]
    fields = {"name": "new", "config": json.dumps(CONFIG)}
    refused = visitor.send("/create-connector/main", fields, page="/create-connector/main", status=400)
    assert "file: Missing required configuration" in refused.text
    assert "new" not in kept.configs
    for config in ("{", "[]", "{}"):
        visitor.send(
            "/create-connector/main", {"name": "n", "config": config}, page="/create-connector/main", status=400
        )


def test_a_connector_is_deleted_when_its_name_is_typed(visitor: Person, kept: Worker) -> None:
    visitor.send("/connect/main/files/delete", {"name": "x"}, page="/connect/main/files", status=400)
    visitor.send("/connect/main/files/delete", {"name": "files"}, page="/connect/main/files")
    assert kept.configs == {}
