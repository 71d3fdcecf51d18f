"""A follower's questions to its leaders: which versions and connections they take, and what of an answer counts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy._speedups.replica.fetcher import OLDEST_VERSION
from kafkapy.clients.connection import FURTHER
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.clients import COMMON, ClientConfig
from kafkapy.errors import ErrorCode, KafkaError, UnsupportedVersionError
from kafkapy.protocol.messages.list_offsets import ListOffsetsResponse
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from kafkapy.protocol.registry import ApiKeys
from kafkapy.replica import leader_connections
from kafkapy.replica.fetcher_api import FollowerVersions
from kafkapy.replica.leader_connections import LeaderConnections
from kafkapy.replica.truncation import EpochEnd
from kafkapy.types import Endpoint, ListOffsetsTimestamp, TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
LATEST = ListOffsetsTimestamp.LATEST


class Served:
    """A connection to a leader of these versions."""

    def __init__(self, api_versions: dict[int, tuple[int, int]]) -> None:
        self.api_versions = api_versions

    def __str__(self) -> str:
        return "leader 1"


class Connections:
    """The clients' Connections without a network: notes what it is made with and asked for."""

    last: Connections
    answer: Any = None
    closed = False

    def __init__(self, client_config: ClientConfig, client_id: str, metrics: Any, node: Any, *_: Any) -> None:
        Connections.last = self
        self.client_config, self.client_id, self.node = client_config, client_id, node
        self.asked: list[int] = []
        self.sent: list[tuple[Any, int]] = []
        self.ended: list[str] = []
        self.leader = Served(
            {ApiKeys.FETCH: (4, 17), ApiKeys.LIST_OFFSETS: (0, 9), ApiKeys.OFFSET_FOR_LEADER_EPOCH: (0, 4)}
        )

    async def ready(self, node_id: int) -> Served:
        self.asked.append(node_id)
        return self.leader

    async def round_trip(self, connection: Served, request: Any, version: int) -> Any:
        assert connection is self.leader
        self.sent.append((type(request).decode(request.encode(version), version), version))
        return self.answer

    def hand_over(self, connection: Served) -> tuple[str, str, float]:
        assert connection is self.leader
        return "io", "channel", 77.5

    def cancel(self) -> list[Any]:
        self.ended.append("cancelled")
        return [SimpleNamespace(cancel=lambda: self.ended.append("task cancelled"))]

    def close(self) -> None:
        self.closed = True
        self.ended.append("closed")

    async def close_security(self) -> None:
        self.ended.append("security closed")


@pytest.fixture(autouse=True)
def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_connections, "Connections", Connections)


def connections(
    versions: FollowerVersions = FollowerVersions(),  # noqa: B008
    **keys: str,
) -> tuple[LeaderConnections, Connections]:
    names = {"log.dirs": "/x"} | {name.replace("_", "."): value for name, value in keys.items()}
    leaders = {1: Endpoint("PLAINTEXT", "host", 9092)}
    client_config = ClientConfig(COMMON, {"bootstrap.servers": ["127.0.0.1:1"]})
    return LeaderConnections(BrokerConfig(names), 2, client_config, leaders.get, versions), Connections.last


def test_they_are_made_as_the_broker_is_configured() -> None:
    _, made = connections(replica_socket_timeout_ms="7007", replica_fetch_wait_max_ms="500")
    config = made.client_config
    assert made.client_id == "broker-2-fetcher"
    assert config["request.timeout.ms"] == 7007
    assert [config[f"reconnect.backoff{each}.ms"] for each in ("", ".max")] == [0, 0]
    # The kernel sizes the buffer, unless the operator does.
    by_default = config["receive.buffer.bytes"]
    _, made = connections(replica_socket_receive_buffer_bytes="4321")
    assert made.client_config["receive.buffer.bytes"] == 4321 != by_default
    node = made.node(1 + 3 * FURTHER)
    assert (node.node_id, node.host, node.port) == (1 + 3 * FURTHER, "host", 9092)
    assert made.node(5) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "version"), [(17, (4, 17), 17), (12, (4, 17), 12), (17, (0, 11), 11), (99, (4, 99), 17)]
)
def test_a_fetcher_gets_a_connection_of_its_own(ours: int, theirs: tuple[int, int], version: int) -> None:
    made, network = connections(FollowerVersions(fetch=ours))
    network.leader.api_versions[ApiKeys.FETCH] = theirs
    told: list[tuple[Any, ...]] = []
    fetcher: Any = SimpleNamespace(connect=lambda *arguments: told.append(arguments))
    assert asyncio.run(made.connect(fetcher, 1, 3)) == 77.5
    assert (network.asked, told) == ([1 + 4 * FURTHER], [("io", "channel", version)])


