"""The ReplicaManager without logs: which requests it refuses, what it tells the table, and what it asks of a log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from noting import Noting
from replica.isr_leader import settle

from kafkapy import errors
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import LeaderAndIsrPartition, UpdateMetadata, UpdateMetadataPartition
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.store import StoreUnavailableError
from kafkapy.metadata.znodes import LOG_DIR_EVENT_PREFIX, PartitionState, encode_log_dir_event
from kafkapy.replica import replica_manager
from kafkapy.replica.partition import Partition
from kafkapy.replica.replica_manager import ReplicaManager, _batches
from kafkapy.types import ZERO_UUID, IsolationLevel, TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ID, OTHER = UUID(int=9), UUID(int=10)
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


class Store:
    """A store that fails as the test says."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.created: list[tuple[Any, ...]] = []

    async def create(self, path: str, value: bytes, *, sequential: bool, make_parents: bool) -> None:
        self.created.append((path, value, sequential, make_parents))
        if self.errors:
            raise self.errors.pop(0)


class Broker:
    """Broker 0 and its parts."""

    def __init__(self, **keys: str) -> None:
        names = {name.replace("_", "."): value for name, value in keys.items()}
        self.config = BrokerConfig({"log.dirs": "/x"} | names)
        self.store, self.table, self.configs = Store(), Noting(), Noting()
        futures = SimpleNamespace(pace=Noting(), all=dict, is_moving=lambda tp: False)
        parts: Any = SimpleNamespace(
            store=self.store,
            logs=SimpleNamespace(futures=futures, table=None, dir_of=lambda tp: None),
            table=self.table,
            configs=self.configs,
        )
        self.cache = MetadataCache()
        self.manager = ReplicaManager(self.config, 0, parts.store, parts.logs, parts.table, self.cache, parts.configs)

    def host(self, tp: TopicPartition, log: Any = None, *, leader: int = 0, epoch: int = 4, topic_id: UUID = ID) -> Any:
        partition = Partition(tp, topic_id, 0)
        partition.log = log
        partition.assignment = assigned(leader, epoch)
        self.manager._partitions[tp] = partition
        return partition


def assigned(leader: int = 0, epoch: int = 4, *, replicas: tuple[int, ...] = (0, 1), is_new: bool = False) -> Any:
    return LeaderAndIsrPartition(PartitionState(leader, epoch, replicas, 1), replicas, is_new=is_new)


def run(test: Callable[[Broker], Awaitable[None]], **keys: str) -> None:
    async def body() -> None:
        broker = Broker(**keys)
        await test(broker)
        await broker.manager.stop()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("known", "offline", "asked", "epoch", "is_new", "replicas", "error"),
    [
        (None, False, ID, 0, False, (0, 1), "NONE"),
        (None, False, ID, 0, False, (1, 2), "UNKNOWN_TOPIC_OR_PARTITION"),
        (ID, False, ID, 5, False, (0, 1), "NONE"),
        (ID, False, ID, 5, False, (1, 2), "UNKNOWN_TOPIC_OR_PARTITION"),
        (ID, False, ID, 4, False, (0, 1), "STALE_CONTROLLER_EPOCH"),
        (ID, False, ID, 3, False, (0, 1), "STALE_CONTROLLER_EPOCH"),
        (ID, False, ZERO_UUID, 4, False, (0, 1), "STALE_CONTROLLER_EPOCH"),
        (ID, False, ZERO_UUID, 5, False, (0, 1), "NONE"),
        (ZERO_UUID, False, ID, 4, False, (0, 1), "NONE"),
        (ZERO_UUID, False, ID, 3, False, (0, 1), "STALE_CONTROLLER_EPOCH"),
        (ZERO_UUID, False, ID, 5, False, (0, 1), "NONE"),
        (ZERO_UUID, False, ZERO_UUID, 4, False, (0, 1), "STALE_CONTROLLER_EPOCH"),
        (ID, False, OTHER, 9, False, (0, 1), "INCONSISTENT_TOPIC_ID"),
        (ID, False, OTHER, 0, True, (0, 1), "NONE"),
        (ID, False, OTHER, 0, True, (1, 2), "UNKNOWN_TOPIC_OR_PARTITION"),
        (ID, True, ID, 5, False, (0, 1), "KAFKA_STORAGE_ERROR"),
        (ID, True, OTHER, 5, True, (0, 1), "KAFKA_STORAGE_ERROR"),
    ],
)
def test_a_request_is_refused_by_topic_id_epoch_and_replicas(
    known: UUID | None,
    offline: bool,
    asked: UUID,
    epoch: int,
    is_new: bool,
    replicas: tuple[int, ...],
    error: str,
) -> None:
    async def test(broker: Broker) -> None:
        partition = None if known is None else broker.host(T0, topic_id=known)
        if partition is not None:
            partition.offline = offline
        wanted = assigned(1, epoch, replicas=replicas, is_new=is_new)
        assert broker.manager._refusal(partition, asked, wanted).name == error

    run(test)


