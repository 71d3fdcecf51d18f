"""Transactions: list, describe, fence, and find and abort hanging ones (KIP-664).

Served by: ListTransactions (every broker), DescribeTransactions, InitProducerId (the id's coordinator),
DescribeProducers, WriteTxnMarkers (leaders). Source: org.apache.kafka.tools.TransactionsCommand and the handlers of
org.apache.kafka.clients.admin.internals.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from kafkapy.clients.admin.partitions import PartitionAdmin
from kafkapy.clients.admin.routing import Deadline, raise_first
from kafkapy.clients.admin.shapes import by_topic, checked, error_of, member_of
from kafkapy.errors import ErrorCode, KafkaError, TransactionalIdNotFoundError, UnsupportedVersionError, error_for
from kafkapy.protocol.messages.describe_producers import DescribeProducersRequest
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkapy.protocol.messages.end_txn import EndTxnRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkapy.types import CoordinatorType, TopicPartition

__all__ = [
    "AbortTransactionSpec",
    "HangingTransaction",
    "PartitionProducerState",
    "ProducerState",
    "TransactionAdmin",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]

DEFAULT_MAX_TIMEOUT_MS = 900_000
"""The default of transaction.max.timeout.ms."""
SLACK_MS = 5 * 60_000
"""Milliseconds after the longest timeout in which a coordinator may still end a transaction."""
PARTITIONS_AT_ONCE = 500
NO_PRODUCER = -1
FIRST_THAT_KEEPS = 6
"""The first version of InitProducerId that keeps an open transaction (KIP-939)."""
LAST_WITHOUT_BUMP = 4
"""The last version of EndTxn without another epoch after each transaction (KIP-890)."""
FENCING_TIMEOUT_MS = 60_000
"""The transaction timeout of a fencing producer in ms; it never begins a transaction."""


class TransactionState(StrEnum):
    """The states of transactional ids."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"

    @classmethod
    def _missing_(cls, value: object) -> TransactionState:
        return cls.UNKNOWN


OUTCOMES = {TransactionState.COMPLETE_COMMIT: True, TransactionState.COMPLETE_ABORT: False}
"""Whether the last transaction was committed."""
OPEN_STATES = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TransactionListing(NamedTuple):
    """A transactional id in a coordinator's list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """A transactional id of a coordinator. Times are in ms.

    The start time is -1 without an open transaction.
    """

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """A producer's state at a partition's leader.

    The last two fields are -1 without an open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The active producers of a partition."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """A producer and partition whose transaction is to be aborted."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


class HangingTransaction(NamedTuple):
    """An open transaction in a partition that no coordinator will end."""

    topic_partition: TopicPartition
    producer: ProducerState
    transactional_id: str | None
    duration_ms: int
    """Milliseconds since the producer's last record."""


