"""Markers for partitions of three brokers: lost requests and answers, old metadata, elections in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from coordinator.brokers import OFFSETS, STATES, Cluster

from kafkapy.coordinator.peers import RequestQueues
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.transaction.markers import Marker
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.errors import ErrorCode, KafkaConnectionError
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkapy.testing.coordinator import VirtualClock
from kafkapy.types import TopicPartition

A, B, C = (TopicPartition(topic, 0) for topic in "abc")
COMMIT = Marker(producer_id=9, producer_epoch=2, coordinator_epoch=5, committed=True)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


def begin(cluster: Cluster, *partitions: TopicPartition, name: str = "t") -> ProducerIdAndEpoch:
    """A transaction with a record in each partition."""
    producer: ProducerIdAndEpoch = cluster.init(name)
    cluster.add(producer, *partitions, name=name)
    for partition in partitions:
        assert cluster.logs[partition].produce(producer, (name, partition))
    return producer


def outcomes(cluster: Cluster, *partitions: TopicPartition, name: str = "t") -> set[Any]:
    return {cluster.logs[partition].outcomes.get((name, partition)) for partition in partitions}


def others(cluster: Cluster, name: str = "t") -> list[TopicPartition]:
    """The partitions whose leader does not coordinate the id."""
    coordinator = cluster.coordinator(name)
    return [partition for partition in (A, B, C) if cluster.leader(partition) is not coordinator]


@pytest.mark.parametrize("committed", [True, False])
def test_every_leader_gets_its_markers_in_one_request(cluster: Cluster, committed: bool) -> None:
    extra = [TopicPartition("a", 0), B, C]
    producer = begin(cluster, *extra)
    assert cluster.end(producer, committed) == producer
    assert cluster.state() == ("COMPLETE_COMMIT" if committed else "COMPLETE_ABORT")
    assert outcomes(cluster, *extra) == {committed}
    sent = cluster.requests(WriteTxnMarkersRequest)
    assert sorted(to for _, to, _ in sent) == sorted({cluster.leader(each).id for each in others(cluster)})


def test_a_leader_that_another_has_replaced_is_not_asked_for_long(cluster: Cluster) -> None:
    """The coordinator's metadata is old."""
    producer = begin(cluster, A, B, C)
    moved = others(cluster)[0]
    cluster.elect(moved, cluster.coordinator("t").id)
    cluster.end(producer)
    assert cluster.state() == "PREPARE_COMMIT"
    cluster.advance(200)
    assert cluster.state() == "PREPARE_COMMIT", "the old leader refuses"
    cluster.learn()
    cluster.advance(150)
    assert cluster.state() == "COMPLETE_COMMIT"
    assert outcomes(cluster, A, B, C) == {True}


@pytest.mark.parametrize("fate", ["request lost", "answer lost"])
def test_what_is_lost_on_the_way_is_sent_again(cluster: Cluster, fate: str) -> None:
    producer = begin(cluster, A, B, C)
    cluster.fates.extend([fate] * 4)
    cluster.end(producer, False)
    assert cluster.state() == "PREPARE_ABORT"
    cluster.advance(400)
    assert cluster.state() == "COMPLETE_ABORT"
    assert outcomes(cluster, A, B, C) == {False}


def test_a_broker_that_is_away_holds_its_own_markers_up_only(cluster: Cluster) -> None:
    producer = begin(cluster, A, B, C)
    first, second = others(cluster)
    cluster.leader(first).away = True
    cluster.end(producer)
    cluster.advance(100)
    assert outcomes(cluster, first) == {None}
    assert outcomes(cluster, *({A, B, C} - {first})) == {True}
    assert cluster.state() == "PREPARE_COMMIT"
    cluster.elect(first, cluster.leader(second).id, old_hears=False)
    cluster.learn()
    cluster.advance(150)
    assert cluster.state() == "COMPLETE_COMMIT"
    assert outcomes(cluster, first) == {True}


def test_markers_wait_while_a_partition_has_no_leader(cluster: Cluster) -> None:
    producer = begin(cluster, A, B, C)
    coordinator = cluster.coordinator("t")
    lost = others(cluster)[0]
    leader, coordinator.leaders[lost] = coordinator.leaders[lost], -1
    cluster.end(producer)
    cluster.advance(1000)
    assert cluster.state() == "PREPARE_COMMIT"
    coordinator.leaders[lost] = leader
    cluster.advance(150)
    assert cluster.state() == "COMPLETE_COMMIT"


