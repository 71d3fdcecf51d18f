"""Clients that produce or consume as fast as their quota lets them, in a process of their own.

`python -m interop.quota_clients KIND BOOTSTRAP TOPIC CLIENT_ID COUNT SECONDS` runs COUNT clients of a kind. It writes
one line of JSON: the bytes of each 10 ms of the monotonic clock (`bytes`), the throttle times and latencies in ms of
the kinds that see them (`replies`: [time, size, throttle, latency]), and the failures.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import struct
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import RecordBatchBuilder

VALUE: Final = b"v" * 5_000
RECORDS: Final = 4
"""In a batch; a request of a producer has one."""
BIN_S: Final = 0.01
SMALL_BYTES, LARGE_BYTES = 1_000, 10_000
"""Of a record of the raw clients."""
PAUSE_S: Final = 0.005
"""Of the neighbour between two requests."""


class Meter:
    """Counts bytes by time, for so many seconds after the first ones. Any thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = math.inf
        self.bins: Counter[int] = Counter()
        self.replies: list[tuple[float, int, int, float]] = []
        self.failures: list[str] = []
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def add(self, size: int) -> None:
        now_s = time.monotonic()
        with self._lock:
            if not self.bins:
                self._end = now_s + self._seconds
            self.bins[int(now_s / BIN_S)] += size

    def fail(self, error: object) -> None:
        if not self.is_over:
            self.failures.append(str(error))


def batch_of(value: bytes, records: int = 1) -> bytes:
    """A batch with that value."""
    builder = RecordBatchBuilder()
    for _ in range(records):
        builder.append(int(time.time() * 1000), None, value)
    return bytes(builder.build())


BATCH_BYTES: Final = len(batch_of(VALUE, RECORDS))
"""A consumer fetches a batch at a time: a part of another one would count too, and be thrown away."""
Place = tuple[str, str, str]
"""Bootstrap, topic and client id."""


# --- producers --------------------------------------------------------------------------------------------------------


def confluent_producer(place: Place, meter: Meter) -> None:
    import confluent_kafka

    bootstrap, topic, client_id = place
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": 20, "acks": "1",
            "queue.buffering.max.messages": 100, "message.timeout.ms": 300_000, "batch.num.messages": RECORDS,
        }
    )  # fmt: skip

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            meter.add(len(message.value()))
        else:
            meter.fail(error)

    while not meter.is_over:
        try:
            producer.produce(topic, VALUE, on_delivery=delivered)
        except BufferError:
            producer.poll(0.02)
        producer.poll(0)
    producer.purge()


def kafka_python_producer(place: Place, meter: Meter) -> None:
    import kafka

    bootstrap, topic, client_id = place
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, client_id=client_id, acks=1, linger_ms=5, batch_size=RECORDS * 5_200,
        max_block_ms=300_000, delivery_timeout_ms=300_000, request_timeout_ms=120_000,
    )  # fmt: skip
    waiting: deque[Any] = deque()
    while not meter.is_over:
        sent = producer.send(topic, VALUE)
        sent.add_callback(lambda _: meter.add(len(VALUE)))
        sent.add_errback(meter.fail)
        waiting.append(sent)
        if len(waiting) >= 10 * RECORDS:
            waiting.popleft().get(300)
    producer.close(timeout=0)


def aiokafka_producer(place: Place, meter: Meter) -> None:
    import aiokafka

    async def run() -> None:
        bootstrap, topic, client_id = place
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id=client_id, acks=1, linger_ms=5, max_batch_size=RECORDS * 5_200,
            request_timeout_ms=120_000,
        )  # fmt: skip
        await producer.start()
        waiting: set[Any] = set()
        while not meter.is_over:
            waiting.add(await producer.send(topic, VALUE))
            if len(waiting) >= 10 * RECORDS:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    meter.add(len(VALUE)) if each.exception() is None else meter.fail(each.exception())
        for each in waiting:
            each.cancel()

    asyncio.run(run())


def kcat_consumer(place: Place, meter: Meter) -> None:
    bootstrap, topic, client_id = place
    command = [
        "kcat", "-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-q", "-u", "-f", "%s",
        "-X", f"client.id={client_id}", "-X", f"message.max.bytes={BATCH_BYTES}",
        "-X", f"fetch.max.bytes={BATCH_BYTES}", "-X", f"max.partition.fetch.bytes={BATCH_BYTES}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE) as kcat:
        assert kcat.stdout is not None
        while not meter.is_over and (data := kcat.stdout.read1(65536)):  # type: ignore[attr-defined]
            meter.add(len(data))
        kcat.kill()


# --- consumers --------------------------------------------------------------------------------------------------------

PARTITIONS: Final = 4


def confluent_consumer(place: Place, meter: Meter) -> None:
    import confluent_kafka

    bootstrap, topic, client_id = place
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "client.id": client_id, "group.id": client_id,
            "enable.auto.commit": False, "message.max.bytes": BATCH_BYTES, "fetch.max.bytes": BATCH_BYTES,
            "max.partition.fetch.bytes": BATCH_BYTES,
        }
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    while not meter.is_over:
        for message in consumer.consume(100, 0.1):
            if message.error() is None:
                meter.add(len(message.value()))
            else:
                meter.fail(message.error())


