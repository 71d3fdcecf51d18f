"""KafkaAdminClient against Apache Kafka 3.9 and 4.4: what our broker does not serve, and every result compared with
kafka-python's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import kafka.admin
import pytest
from clients.admin.members import eventually, member
from clients.admin.test_kafka_python_shapes import (
    CALLS,
    OurModules,
    TheirModules,
    client_of_kafka_python,
    outcome,
    subject_of_comparison,
)
from confluent_kafka import Producer
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import VERSIONS, ApacheKafka
from tools.conftest import CommandLine

import kafkapy.admin
from kafkapy import errors
from kafkapy.admin import (
    ACL,
    DEFAULT_ENTITY,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ClientQuota,
    ConfigResource,
    ConsumerGroupDescription,
    GroupType,
    KafkaAdminClient,
    OffsetSpec,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafkapy.structs import TopicPartition, TopicPartitionReplica

pytestmark = JAVA

SUBJECT = "shapes"
MOVING = (
    "usable_bytes",
    "high_watermark",
    "log_end_offset",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "is_fenced",
    "is_cordoned",
)


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    root = tmp_path_factory.mktemp("java")
    overrides = {
        "log.dirs": f"{root / 'one'},{root / 'two'}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with ApacheKafka(with_jars(request.param), root, overrides) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(java: ApacheKafka) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=java.bootstrap) as client:
        yield client


@pytest.fixture(scope="module")
def topic(java: ApacheKafka, admin: KafkaAdminClient) -> Iterator[str]:
    with subject_of_comparison(java.bootstrap, admin) as made:
        yield made


@pytest.fixture(scope="module")
def theirs(java: ApacheKafka) -> Iterator[kafka.admin.KafkaAdminClient]:
    with client_of_kafka_python(java.bootstrap) as client:
        yield client


@pytest.mark.parametrize("call", CALLS)
def test_results_are_those_of_kafka_python(
    admin: KafkaAdminClient, theirs: kafka.admin.KafkaAdminClient, topic: str, call: str
) -> None:
    found = [
        without_moving_parts(outcome(CALLS[call], client, modules, topic), validated=call == "create_topics validated")
        for client, modules in ((admin, OurModules), (theirs, TheirModules))
    ]
    if call == "api_versions" and found[1] == "ValueError":
        pytest.skip("kafka-python refuses an answer with API keys that it does not know, those of this broker")
    assert found[0] == found[1]


def without_moving_parts(value: object, validated: bool = False) -> object:
    """What the cluster's own work changes between two calls, and fields of newer versions, which are always there."""
    if isinstance(value, dict):
        left_out = (*MOVING, "topic_id") if validated else MOVING
        return {key: without_moving_parts(each, validated) for key, each in value.items() if key not in left_out}
    if isinstance(value, list):
        return [without_moving_parts(each, validated) for each in value]
    return value


