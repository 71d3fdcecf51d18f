"""TxnOffsetCommit as a client sees it."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest
from broker.handlers.transactions import Producer

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


def fetch(client: Any, group: str, topic: str, require_stable: bool = False) -> tuple[int, ErrorCode]:
    """The committed offset of partition 0; waits until the group is coordinated."""
    asked = OffsetFetchRequest.Topic(name=topic, partition_indexes=[0])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        client(FindCoordinatorRequest(key=group, key_type=0), 1)
        response = client(OffsetFetchRequest(group_id=group, topics=[asked], require_stable=require_stable), 7)
        if response.error_code == ErrorCode.NONE:
            found = response.topics[0].partitions[0]
            return found.committed_offset, ErrorCode(found.error_code)
        time.sleep(0.01)
    raise TimeoutError(group)


@pytest.mark.parametrize("version", range(7))
def test_offsets_count_when_the_transaction_commits(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name)
    group = f"group-{topic_name}"
    assert fetch(client, group, topic_name)[0] == -1
    producer = Producer(client, f"commit-{topic_name}")
    if version < 5:
        assert producer.add_offsets(group) == ErrorCode.NONE
    assert producer.commit_offset(group, topic_name, 7, version) == ErrorCode.NONE
    assert fetch(client, group, topic_name) == (-1, ErrorCode.NONE)
    assert fetch(client, group, topic_name, require_stable=True)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert producer.end().error_code == ErrorCode.NONE
    producer.wait_for("CompleteCommit")
    assert fetch(client, group, topic_name, require_stable=True) == (7, ErrorCode.NONE)


def test_offsets_of_an_aborted_transaction_never_count(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    group = f"group-{topic_name}"
    fetch(client, group, topic_name)
    producer = Producer(client, f"commit-{topic_name}")
    producer.add_offsets(group)
    assert producer.commit_offset(group, topic_name, 7) == ErrorCode.NONE
    assert producer.end(committed=False).error_code == ErrorCode.NONE
    producer.wait_for("CompleteAbort")
    assert fetch(client, group, topic_name, require_stable=True) == (-1, ErrorCode.NONE)


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)])
def test_offsets_outside_of_a_transaction_are_refused(
    client: Any, topic_name: str, version: int, error: ErrorCode
) -> None:
    client.create_topic(topic_name)
    group = f"group-{topic_name}"
    fetch(client, group, topic_name)
    producer = Producer(client, f"commit-{topic_name}")
    assert producer.commit_offset(group, topic_name, 7, version) == error
    producer.add_offsets(group)
    assert producer.commit_offset(group, topic_name, 7, version) == ErrorCode.NONE
    producer.end()
    producer.wait_for("CompleteCommit")
    # What comes after the end would belong to no transaction, and hold readers back for ever.
    assert producer.commit_offset(group, topic_name, 9, version) == error
    assert fetch(client, group, topic_name, require_stable=True) == (7, ErrorCode.NONE)


def test_zombies_unknown_partitions_and_unknown_members_are_refused(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    group = f"group-{topic_name}"
    fetch(client, group, topic_name)
    old = Producer(client, f"commit-{topic_name}")
    old.add_offsets(group)
    assert old.commit_offset(group, topic_name, 1, partition=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert old.commit_offset(group, "nowhere", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert old.commit_offset(group, topic_name, 1, 6, partition=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert old.commit_offset(group, "nowhere", 1, 6) == ErrorCode.UNKNOWN_TOPIC_ID
    for version in (3, 5, 6):
        assert old.commit_offset("", topic_name, 1, version) == ErrorCode.INVALID_GROUP_ID
    assert old.commit_offset(group, topic_name, 1, generation_id=3, member_id="x") == ErrorCode.ILLEGAL_GENERATION
    old.end()
    old.wait_for("CompleteCommit")
    Producer(client, f"commit-{topic_name}")
    assert old.commit_offset(group, topic_name, 1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_version_6_answers_by_topic_id(client: Any, topic_name: str) -> None:
    topics = {client.create_topic(name): name for name in (topic_name, f"{topic_name}-other")}
    unknown = UUID(int=7)
    request = TxnOffsetCommitRequest(
        transactional_id="nobody",
        group_id="",
        producer_id=1,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequest.Topic(
                topic_id=each,
                partitions=[
                    TxnOffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1, committed_metadata="")
                ],
            )
            for each in (*topics, unknown)
        ],
    )
    answered = client(request, 6).topics
    assert [(each.topic_id, each.partitions[0].error_code) for each in answered] == [
        *((each, ErrorCode.INVALID_GROUP_ID) for each in topics),
        (unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
