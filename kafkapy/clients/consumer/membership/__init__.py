"""A consumer's membership in its group.

Both group protocols, assignors, heartbeats and committed offsets.
"""

from __future__ import annotations

from kafkapy.clients.consumer.membership.api import GroupCore, Membership
from kafkapy.clients.consumer.membership.classic import ClassicMembership
from kafkapy.clients.consumer.membership.consumer_protocol import ConsumerProtocolMembership
from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata

__all__ = ["ConsumerGroupMetadata", "GroupCore", "Membership", "make_membership"]


def make_membership(core: GroupCore) -> Membership:
    """The membership for group.protocol. ConfigError for partition.assignment.strategy."""
    if core.config["group.protocol"].lower() == "consumer":
        return ConsumerProtocolMembership(core)
    return ClassicMembership(core)
