"""The controller's requests to brokers: LeaderAndIsr, UpdateMetadata and StopReplica.

The controller makes them, a BrokerChannel carries them, the ReplicaManager of a broker obeys. Within the broker's own
process they are passed as values; for another broker they become the requests of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState
from kafkapy.types import TopicPartition

LEADER_DURING_DELETE = -2
"""The leader in UpdateMetadata while the topic is being deleted.

Source: org.apache.kafka.common.requests.LeaderAndIsr.
"""
EPOCH_DURING_DELETE = -2
"""The leader epoch in StopReplica while the topic is being deleted: no check."""

NO_EPOCH = -1
"""The leader epoch in StopReplica for a partition without a known leader: no check."""


class LeaderAndIsrPartition(NamedTuple):
    """One partition that a broker leads or follows."""

    state: PartitionState
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False
    """The replica is new here: its log may be created while a directory is offline."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The partitions that a broker leads or follows from now on."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topic_ids: Mapping[str, UUID]
    partitions: Mapping[TopicPartition, LeaderAndIsrPartition]
    live_leaders: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    full: bool = False
    """The list holds all partitions of the broker.

    It is the first request after the controller or the broker has started.
    """


class UpdateMetadataPartition(NamedTuple):
    """One partition as clients see it."""

    state: PartitionState
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class MetadataPartitions(dict[TopicPartition, UpdateMetadataPartition]):
    """The partitions of an UpdateMetadata, which many brokers get.

    `encoded` is for the channels: what the wire form is for all of them.
    """

    __slots__ = ("encoded",)

    def __init__(self) -> None:
        super().__init__()
        self.encoded: Any = None


class UpdateMetadata(NamedTuple):
    """The state of brokers and of some partitions, for the metadata cache."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topic_ids: Mapping[str, UUID]
    partitions: Mapping[TopicPartition, UpdateMetadataPartition]
    live_brokers: Mapping[int, BrokerRegistration]


class StopReplicaPartition(NamedTuple):
    """One partition that a broker stops hosting.

    With `delete` the broker deletes its log.
    """

    leader_epoch: int
    delete: bool


class StopReplica(NamedTuple):
    """The partitions that a broker stops hosting."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Mapping[TopicPartition, StopReplicaPartition]


BrokerRequest = LeaderAndIsr | UpdateMetadata | StopReplica


@dataclass(frozen=True, slots=True)
class BrokerResponse:
    """A broker's answer: an error for the whole request, or for each failed partition."""

    error: ErrorCode = ErrorCode.NONE
    partition_errors: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
