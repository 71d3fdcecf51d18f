"""Reassignments: partitions move to other replicas, also over deaths of brokers and controllers."""

from __future__ import annotations

from typing import Any

import pytest
from controller.several import SeveralBrokers, run_several
from controller.test_several_brokers import create
from waiting import until, until_not

from kafkapy import errors
from kafkapy.controller.admin_requests import NewPartitions
from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import ReplicaAssignment, decode_topic, encode_reassignments, topic_path
from kafkapy.types import TopicPartition

T0 = TopicPartition("t", 0)
PATH = "/admin/reassign_partitions"


async def alter(cluster: SeveralBrokers, target: list[int] | None, partition: TopicPartition = T0, **how: Any) -> Any:
    """The error code of a request, or None."""
    outcomes = await cluster.active.controller.alter_reassignments({partition: target}, **how)
    await cluster.settled()
    error = outcomes[partition]
    return None if error is None else error.code


async def stored(cluster: SeveralBrokers, partition: TopicPartition = T0) -> ReplicaAssignment:
    data, _ = await cluster.active.store.get(topic_path(partition.topic))
    return decode_topic(partition.topic, data).partitions[partition.partition]


async def is_moved(cluster: SeveralBrokers, target: tuple[int, ...], partition: TopicPartition = T0) -> bool:
    return await stored(cluster, partition) == ReplicaAssignment(target)


def test_an_assignment_under_way() -> None:
    moving = ReplicaAssignment((1, 2, 3)).reassigned_to((4, 2))
    assert moving == ReplicaAssignment((4, 2, 1, 3), (4,), (1, 3))
    assert (moving.target, moving.origin) == ((4, 2), (2, 1, 3))
    assert moving.reassigned_to(moving.origin) == ReplicaAssignment((2, 1, 3))
    assert moving.reassigned_to((5,)) == ReplicaAssignment((5, 2, 1, 3), (5,), (2, 1, 3))
    assert moving.without(4) == ReplicaAssignment((2, 1, 3), (), (1, 3))


def test_a_partition_moves_once_its_new_replicas_are_in_sync() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        epoch = cluster.state(T0).leader_epoch
        assert await alter(cluster, [2, 3]) is None
        under_way = ReplicaAssignment((2, 3, 0, 1), (2, 3), (0, 1))
        assert await stored(cluster) == under_way
        assert await cluster.active.controller.list_reassignments(None) == {T0: under_way}
        # All hear of it, the new ones as new replicas; the leader stays.
        assert cluster.state(T0).leader_epoch == epoch + 1
        assert {each.id: each.host.hosted[T0].is_new for each in cluster.members.values()} == {
            0: False,
            1: False,
            2: True,
            3: True,
        }
        assert cluster[0].host.leads(T0)
        assert cluster[0].host.hosted[T0].adding == (2, 3)
        await cluster.catch_up(T0, 2)
        assert await stored(cluster) == under_way
        await cluster.catch_up(T0, 3)
        await until(lambda: is_moved(cluster, (2, 3)), "the partition has moved")
        await cluster.settled()
        state = cluster.state(T0)
        assert (state.leader, set(state.isr)) == (2, {2, 3})
        assert [T0 in each.host.logs for each in cluster.members.values()] == [False, False, True, True]
        assert cluster[2].host.leads(T0)
        assert cluster[3].host.hosted[T0].replicas == (2, 3)
        assert cluster.active.host.cache.partition(*T0).replicas == (2, 3)
        assert await cluster.active.controller.list_reassignments(None) == {}
        assert await cluster.active.controller.list_reassignments([T0, TopicPartition("nowhere", 0)]) == {}

    run_several(test, brokers=4)


def test_a_move_waits_for_the_isr_of_the_store() -> None:
    """Below IBP 2.7 a leader writes its ISR itself, and the controller hears of it seconds later."""

    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1, 2]})
        known = cluster.state(T0)
        alone = known._replace(isr=(0,))
        await cluster.active.controller.store.update_partition_states({T0: alone})
        assert await alter(cluster, [1, 2]) is None
        assert (await stored(cluster)).is_being_reassigned
        assert T0 in cluster[0].host.logs

    run_several(test)


