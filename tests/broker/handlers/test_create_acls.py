"""CreateAcls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker.acting import DENY, ActingClient, acl_broker, binding, connected, creation

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import decode_response, encode_request
from kafkapy.protocol.messages.create_acls import CreateAclsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, ALTER, ALL = AclOperation.READ, AclOperation.ALTER, AclOperation.ALL


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with acl_broker(tmp_path_factory.mktemp("acls")) as running:
        yield running


@pytest.fixture
def admin(server: KafkaServer) -> Iterator[ActingClient]:
    client = connected(server)
    yield client
    client.remove_all()
    client.close()


def created(client: ActingClient, version: int, *entries: Any, **fields: Any) -> list[ErrorCode]:
    request = CreateAclsRequest(creations=[creation(each) for each in entries])
    for name, value in fields.items():
        setattr(request.creations[0], name, value)
    return [ErrorCode(each.error_code) for each in client(request, version).results]


@pytest.mark.parametrize("version", range(4))
def test_acls_are_there_afterwards(admin: ActingClient, version: int) -> None:
    acls = [binding(TOPIC, "orders", READ), binding(GROUP, "*", ALL, "User:*", host="10.0.0.1", permission=DENY)]
    if version >= 1:
        acls.append(binding(TOPIC, "ord", READ, pattern=PatternType.PREFIXED))
    assert created(admin, version, *acls) == [ErrorCode.NONE] * len(acls)
    assert created(admin, version, acls[0]) == [ErrorCode.NONE], "an ACL that exists is a success"
    assert admin.acls() == set(acls)


@pytest.mark.parametrize(
    "field",
    [
        {"resource_type": ResourceType.UNKNOWN},
        {"resource_type": ResourceType.ANY},
        {"resource_type": 99},
        {"resource_name": ""},
        {"resource_name": "a/b"},
        {"resource_name": ".."},
        {"resource_name": "nul\0"},
        {"resource_pattern_type": PatternType.MATCH},
        {"resource_pattern_type": PatternType.ANY},
        {"operation": AclOperation.ANY},
        {"operation": 77},
        {"permission_type": AclPermissionType.ANY},
        {"permission_type": AclPermissionType.UNKNOWN},
        {"principal": "alice"},
        {"principal": ":alice"},
        {"host": ""},
        {"resource_type": ResourceType.CLUSTER},
    ],
    ids=str,
)
def test_an_entry_that_is_no_acl_is_refused_and_the_others_are_created(
    admin: ActingClient, field: dict[str, Any]
) -> None:
    good = binding(TOPIC, "good", READ)
    assert created(admin, 3, binding(TOPIC, "x", READ), good, **field) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert admin.acls() == {good}


def test_a_decision_follows_at_once_on_open_connections(server: KafkaServer, admin: ActingClient) -> None:
    admin.create_topic("followed")
    alice = connected(server, "alice")
    assert alice.append("followed") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    admin.add(binding(TOPIC, "foll", AclOperation.WRITE, pattern=PatternType.PREFIXED))
    assert alice.append("followed") == ErrorCode.NONE
    admin.add(binding(TOPIC, "followed", AclOperation.WRITE, permission=DENY))
    assert alice.append("followed") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    admin.remove_all()
    assert alice.append("followed") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    alice.close()


def test_only_who_may_alter_the_cluster_creates_acls(server: KafkaServer, admin: ActingClient) -> None:
    alice = connected(server, "alice")
    wanted = binding(TOPIC, "t", READ)
    assert created(alice, 3, wanted, wanted) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    assert admin.acls() == set()
    rule = binding(CLUSTER, "kafka-cluster", ALTER)
    admin.add(rule)
    assert created(alice, 3, wanted) == [ErrorCode.NONE]
    assert admin.acls() == {wanted, rule}
    alice.close()


def test_acls_outlive_the_broker(tmp_path: Any) -> None:
    acls = {
        binding(TOPIC, "snow-\u2603 \U0001f600", READ, 'User:CN=a "b" \\,O=\u00e9'),
        binding(TOPIC, "pre", READ, pattern=PatternType.PREFIXED, host="::1"),
        binding(ResourceType.TRANSACTIONAL_ID, "*", ALL),
        binding(CLUSTER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE, permission=DENY),
    }
    with acl_broker(tmp_path) as running:
        connected(running).add(*acls)
    with acl_broker(tmp_path) as running:
        assert connected(running).acls() == acls


def test_without_an_authorizer_security_is_disabled(tmp_path: Any) -> None:
    with acl_broker(tmp_path, authorizer_class_name="") as running:
        disabled = [ErrorCode.SECURITY_DISABLED] * 2
        assert created(connected(running), 3, *[binding(TOPIC, "t", READ)] * 2) == disabled


def test_many_acls_do_not_hold_other_requests(server: KafkaServer, admin: ActingClient) -> None:
    """A large request is answered, entry by entry, and another client meanwhile."""
    entries = [creation(binding(TOPIC, f"t{number % 300}", READ, f"User:u{number}")) for number in range(20_000)]
    frame = CreateAclsRequest(creations=entries)
    other = connected(server)
    request = CreateTopicsRequest(topics=[])
    admin.send_frame(encode_request(frame.API_KEY, 3, 7, "test", frame))
    other(request, 7)
    _, response = decode_response(frame.API_KEY, 3, admin.receive_frame())
    assert {each.error_code for each in response.results} == {ErrorCode.NONE}
    assert len(response.results) == len(entries)
    assert len(admin.acls(resource_name_filter="t7", principal_filter=None)) == len(range(7, 20_000, 300))
