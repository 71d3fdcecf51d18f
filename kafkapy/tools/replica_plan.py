"""Plans of replicas: the brokers of each partition, with the least data to move.

`kafkapy topics reassign` and `kafkapy cluster drain` use it. It has no connection and no output: a plan is made from
the present replicas, the brokers with their racks, and the sizes of the logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition

__all__ = ["Move", "Placement", "moves_of", "spread", "without"]

Placement = Mapping[TopicPartition, Sequence[int]]
"""The brokers of each partition, the preferred leader first."""
Racks = Mapping[int, str | None]
"""The rack of each broker that may hold replicas."""


@dataclass(frozen=True)
class Move:
    """One partition whose replicas change.

    `size` is the size of its log in bytes, None when unknown.
    """

    partition: TopicPartition
    current: tuple[int, ...]
    wanted: tuple[int, ...]
    size: int | None = None

    @property
    def adding(self) -> tuple[int, ...]:
        """Brokers that copy the partition."""
        return tuple(broker for broker in self.wanted if broker not in self.current)

    @property
    def removing(self) -> tuple[int, ...]:
        """Brokers that delete the partition."""
        return tuple(broker for broker in self.current if broker not in self.wanted)

    @property
    def bytes(self) -> int | None:
        """Bytes to copy; None when the size is unknown."""
        return 0 if not self.adding else None if self.size is None else self.size * len(self.adding)


def moves_of(current: Placement, wanted: Placement, sizes: Mapping[TopicPartition, int]) -> list[Move]:
    """The partitions whose replicas, or their order, change, sorted."""
    return [
        Move(partition, tuple(current[partition]), tuple(replicas), sizes.get(partition))
        for partition, replicas in sorted(wanted.items())
        if tuple(current[partition]) != tuple(replicas)
    ]


def spread(
    current: Placement,
    racks: Racks,
    replication_factor: int | None = None,
    sizes: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, list[int]]:
    """The partitions spread evenly over the brokers of `racks`.

    Replicas on these brokers stay where the balance allows it, large ones (`sizes`, bytes) first; each partition uses
    as many racks as possible. None keeps each replication factor. KafkaError when there are too few brokers.
    """
    small_first = sorted(current, key=lambda partition: ((sizes or {}).get(partition, 0), partition))
    placing = _Placing({partition: current[partition] for partition in small_first}, racks)
    for partition in small_first:
        placing.resize(partition, replication_factor or len(current[partition]))
    placing.use_more_racks()
    placing.even_out()
    placing.even_out_leaders()
    return {partition: placing.replicas[partition] for partition in sorted(placing.replicas)}


def without(
    current: Placement, leaving: int, racks: Racks, to: Collection[int] | None = None
) -> dict[TopicPartition, list[int]]:
    """The partitions of a leaving broker, with another broker in its position.

    All other replicas stay. `current` holds all partitions of the cluster, whose replicas count as load. `racks` names
    the live brokers, `to` those that may get replicas (default: all). KafkaError when a partition has a replica on all
    of these.
    """
    load = Counter(broker for replicas in current.values() for broker in replicas)
    targets = sorted((racks.keys() if to is None else set(to)) - {leaving})
    planned: dict[TopicPartition, list[int]] = {}
    for partition, replicas in sorted(current.items()):
        if leaving not in replicas:
            continue
        used = {racks[broker] for broker in replicas if broker != leaving and broker in racks} - {None}
        candidates = [broker for broker in targets if broker not in replicas]
        if not candidates:
            raise KafkaError(
                f"Partition {partition} has no place for its replica of broker {leaving}: "
                f"{'brokers' if len(targets) > 1 else 'broker'} {_listed(targets)} "
                f"{'have' if len(targets) > 1 else 'has'} one already. Add a broker, or lower its replication factor: "
                f"kafkapy topics reassign {partition.topic} --replication-factor {max(1, len(replicas) - 1)}."
            )
        newcomer = min(candidates, key=lambda broker: (racks[broker] in used, load[broker], broker))
        load[newcomer] += 1
        planned[partition] = [newcomer if broker == leaving else broker for broker in replicas]
    return planned


class _Placing:
    """The replicas of a plan in the making, with the number of replicas per broker."""

    def __init__(self, current: Placement, racks: Racks) -> None:
        self._racks = racks
        self._before = current
        self.replicas = {
            partition: [broker for broker in replicas if broker in racks] for partition, replicas in current.items()
        }
        self._load = dict.fromkeys(racks, 0)
        self._on: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in racks}
        for partition, replicas in self.replicas.items():
            for broker in replicas:
                self._load[broker] += 1
                self._on[broker][partition] = None

    # --- number of replicas ---------------------------------------------------------------------------------------

    def resize(self, partition: TopicPartition, count: int) -> None:
        """Give a partition `count` replicas.

        A new replica takes the position of the one that it replaces.
        """
        if count > len(self._racks):
            raise KafkaError(
                f"Partition {partition} needs {count} replicas, but only {len(self._racks)} "
                f"broker{' is' if len(self._racks) == 1 else 's are'} available: {_listed(self._racks)}."
            )
        replicas = self.replicas[partition]
        while len(replicas) > count:
            self._drop(partition)
        added: list[int] = []
        while len(replicas) + len(added) < count:
            newcomer = self._newcomer([*replicas, *added])
            self._load[newcomer] += 1
            self._on[newcomer][partition] = None
            added.append(newcomer)
        ordered = []
        for broker in self._before[partition]:
            if broker in replicas:
                ordered.append(broker)
            elif broker not in self._racks and added:
                ordered.append(added.pop(0))
        self.replicas[partition] = [*ordered, *added]

    def _newcomer(self, replicas: Sequence[int]) -> int:
        """The best broker for one more replica: in an unused rack, then with few replicas."""
        used = {self._rack(broker) for broker in replicas}
        candidates = [broker for broker in self._racks if broker not in replicas]
        return min(candidates, key=lambda broker: (self._rack(broker) in used, self._load[broker], broker))

    def _drop(self, partition: TopicPartition) -> None:
        """Remove a replica: one whose rack has another, then the one on the fullest broker; never the first one."""
        replicas = self.replicas[partition]
        counts = Counter(map(self._rack, replicas))
        worst = max(
            range(1, len(replicas)),
            key=lambda at: (counts[self._rack(replicas[at])] > 1, self._load[replicas[at]], at),
        )
        broker = replicas.pop(worst)
        self._load[broker] -= 1
        del self._on[broker][partition]

    def _rack(self, broker: int) -> str:
        """The rack; a broker without one is a rack for itself."""
        rack = self._racks[broker]
        return f"rack {rack}" if rack is not None else f"broker {broker}"

    # --- places of replicas ---------------------------------------------------------------------------------------

    def use_more_racks(self) -> None:
        """Replace the second replica in a rack while another rack has none."""
        for partition, replicas in self.replicas.items():
            for at in range(len(replicas) - 1, -1, -1):
                used = {self._rack(broker) for broker in replicas}
                others = {self._rack(broker) for broker in (*replicas[:at], *replicas[at + 1 :])}
                if self._rack(replicas[at]) in others and len(replicas) < len(self._racks):
                    newcomer = self._newcomer(replicas)
                    if self._rack(newcomer) not in used:
                        self._replace(partition, replicas[at], newcomer)

    def even_out(self) -> None:
        """Move replicas from full to emptier brokers while that narrows the difference."""
        while any(self._move_from(full) for full in sorted(self._load, key=lambda each: (-self._load[each], each))):
            pass

    def _move_from(self, full: int) -> bool:
        emptier = [broker for broker in self._load if self._load[full] - self._load[broker] > 1]
        for empty in sorted(emptier, key=lambda broker: (self._load[broker], broker)):
            for partition in self._on[full]:
                if partition in self._on[empty]:
                    continue
                racks = {self._rack(broker) for broker in self.replicas[partition] if broker != full}
                if len(racks | {self._rack(empty)}) >= len(racks | {self._rack(full)}):
                    self._replace(partition, full, empty)
                    return True
        return False

    def _replace(self, partition: TopicPartition, leaving: int, newcomer: int) -> None:
        replicas = self.replicas[partition]
        replicas[replicas.index(leaving)] = newcomer
        self._load[leaving] -= 1
        self._load[newcomer] += 1
        del self._on[leaving][partition]
        self._on[newcomer][partition] = None

    # --- order of replicas ----------------------------------------------------------------------------------------

    def even_out_leaders(self) -> None:
        """Change the order of replicas until the preferred leaders are even."""
        led: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self._racks}
        for partition, replicas in self.replicas.items():
            led[replicas[0]][partition] = None
        while (chain := self._chain(led)) is not None:
            for partition, position in chain:
                replicas = self.replicas[partition]
                del led[replicas[0]][partition]
                replicas[0], replicas[position] = replicas[position], replicas[0]
                led[replicas[0]][partition] = None

    def _chain(self, led: Mapping[int, Mapping[TopicPartition, None]]) -> list[tuple[TopicPartition, int]] | None:
        """Swaps that take one leadership from a broker, over others, to one with at least two less."""
        for start in sorted(led, key=lambda broker: (-len(led[broker]), broker)):
            found: dict[int, list[tuple[TopicPartition, int]]] = {start: []}
            queue = [start]
            for broker in queue:
                if len(led[start]) - len(led[broker]) > 1:
                    return found[broker]
                for partition in led[broker]:
                    for position, other in enumerate(self.replicas[partition]):
                        if other not in found:
                            found[other] = [*found[broker], (partition, position)]
                            queue.append(other)
        return None


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"
