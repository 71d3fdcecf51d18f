"""Where a read starts, as the offset index tells it: with an entry for every batch, for some, for many at once."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from log import conftest as helpers
from log import log_oracle as oracle

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog

INTERVAL = 300
REMEMBERED = 64
"""Batches appended last, whose places are known without the index."""


def reads_of_this_thread() -> int:
    found = re.search(r"syscr: (\d+)", Path("/proc/thread-self/io").read_text())
    assert found is not None
    return int(found[1])


def append(log: PartitionLog, as_leader: bool, sizes: list[int]) -> None:
    """One append of batches with values of these sizes: a leader takes one batch, a follower what a fetch brought."""
    data, end = b"", log.log_end_offset
    for size in sizes:
        base = 0 if as_leader else end
        data += helpers.make_batch(1 + size % 3, value=b"v" * size, base_offset=base, leader_epoch=log.leader_epoch)
        end += 1 + size % 3
    if as_leader:
        log.append_as_leader(data, api_version=9)
    else:
        log.append_as_follower(data)


def check_reads(log: PartitionLog, rng: Random) -> None:
    """From every offset, in order and at random: the batch that holds it comes first, and whole."""
    offsets = list(range(log.log_start_offset, log.log_end_offset))
    for offset in offsets + rng.sample(offsets, len(offsets)):
        for max_bytes in (1, 200, 1 << 16):
            data = log.read(offset, max_bytes, isolation=oracle.LOG_END)[0]
            first = oracle.parse_batch(data)
            assert first.base <= offset <= first.last, (offset, max_bytes)
            assert len(first.data) == int.from_bytes(data[8:12], "big") + 12
            assert len(data) <= max(max_bytes, len(first.data))


@pytest.mark.parametrize("seed", range(6))
def test_a_read_starts_with_the_batch_that_holds_its_offset(logs: helpers.Logs, seed: int) -> None:
    rng = Random(seed)
    log = logs.open(index_interval_bytes=INTERVAL, segment_bytes=20_000, segment_index_bytes=1 << 12)
    epoch = 0
    for _ in range(8):
        epoch += 1
        as_leader = rng.random() < 0.6
        if as_leader:
            log.become_leader(1, epoch, [1])
        else:
            log.become_follower(2, epoch)
            if rng.random() < 0.5:
                log.truncate_to(max(log.log_start_offset, log.log_end_offset - rng.randrange(20)))
        only_large = rng.random() < 0.5
        for _ in range(40):
            size = 400 if only_large else rng.choice((5, 100, 400))
            append(log, as_leader, [size] if as_leader else [size] * rng.randint(1, 3))
    assert len(log.segments()) > 2
    log.become_leader(1, epoch + 1, [1])
    check_reads(log, rng)
    logs.stop(log)
    log = logs.open(leader_epoch=epoch + 2, index_interval_bytes=INTERVAL, segment_bytes=20_000)
    append(log, True, [400])
    check_reads(log, rng)


def test_with_an_entry_for_every_batch_no_header_is_read(logs: helpers.Logs) -> None:
    log = logs.open(index_interval_bytes=INTERVAL)
    for _ in range(3 * REMEMBERED):
        append(log, True, [400])
    batch = len(log.read(0, 1, isolation=oracle.LOG_END)[0])
    step, count = 1 + 400 % 3, REMEMBERED
    reads = {}
    for what, offsets in {
        "dense": [step * (2 + n) for n in range(count)],
        "too small a limit": [step * (2 + n) for n in range(count)],
        "the first batches": [0] * count,
    }.items():
        before = reads_of_this_thread()
        for offset in offsets:
            log.read(offset, batch - (what == "too small a limit"), isolation=oracle.LOG_END)
        reads[what] = reads_of_this_thread() - before - 1
    own = reads_of_this_thread()
    own = reads_of_this_thread() - own - 1
    assert reads["dense"] == count + own, reads
    assert reads["too small a limit"] >= 2 * count, reads
    assert reads["the first batches"] >= 2 * count, reads
