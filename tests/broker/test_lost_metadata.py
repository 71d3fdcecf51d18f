"""A metadata store that is gone or older than the logs: stray partitions are set aside, or topics rebuilt of them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from broker.test_coordinators import OFFSETS, commit, create, fetch, find

from kafkapy.broker.meta_properties import StartupError
from kafkapy.broker.server import KafkaServer
from kafkapy.controller.events import topic_change
from kafkapy.errors import ErrorCode
from kafkapy.log.stray_logs import parse_stray_name
from kafkapy.metadata.embedded import FILE_NAME
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.records.batches import decode_records, iter_batches
from kafkapy.types import TopicPartition


def lose_store(directory: Path) -> None:
    for path in directory.glob(f"{FILE_NAME}*"):
        path.unlink()


def save_store(directory: Path, to: Path) -> None:
    """A backup. The broker has stopped, so that the file is whole."""
    to.mkdir(exist_ok=True)
    for path in directory.glob(f"{FILE_NAME}*"):
        shutil.copy(path, to)


def restore_store(directory: Path, backup: Path) -> None:
    lose_store(directory)
    for path in backup.iterdir():
        shutil.copy(path, directory)


def values(client: Any, topic: str, partition: int = 0) -> list[bytes | None]:
    asked = FetchRequest.Topic.Partition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchRequest.Topic(topic=topic, partitions=[asked])]
    )
    answer = client(request, 11).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
    return [record.value for each in iter_batches(bytes(answer.records or b"")) for record in decode_records(each)]


def partitions_of(client: Any, topic: str) -> dict[int, int]:
    """Leader by partition; nothing for a topic that is unknown."""
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=False)
    return {each.partition_index: each.leader_id for each in client(asked, 9).topics[0].partitions}


def setting(client: Any, topic: str, key: str) -> str:
    resource = DescribeConfigsRequest.Resource(resource_type=2, resource_name=topic, configuration_keys=[key])
    (found,) = client(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs
    value: str = found.value
    return value


def strays(directory: Path) -> set[TopicPartition | None]:
    return {parse_stray_name(path.name) for path in directory.iterdir() if path.name.endswith("-stray")}


def test_topics_and_groups_can_be_made_again_after_the_store_was_lost(
    tmp_path: Path, make_config: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(tmp_path, offsets_topic_num_partitions="2")
    with KafkaServer(config) as server:
        client = connect(server)
        create(client, "topic")
        client.produce("topic", [(1, b"old")])
        find(client, "group")
        assert commit(client, "group", 1) == ErrorCode.NONE
    old = (tmp_path / "topic-0" / f"{0:020d}.log").read_bytes()
    lose_store(tmp_path)
    with caplog.at_level(logging.WARNING), KafkaServer(config) as server:
        client = connect(server)
        for name in ("topic-0", f"{OFFSETS}-0", f"{OFFSETS}-1"):
            assert f"Stray partition {name} is set aside" in caplog.text
        assert "--rebuild-metadata" in caplog.text
        assert partitions_of(client, "topic") == {}
        create(client, "topic")
        client.produce("topic", [(1, b"new")])
        assert values(client, "topic") == [b"new"]
        find(client, "group")
        assert commit(client, "group", 5) == ErrorCode.NONE
        assert fetch(client, "group") == 5
    assert strays(tmp_path) == {TopicPartition(*each) for each in (("topic", 0), (OFFSETS, 0), (OFFSETS, 1))}
    (aside,) = tmp_path.glob("topic-0.*-stray")
    assert (aside / f"{0:020d}.log").read_bytes() == old
    with KafkaServer(config) as server:
        assert values(connect(server), "topic") == [b"new"]


@pytest.mark.parametrize("after", ["at once", "after a start without", "after an unclean one"])
def test_a_rebuild_makes_topics_and_groups_of_the_logs(
    tmp_path: Path, make_config: Any, connect: Any, after: str
) -> None:
    config = make_config(tmp_path, offsets_topic_num_partitions="3")
    with KafkaServer(config) as server:
        client = connect(server)
        client.create_topic("topic", 3)
        topic_id = client.topic_id("topic")
        for number in range(3):
            client.produce("topic", [(1, b"in %d" % number)], partition=number)
        find(client, "group")
        assert commit(client, "group", 1) == ErrorCode.NONE
    lose_store(tmp_path)
    if after != "at once":
        with KafkaServer(config) as server:
            assert partitions_of(connect(server), "topic") == {}
        if after == "after an unclean one":
            (tmp_path / ".kafka_cleanshutdown").unlink()
            (aside,) = tmp_path.glob("topic-2.*-stray")
            with (aside / f"{0:020d}.log").open("ab") as file:
                file.write(b"\0" * 30)
    with KafkaServer(config, rebuild_metadata=True) as server:
        client = connect(server)
        assert client.topic_id("topic") == topic_id
        assert partitions_of(client, "topic") == dict.fromkeys(range(3), 1)
        for number in range(3):
            assert values(client, "topic", number) == [b"in %d" % number]
        find(client, "group")
        assert fetch(client, "group") == 1
        assert set(partitions_of(client, OFFSETS)) == {0, 1, 2}
        assert setting(client, "topic", "retention.ms") == "-1"
        assert setting(client, OFFSETS, "cleanup.policy") == "compact"
        client.produce("topic", [(1, b"more")])
    assert strays(tmp_path) == set()
    with KafkaServer(config) as server:
        assert values(connect(server), "topic") == [b"in 0", b"more"]


def test_a_store_that_is_older_than_the_logs(tmp_path: Path, make_config: Any, connect: Any) -> None:
    """Since the backup a topic was made, one was made again, one grew and one was deleted."""
    config, backup = make_config(tmp_path / "logs", log_segment_delete_delay_ms="0"), tmp_path / "backup"
    with KafkaServer(config) as server:
        client = connect(server)
        for name in ("again", "grown", "deleted", "same"):
            client.create_topic(name)
            client.produce(name, [(1, b"first")])
    save_store(tmp_path / "logs", backup)
    with KafkaServer(config) as server:
        client = connect(server)
        server.call(server.context.topic_admin.delete_topics(["again", "deleted"]))
        client.create_topic("again")
        client.create_topic("made")
        grow = CreatePartitionsRequest.Topic(name="grown", count=2, assignments=None)
        grown = client(CreatePartitionsRequest(topics=[grow], timeout_ms=30_000), 1).results[0]
        assert grown.error_code == ErrorCode.NONE
        for name, partition in (("again", 0), ("made", 0), ("grown", 1)):
            client.produce(name, [(1, b"second")], partition=partition)
    shutil.copytree(tmp_path / "logs", tmp_path / "copy")
    for directory in (tmp_path / "logs", tmp_path / "copy"):
        restore_store(directory, backup)

    with KafkaServer(config) as server:
        client = connect(server)
        assert strays(tmp_path / "logs") == {
            TopicPartition(*each) for each in (("again", 0), ("made", 0), ("grown", 1))
        }
        for name in ("again", "grown", "deleted", "same"):
            client.produce(name, [(1, b"third")])
            expected = [b"first", b"third"] if name in ("grown", "same") else [b"third"]
            assert values(client, name) == expected
        client.create_topic("made")
        client.produce("made", [(1, b"third")])

    with KafkaServer(make_config(tmp_path / "copy"), rebuild_metadata=True) as server:
        client = connect(server)
        assert strays(tmp_path / "copy") == set()
        assert (values(client, "made"), values(client, "again")) == ([b"second"], [b"second"])
        assert (values(client, "grown"), values(client, "grown", 1)) == ([b"first"], [b"second"])
        assert (values(client, "same"), values(client, "deleted")) == ([b"first"], [])
        for name in ("made", "again", "grown", "same", "deleted"):
            client.produce(name, [(1, b"third")])


def test_partitions_that_are_in_no_directory_begin_empty(
    tmp_path: Path, make_config: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(tmp_path)
    with KafkaServer(config) as server:
        client = connect(server)
        client.create_topic("topic", 4)
        client.produce("topic", [(1, b"kept")], partition=3)
    shutil.rmtree(tmp_path / "topic-1")
    lose_store(tmp_path)
    with caplog.at_level(logging.WARNING), KafkaServer(config, rebuild_metadata=True) as server:
        client = connect(server)
        assert "Partitions [1] of topic topic are in no log directory" in caplog.text
        assert partitions_of(client, "topic") == dict.fromkeys(range(4), 1)
        client.produce("topic", [(1, b"new")], partition=1)
        assert values(client, "topic", 3) == [b"kept"]


def test_a_rebuild_of_a_store_that_is_whole_changes_nothing(tmp_path: Path, make_config: Any, connect: Any) -> None:
    config = make_config(tmp_path)
    with KafkaServer(config) as server:
        client = connect(server)
        client.create_topic("topic", 2, retention_ms="1000000")
        topic_id = client.topic_id("topic")
    with KafkaServer(config, rebuild_metadata=True) as server:
        client = connect(server)
        assert (client.topic_id("topic"), len(partitions_of(client, "topic"))) == (topic_id, 2)
        assert setting(client, "topic", "retention.ms") == "1000000"


def test_a_rebuild_without_all_directories_is_refused(tmp_path: Path, make_config: Any) -> None:
    (tmp_path / "file").write_text("")
    config = make_config(tmp_path / "logs", log_dirs=f"{tmp_path / 'logs'},{tmp_path / 'file' / 'logs'}")
    with pytest.raises(StartupError, match="cannot be rebuilt without the log directory"):
        KafkaServer(config, rebuild_metadata=True).start()
    with KafkaServer(config):
        pass


def test_a_topic_that_vanished_from_the_store_can_be_made_again(tmp_path: Path, make_config: Any, connect: Any) -> None:
    """A foreign tool has removed its nodes while the broker ran."""
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        client.create_topic("topic", 2)
        client.produce("topic", [(1, b"old")])

        async def remove() -> None:
            store = server.context.store
            for path in await store.subtree("/brokers/topics/topic"):
                await store.delete(path)
            await store.delete("/config/topics/topic")
            controller = server.context.controller
            await controller.submit("Idle", lambda: topic_change.run(controller.current))

        server.call(remove())
        client.create_topic("topic", 2)
        client.produce("topic", [(1, b"new")])
        assert values(client, "topic") == [b"new"]
        assert len(strays(tmp_path)) == 2
