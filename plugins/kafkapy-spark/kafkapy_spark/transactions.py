"""Transactions as the exactly-once sink needs them: begun by one client, ended by another, found when they are orphans.

A transaction is ended by EndTxn with the producer id and epoch that it was begun with, from whatever connection. That
is exact: the coordinator refuses it when the id has been used for anything else since. Which version of EndTxn belongs
to a transaction depends on how it was begun (KIP-890):

    transaction version 0, 1    EndTxn 0 to 4: the epoch stays. Asked again, the same outcome is confirmed.
    transaction version 2       EndTxn 5: the epoch grows. Asked again with the old epoch, the same outcome is
                                confirmed.

Source: kafka.coordinator.transaction.TransactionCoordinator (3.9, 4.1), endTransaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kafkapy.clients.admin.core import AdminCore
from kafkapy.clients.admin.routing import Deadline
from kafkapy.clients.admin.transactions import TransactionDescription, TransactionState
from kafkapy.clients.backoff import Backoff
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.config.admin import ADMIN
from kafkapy.config.clients import ClientConfig
from kafkapy.connector import RecordBatchBuilder
from kafkapy.errors import (
    ConfigError,
    ErrorCode,
    KafkaError,
    code_of,
    error_for,
)
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.end_txn import EndTxnRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.schema import Request
from kafkapy.types import CoordinatorType, TopicPartition

__all__ = ["OpenTransaction", "TransactionClient", "is_forgotten", "is_over"]

T = TypeVar("T")

logger = logging.getLogger("kafkapy.spark")

LAST_WITHOUT_EPOCH_BUMP: Final = 4
"""The last version of EndTxn that keeps the epoch."""
LAST_WITHOUT_VERIFICATION: Final = 3
"""The last version of AddPartitionsToTxn that is the producer's."""
LAST_THAT_ADDS_NOTHING: Final = 11
"""The last version of Produce that does not add partitions to a transaction by itself."""
LAST_WITHOUT_IDS: Final = 12
"""The last version of Produce that names its topics."""
FIRST_WITH_PATTERN: Final = 2
FIRST_WITH_EXPECTED: Final = 3
"""The first version of InitProducerId that takes who the producer should be (KIP-360)."""

RETRY_MS: Final = 5
RETRY_MAX_MS: Final = 500
API_TIMEOUT_MS: Final = 120_000
"""Unless the user has set default.api.timeout.ms."""

_FORGOTTEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})
"""What is said of a transactional id that has expired, or has begun anew since it did: nobody knows the outcome of the
transactions before."""
_OVER: Final = _FORGOTTEN | frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""What is said of a transaction, or a producer, that is not there any more as it is asked about."""


class OpenTransaction(NamedTuple):
    """A transaction that somebody else than its producer may end."""

    transactional_id: str
    state: PreparedTxnState


def is_over(error: KafkaError) -> bool:
    """Whether an error says that a transaction or producer is not there any more as it was asked about."""
    return code_of(error) in _OVER


def is_forgotten(error: KafkaError) -> bool:
    """Whether an error says that the coordinator does not know the transaction, so that it may have been committed."""
    return code_of(error) in _FORGOTTEN


class TransactionClient(AdminCore):
    """An admin client that begins and ends transactions. Used on its loop's thread.

    What is retriable is tried again until default.api.timeout.ms is over.
    """

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        """`kafka`: a producer's configuration, of which an admin client has some keys. ConfigError."""
        taken: dict[str, object] = {"default.api.timeout.ms": API_TIMEOUT_MS}
        for name, value in kafka.items():
            with contextlib.suppress(ConfigError):
                ADMIN.key_of(name)
                taken[name] = value
        super().__init__(ClientConfig(ADMIN, taken))

    # --- asking -----------------------------------------------------------------------------------------------------

    async def settled(self, attempt: Callable[[Deadline], Awaitable[T]]) -> T:
        """What `attempt` gives once it raises nothing retriable. KafkaError."""
        deadline = self.deadline()
        backoff = Backoff(RETRY_MS, RETRY_MAX_MS)
        attempts = 0
        while True:
            try:
                return await attempt(deadline)
            except KafkaError as error:
                delay_s = backoff.delay_s(attempts)
                if not error.retriable or deadline.left_ms <= delay_s * 1000:
                    raise
            await asyncio.sleep(delay_s)
            attempts += 1

    async def _ask_coordinator(
        self, transactional_id: str, request: Request, low: int = 0, high: int | None = None
    ) -> tuple[Any, int]:
        """(the coordinator's response without an error, its node id). KafkaError."""

        async def attempt(deadline: Deadline) -> tuple[Any, int]:
            kind = CoordinatorType.TRANSACTION
            node = await self.lookup.find(transactional_id, kind, deadline.left_ms)
            try:
                response = await self.send(node, request, deadline, low=low, high=high)
                if response.error_code:
                    raise error_for(response.error_code)
            except KafkaError as error:
                if code_of(error) is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.lookup.invalidate(transactional_id, kind)
                raise
            return response, node

        return await self.settled(attempt)

    # --- transactions -----------------------------------------------------------------------------------------------

    async def initialize(
        self, transactional_id: str, timeout_ms: int, expected: PreparedTxnState | None = None
    ) -> PreparedTxnState:
        """Who is the producer of the id from now on; it fences those before it and aborts what they have open.

        With `expected` only if that one was the last; else ProducerFencedError (but a transaction that is open is
        aborted whoever's it is). InvalidTransactionTimeoutError, TransactionalIdAuthorizationFailedError.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if expected is None else expected.producer_id,
            producer_epoch=-1 if expected is None else expected.producer_epoch,
        )
        low = 0 if expected is None else FIRST_WITH_EXPECTED
        response, node = await self._ask_coordinator(transactional_id, request, low=low, high=5)
        version = 2 if self.network.finalized_feature(node, "transaction.version") >= 2 else 0
        return PreparedTxnState(response.producer_id, response.producer_epoch, version)

    async def end(self, transaction: OpenTransaction, *, committed: bool) -> PreparedTxnState | None:
        """Who the producer of the transaction is after it has been ended; None when it is not there any more, or was
        ended the other way. Asked again after it was ended like that, it says so again. KafkaError."""
        try:
            return await self._end(transaction, committed=committed)
        except KafkaError as error:
            if not is_over(error):
                raise
            logger.debug("%s cannot be ended any more: %s", transaction, error)
            return None

    async def _end(self, transaction: OpenTransaction, *, committed: bool) -> PreparedTxnState:
        state = transaction.state
        request = EndTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            committed=committed,
        )
        bumps = state.transaction_version >= 2
        low, high = (LAST_WITHOUT_EPOCH_BUMP + 1, None) if bumps else (0, LAST_WITHOUT_EPOCH_BUMP)
        response, _ = await self._ask_coordinator(transaction.transactional_id, request, low, high)
        if not bumps or response.producer_id < 0:
            return state
        return PreparedTxnState(response.producer_id, response.producer_epoch, state.transaction_version)

    async def end_all(
        self, transactions: Iterable[OpenTransaction], *, committed: bool
    ) -> dict[OpenTransaction, KafkaError]:
        """Ends all of them at once. The errors of those that are not there any more, or were ended the other way.
        KafkaError for any other."""
        wanted = list(transactions)
        outcomes = await asyncio.gather(
            *(self._end(each, committed=committed) for each in wanted), return_exceptions=True
        )
        refused = {}
        for each, outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, KafkaError) and is_over(outcome):
                refused[each] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        return refused

    async def described(self, transactional_id: str) -> TransactionDescription | None:
        """How the coordinator describes an id; None when it is not known. KafkaError."""
        found = (await self._describe({transactional_id}))[transactional_id]
        if isinstance(found, TransactionDescription):
            return found
        if code_of(found) is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise found
        return None

    async def open_descriptions(
        self, transactions: Iterable[OpenTransaction]
    ) -> dict[OpenTransaction, TransactionDescription]:
        """Descriptions of those transactions that their ids have open now. KafkaError."""
        wanted = list(transactions)
        described = await self._describe({each.transactional_id for each in wanted})
        found = {each: described[each.transactional_id] for each in wanted}
        for error in found.values():
            if isinstance(error, KafkaError) and code_of(error) is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise error
        return {
            each: description
            for each, description in found.items()
            if isinstance(description, TransactionDescription) and _is_open(each, description)
        }

    async def current(self, transactional_id: str) -> tuple[int, int] | None:
        """Producer id and epoch that the id has now; None when it is not known. KafkaError."""
        found = await self.described(transactional_id)
        return None if found is None else (found.producer_id, found.producer_epoch)

    async def find_open(self, pattern: re.Pattern[str], timeout_ms: int | None = None) -> list[OpenTransaction]:
        """The transactions that are open and whose whole id matches. `pattern` is one that RE2 has too. KafkaError."""
        ongoing = TransactionState.ONGOING
        found = await self.find(pattern, [ongoing], timeout_ms)
        return [each for each, description in found.items() if description.state is ongoing]

    async def find(
        self, pattern: re.Pattern[str], states: Iterable[TransactionState] = (), timeout_ms: int | None = None
    ) -> dict[OpenTransaction, TransactionDescription]:
        """The last producers of the ids that match as a whole, sorted, and what is known of them. states: those that
        are listed, none for all; an id may have left them since. KafkaError."""
        deadline = self.deadline(timeout_ms)
        filters = [each.value for each in states]

        def build(version: int) -> ListTransactionsRequest:
            return ListTransactionsRequest(
                state_filters=filters,
                producer_id_filters=[],
                transactional_id_pattern=pattern.pattern if version >= FIRST_WITH_PATTERN else None,
            )

        async def ask(node: int) -> list[str]:
            response = await self.send_built(node, ListTransactionsRequest, build, deadline)
            if response.error_code:
                raise error_for(response.error_code)
            return [each.transactional_id for each in response.transaction_states]

        nodes = sorted(await self.brokers())
        listed = await asyncio.gather(*(self.one(self.at_node(node), ask, deadline) for node in nodes))
        ids = {each for found in listed for each in found if pattern.fullmatch(each)}
        described = await self._describe(ids) if ids else {}
        return {
            OpenTransaction(
                name, PreparedTxnState(found.producer_id, found.producer_epoch, self._version_of(found))
            ): found
            for name, found in sorted(described.items())
            if isinstance(found, TransactionDescription)
        }

    def _version_of(self, found: TransactionDescription) -> int:
        """The version to end a transaction by whose beginning was not seen: the cluster's."""
        return 2 if self.network.finalized_feature(found.coordinator_id, "transaction.version") >= 2 else 0

    # --- records ----------------------------------------------------------------------------------------------------

    async def add_partition(self, transaction: OpenTransaction, partition: TopicPartition) -> None:
        """Makes a partition part of a transaction of version 0 or 1. KafkaError."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transaction.transactional_id,
            v3_and_below_producer_id=transaction.state.producer_id,
            v3_and_below_producer_epoch=transaction.state.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])],
        )

        async def attempt(deadline: Deadline) -> None:
            kind = CoordinatorType.TRANSACTION
            node = await self.lookup.find(transaction.transactional_id, kind, deadline.left_ms)
            response = await self.send(node, request, deadline, high=LAST_WITHOUT_VERIFICATION)
            for topic in response.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    if result.partition_error_code:
                        if result.partition_error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                            self.lookup.invalidate(transaction.transactional_id, kind)
                        raise error_for(result.partition_error_code)

        await self.settled(attempt)

    async def append(
        self,
        partition: TopicPartition,
        records: Mapping[bytes, bytes | None],
        transaction: OpenTransaction | None = None,
    ) -> int:
        """Appends records, as the first and only ones of a transaction if one is given. The offset of the first, -1
        where the leader does not know it any more. KafkaError."""
        builder = RecordBatchBuilder()
        now_ms = int(time.time() * 1000)
        for key, value in records.items():
            builder.append(now_ms, key, value)
        if transaction is None:
            batch, transactional_id, low, high = builder.build(), None, 0, LAST_WITHOUT_IDS
        else:
            state = transaction.state
            batch = builder.build(
                producer_id=state.producer_id,
                producer_epoch=state.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            transactional_id = transaction.transactional_id
            adds = state.transaction_version >= 2
            low, high = (LAST_WITHOUT_IDS, LAST_WITHOUT_IDS) if adds else (3, LAST_THAT_ADDS_NOTHING)
            if not adds:
                await self.add_partition(transaction, partition)

        async def attempt(deadline: Deadline) -> int:
            node = await self.leader(partition, deadline)
            entry = ProduceRequest.Topic.Partition(index=partition.partition, records=batch)
            request = ProduceRequest(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=self.request_ms(deadline),
                topic_data=[ProduceRequest.Topic(name=partition.topic, partition_data=[entry])],
            )
            response = await self.send(node, request, deadline, low=low, high=high)
            for topic in response.responses:
                for result in topic.partition_responses:
                    # The answer to the first attempt was lost.
                    if result.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                        raise error_for(result.error_code, result.error_message or "")
                    return int(result.base_offset)
            raise KafkaError(f"the answer to a request to write to {partition} has no result for it")

        return await self.settled(attempt)

    async def leader(self, partition: TopicPartition, deadline: Deadline) -> int:
        """The broker that leads a partition, asked just now. KafkaError."""
        found = (await self.at_leaders(deadline)([partition], True))[partition]
        if isinstance(found, KafkaError):
            raise found
        return found


def _is_open(transaction: OpenTransaction, found: TransactionDescription) -> bool:
    state = transaction.state
    same = (found.producer_id, found.producer_epoch) == (state.producer_id, state.producer_epoch)
    return same and found.state is TransactionState.ONGOING
