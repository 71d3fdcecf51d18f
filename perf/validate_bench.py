"""What the validation of compressed batches costs: the broker's walk beside the libraries' decompression alone.

    python perf/validate_bench.py [--rounds 7] [--record-size 1024]

Records of JSON-like text, batches of 64 KB and 1 MB, every codec. `walk` is the broker's streaming validation
(kafkapy.validate.compressed=full); `open` decompresses the same batch as a whole, with the same libraries; `header` is
what remains without either: the CRC of the batch. Each number is the median of the rounds, in ns for a byte of the
records; the three take turns in a round.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

from kafkapy._speedups.records import compressed_records, compression, record_batch
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType

BATCHES = (64 * 1024, 1024 * 1024)
CODECS = (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD)
HEADER_SIZE = record_batch.HEADER_SIZE


def text(size: int, source: random.Random) -> bytes:
    """Half of it repeats, as in the records of an application."""
    parts = bytearray()
    while len(parts) < size:
        parts += b'{"id": %d, "name": "user-%d", "amount": %d, "note": "' % (
            source.randrange(10**9),
            source.randrange(1000),
            source.randrange(10**6),
        )
        parts += source.randbytes(24).hex().encode() + b'"}\n'
    return bytes(parts[:size])


def batch(codec: CompressionType, size: int, record_size: int) -> tuple[bytes, int]:
    """A batch of about `size` bytes of records, and how many they are."""
    source = random.Random(size)
    builder = RecordBatchBuilder(1 << 26)
    count = max(1, size // record_size)
    for i in range(count):
        builder.append(1_700_000_000_000 + i, b"key-%d" % i, text(record_size, source))
    return builder.build(codec), len(builder.payload_bytes())


def took(call: Callable[[], object], turns: int) -> int:
    started = time.perf_counter_ns()
    for _ in range(turns):
        call()
    return time.perf_counter_ns() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record-size", type=int, default=1024)
    parser.add_argument("--bytes", type=int, default=64 * 1024 * 1024, help="of records for each number")
    arguments = parser.parse_args()
    print(f"{'codec':8}{'batch':>9}{'ratio':>7}{'walk':>9}{'open':>9}{'header':>9}{'walk/open':>11}")
    for codec in CODECS:
        for size in BATCHES:
            data, opened = batch(codec, size, arguments.record_size)
            payload = memoryview(data)[HEADER_SIZE:]
            turns = max(1, arguments.bytes // size)
            assert compressed_records.check(data)[0] == compressed_records.OK
            walks, opens, headers = [], [], []
            for _ in range(arguments.rounds):
                walks.append(took(lambda: compressed_records.check(data, times=turns), 1) / turns / opened)  # noqa: B023
                opens.append(
                    took(lambda: compression.decompress(codec, payload, 1 << 28), turns) / turns / opened  # noqa: B023
                )
                headers.append(took(lambda: record_batch.check_crc(data), turns) / turns / opened)  # noqa: B023
            walk, whole, crc = (statistics.median(each) for each in (walks, opens, headers))
            print(
                f"{codec.name.lower():8}{size // 1024:>6} KB{opened / len(payload):>7.2f}"
                f"{walk:>9.3f}{whole:>9.3f}{crc:>9.3f}{walk / whole:>11.2f}"
            )


if __name__ == "__main__":
    main()
