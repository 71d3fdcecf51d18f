"""Producer ids are taken in blocks, and never one that a log of this broker knows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from kafkapy.broker import producer_ids
from kafkapy.broker.producer_ids import (
    BLOCK_SIZE,
    MAX_BELIEVED,
    BlockSource,
    ControllerBlocks,
    ProducerIdManager,
    StoreBlocks,
    highest_known_id,
)
from kafkapy.errors import (
    CoordinatorLoadInProgressError,
    ErrorCode,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    NotControllerError,
    RequestTimedOutError,
)
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.memory import MemoryStore, MemoryTree
from kafkapy.metadata.store import StoreUnavailableError
from kafkapy.metadata.znodes import ProducerIdBlock
from kafkapy.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


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


# --- blocks from the controller ---------------------------------------------------------------------------------------


class LossyStore(MemoryStore):
    """A store whose commits may be applied without an answer, or not at all."""

    def __init__(self, tree: MemoryTree, dice: Random) -> None:
        super().__init__(tree)
        self._dice = dice

    async def get(self, path: str, watch: Any = None) -> Any:
        found = await super().get(path)
        await asyncio.sleep(0)  # others change the node meanwhile
        return found

    async def commit(self, operations: Any) -> Any:
        fate = self._dice.random()
        if fate < 0.1:
            raise StoreUnavailableError("memory", "the request was lost")
        done = await super().commit(operations)
        if fate < 0.2:
            raise StoreUnavailableError("memory", "the answer was lost")
        await asyncio.sleep(0)
        return done


class Controllers:
    """The controllers of a cluster, old ones included, and the way to them. It is every broker's ControllerClient."""

    def __init__(self, dice: Random, stores: list[MemoryStore]) -> None:
        self._dice = dice
        self._blocks = [StoreBlocks(number, store) for number, store in enumerate(stores)]
        self.is_here = False
        self.asked = 0

    async def send(self, request: AllocateProducerIdsRequest, *, timeout_ms: int | None = None) -> Any:
        self.asked += 1
        fate = self._dice.random()
        if fate < 0.15:
            raise KafkaConnectionError("the request was lost")
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)
        if fate < 0.25:
            return AllocateProducerIdsResponse(
                error_code=self._dice.choice([ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH]),
                producer_id_start=0,
                producer_id_len=0,
            )
        # Also a controller that has been replaced without knowing it.
        block = await self._dice.choice(self._blocks).allocate(0)
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)
        if fate < 0.4:
            raise RequestTimedOutError("the answer was lost")
        return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)


@pytest.mark.parametrize("seed", range(30))
def test_no_id_is_handed_out_twice_whatever_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five brokers, three controllers that all believe to be the one, and a store that loses requests and answers."""
    monkeypatch.setattr(producer_ids, "RETRY_S", 0)
    monkeypatch.setattr(producer_ids, "BLOCK_SIZE", 10)

    async def run() -> list[int]:
        dice, tree = Random(seed), MemoryTree()
        stores: list[MemoryStore] = [LossyStore(tree, dice) for _ in range(8)]
        for store in stores:
            await store.start()
        controllers = Controllers(dice, stores[:3])
        ids: list[int] = []

        async def broker(number: int) -> None:
            # Broker 4 is at an earlier protocol version, and a broker that restarts forgets its block.
            own = StoreBlocks(number, stores[3 + number])
            lives: BlockSource = own if number == 4 else ControllerBlocks(number, lambda: 1, controllers, own)  # type: ignore[arg-type]
            for _ in range(3):
                manager = ProducerIdManager(lives)
                for _ in range(dice.randrange(60)):
                    try:
                        ids.append(await manager.next_id())
                    except (KafkaError, StoreUnavailableError):
                        await asyncio.sleep(0)
                await manager.close()

        await asyncio.gather(*(broker(number) for number in range(5)))
        return ids

    ids = asyncio.run(run())
    assert len(ids) > 50
    assert len(set(ids)) == len(ids)


class Source:
    """A BlockSource with a script: a first id, an error, or an event to wait for."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.asked: list[int] = []

    async def allocate(self, least: int) -> ProducerIdBlock:
        self.asked.append(least)
        step = self.script.pop(0)
        if isinstance(step, asyncio.Event):
            await step.wait()
            step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return ProducerIdBlock(1, step, step + 9)


