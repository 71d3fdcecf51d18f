"""Of what was not synced a power failure leaves any part: the log is opened again with exactly the valid prefix.

The reference for "valid prefix" is a walk over the files here, with nothing of the kernels but the CRC.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from log import conftest as helpers
from log import log_oracle as oracle

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.records import record_batch
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.loader import load_log

MEMORY = Path("/dev/shm")
PAGES = (512, 4096)
CONFIG = helpers.config(segment_bytes=1500, index_interval_bytes=200, segment_index_bytes=800)
NOW = time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Unsynced:
    """A log of which a part is not on the disk for sure. Files by name."""

    directory: Path
    files: dict[str, bytes]
    """As the page cache has them."""
    synced: dict[str, bytes]
    """As they were at the last flush."""
    recovery_point: int

    @property
    def segments(self) -> list[str]:
        return sorted(name for name in self.files if name.endswith(".log"))

    def put(self, files: dict[str, bytes]) -> None:
        """Makes the directory hold exactly this."""
        for name in os.listdir(self.directory):  # noqa: PTH208
            if name not in files:
                os.unlink(f"{self.directory}/{name}")  # noqa: PTH108
        for name, data in files.items():
            fd = os.open(f"{self.directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(fd, data)
            os.close(fd)

    def reopen(self) -> PartitionLog:
        storage = LocalBackend().open_log(self.directory.parent, self.directory.name, create=False)
        log, _ = load_log(storage, helpers.TP, CONFIG, clean=False, recovery_point=self.recovery_point)
        return log


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if "next-segment" not in path.name}


@pytest.fixture(scope="module")
def unsynced() -> Iterator[Unsynced]:
    root = Path(tempfile.mkdtemp(prefix="kafkapy-torn-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    storage = LocalBackend().open_log(root, str(helpers.TP), create=True)
    log, _ = load_log(storage, helpers.TP, CONFIG)
    log.become_leader(1, 0, [1])
    directory = root / str(helpers.TP)
    random = Random(1)
    sequences = [0, 0, 0]
    synced: dict[str, bytes] = {}
    for number in range(44):
        producer = number % 3
        how: dict[str, Any] = {"value": random.randbytes(random.randint(1, 50)), "timestamp": NOW + number}
        if number % 2:
            how |= {"producer_id": producer, "epoch": 0, "sequence": sequences[producer]}
            how |= {"attributes": 0x10} if producer else {}
            sequences[producer] += 2
        log.append_as_leader(helpers.make_batch(2, **how), api_version=9)
        if number % 7 == 6:
            marker = helpers.make_marker(1 + number % 2, 0, commit=number % 3 == 0, timestamp=NOW + number)
            log.append_as_leader(marker)
        if number == 20:
            log.seal_segments()
            log.flush()
            synced = contents(directory)
        if number == 33:
            log.become_leader(1, 3, [1])
    log.seal_segments()
    found = Unsynced(directory, contents(directory), synced, log.recovery_point)
    assert len(found.segments) >= 4
    assert 0 < found.recovery_point < log.log_end_offset
    yield found
    shutil.rmtree(root)


def valid_prefix(files: dict[str, bytes]) -> list[bytes]:
    """The batches up to the first one that is not whole, not sound, or not the next."""
    found: list[bytes] = []
    expected = 0
    for name in sorted(name for name in files if name.endswith(".log")):
        data, at = files[name], 0
        if int(name[:20]) != expected:
            return found
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12
            if size < 61 or at + size > len(data) or data[at + 16] != 2:
                return found
            batch = data[at : at + size]
            if int.from_bytes(batch[:8], "big", signed=True) != expected or not record_batch.check_crc(batch):
                return found
            expected += int.from_bytes(batch[23:27], "big", signed=True) + 1
            found.append(batch)
            at += size
    return found


def check(unsynced: Unsynced, files: dict[str, bytes], what: object) -> None:
    unsynced.put(files)
    log = unsynced.reopen()
    expected = valid_prefix(files)
    found = oracle.read_all(log)
    assert [batch.data for batch in found] == expected, what
    assert log.log_end_offset == (found[-1].last + 1 if found else 0), what
    assert log.log_end_offset >= unsynced.recovery_point, what
    oracle.check_derived(log, found)
    oracle.check_time(log, found, found[-1].max_timestamp)


@pytest.mark.parametrize("rest", ["lost", "there"])
def test_every_prefix_of_what_was_not_synced(unsynced: Unsynced, rest: str) -> None:
    """The segments behind the torn one are lost as well, or are there."""
    cases = 0
    for number, name in enumerate(unsynced.segments):
        data, start = unsynced.files[name], len(unsynced.synced.get(name, b""))
        if data == unsynced.synced.get(name):
            continue
        behind = set(unsynced.segments[number + 1 :]) if rest == "lost" else set()
        files = {other: content for other, content in unsynced.files.items() if other not in behind}
        for size in range(start, len(data) + 1, 1 if rest == "lost" else 3):
            check(unsynced, files | {name: data[:size]}, (name, size))
            cases += 1
    assert cases > 500


def torn(old: bytes, new: bytes, page: int, random: Random) -> bytes:
    """Each page of a file was written, or holds what it held before, or zeros where the file was shorter. The length is
    the new one, or that of the last sync, or anything at the end of a page."""
    out = bytearray(new)
    for at in range(0, len(new), page):
        after = new[at : at + page]
        before = old[at : at + len(after)]
        if random.random() < 0.5:
            out[at : at + len(after)] = before + bytes(len(after) - len(before))
    length = random.choice((len(new), len(new), len(old), random.randrange(0, len(new) + page, page)))
    return bytes(out[: max(length, len(old))])


@pytest.mark.parametrize("subsets", [1_500, pytest.param(20_000, marks=pytest.mark.soak)])
def test_any_pages_of_what_was_not_synced(unsynced: Unsynced, subsets: int) -> None:
    """Data, indexes, transaction indexes, snapshots and leader epochs alike; names that are new may be missing."""
    random = Random(20)
    kept = set()
    for number in range(subsets):
        page = PAGES[number % 2]
        files = {}
        for name, data in unsynced.files.items():
            old = unsynced.synced.get(name)
            if data == old or random.random() < 0.3:
                files[name] = data
            elif old is not None or random.random() < 0.9:
                files[name] = torn(old or b"", data, page, random)
        check(unsynced, files, number)
        kept.add(len(valid_prefix(files)))
    gc.collect()
    assert len(kept) > 5, "always the same prefix"
