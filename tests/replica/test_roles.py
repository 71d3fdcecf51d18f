"""LeaderAndIsr at a broker: leaders and followers, what the fetchers are told, and which requests change nothing."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkapy.errors import ErrorCode, KafkaStorageError, NotLeaderOrFollowerError
from kafkapy.metadata.broker_requests import (
    LEADER_DURING_DELETE,
    BrokerResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
    UpdateMetadataPartition,
)
from kafkapy.metadata.znodes import CONFIG_TOPICS, PartitionState, config_path, encode_config
from kafkapy.replica.fetcher_api import FetchStart
from kafkapy.types import ZERO_UUID, TopicPartition, random_uuid

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.replica.partition import Partition

Runner = Callable[..., None]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = random_uuid()
EPOCH = 7
"""The epoch of a controller on another broker, later than that of the broker's own."""


class Fetchers:
    """Notes what ReplicaManager tells the fetchers."""

    def __init__(self) -> None:
        self.running: dict[TopicPartition, FetchStart] = {}
        self.configs: list[BrokerConfig] = []
        self.topics: list[str] = []
        """Those whose settings may have changed."""

    def add(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        for start in starts.values():
            assert (start.log.is_leader, start.log.leader_epoch) == (False, start.leader_epoch)
        self.running.update(starts)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self.running.pop(topic_partition, None)

    def update_topics(self, topics: Iterable[str]) -> None:
        assert not isinstance(topics, str)
        self.topics.extend(topics)

    def update_config(self, config: BrokerConfig) -> None:
        self.configs.append(config)

    async def close(self) -> None:
        self.running.clear()

    def leaders(self) -> dict[TopicPartition, tuple[int, int]]:
        return {partition: (start.leader_id, start.leader_epoch) for partition, start in self.running.items()}


def fetchers_of(broker: Any) -> Fetchers:
    broker.replicas.fetchers = fetchers = Fetchers()
    return fetchers


class Heard:
    """Notes what ReplicaManager tells the IsrManager and the listeners of leadership."""

    def __init__(self, broker: Any) -> None:
        self.isr: list[tuple[TopicPartition, int, bool]] = []
        """Partition, leader epoch, whether this broker leads it."""
        self.forgotten: list[TopicPartition] = []
        self.listened: list[tuple[TopicPartition, int, bool]] = []
        broker.replicas.isr = self
        broker.replicas.leadership_listeners.append(lambda *change: self.listened.append(change))

    def leadership_changed(self, partition: Partition, log: PartitionLog) -> None:
        assert partition.log is log
        self.isr.append((partition.topic_partition, partition.leader_epoch, partition.is_leader))

    def forget(self, partition: Partition, log: PartitionLog) -> None:
        assert partition.log is log
        self.forgotten.append(partition.topic_partition)


async def change(
    broker: Any,
    leader: int,
    leader_epoch: int,
    *partitions: TopicPartition,
    topic_id: Any = ID,
    replicas: tuple[int, ...] = (0, 1, 2),
    controller_epoch: int = EPOCH,
    is_new: bool = False,
) -> BrokerResponse:
    state = PartitionState(leader, leader_epoch, replicas, controller_epoch, version=leader_epoch)
    wanted = {each: LeaderAndIsrPartition(state, replicas, is_new=is_new) for each in partitions or (T0,)}
    ids = {} if topic_id == ZERO_UUID else {"t": topic_id}
    response: BrokerResponse = await broker.replicas.become_leader_or_follower(
        LeaderAndIsr(1, controller_epoch, 1, ids, wanted)
    )
    return response


def test_a_follower_is_fetched_from_its_leader_in_the_epoch_of_the_request(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers = fetchers_of(broker)
        assert (await change(broker, 1, 0, T0, T1, is_new=True)).partition_errors == {}
        assert fetchers.leaders() == {T0: (1, 0), T1: (1, 0)}
        assert fetchers.running[T0].topic_id == ID
        assert broker.table.log("t", 0) is fetchers.running[T0].log
        # Another leader, and the same leader again in a new epoch.
        await change(broker, 2, 1, T0)
        await change(broker, 1, 1, T1)
        assert fetchers.leaders() == {T0: (2, 1), T1: (1, 1)}
        # The leader is this broker: nothing is fetched.
        await change(broker, 0, 2, T0)
        assert fetchers.leaders() == {T1: (1, 1)}
        assert broker.table.log("t", 0).is_leader
        # Nobody leads: the log waits for the next leader.
        await change(broker, -1, 3, T0, T1)
        assert fetchers.leaders() == {}
        assert not broker.table.log("t", 0).is_leader

    with_broker(test)


def test_a_request_with_no_newer_leader_epoch_changes_nothing(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers = fetchers_of(broker)
        await change(broker, 1, 4, is_new=True)
        for leader, epoch in ((2, 4), (0, 4), (0, 3)):
            response = await change(broker, leader, epoch)
            assert response.partition_errors == {T0: ErrorCode.STALE_CONTROLLER_EPOCH}
        assert fetchers.leaders() == {T0: (1, 4)}
        response = await change(broker, 0, 9, controller_epoch=EPOCH - 1)
        assert response == BrokerResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
        assert fetchers.leaders() == {T0: (1, 4)}

    with_broker(test)


def test_a_broker_that_is_no_replica_hosts_nothing(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers = fetchers_of(broker)
        response = await change(broker, 1, 0, replicas=(1, 2), is_new=True)
        assert response.partition_errors == {T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert (broker.table.hosted(), fetchers.leaders()) == ([], {})

    with_broker(test)


def test_a_topic_without_id_gets_one_in_the_same_epoch(with_broker: Runner, tmp_path: Path) -> None:
    """A controller of 2.7 made the topic, one of 2.8 names it (KAFKA-13132)."""

    async def test(broker: Any) -> None:
        fetchers_of(broker)
        assert (await change(broker, 0, 0, topic_id=ZERO_UUID, is_new=True)).partition_errors == {}
        log = broker.table.log("t", 0)
        assert log.topic_id == ZERO_UUID.bytes
        assert (await change(broker, 0, 0)).partition_errors == {}
        assert log.topic_id == ID.bytes
        assert broker.table.topics() == [("t", ID.bytes, 1)]
        assert "topic_id: " in (tmp_path / "logs" / "t-0" / "partition.metadata").read_text()
        # It has one now: the same epoch says nothing new, and a request without an id is not one for another topic.
        assert (await change(broker, 0, 0)).partition_errors == {T0: ErrorCode.STALE_CONTROLLER_EPOCH}
        assert (await change(broker, 1, 1, topic_id=ZERO_UUID)).partition_errors == {}
        assert (await change(broker, 1, 2, topic_id=random_uuid())).partition_errors == {
            T0: ErrorCode.INCONSISTENT_TOPIC_ID
        }

    with_broker(test)


def test_settings_are_read_with_the_first_partition_and_again_with_a_new_one(with_broker: Runner) -> None:
    """A topic that is new may have had settings of an earlier topic of that name."""

    async def test(broker: Any) -> None:
        fetchers_of(broker)
        path = config_path(CONFIG_TOPICS, "t")
        await broker.store.create(path, encode_config({"retention.ms": "1000"}), make_parents=True)
        await change(broker, 1, 0, T0)
        assert broker.table.log("t", 0).config.retention_ms == 1000
        await broker.store.set(path, encode_config({"retention.ms": "2000"}))
        await change(broker, 1, 0, T1)
        assert broker.table.log("t", 1).config.retention_ms == 1000, "a notification tells of changes"
        await change(broker, 1, 0, TopicPartition("t", 2), is_new=True)
        assert broker.table.log("t", 2).config.retention_ms == 2000

    with_broker(test)


async def show(broker: Any, leader: int, *partitions: TopicPartition) -> None:
    """Tell the broker what clients see of partitions."""
    state = PartitionState(leader, 0, (1,), EPOCH, version=1)
    shown = {each: UpdateMetadataPartition(state, (1,)) for each in partitions}
    await broker.replicas.update_metadata(UpdateMetadata(1, EPOCH, 1, {"t": ID}, shown, {}))


async def give_settings(broker: Any, **settings: str) -> None:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    await broker.store.create(config_path(CONFIG_TOPICS, "t"), encode_config(given), make_parents=True)


async def delete_replicas(broker: Any, *partitions: TopicPartition) -> dict[TopicPartition, ErrorCode]:
    request = StopReplica(1, EPOCH, 1, {each: StopReplicaPartition(-2, True) for each in partitions})
    return dict((await broker.replicas.stop_replicas(request)).partition_errors)


def test_a_topic_keeps_its_settings_when_one_of_its_partitions_moves_away(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        await give_settings(broker, cleanup_policy="compact", retention_ms="1000")
        await change(broker, 0, 0, T0, T1, is_new=True)
        await show(broker, 0, T0, T1)
        assert await delete_replicas(broker, T0) == {}
        assert broker.table.hosted() == [("t", 1)]
        broker.replicas.update_config(broker.config)
        config = broker.table.log("t", 1).config
        assert (config.cleanup_policy, config.retention_ms) == (("compact",), 1000)
        await broker.configs.change(CONFIG_TOPICS, "t", lambda before: {**before, "retention.ms": "2000"})
        config = broker.table.log("t", 1).config
        assert (config.cleanup_policy, config.retention_ms) == (("compact",), 2000)
        # A controller on this broker looks at the settings of all topics.
        assert await delete_replicas(broker, T1) == {}
        assert broker.configs.topic("t")["retention.ms"] == "2000"

    with_broker(test)


@pytest.mark.parametrize("hosted", [False, True])
def test_the_settings_of_a_deleted_topic_are_forgotten(with_broker: Runner, hosted: bool) -> None:
    async def test(broker: Any) -> None:
        fetchers_of(broker)
        await give_settings(broker, retention_ms="1000")
        if hosted:
            await change(broker, 0, 0, T0, T1, is_new=True)
        else:
            await broker.configs.load_topics(["t"])
        await show(broker, 1, T0, T1)
        await show(broker, LEADER_DURING_DELETE, T0)
        assert broker.configs.topic("t") == {"retention.ms": "1000"}, "another partition is there"
        await show(broker, LEADER_DURING_DELETE, T1)
        assert broker.configs.topic("t") == {}

    with_broker(test)


def test_the_settings_of_a_topic_deleted_while_the_broker_was_away_are_forgotten(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        await give_settings(broker, retention_ms="1000")
        await broker.configs.load_topics(["t"])
        assert await delete_replicas(broker, T0) == {}
        assert broker.configs.topic("t") == {}

    with_broker(test)


def test_a_log_that_cannot_be_deleted_is_reported_and_the_others_are_deleted(
    with_broker: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(broker: Any) -> None:
        fetchers_of(broker)
        await give_settings(broker, retention_ms="1000")
        await change(broker, 0, 0, T0, T1, is_new=True)
        delete = broker.log_manager.delete

        def refuse(partition: TopicPartition) -> bool:
            if partition == T0:
                raise OSError(errno.EIO, "the disk is broken")
            return bool(delete(partition))

        monkeypatch.setattr(broker.log_manager, "delete", refuse)
        assert await delete_replicas(broker, T0) == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
        assert broker.configs.topic("t") == {"retention.ms": "1000"}
        assert await delete_replicas(broker, T0, T1) == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
        assert list(broker.log_manager.logs()) == [T0]
        assert broker.table.hosted() == []
        monkeypatch.undo()
        assert await delete_replicas(broker, T0) == {}
        assert list(broker.log_manager.logs()) == []

    with_broker(test)


def test_a_replica_that_stops_is_not_fetched(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers = fetchers_of(broker)
        await change(broker, 1, 3, T0, T1, is_new=True)

        async def stop(leader_epoch: int, delete: bool) -> dict[TopicPartition, ErrorCode]:
            request = StopReplica(1, EPOCH, 1, {T0: StopReplicaPartition(leader_epoch, delete)})
            return dict((await broker.replicas.stop_replicas(request)).partition_errors)

        assert await stop(2, True) == {T0: ErrorCode.FENCED_LEADER_EPOCH}
        assert set(fetchers.running) == {T0, T1}
        assert await stop(-2, False) == {}
        assert set(fetchers.running) == {T1}
        assert broker.table.hosted() == [("t", 1)]
        assert broker.log_manager.get(T0) is not None
        assert await stop(-1, True) == {}
        assert broker.log_manager.get(T0) is None

    with_broker(test)


def test_a_failed_directory_is_not_fetched_into(with_broker: Runner, tmp_path: Path) -> None:
    async def test(broker: Any) -> None:
        fetchers = fetchers_of(broker)
        await change(broker, 1, 0, T0, T1, is_new=True)
        broker.replicas.log_dir_failed(tmp_path / "logs", [T1])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert set(fetchers.running) == {T0}
        assert (await change(broker, 1, 1, T0, T1)).partition_errors == {T1: ErrorCode.KAFKA_STORAGE_ERROR}
        assert fetchers.leaders() == {T0: (1, 1)}
        # Nothing of it can be deleted either, until the broker restarts.
        assert await delete_replicas(broker, T0, T1) == {T1: ErrorCode.KAFKA_STORAGE_ERROR}
        assert list(broker.replicas.partitions) == [T1]
        assert list(broker.log_manager.logs()) == [T1]

    with_broker(test)


def test_each_assignment_and_each_end_of_a_partition_is_told(with_broker: Runner, tmp_path: Path) -> None:
    async def test(broker: Any) -> None:
        fetchers_of(broker)
        heard = Heard(broker)
        await change(broker, 0, 0, T0, is_new=True)
        await change(broker, 1, 1, T0)
        await change(broker, 0, 2, T0, T1)
        led = [(T0, 0, True), (T0, 1, False), (T0, 2, True), (T1, 2, True)]
        assert heard.isr == heard.listened == led
        # The same again is no news.
        await change(broker, 0, 2, T0, T1)
        assert heard.isr == heard.listened == led
        broker.replicas.log_dir_failed(tmp_path / "logs", [T1])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert heard.isr[4:] == heard.listened[4:] == [(T1, 2, False)]
        assert heard.forgotten == []
        await broker.replicas.stop_replicas(StopReplica(1, EPOCH, 1, {T0: StopReplicaPartition(3, False)}))
        assert heard.forgotten == [T0]
        assert heard.isr[5:] == []
        assert heard.listened[5:] == [(T0, 2, False)]

    with_broker(test)


def test_a_broker_that_stops_hosts_nothing(make_broker: Callable[..., Any]) -> None:
    async def test() -> None:
        broker = make_broker()
        await broker.start()
        fetchers = fetchers_of(broker)
        await change(broker, 0, 0, T0, is_new=True)
        await change(broker, 1, 0, T1, is_new=True)
        assert sorted(broker.table.hosted()) == [("t", 0), ("t", 1)]
        await broker.stop()
        assert broker.table.hosted() == []
        assert (dict(broker.replicas.partitions), fetchers.running) == ({}, {})

    asyncio.run(test())


def test_a_fetcher_that_gave_up_is_remembered_until_the_next_epoch(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers_of(broker)
        await change(broker, 1, 1, T0, T1, is_new=True)
        failed = broker.replicas.failed_followers
        error = KafkaStorageError("the disk is broken")
        broker.replicas.partition_failed(T0, 0, error)
        broker.replicas.partition_failed(TopicPartition("t", 9), 1, error)
        assert failed == {}, "they were told of an earlier epoch, and of a partition that is not here"
        broker.replicas.partition_failed(T0, 1, error)
        broker.replicas.partition_failed(T1, 1, error)
        assert failed == {T0: error, T1: error}
        await change(broker, 1, 1, T0)
        assert failed == {T0: error, T1: error}
        await change(broker, 1, 2, T0)
        assert failed == {T1: error}

    with_broker(test)


def test_changed_settings_reach_the_logs_and_the_fetchers(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers = fetchers_of(broker)
        await change(broker, 0, 0, T0, is_new=True)
        changes = {
            "leader.replication.throttled.rate": "777",
            "log.retention.ms": "5000",
            "replica.alter.log.dirs.io.max.bytes.per.second": "888",
        }
        config = broker.config.with_dynamic(changes)
        broker.replicas.update_config(config)
        assert broker.replicas.replication.leader_rate == 777
        assert broker.table.log("t", 0).config.retention_ms == 5000
        assert broker.log_manager.futures.pace.bytes_per_second == 888
        assert fetchers.configs == [config]
        assert fetchers.topics == ["t"]

    with_broker(test)


def test_requests_of_two_controllers_take_turns(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers = fetchers_of(broker)
        requests = [change(broker, 1 + epoch % 2, epoch, T0, T1, is_new=True) for epoch in range(6)]
        metadata = broker.replicas.update_metadata(UpdateMetadata(1, EPOCH, 1, {}, {}, {}))
        *answers, _ = await asyncio.gather(*requests, metadata)
        assert all(answer.partition_errors == {} for answer in answers)
        assert fetchers.leaders() == {T0: (2, 5), T1: (2, 5)}

    with_broker(test)


def test_a_new_topic_of_a_name_takes_the_place_of_the_earlier_one(with_broker: Runner, tmp_path: Path) -> None:
    """It went without this broker, which was away."""

    async def test(broker: Any) -> None:
        fetchers = fetchers_of(broker)
        heard = Heard(broker)
        await change(broker, 0, 5, T0, T1, is_new=True)
        old = broker.table.log("t", 0)
        old_partition = broker.replicas.partitions[T0]
        other = random_uuid()
        assert (await change(broker, 1, 0, T0, topic_id=other, is_new=True)).partition_errors == {}
        log = broker.table.log("t", 0)
        assert log is not old and not old.is_leader
        assert broker.replicas.partitions[T0] is not old_partition
        assert (log.topic_id, broker.replicas.partitions[T0].topic_id) == (other.bytes, other)
        assert fetchers.leaders() == {T0: (1, 0)}
        assert heard.forgotten == [T0]
        assert heard.listened[2:] == [(T0, 5, False), (T0, 0, False)]
        assert [path.name.rpartition("-")[2] for path in (tmp_path / "logs").glob("t-0.*")] == ["stray"]
        assert ("t", other.bytes, 1) in broker.table.topics()

    with_broker(test)


def test_a_topic_without_an_id_gets_one_in_a_newer_epoch(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers_of(broker)
        await change(broker, 0, 0, topic_id=ZERO_UUID, is_new=True)
        partition = broker.replicas.partitions[T0]
        await change(broker, 0, 1)
        assert broker.replicas.partitions[T0] is partition
        assert partition.topic_id == ID

    with_broker(test)


def test_the_fetchers_are_given_before_the_first_request(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers: Any = Fetchers()
        broker.replicas.follow_with(fetchers)
        assert broker.replicas.fetchers is fetchers
        await change(broker, 1, 0, is_new=True)
        assert fetchers.leaders() == {T0: (1, 0)}

    with_broker(test)


def test_a_log_is_read_on_its_directorys_threads(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        fetchers_of(broker)
        await change(broker, 0, 0, T0, T1, is_new=True)
        replicas, log = broker.replicas, broker.table.log("t", 0)

        def read(which: Any, more: int) -> tuple[Any, int, str]:
            return which, more, threading.current_thread().name

        found, more, thread = await replicas.read_log(T0, read, 5)
        assert (found, more, thread.startswith("replica-reads")) == (log, 5, True)
        await replicas.read_log(T1, read, 5)
        [threads] = replicas._readers.values()
        assert threads._max_workers == 8

        def fail(which: Any) -> None:
            raise OSError(errno.EIO, "broken")

        with pytest.raises(KafkaStorageError, match="The log cannot be read:.*broken"):
            await replicas.read_log(T0, fail)
        assert await replicas.low_watermark_reached(T0, 0) == 0
        await change(broker, 1, 1, T0)
        for attempt in (replicas.read_log(T0, read, 5), replicas.low_watermark_reached(T0, 0)):
            with pytest.raises(NotLeaderOrFollowerError):
                await attempt

    with_broker(test)
