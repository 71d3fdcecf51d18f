"""Elections on demand and by the leader balance."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from controller.several import SeveralBrokers, run_several
from controller.test_several_brokers import create
from waiting import until

from kafkapy import errors
from kafkapy.controller.context import ControllerContext
from kafkapy.controller.events import leader_balance
from kafkapy.controller.partition_state_machine import states_known
from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import PartitionState, encode_preferred_elections
from kafkapy.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PATH = "/admin/preferred_replica_election"


async def elect(cluster: SeveralBrokers, *partitions: TopicPartition, unclean: bool = False) -> list[ErrorCode]:
    outcomes = await cluster.active.controller.elect_leaders(partitions, unclean)
    return [ErrorCode.NONE if outcomes[each] is None else outcomes[each].code for each in partitions]


async def led_elsewhere(cluster: SeveralBrokers) -> None:
    """Partition 0 of `t` is led by broker 2, with its preferred leader 1 in sync again."""
    await create(cluster, {0: [1, 2], 1: [2, 0]})
    await cluster.kill(1)
    await cluster.restart(1)
    await cluster.catch_up(T0, 1)
    assert cluster.state(T0).leader == 2


def test_the_preferred_leader_leads_again_and_all_replicas_hear_of_it() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await led_elsewhere(cluster)
        assert cluster.context.preferred_replica_imbalance() == 1
        assert await elect(cluster, T0, T1) == [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED]
        # The answer has waited for this broker's cache.
        assert cluster.active.host.cache.partition(*T0).leader == 1
        await cluster.settled()
        assert cluster[1].host.leads(T0)
        assert cluster[2].host.hosted[T0].state.leader == 1
        assert set(cluster.state(T0).isr) == {1, 2}
        assert cluster.context.preferred_replica_imbalance() == 0

    run_several(test)


def test_errors_of_elections() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2], 1: [2, 0]})
        await create(cluster, {0: [0, 2]}, "deleted")
        await cluster.kill(1)
        unknown = TopicPartition("t", 9)
        assert await elect(cluster, T0, T1, unknown) == [
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        await cluster.kill(2)
        assert await elect(cluster, T0, unclean=True) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
        await cluster.active.admin.delete_topics(["deleted"], timeout_ms=20)
        assert await elect(cluster, TopicPartition("deleted", 0)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        with pytest.raises(errors.NotControllerError):
            await cluster[1].controller.elect_leaders([T0], unclean=False)

    run_several(test)


def test_an_election_that_the_own_cache_does_not_show_in_time() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await led_elsewhere(cluster)
        cluster.active.host.reachable = False
        outcome = await cluster[0].controller.elect_leaders([T0], False, timeout_ms=20)
        assert outcome[T0].code is ErrorCode.REQUEST_TIMED_OUT
        cluster[0].host.reachable = True
        await cluster.settled()
        # The election has taken place.
        assert cluster.state(T0).leader == 1

    run_several(test)


def test_elections_that_an_old_tool_writes() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await led_elsewhere(cluster)
        store = cluster[2].store
        await store.create(PATH, encode_preferred_elections([T0, T1, TopicPartition("nowhere", 0)]))

        async def gone() -> bool:
            return await store.exists(PATH) is None

        await until(gone, "the tool's node is gone")
        await cluster.settled()
        assert cluster.state(T0).leader == 1
        for text in (b"", b"{", b'{"partitions":[{"topic":"t"}]}'):
            await store.create(PATH, text)
            await until(gone, "the tool's node is gone")

    run_several(test)


def test_a_controller_elects_what_was_written_before_it() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await led_elsewhere(cluster)
        store = cluster[2].store
        # The controller dies before it looks.
        await cluster[0].controller.stop()
        await store.create(PATH, encode_preferred_elections([T0]))
        await cluster[0].die()
        await cluster.settled()
        assert cluster.state(T0).leader == 1
        assert await store.exists(PATH) is None

    run_several(test)


def test_the_balance_gives_leaderships_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_balance, "FIRST_S", 0.01)

    async def test(cluster: SeveralBrokers) -> None:
        # The check at the start has been: the next one runs with the next controller.
        await led_elsewhere(cluster)
        await cluster.kill(0)
        await until(lambda: cluster.state(T0).leader == 1, "broker 1 leads again")

    run_several(test)


def test_a_small_imbalance_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_balance, "FIRST_S", 1e6)

    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {number: [1, 2] for number in range(10)})
        await cluster.alter_isr(T0, (1,))
        await cluster.kill(1)
        await cluster.restart(1)
        balance = cluster.active.controller.current
        # One partition has no other replica in sync, so it came back to broker 1; nine did not.
        for number in range(1, 10):
            await cluster.catch_up(TopicPartition("t", number), 1)
        assert cluster.context.preferred_replica_imbalance() == 9
        await elect(cluster, *(TopicPartition("t", number) for number in range(2, 10)))
        assert cluster.context.preferred_replica_imbalance() == 1
        await cluster.active.controller.submit("Balance", lambda: leader_balance.run(balance))
        # A tenth of broker 1's partitions may be led elsewhere.
        assert cluster.context.preferred_replica_imbalance() == 1
        await create(cluster, {0: [1, 2]}, "u")
        await cluster.alter_isr(TopicPartition("u", 0), (1,))
        cluster.active.controller.update_config(cluster.active.config(leader_imbalance_per_broker_percentage="5"))
        await cluster.active.controller.submit("Balance", lambda: leader_balance.run(balance))
        assert cluster.context.preferred_replica_imbalance() == 0

    run_several(test)


def test_the_balance_can_be_switched_off_and_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_balance, "FIRST_S", 0.001)

    async def test(cluster: SeveralBrokers) -> None:
        await led_elsewhere(cluster)
        runs: list[int] = []
        original = leader_balance.run

        async def counted(controllership: object) -> None:
            runs.append(1)
            await original(controllership)  # type: ignore[arg-type]

        monkeypatch.setattr(leader_balance, "run", counted)
        await cluster.kill(0)
        for _ in range(20):
            await asyncio.sleep(0.001)
            await cluster.settled()
        assert (runs, cluster.state(T0).leader) == ([], 2)

    run_several(test, auto_leader_rebalance_enable="false")


def test_the_store_is_asked_for_unknown_states_only() -> None:
    """An election of a hundred thousand partitions does not read as many nodes."""
    known, stored = PartitionState(1, 2, (1,), 3, version=4), PartitionState(5, 6, (5,), 3, version=7)

    class Store:
        async def partition_states(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionState]:
            return dict.fromkeys(partitions, stored)

    store: Any = Store()
    context = ControllerContext()
    context.leadership[T0] = known
    assert asyncio.run(states_known(context, store, [T0, T1])) == {T0: known, T1: stored}
