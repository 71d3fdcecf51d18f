"""Record batches side by side: kafkapy, kafka-python and aiokafka build and decode the same records; checksum speed.

    python perf/records_bench.py [--rounds 7] [--records 500] [--size 100]

Each number is the median of the rounds; the libraries take turns in a round, so that a busy machine slows all alike.
Build is append + build of one batch, decode reads every key and value. Time is per record, in microseconds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

from kafkapy._speedups.base import crc32c
from kafkapy._speedups.records import record_batch
from kafkapy.records.batches import RecordBatchBuilder, decode_records, iter_batches
from kafkapy.records.validator import RecordRules, validate_records
from kafkapy.types import CompressionType

Records = list[tuple[int, bytes | None, bytes]]


def build_kafkapy(records: Records, codec: int) -> bytes:
    builder = RecordBatchBuilder(1 << 24)
    append = builder.append
    for timestamp, key, value in records:
        append(timestamp, key, value)
    return builder.build(codec)


def build_kafka_python(records: Records, codec: int) -> bytes:
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
    for i, (timestamp, key, value) in enumerate(records):
        builder.append(i, timestamp, key, value, [])
    return bytes(builder.build())


def build_aiokafka(records: Records, codec: int) -> bytes:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 24)
    for i, (timestamp, key, value) in enumerate(records):
        builder.append(i, timestamp, key, value, [])
    return bytes(builder.build())


def decode_kafkapy(data: bytes) -> int:
    return sum(
        len(record.value)
        for batch in iter_batches(data, check_crc=True)
        for record in decode_records(batch)
        if record.value
    )


def decode_kafka_python(data: bytes) -> int:
    from kafka.record.default_records import DefaultRecordBatch

    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    return sum(len(record.value) for record in batch)


def decode_aiokafka(data: bytes) -> int:
    from aiokafka.record.default_records import DefaultRecordBatch

    batch = DefaultRecordBatch(bytearray(data))
    assert batch.validate_crc()
    return sum(len(record.value) for record in batch)


BUILD: dict[str, Callable[[Records, int], bytes]] = {
    "kafkapy": build_kafkapy,
    "kafka-python": build_kafka_python,
    "aiokafka": build_aiokafka,
}
DECODE: dict[str, Callable[[bytes], int]] = {
    "kafkapy": decode_kafkapy,
    "kafka-python": decode_kafka_python,
    "aiokafka": decode_aiokafka,
}


def timed(call: Callable[[], object], at_least: float = 0.02) -> float:
    """Seconds per call, over as many calls as take at_least seconds."""
    calls = 0
    start = time.perf_counter()
    while True:
        call()
        calls += 1
        elapsed = time.perf_counter() - start
        if elapsed >= at_least:
            return elapsed / calls


def in_turns(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timed(call))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=500)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    options = parser.parse_args()
    rng = random.Random(1)
    words = [rng.randbytes(8) for _ in range(64)]
    records: Records = [
        (1_700_000_000_000 + i, b"key-%d" % i, b"".join(rng.choices(words, k=options.size // 8 + 1))[: options.size])
        for i in range(options.records)
    ]

    print(f"CRC-32C ({crc32c.IMPLEMENTATION}), GB/s")
    for size in (100, 1024, 16_384, 1 << 20):
        data = rng.randbytes(size)
        calls = {
            "kernel": lambda d=data: crc32c.crc32c(d),
            "crc32c package": lambda d=data: crc32c.crc32c_by_package(d),
        }
        speeds = {name: size / seconds / 1e9 for name, seconds in in_turns(calls, options.rounds).items()}
        print(f"  {size:>8} bytes  " + "  ".join(f"{name} {speed:6.2f}" for name, speed in speeds.items()))

    print(f"\n{options.records} records of {options.size} bytes, microseconds per record (and times kafkapy)")
    for codec in CompressionType:
        for what in ("build", "decode"):
            calls = {}
            for name, build in BUILD.items():
                if what == "build":
                    calls[name] = lambda b=build, c=codec: b(records, int(c))
                else:
                    packed = build_kafkapy(records, codec)
                    calls[name] = lambda d=DECODE[name], p=packed: d(p)
            times = in_turns(calls, options.rounds)
            row = "  ".join(
                f"{name} {seconds / options.records * 1e6:7.3f} ({seconds / times['kafkapy']:4.1f}x)"
                for name, seconds in times.items()
            )
            print(f"  {codec.config_name:>6} {what:<6}  {row}")

    data = build_kafkapy(records, 0)
    packed = build_kafkapy(records, CompressionType.LZ4)
    broker = {
        "append path: CRC": lambda: record_batch.check_crc(data),
        "append path: walk of the records": lambda: record_batch.check_records(data, needs_keys=True),
        "worker: lz4 checked record by record": lambda: validate_records(packed, RecordRules(True), now_ms=0),
        "worker: lz4 to zstd": lambda: validate_records(packed, RecordRules(codec=CompressionType.ZSTD), now_ms=0),
    }
    print(f"\nwhat a broker does with that batch ({len(data)} bytes), nanoseconds per record")
    for name, seconds in in_turns(broker, options.rounds).items():
        print(f"  {name:<40} {seconds / options.records * 1e9:8.1f}")


if __name__ == "__main__":
    main()
