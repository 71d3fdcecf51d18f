"""A schema registry of tests with the part of Confluent's REST API that the console uses.

Karapace is in no package registry, so this stands in for it: it keeps schemas, and checks no compatibility. The tests
run on a real registry, too, when KAFKAPY_TEST_REGISTRY names one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class Registry:
    """The kept schemas."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, dict[int, int]] = {}
        self.gone: dict[str, dict[int, int]] = {}
        """Versions that are deleted, but not permanently."""
        self.levels: dict[str | None, str] = {None: "BACKWARD"}
        self.refused: list[str] = []
        """Reasons with which the next schemas are not compatible."""
        self.dropped = 0
        """Requests whose connection closes without an answer."""
        self.requests: list[str] = []
        self.url = ""

    def register(self, subject: str, body: dict[str, Any]) -> int:
        known = next((number for number, each in self.schemas.items() if each == body), None)
        number = known or len(self.schemas) + 1
        self.schemas[number] = body
        versions = self.subjects.setdefault(subject, {})
        if number not in versions.values():
            versions[max(versions, default=0) + 1] = number
        return number

    def versions(self, subject: str) -> list[int]:
        return list(self.subjects[subject])

    def level(self, subject: str) -> str:
        return self.levels[subject]

    def version(self, subject: str, version: str) -> dict[str, Any]:
        versions = self.subjects[subject]
        number = max(versions) if version == "latest" else int(version)
        return {"subject": subject, "version": number, "id": versions[number], **self.schemas[versions[number]]}

    def answer(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        match method, path:
            case "GET", ["schemas", "ids", number]:
                return 200, self.schemas[int(number)]
            case "GET", ["subjects"]:
                return 200, list({**self.subjects, **(self.gone if query.get("deleted") else {})})
            case "GET", ["subjects", subject, "versions"]:
                if query.get("deleted") and subject in self.gone:
                    return 200, list({**self.gone[subject], **self.subjects.get(subject, {})})
                return 200, list(self.subjects[subject])
            case "GET", ["subjects", subject, "versions", version]:
                return 200, self.version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                kept = {name: value for name, value in body.items() if name != "schemaType" or value != "AVRO"}
                return 200, {"id": self.register(subject, kept)}
            case "POST", ["compatibility", "subjects", subject, "versions", "latest"]:
                if subject not in self.subjects:
                    raise KeyError(subject)
                return 200, {"is_compatible": not self.refused, "messages": self.refused}
            case "GET", ["config"]:
                return 200, {"compatibilityLevel": self.levels[None]}
            case "GET", ["config", subject]:
                return 200, {"compatibilityLevel": self.levels[subject]}
            case "PUT", ["config", *subject]:
                self.levels[subject[0] if subject else None] = body["compatibility"]
                return 200, body
            case "DELETE", ["subjects", subject]:
                if query.get("permanent") == ["true"]:
                    return 200, list(self.gone.pop(subject))
                self.gone.setdefault(subject, {}).update(found := self.subjects.pop(subject))
                return 200, list(found)
            case "DELETE", ["subjects", subject, "versions", version]:
                if query.get("permanent") == ["true"]:
                    del self.gone[subject][int(version)]
                else:
                    self.gone.setdefault(subject, {})[int(version)] = self.subjects[subject].pop(int(version))
                return 200, int(version)
        return 405, {"message": "no such method"}


@contextmanager
def registry() -> Iterator[Registry]:
    """A registry that serves on a port of this machine."""
    kept = Registry()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept.requests.append(f"{self.command} {self.path}")
            if kept.dropped:
                kept.dropped -= 1
                self.close_connection = True
                return
            path = [unquote(part) for part in parts.path.split("/") if part]
            try:
                status, answer = kept.answer(
                    self.command, path, parse_qs(parts.query), json.loads(body) if body else None
                )
            except (KeyError, ValueError):
                status, answer = 404, {"error_code": 40401, "message": "Subject, version or schema not found."}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
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
