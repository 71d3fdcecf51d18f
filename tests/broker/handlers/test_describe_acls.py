"""DescribeAcls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker.acting import ANY_FILTER, DENY, ActingClient, acl_broker, binding, connected, names

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_acls import DescribeAclsRequest
from kafkapy.types import AclOperation, PatternType, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH

LITERAL_ACLS = [
    binding(TOPIC, "orders", READ),
    binding(TOPIC, "orders", READ, "User:bob", host="10.0.0.1", permission=DENY),
    binding(TOPIC, "*", DESCRIBE),
    binding(GROUP, "orders", READ),
    binding(CLUSTER, "kafka-cluster", DESCRIBE, "User:bob"),
]
PREFIXED_ACLS = [binding(TOPIC, "ord", READ, pattern=PREFIXED), binding(TOPIC, "orders", READ, pattern=PREFIXED)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with acl_broker(tmp_path_factory.mktemp("acls")) as running:
        connected(running).add(*LITERAL_ACLS, *PREFIXED_ACLS)
        yield running


@pytest.fixture
def admin(server: KafkaServer) -> Iterator[ActingClient]:
    client = connected(server)
    yield client
    client.close()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [*LITERAL_ACLS, *PREFIXED_ACLS]),
        ({"resource_type_filter": GROUP}, [LITERAL_ACLS[3]]),
        ({"resource_type_filter": ResourceType.TRANSACTIONAL_ID}, []),
        ({"pattern_type_filter": PREFIXED}, PREFIXED_ACLS),
        ({"pattern_type_filter": LITERAL}, LITERAL_ACLS),
        (
            {"resource_name_filter": "orders"},
            [*LITERAL_ACLS[:2], LITERAL_ACLS[3], PREFIXED_ACLS[1]],
        ),
        ({"resource_name_filter": "orders", "pattern_type_filter": PREFIXED}, [PREFIXED_ACLS[1]]),
        ({"resource_name_filter": "ord", "pattern_type_filter": LITERAL}, []),
        (
            {"resource_name_filter": "orders", "pattern_type_filter": MATCH, "resource_type_filter": TOPIC},
            [*LITERAL_ACLS[:3], *PREFIXED_ACLS],
        ),
        (
            {"resource_name_filter": "ordinal", "pattern_type_filter": MATCH},
            [LITERAL_ACLS[2], PREFIXED_ACLS[0]],
        ),
        ({"pattern_type_filter": MATCH}, [*LITERAL_ACLS, *PREFIXED_ACLS]),
        ({"principal_filter": "User:bob"}, [LITERAL_ACLS[1], LITERAL_ACLS[4]]),
        ({"host_filter": "10.0.0.1"}, [LITERAL_ACLS[1]]),
        ({"host_filter": "10.0.0.2"}, []),
        ({"operation": DESCRIBE}, [LITERAL_ACLS[2], LITERAL_ACLS[4]]),
        ({"permission_type": DENY}, [LITERAL_ACLS[1]]),
        ({"operation": 77}, []),
        ({"resource_type_filter": 99}, []),
    ],
    ids=str,
)
def test_a_filter_finds_its_acls(admin: ActingClient, filters: dict[str, Any], expected: list[Any]) -> None:
    assert admin.acls(**filters) == set(expected)


def test_a_pattern_stands_once_with_all_its_acls(admin: ActingClient) -> None:
    response = admin(DescribeAclsRequest(**ANY_FILTER | {"resource_type_filter": TOPIC}), 3)
    patterns = [(each.resource_name, each.pattern_type) for each in response.resources]
    assert sorted(patterns) == [("*", LITERAL), ("ord", PREFIXED), ("orders", LITERAL), ("orders", PREFIXED)]


def test_version_0_knows_literal_patterns_only(admin: ActingClient) -> None:
    asked = {"resource_type_filter": TOPIC, "pattern_type_filter": LITERAL}
    response = admin(DescribeAclsRequest(**ANY_FILTER | asked), 0)
    assert {each.resource_name for each in response.resources} == {"orders", "*"}
    assert sum(len(each.acls) for each in response.resources) == 3


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_a_filter_with_an_unknown_field_is_refused(admin: ActingClient, field: str) -> None:
    response = admin(DescribeAclsRequest(**ANY_FILTER | {field: 0}), 3)
    assert (response.error_code, response.resources) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", range(4))
def test_only_who_may_describe_the_cluster_sees_acls(server: KafkaServer, version: int) -> None:
    alice, bob = connected(server, "alice"), connected(server, "bob")
    refused = alice(DescribeAclsRequest(**ANY_FILTER | {"pattern_type_filter": LITERAL}), version)
    assert (refused.error_code, refused.resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    assert names(bob.acls()) == {"orders", "*", "kafka-cluster", "ord"}
    alice.close()
    bob.close()


def test_without_an_authorizer_security_is_disabled(tmp_path: Any) -> None:
    with acl_broker(tmp_path, authorizer_class_name="") as running:
        response = connected(running)(DescribeAclsRequest(**ANY_FILTER), 3)
        assert (response.error_code, response.resources) == (ErrorCode.SECURITY_DISABLED, [])
