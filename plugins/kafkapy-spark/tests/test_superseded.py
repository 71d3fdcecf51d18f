"""Drivers that go on after they were replaced: nothing of the newer one's is ended, and nothing is decided."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace
from typing import Any

import pytest
from exactly_once_faults import TIMEOUT_MS, Cluster, Crash, Query
from kafkapy_spark.record_writer import RecordWriter
from kafkapy_spark.sink_identity import transaction_timeout_ms
from kafkapy_spark.sink_plan import SinkPlan, TaskResult
from kafkapy_spark.transactions import OpenTransaction, is_over
from kafkapy_spark.two_phase_commit import TAKEN_OVER_MS, SupersededError
from sink_rows import Rows
from sink_rows import cluster as cluster

from kafkapy.errors import IllegalArgumentError, InvalidRequestError, KafkaError, KafkaTimeoutError
from kafkapy.types import TopicPartition


async def results_of(query: Query, batch: int) -> list[TaskResult]:
    """Of a new driver's two tasks."""
    plan = await query.driver().begin(TIMEOUT_MS)
    rows = query.rows[batch]
    parts = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    return [await query.task(plan, batch, at, part) for at, part in enumerate(parts)]


async def open_of(query: Query, results: list[TaskResult]) -> set[Any]:
    """Those of the results' transactions that are open."""
    handles = [each.handle.transaction(query.sink) for each in results if each.handle is not None]
    return set(await query.client.open_descriptions(handles))


def transactions(query: Query, results: list[TaskResult]) -> set[Any]:
    return {each.handle.transaction(query.sink) for each in results if each.handle is not None}


async def decide_and_die(query: Query, results: list[TaskResult]) -> None:
    """Behind the commit point."""

    async def dies(request: str, answered: bool) -> None:
        if request == "EndTxn" and answered:
            raise Crash

    with pytest.raises(Crash):
        await query.driver(dies).commit(results)


def test_it_sweeps_nothing(cluster: Cluster, protocol: int) -> None:
    """Neither what a newer driver's tasks have open when it looks, nor what they open while it does."""
    query = cluster.query(1)

    async def work() -> None:
        old = await query.driver().begin(TIMEOUT_MS)
        newer = await results_of(query, 0)
        assert await query.driver().sweep(old.driver) == []
        assert await open_of(query, newer) == transactions(query, newer)
        await query.driver().commit(newer)

    cluster.run(work())
    query.done = 1
    cluster.run(query.run_on())
    cluster.check()


def test_it_is_replaced_while_it_sweeps(cluster: Cluster, protocol: int) -> None:
    """At any request of that: the newer driver's transactions stay open."""
    query = cluster.query(1)

    async def work() -> None:
        found: list[list[TaskResult]] = []
        for at in range(20):
            plan = await query.driver().begin(TIMEOUT_MS)
            left = await query.task(plan, 0, 0, [b"of a task that has died"])
            requests = 0

            async def replaced(_request: str, answered: bool, at: int = at) -> None:
                nonlocal requests
                requests += 1
                if requests == at + 1:
                    found.append(await results_of(query, 0))

            swept = await query.driver(replaced).sweep(plan.driver)
            if requests <= at:
                assert [each.state for each in swept] == [next(iter(transactions(query, [left]))).state]
                break
            assert await open_of(query, found[-1]) == transactions(query, found[-1]), f"request {at}"
        assert len(found) >= 4
        results = await results_of(query, 0)
        await query.driver().commit(results)

    cluster.run(work())
    query.done = 1
    cluster.run(query.run_on())
    cluster.check()


def test_its_abort_carries_no_other_batch_out(cluster: Cluster, protocol: int) -> None:
    """A newer driver has decided on the next batch, and it is that one's business, or its successor's."""
    query = cluster.query(2)

    async def work() -> None:
        old = await results_of(query, 0)
        await query.batch()
        newer = await results_of(query, 1)
        await decide_and_die(query, newer)
        seen: list[str] = []

        async def looks(request: str, answered: bool) -> None:
            if answered:
                seen.append(request)

        await query.driver(looks).abort(old)
        assert await open_of(query, newer) == transactions(query, newer)
        assert seen.count("Produce") == 0, "it has written that the batch is done"

    cluster.run(work())
    cluster.run(query.run_on())
    cluster.check()


