"""The producer's core without a cluster: its parts, metadata, waits, pending operations, and its end."""

from __future__ import annotations

import asyncio
import threading
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import run

from kafkapy.clients.producer import core as module
from kafkapy.clients.producer.core import ProducerCore, no_room
from kafkapy.clients.producer.transaction_manager import State
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.config.producer import ProducerConfig
from kafkapy.errors import (
    BufferExhaustedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    error_for,
)
from kafkapy.errors import ErrorCode as Code


def made(**config: Any) -> ProducerCore:
    return ProducerCore(ProducerConfig(**{"bootstrap_servers": "localhost:1", "linger_ms": 0, **config}))


class Requests:
    """The requests of a producer with transactions: each takes as long as a test says."""

    def __init__(self) -> None:
        self.called: list[Any] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None
        self.prepared_state = PreparedTxnState(7, 1, 2)
        self.cancelled = False

    async def _run(self, *call: Any) -> None:
        self.called.append(call)
        await self.gate.wait()
        if self.error is not None:
            raise self.error

    async def initialize(self, *, keep_prepared: bool) -> None:
        await self._run("initialize", keep_prepared)

    async def send_offsets(self, offsets: Any, group: Any) -> None:
        await self._run("offsets", offsets, group)

    async def prepare(self) -> None:
        await self._run("prepare")

    async def commit(self) -> None:
        await self._run("commit")

    async def abort(self) -> None:
        await self._run("abort")

    def cancel(self) -> None:
        self.cancelled = True


def transactional(*, open_gate: bool = True, **config: Any) -> tuple[ProducerCore, Requests]:
    core, requests = made(transactional_id="id", **config), Requests()
    core._requests = requests  # type: ignore[assignment]
    if open_gate:
        requests.gate.set()
    return core, requests


def test_the_parts_get_the_configuration() -> None:
    core = made(
        max_block_ms=4000,
        buffer_memory=100_000,
        batch_size=5000,
        linger_ms=7,
        max_request_size=9000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=100,
        partitioner_adaptive_partitioning_enable=False,
    )
    accumulator = core.accumulator
    assert (accumulator.pool.total, accumulator.batch_size) == (100_000, 5000)
    assert (accumulator.linger_ms, accumulator.max_request_size) == (7, 9000)
    assert accumulator.backoff_ms == [100] * 16
    assert (accumulator.ignore_keys, accumulator.adaptive) == (False, False)
    assert (core._max_block_s, core.closed, core._closing, core.partitioner) == (4, False, False, None)
    assert (core._requests, core._pending, core._wanting, core.loop) == (None, None, None, None)
    assert core.transactions is not None
    assert not core.transactions.transactional
    assert made(enable_idempotence=False).transactions is None
    assert made(transactional_id="id").transactions.transactional  # type: ignore[union-attr]
    assert "producer-metrics" in core.all_metrics()


@pytest.mark.parametrize(
    ("config", "ignores", "builtin"),
    [
        ({}, False, True),
        ({"partitioner_ignore_keys": True}, True, True),
        ({"partitioner_class": "default"}, False, True),
        ({"partitioner_class": "default", "partitioner_ignore_keys": True}, True, True),
        ({"partitioner_class": "uniform_sticky"}, True, True),
        ({"partitioner_class": "round_robin"}, False, False),
        ({"partitioner_class": "round_robin", "partitioner_ignore_keys": True}, False, False),
    ],
)
def test_the_partitioner_in_c_is_used_where_it_can_be(config: dict[str, Any], ignores: bool, builtin: bool) -> None:
    core = made(**config)
    assert core.accumulator.ignore_keys is ignores
    assert (core.partitioner is None) is builtin


def partition(leader: int, epoch: int = 3) -> Any:
    return SimpleNamespace(leader=leader, leader_epoch=epoch)


def cluster_of(**topics: Any) -> Any:
    return SimpleNamespace(topics=topics, brokers=lambda: {1: None, 2: None})


def topic_of(partitions: dict[int, Any], *, error: int = 0, topic_id: uuid.UUID = module.ZERO_UUID) -> Any:
    return SimpleNamespace(partitions=partitions, error=error, topic_id=topic_id)


