"""ReadShareGroupStateSummary as a group coordinator sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.share_states import ShareStates, empty_requests

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest


@pytest.mark.parametrize("version", range(2))
def test_the_state_without_its_batches(client: Any, topic_name: str, version: int) -> None:
    states = ShareStates(client, "group", client.create_topic(topic_name))
    found = states.summary(version=version)
    assert (found.error_code, found.state_epoch, found.leader_epoch, found.start_offset) == (0, 0, 0, -1)
    assert found.delivery_complete_count == -1
    states.initialize(state_epoch=1, start_offset=2)
    states.read(leader_epoch=3)
    states.write((4, 8, 2, 1), state_epoch=1, leader_epoch=3, start_offset=2, complete=5)
    found = states.summary(version=version)
    assert (found.error_code, found.state_epoch, found.leader_epoch, found.start_offset) == (0, 1, 3, 2)
    assert found.delivery_complete_count == (5 if version else -1)
    assert states.summary(partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_requests_without_a_group_or_without_partitions_have_no_results(client: Any, topic_name: str) -> None:
    topic_id = client.create_topic(topic_name)
    for request in empty_requests(ReadShareGroupStateSummaryRequest, topic_id):
        assert client(request, 1).results == []
