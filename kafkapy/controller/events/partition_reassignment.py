"""ZkPartitionReassignment: a tool has written reassignments into the store. Source: processZkPartitionReassignment."""

from __future__ import annotations

from typing import Final

from kafkapy.controller.controllership import Controllership
from kafkapy.metadata.znodes import REASSIGN_PARTITIONS

NAME: Final = "ZkPartitionReassignment"
PATH: Final = REASSIGN_PARTITIONS


async def run(controllership: Controllership) -> None:
    """Begin the written reassignments."""
    await controllership.reassignments.adopt_written()