def test_acls_are_created_found_and_deleted(admin: KafkaAdminClient) -> None:
    orders = ResourcePattern(ResourceType.TOPIC, "orders")
    everything = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    wanted = [
        ACL("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, orders),
        ACL(
            "User:bob",
            "10.0.0.1",
            ACLOperation.ALL,
            ACLPermissionType.DENY,
            ResourcePattern(ResourceType.GROUP, "bill", ACLResourcePatternType.PREFIXED),
        ),
    ]
    assert admin.create_acls(wanted) == {"succeeded": wanted, "failed": []}
    eventually(lambda: set(admin.describe_acls(everything)[0]) == set(wanted))
    assert admin.describe_acls(everything)[1] is errors.NoError
    only_bob = ACLFilter("User:bob", None, ACLOperation.ANY, ACLPermissionType.DENY, everything.resource_pattern)
    assert admin.describe_acls(only_bob)[0] == [wanted[1]]
    assert admin.delete_acls([only_bob]) == [(only_bob, [wanted[1]], errors.NoError)]
    eventually(lambda: admin.describe_acls(everything)[0] == [wanted[0]])
    admin.delete_acls([everything])


def test_quotas_are_set_found_and_removed(admin: KafkaAdminClient) -> None:
    alice, default = {"user": "alice"}, {"user": "alice", "client-id": None}
    admin.alter_client_quotas([(alice, {"producer_byte_rate": 1000.0}), (default, {"consumer_byte_rate": 5})])
    eventually(lambda: len(admin.describe_client_quotas()) == 2)
    assert admin.describe_client_quotas({"user": "alice"}, strict=True) == [
        ClientQuota(alice, {"producer_byte_rate": 1000.0})
    ]
    found = admin.describe_client_quotas({"user": None, "client-id": DEFAULT_ENTITY})
    assert found == [ClientQuota(default, {"consumer_byte_rate": 5.0})]
    admin.alter_client_quotas([(alice, {"producer_byte_rate": 7})], validate_only=True)
    with pytest.raises(errors.InvalidRequestError):
        admin.alter_client_quotas([(alice, {"nonsense": 1})])
    admin.alter_client_quotas([(alice, {"producer_byte_rate": None}), (default, {"consumer_byte_rate": None})])
    eventually(lambda: admin.describe_client_quotas() == [])


def test_scram_credentials_are_kept_and_deleted(admin: KafkaAdminClient) -> None:
    added = [
        UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "secret", iterations=5000),
        UserScramCredentialUpsertion("bob", ScramMechanism.SCRAM_SHA_512, b"secret"),
    ]
    assert admin.alter_user_scram_credentials(added) == {"alice": None, "bob": None}
    eventually(lambda: set(admin.describe_user_scram_credentials()) == {"alice", "bob"})
    alice = admin.describe_user_scram_credentials(["alice"])["alice"]
    assert alice == {
        "error": None,
        "credential_infos": [{"mechanism": ScramMechanism.SCRAM_SHA_256, "iterations": 5000}],
    }
    gone = [UserScramCredentialDeletion("alice", 1), UserScramCredentialDeletion("bob", 2)]
    assert admin.alter_user_scram_credentials(gone) == {"alice": None, "bob": None}
    eventually(lambda: admin.describe_user_scram_credentials() == {})
    assert admin.alter_user_scram_credentials(gone[:1]) == {
        "alice": "Attempt to delete a user credential that does not exist"
    }
    assert admin.describe_user_scram_credentials(["bob"])["bob"]["error"]


def test_delegation_tokens_need_an_authenticated_client(admin: KafkaAdminClient) -> None:
    for call in (
        lambda: admin.create_delegation_token(["User:renewer"], owner="User:alice"),
        lambda: admin.renew_delegation_token(b"hmac"),
        lambda: admin.expire_delegation_token(b"hmac"),
        lambda: admin.describe_delegation_token(["User:alice"]),
    ):
        with pytest.raises((errors.DelegationTokenRequestNotAllowedError, errors.DelegationTokenAuthDisabledError)):
            call()
    with pytest.raises(errors.IllegalArgumentError, match="TYPE:NAME"):
        admin.create_delegation_token(["renewer"])


def test_elections_and_reassignments(admin: KafkaAdminClient, topic: str) -> None:
    place = TopicPartition(topic, 0)
    for wanted in ({topic: [0]}, [topic], None):
        response = admin.elect_leaders("preferred", wanted)
        codes = {each.error_code for result in response.replica_election_results for each in result.partition_result}
        assert codes <= {0, 84}
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="nothing-here-0"):
        admin.elect_leaders(1, {"nothing-here": [0]})
    assert admin.alter_partition_reassignments({place: [1]}) == {place: None}
    assert admin.list_partition_reassignments([place]) == {}
    assert admin.alter_partition_reassignments({place: None}) == {place: errors.NoReassignmentInProgressError}
    assert admin.alter_partition_reassignments({place: [7]}) == {place: errors.InvalidReplicaAssignmentError}


def test_features_and_the_quorum(admin: KafkaAdminClient) -> None:
    features = admin.describe_features()
    level = features["metadata.version"]["finalized"][1]
    assert (
        level in range(*features["metadata.version"]["supported"])
        or level == features["metadata.version"]["supported"][1]
    )
    assert admin.update_features({"metadata.version": level}, validate_only=True) == {"metadata.version": "OK"}
    try:
        said = admin.update_features({"metadata.version": ("safe_downgrade", 1)}, validate_only=True)
    except errors.KafkaError as error:
        said = {"metadata.version": str(error)}
    assert said["metadata.version"] != "OK"
    quorum = admin.describe_metadata_quorum()
    (partition,) = quorum["topics"][0]["partitions"]
    assert (partition["leader_id"], partition["error"], quorum["topics"][0]["topic_name"]) == (
        1,
        None,
        "__cluster_metadata",
    )
    assert [each["replica_id"] for each in partition["current_voters"]] == [1]
    with pytest.raises(errors.BrokerIdNotRegisteredError):
        admin.unregister_broker(99)
    for call in (
        lambda: admin.add_raft_voter(2, uuid.uuid4(), [("CONTROLLER", "127.0.0.1", 1)]),
        lambda: admin.remove_raft_voter(2, uuid.uuid4()),
    ):
        with pytest.raises(errors.KafkaError):
            call()


