"""A full buffer, for records of any shape: send() waits for the room it was refused, and no longer than max.block.ms.

The producers are real, the network is not there: a drain that the test runs stands for acknowledged requests.
"""

from __future__ import annotations

import array
import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until, wait_until

from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy._speedups.clients.producer.record_sender import RecordSender
from kafkapy.clients.aio.producer import AIOKafkaProducer
from kafkapy.clients.producer.producer import KafkaProducer
from kafkapy.errors import BufferExhaustedError, RecordTooLargeError

NODE = 1
LATER = 10**15
LINGER_MS = 60_000
PATIENCE_S = 30
"""After so long a send that max.block.ms (a tenth of a second) has not ended hangs."""


class ThreadedSender(RecordSender):
    """KafkaProducer as far as a full buffer is concerned."""

    _deadline = KafkaProducer._deadline
    await_room = KafkaProducer.await_room

    def __init__(self, accumulator: RecordAccumulator, max_block_s: float) -> None:
        self.accumulator = accumulator
        self._max_block_s = max_block_s


def accumulator_of(buffer_memory: int, batch_size: int, linger_ms: int = 0) -> RecordAccumulator:
    accumulator = RecordAccumulator(buffer_memory, batch_size, linger_ms, 1 << 20, [100])
    accumulator.topic("t").update([(NODE, 0), (NODE, 0)])
    return accumulator


def aio_producer(buffer_memory: int, batch_size: int, max_block_ms: int, linger_ms: int = 0) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(
        bootstrap_servers="127.0.0.1:1",
        buffer_memory=buffer_memory,
        max_batch_size=batch_size,
        max_block_ms=max_block_ms,
        linger_ms=linger_ms,
        enable_idempotence=False,
    )
    producer._started = True
    producer._core.accumulator.topic("t").update([(NODE, 0), (NODE, 0)])
    return producer


def drain(accumulator: RecordAccumulator, batches: int) -> None:
    for _ in range(batches):
        for batch in accumulator.drain(NODE, 1, LATER):
            accumulator.succeed(batch, 0, -1)
    accumulator.tell_room(always=True)


def lingers(accumulator: RecordAccumulator) -> bool:
    """Whether the open batch waits for more records, as at its creation."""
    (batch,) = accumulator.incomplete
    return accumulator.ready(batch.created_ms) == ([], LINGER_MS, set())


