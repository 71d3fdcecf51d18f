"""Single steps of the controller: what brokers are told, what is forgotten, and what one bad partition spoils."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from controller.conftest import RecordingBroker
from waiting import until, until_not

from kafkapy.controller.admin_requests import NewPartitions, NewTopic
from kafkapy.controller.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import BrokerResponse, LeaderAndIsr, StopReplica
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.store import SetData, StoreUnavailableError
from kafkapy.metadata.znodes import PartitionState, TopicAssignment, partition_state_path
from kafkapy.types import TopicPartition, random_uuid

Runner = Callable[..., None]
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


# --- what brokers are told ----------------------------------------------------------------------------------------


def test_only_the_first_request_of_a_controller_names_all_partitions(make_cluster: Callable[..., Any]) -> None:
    """A broker takes what such a request does not name for strays."""

    async def test() -> None:
        cluster = make_cluster()
        await cluster.start()
        await cluster.topic_admin.create_topics([NewTopic("a", 2, 1), NewTopic("b", 1, 1)])
        await cluster.topic_admin.create_partitions([NewPartitions("b", 2)])
        assert not any(each.full for each in cluster.brokers[0].requests if isinstance(each, LeaderAndIsr))
        await cluster.stop()
        again = make_cluster()
        await again.start()
        await again.topic_admin.create_topics([NewTopic("c", 1, 1)])
        first, *others = [each for each in again.brokers[0].requests if isinstance(each, LeaderAndIsr)]
        assert first.full
        assert set(first.partitions) == {TopicPartition(name, number) for name in "ab" for number in range(2)}
        assert [(each.full, len(each.partitions)) for each in others] == [(False, 1)]
        await again.stop()

    asyncio.run(test())


class SlowBroker(RecordingBroker):
    """Takes a while to open its logs."""

    async def become_leader_or_follower(self, request: LeaderAndIsr) -> BrokerResponse:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().become_leader_or_follower(request)


def test_a_start_is_over_when_the_broker_has_opened_its_logs(make_cluster: Callable[..., Any]) -> None:
    async def test() -> None:
        cluster = make_cluster()
        await cluster.start()
        await cluster.topic_admin.create_topics([NewTopic("t", 3, 1)])
        await cluster.stop()
        again = make_cluster()
        again.brokers[0] = SlowBroker(again.cache)
        await again.start()
        assert again.brokers[0].leading == {T0: 0, T1: 0, T2: 0}
        assert [each.leader for each in again.cache.topic("t").partitions.values()] == [0, 0, 0]
        await again.stop()

    asyncio.run(test())


class GatedBroker(RecordingBroker):
    """Answers that it has deleted replicas when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = False

    async def stop_replicas(self, request: StopReplica) -> BrokerResponse:
        if any(each.delete for each in request.partitions.values()):
            self.asked = True
            await self.gate.wait()
        return await super().stop_replicas(request)


def test_answers_that_come_at_once_all_count(with_cluster: Runner) -> None:
    """Two brokers have deleted their replicas while the controller was busy."""

    async def test(cluster: Any) -> None:
        gated = [GatedBroker(), GatedBroker()]
        for broker_id, broker in enumerate(gated, 1):
            cluster.brokers[broker_id] = broker
            await cluster.add_broker(broker_id)
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={0: [0, 1, 2]})])
        deleting = asyncio.create_task(cluster.topic_admin.delete_topics(["t"]))
        await until(lambda: all(broker.asked for broker in gated), "both brokers are told to delete")

        async def busy() -> None:
            for broker_id, broker in enumerate(gated, 1):
                broker.gate.set()
                await cluster.controller.current.channels.drain(broker_id)

        await cluster.controller.submit("Busy", busy)
        assert await deleting == {"t": None}
        assert not any(broker.logs for broker in cluster.brokers.values())

    with_cluster(test)


# --- the context --------------------------------------------------------------------------------------------------


def test_nothing_is_left_of_a_topic_that_is_gone(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        await cluster.topic_admin.create_topics([NewTopic("kept", 1, 1)])
        context = cluster.controller.context
        before = known(context)
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={0: [0, 1], 1: [1, 0]})])
        assert known(context) != before
        # Ineligible at first, as a broker refuses; and a directory is failed.
        cluster.brokers[1].refuse_deletes = True
        gone = await cluster.topic_admin.delete_topics(["t"], timeout_ms=1)
        assert gone["t"].code is ErrorCode.REQUEST_TIMED_OUT
        await cluster.idle()
        cluster.brokers[1].refuse_deletes = False
        context.offline_dir_partitions.setdefault(0, set()).add(TopicPartition("t", 5))
        await cluster.remove_broker(1)
        await cluster.add_broker(1)
        await until_not(lambda: cluster.store.children("/admin/delete_topics"), "the topic is deleted")
        await cluster.idle()
        context.offline_dir_partitions.clear()
        assert known(context) == before

    with_cluster(test)


