"""One blocking connection for what surrounds the measurements: topics made and deleted, offsets, data read back.

Requests are encoded by kafkapy's own protocol package, in versions that every peer serves.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kafkapy.protocol.header import decode_response, encode_request
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.schema import Request
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS = 7, 11, 1, 8, 4, 3

# In a batch: what a broker sets itself, and the CRC does not cover.
_BASE_OFFSET = slice(0, 8)
_LEADER_EPOCH = slice(12, 16)
_HEADER = 61


class CheckError(RuntimeError):
    """A broker answered an error, or gave other data than it was sent."""


class Client:
    """Owns one connection; every call blocks, at most `timeout_s`."""

    def __init__(self, port: int, timeout_s: float = 120.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")
        self._correlation = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def exchange(self, request: Request, version: int) -> bytes:
        """The reply's frame, not decoded. Raises OSError when the broker goes away."""
        self._correlation += 1
        frame = encode_request(request.API_KEY, version, self._correlation, "perf", request)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        size = self._reader.read(4)
        if len(size) < 4:
            raise ConnectionError("the broker closed the connection")
        return self._reader.read(int.from_bytes(size, "big"))

    def call(self, request: Request, version: int) -> Any:
        """The decoded reply."""
        correlation, answer = decode_response(request.API_KEY, version, self.exchange(request, version))
        if correlation != self._correlation:
            raise CheckError(f"correlation id {correlation}, expected {self._correlation}")
        return answer

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Returns once every partition has a leader that serves it. Raises CheckError."""
        topic = CreateTopicsRequest.Topic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in (configs or {}).items()],
        )
        answer = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=120_000), CREATE_TOPICS)
        if answer.topics[0].error_code:
            raise CheckError(f"CreateTopics of {name}: {answer.topics[0].error_code} {answer.topics[0].error_message}")
        self.end_offsets(name, partitions, wait_s=120)

    def delete_topic(self, name: str) -> None:
        answer = self.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), DELETE_TOPICS)
        if answer.responses[0].error_code:
            raise CheckError(f"DeleteTopics of {name}: {answer.responses[0].error_code}")

    def end_offsets(self, topic: str, partitions: int, wait_s: float = 10.0) -> list[int]:
        """Log end offset of each partition; waits until all have a leader. Raises CheckError."""
        asked = [ListOffsetsRequest.Topic.Partition(partition_index=index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=asked)])
        deadline = time.monotonic() + wait_s
        while True:
            answer = self.call(request, LIST_OFFSETS)
            answers = [partition for entry in answer.topics for partition in entry.partitions]
            errors = {partition.error_code for partition in answers}
            if errors == {0} and len(answers) == partitions:
                return [p.offset for p in sorted(answers, key=lambda p: int(p.partition_index))]
            if time.monotonic() > deadline:
                raise CheckError(f"ListOffsets of {topic}: errors {errors}, {len(answers)} of {partitions} partitions")
            time.sleep(0.01)

    def metadata_request(self) -> MetadataRequest:
        return MetadataRequest(topics=None, allow_auto_topic_creation=False)

    def partitions_with_leader(self) -> int:
        answer = self.call(self.metadata_request(), METADATA)
        return sum(p.leader_id >= 0 and p.error_code == 0 for topic in answer.topics for p in topic.partitions)

    def produce(self, topic: str, partitions: Iterable[int], records: bytes) -> int:
        """The first error code, 0 when all were accepted."""
        data = [ProduceRequest.Topic.Partition(index=index, records=records) for index in partitions]
        request = ProduceRequest(
            acks=1, timeout_ms=30_000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=data)]
        )
        answer = self.call(request, PRODUCE)
        codes = [partition.error_code for entry in answer.responses for partition in entry.partition_responses]
        return next((code for code in codes if code), 0)

    def batches(self, topic: str, partition: int, offset: int, end: int) -> Iterator[bytes]:
        """The whole batches from offset to end as they are in the log. Raises CheckError."""
        while offset < end:
            wanted = FetchRequest.Topic.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchRequest.Topic(topic=topic, partitions=[wanted])],
            )
            answer = self.call(request, FETCH)
            found = answer.responses[0].partitions[0]
            if answer.error_code or found.error_code:
                raise CheckError(f"Fetch of {topic}-{partition} at {offset}: {answer.error_code} {found.error_code}")
            data, at = memoryview(found.records or b""), 0
            while len(data) - at >= _HEADER:
                whole = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
                if len(data) - at < whole:
                    break
                base = int.from_bytes(data[at : at + 8], "big")
                if base != offset:
                    raise CheckError(f"{topic}-{partition}: a batch at offset {base}, expected {offset}")
                yield bytes(data[at : at + whole])
                offset = base + int.from_bytes(data[at + 23 : at + 27], "big") + 1
                at += whole
            if at == 0:
                raise CheckError(f"{topic}-{partition}: nothing to read at offset {offset}, the end is {end}")


def same_batch(stored: bytes, sent: bytes) -> bool:
    """Equal in all that a broker may not change."""
    a, b = bytearray(stored), bytearray(sent)
    for broker_sets in (_BASE_OFFSET, _LEADER_EPOCH):
        a[broker_sets] = b[broker_sets] = b"\0" * (broker_sets.stop - broker_sets.start)
    return a == b


def read_back(
    port: int, topic: str, sent: list[bytes], records_per_batch: int, requests: int, sample_bytes: int
) -> int:
    """Compares the log with what was sent: partition i got sent[i] over and over, `requests` times in all.

    Counts all offsets, and compares up to sample_bytes of every partition byte for byte. Returns bytes compared;
    raises CheckError.
    """
    compared = 0
    with Client(port) as client:
        ends = client.end_offsets(topic, len(sent))
        if sum(ends) != requests * records_per_batch:
            raise CheckError(f"{topic}: {sum(ends)} records in the log, {requests * records_per_batch} were accepted")
        for partition, batch in enumerate(sent):
            some = min(ends[partition], max(1, sample_bytes // len(batch)) * records_per_batch)
            for start in {0, ends[partition] - some}:
                for stored in client.batches(topic, partition, start, start + some):
                    if not same_batch(stored, batch):
                        raise CheckError(f"{topic}-{partition}: a batch differs from what was sent")
                    compared += len(stored)
    return compared


def wait_until_deleted(data_dir: Path, topic: str, timeout_s: float = 30.0) -> None:
    """Returns once no directory of that topic is left.

    A broker that deletes files while another one is measured would disturb it.
    """
    deadline = time.monotonic() + timeout_s
    while any(path.is_dir() and path.name.startswith(f"{topic}-") for path in data_dir.glob("logs/*")):
        if time.monotonic() > deadline:
            raise CheckError(f"{topic} still has directories {timeout_s:.0f} s after its deletion")
        time.sleep(0.02)


# --- data to send -----------------------------------------------------------------------------------------------


def value(size: int, rng: random.Random) -> bytes:
    """Words and digits, which compress about as well as log lines do."""
    parts: list[bytes] = []
    length = 0
    while length < size:
        word = rng.choice(_WORDS) if rng.random() < 0.8 else b"%d" % rng.getrandbits(40)
        parts.append(word)
        length += len(word) + 1
    return b" ".join(parts)[:size]


_seeded = random.Random(7)
_WORDS = [bytes(_seeded.choices(b"abcdefghijklmnopqrstuvwxyz", k=_seeded.randint(3, 10))) for _ in range(2000)]


def record_batch(values: list[bytes], compression: CompressionType = CompressionType.NONE) -> bytes:
    """One batch of these values with today's time (an old one would fall to retention)."""
    builder = RecordBatchBuilder(64 << 20)
    timestamp = int(time.time() * 1000)
    for item in values:
        builder.append(timestamp, None, item)
    return bytes(builder.build(compression))


