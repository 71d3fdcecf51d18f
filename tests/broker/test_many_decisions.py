"""Requests that name very many topics: an authorizer decides in slices, and other clients' requests get in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from broker.conftest import Client
from broker.conftest import config as broker_config
from waiting import wait_until

from kafkapy.broker.context import DECISIONS
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.schema import Request
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.security.authorizer.allow_all import AllowAllAuthorizer
from kafkapy.security.authorizer.base import AuthorizationResult
from kafkapy.types import CompressionType, ResourceType

TOPICS = 50_000
NAMES = [f"denied-{number:05d}" for number in range(TOPICS)]
PATIENT, OTHER = "patient", "other"
"""Client ids: of the client with the large request, and of another one."""


class Counting(AllowAllAuthorizer):
    """Denies topics that begin with "denied", and notes how many topics each client has asked about, by call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str | None, int]] = []
        self.after_first: Callable[[], None] = lambda: None
        """Called in the first decisions about the large request."""

    @property
    def decisions_epoch(self) -> int:
        return 1

    def authorize(self, context: Any, actions: Sequence[Any]) -> list[AuthorizationResult]:
        if actions[0].resource_type is ResourceType.TOPIC:
            self.calls.append((context.client_id, len(actions)))
            if context.client_id == PATIENT:
                after, self.after_first = self.after_first, lambda: None
                after()
        return [
            AuthorizationResult.DENIED if each.resource_name.startswith("denied") else AuthorizationResult.ALLOWED
            for each in actions
        ]


@pytest.fixture(scope="module")
def authorizer() -> Counting:
    return Counting()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authorizer: Counting) -> Iterator[KafkaServer]:
    class Plugin:
        @hookimpl
        def register_authorizers(self) -> Any:
            return {"counting": lambda: authorizer}

    plugins = PluginManager.load()
    plugins.register(Plugin(), "mine")
    directory: Path = tmp_path_factory.mktemp("decisions")
    with KafkaServer(broker_config(directory, authorizer_class_name="counting"), plugins) as running:
        yield running


def produce() -> Request:
    builder = RecordBatchBuilder(max_size=1000)
    builder.append(1, None, b"x", [])
    records = builder.build(CompressionType.NONE)
    part = ProduceRequest.Topic.Partition(index=0, records=records)
    topics = [ProduceRequest.Topic(name=name, partition_data=[part]) for name in NAMES]
    return ProduceRequest(transactional_id=None, acks=1, timeout_ms=10_000, topic_data=topics)


def fetch() -> Request:
    part = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchRequest.Topic(topic=name, partitions=[part]) for name in NAMES]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_id=0, session_epoch=-1, topics=topics)


def commit() -> Request:
    part = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequest.Topic(name=name, partitions=[part]) for name in NAMES]
    return OffsetCommitRequest(group_id="g", topics=topics)


def heartbeat() -> Request:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=NAMES,
        topic_partitions=[],
    )


def errors_of(response: Any) -> list[int]:
    if hasattr(response, "member_epoch"):
        return [response.error_code]
    topics = response.responses if hasattr(response, "responses") else response.topics
    parts = [getattr(topic, "partition_responses", None) or topic.partitions for topic in topics]
    return [each.error_code for topic in parts for each in topic]


@pytest.mark.parametrize(
    ("request_of", "version", "answers"),
    [(produce, 9, TOPICS), (fetch, 12, TOPICS), (commit, 8, TOPICS), (heartbeat, 0, 1)],
)
def test_another_clients_request_gets_in_between(
    server: KafkaServer, authorizer: Counting, request_of: Callable[[], Request], version: int, answers: int
) -> None:
    patient, other = (Client(server.endpoints[0].host, server.endpoints[0].port) for _ in range(2))
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name="open")], allow_auto_topic_creation=False)
    counters = server.socket_server.request_channel.counters

    def send_the_other() -> None:
        # On the control loop, which therefore cannot take the request before this returns.
        before = counters()["requests"]
        other.send_frame(encode_request(asked.API_KEY, 9, 1, OTHER, asked))
        wait_until(lambda: counters()["requests"] > before, "the other request waits for the control loop")

    authorizer.calls.clear()
    authorizer.after_first = send_the_other
    assert errors_of(patient(request_of(), version, PATIENT)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * answers
    other.receive_frame()
    patient.close()
    other.close()
    clients = [client for client, _ in authorizer.calls]
    assert sum(count for client, count in authorizer.calls if client == PATIENT) == TOPICS
    assert max(count for _, count in authorizer.calls) <= DECISIONS
    # One turn of the loop lies between two slices: the other request is decided after the first slice or the second.
    assert OTHER in clients[1:3]
