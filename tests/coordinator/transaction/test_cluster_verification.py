"""A broker that leads partitions asks the transaction coordinator on another one: faults, elections, old brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from coordinator.brokers import OFFSETS, STATES, Broker, Cluster

from kafkapy.coordinator.result import Later
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.coordinator.transaction.verification import Operation, produce_error
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkapy.types import TopicPartition

A, B, C = (TopicPartition(topic, 0) for topic in "abc")
DEFAULT, GENERIC, ADD = Operation.DEFAULT_ERROR, Operation.GENERIC_ERROR, Operation.ADD_PARTITION


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


def asker(cluster: Cluster, name: str = "t") -> Broker:
    """A broker that does not coordinate the id."""
    return next(each for each in cluster.brokers.values() if each is not cluster.coordinator(name))


def other(cluster: Cluster, *brokers: Broker) -> Broker:
    return next(each for each in cluster.brokers.values() if each not in brokers)


def state_of(cluster: Cluster, name: str = "t") -> TopicPartition:
    return next(each for each in STATES if each.partition == cluster.coordinator(name).transaction.partition_for(name))


def ask(
    cluster: Cluster, producer: ProducerIdAndEpoch, *partitions: TopicPartition, how: Operation, name: str = "t"
) -> Any:
    return cluster.ask(asker(cluster, name).verification.ask(name, producer, partitions, how))


@pytest.mark.parametrize(
    ("operation", "error"), [(DEFAULT, ErrorCode.INVALID_TXN_STATE), (GENERIC, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_partitions_are_verified_by_the_coordinator_elsewhere(
    cluster: Cluster, operation: Operation, error: ErrorCode
) -> None:
    producer = cluster.init()
    cluster.add(producer, A)
    assert ask(cluster, producer, A, how=operation) == {}
    assert ask(cluster, producer, A, B, how=operation) == {B: error}
    zombie = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch - 1)
    assert ask(cluster, zombie, A, how=operation) == {A: ErrorCode.INVALID_PRODUCER_EPOCH}
    unknown = ProducerIdAndEpoch(producer.producer_id + 77, 0)
    assert ask(cluster, unknown, A, how=operation) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert len(cluster.requests(AddPartitionsToTxnRequest)) == 4


def test_the_coordinator_itself_needs_no_request(cluster: Cluster) -> None:
    producer = cluster.init()
    cluster.add(producer, A)
    assert cluster.ask(cluster.coordinator("t").verification.ask("t", producer, [A], GENERIC)) == {}
    assert cluster.sent == []


def test_partitions_are_added_by_the_coordinator_elsewhere(cluster: Cluster) -> None:
    producer = cluster.init()
    assert ask(cluster, producer, A, B, how=ADD) == {}
    found = cluster.ask(cluster.coordinator("t").transaction.describe("t"))
    assert found.partitions == {A, B}
    assert found.bumps_epochs
    ended = cluster.end(producer, version=2)
    assert ended.producer_epoch == producer.producer_epoch + 1
    assert ask(cluster, producer, A, how=ADD) == {A: ErrorCode.INVALID_PRODUCER_EPOCH}


def test_a_partition_that_the_coordinator_does_not_know_keeps_all_others_out(cluster: Cluster) -> None:
    producer = cluster.init()
    del cluster.coordinator("t").leaders[B]
    refused = ask(cluster, producer, A, B, how=ADD)
    assert set(refused.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.state() == "EMPTY"


@pytest.mark.parametrize("operation", [DEFAULT, GENERIC, ADD])
@pytest.mark.parametrize("fault", ["away", "request lost", "answer lost", "hangs", "no leader"])
def test_a_producer_tries_again_when_the_coordinator_cannot_be_asked(
    cluster: Cluster, operation: Operation, fault: str
) -> None:
    producer = cluster.init()
    cluster.add(producer, A)
    coordinator, broker = cluster.coordinator("t"), asker(cluster)
    if fault in ("away", "hangs"):
        setattr(coordinator, fault, True)
    elif fault == "no leader":
        broker.leaders[state_of(cluster)] = -1
    else:
        cluster.fates.append(fault)
    answer = broker.verification.ask("t", producer, [A], operation)
    cluster.advance(6000 if fault == "hangs" else 0)
    [error] = answer.result().values()
    assert produce_error(error, operation)[0] is ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.away = coordinator.hangs = False
    broker.learn()
    assert cluster.ask(broker.verification.ask("t", producer, [A], operation)) == {}


@pytest.mark.parametrize("operation", [DEFAULT, GENERIC, ADD])
def test_a_coordinator_that_has_moved_is_found_with_the_next_metadata(cluster: Cluster, operation: Operation) -> None:
    producer = cluster.init()
    cluster.add(producer, A)
    broker, old = asker(cluster), cluster.coordinator("t")
    cluster.elect(state_of(cluster), other(cluster, broker, old).id)
    cluster.settle()
    [error] = cluster.ask(broker.verification.ask("t", producer, [A], operation)).values()
    assert error is ErrorCode.NOT_COORDINATOR
    assert produce_error(error, operation)[0] is ErrorCode.NOT_ENOUGH_REPLICAS
    broker.learn()
    assert cluster.ask(broker.verification.ask("t", producer, [A], operation)) == {}


def test_a_coordinator_that_loads_is_asked_again(cluster: Cluster) -> None:
    producer = cluster.init()
    cluster.add(producer, A)
    broker, old = asker(cluster), cluster.coordinator("t")
    new = other(cluster, broker, old)
    cluster.elect(state_of(cluster), new.id)
    # The load waits for the disk, that is, for a turn of the clock.
    broker.learn()
    answer = new.transaction.verify_partitions("t", producer, [A])
    assert getattr(answer.error, "code", None) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert produce_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, GENERIC)[0] is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.settle()
    assert cluster.ask(broker.verification.ask("t", producer, [A], GENERIC)) == {}


def test_questions_behind_a_coordinator_that_hangs_are_refused_when_it_is_replaced(cluster: Cluster) -> None:
    producer = cluster.init()
    cluster.add(producer, A)
    broker, old = asker(cluster), cluster.coordinator("t")
    old.hangs = True
    hanging = broker.verification.ask("t", producer, [A], GENERIC)
    cluster.settle()
    waiting = broker.verification.ask("t", producer, [A], GENERIC)
    cluster.settle()
    assert not hanging.done and not waiting.done
    cluster.elect(state_of(cluster), other(cluster, broker, old).id, old_hears=False)
    broker.learn()
    assert waiting.result() == {A: ErrorCode.NOT_COORDINATOR}
    cluster.settle()
    assert cluster.ask(broker.verification.ask("t", producer, [A], GENERIC)) == {}


def test_a_coordinator_of_an_earlier_release_takes_partitions_unverified(cluster: Cluster) -> None:
    producer = cluster.init()
    cluster.coordinator("t").newest[AddPartitionsToTxnRequest] = 3
    assert ask(cluster, producer, A, how=GENERIC) == {}
    [error] = ask(cluster, producer, A, how=ADD).values()
    assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody would end the transaction there"
    cluster.coordinator("t").newest[AddPartitionsToTxnRequest] = 4
    assert ask(cluster, producer, A, how=DEFAULT) == {A: ErrorCode.INVALID_TXN_STATE}


def test_a_broker_that_may_not_ask_refuses_the_batch(cluster: Cluster) -> None:
    producer = cluster.init()
    cluster.coordinator("t").denies = True
    assert ask(cluster, producer, A, how=GENERIC) == {A: ErrorCode.INVALID_TXN_STATE}


def test_questions_are_collected_while_one_is_on_its_way(cluster: Cluster) -> None:
    names = [name for name in (f"id-{number}" for number in range(40)) if cluster.coordinator(name).id == 1]
    broker = asker(cluster, names[0])
    producers = {name: cluster.init(name) for name in names}
    for name in names:
        cluster.add(producers[name], A, name=name)
    first = broker.verification.ask(names[0], producers[names[0]], [A], GENERIC)
    twice = broker.verification.ask(names[0], producers[names[0]], [B], GENERIC)
    rest = [broker.verification.ask(name, producers[name], [A], GENERIC) for name in names[1:]]
    cluster.settle()
    assert first.result() == {}
    assert twice.result() == {B: ErrorCode.TRANSACTION_ABORTABLE}
    assert all(each.result() == {} for each in rest)
    sent = cluster.requests(AddPartitionsToTxnRequest)
    assert [len(request.transactions) for _, _, request in sent] == [len(names), 1]


# --- offsets of a transaction -----------------------------------------------------------------------------------------


def commit_offsets(
    cluster: Cluster, producer: ProducerIdAndEpoch, group: str, offset: int, version: int = 3, name: str = "t"
) -> Any:
    """The Later of a TxnOffsetCommit at the group's coordinator."""
    partition = TxnOffsetCommitRequest.Topic.Partition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequest.Topic(name="a", partitions=[partition])],
    )
    return group_broker(cluster, group).serve(request, version)


