"""How many messages a second, and at what CPU cost, consumers read from the same broker: ours beside others.

    python perf/clients/consume.py [--clients kafkapy,confluent] [--sizes 100,1024] [--codecs none,lz4] [--rounds 2]

One broker (storage in memory, in a process of its own) holds a topic for each size and codec, filled once. Each
measurement is a process of its own, and the clients take turns: A B A B. Each reads all partitions from the beginning
without a group, with the defaults of its own, and takes the value of every record. Counted from the first records on,
until all are there; CPU is that of the client's whole process, threads and system time included. kafkapy and
kafka-python check the CRC of every batch, confluent and aiokafka do not unless told.

"limit" is what no client can be cheaper than here: the responses that kafkapy would get, received from a bare socket
and thrown away. "limit-opened" is that, each batch's CRC by the library crc32c, and its records decompressed by lz4:
what is spent before the first record is looked at.

The table is for people, --json FILE for programs.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import mmap
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from produce import cpu_s, payloads

BATCH = 10_000
"""Messages of one call of confluent's consume(), and of poll_batch(): the more, the cheaper."""
LIMIT = {"kafka-python": 60_000, "aiokafka": 150_000}
"""Messages of 100 bytes after which the slow ones have said enough."""


def counted(chunks: Iterator[int], count: int) -> dict[str, float]:
    """Takes numbers of messages until they are `count`; what the first ones took is not measured."""
    first = next(number for number in chunks if number)
    if first >= count:
        sys.exit(f"the first {first} messages came at once; measuring takes more of them (--messages)")
    wall, cpu, seen = time.perf_counter(), cpu_s(), 0
    for number in chunks:
        seen += number
        if first + seen >= count:
            break
    return {"messages": seen, "seconds": time.perf_counter() - wall, "cpu_s": cpu_s() - cpu}


# --- the clients --------------------------------------------------------------------------------------------------


def kafkapy_consumer(options: argparse.Namespace) -> Any:
    from kafkapy import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=options.bootstrap)
    consumer.assign([TopicPartition(options.topic, number) for number in range(options.partitions)])
    consumer.seek_to_beginning()
    return consumer


def work_iterate(options: argparse.Namespace, count: int) -> dict[str, float]:
    consumer = kafkapy_consumer(options)
    next(consumer)
    wall, cpu, seen = time.perf_counter(), cpu_s(), 0
    for record in consumer:
        _ = record.value
        seen += 1
        if seen == count:
            break
    result = {"messages": seen, "seconds": time.perf_counter() - wall, "cpu_s": cpu_s() - cpu}
    consumer.close()
    return result


def work_calls(call: Callable[[Any], Iterator[int]]) -> Callable[[argparse.Namespace, int], dict[str, float]]:
    def work(options: argparse.Namespace, count: int) -> dict[str, float]:
        consumer = kafkapy_consumer(options)
        result = counted(call(consumer), count)
        consumer.close()
        return result

    return work


def polls(consumer: Any) -> Iterator[int]:
    while True:
        seen = 0
        for records in consumer.poll(1000).values():
            for record in records:
                _ = record.value
            seen += len(records)
        yield seen


def batches(consumer: Any) -> Iterator[int]:
    while True:
        records = consumer.poll_batch(BATCH, 1000)
        for record in records:
            _ = record.value
        yield len(records)


def tables(consumer: Any) -> Iterator[int]:
    while True:
        table = consumer.poll_arrow(1000)
        yield table.num_rows


def values(consumer: Any) -> Iterator[int]:
    while True:
        table = consumer.poll_arrow(1000, columns=["value"])
        yield table.num_rows


def work_confluent(options: argparse.Namespace, count: int) -> dict[str, float]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(options.topic, number, OFFSET_BEGINNING) for number in range(options.partitions)])

    def chunks() -> Iterator[int]:
        while True:
            messages = consumer.consume(BATCH, 0.1)
            for message in messages:
                message.value()
            yield len(messages)

    result = counted(chunks(), count)
    consumer.close()
    return result


def work_kafka_python(options: argparse.Namespace, count: int) -> dict[str, float]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=options.bootstrap)
    consumer.assign([TopicPartition(options.topic, number) for number in range(options.partitions)])
    consumer.seek_to_beginning()
    next(consumer)
    wall, cpu, seen = time.perf_counter(), cpu_s(), 0
    for record in consumer:
        _ = record.value
        seen += 1
        if seen == count:
            break
    return {"messages": seen, "seconds": time.perf_counter() - wall, "cpu_s": cpu_s() - cpu}


