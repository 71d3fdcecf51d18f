"""Producer ids are taken in blocks, and never one that a log of this broker knows."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkapy.broker.producer_ids import BLOCK_SIZE, MAX_BELIEVED, ProducerIdManager, StoreBlocks, highest_known_id
from kafkapy.metadata.embedded import EmbeddedStore


class Log:
    def __init__(self, *ids: int) -> None:
        self.ids = ids

    def producers(self) -> list[dict[str, int]]:
        return [{"producer_id": number} for number in self.ids]


def first_ids(directory: Path, *known: Log) -> list[int]:
    """The first id of each of two brokers, one after the other, on the same store."""

    async def take() -> list[int]:
        store = EmbeddedStore(directory)
        await store.start()
        logs = dict(enumerate(known))
        managers = [ProducerIdManager(StoreBlocks(node, store), lambda: highest_known_id(logs)) for node in (1, 2)]
        ids = [await manager.next_id() for manager in managers]
        assert [await manager.next_id() for manager in managers] == [first + 1 for first in ids]
        await store.close()
        return ids

    return asyncio.run(take())


def test_each_broker_takes_a_block_of_its_own(tmp_path: Path) -> None:
    assert first_ids(tmp_path) == [0, BLOCK_SIZE]
    assert first_ids(tmp_path, Log(), Log(7, 3)) == [2 * BLOCK_SIZE, 3 * BLOCK_SIZE]


def test_ids_that_a_moved_log_knows_are_left_out(tmp_path: Path) -> None:
    assert first_ids(tmp_path, Log(4, 12_345), Log(17)) == [12_346, 12_346 + BLOCK_SIZE]


def test_no_client_can_use_up_the_ids(tmp_path: Path) -> None:
    assert first_ids(tmp_path, Log(2**63 - 1, 5, MAX_BELIEVED)) == [6, 6 + BLOCK_SIZE]
