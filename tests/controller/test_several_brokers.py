"""Several brokers: leaders move when brokers come and go, ISRs change, shutdowns hand over, deletions wait."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from controller.several import SeveralBrokers, run_several
from waiting import until, until_not

from kafkapy import errors
from kafkapy.controller.admin_requests import NewPartitions, NewTopic
from kafkapy.controller.controller_stats import IDLE, STATES, ControllerNumbers
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import LeaderAndIsr, StopReplica, UpdateMetadata
from kafkapy.metadata.znodes import PartitionState, TopicAssignment, decode_topic, encode_topic, topic_path
from kafkapy.types import TopicPartition

T0 = TopicPartition("t", 0)


async def create(cluster: SeveralBrokers, assignments: dict[int, list[int]], name: str = "t", **configs: str) -> None:
    overrides = {key.replace("_", "."): value for key, value in configs.items()}
    made = await cluster.active.admin.create_topics([NewTopic(name, assignments=assignments, configs=overrides)])
    assert not isinstance(made[name], errors.KafkaError), made
    await cluster.settled()


# --- leaders ----------------------------------------------------------------------------------------------------------


def test_all_brokers_hear_of_a_topic_and_its_replicas_take_their_roles() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2], 1: [2, 0]})
        for member in cluster.members.values():
            assert {p: (m.leader, m.isr) for p, m in member.host.cache.topic("t").partitions.items()} == {
                0: (1, (1, 2)),
                1: (2, (2, 0)),
            }
            assert sorted(member.host.cache.snapshot.brokers) == [0, 1, 2]
            assert member.host.cache.controller_id == 0
        hosted = {member.id: set(member.host.hosted) for member in cluster.members.values()}
        assert hosted == {0: {TopicPartition("t", 1)}, 1: {T0}, 2: {T0, TopicPartition("t", 1)}}
        assert all(each.is_new for each in cluster[1].host.hosted.values())

    run_several(test)


def test_the_next_replica_in_sync_leads_when_the_leader_dies_and_the_dead_one_leaves_the_isr() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2, 0]})
        before = cluster.state(T0)
        await cluster.kill(1)
        state = cluster.state(T0)
        assert (state.leader, state.isr) == (2, (2, 0))
        # One step for the election, one for the ISR without the dead broker, as with Kafka's controller.
        assert state.leader_epoch > before.leader_epoch
        assert cluster[2].host.hosted[T0].state == cluster[0].host.hosted[T0].state == state
        seen = cluster[0].host.cache.partition(*T0)
        assert (seen.leader, seen.isr, seen.offline_replicas) == (2, (2, 0), (1,))
        await cluster.restart(1)
        assert cluster[1].host.hosted[T0].state.leader == 2
        assert not cluster[1].host.hosted[T0].is_new
        assert cluster[0].host.cache.partition(*T0).offline_replicas == ()

    run_several(test)


def test_a_follower_that_dies_leaves_the_isr_and_returns_by_its_leader() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        await cluster.kill(1)
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (0, (0,))
        await cluster.restart(1)
        assert cluster.state(T0).isr == (0,)
        await cluster.catch_up(T0, 1)
        assert cluster.state(T0).isr == (0, 1)
        for member in cluster.members.values():
            assert member.host.cache.partition(*T0).isr == (0, 1)

    run_several(test)


def test_the_last_replica_in_sync_alone_leads_again_when_all_return() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        await cluster.kill(2)
        await cluster.kill(1)
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (-1, (1,))
        await cluster.restart(2)
        # It may lack records.
        assert cluster.state(T0).leader == -1
        assert cluster[2].host.hosted[T0].state.leader == -1
        await cluster.restart(1)
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (1, (1,))

    run_several(test)


@pytest.mark.parametrize("how", ["topic", "broker", "request"])
def test_an_unclean_leader_is_elected_once_that_is_allowed(how: str) -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        await cluster.kill(2)
        await cluster.kill(1)
        await cluster.restart(2)
        controller = cluster.active.controller
        if how == "topic":
            await cluster.active.configs.change("topics", "t", lambda _: {"unclean.leader.election.enable": "true"})
        elif how == "broker":
            controller.update_config(cluster.active.config(unclean_leader_election_enable="true"))
        else:
            assert await controller.elect_leaders([T0], unclean=True) == {T0: None}
        await until(lambda: cluster.state(T0).leader == 2, "broker 2 leads")
        await cluster.settled()
        state = cluster.state(T0)
        assert (state.isr, state.recovering) == ((2,), True)
        assert cluster.active.controller.stats.unclean_elections == 1
        assert cluster[2].host.leads(T0)
        # The leader has recovered at once, and says so.
        answer = await cluster.alter_isr(T0, (2,))
        assert isinstance(answer, PartitionState)
        assert not answer.recovering

    run_several(test)


def test_a_broker_that_registers_again_is_told_everything() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        # The session of broker 1 ends and begins again before the controller looks: only the epoch tells.
        member = cluster[1]
        await member.stop()
        member.host.restart()
        await member.start()
        await cluster.settled()
        assert cluster.context.live_brokers[1].epoch == member.controller.broker_epoch
        assert set(member.host.hosted) == {T0}
        assert member.host.cache.topic("t") is not None
        assert cluster.state(T0).leader == 2

    run_several(test)


# --- the ISR ----------------------------------------------------------------------------------------------------------


def test_a_leader_shrinks_and_grows_its_isr() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2, 0]})
        before = cluster.state(T0)
        sent = len(cluster[2].host.requests)
        shrunk = await cluster.alter_isr(T0, (1, 0))
        assert shrunk == before._replace(isr=(1, 0), version=before.version + 1)
        # Brokers' caches hear of it; roles do not change.
        assert {type(each) for each in cluster[2].host.requests[sent:]} == {UpdateMetadata}
        assert cluster[2].host.cache.partition(*T0).isr == (1, 0)
        grown = await cluster.alter_isr(T0, (1, 0, 2))
        assert grown == before._replace(isr=(1, 0, 2), version=before.version + 2)
        # The same request again, as after a lost reply: the state is there already.
        assert await cluster.alter_isr(T0, (1, 0, 2), partition_epoch=before.version + 1) == grown

    run_several(test)


def test_requests_of_leaders_that_know_too_little_or_too_much_change_nothing() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2, 0]})
        await cluster.alter_isr(T0, (1, 2))
        state = cluster.state(T0)
        old = state.leader_epoch - 1
        assert await cluster.alter_isr(T0, (1,), leader_epoch=old) is ErrorCode.FENCED_LEADER_EPOCH
        assert await cluster.alter_isr(T0, (1,), partition_epoch=0) is ErrorCode.INVALID_UPDATE_VERSION
        newer = state.leader_epoch + 1
        assert await cluster.alter_isr(T0, (1,), leader_epoch=newer) is ErrorCode.NOT_CONTROLLER
        newer = state.version + 1
        assert await cluster.alter_isr(T0, (1,), partition_epoch=newer) is ErrorCode.NOT_CONTROLLER
        assert await cluster.alter_isr(T0, (1,), recovering=True) is ErrorCode.INVALID_REQUEST
        assert await cluster.alter_isr(T0, (1,), partition=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await cluster.alter_isr(T0, (1,), topic="no") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await cluster.alter_isr(T0, (1,), topic=uuid4()) is ErrorCode.UNKNOWN_TOPIC_ID
        for wrong in ((2,), (), (1, 1)):
            assert await cluster.alter_isr(T0, wrong) is ErrorCode.INVALID_REQUEST
        with pytest.raises(errors.StaleBrokerEpochError):
            await cluster.active.controller.alter_partitions(1, cluster[1].controller.broker_epoch - 1, [])
        with pytest.raises(errors.StaleBrokerEpochError):
            await cluster.active.controller.alter_partitions(9, 1, [])
        with pytest.raises(errors.NotControllerError):
            await cluster[1].controller.alter_partitions(1, 1, [])
        assert cluster.state(T0) == state

    run_several(test)


def test_a_dead_or_stopping_broker_gets_into_no_isr() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1, 2]})
        await cluster.kill(1)
        assert await cluster.alter_isr(T0, (0, 2, 1)) is ErrorCode.INELIGIBLE_REPLICA
        epoch = cluster[2].controller.broker_epoch
        assert await cluster.active.controller.controlled_shutdown(2, epoch) == set()
        assert cluster.state(T0).isr == (0,)
        assert await cluster.alter_isr(T0, (0, 2)) is ErrorCode.INELIGIBLE_REPLICA
        assert await cluster.alter_isr(T0, (0, 2), version=1) is ErrorCode.OPERATION_NOT_ATTEMPTED

    run_several(test)


def test_a_leader_that_never_asks_again_gets_a_dead_broker_into_the_isr() -> None:
    """Leaders of Kafka 2.7 to 3.1 would change no ISR of the partition any more."""

    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1, 2]})
        await cluster.kill(1)
        assert cluster.state(T0).isr == (0, 2)
        assert (await cluster.alter_isr(T0, (0, 2, 1), version=0)).isr == (0, 2, 1)
        assert (await cluster.alter_isr(T0, (0, 2), version=0)).isr == (0, 2)
        assert await cluster.alter_isr(T0, (0, 2, 9), version=0) is ErrorCode.OPERATION_NOT_ATTEMPTED
        with pytest.raises(errors.NotControllerError):
            await cluster.alter_isr(T0, (0, 2), version=0, leader_epoch=7)
        assert cluster.state(T0).isr == (0, 2)

    run_several(test)


# --- controlled shutdown ----------------------------------------------------------------------------------------------


def test_a_stopping_broker_hands_over_and_stops_to_follow() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [2, 1], 1: [1, 2]})
        await create(cluster, {0: [2]}, "single")
        follows = TopicPartition("t", 1)
        epoch = cluster[2].controller.broker_epoch
        with pytest.raises(errors.StaleBrokerEpochError):
            await cluster.active.controller.controlled_shutdown(2, epoch - 1)
        assert await cluster.active.controller.controlled_shutdown(2, epoch) == set()
        await cluster.settled()
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (1, (1,))
        assert (cluster.state(follows).leader, cluster.state(follows).isr) == (1, (1,))
        assert (follows, False) in cluster[2].host.stopped
        assert follows not in cluster[2].host.hosted
        assert cluster[2].host.leads(TopicPartition("single", 0))
        # It still hears of other changes, and counts as alive until it is gone.
        await create(cluster, {0: [0]}, "later")
        assert cluster[2].host.cache.topic("later") is not None
        assert 2 in cluster[0].host.cache.snapshot.brokers
        await cluster.kill(2)
        assert cluster.context.shutting_down_brokers == set()
        await cluster.restart(2)
        assert all(map(cluster.context.is_eligible, (0, 1, 2)))

    run_several(test)


def test_a_stopping_controller_has_told_the_others_when_it_ends() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        cluster[2].host.reachable = False
        stopping = asyncio.create_task(cluster[0].controller.controlled_shutdown(0, cluster[0].controller.broker_epoch))
        await until(lambda: cluster[1].host.leads(T0), "broker 1 leads")
        assert not stopping.done()
        cluster[2].host.reachable = True
        assert await stopping == set()
        assert cluster[2].host.cache.partition(*T0).leader == 1

    run_several(test)


def test_the_last_replica_in_sync_stays_the_leader_while_it_stops() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [2, 1]})
        await cluster.alter_isr(T0, (2,))
        remaining = await cluster.active.controller.controlled_shutdown(2, cluster[2].controller.broker_epoch)
        assert remaining == {T0}
        assert cluster.state(T0).leader == 2

    run_several(test)


# --- deletion, growth -------------------------------------------------------------------------------------------------


def test_a_deletion_waits_for_the_brokers_that_are_away() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1, 2], 1: [1, 2, 0]})
        await cluster.kill(2)
        outcome = await cluster.active.admin.delete_topics(["t"], timeout_ms=20)
        assert outcome["t"].code is ErrorCode.REQUEST_TIMED_OUT
        assert cluster[1].host.cache.topic("t") is None
        assert cluster[2].host.logs == {T0, TopicPartition("t", 1)}
        again = await cluster.active.admin.create_topics([NewTopic("t", 1, 1)])
        assert again["t"].code is ErrorCode.TOPIC_ALREADY_EXISTS
        await cluster.restart(2)
        await until_not(lambda: cluster.active.store.children("/brokers/topics"), "the topic is gone")
        await cluster.settled()
        assert not any(member.host.logs or member.host.hosted for member in cluster.members.values())
        assert await cluster.active.store.children("/admin/delete_topics") == []
        await create(cluster, {0: [2, 0]})

    run_several(test)


def test_a_broker_that_dies_in_the_middle_of_a_deletion_finishes_it_later() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2]})
        cluster[2].host.reachable = False
        await cluster.active.admin.delete_topics(["t"], timeout_ms=20)
        await cluster[2].stop()
        await until(lambda: 2 not in cluster.context.live_brokers, "broker 2 is gone")
        await cluster.settled()
        assert cluster.context.topics_deletion_ineligible == {"t"}
        await cluster.restart(2)
        await until_not(lambda: cluster.active.store.children("/brokers/topics"), "the topic is gone")
        assert not cluster[2].host.logs

    run_several(test)


def test_partitions_that_a_tool_adds_come_online() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1]})
        data, stat = await cluster[1].store.get(topic_path("t"))
        topic = decode_topic("t", data)
        more = TopicAssignment(topic.topic_id, {**topic.partitions, 1: topic.partitions[0]._replace(replicas=(2, 1))})
        await cluster[1].store.set(topic_path("t"), encode_topic(more), stat.version)
        await until(lambda: TopicPartition("t", 1) in cluster.context.leadership, "the partition has a leader")
        await cluster.settled()
        assert cluster[2].host.leads(TopicPartition("t", 1))
        outcome = await cluster.active.admin.create_partitions([NewPartitions("t", 3, [[1, 0]])])
        assert outcome == {"t": None}
        assert cluster[1].host.leads(TopicPartition("t", 2))

    run_several(test)


def test_partitions_that_a_tool_adds_to_a_topic_in_deletion_are_undone() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 2]})
        await cluster.kill(2)
        await cluster.active.admin.delete_topics(["t"], timeout_ms=20)
        data, stat = await cluster[1].store.get(topic_path("t"))
        topic = decode_topic("t", data)
        more = TopicAssignment(topic.topic_id, {**topic.partitions, 1: topic.partitions[0]})
        await cluster[1].store.set(topic_path("t"), encode_topic(more), stat.version)

        async def undone() -> bool:
            return list(decode_topic("t", (await cluster[1].store.get(topic_path("t")))[0]).partitions) == [0]

        await until(undone, "the added partition is gone")

    run_several(test)


# --- log directories, endpoints ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [1, 2], ids=["leader", "follower"])
def test_a_failed_log_directory_takes_its_replicas_out(failing: int) -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [1, 2], 1: [1, 2]})
        other = TopicPartition("t", 1)
        healthy = cluster.state(other)
        cluster[failing].host.failed.add(T0)
        event = f'{{"version":1,"broker":{failing},"event":1}}'.encode()
        await cluster[failing].store.create("/log_dir_event_notification/log_dir_event_", event, sequential=True)
        left = 3 - failing
        await until(lambda: cluster.state(T0).isr == (left,), "the replica is out of the ISR")
        await cluster.settled()
        assert cluster.state(T0).leader == left
        assert cluster.state(other) == healthy
        assert cluster[0].host.cache.partition(*T0).offline_replicas == (failing,)
        assert await cluster[0].store.children("/log_dir_event_notification") == []
        # A directory that works again after a restart.
        await cluster.kill(failing)
        cluster[failing].host.failed.clear()
        await cluster.restart(failing)
        assert cluster[0].host.cache.partition(*T0).offline_replicas == ()
        await cluster.catch_up(T0, failing)

    run_several(test)


def test_other_endpoints_of_a_broker_reach_all_caches() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        text, stat = await cluster[1].store.get("/brokers/ids/1")
        await cluster[1].store.set("/brokers/ids/1", text.replace(b"//h:", b"//elsewhere:"), stat.version)

        def known() -> bool:
            found = [each.host.cache.endpoint(1, "PLAINTEXT") for each in cluster.members.values()]
            return [each.host for each in found if each is not None] == ["elsewhere"] * 3

        await until(known, "all brokers know the new address")
        assert cluster.context.live_brokers[1].epoch == cluster[1].controller.broker_epoch

    run_several(test)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_roles_come_before_metadata_and_stops_come_last() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        before = {member.id: len(member.host.requests) for member in cluster.members.values()}
        await create(cluster, {0: [1, 2]})
        await cluster.active.controller.controlled_shutdown(2, cluster[2].controller.broker_epoch)
        await cluster.settled()
        sent = [type(each) for each in cluster[2].host.requests[before[2] :]]
        assert sent == [LeaderAndIsr, UpdateMetadata, StopReplica, UpdateMetadata, StopReplica]
        assert {type(each) for each in cluster[0].host.requests[before[0] :]} == {UpdateMetadata}

    run_several(test)


def test_an_unreachable_broker_gets_all_requests_in_order_when_it_is_back() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        cluster[2].host.reachable = False
        await create(cluster, {0: [1, 2]})
        await create(cluster, {0: [2, 1]}, "u")
        await cluster.alter_isr(T0, (1,))
        assert cluster[2].host.hosted == {}
        cluster[2].host.reachable = True
        await cluster.settled()
        assert set(cluster[2].host.hosted) == {T0, TopicPartition("u", 0)}
        assert cluster[2].host.cache.partition(*T0).isr == (1,)

    run_several(test)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_the_states_of_the_controller_have_the_numbers_of_apache_kafka() -> None:
    """Source: kafka.controller.ControllerState; 0 is Idle, 12 its own shutdown, which is no event here."""
    assert {(each.value, each.name) for each in STATES.values()} == {
        (1, "ControllerChange"),
        (2, "LeaderElection"),
        (3, "TopicChange"),
        (4, "TopicDeletion"),
        (5, "PartitionReassignment"),
        (6, "AutoLeaderBalance"),
        (7, "ManualLeaderBalance"),
        (8, "ControlledShutdown"),
        (9, "IsrChange"),
        (10, "LeaderAndIsrResponseReceived"),
        (11, "LogDirChange"),
        (13, "UncleanLeaderElectionEnable"),
        (14, "TopicUncleanLeaderElectionEnable"),
        (15, "ListPartitionReassignment"),
    }
    assert IDLE == 0


def test_numbers_of_the_controller() -> None:
    async def test(cluster: SeveralBrokers) -> None:
        controller = cluster.active.controller
        await create(cluster, {0: [1, 2], 1: [2, 1]})
        assert controller.numbers() == ControllerNumbers(active_brokers=3)
        assert controller.stats.counts["TopicChange"] >= 1
        await cluster.kill(1)
        assert controller.numbers() == ControllerNumbers(active_brokers=2, preferred_replica_imbalance=1)
        await cluster.active.admin.delete_topics(["t"], timeout_ms=20)
        await cluster.settled()
        # The replicas of the live broker are gone.
        assert controller.numbers() == ControllerNumbers(
            2,
            topics_to_delete=1,
            replicas_to_delete=2,
            ineligible_topics_to_delete=1,
            ineligible_replicas_to_delete=2,
        )
        assert controller.stats.counts["LeaderElection"] >= 3
        assert controller.stats.counts["TopicDeletion"] >= 1
        assert controller.stats.unclean_elections == 0
        assert cluster[2].controller.numbers() == ControllerNumbers()

    run_several(test)