@pytest.mark.parametrize(("leader", "follows"), [(0, False), (-1, False), (1, True), (-2, True)])
def test_a_partition_that_another_broker_leads_is_followed(leader: int, follows: bool) -> None:
    async def test(broker: Broker) -> None:
        assert broker.manager._follows(assigned(leader)) is follows

    run(test)


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (1, [1]), (200, [200]), (201, [200, 1]), (400, [200, 200]), (401, [200, 200, 1])]
)
def test_work_is_done_in_pieces_of_two_hundred(count: int, sizes: list[int]) -> None:
    pieces = list(_batches(range(count)))
    assert [len(each) for each in pieces] == sizes
    assert [number for each in pieces for number in each] == list(range(count))


def test_the_table_learns_of_topics_that_grow() -> None:
    async def test(broker: Broker) -> None:
        put = broker.manager._put_topics
        await put({"t": ID}, [T1, T0, U0])
        assert broker.table.calls == [("put", "t", ID.bytes, 2), ("put", "u", ZERO_UUID.bytes, 1)]
        await put({"t": ID, "u": OTHER}, [T0, T1, U0])
        assert len(broker.table.calls) == 2
        await put({"t": ID}, [TopicPartition("t", 4)])
        assert broker.table.calls[2:] == [("put", "t", ID.bytes, 5)]

    run(test)


def test_metadata_tells_the_table_who_leads_what_is_not_hosted() -> None:
    async def test(broker: Broker) -> None:
        manager, live = broker.manager, dict.fromkeys((0, 1))
        lives: list[Any] = []
        manager.replication = Noting(set_live_brokers=lives.append)  # type: ignore[assignment]
        checks: list[int] = []
        manager.deletions.check = lambda: checks.append(1)  # type: ignore[method-assign]
        gone: list[Any] = []
        manager.deletion_listeners.append(gone.append)
        log = Noting()
        broker.host(T0, log)

        async def show(**leaders: int) -> None:
            tps = {"t0": T0, "t1": T1, "u0": U0}
            shown = {
                tps[name]: UpdateMetadataPartition(PartitionState(leader, 6, (1,), 1), (1,))
                for name, leader in leaders.items()
            }
            request: Any = UpdateMetadata(1, 1, 1, {"t": ID, "u": OTHER}, shown, live)  # type: ignore[arg-type]
            assert (await manager.update_metadata(request)).error is ErrorCode.NONE

        await show(t0=0, t1=1, u0=1)
        assert (lives, checks, gone) == ([live], [1], [])
        assert broker.table.calls == [
            ("put", "t", ID.bytes, 2), ("put", "u", OTHER.bytes, 1), ("set_leader", "t", 1, 1, 6),
            ("set_leader", "u", 0, 1, 6),
        ]  # fmt: skip
        broker.table.calls.clear()
        # -2 says that the partition is being deleted.
        await show(u0=-2)
        assert gone == [{"u": OTHER}]
        assert broker.table.calls == [("remove_topic", "u")]
        assert broker.configs.calls[1:] == [("forget_topic", "u")]
        assert "u" not in manager._partition_counts
        await show(u0=-2)
        assert len(gone) == 1
        broker.table.calls.clear()

    run(test)


@pytest.mark.parametrize(
    ("timestamp", "apart"), [(-1, False), (-2, False), (-4, False), (-5, False), (-3, True), (0, True), (7, True)]
)
def test_only_look_ups_that_read_the_log_leave_the_loop(
    monkeypatch: pytest.MonkeyPatch, timestamp: int, apart: bool
) -> None:
    async def test(broker: Broker) -> None:
        log = Noting()
        broker.host(T0, log)
        asked: list[Any] = []

        async def read(*how: Any) -> str:
            asked.append(how)
            return "apart"

        monkeypatch.setattr(broker.manager, "_read_apart", read)
        monkeypatch.setattr(replica_manager, "lookup", lambda *how: ("at once", *how))
        found: Any = await broker.manager.list_offset(T0, timestamp, isolation=UNCOMMITTED, current_leader_epoch=4)
        if apart:
            assert (found, asked) == ("apart", [(T0, replica_manager.lookup, log, timestamp, UNCOMMITTED)])
        else:
            assert (found, asked) == (("at once", log, timestamp, UNCOMMITTED), [])
        for epoch, error in ((3, errors.FencedLeaderEpochError), (5, errors.UnknownLeaderEpochError)):
            with pytest.raises(error):
                await broker.manager.list_offset(T0, timestamp, isolation=UNCOMMITTED, current_leader_epoch=epoch)
        broker.host(T0, log, leader=1)
        with pytest.raises(errors.NotLeaderOrFollowerError):
            await broker.manager.list_offset(T0, timestamp, isolation=UNCOMMITTED)
        assert await broker.manager.list_offset(T0, timestamp, isolation=UNCOMMITTED, leader_only=False)

    run(test)


