"""Partitions of a Fetch response as the network thread has received them."""

from __future__ import annotations

from typing import Any

from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition
from kafkapy.protocol.messages.fetch import FetchResponse

__all__ = ["Partition", "fetched", "started"]

Partition = FetchResponse.TopicResponse.Partition


def fetched(
    records: bytes,
    *,
    aborted: list[tuple[int, int]] = (),  # type: ignore[assignment]
    check_crcs: bool = True,
    budget: int = 1 << 40,
) -> FetchedPartition:
    partition = Partition(
        partition_index=3,
        high_watermark=1000,
        last_stable_offset=1000,
        aborted_transactions=[Partition.AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted],
        records=records,
    )
    response = FetchResponse(responses=[FetchResponse.TopicResponse(topic="t", partitions=[partition])])
    frame = FetchResponseFrame(4, check_crcs, budget)
    frame.feed(b"\x00\x00\x00\x01" + response.encode(4))
    (out,) = frame.partitions()
    return out


def started(records: bytes, offset: int = 0, committed: bool = False, **options: Any) -> FetchedPartition:
    partition = fetched(records, **options)
    partition.start("t", offset, committed, None, None)
    return partition
