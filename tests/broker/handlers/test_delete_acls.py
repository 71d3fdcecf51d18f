"""DeleteAcls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker.acting import ANY_FILTER, DENY, ActingClient, acl_broker, binding, connected

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_acls import DeleteAclsRequest
from kafkapy.security.authorizer.base import AclBinding
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE = AclOperation.READ, AclOperation.WRITE
PREFIXED, MATCH = PatternType.PREFIXED, PatternType.MATCH

ACLS = [
    binding(TOPIC, "orders", READ),
    binding(TOPIC, "orders", WRITE, "User:bob", host="10.0.0.1", permission=DENY),
    binding(TOPIC, "*", READ),
    binding(GROUP, "orders", READ),
    binding(TOPIC, "ord", READ, pattern=PREFIXED),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with acl_broker(tmp_path_factory.mktemp("acls")) as running:
        yield running


@pytest.fixture
def admin(server: KafkaServer) -> Iterator[ActingClient]:
    client = connected(server)
    client.add(*ACLS)
    yield client
    client.remove_all()
    client.close()


def deleted(client: ActingClient, *filters: dict[str, Any], version: int = 3) -> list[set[AclBinding]]:
    """The ACLs that each filter deleted."""
    every = ANY_FILTER if version else ANY_FILTER | {"pattern_type_filter": PatternType.LITERAL}
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**every | each) for each in filters])
    results = client(request, version).filter_results
    assert {each.error_code for each in results} <= {ErrorCode.NONE}
    return [
        {
            AclBinding(
                ResourceType(each.resource_type),
                each.resource_name,
                PatternType(each.pattern_type),
                each.principal,
                each.host,
                AclOperation(each.operation),
                AclPermissionType(each.permission_type),
            )
            for each in result.matching_acls
            if each.error_code == ErrorCode.NONE
        }
        for result in results
    ]


@pytest.mark.parametrize(
    ("asked", "gone"),
    [
        ({}, ACLS),
        ({"resource_type_filter": GROUP}, [ACLS[3]]),
        ({"resource_name_filter": "orders", "resource_type_filter": TOPIC}, ACLS[:2]),
        ({"resource_name_filter": "orders", "resource_type_filter": TOPIC, "principal_filter": "User:bob"}, [ACLS[1]]),
        (
            {"resource_name_filter": "orders", "pattern_type_filter": MATCH, "resource_type_filter": TOPIC},
            [*ACLS[:3], ACLS[4]],
        ),
        ({"resource_name_filter": "nothing"}, []),
        ({"permission_type": DENY}, [ACLS[1]]),
    ],
    ids=str,
)
def test_a_filter_deletes_what_it_matches(admin: ActingClient, asked: dict[str, Any], gone: list[AclBinding]) -> None:
    assert deleted(admin, asked) == [set(gone)]
    assert admin.acls() == set(ACLS) - set(gone)


@pytest.mark.parametrize("version", range(4))
def test_an_acl_of_several_filters_stands_in_the_first_result(admin: ActingClient, version: int) -> None:
    first, second = {"resource_name_filter": "orders"}, {"operation": READ}
    before = admin.acls()
    if version == 0:
        before -= {ACLS[4]}
    matching = {each for each in before if each.resource_name == "orders"}
    reading = {each for each in before if each.operation is READ}
    assert deleted(admin, first, second, version=version) == [matching, reading - matching]


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
@pytest.mark.parametrize("value", [0, 99])
def test_a_filter_with_an_unknown_field_is_refused_and_the_others_delete(
    admin: ActingClient, field: str, value: int
) -> None:
    filters = [ANY_FILTER | {field: value}, ANY_FILTER | {"resource_type_filter": GROUP}]
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**each) for each in filters])
    refused, done = admin(request, 3).filter_results
    assert (refused.error_code, refused.matching_acls) == (ErrorCode.INVALID_REQUEST, [])
    assert [each.resource_name for each in done.matching_acls] == ["orders"]
    assert admin.acls() == set(ACLS) - {ACLS[3]}


def test_only_who_may_alter_the_cluster_deletes_acls(server: KafkaServer, admin: ActingClient) -> None:
    alice = connected(server, "alice")
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**ANY_FILTER)] * 2)
    refused = alice(request, 3).filter_results
    assert [(each.error_code, each.matching_acls) for each in refused] == [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    ] * 2
    assert admin.acls() == set(ACLS)
    rule = binding(CLUSTER, "kafka-cluster", AclOperation.ALTER)
    admin.add(rule)
    assert deleted(alice, {}) == [{*ACLS, rule}]
    alice.close()


def test_without_an_authorizer_security_is_disabled(tmp_path: Any) -> None:
    with acl_broker(tmp_path, authorizer_class_name="") as running:
        request = DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**ANY_FILTER)] * 2)
        response = connected(running)(request, 3)
        assert [each.error_code for each in response.filter_results] == [ErrorCode.SECURITY_DISABLED] * 2
