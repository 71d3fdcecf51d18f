"""InitializeShareGroupState as a group coordinator sees it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from broker.handlers.share_states import ShareStates, empty_requests

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest


def test_a_share_partition_begins_and_begins_again(client: Any, topic_name: str) -> None:
    states = ShareStates(client, "group", client.create_topic(topic_name))
    assert states.initialize(state_epoch=3, start_offset=10).error_code == ErrorCode.NONE
    assert (states.summary().state_epoch, states.summary().start_offset) == (3, 10)
    refused = states.initialize(state_epoch=2, start_offset=0)
    assert refused.error_code == ErrorCode.FENCED_STATE_EPOCH
    assert refused.error_message
    assert states.initialize(state_epoch=4, start_offset=-1).error_code == ErrorCode.NONE
    assert (states.summary().state_epoch, states.summary().start_offset) == (4, -1)


def test_what_does_not_exist_or_cannot_be(client: Any, topic_name: str) -> None:
    states = ShareStates(client, "group", client.create_topic(topic_name))
    assert states.initialize(partition=7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert states.initialize(partition=-1).error_code == ErrorCode.INVALID_REQUEST
    assert states.initialize(state_epoch=-1).error_code == ErrorCode.INVALID_REQUEST
    states.topic_id = uuid4()
    assert states.initialize().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_have_results_in_the_order_asked(client: Any, topic_name: str) -> None:
    kind = InitializeShareGroupStateRequest
    topics = [client.create_topic(f"{topic_name}-{number}", partitions=3) for number in range(2)]
    ShareStates(client, "group", topics[0])
    asked = [
        kind.Topic(topic_id=topic, partitions=[kind.Topic.Partition(partition=each) for each in (2, 9, 0)])
        for topic in topics
    ]
    results = client(kind(group_id="group", topics=asked), 0).results
    assert [each.topic_id for each in results] == topics
    for result in results:
        assert [(each.partition, each.error_code) for each in result.partitions] == [
            (2, ErrorCode.NONE), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, ErrorCode.NONE),
        ]  # fmt: skip


def test_requests_without_a_group_or_without_partitions_have_no_results(client: Any, topic_name: str) -> None:
    topic_id = client.create_topic(topic_name)
    no_topics, no_group, one_topic_is_empty = empty_requests(InitializeShareGroupStateRequest, topic_id)
    for request in (no_topics, no_group):
        assert client(request, 0).results == []
    (topic,) = client(one_topic_is_empty, 0).results
    assert [(each.partition, each.error_code) for each in topic.partitions] == [(0, ErrorCode.NONE)]
