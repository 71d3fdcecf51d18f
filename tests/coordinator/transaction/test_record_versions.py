"""Records that brokers of Apache Kafka, which may lead the next day, can read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.coordinator.group.classic.requests import ClientInfo
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.group.coordinator import GroupCoordinator
from kafkapy.coordinator.group.offset_requests import NewOffset, OffsetCommit
from kafkapy.coordinator.transaction.metadata import LAST_EPOCH, ProducerIdAndEpoch, TransactionMetadata
from kafkapy.coordinator.transaction.records import transaction_record
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.errors import NotLeaderOrFollowerError
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.records.batches import decode_records, iter_batches
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock
from kafkapy.testing.share import share_parts
from kafkapy.types import TopicPartition

A = TopicPartition("a", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
STATE = TopicPartition("__transaction_state", 0)


def config(**keys: str) -> BrokerConfig:
    values = {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/nowhere"} | {
        key.replace("_", "."): value for key, value in keys.items()
    }
    return BrokerConfig.from_properties(Properties().override([f"{key}={value}" for key, value in values.items()]))


def versions(writer: MemoryWriter, partition: TopicPartition) -> set[tuple[int, int]]:
    """(key version, value version) of all records with a value."""
    return {
        (struct.unpack_from(">h", record.key or b"")[0], struct.unpack_from(">h", record.value)[0])
        for data in writer.batches[partition]
        for batch in iter_batches(data)
        for record in decode_records(batch)
        if record.value is not None
    }


@pytest.mark.parametrize(
    ("ibp", "offsets", "with_expiry", "group"),
    [("3.9-IV0", 3, 1, 3), ("2.3", 3, 1, 3), ("2.1-IV1", 3, 1, 2), ("2.1-IV0", 2, 1, 2), ("2.0", 1, 1, 1)],
)
def test_groups_are_written_as_the_protocol_version_says(ibp: str, offsets: int, with_expiry: int, group: int) -> None:
    clock, writer = VirtualClock(), MemoryWriter()
    coordinator = GroupCoordinator(
        GroupConfig.from_broker_config(config(inter_broker_protocol_version=ibp)),
        writer,
        clock,
        partition_count=lambda: 1,
        assignors=(),
        metadata=MetadataSnapshot,
        **share_parts(clock),
    )
    coordinator.runtime.on_leadership_change(OFFSETS, 1, True)
    clock.run()
    client = ClientInfo("c", "/h", 9)

    def commit(offset: int, retention_ms: int) -> set[tuple[int, int]]:
        writer.batches.clear()
        request = OffsetCommit("g", {A: NewOffset(offset)}, retention_ms=retention_ms)
        done = coordinator.commit_offsets(client, request)
        clock.run()
        assert set(done.result().values()) <= {0}
        return versions(writer, OFFSETS)

    assert commit(5, -1) == {(1, offsets)}
    assert commit(6, 60_000) == {(1, with_expiry)}
    writer.batches.clear()
    protocols = [JoinGroupRequest.Protocol(name="range", metadata=b"m")]
    joined = coordinator.join(
        ClientInfo("c", "/h", 3),
        JoinGroupRequest(
            group_id="h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        ),
    )
    clock.advance(9_000)
    member = joined.result().member_id
    assignment = SyncGroupRequest.Assignment(member_id=member, assignment=b"a")
    coordinator.sync(SyncGroupRequest(group_id="h", generation_id=1, member_id=member, assignments=[assignment]))
    clock.run()
    assert versions(writer, OFFSETS) == {(2, group)}


def test_a_loaded_record_of_an_old_version_is_the_same_offset() -> None:
    clock, writer = VirtualClock(), MemoryWriter()

    def start() -> GroupCoordinator:
        coordinator = GroupCoordinator(
            GroupConfig.from_broker_config(config(inter_broker_protocol_version="2.0")),
            writer,
            clock,
            partition_count=lambda: 1,
            assignors=(),
            metadata=MetadataSnapshot,
            **share_parts(clock),
        )
        coordinator.runtime.on_leadership_change(OFFSETS, 1, True)
        clock.run()
        return coordinator

    first = start()
    first.commit_offsets(ClientInfo("c", "/h", 8), OffsetCommit("g", {A: NewOffset(5, metadata="m")}))
    clock.run()
    found = start().runtime.shards()[0].store.get("g", A)
    assert found is not None
    assert (found.offset, found.metadata) == (5, "m")


@pytest.mark.parametrize(
    ("keys", "served"),
    [
        ({}, True),
        ({"zookeeper_connect": "127.0.0.1:2181"}, False),
        ({"zookeeper_connect": "127.0.0.1:2181", "group_coordinator_rebalance_protocols": "classic,consumer"}, True),
        ({"group_coordinator_rebalance_protocols": "classic"}, False),
        ({"kafkapy_etcd_endpoints": "127.0.0.1:2379"}, True),
    ],
)
def test_the_consumer_protocol_is_served_where_every_broker_knows_it(keys: dict[str, str], served: bool) -> None:
    assert GroupConfig.from_broker_config(config(**keys)).consumer_protocol is served


def test_every_state_of_a_transaction_fits_into_version_0(make_bench: Callable[..., Any]) -> None:
    """Also an abort by the coordinator, and a new producer id after the last epoch."""
    bench = make_bench()
    bench.transaction_version = 0
    producer = bench.init()
    for committed in (True, False):
        bench.add(producer, A)
        assert bench.end(producer, committed) == producer
    bench.add(producer, A)
    bench.clock.advance(61_000)
    bench.coordinator.abort_timed_out()
    bench.settle()
    assert bench.state("t").state is TransactionState.COMPLETE_ABORT
    assert bench.state("t").producer_epoch == producer.producer_epoch + 1
    shard = bench.coordinator.runtime.shards()[0]
    shard.apply(transaction_record(TransactionMetadata("t", producer.producer_id, LAST_EPOCH, 60_000)))
    rotated = bench.init()
    assert rotated == ProducerIdAndEpoch(rotated.producer_id, 0)
    assert rotated.producer_id != producer.producer_id
    assert versions(bench.writer, STATE) == {(0, 0)}
    before = bench.state("t")
    assert bench.crash().state("t") == before, "memory has no more than the log"


def test_a_producer_id_that_takes_over_is_never_lost(make_bench: Callable[..., Any]) -> None:
    bench = make_bench()
    bench.transaction_version = 0
    first = bench.init()
    shard = bench.coordinator.runtime.shards()[0]
    shard.apply(transaction_record(TransactionMetadata("t", first.producer_id, LAST_EPOCH, 60_000)))
    producer = ProducerIdAndEpoch(first.producer_id, LAST_EPOCH)
    bench.add(producer, A, version=2)
    bench.partitions.away[A] = NotLeaderOrFollowerError()
    nexts = bench.end(producer, version=2)
    assert nexts.producer_id != producer.producer_id
    bench = bench.crash()
    bench.partitions.away.clear()
    bench.advance(200)
    assert bench.state("t").producer == nexts
