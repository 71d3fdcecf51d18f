"""The schema registry and Kafka Connect in Chromium, on stand-ins that answer as their REST APIs do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from connect_double import CONFIG, Worker, worker
from console_browser import OpenTab
from console_site import Person
from framed_schemas import AVRO
from kafkapy_console.settings import ConnectSettings, RegistrySettings
from registry_double import Registry, registry

Console = Callable[..., Person]


@pytest.fixture
def kept() -> Iterator[Registry]:
    with registry() as started:
        yield started


@pytest.fixture
def connect() -> Iterator[Worker]:
    with worker() as started:
        yield started


def test_schemas_are_registered_compared_and_deleted_by_clicks(
    kept: Registry, console: Console, open_tab: OpenTab
) -> None:
    tab = open_tab(console(registry=RegistrySettings(kept.url)).url)
    tab.open("/")
    tab.click("Schemas", "link", "nav")
    tab.sees("No subject is here.")
    first = json.dumps(AVRO)
    fields = [*AVRO["fields"], {"name": "note", "type": "string", "default": ""}]  # type: ignore[misc]
    second = json.dumps({**AVRO, "fields": fields})
    tab.fill("Subject", "orders-value")
    tab.fill("Schema", first[:-1])
    tab.click("Register")
    tab.told("The schema is no JSON")
    tab.forgive()
    assert kept.subjects == {}
    # The long text is not lost.
    assert tab.field("Schema").input_value() == first[:-1]
    tab.fill("Schema", first)
    tab.click("Register")
    tab.told("is registered under orders-value.")
    assert json.loads(kept.version("orders-value", "latest")["schema"]) == AVRO

    tab.pick("Compatibility of the subject", "FULL")
    tab.click("Set")
    tab.told("The compatibility of orders-value is FULL.")
    assert kept.level("orders-value") == "FULL"
    tab.fill("Schema", second)
    kept.refused = ["a field has no default"]
    tab.click("Register")
    tab.told("The schema is not compatible (FULL): a field has no default")
    tab.forgive()
    assert tab.field("Schema").input_value() == second
    assert kept.versions("orders-value") == [1]
    kept.refused = []
    tab.click("Only check its compatibility")
    tab.told("Nothing was registered.")
    assert kept.versions("orders-value") == [1]
    tab.click("orders-value", "link")
    tab.sees("orders-value", "h1")
    tab.fill("Schema", second)
    tab.click("Register")
    tab.told("is registered under orders-value.")
    assert kept.versions("orders-value") == [1, 2]
    tab.pick("Compare with", "1")
    tab.click("Show")
    tab.sees("From version 1 to version 2", "h2")
    assert '"note"' in "".join(tab.page.locator("pre.diff .add").all_inner_texts())

    tab.click("Delete this version", "link")
    tab.sees("Version 2 of 2 versions can no longer be used for new records.")
    tab.field("Type the name").fill("orders-value")
    tab.click("Delete")
    tab.told("Version 2 of orders-value is deleted.")
    assert kept.versions("orders-value") == [1]


def test_connectors_are_changed_by_clicks(connect: Worker, console: Console, open_tab: OpenTab) -> None:
    away = ConnectSettings("away", "http://127.0.0.1:1")
    tab = open_tab(console(connect=(ConnectSettings("main", connect.url), away)).url)
    tab.open("/")
    tab.click("Connect", "link", "nav")
    tab.sees("Connect cluster away")
    assert tab.table("Connectors of main") == [["files", "source", CONFIG["connector.class"], "RUNNING", "1 1 failed"]]
    tab.click("files", "link")
    for button, state in (("Pause", "PAUSED"), ("Stop", "STOPPED"), ("Resume", "RUNNING")):
        tab.click(button, within=".titles")
        tab.told(f"Connect was asked to {button.lower()} files.")
        assert tab.text(".titles .badge") == connect.states["files"] == state
    tab.click("Restart", within="[aria-label=Tasks]")
    tab.told("Connect was asked to restart task 0 of files.")
    assert "POST /connectors/files/tasks/0/restart" in connect.requests
    assert "hush" not in tab.page.content()
    config = json.loads(tab.field("As JSON").input_value())
    tab.fill("As JSON", json.dumps({**config, "file": "/tmp/y"}))
    tab.click("Save")
    tab.told("Connector files is configured.")
    assert connect.configs["files"] == {**CONFIG, "file": "/tmp/y"}

    tab.click("Connect", "link", "nav")
    tab.click("Create a connector", "link")
    tab.fill("Name", "second")
    new = json.dumps({"connector.class": CONFIG["connector.class"], "file": "/tmp/z"})
    tab.fill("Configuration as JSON", new)
    connect.problems = ["Missing required configuration"]
    tab.click("Create")
    tab.told("Connect refuses the configuration: file: Missing required configuration")
    tab.forgive()
    assert "second" not in connect.configs
    assert [tab.field(label).input_value() for label in ("Name", "Configuration as JSON")] == ["second", new]
    connect.problems = []
    connect.states["second"] = "RUNNING"
    tab.click("Create")
    tab.told("Connector second is configured.")
    assert connect.configs["second"] == json.loads(new)
    tab.field("Type the name").fill("second")
    tab.click("Delete the connector")
    tab.told("Connector second is deleted.")
    assert list(connect.configs) == ["files"]
