"""CRC-32C: published vectors, every alignment and block size, chaining, and the fallback."""

import array
import random
import threading

import pytest

from kafkapy._speedups.base import crc32c as kernel

# RFC 3720, B.4, and the check value of the algorithm.
VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]
ROUTINES = [kernel.crc32c, kernel.crc32c_by_table, kernel.crc32c_by_package]


@pytest.mark.parametrize("routine", ROUTINES)
@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_published_vectors(routine, data, expected):
    assert routine(data) == expected


def test_a_routine_without_the_gil_is_in_use():
    # The crc32c package is a dependency: falling back to its Python function here means that a symbol was renamed.
    assert kernel.IMPLEMENTATION in ("hardware", "software")


def test_every_length_and_alignment_agrees_with_the_table():
    data = random.Random(1).randbytes(1100)
    view = memoryview(data)
    for offset in range(9):
        for size in range(0, 1024, 1 if offset == 0 else 17):
            piece = view[offset : offset + size]
            assert kernel.crc32c(piece) == kernel.crc32c_by_table(piece)


def test_long_data_agrees_with_the_table_and_the_package():
    data = random.Random(2).randbytes(1 << 20)
    for size in (4095, 4096, 8191, 8192, 3 * 8192 - 1, 3 * 8192, 65_536 + 7, 1 << 20):
        assert (
            kernel.crc32c(data[:size]) == kernel.crc32c_by_table(data[:size]) == kernel.crc32c_by_package(data[:size])
        )


def test_a_checksum_can_be_chained():
    data = random.Random(3).randbytes(5000)
    whole = kernel.crc32c(data)
    for cut in (0, 1, 7, 8, 127, 128, 129, 2500, 4999, 5000):
        for routine in ROUTINES:
            assert routine(data[cut:], routine(data[:cut])) == whole


def test_any_contiguous_buffer_is_taken_and_other_objects_are_not():
    assert kernel.crc32c(bytearray(b"123456789")) == kernel.crc32c(array.array("B", b"123456789")) == 0xE3069283
    with pytest.raises(BufferError):
        kernel.crc32c(memoryview(b"123456789")[::2])
    with pytest.raises(TypeError):
        kernel.crc32c("123456789")


def test_threads_agree():
    data = random.Random(4).randbytes(200_000)
    expected = kernel.crc32c_by_table(data)
    results = []
    threads = [
        threading.Thread(target=lambda: results.extend(kernel.crc32c(data) for _ in range(50))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 200
