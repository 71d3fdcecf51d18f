"""Three real brokers: lagging replicas leave the ISR and come back, and consumers read from followers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.apache_kafka import PeerMissingError
from system.cluster.processes import Cluster, wait_until
from system.raw_client import RawClient, batch, produce_request

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.fetch import FetchRequest

TOPIC = "t"
SESSIONS = {"kafkapy.etcd.session.timeout.ms": "60000", "zookeeper.session.timeout.ms": "60000"}
"""Longer than the test: a stopped broker stays registered, so only its lag takes it out of an ISR."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts clusters on etcd; the test is skipped where etcd is not installed."""
    made: list[Cluster] = []

    def start(**fields: Any) -> Cluster:
        try:
            cluster = Cluster(tmp_path, 3, "etcd", **fields)
        except PeerMissingError as missing:
            pytest.skip(str(missing))
        made.append(cluster.__enter__())
        return cluster

    yield start
    for cluster in made:
        cluster.close()


def send(client: RawClient, value: bytes, acks: int = -1, partition: int = 0) -> int:
    """The error code of a produce of one record."""
    response = client.call(produce_request(TOPIC, batch(value), acks, partition), 9)
    return int(response.responses[0].partition_responses[0].error_code)


def fetch(client: RawClient, offset: int, rack: str = "", version: int = 12, partition: int = 0) -> Any:
    entry = FetchRequest.Topic.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchRequest.Topic(topic=TOPIC, partitions=[entry])],
        rack_id=rack,
    )
    return client.call(request, version).responses[0].partitions[0]


@pytest.mark.timeout(600)
def test_replicas_that_lag_leave_the_isr_and_come_back(start: Callable[..., Cluster]) -> None:
    cluster = start(overrides=SESSIONS)
    cluster.create_topic(TOPIC, 3)
    # The controller must go on while the other brokers are stopped.
    leader = cluster.controller()
    number = next(each for each in range(3) if cluster.leader(TOPIC, each) == leader)
    first, second = sorted({1, 2, 3} - {leader})
    client = RawClient(cluster[leader].bootstrap)

    def isr() -> set[int]:
        return set(cluster.describe([TOPIC], leader)[TOPIC][number]["isr_nodes"])

    assert send(client, b"all", partition=number) == ErrorCode.NONE
    cluster[first].pause()
    # The record waits until the stopped replica has left the ISR, and is acknowledged then.
    assert send(client, b"two of three", partition=number) == ErrorCode.NONE
    wait_until(lambda: isr() == {leader, second}, "the ISR is two brokers")
    cluster[second].pause()
    # min.insync.replicas is 2: the record is in the log when the second replica leaves, and stays unseen.
    assert send(client, b"one of three", partition=number) == ErrorCode.REQUEST_TIMED_OUT
    wait_until(lambda: isr() == {leader}, "the ISR is the leader")
    assert send(client, b"refused", partition=number) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert send(client, b"acks=1", acks=1, partition=number) == ErrorCode.NONE
    entry = fetch(client, 0, partition=number)
    assert (entry.error_code, entry.high_watermark) == (ErrorCode.NONE, 2)
    for follower in (first, second):
        cluster[follower].resume()
    wait_until(lambda: isr() == {1, 2, 3}, "the ISR is whole again")
    wait_until(lambda: fetch(client, 0, partition=number).high_watermark == 4, "the records that waited are visible")
    assert send(client, b"all again", partition=number) == ErrorCode.NONE
    client.socket.close()
    cluster.stop_all()
    assert len(set(cluster.log_bytes(TOPIC, number).values())) == 1


@pytest.mark.timeout(600)
def test_a_consumer_is_sent_to_the_replica_of_its_rack_and_reads_there(start: Callable[..., Cluster]) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = start(racks=True, overrides={"replica.selector.class": selector})
    cluster.create_topic(TOPIC, 1)
    leader = cluster.leader(TOPIC)
    follower = min({1, 2, 3} - {leader})
    rack = f"rack-{follower % 3}"
    client = RawClient(cluster[leader].bootstrap)
    assert send(client, b"value") == ErrorCode.NONE
    wait_until(lambda: fetch(client, 0, rack).preferred_read_replica == follower, "the leader names the follower")
    assert not fetch(client, 0, rack).records
    # Without a rack, or in the leader's, the leader serves.
    for own in ("", f"rack-{leader % 3}"):
        entry = fetch(client, 0, own)
        assert (entry.preferred_read_replica, bool(entry.records)) == (-1, True)
    there = RawClient(cluster[follower].bootstrap)
    wait_until(lambda: fetch(there, 0, rack).records, "the follower serves the record")
    assert fetch(there, 0, rack, 10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(there, 99, rack).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    # DeleteRecords waits for the followers: their log starts have moved when the response is there.
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=TOPIC, partitions=[partition])], timeout_ms=60_000
    )
    deleted = client.call(request, 2).topics[0].partitions[0]
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, 1)
    for each in sorted({1, 2, 3} - {leader}):
        other = RawClient(cluster[each].bootstrap)
        assert fetch(other, 1, rack).log_start_offset == 1
        other.socket.close()
    for each in (client, there):
        each.socket.close()
