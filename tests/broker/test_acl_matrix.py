"""Each served API with each permission it needs, given in each way: the answers are Apache Kafka's.

What is denied changes nothing: topics, records, groups, transactions, configurations, users, tokens and ACLs are
compared before and after. broker/acl_matrix.py has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.acl_matrix import CASES, NEED_NOTHING, Case, World
from broker.acl_ways import (
    HOST,
    IMPLYING,
    USER,
    WAYS,
    allowed,
    ask,
    first_denied,
    given,
    gives,
    only_a_deny_takes,
    outright,
    told,
    versions,
)
from broker.acting import ADMIN, DENY, ActingClient, acl_broker, binding, connected

from kafkapy.broker.handlers import SERVED
from kafkapy.broker.server import KafkaServer
from kafkapy.network.api_table import DATA_PLANE_APIS
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkapy.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.types import AclOperation, ResourceType

SERVES_BROKERS = True


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    keeping_nothing = {"kafkapy_metadata_store": "memory", "kafkapy_storage_backend": "memory"}
    with acl_broker(tmp_path_factory.mktemp("matrix"), **keeping_nothing) as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: KafkaServer) -> Iterator[ActingClient]:
    client = connected(server)
    yield client
    client.close()


@pytest.fixture(scope="module")
def worlds(admin: ActingClient) -> Callable[[bool], World]:
    """A world that no request has changed; shared by all requests that change nothing."""
    shared: list[World] = []

    def make(changes: bool) -> World:
        if changes:
            return World(admin)
        if not shared:
            shared.append(World(admin))
        return shared[0]

    return make


# --- the state --------------------------------------------------------------------------------------------------------


def state(admin: ActingClient, world: World) -> dict[str, Any]:
    """What a request could have changed."""
    topics = admin(MetadataRequest(topics=None), 12).topics
    parts = [(topic.name, part.partition_index) for topic in topics for part in topic.partitions]
    parts = [(name, index) for name, index in parts if name in (world.topic, world.new_topic)]
    offsets = {}
    for timestamp in (-1, -2):
        asked = [
            ListOffsetsRequest.Topic(
                name=name,
                partitions=[ListOffsetsRequest.Topic.Partition(partition_index=index, timestamp=timestamp)],
            )
            for name, index in parts
        ]
        for topic in admin(ListOffsetsRequest(replica_id=-1, topics=asked), 7).topics:
            offsets[topic.name, timestamp] = [(each.error_code, each.offset) for each in topic.partitions]
    group = OffsetFetchRequest.Group(group_id=world.group, topics=None)
    transactions = admin(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0).transaction_states
    described = admin(DescribeTransactionsRequest(transactional_ids=[world.txn]), 0).transaction_states
    configured = [(2, world.topic), (4, "1"), (32, world.group)]
    configs = admin(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=None)
                for kind, name in configured
            ]
        ),
        4,
    )
    return {
        "topics": {topic.name: (topic.topic_id, len(topic.partitions)) for topic in topics},
        "offsets": offsets,
        "groups": {(each.group_id, each.group_state) for each in admin(ListGroupsRequest(), 5).groups},
        "committed": [
            (topic.name, [(each.partition_index, each.committed_offset) for each in topic.partitions])
            for topic in admin(OffsetFetchRequest(groups=[group]), 8).groups[0].topics
        ],
        "transactions": {(each.transactional_id, each.transaction_state) for each in transactions},
        "transaction": [
            (each.producer_id, each.producer_epoch, each.transaction_state, [topic.topic for topic in each.topics])
            for each in described
        ],
        "configs": [[(each.name, each.value) for each in result.configs] for result in configs.results],
        "acls": admin.acls(),
        "users": {each.user for each in admin(DescribeUserScramCredentialsRequest(users=None), 0).results},
        "tokens": {each.token_id for each in admin(DescribeDelegationTokenRequest(owners=None), 3).tokens},
    }


# --- the matrix -------------------------------------------------------------------------------------------------------


def test_every_served_api_is_in_the_table() -> None:
    served = SERVED.keys() | DATA_PLANE_APIS.keys()
    assert served - {case.key for case in CASES} - set(NEED_NOTHING) == set()


def test_every_version_of_an_api_is_in_the_table() -> None:
    served = {**SERVED, **DATA_PLANE_APIS}
    known = {(case.key, version) for case in CASES for version in case.versions}
    missing = {
        (key, version)
        for key in {case.key for case in CASES}
        for version in range(served[key].low, served[key].high + 1)
        if (key, version) not in known
    }
    assert missing <= set(LEFT_OUT)


LEFT_OUT: dict[tuple[int, int], str] = {
    **{(0, version): "Produce: message sets, not batches; authorized as version 3" for version in range(3)},
    (9, 0): "OffsetFetch: reads from ZooKeeper's place",
    (26, 5): "EndTxn: its answer of version 4, with a new epoch",
    (28, 4): "TxnOffsetCommit: as version 3",
    **{(38, version): "CreateDelegationToken: only for oneself" for version in range(3)},
}
"""Versions that no case sends, and why."""


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_answers_with_and_without_permission(case: Case, admin: ActingClient, worlds: Callable[[bool], World]) -> None:
    for at, entries in enumerate(case.needs):
        for permission in entries:
            world = worlds(case.changes)
            admin.remove_all()
            before = state(admin, world)
            partly = False
            for way in WAYS:
                if gives(way, case, permission) or (only_a_deny_takes(case, at) and "deny" not in way.label):
                    continue
                expected = case.denied[first_denied(case, at, way)]
                for version in versions(case, way):
                    answer = ask(case, admin, world, version, outright(world, case, at) + given(world, permission, way))
                    assert answer == expected, told(case, permission, way, version)
                    if case.carried_out and at == len(case.needs) - 1 and expected == case.denied[-1]:
                        partly, world = True, worlds(case.changes)
            admin.remove_all()
            assert partly or state(admin, world) == before, f"{case.label}: a request was carried out"
            for way in WAYS:
                if not gives(way, case, permission):
                    continue
                for version in versions(case, way):
                    answer = ask(case, admin, world, version, outright(world, case, at) + given(world, permission, way))
                    assert answer == case.allowed, told(case, permission, way, version)
                    world = worlds(case.changes)


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_permissions_that_include_others(case: Case, admin: ActingClient, worlds: Callable[[bool], World]) -> None:
    """READ, WRITE, DELETE and ALTER allow DESCRIBE, ALTER_CONFIGS allows DESCRIBE_CONFIGS; denies include nothing."""
    implied = [(at, each) for at, entries in enumerate(case.needs) for each in entries if each.operation in IMPLYING]
    if not implied:
        pytest.skip("needs no permission that another one includes")
    version = case.versions[-1]
    for at, permission in implied:
        for operation in IMPLYING[permission.operation]:
            world = worlds(case.changes)
            admin.remove_all()
            kind, name = permission.resource_type, world.name(permission.resource)
            # A deny of the including operation takes nothing from who has the included one.
            denied = allowed(kind, name, operation, permission=DENY)
            admin.add(*outright(world, case, at), allowed(kind, name, permission.operation))
            if any(each.operation is operation for entries in case.needs for each in entries):
                continue
            if case.label == "DESCRIBE_CLUSTER: operations" or "operations" in case.label:
                continue  # the answer has the operations themselves
            admin.add(denied)
            client = admin.again(USER, HOST)
            assert case.ask(client, world, version) == case.allowed, (case.label, operation.name, "denied")
            world = worlds(case.changes)
            admin.remove_all()
            admin.add(*outright(world, case, at), allowed(kind, world.name(permission.resource), operation))
            assert case.ask(client, world, version) == case.allowed, (case.label, operation.name)
            client.close()


def test_super_users_need_no_acls(admin: ActingClient, worlds: Callable[[bool], World]) -> None:
    for case in CASES:
        world = worlds(case.changes)
        admin.remove_all()
        admin.add(binding(ResourceType.TOPIC, "*", AclOperation.ALL, "User:*", permission=DENY))
        if "operations" in case.label or case.label.startswith("LIST_CONFIG"):
            continue
        assert case.ask(admin.again(ADMIN), world, case.versions[-1]) == case.allowed, case.label
