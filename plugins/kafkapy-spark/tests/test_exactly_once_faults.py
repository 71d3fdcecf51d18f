"""The exactly-once sink with faults at every request, on a real broker: each row is read exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from exactly_once_faults import (
    TIMEOUT_MS,
    At,
    Cluster,
    Crash,
    FailedQueryError,
    Query,
    Schedule,
    TimeoutSchedule,
)
from kafkapy_spark.two_phase_commit import LostTransactionError, SinkError, SinkPlan

from kafkapy import testing
from kafkapy.errors import KafkaConnectionError, KafkaError
from kafkapy.testing.broker_process import BrokerProcess

BEFORE_OR_BEHIND = pytest.mark.parametrize(
    "answered", [pytest.param(False, marks=pytest.mark.soak, id="before"), pytest.param(True, id="behind")]
)
"""Before a request is mostly behind the one before."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(False, id="timeouts"),
        pytest.param(True, id="two_phases", marks=pytest.mark.soak),
    ],
)
def two_phase(request: pytest.FixtureRequest) -> bool:
    """Whether the tasks' transactions have no timeout (KIP-939)."""
    found: bool = request.param
    return found


@pytest.fixture(scope="module")
def cluster(two_phase: bool) -> Iterator[testing.Broker]:
    with testing.Broker(auto_create_topics_enable=False, transaction_two_phase_commit_enable=two_phase) as started:
        yield started


@pytest.fixture
def spark(cluster: testing.Broker, two_phase: bool) -> Iterator[Cluster]:
    made = Cluster(cluster.bootstrap_servers, two_phase)
    yield made
    made.close()


def every_point(run: Callable[[int], At]) -> list[str]:
    """Runs with a fault at each request in turn, until there are no more. The requests."""
    hits: list[str] = []
    while True:
        fault = run(len(hits))
        if not fault.hit:
            return hits
        hits.append(fault.hit)


@BEFORE_OR_BEHIND
def test_the_driver_dies_at_every_request(spark: Cluster, protocol: int, answered: bool) -> None:
    """From the beginning of a batch to its end; then it is started again."""

    def run(number: int) -> At:
        query, fault = spark.query(), At(number, answered, Crash())
        spark.run(query.batch())
        try:
            spark.run(query.batch(fault))
        except Crash:
            pass
        spark.run(query.run_on())
        return fault

    requests = every_point(run)
    assert requests.count("EndTxn") >= 2 and {"InitProducerId", "Produce", "DescribeTransactions"} <= set(requests)
    spark.check()


def test_every_answer_is_lost_once(spark: Cluster, protocol: int) -> None:
    """Nobody notices: each request is sent again."""

    def run(number: int) -> At:
        query, fault = spark.query(), At(number, True, KafkaConnectionError("lost"))
        spark.run(query.batch())
        spark.run(query.batch(fault))
        assert query.done == 2
        spark.run(query.run_on())
        return fault

    assert len(every_point(run)) > 10
    spark.check()


@BEFORE_OR_BEHIND
def test_commit_fails_at_every_request_and_spark_aborts(spark: Cluster, protocol: int, answered: bool) -> None:
    """What is decided is committed by abort(), what is not is taken back; either way the batch is there once."""

    def run(number: int) -> At:
        query, fault = spark.query(), At(number, answered, RuntimeError("commit fails"))
        spark.run(query.batch())
        try:
            spark.run(query.batch(commit_fails=fault))
        except FailedQueryError:
            # Readers do not wait until the query is started again.
            assert spark.run(query.driver().find_open()) == []
        spark.run(query.run_on())
        return fault

    assert len(every_point(run)) >= 5
    spark.check()