class TransactionAdmin(PartitionAdmin):
    """The admin client's calls for transactions."""

    async def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """{broker: [TransactionListing]} of the ids that each broker coordinates.

        All filters apply. `duration_filter_ms` (open for longer than that) needs Kafka 3.8, `transactional_id_pattern`
        (RE2) 4.1: UnsupportedVersionError.
        """
        states = [member_of(TransactionState, each).value for each in state_filters or ()]
        request = ListTransactionsRequest(
            state_filters=states,
            producer_id_filters=list(producer_id_filters or ()),
            duration_filter=-1 if duration_filter_ms is None else int(duration_filter_ms),
            transactional_id_pattern=transactional_id_pattern,
        )
        low = 2 if transactional_id_pattern is not None else 1 if duration_filter_ms is not None else 0
        deadline = self.deadline()

        async def ask(node: int) -> list[TransactionListing]:
            response = checked(await self.send(node, request, deadline, low=low))
            return [
                TransactionListing(each.transactional_id, each.producer_id, TransactionState(each.transaction_state))
                for each in response.transaction_states
            ]

        wanted = sorted(await self.brokers()) if broker_ids is None else list(broker_ids)
        found = await asyncio.gather(*(self.one(self.at_node(node), ask, deadline) for node in wanted))
        return dict(zip(wanted, found, strict=True))

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """{transactional id: TransactionDescription}. Raises the first error (TransactionalIdNotFoundError)."""
        return raise_first(await self._describe(transactional_ids))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """{partition: PartitionProducerState} of the leaders, or of one replica.

        Raises the first error.
        """
        deadline = self.deadline()

        async def ask(node: int, served: list[TopicPartition]) -> dict[TopicPartition, Any]:
            request = DescribeProducersRequest(
                topics=[
                    DescribeProducersRequest.Topic(name=name, partition_indexes=numbers)
                    for name, numbers in by_topic(served).items()
                ]
            )
            response = await self.send(node, request, deadline)
            return {
                TopicPartition(topic.name, each.partition_index): error_of(each.error_code, each.error_message)
                or PartitionProducerState([_producer(one) for one in each.active_producers])
                for topic in response.topics
                for each in topic.partitions
            }

        locate = self.at_leaders(deadline) if broker_id is None else self.at_node(broker_id)
        wanted = [TopicPartition(*partition) for partition in partitions]
        return raise_first(await self.drive(wanted, locate, ask, deadline))

    async def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Writes the abort marker of a producer's transaction in one partition.

        InvalidProducerEpochError when the producer has moved on to another epoch; TransactionCoordinatorFencedError
        when its coordinator has.
        """
        deadline = self.deadline()
        partition = TopicPartition(*spec.topic_partition)
        marker_class = WriteTxnMarkersRequest.Marker
        request = WriteTxnMarkersRequest(
            markers=[
                marker_class(
                    producer_id=spec.producer_id,
                    producer_epoch=spec.producer_epoch,
                    transaction_result=False,
                    topics=[marker_class.Topic(name=partition.topic, partition_indexes=[partition.partition])],
                    coordinator_epoch=spec.coordinator_epoch,
                )
            ]
        )

        async def ask(node: int, _: list[TopicPartition]) -> dict[TopicPartition, Any]:
            response = await self.send(node, request, deadline)
            return {
                TopicPartition(topic.name, each.partition_index): error_of(each.error_code) or True
                for marker in response.markers
                for topic in marker.topics
                for each in topic.partitions
            }

        raise_first(await self.drive([partition], self.at_leaders(deadline), ask, deadline))

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Fences producers and aborts their open transactions.

        {transactional id: (producer id, producer epoch)}. Raises the first error.
        """
        deadline = self.deadline()

        async def ask(node: int, ids: list[str]) -> dict[str, Any]:
            async def fence(transactional_id: str) -> Any:
                request = InitProducerIdRequest(
                    transactional_id=transactional_id,
                    transaction_timeout_ms=FENCING_TIMEOUT_MS,
                    producer_id=NO_PRODUCER,
                    producer_epoch=NO_PRODUCER,
                )
                response = await self.send(node, request, deadline)
                return error_of(response.error_code) or (response.producer_id, response.producer_epoch)

            return dict(zip(ids, await asyncio.gather(*map(fence, ids)), strict=True))

        located = self.at_coordinators(CoordinatorType.TRANSACTION, deadline)
        return raise_first(await self.drive(transactional_ids, located, ask, deadline))

    async def complete_transaction(
        self, transactional_id: str, committed: bool = True, prepared: tuple[int, int] | None = None
    ) -> bool | None:
        """Ends the open transaction of an id, such as a prepared one (KIP-939).

        Its producer may be gone; it is fenced where the broker can keep an open transaction for another. With
        `prepared`, a producer id and epoch, the transaction is committed if it is that producer's, and aborted
        otherwise; `committed` is not looked at. Returns whether it was committed; None without an open transaction,
        whose producer is left alone. Raises TransactionalIdNotFoundError.
        """
        deadline = self.deadline()
        sent: list[bool] = []

        async def ask(node: int, ids: list[str]) -> dict[str, Any]:
            return {each: await self._completed(node, each, committed, prepared, deadline, sent) for each in ids}

        located = self.at_coordinators(CoordinatorType.TRANSACTION, deadline)
        (outcome,) = raise_first(await self.drive([transactional_id], located, ask, deadline))[transactional_id]
        return None if outcome is None else bool(outcome)

    async def _completed(
        self,
        node: int,
        transactional_id: str,
        committed: bool,
        prepared: tuple[int, int] | None,
        deadline: Deadline,
        sent: list[bool],
    ) -> tuple[bool | None] | KafkaError:
        """`sent`: the outcomes that were asked for, whose answers may be lost."""
        found = (await self._describe([transactional_id]))[transactional_id]
        if isinstance(found, KafkaError):
            return found
        if found.state not in OPEN_STATES:
            asked = bool(sent) and found.state in OUTCOMES and OUTCOMES[found.state] is sent[-1]
            return (sent[-1] if asked else None,)
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=FENCING_TIMEOUT_MS,
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER,
            keep_prepared_txn=True,
        )
        try:
            kept = await self.send(node, request, deadline, low=FIRST_THAT_KEEPS)
            if error := error_of(kept.error_code):
                raise error
            producer = kept.producer_id, kept.producer_epoch
            ongoing = kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch
        except UnsupportedVersionError:
            # Any client may end it that knows its producer.
            is_open = found.state is TransactionState.ONGOING
            ongoing = producer = (found.producer_id, found.producer_epoch) if is_open else (NO_PRODUCER, NO_PRODUCER)
        except KafkaError as error:
            return error
        if ongoing[0] == NO_PRODUCER:
            return (None,)
        commits = committed if prepared is None else ongoing == tuple(prepared)
        bumps = self.network.finalized_feature(node, "transaction.version") >= 2
        sent.append(commits)
        end = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commits,
        )
        ended = await self.send(node, end, deadline, high=None if bumps else LAST_WITHOUT_BUMP)
        return error_of(ended.error_code) or (commits,)

    async def terminate_transaction(self, transactional_id: str) -> None:
        """Aborts the open transaction of an id and fences its producer."""
        await self.fence_producers([transactional_id])

    async def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS
    ) -> list[dict[str, Any]]:
        """Transactional ids whose transaction exceeds the timeout by five minutes.

        [{transactional_id, producer_id, producer_epoch, state, age_ms, coordinator_id, topic_partitions}]. As in
        kafka-python. `find_hanging_producers` also finds transactions that no coordinator knows.
        """
        listed = await self.list_transactions(broker_ids)
        ids = sorted({each.transactional_id for listings in listed.values() for each in listings})
        now_ms = int(time.time() * 1000)
        return [
            {
                "transactional_id": transactional_id,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "state": found.state.value,
                "age_ms": now_ms - found.transaction_start_time_ms,
                "coordinator_id": found.coordinator_id,
                "topic_partitions": sorted(found.topic_partitions),
            }
            for transactional_id, found in (await self._describe(ids)).items()
            if isinstance(found, TransactionDescription)
            and found.state in OPEN_STATES
            and 0 <= found.transaction_start_time_ms <= now_ms - max_transaction_timeout_ms - SLACK_MS
        ]

    async def find_hanging_producers(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        broker_id: int | None = None,
        max_transaction_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS,
    ) -> list[HangingTransaction]:
        """Open transactions of partitions that no coordinator will end.

        They have been open for `max_transaction_timeout_ms` and five minutes, and either no coordinator knows the
        producer, or its transaction does not contain the partition. `partitions`: all when None; `broker_id`: the
        partitions with a replica there, in that replica's state. Source: kafka-transactions.sh find-hanging.
        """
        wanted = await self._searched(broker_id) if partitions is None else [TopicPartition(*p) for p in partitions]
        oldest_ms = int(time.time() * 1000) - max_transaction_timeout_ms - SLACK_MS
        candidates: list[tuple[TopicPartition, ProducerState]] = []
        for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
            states = await self.describe_producers(wanted[start : start + PARTITIONS_AT_ONCE], broker_id)
            candidates += [
                (partition, producer)
                for partition, state in states.items()
                for producer in state.active_producers
                if producer.current_transaction_start_offset >= 0 and producer.last_timestamp <= oldest_ms
            ]
        return await self._hanging(candidates)

    async def _hanging(self, candidates: Sequence[tuple[TopicPartition, ProducerState]]) -> list[HangingTransaction]:
        if not candidates:
            return []
        producer_ids = sorted({producer.producer_id for _, producer in candidates})
        listed = await self.list_transactions(producer_id_filters=producer_ids)
        names = {each.producer_id: each.transactional_id for listings in listed.values() for each in listings}
        described = await self._describe(sorted(set(names.values())))
        raise_first({name: each for name, each in described.items() if not _is_gone(each)})
        now_ms = int(time.time() * 1000)
        hanging = []
        for partition, producer in candidates:
            name = names.get(producer.producer_id)
            about = described.get(name) if name is not None else None
            if not isinstance(about, TransactionDescription) or partition not in about.topic_partitions:
                hanging.append(HangingTransaction(partition, producer, name, now_ms - producer.last_timestamp))
        return hanging

    async def _searched(self, broker: int | None) -> list[TopicPartition]:
        return [
            TopicPartition(topic["name"], each["partition_index"])
            for topic in await self.describe_topics()
            for each in topic["partitions"]
            if (each["leader_id"] >= 0 if broker is None else broker in each["replica_nodes"])
        ]

    async def _describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        deadline = self.deadline()

        async def ask(node: int, ids: list[str]) -> dict[str, TransactionDescription | KafkaError]:
            response = await self.send(node, DescribeTransactionsRequest(transactional_ids=ids), deadline)
            return {each.transactional_id: _described(each, node) for each in response.transaction_states}

        return await self.drive(
            transactional_ids, self.at_coordinators(CoordinatorType.TRANSACTION, deadline), ask, deadline
        )


def _is_gone(outcome: object) -> bool:
    return isinstance(outcome, TransactionalIdNotFoundError)


def _described(state: Any, node: int) -> TransactionDescription | KafkaError:
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return error_for(state.error_code, f"Transactional id {state.transactional_id} does not exist.")
    if state.error_code:
        return error_for(state.error_code)
    return TransactionDescription(
        coordinator_id=node,
        state=TransactionState(state.transaction_state),
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction_timeout_ms=state.transaction_timeout_ms,
        transaction_start_time_ms=state.transaction_start_time_ms,
        topic_partitions={TopicPartition(topic.topic, each) for topic in state.topics for each in topic.partitions},
    )


def _producer(producer: Any) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_transaction_start_offset=producer.current_txn_start_offset,
    )
