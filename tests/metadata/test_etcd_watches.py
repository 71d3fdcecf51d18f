"""Watches on etcd, beside a client that answers as it is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafkapy.metadata import etcd_watches
from kafkapy.metadata.etcd_client import EtcdUnavailableError, encoded
from kafkapy.metadata.etcd_plan import Keys
from kafkapy.metadata.etcd_watches import EtcdWatches
from kafkapy.metadata.store import StoreUnavailableError, WatchEvent, WatchEventType

KEYS = Keys("/cluster")
PATIENCE_S = 120.0
"""Longer than anything that a test waits for."""


class Client:
    """Answers each watch with the next of some scripts; the last one stays open."""

    def __init__(self, *scripts: list[Any]) -> None:
        self.scripts = list(scripts)
        self.requests: list[dict[str, Any]] = []
        self.open = 0
        self.last = asyncio.Event()
        """Set once the last script is told."""

    async def stream(self, path: str, message: dict[str, Any]) -> AsyncIterator[Any]:
        assert path == "/v3/watch"
        self.requests.append(message["create_request"])
        self.open += 1
        try:
            for each in self.scripts.pop(0) if self.scripts else ():
                if isinstance(each, Exception):
                    raise each
                yield each
            if not self.scripts:
                self.last.set()
                await asyncio.Event().wait()
        finally:
            self.open -= 1


def created(revision: int) -> dict[str, Any]:
    return {"header": {"revision": str(revision)}, "created": True}


def progress(revision: int) -> dict[str, Any]:
    return {"header": {"revision": str(revision)}}


def change(path: str, revision: int, value: bytes | None, *, header: int = 0) -> dict[str, Any]:
    """An answer with one event: a value, or None for a delete."""
    kv = {"key": encoded(KEYS.node(path)), "mod_revision": str(revision)}
    event: dict[str, Any] = {"kv": kv, "type": "DELETE"} if value is None else {"kv": {**kv, "value": encoded(value)}}
    return {"header": {"revision": str(header or revision)}, "events": [event]}


CREATED, CHANGED, DELETED = b"0 0 1700000000000\nvalue", b"1 5 1700000000000\nvalue", None
AWAY = EtcdUnavailableError("nobody answers")


def followed(*scripts: list[Any], path: str = "/w/x") -> tuple[list[WatchEvent], Client]:
    """What watchers of a node and of its parent's children hear."""
    seen: list[WatchEvent] = []

    async def scenario() -> Client:
        client = Client(*scripts)
        watches = EtcdWatches(client, KEYS, PATIENCE_S)  # type: ignore[arg-type]
        await asyncio.gather(watches.add_node(path, seen.append), watches.add_children("/w", seen.append))
        await client.last.wait()
        await watches.close()
        return client

    return seen, asyncio.run(scenario())


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_watches, "RESUME_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (CREATED, [WatchEventType.CREATED, WatchEventType.CHILDREN]),
        (CHANGED, [WatchEventType.CHANGED]),
        (DELETED, [WatchEventType.DELETED, WatchEventType.CHILDREN]),
        (b"none of ours", [WatchEventType.CHANGED]),
    ],
)
def test_an_event_of_etcd_is_told_as_what_it_is(value: bytes | None, kinds: list[WatchEventType]) -> None:
    seen, client = followed([created(7), change("/w/x", 9, value)])
    assert [(each.type, each.path) for each in seen] == [
        (kind, "/w" if kind is WatchEventType.CHILDREN else "/w/x") for kind in kinds
    ]
    start, end = KEYS.children("/w")
    assert client.requests == [{"key": encoded(start), "range_end": encoded(end), "progress_notify": True}], (
        "one stream for both"
    )


