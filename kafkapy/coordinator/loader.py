"""Loading a shard: worker threads read the log, the loop applies slices.

Worker threads read and decode a chunk while others use the loop; the loop applies it in slices, so that a partition
with millions of records does not hold up heartbeats of groups in other partitions. Source: CoordinatorLoaderImpl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.records import CoordinatorRecord, RecordTypes
from kafkapy.coordinator.writer import LoadedBatch, PartitionWriter
from kafkapy.errors import CorruptMessageError
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.coordinator.Loader")

SLICE: Final = 1000
"""Records applied in one turn of the loop."""


class Applies(Protocol):
    """The target of a load: a shard that applies the log's records."""

    def apply(self, record: CoordinatorRecord, producer_id: int = -1, producer_epoch: int = -1) -> None:
        """Take over one record."""

    def apply_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Apply the end of a producer's transaction."""


@runtime_checkable
class NotesOffsets(Protocol):
    """A shard that needs the offsets of its records, to prune the log.

    `told_end` is the offset after the last record that the data plane appended and has told the shard of.
    """

    told_end: int

    def stored_at(self, record: CoordinatorRecord, offset: int) -> None:
        """Note the offset of a record that was applied before; offsets only grow."""


@dataclass(slots=True)
class _Batch:
    records: list[CoordinatorRecord]
    offsets: Sequence[int]
    """The offsets of the records, for a target that notes them."""
    producer_id: int
    producer_epoch: int
    committed: bool | None


class Load:
    """One load of one shard.

    The runtime starts it on its thread, and the load calls back there unless it was cancelled.
    """

    def __init__(
        self,
        partition: TopicPartition,
        target: Applies,
        types: RecordTypes,
        writer: PartitionWriter,
        clock: Clock,
        done: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._partition = partition
        self._target = target
        self._notes = target if isinstance(target, NotesOffsets) else None
        self._types = types
        self._writer = writer
        self._clock = clock
        self._done = done
        self._failed = failed
        self._cancelled = False
        self._skipped_records = 0
        self.records = 0

    def start(self) -> None:
        """Begin at the start of the log."""
        self._read(-1)

    def cancel(self) -> None:
        """Stop: neither apply more records nor call back."""
        self._cancelled = True

    def _read(self, offset: int) -> None:
        def work() -> tuple[list[_Batch], int, bool]:
            chunk = self._writer.read(self._partition, offset)
            return [self._decode(batch) for batch in chunk.batches], chunk.next_offset, chunk.at_end

        def got(read: tuple[list[_Batch], int, bool]) -> None:
            batches, next_offset, at_end = read
            self._apply(batches, 0, self._finish if at_end else lambda: self._read(next_offset))

        self._clock.run_blocking(work, got, self._fail)

    def _decode(self, batch: LoadedBatch) -> _Batch:
        """Decode a batch on a worker thread."""
        records: list[CoordinatorRecord] = []
        offsets: list[int] = []
        for index, (key, value) in enumerate(batch.records):
            try:
                record = self._types.decode(key, value)
            except CorruptMessageError as error:
                # A coordinator never writes such a record: a client did, and the other groups are not to suffer.
                self._skipped(logging.ERROR, f"{error}")
                continue
            if record is None:
                self._skipped(logging.WARNING, "the type of its key is unknown")
                continue
            records.append(record)
            if self._notes is not None:
                offsets.append(batch.offsets[index])
        producer_id = batch.producer_id if batch.is_transactional else -1
        return _Batch(records, offsets, producer_id, batch.producer_epoch, batch.committed)

    def _skipped(self, level: int, reason: str) -> None:
        """Count a skipped record, and log the first of a load."""
        self._skipped_records += 1
        if self._skipped_records == 1:
            logger.log(level, "The coordinator skips a record in %s: %s", self._partition, reason)

    def _apply(self, batches: list[_Batch], start: int, then: Callable[[], None]) -> None:
        if self._cancelled:
            return
        applied, index = 0, start
        try:
            while index < len(batches) and applied < SLICE:
                applied += self._apply_batch(batches[index])
                index += 1
        except Exception as error:
            self._fail(error)
            return
        if index < len(batches):
            self._clock.call_soon(lambda: self._apply(batches, index, then))
        else:
            then()

    def _apply_batch(self, batch: _Batch) -> int:
        if batch.committed is not None:
            self._target.apply_end_transaction_marker(batch.producer_id, batch.producer_epoch, batch.committed)
            return 1
        for record in batch.records:
            self._target.apply(record, batch.producer_id, batch.producer_epoch)
        if self._notes is not None:
            for record, offset in zip(batch.records, batch.offsets, strict=True):
                self._notes.stored_at(record, offset)
        self.records += len(batch.records)
        return len(batch.records)

    def _finish(self) -> None:
        if self._skipped_records > 1:
            logger.error("The coordinator skipped %d records in %s", self._skipped_records, self._partition)
        self._done()

    def _fail(self, error: Exception) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._failed(error)
