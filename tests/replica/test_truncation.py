"""Followers cut their logs where the leader's log is another one: every row of Kafka's tables."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from kafkapy.errors import ErrorCode, FencedLeaderEpochError
from kafkapy.replica.fetcher_api import FollowerVersions
from kafkapy.replica.truncation import EpochEnd, Truncation, first_batch, truncation_of
from kafkapy.types import TopicPartition
from tests.replica.scripted_leader import FOLLOWER, LEADER, TP, Follower, batch, contents, logs_in, pair, write

BY_EPOCHS = FollowerVersions(fetch=11, truncates_on_fetch=False)
"""The versions of inter.broker.protocol.version 2.6."""
BOTH_STYLES = pytest.mark.parametrize("versions", [FollowerVersions(), BY_EPOCHS], ids=["by fetch", "by epochs"])


@pytest.mark.parametrize(
    ("ours", "answer", "expected"),
    [
        # The leader does not know where the epoch ends.
        ([(1, 5), (3, 5)], EpochEnd(3, -1), Truncation(4, True)),
        # An old leader without epochs in its answer.
        ([(1, 5), (3, 5)], EpochEnd(-1, 7), Truncation(7, True)),
        ([(1, 5), (3, 5)], EpochEnd(-1, 70), Truncation(10, True)),
        # The follower does not know the leader's epoch: the end of the largest smaller one, and another question.
        ([(1, 5), (3, 5)], EpochEnd(2, 8), Truncation(5, False)),
        ([(1, 5), (3, 5), (6, 2)], EpochEnd(4, 8), Truncation(10, False)),
        # The follower knows it.
        ([(1, 5), (3, 5)], EpochEnd(3, 7), Truncation(7, True)),
        ([(1, 5), (3, 5)], EpochEnd(3, 12), Truncation(10, True)),
        ([(1, 5), (3, 5)], EpochEnd(1, 4), Truncation(4, True)),
        ([(1, 5), (3, 5)], EpochEnd(1, 7), Truncation(5, True)),
        # Below the first epoch of the follower.
        ([(4, 5)], EpochEnd(1, 3), Truncation(0, True)),
        # Above all epochs of the follower.
        ([(1, 5)], EpochEnd(9, 3), Truncation(3, True)),
    ],
)
def test_the_cut_of_an_answer(
    tmp_path: Path, ours: list[tuple[int, int]], answer: EpochEnd, expected: Truncation
) -> None:
    logs = logs_in(tmp_path)
    log = logs.get_or_create(TP)
    write(log, ours)
    assert truncation_of(log, answer, 4) == expected
    logs.shutdown()


def test_a_log_without_epochs_is_cut_at_the_leaders_end(tmp_path: Path) -> None:
    logs = logs_in(tmp_path)
    log = logs.get_or_create(TP)
    assert truncation_of(log, EpochEnd(3, 0), 0) == Truncation(0, True)
    logs.shutdown()


def test_the_first_batch_is_found_only_whole() -> None:
    one, two = batch(2), batch(3)
    assert first_batch(one + two) == one
    assert first_batch(one) == one
    for cut in range(len(one)):
        assert first_batch(one[:cut]) is None
    assert first_batch(one[:8] + b"\xff\xff\xff\xff" + one[12:]) is None


@BOTH_STYLES
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        # Two leaders wrote from the same offset on.
        ([(0, 5), (2, 4)], [(0, 5), (1, 3)]),
        # The follower has more of the common epoch.
        ([(0, 5), (2, 4)], [(0, 9)]),
        # ... or less.
        ([(0, 5), (2, 4)], [(0, 3)]),
        # Two fast failovers: epochs that the other side does not know (KAFKA-6361, KIP-279).
        ([(0, 2), (3, 4), (5, 2)], [(0, 2), (1, 1), (2, 1), (4, 3)]),
        ([(0, 2), (2, 2), (4, 2), (6, 2)], [(0, 2), (1, 3), (3, 2), (5, 4)]),
        ([(0, 2), (1, 2), (3, 4), (5, 2)], [(0, 2), (1, 2), (2, 1), (4, 3)]),
        # An epoch without a record (KAFKA-7415).
        ([(0, 3), (1, 0), (3, 2)], [(0, 3), (2, 4)]),
        ([(0, 3), (3, 2)], [(0, 3), (1, 0), (2, 0)]),
        # Nothing in common.
        ([(5, 3)], [(1, 7)]),
        # Equal logs.
        ([(0, 3), (1, 2)], [(0, 3), (1, 2)]),
    ],
)
def test_the_logs_are_equal_in_the_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    versions: FollowerVersions,
    theirs: list[tuple[int, int]],
    ours: list[tuple[int, int]],
) -> None:
    """No record is cut off that both have."""
    epochs = [[epoch for epoch, count in each for _ in range(count)] for each in (theirs, ours)]
    common = sum(1 for _ in takewhile(lambda each: each[0] == each[1], zip(*epochs, strict=False)))

    async def scenario() -> None:
        async with pair(tmp_path, versions=versions) as (leader, follower):
            log = leader.log()
            write(log, [*theirs, (9, 1)])
            mine = follower.log()
            write(mine, ours)
            cuts: list[int] = []
            truncate_to = follower.logs.truncate_to

            def cut(partition: TopicPartition, offset: int, **rest: Any) -> Any:
                cuts.append(offset)
                return truncate_to(partition, offset, **rest)

            monkeypatch.setattr(follower.logs, "truncate_to", cut)
            follower.follow(epoch=9)
            await until(lambda: mine.high_watermark == log.log_end_offset, "the follower catches up")
            assert contents(mine) == contents(log)
            written = [epoch for epoch, count in theirs if count] + [9]
            assert [epoch for epoch, _ in mine.leader_epochs()] == written
            assert follower.failed == {}
            assert all(offset >= common for offset in cuts)

    asyncio.run(scenario())


def test_both_styles_of_one_leader(tmp_path: Path) -> None:
    """Scenario 15 (KAFKA-10554): brokers of both protocol versions follow one leader."""

    async def scenario() -> None:
        async with pair(tmp_path, versions=BY_EPOCHS) as (leader, old):
            new = Follower(tmp_path / "new", old.endpoints)
            write(leader.log(), [(0, 3), (2, 3)])
            for each in (old, new):
                write(each.log(), [(0, 3), (1, 5)])
                each.follow(epoch=2)
            for each in (old, new):
                await until(lambda each=each: each.log().high_watermark == 6, "the follower catches up")
                assert contents(each.log()) == contents(leader.log())
            await new.close()

    asyncio.run(scenario())


def test_a_follower_without_epochs_is_cut_at_its_high_watermark(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            ours = follower.log()
            for _ in range(6):
                ours.append_as_follower(batch_at(ours.log_end_offset))
            ours.set_high_watermark(4)
            assert ours.leader_epochs() == []
            write(leader.log(), [(1, 8)])
            follower.follow(epoch=1)
            await until(lambda: ours.high_watermark == 8, "the follower catches up")
            assert ours.read(4)[0] == leader.log().read(4)[0]

    asyncio.run(scenario())


def batch_at(offset: int, *, epoch: int = -1, count: int = 1) -> bytes:
    """A batch of a log: with its offset and leader epoch."""
    data = bytearray(batch(count))
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big", signed=True)
    return bytes(data)


def test_a_leader_that_lost_records_is_followed(tmp_path: Path) -> None:
    """Scenario 9 (KAFKA-7414): the leader ends below the follower, and answers OFFSET_OUT_OF_RANGE."""

    async def scenario() -> None:
        async with pair(tmp_path, versions=FollowerVersions(fetch=11)) as (leader, follower):
            write(follower.log(), [(0, 9)])
            write(leader.log(), [(0, 4)])
            ours = follower.follow(epoch=0)
            await until(lambda: ours.log_end_offset == 4, "the follower is cut")
            leader.log().append_as_leader(batch(1))
            await until(lambda: ours.log_end_offset == 5, "the follower goes on")
            assert contents(ours) == contents(leader.log())
            assert follower.failed == {}

    asyncio.run(scenario())


def test_a_leader_that_begins_above_the_follower_empties_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            theirs = leader.log()
            write(theirs, [(0, 50)])
            theirs.roll()
            write(theirs, [(1, 5)])
            theirs.delete_records(50)
            theirs.delete_segments_below(50)
            write(follower.log(), [(0, 9)])
            ours = follower.follow(epoch=1)
            await until(lambda: ours.high_watermark == 55, "the follower catches up")
            assert (ours.log_start_offset, ours.log_end_offset) == (50, 55)
            assert contents(ours) == contents(theirs)

    asyncio.run(scenario())


def test_a_new_follower_begins_within_a_batch(tmp_path: Path) -> None:
    """Scenario 10 (KAFKA-6975): the log start of the leader lies within a batch."""

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            theirs = leader.log()
            for _ in range(4):
                theirs.append_as_leader(batch(10))
            theirs.delete_records(25)
            ours = follower.follow()
            await until(lambda: ours.high_watermark == 40, "the follower catches up")
            await until(lambda: ours.log_start_offset == 25, "the log start follows")
            assert ours.segments()[0][0] == 20
            assert ours.read(25)[0] == theirs.read(25)[0]
            assert follower.failed == {}

    asyncio.run(scenario())


def test_an_epoch_without_records_is_forgotten_at_the_log_end(tmp_path: Path) -> None:
    """Scenario 14 (KAFKA-10706): truncation at the log end cleans the epochs too."""
    logs = logs_in(tmp_path)
    log = logs.get_or_create(TP)
    write(log, [(0, 5), (3, 0)])
    assert log.leader_epochs() == [(0, 0), (3, 5)]
    assert not logs.truncate_to(TP, 5)
    assert log.leader_epochs() == [(0, 0)]
    assert (tmp_path / "orders-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
    assert not logs.truncate_to(TP, 90)
    assert log.leader_epochs() == [(0, 0)]
    logs.shutdown()


def test_a_late_truncation_does_not_touch_a_new_leader(tmp_path: Path) -> None:
    logs = logs_in(tmp_path)
    log = logs.get_or_create(TP)
    write(log, [(0, 5)])
    log.become_follower(3, 1)
    log.become_leader(LEADER, 2, [LEADER])
    for cut in (
        lambda: logs.truncate_to(TP, 2, followed=log, leader_epoch=1),
        lambda: logs.truncate_to(TP, 0, followed=log, leader_epoch=1),
        lambda: logs.truncate_to(TP, 2, followed=log, leader_epoch=2),
        lambda: logs.truncate_fully_and_start_at(TP, 9, followed=log, leader_epoch=1),
    ):
        with pytest.raises(FencedLeaderEpochError):
            cut()
    other = logs.get_or_create(TopicPartition("other", 0))
    with pytest.raises(FencedLeaderEpochError):
        logs.truncate_to(TP, 2, followed=other, leader_epoch=2)
    assert log.log_end_offset == 5
    with pytest.raises(FencedLeaderEpochError):
        log.append_as_follower(batch_at(5, epoch=1), leader_epoch=1)
    logs.shutdown()


def test_the_producers_are_those_of_the_records(tmp_path: Path) -> None:
    """Scenario 14 (KAFKA-12153): the producer state after a truncation."""
    from kafkapy.records.batches import RecordBatchBuilder
    from kafkapy.types import CompressionType

    def produced(sequence: int) -> bytes:
        builder = RecordBatchBuilder()
        builder.append(1000, b"k", b"v")
        return builder.build(CompressionType.NONE, producer_id=7, producer_epoch=0, base_sequence=sequence)

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            for log, epochs in ((leader.log(), [(0, 0, 3), (2, 3, 2)]), (follower.log(), [(0, 0, 3), (1, 3, 6)])):
                for epoch, first, count in epochs:
                    log.become_leader(LEADER, epoch, [LEADER])
                    for number in range(first, first + count):
                        log.append_as_leader(produced(number))
            ours = follower.follow(epoch=2)
            await until(lambda: ours.high_watermark == 5, "the follower catches up")
            assert contents(ours) == contents(leader.log())
            assert [each["last_sequence"] for each in ours.producers()] == [4]

    asyncio.run(scenario())


def test_the_leader_epoch_jumps_while_a_fetch_is_in_flight(tmp_path: Path) -> None:
    """Scenario 7 (KAFKA-7164): data of the old epoch is dropped, and each change is truncated for."""

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            theirs = leader.log()
            write(theirs, [(0, 3)])
            ours = follower.follow(epoch=0)
            await until(lambda: ours.log_end_offset == 3, "the follower catches up")
            for epoch in range(1, 12):
                write(theirs, [(epoch, 2)])
                follower.follow(epoch=epoch)
            await until(lambda: ours.log_end_offset == theirs.log_end_offset, "the follower catches up")
            assert contents(ours) == contents(theirs)
            assert follower.failed == {}

    asyncio.run(scenario())


def test_partitions_leave_while_they_are_cut(tmp_path: Path) -> None:
    """Scenario 11 (KAFKA-8012, KAFKA-13207): the others go on."""

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            partitions = [TopicPartition("orders", index) for index in range(6)]
            for each in partitions:
                write(leader.log(each), [(0, 3), (2, 2)])
                write(follower.log(each), [(0, 3), (1, 4)])
                follower.follow(each, epoch=2)
            follower.fetchers.remove(partitions[:3])
            for each in partitions[3:]:
                await until(lambda each=each: follower.log(each).high_watermark == 5, "the others are cut")
            for each in partitions[:3]:
                follower.logs.delete(each)
            leader.log(partitions[4]).append_as_leader(batch(1))
            await until(lambda: follower.log(partitions[4]).high_watermark == 6, "and go on")
            assert follower.failed == {}

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_an_error_of_a_question_is_tried_again(tmp_path: Path, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, versions=BY_EPOCHS) as (leader, follower):
            left = 3

            def fail(topic_partition: TopicPartition, answer: Any) -> None:
                nonlocal left
                if left:
                    left -= 1
                    answer.error_code, answer.end_offset = code, -1

            leader.on_epochs = fail
            write(leader.log(), [(0, 3), (2, 2)])
            write(follower.log(), [(0, 3), (1, 4)])
            ours = follower.follow(epoch=2)
            await until(lambda: ours.high_watermark == 5, "the follower catches up")
            assert contents(ours) == contents(leader.log())

    asyncio.run(scenario())


@pytest.mark.parametrize("versions", [FollowerVersions(), BY_EPOCHS], ids=["offsets", "epochs"])
def test_a_fenced_question_fails_the_partition(tmp_path: Path, versions: FollowerVersions) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, versions=versions) as (leader, follower):

            def fence(topic_partition: TopicPartition, answer: Any) -> None:
                answer.error_code = ErrorCode.FENCED_LEADER_EPOCH

            def out_of_range(topic_partition: TopicPartition, answer: Any) -> None:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE

            leader.on_epochs = leader.on_offsets = fence
            leader.on_answer = out_of_range
            write(leader.log(), [(0, 1)])
            write(follower.log(), [(0, 3)])
            ours = follower.follow(epoch=0)
            await until(lambda: TP in follower.failed, "the partition has failed")
            assert isinstance(follower.failed[TP], FencedLeaderEpochError)
            assert ours.log_end_offset == 3
            assert follower.fetchers.metrics().failed_partitions == 1
            leader.on_epochs = leader.on_offsets = leader.on_answer = None
            write(leader.log(), [(1, 3)])
            follower.follow(epoch=1)
            await until(lambda: ours.high_watermark == 4, "a new epoch begins again")
            assert contents(ours) == contents(leader.log())
            assert follower.fetchers.metrics().failed_partitions == 0

    asyncio.run(scenario())


def test_a_follower_that_led_gives_its_tail_up(tmp_path: Path) -> None:
    """Scenario 2 (KIP-101): the old leader returns with records that nobody else has."""

    async def scenario() -> None:
        async with pair(tmp_path) as (leader, follower):
            ours = follower.log()
            ours.become_leader(FOLLOWER, 0, [FOLLOWER])
            for _ in range(7):
                ours.append_as_leader(batch(2))
            write(leader.log(), [(0, 0)])
            for offset in (0, 2, 4):
                leader.log().append_as_follower(batch_at(offset, epoch=0, count=2))
            write(leader.log(), [(1, 4)])
            follower.follow(epoch=1)
            await until(lambda: ours.high_watermark == 10, "the follower catches up")
            assert ours.read(6)[0] == leader.log().read(6)[0]
            assert ours.leader_epochs() == [(0, 0), (1, 6)]

    asyncio.run(scenario())