@pytest.mark.parametrize(
    ("script", "start"),
    [
        ([created(7)], "8"),
        ([created(7), change("/w/x", 9, CHANGED)], "10"),
        ([created(7), change("/w/x", 9, CHANGED, header=20)], "10"),
        ([created(7), progress(30)], "31"),
        ([created(7), change("/w/x", 9, CHANGED), progress(8)], "10"),
        ([created(7), created(12)], "8"),
        ([created(7), {"header": {"revision": "9"}, "canceled": True}], "8"),
        ([created(7), {"header": {}, "canceled": True, "compact_revision": "12"}], None),
        ([created(7), {"no": "header"}], None),
    ],
)
@pytest.mark.parametrize("error", [False, True], ids=["ended", "failed"])
def test_a_stream_resumes_behind_what_it_has_told(script: list[Any], start: str | None, error: bool) -> None:
    _, client = followed([*script, AWAY] if error else script, [created(40)])
    assert [each.get("start_revision") for each in client.requests] == [None, start]
    assert client.open == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"header": {}, "canceled": True, "compact_revision": "12"},
        {"no": "header"},
        {"header": {"revision": "many"}},
        {"header": {}, "events": [{"kv": {"mod_revision": "9"}}]},
    ],
)
def test_everything_may_have_changed_behind_what_was_missed(broken: dict[str, Any]) -> None:
    """Told once, when the stream is open again."""
    seen, _ = followed([created(7), broken], [created(20)], [created(30)])
    assert seen == [WatchEvent(WatchEventType.CHILDREN, "/w"), WatchEvent(WatchEventType.CHANGED, "/w/x")]


@pytest.mark.parametrize("broken", [AWAY, {"header": {}, "canceled": True}])
def test_nothing_is_told_of_a_stream_that_broke_and_missed_nothing(broken: Any) -> None:
    assert followed([created(7), broken], [created(7)])[0] == []


def test_what_breaks_a_stream_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkapy.metadata.etcd")
    followed([created(7), AWAY], [created(7), {"no": "header"}], [created(7)])
    assert [(each.levelno, each.message) for each in caplog.records if each.name == "kafkapy.metadata.etcd"] == [
        (logging.INFO, "The watch of /w is opened again: nobody answers"),
        (logging.ERROR, "The watch of /w is opened again: an answer that is none of etcd's: KeyError('header')"),
    ]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ([], "no answer"),
        ([AWAY], "nobody answers"),
        ([{"header": {}, "canceled": True, "cancel_reason": "no permission"}], "no permission"),
        ([{"header": {}, "canceled": True}], "the watch was cancelled"),
        ([{}], r"an answer that is none of etcd's: KeyError\('header'\)"),
    ],
)
def test_a_watch_that_is_not_opened_says_why(script: list[Any], problem: str) -> None:
    """And leaves nothing behind."""

    async def scenario() -> Client:
        client = Client(script, [])
        watches = EtcdWatches(client, KEYS, PATIENCE_S)  # type: ignore[arg-type]
        adding = asyncio.ensure_future(watches.add_node("/w/x", lambda event: None))
        await client.last.wait()
        watches._timeout_s = 0.0
        with pytest.raises(StoreUnavailableError, match=f"etcd did not watch /w: {problem}$"):
            await watches.add_children("/w", lambda event: None)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert watches._streams == {}
        return client

    assert asyncio.run(scenario()).open == 0


def test_a_stream_ends_with_its_last_watch() -> None:
    async def scenario() -> None:
        client, seen = Client([created(7)]), list[WatchEvent]()
        watches = EtcdWatches(client, KEYS, PATIENCE_S)  # type: ignore[arg-type]
        one, two = [await watches.add_node("/w/x", seen.append) for _ in range(2)]
        stream = watches._streams["/w"]
        one.cancel()
        one.cancel()
        assert watches._streams == {"/w": stream}
        two.cancel()
        assert watches._streams == {}
        await asyncio.wait([stream.task])
        assert (client.open, len(client.requests)) == (0, 1)
        await watches.close()
        with pytest.raises(StoreUnavailableError, match="the session with etcd is not open"):
            await watches.add_node("/w/x", seen.append)

    asyncio.run(scenario())
