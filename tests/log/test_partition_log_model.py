"""Random sequences of operations on a PartitionLog against a plain list of batches."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkapy.errors import KafkaError, OffsetOutOfRangeError, OutOfOrderSequenceNumberError

_spec = importlib.util.spec_from_file_location("log_conftest", Path(__file__).with_name("conftest.py"))
assert _spec and _spec.loader
helpers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(helpers)

SMALL = {"segment_bytes": 700, "index_interval_bytes": 100, "segment_index_bytes": 400}


def batches_of(log: Any, isolation: int = 2) -> list[tuple[int, int, bytes]]:
    found = []
    offset = log.log_start_offset
    while True:
        data = log.read(offset, 1, isolation=isolation)[0]
        if not data:
            return found
        base = int.from_bytes(data[:8], "big")
        last = base + int.from_bytes(data[23:27], "big")
        assert helpers.record_batch.check_crc(data)
        found.append((base, last, data[16:]))
        offset = last + 1


class PartitionLogMachine(RuleBasedStateMachine):
    """`model` is [(base, last, bytes)], `start` the log start, `sequences` what each producer sends next."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kafkapy-log-"))
        self.logs = helpers.Logs(self.root)
        self.log = self.logs.open(**SMALL)
        self.model: list[tuple[int, int, bytes]] = []
        self.start = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.producer_epochs: dict[int, int] = {}
        self.sent: dict[int, list[tuple[int, bytes, int]]] = {}
        # Producers are forgotten by the timestamps of their batches, so these are of today.
        self.clock = time.time_ns() // 1_000_000

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.root)

    @property
    def end(self) -> int:
        return self.model[-1][1] + 1 if self.model else self.start

    def _append(self, data: bytes) -> tuple[int, int]:
        base, last, _ = self.log.append_as_leader(data, api_version=9, validated=False)
        return base, last

    def _remember(self, data: bytes, base: int, last: int) -> None:
        assert base == self.end
        self.model.append((base, last, data[16:]))

    @rule(count=st.integers(1, 5), size=st.integers(0, 100), step=st.integers(-5, 50))
    def append(self, count: int, size: int, step: int) -> None:
        self.clock += step
        data = helpers.make_batch(count, value=b"v" * size, timestamp=self.clock)
        self._remember(data, *self._append(data))

    @rule(producer=st.integers(1, 3), count=st.integers(1, 4))
    def append_idempotent(self, producer: int, count: int) -> None:
        sequence = self.sequences.get(producer, 0)
        epoch = self.producer_epochs.get(producer, 0)
        data = helpers.make_batch(count, producer_id=producer, epoch=epoch, sequence=sequence, timestamp=self.clock)
        base, last = self._append(data)
        self._remember(data, base, last)
        self.sequences[producer] = sequence + count
        self.sent.setdefault(producer, []).append((base, data, last))

    @precondition(lambda self: any(self.sent.values()))
    @rule(producer=st.integers(1, 3), back=st.integers(1, 5))
    def retry_is_answered_with_the_original_offsets(self, producer: int, back: int) -> None:
        sent = self.sent.get(producer, [])
        # Only the newest batch is in a snapshot; older ones are known as long as the broker has not been restarted.
        if sent:
            base, data, last = sent[-min(back, len(sent))]
            assert self._append(data) == (base, last)

    @precondition(lambda self: bool(self.sequences))
    @rule(producer=st.integers(1, 3), gap=st.integers(1, 1000))
    def gap_in_the_sequence_is_refused(self, producer: int, gap: int) -> None:
        if self.sent.get(producer):
            epoch, sequence = self.producer_epochs.get(producer, 0), self.sequences[producer] + gap
            data = helpers.make_batch(producer_id=producer, epoch=epoch, sequence=sequence, timestamp=self.clock)
            try:
                self._append(data)
            except OutOfOrderSequenceNumberError:
                return
            raise AssertionError("a gap was accepted")

    @rule(at=st.integers(0, 60))
    def flip_is_refused(self, at: int) -> None:
        data = bytearray(helpers.make_batch(2))
        data[16 + at % (len(data) - 16)] ^= 0x10
        try:
            self._append(bytes(data))
        except KafkaError:
            return
        raise AssertionError("a corrupt batch was accepted")

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.seal_segments()
        assert self.log.flush() == self.end

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.start, self.end - back)
        self.log.become_follower(2, self.epoch)
        self.log.truncate_to(offset)
        while self.model and self.model[-1][1] >= offset:
            self.model.pop()
        self._forget_producers_above()
        self.epoch += 1
        self.log.become_leader(1, self.epoch, [1])

    def _forget_producers_above(self) -> None:
        """Only a producer's newest batch is sure to be known again, and only if it is still there."""
        for producer, sent in list(self.sent.items()):
            kept = [entry for entry in sent if self.start <= entry[2] < self.end]
            if kept == sent and kept:
                continue
            self._begin_new_epoch(producer)

    def _begin_new_epoch(self, producer: int) -> None:
        """What the broker knows of a producer is in doubt: the producer begins anew, as a client does (KIP-360)."""
        self.sent.pop(producer, None)
        self.sequences.pop(producer, None)
        self.producer_epochs[producer] = self.producer_epochs.get(producer, 0) + 1

    @rule(ahead=st.integers(0, 10))
    def delete_records(self, ahead: int) -> None:
        offset = min(self.start + ahead, self.end)
        assert self.log.delete_records(offset) == offset
        self.start = offset
        self.log.delete_segments_below(offset)
        self.model = [entry for entry in self.model if entry[1] >= offset]

    @rule()
    def restart(self) -> None:
        self.logs.stop(self.log)
        self._reopen(clean=True)

    @rule(torn=st.binary(max_size=90), whole=st.booleans())
    def crash(self, torn: bytes, whole: bool) -> None:
        recovery_point = self.log.recovery_point
        active = self.log.segments()[-1][0]
        path = self.logs.directory / f"{active:020d}.log"
        tail = helpers.make_batch(2, base_offset=self.end)[: len(torn)] if whole else torn
        with path.open("ab") as file:
            file.write(tail)
        self._reopen(clean=False, recovery_point=recovery_point)

    def _reopen(self, **how: Any) -> None:
        self.epoch += 1
        self.log = self.logs.open(leader_epoch=self.epoch, log_start_offset=self.start, **SMALL, **how)
        for producer, sent in list(self.sent.items()):
            if sent and sent[-1][2] >= self.start:
                # A snapshot keeps the newest batch of a producer only.
                self.sent[producer] = sent[-1:]
            else:
                self._begin_new_epoch(producer)

    @invariant()
    def log_is_the_model(self) -> None:
        assert self.log.offsets()[:4] == (self.start, self.end, self.end, self.end)
        found = batches_of(self.log)
        expected = [entry for entry in self.model if entry[1] >= self.start]
        assert [entry[:2] for entry in found] == [entry[:2] for entry in expected]
        assert found == expected

    @invariant()
    def every_offset_finds_its_batch(self) -> None:
        for base, last, _ in self.model[-8:]:
            for offset in {max(base, self.start), last}:
                data = self.log.read(offset, 1)[0]
                assert int.from_bytes(data[:8], "big") == base
        for offset in (self.start - 1, self.end + 1):
            try:
                self.log.read(offset, 1)
            except OffsetOutOfRangeError:
                continue
            raise AssertionError(f"offset {offset} was served")

    @invariant()
    def timestamps_are_found(self) -> None:
        times = [int.from_bytes(data[19:27], "big") for _, last, data in self.model if last >= self.start]
        if times:
            wanted = max(times)
            found = self.log.find_timestamp(wanted)
            expected = next(
                entry for entry, time in zip(self.model[-len(times) :], times, strict=True) if time >= wanted
            )
            assert found is not None and int.from_bytes(found[:8], "big") == expected[0]
            assert self.log.find_timestamp(wanted + 1) is None

    @initialize()
    def empty(self) -> None:
        assert self.log.offsets()[:2] == (0, 0)


TestPartitionLog = PartitionLogMachine.TestCase
TestPartitionLog.settings = settings(
    max_examples=300, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
