"""The walk over a data file's batch headers: every cut and every flip ends it at a batch boundary."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from kafkapy._speedups.records.file_records import append_bytes, walk_batches


def header(base: int, count: int, payload: bytes) -> bytes:
    fields = (base, 49 + len(payload), 0, 2, 0, 0, count - 1, 1000 + base, 2000 + base, -1, -1, -1, count)
    return struct.pack(">qiibIhiqqqhii", *fields) + payload


BATCHES = [header(0, 2, b"a" * 10), header(2, 1, b""), header(3, 5, b"b" * 9000), header(8, 1, b"c")]
EXPECTED = [
    (0, 1, 0, 71, 2000),
    (2, 2, 71, 61, 2002),
    (3, 7, 132, 9061, 2003),
    (8, 8, 9193, 62, 2008),
]


@pytest.fixture
def fd(tmp_path: Path):  # type: ignore[no-untyped-def]
    descriptor = os.open(tmp_path / "data", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_headers_are_walked_without_the_records(fd: int) -> None:
    data = b"".join(BATCHES)
    append_bytes(fd, data, 0)
    assert walk_batches(fd, 0, len(data)) == (EXPECTED, "end")
    assert walk_batches(fd, 132, len(data)) == (EXPECTED[2:], "end")
    assert walk_batches(fd, 0, 0) == ([], "end")


def test_a_walk_ends_at_the_last_whole_batch(fd: int) -> None:
    data = b"".join(BATCHES)
    append_bytes(fd, data, 0)
    ends = [entry[2] + entry[3] for entry in EXPECTED]
    for limit in [*range(200), *range(9150, len(data))]:
        found, why = walk_batches(fd, 0, limit)
        assert found == EXPECTED[: sum(end <= limit for end in ends)]
        assert why == ("end" if limit in (0, *ends) else "corrupt")


def test_random_bytes_never_lead_outside(fd: int) -> None:
    random.seed(3)
    data = b"".join(BATCHES)
    for _ in range(500):
        spoiled = bytearray(data)
        for _ in range(random.randrange(1, 6)):
            spoiled[random.randrange(140)] = random.randrange(256)
        append_bytes(fd, bytes(spoiled), 0)
        found, _ = walk_batches(fd, 0, len(data))
        for base, last, position, size, _ in found:
            assert last >= base
            assert 61 <= size <= len(data) - position


def test_a_write_error_names_its_cause(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="append failed"):
            append_bytes(descriptor, b"x", 0)
        assert walk_batches(descriptor, 0, 100) == ([], "error")
    finally:
        os.close(descriptor)
