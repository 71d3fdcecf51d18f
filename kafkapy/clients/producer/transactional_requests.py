"""The requests of idempotence and transactions to coordinators, with retries.

One coroutine per request; `transaction_manager` has the state and the effect of errors. All of it runs on the
producer's loop. Source: the request handlers of org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from kafkapy._speedups.clients.producer.partition_queue import PartitionQueue
from kafkapy.clients.backoff import Backoff
from kafkapy.clients.producer.transaction_manager import TransactionManager
from kafkapy.errors import (
    AuthenticationError,
    CommitFailedError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    RetriableError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.end_txn import EndTxnRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkapy.protocol.schema import Request
from kafkapy.types import CoordinatorType, OffsetAndMetadata, TopicPartition

__all__ = ["GroupMetadata", "PreparedTxnState", "TransactionalRequests"]

log = logging.getLogger("kafkapy.producer")

FIRST_CONCURRENT_WAIT_S: Final = 0.02
"""Seconds before the first partitions are added again while the previous transaction completes."""
MOST_INT: Final = 2**31 - 1

_LOST_COORDINATOR: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_FATAL: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
FIRST_WITH_TWO_PHASES: Final = 6
"""The first version of InitProducerId with two-phase commit (KIP-939)."""


class GroupMetadata(Protocol):
    """The part of a consumer's group_metadata() that a transactional commit needs."""

    @property
    def group_id(self) -> str:
        """The group id."""

    @property
    def generation_id(self) -> int:
        """The generation, or the member epoch."""

    @property
    def member_id(self) -> str:
        """The member id."""

    @property
    def group_instance_id(self) -> str | None:
        """The group instance id of a static member, or None."""


class PreparedTxnState(NamedTuple):
    """The state that, with its transactional id, ends a prepared transaction (KIP-939).

    Its text, "producer id:epoch" as Kafka's, fits into a row of a database: `PreparedTxnState.parse(str(state))`.
    """

    producer_id: int
    producer_epoch: int
    transaction_version: int = 0
    """2: the transaction follows KIP-890, and EndTxn 5 or later ends it; else an earlier version does."""

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTxnState:
        """The state of a text. ValueError."""
        producer_id, colon, epoch = text.partition(":")
        if not colon or not producer_id.isdecimal() or not epoch.isdecimal():
            raise ValueError(f"{text!r} is not PRODUCER_ID:EPOCH")
        return cls(int(producer_id), int(epoch))


