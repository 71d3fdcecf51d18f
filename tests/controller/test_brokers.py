"""Several brokers: registration, leaders that go and come back, elections, log directory failures, placement."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from waiting import until, until_not

from kafkapy import errors
from kafkapy.controller.admin_requests import NewPartitions, NewTopic
from kafkapy.controller.elections import Elected, elect_for_offline_partition, elect_for_shutdown, elect_preferred
from kafkapy.controller.replica_placement import place_replicas
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.errors import ErrorCode
from kafkapy.metadata.store import SetData
from kafkapy.metadata.znodes import (
    LOG_DIR_EVENT_PREFIX,
    encode_controller_epoch,
    encode_log_dir_event,
)
from kafkapy.types import TopicPartition

Runner = Callable[..., None]
T0 = TopicPartition("t", 0)


def leader(cluster: Any, partition: TopicPartition = T0) -> tuple[int, tuple[int, ...]]:
    seen = cluster.cache.partition(*partition)
    return seen.leader, seen.isr


def test_another_replica_leads_when_a_broker_goes_and_the_preferred_one_again_when_asked(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={0: [1, 0]})])
        assert leader(cluster) == (1, (1, 0))
        await cluster.remove_broker(1)
        assert leader(cluster) == (0, (0,))
        assert cluster.cache.partition(*T0).leader_epoch >= 1
        assert cluster.cache.snapshot.offline_replicas(cluster.cache.partition(*T0)) == [1]
        await cluster.add_broker(1)
        assert leader(cluster) == (0, (0,))
        # Not in sync yet, so it may not lead.
        outcome = (await cluster.controller.elect_leaders([T0], unclean=False))[T0]
        assert outcome.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    with_cluster(test)


def test_leaders_are_handed_over_before_a_broker_stops(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        topics = [NewTopic("t", assignments={0: [1, 0], 1: [0, 1]}), NewTopic("single", assignments={0: [1]})]
        await cluster.topic_admin.create_topics(topics)
        assert await cluster.controller.controlled_shutdown(1) == set()
        await cluster.idle()
        assert leader(cluster) == (0, (0,))
        assert leader(cluster, TopicPartition("t", 1)) == (0, (0,))
        # A partition without another replica stays until the broker is really gone.
        assert leader(cluster, TopicPartition("single", 0)) == (1, (1,))
        # It follows what it led, and is told to stop what it followed.
        assert cluster.brokers[1].leading == {TopicPartition("single", 0): 1, T0: 0}
        with pytest.raises(errors.BrokerNotAvailableError):
            await cluster.controller.controlled_shutdown(9)
        await cluster.remove_broker(1)
        assert leader(cluster, TopicPartition("single", 0)) == (-1, (1,))

    with_cluster(test)


def test_a_partition_without_live_replica_in_sync_waits_for_it(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={0: [1]})])
        await cluster.remove_broker(1)
        assert leader(cluster) == (-1, (1,))
        await cluster.add_broker(1)
        await cluster.idle()
        assert leader(cluster) == (1, (1,))
        assert cluster.brokers[1].leading == {T0: 1}

    with_cluster(test)


@pytest.mark.parametrize("allowed", [False, True])
def test_an_unclean_leader_is_elected_only_where_allowed(with_cluster: Runner, allowed: bool) -> None:
    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        configs = {"unclean.leader.election.enable": str(allowed).lower()}
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={0: [1, 0]}, configs=configs)])
        # Broker 0 falls out of the ISR, then broker 1 dies.
        await cluster.remove_broker(1)
        await cluster.add_broker(1)
        state = cluster.controller.context.leadership[T0]
        assert state.isr == (0,)
        cluster.brokers[0].failing.add(T0)
        await cluster.store.create(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(0), sequential=True)
        await until_not(lambda: cluster.store.children("/log_dir_event_notification"), "the event is taken")
        await cluster.idle()
        assert leader(cluster)[0] == (1 if allowed else -1)
        if not allowed:
            assert (await cluster.controller.elect_leaders([T0], unclean=True))[T0] is None
            await cluster.idle()
            assert leader(cluster) == (1, (1,))

    with_cluster(test)


def test_a_failed_log_directory_takes_only_its_partitions_offline(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.topic_admin.create_topics([NewTopic("t", 3, 1)])
        broken = TopicPartition("t", 1)
        cluster.brokers[0].failing.add(broken)
        await cluster.store.create(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(0), sequential=True)
        await until_not(lambda: cluster.store.children("/log_dir_event_notification"), "the event is taken")
        await cluster.idle()
        leaders = [leader(cluster, TopicPartition("t", n))[0] for n in range(3)]
        assert leaders == [0, -1, 0]
        assert cluster.cache.partition(*broken).offline_replicas == (0,)
        # A topic with a replica that cannot be reached is not deleted until it can.
        result = await cluster.topic_admin.delete_topics(["t"], timeout_ms=30)
        assert result["t"].code is ErrorCode.REQUEST_TIMED_OUT
        assert await cluster.store.children("/admin/delete_topics") == ["t"]

    with_cluster(test)


def test_a_topic_on_a_dead_broker_is_deleted_when_it_comes_back(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={0: [0, 1]})])
        await cluster.remove_broker(1)
        assert (await cluster.topic_admin.delete_topics(["t"], timeout_ms=30))["t"].code is ErrorCode.REQUEST_TIMED_OUT
        assert not cluster.cache.contains("t")
        assert T0 in cluster.brokers[1].logs
        await cluster.add_broker(1)
        await until_not(lambda: cluster.store.children("/brokers/topics"), "the topic is gone")
        assert not cluster.brokers[1].logs
        assert not cluster.brokers[0].logs

    with_cluster(test)


def test_brokers_that_come_later_are_told_of_all_topics(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.topic_admin.create_topics([NewTopic("t", 2, 1)])
        await cluster.add_broker(5)
        assert set(cluster.brokers[5].cache.topics()) == {"t"}
        assert sorted(cluster.brokers[5].cache.snapshot.brokers) == [0, 5]
        assert sorted(cluster.cache.snapshot.brokers) == [0, 5]

    with_cluster(test)


def test_added_partitions_go_round_the_brokers(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        await cluster.add_broker(2)
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={0: [1, 2]})])
        assert await cluster.topic_admin.create_partitions([NewPartitions("t", 7)]) == {"t": None}
        placed = [cluster.controller.context.replicas_of(TopicPartition("t", n)) for n in range(7)]
        assert all(len(set(each)) == 2 for each in placed)
        assert Counter(each[0] for each in placed[1:]) == {0: 2, 1: 2, 2: 2}

    with_cluster(test)


def test_an_id_that_is_taken_is_refused(make_cluster: Callable[..., Any]) -> None:
    async def test() -> None:
        cluster = make_cluster()
        await cluster.embedded.start()
        await cluster.store.create("/brokers/ids/0", make_parents=True)
        await cluster.embedded.close()
        with pytest.raises(errors.DuplicateBrokerRegistrationError, match="id 0 is registered already"):
            await cluster.start()
        await cluster.embedded.close()

    asyncio.run(test())


def test_a_controller_that_was_replaced_stops_at_its_next_write_and_stands_again(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        controller = cluster.controller
        await TopicAdmin(controller).create_topics([NewTopic("before", 1, 1)])
        epoch = controller.epoch
        # Another broker's election, as this one sees it when its events have not come through yet.
        await cluster.store.commit([SetData("/controller_epoch", encode_controller_epoch(epoch + 1))])
        with pytest.raises(errors.NotControllerError):
            await TopicAdmin(controller).create_topics([NewTopic("t", 1, 1)])
        assert not cluster.cache.contains("t")
        await cluster.store.delete("/controller")
        await until(lambda: controller.is_active, "it is the controller again")
        assert controller.epoch == epoch + 2
        await TopicAdmin(controller).create_topics([NewTopic("t", 1, 1)])
        assert set(cluster.cache.topics()) == {"before", "t"}

    with_cluster(test)


def test_the_epoch_grows_with_every_start(make_cluster: Callable[..., Any]) -> None:
    async def test() -> list[tuple[int, int]]:
        seen = []
        for _ in range(3):
            cluster = make_cluster()
            controller = await cluster.start()
            assert controller.is_active
            assert cluster.cache.controller_id == 0
            seen.append((controller.epoch, controller.broker_epoch))
            await cluster.stop()
        return seen

    seen = asyncio.run(test())
    assert [epoch for epoch, _ in seen] == [1, 2, 3]
    assert [epoch for _, epoch in seen] == sorted({epoch for _, epoch in seen})


@pytest.mark.parametrize(("brokers", "partitions", "factor"), [(1, 3, 1), (3, 3, 3), (5, 20, 3), (6, 12, 2)])
def test_leaders_and_replicas_are_spread_evenly(brokers: int, partitions: int, factor: int) -> None:
    placed = place_replicas(dict.fromkeys(range(10, 10 + brokers)), partitions, factor)
    assert list(placed) == list(range(partitions))
    assert all(len(set(each)) == factor for each in placed.values())
    leaders = Counter(each[0] for each in placed.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1
    replicas = Counter(broker for each in placed.values() for broker in each)
    assert len(replicas) == brokers


def test_placement_follows_the_published_example() -> None:
    # KIP-36 and AdminUtils: five brokers, ten partitions, three replicas, from broker 0.
    placed = place_replicas(dict.fromkeys(range(5)), 10, 3, start_index=0)
    assert [each[0] for each in placed.values()] == [0, 1, 2, 3, 4] * 2
    assert [placed[0], placed[1], placed[5], placed[9]] == [(0, 1, 2), (1, 2, 3), (0, 2, 3), (4, 1, 2)]


def test_no_rack_gets_two_replicas_before_each_has_one() -> None:
    racks = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}
    for start in range(6):
        for replicas in place_replicas(racks, 24, 3, start).values():
            assert {racks[each] for each in replicas} == {"a", "b", "c"}


def test_election_rules() -> None:
    assert elect_for_offline_partition([1, 2, 3], [2, 3], [1, 3], False) == Elected(3, (3,))
    assert elect_for_offline_partition([1, 2, 3], [2], [1, 3], False) is None
    assert elect_for_offline_partition([1, 2, 3], [2], [3, 1], True) == Elected(1, (1,), unclean=True)
    assert elect_preferred([1, 2], [2, 1], [1, 2]) == Elected(1, (2, 1))
    assert elect_preferred([1, 2], [2], [1, 2]) is None
    assert elect_for_shutdown([1, 2, 3], [1, 3], [1, 2, 3], {1}) == Elected(3, (3,))
    assert elect_for_shutdown([1, 2], [1], [1, 2], {1}) is None
