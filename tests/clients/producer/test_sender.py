"""The sender as a state machine: what it sends when, and what it makes of every kind of answer."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from clients.producer.fake_network import FakeNetwork, PartitionLogs, PartitionResponse, Place, Submitted, TopicResponse

from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy._speedups.clients.producer.record_future import FutureRecordMetadata
from kafkapy.clients.producer.metrics import ProducerMetrics
from kafkapy.clients.producer.sender import Sender, monotonic_ms
from kafkapy.clients.producer.transaction_manager import State, TransactionManager
from kafkapy.config.producer import ProducerConfig
from kafkapy.errors import (
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from kafkapy.protocol.messages.produce import ProduceResponse

PRODUCER_ID = 7


class Bench:
    """A sender on a fake network, with a clock that a test moves."""

    def __init__(self, partitions: int = 1, *, batch_size: int = 200, newest: int = 12, **config: Any) -> None:
        self.config = ProducerConfig(**{"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 1, **config})
        self.network = FakeNetwork(newest)
        self.accumulator = RecordAccumulator(1 << 24, batch_size, self.config["linger.ms"], 1 << 20, [1])
        self.accumulator.topic("t").update([(1, 0)] * partitions)
        self.manager: TransactionManager | None = None
        if self.config["enable.idempotence"]:
            self.manager = TransactionManager(self.accumulator, self.config["transactional.id"])
            self.manager.initializing()
            self.manager.initialized(PRODUCER_ID, 0)
        self.now = 0
        self._loop = asyncio.get_running_loop()
        metrics = ProducerMetrics(self.accumulator, 2, 30)
        self.sender = Sender(
            self.config,
            self.network,
            self.accumulator,
            metrics,
            self.manager,
            self.clock,  # type: ignore[arg-type]
        )
        self.sender.start()
        self.sender.leaders_changed({1})

    def clock(self) -> int:
        # Batches take their times from the real clock; a test adds to it.
        return monotonic_ms() + self.now

    def send(self, value: bytes = b"v" * 120, partition: int = 0) -> FutureRecordMetadata:
        future = self.accumulator.append("t", partition, 1000, None, value)
        assert future is not None
        return future

    async def settle(self) -> None:
        """Lets passes, callbacks and short back-offs run."""
        for _ in range(4):
            await asyncio.sleep(0.002)

    async def warm(self) -> None:
        """The first batch of a sequence is acknowledged: from then on there may be several in flight."""
        self.send()
        await self.settle()
        self.take()[0].reply(base_offset=0)
        await self.settle()

    def take(self) -> list[Submitted]:
        """What was submitted since the last time."""
        taken, self.network.submitted = self.network.submitted, []
        return taken


def running(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    def run(**arguments: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await test(**arguments)

        asyncio.run(bounded())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


@running
async def test_requests_are_limited_and_the_next_goes_when_one_is_answered() -> None:
    bench = Bench(max_in_flight_requests_per_connection=2)
    await bench.warm()
    futures = [bench.send() for _ in range(5)]
    await bench.settle()
    first, second = bench.take()
    assert (first.node, first.version) == (1, 12)
    assert bench.sender.in_flight == 2
    assert bench.accumulator.saturated
    first.reply(base_offset=10)
    await bench.settle()
    assert futures[0].get(0).offset == 10
    (third,) = bench.take()
    second.reply(base_offset=11)
    third.reply(base_offset=12)
    await bench.settle()
    assert [future.is_done for future in futures] == [True, True, True, False, False]
    for each in bench.take():
        each.reply(base_offset=13)
    await bench.settle()
    assert not bench.accumulator.saturated


@running
async def test_one_request_carries_every_partition_of_a_node() -> None:
    bench = Bench(3)
    bench.accumulator.topic("t").update([(1, 0), (2, 0), (1, 0)])
    for partition in range(3):
        bench.send(partition=partition)
    await bench.settle()
    by_node = {each.node: sorted(each.records()) for each in bench.take()}
    assert by_node == {1: [("t", 0), ("t", 2)], 2: [("t", 1)]}


@running
async def test_the_first_batch_of_a_sequence_goes_alone() -> None:
    bench = Bench()
    for _ in range(3):
        bench.send()
    await bench.settle()
    (first,) = bench.take()
    assert first.request.batches[0].base_sequence == 0
    first.reply(base_offset=0)
    await bench.settle()
    assert [each.request.batches[0].base_sequence for each in bench.take()] == [1, 2]


@running
async def test_a_lost_connection_sends_everything_again_in_order() -> None:
    bench = Bench()
    await bench.warm()
    futures = [bench.send(b"%d" % i * 120) for i in range(4)]
    await bench.settle()
    lost = bench.take()
    assert [each.request.batches[0].base_sequence for each in lost] == [1, 2, 3, 4]
    for each in lost:
        each.lose()
    sequences = []
    for offset in range(4):
        await bench.settle()
        (again,) = bench.take()  # one at a time, until all is well again
        sequences.append(again.request.batches[0].base_sequence)
        again.reply(base_offset=offset)
    await bench.settle()
    assert sequences == [1, 2, 3, 4]
    assert [future.get(0).offset for future in futures] == [0, 1, 2, 3]
    assert bench.network.cluster.invalidated


@running
async def test_without_idempotence_one_request_at_a_time_keeps_the_order() -> None:
    bench = Bench(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    first, second = bench.send(b"1" * 150), bench.send(b"2" * 150)
    for _ in range(2):
        await bench.settle()
        (request,) = bench.take()
        assert b"1" * 150 in request.records()["t", 0]
        if not first.is_done and bench.network.cluster.invalidated == 0:
            request.reply(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER.value)
            continue
        request.reply(base_offset=5)
    await bench.settle()
    assert first.get(0).offset == 5
    assert not second.is_done
    assert len(bench.take()) == 1


@running
async def test_the_broker_that_leads_now_is_taken_over() -> None:
    bench = Bench()
    bench.send()
    await bench.settle()
    (request,) = bench.take()
    leader = PartitionResponse.LeaderIdAndEpoch(leader_id=9, leader_epoch=4)
    part = PartitionResponse(index=0, error_code=6, base_offset=-1, current_leader=leader)
    endpoint = ProduceResponse.NodeEndpoint(node_id=9, host="h", port=99)
    request.answer(
        ProduceResponse(
            responses=[TopicResponse(name="t", partition_responses=[part])],
            node_endpoints=[endpoint],
            throttle_time_ms=3,
        )
    )
    await bench.settle()
    ((place, node, epoch, known),) = bench.network.cluster.leaders
    assert (place, node, epoch, known.host, known.port) == (("t", 0), 9, 4, "h", 99)
    assert bench.network.throttles == [(1, 3)]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailedError),
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLargeError),
        (ErrorCode.INVALID_RECORD, InvalidRecordError),
    ],
)
@running
async def test_what_no_retry_mends_fails_and_what_follows_goes_on(code: ErrorCode, error: type[KafkaError]) -> None:
    bench = Bench()
    refused = bench.send()
    await bench.settle()
    bench.take()[0].reply(error_code=code.value)
    await bench.settle()
    assert isinstance(refused.exception, error)
    bench.send()
    await bench.settle()
    (after,) = bench.take()
    batch = after.request.batches[0]
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)  # no gap that the broker could find


@running
async def test_retries_come_to_an_end() -> None:
    bench = Bench(enable_idempotence=False, retries=2)
    future = bench.send()
    for _ in range(3):
        await bench.settle()
        (request,) = bench.take()
        request.reply(error_code=ErrorCode.NOT_ENOUGH_REPLICAS.value)
    await bench.settle()
    assert bench.take() == []
    assert isinstance(future.exception, NotEnoughReplicasError)


@running
async def test_the_first_retry_and_the_eleventh_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """A user hears of a broker that refuses, and not of every single time."""
    bench = Bench(enable_idempotence=False)
    caplog.set_level(logging.DEBUG, "kafkapy.producer")
    bench.send()
    for _ in range(12):
        while not bench.network.submitted:
            await bench.settle()
        bench.take()[0].reply(error_code=ErrorCode.NOT_ENOUGH_REPLICAS.value, error_message="two of three")
    await bench.settle()
    said = [each for each in caplog.records if each.message.startswith("Retrying")]
    attempts = range(1, 13)
    assert all(each.message.endswith(f"(attempt {n}): two of three") for n, each in zip(attempts, said, strict=True))
    warned = [n for n, each in zip(attempts, said, strict=True) if each.levelno == logging.WARNING]
    assert warned == [1, 11]


@running
async def test_a_batch_that_is_too_large_is_split() -> None:
    bench = Bench(batch_size=1000)
    futures = [bench.send(b"x" * 100) for _ in range(8)]
    await bench.settle()
    (large,) = bench.take()
    large.reply(error_code=ErrorCode.MESSAGE_TOO_LARGE.value)
    offset = 0
    while not all(future.is_done for future in futures):
        await bench.settle()
        for part in bench.take():
            part.reply(base_offset=offset)
            offset += part.request.batches[0].record_count
    assert [future.get(0).offset for future in futures] == list(range(8))


@running
async def test_errors_of_single_records_are_told_apart() -> None:
    bench = Bench(batch_size=1000)
    futures = [bench.send(b"x") for _ in range(3)]
    await bench.settle()
    errors = [
        PartitionResponse.RecordError(batch_index=i, batch_index_error_message=text)
        for i, text in ((0, "a"), (2, None))
    ]
    bench.take()[0].reply(error_code=ErrorCode.INVALID_RECORD.value, record_errors=errors, error_message="of all")
    await bench.settle()
    assert isinstance(futures[0].exception, InvalidRecordError)
    assert str(futures[0].exception) == "a"
    assert str(futures[2].exception) == "of all"
    assert "other records of its batch" in str(futures[1].exception)


@running
async def test_a_duplicate_counts_as_written() -> None:
    bench = Bench()
    future = bench.send()
    await bench.settle()
    bench.take()[0].reply(error_code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER.value)
    await bench.settle()
    assert future.get(0).offset == -1


@running
async def test_without_acks_a_record_is_done_when_it_is_written() -> None:
    bench = Bench(acks=0)
    future = bench.send()
    await bench.settle()
    (request,) = bench.take()
    assert request.response is None
    assert not future.is_done
    request.future.set_result(None)
    await bench.settle()
    assert future.get(0).offset == -1


@running
async def test_records_expire_in_the_queue_and_in_flight() -> None:
    bench = Bench(delivery_timeout_ms=31_000, request_timeout_ms=1000)
    in_flight = bench.send()
    await bench.settle()
    (request,) = bench.take()
    bench.network.unready.add(1)
    queued = bench.send()
    bench.now = 30_000
    bench.sender.schedule()
    await bench.settle()
    assert not in_flight.is_done
    bench.now = 31_100
    bench.sender.schedule()
    await bench.settle()
    assert isinstance(in_flight.exception, KafkaTimeoutError)
    assert isinstance(queued.exception, KafkaTimeoutError)
    bench.network.unready.clear()
    request.lose()
    after = bench.send()
    await bench.settle()
    (again,) = bench.take()
    batch = again.request.batches[0]
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)  # whether 0 was written is not known
    again.reply(base_offset=3)
    await bench.settle()
    assert after.get(0).offset == 3
    assert bench.accumulator.pool.available == bench.accumulator.pool.total


@running
async def test_the_numbers_of_a_batch_that_may_be_written_are_not_given_away() -> None:
    bench = Bench(delivery_timeout_ms=31_000, request_timeout_ms=1000, transactional_id="id")
    assert bench.manager is not None
    bench.manager.v2 = True
    bench.manager.begin()
    bench.manager.add_partition(bench.accumulator.queue("t", 0))
    await bench.warm()
    lost = bench.send()
    bench.send()
    await bench.settle()
    first, second = bench.take()
    bench.now = 31_100
    first.lose()
    await bench.settle()
    assert lost.failed()
    assert bench.manager.state is State.ABORTABLE_ERROR
    assert second.request.batches[0].base_sequence == 2
    assert bench.accumulator.queue("t", 0).take_sequence(1) == 3


@running
async def test_an_expired_batch_that_was_written_after_all_leaves_no_gap() -> None:
    bench = Bench(delivery_timeout_ms=31_000, request_timeout_ms=1000)
    expired = bench.send()
    await bench.settle()
    (request,) = bench.take()
    bench.now = 31_100
    bench.sender.schedule()
    await bench.settle()
    assert expired.failed()
    request.reply(base_offset=0)
    await bench.settle()
    bench.send()
    await bench.settle()
    batch = bench.take()[0].request.batches[0]
    assert batch.base_sequence in (0, 1)
    assert (batch.producer_epoch == 0) == (batch.base_sequence == 1)


@running
async def test_a_forgotten_producer_begins_again_under_another_epoch() -> None:
    bench = Bench()
    future = bench.send()
    await bench.settle()
    bench.take()[0].reply(base_offset=0)
    await bench.settle()
    again = bench.send()
    await bench.settle()
    (request,) = bench.take()
    assert request.request.batches[0].base_sequence == 1
    request.reply(error_code=ErrorCode.UNKNOWN_PRODUCER_ID.value, log_start_offset=10)
    await bench.settle()
    (anew,) = bench.take()
    batch = anew.request.batches[0]
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)
    anew.reply(base_offset=10)
    await bench.settle()
    assert (future.get(0).offset, again.get(0).offset) == (0, 10)


@running
async def test_after_the_last_epoch_comes_another_producer_id() -> None:
    bench = Bench()
    assert bench.manager is not None
    bench.manager.set_producer(PRODUCER_ID, 2**15 - 1)
    future = bench.send()
    await bench.settle()
    bench.take()[0].reply(error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.value)
    await bench.settle()
    assert bench.manager.state is State.UNINITIALIZED
    assert bench.take() == []
    bench.manager.initializing()
    bench.manager.initialized(8, 0)
    bench.sender.schedule()
    await bench.settle()
    (request,) = bench.take()
    batch = request.request.batches[0]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)
    request.reply(base_offset=1)
    await bench.settle()
    assert future.get(0).offset == 1


@running
async def test_a_broker_that_is_too_old_is_fatal() -> None:
    bench = Bench(newest=2)
    future = bench.send()
    await bench.settle()
    assert isinstance(future.exception, UnsupportedVersionError)
    assert bench.manager is not None
    assert bench.manager.state is State.FATAL_ERROR
    assert not bench.accumulator.open


@running
async def test_a_response_that_cannot_be_read_or_leaves_out_a_batch_is_asked_again() -> None:
    bench = Bench(2)
    futures = [bench.send(partition=0), bench.send(partition=1)]
    await bench.settle()
    (request,) = bench.take()
    assert request.response is not None
    request.response.feed(b"\0\0\0\1 nonsense")
    request.future.set_result(request.response)
    await bench.settle()
    requests = bench.take()
    assert sum(len(each.request.batches) for each in requests) == 2
    for each in requests:
        each.answer(ProduceResponse())
    for _ in range(3):
        await bench.settle()
        for each in bench.take():
            each.reply(base_offset=1)
    await bench.settle()
    assert all(future.succeeded() for future in futures)


@running
async def test_a_partition_without_a_leader_asks_for_metadata() -> None:
    bench = Bench()
    bench.accumulator.topic("t").update([(-1, 0)])
    bench.send()
    await bench.settle()
    assert bench.network.cluster.wanted == {"t"}
    assert bench.network.cluster.invalidated
    bench.accumulator.topic("t").update([(2, 1)])
    bench.sender.leaders_changed({2})
    await bench.settle()
    assert [each.node for each in bench.take()] == [2]


@pytest.mark.parametrize("seed", range(6))
@running
async def test_whatever_goes_wrong_each_record_is_there_once_and_in_order(seed: int) -> None:
    """Lost requests, lost responses, errors and moving leaders, against a broker that checks sequence numbers."""
    rng = random.Random(seed)
    bench = Bench(3)
    logs = PartitionLogs()
    leaders = [1, 1, 2]
    bench.accumulator.topic("t").update([(leader, 0) for leader in leaders])
    bench.sender.leaders_changed({1, 2})
    sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    futures: list[FutureRecordMetadata] = []
    epoch = 0
    pending: list[Submitted] = []
    for step in range(400):
        trouble = step < 300
        if trouble and len(futures) < 600:
            for _ in range(rng.randrange(6)):
                partition = rng.randrange(3)
                value = b"%d-%d-" % (partition, len(sent[partition])) + bytes(rng.randrange(100))
                sent[partition].append(value)
                futures.append(bench.send(value, partition))
        await asyncio.sleep(0.0015 if rng.random() < 0.3 else 0)
        pending += bench.take()
        if trouble and rng.random() < 0.05:
            moved = rng.randrange(3)
            leaders[moved] = 3 - leaders[moved]
            epoch += 1
            bench.accumulator.topic("t").update([(leader, epoch) for leader in leaders])
            bench.sender.schedule()
        if trouble and rng.random() < 0.08 and pending:
            # A connection is cut: its requests were served up to some point, and no response comes through.
            node = rng.choice(pending).node
            cut = [each for each in pending if each.node == node]
            pending = [each for each in pending if each.node != node]
            served = rng.randrange(len(cut) + 1)
            for each in cut[:served]:
                serve(each, logs, leaders)
            for each in cut:
                each.lose()
            continue
        while pending and (not trouble or rng.random() < 0.6):
            each = pending.pop(0)
            refused: dict[Place, dict[str, Any]] = {}
            if trouble and rng.random() < 0.15:
                code = rng.choice(
                    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE)
                )
                place = rng.choice(sorted(each.records()))
                refused[place] = {"error_code": code.value}
            each.reply(serve(each, logs, leaders, refused))
        if all(future.is_done for future in futures) and not trouble:
            break
        if not trouble:
            await asyncio.sleep(0.003)
    assert [str(future.exception) for future in futures if future.failed()] == []
    assert all(future.succeeded() for future in futures)
    assert {partition: logs.records["t", partition] for partition in sent} == sent
    for future in futures:
        metadata = future.get(0)
        assert 0 <= metadata.offset < len(sent[metadata.partition])
    assert bench.accumulator.pool.available == bench.accumulator.pool.total


def serve(
    each: Submitted, logs: PartitionLogs, leaders: list[int], refused: dict[Place, dict[str, Any]] | None = None
) -> dict[Place, dict[str, Any]]:
    results: dict[Place, dict[str, Any]] = {}
    for place, data in each.records().items():
        if refused and place in refused:
            results[place] = refused[place]
        elif leaders[place[1]] != each.node:
            results[place] = {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER.value}
        else:
            code, offset = logs.append(place, data)
            results[place] = {"error_code": code.value, "base_offset": offset}
    return results
