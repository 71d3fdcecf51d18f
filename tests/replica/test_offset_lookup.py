"""ListOffsets on a new leader whose high watermark is behind what its predecessor committed (KIP-207)."""

from __future__ import annotations

import asyncio

import pytest
from replica.isr_leader import IsrLeader

from kafkapy import errors
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.replica.offset_lookup import lookup
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
