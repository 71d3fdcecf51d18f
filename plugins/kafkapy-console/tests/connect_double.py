"""A stand-in for a worker of Kafka Connect: answers as its REST API does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

CONFIG = {"connector.class": "org.example.FileSource", "file": "/tmp/x", "db.password": "hush", "topic": "orders"}


class Worker:
    """The connectors of a stand-in."""

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {"files": dict(CONFIG)}
        self.states = {"files": "RUNNING"}
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.url = ""

    def answer(self, method: str, path: list[str], query: str, body: Any) -> tuple[int, Any]:
        match method, path:
            case "GET", ["connectors"] if query != "expand=info&expand=status":
                return 200, list(self.configs)
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
                asked = json.loads(body) if body else None
                status, answer = kept.answer(self.command, path, urlsplit(self.path).query, asked)
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