def test_the_next_block_is_there_before_the_last_one_is_used_up() -> None:
    async def run() -> None:
        source = Source(0, 100)
        manager = ProducerIdManager(source)
        assert [await manager.next_id() for _ in range(8)] == list(range(8))
        assert source.asked == [0]
        assert await manager.next_id() == 8
        while len(source.asked) < 2:
            await asyncio.sleep(0)
        assert source.asked == [0, 10], "at 90 %"
        assert [await manager.next_id() for _ in range(2)] == [9, 100]

    asyncio.run(run())


def test_many_clients_at_once_get_different_ids() -> None:
    async def run() -> None:
        manager = ProducerIdManager(Source(*range(0, 10_000, 10)))
        ids = await asyncio.gather(*(manager.next_id() for _ in range(500)))
        assert len(set(ids)) == 500

    asyncio.run(run())


def test_a_client_asks_again_while_the_controller_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "RETRY_S", 0)

    async def run() -> None:
        event = asyncio.Event()
        source = Source(KafkaConnectionError(), NotControllerError(), event, 40)
        manager = ProducerIdManager(source)
        for _ in range(2):
            with pytest.raises(CoordinatorLoadInProgressError):
                await manager.next_id()
        monkeypatch.setattr(producer_ids, "WAIT_S", 0.001)
        with pytest.raises(CoordinatorLoadInProgressError):
            await manager.next_id()
        event.set()
        monkeypatch.setattr(producer_ids, "WAIT_S", 60)
        assert await manager.next_id() == 40
        assert len(source.asked) == 3, "one request at a time"

    asyncio.run(run())


def test_the_controller_is_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "RETRY_S", 3600)

    async def run() -> None:
        source = Source(KafkaConnectionError())
        manager = ProducerIdManager(source)
        for _ in range(5):
            with pytest.raises(CoordinatorLoadInProgressError):
                await manager.next_id()
        assert len(source.asked) == 1

    asyncio.run(run())


@pytest.mark.parametrize(("first", "count"), [(-1, 1000), (0, 0), (5, -3), (2**63 - 10, 1000)])
def test_an_impossible_block_is_refused(first: int, count: int) -> None:
    class Controller:
        is_here = False

        async def send(self, request: Any) -> Any:
            return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=count)

    async def run() -> None:
        blocks = ControllerBlocks(1, lambda: 7, Controller(), Source())  # type: ignore[arg-type]
        with pytest.raises(KafkaProtocolError):
            await blocks.allocate(0)
        manager = ProducerIdManager(blocks)
        with pytest.raises(KafkaError):
            await manager.next_id()

    asyncio.run(run())


def test_a_broker_whose_logs_know_more_than_the_cluster_moves_the_blocks_on() -> None:
    class Controller:
        is_here = False
        requests: ClassVar[list[Any]] = []

        async def send(self, request: Any) -> Any:
            self.requests.append(request)
            return AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=1000)

    async def run() -> None:
        store = MemoryStore()
        await store.start()
        blocks = ControllerBlocks(5, lambda: 7, Controller(), StoreBlocks(5, store))  # type: ignore[arg-type]
        manager = ProducerIdManager(blocks, lambda: 12_345)
        assert await manager.next_id() == 12_346
        assert [(each.broker_id, each.broker_epoch) for each in Controller.requests] == [(5, 7)]
        assert (await StoreBlocks(1, store).allocate(0)).first == 12_346 + BLOCK_SIZE

    asyncio.run(run())


def test_the_controller_asks_nobody() -> None:
    class Controller:
        is_here = True

    async def run() -> None:
        store = MemoryStore()
        await store.start()
        blocks = ControllerBlocks(1, lambda: 7, Controller(), StoreBlocks(1, store))  # type: ignore[arg-type]
        assert (await blocks.allocate(0)).first == 0
        assert (await blocks.allocate(0)).first == BLOCK_SIZE

    asyncio.run(run())