@pytest.mark.soak
@pytest.mark.parametrize("answered", [False, True], ids=["before", "behind"])
def test_the_driver_dies_at_every_request_of_an_abort(spark: Cluster, protocol: int, answered: bool) -> None:
    """After a commit that has failed at each of its requests."""

    def fails_at(first: int) -> list[str]:
        def run(number: int) -> At:
            query = spark.query()
            fails, fault = At(first, True, RuntimeError("commit fails")), At(number, answered, Crash())
            spark.run(query.batch())
            try:
                spark.run(query.batch(commit_fails=fails, abort=fault))
            except (Crash, FailedQueryError):
                pass
            spark.run(query.run_on())
            return fault

        return every_point(run)

    first = 0
    while fails_at(first):
        first += 1
    assert first >= 5
    spark.check()


@pytest.mark.parametrize("newer_dies", [False, True], ids=["commits", "dies"])
def test_a_driver_that_was_replaced_cannot_commit(spark: Cluster, protocol: int, newer_dies: bool) -> None:
    """At none of its requests is it too late for the newer one, and the newer one's batch survives its abort(), also
    where the newer one has died behind its commit point."""

    async def dies(request: str, answered: bool) -> None:
        if newer_dies and request == "EndTxn" and answered:
            raise Crash

    def run(number: int) -> At:
        query = spark.query()
        fault = At(number, False, RuntimeError("stopped here"))

        async def replace_then_go_on(request: str, answered: bool) -> None:
            try:
                await fault(request, answered)
            except RuntimeError:
                done = query.done
                try:
                    await query.batch(commit_fails=dies)
                except Crash:
                    pass
                query.done = done + 1

        async def old() -> None:
            batch = query.done
            plan = await query.driver().begin(TIMEOUT_MS)
            parts = query.divided(batch)
            results = [await query.task(plan, batch, at, rows) for at, rows in enumerate(parts)]
            driver = query.driver(replace_then_go_on)
            try:
                await driver.commit(results)
            except Exception:
                await driver.abort(results)

        spark.run(query.batch())
        spark.run(old())
        query.done = max(query.done, 2)
        spark.run(query.run_on())
        return fault

    assert len(every_point(run)) >= 5
    spark.check()


def test_the_newer_one_of_two_drivers_commits(spark: Cluster, protocol: int) -> None:
    """Both have the results of all their tasks: the old one's task had seen that its driver was the newest, and then
    another began. The newer one commits at each request of the old one's commit, or after it."""

    def run(number: int) -> At:
        query, fault = spark.query(1), At(number, False, RuntimeError("the newer one commits"))
        rows = query.rows[0]
        newer: list[SinkPlan] = []

        async def then_replaced(request: str, answered: bool) -> None:
            if request == "DescribeTransactions" and answered:
                newer.append(await query.driver().begin(TIMEOUT_MS))

        async def work() -> None:
            old = await query.task(await query.driver().begin(TIMEOUT_MS), 0, 0, rows, then_replaced)
            new = await query.task(newer[0], 0, 0, rows)

            async def newer_commits(request: str, answered: bool) -> None:
                try:
                    await fault(request, answered)
                except RuntimeError:
                    await query.driver().commit([new])

            with pytest.raises(SinkError):
                await query.driver(newer_commits).commit([old])
            await query.driver().abort([old])
            if not fault.hit:
                await query.driver().commit([new])

        spark.run(work())
        query.done = 1
        spark.run(query.run_on())
        return fault

    assert len(every_point(run)) >= 3
    spark.check()


def test_a_task_of_an_old_driver_goes_on_at_every_request(spark: Cluster, protocol: int) -> None:
    """It had seen that its driver was the newest, and takes its transactional id when another has begun. That is none
    of the newer one's: its batch is written by its first try, wherever that happens."""

    def run(number: int) -> At:
        query, fault = spark.query(1), At(number, True, RuntimeError("the old task goes on"))
        checked, goes_on = asyncio.Event(), asyncio.Event()

        async def stops(request: str, answered: bool) -> None:
            if request == "DescribeTransactions" and answered:
                checked.set()
                await goes_on.wait()

        async def work() -> None:
            plan = await query.driver().begin(TIMEOUT_MS)
            old = asyncio.ensure_future(query.task(plan, 0, 0, [b"of the old task"], stops))
            await checked.wait()

            async def old_goes_on(request: str, answered: bool) -> None:
                try:
                    await fault(request, answered)
                except RuntimeError:
                    goes_on.set()
                    await old

            plan = await query.driver(old_goes_on).begin(TIMEOUT_MS)
            result = await query.task(plan, 0, 0, query.rows[0], old_goes_on)
            await query.driver(old_goes_on).commit([result])
            goes_on.set()
            await old

        spark.run(work())
        query.done = 1
        spark.run(query.run_on())
        return fault

    assert len(every_point(run)) > 8
    spark.check()