def work_aiokafka(options: argparse.Namespace, count: int) -> dict[str, float]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def work() -> dict[str, float]:
        consumer = AIOKafkaConsumer(bootstrap_servers=options.bootstrap)
        await consumer.start()
        partitions = [TopicPartition(options.topic, number) for number in range(options.partitions)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        await consumer.getone()
        wall, cpu, seen = time.perf_counter(), cpu_s(), 0
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    _ = record.value
                seen += len(records)
        result = {"messages": seen, "seconds": time.perf_counter() - wall, "cpu_s": cpu_s() - cpu}
        await consumer.stop()
        return result

    return asyncio.run(work())


LARGEST_RESPONSE = 64 << 20
WAKE_BYTES = 1 << 20
"""What has to have come before the thread is woken: to read while the broker writes costs more."""
FETCH, FETCH_VERSION = 1, 11
BATCH_HEADER = struct.Struct(">qiiBIh")
"""Offset, length, leader epoch, magic, CRC, attributes."""
BATCH_LENGTH_END, BATCH_CRC_END, BATCH_RECORDS = 12, 21, 61
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LZ4 = 3
"""Of the attributes' lowest three bits."""


def fetch_request(options: argparse.Namespace, positions: dict[int, int]) -> bytes:
    from kafkapy._speedups.protocol.encoder import encode_message
    from kafkapy.clients.network_client import request_header
    from kafkapy.protocol.messages.fetch import FetchRequest

    partitions = [
        FetchRequest.Topic.Partition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in positions.items()
    ]
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=-1,
        topics=[FetchRequest.Topic(topic=options.topic, partitions=partitions)],
    )
    frame = encode_message(request, FETCH_VERSION, request_header(FETCH, FETCH_VERSION, "limit"))
    return len(frame).to_bytes(4, "big") + frame


def received(peer: socket.socket, memory: memoryview, request: bytes) -> memoryview:
    """The response's frame, which lies in `memory`."""
    peer.sendall(request)
    size = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big")
    readable = select.poll()
    readable.register(peer, select.POLLIN)
    have = 0
    while have < size:
        # Only poll() waits for so much; a recv() that has read a part of it would wait for as much again.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(size - have, WAKE_BYTES))
        readable.poll()
        have += peer.recv_into(memory[have:size], 0, socket.MSG_DONTWAIT)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return memory[:size]


