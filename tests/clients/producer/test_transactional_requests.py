"""What a producer makes of each answer of a coordinator: another try, an error that an abort ends, or a fatal one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple

import pytest
from waiting import run

from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.backoff import Backoff
from kafkapy.clients.producer.transaction_manager import State, TransactionManager
from kafkapy.clients.producer.transactional_requests import TransactionalRequests
from kafkapy.errors import (
    AuthenticationError,
    ClusterAuthorizationFailedError,
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaConnectionError,
    KafkaError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownProducerIdError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkapy.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kafkapy.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafkapy.types import CoordinatorType, OffsetAndMetadata, TopicPartition

ID = "id"
PLACE = TopicPartition("t", 0)
COORDINATOR, GROUP_COORDINATOR = 1, 2
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
        self.ways: list[tuple[int | None, int | None, int | None]] = []
        """The node, the least and the most version of each request."""
        self.feature = 0
        self.bumps = True
        """The coordinator knows the versions of InitProducerId that raise an epoch."""
        self.refusals: list[Exception] = []
        """What a search for a coordinator raises."""

    async def send_any(self, request: Any, *, max_version: int | None = None) -> Any:
        return await self._answer(None, request, None, max_version)

    async def send(self, node: int, request: Any, *, max_version: int | None, min_version: int | None) -> Any:
        return await self._answer(node, request, min_version, max_version)

    async def _answer(self, node: int | None, request: Any, least: int | None, most: int | None) -> Any:
        self.asked.append(request)
        self.ways.append((node, least, most))
        if not self.answers:
            await asyncio.Event().wait()  # it never answers
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def version(self, node: int, api_key: int, low: int, high: int) -> int:
        assert (node, api_key, low, high) == (COORDINATOR, InitProducerIdRequest.API_KEY, 3, 5)
        if not self.bumps:
            raise UnsupportedVersionError("an old coordinator")
        return high

    def finalized_feature(self, node: int, name: str) -> int:
        assert (node, name) == (COORDINATOR, "transaction.version")
        return self.feature

    async def find(self, key: str, kind: CoordinatorType) -> int:
        if self.refusals:
            raise self.refusals.pop(0)
        return {(ID, CoordinatorType.TRANSACTION): COORDINATOR, ("g", CoordinatorType.GROUP): GROUP_COORDINATOR}[
            key, kind
        ]

    def invalidate(self, key: str, kind: CoordinatorType) -> None:
        self.lost.append((key, kind))


class Bench:
    """The requests of a producer to brokers that are not there."""

    def __init__(self, transactional_id: str | None = ID, *, two_phase: bool = False) -> None:
        self.brokers = Brokers()
        self.accumulator = RecordAccumulator(1 << 20, 200, 0, 1 << 20, [1])
        self.accumulator.topic("t").update([(1, 0)] * 2)
        self.manager = TransactionManager(self.accumulator, transactional_id)
        self.requests = TransactionalRequests(
            self.brokers,
            self.brokers,
            self.manager,
            transaction_timeout_ms=1000,
            two_phase=two_phase,
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


@pytest.mark.parametrize("feature", [0, 2])
def test_each_request_names_the_producer_and_goes_to_its_coordinator(feature: int) -> None:
    async def main() -> None:
        bench = Bench()
        brokers = bench.brokers
        brokers.feature = feature
        await bench.in_transaction()
        if feature == 0:
            await adds(bench, ErrorCode.NONE, ErrorCode.NONE)
            brokers.answers = [AddOffsetsToTxnResponse()]
        bench.answer(offsets_answer(ErrorCode.NONE), EndTxnResponse(producer_id=7, producer_epoch=1 + feature // 2))
        await bench.requests.send_offsets({PLACE: OffsetAndMetadata(5)}, Group(group_instance_id="i"))
        await bench.requests.commit()
        old = [
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=7,
                v3_and_below_producer_epoch=1,
                v3_and_below_topics=brokers.asked[1].v3_and_below_topics if feature == 0 else [],
            ),
            AddOffsetsToTxnRequest(transactional_id=ID, producer_id=7, producer_epoch=1, group_id="g"),
        ]
        topic = TxnOffsetCommitRequest.Topic
        place = topic.Partition(partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata="")
        assert brokers.asked == [
            InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1),
            *(old if feature == 0 else []),
            TxnOffsetCommitRequest(
                transactional_id=ID,
                group_id="g",
                producer_id=7,
                producer_epoch=1,
                generation_id=3,
                member_id="m",
                group_instance_id="i",
                topics=[topic(name="t", partitions=[place])],
            ),
            EndTxnRequest(transactional_id=ID, producer_id=7, producer_epoch=1, committed=True),
        ]
        if feature == 0:
            (added,) = brokers.asked[1].v3_and_below_topics
            assert (added.name, sorted(added.partitions)) == ("t", [0, 1])
            assert brokers.ways == [(1, None, 5), (1, None, 3), (1, None, None), (2, None, 4), (1, None, 4)]
        else:
            assert brokers.ways == [(1, None, 5), (2, None, 5), (1, None, 5)]
        assert bench.manager.producer == (7, 1 + feature // 2)

    run(main)


@pytest.mark.parametrize("two_phase", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_two_phases_need_a_broker_that_knows_them(two_phase: bool, keep: bool) -> None:
    async def main() -> None:
        bench = Bench(two_phase=two_phase)
        bench.answer(
            InitProducerIdResponse(
                producer_id=7, producer_epoch=1, ongoing_txn_producer_id=8, ongoing_txn_producer_epoch=4
            )
        )
        await bench.requests.initialize(keep_prepared=keep)
        (request,) = bench.brokers.asked
        assert (request.enable2_pc, request.keep_prepared_txn) == (two_phase, keep)
        assert bench.brokers.ways == [(1, 6, 6) if two_phase or keep else (1, None, 5)]
        assert bench.manager.ongoing_producer == ((8, 4) if keep else None)
        assert bench.manager.prepared is keep

    run(main)


def test_an_idempotent_producer_asks_any_broker_for_its_id() -> None:
    async def main() -> None:
        bench = Bench(None, two_phase=True)
        bench.answer(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        await bench.initialize()
        sent = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=2**31 - 1, producer_id=-1, producer_epoch=-1
        )
        assert bench.brokers.asked == [sent, sent]
        assert bench.brokers.ways == [(None, None, 5)] * 2
        assert bench.brokers.lost == []

    run(main)


@pytest.mark.parametrize("transactional_id", [ID, None])
@pytest.mark.parametrize("error", [AuthenticationError("no"), UnsupportedVersionError("old")])
def test_a_broker_that_cannot_be_asked_is_final(transactional_id: str | None, error: KafkaError) -> None:
    async def main() -> None:
        bench = Bench(transactional_id)
        bench.answer(error)
        await bench.refused(bench.requests.initialize(), type(error), State.FATAL_ERROR)
        assert bench.brokers.lost == []

    run(main)


@pytest.mark.parametrize("transactional_id", [ID, None])
def test_a_connection_that_breaks_has_the_coordinator_looked_for_again(transactional_id: str | None) -> None:
    async def main() -> None:
        bench = Bench(transactional_id)
        bench.answer(KafkaConnectionError("cut"))
        if transactional_id:
            bench.brokers.refusals = [error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        await bench.initialize()
        assert bench.brokers.lost == ([(ID, CoordinatorType.TRANSACTION)] * 2 if transactional_id else [])
        assert len(bench.brokers.asked) == 2

    run(main)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, State.ABORTABLE_ERROR),
        (ErrorCode.TRANSACTION_ABORTABLE, State.ABORTABLE_ERROR),
        (ErrorCode.INVALID_GROUP_ID, State.FATAL_ERROR),
    ],
)
def test_a_coordinator_that_may_not_be_looked_for(code: ErrorCode, state: State) -> None:
    async def main() -> None:
        bench = Bench()
        bench.brokers.feature = 2
        await bench.in_transaction()
        error = error_for(code)
        bench.brokers.refusals = [error]
        await bench.refused(bench.requests.send_offsets({PLACE: OffsetAndMetadata(5)}, Group()), type(error), state)
        assert len(bench.brokers.asked) == 1

    run(main)


@pytest.mark.parametrize("bumps", [True, False])
def test_an_epoch_is_raised_only_by_a_coordinator_that_can(bumps: bool) -> None:
    async def main() -> None:
        bench = Bench()
        bench.brokers.bumps = bumps
        await bench.initialize()
        assert bench.manager.coordinator_bumps is bumps

    run(main)


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        (
            (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED),
            "not authorized for t",
        ),
        (
            (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NONE),
            "the transaction could not add partitions: {'t-0': 'OPERATION_NOT_ATTEMPTED'}",
        ),
    ],
)
def test_refused_partitions_are_named_and_no_longer_wait(codes: tuple[ErrorCode, ...], said: str) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.in_transaction()
        with pytest.raises(KafkaError) as raised:
            await adds(bench, *codes)
        assert str(raised.value).endswith(said)
        assert not bench.manager.new_partitions
        assert not any(bench.accumulator.queue("t", number).joining for number in (0, 1))

    run(main)


@pytest.mark.parametrize("transactional_id", [ID, None])
def test_one_request_at_a_time_runs_in_the_background(transactional_id: str | None) -> None:
    """The producer id without transactions, new partitions with them; cancel ends either."""

    async def main() -> None:
        bench = Bench(transactional_id)
        if transactional_id:
            await bench.in_transaction()
            bench.requests.advance()  # no partition is new
            bench.manager.add_partition(bench.accumulator.queue("t", 0))
        before = asyncio.all_tasks()
        bench.requests.advance()
        bench.requests.advance()
        (task,) = asyncio.all_tasks() - before
        await asyncio.sleep(0)  # it begins
        bench.requests.advance()
        assert asyncio.all_tasks() - before == {task}
        bench.requests.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        if not transactional_id:
            bench.manager.uninitialized()
        # An error is not the task's: the state has it.
        bench.brokers.answers = [AuthenticationError("no")]
        bench.requests.advance()
        (task,) = asyncio.all_tasks() - before
        await task
        assert bench.manager.state is State.FATAL_ERROR
        bench.requests.advance()
        await asyncio.wait(asyncio.all_tasks() - before) if transactional_id else None
        assert asyncio.all_tasks() == before

    run(main)
