"""Random lives of a share partition against a list of records, over time-outs, failed writes and new leaders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from speedups.share.share_model import Coordinator, LogBatch, ShareModel, Write, expanded, records_of
from speedups.share.share_steps import ACCEPT, ACQUIRED, NONE

from kafkapy._speedups.testing.share_partition import SharePartition, StateWrite

LOCK_MS = 100
MEMBERS = (b"a", b"b", b"c")
member_ids = st.sampled_from(MEMBERS)
CHEAP: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


class ShareLife(RuleBasedStateMachine):
    """`batches` is the log, with the batches that compaction has left. `final` are the offsets whose final state is
    durable, `delivered` those that a member has got once, `gone` those that the log lost."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[LogBatch] = []
        self.end = 0
        self.gone: set[int] = set()
        self.log_begin = 0
        self.now_ms = 0
        self.coordinator = Coordinator()
        self.writes: list[tuple[StateWrite, Write]] = []
        self.final: set[int] = set()
        self.delivered: set[int] = set()

    @initialize(limit=st.integers(1, 5), max_in_flight=st.sampled_from([3, 10, 100]), dead_letters=st.booleans())
    def begin(self, limit: int, max_in_flight: int, dead_letters: bool) -> None:
        self.model = ShareModel(limit, LOCK_MS, max_in_flight, dead_letters)
        self._open()
        self.produce([3, 2, 4], 0, 0)

    def _open(self) -> None:
        self.share = SharePartition(
            self.coordinator.start,
            self.coordinator.batches(),
            lock_ms=LOCK_MS,
            max_in_flight=self.model.max_in_flight,
            delivery_limit=self.model.limit,
            dead_letters=self.model.dead_letters,
        )

    # ---- the log ----

    @rule(
        widths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
        gap=st.sampled_from([0, 0, 2]),
        aborted=st.integers(0, 15),
    )
    def produce(self, widths: list[int], gap: int, aborted: int) -> None:
        """`aborted`: a bit for each batch; one of four is."""
        self.gone |= set(range(self.end, self.end + gap))
        self.end += gap
        for number, width in enumerate(widths):
            self.batches.append((self.end, self.end + width - 1, aborted >> number & 3 == 3))
            self.end += width

    @precondition(lambda self: self.batches)
    @rule(place=st.integers(0, 9))
    def compact(self, place: int) -> None:
        first, last, _ = self.batches.pop(place % len(self.batches))
        self.gone |= set(range(first, last + 1))

    @rule(by=st.sampled_from([1, 3, 8, 40]))
    def log_start(self, by: int) -> None:
        self._log_start(min(self.end, self.model.start + by))

    def _log_start(self, offset: int) -> None:
        self.gone |= set(range(offset))
        self.log_begin = max(self.log_begin, offset)
        self.batches = [batch for batch in self.batches if batch[1] >= offset]
        assert self.share.log_start(offset) == self.model.log_start(offset)

    # ---- members ----

    @rule(
        member=member_ids,
        back=st.sampled_from([0, 0, 0, 2]),
        count=st.integers(1, 5),
        max_records=st.sampled_from([500, 1, 2, 5, 0]),
        batch_size=st.sampled_from([500, 1, 4]),
        record_limit=st.booleans(),
    )
    def fetch(
        self, member: bytes, back: int, count: int, max_records: int, batch_size: int, record_limit: bool
    ) -> None:
        offset = self.model.first_available()
        if offset is None:
            return
        offset = max(0, offset - back)
        read = [batch for batch in self.batches if batch[1] >= offset][:count]
        ranges = self.share.acquire(
            member,
            read,
            offset,
            max_records=max_records,
            batch_size=batch_size,
            mode=int(record_limit),
            now_ms=self.now_ms,
        )
        got = self.model.acquired(self.share, member, read, offset, max_records, record_limit, self.now_ms, ranges)
        assert not got & self.final, "a final record does not come again"
        self.delivered |= got

    @rule(
        member=member_ids,
        place=st.integers(0, 30),
        length=st.integers(1, 8),
        types=st.lists(st.sampled_from([1, 1, 1, 2, 2, 3, 0, 4, 5]), min_size=1, max_size=3),
        each=st.booleans(),
        wrong=st.sampled_from([0, 0, 0, 0, 0, -3, 1, 5, 1000]),
        second=st.booleans(),
    )
    def acknowledge(
        self, member: bytes, place: int, length: int, types: list[int], each: bool, wrong: int, second: bool
    ) -> None:
        """Records that the member holds, most often; `second` is another range of the request."""
        held = [offset for offset, record in self.model.records.items() if record.is_locked and record.member == member]
        held = held or list(self.model.records) or [self.model.start]
        first = held[place % len(held)] + wrong
        last = first
        while last - first < length - 1 and (last + 1 in held or wrong):
            last += 1
        given = bytes((types * 8)[: last - first + 1]) if each else bytes(types[:1])
        batches = [(first, last, given)]
        if second:
            batches.append((last + 1 + (wrong == 1), last + 1 + place % 3, bytes(types[-1:])))
        error, ticket = self.share.acknowledge(member, batches, self.now_ms)
        assert error == self.model.error_of(member, batches)
        changed = error == NONE and self.model.acknowledge(member, batches, self.now_ms)
        assert (ticket != 0) == changed

    @rule(member=member_ids)
    def release(self, member: bytes) -> None:
        assert (self.share.release_member(member) != 0) == self.model.release_member(member)

    # ---- time ----

    @rule(by=st.sampled_from([1, LOCK_MS // 2, LOCK_MS]))
    def tick(self, by: int) -> None:
        self.now_ms += by
        assert self.share.expire(self.now_ms) == self.model.expire(self.now_ms)

    @rule(by=st.sampled_from([1, LOCK_MS]))
    def time_passes_unseen(self, by: int) -> None:
        self.now_ms += by

    # ---- writes ----

    @rule()
    def take_write(self) -> None:
        taken = self.share.take_write()
        write = self.model.take_write()
        assert (taken is not None) == bool(write.states)
        if taken is not None:
            assert taken.start_offset == write.start
            assert taken.delivery_complete == sum(
                record.is_complete for offset, record in self.model.records.items() if offset >= write.start
            )
            assert list(expanded(taken.batches).items()) == list(write.states.items())
            self.writes.append((taken, write))

    def _store(self, write: Write) -> None:
        self.coordinator.store(write)
        self.final |= {offset for offset, (state, _) in write.states.items() if state in (2, 4)}

    @precondition(lambda self: self.writes)
    @rule(stored=st.sampled_from([True, True, False]))
    def finish_write(self, stored: bool) -> None:
        taken, write = self.writes.pop(0)
        if stored:
            self._store(write)
        found = self.share.finish_write(taken, stored, self.now_ms)
        assert found == self.model.finish_write(write, stored, self.now_ms)

    @rule(stored=st.booleans())
    def another_leader(self, stored: bool) -> None:
        """The writes that are under way may have come through or not."""
        for _, write in self.writes if stored else []:
            self._store(write)
        self.writes.clear()
        self.model = ShareModel.restored(self.coordinator, self.model)
        self._open()
        if self.log_begin:
            self._log_start(self.log_begin)

    @precondition(lambda self: self.model.dead_letters)
    @rule(place=st.integers(0, 10), length=st.integers(1, 10))
    def dead_letters_are_written(self, place: int, length: int) -> None:
        first = self.model.start + place
        self.share.dead_lettered(first, first + length - 1)
        self.model.dead_lettered(first, first + length - 1)

    @rule(limit=st.integers(1, 5), max_in_flight=st.sampled_from([3, 10, 100]))
    def configure(self, limit: int, max_in_flight: int) -> None:
        wider = max_in_flight > self.model.max_in_flight
        self.model.limit, self.model.max_in_flight = limit, max_in_flight
        assert wider == self.share.configure(
            lock_ms=LOCK_MS, max_in_flight=max_in_flight, delivery_limit=limit, dead_letters=self.model.dead_letters
        )

    # ---- what always holds ----

    @invariant()
    def the_window_is_the_models(self) -> None:
        model, description = self.model, self.share.describe()
        assert records_of(self.share) == {offset: record.seen for offset, record in model.records.items()}
        records = model.records.values()
        assert {key: description[key] for key in description if key not in ("batches", "memory")} == {
            "start_offset": model.start,
            "next_offset": model.next,
            "delivery_complete": sum(record.is_complete for record in records),
            "records": model.next - model.start,
            "acquired": sum(record.state == ACQUIRED for record in records),
            "pending": sum(record.pending is not None for record in records),
            "members": len({record.member for record in records if record.state == ACQUIRED}),
        }
        assert self.share.can_fetch() == model.first_available()
        due = [record.deadline_ms for record in records if record.is_locked]
        assert (self.share.next_deadline() is None) == (not due)
        assert not due or (self.share.next_deadline() or 0) <= min(due)

    def teardown(self) -> None:
        """Members that accept everything come to the end of the log: no record was lost on the way."""
        if not hasattr(self, "share"):
            return
        self.produce([1], 0, 0)  # so that compacted records are seen to be gone
        while self.writes:
            self.finish_write(True)
        for member in MEMBERS:
            self.release(member)
        self._write()
        self.share.dead_lettered(0, self.end)
        self.model.dead_lettered(0, self.end)
        self._write()
        for _ in range(20 * self.end):
            if self.model.start == self.end:
                break
            self.fetch(MEMBERS[0], 0, 3, 500, 500, False)
            for offset, record in list(self.model.records.items()):
                if record.is_locked:
                    assert self.share.acknowledge(MEMBERS[0], [(offset, offset, bytes([ACCEPT]))])[0] == NONE
                    self.model.acknowledge(MEMBERS[0], [(offset, offset, bytes([ACCEPT]))], self.now_ms)
            self._write()
        self.the_window_is_the_models()
        assert self.model.start == self.end
        whole = {offset for first, last, skip in self.batches if not skip for offset in range(first, last + 1)}
        assert whole - self.delivered - self.gone == set()

    def _write(self) -> None:
        self.take_write()
        while self.writes:
            self.finish_write(True)


@pytest.mark.timeout(1800)
def test_any_life_of_a_share_partition() -> None:
    """It takes minutes with a sanitizer on a busy machine."""
    run_state_machine_as_test(ShareLife, settings=settings(max_examples=2000, stateful_step_count=12, **CHEAP))


@pytest.mark.soak
def test_long_lives_of_a_share_partition() -> None:
    run_state_machine_as_test(
        ShareLife, settings=settings(max_examples=5000, stateful_step_count=80, database=None, **CHEAP)
    )