def test_leaders_come_from_the_metadata() -> None:
    core = made()
    told: list[set[int]] = []
    core.sender.leaders_changed = told.append  # type: ignore[method-assign]
    for name in ("t", "unknown", "refused", "empty"):
        core.accumulator.topic(name)
    topic_id = uuid.UUID(int=5)
    core._metadata_changed(
        cluster_of(
            t=topic_of({0: partition(1), 2: partition(2, 4), 3: partition(9), 4: partition(-1)}, topic_id=topic_id),
            refused=topic_of({0: partition(1)}, error=5),
            empty=topic_of({}),
            unwanted=topic_of({0: partition(1)}),
        )
    )
    queues = core.accumulator.topic("t")
    assert [(each.leader, each.leader_epoch) for each in queues.partitions] == [
        (1, 3),
        (-1, -1),
        (2, 4),
        (-1, -1),
        (-1, -1),
    ]
    assert queues.topic_id == topic_id
    assert told == [{1, 2}]
    assert [len(core.accumulator.topic(name)) for name in ("unknown", "refused", "empty")] == [0, 0, 0]
    assert set(core.accumulator.topics) == {"t", "unknown", "refused", "empty"}
    core._metadata_changed(cluster_of(t=topic_of({0: partition(2)})))
    assert (queues.topic_id, told[-1]) == (None, {2})


def test_an_index_out_of_proportion_costs_no_memory() -> None:
    core = made()
    core.sender.leaders_changed = lambda leaders: None  # type: ignore[method-assign]
    core.accumulator.topic("t")
    core._metadata_changed(cluster_of(t=topic_of({0: partition(1), 2**31 - 1: partition(2)})))
    assert len(core.accumulator.topic("t")) == module.index_limit(2)


def test_topics_with_records_stay_wanted() -> None:
    async def main() -> None:
        core = made()
        core._want_again()
        assert core._wanting is None  # it has not started
        wanted: list[set[str]] = []
        core.network.cluster.want = wanted.append  # type: ignore[method-assign, assignment]
        core.loop = asyncio.get_running_loop()
        core._want_again()
        assert wanted == []
        first = core._wanting
        assert first is not None
        assert 0 < first.when() - core.loop.time() <= module.WANT_AGAIN_S
        core.accumulator.topic("t").update([(1, 0)])
        core.accumulator.append("t", 0, 1, None, b"v")
        core._want_again()
        assert wanted == [{"t"}]
        first.cancel()
        assert core._wanting is not None
        core._wanting.cancel()
        core.closed, core._wanting = True, None
        core._want_again()
        assert (core._wanting, wanted) == (None, [{"t"}])

    run(main)


# --- waits --------------------------------------------------------------------------------------------------------


def bare(core: ProducerCore, refreshes: list[Any], errors: dict[str, Any] | None = None) -> None:
    """Has the metadata say what a test does."""
    cluster = core.network.cluster
    left = list(refreshes)

    async def refresh() -> None:
        step = left.pop(0) if left else None
        if isinstance(step, Exception):
            raise step
        if step is not None:
            core.accumulator.topic("t").update([(1, 0)] * step)

    cluster.refresh = refresh  # type: ignore[method-assign]
    cluster.topic_error = lambda topic: (errors or {}).get(topic)  # type: ignore[method-assign]
    core._backoff = SimpleNamespace(delay_s=lambda attempts: 0)  # type: ignore[assignment]


@pytest.mark.parametrize(("asked", "known"), [(None, 1), (0, 1), (1, 2), (3, 4)])
def test_a_partition_is_waited_for_until_it_is_known(asked: int | None, known: int) -> None:
    async def main() -> None:
        core = made()
        bare(core, [error_for(Code.NETWORK_EXCEPTION), *([known - 1] if known > 1 else []), known])
        await core.await_partition("t", asked, 60)
        assert len(core.accumulator.topic("t")) == known
        assert await core.partitions("t", 60) == set(range(known))
        core.network.cluster.partitions_for_topic = lambda topic: {7}  # type: ignore[method-assign]
        assert await core.partitions("t", 60) == {7}

    run(main)


