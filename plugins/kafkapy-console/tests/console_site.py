"""A console that serves on a port of this machine, and a person at a browser without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
from kafkapy_console.server import ConsoleThread
from kafkapy_console.settings import Settings

PATIENT = {"bootstrap.timeout.ms": 120_000, "default.api.timeout.ms": 120_000, "request.timeout.ms": 120_000}
"""The clients of the tests' consoles: a busy machine makes no page fail."""
TOKEN = re.compile(r'name="_csrf" value="([^"]+)"')


@contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """The address of a console with these settings."""
    # Several clusters have keys of their own.
    patient = settings if settings.clusters else settings.with_changes(kafka={**PATIENT, **settings.kafka})
    console = ConsoleThread(patient, ["127.0.0.1:0"])
    console.start()
    try:
        yield f"http://127.0.0.1:{console.ports[0]}"
    finally:
        console.stop()


def reset_fields(page: str) -> dict[str, Any]:
    """The fields of a preview of a reset, confirmed."""
    targets = [unescape(each) for each in re.findall(r'name="target" value="([^"]+)"', page)]
    kind = re.search(r'name="kind" value="([^"]*)"', page)
    assert kind, "the page is no preview"
    return {"target": targets, "kind": kind[1], "confirmed": "yes"}


class Person:
    """Opens pages and sends their forms."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=240, follow_redirects=False)

    def close(self) -> None:
        self.http.close()

    def get(self, path: str, status: int = 200, **headers: str) -> str:
        """The text of a page with this status."""
        response = self.http.get(path, headers=headers)
        assert response.status_code == status, (path, response.status_code, shown(response.text))
        return response.text

    def json(self, path: str) -> Any:
        response = self.http.get(path)
        assert response.status_code == 200, (path, response.status_code)
        return response.json()

    def token(self, path: str = "/") -> str:
        """The token of a form on a page."""
        found = TOKEN.search(self.get(path))
        assert found, f"{path} has no form"
        return found[1]

    def send(
        self, path: str, fields: Mapping[str, Any] | None = None, *, page: str, status: int = 303
    ) -> httpx.Response:
        """Sends a form with the token of `page`."""
        response = self.http.post(path, data={"_csrf": self.token(page), **(fields or {})})
        assert response.status_code == status, (path, response.status_code, shown(response.text))
        return response

    def log_in(self, user: str, password: str, status: int = 303) -> httpx.Response:
        return self.send("/login", {"user": user, "password": password}, page="/login", status=status)

    def events(self, path: str, most: int = 100_000) -> list[tuple[str, str]]:
        """(event, data) of a stream, until its end or until `most` have come."""
        found: list[tuple[str, str]] = []
        with self.http.stream("GET", path) as response:
            assert response.status_code == 200, response.status_code
            assert response.headers["content-type"].startswith("text/event-stream")
            name, data = "", []
            for line in response.iter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data.append(line[6:])
                elif not line and name:
                    found.append((name, "\n".join(data)))
                    name, data = "", []
                    if len(found) >= most or found[-1][0] in ("end", "failure"):
                        break
        return found


def shown(page: str) -> str:
    """The banners of a page, for a failed assertion."""
    return " | ".join(re.findall(r'<div class="banner[^>]*>(.*?)</div>', page, re.DOTALL)) or page[:500]


class Links(HTMLParser):
    """The links of a page within the console, and what a policy without inline code forbids."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.found: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag == "a" and names.get("href"):
            parts = urlsplit(urljoin(self.base, str(names["href"])))
            if parts.netloc == urlsplit(self.base).netloc:
                self.found.append(parts.path + (f"?{parts.query}" if parts.query else ""))
        for name in names:
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
        if tag == "script" and "src" not in names:
            self.inline.append("script")


def links(base: str, page: str) -> Links:
    parser = Links(base)
    parser.feed(page)
    return parser
