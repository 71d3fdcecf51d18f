"""The Persister finds the coordinator of a share-partition, here or on another broker, and tries again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4, uuid5

import pytest
from coordinator.brokers import SHARES, Broker, Cluster

from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share import cluster_persister
from kafkapy.coordinator.share.cluster_persister import GIVE_UP_AFTER_MS
from kafkapy.coordinator.share.state import ShareKey, ShareState, ShareSummary, StateBatch
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kafkapy.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kafkapy.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from kafkapy.types import ZERO_UUID

TOPICS = [uuid5(ZERO_UUID, topic) for topic in "abc"]
KEY = ShareKey("group", TOPICS[0], 0)
BATCHES = [StateBatch(0, 4, 2, 1), StateBatch(5, 9, 0, 2)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


def coordinator(cluster: Cluster, key: ShareKey = KEY) -> Broker:
    """The broker that coordinates a share-partition."""
    broker = next(iter(cluster.brokers.values()))
    return cluster.leader(SHARES[broker.share.partition_for(key)])


def asker(cluster: Cluster, key: ShareKey = KEY) -> Broker:
    """A broker that does not coordinate it."""
    return next(each for each in cluster.brokers.values() if each is not coordinator(cluster, key))


def code(later: Later[Any]) -> ErrorCode:
    return ErrorCode(getattr(later.error, "code", ErrorCode.NONE))


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_every_call_says_the_same_wherever_the_coordinator_is(cluster: Cluster, where: str) -> None:
    broker = coordinator(cluster) if where == "here" else asker(cluster)
    persister = broker.persister
    assert cluster.ask(persister.summary(KEY, -1)) == ShareSummary(0, 0, -1, -1)
    assert cluster.ask(persister.read(KEY, 1)) is ErrorCode.INVALID_REQUEST
    assert cluster.ask(persister.initialize(KEY, 3, 0)) is None
    assert cluster.ask(persister.read(KEY, 1)) == ShareState(3, 0, 0, ())
    assert cluster.ask(persister.write(KEY, 3, 1, 2, 3, BATCHES)) is None
    kept = (StateBatch(2, 4, 2, 1), StateBatch(5, 9, 0, 2))
    assert cluster.ask(persister.read(KEY, 2)) == ShareState(3, 2, 3, kept)
    assert cluster.ask(persister.summary(KEY, -1)) == ShareSummary(3, 2, 2, 3)
    assert cluster.ask(persister.write(KEY, 3, 1, 2, 3, BATCHES)) is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.ask(persister.write(KEY, 2, 2, 2, 3, BATCHES)) is ErrorCode.FENCED_STATE_EPOCH
    assert cluster.ask(persister.delete(KEY)) is None
    assert cluster.ask(persister.summary(KEY, -1)) == ShareSummary(0, 0, -1, -1)
    kinds = {type(request) for _, _, request in cluster.sent}
    everything = {
        InitializeShareGroupStateRequest,
        ReadShareGroupStateRequest,
        WriteShareGroupStateRequest,
        DeleteShareGroupStateRequest,
        ReadShareGroupStateSummaryRequest,
    }
    assert kinds == (set() if where == "here" else everything)


def test_calls_of_a_group_travel_together(cluster: Cluster) -> None:
    broker = asker(cluster)
    keys = [
        key
        for group in ("one", "two")
        for topic in TOPICS
        for key in [ShareKey(group, topic, 0)]
        if coordinator(cluster, key) is coordinator(cluster)
    ]
    laters = [broker.persister.initialize(key, 0, 5) for key in keys]
    cluster.settle()
    assert all(later.done and later.error is None for later in laters)
    requests = cluster.requests(InitializeShareGroupStateRequest)
    assert len(requests) == len({key.group_id for key in keys})
    assert sum(len(topic.partitions) for _, _, request in requests for topic in request.topics) == len(keys)


def test_calls_wait_for_the_request_before_them_and_one_share_partition_for_itself(cluster: Cluster) -> None:
    broker = asker(cluster)
    cluster.ask(broker.persister.initialize(KEY, 0, 0))
    cluster.ask(broker.persister.read(KEY, 0))
    laters = [broker.persister.write(KEY, 0, 0, number, 0, []) for number in range(3)]
    cluster.settle()
    assert [code(later) for later in laters] == [ErrorCode.NONE] * 3
    assert len(cluster.requests(WriteShareGroupStateRequest)) == 3, "a response has one result of a share-partition"
    assert cluster.ask(broker.persister.summary(KEY, -1)).start_offset == 2


def test_a_request_is_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_persister, "BATCHES_PER_REQUEST", 3)
    broker = asker(cluster)
    keys = [ShareKey("group", topic, 0) for topic in TOPICS]
    keys = [key for key in keys if coordinator(cluster, key) is not broker]
    for key in keys:
        cluster.ask(broker.persister.initialize(key, 0, 0))
    laters = [broker.persister.write(key, 0, 0, 0, 0, BATCHES) for key in keys]
    cluster.settle()
    assert [code(later) for later in laters] == [ErrorCode.NONE] * len(keys)
    assert len(cluster.requests(WriteShareGroupStateRequest)) == len(keys)


@pytest.mark.parametrize("fault", ["away", "request lost", "answer lost", "hangs", "no leader", "denied"])
def test_a_call_is_tried_again_until_it_is_answered(cluster: Cluster, fault: str) -> None:
    broker, other = asker(cluster), coordinator(cluster)
    cluster.ask(broker.persister.initialize(KEY, 0, 0))
    partition = SHARES[broker.share.partition_for(KEY)]
    if fault in ("away", "hangs"):
        setattr(other, fault, True)
    elif fault == "no leader":
        broker.leaders[partition] = -1
    elif fault == "denied":
        other.denies = True
    else:
        cluster.fates.append(fault)
    later = broker.persister.write(KEY, 0, 0, 7, 0, [])
    cluster.settle()
    if fault == "denied":
        assert code(later) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no attempt changes that"
        return
    assert not later.done
    other.away = other.hangs = False
    if fault == "no leader":
        broker.learn()
    cluster.advance(10_000)
    assert later.done
    assert later.error is None
    assert cluster.ask(broker.persister.summary(KEY, -1)).start_offset == 7


def test_a_call_is_not_tried_for_ever(cluster: Cluster) -> None:
    broker = asker(cluster)
    coordinator(cluster).away = True
    later = broker.persister.summary(KEY, -1)
    cluster.advance(GIVE_UP_AFTER_MS - 1000)
    assert not later.done
    cluster.advance(5_000)
    assert code(later) is ErrorCode.NETWORK_EXCEPTION
    assert len(cluster.requests(ReadShareGroupStateSummaryRequest)) > 5
    sent = len(cluster.sent)
    cluster.advance(60_000)
    assert len(cluster.sent) == sent


def test_a_coordinator_that_has_moved_is_found_with_the_next_metadata(cluster: Cluster) -> None:
    broker, old = asker(cluster), coordinator(cluster)
    cluster.ask(broker.persister.initialize(KEY, 0, 3))
    partition = SHARES[broker.share.partition_for(KEY)]
    new = next(each for each in cluster.brokers.values() if each not in (broker, old))
    cluster.elect(partition, new.id)
    later = broker.persister.summary(KEY, -1)
    cluster.settle()
    assert not later.done
    broker.learn()
    cluster.advance(500)
    assert later.result().start_offset == 3


def test_a_call_waits_while_the_state_is_loaded(cluster: Cluster) -> None:
    broker = coordinator(cluster)
    cluster.ask(broker.persister.initialize(KEY, 0, 3))
    partition = SHARES[broker.share.partition_for(KEY)]
    new = next(each for each in cluster.brokers.values() if each is not broker)
    cluster.elect(partition, new.id)
    new.learn()
    later = new.persister.summary(KEY, -1)
    assert not later.done, "it loads"
    cluster.advance(500)
    assert later.result().start_offset == 3


def test_the_topic_is_created_when_it_is_first_needed(cluster: Cluster) -> None:
    broker = asker(cluster)
    leaders = {partition: broker.leaders.pop(partition) for partition in SHARES}
    later = broker.persister.initialize(KEY, 0, 3)
    cluster.settle()
    assert cluster.creations == 1
    assert not later.done
    broker.leaders |= leaders
    broker.persister.leaders_changed()
    cluster.settle()
    assert later.done, "no pause is waited for when the coordinator is known"
    assert later.error is None


def test_a_topic_that_does_not_exist_is_asked_for_again_for_a_while(cluster: Cluster) -> None:
    broker = asker(cluster)
    new = ShareKey("group", uuid4(), 0)
    later = broker.persister.initialize(new, 0, 3)
    cluster.advance(1_000)
    assert not later.done
    cluster.topics[new.topic_id] = "a"
    cluster.advance(3_000)
    assert later.done
    assert later.error is None
    nowhere = broker.persister.initialize(ShareKey("group", uuid4(), 0), 0, 3)
    cluster.advance(GIVE_UP_AFTER_MS + 3_000)
    assert code(nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_everybody_who_waits_gets_an_answer_when_the_broker_stops(cluster: Cluster) -> None:
    broker, other = asker(cluster), coordinator(cluster)
    other.hangs = True
    in_flight = broker.persister.summary(KEY, -1)
    cluster.settle()
    queued = broker.persister.summary(KEY, -1)
    broker.leaders[SHARES[0]] = broker.leaders[SHARES[1]] = -1
    paused = broker.persister.initialize(KEY, 0, 0)
    broker.persister.close()
    assert code(queued) is code(paused) is ErrorCode.NETWORK_EXCEPTION
    assert code(broker.persister.delete(KEY)) is ErrorCode.NETWORK_EXCEPTION
    cluster.advance(10_000)
    assert code(in_flight) is ErrorCode.NETWORK_EXCEPTION
