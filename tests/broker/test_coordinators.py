"""Coordinators as parts of a running broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.coordinator.transaction import verification
from kafkapy.errors import ErrorCode
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest

OFFSETS = "__consumer_offsets"
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def find(client: Any, group: str) -> Any:
    while True:
        found = client(FindCoordinatorRequest(key=group, key_type=0), 1)
        if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return found


def commit(client: Any, group: str, offset: int) -> int:
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=offset, committed_metadata=None)
    topics = [OffsetCommitRequest.Topic(name="topic", partitions=[partition])]
    while True:
        error: int = client(OffsetCommitRequest(group_id=group, topics=topics), 8).topics[0].partitions[0].error_code
        if error not in LOADING:
            return error


def fetch(client: Any, group: str) -> int:
    topics = [OffsetFetchRequest.Topic(name="topic", partition_indexes=[0])]
    while True:
        answer = client(OffsetFetchRequest(group_id=group, topics=topics), 7)
        if answer.error_code not in LOADING:
            offset: int = answer.topics[0].partitions[0].committed_offset
            return offset


def create(client: Any, name: str) -> None:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    assert client(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE


def test_the_offsets_topic_is_created_as_kafka_does_and_keeps_its_size(
    tmp_path: Path, make_config: Any, connect: Any
) -> None:
    with KafkaServer(make_config(tmp_path, offsets_topic_num_partitions="7")) as server:
        client = connect(server)
        create(client, "topic")
        assert not server.context.metadata_cache.contains(OFFSETS)
        for number in range(20):
            assert find(client, f"group-{number}").node_id == 1
            assert commit(client, f"group-{number}", number) == ErrorCode.NONE
        (described,) = client(MetadataRequest(topics=[MetadataRequest.Topic(name=OFFSETS)]), 9).topics
        assert (len(described.partitions), described.is_internal) == (7, True)
        log = server.context.replica_manager.log(next(iter(_partitions(server))))
        assert log is not None
        assert (log.config.cleanup_policy, log.config.segment_bytes) == (("compact",), 104_857_600)
    # Another number in the configuration is for a topic that is yet to be created.
    with KafkaServer(make_config(tmp_path, offsets_topic_num_partitions="3")) as server:
        client = connect(server)
        assert server.context.coordinators.partition_count(OFFSETS) == 7
        for number in range(20):
            find(client, f"group-{number}")
            assert fetch(client, f"group-{number}") == number


@pytest.mark.parametrize(("longest", "used"), (("50", 50), ("90000", 45_000)))
def test_how_long_a_partition_is_asked_for_again_is_configured(
    tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch, longest: str, used: int
) -> None:
    made: list[dict[str, Any]] = []

    class Spy(verification.TransactionVerification):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            made.append(named)
            super().__init__(*arguments, **named)

    monkeypatch.setattr(verification, "TransactionVerification", Spy)
    keys = {
        "add_partitions_to_txn_retry_backoff_ms": "7",
        "add_partitions_to_txn_retry_backoff_max_ms": longest,
        "request_timeout_ms": "45000",
    }
    with KafkaServer(make_config(tmp_path, **keys)) as server:
        assert server.context.coordinators.verification.enabled
    # The broker that other tests share may make its own meanwhile.
    assert [each["backoff_max_ms"] for each in made if each["backoff_ms"] == 7] == [used]


@pytest.mark.parametrize("crash", [False, True])
def test_offsets_of_a_deleted_topic_never_apply_to_its_successor(
    tmp_path: Path, make_config: Any, connect: Any, crash: bool
) -> None:
    """Also when the broker ended between the mark of the deletion and the tombstones."""
    config = make_config(tmp_path, offsets_topic_num_partitions="3")
    with KafkaServer(config) as server:
        client = connect(server)
        create(client, "topic")
        find(client, "group")
        assert commit(client, "group", 5) == ErrorCode.NONE
        if not crash:
            assert delete(client, "topic") == ErrorCode.NONE
            create(client, "topic")
            assert fetch(client, "group") == -1
    if crash:

        async def mark() -> None:
            store = EmbeddedStore(Path(config.metadata_log_dir))
            await store.start()
            await store.create("/admin/delete_topics/topic")
            await store.close()

        asyncio.run(mark())
        with KafkaServer(config) as server:
            client = connect(server)
            server.call(gone(server, "topic"))
            create(client, "topic")
            assert fetch(client, "group") == -1
    with KafkaServer(config) as server:
        assert fetch(connect(server), "group") == -1


def test_the_offsets_topic_itself_can_be_deleted_beside_others(tmp_path: Path, make_config: Any, connect: Any) -> None:
    with KafkaServer(make_config(tmp_path, offsets_topic_num_partitions="3")) as server:
        client = connect(server)
        create(client, "topic")
        find(client, "group")
        assert commit(client, "group", 5) == ErrorCode.NONE
        names = DeleteTopicsRequest(topic_names=["topic", OFFSETS], timeout_ms=30_000)
        assert [each.error_code for each in client(names, 4).responses] == [ErrorCode.NONE, ErrorCode.NONE]
        create(client, "topic")
        find(client, "group")
        assert fetch(client, "group") == -1


async def gone(server: KafkaServer, topic: str) -> None:
    """Return when the deletion that was under way is complete."""
    async with asyncio.timeout(60):
        while await server.context.store.exists(f"/brokers/topics/{topic}") is not None:
            await asyncio.sleep(0.005)


def delete(client: Any, name: str) -> int:
    error: int = client(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 4).responses[0].error_code
    return error


def _partitions(server: KafkaServer) -> list[Any]:
    return [each for each in server.context.replica_manager.partitions if each.topic == OFFSETS]


def test_a_stop_does_not_wait_for_members_that_wait(tmp_path: Path, make_config: Any, connect: Any) -> None:
    with KafkaServer(make_config(tmp_path, group_initial_rebalance_delay_ms="600000")) as server:
        client = connect(server)
        find(client, "group")
        fetch(client, "group")
        request = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=600_000,
            rebalance_timeout_ms=900_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
        )
        answers: list[Any] = []
        waiting = threading.Thread(target=lambda: answers.append(client(request, 3)))
        waiting.start()
        other = connect(server)
        while other(DescribeGroupsRequest(groups=["group"]), 0).groups[0].group_state != "PreparingRebalance":
            pass
    waiting.join()
    assert answers[0].error_code == ErrorCode.NOT_COORDINATOR


def test_plugins_hear_that_a_group_has_settled(tmp_path: Path, make_config: Any, connect: Any) -> None:
    heard: list[tuple[str, int, list[str]]] = []

    class Listener:
        @hookimpl
        def group_rebalanced(self, group_id: str, generation: int, members: Sequence[str]) -> None:
            heard.append((group_id, generation, list(members)))

    plugins = PluginManager.load()
    plugins.register(Listener(), "listener")
    with KafkaServer(make_config(tmp_path), plugins) as server:
        client = connect(server)
        find(client, "group")
        fetch(client, "group")
        comes = ConsumerGroupHeartbeatRequest(
            group_id="group",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["topic"],
            topic_partitions=[],
        )
        goes = ConsumerGroupHeartbeatRequest(group_id="group", member_id="m", member_epoch=-1)
        for request in (comes, goes):
            assert client(request, 1).error_code == ErrorCode.NONE
    assert heard == [("group", 1, ["m"]), ("group", 2, [])]
