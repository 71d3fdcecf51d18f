"""Scenarios of Kafka's history about truncation and leader epochs; the numbers are those of the reference's list."""

from __future__ import annotations

import struct
from unittest import mock

import pytest
from simulation.broker import SimulatedFetcher
from simulation.cluster import SimulatedCluster, batch, simulate

from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.metadata.metadata_version import MetadataVersion
from kafkapy.types import TopicPartition

TP = TopicPartition("t", 0)
UNCLEAN = {"unclean.leader.election.enable": "true"}


async def led_by(cluster: SimulatedCluster, broker: int) -> None:
    """Return when a broker leads."""
    await cluster.until(lambda: cluster.leader() is cluster[broker], f"broker {broker} leads")


async def elect(cluster: SimulatedCluster) -> None:
    """The preferred leader leads again."""
    assert cluster.controller is not None
    task = cluster.loop.create_task(
        cluster.controller.controller.elect_leaders([TP], unclean=False), context=cluster.controller.context
    )
    await task


def drop_followers(cluster: SimulatedCluster, *followers: int) -> None:
    """The leader's answers to Fetches of these followers are lost; everything else arrives."""
    cluster.network.drop = lambda source, target, message: target in followers and isinstance(message, bytes)


def test_1_a_follower_that_restarts_does_not_cut_to_its_old_high_watermark() -> None:
    """KIP-101: the follower has the record, not yet the high watermark, and its leader dies at once."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create("t", [(0, 1)])
        await cluster.produce(b"first")
        sent = await cluster.produce(b"second")
        follower = cluster[1].log()
        assert follower is not None and follower.log_end_offset == sent.offset + 1
        cluster[1].crash()
        cluster[0].crash()
        cluster.loop.create_task(cluster.restart(1))
        await led_by(cluster, 1)
        assert cluster[1].log().log_end_offset == sent.offset + 1
        await cluster.repair()

    simulate(scenario, min_insync_replicas="1")


def test_2_a_leader_that_lost_power_is_cut_where_the_logs_diverge() -> None:
    """KIP-101: both lose power; the follower comes back first and writes, then the old leader comes."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.checks.allows_loss = True
        await cluster.create("t", [(0, 1)], UNCLEAN)
        await cluster.produce(b"both")
        cluster.network.isolate(0)
        for number in range(5):
            with pytest.raises(KafkaError):
                await cluster.produce(b"only 0: %d" % number, to=0, timeout_s=0.1)
        cluster[0].crash()
        cluster[1].crash()
        cluster.network.heal()
        await cluster.restart(1)
        await led_by(cluster, 1)
        await cluster.produce(b"only 1", acks=1)
        await cluster.restart(0)
        await cluster.repair()
        assert cluster[0].log().log_end_offset == 2

    simulate(scenario, min_insync_replicas="1")


