"""DeleteShareGroupState as a group coordinator sees it, and share-partitions of deleted topics."""

from __future__ import annotations

from typing import Any

from broker.handlers.share_states import ShareStates, empty_requests
from waiting import wait_until

from kafkapy.coordinator.share.state import ShareKey
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest


def test_a_share_partition_is_removed(client: Any, topic_name: str) -> None:
    states = ShareStates(client, "group", client.create_topic(topic_name))
    states.initialize(state_epoch=8, start_offset=4)
    for _ in range(2):
        assert states.delete().error_code == ErrorCode.NONE
        assert (states.summary().state_epoch, states.summary().start_offset) == (0, -1)
    assert states.initialize().error_code == ErrorCode.NONE
    assert states.delete(partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_share_partitions_go_with_their_topic(client: Any, broker: Any, topic_name: str) -> None:
    topic_id = client.create_topic(topic_name)
    ShareStates(client, "group", topic_id).initialize()
    key = ShareKey("group", topic_id, 0)

    def is_known() -> bool:
        return any(key in shard.states for shard in broker.context.coordinators.share.runtime.shards().values())

    assert is_known()
    client(DeleteTopicsRequest(topic_names=[topic_name], timeout_ms=30_000), 5)
    wait_until(lambda: not is_known(), "the state is removed")


def test_requests_without_a_group_or_without_partitions_have_no_results(client: Any, topic_name: str) -> None:
    topic_id = client.create_topic(topic_name)
    for request in empty_requests(DeleteShareGroupStateRequest, topic_id):
        assert client(request, 0).results == []
