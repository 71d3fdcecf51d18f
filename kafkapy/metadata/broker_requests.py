"""What the controller tells brokers: LeaderAndIsr, UpdateMetadata and StopReplica, as values.

The controller makes them, a BrokerChannel carries them, the ReplicaManager of a broker obeys. In the broker's own
process they are handed over as they are; for another broker they become the requests of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState
from kafkapy.types import TopicPartition

LEADER_DURING_DELETE = -2
"""As the leader in UpdateMetadata: the topic is being deleted (org.apache.kafka.common.requests.LeaderAndIsr)."""
EPOCH_DURING_DELETE = -2
"""As the leader epoch in StopReplica: no check, the topic is being deleted."""


class LeaderAndIsrPartition(NamedTuple):
    """One partition a broker is to lead or follow."""

    state: PartitionState
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False
    """The replica is new on this broker, so a log may be created even while a log directory is offline."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Lead or follow these partitions."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topic_ids: Mapping[str, UUID]
    partitions: Mapping[TopicPartition, LeaderAndIsrPartition]
    live_leaders: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    full: bool = False
    """These are all partitions of the broker: the first request after the controller or the broker has started."""


class UpdateMetadataPartition(NamedTuple):
    """One partition as clients are to see it."""

    state: PartitionState
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class UpdateMetadata(NamedTuple):
    """The state of brokers and of some partitions, for the metadata cache."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topic_ids: Mapping[str, UUID]
    partitions: Mapping[TopicPartition, UpdateMetadataPartition]
    live_brokers: Mapping[int, BrokerRegistration]


class StopReplicaPartition(NamedTuple):
    """One partition a broker is to stop hosting. With `delete` its log goes too."""

    leader_epoch: int
    delete: bool


class StopReplica(NamedTuple):
    """Stop hosting these partitions."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Mapping[TopicPartition, StopReplicaPartition]


BrokerRequest = LeaderAndIsr | UpdateMetadata | StopReplica


@dataclass(frozen=True, slots=True)
class BrokerResponse:
    """A broker's answer: an error for the whole request, or one for each partition that failed."""

    error: ErrorCode = ErrorCode.NONE
    partition_errors: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