def keep_freed_memory() -> None:
    """Has malloc take large blocks from what was freed: a library that allocates pays for new pages once."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 29)
    libc.mallopt(M_TRIM_THRESHOLD, 1 << 29)


def opened(records: memoryview) -> None:
    """Checks the CRCs of the batches, and decompresses them."""
    import crc32c
    from lz4 import frame

    at = 0
    while at + BATCH_HEADER.size <= len(records):
        _, length, _, _, crc, attributes = BATCH_HEADER.unpack_from(records, at)
        end = at + BATCH_LENGTH_END + length
        if end > len(records):
            break  # the broker cut it
        if crc32c.crc32c(records[at + BATCH_CRC_END : end]) != crc:
            sys.exit("a batch is not what was sent")
        if attributes & 7 == LZ4:
            frame.decompress(records[at + BATCH_RECORDS : end])
        at = end


def work_limit(options: argparse.Namespace, count: int) -> dict[str, float]:
    """Finds out what has to be asked for, then asks for it again and does nothing with what comes, or opens it."""
    from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
    from kafkapy.protocol.header import decode_response

    keep_freed_memory()
    host, port = options.bootstrap.split(":")
    positions = dict.fromkeys(range(options.partitions), 0)
    plan: list[tuple[bytes, int]] = []
    with socket.create_connection((host, int(port))) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        memory = memoryview(mmap.mmap(-1, LARGEST_RESPONSE))
        while sum(positions.values()) < count:
            request, before = fetch_request(options, positions), sum(positions.values())
            response = FetchResponseFrame(FETCH_VERSION, False, 0)
            response.feed(received(peer, memory, request))
            for each in response.partitions():
                positions[each.partition] = max(each.end_offset, positions[each.partition])
            plan.append((request, sum(positions.values()) - before))

        def chunks() -> Iterator[int]:
            for request, number in plan:
                frame = received(peer, memory, request)
                if options.client == "limit-opened":
                    _, response = decode_response(FETCH, FETCH_VERSION, frame)
                    for topic in response.responses:
                        for partition in topic.partitions:
                            opened(memoryview(partition.records))
                yield number

        return counted(chunks(), count)


WORK: dict[str, Callable[[argparse.Namespace, int], dict[str, float]]] = {
    "kafkapy": work_iterate,
    "kafkapy-poll": work_calls(polls),
    "kafkapy-batch": work_calls(batches),
    "kafkapy-arrow": work_calls(tables),
    "kafkapy-values": work_calls(values),
    "confluent": work_confluent,
    "kafka-python": work_kafka_python,
    "aiokafka": work_aiokafka,
    "limit": work_limit,
    "limit-opened": work_limit,
}


def messages_of(options: argparse.Namespace, size: int) -> int:
    """How many messages a topic has."""
    return int(options.messages / max(1, size / 250))


def work(options: argparse.Namespace) -> None:
    """One measurement, in this process. The last tenth stays unread, so that no client waits for the end."""
    count = int(0.9 * messages_of(options, options.size))
    print(json.dumps(WORK[options.client](options, min(count, LIMIT.get(options.client, count)))))


# --- measuring ----------------------------------------------------------------------------------------------------


def fill(bootstrap: str, topic: str, size: int, codec: str, count: int, partitions: int) -> None:
    """The topic's messages, in batches of up to 64 KiB."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50, "batch.size": 65536}
    )
    each = payloads(size)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, each[number % len(each)], partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every client, size and codec, in turn."""
    from kafkapy.testing.broker_process import BrokerProcess

    results: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    # pyarrow brings numpy, whose library starts threads that spin for a tenth of a second: not the client's work.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    overrides = {"kafkapy.storage.backend": "memory", "num.partitions": str(options.partitions)}
    with BrokerProcess(overrides=overrides) as broker:
        for size in options.sizes:
            for codec in options.codecs:
                topic = f"{size}-{codec}"
                fill(broker.bootstrap, topic, size, codec, messages_of(options, size), options.partitions)
                for _ in range(options.rounds):
                    for client in options.clients:
                        command = [sys.executable, __file__, "--worker", client, "--bootstrap", broker.bootstrap]
                        command += ["--size", str(size), "--topic", topic, "--messages", str(options.messages)]
                        command += ["--partitions", str(options.partitions)]
                        done = subprocess.run(
                            command, capture_output=True, text=True, timeout=600, check=False, env=environment
                        )
                        if done.returncode:
                            sys.exit(f"{client} failed:\n{done.stderr}")
                        result = json.loads(done.stdout.splitlines()[-1])
                        results.setdefault((client, size, codec), []).append(result)
    return [
        {
            "client": client,
            "size": size,
            "codec": codec,
            "messages_per_s": statistics.median(run["messages"] / run["seconds"] for run in runs),
            "cpu_us_per_message": statistics.median(run["cpu_s"] / run["messages"] * 1e6 for run in runs),
            "runs": runs,
        }
        for (client, size, codec), runs in results.items()
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=lambda text: text.split(","), default=list(WORK))
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=[100, 1024])
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=["none", "lz4"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--messages", type=int, default=2_000_000, help="of 100 bytes; fewer of larger ones")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", dest="client", choices=list(WORK), help=argparse.SUPPRESS)
    for hidden in ("--bootstrap", "--topic"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        work(options)
        return
    rows = measure(options)
    print(f"{'client':14} {'bytes':>5} {'codec':6} {'messages/s':>12} {'CPU us/message':>15}")
    for row in sorted(rows, key=lambda row: (row["size"], row["codec"], row["cpu_us_per_message"])):
        print(
            f"{row['client']:14} {row['size']:5} {row['codec']:6} {row['messages_per_s']:12,.0f} "
            f"{row['cpu_us_per_message']:15.3f}"
        )
    if options.json:
        settings = {"messages": options.messages, "partitions": options.partitions, "batch": BATCH}
        options.json.write_text(json.dumps({"settings": settings, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
