"""Scenarios of Kafka's history about logs and fetches between replicas; numbers as in the reference's list."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from simulation.broker import FETCH, Channel, SimulatedBroker
from simulation.checks import LOG_END
from simulation.cluster import SimulatedCluster, simulate
from simulation.disk import wipe
from simulation.schedules import Schedule

from kafkapy._speedups.records.memory_records import Record
from kafkapy.metadata.metadata_version import LATEST, MetadataVersion
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.records.legacy import build_message_set
from kafkapy.types import TopicPartition

TP = TopicPartition("t", 0)
NOW = 1_700_000_000_000


def requests_to(cluster: SimulatedCluster) -> list[tuple[int, FetchRequest]]:
    """The Fetch requests that brokers get from now on, with the leader's id."""
    seen: list[tuple[int, FetchRequest]] = []
    for broker in cluster.brokers.values():
        receive = broker.receive

        def watched(channel: Any, frame: bytes, replied: Any, broker: Any = broker, receive: Any = receive) -> None:
            api_key, version, _, client = struct.unpack_from(">hhih", frame, 4)
            if api_key == FETCH:
                seen.append((broker.id, FetchRequest.decode(frame[15 + max(client, 0) :], version)))
            receive(channel, frame, replied)

        broker.receive = watched  # type: ignore[method-assign]
    return seen


