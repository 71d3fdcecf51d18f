"""The transaction coordinators of a cluster, for the brokers that producers write to.

A broker asks the coordinator of a transactional id whether partitions are in its transaction, or has it add them, by
AddPartitionsToTxn from version 4 on (KIP-890). Source: org.apache.kafka.server.transaction.AddPartitionsToTxnManager.
Unlike there, requests for an id that is asked about already wait for the next request.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from kafkapy.clients.network_client import RequestOf
from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.peers import Peers, RequestQueues
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.coordinator.transaction.verification import Coordinates
from kafkapy.errors import AuthenticationError, ErrorCode, UnsupportedVersionError, error_for
from kafkapy.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.server.AddPartitionsToTxnManager")

FIRST_BETWEEN_BROKERS: Final = 4
PARTITIONS_PER_REQUEST: Final = 10_000
"""Partitions of one request, after which the next transaction waits for another."""

Answer = dict[TopicPartition, ErrorCode]
Transaction = AddPartitionsToTxnRequest.Transaction


class _Asked(NamedTuple):
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Collection[TopicPartition]
    verify_only: bool
    later: Later[Answer]


class ClusterCoordinates:
    """The transaction coordinators of the cluster. A Coordinates.

    Owned by Coordinators; used on the clock's thread. `local` is this broker's coordinator. `coordinator_of` returns
    the broker of a transactional id: -1 when it has none now, None when no broker coordinates any.
    """

    def __init__(
        self,
        broker_id: int,
        local: Coordinates,
        peers: Peers,
        clock: Clock,
        coordinator_of: Callable[[str], int | None],
        *,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._coordinator_of = coordinator_of
        self._timeout_ms = timeout_ms
        self._queues: RequestQueues[int, _Asked] = RequestQueues(clock, _take, self._send, _answered)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> Later[None]:
        """Add partitions to a transaction; see TransactionCoordinator.

        COORDINATOR_NOT_AVAILABLE and NETWORK_EXCEPTION when the coordinator cannot be asked.
        """
        leader = self._coordinator_of(transactional_id)
        if leader is None or leader == self._broker_id:
            return self._local.add_partitions(transactional_id, producer, partitions, client_version)
        return self._ask(leader, transactional_id, producer, partitions, verify_only=False).map(_all_added)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Later[Answer]:
        """Verify partitions; see TransactionCoordinator.

        A coordinator that cannot be asked for that, of an earlier Kafka, confirms everything. COORDINATOR_NOT_AVAILABLE
        and NETWORK_EXCEPTION when the coordinator cannot be asked.
        """
        leader = self._coordinator_of(transactional_id)
        if leader is None or leader == self._broker_id:
            return self._local.verify_partitions(transactional_id, producer, partitions)
        return self._ask(leader, transactional_id, producer, partitions, verify_only=True)

    def leaders_changed(self) -> None:
        """Fail queued questions to brokers that do not coordinate their ids any more.

        Clients ask again.
        """
        moved = self._queues.remove(lambda broker_id, item: self._coordinator_of(item.transactional_id) != broker_id)
        for each in moved:
            each.later.fail(error_for(ErrorCode.NOT_COORDINATOR))

    def close(self) -> None:
        """Send nothing more."""
        self._queues.close()

    def _ask(
        self,
        leader: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Later[Answer]:
        if leader < 0:
            return Later.failure(error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        later: Later[Answer] = Later()
        asked = list(dict.fromkeys(partitions))
        self._queues.add(leader, _Asked(transactional_id, producer, asked, verify_only, later))
        return later

    def _send(self, broker_id: int, items: Sequence[_Asked]) -> Later[Any]:
        def build(version: int) -> AddPartitionsToTxnRequest:
            if version < FIRST_BETWEEN_BROKERS:
                raise UnsupportedVersionError(f"AddPartitionsToTxn {version} is for clients")
            return AddPartitionsToTxnRequest(transactions=[_transaction(item) for item in items])

        return self._peers.send(broker_id, RequestOf(AddPartitionsToTxnRequest, build), self._timeout_ms())


def _answered(items: Sequence[_Asked], done: Later[AddPartitionsToTxnResponse]) -> None:
    error = done.error
    if isinstance(error, UnsupportedVersionError):
        logger.warning(
            "A transaction coordinator cannot verify partitions; the broker takes them unverified: %s", error
        )
        for each in items:
            if each.verify_only:
                each.later.set(dict.fromkeys(each.partitions, ErrorCode.NONE))
            else:
                each.later.fail(error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    if error is not None:
        level = logging.ERROR if isinstance(error, AuthenticationError) else logging.INFO
        logger.log(level, "Transactions cannot be verified: %s", error)
        for each in items:
            each.later.fail(error_for(ErrorCode.NETWORK_EXCEPTION, str(error)))
        return
    response = done.result()
    if response.error_code:
        code = ErrorCode.of(response.error_code)
        logger.error("Transactions cannot be verified: the coordinator answered %s", code.name)
        # Not the producer's fault, and not an error that it may get.
        shown = ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
        for each in items:
            each.later.fail(error_for(shown))
        return
    answers: dict[str, Answer] = {
        result.transactional_id: {
            TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
    for item in items:
        answer = answers.get(item.transactional_id, {})
        item.later.set({each: answer.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in item.partitions})


def _all_added(done: Later[Answer]) -> None:
    for code in done.result().values():
        if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED):
            raise error_for(code)
    if any(done.result().values()):
        raise error_for(ErrorCode.OPERATION_NOT_ATTEMPTED)


def _take(queue: deque[_Asked]) -> list[_Asked]:
    """The items of the next request: one of a transactional id, as answers have only that."""
    taken: list[_Asked] = []
    kept: list[_Asked] = []
    ids: set[str] = set()
    partitions = 0
    while queue and (not taken or partitions + len(queue[0].partitions) <= PARTITIONS_PER_REQUEST):
        item = queue.popleft()
        if item.transactional_id in ids:
            kept.append(item)
            continue
        ids.add(item.transactional_id)
        partitions += len(item.partitions)
        taken.append(item)
    queue.extendleft(reversed(kept))
    return taken


def _transaction(item: _Asked) -> Transaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in item.partitions:
        topics.setdefault(topic, []).append(partition)
    return Transaction(
        transactional_id=item.transactional_id,
        producer_id=item.producer.producer_id,
        producer_epoch=item.producer.producer_epoch,
        verify_only=item.verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
    )
