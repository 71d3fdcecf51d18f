"""A Fetch of many partitions: those that are named twice, and the turns that others have while it is read."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from kafkapy._speedups.requests.fetch import decode as fetch_decode
from kafkapy.protocol.messages.fetch import FetchRequest

VERSIONS = range(4, 19)
DECODED = range(19)


@pytest.mark.parametrize("count", [2, 3, 100, 5000])
@pytest.mark.parametrize("version", DECODED)
def test_of_several_entries_for_one_partition_the_last_one_counts_where_the_first_one_stands(
    version: int, count: int
) -> None:
    """As in Kafka, whose map keeps the place of a key; over topics that are there more than once, too."""
    source = random.Random(version * count)
    ids = [UUID(bytes=source.randbytes(16)) for _ in range(3)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[])
    expected: dict[tuple[bytes, int], int] = {}
    for offset in range(count):
        number, partition = source.randrange(3), source.randrange(-2, count // 4)
        topic = FetchRequest.Topic(topic="" if version >= 13 else f"t{number}", partitions=[])
        topic.topic_id = ids[number] if version >= 13 else UUID(int=0)
        if not request.topics or source.randrange(2):
            request.topics.append(topic)
        else:
            topic = request.topics[-1]
        entry = FetchRequest.Topic.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=1)
        topic.partitions.append(entry)
        expected[topic.topic_id.bytes if version >= 13 else topic.topic.encode(), partition] = offset
    decoded = fetch_decode.decode(version, request.encode(version))
    assert decoded is not None
    assert [((key, partition), offset) for key, partition, _, offset, *_ in decoded["partitions"]] == list(
        expected.items()
    )


@pytest.mark.parametrize("epoch", [-1, 0], ids=["no session", "session"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_that_is_named_often_is_read_and_answered_once(broker: Any, version: int, epoch: int) -> None:
    (log,) = broker.topic("t")
    for value in (b"one", b"two"):
        log.append_as_leader(broker.batch(value))
    fields = {"version": version} | ({"session_epoch": epoch} if version >= 7 else {})
    reply = broker.fetch([("t", 0, 0)] * 10_000 + [("gone", 0, 0)] * 3 + [("t", 0, 1)], **fields)
    answered = [(topic, entry) for topic in reply.responses for entry in topic.partitions]
    assert len(answered) == 2
    assert bytes(answered[0][1].records) == log.read(1)[0]
    assert log.counters()["fetch_requests"] == 1


TURN = 256
"""Partitions that are read before others have their turn."""


@pytest.mark.parametrize("epoch", [-1, 0], ids=["no session", "session"])
def test_others_have_their_turn_while_many_partitions_are_read(broker: Any, epoch: int) -> None:
    count = 2 * TURN + 10
    logs = broker.topic("t", count)
    for log in logs:
        log.append_as_leader(broker.batch(b"one"))
    exchange = broker.fetch_exchange([("t", i, 0) for i in range(count)], session_epoch=epoch)
    turns = 1
    while exchange.kind == "parked":
        assert exchange.wakes == 1, "it goes on without being woken by anybody"
        turns += 1
        exchange.resume(timed_out=turns == 2)
    assert turns == 3
    entries = broker.by_partition(broker.fetch_reply(exchange, 12))
    assert all(bytes(entries["t", i].records) == logs[i].read(0)[0] for i in range(count))


def test_a_wait_for_many_partitions_ends_by_turns_too(broker: Any) -> None:
    count = 2 * TURN + 10
    logs = broker.topic("t", count)
    exchange = broker.fetch_exchange([("t", i, 0) for i in range(count)], max_wait_ms=60_000)
    for _ in range(2):
        assert (exchange.kind, exchange.wakes) == ("parked", 1)
        exchange.resume()
    assert (exchange.kind, exchange.wakes) == ("parked", 0), "it waits now"
    logs[-1].append_as_leader(broker.batch(b"late"))
    assert exchange.wakes == 1
    for _ in range(3):
        assert exchange.kind == "parked"
        exchange.resume()
    entries = broker.by_partition(broker.fetch_reply(exchange, 12))
    assert bytes(entries["t", count - 1].records) == logs[-1].read(0)[0]


def test_a_fetch_that_is_given_up_between_two_turns_leaves_nothing_behind(broker: Any) -> None:
    count = TURN + 1
    logs = broker.topic("t", count)
    logs[0].append_as_leader(broker.batch(b"one"))
    exchange = broker.fetch_exchange([("t", i, 0) for i in range(count)])
    assert exchange.kind == "parked"
    exchange.cancel()
    assert broker.fetch([("t", 0, 0)]).responses
