"""An in-process broker on a free port, and a client of raw frames for it."""

from __future__ import annotations

import itertools
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkapy.broker import apis
from kafkapy.broker.controller_order import ControllerOrder
from kafkapy.broker.handlers import served_apis
from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import decode_response, encode_request
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.schema import Request
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType, CoordinatorType

logging.getLogger("kafka").setLevel(logging.WARNING)


def config(directory: Path, **keys: str) -> BrokerConfig:
    """A broker's configuration for tests; keys are written with underscores for dots."""
    values = {
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "num.network.threads": "1",
        "num.partitions": "1",
        "log.initial.task.delay.ms": "600000",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
    } | {key.replace("_", "."): value for key, value in keys.items()}
    return BrokerConfig.from_properties(Properties().override([f"{key}={value}" for key, value in values.items()]))


class Client:
    """A connection that speaks in declared messages: what is sent is what is declared, nothing is negotiated."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=30)
        self._correlation = itertools.count(1)

    def __call__(self, request: Request, version: int, client_id: str | None = "test") -> Any:
        """Send a request, and the response."""
        correlation = next(self._correlation)
        self.send_frame(encode_request(request.API_KEY, version, correlation, client_id, request))
        frame = self.receive_frame()
        answered, response = decode_response(request.API_KEY, version, frame)
        assert answered == correlation
        return response

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        """Create a topic; config keys are written with underscores for dots."""
        topic = CreateTopicsRequest.Topic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[
                CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        result = self(CreateTopicsRequest(topics=[topic]), 7).topics[0]
        assert result.error_code == ErrorCode.NONE, result.error_message
        topic_id: UUID = result.topic_id
        return topic_id

    def topic_id(self, name: str) -> UUID:
        """The id of a topic; the zero id where there is none."""
        asked = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
        found: UUID = self(asked, 12).topics[0].topic_id
        return found

    def produce(
        self,
        topic: str,
        records: Sequence[tuple[int, bytes | None]],
        partition: int = 0,
        transactional_id: str | None = None,
        **producer: int,
    ) -> Any:
        """Append one batch of (timestamp in ms, value) with acks=all; the partition's response."""
        builder = RecordBatchBuilder(max_size=1_000_000)
        for timestamp, value in records:
            builder.append(timestamp, None, value, [])
        data = ProduceRequest.Topic.Partition(index=partition, records=builder.build(CompressionType.NONE, **producer))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[ProduceRequest.Topic(name=topic, partition_data=[data])],
        )
        response = self(request, 9).responses[0].partition_responses[0]
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
        return response

    def coordinate_transactions(self, transactional_id: str) -> None:
        """Have the broker coordinate the id: its topic is created, and its partition is loaded."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            asked = FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=CoordinatorType.TRANSACTION)
            if self(asked, 4).coordinators[0].error_code == ErrorCode.NONE:
                described = self(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
                if described.transaction_states[0].error_code in (
                    ErrorCode.NONE,
                    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                ):
                    return
            time.sleep(0.01)
        raise TimeoutError(transactional_id)

    def send_frame(self, frame: bytes) -> None:
        """Send bytes behind their size."""
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        """The next frame. ConnectionError when the broker has closed the connection."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def is_closed(self) -> bool:
        """Whether the broker closes the connection; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker has closed the connection")
            data += part
        return data


@pytest.fixture(autouse=True, scope="module")
def between_brokers(request: pytest.FixtureRequest) -> Iterator[None]:
    """In modules with SERVES_BROKERS a broker serves the APIs between brokers, as in a cluster."""
    with pytest.MonkeyPatch.context() as patch:
        if getattr(request.module, "SERVES_BROKERS", False):
            patch.setattr(apis, "served_apis", lambda _, zookeeper, telemetry: served_apis(True, zookeeper, telemetry))
        yield


@pytest.fixture(autouse=True)
def _as_another_controller(request: pytest.FixtureRequest) -> None:
    """The requests of each test are numbered anew, as no controller does."""
    if getattr(request.module, "SERVES_BROKERS", False) and "broker" in request.fixturenames:
        request.getfixturevalue("broker").context.controller_order = ControllerOrder()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One broker for all tests of a module; they use topics of their own."""
    with KafkaServer(config(tmp_path_factory.mktemp("broker"))) as server:
        yield server


@pytest.fixture
def connect(broker: KafkaServer) -> Iterator[Callable[..., Client]]:
    """Opens connections to the shared broker, or to the one given; closes them after the test."""
    opened: list[Client] = []

    def make(server: KafkaServer = broker) -> Client:
        endpoint = server.endpoints[0]
        opened.append(Client(endpoint.host, endpoint.port))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    """A connection to the shared broker."""
    return connect()


@pytest.fixture
def make_config() -> Callable[..., BrokerConfig]:
    """Configurations for brokers of a test's own."""
    return config


_names = itertools.count(1)


@pytest.fixture
def topic_name() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_names)}"
