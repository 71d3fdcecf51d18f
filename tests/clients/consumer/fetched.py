"""Chunks as a broker would have sent them: FetchedPartition out of encoded Fetch responses."""

from __future__ import annotations

from typing import Any

from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition
from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.records.batches import RecordBatchBuilder

VERSION = 12
LEADER_EPOCH = slice(12, 16)
Topic = FetchResponse.TopicResponse
Partition = Topic.Partition


def batch(base: int, count: int, epoch: int = 0) -> bytes:
    """A batch with the offsets base to base + count; the value of a record is its offset in digits."""
    builder = RecordBatchBuilder(base_offset=base)
    for offset in range(base, base + count):
        builder.append(1_700_000_000_000 + offset, None, b"%d" % offset)
    built = bytearray(builder.build())
    built[LEADER_EPOCH] = epoch.to_bytes(4, "big")  # not covered by the CRC
    return bytes(built)


def chunk(
    records: bytes, *, partition: int = 0, topic: str = "t", start: int | None = None, **fields: Any
) -> FetchedPartition:
    """What one response held of a partition, started at `start` (when given)."""
    fields.setdefault("high_watermark", 1 << 40)
    response = FetchResponse(
        responses=[Topic(topic=topic, partitions=[Partition(partition_index=partition, records=records, **fields)])]
    )
    frame = FetchResponseFrame(VERSION)
    frame.feed(b"\x00\x00\x00\x07\x00" + response.encode(VERSION))
    fetched = frame.partitions()[0]
    if start is not None:
        fetched.start(topic, start, False, None, None)
    return fetched
