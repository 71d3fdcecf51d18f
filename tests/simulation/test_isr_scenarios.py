"""Scenarios of Kafka's history about the ISR and the controller; the numbers are those of the reference's list."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.broker import SimulatedBroker
from simulation.cluster import Acknowledged, SimulatedCluster, simulate

from kafkapy.controller.events.alter_partition import IsrChange
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.metadata.broker_requests import LeaderAndIsr, StopReplica, StopReplicaPartition
from kafkapy.metadata.store import MetadataStoreError
from kafkapy.metadata.znodes import PartitionState
from kafkapy.protocol.messages.alter_partition import AlterPartitionResponse
from kafkapy.protocol.messages.stop_replica import StopReplicaRequest
from kafkapy.types import TopicPartition

TP = TopicPartition("t", 0)


async def on(broker: SimulatedBroker, work: Any) -> Any:
    """Run a call of a broker in its life."""
    return await broker.loop.create_task(work, context=broker.context)


async def alter(cluster: SimulatedCluster, isr: tuple[int, ...], **fields: Any) -> PartitionState | ErrorCode:
    """What the controller says to the leader's wish."""
    state, leader, controller = cluster.state(), cluster.leader(), cluster.controller
    assert state is not None and leader is not None and controller is not None
    change = IsrChange(
        **{
            "topic": "t",
            "partition": 0,
            "leader_epoch": state.leader_epoch,
            "isr": isr,
            "partition_epoch": state.version,
            **fields,
        }
    )
    call = controller.controller.alter_partitions(leader.id, leader.controller.broker_epoch, [change])
    (answer,) = (await on(controller, call)).values()
    return answer


def test_6_a_follower_below_the_epoch_start_stays_out_of_the_isr() -> None:
    """KAFKA-7128: its end is at the high watermark of the new leader, and yet below what may be committed."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create("t", [(0, 1, 2)])
        await cluster.produce(b"all")
        cluster.network.isolate(2)
        for number in range(3):
            await cluster.produce(b"two have it %d" % number, timeout_s=30)
        assert cluster.in_sync(0, 1)
        leader = cluster[0].log()
        assert leader is not None
        joins: list[int] = []
        change = cluster[0].isr._change

        def watched(partition: Any, isr: tuple[int, ...], joining: int | None = None) -> None:
            if joining is not None:
                joins.append(next(end for id_, end, *_ in leader.followers() if id_ == joining))
            change(partition, isr, joining)

        cluster[0].isr._change = watched  # type: ignore[method-assign]
        cluster.network.heal()
        await cluster.until(lambda: cluster.in_sync(0, 1, 2), "broker 2 is in", 30)
        assert joins and min(joins) >= 4
        await cluster.repair()

    simulate(scenario)


def test_8_a_follower_at_the_end_of_an_idle_topic_stays_in() -> None:
    """KAFKA-7152: no fetch for long, and nothing to fetch."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        await cluster.sleep(1)
        cluster.network.isolate(2)
        await cluster.sleep(60)
        assert cluster.in_sync(0, 1, 2)
        await cluster.repair()

    simulate(scenario)


def test_12_a_read_error_moves_no_follower() -> None:
    """KAFKA-8400: the leader cannot read for a follower; neither the follower's state nor the high watermark moves."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        log = cluster[0].log()
        assert log is not None
        before = {id_: end for id_, end, *_ in log.followers()}
        log.go_offline(5)
        await cluster.until(lambda: cluster.leader() not in (None, cluster[0]), "another leader", 30)
        assert {id_: end for id_, end, *_ in log.followers()} in (before, {})
        assert log.high_watermark <= 1
        await cluster.produce(b"elsewhere")
        cluster[0].crash()
        await cluster.repair()

    simulate(scenario)


def test_16_a_log_that_could_not_be_written_is_fenced() -> None:
    """KAFKA-10778: the directory has failed; no later append succeeds, and others lead."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        log = cluster[0].log()
        assert log is not None
        log.go_offline(28)
        cluster[0].log_manager.table.fail_dir(cluster[0].log_manager.dirs[0].path, OSError(28, "no space"))
        for _ in range(2):
            with pytest.raises(KafkaError):
                await cluster.produce(b"refused", to=0)
        await cluster.until(lambda: cluster.leader() not in (None, cluster[0]), "another leader", 30)
        await cluster.produce(b"elsewhere")
        cluster[0].crash()
        await cluster.repair()

    simulate(scenario)