def test_configurations_of_all_kinds(java: ApacheKafka, admin: KafkaAdminClient, topic: str) -> None:
    new = java.version.startswith("4")
    changes = {
        ("topic", topic): {"flush.ms": "9"},
        ("broker", "1"): {"log.retention.ms": "99999999"},
        ("broker", ""): {"log.cleaner.backoff.ms": "14000"},
        **({("group", "a-group"): {"consumer.session.timeout.ms": "50000"}} if new else {}),
        ("client_metrics", "a-subscription"): {"interval.ms": "60000", "metrics": "org.apache.kafka.producer."},
    }
    for (kind, name), configs in changes.items():
        assert admin.alter_configs([ConfigResource(kind, name, configs)]) == {kind: {name: "OK"}}

        def given(kind: str = kind, name: str = name) -> dict[str, str]:
            found = admin.describe_configs([ConfigResource(kind, name)])[kind][name]
            return {key: config["value"] for key, config in found.items()}

        eventually(lambda configs=configs, given=given: configs.items() <= given().items())
    loggers = admin.describe_configs([ConfigResource("broker_logger", 1)], config_filter="all")["broker_logger"]["1"]
    assert loggers
    if new:
        # The broker takes subscriptions to client metrics up after the other configurations.
        expected = [("group", "a-group"), ("client_metrics", "a-subscription")]
        eventually(lambda: all(name in admin.list_config_resources().get(kind, []) for kind, name in expected))
    else:
        assert admin.list_config_resources(["client_metrics"]) == {"client_metrics": ["a-subscription"]}
        with pytest.raises(errors.UnsupportedVersionError):
            admin.list_config_resources(["group"])
    for kind, name in changes:
        if kind != "topic":
            admin.reset_configs([ConfigResource(kind, name)])
    admin.reset_configs([ConfigResource("topic", topic, ["flush.ms"])])