def test_26_old_messages_below_new_batches() -> None:
    """KAFKA-7897, KAFKA-7601: messages without an epoch are copied as they are, and the epochs begin behind them."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.until(cluster.whole, "the logs are there")
        for broker in (0, 1, 2):
            cluster[broker].crash()
        old = b"".join(_old_message(offset) for offset in range(3))
        for broker in (0, 1):
            (cluster[broker].directory / "t-0" / f"{0:020d}.log").write_bytes(old)
            (cluster[broker].directory / "t-0" / "leader-epoch-checkpoint").unlink(missing_ok=True)
        await cluster.restart(0, 1)
        await cluster.until(lambda: cluster.leader() is not None, "a leader", 30)
        await cluster.produce(b"new", timeout_s=60)
        wipe(cluster[2].directory)
        await cluster.repair()
        for broker in (0, 1, 2):
            log = cluster[broker].log()
            assert log is not None
            assert log.log_end_offset == 4
            assert next(start for _, start in log.leader_epochs()) == 3
            assert log.read(0, isolation=LOG_END, leader_only=False)[0].startswith(old)

    simulate(scenario)


def _old_message(offset: int) -> bytes:
    """A message of format 1 at an offset."""
    message = build_message_set([Record(offset, NOW, 0, None, b"old")], 1)
    return struct.pack(">q", offset) + message[8:]


@pytest.mark.parametrize("content", [b"", b"0\n1\n0", b"0\n9\n0 0\n", b"\0" * 20])
def test_27_an_epoch_file_that_is_half_written(content: bytes) -> None:
    """KAFKA-16541, KAFKA-10432: a crash during its write; also in epoch 0."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        for epoch in range(2):
            await cluster.produce(b"record of epoch %d" % epoch)
            leader = cluster.leader()
            assert leader is not None
            leader.crash()
            (leader.directory / "t-0" / "leader-epoch-checkpoint").write_bytes(content)
            await cluster.until(lambda leader=leader: cluster.leader() not in (None, leader), "another leader")
            await cluster.restart(leader.id)
            await cluster.repair()

    simulate(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_28_offsets_keep_their_order_while_logs_are_cut(seed: int) -> None:
    """KAFKA-9807, KAFKA-9835: append, read and truncation: log start, LSO, high watermark and end, always."""

    async def scenario(cluster: SimulatedCluster) -> None:
        look = cluster.checks.look

        def watched() -> None:
            look()
            for broker in cluster.brokers.values():
                log = broker.log() if broker.alive else None
                if log is not None and not log.offline_errno:
                    found = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
                    assert list(found) == sorted(found), found

        cluster.checks.look = watched  # type: ignore[method-assign]
        await Schedule(cluster).run()

    simulate(scenario, seed=seed)


def test_29_an_incremental_session_across_a_leader_change() -> None:
    """KAFKA-9338, KAFKA-7104: the session learns the new epoch; an idle follower hears of the high watermark."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create("t", [(0, 1, 2), (0, 1, 2)])
        seen = requests_to(cluster)
        await cluster.produce(b"all")
        await cluster.until(lambda: cluster[1].log().high_watermark == 1, "the high watermark arrives", 5)
        assert any(request.session_id and request.session_epoch > 0 for _, request in seen)
        cluster[2].crash()
        before = cluster.state().leader_epoch
        await cluster.until(lambda: cluster.state().leader_epoch > before, "the epoch rises", 20)
        seen.clear()
        await cluster.produce(b"next", timeout_s=30)
        await cluster.until(lambda: cluster[1].log().high_watermark == 2, "the high watermark arrives", 5)
        epoch = cluster[1].log().leader_epoch
        asked = [
            each.current_leader_epoch
            for _, request in seen
            for topic in request.topics
            for each in topic.partitions
            if each.partition == 0
        ]
        assert asked and asked[-1] == epoch
        await cluster.repair()

    simulate(scenario)


def test_31_retention_stops_at_the_high_watermark() -> None:
    """KAFKA-5634: segments that are not committed stay, however old and large."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create("t", configs={"retention.bytes": "1", "segment.bytes": "200"})
        for number in range(4):
            await cluster.produce(b"committed %d" % number)
        cluster.network.isolate(0)
        for number in range(8):
            await cluster.produce(b"uncommitted %d" % number, to=0, acks=1)
        log = cluster[0].log()
        assert log is not None
        await cluster.sleep(0.1)
        cluster[0].log_manager.tasks.apply_retention()
        assert 0 < log.log_start_offset <= log.high_watermark == 4
        assert log.log_end_offset == 12
        await cluster.repair()

    simulate(scenario)


def test_32_a_replica_outside_the_isr_is_not_named_for_reading() -> None:
    """KAFKA-14372, KAFKA-15390: the preferred read replica is a member of the ISR, and alive."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"all")
        cluster[0].plane.replica_selector = "asked"
        assert _candidates(cluster[0]) == {1, 2}
        cluster[2].crash()
        await cluster.until(lambda: cluster.in_sync(0, 1), "broker 2 is out", 30)
        await cluster.produce(b"two")
        assert _candidates(cluster[0]) == {1}
        cluster[0].plane.replica_selector = "leader"
        await cluster.repair()

    simulate(scenario)


def _candidates(broker: SimulatedBroker) -> set[int]:
    """The followers between which the leader's selector chooses."""
    topic = FetchRequest.Topic(topic="t", partitions=[FetchRequest.Topic.Partition(partition=0, fetch_offset=0)])
    request = FetchRequest(replica_id=-1, max_wait_ms=100, min_bytes=1, topics=[topic], rack_id="a rack")
    exchange = Channel(broker).driver.handle(FETCH, 12, 1, None, request.encode(12))
    assert exchange.asks_selection
    _, _, _, _, _, followers = exchange.replica_selection(0)
    exchange.cancel()
    return {replica for replica, _ in followers}


def test_33_a_topic_id_without_a_new_epoch() -> None:
    """KAFKA-13132: the brokers roll from a protocol version without topic ids; the id is adopted, Fetch 13 works."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create()
        await cluster.produce(b"before")
        cluster.version = LATEST
        for broker in (0, 1, 2):
            cluster[broker].crash()
            await cluster.restart(broker)
            await cluster.until(lambda: cluster.in_sync(0, 1, 2), "all are in sync", 60)
        await cluster.until(lambda: all(any(cluster[each].log().topic_id) for each in (0, 1, 2)), "the id", 30)
        assert len({cluster[each].log().topic_id for each in (0, 1, 2)}) == 1
        await cluster.produce(b"after", timeout_s=30)
        await cluster.repair()

    simulate(scenario, version=MetadataVersion.parse("2.7"))


def test_34_a_move_between_directories_ends_while_the_leader_changes() -> None:
    """KAFKA-9750: one log in the end, and its fetcher goes on."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.create("t", [(0, 1)])
        for number in range(5):
            await cluster.produce(b"record %d" % number)
        moved = cluster[1]
        manager = moved.log_manager
        moved.replicas._moves.add = lambda partition: None  # type: ignore[method-assign]
        here = manager.dir_of(TP)
        there = next(log_dir.path for log_dir in manager.dirs if log_dir.path != here)
        work = moved.replicas.log_dirs.alter({TP: str(there)})
        await cluster.loop.create_task(work, context=moved.context)
        cluster[0].crash()
        while manager.futures.is_moving(TP):
            manager.futures.advance(TP)
            await cluster.sleep(0.02)
            if manager.futures.is_moving(TP) and cluster.leader() is None:
                continue
        await cluster.until(lambda: cluster.leader() is moved, "broker 1 leads", 30)
        assert manager.dir_of(TP) == there
        await cluster.restart(0)
        await cluster.repair()
        await cluster.produce(b"after")
        await cluster.repair()

    simulate(scenario, min_insync_replicas="1", log_dirs="two")