def test_17_a_kill_during_the_recovery_repeats_it() -> None:
    """KAFKA-10471, KAFKA-12520: the clean-shutdown file is gone, and the second start recovers again."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        for number in range(3):
            await cluster.produce(b"record %d" % number)
        for _ in range(3):
            cluster[2].crash()
            start = cluster.loop.create_task(cluster.restart(2))
            await cluster.sleep(0.05)
            if cluster[2].alive and not cluster[2].ready:
                cluster[2].crash()
            start.cancel()
        await cluster.repair()

    simulate(scenario)


def test_18_a_committed_shrink_moves_the_high_watermark() -> None:
    """KAFKA-13091: the producer is answered when the dead member has left, without another fetch."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        cluster.network.isolate(2)
        sent = cluster.loop.create_task(cluster.produce(b"two", timeout_s=60))
        await cluster.until(lambda: cluster.in_sync(0, 1), "the ISR shrinks", 20)
        await cluster.until(sent.done, "the producer is answered", 1)
        assert isinstance(sent.result(), Acknowledged)
        await cluster.repair()

    simulate(scenario)


def test_19_a_follower_that_stops_is_not_let_in() -> None:
    """KAFKA-14140, KAFKA-13916: INELIGIBLE_REPLICA, and the leader goes on with what was committed."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        controller = cluster.controller
        assert controller is not None
        await on(controller, controller.controller.controlled_shutdown(2, cluster[2].controller.broker_epoch))
        await cluster.until(lambda: cluster.in_sync(0, 1), "broker 2 is out", 20)
        assert await alter(cluster, (0, 1, 2)) is ErrorCode.INELIGIBLE_REPLICA
        await cluster.produce(b"two")
        await cluster.sleep(5)
        assert cluster.in_sync(0, 1)
        cluster[2].crash()
        await cluster.until(lambda: 2 not in controller.controller.context.live_brokers, "broker 2 is gone", 20)
        assert await alter(cluster, (0, 1, 2)) is ErrorCode.INELIGIBLE_REPLICA
        await cluster.repair()

    simulate(scenario)


def test_20_a_lost_answer_of_alter_partition_is_asked_for_again() -> None:
    """KAFKA-14144: the same state comes back, and no loop of INVALID_UPDATE_VERSION."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        lost: list[object] = []

        def drop(source: int, target: int, message: object) -> bool:
            if isinstance(message, AlterPartitionResponse) and len(lost) < 2:
                lost.append(message)
                return True
            return False

        cluster.network.drop = drop
        cluster.network.isolate(2)
        cluster.loop.create_task(_quiet(cluster.produce(b"two", timeout_s=60)))
        await cluster.until(lambda: cluster.in_sync(0, 1), "the ISR shrinks", 40)
        assert len(lost) == 2
        version = cluster.state().version
        again = await alter(cluster, (0, 1), partition_epoch=version - 1)
        assert isinstance(again, PartitionState) and again.version == version
        await cluster.repair()

    simulate(scenario)


async def _quiet(work: Any) -> None:
    try:
        await work
    except KafkaError:
        return


def test_21_a_reboot_with_an_empty_log_leaves_the_isr() -> None:
    """KAFKA-14617: the broker is back before anything else happens, without its records."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        for number in range(5):
            await cluster.produce(b"record %d" % number)
        cluster[2].lost_disk = True
        cluster.lose_disk(2)
        await cluster.restart(2)
        assert 2 not in cluster.state().isr or cluster[2].log().log_end_offset == 5
        await cluster.repair()

    simulate(scenario)


def test_22_requests_for_a_former_life_are_refused() -> None:
    """KAFKA-7235: STALE_BROKER_EPOCH for a queued StopReplica."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        old = cluster[2].controller.broker_epoch
        cluster[2].crash()
        await cluster.restart(2)
        await cluster.until(lambda: cluster.in_sync(0, 1, 2), "broker 2 is back", 30)
        controller = cluster.controller
        assert controller is not None
        state = StopReplicaRequest.TopicState(
            topic_name="t",
            partition_states=[
                StopReplicaRequest.TopicState.PartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
            ],
        )
        request = StopReplicaRequest(
            controller_id=controller.id,
            controller_epoch=controller.controller.epoch,
            broker_epoch=old,
            topic_states=[state],
        )
        answer = await cluster.network.call(controller.id, 2, request, 4, 5)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert cluster[2].log().log_end_offset == 1
        await cluster.repair()

    simulate(scenario)


