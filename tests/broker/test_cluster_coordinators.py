"""Three brokers in this process: each leads, and coordinates, a third of everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.conftest import Client
from broker.handlers import share_groups
from broker.handlers.conftest import GroupClient

from kafkapy import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkapy.coordinator.share.state import ShareKey, ShareSummary, StateBatch
from kafkapy.errors import ErrorCode, FencedLeaderEpochError
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.testing.cluster import Cluster
from kafkapy.types import CoordinatorType

WITHIN_S = 60
GROUPS = [f"group-{number}" for number in range(12)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(
        3,
        default_replication_factor=1,
        min_insync_replicas=1,
        offsets_topic_replication_factor=1,
        offsets_topic_num_partitions=6,
        transaction_state_log_replication_factor=1,
        transaction_state_log_min_isr=1,
        transaction_state_log_num_partitions=6,
        share_coordinator_state_topic_replication_factor=1,
        share_coordinator_state_topic_min_isr=1,
        share_coordinator_state_topic_num_partitions=6,
        num_partitions=3,
        group_initial_rebalance_delay_ms=0,
    ) as running:
        yield running


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[dict[int, Client]]:
    """A raw connection to each broker."""
    made = {}
    for broker_id, broker in cluster.brokers.items():
        endpoint = broker.server.endpoints[0]
        made[broker_id] = Client(endpoint.host, endpoint.port)
    yield made
    for each in made.values():
        each.close()


def eventually(ask: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while not wanted(answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(answer)
        time.sleep(0.01)
    return answer


def coordinator(client: Client, key: str, kind: CoordinatorType) -> int:
    found = eventually(
        lambda: client(FindCoordinatorRequest(key=key, key_type=kind), 1),
        lambda each: each.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
    assert found.error_code == ErrorCode.NONE
    return int(found.node_id)


@pytest.mark.parametrize("kind", [CoordinatorType.GROUP, CoordinatorType.TRANSACTION])
def test_every_broker_names_the_same_coordinator(clients: dict[int, Client], kind: CoordinatorType) -> None:
    named = {key: {coordinator(client, key, kind) for client in clients.values()} for key in GROUPS}
    assert all(len(ids) == 1 for ids in named.values()), named
    assert set.union(*named.values()) == {1, 2, 3}


def test_other_brokers_refuse_the_requests_of_a_group(clients: dict[int, Client]) -> None:
    at = coordinator(clients[1], "group-0", CoordinatorType.GROUP)
    for broker_id, client in clients.items():
        described = client(DescribeGroupsRequest(groups=["group-0"]), 5).groups[0]
        deleted = client(DeleteGroupsRequest(groups_names=["group-0"]), 2).results[0]
        if broker_id == at:
            assert deleted.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        else:
            assert described.error_code == ErrorCode.NOT_COORDINATOR
            assert deleted.error_code == ErrorCode.NOT_COORDINATOR


def test_producer_ids_of_all_brokers_are_different(clients: dict[int, Client]) -> None:
    ids = []
    for _ in range(3):
        for client in clients.values():
            answer = eventually(
                lambda client=client: client(  # type: ignore[misc]
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4
                ),
                lambda each: each.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            )
            assert answer.error_code == ErrorCode.NONE
            ids.append(answer.producer_id)
    assert len(set(ids)) == 9
    assert len({number // 1000 for number in ids}) >= 3, "each broker has a block of its own"


def test_a_topic_is_created_through_any_broker(cluster: Cluster, clients: dict[int, Client]) -> None:
    for broker_id, client in clients.items():
        name = f"made-by-{broker_id}"
        request = MetadataRequest(topics=[MetadataRequest.Topic(name=name)])
        found = eventually(
            lambda client=client, request=request: client(request, 9).topics[0],  # type: ignore[misc]
            lambda topic: topic.error_code == ErrorCode.NONE,
        )
        assert len(found.partitions) == 3
    assert cluster.controller_id in clients


@pytest.mark.parametrize("number", range(6))
def test_transactions_span_partitions_offsets_and_coordinators_of_all_brokers(cluster: Cluster, number: int) -> None:
    source, target, group = f"source-{number}", f"target-{number}", f"copies-{number}"
    for topic in (source, target):
        cluster.create_topic(topic, 3)
    servers = cluster.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers) as plain:
        for value in range(30):
            plain.send(source, b"%d" % value, partition=value % 3)
    committed = number % 2 == 0
    with (
        KafkaProducer(bootstrap_servers=servers, transactional_id=f"copier-{number}") as producer,
        KafkaConsumer(
            source,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        taken: list[Any] = []
        eventually(lambda: taken.extend(_poll(consumer)) or len(taken), lambda count: count >= 30)
        for record in taken:
            producer.send(target, record.value, partition=record.partition)
        positions = {where: OffsetAndMetadata(consumer.position(where)) for where in consumer.assignment()}
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        if committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    parts = [TopicPartition(source, each) for each in range(3)]
    with KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False) as reader:
        # Offsets of a transaction that is being ended are waited for.
        offsets = [reader.committed(part) for part in parts]
    assert offsets == ([10, 10, 10] if committed else [None, None, None])
    with KafkaConsumer(
        target, bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as reader:
        with KafkaProducer(bootstrap_servers=servers) as plain:
            for part in range(3):
                plain.send(target, b"end", partition=part)
        values: list[bytes] = []
        eventually(
            lambda: values.extend(each.value for each in _poll(reader)) or values.count(b"end"),
            lambda ends: ends == 3,
        )
    copied = sorted(value for value in values if value != b"end")
    assert copied == (sorted(b"%d" % value for value in range(30)) if committed else [])


def _poll(consumer: KafkaConsumer) -> list[Any]:
    return [record for records in consumer.poll(200).values() for record in records]


def test_offsets_of_a_deleted_topic_go_at_every_coordinator(cluster: Cluster, clients: dict[int, Client]) -> None:
    cluster.create_topic("deleted", 1)
    part = TopicPartition("deleted", 0)

    def consumer(group: str) -> KafkaConsumer:
        return KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False)

    for group in GROUPS[:6]:
        with consumer(group) as each:
            each.assign([part])
            each.seek(part, 0)
            each.commit({part: OffsetAndMetadata(7)})
            assert each.committed(part) == 7
    assert {coordinator(clients[1], group, CoordinatorType.GROUP) for group in GROUPS[:6]} == {1, 2, 3}
    with cluster.admin() as admin:
        admin.delete_topics(["deleted"])
    for broker in cluster.brokers.values():
        cache = broker.server.context.metadata_cache
        eventually(lambda cache=cache: cache.contains("deleted"), lambda there: not there)  # type: ignore[misc]
    for group in GROUPS[:6]:
        with consumer(group) as each:
            eventually(lambda each=each: each.committed(part), lambda offset: offset is None)  # type: ignore[misc]


def test_every_broker_reaches_the_state_of_share_partitions_and_deleted_topics_take_it_along(cluster: Cluster) -> None:
    cluster.create_topic("shared", 12)
    caches = {broker_id: broker.server.context.metadata_cache for broker_id, broker in cluster.brokers.items()}
    for cache in caches.values():
        eventually(lambda cache=cache: cache.topic("shared"), lambda each: each and each.partition_count == 12)  # type: ignore[misc]
    keys = [ShareKey("group", caches[1].topic_id("shared"), number) for number in range(12)]

    def call(broker_id: int, method: str, *arguments: Any) -> list[Any]:
        server = cluster.brokers[broker_id].server

        async def run() -> list[Any]:
            persister = server.context.coordinators.persister
            return await asyncio.gather(*(getattr(persister, method)(key, *arguments) for key in keys))

        found: list[Any] = server.call(run())
        return found

    call(1, "initialize", 0, 5)
    for broker_id in sorted(cluster.brokers):
        start = 5 + broker_id
        assert {state.start_offset for state in call(broker_id, "read", broker_id)} == {start - 1}
        call(broker_id, "write", 0, broker_id, start, 1, [StateBatch(20, 29, 2, 1)])
        for other in cluster.brokers:
            assert set(call(other, "summary", -1)) == {ShareSummary(0, broker_id, start, 1)}
    with pytest.raises(FencedLeaderEpochError):
        call(3, "write", 0, 1, 9, 1, [])

    def stored() -> set[tuple[int, ShareKey]]:
        return {
            (broker_id, key)
            for broker_id, broker in cluster.brokers.items()
            for shard in broker.server.context.coordinators.share.runtime.shards().values()
            for key in list(shard.states)
        }

    assert {key for _, key in stored()} == set(keys)
    assert {broker_id for broker_id, _ in stored()} == {1, 2, 3}
    with cluster.admin() as admin:
        admin.delete_topics(["shared"])
    eventually(stored, lambda left: not left)


@pytest.mark.parametrize("group", ["share-1", "share-2", "share-3", "share-4"])
def test_a_share_group_has_its_states_and_offsets_at_all_brokers(
    cluster: Cluster, clients: dict[int, Client], group: str
) -> None:
    topic = f"read-by-{group}"
    cluster.create_topic(topic, 6)
    for broker in cluster.brokers.values():
        cache = broker.server.context.metadata_cache
        eventually(lambda cache=cache: cache.topic(topic), lambda each: each and each.partition_count == 6)  # type: ignore[misc]
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(6):
            for _ in range(3):
                producer.send(topic, b"record", partition=number)
        producer.flush()
    home = coordinator(clients[1], group, CoordinatorType.GROUP)
    client = GroupClient(clients[home])
    joined = share_groups.join(client, group, topic)
    assert [each.partitions for each in joined.assignment.topic_partitions] == [list(range(6))]
    for broker_id, other in clients.items():
        if broker_id != home:
            assert share_groups.beat(other, group, epoch=-1).error_code == ErrorCode.NOT_COORDINATOR
    assert share_groups.leave(client, group) == ErrorCode.NONE
    altered = share_groups.alter_offsets(client, group, {topic: dict.fromkeys(range(6), 1)})
    assert share_groups.codes(altered) == {topic: dict.fromkeys(range(6), ErrorCode.NONE)}
    [found] = share_groups.describe_offsets(client, group).topics
    assert [(each.partition_index, each.start_offset, each.lag) for each in found.partitions] == [
        (number, 1, 2) for number in range(6)
    ]
    [deleted] = client(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert deleted.error_code == ErrorCode.NONE
    [left] = share_groups.describe_offsets(client, group, {topic: [0]}).topics
    assert [each.start_offset for each in left.partitions] == [-1]
