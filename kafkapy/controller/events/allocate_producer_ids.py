"""AllocateProducerIds: a broker asks for a block of producer ids (KIP-730). Source: processAllocateProducerIds."""

from __future__ import annotations

from typing import Final

from kafkapy import errors
from kafkapy.controller.controllership import Controllership
from kafkapy.metadata.znodes import ProducerIdBlock

NAME: Final = "AllocateProducerIds"


async def run(controllership: Controllership, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
    """The next block. BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""
    broker = controllership.context.live_brokers.get(broker_id)
    if broker is None:
        raise errors.BrokerIdNotRegisteredError(f"Broker {broker_id} is not registered.")
    if broker.epoch != broker_epoch:
        raise errors.StaleBrokerEpochError(
            f"Broker {broker_id} is registered with epoch {broker.epoch}, and asks with epoch {broker_epoch}."
        )
    return await controllership.store.allocate_producer_ids(broker_id)
