"""Results for kafka-python's protocol responses: named tuples, by name and index."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "CreatePartitionsResult",
    "ElectLeadersResult",
    "PartitionElection",
    "TopicElection",
    "TopicGrowth",
]


class TopicGrowth(NamedTuple):
    """The result of create_partitions() for one topic; error_code 0 is success."""

    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResult(NamedTuple):
    """The result of create_partitions()."""

    throttle_time_ms: int
    results: list[TopicGrowth]


class PartitionElection(NamedTuple):
    """The result of a leader election in one partition."""

    partition_id: int
    error_code: int
    error_message: str | None


class TopicElection(NamedTuple):
    """The leader elections of one topic."""

    topic: str
    partition_result: list[PartitionElection]


class ElectLeadersResult(NamedTuple):
    """The result of elect_leaders()."""

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[TopicElection]
