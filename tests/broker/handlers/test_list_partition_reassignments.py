"""ListPartitionReassignments as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkapy.types import ResourceType

Topic = ListPartitionReassignmentsRequest.Topic


@pytest.mark.parametrize("topics", [None, [], [Topic(name="t", partition_indexes=[0, 7])]])
def test_nothing_is_being_moved(client: Any, topics: list[Topic] | None) -> None:
    response = client(ListPartitionReassignmentsRequest(topics=topics), 0)
    assert (response.error_code, response.topics) == (ErrorCode.NONE, [])


def test_one_who_may_not_look_is_told_so(group_client: Any, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    response = group_client(ListPartitionReassignmentsRequest(topics=None), 0)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
