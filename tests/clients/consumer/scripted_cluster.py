"""Brokers that do what a test says: real sockets and frames, logs in lists, every answer replaceable.

    with ScriptedCluster(nodes=[1, 2]) as cluster:
        log = cluster.add_topic("t")[0]
        log.append(3)
        cluster.on(FetchRequest, lambda call: error_or_none)

A hook is called with each request of its kind; what it returns is the answer, None lets the next hook and at last the
cluster answer. `Disconnect` raised by a hook closes the connection. Requests are kept in `calls`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from uuid import UUID, uuid4

from clients.consumer.fetched import batch

from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkapy.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkapy.protocol.schema import Request
from kafkapy.types import ZERO_UUID, TopicPartition

SERVED = (FetchRequest, ListOffsetsRequest, MetadataRequest, ApiVersionsRequest, OffsetForLeaderEpochRequest)
KAFKA_2_1 = {1: (0, 10), 2: (0, 4), 3: (0, 7), 18: (0, 2), 23: (0, 2)}
"""Versions of Kafka 2.1's brokers."""
FetchedTopic = FetchResponse.TopicResponse
FetchedPart = FetchedTopic.Partition


class Disconnect(Exception):
    """Raised by a hook: the connection is closed without an answer."""


@dataclass
class Call:
    """One request as it came."""

    node_id: int
    version: int
    request: Any
    client_id: str | None
    answered: bool = False


