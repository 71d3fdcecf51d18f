"""Microseconds per message of the protocol codec, beside kafka-python's, on the messages that matter most.

    .venv/bin/python perf/codec_bench.py [--seconds 0.2]

Both codecs get the same bytes and values. Times are the best of five runs, so that what else the machine does counts
least.
"""

from __future__ import annotations

import argparse
import timeit
import warnings
from collections.abc import Callable
from typing import Any
from uuid import UUID

warnings.simplefilter("ignore", DeprecationWarning)

from kafka.protocol.consumer import FetchRequest as TheirFetchRequest  # noqa: E402
from kafka.protocol.consumer.group import HeartbeatRequest as TheirHeartbeatRequest  # noqa: E402
from kafka.protocol.metadata import MetadataResponse as TheirMetadataResponse  # noqa: E402
from kafka.protocol.producer import ProduceRequest as TheirProduceRequest  # noqa: E402

from kafkapy.protocol.messages.fetch import FetchRequest  # noqa: E402
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest  # noqa: E402
from kafkapy.protocol.messages.metadata import MetadataResponse  # noqa: E402
from kafkapy.protocol.messages.produce import ProduceRequest  # noqa: E402
from kafkapy.protocol.schema import Message  # noqa: E402


def produce() -> ProduceRequest:
    topic = ProduceRequest.Topic(
        name="events", partition_data=[ProduceRequest.Topic.Partition(index=3, records=b"x" * 120)]
    )
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def fetch() -> FetchRequest:
    partitions = [
        FetchRequest.Topic.Partition(
            partition=index, current_leader_epoch=5, fetch_offset=1_000_000 + index, partition_max_bytes=1 << 20
        )
        for index in range(10)
    ]
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=[FetchRequest.Topic(topic_id=UUID(int=7 << 64), partitions=partitions)]
    )


def metadata() -> MetadataResponse:
    brokers = [MetadataResponse.Broker(node_id=index, host="broker", port=9092) for index in range(3)]
    topics = [
        MetadataResponse.Topic(
            name=f"topic-{number}",
            topic_id=UUID(int=number << 64 | 1),
            partitions=[
                MetadataResponse.Topic.Partition(
                    partition_index=index,
                    leader_id=index % 3,
                    leader_epoch=1,
                    replica_nodes=[0, 1, 2],
                    isr_nodes=[0, 1, 2],
                )
                for index in range(10)
            ],
        )
        for number in range(100)
    ]
    return MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=0, topics=topics)


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="group", generation_id=3, member_id="member-0123456789")


CASES: list[tuple[str, Callable[[], Message], Any, int]] = [
    ("Heartbeat request, v4", heartbeat, TheirHeartbeatRequest, 4),
    ("Produce request of 1 batch, v9", produce, TheirProduceRequest, 9),
    ("Fetch request of 10 partitions, v15", fetch, TheirFetchRequest, 15),
    ("Metadata response of 1,000 partitions, v12", metadata, TheirMetadataResponse, 12),
]


def microseconds(work: Callable[[], object], seconds: float) -> float:
    timer = timeit.Timer(work)
    number, _ = timer.autorange()
    number = max(1, int(number * seconds / 0.2))
    return min(timer.repeat(5, number)) / number * 1e6


def compare(title: str, make: Callable[[], Message], theirs: Any, version: int, seconds: float) -> None:
    message = make()
    wire = message.encode(version)
    cls = type(message)
    other = theirs.decode(wire, version=version)
    other._header = None
    rows = [
        ("decode", lambda: cls.decode(wire, version), lambda: theirs.decode(wire, version=version)),
        ("encode", lambda: message.encode(version), lambda: other.encode(version=version)),
    ]
    print(f"{title}, {len(wire)} bytes")
    for what, ours, reference in rows:
        mine, yours = microseconds(ours, seconds), microseconds(reference, seconds)
        print(f"    {what:40}{mine:10.2f}{yours:14.2f}{yours / mine:8.1f}")
    print(f"    {'construct':40}{microseconds(make, seconds):10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.2, help="how long one run takes")
    seconds = parser.parse_args().seconds
    print(f"{'':44}{'kafkapy':>10}{'kafka-python':>14}{'times':>8}   (microseconds)")
    for title, make, theirs, version in CASES:
        compare(title, make, theirs, version, seconds)


if __name__ == "__main__":
    main()
