"""The checks of new topics and new partitions. Pure.

A check reads the context, and raises an error or returns a plan. Unknown brokers in manual assignments are refused, as
KRaft does, where the ZooKeeper path would make partitions that never get a leader. Source: kafka.server.ZkAdminManager,
kafka.zk.AdminZkClient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy import errors
from kafkapy.config.topic import validate_overrides
from kafkapy.controller.admin_requests import NO_VALUE, NewPartitions, NewTopic
from kafkapy.controller.context import ControllerContext
from kafkapy.controller.replica_placement import place_replicas
from kafkapy.metadata.topic_names import validate_topic_name
from kafkapy.metadata.znodes import ReplicaAssignment

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Partitions that one request may create (KRaft's limit).

The limit keeps a number from the wire from exhausting memory.
"""


class TopicPlan(NamedTuple):
    """A topic that passed all checks, ready to be written."""

    name: str
    assignments: Mapping[int, ReplicaAssignment]
    configs: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        """The number of replicas of each partition."""
        return len(self.assignments[0].replicas)


def plan_topic(topic: NewTopic, context: ControllerContext, config: BrokerConfig, budget: int) -> TopicPlan:
    """Check a topic to create, and place its replicas.

    `budget` is the number of partitions that the request may still create.

    TOPIC_ALREADY_EXISTS, INVALID_CONFIG, INVALID_REQUEST, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
    INVALID_TOPIC_EXCEPTION, INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION.
    """
    name = topic.name
    if name in context.assignments:
        marked = context.is_topic_being_deleted(name)
        state = "is marked for deletion" if marked else "already exists"
        raise errors.TopicAlreadyExistsError(f"Topic '{name}' {state}.")
    null = sorted(key for key, value in topic.configs.items() if value is None)
    if null:
        raise errors.InvalidConfigError(f"Null value not supported for topic configs: {','.join(null)}")
    if topic.assignments:
        if topic.num_partitions != NO_VALUE or topic.replication_factor != NO_VALUE:
            raise errors.InvalidRequestError(
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time."
            )
        _check_budget(len(topic.assignments), budget)
        placed = {number: tuple(replicas) for number, replicas in sorted(topic.assignments.items())}
    else:
        defaulted = topic.num_partitions == NO_VALUE
        count = config.get_int("num.partitions") if defaulted else topic.num_partitions
        defaulted = topic.replication_factor == NO_VALUE
        factor = config.get_int("default.replication.factor") if defaulted else topic.replication_factor
        _check_budget(count, budget)
        placed = place_replicas(context.broker_racks(), count, factor)
    validate_topic_name(name)
    colliding = context.topic_names.colliding_with(name)
    if colliding:
        raise errors.InvalidTopicError(f"Topic '{name}' collides with existing topics: {', '.join(colliding)}")
    _check_assignments(placed, context)
    configs = {key: value for key, value in topic.configs.items() if value is not None}
    validate_overrides(configs, config)
    return TopicPlan(name, {number: ReplicaAssignment(replicas) for number, replicas in placed.items()}, configs)


def plan_partitions(request: NewPartitions, context: ControllerContext, budget: int) -> dict[int, ReplicaAssignment]:
    """Check partitions to add to a topic, and place their replicas.

    Returns the added partitions. `budget` is the number of partitions that the request may still create.

    UNKNOWN_TOPIC_OR_PARTITION, REASSIGNMENT_IN_PROGRESS, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
    BROKER_NOT_AVAILABLE, POLICY_VIOLATION.
    """
    name = request.name
    existing = context.assignments.get(name)
    if existing is None or context.is_topic_being_deleted(name):
        raise errors.UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
    if any(each.is_being_reassigned for each in existing.values()):
        raise errors.ReassignmentInProgressError(f"A partition reassignment is in progress for the topic '{name}'.")
    added = request.count - len(existing)
    if added < 0:
        raise errors.InvalidPartitionsError(
            f"Topic currently has {len(existing)} partitions, which is higher than the requested {request.count}."
        )
    if added == 0:
        raise errors.InvalidPartitionsError(f"Topic already has {len(existing)} partitions.")
    _check_budget(added, budget)
    first = existing[0].replicas
    if request.assignments is not None:
        placed = _manual_additions(request.assignments, added, len(existing), len(first), context)
    else:
        brokers = context.broker_racks()
        order = sorted(brokers)
        start = next((index for index, broker in enumerate(order) if broker >= first[0]), 0)
        placed = place_replicas(brokers, added, len(first), start, len(existing))
    return {number: ReplicaAssignment(replicas) for number, replicas in placed.items()}


def _check_budget(count: int, budget: int) -> None:
    if count > budget:
        raise errors.PolicyViolationError("Excessively large number of partitions per request.")


def _check_assignments(placed: Mapping[int, Sequence[int]], context: ControllerContext) -> None:
    if len({len(replicas) for replicas in placed.values()}) != 1:
        raise errors.InvalidReplicaAssignmentError("All partitions should have the same number of replicas")
    for replicas in placed.values():
        _check_replicas(replicas, context)
    if list(placed) != list(range(len(placed))):
        raise errors.InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")


def _check_replicas(replicas: Sequence[int], context: ControllerContext) -> None:
    if not replicas:
        raise errors.InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
    if len(set(replicas)) != len(replicas):
        raise errors.InvalidReplicaAssignmentError(f"Duplicate replica assignment found: {list(replicas)}")
    unknown = sorted(set(replicas) - context.live_brokers.keys())
    if unknown:
        raise errors.InvalidReplicaAssignmentError(
            f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}."
        )
    context.check_not_cordoned(replicas)


def _manual_additions(
    assignments: Sequence[Sequence[int]], added: int, existing: int, factor: int, context: ControllerContext
) -> dict[int, tuple[int, ...]]:
    unknown = sorted({broker for replicas in assignments for broker in replicas} - context.live_brokers.keys())
    if unknown:
        raise errors.InvalidReplicaAssignmentError(
            f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}."
        )
    if len(assignments) != added:
        raise errors.InvalidReplicaAssignmentError(
            f"Increasing the number of partitions by {added} but {len(assignments)} assignments provided."
        )
    placed = {existing + index: tuple(replicas) for index, replicas in enumerate(assignments)}
    for number, replicas in placed.items():
        if not replicas:
            raise errors.InvalidReplicaAssignmentError(
                f"Cannot have replication factor of 0 for partition id {number}."
            )
        if len(set(replicas)) != len(replicas):
            raise errors.InvalidReplicaAssignmentError(
                "Duplicate brokers not allowed in replica assignment: "
                f"{', '.join(map(str, replicas))} for partition id {number}."
            )
    bad = {number: len(replicas) for number, replicas in placed.items() if len(replicas) != factor}
    if bad:
        numbers, counts = ", ".join(map(str, bad)), ", ".join(map(str, bad.values()))
        raise errors.InvalidReplicaAssignmentError(
            f"Inconsistent replication factor between partitions, partition 0 has {factor} while partitions "
            f"[{numbers}] have replication factors [{counts}], respectively."
        )
    context.check_not_cordoned(broker for replicas in assignments for broker in replicas)
    return placed
