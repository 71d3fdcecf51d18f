"""The state of a member of a classic group, and its generation."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kafkapy import types
from kafkapy.clients.consumer.membership.protocol import NO_GENERATION_ID

__all__ = ["NO_GENERATION", "Generation", "MemberState"]


class MemberState(Enum):
    """The state of a member on its way into a generation."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"

    @property
    def shown(self) -> str:
        """The member's state in the texts for users."""
        if self is MemberState.STABLE:
            return types.MemberState.STABLE
        return types.MemberState.UNJOINED if self is MemberState.UNJOINED else types.MemberState.REBALANCING


class Generation(NamedTuple):
    """A member in a generation of the group, with the chosen assignor."""

    generation_id: int = NO_GENERATION_ID
    member_id: str = ""
    assignor: str | None = None


NO_GENERATION = Generation()
