"""What a driver tells its tasks, and what they tell it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum, auto

from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy_spark.decisions import Handle, Past, past_of
from kafkapy_spark.sink_errors import SinkError
from kafkapy_spark.sink_options import OnKnown

__all__ = ["Meaning", "SinkPlan", "TaskResult"]

logger = logging.getLogger("kafkapy.spark")


class Meaning(Enum):
    """What a batch is to its sink, by its number."""

    NEW = auto()
    """It is to be written."""
    SKIPPED = auto()
    """It is written already."""
    COMPARED = auto()
    """It is written already if it has the same rows, and refused otherwise."""
    NEW_IF_OTHER = auto()
    """It is written already if it has the same rows, and to be written otherwise."""
    REFUSED = auto()
    """The sink has decided later batches: Spark cannot plan it unless the checkpoint was rewound."""


@dataclass(frozen=True)
class TaskResult:
    """What the attempt of a task tells the driver."""

    query: str
    batch: int
    partition: int
    driver: PreparedTxnState
    """The driver that has planned it."""
    known: tuple[Past, ...] = ()
    """What the plan knows."""
    on_known: OnKnown = "refuse"
    meaning: Meaning = Meaning.NEW
    replayed: bool = False
    """Whether the batch was read again for its lost transactions."""
    handle: Handle | None = None
    """None when there was nothing to write."""
    rows: int = 0
    checksum: int = 0

    @property
    def skipped(self) -> bool:
        """Whether the task has written nothing, because its batch is known."""
        return self.meaning in (Meaning.SKIPPED, Meaning.COMPARED, Meaning.REFUSED)

    @property
    def plan(self) -> tuple[object, ...]:
        """What all results of a plan have in common."""
        return self.query, self.batch, self.driver, self.known, self.on_known, self.meaning, self.replayed


@dataclass(frozen=True)
class SinkPlan:
    """What tasks have to know."""

    sink: str
    driver: PreparedTxnState
    timeout_ms: int
    known: tuple[Past, ...] = ()
    """The last batches that the sink has decided, one of each query, the latest first."""
    lost: frozenset[int] = frozenset()
    """Partitions of the latest that have to be written again."""
    on_known: OnKnown = "refuse"

    def is_replayed(self, query: str, batch: int) -> bool:
        """Whether partitions of a batch that is decided are written again. SinkError for a later batch, before which
        they would be left out."""
        if not self.lost:
            return False
        decided = self.known[0]
        if (query, batch) == (decided.query, decided.batch):
            return True
        raise SinkError(
            f"partitions {sorted(self.lost)} of batch {decided.batch} of {decided.query} are lost, and batch "
            f"{batch} of {query} is written next: the sink {self.sink} does not go on without them"
        )

    def result(self, query: str, batch: int, partition: int) -> TaskResult:
        """Of a task that has not done anything yet. SinkError as of is_replayed."""
        replayed = self.is_replayed(query, batch)
        meaning = Meaning.NEW if replayed else self.meaning(query, batch)
        return TaskResult(query, batch, partition, self.driver, self.known, self.on_known, meaning, replayed)

    def meaning(self, query: str, batch: int) -> Meaning:
        """By the last batch of the query that the sink has decided.

        Spark repeats that one when it died before it knew that it was done, with the same rows. It repeats none before
        it, and plans it with other rows only when it has forgotten what it was: a backup was restored.
        """
        past = past_of(self.known, query)
        if past is None or batch > past.batch:
            return Meaning.NEW
        if self.on_known == "skip":
            if batch < past.batch:
                logger.warning(
                    "Batch %d of %s is skipped: the sink %s has decided batch %d (ignoreSinkState=skip)",
                    batch,
                    query,
                    self.sink,
                    past.batch,
                )
            return Meaning.SKIPPED
        if self.on_known == "write":
            return Meaning.NEW_IF_OTHER if batch == past.batch else Meaning.NEW
        return Meaning.COMPARED if batch == past.batch else Meaning.REFUSED
