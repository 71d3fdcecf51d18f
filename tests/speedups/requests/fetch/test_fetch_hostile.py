"""Hostile Fetch bodies: cut anywhere, flipped bits, lying lengths, too many tagged fields."""

from __future__ import annotations

import gc
import random
import struct
import weakref
from typing import Any
from uuid import UUID

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.fetch import FetchRequest

VERSIONS = range(4, 19)
DECODED = range(19)
"""Replies of those below 4 need a worker: tests/broker/test_old_formats.py."""


def full_request(broker: Any, version: int, *, session: int = 0, epoch: int = 0) -> bytes:
    request = broker.fetch_request(
        [("t", 0, 0), ("t", 1, 1), ("u", 0, 0)],
        version=version,
        max_wait_ms=100,
        session_id=session if version >= 7 else 0,
        session_epoch=epoch if version >= 7 else -1,
        forgotten=[("t", 1)] if version >= 7 else [],
        rack_id="rack",
        replica_id=-1,
    )
    if version >= 17:
        request.topics[0].partitions[0].replica_directory_id = UUID(int=5)
    if version >= 15:
        request.replica_state = FetchRequest.ReplicaState(replica_id=-1, replica_epoch=4)
    return bytes(request.encode(version))


@pytest.mark.parametrize("version", DECODED)
def test_a_body_cut_anywhere_closes(broker: Any, version: int) -> None:
    broker.topic("t", 2)[0].append_as_leader(broker.batch())
    body = full_request(broker, version)
    for end in range(len(body)):
        assert broker.driver.handle(1, version, 1, None, body[:end]).kind == "close"
    for more in (b"\0", b"\xff", b"\0" * 30):
        assert broker.driver.handle(1, version, 1, None, body + more).kind == "close"
    assert len(broker.sessions) == 0
    assert broker.driver.handle(1, version, 1, None, body).kind == ("reply" if version in VERSIONS else "ask")


def answer(exchange: Any, source: random.Random) -> None:
    """A worker's answer, good or bad, or none for a part."""
    for question in exchange.questions:
        choice = source.randrange(4)
        offset, data = exchange.records_to_convert(int(question))
        if choice == 0:
            exchange.refuse_conversion(int(question), ErrorCode.UNSUPPORTED_VERSION)
        elif choice == 1:
            exchange.give_message_set(int(question), b"", offset + 1)
        elif choice == 2:
            exchange.give_message_set(int(question), data, offset)
    exchange.resume()


@pytest.mark.parametrize("version", DECODED)
def test_flipped_bits_never_harm_or_leak(make_broker: Any, version: int) -> None:
    source = random.Random(version)
    broker = make_broker(slots=20)
    logs = broker.topic("t", 2)
    for log in logs:
        log.append_as_leader(broker.batch(b"a", b"b"))
    for turn in range(1000):
        session = open_session(broker, version) if turn % 10 == 0 and version >= 7 else 0
        spoiled = bytearray(full_request(broker, version, session=session, epoch=1 if session else 0))
        for _ in range(source.choice([1, 1, 2, 5])):
            spoiled[source.randrange(len(spoiled))] ^= 1 << source.randrange(8)
        exchange = broker.driver.handle(1, version, 1, None, bytes(spoiled))
        if exchange.kind == "parked":
            if source.random() < 0.5:
                exchange.resume(timed_out=True)
            else:
                exchange.cancel()
        while exchange.kind == "ask" and source.random() < 0.9:
            answer(exchange, source)
        assert exchange.kind in ("reply", "close", "parked", "ask")
    assert len(broker.sessions) <= 20
    broker.sessions.clear()
    assert broker.sessions.counters()["partitions"] == 0
    gone = weakref.ref(logs[0])
    broker.table.remove_topic("t")
    del logs, log, exchange
    gc.collect()
    assert gone() is None


def open_session(broker: Any, version: int) -> int:
    return int(broker.fetch([("t", 0, 0), ("t", 1, 0)], version=version, session_epoch=0).session_id)


@pytest.mark.parametrize("version", DECODED)
def test_lying_lengths_are_not_believed(broker: Any, version: int) -> None:
    huge = b"\xff\xff\xff\xff\x0f" if version >= 12 else struct.pack(">i", 0x7FFFFFFF)
    head = (struct.pack(">i", -1) if version < 15 else b"") + struct.pack(">ii", 0, 1)
    head += struct.pack(">i", 1 << 20) if version >= 3 else b""
    head += b"\0" if version >= 4 else b""
    head += struct.pack(">ii", 0, -1) if version >= 7 else b""
    for tail in (b"", b"\0" * 1000):
        assert broker.driver.handle(1, version, 1, None, head + huge + tail).kind == "close"


@pytest.mark.parametrize("place", [-1, -4, -5], ids=["request", "topic", "partition"])
@pytest.mark.parametrize("version", range(12, 19))
def test_a_section_has_at_most_10000_tagged_fields(broker: Any, version: int, place: int) -> None:
    broker.topic("t")
    body = broker.fetch_request([("t", 0, 0)], version=version).encode(version)
    head, tail = body[:place], body[len(body) + place + 1 :]
    assert body[place] == 0
    for count, kind in ((10_000, "reply"), (10_001, "close"), (0xFFFFFFFF, "close")):
        assert broker.driver.handle(1, version, 1, None, head + tags(count) + tail).kind == kind


def tags(count: int) -> bytes:
    """A section of so many empty fields that nobody knows, or no more than the first 20,000 of them."""
    return varint(count) + b"".join(varint(1000 + i) + b"\0" for i in range(min(count, 20_000)))


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
