"""Followers copy what their leader has: records, high watermark, log start; over sessions, disconnects and resizes."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import weakref
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from waiting import until

from kafkapy._speedups.replica import fetcher as kernel
from kafkapy.errors import ErrorCode, KafkaStorageError
from kafkapy.records.batches import Record
from kafkapy.records.legacy import build_message_set, iter_messages
from kafkapy.replica.fetcher_api import FollowerVersions
from kafkapy.replica.fetcher_manager import _index
from kafkapy.types import CompressionType, TopicPartition
from tests.replica.scripted_leader import (
    FOLLOWER,
    TP,
    Answer,
    ScriptedLeader,
    batch,
    contents,
    logs_in,
    pair,
    write,
)


def test_a_follower_copies_the_leaders_bytes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            theirs = leader.log()
            for count in range(1, 30):
                theirs.append_as_leader(batch(count))
            ours = follower.follow()
            await until(lambda: ours.log_end_offset == theirs.log_end_offset, "the follower catches up")
            await until(lambda: ours.high_watermark == theirs.high_watermark, "the high watermark follows")
            assert contents(ours) == contents(theirs)
            assert ours.leader_epochs() == theirs.leader_epochs()
            theirs.append_as_leader(batch(5))
            await until(lambda: ours.high_watermark == theirs.log_end_offset, "later records follow")
            assert contents(ours) == contents(theirs)
            metrics = follower.fetchers.metrics()
            assert metrics.bytes_in == len(contents(theirs))
            assert (metrics.fetchers, metrics.partitions, metrics.failed_partitions) == (1, 1, 0)
            await until(lambda: follower.fetchers.metrics().min_fetch_rate > 0, "the rate of requests is known")
            assert follower.fetchers.lags() == {TP: 0}

    asyncio.run(scenario())


def test_a_shortage_of_descriptors_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            theirs = leader.log()
            theirs.append_as_leader(batch(3))
            short = [errno.EMFILE, errno.EAGAIN]
            make = follower.fetchers._make_kernel

            def makes(*arguments: Any, **keywords: Any) -> Any:
                if short:
                    raise OSError(short.pop(), "short")
                return make(*arguments, **keywords)

            monkeypatch.setattr(follower.fetchers, "_make_kernel", makes)
            ours = follower.follow()
            await until(lambda: ours.log_end_offset == theirs.log_end_offset, "the follower catches up")
            assert not follower.failed and not short
            tries: list[int] = [errno.ENFILE, errno.ENOMEM]

            def cuts() -> None:
                if tries:
                    raise OSError(tries.pop(), "short")

            paused: list[int] = []
            back_off = follower.fetchers._back_off

            async def pauses() -> None:
                paused.append(len(tries))
                await back_off()

            monkeypatch.setattr(follower.fetchers, "_back_off", pauses)
            await follower.fetchers._on_worker(cuts)
            assert paused == [1, 0] and not tries
            tries = [errno.EIO]
            with pytest.raises(KafkaStorageError):
                await follower.fetchers._on_worker(cuts)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", range(4, 18))
def test_a_follower_speaks_every_version(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, versions=FollowerVersions(fetch=version)) as (leader, follower):
            theirs = leader.log()
            follower.fetchers.broker_epoch = 77
            for _ in range(3):
                theirs.append_as_leader(batch(3))
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 9, "the follower catches up")
            theirs.delete_records(4)
            await until(lambda: version < 5 or ours.log_start_offset == 4, "the log start follows")
            assert contents(ours) == contents(theirs) or version < 5
            assert set(leader.versions) == {version}
            request = leader.fetches[-1]
            if version < 15:
                assert request.replica_id == FOLLOWER
            else:
                assert request.replica_state.replica_id == FOLLOWER
                assert request.replica_state.replica_epoch == 77
            assert request.max_bytes == 10 * 1024 * 1024

    asyncio.run(scenario())


def test_an_older_leader_is_asked_in_its_own_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, newest_fetch=11) as (leader, follower):
            leader.log().append_as_leader(batch(3))
            ours = follower.follow()
            await until(lambda: ours.log_end_offset == 3, "the follower catches up")
            assert set(leader.versions) == {11}

    asyncio.run(scenario())


def test_a_topic_without_id_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            other = TopicPartition("old", 0)
            leader.log().append_as_leader(batch(3))
            leader.log(other).append_as_leader(batch(2))
            ours = follower.follow()
            await until(lambda: ours.log_end_offset == 3, "the first topic follows")
            assert set(leader.versions) == {17}
            old = follower.follow(other, topic_id=UUID(int=0))
            await until(lambda: old.log_end_offset == 2, "the topic without an id follows")
            assert leader.versions[-1] == 12
            follower.fetchers.remove([other])
            leader.log().append_as_leader(batch(1))
            await until(lambda: ours.log_end_offset == 4 and leader.versions[-1] == 17, "ids are used again")

    asyncio.run(scenario())


def test_a_session_names_only_what_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            partitions = [TopicPartition("orders", index) for index in range(20)]
            for each in partitions:
                leader.log(each)
            logs = [follower.follow(each) for each in partitions]
            await until(lambda: len(leader.fetches) > 5, "several fetches")
            first = leader.fetches[0]
            assert (first.session_id, first.session_epoch) == (0, 0)
            later = leader.fetches[-1]
            assert later.session_epoch > 1
            assert later.topics == []
            leader.log(partitions[7]).append_as_leader(batch(2))
            await until(lambda: logs[7].log_end_offset == 2, "the record follows")
            await until(
                lambda: leader.fetches[-1].topics == [] and len(leader.fetches) > 8, "the session is quiet again"
            )
            named = [
                each.partition
                for request in leader.fetches[2:]
                for topic in request.topics
                for each in topic.partitions
            ]
            assert set(named) <= {7}
            follower.fetchers.remove([partitions[3]])
            await until(lambda: any(request.forgotten_topics_data for request in leader.fetches), "it is forgotten")
            forgotten = next(request for request in leader.fetches if request.forgotten_topics_data)
            assert [each.partitions for each in forgotten.forgotten_topics_data] == [[3]]
            follower.follow(partitions[3], epoch=1)
            leader.log(partitions[3], epoch=1).append_as_leader(batch(1))
            await until(lambda: logs[3].log_end_offset == 1, "it is followed again")
            assert leader.connections == 1

    asyncio.run(scenario())


def test_a_lost_session_begins_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            ours = follower.follow()
            leader.log()
            await until(lambda: len(leader.fetches) > 3, "a session")
            leader._sessions.clear()
            leader.log().append_as_leader(batch(2))
            await until(lambda: ours.log_end_offset == 2 and leader._sessions, "a new session")
            old = next(iter(leader._sessions))
            epoch, known = leader._sessions[old]
            leader._sessions[old] = (epoch + 5, known)
            leader.log().append_as_leader(batch(2))
            await until(lambda: ours.log_end_offset == 4, "another session")
            # A request that was under way may have brought the records.
            await until(
                lambda: any(each.session_id == old and each.session_epoch == 0 for each in leader.fetches), "a full one"
            )
            assert leader.connections == 1

    asyncio.run(scenario())


def test_a_response_in_small_pieces_is_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            leader.piece = 7
            theirs = leader.log()
            for _ in range(8):
                theirs.append_as_leader(batch(3, size=50))
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 24, "the follower catches up")
            assert contents(ours) == contents(theirs)

    asyncio.run(scenario())


def test_batches_beyond_the_limits_come_one_by_one(tmp_path: Path) -> None:
    """A batch larger than replica.fetch.max.bytes is fetched all the same (KIP-74)."""

    async def scenario() -> None:
        keys = {"replica_fetch_max_bytes": "1000", "replica_fetch_response_max_bytes": "2000"}
        async with pair(tmp_path, **keys) as (leader, follower):
            theirs = leader.log()
            for size in (300_000, 10, 900_000, 20):
                theirs.append_as_leader(batch(1, size=size))
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 4, "the follower catches up")
            assert contents(ours) == contents(theirs)

    asyncio.run(scenario())


def test_a_follower_rolls_and_indexes_as_its_leader(tmp_path: Path) -> None:
    async def scenario() -> None:
        keys = {"log_segment_bytes": "50000", "log_index_interval_bytes": "1000"}
        async with pair(tmp_path, leader_keys=keys, **keys) as (leader, follower):
            theirs = leader.log()
            for _ in range(60):
                theirs.append_as_leader(batch(5, size=600))
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 300, "the follower catches up")
            assert contents(ours) == contents(theirs)
            assert len(ours.segments()) >= len(theirs.segments()) > 3
            for offset in range(300):
                assert ours.read(offset, 1)[0] == theirs.read(offset, 1)[0]

    asyncio.run(scenario())


def test_a_broken_connection_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            ours = follower.follow()
            theirs = leader.log()
            for count in range(1, 5):
                theirs.append_as_leader(batch(2))
                await until(lambda count=count: ours.log_end_offset == 2 * count, "the follower catches up")
                leader.disconnect()
            await until(lambda: leader.connections >= 4, "new connections")
            leader.refuses = True
            leader.disconnect()
            theirs.append_as_leader(batch(2))
            await until(lambda: follower.fetchers.metrics().dead_threads == 1, "the connection is missed")
            leader.refuses = False
            await until(lambda: ours.log_end_offset == 10, "the follower comes back")
            assert follower.failed == {}

    asyncio.run(scenario())


def test_a_silent_leader_is_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, replica_socket_timeout_ms="200") as (leader, follower):
            theirs = leader.log()
            leader.max_wait_s = 0
            leader.piece = 1
            forever = asyncio.Event()
            fetch = leader._fetch

            async def silent(request, version):  # type: ignore[no-untyped-def]
                if leader.connections == 1:
                    await forever.wait()
                return await fetch(request, version)

            leader._fetch = silent  # type: ignore[method-assign]
            theirs.append_as_leader(batch(2))
            ours = follower.follow()
            await until(lambda: ours.log_end_offset == 2, "another connection")
            assert leader.connections >= 2
            forever.set()

    asyncio.run(scenario())


def test_partitions_are_spread_and_spread_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            partitions = [TopicPartition("orders", index) for index in range(12)]
            for each in partitions:
                leader.log(each).append_as_leader(batch(1))
            logs = [follower.follow(each) for each in partitions]
            for number, count in enumerate((3, 2, 1), 2):
                follower.fetchers.resize(count)
                for each in partitions:
                    leader.log(each).append_as_leader(batch(1))
                await until(lambda number=number: all(log.log_end_offset == number for log in logs), "all follow")
                # The old threads may have copied the records before they ended.
                await until(lambda count=count: follower.fetchers.metrics().fetchers == count, "they are spread")
            assert follower.failed == {}
            for each, log in zip(partitions, logs, strict=True):
                assert contents(log) == contents(leader.log(each))

    asyncio.run(scenario())


def test_idle_fetchers_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, num_replica_fetchers="4") as (leader, follower):
            partitions = [TopicPartition("orders", index) for index in range(8)]
            for each in partitions:
                leader.log(each)
                follower.follow(each)
            await until(lambda: follower.fetchers.metrics().requests > 8, "they fetch")
            await until(lambda: follower.fetchers.metrics().fetchers == 4, "all four")
            follower.fetchers.remove(partitions)
            await until(lambda: follower.fetchers.metrics().fetchers == 0, "no fetcher is left")

    asyncio.run(scenario())


def test_nothing_reaches_a_log_that_leads(tmp_path: Path) -> None:
    """An answer that was fetched before a change of leadership is dropped."""

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            theirs = leader.log()
            ours = follower.follow()
            await until(lambda: len(leader.fetches) > 1, "it fetches")
            ours.become_leader(FOLLOWER, 1, [FOLLOWER])
            theirs.append_as_leader(batch(5))
            seen = len(leader.fetches)
            await until(
                lambda: len(leader.fetches) > seen + 1 or follower.fetchers.metrics().requests > seen, "answers"
            )
            assert ours.log_end_offset == 0
            follower.fetchers.remove([TP])
            ours.append_as_leader(batch(1))
            assert ours.log_end_offset == 1

    asyncio.run(scenario())


def test_throttled_replicas_keep_to_the_rate(tmp_path: Path) -> None:
    async def scenario() -> None:
        keys = {"replica_fetch_max_bytes": "2000", "follower_replication_throttled_rate": "1000"}
        async with pair(tmp_path, **keys) as (leader, follower):
            free, held = TopicPartition("orders", 0), TopicPartition("orders", 1)
            config = follower.logs.config
            from kafkapy.config.topic import LogConfig

            throttled = LogConfig.create(config, {"follower.replication.throttled.replicas": f"1:{FOLLOWER}"})
            for each in (free, held):
                for _ in range(200):
                    leader.log(each).append_as_leader(batch(1, size=1000))
            ours = follower.follow(held, config=throttled)
            other = follower.follow(free)
            await until(lambda: other.high_watermark == 200, "the free replica catches up")
            assert 0 < ours.log_end_offset < 100
            assert follower.fetchers.metrics().throttled > 0
            ours.update_config(LogConfig.create(config))
            follower.fetchers.update_topics(["orders"])
            await until(lambda: ours.high_watermark == 200, "the other one catches up")

    asyncio.run(scenario())


def test_close_under_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, num_replica_fetchers="3") as (leader, follower):
            partitions = [TopicPartition("orders", index) for index in range(9)]
            for each in partitions:
                for _ in range(20):
                    leader.log(each).append_as_leader(batch(1, size=100_000))
                follower.follow(each)
            await until(lambda: follower.fetchers.metrics().bytes_in > 0, "data flows")
            await follower.fetchers.close()
            await follower.fetchers.close()
            ends = [follower.log(each).log_end_offset for each in partitions]
            await asyncio.sleep(0)
            assert [follower.log(each).log_end_offset for each in partitions] == ends
            follower.fetchers.add({})

    asyncio.run(scenario())


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_messages_of_old_formats_are_copied(tmp_path: Path, magic: int, codec: CompressionType) -> None:
    """Scenario 26: an old format, then v2. The old messages end the knowledge of leader epochs."""

    async def scenario() -> None:
        async with pair(tmp_path, log_segment_bytes="2000", log_index_interval_bytes="200") as (leader, follower):
            old = b""
            for number in range(0, 40, 2):
                records = [
                    Record(number + n, 1000 if magic else -1, 0 if magic else -1, b"k", b"v" * 90) for n in range(2)
                ]
                old += build_message_set(records, magic, codec)
            leader.log()
            ours = follower.log()
            write(ours, [(0, 0), (1, 0)])
            serve_from(leader, old)
            follower.follow(epoch=2)
            leader.log(epoch=2)
            await until(lambda: ours.log_end_offset == 40, "the old messages are copied")
            assert contents(ours) == old
            assert ours.leader_epochs() == []
            assert len(ours.segments()) > 1 or codec
            assert follower.failed == {}

    asyncio.run(scenario())


def serve_from(leader: ScriptedLeader, data: bytes) -> None:
    """Answers with the part of a message set that begins with the fetched offset."""

    def answer(topic_partition: TopicPartition, asked: Any, max_bytes: int) -> Answer:
        messages = list(iter_messages(data))
        at = 0
        for message in messages:
            if message.offset >= asked.fetch_offset:
                break
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        return Answer(
            partition_index=0,
            high_watermark=messages[-1].offset + 1,
            log_start_offset=0,
            aborted_transactions=None,
            records=data[at:],
        )

    leader.answer = answer  # type: ignore[method-assign]


def test_a_flush_writes_epochs_that_are_not_in_their_file(tmp_path: Path) -> None:
    """After a crash, recovery does not look for them below the recovery point."""
    logs = logs_in(tmp_path)
    log = logs.get_or_create(TP)
    path = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    log.become_leader(1, 0, [1])
    log.append_as_leader(batch(1))
    log.flush()
    path.write_bytes(b"0\n0\n")
    log.flush()
    assert path.read_bytes() == b"0\n0\n"

    async def scenario() -> None:
        async with pair(tmp_path / "pair") as (leader, follower):
            written = []
            theirs = leader.log(epoch=3)
            theirs.append_as_leader(batch(1))
            ours = follower.log()
            # The fetcher's event is late.
            follower.fetchers._write_epochs = lambda followed: nothing(written.append(followed))  # type: ignore[method-assign]
            follower.follow(epoch=3)
            await until(lambda: written, "the event")
            path = tmp_path / "pair" / "follower" / "orders-0" / "leader-epoch-checkpoint"
            assert b"3 0" not in (path.read_bytes() if path.exists() else b"")
            ours.flush()
            assert path.read_bytes() == b"0\n1\n3 0\n"

    async def nothing(noted: None) -> None:
        del noted

    asyncio.run(scenario())
    logs.shutdown()


def test_the_epochs_file_follows_the_appends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            write(leader.log(), [(0, 2), (4, 2)])
            follower.follow(epoch=4)
            path = tmp_path / "follower" / "orders-0" / "leader-epoch-checkpoint"
            await until(lambda: path.exists() and path.read_bytes() == b"0\n2\n0 0\n4 2\n", "the file")

    asyncio.run(scenario())


def test_a_failed_disk_fails_the_partition(tmp_path: Path) -> None:
    """Scenario 16 (KAFKA-10778): the log is fenced, and no later append succeeds."""

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            ours = follower.follow()
            leader.log().append_as_leader(batch(1))
            await until(lambda: ours.log_end_offset == 1, "the follower follows")
            ours.go_offline(5)
            leader.log().append_as_leader(batch(1))
            await until(lambda: TP in follower.failed, "the partition has failed")
            assert isinstance(follower.failed[TP], KafkaStorageError)
            assert ours.log_end_offset == 1

    asyncio.run(scenario())


def test_a_leader_that_hears_of_its_epoch_later_is_asked_soon_again(tmp_path: Path) -> None:
    """The pause grows up to replica.fetch.backoff.ms, which is longer than this test waits."""

    async def scenario() -> None:
        async with pair(tmp_path, replica_fetch_backoff_ms="3600000") as (leader, follower):
            leader.log().append_as_leader(batch(2))
            ours = follower.follow(epoch=1)
            await until(lambda: len(leader.fetches) > 2, "several attempts")
            assert ours.log_end_offset == 0
            leader.log(epoch=1)
            await until(lambda: ours.high_watermark == 2, "the follower catches up")

    asyncio.run(scenario())


def test_nothing_holds_fetchers_that_were_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            leader.log().append_as_leader(batch(3))
            ours = follower.follow()
            await until(lambda: ours.log_end_offset == 3, "the follower catches up")
        held = weakref.ref(follower.fetchers)
        del leader, follower

        def gone() -> bool:
            gc.collect()
            return held() is None

        await until(gone, "the loop and the threads let go of them")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("topic", "partition", "hashed"),
    [
        # "Hello".hashCode() is 69609650, "orders".hashCode() -1008770331, "Aa" and "BB" have 2112.
        ("Hello", 3, -2137068143),
        ("Hello", 4, -2137068142),
        ("orders", 0, -1207109189),
        ("orders", 5, -1207109184),
        ("Aa", 1, 65473),
        ("BB", 1, 65473),
        # The hash is the smallest number of 32 bits, of which Kafka makes 0.
        ("polygenelubricants", 0, 0),
    ],
)
def test_a_partition_has_the_fetcher_that_kafka_gives_it(topic: str, partition: int, hashed: int) -> None:
    """By the hash of the topic's name in Java: the names of fetchers in tools and logs say the same as Kafka's."""
    for fetchers in (1, 2, 3, 7, 100):
        assert _index(TopicPartition(topic, partition), fetchers) == abs(hashed) % fetchers


def test_an_attempt_waits_for_the_configured_pause(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, replica_fetch_backoff_ms="3600000") as (_, follower):
            waiting = asyncio.ensure_future(follower.fetchers._back_off())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(scenario())


LEVELS = {
    "NOT_LEADER_OR_FOLLOWER": logging.INFO,
    "UNKNOWN_LEADER_EPOCH": logging.INFO,
    "UNKNOWN_TOPIC_OR_PARTITION": logging.WARNING,
    "KAFKA_STORAGE_ERROR": logging.WARNING,
    "FENCED_LEADER_EPOCH": logging.WARNING,
}


def test_the_operator_is_told_why_a_partition_is_not_fetched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What ends by itself at a change of leadership is no warning, and a fenced follower is no error."""

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            leader.log()
            follower.follow()
            fetchers = follower.fetchers
            await until(lambda: fetchers.metrics().requests > 0, "it fetches")
            followed = fetchers._followed[TP]
            assert followed.partition is not None
            handle = followed.partition.handle
            caplog.set_level(logging.DEBUG, "kafka.server.ReplicaFetcherManager")
            caplog.clear()
            for name in LEVELS:
                fetchers._on_event((kernel.ERROR, handle, ErrorCode[name], b"says why"))
            fetchers._on_event((kernel.ERROR, handle, 0, b""))
            assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
                (level, f"Partition orders-0 is not fetched from leader 1 for a while: {name} (says why)")
                for name, level in LEVELS.items()
            ] + [(logging.INFO, "Partition orders-0 is fetched again")]
            for code, level in ((ErrorCode.FENCED_LEADER_EPOCH, "DEBUG"), (ErrorCode.KAFKA_STORAGE_ERROR, "ERROR")):
                fetchers._on_event((kernel.FAILED, followed.partition.handle, code, b"it is over"))
                assert (follower.failed[TP].code, str(follower.failed[TP])) == (code, "it is over")
                assert fetchers.metrics().failed_partitions == 1
                assert fetchers.lags() == {TP: -1}
                told = (level, "Partition orders-0 is not followed any more in leader epoch 0: it is over")
                assert told in [(each.levelname, each.getMessage()) for each in caplog.records]
                # One that has failed is not failed again.
                fetchers._fail(followed, KafkaStorageError("again"))
                assert str(follower.failed[TP]) == "it is over"
                follower.follow()
                await until(lambda: fetchers._followed[TP].partition is not None, "it is followed again")
                followed = fetchers._followed[TP]
                assert followed.partition is not None

    asyncio.run(scenario())
