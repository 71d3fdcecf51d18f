"""Producer ids, unique in the cluster: blocks of 1,000 from the metadata store, handed out one by one.

Source: kafka.coordinator.transaction.ProducerIdManager, ZkProducerIdManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kafkapy.metadata.store import BadVersionError, MetadataStore
from kafkapy.metadata.znodes import (
    PRODUCER_ID_BLOCK,
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)

logger = logging.getLogger("kafka.coordinator.transaction.ProducerIdManager")

BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1


class ProducerIdsExhaustedError(Exception):
    """All 2**63 producer ids are used up."""


async def allocate_producer_id_block(store: MetadataStore, broker_id: int) -> ProducerIdBlock:
    """Take the next block for a broker. Safe against other brokers: the write is conditional, and tried again."""
    await store.ensure_path(PRODUCER_ID_BLOCK)
    while True:
        data, stat = await store.get(PRODUCER_ID_BLOCK)
        first = decode_producer_id_block(data).last + 1 if data else 0
        if first > MAX_PRODUCER_ID - BLOCK_SIZE + 1:
            raise ProducerIdsExhaustedError(f"no producer ids are left after {first - 1}")
        block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await store.set(PRODUCER_ID_BLOCK, encode_producer_id_block(block), stat.version)
        except BadVersionError:
            continue
        logger.info("Broker %d takes the producer ids %d to %d", broker_id, block.first, block.last)
        return block


class ProducerIdManager:
    """Hands out producer ids from a block, and gets the next block when it is used up. Used on the control loop.

    A block that was not used up when the broker stops is lost: ids are never given twice.
    """

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._last = -1
        self._lock = asyncio.Lock()

    async def generate(self) -> int:
        """A producer id that nobody else has. The errors of the store."""
        async with self._lock:
            if self._next > self._last:
                block = await self._allocate()
                self._next, self._last = block.first, block.last
            producer_id = self._next
            self._next += 1
            return producer_id
