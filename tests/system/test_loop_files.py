"""The control loop does nothing with files below the log directories, as they may be on a disk that stalls."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
)
from interop.clients import ConfluentClient
from system.raw_client import RawClient
from system.slow_files import SlowFiles

from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.protocol.messages.describe_producers import DescribeProducersRequest
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkapy.testing.broker_process import BrokerProcess


def only(futures: Any) -> Any:
    [future] = futures.values()
    return future.result()


def retention() -> ConfigResource:
    entry = ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
    return ConfigResource("topic", "t", incremental_configs=[entry])


def in_a_group(bootstrap: str) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "joined", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    deadline = time.monotonic() + 60
    while consumer.poll(0.5) is None:
        assert time.monotonic() < deadline
    consumer.commit(asynchronous=False)
    consumer.close()


def in_a_transaction(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions()
    for outcome in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("t", b"1")
        producer.flush()
        outcome()


def raw_requests(client: RawClient, other_dir: Path) -> None:
    assert client.call(DescribeLogDirsRequest(topics=None), 1).results
    epoch = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, leader_epoch=0)
    epochs = OffsetForLeaderEpochRequest.Topic(topic="t", partitions=[epoch])
    assert client.call(OffsetForLeaderEpochRequest(topics=[epochs]), 3).topics[0].partitions[0].error_code == 0
    producers = DescribeProducersRequest.Topic(name="t", partition_indexes=[0])
    assert client.call(DescribeProducersRequest(topics=[producers]), 0).topics[0].partitions[0].error_code == 0
    moved = AlterReplicaLogDirsRequest.Dir.Topic(name="t", partitions=[0])
    directory = AlterReplicaLogDirsRequest.Dir(path=str(other_dir), topics=[moved])
    assert client.call(AlterReplicaLogDirsRequest(dirs=[directory]), 1).results[0].partitions[0].error_code == 0


def test_the_control_loop_touches_no_file_of_a_log_directory(tmp_path: Path) -> None:
    broker_dir = tmp_path / "broker"
    dirs = [broker_dir / "logs" / "a", broker_dir / "logs" / "b"]
    # The log of the broker is below that root too, and written on the loop: so the list is known to work.
    files = SlowFiles(tmp_path / "listed", broker_dir)
    overrides = {"log.dirs": ",".join(map(str, dirs)), "log.retention.check.interval.ms": "200"}
    with BrokerProcess(broker_dir, overrides, environment=files.environment) as broker:
        files.watch()
        ConfluentClient(broker.bootstrap).create_topic("t", config={"segment.bytes": "100000"})
        ConfluentClient(broker.bootstrap).create_topic("gone")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 10_000})
        for _ in range(300):
            producer.produce("t", bytes(1000))
        producer.flush()
        client = RawClient(broker.bootstrap)
        where = TopicPartition("t", 0)
        steps: list[Callable[[], Any]] = [
            lambda: only(admin.delete_records([TopicPartition("t", 0, 50)])),
            lambda: only(admin.list_offsets({where: OffsetSpec.for_timestamp(1)})),
            lambda: only(admin.list_offsets({where: OffsetSpec.max_timestamp()})),
            lambda: only(admin.list_offsets({where: OffsetSpec.latest()})),
            lambda: only(admin.create_partitions([NewPartitions("t", 3)])),
            lambda: only(admin.incremental_alter_configs([retention()])),
            lambda: only(admin.describe_configs([ConfigResource("topic", "t")])),
            lambda: in_a_group(broker.bootstrap),
            lambda: in_a_transaction(broker.bootstrap),
            lambda: admin.list_consumer_groups().result(),
            lambda: only(admin.delete_consumer_groups(["joined"])),
            lambda: raw_requests(client, dirs[1]),
            lambda: raw_requests(client, dirs[0]),
            lambda: only(admin.delete_topics(["gone"])),
        ]
        for step in steps:
            step()
        time.sleep(1)
        seen = files.watched()
        client.close()
    assert any(line.endswith("broker.log") for line in seen), "the list does not work"
    logs = f" {broker_dir / 'logs'}"
    assert [line for line in seen if logs in line] == []
