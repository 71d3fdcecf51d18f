"""The broker is killed with SIGKILL under load from a real client: what was acknowledged is there, once, in order, in
whole batches.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from interop.conftest import make_broker
from kafka.record import MemoryRecords

PARTITIONS = 3


class Load:
    """An idempotent producer that keeps sending numbered records, in a thread of its own, over kills and restarts of
    the broker.
    """

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.sent = [0] * PARTITIONS
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.failures: list[str] = []
        self._topic = topic
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "compression.type": "lz4" if seed % 2 else "none",
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(f"{message.partition()}: {error}")
        else:
            self.acknowledged[message.partition()][int(message.value().split(b" ")[0])] = message.offset()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(self._random.randrange(1, 60)):
                partition = self._random.randrange(PARTITIONS)
                value = b"%d %s" % (self.sent[partition], b"x" * self._random.randrange(800))
                try:
                    self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                except BufferError:
                    break
                self.sent[partition] += 1
            self._producer.poll(0.001)

    def finish(self) -> None:
        """Stops sending and waits until everything sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(90) == 0, "not everything was acknowledged after the last restart"
        assert not self.failures, self.failures[:5]
        for partition in range(PARTITIONS):
            assert len(self.acknowledged[partition]) == self.sent[partition]

    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged))


def read_all(bootstrap: str, topic: str, partition: int) -> list[tuple[int, int]]:
    """(offset, record number) of everything in the partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    )
    where = confluent_kafka.TopicPartition(topic, partition)
    end = consumer.get_watermark_offsets(where, timeout=30)[1]
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    got: list[tuple[int, int]] = []
    deadline = time.monotonic() + 60
    while len(got) < end and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=0.5):
            assert message.error() is None, message.error()
            got.append((message.offset(), int(message.value().split(b" ")[0])))
    consumer.close()
    return got


def check_files(directory: Path) -> None:
    """Every byte of every segment belongs to a whole batch with a right CRC, and offsets are dense; read with kafka-
    python's code.
    """
    expected = 0
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        records = MemoryRecords(data)
        size = 0
        while records.has_next():
            batch = records.next_batch()
            assert batch.validate_crc()
            assert batch.base_offset == expected, segment
            expected += batch.last_offset_delta + 1
            size += batch.size_in_bytes if hasattr(batch, "size_in_bytes") else len(batch._buffer)
        assert size == len(data), f"{segment} has {len(data) - size} bytes that belong to no batch"


def sigkill_rounds(broker: Any, rounds: int, seed: int) -> None:
    source = random.Random(seed)
    broker.start()
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    new = confluent_kafka.admin.NewTopic("load", PARTITIONS, 1, config={"segment.bytes": "1048576"})
    admin.create_topics([new])["load"].result(30)
    load = Load(broker.bootstrap, "load", seed)
    acknowledged = 0
    for number in range(rounds):
        deadline = time.monotonic() + 60
        while load.acknowledged_count() <= acknowledged:
            assert time.monotonic() < deadline, f"nothing was acknowledged after restart {number}: {broker.log_path}"
            time.sleep(0.001)
        time.sleep(source.random() ** 2 * 0.4)
        broker.kill()
        acknowledged = load.acknowledged_count()
        broker.start()
    load.finish()
    for partition in range(PARTITIONS):
        got = read_all(broker.bootstrap, "load", partition)
        assert [offset for offset, _ in got] == list(range(len(got))), "offsets are not dense"
        assert [number for _, number in got] == list(range(load.sent[partition])), "lost, doubled or out of order"
        acknowledged_at = load.acknowledged[partition]
        # A duplicate that was answered from the producer state may carry no offset; the ones given must be true.
        assert all(acknowledged_at[number] in (offset, None) for offset, number in got)
    broker.kill()
    for partition in range(PARTITIONS):
        check_files(Path(broker.data_dir) / "logs" / f"load-{partition}")
    broker.start()
    assert sum(len(read_all(broker.bootstrap, "load", p)) for p in range(PARTITIONS)) == sum(load.sent)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Any]:
    made = make_broker(tmp_path)
    yield made
    made.remove()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_sigkill_under_load_loses_and_doubles_nothing(broker: Any, seed: int) -> None:
    sigkill_rounds(broker, 5, seed)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(10, 20))
def test_sigkill_under_load_for_long(broker: Any, seed: int) -> None:
    sigkill_rounds(broker, 50, seed)
