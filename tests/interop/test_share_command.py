"""`kafkapy share` and `kafkapy consume --share` on kafkapy and on Apache Kafka 4.4, beside kafka-share-groups.sh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from interop.conftest import run_java
from interop.share_groups import RELEASE, configure, fill, needs_java
from tools.conftest import CommandLine

from kafkapy import KafkaAdminClient, KafkaShareConsumer, TopicPartition


@pytest.fixture(autouse=True)
def no_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def kafkapy(kafka: Any) -> CommandLine:
    return CommandLine(kafka.bootstrap)


@pytest.fixture
def queue(kafka: Any, admin: KafkaAdminClient, topic: str) -> str:
    """A topic with ten records, and a group of the same name that has read none of them."""
    admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    configure(admin, topic, share_auto_offset_reset="earliest")
    fill(kafka.bootstrap, topic, [b"%d" % n for n in range(10)])
    return topic


def kafkas(kafka: Any, *arguments: str) -> str:
    """The output of kafka-share-groups.sh."""
    main = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    return run_java(RELEASE, main, "--bootstrap-server", kafka.bootstrap, *arguments)


def test_a_share_group_from_its_first_record_to_its_end(kafka: Any, kafkapy: CommandLine, queue: str) -> None:
    printed = kafkapy.done("consume", queue, "--share", queue, "-c", "4", "-f", r"%p %o %s %D\n")
    assert sorted(printed.splitlines()) == [f"0 {n} {n} 1" for n in range(4)]
    assert queue in kafkapy.done("share", "list", "-q").splitlines()
    rows = {row["partition"]: row for row in kafkapy.rows("share", "describe", queue)}
    assert (rows["0"]["log_end_offset"], rows["0"]["lag"]) == ("10", "6")
    [state] = kafkapy.json("share", "describe", queue)
    assert (state["group"], state["state"], state["members"], state["lag"]) == (queue, "Empty", 0, 6)

    released = kafkapy.done("consume", queue, "--share", queue, "-c", "2", "--ack", "release", "--json")
    assert [json.loads(line)["delivery_count"] for line in released.splitlines()] == [1, 1]
    again = kafkapy.done("consume", queue, "--share", queue, "-c", "2", "-f", r"%o %D\n")
    assert again.splitlines() == ["4 2", "5 2"]

    before = kafkapy.rows("share", "describe", queue)[0]
    assert before["lag"] == "4"
    dry = kafkapy.rows("share", "reset-offsets", queue, "--topic", f"{queue}:0", "--to-earliest")
    assert [(row["current_offset"], row["new_offset"]) for row in dry] == [(before["start_offset"], "0")]
    assert kafkapy.rows("share", "describe", queue)[0] == before
    kafkapy.done("share", "reset-offsets", queue, "--topic", f"{queue}:0", "--to-offset", "8", "--execute")
    assert kafkapy.rows("share", "describe", queue)[0]["start_offset"] == "8"
    rest = kafkapy.done("consume", queue, "--share", queue, "-f", r"%o\n")
    assert rest.splitlines() == ["8", "9"]

    kafkapy.done("share", "delete-offsets", queue, queue, "--yes")
    assert kafkapy.json("share", "describe", queue)[0]["offsets"] == []
    kafkapy.done("share", "delete", queue, "--yes")
    assert queue not in kafkapy.done("share", "list", "-q").splitlines()


@needs_java
def test_kafkas_command_shows_the_same(kafka: Any, kafkapy: CommandLine, queue: str) -> None:
    kafkapy.done("consume", queue, "--share", queue, "-c", "4")
    rows = {row["partition"]: row for row in kafkapy.rows("share", "describe", queue)}
    said = " ".join(kafkas(kafka, "--describe", "--group", queue).split())
    assert f"{queue} {queue} 0 {rows['0']['start_offset']} {rows['0']['lag']}" in said


def test_members(kafka: Any, kafkapy: CommandLine, queue: str) -> None:
    with KafkaShareConsumer(queue, bootstrap_servers=kafka.bootstrap, group_id=queue, client_id="worker-7") as consumer:
        while not consumer.poll(200):
            pass
        [row] = kafkapy.rows("share", "describe", queue, "--members")
        assert (row["group"], row["client_id"]) == (queue, "worker-7")
        [shown] = kafkapy.json("share", "describe", queue, "--members")
        assert shown["assignment"] == [str(TopicPartition(queue, 0)), str(TopicPartition(queue, 1))]
        assert kafkapy.rows("share", "describe", queue)[0]["members"] == "1"
        [state] = kafkapy.rows("share", "describe", queue, "--state")
        assert (state["state"], state["members"]) == ("Stable", "1")
        sentence = kafkapy.failure("share", "reset-offsets", queue, "--all-topics", "--to-earliest", "--execute")
        assert "has members (Stable): stop them" in sentence
        assert "has members" in kafkapy.failure("share", "delete", queue, "--yes").lower()


def test_sentences(kafkapy: CommandLine, admin: KafkaAdminClient, queue: str) -> None:
    assert "no group" in kafkapy.failure("share", "describe", "nobody-has-this")
    assert "no group" in kafkapy.failure("share", "delete", "nobody-has-this", "--yes")
    kafkapy.done("consume", queue, "--group", f"{queue}-classic")
    assert "is a classic group" in kafkapy.failure("share", "describe", f"{queue}-classic")
    assert "Name groups" in kafkapy.failure("share", "describe", code=2)
    assert "do not work with --share" in kafkapy.failure("consume", queue, "--share", "g", "--group", "h", code=2)
    assert "do not work with --share" in kafkapy.failure("consume", f"{queue}:0", "--share", "g", code=2)
    assert "belongs to --share" in kafkapy.failure("consume", queue, "--ack", "reject", code=2)
