"""Exchanges about offsets and producers.

ListOffsets, DeleteRecords, OffsetForLeaderEpoch, InitProducerId, DescribeProducers, DescribeLogDirs.
"""

from __future__ import annotations

from typing import Any

from interop.differential.exchanges import Peer, scenario

from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.protocol.messages.describe_producers import DescribeProducersRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.records.batches import RecordBatchBuilder

T0 = 1_700_000_000_000


def records(*timestamps: int, codec: int = 0, **producer: Any) -> bytes:
    """One batch with a record for each timestamp in ms."""
    builder = RecordBatchBuilder()
    for number, timestamp in enumerate(timestamps):
        builder.append(timestamp, b"k%d" % number, b"v%d" % number)
    return builder.build(codec, **producer)


@scenario(ApiKeys.LIST_OFFSETS)
def list_offsets(peer: Peer, version: int) -> None:
    name = f"lo-{version}"
    peer.create_topic(name, 2)
    peer.create_topic(f"{name}-gzip", 1)
    # The largest timestamp lies in the middle, and twice.
    for batch in ((T0, T0 + 10, T0 + 20), (T0 + 90, T0 + 50), (T0 + 90,), (T0 + 30, T0 + 40)):
        peer.produce(name, records(*batch))
        peer.produce(f"{name}-gzip", records(*batch, codec=1))
    Topic = ListOffsetsRequest.Topic

    def ask(
        label: str, timestamp: int, topic: str = name, partition: int = 0, epoch: int = -1, isolation: int = 0,
        replica: int = -1, number: int = 1, twice: bool = False,
    ) -> None:  # fmt: skip
        asked = Topic.Partition(
            partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp, max_num_offsets=number
        )
        topics = [Topic(name=topic, partitions=[asked, asked] if twice else [asked])]
        request = ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=topics, timeout_ms=10_000)
        peer.call(label, request, version)

    for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, 0, 1, T0 - 1, T0, T0 + 1, T0 + 20, T0 + 21, T0 + 45, T0 + 55,
                      T0 + 90, T0 + 91, 2**63 - 1, -(2**63)):  # fmt: skip
        at = f"T0{timestamp - T0:+}" if abs(timestamp - T0) < 1000 else str(timestamp)
        ask(f"timestamp {at}", timestamp)
        ask(f"compressed, timestamp {at}", timestamp, f"{name}-gzip")
        ask(f"empty partition, timestamp {at}", timestamp, partition=1)
        if timestamp < 0:
            ask(f"read committed, timestamp {at}", timestamp, isolation=1)
            ask(f"epoch, timestamp {at}", timestamp, epoch=0)
    for epoch in (-2, 0, 1, 7):
        ask(f"epoch {epoch}", -1, epoch=epoch)
    ask("unknown topic", -1, "lo-missing")
    ask("bad topic", -1, "")
    ask("unknown partition", -1, partition=9)
    ask("negative partition", -1, partition=-1)
    ask("isolation 2", -1, isolation=2)
    ask("isolation -1", -1, isolation=-1)
    ask("debugging replica", -1, replica=-2)
    ask("replica 3", -1, replica=3)
    ask("replica 1", -2, replica=1)
    ask("replica -3", -1, replica=-3)
    ask("partition twice", -1, twice=True)
    if version == 0:
        for number in (0, 2, 100, -1):
            ask(f"{number} offsets", -1, number=number)
    delete(peer, name, 0, 4)
    for timestamp in (-1, -2, -3, -4, -5, T0, T0 + 90, T0 + 40):
        ask(f"after deleting, timestamp {timestamp}", timestamp)


def delete(peer: Peer, topic: str, partition: int, offset: int) -> None:
    each = DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=topic, partitions=[each])], timeout_ms=10_000
    )
    assert peer.setup(request, 2).topics[0].partitions[0].error_code == 0