@pytest.mark.parametrize("version", ["3.9", "2.6"])
def test_3_two_fast_unclean_failovers_leave_equal_logs(version: str) -> None:
    """KAFKA-6361: epochs that the other side does not know; several rounds of questions."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.checks.allows_loss = True
        await cluster.create("t", [(0, 1)], UNCLEAN)
        await cluster.produce(b"both")
        for round_ in range(3):
            for alone in (0, 1):
                other = 1 - alone
                cluster[other].crash()
                if not cluster[alone].alive:
                    await cluster.restart(alone)
                await led_by(cluster, alone)
                for number in range(round_ + 1 + alone):
                    await cluster.produce(b"round %d, broker %d, %d" % (round_, alone, number), acks=1)
                cluster[alone].crash()
        await cluster.repair()

    simulate(scenario, version=MetadataVersion.parse(version), min_insync_replicas="1")


def test_4_a_partitioned_old_leader_fences_those_who_know_more() -> None:
    """KAFKA-7395: fetches with an epoch get FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        cluster.network.isolate(0)
        cluster[0].store.lose_connection()
        await cluster.until(lambda: cluster.state().leader == 1, "broker 1 is elected")
        await led_by(cluster, 1)
        await cluster.produce(b"new leader", to=1)
        old, new = cluster[0].log(), cluster[1].log()
        assert old.is_leader and old.leader_epoch < new.leader_epoch
        for broker, epoch, expected in (
            (0, new.leader_epoch, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (1, old.leader_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        ):
            with pytest.raises(KafkaError) as refused:
                cluster[broker].replicas.end_offset_for_leader_epoch(TP, 0, current_leader_epoch=epoch)
            assert code_of(refused.value) is expected
        with pytest.raises(KafkaError):
            await cluster.produce(b"to the old one", to=0)
        assert old.high_watermark == 1
        await cluster.repair()

    simulate(scenario)


def test_5_an_epoch_without_a_record_is_known() -> None:
    """KAFKA-7415: elected, no append, elected elsewhere, and back."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        sent = [await cluster.produce(b"record %d" % number) for number in range(3)]
        for leader in (0, 1, 0):
            cluster[leader].crash()
            await cluster.until(lambda leader=leader: cluster.leader() not in (None, cluster[leader]), "another leader")
            found = cluster.leader().log()
            assert found.leader_epochs()[-1] == (found.leader_epoch, len(sent))
            await cluster.restart(leader)
            await cluster.repair()
        assert cluster.leader().log().log_end_offset == len(sent)

    simulate(scenario)


def test_7_a_leader_epoch_that_jumps_while_a_fetch_is_in_flight() -> None:
    """KAFKA-7164: the answer of the old epoch is dropped, and the log is cut for the new one."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        cluster.network.delay_s = 0.2
        for number in range(4):
            cluster.loop.create_task(_quiet(cluster.produce(b"late %d" % number, to=0)))
        await cluster.sleep(0.1)
        for _ in range(3):
            await cluster.until(lambda: cluster.leader() is not None, "a leader")
            store = cluster.leader().store
            store.lose_connection()
            await store.expire()
            await cluster.sleep(0.5)
            store.restore_connection()
        cluster.network.delay_s = 0.001
        await cluster.repair()
        assert cluster.state().leader_epoch >= 2

    simulate(scenario)


async def _quiet(work: object) -> None:
    try:
        await work  # type: ignore[misc]
    except KafkaError:
        return


def test_9_a_leader_that_has_less_is_not_fatal() -> None:
    """KAFKA-7414: the fetch offset is out of range while the leader's end is below ours: the follower is cut."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.checks.allows_loss = True
        await cluster.create()
        for number in range(5):
            await cluster.produce(b"record %d" % number)
        for broker in (1, 2):
            cluster[broker].crash()
        cluster.lose_disk(0)
        await cluster.until(lambda: cluster.state().leader == -1 or not cluster[0].alive, "no leader")
        await cluster.restart(0)
        await cluster.until(lambda: cluster.leader() is not None, "the empty broker leads")
        await cluster.produce(b"new", acks=1)
        await cluster.restart(1, 2)
        await cluster.repair()
        assert {cluster[each].log().log_end_offset for each in (0, 1, 2)} == {cluster.leader().log().log_end_offset}
        assert not any(cluster[each].replicas.failed_followers for each in (0, 1, 2))

    simulate(scenario, min_insync_replicas="1", unclean_leader_election_enable="true")


def test_10_a_log_start_within_a_batch() -> None:
    """KAFKA-6975: DeleteRecords into the middle of a batch; a new follower begins at the batch's base offset."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"a batch", records=10)
        await cluster.produce(b"another", records=10)
        cluster.lose_disk(2)
        cluster[2].lost_disk = True
        await cluster.until(lambda: cluster.in_sync(0, 1), "broker 2 is out")
        await cluster[0].replicas.delete_records(TP, 5)
        await cluster.restart(2)
        await cluster.repair()
        assert cluster[2].log().log_start_offset == 5
        assert cluster[2].log().log_end_offset == 20

    simulate(scenario)


def test_11_a_partition_that_goes_while_it_is_cut() -> None:
    """KAFKA-8012, KAFKA-13207: the topic is deleted in the middle of a truncation; the thread lives."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.checks.allows_loss = True
        await cluster.create("u", [(0, 1)])
        await cluster.create("t", [(0, 1)], UNCLEAN)
        cluster.network.isolate(0)
        for number in range(3):
            await _quiet(cluster.produce(b"%d" % number, acks=1))
        cluster[0].store.lose_connection()
        await cluster.until(lambda: cluster.state().leader == 1, "broker 1 leads")
        cluster.network.heal()
        cluster[0].store.restore_connection()
        await cluster.until(lambda: cluster.controller is not None, "a controller")
        controller = cluster.controller
        cluster.loop.create_task(controller.admin.delete_topics(["t"], timeout_ms=5000), context=controller.context)
        cluster.checks.partitions.remove(TP)
        await cluster.until(lambda: all(cluster[each].log() is None for each in (0, 1)), "the topic is gone", 20)
        await cluster.produce(b"goes on", topic="u")
        await cluster.repair()

    simulate(scenario, min_insync_replicas="1")


def test_13_truncation_comes_before_the_high_watermark() -> None:
    """KAFKA-9491, KAFKA-14704: never a high watermark above the log end, neither after a full truncation."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        for number in range(3):
            await cluster.produce(b"record %d" % number)
        cluster.network.isolate(0)
        for number in range(5):
            await _quiet(cluster.produce(b"uncommitted %d" % number, to=0, timeout_s=0.05))
        cluster[0].store.lose_connection()
        await cluster.until(lambda: cluster.state().leader == 1, "broker 1 leads")
        await led_by(cluster, 1)
        await cluster.produce(b"committed", to=1)
        bad = []
        look = cluster.checks.look

        def watch() -> None:
            look()
            for broker in cluster.brokers.values():
                log = broker.log()
                if log is not None and log.high_watermark > log.log_end_offset:
                    bad.append(cluster.describe())

        cluster.checks.look = watch  # type: ignore[method-assign]
        await cluster.repair()
        assert not bad
        assert cluster[0].log().log_end_offset == 4

    simulate(scenario)


def test_14_truncation_to_the_log_end_cleans_the_epochs() -> None:
    """KAFKA-10706, KAFKA-12153: an epoch that begins at the end goes, and the next records have their leader's."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        for _ in range(2):
            # The elected leader dies before a record; its epoch stands at its log's end.
            leader = cluster.leader()
            leader.crash()
            await cluster.until(lambda leader=leader: cluster.leader() not in (None, leader), "another leader")
            await cluster.restart(leader.id)
            await cluster.repair()
        await cluster.produce(b"next")
        await cluster.repair()
        for broker in (0, 1, 2):
            assert cluster[broker].log().producers() == cluster.leader().log().producers()

    simulate(scenario)


def test_15_both_truncation_styles_in_one_cluster() -> None:
    """KAFKA-10554: a roll of the protocol version from 2.6 to 2.7 under load."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        for broker in (0, 1, 2):
            await cluster.produce(b"before %d" % broker, timeout_s=30)
            cluster[broker].crash()
            await cluster.until(lambda broker=broker: cluster.leader() not in (None, cluster[broker]), "a leader")
            await cluster.produce(b"between %d" % broker, timeout_s=30)
            cluster.version = MetadataVersion.parse("2.7")
            await cluster.restart(broker)
            await cluster.until(lambda: cluster.in_sync(0, 1, 2), "all are in sync")
        await cluster.repair()

    simulate(scenario, version=MetadataVersion.parse("2.6"))


def test_36_truncation_into_an_empty_active_segment() -> None:
    """KAFKA-6492: the log was rolled, and nothing was appended since."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        cluster.network.isolate(0)
        for number in range(3):
            await _quiet(cluster.produce(b"uncommitted %d" % number, to=0, timeout_s=0.05))
        cluster[0].log().roll()
        cluster[0].store.lose_connection()
        await cluster.until(lambda: cluster.state().leader == 1, "broker 1 leads")
        await led_by(cluster, 1)
        await cluster.produce(b"committed", to=1)
        await cluster.repair()
        assert cluster[0].log().log_end_offset == 2

    simulate(scenario)


def test_37_batches_of_a_later_epoch_are_not_appended() -> None:
    """KAFKA-18723: the leader's log has a newer epoch than the one that the follower has asked with."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        tail = batch(b"later")[16:]
        taken = SimulatedFetcher.take_response
        changed = []

        def take_response(fetcher: SimulatedFetcher, frame: bytes, now_ns: int) -> bool:
            at = frame.find(tail)
            if at >= 0 and len(changed) < 3:
                (epoch,) = struct.unpack_from(">i", frame, at - 4)
                changed.append(epoch)
                frame = frame[: at - 4] + struct.pack(">i", epoch + 1) + frame[at:]
            return taken(fetcher, frame, now_ns)

        with mock.patch.object(SimulatedFetcher, "take_response", take_response):
            work = cluster.loop.create_task(cluster.produce(b"later", timeout_s=60))
            await cluster.until(lambda: changed, "a follower gets the batch")
            await cluster.sleep(0.1)
            assert {cluster[each].log().log_end_offset for each in (1, 2)} == {1}
            await cluster.until(lambda: len(changed) == 3, "the followers ask again")
            await work
        await cluster.repair()
        assert cluster[1].log().leader_epochs() == cluster[0].log().leader_epochs() == [(0, 0)]

    simulate(scenario)
