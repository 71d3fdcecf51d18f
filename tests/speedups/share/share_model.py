"""A share partition as a plain list of records, and a share coordinator as a dictionary: what the kernel must do.

The model decides everything but which available records an acquisition takes: it checks that the kernel may take them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from speedups.share.share_steps import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    GAP,
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    NONE,
    RELEASE,
    RENEW,
)

from kafkapy._speedups.testing.share_partition import SharePartition

FINAL = (ACKNOWLEDGED, ARCHIVED)
LogBatch = tuple[int, int, bool]
Acknowledgement = tuple[int, int, bytes]
State = tuple[int, int]
"""State and delivery count."""


@dataclass
class Record:
    state: int = AVAILABLE
    count: int = 0
    member: bytes | None = None
    deadline_ms: int = -1
    pending: int | None = None

    @property
    def seen(self) -> tuple[int, int, bytes | None, int | None]:
        """What SharePartition.records() tells of it."""
        return self.state, self.count, self.member, self.pending

    @property
    def is_complete(self) -> bool:
        return self.state in FINAL or self.pending in FINAL

    @property
    def is_locked(self) -> bool:
        return self.state == ACQUIRED and self.pending is None


@dataclass
class Write:
    """What one Persister.write carries: states by offset, and which of them are pending."""

    start: int
    states: dict[int, State]
    pending: set[int]


@dataclass
class Coordinator:
    """The durable state. Of two states of a record the one with more deliveries holds, then the later state."""

    start: int = 0
    states: dict[int, State] = field(default_factory=dict)

    def store(self, write: Write) -> None:
        self.start = max(self.start, write.start)
        for offset, (state, count) in write.states.items():
            known = self.states.get(offset, (0, -1))
            if (count, state) >= (known[1], known[0]):
                self.states[offset] = state, count
        self.states = {offset: how for offset, how in self.states.items() if offset >= self.start}

    def batches(self) -> list[tuple[int, int, int, int]]:
        return [(offset, offset, *self.states[offset]) for offset in sorted(self.states)]


@dataclass
class ShareModel:
    limit: int
    lock_ms: int
    max_in_flight: int
    dead_letters: bool
    start: int = 0
    next: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    """By offset; offsets between that are absent do not exist."""
    changes: dict[int, tuple[State, bool]] = field(default_factory=dict)

    # ---- what a call must answer ----

    def first_available(self) -> int | None:
        found = [offset for offset, record in self.records.items() if record.state == AVAILABLE]
        if found:
            return min(found)
        return self.next if self.next - self.start < self.max_in_flight else None

    def error_of(self, member: bytes, batches: list[Acknowledgement]) -> int:
        before = -1 << 64
        for first, last, types in batches:
            if last < first or first <= before or len(types) not in (1, last - first + 1) or max(types) > RENEW:
                return INVALID_REQUEST
            before = last
        for first, last, _ in batches:
            if last >= self.start:
                error = self._error_of_range(member, max(first, self.start), last)
                if error:
                    return error
        return NONE

    def _error_of_range(self, member: bytes, first: int, last: int) -> int:
        if not self.records:
            return INVALID_RECORD_STATE
        found = min((offset for offset in self.records if offset >= first), default=None)
        if found is None:
            return INVALID_REQUEST
        if found > last:
            return INVALID_REQUEST if any(offset < first for offset in self.records) else INVALID_RECORD_STATE
        if last not in self.records:
            return INVALID_REQUEST
        held = (record.is_locked and record.member == member for record in self._between(first, last).values())
        return NONE if all(held) else INVALID_RECORD_STATE

    def _between(self, first: int, last: int) -> dict[int, Record]:
        return {offset: record for offset, record in self.records.items() if first <= offset <= last}

    # ---- what a call must do ----

    def advance(self) -> None:
        while self.start < self.next:
            record = self.records.get(self.start)
            if record is not None and record.state not in FINAL:
                break
            self.records.pop(self.start, None)
            self.start += 1

    def _put_aside(self) -> int:
        return ARCHIVING if self.dead_letters else ARCHIVED

    def acknowledge(self, member: bytes, batches: list[Acknowledgement], now_ms: int) -> bool:
        """Whether anything is to be written."""
        changed = False
        for first, last, types in batches:
            for offset, record in self._between(max(first, self.start), last).items():
                kind = types[offset - first] if len(types) > 1 else types[0]
                if kind == RENEW:
                    record.deadline_ms = now_ms + self.lock_ms
                    continue
                if kind == ACCEPT:
                    record.pending = ACKNOWLEDGED
                elif kind == GAP:
                    record.pending = ARCHIVED
                elif kind == RELEASE and record.count < self.limit:
                    record.pending = AVAILABLE
                else:
                    record.pending = self._put_aside()
                self.changes[offset] = (record.pending, record.count), True
                changed = True
        return changed

    def release_member(self, member: bytes) -> bool:
        changed = False
        for offset, record in self.records.items():
            if record.is_locked and record.member == member:
                record.pending = AVAILABLE if record.count < self.limit else self._put_aside()
                self.changes[offset] = (record.pending, record.count), True
                changed = True
        return changed

    def _expire(self, offset: int) -> None:
        record = self.records[offset]
        record.member = None
        record.state = self._put_aside() if record.count >= self.limit else AVAILABLE
        self.changes[offset] = (record.state, record.count), False

    def expire(self, now_ms: int) -> bool:
        ended = [offset for offset, record in self.records.items() if record.is_locked and record.deadline_ms <= now_ms]
        for offset in ended:
            self._expire(offset)
        self.advance()
        return bool(ended)

    def log_start(self, offset: int) -> bool:
        if offset <= self.start:
            return False
        self.records = {each: record for each, record in self.records.items() if each >= offset}
        self.start = offset
        self.next = max(self.next, offset)
        self.advance()
        return True

    def dead_lettered(self, first: int, last: int) -> None:
        for offset, record in self._between(first, last).items():
            if record.state == ARCHIVING:
                record.state = ARCHIVED
                self.changes[offset] = (ARCHIVED, record.count), False
        self.advance()

    def take_write(self) -> Write:
        states = {offset: self.changes[offset][0] for offset in sorted(self.changes)}
        write = Write(self.start, states, {offset for offset, (_, pending) in self.changes.items() if pending})
        self.changes = {}
        if {offset for offset in write.pending if offset >= self.start} == {
            offset for offset, record in self.records.items() if record.pending is not None
        }:
            # No other write is under way, so the start offset moves with this one.
            while write.start < self.next:
                record = self.records.get(write.start)
                if record is not None and not record.is_complete:
                    break
                write.start += 1
        return write

    def finish_write(self, write: Write, stored: bool, now_ms: int) -> bool:
        """Whether waiting fetches may find records or room."""
        start = self.start
        became_available = False
        for offset in sorted(write.pending & self.records.keys()):
            record = self.records[offset]
            pending, record.pending = record.pending, None
            assert pending is not None
            if stored:
                record.member = None
                record.state = pending
            elif record.deadline_ms <= now_ms:
                self._expire(offset)
            became_available = became_available or record.state == AVAILABLE
        self.advance()
        return became_available or self.start != start

    @classmethod
    def restored(cls, coordinator: Coordinator, like: ShareModel) -> ShareModel:
        model = replace(like, start=coordinator.start, next=coordinator.start, records={}, changes={})
        for offset in sorted(coordinator.states):
            for missing in range(model.next, offset):
                model.records[missing] = Record()
            state, count = coordinator.states[offset]
            model.records[offset] = Record(state, count)
            model.next = offset + 1
        model.advance()
        return model

    # ---- acquisition: the kernel's choice is checked, and taken over ----

    def acquired(
        self,
        share: SharePartition,
        member: bytes,
        read: list[LogBatch],
        fetch_offset: int,
        max_records: int,
        record_limit: bool,
        now_ms: int,
        ranges: list[tuple[int, int, int]],
    ) -> set[int]:
        """The offsets that were delivered."""
        told = {offset: count for first, last, count in ranges for offset in range(first, last + 1)}
        assert len(told) == sum(last - first + 1 for first, last, _ in ranges), "no record twice"
        assert list(told) == sorted(told)
        if not read or max_records <= 0:
            assert not told
            return set()
        asked_for = fetch_offset == self.first_available()
        after = records_of(share)
        next_offset = share.describe()["next_offset"]
        skipped = {offset for first, last, skip in read if skip for offset in range(first, last + 1)}
        missing = set(range(fetch_offset, read[0][0]))
        taken = {
            offset
            for offset, record in self.records.items()
            if record.state == AVAILABLE and after.get(offset) != record.seen and offset not in missing
        }
        new = set(range(max(self.next, read[0][0]), next_offset)) if next_offset > self.next else set()
        if new:
            room = self.max_in_flight - (self.next - self.start)
            self._check_new(new, told, read, skipped, min(max_records - len(taken), room), record_limit)
        if record_limit:
            assert len(told) <= max_records
        for offset in sorted(self.records.keys() | new):
            record = self.records.setdefault(offset, Record())
            if after.get(offset) == record.seen:
                assert offset not in told
            elif offset in told:
                assert record.state == AVAILABLE
                assert read[0][0] <= offset <= read[-1][1]
                assert offset not in skipped
                record.state, record.member, record.deadline_ms = ACQUIRED, member, now_ms + self.lock_ms
                record.count += 1
                assert told[offset] == record.count
            elif offset in missing and record.state == AVAILABLE:
                record.state = ARCHIVED
                self.changes[offset] = (ARCHIVED, record.count), False
            elif record.state == AVAILABLE:
                assert offset in skipped
                record.state = ARCHIVED
                record.count += 1
                self.changes[offset] = (ARCHIVED, record.count), False
            else:
                assert record.state in FINAL, "the start offset moved over it"
        self.next = max(self.next, next_offset)
        self.advance()
        assert told or skipped or missing or not asked_for, "a fetch that was asked for gets something"
        return set(told)

    @staticmethod
    def _check_new(
        new: set[int], told: dict[int, int], read: list[LogBatch], skipped: set[int], limit: int, record_limit: bool
    ) -> None:
        """New records fill what is wanted and the window, and at most the log batch in which that ends."""
        assert limit > 0
        last_wanted = min(min(new) + limit - 1, read[-1][1])
        ends = [last for first, last, _ in read if first <= last_wanted <= last]
        assert max(new) == (ends[0] if ends else last_wanted)
        wanted = {offset for offset in new if offset <= last_wanted or not record_limit}
        assert wanted - skipped == new & told.keys()


def records_of(share: SharePartition) -> dict[int, tuple[int, int, bytes | None, int | None]]:
    return {
        offset: (state, count, member, pending)
        for first, last, state, count, member, pending in share.records()
        for offset in range(first, last + 1)
    }


def expanded(batches: Iterable[tuple[int, int, int, int]]) -> dict[int, State]:
    """States by offset."""
    return {offset: (state, count) for first, last, state, count in batches for offset in range(first, last + 1)}
