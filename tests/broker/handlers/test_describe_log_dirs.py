"""DescribeLogDirs as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest


@pytest.mark.parametrize("version", range(6))
def test_every_version_shows_sizes(client: Any, broker: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, 2)
    client.produce(topic_name, [(1, b"x" * 1000)])
    asked = [DescribeLogDirsRequest.Topic(topic=topic_name, partitions=[0, 1])]
    (result,) = client(DescribeLogDirsRequest(topics=asked), version).results
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, broker.config.log_dirs[0])
    (topic,) = result.topics
    sizes = {each.partition_index: each.partition_size for each in topic.partitions}
    assert sizes[0] > 1000
    assert sizes[1] == 0
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes


def test_null_means_all_partitions(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    (result,) = client(DescribeLogDirsRequest(topics=None), 4).results
    assert topic_name in {topic.name for topic in result.topics}


def test_unknown_topics_are_left_out(client: Any) -> None:
    asked = [DescribeLogDirsRequest.Topic(topic="no-such-topic", partitions=[0])]
    (result,) = client(DescribeLogDirsRequest(topics=asked), 4).results
    assert result.topics == []