def group_broker(cluster: Cluster, group: str) -> Broker:
    return cluster.leader(OFFSETS[cluster.brokers[1].group.partition_for(group)])


def code_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.result().topics[0].partitions[0].error_code)


def offset_of(cluster: Cluster, group: str) -> int:
    found = cluster.ask(group_broker(cluster, group).group.fetch_offsets(group, [A]))
    return int(found[A].offset)


def far_group(cluster: Cluster) -> str:
    """A group that another broker coordinates than the transaction."""
    return next(
        each for each in (f"g{n}" for n in range(99)) if group_broker(cluster, each) is not cluster.coordinator("t")
    )


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_count_from_the_marker_of_the_coordinator_elsewhere(
    cluster: Cluster, version: int, committed: bool
) -> None:
    group = far_group(cluster)
    producer = cluster.init()
    offsets = OFFSETS[cluster.brokers[1].group.partition_for(group)]
    if version < 5:
        early = commit_offsets(cluster, producer, group, 1, version)
        cluster.settle()
        assert code_of(early) is ErrorCode.INVALID_TXN_STATE
        cluster.add(producer, offsets)
    answer = commit_offsets(cluster, producer, group, 42, version)
    cluster.settle()
    assert code_of(answer) is ErrorCode.NONE
    assert offset_of(cluster, group) == -1
    cluster.end(producer, committed, version=2 if version == 5 else 0)
    cluster.advance(100)
    assert offset_of(cluster, group) == (42 if committed else -1)


