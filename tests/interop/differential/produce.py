"""Exchanges of Produce, good and bad batches, and what a Fetch shows of them afterwards."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from interop.differential.exchanges import Peer, scenario
from interop.differential.offsets import T0, records

from kafkapy._speedups.records.record_batch import refresh_crc
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.records.batches import Record, RecordBatchBuilder
from kafkapy.records.legacy import build_message_set
from kafkapy.types import ZERO_UUID

# Where the fields of a batch's header are, and their struct codes.
LENGTH, LEADER_EPOCH, MAGIC, ATTRIBUTES, LAST_DELTA = (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i")
BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, EPOCH, SEQUENCE = (27, ">q"), (35, ">q"), (43, ">q"), (51, ">h"), (53, ">i")
COUNT, BASE_OFFSET, HEADER = (57, ">i"), (0, ">q"), 61
DAY_MS = 86_400_000


def patched(batch: bytes, *changes: tuple[tuple[int, str], int], crc: bool = True) -> bytes:
    """The batch with header fields changed, its CRC right again unless told otherwise."""
    data = bytearray(batch)
    for (position, code), value in changes:
        struct.pack_into(code, data, position, value)
    if crc:
        refresh_crc(data)
    return bytes(data)


def keyed(*keys: bytes | None, codec: int = 0) -> bytes:
    builder = RecordBatchBuilder()
    for key in keys:
        builder.append(T0, key, b"value")
    return builder.build(codec)


def message_set(magic: int, codec: int, *pairs: tuple[bytes | None, bytes | None]) -> bytes:
    """Messages of format v0 or v1."""
    made = [Record(number, T0 + number, 0, key, value, ()) for number, (key, value) in enumerate(pairs)]
    return build_message_set(made, magic, codec)


def with_payload(payload: bytes, count: int = 1) -> bytes:
    """A batch whose records are those bytes."""
    whole = bytearray(records(T0)[:HEADER] + payload)
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    struct.pack_into(">i", whole, 57, count)
    struct.pack_into(">i", whole, 23, count - 1)
    refresh_crc(whole)
    return bytes(whole)


class Producer:
    """Asks for one topic in one version, by name or id as the version has it."""

    def __init__(self, peer: Peer, version: int, topic: str, topic_id: UUID) -> None:
        self.peer, self.version, self.topic, self.topic_id = peer, version, topic, topic_id

    def ask(
        self, label: str, data: bytes | None, *more: bytes | None, acks: int = -1, partition: int = 0,
        topic: str | None = None, topic_id: UUID | None = None, transactional_id: str | None = None,
        timeout_ms: int = 10_000,
    ) -> Any:  # fmt: skip
        """`more` goes to the partitions that follow."""
        Topic = ProduceRequest.Topic
        entries = [Topic.Partition(index=partition + number, records=each) for number, each in enumerate((data, *more))]
        if self.version >= 13:
            made = Topic(topic_id=self.topic_id if topic_id is None else topic_id, partition_data=entries)
        else:
            made = Topic(name=self.topic if topic is None else topic, partition_data=entries)
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[made], transactional_id=transactional_id)
        return self.peer.call(label, request, self.version)


def what_is_there(peer: Peer, label: str, topic: str, partition: int = 0) -> None:
    """Records the batches of a partition."""
    entry = FetchRequest.Topic.Partition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 24)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=[FetchRequest.Topic(topic=topic, partitions=[entry])]
    )
    peer.call(label, request, 11)


@scenario(ApiKeys.PRODUCE)
def produce(peer: Peer, version: int) -> None:
    name = f"p-{version}"
    send = Producer(peer, version, name, peer.create_topic(name, 3)).ask
    good = records(T0, T0 + 1)
    if version < 3:
        for magic in (0, 1):
            for codec in range(4):
                old = message_set(magic, codec, (b"k", b"v"), (None, b"w"))
                send(f"magic {magic} codec {codec}", old)
            send(f"magic {magic} acks 0", message_set(magic, 0, (b"k", b"v")), acks=0)
            broken = bytearray(message_set(magic, 0, (b"k", b"v")))
            broken[-1] ^= 1
            send(f"magic {magic} wrong CRC", bytes(broken))
        send("magic 2 in an old version", good)
        what_is_there(peer, "what is there", name)
        return
    for acks in (-1, 1, 0, 2, -2, 32767):
        send(f"acks {acks}", good, acks=acks)
    for codec in range(5):
        send(f"codec {codec}", records(T0, T0 + 1, codec=codec))
    send("three partitions", good, good, good)
    send("good and unknown partition", good, good, partition=2)
    send("unknown partition", good, partition=9)
    send("negative partition", good, partition=-1)
    send("unknown topic", good, topic="p-missing", topic_id=UUID(int=0xDEAD))
    send("bad topic", good, topic=".", topic_id=UUID(int=0xDEAD))
    send("empty topic", good, topic="", topic_id=ZERO_UUID)
    for acks in (0, 1):
        send(f"unknown topic, acks {acks}", good, topic="p-missing", topic_id=UUID(int=0xDEAD), acks=acks)
    Topic = ProduceRequest.Topic
    peer.call("no topics", ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[]), version)
    peer.call("no topics, acks 0", ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]), version)
    peer.call("no topics, acks 7", ProduceRequest(acks=7, timeout_ms=1000, topic_data=[]), version)
    if version < 13:
        empty = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[Topic(name=name, partition_data=[])])
        peer.call("no partitions", empty, version)
    send("transactional id", good, transactional_id="tx")
    send("empty transactional id", good, transactional_id="")
    send("timeout 0", good, timeout_ms=0)
    send("timeout negative", good, timeout_ms=-5)
    send("empty records", b"")
    if version in (3, 9):  # Kafka lets a client wait for its answer
        send("null records", None)
    send("empty records, acks 0", b"", acks=0)
    send("two batches", good + good)
    send("two batches, one partition of two", good, good + good)
    for magic in (0, 1):
        send(f"magic {magic}", message_set(magic, 0, (b"k", b"v")))
        send(f"magic 2 and magic {magic}", good + message_set(magic, 0, (b"k", b"v")))
        send(f"magic {magic} acks 0", message_set(magic, 0, (b"k", b"v")), acks=0)
    what_is_there(peer, "what is there", name)
    send("a batch and its beginning again", good + good[:30])
    send("a batch and one byte", good + b"\0")
    if version < 13:
        entry = Topic.Partition(index=0, records=good)
        for label, topics in (
            ("partition twice", [Topic(name=name, partition_data=[entry, entry])]),
            ("topic twice", [Topic(name=name, partition_data=[entry])] * 2),
        ):
            peer.call(label, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), version)


def spoiled() -> dict[str, bytes]:
    """Batches that a broker has to refuse, or has to bear."""
    good = records(T0, T0 + 1)
    packed = records(T0, T0 + 1, codec=1)
    one_record = good[HEADER:]
    cases: dict[str, bytes] = {
        "wrong CRC": patched(good, ((17, ">i"), 7), crc=False),
        "wrong CRC, compressed": patched(packed, ((17, ">i"), 7), crc=False),
        "a byte flipped": good[:-1] + bytes([good[-1] ^ 1]),
        "base offset 5": patched(good, (BASE_OFFSET, 5)),
        "base offset -1": patched(good, (BASE_OFFSET, -1)),
        "leader epoch 9": patched(good, (LEADER_EPOCH, 9)),
        "leader epoch -1": patched(good, (LEADER_EPOCH, -1)),
        "control": patched(good, (ATTRIBUTES, 0x20)),
        "control and transactional": patched(good, (ATTRIBUTES, 0x30), (PRODUCER_ID, 1), (EPOCH, 0), (SEQUENCE, 0)),
        "transactional without producer": patched(good, (ATTRIBUTES, 0x10)),
        "log append time set by the producer": patched(good, (ATTRIBUTES, 0x08)),
        "log append time, compressed": patched(packed, (ATTRIBUTES, 0x09)),
        "delete horizon": patched(good, (ATTRIBUTES, 0x40)),
        "unused attribute bits": patched(good, (ATTRIBUTES, 0x100)),
        "upper attribute bit": patched(good, (ATTRIBUTES, -0x8000)),
        "max timestamp too small": patched(good, (MAX_TIMESTAMP, T0)),
        "max timestamp too large": patched(good, (MAX_TIMESTAMP, T0 + 5)),
        "max timestamp -1": patched(good, (MAX_TIMESTAMP, -1)),
        "base timestamp -1": patched(good, (BASE_TIMESTAMP, -1), (MAX_TIMESTAMP, 0)),
        "base timestamp -5": patched(good, (BASE_TIMESTAMP, -5), (MAX_TIMESTAMP, -4)),
        "producer epoch without id": patched(good, (EPOCH, 3)),
        "sequence without id": patched(good, (SEQUENCE, 3)),
        "producer id -2": patched(good, (PRODUCER_ID, -2)),
        "producer id without epoch": patched(good, (PRODUCER_ID, 4000)),
        "producer id without sequence": patched(good, (PRODUCER_ID, 4001), (EPOCH, 0)),
        "producer epoch negative": patched(good, (PRODUCER_ID, 4002), (EPOCH, -5), (SEQUENCE, 0)),
        "sequence negative": patched(good, (PRODUCER_ID, 4003), (EPOCH, 0), (SEQUENCE, -5)),
        "offset deltas from 1": with_payload(one_record[: len(one_record) // 2].replace(b"\0\0", b"\0\2", 1)),
        "no records at all": with_payload(b"", 0),
        "a record cut": with_payload(one_record[:-2], 2),
        "a record with bytes left": with_payload(one_record + b"\0\0", 2),
        "a record of length 0": with_payload(b"\0", 1),
        "a record of negative length": with_payload(b"\1", 1),
        "a record with a huge length": with_payload(b"\xfe\xff\xff\xff\x0f", 1),
    }
    for codec in (5, 6, 7):
        cases[f"codec {codec}"] = patched(good, (ATTRIBUTES, codec))
    for codec in (1, 2, 3, 4):
        cases[f"says codec {codec} but is not"] = patched(good, (ATTRIBUTES, codec))
    for count in (-(2**31), -1, 0, 1, 3, 2**31 - 1):
        cases[f"count {count}"] = patched(good, (COUNT, count))
        cases[f"count {count}, compressed"] = patched(packed, (COUNT, count))
        cases[f"last delta {count}"] = patched(good, (LAST_DELTA, count))
        cases[f"count {count} and delta"] = patched(good, (COUNT, count), (LAST_DELTA, max(count - 1, -(2**31))))
    for length in (-(2**31), -1, 0, 13, 14, 48, 49, len(good) - 13, len(good) - 11, 2**31 - 1):
        cases[f"length {length}"] = patched(good, (LENGTH, length), crc=False)
    for magic in (-1, 3, 127):
        cases[f"magic {magic}"] = patched(good, (MAGIC, magic), crc=False)
    for cut in (1, 8, 12, 16, 17, 21, 60, 61, 62, len(good) - 1):
        cases[f"cut at {cut}"] = good[:cut]
    return cases


@scenario(ApiKeys.PRODUCE)
def produce_spoiled(peer: Peer, version: int) -> None:
    if version < 3:
        return
    name = f"ps-{version}"
    peer.with_offsets = False
    send = Producer(peer, version, name, peer.create_topic(name)).ask
    for label, data in spoiled().items():
        send(label, data)
        if version in (3, 8, 12):
            send(f"{label}, acks 0", data, acks=0)


@scenario(ApiKeys.PRODUCE)
def produce_rules_of_topics(peer: Peer, version: int) -> None:
    if version < 3:
        return
    now = int(time.time() * 1000)

    def topic(suffix: str, **configs: Any) -> Callable[..., Any]:
        name = f"pt-{version}-{suffix}"
        return Producer(peer, version, name, peer.create_topic(name, **configs)).ask

    send = topic("compact", cleanup_policy="compact")
    for codec in range(5):
        send(f"compacted, key, codec {codec}", keyed(b"k", codec=codec))
        send(f"compacted, null key, codec {codec}", keyed(None, codec=codec))
        send(f"compacted, null key in the middle, codec {codec}", keyed(b"k", None, b"l", None, codec=codec))
    send("compacted, empty key", keyed(b""))
    send("compacted, null key, acks 0", keyed(None), acks=0)
    what_is_there(peer, "compacted topic", f"pt-{version}-compact")

    limits = {"message_timestamp_before_max_ms": "3600000", "message_timestamp_after_max_ms": "3600000"}
    peer.with_offsets = False
    send = topic("limits", **limits)
    for label, data in (
        ("now", (now,)), ("a day ago", (now - DAY_MS,)), ("in a day", (now + DAY_MS,)), ("-1", (-1,)), ("0", (0,)),
        ("now and a day ago", (now, now - DAY_MS)), ("in a day and now", (now + DAY_MS, now, now + DAY_MS)),
        ("in half an hour", (now + DAY_MS // 48,)),
    ):  # fmt: skip
        send(f"bounded timestamps, {label}", records(*data))
        send(f"bounded timestamps, {label}, compressed", records(*data, codec=1))
    send = topic("free")
    for label, data in (("-1", (-1,)), ("0", (0,)), ("in a day", (now + DAY_MS,)), ("far", (2**62,))):
        send(f"timestamp {label}", records(*data))
        send(f"timestamp {label}, compressed", records(*data, codec=1))

    peer.with_offsets = True
    send = topic("append", message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="1000")
    for codec in range(5):
        send(f"append time, codec {codec}", records(T0, T0 + 1, codec=codec))
    send("append time, two partitions' worth", records(-1))

    send = topic("small", max_message_bytes="200")
    for size in (100, 120, 130, 131, 132, 133, 140, 200, 1000):
        builder = RecordBatchBuilder()
        builder.append(T0, None, b"x" * size)
        send(f"max.message.bytes, value of {size}", builder.build())
    builder = RecordBatchBuilder()
    builder.append(T0, None, b"x" * 10_000)
    send("max.message.bytes, large but compressed", builder.build(1))
    send("max.message.bytes, acks 0", builder.build(), acks=0)

    for kind in ("gzip", "zstd", "lz4", "snappy", "uncompressed", "producer"):
        send = topic(kind, compression_type=kind)
        for given in range(5):
            send(f"topic of {kind}, codec {given}", records(T0, T0 + 1, codec=given))
        what_is_there(peer, f"topic of {kind}", f"pt-{version}-{kind}")
    topic("isr", min_insync_replicas="2")("min.insync.replicas 2", records(T0))
    topic("isr1", min_insync_replicas="2")("min.insync.replicas 2, acks 1", records(T0), acks=1)


@scenario(ApiKeys.PRODUCE)
def produce_idempotent(peer: Peer, version: int) -> None:
    if version < 3:
        return
    name = f"pi-{version}"
    producer = Producer(peer, version, name, peer.create_topic(name, 12))
    ids = [peer.producer_id() for _ in range(9)]

    def send(label: str, partition: int, sequence: int, count: int = 1, epoch: int = 0, who: int = 0) -> None:
        data = records(*range(T0, T0 + count), producer_id=ids[who], producer_epoch=epoch, base_sequence=sequence)
        producer.ask(label, data, partition=partition)

    for sequence in range(7):
        send(f"in order {sequence}", 0, sequence)
    for sequence in range(7):
        send(f"again {sequence}", 0, sequence)
    send("gap", 0, 9)
    send("in order after a gap", 0, 7)
    send("again, but longer", 0, 7, 2)
    send("again, but overlapping", 0, 6, 3)
    send("first sequence 5", 1, 5)
    send("first sequence 0 after all", 1, 0)
    send("new epoch from 0", 0, 0, epoch=1)
    send("new epoch goes on", 0, 1, epoch=1)
    send("older epoch", 0, 8, epoch=0)
    send("older epoch from 0", 0, 0, epoch=0)
    send("new epoch not from 0", 0, 4, epoch=2)
    send("new epoch from 0 again", 0, 0, epoch=2)
    send("epoch jumps", 0, 0, epoch=30)
    send("first epoch 5", 2, 0, epoch=5, who=1)
    send("near the end of the sequences", 3, 2**31 - 2, who=2)
    send("wrap, start", 4, 0, who=3)
    send("two producers, first", 5, 0, who=4)
    send("two producers, second", 5, 0, who=5)
    send("two producers, first again", 5, 0, who=4)
    send("two producers, first goes on", 5, 1, who=4)
    send("many records", 6, 0, 10, who=6)
    send("many records, next", 6, 10, 5, who=6)
    send("many records, one missing", 6, 16, 5, who=6)
    send("many records, first of them again", 6, 0, 10, who=6)
    send("many records, part of them again", 6, 0, 5, who=6)
    pair = records(T0, producer_id=ids[7], producer_epoch=0, base_sequence=0)
    second = records(T0, producer_id=ids[7], producer_epoch=0, base_sequence=1)
    producer.ask("two batches of one producer", pair + second, partition=7)
    data = records(T0, producer_id=ids[7], producer_epoch=0, base_sequence=0, transactional=True)
    producer.ask("transactional batch without transactional id", data, partition=8)
    producer.ask("transactional batch of nobody", data, partition=8, transactional_id="nobody")
    producer.ask("not transactional, but an id", pair, partition=9, transactional_id="nobody")
    producer.ask("unknown producer id", records(T0, producer_id=2**40, producer_epoch=3, base_sequence=0), partition=9)
    what_is_there(peer, "what is there", name)