@dataclass
class ScriptedLog:
    """A partition: whole batches, each with its base offset, its end and its epoch."""

    leadership: tuple[int, int]
    start: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    replicas: list[int] = field(default_factory=list)
    offline: list[int] = field(default_factory=list)

    @property
    def leader(self) -> int:
        return self.leadership[0]

    @property
    def epoch(self) -> int:
        return self.leadership[1]

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def append(self, count: int) -> None:
        base = self.end
        self.batches.append((base, base + count, batch(base, count, self.epoch)))

    def elect(self, leader: int, truncate_to: int | None = None) -> None:
        """Another leader, in the next epoch; with `truncate_to` one that has lost the records from there on."""
        epoch = self.epoch + 1
        if truncate_to is not None:
            self.batches = [each for each in self.batches if each[1] <= truncate_to]
            self.epochs = [each for each in self.epochs if each[1] < truncate_to or each[0] == 0]
        self.epochs.append((epoch, self.end))
        self.leadership = (leader, epoch)  # at once: the brokers' thread reads meanwhile

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch."""
        if epoch == self.epoch:
            return epoch, self.end
        known = [each for each in self.epochs if each[0] <= epoch]
        if not known or epoch > self.epoch:
            return -1, -1
        later = [each[1] for each in self.epochs if each[0] > known[-1][0]]
        return known[-1][0], later[0] if later else self.end

    def read(self, offset: int, max_bytes: int) -> bytes:
        out = b""
        for _, end, data in self.batches:
            if end > offset:
                if out and len(out) + len(data) > max_bytes:
                    break
                out += data
        return out


@dataclass
class ScriptedTopic:
    logs: list[ScriptedLog]
    id: UUID = field(default_factory=uuid4)
    error: int = 0

    def __getitem__(self, partition: int) -> ScriptedLog:
        return self.logs[partition]


class ScriptedCluster:
    """Runs on a thread of its own; tests change topics and hooks from theirs."""

    def __init__(self, nodes: list[int] | None = None, versions: dict[int, tuple[int, int]] | None = None) -> None:
        self.nodes = nodes or [1]
        self.versions = versions or {}
        self.topics: dict[str, ScriptedTopic] = {}
        self.calls: list[Call] = []
        self.racks: dict[int, str] = {}
        self.auto_create = False
        self.names_leaders = False
        """Whether a Fetch to another broker than the leader is told who leads (KIP-951)."""
        self._hooks: dict[int, list[Callable[[Call], Any]]] = {}
        self._ports: dict[int, int] = {}
        self._sessions: dict[int, tuple[int, dict[tuple[str, int], Any]]] = {}
        self._next_session = 1000
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: dict[int, set[asyncio.StreamWriter]] = {node: set() for node in self.nodes}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- what a test does -----------------------------------------------------------------------------------------

    def __enter__(self) -> ScriptedCluster:
        self._thread.start()
        for node_id in self.nodes:
            asyncio.run_coroutine_threadsafe(self._listen(node_id), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def add_topic(self, name: str, partitions: int = 1, leader: int | None = None) -> ScriptedTopic:
        logs = [ScriptedLog((leader or self.nodes[0], 0), replicas=list(self.nodes)) for _ in range(partitions)]
        self.topics[name] = ScriptedTopic(logs)
        return self.topics[name]

    def on(self, request: type[Request], hook: Callable[[Call], Any]) -> None:
        self._hooks.setdefault(request.API_KEY, []).append(hook)

    def of(self, request: type[Request]) -> list[Call]:
        """The calls of one kind so far."""
        return [call for call in self.calls if isinstance(call.request, request)]

    def disconnect(self, node_id: int) -> None:
        """Closes all connections to a broker."""
        self._loop.call_soon_threadsafe(lambda: [writer.close() for writer in self._writers[node_id]])

    # --- sockets --------------------------------------------------------------------------------------------------

    async def _listen(self, node_id: int) -> None:
        server = await asyncio.start_server(lambda r, w: self._serve(node_id, r, w), "127.0.0.1", 0)
        self._ports[node_id] = server.sockets[0].getsockname()[1]
        self._servers.append(server)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for writers in self._writers.values():
            for writer in writers:
                writer.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers[node_id].add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                header, request = decode_request(await reader.readexactly(size))
                version = header.request_api_version
                call = Call(node_id, version, request, header.client_id)
                self.calls.append(call)
                response = await self._answer(call)
                frame = encode_response(request.API_KEY, version, header.correlation_id, response)
                call.answered = True
                writer.write(len(frame).to_bytes(4, "big") + frame)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, Disconnect):
            pass
        finally:
            self._writers[node_id].discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, call: Call) -> Any:
        for hook in self._hooks.get(call.request.API_KEY, ()):
            answer = hook(call)
            if answer is not None:
                return await answer if asyncio.iscoroutine(answer) else answer
        name = type(call.request).__name__
        return await {
            "ApiVersionsRequest": self._api_versions,
            "MetadataRequest": self.metadata,
            "ListOffsetsRequest": self._list_offsets,
            "OffsetForLeaderEpochRequest": self._epochs,
            "FetchRequest": self.fetch,
        }[name](call)

    # --- answers --------------------------------------------------------------------------------------------------

    async def _api_versions(self, call: Call) -> ApiVersionsResponse:
        keys = []
        for request in SERVED:
            low, high = self.versions.get(request.API_KEY, (request.VERSIONS.low, request.VERSIONS.high))
            keys.append(ApiVersionsResponse.ApiVersion(api_key=request.API_KEY, min_version=low, max_version=high))
        return ApiVersionsResponse(api_keys=keys)

    async def metadata(self, call: Call) -> MetadataResponse:
        Topic = MetadataResponse.Topic
        asked = call.request.topics
        names = list(self.topics) if asked is None else [topic.name for topic in asked]
        if self.auto_create and call.request.allow_auto_topic_creation:
            for name in names:
                if name not in self.topics:
                    self.add_topic(name)
        topics = []
        for name in names:
            topic = self.topics.get(name)
            if topic is None or topic.error:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
                topics.append(Topic(error_code=code, name=name, partitions=[]))
                continue
            topics.append(
                Topic(
                    name=name,
                    topic_id=topic.id if call.version >= 10 else ZERO_UUID,
                    partitions=[
                        Topic.Partition(
                            partition_index=number,
                            leader_id=log.leader,
                            leader_epoch=log.epoch,
                            replica_nodes=log.replicas,
                            isr_nodes=log.replicas,
                            offline_replicas=log.offline,
                        )
                        for number, log in enumerate(topic.logs)
                    ],
                )
            )
        brokers = [
            MetadataResponse.Broker(node_id=node, host="127.0.0.1", port=self._ports[node], rack=self.racks.get(node))
            for node in self.nodes
        ]
        return MetadataResponse(brokers=brokers, cluster_id="scripted", controller_id=self.nodes[0], topics=topics)

    def _log(self, topic: str, partition: int) -> ScriptedLog | None:
        found = self.topics.get(topic)
        return found.logs[partition] if found is not None and partition < len(found.logs) else None

    def _leader_error(self, call: Call, log: ScriptedLog | None, epoch: int) -> ErrorCode:
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if call.node_id != log.leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= epoch < log.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > log.epoch else ErrorCode.NONE

    async def _list_offsets(self, call: Call) -> ListOffsetsResponse:
        Topic = ListOffsetsResponse.Topic
        topics = []
        for topic in call.request.topics:
            answers = []
            for asked in topic.partitions:
                log = self._log(topic.name, asked.partition_index)
                code = self._leader_error(call, log, asked.current_leader_epoch)
                answer = Topic.Partition(partition_index=asked.partition_index, error_code=code)
                if not code and log is not None:
                    answer.offset, answer.timestamp = self._offset_at(log, asked.timestamp)
                    if call.version >= 4:
                        answer.leader_epoch = log.epoch
                answers.append(answer)
            topics.append(Topic(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    @staticmethod
    def _offset_at(log: ScriptedLog, timestamp: int) -> tuple[int, int]:
        """Records have the timestamp 1,700,000,000,000 and their offset."""
        if timestamp == -1:
            return log.end, -1
        if timestamp == -2:
            return log.start, -1
        offset = max(timestamp - 1_700_000_000_000, log.start)
        return (offset, 1_700_000_000_000 + offset) if offset < log.end else (-1, -1)

    async def _epochs(self, call: Call) -> OffsetForLeaderEpochResponse:
        Topic = OffsetForLeaderEpochResponse.Topic
        topics = []
        for topic in call.request.topics:
            answers = []
            for asked in topic.partitions:
                log = self._log(topic.topic, asked.partition)
                code = self._leader_error(call, log, asked.current_leader_epoch)
                epoch, end = (-1, -1) if code or log is None else log.end_of_epoch(asked.leader_epoch)
                answers.append(
                    Topic.Partition(error_code=code, partition=asked.partition, leader_epoch=epoch, end_offset=end)
                )
            topics.append(Topic(topic=topic.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(topics=topics)

    async def fetch(self, call: Call) -> FetchResponse:
        """Sessions, long polls and all; a hook may call it for the usual answer."""
        request = call.request
        names = {topic.id: name for name, topic in self.topics.items()}
        wanted: dict[tuple[str, int], Any] = {}
        session_id = request.session_id
        if request.session_epoch > 0:
            if session_id not in self._sessions:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            epoch, wanted = self._sessions[session_id]
            if epoch != request.session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        else:
            self._sessions.pop(session_id, None)
            session_id = 0
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                wanted.pop(
                    (names.get(topic.topic_id, str(topic.topic_id)) if call.version >= 13 else topic.topic, number),
                    None,
                )
        for topic in request.topics:
            name = names.get(topic.topic_id, str(topic.topic_id)) if call.version >= 13 else topic.topic
            for part in topic.partitions:
                wanted[name, part.partition] = (topic.topic_id, part)
        if request.session_epoch == 0 and call.version >= 7:
            self._next_session += 1
            session_id = self._next_session
        if session_id:
            self._sessions[session_id] = (max(request.session_epoch, 0) + 1, wanted)
        deadline = time.monotonic() + request.max_wait_ms / 1000
        while True:
            answers = {key: self._fetch_one(call, key, part) for key, (_, part) in wanted.items()}
            interesting = any(each.records or each.error_code for each in answers.values())
            if interesting or request.session_epoch == -1 or time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.005)
        if request.session_epoch > 0:
            answers = {key: each for key, each in answers.items() if each.records or each.error_code}
        return FetchResponse(
            session_id=session_id,
            responses=[
                FetchedTopic(
                    topic=name if call.version < 13 else "",
                    topic_id=wanted[name, number][0] if call.version >= 13 else ZERO_UUID,
                    partitions=[answer],
                )
                for (name, number), answer in answers.items()
            ],
            node_endpoints=[
                FetchResponse.NodeEndpoint(node_id=node, host="127.0.0.1", port=port, rack=None)
                for node, port in self._ports.items()
                if self.names_leaders
            ],
        )

    def _fetch_one(self, call: Call, key: tuple[str, int], part: Any) -> Any:
        log = self._log(*key)
        answer = FetchedPart(partition_index=key[1], high_watermark=-1, records=b"")
        if log is None:
            by_id = call.version >= 13
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return answer
        if call.node_id not in log.replicas:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif call.node_id == log.leader or part.current_leader_epoch != log.epoch:
            answer.error_code = self._leader_error(call, log, part.current_leader_epoch)
        if answer.error_code:
            if self.names_leaders:
                leader, epoch = log.leadership
                answer.current_leader = FetchedPart.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            return answer
        answer.high_watermark = answer.last_stable_offset = log.end
        if call.version >= 5:
            answer.log_start_offset = log.start
        if not log.start <= part.fetch_offset <= log.end:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return answer
        answer.records = log.read(part.fetch_offset, part.partition_max_bytes)
        return answer


def offsets_of(records: dict[TopicPartition, list[Any]]) -> dict[tuple[str, int], list[int]]:
    """What a poll returned, as offsets by partition."""
    return {tuple(partition): [record.offset for record in found] for partition, found in records.items()}
