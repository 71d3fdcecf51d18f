"""A SocketServer over a data plane with partitions in memory, a Python side that answers, and raw sockets that speak
Kafka frames."""

from __future__ import annotations

import contextlib
import hashlib
import select
import socket
import ssl
import struct
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from cryptography import x509

from kafkapy._speedups.base.event_queue import CONNECTION_CLOSED, LOG_LINE, REQUEST, SEGMENT_WANTED, EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.network.network_request import ASK_PRINCIPAL
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.network.socket_server import ListenerSecurity, SocketServer, SocketServerConfig
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import Endpoint, SecurityProtocol

ECHO = 3
"""The API key (Metadata) that the Python side answers with the request's own body."""

APIS = {
    0: (3, 13, 9, True),
    1: (4, 18, 12, True),
    3: (0, 12, 9, False),
    17: (0, 1, None, False),
    18: (0, 4, 3, False),
    36: (0, 2, 2, False),
}


def eventually(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """Waits until the condition holds and returns what it gave."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen")
        time.sleep(0.002)
    return value


def protocol_of(security: ListenerSecurity | None) -> SecurityProtocol:
    if security is None or (security.tls is None and not security.sasl):
        return SecurityProtocol.PLAINTEXT
    if security.tls is None:
        return SecurityProtocol.SASL_PLAINTEXT
    return SecurityProtocol.SASL_SSL if security.sasl else SecurityProtocol.SSL


class Client:
    """One raw connection."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        source: str | None = None,
        tls: ssl.SSLContext | None = None,
        session: ssl.SSLSession | None = None,
    ) -> None:
        self.socket = socket.create_connection((host, port), 10, None if source is None else (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host, session=session)

    @staticmethod
    def frame(
        body: bytes = b"", *, key: int = ECHO, version: int = 5, correlation_id: int = 1, client_id: str = "c"
    ) -> bytes:
        name = client_id.encode()
        header = struct.pack(">hhih", key, version, correlation_id, len(name)) + name
        if key in APIS and version >= (APIS[key][2] or 99):
            header += b"\0"
        return struct.pack(">i", len(header) + len(body)) + header + body

    def send(self, body: bytes = b"", **header: Any) -> None:
        self.socket.sendall(self.frame(body, **header))

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> tuple[int, bytes]:
        """(correlation id, what follows it). EOFError when the broker closes the connection."""
        size = struct.unpack(">i", self._exactly(4))[0]
        payload = self._exactly(size)
        return struct.unpack(">i", payload[:4])[0], payload[4:]

    def ask(self, body: bytes = b"", **header: Any) -> bytes:
        self.send(body, **header)
        return self.receive()[1]

    def closed_by_broker(self) -> bool:
        """Waits for the end of the stream; False when there are bytes instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def silent(self, seconds: float = 0.05) -> bool:
        """Whether nothing comes for that long."""
        return not select.select([self.socket], [], [], seconds)[0]

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Goes away at once, as a client that has crashed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(min(size - len(parts), 1 << 20))
            except ConnectionError:
                raise EOFError from None
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)


class Network:
    """A running SocketServer and its control loop, which is a thread here. `handler` answers what comes to Python."""

    def __init__(self, listeners: tuple[str, ...] = ("PLAINTEXT",), **config: Any) -> None:
        self.events = EventQueue()
        self.table = PartitionTable()
        self.plane = DataPlane(1, self.table, FetchSessionCache(100), self.events)
        security = config.get("listener_security", {})
        endpoints = [Endpoint(name, "127.0.0.1", 0, protocol_of(security.get(name))) for name in listeners]
        values = {"num_network_threads": 2, "socket_request_max_bytes": 1 << 20, **config}
        self.server = SocketServer(SocketServerConfig(endpoints, **values), self.plane, self.events, APIS)
        self.handler: Callable[[Any], None] = self.echo
        self.errors: list[BaseException] = []
        self.log_lines: list[str] = []
        self.closed_connections: list[int] = []
        self.logged_requests: list[int] = []
        self.clients: list[Client] = []
        self.logs: dict[int, PartitionLog] = {}
        self._events_lock = threading.Lock()
        self._stop = threading.Event()
        self._loop = threading.Thread(target=self._serve, daemon=True)
        self.server.startup()
        self.server.enable_request_processing()
        self._loop.start()

    @staticmethod
    def echo(request: Any) -> None:
        if request.ask_kind == ASK_PRINCIPAL:
            subject = x509.load_der_x509_certificate(request.peer_certificate).subject
            request.authenticated(f"User:{subject.rfc4514_string()}")
        elif request.ask_kind is None:
            request.reply(request.body)
        else:
            request.answer_authorization([True] * request.question_count)

    def client(self, listener: str = "PLAINTEXT", **options: Any) -> Client:
        client = Client(self.server.bound_port(listener), **options)
        self.clients.append(client)
        return client

    def lines(self) -> list[str]:
        """Every log line so far."""
        self._drain_events()
        return self.log_lines

    def counters(self) -> dict[str, Any]:
        return self.server.counters()

    # ---- partitions, Produce and Fetch ----

    def topic(self, name: str, isr: tuple[int, ...] = (1,), **config: Any) -> PartitionLog:
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
        } | config
        topic_id = hashlib.md5(name.encode()).digest()
        self.table.put(name, topic_id, 1)
        log = PartitionLog(
            name,
            0,
            MemoryLogStorage(f"{name}-0"),
            types.SimpleNamespace(**values),
            events=self.events,
            topic_id=topic_id,
        )
        log.prepare_segment()
        log.become_leader(1, 0, isr)
        self.logs[log.id] = log
        self.table.set_log(name, 0, log)
        return log

    @staticmethod
    def batch(*values: bytes) -> bytes:
        builder = RecordBatchBuilder()
        for value in values:
            builder.append(1_700_000_000_000, b"k", value)
        return builder.build(0)

    def produce_frame(
        self, topic: str, records: bytes, *, acks: int = 1, timeout_ms: int = 30_000, correlation_id: int = 1
    ) -> bytes:
        partition = ProduceRequest.Topic.Partition(index=0, records=records)
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[ProduceRequest.Topic(name=topic, partition_data=[partition])],
        )
        return Client.frame(request.encode(9), key=0, version=9, correlation_id=correlation_id)

    def fetch_frame(
        self,
        topic: str,
        offset: int = 0,
        *,
        more: Sequence[str] = (),
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        correlation_id: int = 1,
    ) -> bytes:
        partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=1 << 25,
            session_id=0,
            session_epoch=-1,
            topics=[FetchRequest.Topic(topic=each, partitions=[partition]) for each in (topic, *more)],
            forgotten_topics_data=[],
        )
        return Client.frame(request.encode(12), key=1, version=12, correlation_id=correlation_id)

    @staticmethod
    def produced(payload: bytes) -> Any:
        """The one partition of a Produce reply."""
        return ProduceResponse.decode(payload[1:], 9).responses[0].partition_responses[0]

    @staticmethod
    def fetched(payload: bytes) -> Any:
        """The one partition of a Fetch reply."""
        return FetchResponse.decode(payload[1:], 12).responses[0].partitions[0]

    # ---- the control loop ----

    def _serve(self) -> None:
        channel = self.server.request_channel
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        poller.register(self.events.fileno(), select.POLLIN)
        turn = 0
        while not self._stop.is_set():
            poller.poll(50)
            self._drain_events()
            turn += 1
            if turn % 2:  # every other turn as the broker does it: the replies go out together
                channel.hold_replies()
            for request in channel.drain():
                try:
                    self.handler(request)
                except BaseException as error:
                    self.errors.append(error)
            channel.let_go_of_replies()
            request = None

    def _drain_events(self) -> None:
        with self._events_lock:
            for kind, handle, _, text in self.events.drain():
                if kind == LOG_LINE:
                    self.log_lines.append(text.decode())
                elif kind == SEGMENT_WANTED:
                    self.logs[handle].prepare_segment()
                elif kind == CONNECTION_CLOSED:
                    self.closed_connections.append(handle)
                elif kind == REQUEST:
                    self.logged_requests.append(handle)

    def close(self) -> None:
        if self._stop.is_set():
            return
        for client in self.clients:
            client.close()
        self.server.shutdown(0.5)
        self._stop.set()
        self._loop.join(10)
        assert self.server.stopped
        assert not self.errors, self.errors


@pytest.fixture
def network() -> Iterator[Callable[..., Network]]:
    """Makes running networks: network(listeners=..., **SocketServerConfig values)."""
    with contextlib.ExitStack() as stack:

        def make(**config: Any) -> Network:
            made = Network(**config)
            # Weakly: a test may want to see a network become garbage.
            stack.callback(lambda reference: (alive := reference()) and alive.close(), weakref.ref(made))
            return made

        yield make


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., Any]:
    return eventually