def test_the_old_form_of_list_offsets_asks_the_leader_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(broker: Broker) -> None:
        log: Any = Noting()
        broker.host(T0, log)
        monkeypatch.setattr(replica_manager, "legacy_offsets", lambda *how: how)
        manager: Any = broker.manager
        for consumer in (True, False):
            assert await manager.legacy_list_offsets(T0, -1, 3, from_consumer=consumer) == (log, -1, 3, consumer)
        broker.host(T0, log, leader=1)
        with pytest.raises(errors.NotLeaderOrFollowerError):
            await manager.legacy_list_offsets(T0, -1, 3, from_consumer=True)
        found = await manager.legacy_list_offsets(T0, -1, 3, from_consumer=True, leader_only=False)
        assert found == (log, -1, 3, True)

    run(test)


@pytest.mark.parametrize(("offset", "wanted"), [(-1, 8), (0, 0), (5, 5), (-2, -2)])
def test_records_are_deleted_up_to_the_offset_or_the_high_watermark(offset: int, wanted: int) -> None:
    async def test(broker: Broker) -> None:
        deleted: list[int] = []
        log: Any = SimpleNamespace(
            config=LogConfig.create(), high_watermark=8, delete_records=deleted.append, log_start_offset=3,
            followers=list,
        )  # fmt: skip
        offsets = TopicPartition("__consumer_offsets", 0)
        for tp in (T0, offsets):
            broker.host(tp, log)
        manager = broker.manager
        assert await manager.delete_records(T0, offset) == (wanted, 3)
        assert deleted == [wanted]
        with pytest.raises(errors.InvalidTopicError, match="records of internal topic __consumer_offsets"):
            await manager.delete_records(offsets, offset)
        assert await manager.delete_records(offsets, offset, of_internal_topic=True) == (wanted, 3)
        log.config = LogConfig.create(overrides={"cleanup.policy": "compact"})
        with pytest.raises(errors.PolicyViolationError, match="Records of partition t-0 can not be deleted"):
            await manager.delete_records(T0, offset)
        assert deleted == [wanted] * 2

    run(test)


def test_active_producers_are_shown_by_leaders_and_followers() -> None:
    async def test(broker: Broker) -> None:
        names = (
            "producer_id", "epoch", "last_sequence", "last_timestamp", "coordinator_epoch",
            "current_transaction_first_offset",
        )  # fmt: skip
        log: Any = SimpleNamespace(producers=lambda: [dict(zip(names, range(6), strict=True))])
        for leader in (0, 1):
            broker.host(T0, log, leader=leader)
            assert broker.manager.active_producers(T0) == [(0, 1, 2, 3, 4, 5)]

    run(test)


def test_epochs_end_where_the_leaders_log_says() -> None:
    async def test(broker: Broker) -> None:
        log: Any = SimpleNamespace(offset_for_leader_epoch=lambda epoch: (epoch, 10 * epoch))
        broker.host(T0, log)
        manager = broker.manager
        assert manager.end_offset_for_leader_epoch(T0, 3) == (3, 30)
        assert manager.end_offset_for_leader_epoch(T0, 3, current_leader_epoch=4) == (3, 30)
        with pytest.raises(errors.FencedLeaderEpochError):
            manager.end_offset_for_leader_epoch(T0, 3, current_leader_epoch=3)
        broker.host(T0, log, leader=1)
        with pytest.raises(errors.NotLeaderOrFollowerError):
            manager.end_offset_for_leader_epoch(T0, 3)

    run(test)


