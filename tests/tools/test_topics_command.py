"""kafkapy topics, configs and cluster: what they print, their exit codes and their sentences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tools.conftest import CommandLine

from kafkapy.admin import KafkaAdminClient
from kafkapy.types import TopicPartition

Name = Callable[[], str]


def test_topics_are_created_listed_and_deleted(kafkapy: CommandLine, name: Name) -> None:
    one, two = name(), name()
    arguments = ("topics", "create", one, two, "-p", "3", "-r", "1", "-c", "retention.ms=5000")
    assert kafkapy.done(*arguments) == f"Topic {one} created.\nTopic {two} created.\n"
    rows = {row["topic"]: row for row in kafkapy.rows("topics", "list")}
    assert rows[one] == {"topic": one, "partitions": "3", "replication_factor": "1", "internal": "false"}
    assert {one, two} <= set(kafkapy.done("topics", "list", "-q").splitlines())
    assert {"topic": two, "partitions": 3, "replication_factor": 1, "internal": False} in kafkapy.json("topics", "list")
    assert kafkapy.json("topics", "delete", one, two, "-y") == [
        {"topic": each, "outcome": "deleted", "error": None} for each in (one, two)
    ]
    assert one not in kafkapy.done("topics", "list", "-q", "--exclude-internal").splitlines()


def test_topics_that_exist_and_that_do_not(kafkapy: CommandLine, topic: str, name: Name) -> None:
    assert kafkapy.failure("topics", "create", topic) == f"Topic {topic}: Topic '{topic}' already exists."
    assert kafkapy.done("topics", "create", topic, "--if-not-exists") == f"Topic {topic} exists already.\n"
    missing = name()
    assert kafkapy.failure("topics", "delete", missing, "-y").startswith(f"The cluster has no topic {missing}")
    assert kafkapy.failure("topics", "delete", missing, name(), "-y").endswith(
        "the cluster has no such topic, kafkapy topics list shows those that it has."
    )
    said = kafkapy.failure("topics", "create", name(), "-c", "retention.msec=1")
    assert said.endswith("did you mean retention.ms or retention.bytes or local.retention.ms?")
    said = kafkapy.failure("topics", "delete-records", f"{topic}:1", "--before", "8", "-y")
    assert said.startswith(f"Offset 8 is outside of the log: {topic}-1 ends at 0. --before end deletes all records")
    assert kafkapy.done("topics", "delete", missing, "--if-exists") == f"Topic {missing} does not exist.\n"
    assert kafkapy.failure("topics", "describe", topic, missing).startswith(f"The cluster has no topic {missing}")
    other = name()
    result = kafkapy("topics", "create", topic, other)
    assert (result.exit_code, result.stdout) == (1, f"Topic {other} created.\n")


def test_a_dry_run_changes_nothing(kafkapy: CommandLine, topic: str, name: Name) -> None:
    made = name()
    assert kafkapy.done("topics", "create", made, "--dry-run") == f"Topic {made} could be created.\n"
    assert made not in kafkapy.done("topics", "list", "-q").splitlines()
    assert "could have 5 partitions" in kafkapy.done("topics", "alter", topic, "-p", "5", "--dry-run")
    assert "could be changed" in kafkapy.done("configs", "set", "topic", topic, "retention.ms=1", "--dry-run")
    assert kafkapy.rows("configs", "describe", "topic", topic) == []


def test_a_topic_is_described_with_its_offsets_and_configuration(
    kafkapy: CommandLine, admin: KafkaAdminClient, topic: str
) -> None:
    kafkapy.done("produce", topic, "-p", "1", stdin=b"a\nb\nc\n")
    kafkapy.done("configs", "set", "topic", topic, "retention.ms=-1")
    rows = kafkapy.rows("topics", "describe", topic, "--offsets")
    assert [(row["partition"], row["leader"], row["earliest"], row["latest"], row["records"]) for row in rows] == [
        ("0", "1", "0", "0", "0"),
        ("1", "1", "0", "3", "3"),
    ]
    (shown,) = kafkapy.json("topics", "describe", topic)
    assert (shown["topic"], shown["configs"], len(shown["topic_id"])) == (topic, {"retention.ms": "-1"}, 22)
    assert shown["partitions"][0]["isr"] == [1]
    assert kafkapy.rows("topics", "describe", topic, "--under-replicated") == []
    assert kafkapy.rows("topics", "describe", topic, "--unavailable") == []
    rows = kafkapy.rows("topics", "delete-records", f"{topic}:1", "--before", "2", "-y")
    assert rows == [{"topic": topic, "partition": "1", "first_offset": "2"}]
    kafkapy.done("topics", "delete-records", topic, "--before", "end")
    earliest = admin.list_partition_offsets({TopicPartition(topic, 1): -2})
    assert earliest[TopicPartition(topic, 1)].offset == 3


def test_topics_get_more_partitions(kafkapy: CommandLine, topic: str) -> None:
    assert kafkapy.done("topics", "alter", topic, "-p", "4") == f"Topic {topic} has 4 partitions now.\n"
    assert len(kafkapy.rows("topics", "describe", topic)) == 4
    assert "4 partitions, which is higher than the requested 2" in kafkapy.failure("topics", "alter", topic, "-p", "2")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("topics", "create", "t", "-c", "retention.ms"), "'retention.ms' is not KEY=VALUE."),
        (("topics", "create", "t", "-p", "0"), "Invalid value for '--partitions' / '-p': 0 is not in the range x>=1."),
        (("topics", "delete-records", "t", "--before", "now"), "--before 'now' is not an offset: give a number or end"),
        (("topics", "delete-records", "t:x", "--before", "1"), "'t:x' is not TOPIC, "),
        (("configs", "describe", "table", "t"), "Invalid value for 'TYPE': 'table' is not one of 'topic', "),
        (("configs", "set", "topic", "t", "=5"), "'=5' is not KEY=VALUE."),
        (("configs", "describe", "broker", "x"), "'x' is not a broker: give its id, or default for all brokers."),
        (("transactions", "list", "--longer-than", "15x"), "'15x' is not a duration: "),
        (("features", "upgrade", "x"), "'x' is not FEATURE=LEVEL."),
        (("features", "upgrade"), "Give FEATURE=LEVEL, or --release."),
        (("features", "downgrade", "--release", "9.9"), "--release '9.9' is not a known release of Apache Kafka"),
        (("topics", "list", "-X", "linger"), "'linger' is not KEY=VALUE."),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(kafkapy: CommandLine, arguments: tuple[str, ...], sentence: str) -> None:
    assert kafkapy.failure(*arguments, code=2).startswith(sentence)


def test_configurations_are_set_added_to_and_deleted(kafkapy: CommandLine, topic: str) -> None:
    said = kafkapy.done("configs", "set", "topic", topic, "retention.ms=7", "cleanup.policy+=compact")
    assert said == f"Topic {topic}: retention.ms, cleanup.policy changed.\n"
    rows = kafkapy.rows("configs", "describe", "topic", topic)
    assert [(row["key"], row["value"]) for row in rows] == [("cleanup.policy", "delete,compact"), ("retention.ms", "7")]
    kafkapy.done("configs", "set", "topic", topic, "cleanup.policy-=delete")
    assert kafkapy.json("configs", "delete", "topic", topic, "retention.ms") == {
        "type": "topic",
        "name": topic,
        "keys": ["retention.ms"],
        "dry_run": False,
    }
    rows = kafkapy.rows("configs", "describe", "topic", topic, "--synonyms")
    assert rows == [
        {
            "key": "cleanup.policy",
            "value": "compact",
            "config_source": "DYNAMIC_TOPIC_CONFIG",
            "read_only": "false",
            "synonyms": "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,DEFAULT_CONFIG:log.cleanup.policy=delete",
        }
    ]
    assert len(kafkapy.rows("configs", "describe", "topic", topic, "--all")) > 20
    (documented,) = kafkapy.json("configs", "describe", "topic", topic, "segment.ms", "--documentation")
    assert documented["documentation"]
    values = {row["key"]: row["value"] for row in kafkapy.rows("configs", "describe", "broker", "1", "--all")}
    assert values["broker.id"] == "1"
    kafkapy.done("configs", "set", "broker", "default", "log.cleaner.backoff.ms=14000")
    (row,) = kafkapy.rows("configs", "describe", "broker", "default")
    assert (row["key"], row["value"]) == ("log.cleaner.backoff.ms", "14000")
    kafkapy.done("configs", "delete", "broker", "default", "log.cleaner.backoff.ms")


def test_configurations_that_are_not_there(kafkapy: CommandLine, topic: str) -> None:
    assert kafkapy.failure("configs", "set", "topic", topic, "retentionms=7") == (
        f"Topic {topic} has no configuration retentionms that can be set; "
        "did you mean retention.ms or retention.bytes or local.retention.ms?"
    )
    assert kafkapy.failure("configs", "set", "topic", topic, "retention.ms=x") == (
        f"Topic {topic}: Invalid value 'x' for configuration retention.ms: must be a whole number (long)."
    )
    assert (
        kafkapy.failure("configs", "describe", "topic", topic, "nope")
        == f"Topic {topic} has no configuration nope. --all shows every key."
    )
    assert kafkapy.failure("configs", "describe", "broker", "7") == "The cluster has no broker 7; it has 1."
    assert kafkapy.failure("configs", "set", "broker", "1", "log.dirs=/d") == (
        "Broker 1 has log.dirs from the file that it was started with, and takes no other value while it runs."
    )
    assert "is not a group configuration key; did you mean consumer.session.timeout.ms" in kafkapy.failure(
        "configs", "set", "group", "g", "consumer.session.timeout=1"
    )
    said = kafkapy.failure("configs", "set", "client-metrics", "m", "match=a=b")
    assert said == "Client-metrics m: Illegal client matching pattern: a=b."


def test_types_of_resources_are_named_as_in_kafkas_tool_too(kafkapy: CommandLine, topic: str) -> None:
    kafkapy.done("configs", "set", "topics", topic, "retention.ms=7")
    (row,) = kafkapy.rows("configs", "describe", "topics", topic)
    assert (row["key"], row["value"]) == ("retention.ms", "7")
    assert kafkapy.rows("configs", "describe", "brokers", "default") == []
    assert kafkapy.failure("configs", "describe", "topc", topic, code=2).endswith(
        "'topc' is no type of resources; did you mean topic?"
    )
    assert "'xyzzy' is not one of 'topic', 'broker'" in kafkapy.failure("configs", "describe", "xyzzy", "n", code=2)
    said = kafkapy.failure("configs", "describe", "broker", code=2)
    assert said.endswith("Give the id of a broker, or default for all; kafkapy cluster brokers shows them.")


def test_the_cluster(kafkapy: CommandLine, admin: KafkaAdminClient) -> None:
    cluster_id = admin.describe_cluster()["cluster_id"]
    assert kafkapy.done("cluster", "id") == cluster_id + "\n"
    assert kafkapy.json("cluster", "id") == {"cluster_id": cluster_id}
    (row,) = kafkapy.rows("cluster", "brokers")
    assert (row["broker_id"], row["host"], row["controller"], row["fenced"]) == ("1", "127.0.0.1", "true", "false")
    versions = {row["name"]: row for row in kafkapy.rows("cluster", "api-versions", "--broker", "1")}
    assert versions["CreateTopics"]["api_key"] == "19"
    (voter,) = kafkapy.rows("cluster", "quorum")
    assert (voter["node_id"], voter["role"], voter["lag"]) == ("1", "leader", "0")


def test_features(kafkapy: CommandLine) -> None:
    def finalized() -> dict[str, str]:
        return {row["feature"]: row["finalized"] for row in kafkapy.rows("features", "describe")}

    latest = {"metadata.version": "33", "group.version": "1", "share.version": "2", "transaction.version": "2"}
    assert finalized() == latest
    assert {row["means"] for row in kafkapy.rows("features", "describe")} == {"4.4-IV2", "-"}
    assert kafkapy.done("features", "upgrade", "group.version=1") == "Feature group.version is at level 1.\n"
    down = ("features", "downgrade", "transaction.version=1")
    assert kafkapy.done(*down, "--dry-run") == "Feature transaction.version could be at level 1.\n"
    assert finalized() == latest
    assert kafkapy.done(*down) == "Feature transaction.version is at level 1.\n"
    assert kafkapy.json("features", "disable", "group.version", "--unsafe") == {"group.version": "OK"}
    assert finalized() == {**latest, "group.version": "-", "transaction.version": "1"}
    kafkapy.done("features", "upgrade", "--release", "4.4")
    assert finalized() == latest
    assert "Can't downgrade" in kafkapy.failure("features", "upgrade", "group.version=0")
    assert "only supports versions 7-33" in kafkapy.failure("features", "upgrade", "metadata.version=1")
    assert "might delete metadata" in kafkapy.failure("features", "downgrade", "metadata.version=4.3")
