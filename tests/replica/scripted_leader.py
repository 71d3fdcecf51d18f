"""A leader that speaks Kafka's wire over real logs, and lies when a test tells it to; and a follower of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.config.topic import LogConfig
from kafkapy.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from kafkapy.log.log_manager import LogManager
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.api_versions import ApiVersionsResponse
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkapy.protocol.registry import ApiKeys
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.replica.fetcher_api import FetchStart, FollowerVersions
from kafkapy.replica.fetcher_manager import ReplicaFetcherManager
from kafkapy.types import CompressionType, Endpoint, TopicPartition

LEADER = 1
FOLLOWER = 2
TP = TopicPartition("orders", 0)
TOPIC_ID = UUID("00000000-0000-0000-0000-00000000beef")
HEADER = struct.Struct(">qiibIhiqqqhii")

Answer = FetchResponse.TopicResponse.Partition


def batch(count: int = 1, *, size: int = 10, timestamp: int = 1000) -> bytes:
    """A batch as a producer sends it."""
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(timestamp + number, b"k", b"v" * size)
    return builder.build(CompressionType.NONE)


def logs_in(directory: Path, events: EventQueue | None = None, **keys: str) -> LogManager:
    """A LogManager on an empty directory."""
    values = {
        "broker.id": "1",
        "log.dirs": str(directory),
        "log.segment.delete.delay.ms": "0",
        "log.retention.ms": "-1",
    }
    manager = LogManager(
        BrokerConfig({**values, **{name.replace("_", "."): value for name, value in keys.items()}}), events=events
    )
    manager.acquire()
    manager.load()
    return manager


def write(log: PartitionLog, epochs: list[tuple[int, int]]) -> None:
    """Leads for each (epoch, records); the records of one epoch are one batch each."""
    for epoch, count in epochs:
        log.become_leader(LEADER, epoch, [LEADER])
        for _ in range(count):
            log.append_as_leader(batch(1))


class ScriptedLeader:
    """Serves logs to followers. `on_fetch` may change the answers, or give the bytes that are sent instead."""

    def __init__(self, directory: Path, *, newest_fetch: int = 17, **keys: str) -> None:
        self.logs = logs_in(directory, **keys)
        self.newest = {ApiKeys.FETCH: newest_fetch, ApiKeys.LIST_OFFSETS: 9, ApiKeys.OFFSET_FOR_LEADER_EPOCH: 4}
        self.fetches: list[FetchRequest] = []
        self.requests: Counter[ApiKeys] = Counter()
        self.versions: list[int] = []
        self.connections = 0
        self.refuses = False
        self.piece = 0
        """Bytes of one write of a response; 0: all."""
        self.max_wait_s = 0.02
        self.on_fetch: Callable[[FetchRequest, FetchResponse], FetchResponse | bytes | None] | None = None
        """None closes the connection; bytes are a frame without its size."""
        self.on_answer: Callable[[TopicPartition, Answer], None] | None = None
        self.on_epochs: Callable[[TopicPartition, Any], None] | None = None
        self.on_offsets: Callable[[TopicPartition, Any], None] | None = None
        self.topic_ids: dict[str, UUID] = {TP.topic: TOPIC_ID}
        self._sessions: dict[int, tuple[int, dict[tuple[str, int], Any]]] = {}
        self._sent: dict[tuple[int, str, int], tuple[int, int]] = {}
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    def log(
        self, topic_partition: TopicPartition = TP, *, epoch: int = 0, config: LogConfig | None = None
    ) -> PartitionLog:
        """The leader's log, which leads in this epoch."""
        log = self.logs.get_or_create(topic_partition, self.topic_ids.get(topic_partition.topic, UUID(int=0)), config)
        if log.leader_epoch < epoch:
            log.become_leader(LEADER, epoch, [LEADER])
        return log

    async def start(self) -> Endpoint:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return Endpoint("PLAINTEXT", "127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.disconnect()
            await self._server.wait_closed()
            self._server = None
            self.logs.shutdown()

    def disconnect(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not self.refuses:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await self._answer(await reader.readexactly(size))
                if frame is None:
                    break
                data = len(frame).to_bytes(4, "big") + frame
                step = self.piece or len(data)
                for at in range(0, len(data), step):
                    writer.write(data[at : at + step])
                    await writer.drain()
                    if self.piece:
                        await asyncio.sleep(0)
        self._writers.discard(writer)
        writer.close()

    async def _answer(self, frame: bytes) -> bytes | None:
        header, request = decode_request(frame)
        key, version = ApiKeys(header.request_api_key), header.request_api_version
        self.requests[key] += 1
        response: Any
        if isinstance(request, FetchRequest):
            self.versions.append(version)
            response = await self._fetch(request, version)
            if response is None or isinstance(response, bytes):
                return response
        elif isinstance(request, ListOffsetsRequest):
            response = self._offsets(request)
        elif isinstance(request, OffsetForLeaderEpochRequest):
            response = self._epochs(request)
        else:
            kind = ApiVersionsResponse.ApiVersion
            keys = [kind(api_key=int(each), min_version=0, max_version=newest) for each, newest in self.newest.items()]
            keys.append(kind(api_key=int(ApiKeys.API_VERSIONS), min_version=0, max_version=4))
            response = ApiVersionsResponse(api_keys=keys)
            if version > 4:
                response, version = ApiVersionsResponse(error_code=35, api_keys=keys), 0
        return encode_response(key, version, header.correlation_id, response)

    # --- Fetch --------------------------------------------------------------------------------------------------------

    def _name(self, topic: Any, version: int) -> str:
        if version < 13:
            return str(topic.topic)
        return next(name for name, each in self.topic_ids.items() if each == topic.topic_id)

    async def _fetch(self, request: FetchRequest, version: int) -> FetchResponse | bytes | None:
        self.fetches.append(request)
        asked = {
            (self._name(topic, version), each.partition): each for topic in request.topics for each in topic.partitions
        }
        session_id = 0
        full = True
        if version >= 7:
            if request.session_epoch == 0:
                session_id = random.randrange(1, 2**31)
                self._sessions.pop(request.session_id, None)
                self._sessions[session_id] = (1, asked)
            else:
                session_id = request.session_id
                if session_id not in self._sessions:
                    return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
                epoch, known = self._sessions[session_id]
                if epoch != request.session_epoch:
                    return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
                for topic in request.forgotten_topics_data:
                    for partition in topic.partitions:
                        del known[self._name(topic, version), partition]
                known |= asked
                asked = known
                self._sessions[session_id] = (epoch + 1, known)
                full = False
        end = asyncio.get_running_loop().time() + min(self.max_wait_s, request.max_wait_ms / 1000)
        while True:
            response = self._read(session_id, asked, full, request, version)
            if response.responses or asyncio.get_running_loop().time() >= end:
                break
            await asyncio.sleep(0.002)
        return self.on_fetch(request, response) if self.on_fetch is not None else response

    def _read(
        self, session_id: int, asked: Mapping[tuple[str, int], Any], full: bool, request: FetchRequest, version: int
    ) -> FetchResponse:
        topics: dict[str, list[Answer]] = {}
        left = request.max_bytes
        for (topic, partition), each in asked.items():
            answer = self.answer(TopicPartition(topic, partition), each, min(left, each.partition_max_bytes))
            if self.on_answer is not None:
                self.on_answer(TopicPartition(topic, partition), answer)
            left = max(left - len(answer.records or b""), 0)
            seen = (answer.high_watermark, answer.log_start_offset)
            dull = answer.error_code == 0 and not answer.records and answer.diverging_epoch.end_offset < 0
            if full or not dull or self._sent.get((session_id, topic, partition)) != seen:
                topics.setdefault(topic, []).append(answer)
                self._sent[session_id, topic, partition] = seen
        kind = FetchResponse.TopicResponse
        return FetchResponse(
            session_id=session_id,
            responses=[
                kind(topic=topic, topic_id=self.topic_ids.get(topic, UUID(int=0)), partitions=answers)
                for topic, answers in topics.items()
            ],
        )

    def answer(self, topic_partition: TopicPartition, asked: Any, max_bytes: int) -> Answer:
        """What an honest leader answers."""
        index = topic_partition.partition
        log = self.logs.get(topic_partition)
        nothing = {"high_watermark": -1, "records": b"", "aborted_transactions": None}
        if log is None:
            return Answer(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **nothing)
        if asked.current_leader_epoch not in (-1, log.leader_epoch):
            older = asked.current_leader_epoch < log.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            return Answer(partition_index=index, error_code=code, **nothing)
        start, _, high_watermark, *_ = log.offsets()
        answer = Answer(
            partition_index=index,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=start,
            aborted_transactions=None,
            records=b"",
        )
        if asked.last_fetched_epoch >= 0:
            epoch, epoch_end = log.offset_for_leader_epoch(asked.last_fetched_epoch)
            if epoch < 0 or asked.fetch_offset < start:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return answer
            if epoch < asked.last_fetched_epoch or epoch_end < asked.fetch_offset:
                answer.diverging_epoch = Answer.EpochEndOffset(epoch=epoch, end_offset=epoch_end)
                return answer
        try:
            answer.records = log.read(asked.fetch_offset, max(max_bytes, 1))[0]
        except OffsetOutOfRangeError:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return answer

    # --- questions ----------------------------------------------------------------------------------------------------

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        kind = ListOffsetsResponse.Topic
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                log = self.log(TopicPartition(topic.name, each.partition_index))
                offset = log.log_end_offset if each.timestamp == -1 else log.log_start_offset
                answer = kind.Partition(partition_index=each.partition_index, offset=offset)
                if self.on_offsets is not None:
                    self.on_offsets(TopicPartition(topic.name, each.partition_index), answer)
                answers.append(answer)
            topics.append(kind(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _epochs(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        kind = OffsetForLeaderEpochResponse.Topic
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                log = self.log(TopicPartition(topic.topic, each.partition))
                epoch, end = log.offset_for_leader_epoch(each.leader_epoch)
                answer = kind.Partition(partition=each.partition, leader_epoch=epoch, end_offset=end)
                if self.on_epochs is not None:
                    self.on_epochs(TopicPartition(topic.topic, each.partition), answer)
                answers.append(answer)
            topics.append(kind(topic=topic.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(topics=topics)


class Follower:
    """A broker's fetchers and logs. `failed` are the partitions given up, with their errors."""

    def __init__(
        self,
        directory: Path,
        endpoints: Mapping[int, Endpoint],
        *,
        versions: FollowerVersions | None = None,
        client_config: ClientConfig | None = None,
        **keys: str,
    ) -> None:
        self.queue = EventQueue()
        values = {"replica_fetch_backoff_ms": "20", "replica_fetch_wait_max_ms": "50", **keys}
        self.logs = logs_in(directory, self.queue, **values)
        self.failed: dict[TopicPartition, KafkaError] = {}
        self.endpoints = dict(endpoints)
        if client_config is None:
            client_config = ClientConfig(COMMON, {"bootstrap.servers": ["127.0.0.1:1"]})
        self.fetchers = ReplicaFetcherManager(
            self.logs.config,
            FOLLOWER,
            self.logs,
            client_config,
            self.endpoints.get,
            self,
            versions=versions or FollowerVersions(),
        )

    def partition_failed(self, topic_partition: TopicPartition, leader_epoch: int, error: KafkaError) -> None:
        self.failed[topic_partition] = error

    def log(
        self, topic_partition: TopicPartition = TP, *, topic_id: UUID = TOPIC_ID, config: LogConfig | None = None
    ) -> PartitionLog:
        return self.logs.get_or_create(topic_partition, topic_id, config)

    def follow(
        self,
        topic_partition: TopicPartition = TP,
        *,
        epoch: int = 0,
        leader: int = LEADER,
        topic_id: UUID = TOPIC_ID,
        config: LogConfig | None = None,
        initial_offset: int = -1,
    ) -> PartitionLog:
        """Follows the leader, as ReplicaManager does after LeaderAndIsr."""
        log = self.log(topic_partition, topic_id=topic_id, config=config)
        log.become_follower(leader, epoch)
        self.fetchers.add({topic_partition: FetchStart(log, topic_id, leader, epoch, initial_offset)})
        return log

    async def close(self) -> None:
        await self.fetchers.close()
        self.logs.shutdown()


@contextlib.asynccontextmanager
async def pair(
    directory: Path, *, leader_keys: Mapping[str, str] | None = None, newest_fetch: int = 17, **how: Any
) -> AsyncIterator[tuple[ScriptedLeader, Follower]]:
    """A leader and a follower, which end with the block."""
    leader = ScriptedLeader(directory / "leader", newest_fetch=newest_fetch, **(leader_keys or {}))
    follower = Follower(directory / "follower", {LEADER: await leader.start()}, **how)
    try:
        yield leader, follower
    finally:
        await follower.close()
        await leader.stop()


def contents(log: PartitionLog) -> bytes:
    """All bytes of a log."""
    found = b""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20)[0]
        if not data:
            break
        found += data
        at = 0
        while at < len(data):
            base, length = struct.unpack_from(">qi", data, at)
            offset = base + 1
            if data[at + 16] == 2:
                offset += struct.unpack_from(">i", data, at + 23)[0]
            at += 12 + length
    return found
