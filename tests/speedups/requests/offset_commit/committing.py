"""A SocketServer whose network threads store offsets; its Python side answers the rest."""

from __future__ import annotations

import hashlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from speedups.conftest import MemoryBroker

from kafkapy._speedups.base.event_queue import REQUEST, SEGMENT_WANTED, EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.network.network_request import ASK_AUTHORIZE, ASK_QUOTAS
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.offset_commit.lease import CommitLease, CommitTable
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy.coordinator.batches import build, encode
from kafkapy.coordinator.group.offsets import CommittedOffset
from kafkapy.coordinator.group.records import GROUP_RECORDS, offset_commit
from kafkapy.coordinator.hosted import PendingOperation
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.writer import READ_TO_LOG_END
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.network.api_table import ServedApi, api_table
from kafkapy.network.socket_server import SocketServer, SocketServerConfig
from kafkapy.protocol.header import encode_request, encode_response
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.records.batches import iter_batches, iter_records
from kafkapy.types import Endpoint, SecurityProtocol

KEY = int(ApiKeys.OFFSET_COMMIT)
FIRST_FLEXIBLE = 8
VERSIONS = range(2, 11)
BY_PYTHON = b"by Python: "
"""The beginning of the Python side's answers; the request's body follows."""
TRIES = 20
WAIT_S = 60.0

Told = tuple[str, int, int, int, str]
"""A told offset without its time."""


def now_ms() -> int:
    return int(time.time() * 1000)


def topic_id(name: str) -> bytes:
    return hashlib.md5(name.encode()).digest()


class Offset(NamedTuple):
    """One partition of a commit."""

    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(frozen=True)
class Terms:
    """The terms of a lease.

    The defaults let the members "m" and "s" commit offsets of "t"-0 to 3 and "u"-0.
    """

    group: str = "g"
    members: Sequence[tuple[str, str | None, int]] = (("m", None, 3), ("s", "i", 4))
    topics: Mapping[str, Sequence[int]] = field(default_factory=lambda: {"t": (0, 1, 2, 3), "u": (0,)})
    without_member: bool = False
    checks_instance: bool = True
    oldest_version: int = 0
    most_metadata: int = 4096
    log_epoch: int = 0

    def lend(self, table: CommitTable, log: PartitionLog) -> CommitLease:
        return table.lend(
            self.group,
            log,
            self.log_epoch,
            self.members,
            [(name, topic_id(name), numbers) for name, numbers in self.topics.items()],
            without_member=self.without_member,
            checks_instance=self.checks_instance,
            oldest_version=self.oldest_version,
            most_metadata=self.most_metadata,
        )


