"""Producer ids, taken in blocks from the metadata store.

So no two producers of a cluster ever share one.

Source: org.apache.kafka.server.common.ProducerIdsBlock and kafka.coordinator.transaction.ZkProducerIdManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.store import BadVersionError, Create, MetadataStore, NodeExistsError, NoNodeError, SetData
from kafkapy.metadata.znodes import (
    PRODUCER_ID_BLOCK,
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)

BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1
MAX_BELIEVED: Final = 2**62
"""Ids from here on that a log knows are no reason to leave out those below: a client can write any id."""

logger = logging.getLogger("kafka.coordinator.transaction.ProducerIdManager")


class KnowsProducers(Protocol):
    """The part of PartitionLog that is used here."""

    def producers(self) -> list[dict[str, int]]:
        """The known state of each producer, with its `producer_id`."""


def highest_known_id(logs: Mapping[Any, KnowsProducers]) -> int:
    """The highest producer id in the logs, -1 when there is none. Any thread."""
    ids: Iterable[int] = (each["producer_id"] for log in logs.values() for each in log.producers())
    return max((number for number in ids if number < MAX_BELIEVED), default=-1)


class ProducerIdManager:
    """Owns this broker's current block of ids.

    Called on the control loop by the InitProducerId handler.

    `highest_known` says what ids the broker's logs know; it is called once, on a worker thread. Logs that were moved
    here know ids that this cluster has never handed out, and a new producer of such an id would be taken for the old
    one, its first batches perhaps for repetitions.
    """

    def __init__(self, node_id: int, store: MetadataStore, highest_known: Callable[[], int] | None = None) -> None:
        self._node_id = node_id
        self._store = store
        self._highest_known = highest_known
        self._least = 0
        self._next = 0
        self._last = -1
        self._allocating = asyncio.Lock()

    async def next_id(self) -> int:
        """An id that was never handed out.

        Unused ids of a block are lost at a restart, as in Kafka.

        MetadataStoreError when the store cannot be asked.
        """
        if self._next > self._last:
            async with self._allocating:
                if self._next > self._last:  # not while this one waited for the lock
                    block = await self._allocate()
                    self._next, self._last = block.first, block.last
        taken = self._next
        self._next += 1
        return taken

    async def _allocate(self) -> ProducerIdBlock:
        if self._highest_known is not None:
            self._least = await asyncio.to_thread(self._highest_known) + 1
            self._highest_known = None
        while True:
            try:
                data, stat = await self._store.get(PRODUCER_ID_BLOCK)
            except NoNodeError:
                first, version = 0, None
            else:
                first, version = (decode_producer_id_block(data).last + 1 if data else 0), stat.version
            first = max(first, self._least)
            if first > MAX_PRODUCER_ID - BLOCK_SIZE:
                raise error_for(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds as the next block is above 2^63-1"
                )
            block = ProducerIdBlock(self._node_id, first, first + BLOCK_SIZE - 1)
            value = encode_producer_id_block(block)
            try:
                if version is None:
                    await self._store.commit([Create(PRODUCER_ID_BLOCK, value)])
                else:
                    await self._store.commit([SetData(PRODUCER_ID_BLOCK, value, version)])
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue  # another broker has taken this block: try the next one
            logger.info("The broker acquired the block of producer ids %d to %d", block.first, block.last)
            return block
