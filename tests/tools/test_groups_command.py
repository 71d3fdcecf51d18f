"""kafkapy groups and transactions: lag, resets with and without --execute, and their sentences."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clients.admin.members import eventually, member
from confluent_kafka import Producer
from tools.conftest import CommandLine

from kafkapy.admin import KafkaAdminClient
from kafkapy.testing.broker import Broker
from kafkapy.tools.reset_offsets import parse_datetime, parse_duration
from kafkapy.types import OffsetAndMetadata, TopicPartition

Name = Callable[[], str]


@pytest.fixture
def group(admin: KafkaAdminClient, kafkapy: CommandLine, topic: str, name: Name) -> str:
    """A group without members: 3 of the 10 records of partition 0 read, and none of partition 1."""
    kafkapy.done("produce", topic, "-p", "0", stdin=b"".join(b"%d\n" % each for each in range(10)))
    made = name()
    admin.alter_group_offsets(made, {TopicPartition(topic, 0): OffsetAndMetadata(3)})
    return made


def committed(admin: KafkaAdminClient, group: str, topic: str) -> dict[int, int]:
    offsets = admin.list_group_offsets(group)[group]
    return {partition.partition: each.offset for partition, each in offsets.items() if partition.topic == topic}


def test_groups_are_listed_and_described_with_their_lag(kafkapy: CommandLine, topic: str, group: str) -> None:
    rows = {row["group"]: row for row in kafkapy.rows("groups", "list")}
    assert rows[group] == {"group": group, "type": "classic", "protocol": "-", "state": "Empty"}
    assert group in kafkapy.done("groups", "list", "-q", "--state", "empty", "--type", "classic").splitlines()
    assert group not in kafkapy.done("groups", "list", "-q", "--state", "Stable").splitlines()
    (row,) = kafkapy.rows("groups", "describe", group)
    assert (row["topic"], row["partition"], row["current_offset"], row["log_end_offset"], row["lag"]) == (
        topic,
        "0",
        "3",
        "10",
        "7",
    )
    (state,) = kafkapy.rows("groups", "describe", group, "--state")
    assert (state["state"], state["members"], state["lag"]) == ("Empty", "0", "7")
    (shown,) = kafkapy.json("groups", "describe", group)
    assert (shown["lag"], shown["offsets"][0]["lag"], shown["coordinator"]) == (7, 7, 1)
    assert group in {row["group"] for row in kafkapy.rows("groups", "describe", "--all")}


def test_members_are_shown_and_removed(kafkapy: CommandLine, broker: Broker, topic: str, name: Name) -> None:
    group = name()
    with member(broker.bootstrap_servers, group, topic, **{"group.protocol": "classic", "client.id": "worker"}):
        eventually(lambda: kafkapy.rows("groups", "describe", group, "--members"))
        (row,) = kafkapy.rows("groups", "describe", group, "--members")
        assert (row["client_id"], row["host"], row["assignment"]) == ("worker", "127.0.0.1", f"{topic}-0,{topic}-1")
        owners = {row["partition"]: row["client_id"] for row in kafkapy.rows("groups", "describe", group)}
        assert owners == {"0": "worker", "1": "worker"}
        assert "has members" in kafkapy.failure(
            "groups", "reset-offsets", group, "-t", topic, "--to-earliest", "--execute"
        )
        said = kafkapy.failure("groups", "delete", group, "-y")
        assert said.startswith(f"Group {group}: the group has members; stop them")
        assert "removed" in kafkapy.done("groups", "remove-members", group, "--all", "--reason", "a test")
        said = kafkapy.failure("groups", "remove-members", group, "--member", "nobody")
        assert said == (
            "Member nobody: the group has no such member; kafkapy groups describe GROUP --members shows those that it "
            "has."
        )
    missing = name()
    said = kafkapy.failure("groups", "remove-members", missing, "--member", "nobody")
    assert said.startswith(f"The cluster has no group {missing}")


def test_groups_that_are_not_there(kafkapy: CommandLine, name: Name) -> None:
    missing = name()
    assert kafkapy.failure("groups", "describe", missing).startswith(f"The cluster has no group {missing}")
    assert kafkapy.failure("groups", "delete", missing, "-y").startswith(f"The cluster has no group {missing}")


def test_groups_and_their_offsets_are_deleted(
    kafkapy: CommandLine, admin: KafkaAdminClient, topic: str, group: str
) -> None:
    assert kafkapy.done("groups", "delete-offsets", group, f"{topic}:0", "-y") == f"Offset of {topic}-0 deleted.\n"
    assert committed(admin, group, topic) == {}
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(3)})
    assert kafkapy.json("groups", "delete", group) == [{"group": group, "error": None}]
    assert group not in kafkapy.done("groups", "list", "-q").splitlines()


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 10, 1: 0}),
        (("--to-offset", "5"), {0: 5, 1: 0}),
        (("--to-offset", "99"), {0: 10, 1: 0}),
        (("--to-datetime", "2020-01-01T00:00:00"), {0: 0, 1: 0}),
        (("--to-datetime", "2999-01-01T00:00:00Z"), {0: 10, 1: 0}),
        (("--by-duration", "PT1H"), {0: 0, 1: 0}),
        (("--to-current",), {0: 3, 1: 0}),
    ],
)
def test_offsets_are_reset_to_places(
    kafkapy: CommandLine,
    admin: KafkaAdminClient,
    topic: str,
    group: str,
    arguments: tuple[str, ...],
    offsets: dict[int, int],
) -> None:
    command = ("groups", "reset-offsets", group, "--topic", topic, *arguments)
    rows = kafkapy.rows(*command)
    assert {int(row["partition"]): int(row["new_offset"]) for row in rows} == offsets
    assert (rows[0]["current_offset"], rows[0]["log_end_offset"]) == ("3", "10")
    assert rows[0]["change"] == str(offsets[0] - 3)
    assert committed(admin, group, topic) == {0: 3}, "a dry run has changed something"
    kafkapy.done(*command, "--execute")
    assert committed(admin, group, topic) == offsets


def test_offsets_are_shifted_and_kept_in_files(
    kafkapy: CommandLine, admin: KafkaAdminClient, topic: str, group: str, tmp_path: Path
) -> None:
    reset = ("groups", "reset-offsets", group)
    kafkapy.done(*reset, "--topic", f"{topic}:0", "--shift-by", "4", "--execute")
    assert committed(admin, group, topic) == {0: 7}
    kafkapy.done(*reset, "--all-topics", "--shift-by", "-2", "--execute")
    assert committed(admin, group, topic) == {0: 5}
    exported = kafkapy.done(*reset, "--all-topics", "--to-current", "--export")
    assert exported == f"{topic},0,5\n"
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,2\n{topic},1,0\n")
    assert kafkapy.json(*reset, "--from-file", str(file), "--execute")[0]["new_offset"] == 2
    assert committed(admin, group, topic) == {0: 2, 1: 0}
    file.write_text(f"{topic},0\n")
    assert kafkapy.failure(*reset, "--from-file", str(file)) == f"Line 1 of {file} is not topic,partition,offset."
    assert "the group has none for" in kafkapy.failure(
        "groups", "reset-offsets", "nobody", "--topic", topic, "--shift-by", "1"
    )
    assert "has no offsets" in kafkapy.failure("groups", "reset-offsets", "nobody", "--all-topics", "--to-earliest")
    assert "it has partitions 0 to 1" in kafkapy.failure(*reset, "--topic", f"{topic}:7", "--to-earliest")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-t", "t"), "Give one target: --to-earliest, --to-latest, --to-current, --to-offset, "),
        (("-t", "t", "--to-earliest", "--to-latest"), "Give one target:"),
        (("--to-earliest",), "Name partitions: --topic, or --all-topics."),
        (("-t", "t", "--all-topics", "--to-earliest"), "Name partitions"),
        (("-t", "t", "--to-datetime", "noon"), "'noon' is not a time: give 2024-05-01T12:00:00"),
        (("-t", "t", "--by-duration", "1 hour"), "'1 hour' is not a duration: give P1DT2H30M, 90m, 2h or 7d."),
        (("-t", "t", "--to-earliest", "--dry-run", "--execute"), "--execute and --dry-run exclude each other."),
    ],
)
def test_a_reset_that_does_not_say_enough(kafkapy: CommandLine, arguments: tuple[str, ...], sentence: str) -> None:
    assert kafkapy.failure("groups", "reset-offsets", "g", *arguments, code=2).startswith(sentence)


def test_times_and_durations() -> None:
    assert parse_datetime("1970-01-01T00:00:01") == parse_datetime("1970-01-01T01:00:01+01:00") == 1000
    assert parse_datetime("1970-01-01T00:00:00.250Z") == 250
    assert [parse_duration(text) for text in ("250ms", "3s", "2m", "1h", "7d", "PT1.5S", "P1DT2H3M4S")] == [
        250,
        3000,
        120_000,
        3_600_000,
        604_800_000,
        1500,
        93_784_000,
    ]
    for wrong in ("", "P", "PT", "1", "1w", "P1Y", "-1h"):
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(wrong)


def test_transactions_are_listed_described_and_ended(
    kafkapy: CommandLine, broker: Broker, topic: str, name: Name
) -> None:
    transactional_id = name()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(20) == 0
    rows = {row["transactional_id"]: row for row in kafkapy.rows("transactions", "list", "--state", "Ongoing")}
    assert rows[transactional_id]["coordinator"] == "1"
    assert kafkapy.rows("transactions", "list", "--longer-than", "1h") == []
    (shown,) = kafkapy.json("transactions", "describe", transactional_id)
    assert (shown["state"], shown["partitions"], shown["timeout_ms"]) == ("Ongoing", [f"{topic}-0"], 60000)
    assert abs(shown["duration_ms"]) < 60_000
    assert shown["start_time"].endswith("Z")
    (state,) = kafkapy.rows("transactions", "describe-producers", topic, "0")
    assert (state["producer_id"], state["start_offset"]) == (str(shown["producer_id"]), "0")
    assert kafkapy.rows("transactions", "find-hanging", "--topic", topic) == []
    assert kafkapy.failure("transactions", "abort", topic, "0", "--start-offset", "7") == (
        f"No open transaction begins at offset 7 in {topic}-0. kafkapy transactions find-hanging shows hanging "
        "transactions with their start offsets."
    )
    said = kafkapy.done("transactions", "abort", topic, "0", "--start-offset", "0")
    assert said == f"The transaction of producer {shown['producer_id']} in {topic}-0 is aborted.\n"
    (fenced,) = kafkapy.json("transactions", "terminate", transactional_id)
    assert (fenced["producer_id"], fenced["producer_epoch"]) > (shown["producer_id"], shown["producer_epoch"])
    del producer
    misspelt = f"{transactional_id}s"
    for command in ("describe", "terminate"):
        assert kafkapy.failure("transactions", command, "nobody") == (
            "There is no transactional id nobody. kafkapy transactions list shows those that there are."
        )
        said = kafkapy.failure("transactions", command, misspelt)
        assert said.startswith(f"There is no transactional id {misspelt}; did you mean {transactional_id}")
    assert misspelt not in {row["transactional_id"] for row in kafkapy.rows("transactions", "list")}
    for name_of, *options in (("describe-producers",), ("abort", "--start-offset", "0")):
        said = kafkapy.failure("transactions", name_of, topic, "9", *options)
        assert said == f"Topic {topic} has no partition 9: it has partitions 0 to 1."
    for arguments in (("abort", topic, "0"), ("abort", topic, "0", "--producer-id", "4")):
        assert kafkapy.failure("transactions", *arguments, code=2).startswith("Give ")
    assert kafkapy.failure("transactions", "find-hanging", "--partition", "1", code=2) == "--partition needs --topic."


@pytest.mark.parametrize("zone", ["UTC", "XYZ-5:45", "ABC+3:30"])
def test_a_time_without_zone_is_utc_wherever_the_command_runs(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        try:
            assert parse_datetime("2024-05-01T12:00:00") == parse_datetime("2024-05-01T12:00:00Z") == 1_714_564_800_000
            assert parse_datetime("2024-05-01T12:00:00+05:45") == 1_714_564_800_000 - 20_700_000
            assert parse_datetime("2024-05-01") == 1_714_521_600_000
        finally:
            patch.undo()
            time.tzset()
