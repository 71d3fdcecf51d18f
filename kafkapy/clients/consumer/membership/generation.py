"""Where a member of a classic group is, and which generation of the group it is in."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kafkapy import types
from kafkapy.clients.consumer.membership.protocol import NO_GENERATION_ID

__all__ = ["NO_GENERATION", "Generation", "MemberState"]


class MemberState(Enum):
    """Where a member is on its way into a generation."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"

    @property
    def shown(self) -> str:
        """One of the states that users are told."""
        if self is MemberState.STABLE:
            return types.MemberState.STABLE
        return types.MemberState.UNJOINED if self is MemberState.UNJOINED else types.MemberState.REBALANCING


class Generation(NamedTuple):
    """A member in a generation of the group, and the assignor that was chosen."""

    generation_id: int = NO_GENERATION_ID
    member_id: str = ""
    assignor: str | None = None


NO_GENERATION = Generation()
