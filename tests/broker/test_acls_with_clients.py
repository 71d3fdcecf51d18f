"""ACLs by the admin clients that people have, and what they mean for their producers and consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka.admin
import pytest
from broker.acting import ActingClient, acl_broker, connected
from broker.sasl_broker import PLAIN_USERS
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import kafkapy.admin
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ClusterAuthorizationFailedError

TIMEOUT_S = 30


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


def librdkafka(server: KafkaServer, user: str = "admin", **keys: object) -> dict[str, Any]:
    """The configuration of a confluent-kafka client."""
    return {
        "bootstrap.servers": f"127.0.0.1:{server.endpoints[0].port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PLAIN_USERS[user],
        "log_level": 0,
    } | {key.replace("_", "."): value for key, value in keys.items()}


def keywords(server: KafkaServer, user: str = "admin") -> dict[str, Any]:
    """The configuration of a client with kafka-python's keywords."""
    return {
        "bootstrap_servers": f"127.0.0.1:{server.endpoints[0].port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": PLAIN_USERS[user],
    }


def allowed(
    kind: ResourceType, name: str, operation: AclOperation, pattern: ResourcePatternType = ResourcePatternType.LITERAL
) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)


EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def test_confluents_admin_client_creates_describes_and_deletes(server: KafkaServer, admin: ActingClient) -> None:
    client = AdminClient(librdkafka(server))
    acls = [
        allowed(ResourceType.TOPIC, "orders", AclOperation.READ),
        allowed(ResourceType.GROUP, "bill", AclOperation.ALL, ResourcePatternType.PREFIXED),
        allowed(ResourceType.BROKER, "kafka-cluster", AclOperation.ALTER),
    ]
    for future in client.create_acls(acls).values():
        future.result(TIMEOUT_S)
    assert sorted(map(str, client.describe_acls(EVERYTHING).result(TIMEOUT_S))) == sorted(map(str, acls))
    [bad] = client.create_acls([allowed(ResourceType.TOPIC, "a/b", AclOperation.READ)]).values()
    with pytest.raises(KafkaException) as caught:
        bad.result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert "cannot contain '/'" in caught.value.args[0].str()
    [deleted] = client.delete_acls([EVERYTHING]).values()
    assert sorted(map(str, deleted.result(TIMEOUT_S))) == sorted(map(str, acls))
    assert admin.acls() == set()


@pytest.mark.parametrize("module", [kafka.admin, kafkapy.admin], ids=["kafka-python", "kafkapy"])
def test_kafka_pythons_admin_client_creates_describes_and_deletes(
    server: KafkaServer, admin: ActingClient, module: Any
) -> None:
    pattern = module.ResourcePattern(module.ResourceType.TOPIC, "orders", module.ACLResourcePatternType.PREFIXED)
    acl = module.ACL(
        principal="User:alice",
        host="*",
        operation=module.ACLOperation.WRITE,
        permission_type=module.ACLPermissionType.DENY,
        resource_pattern=pattern,
    )
    client = module.KafkaAdminClient(**keywords(server))
    try:
        assert client.create_acls([acl]) == {"succeeded": [acl], "failed": []}
        every = module.ACLFilter(
            principal=None,
            host=None,
            operation=module.ACLOperation.ANY,
            permission_type=module.ACLPermissionType.ANY,
            resource_pattern=module.ResourcePatternFilter(
                module.ResourceType.ANY, None, module.ACLResourcePatternType.ANY
            ),
        )
        found, error = client.describe_acls(every)
        assert (found, error.errno if hasattr(error, "errno") else error.code) == ([acl], 0)
        [(asked, deleted, error)] = client.delete_acls([every])
        assert (asked, error.__name__) == (every, "NoError")
        assert len(deleted) == 1
        assert admin.acls() == set()
    finally:
        client.close()


def test_a_producer_and_a_consumer_need_their_acls(server: KafkaServer, admin: ActingClient) -> None:
    admin.create_topic("ledger")
    client = AdminClient(librdkafka(server))

    def grant(*acls: AclBinding) -> None:
        for future in client.create_acls(list(acls)).values():
            future.result(TIMEOUT_S)

    outcomes: list[Any] = []

    def send() -> Any:
        producer = Producer(librdkafka(server, "alice"))  # a new one: librdkafka remembers the error for a while
        producer.produce("ledger", b"x", on_delivery=lambda error, message: outcomes.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        return outcomes.pop()

    assert send().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    grant(
        allowed(ResourceType.TOPIC, "ledger", AclOperation.WRITE),
        allowed(ResourceType.TOPIC, "led", AclOperation.READ, ResourcePatternType.PREFIXED),
    )
    assert send() is None
    consumer = Consumer(librdkafka(server, "alice", group_id="audit", auto_offset_reset="earliest"))
    consumer.subscribe(["ledger"])
    refused = consumer.poll(TIMEOUT_S)
    assert refused.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    grant(allowed(ResourceType.GROUP, "audit", AclOperation.READ))
    consumer = Consumer(librdkafka(server, "alice", group_id="audit", auto_offset_reset="earliest"))
    consumer.subscribe(["ledger"])
    message = consumer.poll(TIMEOUT_S)
    assert (message.error(), message.value()) == (None, b"x")
    consumer.close()


def test_who_may_not_alter_the_cluster_gives_nobody_anything(server: KafkaServer, admin: ActingClient) -> None:
    client = AdminClient(librdkafka(server, "alice"))
    [refused] = client.create_acls([allowed(ResourceType.TOPIC, "*", AclOperation.ALL)]).values()
    with pytest.raises(KafkaException) as caught:
        refused.result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    with kafkapy.admin.KafkaAdminClient(**keywords(server, "alice")) as mine:
        every = kafkapy.admin.ACLFilter(
            None,
            None,
            kafkapy.admin.ACLOperation.ANY,
            kafkapy.admin.ACLPermissionType.ANY,
            kafkapy.admin.ResourcePatternFilter(
                kafkapy.admin.ResourceType.ANY, None, kafkapy.admin.ACLResourcePatternType.ANY
            ),
        )
        with pytest.raises(ClusterAuthorizationFailedError):
            mine.describe_acls(every)
    assert admin.acls() == set()