def wide(size: int) -> memoryview:
    """A view whose len() is an eighth of its bytes."""
    return memoryview(array.array("q", bytes(size // 8 * 8)))


payload = st.one_of(st.none(), st.integers(0, 60_000).map(bytes), st.integers(0, 60_000).map(wide))
header_value = st.one_of(st.none(), st.integers(0, 20_000).map(bytes))
header = st.tuples(st.sampled_from(["", "traceparent", "é" * 50]), header_value)
record = st.tuples(payload, payload, st.lists(header, max_size=4))
records = st.lists(record, min_size=1, max_size=25)
buffers = st.integers(20_000, 150_000)
batch_sizes = st.integers(1, 20_000)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@settings(max_examples=60, deadline=None)
@given(records=records, buffer_memory=buffers, batch_size=batch_sizes, freed=st.integers(1, 3))
def test_a_coroutine_goes_on_when_memory_is_freed(
    loop: asyncio.Runner, records: list[Any], buffer_memory: int, batch_size: int, freed: int
) -> None:
    async def main() -> None:
        producer = aio_producer(buffer_memory, batch_size, 60_000)
        accumulator = producer._core.accumulator
        taken = 0

        async def acknowledge() -> None:
            while True:
                assert accumulator.pool.available >= 0
                drain(accumulator, freed)
                await asyncio.sleep(0)

        network = asyncio.create_task(acknowledge())
        async with asyncio.timeout(PATIENCE_S):
            for key, value, headers in records:
                try:
                    await producer.send("t", value, key=key, headers=headers, partition=0)
                    taken += 1
                except RecordTooLargeError:
                    pass
                assert accumulator.pool.available >= 0
        network.cancel()
        assert accumulator.records_appended == taken

    loop.run(main())


def test_a_coroutine_with_room_yields_once(loop: asyncio.Runner) -> None:
    """A refused record whose room was given back meanwhile; the others of the loop have their turn."""

    async def main() -> None:
        waiting = asyncio.create_task(aio_producer(1 << 20, 1000, 60_000)._core.wait_for_room(1000, PATIENCE_S))
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.sleep(0)
        assert waiting.done()
        await waiting

    loop.run(main())


@settings(max_examples=30, deadline=None)
@given(records=records, buffer_memory=buffers, batch_size=batch_sizes)
def test_a_thread_goes_on_when_memory_is_freed(records: list[Any], buffer_memory: int, batch_size: int) -> None:
    accumulator = accumulator_of(buffer_memory, batch_size)
    sender = ThreadedSender(accumulator, 60)
    sent: list[bool] = []

    def send_all() -> None:
        for key, value, headers in records:
            try:
                sender.send("t", value, key, iter(headers), 0)
                sent.append(True)
            except RecordTooLargeError:
                sent.append(False)

    thread = threading.Thread(target=send_all, daemon=True)
    thread.start()
    for _ in range(PATIENCE_S * 1000):
        thread.join(0.001)
        if not thread.is_alive():
            break
        assert accumulator.pool.available >= 0
        drain(accumulator, 1)
    assert len(sent) == len(records), "send() hangs although memory is freed"
    assert accumulator.records_appended == sum(sent)


@pytest.mark.parametrize(
    "keywords",
    [
        {"value": bytes(70_000)},
        {"value": b"y", "headers": [("h", bytes(70_000))]},
        {"value": wide(70_000)},
        {"value": None, "key": wide(70_000)},
        {"value": bytes(30_000), "headers": [(f"h{n}", bytes(10_000)) for n in range(4)]},
    ],
    ids=["value", "headers", "wide value", "wide key", "both"],
)
class TestNothingIsFreed:
    def test_a_coroutine_gives_up_and_lets_others_run(self, loop: asyncio.Runner, keywords: dict[str, Any]) -> None:
        async def main() -> None:
            producer = aio_producer(100_000, 16_384, 100)
            await producer.send("t", bytes(60_000), partition=0)
            others = 0

            async def other() -> None:
                nonlocal others
                while True:
                    others += 1
                    await asyncio.sleep(0.001)

            beside = asyncio.create_task(other())
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(BufferExhaustedError):
                    await producer.send("t", partition=0, **keywords)
            beside.cancel()
            assert others > 1, "the loop was held"

        loop.run(main())

    def test_a_thread_gives_up(self, keywords: dict[str, Any]) -> None:
        sender = ThreadedSender(accumulator_of(100_000, 16_384), 0.1)
        sender.send("t", bytes(60_000), None, None, 0)
        errors: list[BaseException] = []

        def send() -> None:
            try:
                sender.send("t", partition=0, **keywords)
            except BufferExhaustedError as error:
                errors.append(error)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert errors, "send() neither gave up nor failed"


def test_headers_from_an_iterator_survive_the_wait(loop: asyncio.Runner) -> None:
    async def main() -> None:
        producer = aio_producer(100_000, 16_384, 60_000)
        accumulator = producer._core.accumulator
        await producer.send("t", bytes(60_000), partition=0)
        waiting = asyncio.create_task(
            producer.send("t", bytes(60_000), headers=(pair for pair in [("h", b"1")]), partition=0)
        )
        await asyncio.sleep(0.01)
        assert not waiting.done()
        drain(accumulator, 2)
        async with asyncio.timeout(PATIENCE_S):
            await waiting
        (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
        future = await waiting
        accumulator.succeed(batch, 0, -1)
        assert (await future).serialized_header_size > 1

    loop.run(main())


def test_batches_linger_again_after_a_thread_has_given_up() -> None:
    accumulator = accumulator_of(100_000, 80_000, LINGER_MS)
    sender = ThreadedSender(accumulator, 0.1)
    sender.send("t", bytes(50_000), None, None, 0)
    with pytest.raises(BufferExhaustedError):
        sender.send("t", bytes(60_000), None, None, 1)
    assert lingers(accumulator)


def test_batches_linger_again_after_a_coroutine_has_given_up(loop: asyncio.Runner) -> None:
    async def main() -> None:
        producer = aio_producer(100_000, 80_000, 100, LINGER_MS)
        await producer.send("t", bytes(50_000), partition=0)
        with pytest.raises(BufferExhaustedError):
            await producer.send("t", bytes(60_000), partition=1)
        assert lingers(producer._core.accumulator)

    loop.run(main())


def test_an_open_batch_is_sent_while_a_thread_waits_for_room() -> None:
    accumulator = accumulator_of(100_000, 80_000, LINGER_MS)
    sender = ThreadedSender(accumulator, 60)
    sender.send("t", bytes(50_000), None, None, 0)
    thread = threading.Thread(target=sender.send, args=("t", bytes(60_000), None, None, 1), daemon=True)
    thread.start()
    wait_until(lambda: not lingers(accumulator), "the batch is to be sent")
    drain(accumulator, 1)
    thread.join(PATIENCE_S)
    assert accumulator.records_appended == 2


def test_an_open_batch_is_sent_while_a_coroutine_waits_for_room(loop: asyncio.Runner) -> None:
    async def main() -> None:
        producer = aio_producer(100_000, 80_000, 60_000, LINGER_MS)
        accumulator = producer._core.accumulator
        await producer.send("t", bytes(50_000), partition=0)
        waiting = asyncio.create_task(producer.send("t", bytes(60_000), partition=1))
        await until(lambda: not lingers(accumulator), "the batch is to be sent")
        drain(accumulator, 1)
        async with asyncio.timeout(PATIENCE_S):
            await waiting

    loop.run(main())
