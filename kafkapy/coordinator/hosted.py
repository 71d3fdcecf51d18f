"""One hosted shard: its state, and the queues of its operations.

The shard is code of one of the coordinators. The runtime owns everything here, on the control loop's
thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.loader import Applies, Load, NotesOffsets
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import Later, ProducerStamp, Result
from kafkapy.coordinator.shard_timer import ShardTimer
from kafkapy.errors import KafkaError
from kafkapy.types import TopicPartition

T = TypeVar("T")


class Shard(Applies, Protocol):
    """The state of one partition's groups, transactions or share-partitions.

    Made by the runtime for a load, and used until it is unloaded; every method runs on the control loop's thread.
    """

    def on_loaded(self, now_ms: int) -> None:
        """Start timeouts after the log has been applied."""

    def on_unloaded(self) -> None:
        """Fail the waiting requests with NOT_COORDINATOR: another broker coordinates the partition now."""


S = TypeVar("S", bound=Shard)
Operation = Callable[[S, int], Result[T]]


class ShardState(Enum):
    """The state of a shard."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"


@dataclass(slots=True)
class Durations:
    """Durations in ms since the broker's start, for metrics."""

    count: int = 0
    total_ms: int = 0
    max_ms: int = 0

    def add(self, took_ms: int) -> None:
        """Add a duration."""
        self.count += 1
        self.total_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)


@dataclass(frozen=True, slots=True)
class ShardContext(Generic[S]):
    """The context that a shard is made with."""

    partition: int
    timer: ShardTimer[S]
    clock: Clock


@dataclass(slots=True, eq=False)
class PendingOperation:
    """An operation that ran and whose records are not committed yet."""

    later: Later[Any]
    reply: Any
    after: Callable[[BaseException | None], None] | None
    timestamp_ms: int
    encoded: list[tuple[bytes, bytes | None]]
    producer: ProducerStamp | None = None
    encoded_bytes: int = 0
    """Bytes of the records in a batch, at most."""
    records: Sequence[CoordinatorRecord] = ()
    """The records themselves, for a shard that notes offsets."""
    end_offset: int = -1
    committed: bool = False
    limited: bool = False
    """Whether the operation has a timeout."""

    def fail(self, error: KafkaError) -> None:
        """Fail the operation, whose records may still be committed."""
        after, self.after = self.after, None
        if after is not None:
            after(error)
        self.later.fail(error)


@dataclass(slots=True, eq=False)
class Turn:
    """A transaction marker, or a later write, that waits for its turn."""

    marker: bool
    go: Callable[[], None]


class MarkerGuard:
    """Tells whether a producer's transaction may have ended in a partition meanwhile.

    Made by the runtime. Its user asks the transaction coordinator, and then looks at `valid` in the operation that
    writes the producer's records: no marker lies between the question and the records. `release` ends it.
    """

    __slots__ = ("_guards", "producer_id", "valid")

    def __init__(self, producer_id: int, guards: dict[int, set[MarkerGuard]]) -> None:
        self.producer_id = producer_id
        self.valid = True
        """False once a marker of the producer comes, or another broker leads the partition."""
        self._guards = guards
        guards.setdefault(producer_id, set()).add(self)

    def release(self) -> None:
        """Forget the guard."""
        guards = self._guards.get(self.producer_id)
        if guards is not None:
            guards.discard(self)
            if not guards:
                del self._guards[self.producer_id]


class HostedShard(Generic[S]):
    """One shard with its queues. Owned by the runtime."""

    def __init__(self, partition: TopicPartition, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.shard: S
        self.notes: NotesOffsets | None = None
        """The shard, when it notes the offsets of its records."""
        self.timer: ShardTimer[S]
        self.load: Load | None = None
        self.unwritten: deque[PendingOperation] = deque()
        self.unwritten_bytes = 0
        """Bytes of the records in `unwritten`, at most."""
        self.uncommitted: deque[PendingOperation] = deque()
        self.appending = False
        """An append is in progress. `uncommitted` entries without an end offset are part of it, or wait for it."""
        self.marking = False
        """Whether that append is a transaction marker."""
        self.turns: deque[Turn] = deque()
        """Markers that wait for an append to end, and the writes behind them."""
        self.max_batch_bytes = 0
        """The log's largest batch in bytes, as of the last operation."""
        self.loaded_end = 0
        """The log's end when it was loaded. Records below it may be uncommitted, and may be lost."""
        self._guards: dict[int, set[MarkerGuard]] = {}

    def guard(self, producer_id: int) -> MarkerGuard:
        """A guard that the next marker of the producer ends."""
        return MarkerGuard(producer_id, self._guards)

    def marker_comes(self, producer_id: int) -> None:
        """End the guards of a producer: a marker is about to be written."""
        for guard in self._guards.pop(producer_id, ()):
            guard.valid = False

    def end_guards(self) -> None:
        """End all guards: the shard is unloaded."""
        for producer_id in list(self._guards):
            self.marker_comes(producer_id)
