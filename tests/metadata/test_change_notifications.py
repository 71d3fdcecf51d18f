"""Notifications of changes: which are handled, which are removed, and what a failure leaves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from kafkapy.metadata.change_notifications import EXPIRATION_MS, ChangeNotifications
from kafkapy.metadata.memory import MemoryStore, MemoryTree
from kafkapy.metadata.store import StoreUnavailableError

PATH = "/changes"


class Follower:
    """Follows the notifications of a store, and looks at them when it is told to."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.handled: list[list[bytes]] = []
        self.error: Exception | None = None
        self.changes = ChangeNotifications(store, PATH, "change_", self._handle)

    async def _handle(self, values: list[bytes]) -> None:
        self.handled.append(values)
        if self.error is not None:
            raise self.error

    async def add(self, *values: bytes) -> None:
        """Notifications that nobody has looked at yet."""
        await self.store.commit([self.changes.announcement(each) for each in values])


def run(test: Callable[[Follower], Awaitable[None]], *, shared: bool = True) -> None:
    async def opened() -> None:
        store = MemoryStore(MemoryTree() if shared else None)
        await store.start()
        follower = Follower(store)
        await store.ensure_path(PATH)
        try:
            await test(follower)
        finally:
            await follower.changes.stop()
            await store.close()

    asyncio.run(opened())


def test_each_notification_is_handled_once_and_in_order() -> None:
    async def test(follower: Follower) -> None:
        await follower.add(b"a", b"b")
        await follower.changes.process()
        await follower.changes.process()
        await follower.add(b"c")
        await follower.changes.process()
        assert follower.handled == [[b"a", b"b"], [b"c"]]

    run(test)


def test_what_there_was_before_the_start_tells_nothing_new() -> None:
    async def test(follower: Follower) -> None:
        await follower.add(b"a", b"b")
        await follower.changes.start()
        await follower.changes.process()
        assert follower.handled == []
        await follower.add(b"c")
        await follower.changes.process()
        assert follower.handled == [[b"c"]]

    run(test)


@pytest.mark.parametrize(("age_ms", "left"), [(EXPIRATION_MS, 3), (EXPIRATION_MS + 1, 0)])
def test_old_notifications_are_removed_where_several_brokers_read_them(
    monkeypatch: pytest.MonkeyPatch, age_ms: int, left: int
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000 * 1_000_000)

    async def test(follower: Follower) -> None:
        await follower.add(b"a", b"b", b"c")
        monkeypatch.setattr(time, "time", lambda: (1_700_000_000_000 + age_ms) / 1000)
        await follower.changes.process()
        assert len(await follower.store.children(PATH)) == left
        assert follower.handled == [[b"a", b"b", b"c"]]

    run(test)


def test_a_broker_alone_removes_what_it_has_read_a_hundred_at_a_time() -> None:
    async def test(follower: Follower) -> None:
        await follower.add(*[b"x"] * 103)
        await follower.changes.process()
        assert await follower.store.children(PATH) == [f"change_{number:010}" for number in (100, 101, 102)]
        await follower.changes.process()
        assert len(await follower.store.children(PATH)) == 3, "only a change looks for old ones"

    run(test, shared=False)


def test_notifications_that_cannot_be_processed_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def test(follower: Follower) -> None:
        follower.error = ValueError("a defect")
        await follower.add(b"a")
        await follower.changes.process()
        follower.error = None
        await follower.add(b"b")
        await follower.changes.process()
        assert follower.handled == [[b"a"], [b"b"]]

    run(test)
    assert [(each.levelno, each.message) for each in caplog.records] == [
        (logging.ERROR, "The notifications below /changes cannot be processed")
    ]


def test_notifications_come_again_when_the_store_was_away_amid_them() -> None:
    async def test(follower: Follower) -> None:
        follower.error = StoreUnavailableError("/x", "the store is away")
        await follower.add(b"a")
        with pytest.raises(StoreUnavailableError):
            await follower.changes.process()
        follower.error = None
        await follower.add(b"b")
        await follower.changes.process()
        assert follower.handled == [[b"a"], [b"a", b"b"]]

    run(test)


def test_nothing_is_looked_at_before_the_start_or_behind_the_stop() -> None:
    async def test(follower: Follower) -> None:
        await follower.add(b"a")
        follower.changes.look()
        await follower.changes.start()
        await follower.changes.stop()
        await follower.add(b"b")
        follower.changes.look()
        assert not follower.changes._tasks
        assert follower.handled == []

    run(test)
