"""WriteShareGroupState as the leader of a share-partition sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.share_states import ShareStates, empty_requests

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.write_share_group_state import WriteShareGroupStateRequest


@pytest.mark.parametrize("version", range(2))
def test_what_has_changed_is_stored(client: Any, topic_name: str, version: int) -> None:
    states = ShareStates(client, "group", client.create_topic(topic_name))
    assert states.write((0, 9, 2, 1), version=version).error_code == ErrorCode.INVALID_REQUEST, "not initialized"
    states.initialize()
    states.read()
    result = states.write((0, 9, 2, 1), start_offset=3, complete=7, version=version)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    summary = states.summary()
    assert (summary.start_offset, summary.delivery_complete_count) == (3, 7 if version else -1)


def test_leaders_that_were_replaced_are_refused(client: Any, topic_name: str) -> None:
    states = ShareStates(client, "group", client.create_topic(topic_name))
    states.initialize(state_epoch=5)
    states.read(leader_epoch=2)
    assert states.write(state_epoch=5, leader_epoch=1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert states.write(state_epoch=4, leader_epoch=2).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert states.write((3, 2, 2, 1), state_epoch=5, leader_epoch=2).error_code == ErrorCode.INVALID_REQUEST
    assert states.write(state_epoch=5, leader_epoch=2).error_code == ErrorCode.NONE


def test_requests_without_a_group_or_without_partitions_have_no_results(client: Any, topic_name: str) -> None:
    topic_id = client.create_topic(topic_name)
    for request in empty_requests(WriteShareGroupStateRequest, topic_id):
        assert client(request, 1).results == []
