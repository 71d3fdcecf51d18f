"""BrokerModifications: a live broker has other endpoints, or is cordoned now or no more.

Source: processBrokerModification.
"""

from __future__ import annotations

import logging
from typing import Final

from kafkapy.controller.controllership import Controllership

logger = logging.getLogger("kafka.controller.KafkaController")

NAME: Final = "BrokerModifications"


async def run(controllership: Controllership, broker_id: int) -> None:
    """Compare the registration with the known one, and tell all brokers of a change."""
    context = controllership.context
    known = context.live_brokers.get(broker_id)
    found = (await controllership.store.registrations([broker_id])).get(broker_id)
    # Another epoch is another registration: BrokerChange follows.
    if known is None or found is None or found.epoch != known.epoch or found == known:
        return
    logger.info("Broker %d changed its registration from %s to %s", broker_id, known, found)
    context.live_brokers[broker_id] = found
    await controllership.batch.add_update_metadata(context.live_brokers)
    await controllership.batch.send()
