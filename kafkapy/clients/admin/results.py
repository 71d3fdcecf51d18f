"""Results that kafka-python gives as responses of the protocol: by name as there, and by index, as tuples."""

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
    """What became of more partitions for one topic; error_code 0 where it has them."""

    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResult(NamedTuple):
    """The answer to create_partitions()."""

    throttle_time_ms: int
    results: list[TopicGrowth]


class PartitionElection(NamedTuple):
    """What became of the election for one partition."""

    partition_id: int
    error_code: int
    error_message: str | None


class TopicElection(NamedTuple):
    """The elections of one topic."""

    topic: str
    partition_result: list[PartitionElection]


class ElectLeadersResult(NamedTuple):
    """The answer to elect_leaders()."""

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[TopicElection]
