"""An election's write whose answer is lost, or that fails, ends with one controller that knows it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafkapy.controller import controller
from kafkapy.controller.admin_requests import CreatedTopic, NewTopic
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.store import (
    BadVersionError,
    Create,
    NodeExistsError,
    Operation,
    Stat,
    StoreUnavailableError,
)
from kafkapy.metadata.znodes import CONTROLLER, CONTROLLER_EPOCH

WAIT_S = 60


class Store(EmbeddedStore):
    """The next election's write, and as many reads after it as `deaf` says, fail."""

    spoil = ""
    deaf = 0

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        if self.spoil and any(isinstance(each, Create) and each.path == CONTROLLER for each in operations):
            spoil, self.spoil = self.spoil, ""
            if spoil == "overtaken":
                raise BadVersionError(CONTROLLER_EPOCH)
            if spoil in ("reply lost", "done twice"):
                await super().commit(operations)
            if spoil == "done twice":
                raise NodeExistsError(CONTROLLER)
            raise StoreUnavailableError(CONTROLLER, "the connection is gone")
        return await super().commit(operations)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        if not self.spoil and self.deaf:
            self.deaf -= 1
            raise StoreUnavailableError(paths[0], "the connection is gone")
        return await super().get_many(paths)


@pytest.mark.parametrize("deaf", range(4))
@pytest.mark.parametrize("spoil", ["reply lost", "not done", "overtaken", "done twice"])
def test_it_ends_with_one_controller(
    make_cluster: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, spoil: str, deaf: int
) -> None:
    monkeypatch.setattr(controller, "RETRY_MS", 5)

    async def run() -> None:
        cluster = make_cluster()
        store = cluster.embedded = cluster.store = Store(cluster.directory)
        await cluster.start()
        try:
            epoch = cluster.controller.epoch
            store.spoil, store.deaf = spoil, deaf
            # As a session that has ended, or an operator, takes the controller's node away.
            await store.delete(CONTROLLER)
            async with asyncio.timeout(WAIT_S):
                while not (cluster.controller.is_active and cluster.controller.epoch > epoch and not store.deaf):
                    await asyncio.sleep(0.002)
            _, stat = await store.get(CONTROLLER)
            assert stat.ephemeral_owner == store.session_id
            created = await cluster.topic_admin.create_topics([NewTopic("t", 1, 1)])
            assert isinstance(created["t"], CreatedTopic)
        finally:
            await cluster.stop()

    asyncio.run(run())


def test_a_start_whose_reply_is_lost_is_a_start(make_cluster: Callable[..., Any]) -> None:
    async def run() -> None:
        cluster = make_cluster()
        store = cluster.embedded = cluster.store = Store(cluster.directory)
        store.spoil = "reply lost"
        await cluster.start()
        try:
            assert cluster.controller.is_active
            assert isinstance((await cluster.topic_admin.create_topics([NewTopic("t", 1, 1)]))["t"], CreatedTopic)
        finally:
            await cluster.stop()

    asyncio.run(run())