@pytest.mark.parametrize("theirs", [None, (0, 3), (18, 20)])
def test_a_leader_of_other_versions_is_not_fetched_from(theirs: tuple[int, int] | None) -> None:
    made, network = connections()
    network.leader.api_versions = {} if theirs is None else {ApiKeys.FETCH: theirs}
    fetcher: Any = None
    message = f"leader 1 serves no Fetch of version {OLDEST_VERSION} to 17"
    with pytest.raises(UnsupportedVersionError, match=message):
        asyncio.run(made.connect(fetcher, 1, 0))


def offsets(*answers: tuple[str, int, dict[str, Any]]) -> ListOffsetsResponse:
    kind = ListOffsetsResponse.Topic
    return ListOffsetsResponse(
        topics=[
            kind(name=topic, partitions=[kind.Partition(partition_index=index, **fields)])
            for topic, index, fields in answers
        ]
    )


@pytest.mark.parametrize("newest", [1, 7, 9])
def test_an_offset_is_asked_for_as_a_replica(newest: int) -> None:
    made, network = connections(FollowerVersions(list_offsets=newest))
    network.answer = offsets(("u", 1, {"offset": 5}), ("t", 0, {"offset": 6}), ("t", 1, {"offset": 7}))
    assert asyncio.run(made.offset(1, T1, 33, LATEST)) == 7
    ((request, version),) = network.sent
    assert (network.asked, version, request.replica_id) == ([1], newest, 2)
    ((topic, (asked,)),) = [(each.name, each.partitions) for each in request.topics]
    assert (topic, asked.partition_index, asked.timestamp) == ("t", 1, -1)
    assert asked.current_leader_epoch == (33 if newest >= 4 else -1)


def test_the_first_of_several_offsets_of_an_old_leader_counts() -> None:
    made, network = connections()
    network.answer = offsets(("t", 0, {"old_style_offsets": [9, 4, 0], "offset": -1}))
    assert asyncio.run(made.offset(1, T0, 0, LATEST)) == 9


def test_an_offset_that_is_refused_or_missing_is_an_error() -> None:
    made, network = connections()
    network.answer = offsets(("t", 0, {"error_code": ErrorCode.FENCED_LEADER_EPOCH, "offset": 5}))
    for topic_partition, code, text in (
        (T0, ErrorCode.FENCED_LEADER_EPOCH, ""),
        (T1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the leader's answer lacks t-1"),
    ):
        with pytest.raises(KafkaError) as raised:
            asyncio.run(made.offset(1, topic_partition, 0, LATEST))
        assert raised.value.code is code
        assert text in str(raised.value)


def test_the_ends_of_epochs_are_asked_for_together_and_each_has_its_answer() -> None:
    made, network = connections(FollowerVersions(offset_for_leader_epoch=3))
    kind = OffsetForLeaderEpochResponse.Topic
    network.answer = OffsetForLeaderEpochResponse(
        topics=[
            kind(topic="t", partitions=[kind.Partition(partition=1, leader_epoch=4, end_offset=90)]),
            kind(topic="u", partitions=[kind.Partition(partition=0, error_code=ErrorCode.FENCED_LEADER_EPOCH)]),
            kind(topic="other", partitions=[kind.Partition(partition=0, leader_epoch=1, end_offset=1)]),
        ]
    )
    found = asyncio.run(made.epoch_ends(1, {T0: (7, 5), T1: (8, 6), U0: (9, 3)}))
    ((request, version),) = network.sent
    assert (network.asked, version, request.replica_id) == ([1], 3, 2)
    assert {
        (topic.topic, each.partition): (each.current_leader_epoch, each.leader_epoch)
        for topic in request.topics
        for each in topic.partitions
    } == {T0: (7, 5), T1: (8, 6), U0: (9, 3)}
    assert list(found) == [T0, T1, U0]
    assert found[T1] == EpochEnd(4, 90)
    missing, refused = found[T0], found[U0]
    assert isinstance(missing, KafkaError) and isinstance(refused, KafkaError)
    assert (missing.code, refused.code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH)
    assert "the leader's answer lacks the partition" in str(missing)


def test_they_are_closed_once() -> None:
    made, network = connections()

    async def close() -> None:
        await made.close()
        await made.close()

    asyncio.run(close())
    assert network.ended == ["cancelled", "task cancelled", "closed", "security closed"]
