"""Brokers that answer as a test says, on the test's own loop: for failures that no real broker shows on demand."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.api_versions import ApiVersionsResponse
from kafkapy.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import Request, Response

VERSIONS = {
    ApiKeys.PRODUCE: (3, 11),
    ApiKeys.METADATA: (0, 13),
    ApiKeys.FIND_COORDINATOR: (0, 6),
    ApiKeys.API_VERSIONS: (0, 5),
    ApiKeys.LIST_GROUPS: (0, 5),
}


class Cut(Exception):
    """Raised by a handler: the connection is closed, after these bytes."""

    def __init__(self, after: bytes = b"") -> None:
        self.after = after


class Silence(Exception):
    """Raised by a handler: no answer comes."""


Handler = Callable[[int, Any], "Response | Awaitable[Response]"]


class FakeBroker:
    """One listening socket. `on[api key] = handler(version, request)` replaces what it would answer by itself.

    `requests` holds (api key, version, request) of everything that came; `connections` counts the accepted ones.
    """

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.port = 0
        self.on: dict[int, Handler] = {}
        self.versions = dict(VERSIONS)
        self.requests: list[tuple[int, int, Any]] = []
        self.clients: list[str | None] = []
        self.connections = 0
        self.tls: ssl.SSLContext | None = None
        """Connections are TLS with it; to be set before `start`."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """No more connections are accepted, and those that are there are cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.cut()

    async def cut(self) -> None:
        for writer in list(self._writers):
            writer.close()
        await asyncio.sleep(0)

    def seen(self, api_key: int) -> list[Any]:
        return [request for key, _, request in self.requests if key == api_key]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                writer.write(await self._answer(await reader.readexactly(size)))
                await writer.drain()
        except Cut as cut:
            writer.write(cut.after)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, frame: bytes) -> bytes:
        api_key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        served = self.versions.get(ApiKeys(api_key), (0, -1))
        if api_key == ApiKeys.API_VERSIONS and version > served[1]:
            correlation_id = int.from_bytes(frame[4:8], "big")
            self.requests.append((api_key, version, None))
            return self._framed(encode_response(api_key, 0, correlation_id, self.refused_api_versions()))
        assert served[0] <= version <= served[1], f"version {version} of {ApiKeys(api_key).title} is not served"
        header, request = decode_request(frame)
        self.requests.append((api_key, version, request))
        self.clients.append(header.client_id)
        handler = self.on.get(api_key, self._own_answer)
        try:
            response: Any = handler(version, request)
            if isinstance(response, Awaitable):
                response = await response
        except Silence:
            return b""
        return self._framed(encode_response(api_key, version, header.correlation_id, response))

    @staticmethod
    def _framed(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    def refused_api_versions(self) -> ApiVersionsResponse:
        """As Apache Kafka answers a version that is too new: since 2.4 with what it serves of this API."""
        response = self.api_versions()
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        response.api_keys = [each for each in response.api_keys if each.api_key == ApiKeys.API_VERSIONS]
        return response

    def api_versions(self) -> ApiVersionsResponse:
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def _own_answer(self, version: int, request: Request) -> Response:
        if isinstance(request, MetadataRequest):
            return self.cluster.metadata(request)
        if request.API_KEY == ApiKeys.API_VERSIONS:
            return self.api_versions()
        raise Cut


class FakeCluster:
    """Brokers 1 to `size`, and the metadata they all give. An async context manager."""

    def __init__(self, size: int = 1) -> None:
        self.brokers = {node_id: FakeBroker(self, node_id) for node_id in range(1, size + 1)}
        self.named = dict(self.brokers)
        """The brokers that metadata names."""
        self.controller_id = 1
        self.leaders: dict[str, dict[int, tuple[int, int]]] = {}
        """topic: {partition: (leader, epoch)}."""
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.topic_errors: dict[str, int] = {}
        self.throttle_ms = 0

    def __getitem__(self, node_id: int) -> FakeBroker:
        return self.brokers[node_id]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def create(self, topic: str, leaders: dict[int, tuple[int, int]]) -> None:
        self.leaders[topic] = leaders
        self.topic_ids[topic] = uuid.uuid4()

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        asked = list(self.leaders) if request.topics is None else [str(topic.name) for topic in request.topics]
        return MetadataResponse(
            throttle_time_ms=self.throttle_ms,
            brokers=[
                MetadataResponse.Broker(node_id=broker.node_id, host="127.0.0.1", port=broker.port)
                for broker in self.named.values()
            ],
            cluster_id="fake",
            controller_id=self.controller_id,
            topics=[self._topic(name) for name in asked],
        )

    def _topic(self, name: str) -> MetadataResponse.Topic:
        error = self.topic_errors.get(name, 0 if name in self.leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            MetadataResponse.Topic.Partition(
                partition_index=number,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[leader],
                isr_nodes=[leader],
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else 0,
            )
            for number, (leader, epoch) in self.leaders.get(name, {}).items()
        ]
        return MetadataResponse.Topic(
            error_code=error,
            name=name,
            topic_id=self.topic_ids.get(name, uuid.UUID(int=0)),
            partitions=[] if error else partitions,
        )

    async def __aenter__(self) -> FakeCluster:
        for broker in self.brokers.values():
            await broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            with contextlib.suppress(OSError):
                await broker.stop()


async def eventually(condition: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """Waits until the condition holds and returns what it gave."""
    async with asyncio.timeout(timeout_s):
        while not (value := condition()):
            await asyncio.sleep(0.005)
        return value
