"""The scenario of flush.messages for fault_scenarios.py: what a consumer was given is on the disk.

Produces come through the data plane, where a worker syncs what they have appended; a consumer reads in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import TP, config, make_batch, make_marker
from fault_scenarios import NOW, Context, Scenario
from log_oracle import parse_batches

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy._speedups.testing.request_driver import RequestDriver
from kafkapy.errors import KafkaStorageError
from kafkapy.protocol.messages.produce import ProduceRequest

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SYNCED = config(
    segment_bytes=700, index_interval_bytes=100, segment_index_bytes=400, file_delete_delay_ms=0, flush_messages=1
)


class FlushingContext(Context):
    """One run with flush.messages=1; `seen` is where the consumers will read on."""

    def __init__(self, root: Path, faults: Any) -> None:
        super().__init__(root, faults)
        self.config = SYNCED
        self.table: PartitionTable | None = None
        self.driver: RequestDriver
        self.seen = {READ_UNCOMMITTED: 0, READ_COMMITTED: 0}
        self.exchanges: list[Any] = []

    def open(self, *, create: bool = True, **how: Any) -> PartitionLog:
        events = EventQueue()
        super().open(create=create, events=events, **how)
        self.attempt(self.log.prepare_segment)
        self.table = PartitionTable()
        self.table.put(TP.topic, bytes(16), 1)
        self.table.set_log(TP.topic, 0, self.log)
        self.driver = RequestDriver(DataPlane(1, self.table, FetchSessionCache(10, 1000), events, 1 << 20))
        self.consume()
        return self.log

    def release(self) -> None:
        for exchange in self.exchanges:
            exchange.cancel()
        self.exchanges = []
        self.table = self.driver = None  # type: ignore[assignment]
        super().release()

    def produce(self, data: bytes | None = None, **how: Any) -> None:
        """Appended; nobody has synced it yet."""
        self.number += 1
        self.clock += 10
        if data is None:
            data = make_batch(2, value=b"%06d" % self.number * 3, timestamp=self.clock, **how)
        self.attempts.add((self.log.log_end_offset, data[21:]))
        partition = ProduceRequest.Topic.Partition(index=0, records=data)
        request = ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name=TP.topic, partition_data=[partition])]
        )
        exchange = self.driver.handle(0, 9, self.number, "test", request.encode(9))
        self.attempt(self.log.prepare_segment)
        if exchange.kind == "parked":
            self.exchanges.append(exchange.resume())
        self.consume()

    def flush_due(self) -> None:
        self.attempt(self.log.flush_due)
        self.exchanges = [exchange for exchange in self.exchanges if exchange.resume().kind == "parked"]
        self.consume()

    def consume(self, *, again: bool = True) -> None:
        """Whatever is visible is read. From here on no crash may take it back."""
        for isolation in self.seen:
            try:
                data = self.log.read(self.seen[isolation], 1 << 20, isolation=isolation)[0]
            except KafkaStorageError:
                return
            except OSError:  # a read that fails once; the ledger must know all that a step appended
                if again:
                    self.consume(again=False)
                return
            found = parse_batches(data)
            if not found:
                continue
            self.seen[isolation] = found[-1].last + 1
            known = {batch.base for batch in self.now.history}
            fresh = tuple(batch for batch in found if batch.base not in known)
            self.note(history=self.now.history + fresh, synced=max(self.now.synced, self.seen[isolation]))


def flush_messages(c: Context) -> None:
    assert isinstance(c, FlushingContext)
    if not c.attempt(c.open):
        return
    for number in range(4):
        c.produce()
        if number % 2:
            c.flush_due()
    c.produce(producer_id=1, epoch=0, sequence=0, attributes=0x10)
    c.produce()
    c.flush_due()
    # A coordinator's marker is synced by the thread that appends it.
    c.append(make_marker(1, 0, commit=True, timestamp=NOW), marker=True)
    c.consume()
    c.roll()
    c.produce()
    c.after_roll()
    c.consume()
    c.flush()
    c.produce()
    # Killed before the flush; what the page cache has becomes visible with the next start.
    c.release()
    if c.attempt(c.open, create=False, clean=False):
        c.produce()
        c.flush_due()


FLUSH_SCENARIOS = {"flush.messages": Scenario(lambda c: None, flush_messages, FlushingContext)}
