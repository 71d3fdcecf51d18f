"""Producer ids, in blocks: no two producers of a cluster ever share one.

The controller hands out the blocks (AllocateProducerIds, KIP-730). It keeps the end of the last one in the metadata
store, and moves it on under the condition that nobody else has: a block whose answer is lost is never handed out again.
Below IBP 3.0 each broker does that itself, and so does the broker that is the controller.

Source: org.apache.kafka.coordinator.transaction.ProducerIdManager, RPCProducerIdManager and ZkProducerIdManager.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkapy import errors
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.store import BadVersionError, Create, MetadataStore, NodeExistsError, NoNodeError, SetData
from kafkapy.metadata.znodes import (
    PRODUCER_ID_BLOCK,
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)
from kafkapy.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from kafkapy.broker.controller_client import ControllerClient

BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1
MAX_BELIEVED: Final = 2**62
"""Ids from here on that a log knows are no reason to leave out those below: a client can write any id."""
PREFETCH_AFTER: Final = 0.9
"""Part of a block after which the next one is allocated."""
RETRY_S: Final = 0.05
"""Pause in seconds before another attempt after a failed one."""
WAIT_S: Final = 5.0
"""Seconds that a client waits for a block; then it is told to ask again."""

logger = logging.getLogger("kafka.coordinator.transaction.ProducerIdManager")


class KnowsProducers(Protocol):
    """The part of PartitionLog that is used here."""

    def producers(self) -> list[dict[str, int]]:
        """The known state of each producer, with its `producer_id`."""


def highest_known_id(logs: Mapping[Any, KnowsProducers]) -> int:
    """The highest producer id in the logs, -1 when there is none. Any thread."""
    ids: Iterable[int] = (each["producer_id"] for log in logs.values() for each in log.producers())
    return max((number for number in ids if number < MAX_BELIEVED), default=-1)


class BlockSource(Protocol):
    """Where a broker gets its blocks from."""

    async def allocate(self, least: int) -> ProducerIdBlock:
        """A block that was never handed out.

        Its ids are `least` or higher. MetadataStoreError, KafkaError.
        """


class StoreBlocks:
    """Takes blocks from the metadata store. A BlockSource; used on the control loop."""

    def __init__(self, node_id: int, store: MetadataStore) -> None:
        self._node_id = node_id
        self._store = store

    async def allocate(self, least: int) -> ProducerIdBlock:
        """See BlockSource."""
        while True:
            try:
                data, stat = await self._store.get(PRODUCER_ID_BLOCK)
            except NoNodeError:
                first, version = 0, None
            else:
                first, version = (decode_producer_id_block(data).last + 1 if data else 0), stat.version
            first = max(first, least)
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
            return block


class ControllerBlocks:
    """Takes blocks from the controller. A BlockSource; used on the control loop.

    `broker_epoch` returns the epoch of this broker's registration. `own` allocates where this broker is the controller,
    and where its logs know ids that the cluster has not handed out.
    """

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerClient, own: BlockSource
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._own = own

    async def allocate(self, least: int) -> ProducerIdBlock:
        """See BlockSource. NOT_CONTROLLER while no controller is known, and the errors of the request."""
        if self._controller.is_here:
            return await self._own.allocate(least)
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        response = await self._controller.send(request)
        if response.error_code:
            raise error_for(response.error_code)
        first, count = response.producer_id_start, response.producer_id_len
        if first < 0 or count <= 0 or first > MAX_PRODUCER_ID - count:
            raise errors.KafkaProtocolError(f"The controller answered with {count} producer ids from {first} on")
        if first < least:
            return await self._own.allocate(least)
        return ProducerIdBlock(self._node_id, first, first + count - 1)


class ProducerIdManager:
    """Owns this broker's current block of ids, and the next one.

    Called on the control loop by the InitProducerId handler and the transaction coordinator.

    `highest_known` says what ids the broker's logs know; it is called once, on a worker thread. Logs that were moved
    here know ids that this cluster has never handed out, and a new producer of such an id would be taken for the old
    one, its first batches perhaps for repetitions.
    """

    def __init__(self, blocks: BlockSource, highest_known: Callable[[], int] | None = None) -> None:
        self._blocks = blocks
        self._highest_known = highest_known
        self._least = 0
        self._next = 0
        self._last = -1
        self._prefetch_from = 0
        """The id that begins the allocation of the next block."""
        self._prefetched: ProducerIdBlock | None = None
        self._allocating: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._retry_at = 0.0

    async def next_id(self) -> int:
        """An id that was never handed out.

        Unused ids of a block are lost at a restart, as in Kafka.

        COORDINATOR_LOAD_IN_PROGRESS when the controller cannot be asked now; MetadataStoreError when the store cannot.
        """
        deadline = time.monotonic() + WAIT_S
        while self._next > self._last:
            if self._prefetched is None:
                await self._wait_for_block(deadline)
            else:
                block, self._prefetched = self._prefetched, None
                self._next, self._last = block.first, block.last
                self._prefetch_from = block.first + int((block.last - block.first + 1) * PREFETCH_AFTER)
        taken = self._next
        self._next += 1
        if self._next >= self._prefetch_from and self._prefetched is None:
            self._allocate()
        return taken

    async def close(self) -> None:
        """End an allocation in progress."""
        if self._allocating is not None:
            self._allocating.cancel()
            await asyncio.gather(self._allocating, return_exceptions=True)

    def _allocate(self) -> asyncio.Task[None] | None:
        """Begin an allocation, or find the one in progress; None during the pause after a failure."""
        if self._allocating is None and time.monotonic() >= self._retry_at:
            self._failure = None
            self._allocating = asyncio.get_running_loop().create_task(self._allocate_block(), name="producer-ids")
        return self._allocating

    async def _wait_for_block(self, deadline: float) -> None:
        allocating = self._allocate()
        if allocating is not None:
            await asyncio.wait([allocating], timeout=max(deadline - time.monotonic(), 0))
            if allocating.done() and self._failure is None:
                return  # others that waited may have used the block up
        failure = self._failure
        if failure is None or (isinstance(failure, KafkaError) and failure.code is not ErrorCode.UNKNOWN_SERVER_ERROR):
            raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The broker waits for a block of producer ids")
        raise failure

    async def _allocate_block(self) -> None:
        try:
            if self._highest_known is not None:
                self._least = await asyncio.to_thread(self._highest_known) + 1
                self._highest_known = None
            block = await self._blocks.allocate(self._least)
        except Exception as error:
            self._failure = error
            self._retry_at = time.monotonic() + RETRY_S
            logger.warning("The broker gets no block of producer ids: %s", error)
        else:
            self._least = block.last + 1
            self._prefetched = block
            logger.info("The broker acquired the block of producer ids %d to %d", block.first, block.last)
        finally:
            self._allocating = None
