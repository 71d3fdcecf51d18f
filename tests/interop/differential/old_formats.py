"""Exchanges of Fetch v0 to v3, and of Produce v0 to v2 with what only message sets can have wrong."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from interop.differential.exchanges import Peer, scenario
from interop.differential.fetch import Reader
from interop.differential.offsets import T0, records
from interop.differential.produce import Producer, message_set, what_is_there

from kafkapy.protocol.registry import ApiKeys
from kafkapy.records.compression import compress
from kafkapy.records.control import build_end_transaction_marker

CODECS = (0, 1, 2, 3)


def message(magic: int, attributes: int, key: bytes | None, value: bytes | None, timestamp: int = T0) -> bytes:
    """One message as it stands, whatever is in it; offset 0, and a CRC that is right."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@scenario(ApiKeys.FETCH)
def fetch_converted(peer: Peer, version: int) -> None:
    if version > 3:
        return
    reader = Reader(peer, version, {})
    ask, at = reader.ask, reader.partition
    for codec in CODECS:
        # A topic for each: how much of several batches fits depends on how well a broker compresses.
        name = f"c-{version}-{codec}"
        peer.create_topic(name)
        peer.produce(name, records(T0, T0 + 5, T0 + 3, codec=codec))
        for offset in range(5):
            ask(f"codec {codec} offset {offset}", (name, [at(offset)]))
    name = f"c-{version}-plain"
    peer.create_topic(name)
    for number in range(4):
        peer.produce(name, records(T0 + number, T0 + number + 1))
    for size in (0, 1, 20, 100, 200, 300):
        ask(f"size {size}", (name, [at(3, 0, size)]))
    for name_of, configs in {"append": {"message_timestamp_type": "LogAppendTime"}, "zstd": {}}.items():
        other = f"c-{version}-{name_of}"
        peer.create_topic(other, **configs)
        if name_of == "zstd":
            for codec in (0, 4, 1):
                peer.produce(other, records(T0, T0 + 1, codec=codec))
            for offset in range(6):
                ask(f"zstd {offset}", (other, [at(offset)]))
    compressed = f"c-{version}-topic-zstd"
    peer.create_topic(compressed, compression_type="zstd")
    peer.produce(compressed, records(T0))
    ask("topic of zstd", (compressed, [at(0)]))


def bad_sets(magic: int) -> dict[str, bytes]:
    plain = message(magic, 0, b"k", b"v")
    gz = compress(1, plain * 2, magic=magic)
    good = message(magic, 1, None, gz)
    cases = {
        "wrapper": good,
        "CRC": flipped(plain, 16 + 10),
        "CRC of a wrapper": flipped(good, 40),
        "CRC inside": message(magic, 1, None, compress(1, flipped(plain, len(plain) - 1), magic=magic)),
        "two wrappers": good + good,
        "a wrapper and a message": good + plain,
        "a message and a wrapper": plain + good,
        "a wrapper inside": message(magic, 1, None, compress(1, good, magic=magic)),
        "the other magic inside": message(magic, 1, None, compress(1, message(1 - magic, 0, b"k", b"v"), magic=magic)),
        "both magics": plain + message(1 - magic, 0, b"k", b"v"),
        "a size too small": struct.pack(">qi", 0, 9) + bytes(40),
        "nothing": b"",
        "cut": plain[:-1],
        "cut behind one": plain + plain[:-1],
        "cut head": plain[:11],
        "magic 9": flipped(plain, 16)[:16] + b"\x09" + plain[17:],
        "no key and no value": message(magic, 0, None, None),
    }
    if magic:
        cases |= {
            "timestamp -1": message(1, 0, b"k", b"v", -1),
            "marked append time": message(1, 8, b"k", b"v"),
            "marked append time -1": message(1, 8, b"k", b"v", -1),
            "wrapper marked append time": message(1, 9, None, gz),
        }
    return cases


@scenario(ApiKeys.PRODUCE)
def produce_message_sets(peer: Peer, version: int) -> None:
    if version > 2:
        return
    marker = bytes(build_end_transaction_marker(1, 0, committed=True, coordinator_epoch=0, timestamp_ms=T0))
    for label, configs in {
        "plain": {},
        "append time": {"message_timestamp_type": "LogAppendTime"},
        "compacted": {"cleanup_policy": "compact"},
        "lz4": {"compression_type": "lz4"},
    }.items():
        name = f"m-{version}-{label.replace(' ', '-')}"
        configs = dict(configs)
        send: Any = Producer(peer, version, name, peer.create_topic(name, 1, **configs)).ask
        for magic in (0, 1):
            for case, data in bad_sets(magic).items():
                send(f"{label} magic {magic} {case}", data)
            for codec in CODECS:
                send(f"{label} magic {magic} codec {codec}", message_set(magic, codec, (b"k", b"v"), (b"l", b"w")))
        send(f"{label} marker", marker)
        what_is_there(peer, f"{label} what is there", name)
    small = f"m-{version}-small"
    send = Producer(peer, version, small, peer.create_topic(small, 1, max_message_bytes="200")).ask
    for magic in (0, 1):
        send(f"small magic {magic}: a message", message(magic, 0, b"k", bytes(300)))
        send(f"small magic {magic}: many", message(magic, 0, b"k", bytes(50)) * 6)
        send(f"small magic {magic}: one", message(magic, 0, b"k", bytes(50)))
