"""The ReplicaManager with real logs: what the controller's word does to logs, tables and answers about offsets."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until, until_not

from kafkapy import errors
from kafkapy.controller.admin_requests import NewPartitions, NewTopic
from kafkapy.errors import ErrorCode
from kafkapy.log.future_logs import Progress
from kafkapy.metadata.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrPartition,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
    UpdateMetadataPartition,
)
from kafkapy.metadata.znodes import CONFIG_TOPICS, LOG_DIR_EVENT_PREFIX, PartitionState, encode_log_dir_event
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.replica.offset_lookup import lookup
from kafkapy.types import IsolationLevel, ListOffsetsTimestamp, TopicPartition, random_uuid

Runner = Callable[..., None]
T0 = TopicPartition("t", 0)
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def batch(*timestamps: int) -> bytes:
    builder = RecordBatchBuilder()
    for timestamp in timestamps:
        builder.append(timestamp, b"k", b"v" * 10)
    return builder.build()


async def create(broker: Any, topic: str = "t", partitions: int = 1, **configs: str) -> None:
    wanted = NewTopic(topic, partitions, 1, configs={key.replace("_", "."): value for key, value in configs.items()})
    result = (await broker.topic_admin.create_topics([wanted]))[topic]
    assert not isinstance(result, Exception), result


def test_a_topic_has_logs_that_lead_and_that_the_data_plane_finds(with_broker: Runner, tmp_path: Path) -> None:
    async def test(broker: Any) -> None:
        await create(broker, partitions=3, max_message_bytes="5000")
        topic = broker.cache.topic("t")
        assert broker.table.topics() == [("t", topic.topic_id.bytes, 3)]
        assert sorted(broker.table.hosted()) == [("t", 0), ("t", 1), ("t", 2)]
        log = broker.table.log("t", 1)
        assert (log.is_leader, log.leader_epoch, log.topic_id) == (True, 0, topic.topic_id.bytes)
        assert log.config.max_message_bytes == 5000
        log.append_as_leader(batch(1, 2))
        assert log.offsets()[:3] == (0, 2, 2)
        assert (tmp_path / "logs" / "t-2" / "partition.metadata").exists()
        await broker.topic_admin.create_partitions([NewPartitions("t", 4)])
        assert broker.table.topics() == [("t", topic.topic_id.bytes, 4)]
        assert broker.table.log("t", 3).is_leader

    with_broker(test)


def test_a_deleted_topic_is_gone_from_table_and_disk(with_broker: Runner, tmp_path: Path) -> None:
    async def test(broker: Any) -> None:
        await create(broker, partitions=2)
        await create(broker, "other")
        assert await broker.topic_admin.delete_topics(["t"]) == {"t": None}
        assert broker.table.hosted() == [("other", 0)]
        assert [name for name, _, _ in broker.table.topics()] == ["other"]
        assert [path.name for path in (tmp_path / "logs").iterdir() if path.is_dir()] == ["other-0"]
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            broker.replicas.partition(T0)

    with_broker(test)


def test_records_and_settings_are_there_after_a_restart(make_broker: Callable[..., Any]) -> None:
    async def test() -> None:
        broker = make_broker()
        await broker.start()
        await create(broker, retention_ms="-1")
        broker.table.log("t", 0).append_as_leader(batch(1, 2, 3))
        topic_id = broker.cache.topic("t").topic_id
        await broker.stop()
        again = make_broker()
        await again.start()
        log = again.table.log("t", 0)
        assert log.is_leader
        assert log.offsets()[:3] == (0, 3, 3)
        assert log.config.retention_ms == -1
        assert again.cache.topic("t").topic_id == topic_id
        await again.stop()

    asyncio.run(test())


def test_missing_log_directories_are_made_and_half_deleted_topics_finished_at_the_start(
    make_broker: Callable[..., Any], tmp_path: Path
) -> None:
    async def test() -> None:
        broker = make_broker()
        await broker.start()
        await create(broker, partitions=2)
        await create(broker, "doomed")
        await broker.stop()
        # As a crash leaves it: the topic is in the store, a directory not on the disk yet; a deletion was only marked.
        store = make_broker().store
        await store.start()
        await store.create("/admin/delete_topics/doomed")
        await store.close()
        for path in (tmp_path / "logs" / "t-1").iterdir():
            path.unlink()
        (tmp_path / "logs" / "t-1").rmdir()
        again = make_broker()
        await again.start()
        await until_not(lambda: again.controller.context.topics_to_delete, "the topic is deleted")
        assert sorted(again.table.hosted()) == [("t", 0), ("t", 1)]
        assert sorted(path.name for path in (tmp_path / "logs").iterdir() if path.is_dir()) == ["t-0", "t-1"]
        assert not again.cache.contains("doomed")
        await again.stop()

    asyncio.run(test())


def test_settings_of_a_topic_reach_its_logs_when_they_change(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        await create(broker, partitions=2)
        await broker.configs.change(CONFIG_TOPICS, "t", lambda _: {"max.message.bytes": "777", "no.such.key": "1"})
        assert [broker.table.log("t", n).config.max_message_bytes for n in range(2)] == [777, 777]
        await broker.configs.change(CONFIG_TOPICS, "t", lambda _: {})
        assert broker.table.log("t", 0).config.max_message_bytes == 1048588

    with_broker(test)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (ListOffsetsTimestamp.EARLIEST, (-1, 0)),
        (ListOffsetsTimestamp.EARLIEST_LOCAL, (-1, 0)),
        (ListOffsetsTimestamp.LATEST, (-1, 6)),
        (ListOffsetsTimestamp.LATEST_TIERED, (-1, -1)),
        (ListOffsetsTimestamp.MAX_TIMESTAMP, (500, 3)),
        (0, (100, 0)),
        (150, (200, 1)),
        (201, (500, 3)),
        (501, None),
    ],
)
def test_offsets_are_found_by_place_and_by_time(
    with_broker: Runner, timestamp: int, expected: tuple[int, int] | None
) -> None:
    async def test(broker: Any) -> None:
        await create(broker)
        log = broker.table.log("t", 0)
        log.append_as_leader(batch(100, 200))
        log.append_as_leader(batch(150, 500))
        log.append_as_leader(batch(400, 300))
        found = await broker.replicas.list_offset(T0, timestamp, isolation=UNCOMMITTED, current_leader_epoch=0)
        assert (None if found is None else (found.timestamp, found.offset)) == expected

    with_broker(test)


def test_offsets_of_an_empty_log(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        await create(broker)
        replicas = broker.replicas
        latest = await replicas.list_offset(T0, ListOffsetsTimestamp.LATEST, isolation=UNCOMMITTED)
        assert (latest.offset, latest.leader_epoch) == (0, 0)
        assert await replicas.list_offset(T0, ListOffsetsTimestamp.MAX_TIMESTAMP, isolation=UNCOMMITTED) is None
        assert await replicas.list_offset(T0, 5, isolation=UNCOMMITTED) is None
        assert await replicas.legacy_list_offsets(T0, -1, 10, from_consumer=True) == [0]

    with_broker(test)


def test_the_old_form_lists_starts_of_segments(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        await create(broker)
        log = broker.table.log("t", 0)
        for _ in range(3):
            log.append_as_leader(batch(1, 2))
            log.roll()
        log.append_as_leader(batch(1))
        replicas = broker.replicas
        assert await replicas.legacy_list_offsets(T0, -1, 10, from_consumer=True) == [7, 6, 4, 2, 0]
        assert await replicas.legacy_list_offsets(T0, -1, 2, from_consumer=True) == [7, 6]
        assert await replicas.legacy_list_offsets(T0, -2, 10, from_consumer=True) == [0]
        assert await replicas.legacy_list_offsets(T0, 1, 10, from_consumer=True) == []

    with_broker(test)


def test_leader_epochs_of_requests_are_checked(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        await create(broker)
        replicas = broker.replicas
        latest = ListOffsetsTimestamp.LATEST
        with pytest.raises(errors.UnknownLeaderEpochError):
            await replicas.list_offset(T0, latest, isolation=UNCOMMITTED, current_leader_epoch=1)
        await lead(broker, leader_epoch=3)
        with pytest.raises(errors.FencedLeaderEpochError):
            await replicas.list_offset(T0, latest, isolation=UNCOMMITTED, current_leader_epoch=2)
        broker.table.log("t", 0).append_as_leader(batch(1, 2))
        assert replicas.end_offset_for_leader_epoch(T0, 0) == (0, 0)
        assert replicas.end_offset_for_leader_epoch(T0, 3, current_leader_epoch=3) == (3, 2)
        assert replicas.end_offset_for_leader_epoch(T0, 9) == (-1, -1)
        await lead(broker, leader_epoch=4, leader=7)
        for attempt in (replicas.delete_records(T0, 0), replicas.list_offset(T0, latest, isolation=UNCOMMITTED)):
            with pytest.raises(errors.NotLeaderOrFollowerError):
                await attempt
        found = await replicas.list_offset(T0, latest, isolation=None, leader_only=False)
        assert found.offset == 2
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await replicas.list_offset(TopicPartition("t", 9), latest, isolation=UNCOMMITTED)

    with_broker(test)


async def lead(broker: Any, **changes: Any) -> Any:
    known = broker.replicas.partitions[T0]
    state: PartitionState = known.assignment.state._replace(**changes)
    request = LeaderAndIsr(
        0, broker.controller.epoch, 1, {"t": known.topic_id}, {T0: LeaderAndIsrPartition(state, (0, 7))}
    )
    return await broker.replicas.become_leader_or_follower(request)


def test_stale_and_contradicting_requests_of_controllers_are_refused(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        await create(broker)
        await lead(broker, leader_epoch=5)
        response = await lead(broker, leader_epoch=4)
        assert response.partition_errors == {T0: ErrorCode.STALE_CONTROLLER_EPOCH}
        stop = StopReplica(0, broker.controller.epoch, 1, {T0: StopReplicaPartition(4, True)})
        response = await broker.replicas.stop_replicas(stop)
        assert response.partition_errors == {T0: ErrorCode.FENCED_LEADER_EPOCH}
        assert broker.table.log("t", 0).is_leader
        old = stop._replace(controller_epoch=0)
        assert (await broker.replicas.stop_replicas(old)).error is ErrorCode.STALE_CONTROLLER_EPOCH
        other_id = LeaderAndIsr(
            0,
            broker.controller.epoch,
            1,
            {"t": random_uuid()},
            {T0: LeaderAndIsrPartition(PartitionState(0, 6, (0,), 1), (0,))},
        )
        response = await broker.replicas.become_leader_or_follower(other_id)
        assert response.partition_errors == {T0: ErrorCode.INCONSISTENT_TOPIC_ID}

    with_broker(test)


def test_deleting_records_moves_the_log_start(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        await create(broker)
        await create(broker, "compacted", cleanup_policy="compact")
        log = broker.table.log("t", 0)
        log.append_as_leader(batch(1, 2, 3))
        replicas = broker.replicas
        assert await replicas.delete_records(T0, 2) == (2, 2)
        found = await replicas.list_offset(T0, ListOffsetsTimestamp.EARLIEST, isolation=UNCOMMITTED)
        assert found.offset == 2
        with pytest.raises(errors.OffsetOutOfRangeError):
            await replicas.delete_records(T0, 4)
        assert await replicas.delete_records(T0, -1) == (3, 3)
        with pytest.raises(errors.PolicyViolationError):
            await replicas.delete_records(TopicPartition("compacted", 0), -1)
        with pytest.raises(errors.InvalidTopicError):
            await replicas.delete_records(TopicPartition("__consumer_offsets", 0), -1)

    with_broker(test)


def test_log_directories_are_described(with_broker: Runner, tmp_path: Path) -> None:
    async def test(broker: Any) -> None:
        await create(broker, partitions=2)
        broker.table.log("t", 1).append_as_leader(batch(1, 2, 3))
        (described,) = await broker.replicas.log_dirs.describe()
        assert (described.path, described.error) == (str(tmp_path / "logs"), ErrorCode.NONE)
        assert described.total_bytes >= described.usable_bytes > 0
        sizes = {each.partition: (each.size, each.offset_lag) for each in described.partitions}
        assert sizes == {T0: (0, 0), TopicPartition("t", 1): (broker.table.log("t", 1).size, 0)}
        assert sizes[TopicPartition("t", 1)][0] > 0
        assert broker.replicas.active_producers(T0) == []

    with_broker(test)


def test_a_failed_log_directory_takes_its_partitions_with_it_and_no_others(
    make_broker: Callable[..., Any], tmp_path: Path
) -> None:
    async def test() -> None:
        dirs = [tmp_path / "one", tmp_path / "two"]
        broker = make_broker(log_dirs=",".join(map(str, dirs)))
        await broker.start()
        await create(broker, partitions=4)
        broker.log_manager.table.fail_dir(dirs[0], OSError(errno.EIO, "broken"))
        await until(
            lambda: sum(p.leader == -1 for p in broker.cache.topic("t").partitions.values()) == 2,
            "the partitions of one directory have no leader",
        )
        for number in range(4):
            partition = TopicPartition("t", number)
            on_failed = broker.log_manager.dir_of(partition) == dirs[0]
            attempt = broker.replicas.list_offset(partition, -1, isolation=UNCOMMITTED)
            if on_failed:
                with pytest.raises(errors.KafkaStorageError):
                    await attempt
                assert broker.cache.partition("t", number).offline_replicas == (0,)
            else:
                assert (await attempt).offset == 0
        errors_by_path = {each.path: each.error for each in await broker.replicas.log_dirs.describe()}
        assert errors_by_path == {str(dirs[0]): ErrorCode.KAFKA_STORAGE_ERROR, str(dirs[1]): ErrorCode.NONE}
        # New topics go to the directory that works.
        await create(broker, "later", 2)
        assert {broker.log_manager.dir_of(TopicPartition("later", n)) for n in range(2)} == {dirs[1]}
        await broker.stop()

    asyncio.run(test())


@pytest.mark.parametrize("moves", ["before the look", "after the look"])
def test_a_partition_that_arrives_while_directories_are_described_is_there_once(
    make_broker: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    async def test() -> None:
        dirs = [tmp_path / "one", tmp_path / "two"]
        broker = make_broker(log_dirs=",".join(map(str, dirs)))
        await broker.start()
        await create(broker, partitions=1)
        partition = TopicPartition("t", 0)
        target = next(each for each in dirs if each != broker.log_manager.dir_of(partition))
        futures = broker.log_manager.futures
        assert futures.create(partition, target)
        known = futures.all

        def all_of_them() -> Any:
            monkeypatch.setattr(futures, "all", known)
            found = known() if moves == "after the look" else None
            while futures.advance(partition) is Progress.COPYING:
                pass
            return known() if found is None else found

        monkeypatch.setattr(futures, "all", all_of_them)
        described = await broker.replicas.log_dirs.describe()
        assert [(each.path, row.is_future) for each in described for row in each.partitions] == [(str(target), False)]
        await broker.stop()

    asyncio.run(test())


def test_a_log_that_may_be_on_a_directory_that_cannot_be_used_is_not_made_again_empty(
    make_broker: Callable[..., Any], tmp_path: Path
) -> None:
    async def test() -> None:
        dirs = [tmp_path / "volume" / "one", tmp_path / "two"]
        broker = make_broker(log_dirs=",".join(map(str, dirs)))
        await broker.start()
        await create(broker, partitions=2)
        lost = next(n for n in range(2) if broker.log_manager.dir_of(TopicPartition("t", n)) == dirs[0])
        await broker.stop()
        dirs[0].parent.rename(tmp_path / "unmounted")
        dirs[0].parent.write_bytes(b"nothing can be made in here")
        again = make_broker(log_dirs=",".join(map(str, dirs)))
        await again.start()
        await until(lambda: again.cache.partition("t", lost).leader == -1, "the lost partition has no leader")
        assert again.cache.partition("t", 1 - lost).leader == 0
        assert again.table.log("t", lost) is None
        await again.stop()

    asyncio.run(test())


def test_a_thousand_partitions_are_opened_off_the_loop(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        pauses: list[float] = []

        async def heartbeat() -> None:
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.001)
                pauses.append(time.monotonic() - before)

        beating = asyncio.create_task(heartbeat())
        began = time.monotonic()
        await create(broker, partitions=1000)
        took = time.monotonic() - began
        beating.cancel()
        print(f"1000 partitions in {took:.2f} s, longest pause of the loop {max(pauses) * 1000:.0f} ms")
        assert len(broker.table.hosted()) == 1000
        # The loop ran all the while.
        assert len(pauses) > 20

    with_broker(test)


@pytest.mark.parametrize(
    ("epochs", "expected"), [([], -1), ([(3, 6)], -1), ([(3, 5)], 3), ([(0, 0), (3, 5)], 0), ([(2, 4), (3, 9)], 2)]
)
def test_the_earliest_offset_has_the_leader_epoch_that_covers_it(epochs: list[tuple[int, int]], expected: int) -> None:
    log: Any = SimpleNamespace(
        leader_epochs=lambda: epochs, log_start_offset=5, high_watermark=9, offsets=lambda: (5, 9, 9, 9, 0)
    )
    for timestamp in (ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.EARLIEST_LOCAL):
        assert lookup(log, timestamp, UNCOMMITTED) == (-1, 5, expected)


@pytest.mark.parametrize("newest", ["LeaderAndIsr", "UpdateMetadata", "StopReplica"])
def test_after_any_word_of_a_newer_controller_the_older_one_is_not_obeyed(with_broker: Runner, newest: str) -> None:
    async def test(broker: Any) -> None:
        await create(broker)
        replicas, epoch = broker.replicas, broker.controller.epoch
        known = replicas.partitions[T0]
        live = dict(broker.controller.context.live_brokers)

        async def tell(kind: str, controller_epoch: int) -> ErrorCode:
            ids = {"t": known.topic_id}
            if kind == "LeaderAndIsr":
                lead = LeaderAndIsr(0, controller_epoch, 1, ids, {T0: known.assignment})
                answer = await replicas.become_leader_or_follower(lead)
            elif kind == "UpdateMetadata":
                answer = await replicas.update_metadata(UpdateMetadata(0, controller_epoch, 1, ids, {}, live))
            else:
                answer = await replicas.stop_replicas(StopReplica(0, controller_epoch, 1, {}))
            return answer.error

        assert await tell(newest, epoch + 5) is ErrorCode.NONE
        for kind in ("LeaderAndIsr", "UpdateMetadata", "StopReplica"):
            assert await tell(kind, epoch + 4) is ErrorCode.STALE_CONTROLLER_EPOCH, kind
            assert await tell(kind, epoch + 5) is ErrorCode.NONE, kind
        assert broker.table.log("t", 0).is_leader

    with_broker(test)


def test_a_log_that_the_disk_does_not_open_is_a_storage_error_and_spoils_no_other(
    with_broker: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(broker: Any) -> None:
        await create(broker)
        opened = broker.log_manager.get_or_create

        def open_or_fail(topic_partition: TopicPartition, *more: Any) -> Any:
            if topic_partition.partition == 1:
                raise OSError(errno.EIO, "broken")
            return opened(topic_partition, *more)

        monkeypatch.setattr(broker.log_manager, "get_or_create", open_or_fail)
        topic_id = random_uuid()
        partitions = {
            TopicPartition("u", number): LeaderAndIsrPartition(PartitionState(0, 0, (0,), 1), (0,), is_new=True)
            for number in range(3)
        }
        request = LeaderAndIsr(0, broker.controller.epoch, 1, {"u": topic_id}, partitions)
        answer = await broker.replicas.become_leader_or_follower(request)
        assert answer.partition_errors == {TopicPartition("u", 1): ErrorCode.KAFKA_STORAGE_ERROR}
        assert [broker.table.log("u", number) is not None for number in range(3)] == [True, False, True]
        with pytest.raises(errors.KafkaStorageError):
            await broker.replicas.list_offset(TopicPartition("u", 1), -1, isolation=UNCOMMITTED)
        # It stays so: an attempt to lead it again finds no disk either.
        monkeypatch.setattr(broker.log_manager, "get_or_create", opened)
        again = {each: wanted._replace(state=PartitionState(0, 1, (0,), 1)) for each, wanted in partitions.items()}
        answer = await broker.replicas.become_leader_or_follower(replace(request, partitions=again))
        assert answer.partition_errors == {TopicPartition("u", 1): ErrorCode.KAFKA_STORAGE_ERROR}

    with_broker(test)


@pytest.mark.parametrize(
    ("error", "code", "hosted"),
    [
        (OSError(errno.EIO, "broken"), ErrorCode.KAFKA_STORAGE_ERROR, True),
        (errors.KafkaStorageError("the directory is offline"), ErrorCode.KAFKA_STORAGE_ERROR, True),
        (errors.InconsistentTopicIdError("another topic"), ErrorCode.INCONSISTENT_TOPIC_ID, False),
        (ValueError("a mistake"), ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_a_partition_that_cannot_be_opened_is_offline_if_that_is_the_disks_fault(
    with_broker: Runner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: ErrorCode,
    hosted: bool,
) -> None:
    """Such a partition is described as offline, and is not tried again; another one may be."""

    async def test(broker: Any) -> None:
        opened = broker.log_manager.get_or_create

        def fail(*_: Any) -> Any:
            raise error

        monkeypatch.setattr(broker.log_manager, "get_or_create", fail)
        partitions = {T0: LeaderAndIsrPartition(PartitionState(0, 0, (0,), 1), (0,), is_new=True)}
        request = LeaderAndIsr(0, broker.controller.epoch, 1, {"t": random_uuid()}, partitions)
        answer = await broker.replicas.become_leader_or_follower(request)
        assert (answer.error, answer.partition_errors) == (ErrorCode.NONE, {T0: code})
        (told,) = (each for each in caplog.records if "cannot be opened" in each.getMessage())
        assert told.levelname == "ERROR"
        assert (str(error) in told.getMessage()) != (told.exc_info is not None)
        assert "The broker took over 1 partitions, of which 1 failed" in caplog.messages
        assert [each.offline for each in broker.replicas.partitions.values()] == [True] * hosted
        assert broker.replicas.log(T0) is None
        monkeypatch.setattr(broker.log_manager, "get_or_create", opened)
        again = {T0: partitions[T0]._replace(state=PartitionState(0, 1, (0,), 1))}
        answer = await broker.replicas.become_leader_or_follower(replace(request, partitions=again))
        assert answer.partition_errors == ({T0: code} if hosted else {})
        assert (broker.table.log("t", 0) is None) == hosted

    caplog.set_level("INFO", "kafka.server.ReplicaManager")
    with_broker(test)


def test_each_failed_directory_is_an_event_of_its_own(make_broker: Callable[..., Any], tmp_path: Path) -> None:
    """A second one fails before the controller has looked at the first."""

    async def test() -> None:
        dirs = [tmp_path / "one", tmp_path / "two", tmp_path / "three"]
        broker = make_broker(log_dirs=",".join(map(str, dirs)))
        await broker.start()
        await create(broker, partitions=3)
        made: list[tuple[str, bytes, bool]] = []
        known = broker.store.create

        async def create_node(path: str, value: bytes = b"", *, sequential: bool = False, **how: Any) -> Any:
            made.append((path, value, sequential))
            return await known(path, value, sequential=sequential, **how)

        broker.replicas._store = SimpleNamespace(create=create_node)
        for each in dirs[:2]:
            broker.log_manager.table.fail_dir(each, OSError(errno.EIO, "broken"))
        await until(
            lambda: sum(p.leader == -1 for p in broker.cache.topic("t").partitions.values()) == 2,
            "the partitions of both directories have no leader",
        )
        assert made == [(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(0), True)] * 2
        await broker.stop()

    asyncio.run(test())


def test_who_asks_for_a_partition_that_is_not_here_is_told_where_to_look(with_broker: Runner) -> None:
    async def test(broker: Any) -> None:
        await create(broker)
        replicas = broker.replicas
        state = PartitionState(7, 0, (7,), 1)
        shown = {TopicPartition("t", 1): UpdateMetadataPartition(state, (7,))}
        known = replicas.partitions[T0]
        live = dict(broker.controller.context.live_brokers)
        ids = {"t": known.topic_id}
        await replicas.update_metadata(UpdateMetadata(0, broker.controller.epoch, 1, ids, shown, live))
        with pytest.raises(errors.NotLeaderOrFollowerError, match="This broker has no replica of partition t-1"):
            replicas.partition(TopicPartition("t", 1))
        with pytest.raises(errors.UnknownTopicOrPartitionError, match="Partition t-2 does not exist"):
            replicas.partition(TopicPartition("t", 2))
        assert replicas.partition(T0) is known
        assert [replicas.is_assigned(T0, each) for each in (0, 7)] == [True, False]
        assert not replicas.is_assigned(TopicPartition("t", 1), 7)
        for leader_only in (True, False):
            with pytest.raises(errors.UnknownLeaderEpochError):
                known.local_log(1, leader_only=leader_only)
        await lead(broker, leader_epoch=3, leader=7)
        with pytest.raises(errors.NotLeaderOrFollowerError, match="This broker does not lead partition t-0"):
            known.local_log()
        assert known.local_log(3, leader_only=False) is known.log
        with pytest.raises(errors.FencedLeaderEpochError):
            known.local_log(2, leader_only=False)
        known.offline = True
        with pytest.raises(errors.KafkaStorageError, match="The log directory of partition t-0 is offline"):
            known.local_log(2, leader_only=False)
        known.offline = False

    with_broker(test)
