"""Members on many threads and one share partition: each record has one holder at a time, and is accepted once."""

from __future__ import annotations

import threading
import time
from typing import Any

from speedups.requests.share.members import Member, ShareBroker, ranges
from waiting import wait_until

ACCEPT, RELEASE = 1, 2
MEMBERS, RECORDS = 4, 600
T = ("t", 0)


class Worker:
    """One member on a thread of its own; it releases every seventh record once."""

    def __init__(self, member: Member, ledger: Ledger) -> None:
        self.member = member
        self.ledger = ledger
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.guarded)

    def guarded(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error
            self.ledger.failed = True

    def finish(self, exchange: Any) -> Any:
        """Wait as a Processor does; after a while max wait is over, and the rest waits for the coordinator."""
        end, waits = time.monotonic() + 0.02, True
        while exchange.kind == "parked":
            if exchange.wakes:
                exchange.resume()
            elif waits and time.monotonic() > end:
                waits = False
                exchange.resume(timed_out=True)
            else:
                time.sleep(0)
        return exchange

    def work(self) -> None:
        topics = [T]
        acks: dict[tuple[str, int], list[tuple[int, int, list[int]]]] = {}
        while not self.ledger.done and not self.ledger.failed:
            exchange = self.member.fetch_exchange(topics, acks=acks, max_records=5)  # type: ignore[arg-type]
            reply = self.member.reply(self.finish(exchange))
            assert reply.error_code == 0
            if acks:
                assert [p.acknowledge_error_code for t in reply.responses for p in t.partitions] == [0]
                self.ledger.settle(acks[T])
            topics, acks = [], {}
            held = ranges(reply)
            if held:
                acks = {T: self.ledger.take(self.member.name, held)}


class Ledger:
    """Who holds which record, and what was accepted."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.failed = False
        """Whether a worker has: nobody goes on."""
        self.holders: dict[int, str] = {}
        self.accepted: set[int] = set()
        self.released: set[int] = set()

    @property
    def done(self) -> bool:
        return len(self.accepted) == RECORDS

    def take(self, name: str, held: list[tuple[int, int, int]]) -> list[tuple[int, int, list[int]]]:
        acks = []
        with self.lock:
            for first, last, count in held:
                types = []
                for offset in range(first, last + 1):
                    assert offset not in self.holders, f"{offset} is held by {self.holders[offset]} and {name}"
                    assert offset not in self.accepted
                    assert count == 1 + (offset in self.released)
                    self.holders[offset] = name
                    release = offset % 7 == 0 and offset not in self.released
                    types.append(RELEASE if release else ACCEPT)
                acks.append((first, last, types))
        return acks

    def settle(self, acks: list[tuple[int, int, list[int]]]) -> None:
        """The holder lets go before the broker hears of it: another member may have the record a moment later."""
        with self.lock:
            for first, _, types in acks:
                for offset, kind in enumerate(types, first):
                    if kind == ACCEPT:
                        self.accepted.add(offset)


class EarlyLedger(Ledger):
    """Lets go of released records when they are taken, since the reply comes after the release."""

    def take(self, name: str, held: list[tuple[int, int, int]]) -> list[tuple[int, int, list[int]]]:
        acks = super().take(name, held)
        with self.lock:
            for first, _, types in acks:
                for offset, kind in enumerate(types, first):
                    if kind == RELEASE:
                        self.released.add(offset)
                        del self.holders[offset]
        return acks


def test_each_record_is_accepted_once(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    ledger = EarlyLedger()
    workers = [Worker(shares.member(f"m{number}"), ledger) for number in range(MEMBERS)]
    for worker in workers:
        worker.thread.start()
    for _ in range(0, RECORDS, 3):
        log.append_as_leader(shares.batch(b"a", b"b", b"c"))
        shares.serve()

    def all_ended() -> bool:
        shares.serve()
        return ledger.done or any(worker.error for worker in workers)

    wait_until(all_ended, "all records are accepted")
    ledger.accepted.update(range(RECORDS))
    for worker in workers:
        while worker.thread.is_alive():
            shares.serve()
            worker.thread.join(0.01)
    assert [worker.error for worker in workers] == [None] * MEMBERS
    shares.serve()
    assert shares.share("t")["start_offset"] == RECORDS