def test_no_marker_comes_between_the_coordinators_word_and_the_offsets(cluster: Cluster) -> None:
    """Offsets behind the marker of their transaction would wait for a marker that never comes."""
    group = far_group(cluster)
    producer = cluster.init()
    cluster.add(producer, OFFSETS[cluster.brokers[1].group.partition_for(group)])
    broker = group_broker(cluster, group)
    real, asked = broker.verification.ask, []

    def slow(*arguments: Any, **named: Any) -> Any:
        asked.append(1)
        answer = real(*arguments, **named)
        if len(asked) == 1:
            # The answer is on its way while the transaction ends, marker included.
            answer.then(lambda _: cluster.start(_end(cluster, producer)))
            return _held(cluster, answer)
        return answer

    broker.verification.ask = slow  # type: ignore[method-assign]
    answer = commit_offsets(cluster, producer, group, 42)
    cluster.settle()
    cluster.advance(500)
    assert cluster.state() == "COMPLETE_COMMIT"
    assert len(asked) == 2, "asked again, because a marker came in between"
    assert code_of(answer) is ErrorCode.INVALID_TXN_STATE
    assert offset_of(cluster, group) == -1
    shard = broker.group.runtime.shards()[broker.group.partition_for(group)]
    assert not shard.store.is_pending(group, A)


async def _end(cluster: Cluster, producer: ProducerIdAndEpoch) -> None:
    await cluster.coordinator("t").transaction.end_transaction("t", producer, True)


def _held(cluster: Cluster, answer: Any) -> Any:
    """The answer, 300 ms later."""
    held: Later[Any] = Later()
    cluster.clock.call_at(cluster.clock.monotonic_ms() + 300, lambda: answer.then(lambda done: held.set(done.result())))
    return held


def test_a_guard_ends_with_the_marker_of_its_producer_and_with_the_shard(cluster: Cluster) -> None:
    group = far_group(cluster)
    broker = group_broker(cluster, group)
    number = broker.group.partition_for(group)
    guard, same, another = (broker.group.guard(group, producer) for producer in (7, 7, 8))
    same.release()
    broker.group.runtime.complete_transaction(number, 7, 0, 1, True)
    assert not guard.valid
    assert same.valid, "it was released before"
    assert another.valid
    assert broker.group.guard(group, 7).valid
    cluster.elect(OFFSETS[number], other(cluster, broker).id)
    assert not another.valid


def test_a_group_that_moves_while_the_coordinator_is_asked_is_looked_up_again(cluster: Cluster) -> None:
    group = far_group(cluster)
    broker = group_broker(cluster, group)
    number = broker.group.partition_for(group)
    producer = cluster.init()
    cluster.add(producer, OFFSETS[number])
    cluster.fates.append("delayed")
    answer = commit_offsets(cluster, producer, group, 42)
    cluster.settle()
    assert not answer.done
    cluster.elect(OFFSETS[number], other(cluster, broker).id)
    for deliver in cluster.delayed:
        deliver()
    cluster.settle()
    assert code_of(answer) is ErrorCode.NOT_COORDINATOR
    again = commit_offsets(cluster, producer, group, 43)
    cluster.settle()
    assert code_of(again) is ErrorCode.NONE
    cluster.learn()
    cluster.end(producer)
    cluster.advance(100)
    assert offset_of(cluster, group) == 43
