"""The share coordinator of a running broker: its log is pruned, and its state outlives restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.handlers.share_states import ShareStates
from waiting import wait_until

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.types import TopicPartition

PARTITION = TopicPartition("__share_group_state", 0)


def log_start(server: KafkaServer) -> int:
    log = server.context.replica_manager.log(PARTITION)
    assert log is not None
    return int(log.log_start_offset)


def test_the_log_is_pruned_and_the_state_outlives_restarts(
    tmp_path: Path, make_config: Callable[..., BrokerConfig], connect: Callable[..., Any]
) -> None:
    keys = {
        "share_coordinator_state_topic_prune_interval_ms": "20",
        "share_coordinator_snapshot_update_records_per_snapshot": "2",
        "share_coordinator_load_buffer_size": "300",
        "share_coordinator_state_topic_compression_codec": "4",
    }
    with KafkaServer(make_config(tmp_path, **keys)) as server:
        client = connect(server)
        topic_id = client.create_topic("topic", partitions=2)
        states = ShareStates(client, "group", topic_id)
        for partition in range(2):
            assert states.initialize(partition=partition).error_code == ErrorCode.NONE
        for offset in range(30):
            result = states.write((offset, offset, 2, 1), complete=offset + 1)
            assert result.error_code == ErrorCode.NONE, result.error_message
        wait_until(lambda: log_start(server) == 1, "what lies before the snapshot without updates is deleted")
        assert states.delete(partition=1).error_code == ErrorCode.NONE
        wait_until(lambda: log_start(server) > 25, "the rest is deleted")
        pruned = server.context.coordinators.share.pruned
        wait_until(lambda: pruned[0] == log_start(server), "the end of the deletion is noted")
    with KafkaServer(make_config(tmp_path, **keys)) as server:
        states = ShareStates(connect(server), "group", topic_id)
        summary = states.summary()
        assert (summary.state_epoch, summary.start_offset, summary.delivery_complete_count) == (0, 0, 30)
        [batch] = states.read(leader_epoch=0).state_batches
        assert (batch.first_offset, batch.last_offset) == (0, 29)
        assert states.summary(partition=1).start_offset == -1


def test_clients_may_not_delete_its_records(client: Any, topic_name: str) -> None:
    ShareStates(client, "group", client.create_topic(topic_name)).initialize()
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=-1)
    topic = DeleteRecordsRequest.Topic(name=PARTITION.topic, partitions=[partition])
    response = client(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
    assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
