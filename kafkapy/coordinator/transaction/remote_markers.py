"""Markers for the partitions of a cluster, here and on other brokers.

Source: kafka.coordinator.transaction.TransactionMarkerChannelManager. A marker that could not be written is the
caller's to try again: it looks for the partition's leader each time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kafkapy import errors
from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.peers import LeaderOf, Peers, RequestQueues
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.transaction.markers import Marker, MarkerWriter
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.coordinator.transaction.TransactionMarkerChannelManager")

MARKERS_PER_REQUEST: Final = 10_000
"""Most markers in one request; a marker is one partition's."""

Wire = WriteTxnMarkersRequest.Marker


class _Queued(NamedTuple):
    partition: TopicPartition
    marker: Marker
    later: Later[None]


class ClusterMarkerWriter:
    """Writes markers to the leaders of partitions, here and on other brokers. A MarkerWriter.

    Owned by Coordinators; used on the clock's thread. `leader_of` reads the metadata cache. `local` writes into this
    broker's logs.
    """

    def __init__(
        self,
        broker_id: int,
        local: MarkerWriter,
        peers: Peers,
        clock: Clock,
        leader_of: LeaderOf,
        *,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._leader_of = leader_of
        self._timeout_ms = timeout_ms
        self._queues: RequestQueues[int, _Queued] = RequestQueues(clock, _take, self._send, self._answered)

    def write(self, partition: TopicPartition, marker: Marker) -> Later[None]:
        """Write a marker; see MarkerWriter.

        LEADER_NOT_AVAILABLE while the partition has no leader, NETWORK_EXCEPTION and others when its broker does not
        answer: to be tried again. A Later that is done before its turn is not sent any more.
        """
        leader = self._leader_of(partition)
        if leader is None or leader == self._broker_id:
            return self._local.write(partition, marker)
        if leader < 0:
            return Later.failure(error_for(ErrorCode.LEADER_NOT_AVAILABLE))
        later: Later[None] = Later()
        self._queues.add(leader, _Queued(partition, marker, later))
        return later

    def leaders_changed(self) -> None:
        """Fail queued markers to brokers that do not lead their partitions any more."""
        for each in self._queues.remove(lambda broker_id, item: self._leader_of(item.partition) != broker_id):
            each.later.fail(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def close(self) -> None:
        """Send nothing more."""
        self._queues.close()

    def _send(self, broker_id: int, items: Sequence[_Queued]) -> Later[Any]:
        return self._peers.send(broker_id, _request(items), self._timeout_ms())

    def _answered(self, items: Sequence[_Queued], done: Later[WriteTxnMarkersResponse]) -> None:
        if done.error is not None:
            logger.info("Transaction markers cannot be sent: %s", done.error)
            for each in items:
                # Not the error itself: a code that a partition could answer would mean something else.
                each.later.fail(error_for(ErrorCode.NETWORK_EXCEPTION, str(done.error)))
            return
        codes = {
            (marker.producer_id, topic.name, partition.partition_index): partition.error_code
            for marker in done.result().markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        for partition, marker, later in items:
            code = codes.get((marker.producer_id, *partition))
            if code is None:
                later.fail(errors.UnknownServerError(f"The leader of {partition} left a marker without an answer"))
            elif code:
                later.fail(error_for(ErrorCode.of(code)))
            else:
                later.set(None)


def _take(queue: deque[_Queued]) -> list[_Queued]:
    """The items of the next request, which has one marker of a producer: answers have only its id."""
    taken: list[_Queued] = []
    kept: list[_Queued] = []
    outcomes: dict[int, Marker] = {}
    while queue and len(taken) < MARKERS_PER_REQUEST:
        item = queue.popleft()
        if item.later.done:
            continue
        same = outcomes.setdefault(item.marker.producer_id, item.marker) == item.marker
        (taken if same else kept).append(item)
    queue.extendleft(reversed(kept))
    return taken


def _request(items: Sequence[_Queued]) -> WriteTxnMarkersRequest:
    by_marker: dict[Marker, dict[str, list[int]]] = {}
    for (topic, number), marker, _ in items:
        by_marker.setdefault(marker, {}).setdefault(topic, []).append(number)
    return WriteTxnMarkersRequest(
        markers=[
            Wire(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                topics=[
                    Wire.Topic(name=name, partition_indexes=list(dict.fromkeys(numbers)))
                    for name, numbers in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
            for marker, topics in by_marker.items()
        ]
    )
