"""Decisions of sinks, and their form in the control topic.

    {"version":2, "query", "batch", "driver":[producer id, epoch], "tasks", "time_ms",
     "handles":[[name, partition, producer id, epoch, transaction version, rows, checksum, topic, partition, offset],
                ...],
     "earlier":[[query, batch, rows, checksum], ...]}

Version 1 had [slot, partition, attempt, producer id, epoch, transaction version, rows, checksum] for a handle, no
`earlier`, and checksums with onLostTransaction=replay only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import IllegalArgumentError
from kafkapy.types import TopicPartition
from kafkapy_spark.transactions import OpenTransaction

__all__ = ["MAX_EARLIER", "Decision", "Handle", "Past", "SinkState", "past_of"]

FORMAT: Final = 2
FIRST_FORMAT: Final = 1
MAX_EARLIER: Final = 8
"""Other queries of a sink whose last batches a decision remembers."""


class Handle(NamedTuple):
    """The open transaction of a task, and what it holds."""

    name: str
    """The transactional id behind the sink's name."""
    partition: int
    """Of the query's, not of a topic."""
    producer_id: int
    producer_epoch: int
    transaction_version: int
    rows: int
    checksum: int
    topic: str | None = None
    topic_partition: int = -1
    offset: int = -1
    """Topic, partition and offset of one record of the transaction: its marker is behind that. None and -1 where no
    broker has said."""

    def transaction(self, sink: str) -> OpenTransaction:
        """The transaction, as EndTxn needs it."""
        state = PreparedTxnState(self.producer_id, self.producer_epoch, self.transaction_version)
        return OpenTransaction(f"{sink}-{self.name}", state)

    @property
    def place(self) -> tuple[TopicPartition, int] | None:
        """Partition and offset of one of the transaction's records; None if unknown."""
        if self.topic is None or self.offset < 0:
            return None
        return TopicPartition(self.topic, self.topic_partition), self.offset


class Past(NamedTuple):
    """The last batch of a query that a sink has decided, and its rows. checksum: None if it was not recorded."""

    query: str
    batch: int
    rows: int
    checksum: int | None


def past_of(known: Iterable[Past], query: str) -> Past | None:
    """That of a query."""
    return next((each for each in known if each.query == query), None)


@dataclass(frozen=True)
class Decision:
    """A batch is written: these transactions are to be committed, whoever does it."""

    query: str
    batch: int
    producer_id: int
    producer_epoch: int
    """Of the driver that has decided."""
    tasks: int
    handles: tuple[Handle, ...]
    """Of the tasks that have written anything."""
    time_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    earlier: tuple[Past, ...] = ()
    """Last batches of other queries of the sink, the latest query first."""
    version: int = FORMAT

    @property
    def identity(self) -> list[Any]:
        """Query, batch and driver: no other decision of the sink has the same."""
        return [self.query, self.batch, self.producer_id, self.producer_epoch]

    @property
    def rows(self) -> int:
        """Rows of all tasks."""
        return sum(each.rows for each in self.handles)

    @property
    def past(self) -> Past:
        """The decision as the past of its query."""
        checksum = sum(each.checksum for each in self.handles) % 2**64
        # Version 1 has a checksum for some sinks, and 0 for the others.
        return Past(self.query, self.batch, self.rows, checksum if self.version > FIRST_FORMAT or checksum else None)

    def is_temporary(self, sink: str) -> bool:
        """Whether nobody is going to use the sink's name again: it is that of one write."""
        return self.query == sink

    def to_json(self) -> bytes:
        """The record's value."""
        value = {
            "version": FORMAT,
            "query": self.query,
            "batch": self.batch,
            "driver": [self.producer_id, self.producer_epoch],
            "tasks": self.tasks,
            "time_ms": self.time_ms,
            "handles": self.handles,
            "earlier": self.earlier,
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        """IllegalArgumentError for a version that is not known."""
        value = json.loads(text)
        version = value["version"]
        if version not in (FIRST_FORMAT, FORMAT):
            raise IllegalArgumentError(
                f"a sink's decision is a record of version {version}; this kafkapy-spark knows {FORMAT}: a newer one "
                "has written it"
            )
        handles = [_first_handle(*each) if version == FIRST_FORMAT else Handle(*each) for each in value["handles"]]
        producer_id, producer_epoch = value["driver"]
        return cls(
            value["query"],
            value["batch"],
            producer_id,
            producer_epoch,
            value["tasks"],
            tuple(handles),
            value["time_ms"],
            tuple(Past(*each) for each in value.get("earlier", ())),
            version,
        )


def _first_handle(slot: int, partition: int, attempt: int, *rest: int) -> Handle:
    producer_id, producer_epoch, transaction_version, rows, checksum = rest
    name = f"{slot}-{partition}-{attempt}"
    return Handle(name, partition, producer_id, producer_epoch, transaction_version, rows, checksum)


@dataclass(frozen=True)
class SinkState:
    """The control topic's records of a sink."""

    decision: Decision | None = None
    done: Any = None

    @property
    def unfinished(self) -> Decision | None:
        """The decision, if it is not known that it was carried out."""
        if self.decision is None or self.done == self.decision.identity:
            return None
        return self.decision

    @property
    def known(self) -> tuple[Past, ...]:
        """The last batch of each query that the sink remembers, the latest first."""
        return () if self.decision is None else (self.decision.past, *self.decision.earlier)
