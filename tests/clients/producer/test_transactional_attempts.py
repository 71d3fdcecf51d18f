"""Attempts and states of transactional requests: how long each waits for its next, and what an end leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from clients.producer.test_transactional_requests import (
    GROUP_COORDINATOR,
    ID,
    PLACE,
    Bench,
    Group,
    offsets_answer,
    partitions_answer,
    run,
)

from kafkapy.clients.producer import transactional_requests as module
from kafkapy.clients.producer.transaction_manager import State
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import ErrorCode, IllegalStateError, KafkaConnectionError, KafkaError, TransactionAbortableError
from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kafkapy.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkapy.types import OffsetAndMetadata

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
OFFSETS = {PLACE: OffsetAndMetadata(5)}


class Waits:
    """A back-off without waiting; keeps the numbers of attempts that it is asked with."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def delay_s(self, attempts: int) -> float:
        self.asked.append(attempts)
        return 0


async def producer(transactional_id: str | None = ID, *, feature: int = 0) -> tuple[Bench, Waits]:
    """A producer in a transaction, if it has them, whose waits are counted from now on."""
    bench = Bench(transactional_id)
    bench.brokers.feature = feature
    if transactional_id is not None:
        await bench.in_transaction()
    bench.brokers.asked.clear()
    waits = Waits()
    bench.requests._backoff = waits  # type: ignore[assignment]
    return bench, waits


async def adds(bench: Bench) -> None:
    bench.manager.add_partition(bench.accumulator.queue("t", 0))
    await bench.requests._add_partitions()


async def ends(bench: Bench) -> None:
    bench.manager.started = True
    await bench.requests.commit()


def initialized(code: ErrorCode) -> Any:
    return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=1)


@pytest.mark.parametrize(
    ("transactional_id", "feature", "answer", "work"),
    [
        (None, 0, initialized, lambda bench: bench.requests.initialize()),
        (ID, 0, lambda code: EndTxnResponse(error_code=code, producer_id=7, producer_epoch=1), ends),
        (ID, 0, partitions_answer, adds),
        (ID, 2, offsets_answer, lambda bench: bench.requests.send_offsets(OFFSETS, Group())),
    ],
)
def test_each_attempt_waits_longer(
    transactional_id: str | None, feature: int, answer: Callable[[ErrorCode], Any], work: Callable[[Bench], Any]
) -> None:
    async def main() -> None:
        bench, waits = await producer(transactional_id, feature=feature)
        bench.answer(*(answer(LOADING) for _ in range(3)), answer(ErrorCode.NONE))
        await work(bench)
        assert waits.asked == [0, 1, 2]
        assert len(bench.brokers.asked) == 4
        assert bench.brokers.lost == []

    run(main)


@pytest.mark.parametrize("transactional_id", [ID, None])
def test_each_attempt_on_a_broken_connection_waits_longer(transactional_id: str | None) -> None:
    async def main() -> None:
        bench = Bench(transactional_id)
        waits = Waits()
        bench.requests._backoff = waits  # type: ignore[assignment]
        bench.answer(*(KafkaConnectionError("cut") for _ in range(3)), initialized(ErrorCode.NONE))
        await bench.requests.initialize()
        assert waits.asked == [0, 1, 2]

    run(main)