def test_a_transaction_times_out_at_every_request_of_a_commit(spark: Cluster, protocol: int) -> None:
    """Until the driver has seen that all are open nothing is decided, and the batch is written anew; after that it is
    reported what is lost."""

    def run(number: int) -> At:
        query, fault = spark.query(2, 0, TimeoutSchedule), At(number, True, RuntimeError("timed out"))
        seen: list[str] = []

        async def work() -> None:
            plan = await query.driver().begin(TIMEOUT_MS)
            parts = [query.rows[0][:1], query.rows[0][1:]]
            results = [await query.task(plan, 0, at, rows) for at, rows in enumerate(parts)]

            async def times_out(request: str, answered: bool) -> None:
                try:
                    await fault(request, answered)
                except RuntimeError:
                    assert results[1].handle is not None
                    name = results[1].handle.transaction(query.sink).transactional_id
                    await query.client.initialize(name, TIMEOUT_MS)
                if answered and not fault.hit:
                    seen.append(request)

            driver = query.driver(times_out)
            try:
                await driver.commit(results)
                query.done = 1
            except LostTransactionError as error:
                assert "DescribeTransactions" in [*seen, fault.hit], "decided on without a look"
                await query.go_on_without(error)
            except SinkError:
                await driver.abort(results)
                assert (await query.driver().begin(TIMEOUT_MS)).known == ()

        spark.run(work())
        spark.run(query.run_on())
        return fault

    requests = every_point(run)
    assert "DescribeTransactions" in requests[1:] and requests.count("EndTxn") >= 3
    spark.check()


def test_schedules_by_chance(spark: Cluster, protocol: int) -> None:
    queries = [spark.query(3, seed, Schedule) for seed in range(6)]
    for query in queries:
        spark.run(query.run())
    assert sum(query.failures for query in queries) > 2
    spark.check()


def test_transactions_that_time_out(spark: Cluster, protocol: int) -> None:
    """Before the commit point the batch is written again; behind it what is lost is reported."""
    queries = [spark.query(3, seed, TimeoutSchedule) for seed in range(3)]
    for query in queries:
        spark.run(query.run())
    assert sum(query.failures for query in queries) > 2
    spark.check()


@pytest.mark.soak
@pytest.mark.parametrize("kind", [Schedule, TimeoutSchedule])
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_many_schedules_by_chance(spark: Cluster, protocol: int, kind: type[Query], first: int) -> None:
    for seed in range(first, first + 100):
        spark.run(spark.query(4, seed, kind).run())
    spark.check()


@pytest.mark.soak
@pytest.mark.parametrize("answered", [False, True], ids=["before", "behind"])
def test_the_broker_is_killed_at_every_request(protocol: int, answered: bool) -> None:
    """It is started again, and the driver goes on: at most the batch is written anew."""
    with BrokerProcess() as broker:
        cluster = Cluster(broker.bootstrap)

        class Killed(At):
            async def __call__(self, request: str, answered: bool) -> None:
                try:
                    await super().__call__(request, answered)
                except RuntimeError:
                    broker.kill()
                    broker.start()

        def run(number: int) -> At:
            query, fault = cluster.query(), Killed(number, answered, RuntimeError())
            cluster.run(query.batch())
            try:
                cluster.run(query.batch(fault))
            except (FailedQueryError, KafkaError):
                pass
            cluster.run(query.run_on())
            return fault

        assert len(every_point(run)) > 10
        cluster.check()
        cluster.close()
