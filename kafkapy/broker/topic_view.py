"""The metadata cache's topics as one client sees them.

Their leaders, on the client's listener, and their errors.

Source: kafka.server.metadata.ZkMetadataCache.getPartitionMetadata. Used by the Metadata and DescribeTopicPartitions
handlers.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.errors import ErrorCode
from kafkapy.metadata.cache import MetadataSnapshot, PartitionMetadata
from kafkapy.metadata.znodes import NO_LEADER


class PartitionView(NamedTuple):
    """One partition for an answer. Immutable.

    `leader` is -1 where clients of the listener cannot reach it.
    """

    partition: int
    error: ErrorCode
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]


def view(
    snapshot: MetadataSnapshot,
    partition: PartitionMetadata,
    listener_name: str,
    *,
    only_alive: bool = False,
    listener_errors: bool = True,
) -> PartitionView:
    """The partition for clients of a listener.

    `only_alive` leaves dead replicas out and says so (Metadata version 0). `listener_errors` tells a leader without
    the listener (LISTENER_NOT_FOUND, Metadata version 6 on) from a dead leader (LEADER_NOT_AVAILABLE).
    """
    replicas, isr = list(partition.replicas), list(partition.isr)
    if only_alive:
        replicas = [each for each in replicas if snapshot.node(each, listener_name) is not None]
        isr = [each for each in isr if snapshot.node(each, listener_name) is not None]
    offline = snapshot.offline_replicas(partition, listener_name)
    error, leader = ErrorCode.NONE, partition.leader
    if snapshot.node(partition.leader, listener_name) is None:
        alive = partition.leader in snapshot.brokers
        error = ErrorCode.LISTENER_NOT_FOUND if alive and listener_errors else ErrorCode.LEADER_NOT_AVAILABLE
        leader = NO_LEADER
    elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    return PartitionView(partition.partition, error, leader, partition.leader_epoch, replicas, isr, offline)
