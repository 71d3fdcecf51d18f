"""A broker's data plane without sockets: partitions in memory, one connection, kafkapy.protocol messages."""

from __future__ import annotations

import hashlib
import struct
import types
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy._speedups.testing.request_driver import Exchange, RequestDriver
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkapy.records.batches import RecordBatchBuilder

NOW_MS = 1_700_000_000_000


class MemoryBroker:
    """The shared tables, topics in memory that broker 1 leads, and one connection's driver."""

    def __init__(
        self,
        *,
        slots: int = 100,
        eviction_ms: int = 120_000,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        max_partitions: int = 500_000,
    ) -> None:
        self.events = EventQueue()
        self.table = PartitionTable()
        self.sessions = FetchSessionCache(slots, eviction_ms, max_partitions)
        self.plane = DataPlane(1, self.table, self.sessions, self.events, fetch_max_bytes)
        self.driver = RequestDriver(self.plane)
        self.correlation_id = 0

    @staticmethod
    def topic_id(name: str) -> bytes:
        return hashlib.md5(name.encode()).digest()

    def uuid(self, name: str) -> UUID:
        return UUID(bytes=self.topic_id(name))

    def topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        topic_id: bytes | None = None,
        isr: tuple[int, ...] = (1,),
        replicas: tuple[int, ...] = (),
        **config: Any,
    ) -> list[PartitionLog]:
        topic_id = self.topic_id(name) if topic_id is None else topic_id
        self.table.put(name, topic_id, partitions)
        logs = []
        for number in range(partitions):
            log = PartitionLog(
                name,
                number,
                MemoryLogStorage(f"{name}-{number}"),
                self.log_config(**config),
                events=self.events,
                topic_id=topic_id,
            )
            log.prepare_segment()
            log.become_leader(1, 0, isr, replicas)
            self.table.set_log(name, number, log)
            logs.append(log)
        return logs

    @staticmethod
    def log_config(**overrides: Any) -> Any:
        values: dict[str, Any] = {
            "max_message_bytes": 1048588,
            "segment_bytes": 1 << 30,
            "segment_ms": 1 << 40,
            "segment_jitter_ms": 0,
            "index_interval_bytes": 4096,
            "segment_index_bytes": 1 << 16,
            "compression_type": "producer",
            "message_timestamp_type": "CreateTime",
            "cleanup_policy": ["delete"],
            "kafkapy_validate_compressed": "full",
            "max_compaction_lag_ms": (1 << 63) - 1,
            "timestamp_before_max_ms": (1 << 63) - 1,
            "timestamp_after_max_ms": (1 << 63) - 1,
            "min_insync_replicas": 1,
            "flush_messages": (1 << 63) - 1,
        }
        return types.SimpleNamespace(**{**values, **overrides})

    @staticmethod
    def batch(
        *values: bytes | None, key: bytes | None = b"k", timestamp: int = NOW_MS, codec: int = 0, **build: Any
    ) -> bytes:
        builder = RecordBatchBuilder()
        for value in values or (b"value",):
            builder.append(timestamp, key, value)
        return builder.build(codec, **build)

    # ---- requests ----

    def send(
        self,
        request: ProduceRequest | FetchRequest,
        version: int,
        *,
        driver: RequestDriver | None = None,
        client_id: str | None = "test",
    ) -> Exchange:
        self.correlation_id += 1
        api_key = 0 if isinstance(request, ProduceRequest) else 1
        return (driver or self.driver).handle(api_key, version, self.correlation_id, client_id, request.encode(version))

    def produce_request(
        self,
        topics: dict[str, list[tuple[int, bytes | None]]],
        *,
        version: int,
        acks: int = 1,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
    ) -> ProduceRequest:
        topic_data = [
            ProduceRequest.Topic(
                name=name if version <= 12 else "",
                topic_id=self.uuid(name) if version >= 13 else UUID(int=0),
                partition_data=[
                    ProduceRequest.Topic.Partition(index=index, records=records) for index, records in partitions
                ],
            )
            for name, partitions in topics.items()
        ]
        return ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topic_data
        )

    def produce(
        self, topics: dict[str, list[tuple[int, bytes | None]]], *, version: int = 9, **fields: Any
    ) -> ProduceResponse:
        """Sends a Produce that is answered at once."""
        return self.produce_reply(self.send(self.produce_request(topics, version=version, **fields), version), version)

    def fetch_request(
        self,
        partitions: list[tuple[str, int, int]],
        *,
        version: int,
        replica_id: int = -1,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 0x7FFFFFFF,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        forgotten: list[tuple[str, int]] = (),  # type: ignore[assignment]
        partition_max_bytes: int = 1 << 20,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        rack_id: str = "",
    ) -> FetchRequest:
        """partitions: (topic, partition, offset)."""
        topics: list[FetchRequest.Topic] = []
        for name, index, offset in partitions:
            entry = FetchRequest.Topic.Partition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=current_leader_epoch,
                last_fetched_epoch=last_fetched_epoch if version >= 12 else -1,
            )
            topic = (
                FetchRequest.Topic(topic=name, partitions=[entry])
                if version <= 12
                else FetchRequest.Topic(topic_id=self.uuid(name), partitions=[entry])
            )
            if topics and topics[-1].topic == topic.topic and topics[-1].topic_id == topic.topic_id:
                topics[-1].partitions.append(entry)
            else:
                topics.append(topic)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics,
            rack_id=rack_id if version >= 11 else "",
        )
        if version >= 15:
            request.replica_state = FetchRequest.ReplicaState(replica_id=replica_id)
        else:
            request.replica_id = replica_id
        for name, index in forgotten:
            gone = FetchRequest.ForgottenTopic(partitions=[index])
            if version <= 12:
                gone.topic = name
            else:
                gone.topic_id = self.uuid(name)
            request.forgotten_topics_data.append(gone)
        return request

    def fetch_exchange(
        self,
        partitions: list[tuple[str, int, int]],
        *,
        version: int = 12,
        driver: RequestDriver | None = None,
        **fields: Any,
    ) -> Exchange:
        return self.send(self.fetch_request(partitions, version=version, **fields), version, driver=driver)

    def fetch(self, partitions: list[tuple[str, int, int]], *, version: int = 12, **fields: Any) -> FetchResponse:
        """Sends a Fetch that waits for nothing but its turn."""
        return self.fetch_reply(self.in_turns(self.fetch_exchange(partitions, version=version, **fields)), version)

    @staticmethod
    def in_turns(exchange: Exchange) -> Exchange:
        """Goes on as long as the request only gives others their turn."""
        while exchange.kind == "parked" and exchange.wakes:
            exchange.resume()
        return exchange

    # ---- replies ----

    def body(self, exchange: Exchange, flexible: bool) -> bytes:
        """The reply's body; checks the size and the correlation id."""
        assert exchange.kind == "reply", (exchange.kind, exchange.message)
        frame = exchange.reply
        assert frame is not None
        size, correlation_id = struct.unpack(">ii", frame[:8])
        assert size == len(frame) - 4
        assert correlation_id == self.correlation_id
        if flexible:
            assert frame[8] == 0
            return frame[9:]
        return frame[8:]

    def produce_reply(self, exchange: Exchange, version: int) -> ProduceResponse:
        body = self.body(exchange, version >= 9)
        response = ProduceResponse.decode(body, version)
        assert response.encode(version) == body
        return response

    def fetch_reply(self, exchange: Exchange, version: int) -> FetchResponse:
        body = self.body(exchange, version >= 12)
        response = FetchResponse.decode(body, version)
        assert response.encode(version) == body
        return response

    @staticmethod
    def by_partition(response: Any) -> dict[tuple[Any, int], Any]:
        """{(topic name or id, partition): partition response}"""
        out: dict[tuple[Any, int], Any] = {}
        for topic in response.responses:
            name = getattr(topic, "topic", "") or getattr(topic, "name", "") or topic.topic_id
            for entry in getattr(topic, "partitions", None) or getattr(topic, "partition_responses", []):
                out[name, entry.index if hasattr(entry, "index") else entry.partition_index] = entry
        return out

    def only(self, response: Any) -> Any:
        (entry,) = self.by_partition(response).values()
        return entry


@pytest.fixture
def make_broker() -> type[MemoryBroker]:
    return MemoryBroker


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    yield MemoryBroker()
