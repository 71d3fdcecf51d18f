"""Cordoned log directories get no new partitions, and keep what they have (KIP-1066)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from kafkapy import KafkaAdminClient, errors
from kafkapy.admin import ConfigResource, ConfigResourceType, NewTopic
from kafkapy.structs import TopicPartitionReplica
from kafkapy.testing.broker_process import BrokerProcess

KEY = "cordoned.log.dirs"


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("one", "two")]


@pytest.fixture
def broker(tmp_path: Path, dirs: list[str]) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", {"log.dirs": ",".join(dirs), "offsets.topic.num.partitions": "1"}) as made:
        yield made


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as made:
        yield made


def cordon(admin: KafkaAdminClient, value: str) -> dict[str, Any]:
    return admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "1", {KEY: value})])["broker"]


def described(admin: KafkaAdminClient) -> dict[str, tuple[bool, set[str]]]:
    """Each directory: whether it is cordoned, and its topics."""
    found = admin.describe_log_dirs()[0]["log_dirs"]
    return {each["log_dir"]: (each["is_cordoned"], {topic["name"] for topic in each["topics"]}) for each in found}


def create(admin: KafkaAdminClient, *names: str) -> None:
    admin.create_topics([NewTopic(name, 3, 1) for name in names])


def test_new_partitions_go_to_the_other_directory(broker: BrokerProcess, dirs: list[str]) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        create(admin, "before")
        assert described(admin) == {each: (False, {"before"}) for each in dirs}
        assert cordon(admin, dirs[0]) == {"1": "OK"}
        create(admin, "after", "later")
        assert described(admin) == {dirs[0]: (True, {"before"}), dirs[1]: (False, {"before", "after", "later"})}
    broker.kill()
    broker.start()
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        create(admin, "last")
        assert described(admin)[dirs[0]] == (True, {"before"})


def test_a_broker_whose_directories_are_all_cordoned_gets_nothing(
    broker: BrokerProcess, admin: KafkaAdminClient, dirs: list[str]
) -> None:
    create(admin, "before")
    for value in ("*", ",".join(dirs)):
        assert cordon(admin, value) == {"1": "OK"}
        assert {shown for shown, _ in described(admin).values()} == {True}
        with pytest.raises(errors.InvalidReplicationFactorError):
            create(admin, "new")
        with pytest.raises(errors.InvalidReplicationFactorError):
            admin.create_partitions({"before": 4})
        with pytest.raises(errors.InvalidReplicaAssignmentError):
            admin.create_topics([NewTopic("named", -1, -1, {0: [1]})])
        assert cordon(admin, "") == {"1": "OK"}
        create(admin, f"new-{len(value)}")


def test_no_move_goes_to_a_cordoned_directory(broker: BrokerProcess, admin: KafkaAdminClient, dirs: list[str]) -> None:
    admin.create_topics([NewTopic("t", 1, 1)])
    here = next(path for path, (_, topics) in described(admin).items() if topics)
    other = next(each for each in dirs if each != here)
    cordon(admin, "*")
    replica = TopicPartitionReplica("t", 0, 1)
    assert admin.alter_replica_log_dirs({replica: other}) == {replica: errors.InvalidReplicaAssignmentError}
    assert admin.alter_replica_log_dirs({replica: here}) == {replica: errors.NoError}, "which ends a move"
    cordon(admin, here)
    assert admin.alter_replica_log_dirs({replica: other}) == {replica: errors.NoError}
    wait_until(lambda: described(admin) == {here: (True, set()), other: (False, {"t"})}, "the partition has moved")


def test_a_static_cordon_is_lifted_at_run_time(broker: BrokerProcess) -> None:
    broker.stop()
    broker.overrides[KEY] = "*"
    broker.start()
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        with pytest.raises(errors.InvalidReplicationFactorError):
            create(admin, "t")
        cordon(admin, "")
        create(admin, "t")


@pytest.mark.parametrize("relative", [False, True])
def test_a_path_may_be_written_in_both_ways(tmp_path: Path, relative: bool) -> None:
    """Apache Kafka cordons nothing when log.dirs is relative (KAFKA-20901)."""
    written = [os.path.relpath(tmp_path / name) for name in ("one", "two")]
    shown = str(Path(written[0]).absolute())
    with (
        BrokerProcess(tmp_path / "broker", {"log.dirs": ",".join(written)}) as broker,
        KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin,
    ):
        cordon(admin, written[0] if relative else shown)
        create(admin, "t")
        assert described(admin)[shown] == (True, set())


@pytest.mark.parametrize("value", ["/no/such/directory", "*,/no/such/directory"])
def test_an_unknown_directory_is_refused(broker: BrokerProcess, admin: KafkaAdminClient, value: str) -> None:
    answer = cordon(admin, value)["1"]
    assert KEY in answer, answer
    assert {shown for shown, _ in described(admin).values()} == {False}