def test_23_a_late_stop_replica_deletes_nothing() -> None:
    """KAFKA-9539: FENCED_LEADER_EPOCH after new leadership; the data stays."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        cluster[0].crash()
        await cluster.until(lambda: cluster.leader() not in (None, cluster[0]), "another leader", 30)
        leader = cluster.leader()
        assert leader is not None
        request = StopReplica(0, 1 << 20, leader.controller.broker_epoch, {TP: StopReplicaPartition(0, True)})
        answer = await on(leader, leader.replicas.stop_replicas(request))
        assert answer.partition_errors == {TP: ErrorCode.FENCED_LEADER_EPOCH}
        assert leader.log().log_end_offset == 1
        leader.replicas._controller_epoch = 1
        await cluster.repair()

    simulate(scenario)


def test_24_a_zombie_controller_changes_nothing() -> None:
    """KAFKA-6082, KAFKA-1188: its writes fail by the epoch, and brokers answer STALE_CONTROLLER_EPOCH."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        zombie = cluster.controller
        assert zombie is not None
        stale = zombie.controller.current.store
        zombie.store.lose_connection()
        await cluster.until(
            lambda: any(each.controller.is_active for each in cluster.alive if each is not zombie), "another one", 30
        )
        before = cluster.state()
        assert before is not None and zombie.controller.is_active
        zombie.store.cut = False
        with pytest.raises(MetadataStoreError):
            await on(zombie, stale.update_partition_states({TP: before._replace(leader=2)}))
        assert cluster.state() == before
        zombie.store.cut = True
        other = next(each for each in cluster.alive if each is not zombie)
        request = LeaderAndIsr(zombie.id, 1, other.controller.broker_epoch, {}, {}, {})
        answer = await on(other, other.replicas.become_leader_or_follower(request))
        assert answer.error is ErrorCode.STALE_CONTROLLER_EPOCH
        await cluster.repair()

    simulate(scenario)


def test_25_a_shrink_during_a_reassignment() -> None:
    """KAFKA-9672, KAFKA-9212: the reassignment completes, and the ISR holds none that was removed."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create("t", [(0, 1, 2)])
        for number in range(3):
            await cluster.produce(b"record %d" % number)
        controller = cluster.controller
        assert controller is not None
        cluster[2].crash()
        outcome = await on(controller, controller.controller.alter_reassignments({TP: [3, 0, 1]}))
        assert outcome == {TP: None}
        cluster.loop.create_task(_quiet(cluster.produce(b"meanwhile", timeout_s=60)))
        await cluster.until(lambda: set(cluster.replicas()) == {3, 0, 1} and cluster.in_sync(0, 1, 3), "it moves", 60)
        await cluster.restart(2)
        await cluster.repair()
        assert TP not in cluster[2].replicas.partitions
        assert set(cluster.state().isr) == {0, 1, 3}

    simulate(scenario, brokers=4)


def test_30_a_missing_high_watermark_checkpoint_cuts_nothing() -> None:
    """KAFKA-2143, KAFKA-8333, KAFKA-1647: the high watermark is 0 after the restart, and the leader is away."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create("t", [(0, 1)])
        for number in range(5):
            await cluster.produce(b"record %d" % number)
        for broker in (1, 0):
            cluster[broker].crash()
            (cluster[broker].directory / "replication-offset-checkpoint").unlink(missing_ok=True)
        await cluster.restart(1)
        await cluster.until(lambda: cluster.leader() is cluster[1], "broker 1 leads", 30)
        log = cluster[1].log()
        assert log is not None and log.log_end_offset == 5
        await cluster.repair()

    simulate(scenario, min_insync_replicas="1")


def test_35_the_unclean_flag_takes_effect_at_once() -> None:
    """KAFKA-6526, KAFKA-6835, KAFKA-7976: switched on for an offline partition."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.checks.allows_loss = True
        await cluster.create("t", [(0, 1)])
        await cluster.produce(b"both")
        cluster[1].crash()
        await cluster.until(lambda: cluster.in_sync(0), "broker 1 is out", 30)
        await cluster.produce(b"only 0", acks=1)
        cluster[0].crash()
        await cluster.restart(1)
        await cluster.until(lambda: cluster.controller is not None, "a controller", 30)
        await cluster.sleep(5)
        assert cluster.leader() is None
        await on(
            cluster[2],
            cluster[2].configs.change("topics", "t", lambda known: {**known, "unclean.leader.election.enable": "true"}),
        )
        await cluster.until(lambda: cluster.leader() is cluster[1], "an unclean election", 2)
        await cluster.restart(0)
        await cluster.repair()

    simulate(scenario, min_insync_replicas="1")


def test_38_the_last_replica_loses_its_tail() -> None:
    """KIP-966 without eligible leader replicas: the documented loss, and equal logs afterwards."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.checks.allows_loss = True
        await cluster.create()
        for number in range(5):
            await cluster.produce(b"record %d" % number)
        cluster[1].crash()
        cluster[2].crash()
        await cluster.until(lambda: cluster.in_sync(0), "the ISR is broker 0", 60)
        with pytest.raises(KafkaError) as refused:
            await cluster.produce(b"too few")
        assert code_of(refused.value) is ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.lose_disk(0)
        await cluster.restart(1, 2)
        await cluster.sleep(10)
        assert cluster.leader() is None, "only the last member of the ISR may lead"
        await cluster.restart(0)
        await cluster.repair()

    simulate(scenario)
