"""The election of leaders: one pure function for each occasion.

Each takes the assigned replicas (the preferred one first), the ISR and the replicas that are online, and gives the
leader and the new ISR, or None when no replica may lead. Source: kafka.controller.Election, PartitionStateMachine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Elected(NamedTuple):
    """The outcome of an election."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False
    """The leader was not in sync: records may be lost."""


def elect_for_offline_partition(
    replicas: Sequence[int], isr: Collection[int], online: Collection[int], unclean_allowed: bool
) -> Elected | None:
    """The first online replica of the ISR, after the leader is gone.

    If unclean elections are allowed, any online replica as a last resort.
    """
    for replica in replicas:
        if replica in online and replica in isr:
            return Elected(replica, tuple(each for each in isr if each in online))
    if unclean_allowed:
        for replica in replicas:
            if replica in online:
                return Elected(replica, (replica,), unclean=True)
    return None


def elect_preferred(replicas: Sequence[int], isr: Collection[int], online: Collection[int]) -> Elected | None:
    """The preferred replica, if it is online and in sync."""
    preferred = replicas[0] if replicas else None
    if preferred is None or preferred not in online or preferred not in isr:
        return None
    return Elected(preferred, tuple(isr))


def elect_for_reassignment(target: Sequence[int], isr: Collection[int], online: Collection[int]) -> Elected | None:
    """The first target replica that is online and in sync; the ISR stays."""
    for replica in target:
        if replica in online and replica in isr:
            return Elected(replica, tuple(isr))
    return None


def elect_for_shutdown(
    replicas: Sequence[int], isr: Collection[int], online: Collection[int], shutting_down: Collection[int]
) -> Elected | None:
    """The first replica in sync that stays, before a broker stops.

    The stopping brokers leave the ISR.
    """
    for replica in replicas:
        if replica in online and replica in isr and replica not in shutting_down:
            return Elected(replica, tuple(each for each in isr if each not in shutting_down))
    return None