def test_partitions_of_one_topic_share_the_writes_of_its_node() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        partitions = [TopicPartition("t", number) for number in range(30)]
        await create(cluster, {each.partition: [0, 1] for each in partitions})
        before = (await cluster.active.store.get(topic_path("t")))[1].version
        outcomes = await cluster.active.controller.alter_reassignments({each: [1, 0] for each in partitions[:10]})
        await cluster.active.controller.alter_reassignments({each: [2, 1] for each in partitions[10:]})
        await cluster.settled()
        assert set(outcomes.values()) == {None}
        # Those that are complete at once: two writes; those that copy: one.
        assert (await cluster.active.store.get(topic_path("t")))[1].version == before + 3
        for each in partitions[10:]:
            await cluster.catch_up(each, 2)
        for each in partitions:
            target = (1, 0) if each.partition < 10 else (2, 1)
            await until(lambda each=each, target=target: is_moved(cluster, target, each), f"{each} has moved")

    run_several(test)


def test_the_leader_stays_where_it_may_and_another_order_needs_no_move() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        assert await alter(cluster, [1, 0]) is None
        assert await stored(cluster) == ReplicaAssignment((1, 0))
        assert cluster.state(T0).leader == 0
        epoch = cluster.state(T0).leader_epoch
        # The replicas that it has: nothing happens.
        assert await alter(cluster, [1, 0]) is None
        assert cluster.state(T0).leader_epoch == epoch
        assert await alter(cluster, [0, 2]) is None
        await cluster.catch_up(T0, 2)
        await until(lambda: is_moved(cluster, (0, 2)), "the partition has moved")
        await cluster.settled()
        assert (cluster.state(T0).leader, set(cluster.state(T0).isr)) == (0, {0, 2})
        assert T0 not in cluster[1].host.logs

    run_several(test)


def test_a_cancelled_move_leaves_the_replicas_as_they_were() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        assert await alter(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await alter(cluster, [2, 1]) is None
        assert T0 in cluster[2].host.logs
        assert await alter(cluster, None) is None
        assert set((await stored(cluster)).replicas) == {0, 1}
        assert not (await stored(cluster)).is_being_reassigned
        assert T0 not in cluster[2].host.logs
        assert T0 not in cluster[2].host.hosted
        assert await cluster.active.controller.list_reassignments(None) == {}
        assert await alter(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    run_several(test)


def test_a_newer_move_replaces_one_under_way() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        assert await alter(cluster, [2, 1]) is None
        assert await alter(cluster, [3, 1]) is None
        assert await stored(cluster) == ReplicaAssignment((3, 1, 0), (3,), (0,))
        assert T0 not in cluster[2].host.logs
        await cluster.catch_up(T0, 3)
        await until(lambda: is_moved(cluster, (3, 1)), "the partition has moved")
        await cluster.settled()
        assert cluster.state(T0).leader == 3

    run_several(test, brokers=4)


def test_what_cannot_be_is_refused() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        await cluster.kill(2)
        for target in ([], [0, 0], [-1, 0], [0, 9], [0, 2]):
            assert await alter(cluster, target) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await alter(cluster, [0], allow_replication_factor_change=False) is ErrorCode.INVALID_REPLICATION_FACTOR
        for partition in (TopicPartition("t", 7), TopicPartition("nowhere", 0)):
            assert await alter(cluster, [0], partition) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await stored(cluster) == ReplicaAssignment((0, 1))
        # A replica that is dead may stay one.
        await cluster.kill(1)
        assert await alter(cluster, [1, 0]) is None
        with pytest.raises(errors.NotControllerError):
            await cluster[1].controller.alter_reassignments({T0: [0]})  # its process has ended

    run_several(test)


def test_a_new_replica_that_dies_is_waited_for() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        assert await alter(cluster, [2, 1]) is None
        await cluster.kill(2)
        assert (await stored(cluster)).is_being_reassigned
        await cluster.restart(2)
        assert T0 in cluster[2].host.hosted
        await cluster.catch_up(T0, 2)
        await until(lambda: is_moved(cluster, (2, 1)), "the partition has moved")
        await cluster.settled()
        assert cluster.state(T0).leader == 2

    run_several(test)


def test_the_next_controller_goes_on_with_a_move() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        assert await alter(cluster, [3, 2]) is None
        await cluster.kill(0)
        assert await cluster.active.controller.list_reassignments(None) == {
            T0: ReplicaAssignment((3, 2, 1), (3,), (1,))
        }
        await cluster.catch_up(T0, 3)
        await until(lambda: is_moved(cluster, (3, 2)), "the partition has moved")
        await cluster.settled()
        assert cluster.state(T0).leader == 3
        assert T0 not in cluster[1].host.logs

    run_several(test, brokers=4)


def test_the_replication_factor_grows_and_shrinks() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0]})
        assert await alter(cluster, [0, 1, 2]) is None
        await cluster.catch_up(T0, 1, 2)
        await until(lambda: is_moved(cluster, (0, 1, 2)), "the partition has three replicas")
        assert await alter(cluster, [1]) is None
        await until(lambda: is_moved(cluster, (1,)), "the partition has one replica")
        await cluster.settled()
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (1, (1,))
        assert [T0 in each.host.logs for each in cluster.members.values()] == [False, True, False]

    run_several(test)


