"""The placement of new partitions' replicas on brokers.

The leaders go round the brokers; the followers of a partition are spread at a shift that grows by one each time the
leaders have gone round. With racks, brokers are visited rack by rack, and no rack gets a second replica of a partition
before every rack has one. Source: org.apache.kafka.admin.AdminUtils, KIP-36.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from kafkapy import errors


def place_replicas(
    brokers: Mapping[int, str | None],
    num_partitions: int,
    replication_factor: int,
    start_index: int | None = None,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas for `num_partitions` partitions numbered from `first_partition`.

    `brokers` maps ids to racks. The first broker is random unless `start_index` is given. INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR.
    """
    if num_partitions <= 0:
        raise errors.InvalidPartitionsError("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise errors.InvalidReplicationFactorError("Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise errors.InvalidReplicationFactorError(
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}."
        )
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    # A cluster whose brokers get racks one by one must still take topics, so racks count only when all brokers have
    # one.
    by_rack = len(racks) == len(brokers)
    order = _rack_alternated(racks) if by_rack else sorted(brokers)
    start = random.randrange(len(order)) if start_index is None else start_index
    shift = random.randrange(len(order)) if start_index is None else start_index
    placed = {}
    for number in range(first_partition, first_partition + num_partitions):
        if number > 0 and number % len(order) == 0:
            shift += 1
        leader = (number + start) % len(order)
        if by_rack:
            placed[number] = _followers_by_rack(order, racks, leader, shift, replication_factor)
        else:
            followers = (order[_follower(leader, shift, i, len(order))] for i in range(replication_factor - 1))
            placed[number] = (order[leader], *followers)
    return placed


def _follower(leader: int, shift: int, index: int, count: int) -> int:
    return (leader + 1 + (shift + index) % (count - 1)) % count


def _followers_by_rack(
    order: list[int], racks: Mapping[int, str], leader: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    chosen = [order[leader]]
    used_racks = {racks[order[leader]]}
    step = 0
    while len(chosen) < replication_factor:
        broker = order[_follower(leader, shift * rack_count, step, len(order))]
        step += 1
        fresh_rack = racks[broker] not in used_racks or len(used_racks) == rack_count
        if fresh_rack and broker not in chosen:
            chosen.append(broker)
            used_racks.add(racks[broker])
    return tuple(chosen)


def _rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Brokers so that neighbours are in different racks: the first of each rack, then the second of each, ..."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(len(column) for column in columns)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]
