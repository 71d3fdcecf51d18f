"""A client of one blocking socket that speaks frames: for tests that need to misbehave, or to know exactly what is on the wire."""

from __future__ import annotations

import socket
from typing import Any

from kafkapy.protocol.header import decode_response, encode_request
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.schema import Request
from kafkapy.records.batches import RecordBatchBuilder


def framed(frame: bytes) -> bytes:
    """The frame with its size in front."""
    return len(frame).to_bytes(4, "big") + frame


def batch(value: bytes, count: int = 1) -> bytes:
    """One uncompressed batch with `count` records of that value."""
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(1_700_000_000_000, None, value)
    return builder.build()


def produce_request(topic: str, records: bytes, acks: int = 1, partition: int = 0) -> ProduceRequest:
    entry = ProduceRequest.Topic.Partition(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=[entry])]
    )


def fetch_request(topic: str, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchRequest.Topic(topic=topic, partitions=[partition])],
    )


class RawClient:
    """Owns one connection; every call blocks, at most 30 s."""

    def __init__(self, bootstrap: str, *, receive_buffer: int | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(30)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb")
        self._correlation = 0

    def encode(self, request: Request, version: int) -> bytes:
        """The next request as it goes on the wire."""
        self._correlation += 1
        return framed(encode_request(request.API_KEY, version, self._correlation, "raw", request))

    def send(self, request: Request, version: int) -> None:
        self.socket.sendall(self.encode(request, version))

    def receive_frame(self) -> bytes:
        """The next reply without its size; b"" when the broker closed the connection."""
        size = self._reader.read(4)
        return self._reader.read(int.from_bytes(size, "big")) if len(size) == 4 else b""

    def call(self, request: Request, version: int) -> Any:
        """Sends and decodes the reply. Raises ConnectionError when the broker closed the connection."""
        self.send(request, version)
        frame = self.receive_frame()
        if not frame:
            raise ConnectionError("the broker closed the connection")
        correlation, answer = decode_response(request.API_KEY, version, frame)
        assert correlation == self._correlation
        return answer

    def close(self) -> None:
        self._reader.close()
        self.socket.close()
