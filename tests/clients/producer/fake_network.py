"""A NetworkClient without a network: what a sender submits is kept, and answered when a test says so.

`PartitionLogs` is a broker's side of idempotence in thirty lines: sequence numbers, duplicates, epochs.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, NamedTuple

from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame, ProduceResponseFrame
from kafkapy._speedups.records.memory_records import iter_batches
from kafkapy.errors import ErrorCode, KafkaConnectionError, NodeNotReadyError, UnsupportedVersionError
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.produce import ProduceResponse
from kafkapy.records.batches import iter_records

TopicResponse = ProduceResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse
Place = tuple[str, int]


class Submitted(NamedTuple):
    """A request on its way."""

    node: int
    version: int
    request: ProduceRequestFrame
    response: ProduceResponseFrame | None
    future: asyncio.Future[Any]

    def records(self) -> dict[Place, bytes]:
        """The batch of every partition, as it goes over the wire."""
        _, decoded = decode_request(self.request.to_bytes()[4:])
        return {
            (topic.name, partition.index): bytes(partition.records)
            for topic in decoded.topic_data
            for partition in topic.partition_data
        }

    def reply(self, results: dict[Place, dict[str, Any]] | None = None, **everywhere: Any) -> None:
        """Answers: fields of each partition's response, `everywhere` for those that are not named."""
        topics: dict[str, Any] = {}
        for batch in self.request.batches:
            topic = topics.setdefault(batch.topic, TopicResponse(name=batch.topic, partition_responses=[]))
            fields = (results or {}).get((batch.topic, batch.partition), everywhere)
            topic.partition_responses.append(
                PartitionResponse(**{"index": batch.partition, "base_offset": -1, **fields})
            )
        self.answer(ProduceResponse(responses=list(topics.values())))

    def answer(self, message: ProduceResponse) -> None:
        """Answers with a whole message."""
        assert self.response is not None
        self.response.feed(encode_response(0, self.version, 1, message))
        self.future.set_result(self.response)

    def lose(self) -> None:
        """The connection is gone."""
        self.future.set_exception(KafkaConnectionError("cut"))


class FakeCluster:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()
        self.invalidated = 0
        self.leaders: list[tuple[Any, ...]] = []

    def want(self, topics: set[str]) -> None:
        self.wanted |= topics

    def invalidate(self) -> None:
        self.invalidated += 1

    def update_leader(self, *told: Any) -> None:
        self.leaders.append(told)


class FakeNetwork:
    """Every node is ready unless it is in `unready`; versions up to `newest` are served."""

    client_id = "fake"

    def __init__(self, newest: int = 12) -> None:
        self.cluster = FakeCluster()
        self.newest = newest
        self.unready: set[int] = set()
        self.submitted: list[Submitted] = []
        self.throttles: list[tuple[int, int]] = []

    def is_ready(self, node: int) -> bool:
        return node not in self.unready

    async def ready(self, node: int) -> None:
        if node in self.unready:
            raise NodeNotReadyError("not yet")

    def connection_delay_s(self, node: int) -> float:
        return 0.0

    def negotiated(self, node: int, api_key: int, low: int, high: int) -> int:
        if self.newest < low:
            raise UnsupportedVersionError("too old")
        return min(high, self.newest)

    def submit(
        self, node: int, api_key: int, version: int, request: Any, response: Any, timeout_ms: int
    ) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self.submitted.append(Submitted(node, version, request, response, future))
        return future

    def throttled(self, node: int, api_key: int, version: int, throttle_ms: int) -> None:
        self.throttles.append((node, throttle_ms))


class PartitionLogs:
    """What brokers keep: records by partition, and the last batches of a producer. Source: ProducerStateManager."""

    def __init__(self) -> None:
        self.records: defaultdict[Place, list[bytes]] = defaultdict(list)
        self._epochs: dict[Place, int] = {}
        self._batches: defaultdict[Place, list[tuple[int, int, int]]] = defaultdict(list)

    def append(self, place: Place, data: bytes) -> tuple[ErrorCode, int]:
        """(error, base offset)."""
        (batch,) = iter_batches(data, check_crc=True)
        values = [record.value for record in iter_records(data)]
        known = self._epochs.get(place)
        batches = self._batches[place]
        if known is not None and batch.producer_epoch < known:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if known is None or batch.producer_epoch > known:
            if batch.base_sequence != 0 and known is not None:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            batches.clear()
        last = (batch.base_sequence + len(values) - 1) & 0x7FFFFFFF
        for first, known_last, offset in batches:
            if (first, known_last) == (batch.base_sequence, last):
                return ErrorCode.NONE, offset
        if batches and batch.base_sequence != (batches[-1][1] + 1) & 0x7FFFFFFF:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self._epochs[place] = batch.producer_epoch
        offset = len(self.records[place])
        self.records[place] += values
        batches.append((batch.base_sequence, last, offset))
        del batches[:-5]
        return ErrorCode.NONE, offset
