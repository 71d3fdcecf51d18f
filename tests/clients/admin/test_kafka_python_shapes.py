"""Every method of kafka-python's admin client: called on both clients, the results are equal."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka
import kafka.admin
import kafka.errors
import kafka.structs
import pytest
from clients.admin.members import member
from confluent_kafka import Producer

import kafkapy.admin
import kafkapy.errors
import kafkapy.structs
from kafkapy.testing.broker_process import BrokerProcess

Call = Callable[[Any, Any, str], Any]
"""(admin client, the modules of its package, topic) -> result."""


class OurModules:
    admin = kafkapy.admin
    structs = kafkapy.structs
    errors = kafkapy.errors


class TheirModules:
    admin = kafka.admin
    structs = kafka.structs
    errors = kafka.errors


def tp(modules: Any, topic: str, partition: int = 0) -> Any:
    return modules.structs.TopicPartition(topic, partition)


def resource(modules: Any, topic: str, configs: Any = None) -> Any:
    return modules.admin.ConfigResource("TOPIC", topic, configs)


def acl_filter(modules: Any) -> Any:
    m = modules.admin
    pattern = m.ResourcePatternFilter(m.ResourceType.ANY, None, m.ACLResourcePatternType.ANY)
    return m.ACLFilter(None, None, m.ACLOperation.ANY, m.ACLPermissionType.ANY, pattern)


def without_times(quorum: Any) -> Any:
    """What does not change between two calls."""
    for topic in quorum["topics"]:
        for partition in topic["partitions"]:
            for voter in partition["current_voters"]:
                for name in ("last_fetch_timestamp", "last_caught_up_timestamp"):
                    assert voter.pop(name) > 0
    return quorum


CALLS: dict[str, Call] = {
    "list_topics": lambda c, m, t: sorted(c.list_topics()),
    "describe_topics": lambda c, m, t: c.describe_topics([t]),
    "describe_topics of one that is not there": lambda c, m, t: c.describe_topics(["nothing-here"]),
    "create_topics": lambda c, m, t: c.create_topics({t: {"num_partitions": 2}}, raise_errors=False),
    "create_topics that exist": lambda c, m, t: c.create_topics([t]),
    "create_topics validated": lambda c, m, t: c.create_topics(
        [m.admin.NewTopic("new", 2, 1, topic_configs={"retention.ms": "5"})], validate_only=True
    ),
    "delete_topics": lambda c, m, t: c.delete_topics(["nothing-here"], raise_errors=False),
    "wait_for_topics": lambda c, m, t: c.wait_for_topics([t]),
    "create_partitions": lambda c, m, t: [
        (each.name, each.error_code, each.error_message)
        for each in c.create_partitions({t: 3}, validate_only=True).results
    ],
    "delete_records": lambda c, m, t: c.delete_records({tp(m, t): 0}),
    "describe_topic_partitions": lambda c, m, t: c.describe_topic_partitions([t], response_partition_limit=1),
    "list_partition_offsets": lambda c, m, t: c.list_partition_offsets({tp(m, t): m.admin.OffsetSpec.LATEST}),
    "describe_configs": lambda c, m, t: c.describe_configs([resource(m, t)], include_synonyms=True),
    "describe_configs all": lambda c, m, t: c.describe_configs([resource(m, t)], config_filter="all"),
    "describe_configs of one key": lambda c, m, t: c.describe_configs([resource(m, t, {"segment.ms": None})]),
    "alter_configs": lambda c, m, t: c.alter_configs([resource(m, t, {"retention.ms": "7"})], validate_only=True),
    "alter_configs with operations": lambda c, m, t: c.alter_configs(
        [resource(m, t, {"retention.ms": (m.admin.AlterConfigOp.SET, "7"), "cleanup.policy": ("APPEND", "compact")})],
        validate_only=True,
    ),
    "reset_configs": lambda c, m, t: c.reset_configs([resource(m, t, ["retention.ms"])], validate_only=True),
    "list_config_resources": lambda c, m, t: c.list_config_resources(),
    "describe_cluster": lambda c, m, t: c.describe_cluster(),
    "describe_features": lambda c, m, t: c.describe_features(),
    "describe_log_dirs": lambda c, m, t: without_free_space(c.describe_log_dirs({t: [0, 1]})),
    "alter_replica_log_dirs": lambda c, m, t: c.alter_replica_log_dirs(
        {m.structs.TopicPartitionReplica(t, 0, 1): "/nowhere"}
    ),
    "describe_metadata_quorum": lambda c, m, t: without_times(c.describe_metadata_quorum()),
    "api_versions": lambda c, m, t: {int(key): tuple(each) for key, each in c.api_versions().items()},
    "update_features": lambda c, m, t: c.update_features({"metadata.version": 1}, validate_only=True),
    "list_groups": lambda c, m, t: sorted(c.list_groups(), key=lambda each: str(each["group_id"])),
    "describe_groups": lambda c, m, t: c.describe_groups([f"group-of-{t}"]),
    "list_group_offsets": lambda c, m, t: c.list_group_offsets([f"offsets-of-{t}"]),
    "alter_group_offsets": lambda c, m, t: c.alter_group_offsets(
        f"offsets-of-{t}", {tp(m, t): m.structs.OffsetAndMetadata(1, "note", 0)}
    ),
    "reset_group_offsets": lambda c, m, t: c.reset_group_offsets(
        f"offsets-of-{t}", {tp(m, t): m.admin.OffsetSpec.EARLIEST, tp(m, t, 1): 5}
    ),
    "delete_group_offsets": lambda c, m, t: c.delete_group_offsets(f"offsets-of-{t}", [tp(m, t, 1)]),
    "delete_groups": lambda c, m, t: c.delete_groups(["nothing-here", f"group-of-{t}"]),
    "remove_group_members": lambda c, m, t: c.remove_group_members(
        f"group-of-{t}", [m.admin.MemberToRemove(member_id="nobody")]
    ),
    "list_transactions": lambda c, m, t: c.list_transactions(),
    "describe_transactions": lambda c, m, t: c.describe_transactions([f"transactions-of-{t}"]),
    "describe_producers": lambda c, m, t: c.describe_producers([tp(m, t)]),
    "abort_transaction": lambda c, m, t: c.abort_transaction(m.admin.AbortTransactionSpec(tp(m, t), 99, 0)),
    "find_hanging_transactions": lambda c, m, t: c.find_hanging_transactions(),
    "describe_acls": lambda c, m, t: c.describe_acls(acl_filter(m)),
    "create_acls": lambda c, m, t: c.create_acls([]),
    "delete_acls": lambda c, m, t: c.delete_acls([acl_filter(m)]),
    "elect_leaders": lambda c, m, t: [
        (result.topic, [(each.partition_id, each.error_code) for each in result.partition_result])
        for result in c.elect_leaders(0, {t: [0]}).replica_election_results
    ],
    "alter_partition_reassignments": lambda c, m, t: c.alter_partition_reassignments({tp(m, t): [1]}),
    "list_partition_reassignments": lambda c, m, t: c.list_partition_reassignments(),
    "describe_user_scram_credentials": lambda c, m, t: c.describe_user_scram_credentials(),
    "alter_user_scram_credentials": lambda c, m, t: c.alter_user_scram_credentials(
        [m.admin.UserScramCredentialDeletion("alice", "SCRAM-SHA-256")]
    ),
}

DIFFERENT_TEXT = re.compile(r"^(?:\[Error \d+\] )?(\w+Error): ")
"""Errors as text begin with their number there and with their name here; what follows is put otherwise."""


def without_free_space(brokers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """That there is some, instead of how much: it changes between two calls."""
    for broker in brokers:
        for log_dir in broker["log_dirs"]:
            log_dir["usable_bytes"] = log_dir["usable_bytes"] > 0
    return brokers


@contextmanager
def subject_of_comparison(bootstrap: str, admin: kafkapy.admin.KafkaAdminClient) -> Iterator[str]:
    """A topic with records, a group at work, committed offsets and a transactional id."""
    topic = "shapes"
    admin.create_topics({topic: {"num_partitions": 2, "configs": {"retention.ms": "-1"}}}, wait_for_metadata=True)
    place = kafkapy.structs.TopicPartition(topic, 0)
    admin.alter_group_offsets(f"offsets-of-{topic}", {place: kafkapy.structs.OffsetAndMetadata(1, "note", 0)})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"transactions-of-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    producer.commit_transaction(60)
    with member(bootstrap, f"group-of-{topic}", topic, **{"group.protocol": "classic"}):
        yield topic


@contextmanager
def client_of_kafka_python(bootstrap: str) -> Iterator[kafka.admin.KafkaAdminClient]:
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture(scope="module")
def subject(broker: BrokerProcess, admin: kafkapy.admin.KafkaAdminClient) -> Iterator[str]:
    with subject_of_comparison(broker.bootstrap, admin) as topic:
        yield topic


@pytest.fixture(scope="module")
def theirs(broker: BrokerProcess) -> Iterator[kafka.admin.KafkaAdminClient]:
    with client_of_kafka_python(broker.bootstrap) as client:
        yield client


@pytest.mark.parametrize("call", CALLS)
def test_results_are_those_of_kafka_python(
    admin: kafkapy.admin.KafkaAdminClient, theirs: kafka.admin.KafkaAdminClient, subject: str, call: str
) -> None:
    found = [
        outcome(CALLS[call], client, modules, subject)
        for client, modules in ((admin, OurModules), (theirs, TheirModules))
    ]
    assert found[0] == found[1]


def test_every_method_is_compared_and_takes_the_same_arguments() -> None:
    public = {
        name: method
        for name, method in inspect.getmembers(kafka.admin.KafkaAdminClient, inspect.isfunction)
        if not name.startswith("_") and name not in ("close", "get_broker_version_data")
    }
    assert {call.split()[0] for call in CALLS} == set(public)
    for name, method in public.items():
        mine = inspect.signature(getattr(kafkapy.admin.KafkaAdminClient, name))
        assert (
            list(inspect.signature(method).parameters)
            == list(mine.parameters)[: len(inspect.signature(method).parameters)]
        ), name


def test_every_name_of_the_modules_is_there() -> None:
    assert [
        name for name in (*kafka.admin.__all__, "NewTopic", "NewPartitions") if not hasattr(kafkapy.admin, name)
    ] == []
    for name in ("TopicPartition", "TopicPartitionReplica", "OffsetAndMetadata", "OffsetAndTimestamp"):
        theirs, ours = getattr(kafka.structs, name), getattr(kafkapy.structs, name)
        assert theirs._fields == ours._fields


def outcome(call: Call, client: Any, modules: Any, topic: str) -> Any:
    """The result, or the name of the error."""
    try:
        return plain(call(client, modules, topic))
    except Exception as error:
        name = type(error).__name__
        return "UnsupportedVersionError" if name == "IncompatibleBrokerVersion" else name


def plain(value: Any) -> Any:
    """Without what differs on purpose: the package of a class, and how errors are put into words."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, dict):
        # Operations are a set there.
        return {
            plain(key): sorted(each) if key == "authorized_operations" and each else plain(each)
            for key, each in value.items()
        }
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, (list, set)):
        return [plain(each) for each in (sorted(value) if isinstance(value, set) else value)]
    if isinstance(value, str) and (text := DIFFERENT_TEXT.match(value)):
        return text[1]
    return value