def batch_of_size(
    size: int, record_size: int, seed: int, compression: CompressionType = CompressionType.NONE
) -> tuple[bytes, int]:
    """(batch, records in it): as many records as fit into `size` bytes before compression.

    Uncompressed, the last value is stretched so that the batch has exactly that size.
    """
    rng = random.Random(seed)
    values = [value(record_size, rng)]
    overhead = len(record_batch([values[0]])) - _HEADER - record_size + 2  # later records have longer deltas
    while _HEADER + (len(values) + 1) * (record_size + overhead) <= size:
        values.append(value(record_size, rng))
    for _ in range(8):
        missing = size - len(record_batch(values))
        if missing == 0:
            break
        values[-1] = value(len(values[-1]) + missing, rng)
    return record_batch(values, compression), len(values)


def produce_frame(topic: str, partition: int, batch: bytes, acks: int) -> bytes:
    """A Produce version 7 request without its frame size."""
    data = ProduceRequest.Topic.Partition(index=partition, records=batch)
    request = ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=[data])]
    )
    return bytes(encode_request(request.API_KEY, PRODUCE, 0, "load", request))


def write_frames(folder: Path, topic: str, batches: list[bytes], acks: int) -> list[str]:
    """One file for each partition."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for partition, batch in enumerate(batches):
        path = folder / f"{os.getpid()}-{topic}-{acks}-{partition}"
        path.write_bytes(produce_frame(topic, partition, batch, acks))
        paths.append(str(path))
    return paths
