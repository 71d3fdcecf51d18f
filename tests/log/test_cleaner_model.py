"""Random histories of a compacted log, cleaned again and again, against what was appended."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.records.batches import RecordBatchBuilder, decode_records, iter_batches
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.types import TopicPartition

TP = TopicPartition("orders", 0)
NOW = time.time_ns() // 1_000_000  # producers that were idle for a day are forgotten at a start
RETENTION = 100

records = st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), records, st.integers(0, 4)),
        st.tuples(st.just("idempotent"), st.integers(0, 2), records),
        st.tuples(st.just("transaction"), st.integers(3, 5), records),
        st.tuples(st.just("end"), st.integers(3, 5), st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(st.just("wait"), st.integers(1, 150)),
        st.tuples(st.just("clean"), st.sampled_from([60, 1 << 16])),
        st.tuples(st.just("reopen"), st.booleans()),
    ),
    min_size=5,
    max_size=40,
)


class Model:
    """What was appended: every record, whether it counts, and the compaction checkpoint."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[bytes, bytes | None]] = {}
        self.open: dict[int, list[int]] = {}
        self.hidden: set[int] = set()
        self.sequences: dict[int, int] = {}
        self.checkpoint: int | None = None
        self.now = NOW

    def batch(self, entries: Any, end: int, codec: int = 0, producer: int = -1, transactional: bool = False) -> bytes:
        builder = RecordBatchBuilder()
        for number, (key, tombstone) in enumerate(entries):
            value = None if tombstone else b"v%d" % (end + number)
            builder.append(NOW + number, b"k%d" % key, value)
            self.records[end + number] = (b"k%d" % key, value)
        sequence = -1
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(entries)
        return builder.build(
            codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )

    def newest(self, below: int) -> dict[bytes, tuple[int, bytes | None]]:
        found: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in sorted(self.records.items()):
            if offset not in self.hidden and offset < below:
                found[key] = (offset, value)
        return found


def check(log: Any, model: Model) -> None:
    """Offsets ascend, every record is one that was appended, and no key has lost its newest value."""
    seen: dict[bytes, tuple[int, bytes | None]] = {}
    offset, stable = log.log_start_offset, log.last_stable_offset
    while data := log.read(offset, 1 << 20, isolation=2)[0]:
        for batch in iter_batches(data, check_crc=True):
            assert batch.base_offset >= offset
            offset = batch.last_offset + 1
            if batch.is_control:
                continue
            for record in decode_records(batch):
                assert model.records[record.offset] == (record.key, record.value)
                assert NOW <= record.timestamp <= NOW + 3
                if record.offset not in model.hidden and record.offset < stable:
                    seen[record.key] = (record.offset, record.value)
    for key, (at, value) in model.newest(stable).items():
        if value is not None or key in seen:
            assert seen[key] == (at, value)
    for key, (_, value) in seen.items():
        assert key in model.newest(stable), value


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_compaction_keeps_the_newest_of_each_key(open_logs: Any, history: list[Any]) -> None:
    settings_of = {
        "cleanup_policy": "compact",
        "segment_bytes": 600,
        "delete_retention_ms": RETENTION,
        "index_interval_bytes": 1,
    }
    with tempfile.TemporaryDirectory() as directory:
        logs = open_logs(Path(directory))
        log = logs.open(**settings_of)
        model = Model()
        for step in history:
            end = log.log_end_offset
            if step[0] == "append":
                log.append_as_leader(model.batch(step[1], end, codec=step[2]))
            elif step[0] == "idempotent":
                log.append_as_leader(model.batch(step[2], end, producer=step[1]), api_version=9)
            elif step[0] == "transaction":
                log.append_as_leader(model.batch(step[2], end, producer=step[1], transactional=True), api_version=9)
                model.open.setdefault(step[1], []).extend(range(end, end + len(step[2])))
            elif step[0] == "end" and model.open.get(step[1]):
                if not step[2]:
                    model.hidden.update(model.open[step[1]])
                del model.open[step[1]]
                log.append_as_leader(
                    build_end_transaction_marker(step[1], 0, committed=step[2], coordinator_epoch=0, timestamp_ms=NOW)
                )
            elif step[0] == "roll":
                log.roll()
            elif step[0] == "wait":
                model.now += step[1]
            elif step[0] == "clean":
                target = log_to_clean(TP, log, model.checkpoint, model.now)
                before = len(log.segments())
                model.checkpoint, _ = Cleaner(step[1] * 24).clean(target, model.now)
                assert target.first_dirty_offset <= model.checkpoint <= log.last_stable_offset
                assert len(log.segments()) <= before
                check(log, model)
            elif step[0] == "reopen":
                expected = {entry["producer_id"]: entry["last_sequence"] for entry in log.producers()}
                logs.stop(log)
                if not step[1]:
                    for path in Path(logs.directory).glob("*.snapshot"):
                        path.unlink()
                log = logs.open(clean=step[1], **settings_of)
                assert log.log_end_offset == end
                assert {entry["producer_id"]: entry["last_sequence"] for entry in log.producers()} == expected
        check(log, model)
        log.close()
