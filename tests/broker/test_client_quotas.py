"""Quotas of clients on a broker: throttle times, muted channels, taken-back fetches, and changes without a restart."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from broker.conftest import Client, config
from broker.quota_requests import BYTES, Parts, alter, produce, produce_request
from waiting import wait_until

from kafkapy.broker.quota_callback import ClientQuotaCallback, QuotaType
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ConfigError, ErrorCode
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.metadata import MetadataRequest

Connect = Callable[[], Client]


def opened(server: KafkaServer) -> Client:
    endpoint = server.endpoints[0]
    return Client(endpoint.host, endpoint.port)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(config(tmp_path_factory.mktemp("quotas"), auto_create_topics_enable="false")) as started:
        yield started


@pytest.fixture
def connect(server: KafkaServer) -> Iterator[Connect]:
    clients: list[Client] = []

    def make() -> Client:
        clients.append(opened(server))
        return clients[-1]

    yield make
    for client in clients:
        client.socket.close()


@pytest.fixture
def quota(connect: Connect) -> Iterator[Callable[..., None]]:
    """Sets quotas of an entity; they are removed at the end of the test."""
    admin, done = connect(), list[tuple[Parts, list[str]]]()

    def put(parts: Parts, **values: float) -> None:
        alter(admin, parts, **values)
        done.append((parts, list(values)))

    yield put
    for parts, keys in done:
        alter(admin, parts, **dict.fromkeys(keys))


def fetch(client: Client, topic: str, client_id: str, offset: int = 0, version: int = 11, **fields: Any) -> Any:
    Topic = FetchRequest.Topic
    partition = Topic.Partition(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1, log_start_offset=-1,
        partition_max_bytes=10_000_000,
    )  # fmt: skip
    request = FetchRequest(
        **{
            "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000_000, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "topics": [Topic(topic=topic, partitions=[partition])],
            "forgotten_topics_data": [], "rack_id": "", **fields,
        }
    )  # fmt: skip
    return client(request, version, client_id)


def records_of(response: Any) -> int:
    return sum(len(part.records or b"") for topic in response.responses for part in topic.partitions)


def made_topic(client: Client, name: str, partitions: int = 1) -> str:
    client.create_topic(name, partitions)
    return name


# --- produce ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("fast-0", {"client-id": "fast-0"}),
        ("fast-1", {"client-id": None}),
        ("fast-2", {"user": "ANONYMOUS", "client-id": "fast-2"}),
        ("fast-3", {"user": None, "client-id": None}),
    ],
)
def test_a_producer_over_its_quota_is_answered_at_once_and_muted(
    connect: Connect, quota: Callable[..., None], name: str, parts: Parts
) -> None:
    client = connect()
    topic = made_topic(client, name)
    rate = BYTES / 10.5
    quota(parts, producer_byte_rate=math.ceil(rate))
    started = time.monotonic()
    throttle_ms = produce(client, topic, name)
    # One request within the first window: the rate is measured over ten windows.
    size = BYTES + 200
    assert throttle_ms == pytest.approx((size / 10 - rate) / rate * 10_000, rel=0.1)
    assert produce(client, topic, name, 10) >= 0
    assert time.monotonic() - started >= throttle_ms / 1000


def test_a_reply_is_not_delayed_by_its_throttle_time(connect: Connect, quota: Callable[..., None]) -> None:
    client = connect()
    topic = made_topic(client, "at-once")
    quota({"client-id": "slow"}, producer_byte_rate=100)
    assert produce(client, topic, "slow") > 100_000  # and yet the reply is here
    client.socket.close()


def test_acks_0_is_throttled_by_bytes(connect: Connect, quota: Callable[..., None]) -> None:
    from kafkapy.protocol.header import encode_request

    client = connect()
    topic = made_topic(client, "no-acks")
    quota({"client-id": "fire"}, producer_byte_rate=9_500)
    started = time.monotonic()
    client.send_frame(encode_request(0, 9, 1, "fire", produce_request(topic, acks=0)))
    client(MetadataRequest(topics=[]), 9, "fire")
    assert time.monotonic() - started >= 0.2


def test_other_clients_are_not_throttled(connect: Connect, quota: Callable[..., None]) -> None:
    one, other = connect(), connect()
    topic = made_topic(one, "others")
    quota({"client-id": "bounded"}, producer_byte_rate=1000)
    assert produce(one, topic, "bounded") > 0
    assert [produce(other, topic, "free") for _ in range(5)] == [0] * 5


def test_clients_share_the_quota_of_their_user_and_not_that_of_their_client_id(
    connect: Connect, quota: Callable[..., None]
) -> None:
    one, other = connect(), connect()
    topic = made_topic(one, "shared")
    quota({"user": "ANONYMOUS"}, producer_byte_rate=15_000)
    assert produce(one, topic, "one") == 0
    assert produce(other, topic, "other") > 0
    third, fourth = connect(), connect()
    quota({"user": "ANONYMOUS", "client-id": None}, producer_byte_rate=15_000)
    assert produce(third, topic, "third") == produce(fourth, topic, "fourth") == 0


def test_a_connection_follows_a_change_of_its_quota_and_client_id(connect: Connect, quota: Callable[..., None]) -> None:
    client, admin = connect(), connect()
    topic = made_topic(client, "changes")
    assert produce(client, topic, "changing") == 0
    quota({"client-id": "changing"}, producer_byte_rate=50)
    assert produce(client, topic, "unchanged") == 0
    alter(admin, {"client-id": "changing"}, producer_byte_rate=1e9)
    assert produce(client, topic, "changing") == 0
    alter(admin, {"client-id": "changing"}, producer_byte_rate=50)
    assert produce(client, topic, "changing") > 0


# --- fetch --------------------------------------------------------------------------------------------------------


def test_a_fetch_over_its_quota_is_empty_and_taken_back(connect: Connect, quota: Callable[..., None]) -> None:
    client = connect()
    topic = made_topic(client, "fetch")
    produce(client, topic, "feeder", 300_000)
    quota({"client-id": "eater"}, consumer_byte_rate=20_000)
    first = fetch(client, topic, "eater")
    # The first batch comes whole, however large; it is more than ten windows hold.
    assert first.throttle_time_ms > 0 and first.responses == [] and first.session_id == 0
    assert first.error_code == ErrorCode.NONE
    limited = connect()
    quota({"client-id": "eater"}, consumer_byte_rate=31_000)
    assert records_of(fetch(limited, topic, "eater")) > 300_000  # nothing of the first one counts


def test_the_reply_is_bounded_by_what_ten_windows_hold(connect: Connect, quota: Callable[..., None]) -> None:
    client = connect()
    topic = made_topic(client, "bounded-fetch")
    for _ in range(10):
        produce(client, topic, "feeder", 10_000)
    quota({"client-id": "nibbler"}, consumer_byte_rate=3_000)
    # Kafka bounds the records, not the bytes around them: the first response may be a little too large.
    responses = [fetch(client, topic, "nibbler") for _ in range(2)]
    found = next(each for each in responses if records_of(each))
    assert 0 < records_of(found) <= 30_000 and found.throttle_time_ms == 0


def test_a_throttled_fetch_keeps_its_session(connect: Connect, quota: Callable[..., None]) -> None:
    client, admin = connect(), connect()
    topic = made_topic(client, "session")
    produce(client, topic, "feeder", 200_000)
    opened_session = fetch(client, topic, "sitter", offset=1, session_epoch=0, min_bytes=0)
    assert opened_session.session_id > 0
    quota({"client-id": "sitter"}, consumer_byte_rate=19_000)
    throttled = fetch(client, topic, "sitter", session_id=opened_session.session_id, session_epoch=1)
    assert (throttled.error_code, throttled.session_id) == (0, opened_session.session_id)
    assert throttled.responses == [] and throttled.throttle_time_ms > 0
    alter(admin, {"client-id": "sitter"}, consumer_byte_rate=1e9)
    again = fetch(client, topic, "sitter", session_id=opened_session.session_id, session_epoch=2)
    assert records_of(again) > 200_000


@pytest.mark.parametrize("version", [0, 3, 4, 6, 7, 12])
def test_every_version_can_be_throttled(connect: Connect, quota: Callable[..., None], version: int) -> None:
    client = connect()
    topic = made_topic(client, f"fetch-{version}")
    produce(client, topic, "feeder", 200_000)
    quota({"client-id": "reader"}, consumer_byte_rate=10)
    response = fetch(client, topic, "reader", version=version)
    assert records_of(response) == 0
    if version >= 1:
        assert response.throttle_time_ms > 0
    client.socket.close()


# --- thread time --------------------------------------------------------------------------------------------------


def test_requests_of_the_control_plane_count_their_time(connect: Connect, quota: Callable[..., None]) -> None:
    client = connect()
    quota({"client-id": "asker"}, request_percentage=0.001)
    throttle_ms = client(MetadataRequest(topics=None), 9, "asker").throttle_time_ms
    assert 0 < throttle_ms <= 1000
    assert connect()(MetadataRequest(topics=None), 9, "free").throttle_time_ms == 0


def test_produce_and_fetch_count_their_time(connect: Connect, quota: Callable[..., None]) -> None:
    writer, reader = connect(), connect()
    topic = made_topic(writer, "time")
    produce(writer, topic, "feeder", 100)
    quota({"client-id": "timed"}, request_percentage=1e-6)
    assert produce(writer, topic, "timed", 100) == 1000
    response = fetch(reader, topic, "timed")
    assert (response.throttle_time_ms, response.responses) == (1000, [])


def test_an_error_has_its_throttle_time_too(connect: Connect, quota: Callable[..., None]) -> None:
    client = connect()
    quota({"client-id": "wrong"}, request_percentage=1e-6)
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=None)], timeout_ms=1000)
    response = client(request, 6, "wrong")
    assert response.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert response.throttle_time_ms == 1000


# --- controller mutations -----------------------------------------------------------------------------------------


def create(client: Client, version: int, client_id: str, *topics: tuple[str, int], validate_only: bool = False) -> Any:
    made = [
        CreateTopicsRequest.Topic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name, count in topics
    ]
    return client(CreateTopicsRequest(topics=made, timeout_ms=30_000, validate_only=validate_only), version, client_id)


def codes(results: Any) -> list[int]:
    return [each.error_code for each in results]


def test_strict_versions_refuse_what_does_not_fit(connect: Connect, quota: Callable[..., None]) -> None:
    client = connect()
    quota({"client-id": "maker"}, controller_mutation_rate=1)
    checked = create(client, 6, "maker", ("strict-0", 100), validate_only=True)
    assert (codes(checked.topics), checked.throttle_time_ms) == ([0], 0)
    response = create(client, 6, "maker", ("strict-1", 12), ("strict-2", 1))
    assert codes(response.topics) == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert 0 < response.throttle_time_ms <= 1000
    grown = CreatePartitionsRequest.Topic(name="strict-1", count=20, assignments=None)
    more = CreatePartitionsRequest(topics=[grown], timeout_ms=30_000, validate_only=False)
    first = client(more, 3, "maker")
    assert codes(first.results) in ([0], [ErrorCode.THROTTLING_QUOTA_EXCEEDED])
    named = [DeleteTopicsRequest.Topic(name="strict-1")]
    deleted = connect()(DeleteTopicsRequest(topics=named, timeout_ms=30_000), 6, "maker")
    if codes(first.results) == [0]:
        assert codes(deleted.responses) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert deleted.throttle_time_ms > 1000


def test_older_versions_are_throttled_afterwards(connect: Connect, quota: Callable[..., None]) -> None:
    client = connect()
    quota({"client-id": "old-maker"}, controller_mutation_rate=1)
    response = create(client, 5, "old-maker", ("loose-1", 12), ("loose-2", 1))
    assert codes(response.topics) == [0, 0]
    assert 1000 < response.throttle_time_ms <= 2000


# --- connections --------------------------------------------------------------------------------------------------


def test_a_throttled_client_that_leaves_is_noticed(
    server: KafkaServer, connect: Connect, quota: Callable[..., None]
) -> None:
    client, watcher = connect(), connect()
    topic = made_topic(watcher, "leaver")
    quota({"client-id": "leaver"}, producer_byte_rate=1)
    assert produce(client, topic, "leaver") > 3_600_000
    port = client.socket.getsockname()[1]
    connections = server._broker.socket_server.connections
    assert any(each["peer_port"] == port for each in connections())
    client.socket.close()
    wait_until(lambda: not any(each["peer_port"] == port for each in connections()), "the connection is closed")


def test_a_broker_with_throttled_clients_stops(tmp_path: Path) -> None:
    with KafkaServer(config(tmp_path)) as server:
        client, admin = opened(server), opened(server)
        topic = made_topic(admin, "stop")
        alter(admin, {"client-id": "bound"}, producer_byte_rate=1)
        assert produce(client, topic, "bound") > 0


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    with KafkaServer(config(tmp_path)) as server:
        admin = opened(server)
        topic = made_topic(admin, "restart")
        alter(admin, {"user": "ANONYMOUS", "client-id": "kept"}, producer_byte_rate=10)
    with KafkaServer(config(tmp_path)) as server:
        client = opened(server)
        assert produce(client, topic, "kept") > 0
        client.socket.close()


def test_windows_are_configured(tmp_path: Path) -> None:
    keys = {"quota_window_num": "2", "quota_window_size_seconds": "5"}
    with KafkaServer(config(tmp_path, **keys)) as server:
        client, admin = opened(server), opened(server)
        topic = made_topic(admin, "windows")
        alter(admin, {"client-id": "w"}, producer_byte_rate=BYTES // 10)
        assert produce(client, topic, "w") == pytest.approx(5_000, rel=0.1)


# --- policies of plugins ------------------------------------------------------------------------------------------


class Policy(ClientQuotaCallback):
    """Clients whose id begins with "team-" share the quota of their team."""

    def __init__(self) -> None:
        self.limit: float | None = 10.0
        self.reset = False
        self.updates: list[tuple[QuotaType, Mapping[str, str | None], float | None]] = []
        self.clusters = 0
        self.closed = False
        self.fails = False

    def quota_metric_tags(self, quota_type: QuotaType, principal: Any, client_id: str) -> Mapping[str, str]:
        if self.fails:
            raise ValueError("no tags today")
        return {"team": client_id.split("-")[1]} if client_id.startswith("team-") else {}

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.limit if quota_type is QuotaType.PRODUCE and metric_tags else None

    def update_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None], value: float) -> None:
        self.updates.append((quota_type, entity, value))

    def remove_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None]) -> None:
        self.updates.append((quota_type, entity, None))

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        reset, self.reset = self.reset, False
        return reset

    def update_cluster_metadata(self, cluster: Any) -> bool:
        self.clusters += 1
        return False

    def close(self) -> None:
        self.closed = True


def plugins_with(policy: Policy) -> PluginManager:
    class Plugin:
        @hookimpl
        def register_quota_managers(self) -> Any:
            return {"teams": lambda config: policy}

    plugins = PluginManager.load()
    plugins.register(Plugin(), "mine")
    return plugins


def test_a_policy_of_a_plugin_decides(tmp_path: Path) -> None:
    policy = Policy()
    with KafkaServer(config(tmp_path, client_quota_callback_class="teams"), plugins_with(policy)) as server:
        admin = opened(server)
        topic = made_topic(admin, "teams")
        assert produce(opened(server), topic, "team-red-1") > 0
        assert produce(opened(server), topic, "team-red-2", 1) > 0  # shares the violated quota
        assert produce(opened(server), topic, "somebody") == 0
        alter(admin, {"user": "a"}, producer_byte_rate=7.0)
        alter(admin, {"user": "a"}, producer_byte_rate=None)
        assert policy.updates == [(QuotaType.PRODUCE, {"user": "a"}, 7.0), (QuotaType.PRODUCE, {"user": "a"}, None)]
        policy.limit, policy.reset = None, True
        wait_until(lambda: produce(opened(server), topic, "team-blue-1", 1) == 0, "the policy's change is in force")
        wait_until(lambda: policy.clusters > 0, "the policy hears of the cluster's metadata")
        policy.fails = True
        assert produce(opened(server), topic, "team-green-1") == 0
    assert policy.closed


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    server = KafkaServer(config(tmp_path, client_quota_callback_class="no.such.Callback"))
    with pytest.raises(ConfigError, match=r"client\.quota\.callback\.class.*default"):
        server.start()