def test_a_topic_under_way_gets_no_partitions_and_is_deleted_afterwards() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        assert await alter(cluster, [2, 1]) is None
        refused = await cluster.active.admin.create_partitions([NewPartitions("t", 2)])
        assert refused["t"].code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        late = await cluster.active.admin.delete_topics(["t"], timeout_ms=20)
        assert late["t"].code is ErrorCode.REQUEST_TIMED_OUT
        assert T0 in cluster[0].host.logs
        assert await alter(cluster, [0, 1]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.catch_up(T0, 2)
        await until_not(lambda: cluster.active.store.children("/brokers/topics"), "the topic is gone")
        await cluster.settled()
        assert not any(each.host.logs for each in cluster.members.values())

    run_several(test)


def test_moves_that_an_old_tool_writes() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1], 1: [0, 1]})
        T1, store = TopicPartition("t", 1), cluster[1].store
        wanted = {T0: [2, 1], T1: [1, 0], TopicPartition("nowhere", 0): [1]}
        await store.create(PATH, encode_reassignments(wanted))
        await until(lambda: is_moved_to_start(cluster), "the move has begun")
        await cluster.settled()
        assert await stored(cluster, T1) == ReplicaAssignment((1, 0))
        # What is done, and what cannot be, has left the node.
        assert (await store.get(PATH))[0] == encode_reassignments({T0: [2, 1]})
        await cluster.catch_up(T0, 2)

        async def gone() -> bool:
            return await store.exists(PATH) is None

        await until(gone, "the tool's node is gone")
        assert await stored(cluster) == ReplicaAssignment((2, 1))
        # The next one is seen too, and a request of an administrator replaces it.
        await store.create(PATH, encode_reassignments({T0: [0, 1]}))
        await until(lambda: T0 in cluster.context.reassigning, "the move has begun")
        assert await alter(cluster, [2, 0]) is None
        await until(gone, "the tool's node is gone")

    async def is_moved_to_start(cluster: SeveralBrokers) -> bool:
        return T0 in cluster.context.reassigning

    run_several(test)


def test_a_node_that_cannot_be_read_moves_nothing() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        for text in (b"", b"{", b'{"partitions":[{"topic":"t"}]}', b'{"partitions":[7]}'):
            await cluster[1].store.create(PATH, text)
            await cluster.settled()
            await cluster[1].store.delete(PATH)
        await cluster.settled()
        assert cluster.context.reassigning == {}
        assert await stored(cluster) == ReplicaAssignment((0, 1))

    run_several(test)