@pytest.mark.parametrize("kind", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_groups_of_both_protocols(java: ApacheKafka, admin: KafkaAdminClient, topic: str, kind: GroupType) -> None:
    if kind is GroupType.CONSUMER and not java.version.startswith("4"):
        pytest.skip("the consumer protocol of 3.9 is a preview that has to be enabled")
    group = f"a-{kind.value}-group"
    with member(java.bootstrap, group, topic, **{"group.protocol": kind.value, "client.id": "worker"}):
        eventually(lambda: group in {each["group_id"] for each in admin.list_groups(types_filter=[kind])})
        described = admin.describe_consumer_groups([group, "nobody"], include_authorized_operations=True)
        assert isinstance(described["nobody"], errors.GroupIdNotFoundError)
        found = described[group]
        assert isinstance(found, ConsumerGroupDescription)
        assert (found.group_type, [each.client_id for each in found.members]) == (kind, ["worker"])
        assert found.members[0].assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    eventually(lambda: admin.delete_groups([group])[group] in ("OK", "GroupIdNotFoundError"))


def test_transactions_are_fenced_and_found(java: ApacheKafka, admin: KafkaAdminClient, topic: str) -> None:
    place = TopicPartition(topic, 1)
    producer = Producer({"bootstrap.servers": java.bootstrap, "transactional.id": "hanging"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=1)
    assert producer.flush(60) == 0
    described = admin.describe_transactions(["hanging"])["hanging"]
    assert (described.state, described.topic_partitions) == ("Ongoing", {place})
    slack = -6 * 60_000
    assert [each["transactional_id"] for each in admin.find_hanging_transactions(max_transaction_timeout_ms=slack)] == [
        "hanging"
    ]
    assert admin.find_hanging_producers([place], max_transaction_timeout_ms=slack) == []
    assert admin.fence_producers(["hanging"])["hanging"] > (described.producer_id, described.producer_epoch)
    eventually(
        lambda: (
            admin.list_partition_offsets({place: OffsetSpec.LATEST}, "read_committed")[place].offset
            == admin.list_partition_offsets({place: OffsetSpec.LATEST})[place].offset
        )
    )
    del producer


def test_offsets_log_directories_and_topics(admin: KafkaAdminClient, topic: str) -> None:
    place = TopicPartition(topic, 0)
    assert admin.list_partition_offsets({place: OffsetSpec.EARLIEST_LOCAL})[place].offset == 0
    assert admin.list_partition_offsets({place: OffsetSpec.LATEST_TIERED})[place].offset == -1
    assert admin.list_partition_offsets({place: OffsetSpec.MAX_TIMESTAMP})[place].offset >= 0
    reset = admin.reset_group_offsets("resets", {place: OffsetSpec.EARLIEST, TopicPartition(topic, 1): 0})
    assert {each["error"] for each in reset.values()} == {errors.NoError}
    (broker,) = admin.describe_log_dirs([topic])
    here = next(each["log_dir"] for each in broker["log_dirs"] if each["topics"])
    there = next(each["log_dir"] for each in broker["log_dirs"] if each["log_dir"] != here)
    replica = TopicPartitionReplica(topic, 0, 1)
    assert admin.alter_replica_log_dirs({replica: there}) == {replica: errors.NoError}
    created = admin.create_topics(["by-id"], wait_for_metadata=True)["topics"][0]
    topic_id = uuid.UUID(created["topic_id"])
    assert admin.describe_topics([topic_id])[0]["name"] == "by-id"
    admin.create_partitions({"by-id": 2})
    eventually(lambda: len(admin.describe_topics(["by-id"])[0]["partitions"]) == 2)
    admin.delete_topics([topic_id])
    eventually(lambda: "by-id" not in admin.list_topics())


def test_the_command_line(java: ApacheKafka) -> None:
    kafkapy = CommandLine(java.bootstrap)
    kafkapy.done("topics", "create", "lines", "-p", "2", "-c", "retention.ms=-1")
    eventually(lambda: kafkapy("topics", "describe", "lines", "--offsets").exit_code == 0)
    kafkapy.done("produce", "lines", "-p", "1", "-K", ":", stdin=b"a:1\nb:2\nc:3\n")
    assert kafkapy.done("consume", "lines", "-f", r"%p/%o %k=%s\n") == "1/0 a=1\n1/1 b=2\n1/2 c=3\n"
    assert kafkapy.done("consume", "lines", "-G", "readers", "-c", "2", "-f", "%s") == "12"
    (row,) = [row for row in kafkapy.rows("groups", "describe", "readers") if row["partition"] == "1"]
    assert (row["current_offset"], row["lag"]) == ("2", "1")
    reset = ("groups", "reset-offsets", "readers", "-t", "lines:1", "--to-earliest")
    assert kafkapy.json(*reset)[0]["change"] == -2
    kafkapy.done(*reset, "--execute")
    assert kafkapy.done("consume", "lines", "-G", "readers", "-f", "%s") == "123"
    kafkapy.done("configs", "set", "broker", "default", "log.cleaner.backoff.ms=14000")
    eventually(lambda: kafkapy.rows("configs", "describe", "broker", "default"))
    listed = {(row["type"], row["name"]): row["configuration"] for row in kafkapy.json("configs", "list")}
    assert listed["topic", "lines"] == {"retention.ms": "-1"}
    assert listed["broker", "default"]["log.cleaner.backoff.ms"] == "14000"
    (voter,) = kafkapy.rows("cluster", "quorum")
    assert (voter["node_id"], voter["role"], voter["lag"]) == ("1", "leader", "0")
    features = {row["feature"]: row["finalized"] for row in kafkapy.rows("features", "describe")}
    level = f"metadata.version={features['metadata.version']}"
    assert "could be at level" in kafkapy.done("features", "upgrade", level, "--dry-run")
    assert kafkapy.rows("transactions", "find-hanging", "--topic", "lines") == []
    assert {row["log_dir"] for row in kafkapy.rows("log-dirs", "describe")} == {
        str(java.data_dir / "one"),
        str(java.data_dir / "two"),
    }
    kafkapy.done("groups", "delete", "readers", "-y")
    kafkapy.done("topics", "delete", "lines", "-y")


def test_the_modules_are_complete() -> None:
    assert set(kafkapy.admin.__all__) > set(kafka.admin.__all__)