@pytest.mark.parametrize(
    ("code", "known", "short"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, False, True),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True, False),
        (LOADING, False, False),
        (LOADING, True, False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, False, False),
    ],
)
def test_only_the_first_partitions_wait_shortly_for_the_transaction_before(
    code: ErrorCode, known: bool, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_CONCURRENT_WAIT_S", 0)

    async def main() -> None:
        bench, waits = await producer()
        if known:
            bench.answer(partitions_answer(ErrorCode.NONE))
            await adds(bench)
        bench.answer(*(partitions_answer(code) for _ in range(2)), partitions_answer(ErrorCode.NONE))
        bench.manager.add_partition(bench.accumulator.queue("t", 1))
        await bench.requests._add_partitions()
        assert waits.asked == ([] if short else [0, 1])
        assert bench.accumulator.queue("t", 1).in_transaction
        assert len(bench.brokers.asked) == 3 + known

    run(main)


def test_the_first_wait_is_shorter_than_the_usual_one() -> None:
    assert module.FIRST_CONCURRENT_WAIT_S == 0.02


# --- offsets ------------------------------------------------------------------------------------------------------


def test_offsets_are_refused_before_anybody_is_asked() -> None:
    async def main() -> None:
        bench, _ = await producer()
        bench.manager.pending = "commit_transaction"
        with pytest.raises(IllegalStateError, match="commit_transaction timed out"):
            await bench.requests.send_offsets(OFFSETS, Group())
        bench.manager.pending = "send_offsets_to_transaction"
        bench.answer(AddOffsetsToTxnResponse(), offsets_answer(ErrorCode.NONE))
        await bench.requests.send_offsets(OFFSETS, Group())
        bench.manager.pending = ""
        asked = len(bench.brokers.asked)
        await bench.requests.send_offsets({}, Group())
        bench.manager.state = State.READY
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            await bench.requests.send_offsets(OFFSETS, Group())
        assert len(bench.brokers.asked) == asked
        plain, _ = await producer(None)
        with pytest.raises(IllegalStateError, match="transactions need a transactional_id"):
            await plain.requests.send_offsets(OFFSETS, Group())

    run(main)


@pytest.mark.parametrize("feature", [0, 2])
def test_offsets_begin_the_transaction(feature: int) -> None:
    async def main() -> None:
        bench, _ = await producer(feature=feature)
        assert not bench.manager.started
        if feature == 0:
            bench.answer(AddOffsetsToTxnResponse())
        bench.answer(offsets_answer(ErrorCode.NONE))
        await bench.requests.send_offsets({PLACE: OffsetAndMetadata(5, "text", 9)}, Group())
        assert bench.manager.started
        (topic,) = bench.brokers.asked[-1].topics
        (partition,) = topic.partitions
        assert (partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata) == (
            5,
            9,
            "text",
        )
        assert bench.brokers.ways[-1] == (GROUP_COORDINATOR, None, 5 if feature == 2 else 4)

    run(main)


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_record_that_fails_before_the_end_is_raised(committed: bool) -> None:
    async def main() -> None:
        bench, _ = await producer()

        async def all_sent() -> None:
            if committed:
                bench.manager.abortable(TransactionAbortableError("x"))
            else:
                bench.manager.fatal(KafkaError("x"))

        bench.requests._all_sent = all_sent
        bench.manager.started = True
        with pytest.raises(KafkaError, match="the producer has an error: .*x"):
            await (bench.requests.commit() if committed else bench.requests.abort())
        assert bench.brokers.asked == []

    run(main)


@pytest.mark.parametrize("committed", [True, False])
def test_records_are_refused_while_the_transaction_ends(committed: bool) -> None:
    async def main() -> None:
        bench, _ = await producer()
        bench.manager.add_partition(bench.accumulator.queue("t", 1))
        bench.manager.started = True
        end: Awaitable[None] = bench.requests.commit() if committed else bench.requests.abort()
        task = asyncio.ensure_future(end)
        while not bench.brokers.asked:
            await asyncio.sleep(0)
        assert bench.manager.state is (State.COMMITTING if committed else State.ABORTING)
        assert bench.accumulator.queue("t", 1).joining is committed
        assert bench.brokers.asked == [
            EndTxnRequest(transactional_id=ID, producer_id=7, producer_epoch=1, committed=committed)
        ]
        task.cancel()
        await asyncio.wait({task})

    run(main)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_a_newer_protocol_begins_with_another_epoch(committed: bool, started: bool) -> None:
    async def main() -> None:
        bench, _ = await producer()
        bench.brokers.feature = 2
        bench.manager.started = started
        queue = bench.accumulator.queue("t", 0)
        queue.start_sequence(7, 1)
        queue.take_sequence(3)
        if started:
            bench.answer(EndTxnResponse(producer_id=-1, producer_epoch=-1))
        bench.answer(InitProducerIdResponse(producer_id=7, producer_epoch=2))
        await (bench.requests.commit() if committed else bench.requests.abort())
        assert bench.brokers.asked[int(started) :] == [
            InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000, producer_id=7, producer_epoch=1)
        ]
        assert bench.brokers.ways[1:] == [(1, None, 4), (1, None, 5)][1 - int(started) :]
        assert (bench.manager.state, bench.manager.producer, bench.manager.v2) == (State.READY, (7, 2), True)
        assert queue.producer_id == -1

    run(main)


def test_what_was_prepared_can_be_named() -> None:
    async def main() -> None:
        for feature, version in ((0, 0), (1, 0), (2, 2)):
            bench, _ = await producer(feature=feature)
            with pytest.raises(IllegalStateError, match=r"no transaction is prepared \(the producer is IN_TRANSACTION"):
                _ = bench.requests.prepared_state
            sent: list[State] = []

            async def all_sent(bench: Bench = bench, sent: list[State] = sent) -> None:
                sent.append(bench.manager.state)

            bench.requests._all_sent = all_sent
            await bench.requests.prepare()
            assert (sent, bench.manager.state) == ([State.PREPARED], State.PREPARED)
            assert bench.requests.prepared_state == PreparedTxnState(7, 1, version)
            bench.manager.ongoing_producer = (8, 0)
            assert bench.requests.prepared_state == PreparedTxnState(8, 0, version)
            bench.manager.fatal(KafkaError("x"))
            with pytest.raises(KafkaError, match="the producer has an error: x"):
                _ = bench.requests.prepared_state

    run(main)


@pytest.mark.parametrize("text", ["", "7", "7:", ":1", "a:1", "7:b", "-7:1", "7:-1", "7:1:0"])
def test_a_text_that_names_no_prepared_transaction(text: str) -> None:
    assert PreparedTxnState.parse("7:1") == PreparedTxnState(7, 1, 0)
    with pytest.raises(ValueError, match="is not PRODUCER_ID:EPOCH"):
        PreparedTxnState.parse(text)
