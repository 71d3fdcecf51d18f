"""Transactions that were decided on, and whose coordinator has forgotten them: the logs tell what became of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from exactly_once_faults import TIMEOUT_MS, Cluster
from kafkapy_spark.decisions import Decision, Handle
from kafkapy_spark.outcomes import _Search, was_committed
from kafkapy_spark.sink_errors import LostTransactionError, UnknownOutcomeError
from kafkapy_spark.sink_plan import SinkPlan, TaskResult
from sink_rows import Rows
from sink_rows import cluster as cluster
from test_sink_transactions import txn

from kafkapy import testing
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.types import TopicPartition

EXPIRY_S = 60
"""Most time for the coordinator to forget ids."""
FIRST, SECOND = [b"a", b"b"], [b"c"]


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    """One that forgets ids when it is told to look for them."""
    expiry = {
        "transactional_id_expiration_ms": 1,
        "transaction_remove_expired_transaction_cleanup_interval_ms": 3_600_000,
    }
    with testing.Broker(auto_create_topics_enable=False, **expiry) as started:
        yield started


class Dies(Exception):
    """The driver."""


def decided(rows: Rows, *, lose: bool = False, finish: bool = True, place: bool = True) -> Decision:
    """A batch of two tasks that is decided, and carried out unless `finish` is false or `lose` says that the second's
    transaction was ended by the brokers; then the driver dies. place: whether it is known where its records are."""
    plan = rows.plan()
    results = [rows.task(plan, 0, FIRST), rows.task(plan, 1, SECOND)]
    if not place:
        results = [_without_place(each) for each in results]
    rows.cluster.run(_decide(rows, plan, results, lose, finish))
    found: Decision = rows.cluster.run(_unfinished(rows))
    return found


def _without_place(result: TaskResult) -> TaskResult:
    assert result.handle is not None
    return replace(result, handle=result.handle._replace(topic=None, topic_partition=-1, offset=-1))


async def _unfinished(rows: Rows) -> Decision:
    control = rows.query.driver().control
    await control.find()
    found = (await control.read(rows.query.sink)).unfinished
    assert found is not None
    return found


async def _decide(rows: Rows, plan: SinkPlan, results: list[TaskResult], lose: bool, finish: bool) -> None:
    driver = rows.query.driver()
    carry_out = driver._carry_out

    async def dies(*_arguments: object) -> None:
        raise Dies

    async def dies_or_loses(decision: Decision) -> object:
        if lose:
            handle = decision.handles[1]
            await driver.client.initialize(handle.transaction(rows.query.sink).transactional_id, TIMEOUT_MS)
        if not finish:
            raise Dies
        return await carry_out(decision)

    driver._finish = dies  # type: ignore[method-assign]
    driver._carry_out = dies_or_loses  # type: ignore[method-assign, assignment]
    with pytest.raises(LostTransactionError if lose else Dies):
        await driver.commit(results)


def forget(broker: testing.Broker, rows: Rows, *handles: Handle) -> None:
    """Has the coordinator forget them: their markers are written, and a week is over."""

    async def expire() -> None:
        broker.server.context.coordinators.transaction.expire()

    async def wait() -> None:
        deadline = time.monotonic() + EXPIRY_S
        for handle in handles:
            name = handle.transaction(rows.query.sink).transactional_id
            while await rows.cluster.client.described(name) is not None:
                assert time.monotonic() < deadline, f"{name} has not expired"
                broker.server.call(expire())
                await asyncio.sleep(0.01)

    rows.cluster.run(wait())


@pytest.mark.parametrize("replay", [False, True], ids=["fail", "replay"])
def test_what_was_committed_is_not_lost(cluster: Cluster, broker: testing.Broker, protocol: int, replay: bool) -> None:
    """The driver has died before it wrote that all is done, and nobody has started the query for a week."""
    rows = Rows(cluster)
    forget(broker, rows, *decided(rows).handles)
    plan = rows.plan(replay=replay)
    assert plan.lost == frozenset()
    rows.commit(rows.task(plan, 0, FIRST), rows.task(plan, 1, SECOND))
    assert rows.seen() == [*FIRST, *SECOND]


def test_what_was_aborted_is_lost(cluster: Cluster, broker: testing.Broker, protocol: int) -> None:
    """That alone is written again: with replay the rows are there once."""
    rows = Rows(cluster)
    forget(broker, rows, *decided(rows, lose=True).handles)
    with pytest.raises(LostTransactionError, match=r"its partitions 1 \(1 of 3 rows\)"):
        rows.plan()
    plan = rows.plan(replay=True)
    assert plan.lost == {1}
    rows.commit(rows.task(plan, 0, FIRST), rows.task(plan, 1, SECOND), replay=True)
    rows.plan()
    assert rows.seen() == [*FIRST, *SECOND]


@pytest.mark.parametrize("why", ["no place", "retention", "topic"])
def test_what_nobody_knows_is_not_written_again(
    cluster: Cluster, broker: testing.Broker, protocol: int, why: str
) -> None:
    """Until somebody says that it is there."""
    rows = Rows(cluster)
    found = decided(rows, place=why != "no place")
    forget(broker, rows, *found.handles)
    if why == "retention":
        places = [TopicPartition(cluster.topic, number) for number in range(2)]
        cluster.run(cluster.client.delete_records(dict.fromkeys(places, -1)))
    elif why == "topic":
        cluster.run(cluster.client.delete_topics([cluster.topic]))
    for replay in (False, True):
        with pytest.raises(UnknownOutcomeError, match=r"not known whether .* its partitions 0, 1 \(3 of 3 rows\)"):
            rows.plan(replay=replay)
    result = txn(cluster, "commit", rows.query.sink)
    [row] = json.loads(result.output)
    assert result.exit_code == 1
    assert (row["rows"], row["lost_partitions"], row["unknown_partitions"]) == (0, [], [0, 1])
    assert txn(cluster, "commit", rows.query.sink, "--accept-loss").exit_code == 0
    assert rows.plan(replay=True).lost == frozenset()


def test_an_id_that_is_used_again(cluster: Cluster, protocol: int) -> None:
    """By whatever: what was committed before stays committed, also where the coordinator says that it was fenced."""
    rows = Rows(cluster)
    for handle in decided(rows).handles:
        cluster.run(cluster.client.initialize(handle.transaction(rows.query.sink).transactional_id, TIMEOUT_MS))
    assert rows.plan(replay=True).lost == frozenset()
    assert rows.seen() == [*FIRST, *SECOND]


def test_what_is_not_carried_out_yet_is_open(cluster: Cluster) -> None:
    """There is no outcome while there is no marker."""
    rows = Rows(cluster)
    found = decided(rows, finish=False)
    for handle in found.handles:
        assert handle.place is not None
        transaction = handle.transaction(rows.query.sink)
        assert cluster.run(was_committed(cluster.client, transaction, handle.place)) is None
    rows.plan()
    for handle in found.handles:
        assert handle.place is not None
        assert cluster.run(was_committed(cluster.client, handle.transaction(rows.query.sink), handle.place)) is True
    assert rows.seen() == [*FIRST, *SECOND]


# --- markers ----------------------------------------------------------------------------------------------------------


def record(offset: int, producer_id: int, epoch: int) -> bytes:
    builder = RecordBatchBuilder(base_offset=offset)
    builder.append(0, b"k", b"v")
    return bytes(builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True))


def marker(offset: int, producer_id: int, epoch: int, *, committed: bool) -> bytes:
    return build_end_transaction_marker(
        producer_id, epoch, committed=committed, coordinator_epoch=0, timestamp_ms=0, base_offset=offset
    )


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("committed", [False, True])
def test_the_first_marker_behind_a_record_counts(version: int, committed: bool) -> None:
    """Other producers' do not, nor those before it, nor later ones of the same producer."""
    data = b"".join(
        [
            marker(4, 7, 3, committed=not committed),
            record(5, 7, 4),
            record(6, 8, 4),
            marker(7, 8, 4, committed=not committed),
            marker(8, 7, 5, committed=committed),
            marker(9, 7, 6, committed=not committed),
        ]
    )
    search = _Search(PreparedTxnState(7, 4, version), 5)
    search._take(data)
    assert (search.ended, search.committed) == (True, committed)


@pytest.mark.parametrize(
    ("version", "epoch", "committed", "outcome"),
    [
        (0, 4, True, True),
        (0, 5, True, None),
        (0, 4, False, None),
        (0, 5, False, None),
        (2, 5, True, True),
        (2, 7, True, None),
        (2, 5, False, None),
    ],
)
def test_a_marker_whose_records_were_compacted_away(
    version: int, epoch: int, committed: bool, outcome: bool | None
) -> None:
    """It may be that of a later transaction, unless it commits under the epoch of this one."""
    search = _Search(PreparedTxnState(7, 4, version), 5)
    search._take(record(6, 8, 4) + record(7, 7, epoch) + marker(8, 7, epoch, committed=committed))
    assert (search.ended, search.committed) == (True, outcome)
