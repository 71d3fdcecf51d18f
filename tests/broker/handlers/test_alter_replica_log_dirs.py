"""AlterReplicaLogDirs, and the future replicas in DescribeLogDirs, as a client sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.types import TopicPartition

Dir = AlterReplicaLogDirsRequest.Dir


@pytest.fixture
def server(tmp_path: Path, make_config: Callable[..., Any]) -> Iterator[KafkaServer]:
    dirs = ",".join(str(tmp_path / name) for name in ("one", "two"))
    with KafkaServer(make_config(tmp_path, log_dirs=dirs, log_segment_delete_delay_ms="0")) as made:
        yield made


@pytest.fixture
def admin(server: KafkaServer, connect: Callable[..., Any]) -> Any:
    return connect(server)


def alter(admin: Any, moves: dict[str, list[tuple[str, int]]], version: int = 2) -> dict[tuple[str, int], int]:
    dirs = [
        Dir(path=path, topics=[Dir.Topic(name=topic, partitions=[index]) for topic, index in partitions])
        for path, partitions in moves.items()
    ]
    response = admin(AlterReplicaLogDirsRequest(dirs=dirs), version)
    return {
        (result.topic_name, each.partition_index): each.error_code
        for result in response.results
        for each in result.partitions
    }


def replicas(admin: Any, topic: str, version: int = 4) -> dict[tuple[str, int, bool], tuple[int, int]]:
    """(directory, partition, is future) to (size, lag)."""
    return {
        (result.log_dir, each.partition_index, each.is_future_key): (each.partition_size, each.offset_lag)
        for result in admin(DescribeLogDirsRequest(topics=None), version).results
        for found in result.topics
        if found.name == topic
        for each in found.partitions
    }


def wait_for_move(admin: Any, topic: str, directory: str, partition: int = 0) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [key for key in replicas(admin, topic) if key[1] == partition]
        if found == [(directory, partition, False)]:
            return
        time.sleep(0.01)
    raise TimeoutError(replicas(admin, topic))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_replica_moves_to_and_fro(server: KafkaServer, admin: Any, version: int) -> None:
    admin.create_topic("t", 1)
    admin.produce("t", [(1, b"x" * 1000)])
    ((home, _, _),) = replicas(admin, "t")
    other = next(path for path in server.config.log_dirs if path != home)
    for target in (other, home):
        assert alter(admin, {target: [("t", 0)]}, version) == {("t", 0): ErrorCode.NONE}
        wait_for_move(admin, "t", target)
        assert (Path(target) / "t-0").is_dir()
        admin.produce("t", [(1, b"more")])
    assert server.context.log_manager.get(TopicPartition("t", 0)).log_end_offset == 3


@pytest.mark.parametrize("version", range(6))
def test_a_slow_move_is_seen_as_a_future_replica_and_can_be_cancelled(
    server: KafkaServer, admin: Any, version: int
) -> None:
    admin.create_topic("t", 1)
    for _ in range(20):
        admin.produce("t", [(1, b"x" * 10_000)])
    ((home, _, _),) = replicas(admin, "t")
    other = next(path for path in server.config.log_dirs if path != home)
    server.context.log_manager.futures.pace.bytes_per_second = 1.0
    assert alter(admin, {other: [("t", 0)]}) == {("t", 0): ErrorCode.NONE}
    found = replicas(admin, "t", version)
    assert set(found) == {(home, 0, False), (other, 0, True)}
    size, lag = found[other, 0, True]
    assert 0 <= size <= found[home, 0, False][0]
    assert 0 <= lag <= 20
    assert alter(admin, {other: [("t", 0)]}) == {("t", 0): ErrorCode.NONE}
    assert alter(admin, {home: [("t", 0)]}) == {("t", 0): ErrorCode.NONE}
    assert set(replicas(admin, "t", version)) == {(home, 0, False)}
    assert not list(Path(other).glob("*-future"))
    server.context.log_manager.futures.pace.bytes_per_second = 1e12
    assert alter(admin, {other: [("t", 0)]}) == {("t", 0): ErrorCode.NONE}
    wait_for_move(admin, "t", other)


def test_a_move_that_is_asked_for_again_goes_on(server: KafkaServer, admin: Any) -> None:
    """It is not begun anew: what was copied stays, however often a client asks."""
    admin.create_topic("t", 1)
    for _ in range(20):
        admin.produce("t", [(1, b"x" * 10_000)])
    ((home, _, _),) = replicas(admin, "t")
    other = next(path for path in server.config.log_dirs if path != home)
    futures = server.context.log_manager.futures
    futures.pace.bytes_per_second = 1.0
    assert alter(admin, {other: [("t", 0)]}) == {("t", 0): ErrorCode.NONE}
    future = futures.get(TopicPartition("t", 0))
    assert future is not None
    for _ in range(3):
        assert alter(admin, {other: [("t", 0)]}) == {("t", 0): ErrorCode.NONE}
        assert futures.get(TopicPartition("t", 0)) is future
    assert [path.name.rpartition("-")[2] for path in Path(other).glob("t-0.*")] == ["future"]
    futures.pace.bytes_per_second = 1e12
    wait_for_move(admin, "t", other)
    # Where it is now, it stays.
    assert alter(admin, {other: [("t", 0)]}) == {("t", 0): ErrorCode.NONE}
    assert set(replicas(admin, "t")) == {(other, 0, False)}
    assert server.context.log_manager.get(TopicPartition("t", 0)).log_end_offset == 20


def test_a_move_goes_on_after_a_restart(
    tmp_path: Path, make_config: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    config = make_config(tmp_path, log_dirs=",".join(str(tmp_path / name) for name in ("one", "two")))
    with KafkaServer(config) as server:
        admin = connect(server)
        admin.create_topic("t", 1)
        admin.produce("t", [(1, b"x" * 100_000)])
        ((home, _, _),) = replicas(admin, "t")
        other = next(path for path in server.config.log_dirs if path != home)
        server.context.log_manager.futures.pace.bytes_per_second = 1.0
        assert alter(admin, {other: [("t", 0)]}) == {("t", 0): ErrorCode.NONE}
        assert set(replicas(admin, "t")) == {(home, 0, False), (other, 0, True)}
    with KafkaServer(config) as server:
        admin = connect(server)
        wait_for_move(admin, "t", other)
        assert server.context.log_manager.get(TopicPartition("t", 0)).log_end_offset == 1


def test_what_cannot_be_moved_is_said(server: KafkaServer, admin: Any) -> None:
    admin.create_topic("t", 1)
    admin.create_topic("n" * 230, 1)
    first, second = server.config.log_dirs
    assert alter(admin, {"/nowhere": [("t", 0)]}) == {("t", 0): ErrorCode.LOG_DIR_NOT_FOUND}
    assert alter(admin, {"": [("t", 0)]}) == {("t", 0): ErrorCode.LOG_DIR_NOT_FOUND}
    assert alter(admin, {first + "/": [("t", 0)]}) == {("t", 0): ErrorCode.LOG_DIR_NOT_FOUND}
    assert alter(admin, {first: [("n" * 230, 0)]}) == {("n" * 230, 0): ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert alter(admin, {first: [("unknown", 0)]}) == {("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert alter(admin, {first: [("t", -1)], second: [("t", 7)]}) == {
        ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert alter(admin, {}) == {}
    manager = server.context.log_manager
    home = str(manager.dir_of(TopicPartition("t", 0)))
    other = next(path for path in server.config.log_dirs if path != home)
    manager.table.fail_dir(Path(other), OSError(5, "gone"))
    assert alter(admin, {other: [("t", 0)]}) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
    manager.table.fail_dir(Path(home), OSError(5, "gone as well"))


def test_a_partition_that_is_not_there_yet_is_made_where_it_was_wanted(server: KafkaServer, admin: Any) -> None:
    _, second = server.config.log_dirs
    wanted = [("later", index) for index in range(4)]
    assert set(alter(admin, {second: wanted}).values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    admin.create_topic("later", 4)
    assert {key[0] for key in replicas(admin, "later")} == {second}
    # The wish is fulfilled and forgotten.
    admin(DeleteTopicsRequest(topic_names=["later"], timeout_ms=10_000), 4)
    deadline = time.monotonic() + 30
    while replicas(admin, "later") and time.monotonic() < deadline:
        time.sleep(0.01)
    topic = CreateTopicsRequest.Topic(name="later", num_partitions=4, replication_factor=1, assignments=[], configs=[])
    while admin(CreateTopicsRequest(topics=[topic]), 4).topics[0].error_code and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {key[0] for key in replicas(admin, "later")} == set(server.config.log_dirs)


def test_partitions_are_made_where_the_fewest_are(server: KafkaServer, admin: Any) -> None:
    admin.create_topic("t", 10)
    where = [key[0] for key in replicas(admin, "t")]
    assert [where.count(path) for path in server.config.log_dirs] == [5, 5]
    one, two = server.config.log_dirs
    assert set(alter(admin, {one: [("t", index) for index in range(10)]}).values()) == {ErrorCode.NONE}
    for index in range(10):
        wait_for_move(admin, "t", one, index)
    admin.create_topic("u", 10)
    assert {key[0] for key in replicas(admin, "u")} == {two}


def test_kafka_python_moves_a_replica(server: KafkaServer, admin: Any) -> None:
    admin.create_topic("t", 1)
    ((home, _, _),) = replicas(admin, "t")
    other = next(path for path in server.config.log_dirs if path != home)
    client = kafka.KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{server.endpoints[0].port}")
    try:
        outcome = client.alter_replica_log_dirs({("t", 0, 1): other})
        assert [error.__name__ for error in outcome.values()] == ["NoError"]
        wait_for_move(admin, "t", other)
        (shown,) = client.describe_log_dirs({"t": [0]})
        assert [each["log_dir"] for each in shown["log_dirs"] if each["topics"]] == [other]
    finally:
        client.close()
