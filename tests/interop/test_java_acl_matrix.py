"""The matrix of ACLs against Apache Kafka itself, which proves the table of broker/acl_matrix.py (make interop-java).

AclAuthorizer is that of 3.9 with ZooKeeper, StandardAuthorizer that of the newest release. Where a release answers
otherwise, the entry and its reason stand in OTHERWISE.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from broker.acl_matrix import CASES, Case, World
from broker.acl_ways import WAYS, ask, first_denied, given, gives, only_a_deny_takes, outright, told, versions
from broker.acting import ActingClient
from broker.sasl_broker import PLAIN_USERS
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import ApacheKafka, PeerMissingError, free_port
from peers.zookeeper import ZooKeeper

from kafkapy.protocol.messages.api_versions import ApiVersionsRequest

pytestmark = [*JAVA, pytest.mark.timeout(1800)]

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Peer(NamedTuple):
    """A running Apache Kafka, with what it serves."""

    release: str
    admin: ActingClient
    serves: dict[int, tuple[int, int]]
    worlds: list[World]

    def world(self, changes: bool) -> World:
        """One that no request has changed."""
        if changes:
            return World(self.admin)
        if not self.worlds:
            self.worlds.append(World(self.admin))
        return self.worlds[0]


class Otherwise(NamedTuple):
    """Cases that a release answers otherwise, by the beginning of the case's name, and why that is not followed."""

    release: str
    case: str
    reason: str


WITH_ZOOKEEPER = "3.9 with ZooKeeper does not serve it, and says so before it looks at ACLs"
OTHERWISE: list[Otherwise] = [
    Otherwise("3.9", "INCREMENTAL_ALTER_CONFIGS: a logger", "its logging here (slf4j-simple) has no such logger"),
    Otherwise("3.9", "ALTER_CONFIGS: client metrics", WITH_ZOOKEEPER),
    Otherwise("3.9", "INCREMENTAL_ALTER_CONFIGS: client metrics", WITH_ZOOKEEPER),
    Otherwise("3.9", "DESCRIBE_CONFIGS: a group", WITH_ZOOKEEPER),
    Otherwise("3.9", "ALTER_CONFIGS: a group", WITH_ZOOKEEPER),
    Otherwise("3.9", "INCREMENTAL_ALTER_CONFIGS: a group", WITH_ZOOKEEPER),
    Otherwise("3.9", "CONSUMER_GROUP_HEARTBEAT: a member", WITH_ZOOKEEPER),
    Otherwise("3.9", "CONSUMER_GROUP_DESCRIBE: one", WITH_ZOOKEEPER),
    Otherwise("3.9", "CREATE_TOPICS: the configuration", "it gives both errors, newer releases the first"),
    Otherwise("3.9", "OFFSET_FETCH: of a topic, old versions", "a denied group has no partition, and so no error"),
    Otherwise("4.x", "INCREMENTAL_ALTER_CONFIGS: a logger", "its logging here (slf4j-simple) has no such logger"),
    Otherwise("4.x", "DESCRIBE_CONFIGS: client metrics", "kafkapy has no client metrics"),
    Otherwise("4.x", "ALTER_CONFIGS: client metrics", "kafkapy has no client metrics"),
    Otherwise("4.x", "INCREMENTAL_ALTER_CONFIGS: client metrics", "kafkapy has no client metrics"),
    Otherwise("4.x", "DELETE_TOPICS: by id", "it deletes topics that the client may not describe; 3.9 does not"),
    Otherwise("4.x", "METADATA: a topic to be created", "UNKNOWN_TOPIC_OR_PARTITION while the controller creates it"),
    Otherwise("3.9", "FIND_COORDINATOR: of a share partition", "it knows share groups, but has no coordinator"),
]


def secured(kafka: ApacheKafka, authorizer: str) -> ApacheKafka:
    """Apache Kafka with a SASL listener beside its own, and ACLs."""
    port = free_port()
    users = " ".join(f'user_{user}="{password}"' for user, password in PLAIN_USERS.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    listeners = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{port}"
    controller = f",CONTROLLER://127.0.0.1:{kafka.controller_port}" if kafka.with_quorum else ""
    kafka.overrides |= {
        "listeners": listeners + controller,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
        "authorizer.class.name": authorizer,
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": "token secret of the tests",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "unstable.api.versions.enable": "false",
        "log.retention.ms": "-1",  # records of the tests are old
    }
    kafka.start()
    kafka.port = port
    return kafka


@pytest.fixture(scope="module", params=["3.9", "4.x"])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    release = with_jars(request.param)
    place: Path = tmp_path_factory.mktemp("kafka")
    zookeeper = None
    if release == "3.9":
        try:
            zookeeper = ZooKeeper(place / "zookeeper").__enter__()
        except PeerMissingError as missing:
            pytest.skip(str(missing))
    kafka = ApacheKafka(release, place / "broker", zookeeper=zookeeper.connect if zookeeper else "")
    try:
        secured(kafka, ACL_AUTHORIZER if zookeeper else STANDARD_AUTHORIZER)
        admin = ActingClient("127.0.0.1", kafka.port)
        served = admin(ApiVersionsRequest(), 0).api_keys
        yield Peer(release, admin, {each.api_key: (each.min_version, each.max_version) for each in served}, [])
        admin.close()
    finally:
        kafka.kill()
        if zookeeper is not None:
            zookeeper.__exit__(None, None, None)


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_the_table_is_what_apache_kafka_does(peer: Peer, case: Case) -> None:
    if case.key not in peer.serves:
        pytest.skip(f"{peer.release} does not serve it")
    low, high = peer.serves[case.key]
    served = [version for version in case.versions if low <= version <= high]
    if not served:
        pytest.skip(f"{peer.release} serves other versions")
    case = case._replace(versions=served)
    found = []
    for at, entries in enumerate(case.needs):
        for permission in entries:
            for way in WAYS:
                if not gives(way, case, permission) and only_a_deny_takes(case, at) and "deny" not in way.label:
                    continue
                expected = case.allowed if gives(way, case, permission) else case.denied[first_denied(case, at, way)]
                for version in versions(case, way):
                    world = peer.world(case.changes)
                    acls = outright(world, case, at) + given(world, permission, way)
                    answer = ask(case, peer.admin, world, version, acls)
                    if answer != expected:
                        found.append(f"{told(case, permission, way, version)}: {answer}, not {expected}")
    if any(each.release == peer.release and case.label.startswith(each.case) for each in OTHERWISE):
        assert found, "it is as the table says by now"
    else:
        assert not found, "\n".join(found[:20])
