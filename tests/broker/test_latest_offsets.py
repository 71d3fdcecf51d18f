"""The latest offsets of partitions that are led here, elsewhere and nowhere."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from kafkapy.broker.latest_offsets import LatestOffsets
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, NetworkExceptionError, error_for
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.types import IsolationLevel, TopicPartition

HERE, THERE, AWAY = 1, 2, 3
Answer = ListOffsetsResponse.Topic


class Offset(NamedTuple):
    offset: int


class Logs:
    """The partitions of this broker."""

    def __init__(self, ends: dict[TopicPartition, int | ErrorCode | None]) -> None:
        self._ends = ends

    async def list_offset(
        self, partition: TopicPartition, timestamp: int, *, isolation: IsolationLevel
    ) -> Offset | None:
        assert (timestamp, isolation) == (-1, IsolationLevel.READ_UNCOMMITTED)
        end = self._ends[partition]
        if isinstance(end, ErrorCode):
            raise error_for(end)
        return None if end is None else Offset(end)


class Others:
    """Another broker, which knows offsets 10 times the partition's number, and one that does not answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, dict[str, list[int]]]] = []

    def send(self, broker_id: int, request: ListOffsetsRequest, timeout_ms: int) -> Later[Any]:
        assert (request.replica_id, timeout_ms) == (-1, 777)
        self.asked.append(
            (broker_id, {each.name: [part.partition_index for part in each.partitions] for each in request.topics})
        )
        later: Later[Any] = Later()
        if broker_id == AWAY:
            later.fail(NetworkExceptionError())
            return later
        later.set(
            ListOffsetsResponse(
                topics=[
                    Answer(
                        name=topic.name,
                        partitions=[
                            Answer.Partition(
                                partition_index=each.partition_index,
                                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if each.partition_index == 9 else 0,
                                offset=each.partition_index * 10,
                            )
                            for each in topic.partitions
                            if each.partition_index != 8
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )
        return later


def test_each_leader_is_asked_once() -> None:
    def t(topic: str, number: int) -> TopicPartition:
        return TopicPartition(topic, number)

    others = Others()
    leaders = {
        t("a", 0): HERE,
        t("a", 1): HERE,
        t("a", 2): HERE,
        t("a", 3): THERE,
        t("b", 4): THERE,
        t("b", 8): THERE,
        t("b", 9): THERE,
        t("b", 5): AWAY,
        t("b", 6): -1,
    }
    local: Any = Logs({t("a", 0): 7, t("a", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER, t("a", 2): None})
    offsets = LatestOffsets(HERE, local, others, leaders.get, timeout_ms=lambda: 777)
    found = asyncio.run(offsets([*leaders, t("c", 0)]))
    assert found == {
        t("a", 0): 7,
        t("a", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        t("a", 2): ErrorCode.OFFSET_NOT_AVAILABLE,
        t("a", 3): 30,
        t("b", 4): 40,
        t("b", 5): ErrorCode.NETWORK_EXCEPTION,
        t("b", 6): ErrorCode.LEADER_NOT_AVAILABLE,
        t("b", 8): ErrorCode.UNKNOWN_SERVER_ERROR,
        t("b", 9): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        t("c", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert others.asked == [(THERE, {"a": [3], "b": [4, 8, 9]}), (AWAY, {"b": [5]})]
