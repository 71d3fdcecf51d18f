"""Outcomes of transactions that the coordinator does not tell any more: they stand in the logs.

A coordinator forgets an id that was not used for transactional.id.expiration.ms (7 days), and tells nothing of a
transaction whose id was used again. The log of each partition keeps the transaction's marker behind its records, until
retention or compaction takes it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from kafkapy.clients.admin.routing import Deadline
from kafkapy.clients.admin.transactions import TransactionState
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import ErrorCode, KafkaError, OffsetOutOfRangeError, error_for
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.records.batches import iter_batches
from kafkapy.records.control import read_control_batch
from kafkapy.types import ListOffsetsTimestamp, TopicPartition
from kafkapy_spark.transactions import OpenTransaction, TransactionClient

__all__ = ["was_committed"]

logger = logging.getLogger("kafkapy.spark")

FETCH_BYTES: Final = 8 << 20
LAST_WITHOUT_IDS: Final = 12
"""The last version of Fetch that names its topics."""
MARKER_WAIT_S: Final = 0.02
_ENDING: Final = frozenset(
    {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT, TransactionState.PREPARE_EPOCH_FENCE}
)


async def was_committed(
    client: TransactionClient, transaction: OpenTransaction, place: tuple[TopicPartition, int]
) -> bool | None:
    """The outcome by the marker in a partition's log; None where the log does not tell. place: partition and offset of
    one of its records. KafkaError: the log cannot be read now."""
    partition, offset = place
    deadline = client.deadline()
    while True:
        topic = (await client.topic_metadata({partition.topic}, deadline))[partition.topic]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        ending = await _is_ending(client, transaction)
        search = _Search(transaction.state, offset)
        try:
            await search.run(client, partition)
        except KafkaError as error:
            if error.retriable and not isinstance(error, OffsetOutOfRangeError):
                raise
            logger.warning("%s cannot be searched for the outcome of %s: %s", partition, transaction, error)
            return None
        if search.ended or not ending or deadline.left_ms <= 0:
            return search.committed
        await asyncio.sleep(MARKER_WAIT_S)


async def _is_ending(client: TransactionClient, transaction: OpenTransaction) -> bool:
    """Whether the id's coordinator is about to write markers."""
    found = await client.described(transaction.transactional_id)
    return found is not None and found.state in _ENDING


class _Search:
    """A search for the marker of a producer's transaction, of which `place` is a record's offset.

    The producer's first marker behind a record of the transaction is that of the transaction. Compaction may have taken
    the record; only a marker that commits under the transaction's own epoch is known to be its marker then.
    """

    def __init__(self, state: PreparedTxnState, place: int) -> None:
        self._state, self._place, self._offset = state, place, place
        self._has_record = False
        self.ended = False
        self.committed: bool | None = None

    async def run(self, client: TransactionClient, partition: TopicPartition) -> None:
        """To the end of the log, or the producer's first marker. KafkaError."""
        listed = await client.list_partition_offsets({partition: ListOffsetsTimestamp.LATEST})
        end = listed[partition].offset
        while self._offset < end and not self.ended:
            before = self._offset
            self._take(await client.settled(lambda left: _fetch(client, partition, self._offset, left)))
            if self._offset == before:
                break

    def _take(self, data: bytes) -> None:
        for batch in iter_batches(data):
            if batch.next_offset <= self._offset:
                continue
            self._offset = batch.next_offset
            if batch.producer_id != self._state.producer_id:
                continue
            if not batch.is_control:
                same = batch.producer_epoch == self._state.producer_epoch
                self._has_record |= same and batch.base_offset <= self._place
                continue
            marker = read_control_batch(batch)
            if marker is not None:
                self.ended = True
                bumped = self._state.producer_epoch + (self._state.transaction_version >= 2)
                if self._has_record or (marker.committed and batch.producer_epoch == bumped):
                    self.committed = marker.committed
                return


async def _fetch(client: TransactionClient, partition: TopicPartition, offset: int, deadline: Deadline) -> bytes:
    node = await client.leader(partition, deadline)
    wanted = FetchRequest.Topic.Partition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        topics=[FetchRequest.Topic(topic=partition.topic, partitions=[wanted])],
    )
    response = await client.send(node, request, deadline, low=4, high=LAST_WITHOUT_IDS)
    if response.error_code:
        raise error_for(response.error_code)
    [found] = [each for topic in response.responses for each in topic.partitions]
    if found.error_code:
        raise error_for(found.error_code)
    return bytes(found.records or b"")
