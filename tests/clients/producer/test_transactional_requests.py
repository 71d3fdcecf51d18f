"""What a producer makes of each answer of a coordinator: another try, an error that an abort ends, or a fatal one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.backoff import Backoff
from kafkapy.clients.producer.transaction_manager import State, TransactionManager
from kafkapy.clients.producer.transactional_requests import TransactionalRequests
from kafkapy.errors import (
    ClusterAuthorizationFailedError,
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownProducerIdError,
    UnsupportedForMessageFormatError,
)
from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse, AddPartitionsToTxnTopicResult
from kafkapy.protocol.messages.end_txn import EndTxnResponse
from kafkapy.protocol.messages.init_producer_id import InitProducerIdResponse
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from kafkapy.types import CoordinatorType, OffsetAndMetadata, TopicPartition

ID = "id"
PLACE = TopicPartition("t", 0)
LOST = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
LOADING = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS]


class Group(NamedTuple):
    """What a consumer's group_metadata() says."""

    group_id: str = "g"
    generation_id: int = 3
    member_id: str = "m"
    group_instance_id: str | None = None


class Brokers:
    """The network and its coordinators: answers with what a test has written down, and keeps what it is asked."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[Any] = []
        self.lost: list[tuple[str, CoordinatorType]] = []
        self.feature = 0

    async def send_any(self, request: Any, *, max_version: int | None = None) -> Any:
        self.asked.append(request)
        return self.answers.pop(0)

    async def send(self, node: int, request: Any, **versions: int | None) -> Any:
        return await self.send_any(request)

    async def version(self, node: int, api_key: int, low: int, high: int) -> int:
        return high

    def finalized_feature(self, node: int, name: str) -> int:
        return self.feature

    async def find(self, key: str, kind: CoordinatorType) -> int:
        return 1

    def invalidate(self, key: str, kind: CoordinatorType) -> None:
        self.lost.append((key, kind))


class Bench:
    """The requests of a producer to brokers that are not there."""

    def __init__(self, transactional_id: str | None = ID) -> None:
        self.brokers = Brokers()
        self.accumulator = RecordAccumulator(1 << 20, 200, 0, 1 << 20, [1])
        self.accumulator.topic("t").update([(1, 0)] * 2)
        self.manager = TransactionManager(self.accumulator, transactional_id)
        self.requests = TransactionalRequests(
            self.brokers,
            self.brokers,
            self.manager,
            transaction_timeout_ms=1000,
            backoff=Backoff(0, 0),
            all_sent=self._all_sent,
        )

    async def _all_sent(self) -> None:
        """There are no records."""

    def answer(self, *answers: Any) -> None:
        self.brokers.answers += answers

    async def initialize(self) -> None:
        self.answer(InitProducerIdResponse(producer_id=7, producer_epoch=1))
        await self.requests.initialize()
        assert (self.manager.state, self.manager.producer) == (State.READY, (7, 1))

    async def in_transaction(self) -> None:
        await self.initialize()
        self.manager.begin()

    async def refused(self, work: Awaitable[None], error: type[BaseException], state: State) -> None:
        """The work raises that very error and leaves the producer in that state; nothing was asked again."""
        with pytest.raises(error) as raised:
            await work
        assert raised.type is error
        assert self.manager.state is state
        assert self.brokers.answers == []


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(bounded())


@pytest.mark.parametrize("transactional_id", [ID, None])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ClusterAuthorizationFailedError),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionalIdAuthorizationFailedError),
    ],
)
def test_an_authorization_may_be_granted_after_the_first_attempt(
    transactional_id: str | None, code: ErrorCode, error: type[KafkaError]
) -> None:
    async def main() -> None:
        bench = Bench(transactional_id)
        # Without transactions records come before the id.
        waiting = None if transactional_id else bench.accumulator.append("t", 0, 1000, None, b"v")
        bench.answer(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
        await bench.refused(bench.requests.initialize(), error, State.UNINITIALIZED)
        assert waiting is None or isinstance(waiting.exception, error)
        await bench.initialize()

    run(main)


@pytest.mark.parametrize("transactional_id", [ID, None])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, InvalidProducerIdMappingError),
        (ErrorCode.INVALID_REQUEST, KafkaError),
    ],
)
def test_other_refusals_of_a_producer_id_are_final(
    transactional_id: str | None, code: ErrorCode, error: type[KafkaError]
) -> None:
    async def main() -> None:
        bench = Bench(transactional_id)
        bench.answer(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
        await bench.refused(bench.requests.initialize(), error, State.FATAL_ERROR)

    run(main)


@pytest.mark.parametrize("code", LOST + LOADING)
def test_a_coordinator_that_is_lost_is_looked_for_again(code: ErrorCode) -> None:
    async def main() -> None:
        bench = Bench()
        bench.answer(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
        await bench.initialize()
        bench.manager.begin()
        bench.answer(AddOffsetsToTxnResponse(error_code=code), AddOffsetsToTxnResponse())
        bench.answer(offsets_answer(ErrorCode.NONE))
        await bench.requests.send_offsets({PLACE: OffsetAndMetadata(5)}, Group())
        bench.answer(EndTxnResponse(error_code=code), EndTxnResponse())
        await bench.requests.commit()
        assert bench.manager.state is State.READY
        assert bench.brokers.lost == ([(ID, CoordinatorType.TRANSACTION)] * 3 if code in LOST else [])

    run(main)


def offsets_answer(code: ErrorCode, place: TopicPartition = PLACE) -> TxnOffsetCommitResponse:
    topic = TxnOffsetCommitResponse.Topic
    partition = topic.Partition(partition_index=place.partition, error_code=code)
    return TxnOffsetCommitResponse(topics=[topic(name=place.topic, partitions=[partition])])


@pytest.mark.parametrize("code", [*LOST, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_offsets_are_sent_again_without_those_that_were_taken(code: ErrorCode) -> None:
    async def main() -> None:
        bench = Bench()
        bench.brokers.feature = 2
        await bench.in_transaction()
        first, second = PLACE, TopicPartition("t", 1)
        mixed = offsets_answer(code, first)
        mixed.topics += offsets_answer(ErrorCode.NONE, second).topics
        bench.answer(mixed, offsets_answer(ErrorCode.NONE, first))
        offsets = {first: OffsetAndMetadata(5, "note", 2), second: OffsetAndMetadata(6)}
        await bench.requests.send_offsets(offsets, Group())
        commits = bench.brokers.asked[-2:]
        sent = [[p.partition_index for topic in each.topics for p in topic.partitions] for each in commits]
        assert sent == [[0, 1], [0]]
        (again,) = commits[1].topics[0].partitions
        assert (again.committed_offset, again.committed_metadata, again.committed_leader_epoch) == (5, "note", 2)
        commit = commits[1]
        assert (commit.group_id, commit.generation_id, commit.member_id) == ("g", 3, "m")
        lost = code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert bench.brokers.lost == [("g", CoordinatorType.GROUP)] * lost
        assert bench.manager.started

    run(main)


@pytest.mark.parametrize(
    ("code", "error", "state"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, State.ABORTABLE_ERROR),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, State.ABORTABLE_ERROR),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError, State.ABORTABLE_ERROR),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailedError, State.ABORTABLE_ERROR),
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError, State.ABORTABLE_ERROR),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, UnsupportedForMessageFormatError, State.FATAL_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError, State.FATAL_ERROR),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError, State.FATAL_ERROR),
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            TransactionalIdAuthorizationFailedError,
            State.FATAL_ERROR,
        ),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, KafkaError, State.FATAL_ERROR),
    ],
)
def test_refused_offsets_say_what_comes_of_the_transaction(
    code: ErrorCode, error: type[KafkaError], state: State
) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.in_transaction()
        bench.answer(AddOffsetsToTxnResponse(), offsets_answer(code))
        await bench.refused(bench.requests.send_offsets({PLACE: OffsetAndMetadata(5)}, Group()), error, state)

    run(main)


def partitions_answer(*codes: ErrorCode) -> AddPartitionsToTxnResponse:
    """With a code for each partition of topic t."""
    kind = AddPartitionsToTxnTopicResult
    results = [kind.PartitionResult(partition_index=i, partition_error_code=code) for i, code in enumerate(codes)]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[kind(name="t", results_by_partition=results)])


async def adds(bench: Bench, *codes: ErrorCode) -> None:
    """Two partitions join the transaction; the coordinator answers with these codes, and then that all is well."""
    for number in (0, 1):
        bench.manager.add_partition(bench.accumulator.queue("t", number))
    bench.answer(partitions_answer(*codes), partitions_answer(ErrorCode.NONE, ErrorCode.NONE))
    await bench.requests._add_partitions()


@pytest.mark.parametrize("code", [*LOST, *LOADING, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_partitions_are_added_again_until_all_are_taken(code: ErrorCode) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.in_transaction()
        await adds(bench, ErrorCode.NONE, code)
        assert bench.brokers.answers == []
        assert [(each.in_transaction, each.joining) for each in bench.manager.partitions] == [(True, False)] * 2
        assert bench.manager.started
        assert bench.brokers.lost == ([(ID, CoordinatorType.TRANSACTION)] if code in LOST else [])

    run(main)


@pytest.mark.parametrize(
    ("code", "error", "state"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailedError, State.ABORTABLE_ERROR),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, KafkaError, State.ABORTABLE_ERROR),
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError, State.ABORTABLE_ERROR),
        (ErrorCode.UNKNOWN_PRODUCER_ID, UnknownProducerIdError, State.ABORTABLE_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError, State.FATAL_ERROR),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError, State.FATAL_ERROR),
        (ErrorCode.INVALID_TXN_STATE, InvalidTxnStateError, State.FATAL_ERROR),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, InvalidProducerIdMappingError, State.FATAL_ERROR),
    ],
)
def test_refused_partitions_say_what_comes_of_the_transaction(
    code: ErrorCode, error: type[KafkaError], state: State
) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.in_transaction()
        with pytest.raises(error) as raised:
            await adds(bench, ErrorCode.NONE, code)
        assert raised.type is error
        assert bench.manager.state is state
        assert len(bench.brokers.answers) == 1
        assert not bench.manager.partitions

    run(main)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    ("code", "error", "state"),
    [
        (ErrorCode.INVALID_TXN_STATE, InvalidTxnStateError, State.FATAL_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError, State.FATAL_ERROR),
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError, State.ABORTABLE_ERROR),
    ],
)
def test_an_end_that_is_refused(committed: bool, code: ErrorCode, error: type[KafkaError], state: State) -> None:
    """An abort that needs another abort would never end."""

    async def main() -> None:
        bench = Bench()
        await bench.in_transaction()
        await adds(bench, ErrorCode.NONE, ErrorCode.NONE)
        bench.brokers.answers = [EndTxnResponse(error_code=code)]
        if not committed and code is ErrorCode.TRANSACTION_ABORTABLE:
            await bench.refused(bench.requests.abort(), KafkaError, State.FATAL_ERROR)
        else:
            await bench.refused(bench.requests.commit() if committed else bench.requests.abort(), error, state)
        assert bench.brokers.asked[-1].committed is committed

    run(main)