def test_a_deleted_topic_holds_no_transaction_up(cluster: Cluster) -> None:
    producer = begin(cluster, A, B, C)
    gone = others(cluster)[0]
    coordinator = cluster.coordinator("t")
    cluster.leader(gone).lead(gone, 99, False)
    del cluster.logs[gone], coordinator.leaders[gone]
    cluster.end(producer)
    cluster.advance(200)
    assert cluster.state() == "COMPLETE_COMMIT"


def test_a_group_coordinator_that_loads_is_asked_again(cluster: Cluster) -> None:
    offsets = next(each for each in OFFSETS if cluster.leader(each) is not cluster.coordinator("t"))
    producer = cluster.init()
    cluster.add(producer, offsets)
    before = len(cluster.logs[offsets].batches)
    runtime = cluster.leader(offsets).group.runtime
    epoch = cluster.logs[offsets].epoch
    runtime.on_leadership_change(offsets, epoch + 1, False)
    cluster.end(producer)
    cluster.advance(200)
    assert cluster.state() == "PREPARE_COMMIT"
    assert len(cluster.logs[offsets].batches) == before
    cluster.elect(offsets, cluster.logs[offsets].leader)
    cluster.advance(200)
    assert cluster.state() == "COMPLETE_COMMIT"
    assert len(cluster.logs[offsets].batches) == before + 1


def test_a_marker_that_the_next_leader_does_not_have_is_not_written(cluster: Cluster) -> None:
    """The high watermark of the old leader, which follows now, passes the marker's offset later."""
    partition = others(cluster)[0]
    producer = begin(cluster, partition)
    cluster.commit()
    cluster.replicate = False
    task = cluster.start(cluster.coordinator("t").transaction.end_transaction("t", producer, True))
    cluster.settle()
    cluster.logs[STATES[0]].high_watermark = cluster.logs[STATES[0]].end
    cluster.logs[STATES[1]].high_watermark = cluster.logs[STATES[1]].end
    cluster.coordinator("t").writer.committed(STATES[0])
    cluster.coordinator("t").writer.committed(STATES[1])
    cluster.settle()
    assert task.done()
    old = cluster.leader(partition)
    assert outcomes(cluster, partition) == {True}, "the marker is in the leader's log"
    cluster.elect(partition, cluster.coordinator("t").id, kept=0)
    assert outcomes(cluster, partition) == {None}
    for number in range(5):
        cluster.logs[partition].produce(ProducerIdAndEpoch(1, 0), number)
    cluster.commit()
    old.writer.committed(partition)
    cluster.settle()
    assert cluster.state() == "PREPARE_COMMIT"
    cluster.learn()
    cluster.replicate = True
    cluster.advance(300)
    cluster.commit()
    cluster.settle()
    assert outcomes(cluster, partition) == {True}
    assert cluster.state() == "COMPLETE_COMMIT"


def test_too_few_replicas_are_waited_for(cluster: Cluster) -> None:
    partition = others(cluster)[0]
    producer = begin(cluster, partition)
    cluster.unwritable[partition] = ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.end(producer)
    cluster.advance(300)
    assert cluster.state() == "PREPARE_COMMIT"
    assert outcomes(cluster, partition) == {None}
    cluster.unwritable.clear()
    cluster.advance(150)
    assert cluster.state() == "COMPLETE_COMMIT"


def test_the_next_coordinator_completes_what_the_one_before_began(cluster: Cluster) -> None:
    producer = begin(cluster, A, B, C)
    state = next(each for each in STATES if cluster.leader(each) is cluster.coordinator("t"))
    old = cluster.coordinator("t")
    cluster.fates.extend(["delayed"] * 2)
    cluster.end(producer)
    assert cluster.state() == "PREPARE_COMMIT"
    new = next(each for each in cluster.brokers.values() if each is not old)
    cluster.elect(state, new.id)
    cluster.learn()
    cluster.settle()
    cluster.advance(200)
    assert cluster.state() == "COMPLETE_COMMIT"
    assert outcomes(cluster, A, B, C) == {True}
    markers = {partition: len(cluster.logs[partition].batches) for partition in (A, B, C)}
    # The old coordinator's markers arrive in the middle of the next transaction, with the same producer epoch.
    cluster.add(producer, A, B, C)
    for partition in (A, B, C):
        assert cluster.logs[partition].produce(producer, "next")
    for deliver in cluster.delayed:
        deliver()
    cluster.settle()
    assert {partition: len(cluster.logs[partition].batches) for partition in (A, B, C)} == markers
    cluster.end(producer, False)
    cluster.advance(100)
    assert [cluster.logs[partition].outcomes["next"] for partition in (A, B, C)] == [False] * 3


