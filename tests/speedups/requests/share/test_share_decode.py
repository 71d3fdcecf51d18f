"""ShareFetch and ShareAcknowledge bodies: what the data plane decodes is what the messages say."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from kafkapy._speedups.requests.share.decode import decode
from kafkapy.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
TOPIC, OTHER = UUID(int=7), UUID(int=9)
VERSIONS = (1, 2)


def fetch_topic(topic: UUID, *partitions: tuple[int, list[tuple[int, int, list[int]]]]) -> ShareFetchRequest.Topic:
    entry = ShareFetchRequest.Topic.Partition
    return ShareFetchRequest.Topic(
        topic_id=topic,
        partitions=[
            entry(
                partition_index=index,
                acknowledgement_batches=[
                    entry.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, types in batches
                ],
            )
            for index, batches in partitions
        ],
    )


def fetch_body(version: int, **fields: Any) -> bytes:
    values: dict[str, Any] = {
        "group_id": "group",
        "member_id": "member",
        "share_session_epoch": 3,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 100,
        "batch_size": 50,
        "topics": [
            fetch_topic(TOPIC, (0, []), (1, [(0, 4, [1]), (5, 6, [2, 3])])),
            fetch_topic(OTHER, (0, [(9, 9, [0])])),
        ],
        "forgotten_topics_data": [ShareFetchRequest.ForgottenTopic(topic_id=TOPIC, partitions=[7, 8])],
    }
    return ShareFetchRequest(**{**values, **fields}).encode(version)


def acknowledge_body(version: int, **fields: Any) -> bytes:
    entry = ShareAcknowledgeRequest.Topic.Partition
    batch = entry.AcknowledgementBatch(first_offset=1, last_offset=2, acknowledge_types=[1, 2])
    values: dict[str, Any] = {
        "group_id": "group",
        "member_id": "member",
        "share_session_epoch": -1,
        "topics": [
            ShareAcknowledgeRequest.Topic(
                topic_id=TOPIC, partitions=[entry(partition_index=4, acknowledgement_batches=[batch])]
            )
        ],
    }
    return ShareAcknowledgeRequest(**{**values, **fields}).encode(version)


def test_a_fetch_is_decoded_field_by_field() -> None:
    for version in VERSIONS:
        renewals = {"share_acquire_mode": 1, "is_renew_ack": True} if version >= 2 else {}
        assert decode(SHARE_FETCH, version, fetch_body(version, **renewals)) == {
            "group_id": b"group",
            "member_id": b"member",
            "session_epoch": 3,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 50,
            "acquire_mode": 1 if version >= 2 else 0,
            "renews": version >= 2,
            "partitions": [
                (TOPIC.bytes, 0, []),
                (TOPIC.bytes, 1, [(0, 4, [1]), (5, 6, [2, 3])]),
                (OTHER.bytes, 0, [(9, 9, [0])]),
            ],
            "forgotten": [(TOPIC.bytes, 7), (TOPIC.bytes, 8)],
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_an_acknowledge_is_decoded_field_by_field(version: int) -> None:
    found = decode(SHARE_ACKNOWLEDGE, version, acknowledge_body(version))
    assert found is not None
    assert (found["group_id"], found["member_id"], found["session_epoch"]) == (b"group", b"member", -1)
    assert found["partitions"] == [(TOPIC.bytes, 4, [(1, 2, [1, 2])])]
    assert found["renews"] is False


@pytest.mark.parametrize("version", VERSIONS)
def test_null_names_are_told_from_empty_ones(version: int) -> None:
    found = decode(SHARE_FETCH, version, fetch_body(version, group_id=None, member_id=""))
    assert found is not None
    assert (found["group_id"], found["member_id"]) == (None, b"")


def test_the_last_entry_of_a_repeated_partition_counts() -> None:
    topics = [fetch_topic(TOPIC, (0, [(0, 0, [1])]), (1, [])), fetch_topic(TOPIC, (0, [(5, 5, [2])]))]
    found = decode(SHARE_FETCH, 2, fetch_body(2, topics=topics))
    assert found is not None
    assert found["partitions"] == [(TOPIC.bytes, 0, [(5, 5, [2])]), (TOPIC.bytes, 1, [])]


@pytest.mark.parametrize(("key", "body"), [(SHARE_FETCH, fetch_body), (SHARE_ACKNOWLEDGE, acknowledge_body)])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_and_every_longer_body_is_refused(key: int, body: Any, version: int) -> None:
    whole = body(version)
    assert decode(key, version, whole) is not None
    for size in range(len(whole)):
        assert decode(key, version, whole[:size]) is None
    assert decode(key, version, whole + b"\x00") is None


@pytest.mark.parametrize(("key", "body"), [(SHARE_FETCH, fetch_body), (SHARE_ACKNOWLEDGE, acknowledge_body)])
def test_changed_bytes_are_decoded_or_refused(key: int, body: Any) -> None:
    randomness = random.Random(78)
    whole = bytearray(body(2))
    for _ in range(5000):
        changed = bytearray(whole)
        for _ in range(randomness.randint(1, 4)):
            changed[randomness.randrange(len(changed))] = randomness.randrange(256)
        decode(key, 2, bytes(changed))


def test_many_acknowledgement_batches_are_decoded() -> None:
    batches = [(offset, offset, [1]) for offset in range(200_000)]
    found = decode(SHARE_FETCH, 2, fetch_body(2, topics=[fetch_topic(TOPIC, (0, batches))]))
    assert found is not None
    assert len(found["partitions"][0][2]) == len(batches)
