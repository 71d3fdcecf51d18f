"""murmur2: the values Kafka's own tests hold, and another implementation of it."""

import random

import pytest
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from kafkapy._speedups.base.murmur2 import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_values_of_kafkas_tests(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_every_length_agrees_with_another_implementation() -> None:
    rng = random.Random(3)
    for size in [*range(40), 255, 256, 1000]:
        key = rng.randbytes(size)
        assert murmur2(key) == kafka_python_murmur2(key)
        assert murmur2(memoryview(bytearray(key))) == murmur2(key)


def test_a_partition_is_the_hash_without_its_sign() -> None:
    for count in (1, 2, 7, 100):
        assert partition_for_key(b"foobar", count) == ((-790332482) & 0x7FFFFFFF) % count
    with pytest.raises(ValueError, match="no partition"):
        partition_for_key(b"x", 0)
