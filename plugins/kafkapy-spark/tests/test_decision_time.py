"""How long a decision may take, and what else has to be so when one is taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest
from exactly_once_faults import TIMEOUT_MS, Cluster, Query
from kafkapy_spark.sink_plan import SinkPlan, TaskResult
from kafkapy_spark.transactions import OpenTransaction
from kafkapy_spark.two_phase_commit import MAX_DECISION_MS, SinkDriver, SinkError, decision_ms
from sink_rows import cluster as cluster

from kafkapy.admin import TransactionState
from kafkapy.clients.admin.transactions import TransactionDescription
from kafkapy.errors import KafkaTimeoutError


def test_the_time_of_a_decision() -> None:
    """At most a quarter of the time that transactions have."""
    assert [decision_ms(each) for each in (1, 4000, 60_000, 900_000)] == [1, 1000, 15_000, MAX_DECISION_MS]


async def written(query: Query, timeout_ms: int = TIMEOUT_MS) -> tuple[SinkPlan, list[TaskResult]]:
    """A plan and the results of its two tasks."""
    plan = await query.driver().begin(timeout_ms)
    rows = query.rows[0]
    return plan, [await query.task(plan, 0, at, part) for at, part in enumerate((rows[:1], rows[1:]))]


Change = Callable[[TransactionDescription, int], TransactionDescription]
"""(a task's transaction, the start of the driver's) -> how it is told."""


def telling(driver: SinkDriver, change: Change) -> SinkDriver:
    """A driver that is told something else of tasks' transactions."""
    describe = driver.client.open_descriptions

    async def changed(transactions: Iterable[OpenTransaction]) -> dict[OpenTransaction, TransactionDescription]:
        found = await describe(transactions)
        [now] = [each.transaction_start_time_ms for name, each in found.items() if _is_driver(name)]
        return {name: each if _is_driver(name) else change(each, now) for name, each in found.items()}

    driver.client.open_descriptions = changed  # type: ignore[method-assign]
    return driver


def _is_driver(transaction: OpenTransaction) -> bool:
    return transaction.transactional_id.endswith("-driver")


def lasting(left_ms: int) -> Change:
    """So long behind the driver's begin."""
    return lambda each, now: each._replace(transaction_start_time_ms=now + left_ms - each.transaction_timeout_ms)


LONG_MS = 3_600_000
"""Longer than a test may take."""


def test_a_batch_whose_transactions_are_about_to_end(cluster: Cluster, protocol: int) -> None:
    """Nothing is decided; and others do not have to wait for what was not."""
    query = cluster.query(1)

    async def work() -> None:
        _, results = await written(query)
        driver = telling(query.driver(), lasting(2 * MAX_DECISION_MS - 1))
        with pytest.raises(SinkError, match=r"its transactions end in \d+\.\d s, and .* may take 120.0 s. Nothing is"):
            await driver.commit(results)
        name = query.driver().transactional_id
        described = await query.client.described(name)
        assert described is not None and described.state is not TransactionState.ONGOING
        assert not await query.driver().abort(results)
        assert (await query.driver().begin(TIMEOUT_MS)).known == ()

    cluster.run(work())
    cluster.run(query.run_on())
    cluster.check()


def test_a_batch_whose_transactions_last_long_enough(cluster: Cluster, protocol: int) -> None:
    query = cluster.query(1)

    async def work() -> None:
        _, results = await written(query)
        await telling(query.driver(), lasting(2 * MAX_DECISION_MS + LONG_MS)).commit(results)

    cluster.run(work())
    query.done = 1
    cluster.run(query.run_on())
    cluster.check()


@pytest.mark.parametrize("short_ms", [0, 1])
def test_the_time_since_the_decision_began_counts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, short_ms: int
) -> None:
    """1000 s pass between the begin of the decision and its last check."""
    query = cluster.query(1)
    told = [5.0]

    def boot_time(clock: int) -> float:
        told.append(1005.0)
        return told[-2]

    async def work() -> None:
        _, results = await written(query)
        driver = telling(query.driver(), lasting(1_000_000 + 2 * MAX_DECISION_MS - short_ms))
        monkeypatch.setattr(time, "clock_gettime", boot_time)
        with pytest.raises(SinkError, match="Nothing is decided") if short_ms else nullcontext():
            await driver.commit(results)
        monkeypatch.undo()

    cluster.run(work())
    query.done = 1 - short_ms
    cluster.run(query.run_on())
    cluster.check()


@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "late"])
def test_a_decision_that_is_not_acknowledged(cluster: Cluster, protocol: int, arrives: bool) -> None:
    """Its time is over. Nobody knows whether it was taken, until abort() has ended it or finds that it was."""
    query = cluster.query(1)

    async def hangs(request: str, answered: bool) -> None:
        if request == "EndTxn" and answered is arrives:
            await asyncio.Event().wait()

    def short(each: TransactionDescription, now: int) -> TransactionDescription:
        return lasting(LONG_MS)(each._replace(transaction_timeout_ms=40), now)

    async def work() -> None:
        plan, results = await written(query)
        driver = telling(query.driver(hangs), short)
        with pytest.raises(
            KafkaTimeoutError, match=f"the decision on batch 0 of {query.name} was not acknowledged in 0 s"
        ):
            await driver.commit(results)
        assert await query.driver().abort(results) is arrives
        assert (await query.driver().begin(TIMEOUT_MS)).known == () if not arrives else plan.known == ()
        query.done = int(arrives)

    cluster.run(work())
    cluster.run(query.run_on())
    cluster.check()


@pytest.mark.parametrize("timeout_ms", [8_000, TIMEOUT_MS])
def test_the_coordinator_bounds_a_decision_too(cluster: Cluster, timeout_ms: int) -> None:
    """A driver that stops amid it cannot decide later than that."""
    query = cluster.query(1)

    async def work() -> TransactionDescription | None:
        driver = query.driver()
        await driver.begin(timeout_ms)
        return await query.client.described(driver.transactional_id)

    found: Any = cluster.run(work())
    assert found.transaction_timeout_ms == decision_ms(timeout_ms)
    cluster.queries.clear()