def commit(
    topics: Iterable[tuple[str, Sequence[Offset]]] = (("t", (Offset(0, 10, 1, "x"),)),),
    *,
    group: str = "g",
    member: str = "m",
    generation: int = 3,
    instance: str | None = None,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    """A request; topics have names and ids, of which a version takes one."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequest.Topic(
                name=name,
                topic_id=UUID(bytes=topic_id(name)),
                partitions=[
                    OffsetCommitRequest.Topic.Partition(
                        partition_index=each.partition,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        committed_metadata=each.metadata,
                    )
                    for each in offsets
                ],
            )
            for name, offsets in topics
        ],
    )


def success(request: OffsetCommitRequest, version: int, correlation_id: int) -> bytes:
    """The reply of a request that is served, by the protocol's Python encoder."""
    response = OffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            OffsetCommitResponse.Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.Topic.Partition(partition_index=each.partition_index, error_code=0)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    return encode_response(KEY, version, correlation_id, response)


def by_python(body: bytes, version: int, correlation_id: int) -> bytes:
    """The reply of a request that the Python side has got, whole."""
    tags = b"\0" if version >= FIRST_FLEXIBLE else b""
    return struct.pack(">i", correlation_id) + tags + BY_PYTHON + body


def committed(request: OffsetCommitRequest, version: int, names: Mapping[UUID, str]) -> list[Told]:
    """The offsets of a request in its order; `names` by topic id."""
    return [
        (
            topic.name if version < 10 else names[topic.topic_id],
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch if version >= 6 else -1,
            each.committed_metadata or "",
        )
        for topic in request.topics
        for each in topic.partitions
    ]


def coordinators_batch(group: str, offsets: Iterable[Told], time_ms: int) -> bytes:
    """The batch that the group coordinator writes for these offsets."""
    records = [
        offset_commit(group, topic, partition, CommittedOffset(offset, epoch, metadata, time_ms))
        for topic, partition, offset, epoch, metadata in offsets
    ]
    pending = PendingOperation(Later(), None, None, time_ms, [])
    encode(records, pending, {})
    return build([pending], 1 << 20, 0)


def read(log: PartitionLog, start: int = 0) -> bytes:
    """The batches of a log, committed or not."""
    data, *_ = log.read(start, 1 << 26, isolation=READ_TO_LOG_END, leader_only=False)
    return bytes(data)


def entries(data: bytes) -> list[tuple[Any, Any]]:
    """Key and value of each record of some batches."""
    decoded = [GROUP_RECORDS.decode(each.key or b"", each.value) for each in iter_records(data, check_crc=True)]
    return [(each.key, each.value) for each in decoded if each is not None]


def told_of(stored: Iterable[tuple[Any, Any]]) -> list[Told]:
    """Keys and values as a lease tells them."""
    return [(key.topic, key.partition, value.offset, value.leader_epoch, value.metadata) for key, value in stored]


def check_batch(log: PartitionLog, start: int, group: str, offsets: Sequence[Told]) -> int:
    """The time of the one batch at `start`, which has the coordinator's bytes."""
    data = read(log, start)
    (batch,) = iter_batches(data, check_crc=True)
    assert batch.base_offset == start
    assert batch.leader_epoch == log.leader_epoch
    time_ms = int(batch.max_timestamp)
    assert abs(time_ms - now_ms()) < 86_400_000
    wanted = coordinators_batch(group, offsets, time_ms)
    # The log stamps base offset and leader epoch, which no checksum covers.
    assert data[8:12] + data[16:] == wanted[8:12] + wanted[16:]
    assert log.log_end_offset == log.high_watermark == start + len(offsets)
    assert [record.offset for record in iter_records(data)] == list(range(start, start + len(offsets)))
    stored = entries(data)
    assert {(key.group, value.commit_timestamp) for key, value in stored} == {(group, time_ms)}
    assert told_of(stored) == list(offsets)
    return time_ms


class Connection:
    """A raw connection; `correlation_id` is that of the latest request."""

    def __init__(self, port: int, client_id: str | None = "c") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self.correlation_id = 0

    def frame(self, request: OffsetCommitRequest | bytes, version: int) -> bytes:
        """The bytes of a request, also of one that no encoder would make."""
        self.correlation_id += 1
        nothing = OffsetCommitRequest(group_id="", topics=[])
        header = encode_request(KEY, version, self.correlation_id, self.client_id, nothing)
        header = header[: len(header) - len(nothing.encode(version))]
        body = request if isinstance(request, bytes) else request.encode(version)
        return struct.pack(">i", len(header) + len(body)) + header + body

    def send(self, request: OffsetCommitRequest | bytes, version: int) -> None:
        self.socket.sendall(self.frame(request, version))

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """A reply without its size."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def ask(self, request: OffsetCommitRequest | bytes, version: int) -> bytes:
        self.send(request, version)
        return self.receive()

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError("the broker has closed the connection")
            data += part
        return bytes(data)


class CommitBroker:
    """The server, its CommitTable, and logs; the control loop is a thread."""

    def __init__(self, *, network_threads: int = 1) -> None:
        self.events = EventQueue()
        self.plane = DataPlane(1, PartitionTable(), FetchSessionCache(10), self.events)
        self.table = CommitTable(self.plane)
        endpoints = [Endpoint("PLAINTEXT", "127.0.0.1", 0, SecurityProtocol.PLAINTEXT)]
        config = SocketServerConfig(endpoints, num_network_threads=network_threads, socket_request_max_bytes=1 << 20)
        apis = api_table({ApiKeys.OFFSET_COMMIT: ServedApi(0, 10, FIRST_FLEXIBLE)})
        self.server = SocketServer(config, self.plane, self.events, apis)
        self.logs: dict[int, PartitionLog] = {}
        self.given: list[tuple[int, bytes]] = []
        """Version and body of each request that came to Python."""
        self.questions: list[list[bytes]] = []
        """Each time that a request's authorization was asked."""
        self.allows: Callable[[bytes], bool] = lambda question: True
        self.before_answer: Callable[[], None] = lambda: None
        """Called before the answer to a question, and before the look at a request that came to Python."""
        self.logged = 0
        """Requests that the network threads gave to the request log."""
        self.quotas: Sequence[Any] = (None, None, None, None)
        self.errors: list[BaseException] = []
        self.connections: list[Connection] = []
        self._stop = threading.Event()
        self._loop = threading.Thread(target=self._serve, daemon=True)
        self.server.startup()
        self.server.enable_request_processing()
        self._loop.start()
        self.connection = self.connect()

    def connect(self, client_id: str | None = "c") -> Connection:
        connection = Connection(self.server.bound_port("PLAINTEXT"), client_id)
        self.connections.append(connection)
        return connection

    def log(self, *, storage: Any = None, isr: tuple[int, ...] = (1,), epoch: int = 0, **config: Any) -> PartitionLog:
        """A partition of __consumer_offsets that this broker leads."""
        number = len(self.logs)
        log = PartitionLog(
            "__consumer_offsets",
            number,
            storage or MemoryLogStorage(f"__consumer_offsets-{number}"),
            MemoryBroker.log_config(**config),
            events=self.events,
        )
        self.logs[log.id] = log
        log.prepare_segment()
        log.become_leader(1, epoch, isr)
        return log

    def lend(self, log: PartitionLog, terms: Terms | None = None) -> CommitLease:
        return (terms or Terms()).lend(self.table, log)

    # ---- what becomes of a request ----

    def serve(
        self,
        log: PartitionLog,
        request: OffsetCommitRequest | bytes,
        version: int,
        connection: Connection | None = None,
    ) -> bytes:
        """The reply, where it must be a network thread's."""
        connection = connection or self.connection
        body = request if isinstance(request, bytes) else request.encode(version)
        for _ in range(TRIES):
            reply = connection.ask(body, version)
            if reply != by_python(body, version, connection.correlation_id):
                return reply
            # A machine that is busy may make a log look slow, until another append has shown that it is not.
            self.append_marker(log)
        raise AssertionError("the request came to Python")

    @staticmethod
    def append_marker(log: PartitionLog) -> None:
        """One batch as the coordinator appends it."""
        batch = coordinators_batch("marker", [("t", 0, 0, -1, "")], now_ms())
        log.append_as_leader(batch, leader_epoch=log.leader_epoch)

    def check_served(
        self,
        log: PartitionLog,
        request: OffsetCommitRequest,
        version: int,
        names: Iterable[str] = ("t", "u"),
        connection: Connection | None = None,
    ) -> list[Told]:
        """The offsets of a request that a network thread serves as it should."""
        connection = connection or self.connection
        offsets = committed(request, version, {UUID(bytes=topic_id(name)): name for name in names})
        count = self.table.committed
        reply = self.serve(log, request, version, connection)
        assert reply == success(request, version, connection.correlation_id)
        assert self.table.committed == count + len(offsets)
        check_batch(log, log.log_end_offset - len(offsets), request.group_id, offsets)
        return offsets

    def check_declined(
        self,
        log: PartitionLog,
        request: OffsetCommitRequest | bytes,
        version: int,
        connection: Connection | None = None,
    ) -> None:
        """Python gets the request as it is, and the log gets nothing."""
        connection = connection or self.connection
        body = request if isinstance(request, bytes) else request.encode(version)
        end, count = log.log_end_offset, self.table.committed
        reply = connection.ask(body, version)
        assert reply == by_python(body, version, connection.correlation_id)
        assert self.given[-1] == (version, body)
        assert (log.log_end_offset, self.table.committed) == (end, count)

    # ---- the control loop ----

    def _serve(self) -> None:
        channel = self.server.request_channel
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        poller.register(self.events.fileno(), select.POLLIN)
        request: Any
        while not self._stop.is_set():
            poller.poll(50)
            for kind, handle, _, _ in self.events.drain():
                if kind == SEGMENT_WANTED:
                    self.logs[handle].prepare_segment()
                elif kind == REQUEST:
                    self.logged += 1
            for request in channel.drain():
                try:
                    self._handle(request)
                except BaseException as error:
                    self.errors.append(error)
            request = None

    def _handle(self, request: Any) -> None:
        if request.ask_kind == ASK_AUTHORIZE:
            questions = request.questions
            self.questions.append(questions)
            self.before_answer()
            request.answer_authorization([self.allows(question) for question in questions])
        elif request.ask_kind == ASK_QUOTAS:
            request.set_quotas(self.plane.quota_epoch, *self.quotas)
        else:
            assert request.ask_kind is None
            self.before_answer()
            body = bytes(request.body)
            self.given.append((request.api_version, body))
            request.reply(BY_PYTHON + body)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.server.shutdown(0.5)
        self._stop.set()
        self._loop.join(WAIT_S)
        assert not self._loop.is_alive()
        assert self.errors == []
