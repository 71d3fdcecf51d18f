"""A real schema registry, which KAFKAPY_TEST_REGISTRY=URL names, in the place of the tests' own one.

The tests leave their subjects in it. Its brokers may be any.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

import httpx

URL = os.environ.get("KAFKAPY_TEST_REGISTRY", "").rstrip("/")


class RealRegistry:
    """The questions that tests ask of `registry_double.Registry`, to a registry's REST API."""

    def __init__(self) -> None:
        self.url = URL

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(method, self.url + path, json=body, timeout=120)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    def register(self, subject: str, body: dict[str, Any]) -> int:
        return int(self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"])

    def versions(self, subject: str) -> list[int]:
        return list(self.ask("GET", f"/subjects/{quote(subject, safe='')}/versions"))

    def level(self, subject: str) -> str:
        return str(self.ask("GET", f"/config/{quote(subject, safe='')}")["compatibilityLevel"])
