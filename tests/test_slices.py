"""Long work of the control loop in slices."""

from __future__ import annotations

import asyncio
import time

from kafkapy.slices import SLICE_S, SlicedQueue, emptied


def test_a_queue_hands_everything_out_in_order_and_lets_others_run_between() -> None:
    async def run() -> None:
        handled: list[int] = []
        turns = 0

        def handle(item: int) -> None:
            handled.append(item)
            until = time.perf_counter() + SLICE_S / 4
            while time.perf_counter() < until:
                continue

        queue = SlicedQueue(handle)
        queue.put(range(40))
        assert 0 < len(handled) < 40
        queue.put(range(40, 60))
        while len(handled) < 60:
            await asyncio.sleep(0)
            turns += 1
        assert handled == list(range(60))
        assert turns >= 5
        queue.put([60])
        assert handled[-1] == 60

    asyncio.run(run())


def test_a_queue_that_is_flushed_has_handled_everything() -> None:
    async def run() -> None:
        handled: list[int] = []

        def handle(item: int) -> None:
            handled.append(item)
            if len(handled) == 1:
                time.sleep(2 * SLICE_S)

        queue = SlicedQueue(handle)
        queue.put(range(10))
        assert handled == [0]
        queue.flush()
        assert handled == list(range(10))
        await asyncio.sleep(0)
        assert len(handled) == 10

    asyncio.run(run())


def test_a_dict_is_emptied_while_others_run() -> None:
    async def run() -> None:
        items = dict.fromkeys(range(10_000), "x")
        emptying = asyncio.ensure_future(emptied(items))
        await asyncio.sleep(0)
        assert 0 < len(items) < 10_000
        await emptying
        assert items == {}

    asyncio.run(run())