def test_its_abort_carries_its_own_batch_out(cluster: Cluster, protocol: int) -> None:
    """Which the newer driver has decided on: readers need not wait until somebody starts the query again."""
    query = cluster.query(1)

    async def work() -> None:
        old = await results_of(query, 0)
        newer = await results_of(query, 0)
        await decide_and_die(query, newer)
        assert await query.driver().abort(old)
        assert await open_of(query, newer) == set()

    cluster.run(work())
    query.done = 1
    cluster.check()


@pytest.mark.parametrize("moment", ["open", "deciding", "decided"])
def test_its_abort_without_a_plan_ends_nothing(cluster: Cluster, protocol: int, moment: str) -> None:
    """None of its tasks had succeeded, so that nobody told it who it was; a newer driver is anywhere in its batch."""
    query = cluster.query(1)

    async def late() -> None:
        assert not await query.driver().abort([None, None])

    async def at_its_produce(request: str, answered: bool) -> None:
        if request == "Produce" and answered:
            await late()

    async def work() -> None:
        newer = await results_of(query, 0)
        if moment == "open":
            await late()
            assert await open_of(query, newer) == transactions(query, newer)
            await query.driver().commit(newer)
        elif moment == "deciding":
            await query.driver(at_its_produce).commit(newer)
        else:
            await decide_and_die(query, newer)
            await late()
            assert await open_of(query, newer) == transactions(query, newer)

    cluster.run(work())
    query.done = 1
    cluster.run(query.run_on())
    cluster.check()


@pytest.mark.parametrize("begun", [False, True], ids=["with an id", "with a transaction"])
def test_a_task_that_goes_on_behind_an_abort_begins_nothing(cluster: Cluster, protocol: int, begun: bool) -> None:
    """Nobody would end it: a batch write has no next driver."""
    query = cluster.query(1)

    async def work() -> None:
        plan = await query.driver().begin(TIMEOUT_MS)
        client, name = query.client, f"{query.sink}-{'0' * 16}-0"
        task = OpenTransaction(name, await client.initialize(name, TIMEOUT_MS))
        places = [TopicPartition(cluster.topic, number) for number in range(2)]
        if begun:
            await client.append(places[0], {b"x": b"x"}, task)
        await query.driver(temporary=True).abort([None], plan)
        assert (await client.described(name)).transaction_timeout_ms == TAKEN_OVER_MS
        with pytest.raises(KafkaError) as raised:
            await client.append(places[1], {b"x": b"x"}, task)
        assert is_over(raised.value)
        assert await query.driver().find_open() == []

    cluster.run(work())
    cluster.run(query.run_on())
    cluster.check()


def test_a_task_without_an_id_finds_that_it_was_aborted(cluster: Cluster, protocol: int) -> None:
    """It asks when it has its id, which the abort did not see."""
    rows = Rows(cluster)
    plan = rows.plan()
    initialized = RecordWriter.__enter__

    def aborted(writer: RecordWriter) -> RecordWriter:
        cluster.run(rows.query.driver().abort([None], plan))
        return initialized(writer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordWriter, "__enter__", aborted)
        with pytest.raises(SupersededError, match="has begun after"):
            rows.task(plan, 0, [b"1"])
    assert cluster.run(rows.query.driver().find_open()) == []
    cluster.run(rows.query.run_on())
    cluster.check()


@pytest.mark.parametrize("temporary", [False, True])
def test_an_abort_fences_ids_that_no_driver_comes_to_again(cluster: Cluster, protocol: int, temporary: bool) -> None:
    """The ids of other sinks are used again, and their next driver sweeps."""
    query = cluster.query(1)
    asked: list[str] = []

    async def seen(request: str, answered: bool) -> None:
        if answered:
            asked.append(request)

    async def work() -> None:
        plan = await query.driver().begin(TIMEOUT_MS)
        results = [await query.task(plan, 0, at, [b"%d" % at]) for at in range(2)]
        await query.driver(seen, temporary=temporary).abort(results, plan)
        assert asked.count("InitProducerId") == 1 + 2 * temporary, "the driver's and the tasks'"
        await query.driver().begin(TIMEOUT_MS)

    cluster.run(work())
    cluster.run(query.run_on())
    cluster.check()


