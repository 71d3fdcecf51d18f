"""Valid request frames of every API and version a broker serves, and ways to spoil them."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkapy.protocol.registry import ApiKeys, api
from kafkapy.protocol.schema import Field, Struct
from kafkapy.records.batches import Record, RecordBatchBuilder
from kafkapy.records.legacy import build_message_set

FUZZ_TOPIC = "fuzz"
INTERESTING = (0, 1, -1, 127, 128, 255, 32767, 65535, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**63 - 1, -(2**63))


def served_versions(bootstrap: str) -> dict[int, tuple[int, int]]:
    """What the broker says in ApiVersions: key to (lowest, highest)."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        frame = encode_request(ApiKeys.API_VERSIONS, 0, 1, "fuzz", ApiVersionsRequest())
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        reader = connection.makefile("rb")
        body = reader.read(int.from_bytes(reader.read(4), "big"))
    answer = ApiVersionsResponse.decode(body[4:], 0)
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}


def record_batch(source: random.Random) -> bytes:
    builder = RecordBatchBuilder()
    for number in range(source.randrange(1, 4)):
        builder.append(1_700_000_000_000 + number, source.choice([None, b"key"]), b"value" * number, [("h", b"1")])
    codec = source.choice([0, 0, 0, 1, 2, 3, 4])
    # A source of its own: which frames there are does not depend on who their producers are.
    producers = random.Random(source.getstate()[1][-1])
    if producers.random() < 0.7:
        return builder.build(codec)
    return builder.build(
        codec,
        producer_id=producers.choice([0, 1, 1000, 2**63 - 1]),
        producer_epoch=producers.choice([0, 1, 32767]),
        base_sequence=producers.randrange(3),
        transactional=producers.random() < 0.8,
    )


def message_set(source: random.Random) -> bytes:
    """What a client from before Kafka 0.11 produces."""
    rows = [
        Record(number, 1_700_000_000_000, 0, source.choice([None, b"key"]), b"value" * number)
        for number in range(source.randrange(1, 4))
    ]
    return build_message_set(rows, source.randrange(2), source.choice([0, 0, 1, 2, 3]))


class Maker:
    """Makes plausible requests: names and ids that exist on the broker where a field asks for one, small numbers
    elsewhere.
    """

    def __init__(self, seed: int, topic_id: UUID) -> None:
        self.source = random.Random(seed)
        self.topic_id = topic_id

    def _value(self, field: Field, version: int) -> Any:
        source = self.source
        if version in field.nullable and source.random() < 0.1:
            return None
        if field.kind == "struct":
            assert field.struct is not None
            return self.fill(field.struct, version)
        if field.kind == "array":
            assert field.element is not None
            return [self._value(field.element, version) for _ in range(source.randrange(1, 3))]
        if field.kind == "string":
            if "topic" in field.name or field.name == "name":
                return source.choice([FUZZ_TOPIC, FUZZ_TOPIC, "missing", f"made-{source.randrange(20)}"])
            return source.choice(["a", "", "1", "retention.ms", "some text", "é" * 20])
        if field.kind == "uuid":
            return self.topic_id if source.random() < 0.7 else UUID(int=source.getrandbits(128))
        if field.kind == "records":
            return message_set(source) if version < 3 and source.random() < 0.8 else record_batch(source)
        if field.kind == "bytes":
            return source.randbytes(source.randrange(30))
        if field.kind == "boolean":
            return source.random() < 0.5
        if field.kind == "float64":
            return source.choice([0.0, 1.0, -1.5])
        if field.name in ("max_bytes", "partition_max_bytes"):
            return source.choice([1, 1_000, 1_000_000])
        if field.name in ("timeout_ms", "max_wait_ms", "min_bytes"):
            return source.choice([0, 1, 5])
        if field.name == "acks":
            # Where no answer is asked for, an error ends the connection: few of them, or most work is connecting.
            return source.choice([*[-1, 1] * 10, 0])
        if field.name == "isolation_level":
            return source.choice([*[0, 1] * 10, 2])
        if field.name == "session_id":
            return 0
        if field.name == "replication_factor":
            return source.choice([-1, 1])
        return source.choice([0, 0, 0, 1, -1, 2])

    def fill(self, kind: type[Struct], version: int) -> Any:
        """An instance with every field that the version carries."""
        values = {f.name: self._value(f, version) for f in kind._fields if version in f.versions}
        return kind(**values)

    def frames(self, served: dict[int, tuple[int, int]], each: int) -> Iterator[tuple[int, int, bytes]]:
        """(key, version, frame without its size), `each` of every served version."""
        for key, (low, high) in sorted(served.items()):
            if key not in set(ApiKeys):
                continue
            for version in range(low, high + 1):
                for _ in range(each):
                    request = self.fill(api(key).request, version)
                    yield key, version, encode_request(key, version, self.source.getrandbits(31), "fuzz", request)


def spoil(frame: bytes, source: random.Random) -> bytes:
    """One of: cut, lengthened, bits flipped, bytes replaced, an interesting number put in, a piece doubled or taken
    out.
    """
    data = bytearray(frame)
    # The first four bytes (key and version) stay mostly as they are, so that the body's decoders are what is met.
    start = 4 if source.random() < 0.9 else 0
    kind = source.randrange(7)
    at = source.randrange(start, len(data))
    if kind == 0:
        del data[at:]
    elif kind == 1:
        data += source.randbytes(source.randrange(1, 40))
    elif kind == 2:
        for _ in range(source.randrange(1, 4)):
            data[source.randrange(start, len(data))] ^= 1 << source.randrange(8)
    elif kind == 3:
        for _ in range(source.randrange(1, 6)):
            data[source.randrange(start, len(data))] = source.randrange(256)
    elif kind == 4:
        size, code = source.choice([(1, ">B"), (2, ">H"), (4, ">I"), (8, ">Q")])
        data[at : at + size] = struct.pack(code, source.choice(INTERESTING) & (1 << 8 * size) - 1)
    elif kind == 5:
        piece = data[at : at + source.randrange(1, 20)]
        data[at:at] = piece * source.randrange(1, 4)
    else:
        del data[at : at + source.randrange(1, 12)]
    return bytes(data)


def exchange(
    address: tuple[str, int], frame: bytes, source_ip: str, size: int | None = None, timeout: float = 20.0
) -> bytes:
    """Sends one frame on a connection of its own, ends the sending side and reads until the broker closes.

    Raises TimeoutError when the broker neither answers nor closes: a hang.
    """
    with socket.socket() as connection:
        connection.settimeout(timeout)
        connection.bind((source_ip, 0))
        connection.connect(address)
        got = b""
        try:
            connection.sendall((len(frame) if size is None else size).to_bytes(4, "big", signed=True) + frame)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                got += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
        return got
