"""Exactly-once tasks on brokers with and without transactions that have no timeout (KIP-939)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from exactly_once_faults import Cluster
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_plan import TaskResult
from kafkapy_spark.transactions import OpenTransaction
from sink_rows import Rows
from sink_rows import cluster as cluster
from waiting import wait_until

from kafkapy import testing
from kafkapy.admin import TransactionState
from kafkapy.errors import IllegalArgumentError, TransactionalIdAuthorizationFailedError

NEVER_MS = 2**31 - 1
SHORT_MS = 1500


@pytest.fixture(scope="module", params=[True, False], ids=["two phases", "timeouts"])
def broker(request: pytest.FixtureRequest) -> Iterator[testing.Broker]:
    with testing.Broker(
        auto_create_topics_enable=False,
        transaction_two_phase_commit_enable=request.param,
        transaction_max_timeout_ms=SHORT_MS,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=50,
    ) as started:
        yield started


def allows(broker: testing.Broker) -> bool:
    """Whether the broker has transactions without a timeout."""
    return broker.server.config.get_bool("transaction.two.phase.commit.enable")


def timeout_of(rows: Rows, result: TaskResult) -> int:
    """Of a task's transaction, in ms."""
    assert result.handle is not None
    transaction = result.handle.transaction(rows.query.sink)
    found = rows.cluster.run(rows.cluster.client.open_descriptions([transaction]))
    return found[transaction].transaction_timeout_ms


def is_over(cluster: Cluster, transaction: OpenTransaction) -> bool:
    found = cluster.run(cluster.client.describe_transactions([transaction.transactional_id]))
    return found[transaction.transactional_id].state is TransactionState.COMPLETE_ABORT


def test_tasks_use_it_where_the_broker_has_it(broker: testing.Broker, cluster: Cluster) -> None:
    rows = Rows(cluster)
    for number in range(2):
        plan = rows.plan()
        assert plan.timeout_ms == SHORT_MS
        result = rows.task(plan, 0, [b"%d" % number], number)
        assert rows.session.two_phases is allows(broker)
        if allows(broker):
            assert timeout_of(rows, result) == NEVER_MS
            rows.commit(result)
        else:
            rows.cluster.run(rows.query.driver().abort([result]))
    assert rows.seen() == ([b"0", b"1"] if allows(broker) else [])


def test_a_slow_driver_loses_nothing(broker: testing.Broker, cluster: Cluster) -> None:
    """The transactions of others time out meanwhile."""
    if not allows(broker):
        pytest.skip("its transactions time out")
    rows = Rows(cluster)
    plan = rows.plan()
    result = rows.task(plan, 0, [b"x"])
    other = OpenTransaction(f"{cluster.topic}-other", cluster.run(cluster.client.initialize("other", SHORT_MS)))
    other = other._replace(transactional_id="other")
    from kafkapy.types import TopicPartition

    cluster.run(cluster.client.append(TopicPartition(cluster.topic, 1), {b"y": b"y"}, other))
    wait_until(lambda: is_over(cluster, other), "the other transaction has timed out")
    rows.commit(result)
    assert rows.seen() == [b"x"]


def test_a_timeout_that_the_user_has_set_holds(broker: testing.Broker, cluster: Cluster) -> None:
    rows = Rows(cluster, **{"kafka.transaction.timeout.ms": "1400"})
    assert timeout_of(rows, rows.task(rows.plan(), 0, [b"x"])) == 1400
    rows = Rows(cluster, **{"kafka.transaction.two.phase.commit.enable": "false"})
    assert timeout_of(rows, rows.task(rows.plan(), 0, [b"x"])) == SHORT_MS


def test_it_can_be_required(broker: testing.Broker, cluster: Cluster) -> None:
    rows = Rows(cluster, **{"kafka.transaction.two.phase.commit.enable": "true"})
    plan = rows.plan()
    if allows(broker):
        assert timeout_of(rows, rows.task(plan, 0, [b"x"])) == NEVER_MS
    else:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            rows.task(plan, 0, [b"x"])


def test_it_needs_a_write_exactly_once() -> None:
    given = {"kafka.bootstrap.servers": "x:1", "topic": "t", "kafka.transaction.two.phase.commit.enable": "true"}
    with pytest.raises(IllegalArgumentError, match="needs delivery to be exactly-once"):
        SinkOptions.parse(given, streaming=True)