def known(context: ControllerContext) -> dict[str, Any]:
    """All that the controller remembers about topics, as one value."""
    return {
        "ids": dict(context.topic_ids),
        "assignments": dict(context.assignments),
        "partitions": list(context.all_partitions()),
        "leaders": {partition: state.leader for partition, state in context.leadership.items()},
        "status": dict(context.partition_status),
        "leaderless": dict(context.leaderless),
        "new": dict(context.new_replicas),
        "replicas": {topic: dict(each) for topic, each in context.replica_status.items()},
        "deleting": (
            set(context.topics_to_delete),
            set(context.topics_deletion_started),
            set(context.topics_deletion_ineligible),
        ),
        "colliding": context.topic_names.colliding_with("t"),
    }


def test_a_topic_is_forgotten_as_a_whole() -> None:
    context, empty = ControllerContext(), known(ControllerContext())
    assignment = TopicAssignment(random_uuid(), {0: None, 1: None})  # type: ignore[dict-item]
    context.put_topic("t", random_uuid(), assignment)
    for partition in (T0, T1):
        context.leadership[partition] = PartitionState(0, 0, (0,), 1)
        context.put_partition_state(partition, PartitionStatus.OFFLINE)
        context.put_replica_state(Replica(partition, 0), ReplicaStatus.NEW)
    context.offline_dir_partitions[3] = {T0, TopicPartition("other", 0)}
    for each in (context.topics_to_delete, context.topics_deletion_started, context.topics_deletion_ineligible):
        each.add("t")
    context.remove_topic("t")
    assert known(context) == empty
    assert context.offline_dir_partitions == {3: {TopicPartition("other", 0)}}


# --- partitions ---------------------------------------------------------------------------------------------------


def test_added_partitions_are_where_the_client_puts_them(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        for broker_id in (1, 2):
            await cluster.add_broker(broker_id)
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={0: [0, 1], 1: [1, 2]})])
        added = NewPartitions("t", 5, [[2, 0], [1, 0], [0, 2]])
        assert await cluster.topic_admin.create_partitions([added]) == {"t": None}
        seen = cluster.cache.topic("t").partitions
        assert {number: each.replicas for number, each in seen.items()} == {
            0: (0, 1),
            1: (1, 2),
            2: (2, 0),
            3: (1, 0),
            4: (0, 2),
        }
        assert [each.leader for each in seen.values()] == [0, 1, 2, 1, 0]

    with_cluster(test)


def test_a_partition_without_a_state_does_not_stop_the_election_of_others(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={n: [1, 0] for n in range(3)})])
        await cluster.store.delete(partition_state_path(T1))
        await cluster.remove_broker(1)
        assert [cluster.cache.partition(*each).leader for each in (T0, T2)] == [0, 0]
        outcomes = await cluster.controller.elect_leaders([T0, T1, T2], unclean=True)
        assert outcomes[T1].code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        assert {outcomes[each].code for each in (T0, T2)} == {ErrorCode.ELECTION_NOT_NEEDED}

    with_cluster(test)


def test_states_that_others_have_changed_are_refused_and_the_rest_is_written(tmp_path: Path) -> None:
    async def test() -> None:
        store = EmbeddedStore(tmp_path)
        await store.start()
        controllers = ControllerStore(store)
        await controllers.ensure_paths()
        await controllers.register_controller(0)
        await store.create("/brokers/topics/t", b"{}")
        states = await controllers.create_partition_states(
            {each: PartitionState(0, 0, (0,), 1) for each in (T0, T1, T2)}
        )
        # Its leader has changed it meanwhile.
        await store.commit([SetData(partition_state_path(T1), (await store.get(partition_state_path(T1)))[0])])
        changed = {each: state._replace(leader=7, leader_epoch=4) for each, state in states.items()}
        written, refused = await controllers.update_partition_states(changed)
        assert refused == [T1]
        assert {each: (state.leader, state.version) for each, state in written.items()} == {T0: (7, 1), T2: (7, 1)}
        stored = await controllers.partition_states([T0, T1, T2])
        assert {each: (state.leader, state.version) for each, state in stored.items()} == {
            T0: (7, 1),
            T1: (0, 1),
            T2: (7, 1),
        }
        await store.close()

    asyncio.run(test())


# --- becoming controller --------------------------------------------------------------------------------------------


class FailingReads(EmbeddedStore):
    """Listing `failing` fails."""

    failing = ""

    async def children(self, path: str) -> list[str]:
        if path == self.failing:
            raise StoreUnavailableError(path, "the read failed")
        return await super().children(path)


@pytest.mark.parametrize("path", ["/brokers/ids", "/brokers/topics", "/admin/delete_topics"])
def test_a_broker_that_cannot_read_the_cluster_is_no_controller(make_cluster: Callable[..., Any], path: str) -> None:
    """Its start says so, and the next one finds nobody in its place."""

    async def test() -> None:
        cluster = make_cluster()
        await cluster.start()
        await cluster.topic_admin.create_topics([NewTopic("t", 1, 1)])
        await cluster.stop()
        broken = make_cluster()
        store = FailingReads(Path(broken.directory))
        broken.embedded = broken.store = store
        store.failing = path
        with pytest.raises(StoreUnavailableError, match="the read failed"):
            await broken.start()
        assert not broken.controller.is_active
        assert await store.exists("/controller") is None
        await broken.stop()
        again = make_cluster()
        await again.start()
        assert again.controller.is_active
        assert set(again.brokers[0].leading) == {T0}
        await again.stop()

    asyncio.run(test())
