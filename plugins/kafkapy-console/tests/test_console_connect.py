"""Kafka Connect by its REST API. A stand-in answers as Connect does: a worker of Apache Kafka needs Java."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from console_site import Person
from kafkapy_console.settings import ConnectSettings

CONFIG = {"connector.class": "org.example.FileSource", "file": "/tmp/x", "db.password": "hush", "topic": "orders"}


class Worker:
    """The connectors of a stand-in."""

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {"files": dict(CONFIG)}
        self.states = {"files": "RUNNING"}
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.url = ""

    def answer(self, method: str, path: list[str], body: Any) -> tuple[int, Any]:
        match method, path:
            case "GET", ["connectors"]:
                return 200, {name: {"info": self.info(name), "status": self.status(name)} for name in self.configs}
            case "GET", ["connectors", name]:
                return 200, self.info(name)
            case "GET", ["connectors", name, "status"]:
                return 200, self.status(name)
            case "GET", ["connectors", name, "topics"]:
                return 200, {name: {"topics": ["orders"]}}
            case "GET", ["connector-plugins"]:
                return 200, [{"class": "org.example.FileSource", "type": "source", "version": "1"}]
            case "PUT", ["connector-plugins", _, "config", "validate"]:
                return 200, {"configs": [{"value": {"name": "file", "errors": self.problems}}]}
            case "PUT", ["connectors", name, "config"]:
                self.configs[name] = body
                self.states[name] = "RUNNING"
                return 201, self.info(name)
            case "PUT", ["connectors", name, ("pause" | "resume" | "stop") as what]:
                self.states[name] = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED"}[what]
                return 202, None
            case "POST", ["connectors", _, *_]:
                return 204, None
            case "DELETE", ["connectors", name]:
                del self.configs[name]
                return 204, None
        return 404, {"error_code": 404, "message": "no such thing"}

    def info(self, name: str) -> dict[str, Any]:
        return {"name": name, "type": "source", "config": self.configs[name], "tasks": []}

    def status(self, name: str) -> dict[str, Any]:
        tasks = [
            {
                "id": 0,
                "state": "FAILED",
                "worker_id": "w:8083",
                "trace": "java.lang.Error: <script>bad</script>\n\tat x",
            }
        ]
        return {"name": name, "connector": {"state": self.states[name], "worker_id": "w:8083"}, "tasks": tasks}


@contextmanager
def worker() -> Iterator[Worker]:
    kept = Worker()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept.requests.append(f"{self.command} {self.path}")
            path = [unquote(part) for part in urlsplit(self.path).path.split("/") if part]
            try:
                status, answer = kept.answer(self.command, path, json.loads(body) if body else None)
            except KeyError:
                status, answer = 404, {"error_code": 404, "message": "Connector not found"}
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_DELETE = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