@pytest.mark.parametrize("ends", ["written", "mistake"])
def test_the_controller_hears_of_a_failed_directory_in_the_end(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    monkeypatch.setattr(replica_manager, "STORE_RETRY_S", 0.0)

    async def test(broker: Broker) -> None:
        away = StoreUnavailableError("/x", "away")
        broker.store.errors = [away, away] + ([ValueError("a mistake")] if ends == "mistake" else [])
        await broker.manager._tell_controller()
        assert broker.store.created == [(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(0), True, True)] * 3

    run(test)


def test_the_end_gives_up_messages_to_the_controller() -> None:
    async def test(broker: Broker) -> None:
        manager = broker.manager
        broker.store.errors = [StoreUnavailableError("/x", "away")]
        partition = broker.host(T0, None)
        manager._take_offline(Path("/x"), [T0, T1])
        assert partition.offline and not partition.is_leader
        [task] = manager._notifications
        await settle()
        await manager.stop()
        assert task.cancelled() and manager._notifications == set()
        assert broker.table.calls == [("remove_log", "t", 0)]
        assert manager.partitions == {}
        for threads in (manager._openers,):
            with pytest.raises(RuntimeError):
                threads.submit(print)

    run(test)


def test_the_log_of_a_partition_that_works_is_known() -> None:
    async def test(broker: Broker) -> None:
        log = Noting()
        partition = broker.host(T0, log)
        assert (broker.manager.log(T0), broker.manager.log(T1)) == (log, None)
        assert [broker.manager.is_assigned(T0, each) for each in (0, 1, 2)] == [True, True, False]
        assert not broker.manager.is_assigned(T1, 0)
        partition.offline = True
        assert broker.manager.log(T0) is None
        partition.assignment = None
        assert not broker.manager.is_assigned(T0, 0)
        assert (partition.leader_epoch, partition.state, partition.is_leader) == (-1, None, False)
        partition.set_isr((1,), 5)
        assert partition.assignment is None
        partition.assignment = assigned()._replace(state=PartitionState(0, 4, (0, 1), 3, True, 7))
        partition.set_isr((0,), 8)
        assert partition.state == PartitionState(0, 4, (0,), 3, False, 8)

    run(test)


def test_the_keys_of_replication_reach_the_logs_common_part(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(replica_manager, "Replication", lambda *what, **how: (made.append((what, how)), Noting())[1])

    async def test(broker: Broker) -> None:
        assert made == [((1234,), {"quota_windows": 5, "quota_window_ms": 7000})]
        assert broker.manager.replication.leader_rate == 99
        changed = broker.config.with_dynamic({"leader.replication.throttled.rate": "77"})
        broker.manager.update_config(changed)
        replication = broker.manager.replication
        assert (replication.leader_rate, replication.lag_time_ms, broker.manager.config) == (77, 1234, changed)

    run(
        test,
        replica_lag_time_max_ms="1234",
        replication_quota_window_num="5",
        replication_quota_window_size_seconds="7",
        leader_replication_throttled_rate="99",
    )


class Logs:
    """Logs that note their new configurations."""

    def __init__(self, **keys: str) -> None:
        self.config = LogConfig.create(overrides={name.replace("_", "."): value for name, value in keys.items()})
        self.updated: list[Any] = []
        self.leader_throttled = False
        self.id = 7

    def update_config(self, config: Any) -> None:
        self.updated.append(config)

    def become_follower(self, *how: Any) -> None:
        self.updated.append(("follower", *how))


@pytest.mark.parametrize("moving", [True, False])
def test_a_log_is_shown_once_and_a_move_goes_on_with_each_assignment(moving: bool) -> None:
    async def test(broker: Broker) -> None:
        manager, moves = broker.manager, Noting()
        manager._moves = moves  # type: ignore[assignment]
        manager._log_manager.futures.is_moving = lambda tp: moving  # type: ignore[method-assign]
        heard: list[Any] = []
        manager.leadership_listeners.append(lambda *what: heard.append(what))
        log: Any = Logs(leader_replication_throttled_replicas="0:0")
        partition = Partition(T0, ID, 0)
        for leader, epoch in ((0, 4), (1, 5)):
            manager._publish(partition, assigned(leader, epoch), log)
        assert (partition.log, partition.leader_epoch, manager.partitions[T0]) == (log, 5, partition)
        assert log.leader_throttled
        assert broker.table.calls == [("set_log", "t", 0, log)]
        assert moves.calls == [("add", T0)] * (2 if moving else 0)
        assert heard == [(T0, 4, True), (T0, 5, False)]
        other: Any = Logs()
        manager._publish(partition, assigned(0, 6), other)
        assert broker.table.calls[1:] == [("set_log", "t", 0, other)]
        assert not other.leader_throttled

    run(test)


def test_a_partition_that_is_not_hosted_any_more_is_told_to_all_parts() -> None:
    async def test(broker: Broker) -> None:
        manager = broker.manager
        manager.fetchers, manager.isr = Noting(), Noting()  # type: ignore[assignment]
        heard: list[Any] = []
        manager.leadership_listeners.append(lambda *what: heard.append(what))
        checks: list[int] = []
        manager.deletions.check = lambda: checks.append(1)  # type: ignore[method-assign]
        log: Any = Logs()
        partition = broker.host(T0, log)
        manager._unpublish(partition)
        assert manager.partitions == {}
        assert manager.fetchers.calls == [("remove", [T0])]  # type: ignore[union-attr]
        assert manager.isr.calls == [("forget", partition, log)]  # type: ignore[union-attr]
        assert broker.table.calls == [("remove_log", "t", 0)]
        assert (log.updated, heard, checks) == ([("follower", -1, 4)], [(T0, 4, False)], [1])
        # One whose log did not open has nothing to give up.
        partition = broker.host(T1)
        manager._unpublish(partition)
        assert len(manager.isr.calls) == 1  # type: ignore[union-attr]
        assert heard[1:] == [(T1, 4, False)]
        manager.fetchers = None

    run(test)


def test_changed_settings_are_those_of_the_topic_and_of_logs_that_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(broker: Broker) -> None:
        manager = broker.manager
        fetchers = Noting()
        manager.fetchers = fetchers  # type: ignore[assignment]
        monkeypatch.setattr(manager, "_log_config", lambda topic: f"config of {topic}")
        logs: dict[TopicPartition, Any] = {tp: Logs() for tp in (T0, T1, U0)}
        for tp, log in logs.items():
            broker.host(tp, log)
        broker.host(TopicPartition("v", 0))
        manager.partitions[T1].offline = True
        await manager._topic_config_changed("t", {})
        assert [log.updated for log in logs.values()] == [["config of t"], [], []]
        assert [list(topics) for _, topics in fetchers.calls] == [["t"]]
        manager._apply_config(manager.partitions.values())
        assert [log.updated for log in logs.values()] == [["config of t"] * 2, [], ["config of u"]]
        assert [list(topics) for _, topics in fetchers.calls[1:]] == [["t", "u"]]
        manager.fetchers = None

    run(test)


@pytest.mark.parametrize(
    ("error", "code", "offline"),
    [
        (OSError(5, "broken"), ErrorCode.KAFKA_STORAGE_ERROR, True),
        (errors.KafkaStorageError("offline"), ErrorCode.KAFKA_STORAGE_ERROR, True),
        (errors.InconsistentTopicIdError("another"), ErrorCode.INCONSISTENT_TOPIC_ID, False),
        (ValueError("odd"), ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_a_log_that_does_not_open_is_offline_where_the_disk_is(
    error: Exception, code: ErrorCode, offline: bool
) -> None:
    async def test(broker: Broker) -> None:
        partition = Partition(T0, ID, 0)
        assert broker.manager._open_failed(partition, error) is code
        assert (partition.offline, T0 in broker.manager.partitions) == (offline, offline)

    run(test)


def test_a_failed_directory_takes_its_partitions_from_the_fetchers() -> None:
    async def test(broker: Broker) -> None:
        manager = broker.manager
        fetchers, isr = Noting(), Noting()
        manager.fetchers, manager.isr = fetchers, isr  # type: ignore[assignment]
        log: Any = Logs()
        partition = broker.host(T0, log)
        manager.failed_followers[T0] = errors.KafkaStorageError("earlier")
        manager.log_dir_failed(Path("/x"), [T0, T1])
        await settle()
        assert (partition.offline, manager.failed_followers) == (True, {})
        assert fetchers.calls == [("remove", [T0, T1])]
        assert isr.calls == [("leadership_changed", partition, log)]
        manager.fetchers = None

    run(test)


def test_a_store_that_fails_is_asked_again_after_a_pause(pauses: list[float]) -> None:
    async def test(broker: Broker) -> None:
        away = StoreUnavailableError("/x", "away")
        failures: list[Exception] = [away, away]

        async def reload(topics: set[str]) -> None:
            if failures:
                raise failures.pop(0)

        broker.configs.reload_topics = reload
        broker.configs.load_topics = reload
        await broker.manager._read_configs({"t"}, {"u"})
        assert pauses == [0.5, 0.5]
        failures.append(away)
        await broker.manager._read_configs({"t"}, set())
        assert pauses == [0.5] * 3
        broker.store.errors = [away, away, away]
        await broker.manager._tell_controller()
        assert pauses == [0.5] * 6

    run(test)