def kafka_python_consumer(place: Place, meter: Meter) -> None:
    import kafka

    bootstrap, topic, client_id = place
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, client_id=client_id, auto_offset_reset="earliest", enable_auto_commit=False,
        max_partition_fetch_bytes=BATCH_BYTES, fetch_max_bytes=BATCH_BYTES,
    )  # fmt: skip
    consumer.assign([kafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
    while not meter.is_over:
        for records in consumer.poll(timeout_ms=100).values():
            meter.add(sum(len(record.value) for record in records))


def aiokafka_consumer(place: Place, meter: Meter) -> None:
    import aiokafka

    async def run() -> None:
        bootstrap, topic, client_id = place
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, client_id=client_id, auto_offset_reset="earliest", enable_auto_commit=False,
            max_partition_fetch_bytes=BATCH_BYTES, fetch_max_bytes=BATCH_BYTES,
        )  # fmt: skip
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
        while not meter.is_over:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                meter.add(sum(len(record.value) for record in records))

    asyncio.run(run())


# --- raw connections --------------------------------------------------------------------------------------------------


class RawProducer(asyncio.Protocol):
    """Sends one frame after another, the next with the reply to the last; it knows nothing of throttle times."""

    def __init__(self, frame: bytes, meter: Meter, pause_s: float) -> None:
        self._data = struct.pack(">i", len(frame)) + frame
        self._meter = meter
        self._pause_s = pause_s
        self._received = b""
        self._sent_s = 0.0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent_s = time.monotonic()
        self._transport.write(self._data)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return
        # Produce 8 ends with its throttle time; the error code stands behind topic, partitions and index.
        (throttle_ms,) = struct.unpack(">i", self._received[-4:])
        self._received = b""
        now_s = time.monotonic()
        size = len(self._data) - 4
        self._meter.add(size)
        self._meter.replies.append((now_s, size, throttle_ms, (now_s - self._sent_s) * 1000))
        if self._pause_s:
            asyncio.get_running_loop().call_later(self._pause_s, self._send)
        else:
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._meter.fail(f"the connection was closed: {error}")


def raw_producers(place: Place, meter: Meter, count: int, size: int, pause_s: float) -> None:
    bootstrap, topic, client_id = place
    frames = []
    for partition in range(PARTITIONS):
        data = ProduceRequest.Topic.Partition(index=partition, records=batch_of(b"v" * size))
        request = ProduceRequest(
            acks=1, timeout_ms=10_000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=[data])]
        )
        frames.append(encode_request(0, 8, 1, client_id, request))

    async def run() -> None:
        loop = asyncio.get_running_loop()
        host, _, port = bootstrap.rpartition(":")
        for number in range(count):
            frame = frames[number % PARTITIONS]
            await loop.create_connection(lambda frame=frame: RawProducer(frame, meter, pause_s), host, int(port))
        while not meter.is_over:
            await asyncio.sleep(0.1)

    asyncio.run(run())


# --- the process ------------------------------------------------------------------------------------------------------

KINDS: Final[dict[str, Callable[[Place, Meter], None]]] = {
    "confluent-producer": confluent_producer,
    "kafka-python-producer": kafka_python_producer,
    "aiokafka-producer": aiokafka_producer,
    "confluent-consumer": confluent_consumer,
    "kafka-python-consumer": kafka_python_consumer,
    "aiokafka-consumer": aiokafka_consumer,
    "kcat-consumer": kcat_consumer,
}
RAW: Final = {
    "small-raw-producer": (SMALL_BYTES, 0.0),
    "large-raw-producer": (LARGE_BYTES, 0.0),
    "neighbour": (SMALL_BYTES, PAUSE_S),
}
"""Bytes of a record, and the pause after each."""


def main(kind: str, bootstrap: str, topic: str, client_id: str, count: int, seconds: float) -> None:
    place, meter = (bootstrap, topic, client_id), Meter(seconds)
    if kind in RAW:
        raw_producers(place, meter, count, *RAW[kind])
    else:
        def work() -> None:
            try:
                KINDS[kind](place, meter)
            except Exception as error:
                meter.fail(repr(error))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = {"bytes": sorted(meter.bins.items()), "replies": meter.replies, "failures": meter.failures[:10]}
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    # Clients of libraries that wait for a throttled broker are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]), float(sys.argv[6]))
