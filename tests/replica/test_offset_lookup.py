"""ListOffsets on a new leader whose high watermark is behind what its predecessor committed (KIP-207)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from replica.isr_leader import IsrLeader

from kafkapy import errors
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.replica import offset_lookup
from kafkapy.replica.offset_lookup import FoundOffset, last_fetchable_offset, legacy_offsets, lookup
from kafkapy.types import IsolationLevel, ListOffsetsTimestamp

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def test_a_new_leader_answers_only_what_cannot_go_back() -> None:
    async def body() -> None:
        leader = IsrLeader()
        partition = leader.lead(isr=(1, 2), replicas=(1, 2))
        log = partition.log
        assert log is not None
        for timestamp in range(1000, 1006):
            builder = RecordBatchBuilder()
            builder.append(timestamp, b"k", b"v")
            log.append_as_leader(builder.build(), api_version=9)
        log.follower_position(2, 4)
        latest = lookup(log, ListOffsetsTimestamp.LATEST, UNCOMMITTED)
        assert latest is not None and latest.offset == 4
        leader.lead(partition=partition, isr=(1, 2), replicas=(1, 2), leader_epoch=6, version=8)
        for isolation in (UNCOMMITTED, IsolationLevel.READ_COMMITTED):
            with pytest.raises(errors.OffsetNotAvailableError):
                lookup(log, ListOffsetsTimestamp.LATEST, isolation)
            # Beyond the high watermark there may be a record that fits.
            for timestamp in (1004, 1005, 9999):
                with pytest.raises(errors.OffsetNotAvailableError):
                    lookup(log, timestamp, isolation)
            earliest = lookup(log, ListOffsetsTimestamp.EARLIEST, isolation)
            found = lookup(log, 1003, isolation)
            assert earliest is not None and earliest.offset == 0
            assert found is not None and (found.offset, found.timestamp) == (3, 1003)
        # A follower asks for the log end.
        latest = lookup(log, ListOffsetsTimestamp.LATEST, None)
        assert latest is not None and latest.offset == 6
        log.follower_position(2, 6)
        latest = lookup(log, ListOffsetsTimestamp.LATEST, UNCOMMITTED)
        assert latest is not None and (latest.offset, latest.leader_epoch) == (6, 6)
        assert lookup(log, 9999, UNCOMMITTED) is None
        # One that follows answers what it knows.
        leader.follow(partition, 2, 7)
        latest = lookup(log, ListOffsetsTimestamp.LATEST, UNCOMMITTED)
        assert latest is not None and latest.offset == 6
        await leader.manager.close()

    asyncio.run(body())


COMMITTED = IsolationLevel.READ_COMMITTED


def log(start: int = 2, end: int = 9, high_watermark: int = 8, stable: int = 7, **fields: Any) -> Any:
    plain = {"leader_epochs": lambda: [(1, 0)], "is_leader": True, "leader_epoch": 4, "epoch_start_offset": 5}
    return SimpleNamespace(
        log_start_offset=start,
        high_watermark=high_watermark,
        offsets=lambda: (start, end, high_watermark, stable, 0),
        **plain | fields,
    )


def test_each_reader_sees_its_own_end() -> None:
    assert [last_fetchable_offset(log(), each) for each in (None, UNCOMMITTED, COMMITTED)] == [9, 8, 7]
    latest = [lookup(log(), ListOffsetsTimestamp.LATEST, each) for each in (None, UNCOMMITTED, COMMITTED)]
    assert latest == [(-1, 9, 4), (-1, 8, 4), (-1, 7, 4)]


@pytest.mark.parametrize(("high_watermark", "behind"), [(4, True), (5, False), (6, False)])
def test_only_the_leader_waits_for_the_start_of_its_epoch(high_watermark: int, behind: bool) -> None:
    for isolation in (UNCOMMITTED, COMMITTED, None):
        for is_leader in (True, False):
            found = log(high_watermark=high_watermark, is_leader=is_leader)
            if behind and is_leader and isolation is not None:
                with pytest.raises(errors.OffsetNotAvailableError):
                    lookup(found, ListOffsetsTimestamp.LATEST, isolation)
            else:
                assert lookup(found, ListOffsetsTimestamp.LATEST, isolation) is not None


def test_nothing_is_tiered() -> None:
    for timestamp in (ListOffsetsTimestamp.LATEST_TIERED, ListOffsetsTimestamp.EARLIEST_PENDING_UPLOAD):
        assert lookup(log(), timestamp, UNCOMMITTED) == FoundOffset(-1, -1, -1)


@pytest.mark.parametrize("isolation", [None, UNCOMMITTED, COMMITTED])
def test_times_are_looked_for_below_the_readers_end(
    monkeypatch: pytest.MonkeyPatch, isolation: IsolationLevel | None
) -> None:
    asked: list[Any] = []
    for name in ("offset_for_timestamp", "offset_of_max_timestamp"):
        monkeypatch.setattr(
            offset_lookup, name, lambda log, *time, end_offset, name=name: asked.append((name, *time, end_offset))
        )
    end = last_fetchable_offset(log(), isolation)
    assert lookup(log(), 1000, isolation) is None
    assert lookup(log(), ListOffsetsTimestamp.MAX_TIMESTAMP, isolation) is None
    assert asked == [("offset_for_timestamp", 1000, end), ("offset_of_max_timestamp", end)]


NOW = 1_000


@pytest.mark.parametrize(
    ("timestamp", "limit", "expected"),
    [
        (-1, 10, [9, 6, 4, 2]),
        (-1, 4, [9, 6, 4, 2]),
        (-1, 3, [9, 6, 4]),
        (-1, 1, [9]),
        (-1, 0, []),
        (-1, -1, []),
        (-2, 10, [2]),
        (-2, 0, []),
        (299, 10, [4, 2]),
        (300, 10, [6, 4, 2]),
        (99, 10, []),
        (100, 10, [2]),
        (NOW - 1, 10, [6, 4, 2]),
        (NOW, 10, [9, 6, 4, 2]),
    ],
)
def test_the_old_form_lists_segments_by_their_age(
    monkeypatch: pytest.MonkeyPatch, timestamp: int, limit: int, expected: list[int]
) -> None:
    """A consumer sees the high watermark in place of what is beyond it."""
    monkeypatch.setattr(offset_lookup, "time", SimpleNamespace(time=lambda: NOW / 1000))
    segments = [(0, 5, 0, 100, True), (4, 5, 0, 200, True), (6, 1, 0, 300, False)]
    found = log(segments=lambda: segments)
    assert legacy_offsets(found, timestamp, limit, False) == expected
    shown = [8 if each == 9 else each for each in expected]
    assert legacy_offsets(found, timestamp, limit, True) == shown
    assert legacy_offsets(log(high_watermark=9, segments=lambda: segments), timestamp, limit, True) == expected
    low = [each for each in expected if each <= 5]
    beyond = [5] if len(low) < len(expected) else []
    assert legacy_offsets(log(high_watermark=5, segments=lambda: segments), timestamp, limit, True) == beyond + low


def test_the_old_form_has_no_end_without_records_in_the_active_segment() -> None:
    closed = (0, 5, 0, 1, True)
    for segments, expected in (([], []), ([(0, 0, 0, 1, False)], [2]), ([closed, (6, 0, 0, 1, False)], [6, 2])):
        assert legacy_offsets(log(segments=lambda segments=segments: segments), -1, 10, False) == expected