@scenario(ApiKeys.DELETE_RECORDS)
def delete_records(peer: Peer, version: int) -> None:
    name = f"dr-{version}"
    peer.create_topic(name, 2)
    peer.create_topic(f"{name}-compact", cleanup_policy="compact")
    peer.create_topic(f"{name}-both", cleanup_policy="compact,delete")
    for topic in (name, f"{name}-compact", f"{name}-both"):
        for _ in range(3):
            peer.produce(topic, records(T0, T0 + 1, T0 + 2))
    Topic = DeleteRecordsRequest.Topic

    def ask(label: str, offset: int, topic: str = name, *partitions: int) -> None:
        asked = [Topic.Partition(partition_index=each, offset=offset) for each in partitions or (0,)]
        request = DeleteRecordsRequest(topics=[Topic(name=topic, partitions=asked)], timeout_ms=10_000)
        peer.call(label, request, version)

    ask("in the middle of a batch", 4)
    ask("the same again", 4)
    ask("below the start", 2)
    ask("at 0", 0)
    ask("-2", -2)
    ask("past the end", 10)
    ask("at the end", 9)
    ask("everything", -1)
    ask("everything again", -1)
    ask("empty partition", -1, name, 1)
    ask("empty partition, past the end", 1, name, 1)
    ask("compacted topic", 3, f"{name}-compact")
    ask("compacted and deleted topic", 3, f"{name}-both")
    ask("missing topic", 1, "dr-missing")
    ask("bad topic", 1, "")
    ask("missing partition", 1, name, 9)
    ask("negative partition", 1, name, -1)
    ask("good and bad", -1, name, 0, 9)
    ask("internal topic", 0, "__consumer_offsets", 1000)
    peer.call("none", DeleteRecordsRequest(topics=[], timeout_ms=10_000), version)


@scenario(ApiKeys.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(peer: Peer, version: int) -> None:
    name = f"ofle-{version}"
    peer.create_topic(name, 2)
    peer.produce(name, records(T0, T0 + 1))
    Topic = OffsetForLeaderEpochRequest.Topic
    for label, topic in (("there", name), ("missing", "ofle-missing"), ("empty name", "")):
        for partition in (0, 1, 9, -1):
            for current in (-2, -1, 0, 1):
                for epoch in (-2, -1, 0, 1, 5):
                    asked = Topic.Partition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
                    if current != -1 and version < 2:
                        continue
                    request = OffsetForLeaderEpochRequest(topics=[Topic(topic=topic, partitions=[asked])])
                    peer.call(f"{label} {partition} epoch {epoch} current {current}", request, version)


@scenario(ApiKeys.INIT_PRODUCER_ID)
def init_producer_id(peer: Peer, version: int) -> None:
    peer.producer_id()

    def ask(label: str, **fields: Any) -> None:
        values: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000} | fields
        peer.call(label, InitProducerIdRequest(**values), version)

    ask("plain")
    ask("timeout 0", transaction_timeout_ms=0)
    ask("timeout negative", transaction_timeout_ms=-1)
    ask("empty transactional id", transactional_id="")
    for producer, epoch in ((-1, -1), (-1, 0), (5, -1), (5, 0), (-2, -2), (2**40, 32767), (0, 0), (5, -2), (-2, 5)):
        ask(f"producer {producer} epoch {epoch}", producer_id=producer, producer_epoch=epoch)
    ask("two phase commit", enable2_pc=True)
    ask("keep prepared", keep_prepared_txn=True)


@scenario(ApiKeys.DESCRIBE_PRODUCERS)
def describe_producers(peer: Peer, version: int) -> None:
    peer.create_topic("dp", 2)
    mine = peer.producer_id()
    peer.produce("dp", records(T0, T0 + 5, producer_id=mine, producer_epoch=0, base_sequence=0))
    peer.produce("dp", records(T0 + 9, producer_id=mine, producer_epoch=0, base_sequence=2))
    Topic = DescribeProducersRequest.Topic
    for topic in ("dp", "dp-missing", "", "."):
        for partitions in ([0], [1], [9], [-1], [0, 1], []):
            request = DescribeProducersRequest(topics=[Topic(name=topic, partition_indexes=partitions)])
            peer.call(f"{topic!r} {partitions}", request, version)
    peer.call("none", DescribeProducersRequest(topics=[]), version)


@scenario(ApiKeys.DESCRIBE_LOG_DIRS)
def describe_log_dirs(peer: Peer, version: int) -> None:
    name = f"dld-{version}"
    peer.create_topic(name, 2)
    peer.produce(name, records(T0, T0 + 1))
    Topic = DescribeLogDirsRequest.Topic
    for label, topic, partitions in (
        ("one", name, [0]), ("two", name, [0, 1]), ("missing partition", name, [9]), ("no partitions", name, []),
        ("missing topic", "dld-missing", [0]), ("negative", name, [-1]),
    ):  # fmt: skip
        peer.call(label, DescribeLogDirsRequest(topics=[Topic(topic=topic, partitions=partitions)]), version)
    both = [Topic(topic=name, partitions=[0]), Topic(topic="dld-missing", partitions=[0])]
    peer.call("good and bad", DescribeLogDirsRequest(topics=both), version)
    twice = [Topic(topic=name, partitions=[0]), Topic(topic=name, partitions=[1])]
    peer.call("topic twice", DescribeLogDirsRequest(topics=twice), version)
    peer.call("none", DescribeLogDirsRequest(topics=[]), version)
