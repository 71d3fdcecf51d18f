"""ReadShareGroupState as the leader of a share-partition sees it."""

from __future__ import annotations

from typing import Any

from broker.handlers.share_states import ShareStates, empty_requests

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.read_share_group_state import ReadShareGroupStateRequest


def test_a_leader_gets_the_state_and_fences_those_before(client: Any, topic_name: str) -> None:
    states = ShareStates(client, "group", client.create_topic(topic_name))
    assert states.read().error_code == ErrorCode.INVALID_REQUEST, "it was not initialized"
    states.initialize(state_epoch=2, start_offset=5)
    found = states.read(leader_epoch=4)
    assert (found.error_code, found.error_message) == (ErrorCode.NONE, None)
    assert (found.state_epoch, found.start_offset, found.state_batches) == (2, 5, [])
    states.write((5, 9, 2, 1), (10, 12, 0, 2), state_epoch=2, leader_epoch=4, start_offset=6)
    refused = states.read(leader_epoch=3)
    assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH
    found = states.read(leader_epoch=5)
    batches = [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in found.state_batches
    ]
    assert (found.start_offset, batches) == (6, [(6, 9, 2, 1), (10, 12, 0, 2)])


def test_requests_without_a_group_or_without_partitions_have_no_results(client: Any, topic_name: str) -> None:
    topic_id = client.create_topic(topic_name)
    for request in empty_requests(ReadShareGroupStateRequest, topic_id):
        assert client(request, 0).results == []
