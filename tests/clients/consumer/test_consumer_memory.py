"""A consumer that is far behind: what it holds is bounded by its settings, however much there is to read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkapy.testing.broker_process import BrokerProcess

PARTITIONS = 8
MIB = 1 << 20

READER = """
import json, re, sys, time
from pathlib import Path
from kafkapy import KafkaConsumer, TopicPartition
import kafkapy._speedups.clients.consumer.fetch_frame

def kib(name):
    return int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

bootstrap, partitions, count, configs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **configs)
before = kib("VmRSS")
consumer.assign([TopicPartition("t", number) for number in range(partitions)])
got = total = most = 0
while got < count:
    # Now and then the user is slow, and fetching ahead has all the time it wants.
    if got % 7919 < 50 and got < 40000:
        time.sleep(0.01)
    for record in consumer.poll_batch(50, 5000):
        got += 1
        total += len(record.value)
    most = max(most, consumer.fetch_buffer.bytes)
print(json.dumps({"got": got, "bytes": total, "buffered": most, "grown": (kib("VmHWM") - before) * 1024}))
consumer.close()
"""


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result()
        yield running


def fill(broker: BrokerProcess, total: int, value: bytes, codec: str) -> int:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 200_000,
            "queue.buffering.max.kbytes": 200_000,
        }
    )
    count = total // len(value)
    for number in range(count):
        while True:
            try:
                producer.produce("t", value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0
    return count


def read(broker: BrokerProcess, count: int, timeout: int, **configs: Any) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", READER, broker.bootstrap, str(PARTITIONS), str(count), json.dumps(configs)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, int] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.soak)])
def test_memory_is_bounded_by_the_settings(broker: BrokerProcess, codec: str) -> None:
    value = bytes(range(256)) * 4
    total = 60 * MIB
    count = fill(broker, total, value, codec)
    result = read(broker, count, 120, fetch_max_bytes=2 * MIB, max_partition_fetch_bytes=256 * 1024)
    assert (result["got"], result["bytes"]) == (count, count * len(value))
    # Read ahead, one response on its way, and what the allocator does not give back at once.
    assert result["buffered"] <= 6 * MIB
    assert result["grown"] <= 40 * MIB


@pytest.mark.soak
def test_ten_gigabytes_behind_with_the_default_settings(broker: BrokerProcess) -> None:
    value = bytes(range(256)) * 16
    count = fill(broker, 10 << 30, value, "none")
    result = read(broker, count, 900)
    assert (result["got"], result["bytes"]) == (count, count * len(value))
    assert result["buffered"] <= 110 * MIB
    assert result["grown"] <= 250 * MIB