class TransactionalRequests:
    """The transactional requests of a producer's core.

    `all_sent` waits until all batches have results or the manager has an error.
    """

    def __init__(
        self,
        network: Any,
        coordinators: Any,
        manager: TransactionManager,
        *,
        transaction_timeout_ms: int,
        two_phase: bool = False,
        backoff: Backoff,
        all_sent: Callable[[], Awaitable[None]],
    ) -> None:
        self._network = network
        self._coordinators = coordinators
        self._manager = manager
        self._transaction_timeout_ms = transaction_timeout_ms
        self._two_phase = two_phase
        self._backoff = backoff
        self._all_sent = all_sent
        self._coordinator = -1
        self._adding: asyncio.Task[None] | None = None
        self._initializing: asyncio.Task[None] | None = None

    # --- called by the sender -------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Starts the requests that the state requires.

        Without transactions this is a producer id, with them new partitions.
        """
        manager = self._manager
        if not manager.transactional:
            if not manager.has_producer and not manager.failed and not _runs(self._initializing):
                self._initializing = asyncio.ensure_future(self._quietly(self.initialize()))
        elif manager.new_partitions and not _runs(self._adding):
            self._adding = asyncio.ensure_future(self._quietly(self._add_partitions()))

    async def _quietly(self, coroutine: Awaitable[None]) -> None:
        """Awaits a request and logs its error.

        The error is in the manager's state already, and the next operation raises it.
        """
        try:
            await coroutine
        except KafkaError as error:
            log.debug("A transactional request failed: %s", error)

    def cancel(self) -> None:
        """Cancels the background requests."""
        for task in (self._adding, self._initializing):
            if task is not None:
                task.cancel()

    # --- asking ---------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        request: Callable[[], Request],
        kind: CoordinatorType | None,
        key: str,
        max_version: int | None = None,
        min_version: int | None = None,
    ) -> Any:
        """The response of the coordinator, or of any broker (kind None).

        It retries until one responds.
        """
        attempts = 0
        while True:
            try:
                if kind is None:
                    return await self._network.send_any(request(), max_version=max_version)
                node = await self._coordinators.find(key, kind)
                if kind is CoordinatorType.TRANSACTION and node != self._coordinator:
                    await self._learn(node)
                return await self._network.send(node, request(), max_version=max_version, min_version=min_version)
            except (AuthenticationError, UnsupportedVersionError) as error:
                self._manager.fatal(error)
                raise
            except RetriableError as error:
                log.debug("Retrying %s: %s", request().NAME, error)
                if kind is not None:
                    self._coordinators.invalidate(key, kind)
            except KafkaError as error:
                self._coordinator_refused(error)
                raise
            await asyncio.sleep(self._backoff.delay_s(attempts))
            attempts += 1

    def _coordinator_refused(self, error: KafkaError) -> None:
        """Handles a coordinator lookup that no retry can fix."""
        if error.code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE):
            self._manager.abortable(error)
        else:
            self._manager.fatal(error)

    async def _learn(self, node: int) -> None:
        """Records the abilities of a new coordinator."""
        try:
            await self._network.version(node, InitProducerIdRequest.API_KEY, 3, 5)
            self._manager.coordinator_bumps = True
        except UnsupportedVersionError:
            self._manager.coordinator_bumps = False
        self._coordinator = node

    def _transaction_version(self) -> int:
        """The level of the cluster's feature transaction.version, from the coordinator."""
        level: int = self._network.finalized_feature(self._coordinator, "transaction.version")
        return level

    async def _settle(
        self,
        request: Callable[[], Request],
        max_version: int | None,
        own: Callable[[ErrorCode], KafkaError | None] = lambda code: None,
        *,
        min_version: int | None = None,
    ) -> Any:
        """The transaction coordinator's response without an error.

        It retries retriable errors; others change the manager's state and are raised. `own` returns the error for codes
        with another meaning in this request, and updates the manager.
        """
        manager = self._manager
        transactional_id = manager.transactional_id or ""
        attempts = 0
        while True:
            response = await self._ask(request, CoordinatorType.TRANSACTION, transactional_id, max_version, min_version)
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.NONE:
                return response
            error = own(code)
            if error is not None:
                raise error
            self._raise_unless_retriable(code, request().NAME)
            if code in _LOST_COORDINATOR:
                self._coordinators.invalidate(transactional_id, CoordinatorType.TRANSACTION)
            await asyncio.sleep(self._backoff.delay_s(attempts))
            attempts += 1

    def _raise_unless_retriable(self, code: ErrorCode, what: str) -> None:
        """Handles an error code that all requests to the transaction coordinator share."""
        manager = self._manager
        if code.retriable:
            return
        error = error_for(code)
        if code in _FENCED:
            error = error_for(ErrorCode.PRODUCER_FENCED)
            manager.fatal(error)
        elif code in _FATAL:
            manager.fatal(error)
        elif code is ErrorCode.UNKNOWN_PRODUCER_ID:
            manager.abortable_if_possible(error)
        elif code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            manager.abortable(error)
        else:
            error = KafkaError(f"{what} was refused: {code.name}: {code.message}")
            manager.fatal(error)
        raise error

    # --- producer ids ---------------------------------------------------------------------------------------------

    async def initialize(self, *, bump: bool = False, keep_prepared: bool = False) -> None:
        """Gets a producer id. KafkaError.

        `bump`: another epoch of the current id, after a transaction has ended. `keep_prepared`: an open transaction of
        the transactional id is not aborted, and the producer can only end it. UnsupportedVersionError.
        """
        manager = self._manager
        if not bump:
            manager.initializing()
        producer_id, epoch = manager.producer if bump else (-1, -1)
        two_phase = self._two_phase and manager.transactional

        def request() -> Request:
            return InitProducerIdRequest(
                transactional_id=manager.transactional_id,
                transaction_timeout_ms=self._transaction_timeout_ms if manager.transactional else MOST_INT,
                producer_id=producer_id,
                producer_epoch=epoch,
                enable2_pc=two_phase,
                keep_prepared_txn=keep_prepared,
            )

        if manager.transactional and (two_phase or keep_prepared):
            only = FIRST_WITH_TWO_PHASES
            response = await self._settle(request, only, self._authorization, min_version=only)
        elif manager.transactional:
            response = await self._settle(request, FIRST_WITH_TWO_PHASES - 1, self._authorization)
        else:
            response = await self._settle_anywhere(request)
        if manager.transactional and not bump:
            manager.use_version(self._transaction_version(), initially=True)
        manager.initialized(response.producer_id, response.producer_epoch, bumped=bump)
        if keep_prepared:
            manager.took_over(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)

    def _authorization(self, code: ErrorCode) -> KafkaError | None:
        """The error of a missing authorization: the next attempt starts again (KIP-1050)."""
        if code not in (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return None
        error = error_for(code)
        for batch in self._manager.accumulator.take_all():
            self._manager.accumulator.fail(batch, error)
        self._manager.uninitialized()
        return error

    async def _settle_anywhere(self, request: Callable[[], Request]) -> Any:
        attempts = 0
        while True:
            response = await self._ask(request, None, "", 5)
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.NONE:
                return response
            error = self._authorization(code)
            if error is not None:
                raise error
            self._raise_unless_retriable(code, request().NAME)
            await asyncio.sleep(self._backoff.delay_s(attempts))
            attempts += 1

    # --- partitions (before KIP-890) ------------------------------------------------------------------------------

    async def _add_partitions(self) -> None:
        manager = self._manager
        attempts = 0
        while manager.new_partitions and not manager.failed:
            queues = set(manager.new_partitions)
            by_topic: dict[str, list[int]] = {}
            for queue in queues:
                by_topic.setdefault(queue.topic.name, []).append(queue.partition)
            topics = [AddPartitionsToTxnTopic(name=name, partitions=ids) for name, ids in by_topic.items()]

            def request(topics: list[AddPartitionsToTxnTopic] = topics) -> Request:
                return AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=manager.transactional_id or "",
                    v3_and_below_producer_id=manager.producer[0],
                    v3_and_below_producer_epoch=manager.producer[1],
                    v3_and_below_topics=topics,
                )

            response = await self._ask(request, CoordinatorType.TRANSACTION, manager.transactional_id or "", 3)
            again = self._partitions_answered(queues, response)
            if again is not None:
                first = again is ErrorCode.CONCURRENT_TRANSACTIONS and not manager.partitions
                await asyncio.sleep(FIRST_CONCURRENT_WAIT_S if first else self._backoff.delay_s(attempts))
                attempts += 1

    def _partitions_answered(self, queues: set[PartitionQueue], response: Any) -> ErrorCode | None:
        """The code after which to send again, or None.

        Updates the manager before it raises.
        """
        manager = self._manager
        unauthorized: list[str] = []
        refused: dict[str, str] = {}
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                code = ErrorCode.of(result.partition_error_code)
                if code is ErrorCode.NONE:
                    continue
                if code in _LOST_COORDINATOR:
                    self._coordinators.invalidate(manager.transactional_id or "", CoordinatorType.TRANSACTION)
                    return code
                if code.retriable:
                    return code
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.append(topic.name)
                elif (
                    code in _FENCED
                    or code in _FATAL
                    or code
                    in (
                        ErrorCode.UNKNOWN_PRODUCER_ID,
                        ErrorCode.TRANSACTION_ABORTABLE,
                    )
                ):
                    self._raise_unless_retriable(code, "AddPartitionsToTxn")
                else:
                    refused[f"{topic.name}-{result.partition_index}"] = code.name
        if unauthorized or refused:
            error = (
                error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not authorized for {', '.join(sorted(unauthorized))}")
                if unauthorized
                else KafkaError(f"the transaction could not add partitions: {refused}")
            )
            for queue in queues:
                queue.joining = False
                manager.new_partitions.discard(queue)
            manager.abortable(error)
            raise error
        manager.partitions_added(queues)
        return None

    # --- offsets --------------------------------------------------------------------------------------------------

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Commits a group's offsets within the open transaction. IllegalStateError; KafkaError."""
        manager = self._manager
        manager.require_transactional()
        manager.require_no_pending("send_offsets_to_transaction")
        manager.require_open()
        if not offsets:
            return
        if manager.v2:
            manager.started = True
        else:
            await self._settle(
                lambda: AddOffsetsToTxnRequest(
                    transactional_id=manager.transactional_id or "",
                    producer_id=manager.producer[0],
                    producer_epoch=manager.producer[1],
                    group_id=group.group_id,
                ),
                None,
            )
            manager.started = True
        await self._commit_offsets(dict(offsets), group)

    async def _commit_offsets(self, left: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        manager = self._manager

        def request() -> Request:
            by_topic: dict[str, list[TxnOffsetCommitRequest.Topic.Partition]] = {}
            for partition, offset in left.items():
                by_topic.setdefault(partition.topic, []).append(
                    TxnOffsetCommitRequest.Topic.Partition(
                        partition_index=partition.partition,
                        committed_offset=offset.offset,
                        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                        committed_metadata=offset.metadata or "",
                    )
                )
            return TxnOffsetCommitRequest(
                transactional_id=manager.transactional_id or "",
                group_id=group.group_id,
                producer_id=manager.producer[0],
                producer_epoch=manager.producer[1],
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=[
                    TxnOffsetCommitRequest.Topic(name=name, partitions=partitions)
                    for name, partitions in by_topic.items()
                ],
            )

        attempts = 0
        while True:
            response = await self._ask(request, CoordinatorType.GROUP, group.group_id, 5 if manager.v2 else 4)
            for topic in response.topics:
                for result in topic.partitions:
                    self._offset_answered(
                        left, TopicPartition(topic.name, result.partition_index), ErrorCode.of(result.error_code), group
                    )
            if not left:
                return
            await asyncio.sleep(self._backoff.delay_s(attempts))
            attempts += 1

    def _offset_answered(
        self,
        left: dict[TopicPartition, OffsetAndMetadata],
        partition: TopicPartition,
        code: ErrorCode,
        group: GroupMetadata,
    ) -> None:
        """Removes the partition from `left`, or keeps it there for another attempt.

        Other errors update the manager and are raised.
        """
        manager = self._manager
        if code is ErrorCode.NONE:
            left.pop(partition, None)
        elif code in _LOST_COORDINATOR or code is ErrorCode.REQUEST_TIMED_OUT:
            self._coordinators.invalidate(group.group_id, CoordinatorType.GROUP)
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            error = CommitFailedError(f"group {group.group_id} has another generation: {code.name}: {code.message}")
            manager.abortable(error)
            raise error
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            fenced = error_for(code)
            manager.abortable(fenced)
            raise fenced
        elif code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            unsupported = error_for(code)
            manager.fatal(unsupported)
            raise unsupported
        elif not code.retriable:
            self._raise_unless_retriable(code, "TxnOffsetCommit")

    # --- the end --------------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Sends buffered records and leaves the transaction open.

        Raises the error of a failed record; the transaction must then be aborted.
        """
        self._manager.prepare()
        await self._all_written()

    async def _all_written(self) -> None:
        manager = self._manager
        await self._all_sent()
        if self._adding is not None and _runs(self._adding) and not manager.failed:
            # If no batch waits for these partitions, only their response shows that the coordinator has begun.
            await asyncio.wait({self._adding})
        if manager.failed:
            manager.require_no_error()

    @property
    def prepared_state(self) -> PreparedTxnState:
        """The state of the prepared transaction. IllegalStateError without one."""
        manager = self._manager
        manager.require_no_error()
        if not manager.prepared:
            raise IllegalStateError(f"no transaction is prepared (the producer is {manager.state.name})")
        return PreparedTxnState(*(manager.ongoing_producer or manager.producer), 2 if manager.v2 else 0)

    async def commit(self) -> None:
        """Sends buffered records, then commits.

        Raises the error of a failed record; the transaction must then be aborted.
        """
        self._manager.begin_commit()
        await self._end(True)

    async def abort(self) -> None:
        """Drops unsent records, waits for sent ones, and aborts."""
        self._manager.begin_abort()
        await self._end(False)

    async def _end(self, committed: bool) -> None:
        manager = self._manager
        v2 = manager.v2  # it ends with the protocol of its begin
        manager.use_version(self._transaction_version(), initially=False)
        await self._all_written()
        if not manager.started:
            bump = manager.ended()
        else:
            response = await self._settle(
                lambda: EndTxnRequest(
                    transactional_id=manager.transactional_id or "",
                    producer_id=manager.producer[0],
                    producer_epoch=manager.producer[1],
                    committed=committed,
                ),
                5 if v2 else 4,
                self._abort_failed if not committed else lambda code: None,
            )
            bump = manager.ended(response.producer_id, response.producer_epoch)
        if bump:
            await self.initialize(bump=True)

    def _abort_failed(self, code: ErrorCode) -> KafkaError | None:
        """The error of a failed abort.

        An abort that requires another abort would never end, so the error is fatal.
        """
        if code is not ErrorCode.TRANSACTION_ABORTABLE:
            return None
        error = KafkaError(f"the transaction could not be aborted: {code.message}")
        self._manager.fatal(error)
        return error


def _runs(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done()
