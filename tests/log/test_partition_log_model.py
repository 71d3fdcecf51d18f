"""Random sequences of operations on a PartitionLog against a plain list of batches."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from random import Random
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
from log import conftest as helpers
from log import log_oracle as oracle

from kafkapy._speedups.records import record_batch
from kafkapy.errors import KafkaError, OffsetOutOfRangeError, OutOfOrderSequenceNumberError
from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.log.loader import load_log
from kafkapy.log.retention import apply_retention
from kafkapy.records.batches import iter_records
from kafkapy.records.compression import compress

MEMORY = Path("/dev/shm")
NOW = time.time_ns() // 1_000_000
"""Producers are forgotten by the timestamps of their batches, so these are of today."""
SMALL = {"segment_bytes": 700, "index_interval_bytes": 100, "segment_index_bytes": 400, "file_delete_delay_ms": 0}
PLAIN = helpers.config(**SMALL)
COMPACTED = helpers.config(**SMALL, cleanup_policy="compact", delete_retention_ms=20)
BY_SIZE = helpers.config(**SMALL, retention_bytes=1500)
BY_TIME = helpers.config(**SMALL, retention_ms=300)
IDEMPOTENT, TRANSACTIONAL = (1, 2, 3), (4, 5, 6)
CLEANER = Cleaner(1 << 12)
STEPS_OF_THE_SOAK = 100_000


class PartitionLogMachine(RuleBasedStateMachine):
    """`history` is every batch that the log has, and those below its start; `start` and `end` its bounds; `lineage` has
    what compaction took out, too."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kafkapy-log-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
        self.directory = self.root / str(helpers.TP)
        self.storage = helpers.LocalBackend().open_log(self.root, str(helpers.TP), create=True)
        self.history: list[Any] = []
        self.lineage: list[Any] = []
        self.start = 0
        self.end = 0
        self.epoch = -1
        self.clock = NOW
        self.known = oracle.derive(())
        self.newest: dict[int, bytes] = {}
        self.producer_epochs: dict[int, int] = {}
        self.number = 0
        self.cleaned = False

    @initialize(compacted=st.booleans())
    def begin(self, compacted: bool) -> None:
        self.config = COMPACTED if compacted else PLAIN
        self._open(clean=True)

    def teardown(self) -> None:
        if self.epoch >= 0:
            self._check()
            self.log.close()
        shutil.rmtree(self.root)

    # ---- appends ----

    def _batch(self, count: int, size: int, codec: int = 0, **how: Any) -> bytes:
        self.number += 1
        body = b""
        for n in range(count):
            value = b"%d." % self.number + b"v" * size if (self.number + n) % 9 else None
            record = b"\0\0" + bytes([2 * n, 4]) + b"k%d" % ((self.number + n) % 8)
            record += b"\1" if value is None else helpers._varint(len(value)) + value
            record += b"\0"
            body += helpers._varint(len(record)) + record
        attributes = how.pop("attributes", 0) | codec
        records = compress(codec, body) if codec else body
        return helpers.make_batch(count, records=bytes(records), attributes=attributes, timestamp=self.clock, **how)

    def _append(self, data: bytes, *, marker: bool = False) -> tuple[int, int]:
        base, last, _ = self.log.append_as_leader(data, api_version=-1 if marker else 9, validated=True)
        return base, last

    def _remember(self, data: bytes, base: int, last: int) -> None:
        assert base == self.end
        stamped = base.to_bytes(8, "big") + data[8:12] + self.epoch.to_bytes(4, "big") + data[16:]
        batch = oracle.parse_batch(stamped)
        assert batch.last == last
        self.history.append(batch)
        self.lineage.append(batch)
        self.end = last + 1

    @rule(count=st.integers(1, 3), batches=st.integers(1, 4), size=st.integers(0, 90), codec=st.integers(0, 4),
          step=st.integers(-5, 60))  # fmt: skip
    def append(self, count: int, batches: int, size: int, codec: int, step: int) -> None:
        for _ in range(batches):
            self.clock += step
            data = self._batch(count, size, codec)
            self._remember(data, *self._append(data))

    def _produce(self, producer: int, count: int, size: int, attributes: int) -> None:
        epoch, sequence, _ = self.known.producers.get(producer, (-1, -1, -1))
        wanted = max(epoch, self.producer_epochs.get(producer, 0))
        sequence = (sequence + 1) & 0x7FFFFFFF if wanted == epoch else 0
        data = self._batch(count, size, producer_id=producer, epoch=wanted, sequence=sequence, attributes=attributes)
        self._remember(data, *self._append(data))
        self.newest[producer] = data
        oracle.derive(self.lineage[-1:], self.known)

    @rule(producer=st.sampled_from(IDEMPOTENT), count=st.integers(1, 4))
    def append_idempotent(self, producer: int, count: int) -> None:
        self._produce(producer, count, 3, 0)

    @rule(producer=st.sampled_from(TRANSACTIONAL), count=st.integers(1, 3), times=st.integers(1, 2))
    def append_in_a_transaction(self, producer: int, count: int, times: int) -> None:
        for _ in range(times):
            self._produce(producer, count, 5, 0x10)

    @rule(producer=st.sampled_from(TRANSACTIONAL), commit=st.booleans(), new_epoch=st.booleans())
    def end_transaction(self, producer: int, commit: bool, new_epoch: bool) -> None:
        if producer in self.known.open:
            epoch = self.known.producers[producer][0]
            data = helpers.make_marker(producer, epoch, commit=commit, timestamp=self.clock)
            self._remember(data, *self._append(data, marker=True))
            oracle.derive(self.lineage[-1:], self.known)
            if new_epoch:
                self.producer_epochs[producer] = epoch + 1

    @rule(producer=st.sampled_from(IDEMPOTENT + TRANSACTIONAL))
    def retry_is_answered_with_the_original_offsets(self, producer: int) -> None:
        data = self.newest.get(producer)
        if data is not None and self._is_newest(producer, data):
            _, _, last = self.known.producers[producer]
            delta = int.from_bytes(data[23:27], "big")
            assert self._append(data) == (last - delta, last)

    def _is_newest(self, producer: int, data: bytes) -> bool:
        batch = oracle.parse_batch(data)
        epoch, sequence, _ = self.known.producers.get(producer, (-1, -1, -1))
        expected = (batch.producer_epoch, batch.base_sequence + batch.last - batch.base)
        return (epoch, sequence) == expected and self._is_known(producer)

    def _is_known(self, producer: int) -> bool:
        """Whether the producer's last batch is in the log. One below the start, or that went with a compaction before
        what superseded it was cut off, is forgotten when the producers are read again."""
        _, _, last = self.known.producers[producer]
        return last >= self.start and any(
            batch.last == last and batch.producer_id == producer for batch in reversed(self.history)
        )

    @rule(producer=st.sampled_from(IDEMPOTENT), gap=st.integers(1, 1000))
    def gap_in_the_sequence_is_refused(self, producer: int, gap: int) -> None:
        if producer in self.known.producers and self._is_known(producer):
            epoch, sequence, _ = self.known.producers[producer]
            data = self._batch(1, 1, producer_id=producer, epoch=epoch, sequence=sequence + 1 + gap)
            with pytest.raises(OutOfOrderSequenceNumberError):
                self._append(data)

    @rule(at=st.integers(0, 60))
    def flip_is_refused(self, at: int) -> None:
        data = bytearray(self._batch(2, 8))
        data[16 + at % (len(data) - 16)] ^= 0x10
        with pytest.raises(KafkaError):
            self._append(bytes(data))

    # ---- what the broker does in the background ----

    @rule(flush=st.booleans())
    def roll(self, flush: bool) -> None:
        self.log.roll()
        if flush:
            self.log.seal_segments()
            assert self.log.flush() == self.end

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end

    @rule(back=st.integers(0, 15))
    def truncate(self, back: int) -> None:
        offset = max(self.start, self.end - back)
        self.log.become_follower(2, self.epoch)
        self.log.truncate_to(offset)
        if self.start < offset < self.end:
            self._cut(offset)
        elif offset < self.end:
            # Nothing is left.
            self.history, self.lineage, self.end = [], [], offset
            self.cleaned = False
            self._forget_producers()
        self._lead()
        self._check()

    def _cut(self, offset: int) -> None:
        """A batch is cut whole."""
        while self.history and self.history[-1].last >= offset:
            offset = min(offset, max(self.history.pop().base, self.start))
        while self.lineage and self.lineage[-1].last >= offset:
            self.lineage.pop()
        self.end = offset
        self._forget_producers()

    def _forget_producers(self) -> None:
        """What was cut off is not known to have been sent, nor what is in the log no more when the producers are read
        again: clients begin a new epoch, as they do (KIP-360)."""
        before, self.known = self.known, oracle.derive(self.lineage)
        for producer, (epoch, *_) in before.producers.items():
            if before.producers[producer] != self.known.producers.get(producer) or not self._is_known(producer):
                self.producer_epochs[producer] = max(epoch + 1, self.producer_epochs.get(producer, 0))

    @rule(ahead=st.integers(0, 10), at_once=st.booleans())
    def delete_records(self, ahead: int, at_once: bool) -> None:
        offset = min(self.start + ahead, self.end)
        assert self.log.delete_records(offset) == offset
        self.start = offset
        if at_once:
            self.log.delete_segments_below(offset)

    @rule(by=st.sampled_from([BY_SIZE, BY_TIME]))
    def retention(self, by: Any) -> None:
        if self.config is PLAIN:
            self.log.update_config(by)
            segments = self.log.segments()
            apply_retention(self.log, self.clock + 1)
            self.log.update_config(PLAIN)
            left = self.log.segments()
            assert left[-1][0] >= segments[-1][0]
            if by is BY_SIZE and self.start <= segments[0][0]:
                assert self.log.size >= min(1500, sum(segment[1] for segment in segments))
            # Whole segments went, and of the rest nothing but what lies below the log start.
            gone = [segment for segment in segments if segment[0] < left[0][0]]
            if by is BY_TIME:
                stays = [s for s in segments if s[0] not in {g[0] for g in gone} and s[1] and s[0] >= self.start]
                assert not stays or self.clock + 1 - stays[0][2] <= 300
            self.start = max(self.start, left[0][0])

    @precondition(lambda self: self.config is COMPACTED)
    @rule(wait=st.integers(0, 40))
    def compact(self, wait: int) -> None:
        self.clock += wait
        before = self._newest_values()
        producers = [producer for producer in self.known.producers if self._is_known(producer)]
        self.log.seal_segments()
        CLEANER.clean(log_to_clean(helpers.TP, self.log, None, self.clock), self.clock)
        found = oracle.read_all(self.log)
        self.cleaned = True
        sent = {record for batch in self.history for record in self._records(batch)}
        self.history = found
        assert {record for batch in found for record in self._records(batch)} <= sent
        after = self._newest_values()
        for key, (offset, value) in before.items():
            assert after.get(key) == (offset, value) or (value is None and key not in after), key
        assert after.keys() <= before.keys()
        assert all(self._is_known(producer) for producer in producers)

    def _records(self, batch: Any) -> list[tuple[int, Any, Any]]:
        if batch.attributes & 0x20:
            return []
        return [(record.offset, record.key, record.value) for record in iter_records(batch.data)]

    def _newest_values(self) -> dict[bytes, tuple[int, bytes | None]]:
        """What a consumer of committed records ends up with, tombstones included."""
        aborted = self.log.aborted_transactions()
        found = {}
        for batch in self.history:
            if batch.last < self.start or any(
                producer == batch.producer_id and first <= batch.base <= last for producer, first, last, _ in aborted
            ):
                continue
            for offset, key, value in self._records(batch):
                if offset >= self.start:
                    found[key] = (offset, value)
        return found

    # ---- stops and crashes ----

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log.flush()
        self.log.take_producer_snapshot()
        self._open(clean=True)
        self._check()

    @rule(torn=st.binary(max_size=90), whole=st.booleans())
    def crash(self, torn: bytes, whole: bool) -> None:
        """A kill, with a write under way."""
        recovery_point = self.log.recovery_point
        active = self.log.segments()[-1][0]
        batch = helpers.make_batch(2, base_offset=self.end)
        tail = batch[: min(len(torn), len(batch) - 1)] if whole else torn
        with (self.directory / f"{active:020d}.log").open("ab") as file:
            file.write(tail)
        self._open(clean=False, recovery_point=recovery_point)
        self._check()

    @rule(seed=st.integers(0, 1 << 16), zeros=st.booleans(), keep=st.booleans())
    def power_failure(self, seed: int, zeros: bool, keep: bool) -> None:
        """Of what was not synced a part is left, cut anywhere, or zeros from there on; segments behind may be there."""
        recovery_point = self.log.recovery_point
        bases = [segment[0] for segment in self.log.segments()]
        unsynced = [batch for batch in self.history if batch.base >= max(recovery_point, bases[0])]
        if not unsynced:
            return
        lost = Random(seed).choice(unsynced)
        number = max(n for n, base in enumerate(bases) if base <= lost.base)
        path = self.directory / f"{bases[number]:020d}.log"
        data = path.read_bytes()
        first = data.index(lost.data)
        at = first + seed % len(lost.data)
        if not any(data[at : first + len(lost.data)]):
            at = first  # zeros would change nothing
        path.write_bytes(data[:at] + (bytes(len(data) - at) if zeros else b""))
        # Where compaction may leave offsets out, a whole segment that is missing cannot be told.
        certain = zeros or at > first
        for base in bases[number + 1 :]:
            if not (keep and (certain or self.config is PLAIN)):
                (self.directory / f"{base:020d}.log").unlink()
        self._cut(lost.base)
        self.start = min(self.start, self.end)
        self._open(clean=False, recovery_point=recovery_point)
        self._check()

    def _open(self, **how: Any) -> None:
        self.log, self.report = load_log(self.storage, helpers.TP, self.config, log_start_offset=self.start, **how)
        if self.cleaned:
            # As in Apache Kafka the last segment says where the log ends, and nothing speaks of offsets that compaction
            # left out behind its last batch.
            last = self.history[-1].last if self.history else -1
            self._cut(max(self.start, self.log.segments()[-1][0], last + 1))
        else:
            self._forget_producers()
        self._lead()

    def _lead(self) -> None:
        self.epoch += 1
        self.log.become_leader(1, self.epoch, [1])

    # ---- looking ----

    @property
    def stable(self) -> int:
        return max(min(self.known.open.values(), default=self.end), self.start)

    @property
    def all_there(self) -> bool:
        """Whether the log begins with the first batch."""
        return not self.history or self.history[0].base >= self.start

    @property
    def model(self) -> list[Any]:
        return [batch for batch in self.history if batch.last >= self.start]

    @rule(part=st.floats(0, 1), size=st.integers(1, 2500), isolation=st.integers(0, 2))
    def read(self, part: float, size: int, isolation: int) -> None:
        """From any offset: whole batches from the one that holds it on, up to what the isolation allows."""
        offset = self.start + round(part * (self.end - self.start))
        data, high_watermark, stable, start, aborted = self.log.read(offset, size, isolation=isolation)
        assert (high_watermark, start) == (self.end, self.start)
        limit = self.end
        if isolation == 1:
            limit = stable
            if not self.cleaned and self.all_there:
                assert stable == self.stable
        expected = [batch for batch in self.history if batch.last >= offset and batch.base < limit]
        assert bool(data) == bool(expected and offset < limit)
        assert b"".join(batch.data for batch in expected).startswith(data)
        if data:
            assert len(data) <= max(size, len(expected[0].data))
            assert len(data) >= min(size, len(expected[0].data))
        if isolation == 1 and not self.cleaned and self.all_there:
            hidden = {entry[:2]: entry[2] for entry in self.known.aborted}
            for producer, first in aborted:
                assert hidden[producer, first] >= offset
            for batch in oracle.parse_batches(data):
                for (producer, first), last in hidden.items():
                    if producer == batch.producer_id and first <= batch.base <= last:
                        assert (producer, first) in aborted

    @rule(parts=st.lists(st.floats(0, 1), min_size=1, max_size=3), counts=st.lists(st.integers(1, 3), max_size=2))
    def read_while_a_follower_is_behind(self, parts: list[float], counts: list[int]) -> None:
        """The high watermark is anywhere, in the middle of a batch too, and moves up. Each read ends exactly there, at
        the last stable offset, or with its segment."""
        self.epoch += 1
        self.log.become_leader(1, self.epoch, [1, 2])
        high_watermark = self.start + round(min(parts) * (self.end - self.start))
        self.log.set_high_watermark(high_watermark)
        for count in counts:
            data = self._batch(count, 7)
            self._remember(data, *self._append(data))
        for part in sorted(parts):
            position = self.start + round(part * (self.end - self.start))
            self.log.follower_position(2, position)
            high_watermark = max(high_watermark, position)
            assert self.log.high_watermark == high_watermark
            for isolation in (0, 1, 0, 1):
                self._read_to_the_limit(self.start + round(parts[0] * (high_watermark - self.start)), isolation)
                self._read_to_the_limit(self.start, isolation)
        self.log.follower_position(2, self.end)
        self._lead()

    def _read_to_the_limit(self, offset: int, isolation: int) -> None:
        data, high_watermark, stable, _, _ = self.log.read(offset, 1 << 20, isolation=isolation)
        limit = stable if isolation else high_watermark
        expected = [batch for batch in self.history if batch.last >= offset and batch.last < limit]
        assert b"".join(batch.data for batch in expected).startswith(data)
        got = oracle.parse_batches(data)
        if offset < limit and len(got) < len(expected):
            assert expected[len(got)].base in {segment[0] for segment in self.log.segments()} or self.cleaned
            assert got

    @rule(above=st.booleans())
    def offsets_outside_are_refused(self, above: bool) -> None:
        with pytest.raises(OffsetOutOfRangeError):
            self.log.read(self.end + 1 if above else self.start - 1, 1)

    @rule(part=st.floats(0, 1), more=st.integers(-3, 3))
    def find_timestamp(self, part: float, more: int) -> None:
        found = self.model
        if found:
            wanted = found[round(part * (len(found) - 1))].max_timestamp + more
            oracle.check_time(self.log, found, wanted)
            oracle.check_time(self.log, found, max(batch.max_timestamp for batch in found) + 1)

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        type(self).steps += 1
        if self.epoch >= 0:
            assert self.log.offsets()[:3] == (self.start, self.end, self.end)

    def _check(self) -> None:
        """The whole log."""
        found = oracle.read_all(self.log)
        assert [batch.data for batch in found] == [batch.data for batch in self.model]
        assert all(record_batch.check_crc(batch.data) for batch in found)
        for batch in found[:: 1 + len(found) // 8]:
            oracle.check_time(self.log, found, batch.max_timestamp)
        newest = [max((b.max_timestamp for b in each if not b.attributes & oracle.CONTROL), default=-1)
                  for each in (found, self.lineage)]  # fmt: skip
        assert newest[0] <= self.log.newest_record_timestamp() <= newest[1]
        if not self.cleaned:
            first = found[0].base if found else self.start
            before = [batch for batch in self.history if batch.base < first]
            # Of what lies below the log start the broker knows only what it has not had to read again.
            oracle.check_derived(self.log, found, before, whole=self.all_there)


CHEAP = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def test_any_history_of_a_log() -> None:
    run_state_machine_as_test(PartitionLogMachine, settings=settings(max_examples=400, stateful_step_count=15, **CHEAP))


@pytest.mark.soak
def test_long_histories_of_a_log() -> None:
    PartitionLogMachine.steps = 0
    while PartitionLogMachine.steps < STEPS_OF_THE_SOAK:
        run_state_machine_as_test(
            PartitionLogMachine, settings=settings(max_examples=500, stateful_step_count=100, database=None, **CHEAP)
        )