def test_a_coordinator_without_its_partition_sends_nothing_more(cluster: Cluster) -> None:
    producer = begin(cluster, A, B, C)
    old = cluster.coordinator("t")
    state = next(each for each in STATES if cluster.leader(each) is old)
    for each in cluster.brokers.values():
        each.hangs = each is not old
    # One request hangs at each broker, and the markers of the transaction wait behind it.
    for partition in others(cluster):
        old.cluster_markers.write(partition, COMMIT)
    cluster.settle()
    cluster.end(producer)
    sent = len(cluster.sent)
    new = next(each for each in cluster.brokers.values() if each is not old)
    cluster.elect(state, new.id)
    for each in cluster.brokers.values():
        each.hangs = False
    cluster.advance(6000)
    assert {sender for sender, _, _ in cluster.sent[sent:]} == {new.id}
    cluster.learn()
    cluster.advance(200)
    assert outcomes(cluster, A, B, C) == {True}


def test_markers_behind_a_broker_that_hangs_go_to_the_next_leader(cluster: Cluster) -> None:
    coordinator = cluster.coordinator("t")
    partition = others(cluster)[0]
    producer = begin(cluster, partition)
    cluster.leader(partition).hangs = True
    coordinator.cluster_markers.write(partition, COMMIT)
    cluster.settle()
    cluster.end(producer)
    assert len(cluster.requests(WriteTxnMarkersRequest)) == 1
    cluster.elect(partition, coordinator.id, old_hears=False)
    cluster.learn()
    cluster.advance(150)
    assert cluster.state() == "COMPLETE_COMMIT", "long before the hanging request times out"
    assert cluster.clock.monotonic_ms() < 5000


def test_one_request_is_in_flight_to_a_broker_and_the_next_has_the_rest(cluster: Cluster) -> None:
    coordinator = cluster.coordinator("t")
    partition = others(cluster)[0]
    cluster.fates.append("delayed")
    markers = [Marker(number, 0, 5, True) for number in range(50)]
    first = coordinator.cluster_markers.write(partition, markers[0])
    cluster.settle()
    rest = [coordinator.cluster_markers.write(partition, marker) for marker in markers[1:]]
    cluster.settle()
    assert len(cluster.sent) == 1
    assert not first.done
    for deliver in cluster.delayed:
        deliver()
    cluster.settle()
    assert first.result() is None
    assert all(each.result() is None for each in rest)
    assert [len(request.markers) for _, _, request in cluster.sent] == [1, 49]


def test_two_outcomes_of_one_producer_are_never_in_one_request(cluster: Cluster) -> None:
    """Answers have its id only."""
    coordinator = cluster.coordinator("t")
    partition = others(cluster)[0]
    both = [coordinator.cluster_markers.write(partition, COMMIT._replace(producer_epoch=epoch)) for epoch in (2, 1)]
    cluster.settle()
    assert both[0].result() is None
    assert isinstance(both[1].error, Exception)
    assert [len(request.markers) for _, _, request in cluster.sent] == [1, 1]


def test_a_request_that_cannot_be_sent_fails_its_items_and_not_the_queue() -> None:
    clock = VirtualClock()
    sent: list[list[int]] = []
    answers: list[tuple[list[int], Any]] = []

    def send(broker_id: int, items: Any) -> Later[Any]:
        sent.append(list(items))
        if len(sent) == 1:
            raise RuntimeError("a defect")
        return Later.failure(KafkaConnectionError()) if len(sent) == 2 else Later.of("fine")

    def take(queue: Any) -> list[int]:
        return [queue.popleft()] if queue else []

    queues: RequestQueues[int, int] = RequestQueues(
        clock, take, send, lambda items, done: answers.append((list(items), done.error))
    )
    for number in (1, 2, 3):
        queues.add(7, number)
    clock.run()
    assert sent == [[1], [2], [3]]
    assert [items for items, _ in answers] == [[1], [2], [3]]
    assert [type(error).__name__ for _, error in answers] == ["UnknownServerError", "KafkaConnectionError", "NoneType"]
    queues.add(7, 4)
    queues.close()
    queues.add(7, 5)
    clock.run()
    assert len(sent) == 3
    assert [(items, type(error).__name__) for items, error in answers[3:]] == [
        ([4], "NetworkError"),
        ([5], "NetworkError"),
    ]
