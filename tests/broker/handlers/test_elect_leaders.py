"""ElectLeaders as a client sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkapy.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkapy.types import ResourceType, TopicPartition

Topic = ElectLeadersRequest.TopicPartitions
Wanted = dict[str, list[int]]


def elect(client: Any, wanted: Wanted | None, version: int = 2, kind: int = 0) -> Any:
    topics = None if wanted is None else [Topic(topic=name, partitions=each) for name, each in wanted.items()]
    return client(ElectLeadersRequest(election_type=kind, topic_partitions=topics), version)


def outcomes(response: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, each.partition_id, each.error_code)
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]


@pytest.mark.parametrize(("version", "kind"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)])
def test_the_only_broker_leads_already(client: Any, topic_name: str, version: int, kind: int) -> None:
    client.create_topic(topic_name, 2)
    response = elect(client, {topic_name: [1, 0, 1, 7], "nowhere": [0]}, version, kind)
    assert response.error_code == ErrorCode.NONE
    assert outcomes(response) == [
        (topic_name, 1, ErrorCode.ELECTION_NOT_NEEDED),
        (topic_name, 0, ErrorCode.ELECTION_NOT_NEEDED),
        (topic_name, 1, ErrorCode.ELECTION_NOT_NEEDED),
        (topic_name, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert outcomes(elect(client, None, version, kind)) == []


def test_a_type_that_there_is_not(client: Any, topic_name: str) -> None:
    response = elect(client, {topic_name: [0]}, kind=2)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert outcomes(response) == [(topic_name, 0, ErrorCode.INVALID_REQUEST)]


def test_a_leader_whose_directory_failed_is_not_available(
    tmp_path: Path, make_config: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    dirs = ",".join(str(tmp_path / name) for name in ("one", "two"))
    with KafkaServer(make_config(tmp_path, log_dirs=dirs)) as server:
        client = connect(server)
        client.create_topic("t", 2)
        manager = server.context.log_manager
        manager.table.fail_dir(Path(manager.dir_of(TopicPartition("t", 0))), OSError(5, "gone"))
        asked = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.Topic(name="t")])
        deadline = time.monotonic() + 30
        while all(each.leader_id >= 0 for each in client(asked, 0).topics[0].partitions):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for kind, error in (
            (0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        ):
            assert outcomes(elect(client, {"t": [0, 1]}, kind=kind)) == [
                ("t", 0, error),
                ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
            ]
            assert outcomes(elect(client, None, kind=kind)) == [("t", 0, error)]


@pytest.mark.parametrize("version", range(3))
def test_one_who_may_not_alter_the_cluster_is_told_so(group_client: Any, deny: Any, version: int) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    response = elect(group_client, {"t": [0]}, version)
    assert response.error_code == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED if version else ErrorCode.NONE)
    assert outcomes(response) == [("t", 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