@pytest.mark.parametrize(
    ("asked", "known", "text"),
    [
        (None, 0, "topic t is not in the metadata after 20 s"),
        (0, 0, "topic t is not in the metadata after 20 s"),
        (1, 1, "topic t has 1 partitions and no partition 1 after 20 s"),
    ],
)
@pytest.mark.parametrize(("timeout_s", "refreshes"), [(None, 19), (5, 4), (1, 0), (0, 0)])
def test_a_partition_that_stays_unknown(
    asked: int | None,
    known: int,
    text: str,
    timeout_s: float | None,
    refreshes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        core = made(max_block_ms=20_000)
        last = error_for(Code.UNKNOWN_TOPIC_OR_PARTITION)
        bare(core, [], {"t": last})
        made_refreshes: list[int] = []

        async def refresh() -> None:
            made_refreshes.append(1)

        core.network.cluster.refresh = refresh  # type: ignore[method-assign]
        core.accumulator.topic("t").update([(1, 0)] * known)
        ticks = iter(range(10**6))
        # Each look at the clock is a second later.
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
        with pytest.raises(KafkaTimeoutError) as raised:
            await core.await_partition("t", asked, timeout_s)
        assert str(raised.value).endswith(text)
        assert raised.value.__cause__ is (last if refreshes else None)
        assert len(made_refreshes) == refreshes

    run(main)


def test_an_error_of_a_topic_that_no_retry_mends_is_raised() -> None:
    async def main() -> None:
        for error in (TopicAuthorizationFailedError("x"), error_for(Code.INVALID_TOPIC_EXCEPTION)):
            core = made()
            bare(core, [], {"t": error})
            with pytest.raises(type(error)):
                await core.await_partition("t", None, 60)
            core = made()
            bare(core, [error])
            with pytest.raises(type(error)):
                await core.await_partition("t", None, 60)
        core = made()
        core.stop_taking()
        with pytest.raises(IllegalStateError, match="the producer is closed"):
            await core.await_partition("t", None, 60)

    run(main)


def test_room_is_waited_for_until_there_is_some() -> None:
    async def main() -> None:
        core = made(buffer_memory=20_000, batch_size=16_384, max_block_ms=3000)
        core.accumulator.topic("t").update([(1, 0)])
        await core.wait_for_room(20_000, 60)
        core.accumulator.append("t", 0, 1, None, b"v")
        with pytest.raises(BufferExhaustedError, match=r"within 3 s: .* 3616 are free, 1 batches wait"):
            await core.wait_for_room(1, 0)
        await core.wait_for_room(3616, 60)
        waiting = asyncio.ensure_future(core.wait_for_room(3617, 60))
        while not core.accumulator.pool.waiting:
            await asyncio.sleep(0)
        assert not waiting.done()
        for batch in core.accumulator.take_all():
            core.accumulator.fail(batch, KafkaError("x"))
        core.accumulator.tell_room()
        await waiting
        assert core.accumulator.pool.waiting == 0
        core.stop_taking()
        with pytest.raises(IllegalStateError, match="the producer is closed"):
            await core.wait_for_room(1, 60)

    run(main)


def test_the_error_of_a_full_buffer_says_what_fills_it() -> None:
    text = str(no_room(made(buffer_memory=20_000).accumulator, 1.5))
    assert "within 1.5 s: of 20000 bytes (buffer.memory) 20000 are free, 0 batches wait" in text


def test_a_flush_ends_with_the_results_of_what_was_there() -> None:
    async def main() -> None:
        core = made()
        accumulator = core.accumulator
        await core.flush(0)
        assert accumulator.flushes == 0
        accumulator.topic("t").update([(1, 0)] * 2)
        for number in range(2):
            accumulator.append("t", number, 1, None, b"v")
        with pytest.raises(KafkaTimeoutError, match="not all records were sent within 0 s"):
            await core.flush(0)
        assert accumulator.flushes == 0
        flush = asyncio.ensure_future(core.flush())
        await asyncio.sleep(0)
        assert accumulator.flushes == 1
        first, second = accumulator.take_all()
        accumulator.fail(first, KafkaError("x"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not flush.done()
        accumulator.fail(second, KafkaError("x"))
        await flush
        assert accumulator.flushes == 0

    run(main)


# --- transactions -------------------------------------------------------------------------------------------------


def test_a_producer_without_transactions_has_no_operations() -> None:
    async def main() -> None:
        for core in (made(), made(enable_idempotence=False), made(transactional_id="id")):
            for operation in (core.init_transactions, core.commit_transaction, core.abort_transaction):
                with pytest.raises(IllegalStateError, match="transactions need a transactional_id"):
                    await operation()
            core.stop_taking()
            with pytest.raises(IllegalStateError, match="the producer is closed"):
                core.begin_transaction()

    run(main)


def test_each_operation_is_its_request() -> None:
    async def main() -> None:
        core, requests = transactional()
        await core.init_transactions()
        await core.init_transactions(keep_prepared_txn=True)
        await core.send_offsets_to_transaction({}, "group")  # type: ignore[arg-type]
        assert await core.prepare_transaction() == PreparedTxnState(7, 1, 2)
        await core.commit_transaction()
        await core.abort_transaction()
        assert requests.called == [
            ("initialize", False),
            ("initialize", True),
            ("offsets", {}, "group"),
            ("prepare",),
            ("commit",),
            ("abort",),
        ]
        assert core.transactions is not None
        assert (core._pending, core.transactions.pending) == (None, "")
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            core.require_transaction()
        core.transactions.state = State.READY
        core.begin_transaction()
        core.require_transaction()
        core.accumulator.topic("t").update([(1, 0)])
        core.transactions.v2 = True
        core.join_transaction(core.accumulator.queue("t", 0))
        assert core.accumulator.queue("t", 0).in_transaction

    run(main)


@pytest.mark.parametrize(
    ("prepared", "nothing", "called"),
    [
        (PreparedTxnState(7, 1, 0), False, [("commit",)]),
        (PreparedTxnState(7, 2, 2), False, [("abort",)]),
        (PreparedTxnState(8, 1, 2), False, [("abort",)]),
        (PreparedTxnState(7, 1, 2), True, []),
    ],
)
def test_a_prepared_transaction_is_committed_if_it_is_this_one(
    prepared: PreparedTxnState, nothing: bool, called: list[Any]
) -> None:
    async def main() -> None:
        core, requests = transactional()
        assert core.transactions is not None
        core.transactions.took_nothing_over = nothing
        await core.complete_transaction(prepared)
        assert requests.called == called

    run(main)


def test_an_operation_that_takes_longer_goes_on() -> None:
    async def main() -> None:
        core, requests = transactional(open_gate=False, max_block_ms=1)
        manager = core.transactions
        assert manager is not None
        with pytest.raises(KafkaTimeoutError, match=r"commit_transaction\(\) did not complete within 0.001 s"):
            await core.commit_transaction()
        assert manager.pending == "commit_transaction"
        with pytest.raises(IllegalStateError, match="commit_transaction timed out"):
            await core.init_transactions()
        core._max_block_s = 60
        requests.error = KafkaError("x")
        requests.gate.set()
        with pytest.raises(KafkaError, match="x"):
            await core.commit_transaction()
        assert (core._pending, manager.pending, len(requests.called)) == (None, "", 1)
        requests.gate.clear()
        waiting = asyncio.ensure_future(core.commit_transaction())
        while len(requests.called) < 2:
            await asyncio.sleep(0)
        assert core._pending is not None
        core._pending.cancel()
        with pytest.raises(IllegalStateError, match="the producer was closed during the call"):
            await waiting

    run(main)


def test_an_abort_follows_the_offsets_that_are_still_on_their_way() -> None:
    async def main() -> None:
        for outcome in ("done", "error", "cancelled"):
            core, requests = transactional(open_gate=False, max_block_ms=1)
            manager = core.transactions
            assert manager is not None
            with pytest.raises(KafkaTimeoutError):
                await core.send_offsets_to_transaction({}, "group")  # type: ignore[arg-type]
            with pytest.raises(KafkaTimeoutError, match="is still running after 0.001 s"):
                await core.abort_transaction()
            assert manager.pending == module.SEND_OFFSETS
            core._max_block_s = 60
            task = core._pending
            assert task is not None
            requests.error = KafkaError("x") if outcome == "error" else None
            requests.gate.set()
            if outcome == "cancelled":
                task.cancel()
            await core._finish_offsets()
            assert (core._pending, manager.pending, task.done()) == (None, "", True)
            requests.error = None
            await core.abort_transaction()
            assert requests.called[-1] == ("abort",)
            await core._finish_offsets()

    run(main)


# --- end ----------------------------------------------------------------------------------------------------------


def test_a_record_is_refused_with_the_reason() -> None:
    core = made(enable_idempotence=False)
    assert str(core.refusal()) == "the producer accepts no records"
    assert "init_transactions() must precede" in str(made().refusal())
    core.closed = True
    assert str(core.refusal()) == "the producer is closed"
    with pytest.raises(IllegalStateError, match="the producer is closed"):
        core._require_open()
    core = made(enable_idempotence=False)
    core.stop_taking()
    assert (core.accumulator.closed, core.accumulator.open) == (True, False)
    assert str(core.refusal()) == "the producer is closed"
    with pytest.raises(IllegalStateError, match="the producer is closed"):
        core._require_open()


@pytest.mark.parametrize(
    ("state", "calls"),
    [
        (State.READY, []),
        (State.IN_TRANSACTION, ["abort"]),
        (State.ABORTABLE_ERROR, ["abort"]),
        (State.PREPARED, []),
        (State.FATAL_ERROR, []),
    ],
)
def test_an_open_transaction_is_aborted_before_the_end(state: State, calls: list[str]) -> None:
    async def main() -> None:
        core, requests = transactional()
        assert core.transactions is not None
        core.transactions.state = state
        completed: list[int] = []

        async def all_complete() -> None:
            completed.append(1)

        core.sender.all_complete = all_complete  # type: ignore[method-assign]
        done = asyncio.Event()
        core._pending = asyncio.ensure_future(done.wait())  # type: ignore[assignment]
        finish = asyncio.ensure_future(core._finish())
        await asyncio.sleep(0)
        assert requests.called == []
        done.set()
        await finish
        assert [name for (name,) in requests.called] == calls
        assert completed == ([] if state is State.PREPARED else [1])
        plain = made()
        plain.sender.all_complete = all_complete  # type: ignore[method-assign]
        await plain._finish()
        assert len(completed) == 1 + (state is not State.PREPARED)

    run(main)


@pytest.mark.parametrize("timeout_s", [None, 0, 0.001, 60])
def test_the_end_ends_everything(timeout_s: float | None) -> None:
    async def main() -> None:
        core, requests = transactional()
        closed: list[str] = []
        core.interceptors.close = lambda: closed.append("interceptors")  # type: ignore[method-assign]

        async def close_network() -> None:
            closed.append("network")

        async def close_telemetry() -> None:
            closed.append("telemetry")

        core.network.close = close_network  # type: ignore[method-assign]
        core.telemetry.close = close_telemetry  # type: ignore[method-assign]
        core.loop = asyncio.get_running_loop()
        core._want_again()
        wanting = core._wanting
        assert wanting is not None
        core.accumulator.wake = lambda: None
        core.accumulator.topic("t").update([(1, 0)])
        assert core.transactions is not None
        core.accumulator.open, core.accumulator.transactional = True, False
        future = core.accumulator.append("t", 0, 1, None, b"v")
        assert future is not None
        waited: list[bool] = []
        core.accumulator.wait_for_room(lambda: waited.append(core.accumulator.closed))
        finished: list[int] = []

        async def finish() -> None:
            finished.append(1)
            if timeout_s == 0.001:
                await asyncio.Event().wait()
            if timeout_s == 60:
                raise KafkaError("x")

        core._finish = finish  # type: ignore[method-assign]
        pending = core._pending = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[assignment]
        await core.close(timeout_s)
        assert finished == ([] if timeout_s == 0 else [1])
        assert closed == ["telemetry", "network", "interceptors"]
        assert (core.closed, core.sender.closed, requests.cancelled, wanting.cancelled()) == (True,) * 4
        assert (core.accumulator.closed, core.accumulator.open, core.accumulator.wake) == (True, False, None)
        assert waited == [True]
        await asyncio.wait({pending})
        assert pending.cancelled()
        assert "the producer was closed before the record was sent" in str(future.exception)
        await core.close(timeout_s)
        assert len(closed) == 3

    run(main)


def test_what_was_not_started_has_an_end() -> None:
    async def main() -> None:
        core = made()
        await core.close(0)
        assert core.closed

    run(main)


def test_the_core_starts_on_the_running_loop() -> None:
    async def main() -> None:
        core = made(transactional_id="id", transaction_timeout_ms=1234, transaction_two_phase_commit_enable=False)
        started: list[str] = []

        async def start_network() -> None:
            started.append("network")

        core.network.start = start_network  # type: ignore[method-assign]
        core.telemetry.start = lambda: started.append("telemetry")  # type: ignore[method-assign]
        await core.start()
        assert started == ["network", "telemetry"]
        assert core.loop is asyncio.get_running_loop()
        assert core.accumulator.pool.loop_thread == threading.get_ident()
        assert core._wanting is not None
        requests = core._requests
        assert requests is not None
        assert core.sender.requests is requests
        assert (requests._transaction_timeout_ms, requests._two_phase) == (1234, False)
        assert core.transactions is not None
        assert core.transactions.wake == core.sender.wake
        assert core.accumulator.wake == core.sender.wake
        assert core._metadata_changed in core.network.cluster._listeners
        core.sender.stop()
        core._wanting.cancel()

    run(main)
