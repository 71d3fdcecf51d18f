"""The five APIs of share-partitions' state, in short forms for one group and one topic."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from kafkapy.coordinator.share.state import ShareKey
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kafkapy.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from kafkapy.types import CoordinatorType

Writing = WriteShareGroupStateRequest.Topic.Partition


class ShareStates:
    """A connection that acts for brokers. Each call is about one partition, and gives its result."""

    def __init__(self, client: Any, group_id: str, topic_id: UUID) -> None:
        self.client = client
        self.group_id = group_id
        self.topic_id = topic_id
        self._coordinate()

    def _coordinate(self) -> None:
        """Have the broker create the topic and load its partitions."""
        key = ShareKey(self.group_id, self.topic_id, 0).text
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            asked = FindCoordinatorRequest(coordinator_keys=[key], key_type=CoordinatorType.SHARE)
            if self.client(asked, 6).coordinators[0].error_code == ErrorCode.NONE:
                error = self.summary().error_code
                if error not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
                    return
            time.sleep(0.01)
        raise TimeoutError(key)

    def ask(self, kind: Any, version: int, **fields: Any) -> Any:
        """The result of one partition."""
        topic = kind.Topic(topic_id=self.topic_id, partitions=[kind.Topic.Partition(**fields)])
        response = self.client(kind(group_id=self.group_id, topics=[topic]), version)
        [result] = response.results
        assert result.topic_id == self.topic_id
        [partition] = result.partitions
        assert partition.partition == fields["partition"]
        return partition

    def initialize(self, state_epoch: int = 0, start_offset: int = 0, partition: int = 0) -> Any:
        return self.ask(
            InitializeShareGroupStateRequest, 0, partition=partition, state_epoch=state_epoch, start_offset=start_offset
        )

    def read(self, leader_epoch: int = 0, partition: int = 0) -> Any:
        return self.ask(ReadShareGroupStateRequest, 0, partition=partition, leader_epoch=leader_epoch)

    def write(
        self,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        complete: int = 0,
        partition: int = 0,
        version: int = 1,
    ) -> Any:
        return self.ask(
            WriteShareGroupStateRequest,
            version,
            partition=partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete,
            state_batches=[
                Writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )

    def delete(self, partition: int = 0) -> Any:
        return self.ask(DeleteShareGroupStateRequest, 0, partition=partition)

    def summary(self, partition: int = 0, version: int = 1) -> Any:
        return self.ask(ReadShareGroupStateSummaryRequest, version, partition=partition, leader_epoch=-1)


def empty_requests(kind: Any, topic_id: UUID) -> list[Any]:
    """Requests of which Kafka answers no partition."""
    partition = kind.Topic.Partition()
    return [
        kind(group_id="g"),
        kind(group_id="", topics=[kind.Topic(topic_id=topic_id, partitions=[partition])]),
        kind(
            group_id="g",
            topics=[kind.Topic(topic_id=topic_id, partitions=[partition]), kind.Topic(topic_id=topic_id)],
        ),
    ]
