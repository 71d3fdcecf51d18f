"""KafkaShareConsumer on a scripted cluster: what it reads, acknowledges, renews and gives back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from clients.share.share_cluster import ShareCluster, every, read
from waiting import wait_until

from kafkapy import AcknowledgeType, ConsumerRecord, KafkaShareConsumer
from kafkapy.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaError,
)
from kafkapy.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kafkapy.types import TopicPartition

Consume = Callable[..., KafkaShareConsumer]
JOBS = TopicPartition("jobs", 0)
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


# --- implicit acknowledgement -----------------------------------------------------------------------------------------


def test_the_next_poll_accepts_the_records_before(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(5)
    consumer = consume()
    records = read(consumer, 5)
    assert [(each.offset, each.value, each.delivery_count) for each in records] == [(n, b"%d" % n, 1) for n in range(5)]
    assert every(cluster, "acquired")()
    assert consumer.poll(0) == {}
    wait_until(every(cluster, "accepted"), "accepted records")
    assert (0, 4, [1]) in cluster.acknowledgements()
    assert consumer.assignment() == {JOBS}
    assert consumer.acquisition_lock_timeout_ms() == 30_000


def test_each_step_of_an_iteration_accepts_the_record_before(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(3)
    consumer = consume(consumer_timeout_ms=2000)
    steps = iter(consumer)
    assert next(steps).offset == 0
    assert next(steps).offset == 1
    wait_until(lambda: cluster.state_of("jobs")[0] == "accepted", "the first record's acknowledgement")
    assert cluster.state_of("jobs")[1] == "acquired"
    assert [record.offset for record in steps] == [2]
    wait_until(every(cluster, "accepted"), "the last record's acknowledgement")


def test_work_that_fails_goes_to_another_worker(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(3)

    def work() -> None:
        with consume() as consumer:
            for record in consumer:
                if record.offset == 1:
                    raise RuntimeError("work")

    with pytest.raises(RuntimeError, match="work"):
        work()
    assert cluster.state_of("jobs") == {0: "accepted", 1: "available", 2: "available"}
    again = read(consume(), 2)
    assert [(each.offset, each.delivery_count) for each in again] == [(1, 2), (2, 2)]


def test_fewer_records_than_the_broker_has_sent(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(5)
    consumer = consume()
    assert [each.offset for each in read(consumer, 2, max_records=2)] == [0, 1]
    assert [each.offset for each in read(consumer, 2, max_records=2)] == [2, 3]
    wait_until(lambda: cluster.state_of("jobs")[1] == "accepted", "acknowledgements while records are buffered")
    assert cluster.state_of("jobs")[2] == "acquired"
    assert [each.offset for each in read(consumer, 1, max_records=2)] == [4]
    assert len(cluster.of(ShareAcknowledgeRequest)) >= 1


def test_acknowledge_needs_the_explicit_mode(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(1)
    consumer = consume()
    [record] = read(consumer, 1)
    with pytest.raises(IllegalStateError, match="Implicit acknowledgement"):
        consumer.acknowledge(record)
    assert consumer.commit_sync() == {JOBS: None}
    assert every(cluster, "accepted")()
    assert consumer.commit_sync() == {}


# --- explicit acknowledgement -----------------------------------------------------------------------------------------


def test_every_outcome_of_a_record(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(4)
    consumer = consume(share_acknowledgement_mode="explicit")
    records = read(consumer, 4)
    consumer.acknowledge(records[0])
    consumer.acknowledge(records[1], RELEASE)
    with pytest.raises(IllegalStateError, match="All records must be acknowledged in explicit acknowledgement mode"):
        consumer.poll(0)
    consumer.acknowledge(records[2], "reject")
    consumer.acknowledge_offset("jobs", 0, 3, REJECT)
    consumer.acknowledge(records[3], ACCEPT)  # until it is sent, another call changes it
    assert consumer.commit_sync() == {JOBS: None}
    assert cluster.state_of("jobs") == {0: "accepted", 1: "available", 2: "rejected", 3: "accepted"}
    with pytest.raises(IllegalStateError, match="offset 0 of jobs-0 cannot be acknowledged"):
        consumer.acknowledge(records[0])
    with pytest.raises(ValueError, match="not an acknowledge type"):
        consumer.acknowledge(records[0], "done")
    [again] = read(consumer, 1)
    assert (again.offset, again.delivery_count) == (1, 2)
    consumer.acknowledge(again)


def test_a_commit_leaves_unacknowledged_records_with_the_user(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(3)
    consumer = consume(share_acknowledgement_mode="explicit")
    records = read(consumer, 3)
    consumer.acknowledge(records[1])
    assert consumer.commit_sync() == {JOBS: None}
    assert cluster.state_of("jobs") == {0: "acquired", 1: "accepted", 2: "acquired"}
    consumer.acknowledge(records[0])
    consumer.acknowledge(records[2])
    consumer.commit_async()
    wait_until(every(cluster, "accepted"), "the commit")


def test_an_iteration_in_explicit_mode(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(3)
    consumer = consume(share_acknowledgement_mode="explicit", consumer_timeout_ms=2000)
    for record in consumer:
        consumer.acknowledge(record, REJECT if record.offset == 1 else ACCEPT)
        if record.offset == 2:
            break
    consumer.commit_sync()
    assert cluster.state_of("jobs") == {0: "accepted", 1: "rejected", 2: "accepted"}
    cluster.topics["jobs"][0].append(2)
    steps = iter(consumer)
    next(steps)
    with pytest.raises(IllegalStateError, match="All records must be acknowledged"):
        next(steps)


def test_acknowledgements_wait_for_the_next_poll_or_commit(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(2)
    consumer = consume(share_acknowledgement_mode="explicit")
    records = read(consumer, 2)
    consumer.acknowledge(records[0])
    consumer.acknowledge(records[1])
    time.sleep(0)
    assert cluster.acknowledgements() == []
    consumer.poll(0)
    wait_until(every(cluster, "accepted"), "acknowledgements")


def test_renewed_records_come_once_more(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(3)
    consumer = consume(share_acknowledgement_mode="explicit")
    records = read(consumer, 3)
    consumer.acknowledge(records[0])
    consumer.acknowledge(records[1], RENEW)
    consumer.acknowledge(records[2], RENEW)
    cluster.topics["jobs"][0].append(1)
    again = read(consumer, 2)
    assert again == records[1:]
    assert [call.request.is_renew_ack for call in cluster.of(ShareAcknowledgeRequest)] == [True]
    assert cluster.state_of("jobs")[1] == "acquired"
    for record in again:
        consumer.acknowledge(record)
    [new] = read(consumer, 1)
    assert new.offset == 3
    consumer.acknowledge(new)
    assert consumer.commit_sync() == {JOBS: None}
    assert every(cluster, "accepted")()
    with pytest.raises(ValueError, match="RENEW needs the record"):
        consumer.acknowledge_offset("jobs", 0, 3, RENEW)


def test_renewed_records_in_an_iteration(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(2)
    consumer = consume(share_acknowledgement_mode="explicit", consumer_timeout_ms=2000)
    seen = []
    for record in consumer:
        seen.append(record.offset)
        consumer.acknowledge(record, RENEW if seen.count(record.offset) == 1 else ACCEPT)
    assert sorted(seen) == [0, 0, 1, 1]
    consumer.commit_sync()
    assert every(cluster, "accepted")()


def test_a_refused_renewal_loses_the_record(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(1)
    consumer = consume(share_acknowledgement_mode="explicit")
    outcomes: list[Any] = []
    consumer.set_acknowledgement_commit_callback(lambda offsets, error: outcomes.append((offsets, error)))
    [record] = read(consumer, 1)
    delivery = cluster.deliveries["jobs", 0][0]
    delivery.owner, delivery.state = None, "available"
    consumer.acknowledge(record, RENEW)
    [again] = read(consumer, 1)
    assert again.delivery_count == 2
    [(offsets, error)] = outcomes
    assert offsets == {JOBS: [0]}
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.INVALID_RECORD_STATE
    consumer.acknowledge(again)


# --- outcomes ---------------------------------------------------------------------------------------------------------


def test_the_callback_gets_every_outcome(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(3)
    consumer = consume()
    outcomes: list[Any] = []
    threads = set()

    def callback(offsets: dict[TopicPartition, list[int]], error: Exception | None) -> None:
        threads.add(threading.get_ident())
        outcomes.append((offsets, error))

    consumer.set_acknowledgement_commit_callback(callback)
    read(consumer, 3)
    wait_until(lambda: consumer.poll(20) == {} and outcomes, "the callback")
    assert outcomes == [({JOBS: [0, 1, 2]}, None)]
    assert threads == {threading.get_ident()}


def test_the_error_of_a_callback_comes_out_of_poll(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(1)
    consumer = consume()

    def callback(offsets: Any, error: Any) -> None:
        raise RuntimeError("callback")

    consumer.set_acknowledgement_commit_callback(callback)
    read(consumer, 1)

    def raised() -> bool:
        try:
            consumer.poll(20)
        except RuntimeError as error:
            return str(error) == "callback"
        return False

    wait_until(raised, "the error of the callback")
    consumer.set_acknowledgement_commit_callback(None)


def test_a_commit_says_which_partition_was_refused(cluster: ShareCluster, consume: Consume) -> None:
    cluster.add_topic("jobs", 2)
    for log in cluster.topics["jobs"].logs:
        log.append(2)
    consumer = consume(share_acknowledgement_mode="explicit")
    records: list[ConsumerRecord] = []
    wait_until(lambda: records.extend(consumer.poll_batch(timeout_ms=50)) or records, "records")
    for record in records:
        consumer.acknowledge(record)
    for delivery in cluster.deliveries["jobs", 1].values():
        delivery.owner = "another"
    outcomes = consumer.commit_sync()
    assert outcomes[TopicPartition("jobs", 0)] is None
    error = outcomes[TopicPartition("jobs", 1)]
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.INVALID_RECORD_STATE


def test_a_retriable_error_is_tried_again(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(1)
    consumer = consume()
    read(consumer, 1)
    refused = []

    def refuse(call: Any) -> ShareAcknowledgeResponse | None:
        if refused or call.request.share_session_epoch < 0:
            return None
        refused.append(call)
        cluster._session(call)
        Topic = ShareAcknowledgeResponse.TopicResponse
        return ShareAcknowledgeResponse(
            responses=[
                Topic(
                    topic_id=topic.topic_id,
                    partitions=[
                        Topic.Partition(
                            partition_index=each.partition_index,
                            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                            current_leader=Topic.Partition.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in call.request.topics
            ]
        )

    cluster.on(ShareAcknowledgeRequest, refuse)
    assert consumer.commit_sync() == {JOBS: None}
    assert len(refused) == 1
    assert every(cluster, "accepted")()


def test_a_commit_ends_at_its_timeout(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(1)
    consumer = consume()
    read(consumer, 1)
    gate = threading.Event()

    async def slow(call: Any) -> Any:
        import asyncio

        while not gate.is_set():
            await asyncio.sleep(0.01)
        return await cluster.share_acknowledge(call)

    cluster.on(ShareAcknowledgeRequest, slow)
    error = consumer.commit_sync(timeout_ms=50)[JOBS]
    gate.set()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    wait_until(every(cluster, "accepted"), "the acknowledgement after the timeout")


# --- sessions, leaders, members ---------------------------------------------------------------------------------------


def test_a_lost_session_fails_its_acknowledgements_and_a_new_one_goes_on(
    cluster: ShareCluster, consume: Consume
) -> None:
    cluster.topics["jobs"][0].append(2)
    consumer = consume()
    read(consumer, 2)
    cluster.drop_sessions(1)
    error = consumer.commit_sync()[JOBS]
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.NETWORK_EXCEPTION
    for delivery in cluster.deliveries["jobs", 0].values():
        delivery.until = 0.0
    assert [each.delivery_count for each in read(consumer, 2)] == [2, 2]
    assert consumer.commit_sync() == {JOBS: None}


def test_a_lost_connection(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(1)
    consumer = consume()
    read(consumer, 1)
    cluster.disconnect(1)
    cluster.drop_sessions(1)
    for delivery in cluster.deliveries["jobs", 0].values():
        delivery.until = 0.0
    [again] = read(consumer, 1)
    assert again.delivery_count == 2


def test_a_partition_gets_another_leader() -> None:
    with ShareCluster(nodes=[1, 2]) as cluster:
        log = cluster.add_topic("jobs", leader=1)[0]
        log.append(2)
        with KafkaShareConsumer(
            "jobs",
            bootstrap_servers=cluster.bootstrap,
            group_id="workers",
            fetch_max_wait_ms=20,
            retry_backoff_ms=20,
            share_acknowledgement_mode="explicit",
        ) as consumer:
            records = read(consumer, 2)
            log.elect(2)
            for delivery in cluster.deliveries["jobs", 0].values():
                delivery.state = "available"
            for record in records:
                consumer.acknowledge(record)
            error = consumer.commit_sync()[JOBS]
            assert isinstance(error, KafkaError)
            assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            again = read(consumer, 2)
            assert {call.node_id for call in cluster.of(ShareFetchRequest)} == {1, 2}
            for record in again:
                consumer.acknowledge(record)
            assert consumer.commit_sync() == {JOBS: None}
        assert every(cluster, "accepted")()


def test_records_of_several_brokers() -> None:
    with ShareCluster(nodes=[1, 2, 3]) as cluster:
        topic = cluster.add_topic("jobs", 3)
        for number, log in enumerate(topic.logs):
            log.elect(number + 1)
            log.append(10)
        with KafkaShareConsumer(
            "jobs", bootstrap_servers=cluster.bootstrap, group_id="workers", fetch_max_wait_ms=20
        ) as consumer:
            seen: set[tuple[int, int]] = set()

            def all_seen() -> bool:
                seen.update((each.partition, each.offset) for each in consumer.poll_batch(timeout_ms=50))
                return len(seen) == 30

            wait_until(all_seen, "all records")
            consumer.commit_sync()
            for number in range(3):
                assert every(cluster, "accepted", number)()


def test_the_record_limit_holds_over_all_brokers() -> None:
    with ShareCluster(nodes=[1, 2]) as cluster:
        topic = cluster.add_topic("jobs", 2)
        topic[1].elect(2)
        for log in topic.logs:
            log.append(20)
        with KafkaShareConsumer(
            "jobs",
            bootstrap_servers=cluster.bootstrap,
            group_id="workers",
            fetch_max_wait_ms=20,
            share_acquire_mode="record_limit",
            max_poll_records=3,
        ) as consumer:
            seen: set[tuple[int, int]] = set()

            def all_seen() -> bool:
                seen.update((each.partition, each.offset) for each in consumer.poll_batch(timeout_ms=50))
                # Without it, the next broker may acquire records while the acknowledgement to this one is on its way.
                consumer.commit_sync()
                return len(seen) == 40

            wait_until(all_seen, "all records")
        assert cluster.most_held <= 3
        assert {call.node_id for call in cluster.of(ShareFetchRequest)} == {1, 2}


def test_close_sends_acknowledgements_and_gives_the_rest_back(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(4)
    consumer = consume(share_acknowledgement_mode="explicit")
    records = read(consumer, 2, max_records=2)
    consumer.acknowledge(records[0])
    consumer.close()
    assert cluster.state_of("jobs") == {0: "accepted", 1: "available", 2: "available", 3: "available"}
    assert cluster.of(ShareAcknowledgeRequest)[-1].request.share_session_epoch == -1
    assert cluster.of(ShareGroupHeartbeatRequest)[-1].request.member_epoch == -1
    assert cluster.members == {}
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll(0)
    consumer.close()


def test_unsubscribe_and_subscribe_again(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(2)
    cluster.add_topic("others")[0].append(1)
    consumer = consume()
    read(consumer, 2)
    consumer.commit_sync()
    consumer.unsubscribe()
    assert cluster.members == {}
    with pytest.raises(IllegalStateError, match="not subscribed to any topics"):
        consumer.poll(0)
    consumer.subscribe(["others"])
    assert consumer.subscription() == {"others"}
    [record] = read(consumer, 1)
    assert record.topic == "others"
    consumer.subscribe(["jobs", "others"])
    cluster.topics["jobs"][0].append(1)
    [record] = read(consumer, 1)
    assert record.topic == "jobs"
    assert len({call.request.member_id for call in cluster.of(ShareGroupHeartbeatRequest)}) == 1


def test_a_removed_member_joins_again(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(1)
    consumer = consume()
    read(consumer, 1)
    cluster.members.clear()
    wait_until(lambda: consumer.poll(20) == {} and cluster.members, "the member's return")
    cluster.topics["jobs"][0].append(1)
    [record] = read(consumer, 1)
    assert record.offset == 1


def test_a_user_that_does_not_poll_leaves_the_group(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(1)
    consumer = consume(max_poll_interval_ms=300)
    read(consumer, 1)
    wait_until(lambda: not cluster.members, "the member's leave")
    cluster.topics["jobs"][0].append(1)
    [record] = read(consumer, 1)
    assert record.offset == 1


def test_buffered_records_whose_locks_have_ended_are_not_returned() -> None:
    with ShareCluster(lock_ms=300) as cluster:
        cluster.add_topic("jobs")[0].append(4)
        with KafkaShareConsumer(
            "jobs", bootstrap_servers=cluster.bootstrap, group_id="workers", fetch_max_wait_ms=20
        ) as consumer:
            read(consumer, 1, max_records=1)
            consumer.commit_sync()

            def expired() -> bool:
                if any(time.monotonic() < chunk.locked_until for chunk in consumer._deliveries):
                    return False
                cluster.expire()
                return list(cluster.state_of("jobs").values()) == ["accepted"] + ["available"] * 3

            wait_until(expired, "the end of the locks")
            again = read(consumer, 3)
            assert [(each.offset, each.delivery_count) for each in again] == [(1, 2), (2, 2), (3, 2)]