def test_an_id_that_cannot_be_fenced_keeps_no_other_from_it(
    cluster: Cluster, protocol: int, caplog: pytest.LogCaptureFixture
) -> None:
    query = cluster.query(1)
    sent = 0

    async def work() -> None:
        plan = await query.driver().begin(TIMEOUT_MS)
        results = [await query.task(plan, 0, at, [b"%d" % at]) for at in range(2)]

        async def fails(request: str, answered: bool) -> None:
            nonlocal sent
            if request == "InitProducerId" and not answered:
                sent += 1
                if sent == 2:
                    raise InvalidRequestError("an id without an epoch")

        await query.driver(fails, temporary=True).abort(results, plan)
        assert sent == 3
        fenced = [await query.client.described(each.transactional_id) for each in transactions(query, results)]
        assert sorted(each.transaction_timeout_ms for each in fenced) == [TAKEN_OVER_MS, TIMEOUT_MS]

    cluster.run(work())
    assert "could not be fenced: InvalidRequestError('an id without an epoch')" in caplog.text
    cluster.run(query.run_on())
    cluster.check()


def test_an_abort_fences_no_task_of_a_newer_driver(cluster: Cluster, protocol: int) -> None:
    """One that begins between the abort's look at the ids and its look at the driver."""
    query = cluster.query(1)

    async def work() -> None:
        old = await results_of(query, 0)
        newer: list[list[TaskResult]] = []
        lists = 0

        async def replaced(request: str, answered: bool) -> None:
            nonlocal lists
            lists += request == "ListTransactions" and not answered
            if lists == 2 and not newer:
                newer.append([])
                newer[0] = await results_of(query, 0)

        await query.driver(replaced, temporary=True).abort(old)
        assert await open_of(query, newer[0]) == transactions(query, newer[0]) != set()
        await query.driver().commit(newer[0])

    cluster.run(work())
    query.done = 1
    cluster.run(query.run_on())
    cluster.check()


def test_its_commit_says_so(cluster: Cluster, protocol: int) -> None:
    query = cluster.query(1)

    async def work() -> None:
        old = await results_of(query, 0)
        await query.driver().begin(TIMEOUT_MS)
        with pytest.raises(SupersededError, match="another driver has taken the sink"):
            await query.driver().commit(old)
        await asyncio.gather(query.driver().abort(old), query.driver().abort(old))

    cluster.run(work())
    cluster.run(query.run_on())
    cluster.check()


def test_a_streaming_writer_is_the_newest_driver_once_it_is_sent_to_tasks(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then, and once."""
    types = pytest.importorskip("pyspark.sql").types
    from kafkapy_spark.exactly_once_stream import ExactlyOnceStreamWriter

    rows = Rows(cluster, ignoreSinkState="skip")
    driver = rows.query.driver()
    options = replace(rows.options, transactional_id_prefix=driver.sink)
    first, second = (ExactlyOnceStreamWriter(options, types.StructType()) for _ in range(2))
    assert cluster.run(cluster.client.current(driver.transactional_id)) is None
    sent = [pickle.loads(pickle.dumps(each))._plan for each in (first, first, second)]
    assert sent[0] == sent[1] == first._plan
    assert sent[0].driver != sent[2].driver
    newest = sent[2].driver
    assert cluster.run(cluster.client.current(driver.transactional_id)) == (newest.producer_id, newest.producer_epoch)
    timeout_ms = transaction_timeout_ms(rows.session, options)
    assert sent[2] == SinkPlan(driver.sink, newest, timeout_ms, on_known="skip")

    def fails() -> None:
        raise KafkaTimeoutError("nobody answers")

    third = ExactlyOnceStreamWriter(options, types.StructType())
    monkeypatch.setattr(third, "_begin", fails)
    with pytest.raises(pickle.PicklingError, match="^KafkaTimeoutError: nobody answers$"):
        pickle.dumps(third)
    with pytest.raises(IllegalArgumentError, match="needs the option transactionalIdPrefix, or checkpointLocation"):
        ExactlyOnceStreamWriter(replace(options, transactional_id_prefix=None), types.StructType())
    cluster.queries.clear()
