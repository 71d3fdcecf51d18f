"""Threads that fetch, acknowledge, expire and write one share partition at once; and requests of random nonsense."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from speedups.share.share_model import records_of
from speedups.share.share_steps import ACCEPT, ACQUIRED, NONE, RELEASE
from waiting import wait_until

from kafkapy._speedups.testing.share_partition import SharePartition

RECORDS = 60_000
WIDTH = 5
LONG_LOCK_MS = 10**9


class Worker:
    """A member that accepts or releases what it gets; and what it has accepted."""

    def __init__(self, share: SharePartition, member: bytes, seed: int) -> None:
        self.share = share
        self.member = member
        self.random = random.Random(seed)
        self.accepted: list[int] = []

    def step(self) -> None:
        offset = self.share.can_fetch()
        if offset is None or offset >= RECORDS:
            time.sleep(0)
            return
        first = offset - offset % WIDTH
        batches = [(base, base + WIDTH - 1, False) for base in range(first, min(first + 20, RECORDS), WIDTH)]
        mode = self.random.randrange(2)
        for begin, last, _ in self.share.acquire(self.member, batches, offset, max_records=13, batch_size=7, mode=mode):
            types = bytes(RELEASE if self.random.random() < 0.1 else ACCEPT for _ in range(begin, last + 1))
            error, ticket = self.share.acknowledge(self.member, [(begin, last, types)])
            assert error == NONE
            assert ticket > 0
            self.accepted += [begin + n for n, kind in enumerate(types) if kind == ACCEPT]


def test_members_in_threads_share_the_records() -> None:
    """Each record is accepted by one member exactly once, whatever the other threads do."""
    share = SharePartition(max_in_flight=500, delivery_limit=1000, lock_ms=LONG_LOCK_MS)
    workers = [Worker(share, b"member-%d" % number, number) for number in range(4)]
    failures: list[BaseException] = []
    tickets: list[int] = []
    stop = threading.Event()

    def run(step: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                step()
        except BaseException as failure:
            failures.append(failure)
            stop.set()

    def write() -> None:
        taken = share.take_write()
        if taken is None:
            time.sleep(0)
            return
        tickets.append(taken.number)
        share.finish_write(taken, True)
        if share.describe()["start_offset"] >= RECORDS:
            stop.set()

    def look() -> None:
        share.expire(1)
        share.next_deadline()
        share.configure(lock_ms=LONG_LOCK_MS, max_in_flight=500, delivery_limit=1000)
        share.release_member(b"nobody")
        description = share.describe()
        assert description["start_offset"] <= description["next_offset"]
        assert description["records"] <= 500 + WIDTH
        time.sleep(0.001)

    threads = [threading.Thread(target=run, args=(step,)) for step in (*(w.step for w in workers), write, look)]
    for thread in threads:
        thread.start()
    try:
        wait_until(stop.is_set, "all records are accepted")
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(offset for worker in workers for offset in worker.accepted) == list(range(RECORDS))
    assert tickets == list(range(1, len(tickets) + 1))
    description = share.describe()
    assert (description["batches"], description["members"], description["pending"]) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_nonsense_changes_nothing_that_it_may_not(seed: int) -> None:
    """Offsets, counts and sizes from the whole range of the wire; other members' records stay theirs."""
    generator = random.Random(seed)
    share = SharePartition(100, max_in_flight=200)
    share.acquire(b"good", [(100, 119, False), (120, 139, False)], 100, batch_size=20)
    held = {offset: how for offset, how in records_of(share).items() if how[2] == b"good"}

    def number() -> int:
        near = generator.randrange(80, 360)
        return generator.choice([near, near, near, -1, -(2**63), 2**63 - 1, generator.getrandbits(62)])

    for _ in range(2000):
        batches = [(number(), number(), generator.randbytes(generator.choice([0, 1, 1, 20, 40]))) for _ in range(3)]
        if generator.random() < 0.5:
            batches = [
                (first, last, bytes(kind % 5 for kind in types))
                for first, last, types in sorted(batches)
                if first <= last
            ]
        share.acknowledge(b"bad", batches, generator.getrandbits(40))
        first, last = number(), number()
        share.acquire(
            b"bad",
            [(first, last, generator.random() < 0.1)],
            max(number(), 140),
            max_records=generator.choice([0, 1, 5, -1, 2**31 - 1]),
            batch_size=generator.choice([0, 1, 5, -1, 2**31 - 1]),
            mode=generator.choice([0, 1, -1, 127]),
        )
        share.dead_lettered(number(), number())
        if generator.random() < 0.1:
            share.release_member(b"bad")
        taken = share.take_write()
        if taken is not None:
            share.finish_write(taken, generator.random() < 0.5)
        description = share.describe()
        assert description["acquired"] >= len(held)
        assert description["memory"] < 40_000_000
    told = {
        offset: how
        for first, last, *how in share.records()
        if first <= 139
        for offset in range(first, min(last, 139) + 1)
    }
    assert {offset: tuple(how) for offset, how in told.items()} == held
    assert all(how[0] == ACQUIRED for how in held.values())
