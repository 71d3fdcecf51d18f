"""PreferredReplicaElection: a tool has written partitions into the store.

The tool waits until the node is gone. Source: processReplicaLeaderElection.
"""

from __future__ import annotations

import logging
from typing import Final

from kafkapy.controller.controllership import Controllership
from kafkapy.controller.events import replica_leader_election
from kafkapy.metadata.znodes import PREFERRED_REPLICA_ELECTION

logger = logging.getLogger("kafka.controller.KafkaController")

NAME: Final = "PreferredReplicaElection"
PATH: Final = PREFERRED_REPLICA_ELECTION


async def run(controllership: Controllership) -> None:
    """Elect the preferred leaders of the written partitions, and remove the node."""
    partitions = await controllership.store.preferred_elections()
    if partitions is None:
        return
    try:
        outcomes = await replica_leader_election.run(controllership, partitions, unclean=False)
        for partition, outcome in outcomes.items():
            if isinstance(outcome, Exception):
                logger.info("Partition %s has no preferred election: %s", partition, outcome)
    finally:
        await controllership.store.remove_preferred_elections()
