"""The sender's rarer ways: versions, nodes that are not ready or slow, passes that fail, what is logged and counted."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

import pytest
from clients.producer.fake_network import PartitionResponse, TopicResponse
from clients.producer.test_sender import Bench, running

from kafkapy.clients.producer.transaction_manager import State
from kafkapy.errors import (
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.header import decode_request
from kafkapy.protocol.messages.produce import ProduceResponse

CODES_OF_METADATA = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION,
]


def in_transaction(*, v2: bool, **config: Any) -> Bench:
    bench = Bench(newest=13, transactional_id="id", **config)
    manager = bench.manager
    assert manager is not None
    manager.v2 = v2
    manager.begin()
    queue = bench.accumulator.queue("t", 0)
    manager.add_partition(queue)
    if not v2:
        manager.partitions_added({queue})
    return bench


@pytest.mark.parametrize(
    ("way", "with_id", "version"),
    [
        ("plain", True, 13),
        ("plain", False, 12),
        ("v2", True, 13),
        ("v2", False, 12),
        ("v1", True, 11),
        ("v1", False, 11),
    ],
)
@running
async def test_the_version_says_what_the_broker_does_for_the_producer(way: str, with_id: bool, version: int) -> None:
    bench = Bench(newest=13) if way == "plain" else in_transaction(v2=way == "v2")
    if with_id:
        bench.accumulator.topic("t").update([(1, 0)], uuid.UUID(int=5))
    if bench.manager is not None:
        bench.manager.started = False
    bench.send()
    await bench.settle()
    (request,) = bench.take()
    assert request.version == version
    assert bench.manager is not None
    assert bench.manager.started  # the broker may have begun it


@pytest.mark.parametrize("acks", [0, 1, -1])
@running
async def test_what_is_configured_is_in_the_request(acks: int) -> None:
    bench = Bench(acks=acks, request_timeout_ms=4567, enable_idempotence=False, compression_type="gzip")
    timeouts: list[int] = []
    submit = bench.network.submit
    bench.network.submit = lambda *told: (timeouts.append(told[-1]), submit(*told))[1]  # type: ignore[method-assign]
    bench.send()
    await bench.settle()
    (request,) = bench.take()
    header, decoded = decode_request(request.request.to_bytes()[4:])
    assert (decoded.acks, decoded.timeout_ms, decoded.transactional_id) == (acks, 4567, None)
    assert (header.client_id, header.request_api_key, timeouts) == ("fake", 0, [4567])
    (records,) = request.records().values()
    assert records[22] & 7 == 1


@running
async def test_a_node_that_is_not_ready_is_connected_once_and_asked_then() -> None:
    bench = Bench()
    connected: list[int] = []
    ready = asyncio.Event()

    async def connect(node: int) -> None:
        connected.append(node)
        await ready.wait()
        bench.network.unready.clear()

    bench.network.ready = connect  # type: ignore[method-assign]
    bench.network.unready = {1}
    bench.send()
    for _ in range(3):
        bench.sender.schedule()
        await bench.settle()
    assert (connected, bench.take()) == ([1], [])
    ready.set()
    while not bench.network.submitted:
        await bench.settle()
    assert connected == [1]


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), True),
        (UnsupportedVersionError("old"), True),
        (error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER), False),
        (error_for(ErrorCode.NETWORK_EXCEPTION), False),
    ],
)
@running
async def test_a_node_that_refuses_this_client_fails_its_records(error: KafkaError, refused: bool) -> None:
    bench = Bench()

    async def connect(node: int) -> None:
        raise error

    bench.network.ready = connect  # type: ignore[method-assign]
    bench.network.unready = {1}
    future = bench.send()
    await bench.settle()
    while refused and not future.is_done:
        await bench.settle()
    assert future.is_done is refused
    if refused:
        assert type(future.exception) is type(error)
    assert bench.manager is not None
    assert (bench.manager.state is State.FATAL_ERROR) is refused
    bench.sender.stop()


@running
async def test_records_without_a_key_avoid_a_node_that_takes_none() -> None:
    bench = Bench(2, partitioner_availability_timeout_ms=100)
    bench.accumulator.topic("t").update([(1, 0), (2, 0)])
    bench.sender.leaders_changed({1, 2})
    sender = bench.sender
    bench.network.unready = {1}
    bench.send(partition=0)
    await bench.settle()
    since = sender._slow_since[1]
    assert sender._slow(since + 100) == set()
    assert sender._slow(since + 101) == {1}
    sender._note_slow(1, since + 500, drained=False)
    assert sender._slow_since == {1: since}  # it is the first time that counts
    sender._note_slow(1, since + 500, drained=True)
    assert sender._slow(since + 1000) == set()
    sender.stop()
    off = Bench(partitioner_availability_timeout_ms=0)
    off.sender._note_slow(1, 0, drained=False)
    assert off.sender._slow(10**9) == set()


@running
async def test_a_pass_that_fails_is_logged_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    await bench.settle()
    left = [RuntimeError("broken")]

    def is_ready(node: int) -> bool:
        if left:
            raise left.pop()
        return True

    bench.network.is_ready = is_ready  # type: ignore[method-assign]
    future = bench.send()
    while not bench.network.submitted:
        await bench.settle()
    bench.take()[0].reply(base_offset=3)
    await bench.settle()
    assert future.get(0).offset == 3
    (said,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert (said.message, said.name) == ("A pass of the sender failed", "kafkapy.producer")


@pytest.mark.parametrize("code", [*CODES_OF_METADATA, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT])
@running
async def test_only_some_errors_need_newer_metadata(code: ErrorCode) -> None:
    bench = Bench(enable_idempotence=False)
    bench.send()
    await bench.settle()
    bench.take()[0].reply(error_code=code.value)
    await bench.settle()
    asks = code in CODES_OF_METADATA
    assert (bench.network.cluster.wanted, bench.network.cluster.invalidated) == ({"t"} if asks else set(), int(asks))
    while not bench.network.submitted:
        await bench.settle()
    assert bench.take()[0].request.batches[0].attempts == 1
    assert bench.sender._metrics.snapshot()["record-retry-total"] == 1


@running
async def test_a_request_that_was_given_up_is_sent_again() -> None:
    bench = Bench(enable_idempotence=False)
    future = bench.send()
    await bench.settle()
    bench.take()[0].future.cancel()
    while not bench.network.submitted:
        await bench.settle()
    assert bench.network.cluster.invalidated == 1
    bench.take()[0].reply(base_offset=3)
    await bench.settle()
    assert future.get(0).offset == 3


@running
async def test_errors_say_what_was_refused_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(batch_size=1000, enable_idempotence=False)
    refused = [bench.send(b"x") for _ in range(3)]
    await bench.settle()
    bench.take()[0].reply(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED.value)
    await bench.settle()
    for future in refused:
        assert isinstance(future.exception, TopicAuthorizationFailedError)
        assert "not authorized for topic t" in str(future.exception)
    assert bench.sender._metrics.snapshot()["record-error-total"] == 3
    large = [bench.send(b"x" * 300) for _ in range(2)]
    await bench.settle()
    (request,) = bench.take()
    size = request.request.batches[0].size
    request.reply(error_code=ErrorCode.MESSAGE_TOO_LARGE.value)
    await bench.settle()
    (said,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert said.message.endswith(f" of {size} bytes is too large for its topic; splitting it")
    values = bench.sender._metrics.snapshot()
    assert (values["batch-split-total"], values["record-error-total"]) == (1, 3)
    assert not any(future.is_done for future in large)


@running
async def test_an_expired_batch_says_how_long_it_waited() -> None:
    bench = Bench(delivery_timeout_ms=31_000, request_timeout_ms=1000, batch_size=1000)
    bench.network.unready.add(1)
    futures = [bench.send(b"x"), bench.send(b"y")]
    await bench.settle()
    bench.now = 40_000
    bench.sender.schedule()
    await bench.settle()
    for future in futures:
        assert isinstance(future.exception, KafkaTimeoutError)
        first, _, waited = str(future.exception).rpartition("were not sent within ")
        assert first.endswith("2 records for t-0 ")
        assert int(waited.removesuffix(" ms")) >= 40_000
    assert bench.sender._metrics.snapshot()["record-error-total"] == 2
    bench.sender.stop()


@running
async def test_the_end_of_a_sender_is_the_end_of_its_passes() -> None:
    bench = Bench()
    await bench.settle()
    bench.send()
    await bench.settle()
    waiting = asyncio.ensure_future(bench.sender.all_complete())
    await bench.settle()
    assert not waiting.done()
    assert len(bench.take()) == 1
    bench.sender.stop()
    await waiting
    bench.send()
    bench.sender.wake()
    bench.sender.schedule()
    await bench.settle()
    assert bench.take() == []
    await bench.sender.all_complete()


@running
async def test_a_leader_is_taken_over_only_with_an_error_and_a_number() -> None:
    kind = PartitionResponse.LeaderIdAndEpoch
    for code, leader_id, epoch, told in ((6, 9, 4, 1), (0, 9, 4, 0), (6, -1, 4, 0), (6, 9, -1, 0), (6, 0, 0, 1)):
        bench = Bench(2)
        bench.send()
        bench.send(partition=1)
        await bench.settle()
        leader = kind(leader_id=leader_id, leader_epoch=epoch)
        parts = [
            PartitionResponse(index=0, error_code=code, base_offset=-1, current_leader=leader),
            PartitionResponse(index=1, error_code=6, base_offset=-1),  # so that the whole response is read
            PartitionResponse(index=7, error_code=6, base_offset=-1, current_leader=leader),  # nobody asked
        ]
        bench.take()[0].answer(ProduceResponse(responses=[TopicResponse(name="t", partition_responses=parts)]))
        await bench.settle()
        assert bench.network.cluster.leaders == ([(("t", 0), leader_id, epoch, None)] if told else [])
        assert bench.network.throttles == []
        bench.sender.stop()
