"""Persister: the durable state of share-partitions, for other parts of the broker.

Source: org.apache.kafka.server.share.persister.Persister.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share.state import ShareKey, ShareState, ShareSummary, StateBatch

if TYPE_CHECKING:
    from kafkapy._speedups.requests.share.state_write import StateWrite


class Persister(Protocol):
    """The share coordinators of the cluster.

    Used on the control loop's thread. A reply is a Later: `await persister.read(...)`, or `.then(callback)` for callers
    that have thousands of them in one turn of the loop. Calls of one turn travel together: those for this broker as
    records of one batch, those for another broker in one request for each group. Retriable errors of the coordinator
    and of the connection are retried inside, with a backoff; a caller gets them when the retries are used up.

    Errors (each a KafkaError): FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH for a caller that was replaced,
    UNKNOWN_TOPIC_OR_PARTITION for a topic that is gone, INVALID_REQUEST for keys, offsets or batches that cannot be,
    COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR and NETWORK_EXCEPTION after the last retry,
    UNKNOWN_SERVER_ERROR for a state that no batch of __share_group_state takes.
    """

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Later[None]:
        """Begin a share-partition in a state epoch, without batches.

        It may have begun before, with another start offset. UNINITIALIZED_START_OFFSET leaves that to the leader.
        FENCED_STATE_EPOCH when a later state epoch is known.
        """

    def read(self, key: ShareKey, leader_epoch: int) -> Later[ShareState]:
        """The state for a leader that takes over; it fences the leaders before.

        FENCED_LEADER_EPOCH when a later leader has read. INVALID_REQUEST for a share-partition that was never
        initialized.
        """

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
    ) -> Later[None]:
        """Store changed batches and the start offset; done when that is committed.

        Batches below the start offset are dropped. Where batches overlap older ones, the higher delivery count holds,
        and of equal counts the higher state. The start offset never goes back: -1 leaves it as it is. A leader reads
        before it writes. FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH; INVALID_REQUEST for a share-partition that was never
        initialized.
        """

    def lend(self, key: ShareKey, write: StateWrite) -> None:
        """Let network threads store the share-partition's next writes themselves, where that can be.

        `write` is one of the share-partition that is stored and finished. Nothing happens when another broker has the
        state, or its log waits for other replicas.
        """

    def delete(self, key: ShareKey) -> Later[None]:
        """Remove the state of a share-partition; one that has none is no error."""

    def summary(self, key: ShareKey, leader_epoch: int) -> Later[ShareSummary]:
        """The start offset and the counts, without the batches.

        The leader epoch of a caller that leads nothing is NO_EPOCH. A share-partition that was never initialized has
        start offset -1 and state epoch 0.
        """
