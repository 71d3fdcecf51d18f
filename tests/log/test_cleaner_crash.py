"""A kill between any two file operations of a cleaning: after a restart every key still has its newest value.

The points are enumerated: a process is ended before its n-th operation, for every n until one run gets through. One
that has imported everything forks them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from kafkapy.records.batches import RecordBatchBuilder, iter_batches, iter_records
from kafkapy.records.control import build_end_transaction_marker

CHILD = """
import os, pathlib, sys
sys.path.insert(0, {root!r})
from kafkapy.config.topic import LogConfig
from kafkapy.log import cleaned_files
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.log.loader import load_log
from kafkapy.types import TopicPartition

tp = TopicPartition("orders", 0)
base, count = pathlib.Path(sys.argv[1]), 0
config = LogConfig.create(overrides={overrides!r})
for line in sys.stdin:
    last, child = int(line), os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()

def counted(function):
    def call(*arguments, **named):
        global count
        count += 1
        if armed and count == last:
            os._exit(9)
        return function(*arguments, **named)
    return call

armed = False
SYSTEM = ("open", "utime", "fsync", "rename", "replace", "unlink")
for owner, names in ((os, SYSTEM), (pathlib.Path, ("rename", "replace", "unlink"))):
    for name in names:
        setattr(owner, name, counted(getattr(owner, name)))
log, _ = load_log(LocalBackend().open_log(base, str(tp), create=False), tp, config, high_watermark=1 << 40)
log.become_leader(1, 0, (1,))
armed, count = True, 0
now = 1_600_000_100_000
Cleaner(1 << 20).clean(log_to_clean(tp, log, None, now), now)
os._exit(0)
"""
OVERRIDES = {
    "cleanup.policy": "compact",
    "segment.bytes": "1500",
    "file.delete.delay.ms": "0",
    "delete.retention.ms": "0",
}


def write(logs: Any) -> None:
    log = logs.open(**{key.replace(".", "_"): value for key, value in OVERRIDES.items()})
    for number in range(60):
        builder = RecordBatchBuilder()
        for record in range(3):
            key = b"k%d" % ((number * 7 + record) % (11 if number < 40 else 60))
            builder.append(1_600_000_000_000, key, None if number % 9 == 0 else b"v%d.%d" % (number, record))
        transactional = number % 10 == 5
        how: dict[str, Any] = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
        log.append_as_leader(builder.build(1 if number % 4 == 0 else 0, transactional=transactional, **how))
        if transactional:
            log.append_as_leader(
                build_end_transaction_marker(number, 0, committed=number % 20 == 5, coordinator_epoch=0, timestamp_ms=1)
            )
    log.roll()
    logs.stop(log)


def state(log: Any) -> tuple[dict[bytes, bytes], list[int]]:
    """What a read_committed reader ends up with, and the offsets it saw."""
    values: dict[bytes, bytes] = {}
    offsets = []
    offset = log.log_start_offset
    aborted_ranges = {(producer, first): last for producer, first, last, _ in log.aborted_transactions()}
    while data := log.read(offset, 1 << 20, isolation=2)[0]:
        for batch in iter_batches(data, check_crc=True):
            assert batch.base_offset >= offset
            offset = batch.last_offset + 1
            hidden = any(
                producer == batch.producer_id and first <= batch.base_offset <= last
                for (producer, first), last in aborted_ranges.items()
            )
            if batch.is_control or hidden:
                continue
            for record in iter_records(batch.to_bytes()):
                offsets.append(record.offset)
                if record.value is None:
                    values.pop(record.key, None)
                else:
                    values[record.key] = record.value
    return values, offsets


def test_a_kill_at_any_file_operation_loses_nothing(open_logs: Any, fast_directory: Path) -> None:
    logs = open_logs(fast_directory)
    write(logs)
    keys = {key.replace(".", "_"): value for key, value in OVERRIDES.items()}
    log = logs.open(**keys)
    expected, before = state(log)
    end = log.log_end_offset
    logs.stop(log)
    saved = fast_directory / "saved"
    shutil.copytree(logs.directory, saved)
    program = CHILD.format(root=str(Path(__file__).parents[2]), overrides=OVERRIDES)
    point, code, seen = 0, -1, set()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(fast_directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cleaner:
        assert cleaner.stdin is not None and cleaner.stdout is not None
        while code != 0:
            point += 1
            assert point < 500
            shutil.rmtree(logs.directory)
            shutil.copytree(saved, logs.directory)
            print(point, file=cleaner.stdin, flush=True)
            code = int(cleaner.stdout.readline())
            assert code in (0, 9)
            left = frozenset(path.suffix for path in logs.directory.iterdir())
            seen.add(left)
            for clean in (True, False):
                again = open_logs(fast_directory)
                log = again.open(clean=clean, **keys)
                values, offsets = state(log)
                assert values == expected, point
                assert log.log_end_offset == end
                assert offsets == sorted(set(offsets)) and set(offsets) <= set(before)
                assert not [
                    p.name
                    for p in logs.directory.iterdir()
                    if p.suffix in (".cleaned", ".swap", ".deleted") and "next" not in p.name
                ]
                again.stop(log)
        cleaner.stdin.close()
    assert point > 20
    assert any(".swap" in left for left in seen) and any(".cleaned" in left for left in seen)
